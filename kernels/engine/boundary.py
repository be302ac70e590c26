"""What happens at a boundary of an engine: who has all tokens leaves, memory, admission, the next step."""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .lists import append_running, append_waiting, put_first, remove_running, remove_waiting
from .records import DECODED, DECODING, NO_LIMIT, ROUND_ROBIN, UNITS_BITS, WAITING
from .steps import clock_after, next_change, step_units, steps_past, take_steps


@jit(counted=False)
def routed_engine(coefficients, engines, number):
    """Choose the engine of a request that starts: the least loaded one, the lowest of several, or in turn."""
    if coefficients.routing == ROUND_ROBIN:
        return number % engines.shape[0]
    best = np.int64(0)
    for other in range(1, engines.shape[0]):
        if engines[other].assigned < engines[best].assigned:
            best = np.int64(other)
    return best


@jit(counted=False)
def look_after(coefficients, engine, tick, horizon):
    """Let the first boundary later than a tick be one with a change; tells whether it was to come later."""
    steps = steps_past(coefficients, engine, tick << UNITS_BITS)
    if steps >= engine.change_steps:
        return False
    engine.change_steps = steps
    engine.change_clock = clock_after(coefficients, engine, steps, horizon)
    return True


@jit(counted=False)
def enter(coefficients, engines, requests, number, place, tick, horizon):
    """Let a request enter the queue of the engine at `place`, in the order of starts.

    An engine in the midst of a step sees it at the first boundary later than the tick; behind others that
    wait it changes nothing. One that stands still begins after the last event (:func:`begin_standing`).
    """
    engine = engines[place]
    request = requests[number]
    request.engine = place
    request.phase = WAITING
    request.decoded = 0
    request.admitted_clock = -1
    request.admissions = 0
    request.preemptions = 0
    request.admissible_clock = 0
    engine.assigned += 1
    seen = engine.waiting > 0
    append_waiting(engine, requests, number)
    if engine.standing == 0 and not seen:
        look_after(coefficients, engine, tick, horizon)


@jit(counted=False)
def leave_decoded(engine, requests):
    """Let the requests that have all their tokens leave; gives the first of them, linked by `next`."""
    left = np.int64(-1)
    while engine.soonest >= 0 and requests[engine.soonest].last_step == engine.steps:
        number = engine.soonest
        remove_running(engine, requests, number)
        request = requests[number]
        request.phase = DECODED
        request.decoded = request.tokens
        request.end_clock = engine.clock
        request.next = left
        left = number
        engine.context -= request.prompt_tokens + request.tokens
        engine.assigned -= 1
    return left


@jit(counted=False)
def decoded_now(engine, request):
    """Return the tokens that a request has at the engine's clock."""
    if request.phase == DECODING:
        return request.tokens - (request.last_step - engine.steps)
    return request.decoded


@jit(counted=False)
def lose_cache(engine, requests, number):
    """Take a running request back to the front of its queue: it keeps its tokens and loses its cache."""
    request = requests[number]
    decoded = decoded_now(engine, request)
    remove_running(engine, requests, number)
    engine.context -= request.prompt_tokens + decoded
    request.decoded = decoded
    request.phase = WAITING
    put_first(engine, requests, number)


@jit(counted=False)
def make_room(coefficients, engine, requests, counted):
    """Preempt what was admitted last while the next step would not fit; tells whether anything was."""
    preempted = False
    while engine.context + engine.running > coefficients.cache_tokens:
        number = engine.last
        lose_cache(engine, requests, number)
        requests[number].admissible_clock = 0
        requests[number].preemptions += 1
        preempted = True
        if counted:
            engine.preemptions += 1
    return preempted


@jit(counted=False)
def admit_waiting(coefficients, engine, requests):
    """Admit from the queue, first come, first served, while there is room."""
    while engine.waiting > 0 and engine.running < coefficients.max_running:
        number = engine.queue_first
        request = requests[number]
        prefill = request.prompt_tokens + request.decoded
        if engine.context + prefill + engine.running + 1 > coefficients.cache_tokens:
            break
        if request.admissible_clock > engine.clock:
            break
        remove_waiting(engine, requests, number)
        request.phase = DECODING
        request.last_step = engine.steps + request.tokens - request.decoded
        request.admissions += 1
        if request.admissions == 1:
            request.admitted_clock = engine.clock
        else:
            engine.repeating += prefill
        engine.prefilling += prefill
        engine.context += prefill
        append_running(engine, requests, number)


@jit(counted=False)
def note_first_tokens(coefficients, engine, requests):
    """Set the time of the first token of those that were admitted for the first time at this boundary."""
    number = engine.last
    while number >= 0:
        request = requests[number]
        if request.admitted_clock != engine.clock or request.admissions != 1:
            break  # those before it were admitted earlier
        request.first_clock = (
            engine.clock + step_units(coefficients, engine) + coefficients.prefill * engine.prefilling
        )
        number = request.previous


@jit(counted=False)
def go_on(coefficients, engine, requests, horizon, counted):
    """At a boundary, after those that left: memory, admission, and the next step if anything runs."""
    engine.look = 0
    preempted = coefficients.cache_tokens < NO_LIMIT and make_room(coefficients, engine, requests, counted)
    if preempted:
        engine.look = 1
    else:
        admit_waiting(coefficients, engine, requests)
    next_change(coefficients, engine, requests, horizon)


@jit(counted=False)
def begin_standing(coefficients, engine, requests, tick, horizon):
    """Let an engine that stands still do its boundary at a tick, after its last event."""
    engine.clock = tick << UNITS_BITS
    go_on(coefficients, engine, requests, horizon, False)
    note_first_tokens(coefficients, engine, requests)


@jit(counted=False)
def change(coefficients, engine, requests, horizon, counted):
    """Bring an engine to its next change and let it happen; gives those that left, linked by `next`."""
    take_steps(coefficients, engine, engine.change_steps, counted)
    left = leave_decoded(engine, requests)
    go_on(coefficients, engine, requests, horizon, counted)
    note_first_tokens(coefficients, engine, requests)
    return left


@jit(inline=True, counted=False)
def tick_of(clock):
    """Return the tick at which a clock value holds: ``ceil(clock / 2**20)``."""
    return ((clock - 1) >> UNITS_BITS) + 1
