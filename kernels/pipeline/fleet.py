"""Inference engines in the general loop: rollouts enter and leave them, publications stop them.

A rollout in a slot is a request of the same number. Engines move at their boundaries with a change alone
(:mod:`..engine`), which stand in a tournament tree by clock value; `engine_time` of the state is the tick of
the first. A boundary up to a tick holds before the events of that tick; an engine that stands still begins
after the last event of a tick (`engines_due`).

`fleet` is a FleetArrays throughout: a boundary is as common as a rollout's end, and each array of a call is
seven words to copy.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from ..engine.boundary import (
    decoded_now,
    enter,
    go_on,
    leave_decoded,
    look_after,
    lose_cache,
    routed_engine,
    tick_of,
)
from ..engine.lists import remove_running, remove_waiting
from ..engine.records import BY_GROUP, OUTSIDE, ROUND_ROBIN, UNITS_BITS, WAITING
from ..engine.steps import steps_past, take_steps
from .clock import event_key, first_slot, newer_versions, set_key
from .records import DUE, NEVER, ON_ENGINE, TAIL, FleetArrays
from .stops import decoding_is_stopped
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)
_LATEST_TICK = 2**42 - 1  # of a horizon


@jit(inline=True, counted=False)
def fleet_of(arrays):
    """Return what engines need of GeneralArrays."""
    return FleetArrays(
        arrays.time_tree,
        arrays.slots,
        arrays.groups,
        arrays.members,
        arrays.engines,
        arrays.requests,
        arrays.engine_tree,
        arrays.coefficients,
    )


@jit(counted=False)
def _clock_of(tick):
    """Return a tick as a clock value; all beyond the longest horizon are one."""
    return min(tick, np.int64(_LATEST_TICK)) << UNITS_BITS


@jit(inline=True, counted=False)
def _note_change(parameters, state, fleet, place):
    """Put the next change of an engine into the calendar."""
    set_key(fleet.engine_tree, parameters.engine_leaves, place, fleet.engines[place].change_clock)
    first = fleet.engine_tree[1]
    state.engine_time = first if first == NEVER else tick_of(first)


@jit(inline=True, counted=False)
def _take_steps_kernel(parameters, coefficients, engine, steps):
    """Bring an engine forward; steps that end after the warm-up are in the sums."""
    warm = parameters.warmup << UNITS_BITS
    if steps > 0 and engine.clock < warm:
        before = min(steps, steps_past(coefficients, engine, warm) - 1)
        take_steps(coefficients, engine, before, False)
        steps -= before
    take_steps(coefficients, engine, steps, True)


@jit(counted=False)
def _catch_up(parameters, coefficients, engine, tick):
    """Bring an engine to its last boundary up to a tick; no change lies in between."""
    if engine.standing == 0:
        steps = steps_past(coefficients, engine, tick << UNITS_BITS) - 1
        _take_steps_kernel(parameters, coefficients, engine, steps)


@jit(counted=False)
def _look_soon(parameters, state, fleet, place, tick):
    """Let the first boundary later than a tick be one with a change."""
    engine = fleet.engines[place]
    horizon = parameters.horizon << UNITS_BITS
    if engine.standing == 0 and look_after(fleet.coefficients[0], engine, tick, horizon):
        _note_change(parameters, state, fleet, place)


@jit(inline=True, counted=False)
def _sum_waiting(parameters, engine, clock):
    """Sum the time in the queue up to a clock value, before the queue changes."""
    since = max(engine.waiting_mark, parameters.warmup << UNITS_BITS)
    if clock > since:
        engine.waiting_ticks += np.float64(engine.waiting) * (np.float64(clock - since) / 2.0**UNITS_BITS)
    engine.waiting_mark = max(engine.waiting_mark, clock)


@jit(counted=False)
def _go_on_kernel(parameters, state, fleet, place):
    """At the engine's clock: memory, admission, and the next step if anything runs."""
    engine = fleet.engines[place]
    _sum_waiting(parameters, engine, engine.clock)
    stood = engine.standing
    counted = engine.clock > parameters.warmup << UNITS_BITS
    horizon = parameters.horizon << UNITS_BITS
    go_on(fleet.coefficients[0], engine, fleet.requests, horizon, counted)
    state.engines_in_step += stood - engine.standing
    _note_change(parameters, state, fleet, place)


# --- what a pipeline does to engines -----------------------------------------------------------------


@jit(counted=False)
def _start_on_engine_kernel(parameters, state, fleet, slot, record, position, number, tokens, environment):
    """Let a rollout that starts now enter the queue of its engine."""
    coefficients = fleet.coefficients[0]
    engines = fleet.engines
    groups = fleet.groups
    request = fleet.requests[slot]
    slots = fleet.slots
    slots[slot].phase = ON_ENGINE
    slots[slot].tail = parameters.overhead_ticks + environment
    slots[slot].mark = 0
    slots[slot].done = 0
    slots[slot].version_work = 0.0
    request.prompt_tokens = parameters.prompt_tokens
    request.tokens = tokens
    if coefficients.routing == BY_GROUP and position > 0:
        place = groups[record].engine
    else:
        place = routed_engine(coefficients, engines, number)
    if position == 0:
        groups[record].engine = place
    now = state.now
    _sum_waiting(parameters, engines[place], now << UNITS_BITS)
    horizon = parameters.horizon << UNITS_BITS
    enter(coefficients, engines, fleet.requests, slot, place, now, horizon)
    if engines[place].standing == 1:
        state.engines_due = now
    else:
        _note_change(parameters, state, fleet, place)
    if coefficients.routing != ROUND_ROBIN:
        state.cost += engines.shape[0] >> 4


@jit(counted=False)
def _leave_engine_kernel(parameters, state, fleet, slot):
    """Cancel a rollout on an engine; gives the tokens that it has at the last boundary.

    One that runs stays in the step under way, whose length is set; its token does not count.
    """
    requests = fleet.requests
    request = requests[slot]
    place = request.engine
    engine = fleet.engines[place]
    _sum_waiting(parameters, engine, state.now << UNITS_BITS)
    _catch_up(parameters, fleet.coefficients[0], engine, state.now)
    tokens = decoded_now(engine, request)
    if request.phase == WAITING:
        remove_waiting(engine, requests, slot)
        if engine.standing == 1:
            state.engines_due = state.now
    else:
        context = request.prompt_tokens + tokens
        remove_running(engine, requests, slot)
        if engine.standing == 1:
            engine.context -= context
        else:
            engine.running += 1
            engine.cancelled += 1
            engine.cancelled_context += context
    request.phase = OUTSIDE
    engine.assigned -= 1
    _look_soon(parameters, state, fleet, place, state.now)
    return tokens


@jit(counted=False)
def _abort_engine(parameters, engine, requests, clock):
    """All that run lose their cache and stand in front, in the order of admission, for re-prefill."""
    _sum_waiting(parameters, engine, clock)
    resume = _clock_of(ticks_of(parameters.resume_seconds))
    admissible = max(clock, engine.abort_until) + resume
    number = engine.last
    while number >= 0:
        before = requests[number].previous
        lose_cache(engine, requests, number)
        requests[number].admissible_clock = admissible
        number = before
    engine.aborts = 0
    engine.abort_until = 0


@jit(counted=False)
def _abort_engines_kernel(parameters, state, fleet):
    """A publication that aborts starts now: at each engine's next boundary, at once where it stands still."""
    until = _clock_of(state.now + min(parameters.sync_ticks, np.int64(_LATEST_TICK)))
    for place in range(fleet.engines.shape[0]):
        engine = fleet.engines[place]
        engine.aborts = 1
        engine.abort_until = max(engine.abort_until, until)
        if engine.standing == 1:
            _abort_engine(parameters, engine, fleet.requests, state.now << UNITS_BITS)
        else:
            _look_soon(parameters, state, fleet, place, state.now)
    state.cost += parameters.slots


@jit(counted=False)
def _book_tokens(parameters, state, fleet, slot, done):
    """Book a rollout's tokens up to `done` under the version that is published."""
    slots = fleet.slots
    grown = done - slots[slot].mark
    if grown <= 0:
        return
    member = slots[slot].group * parameters.group_size + slots[slot].member
    behaviour = fleet.members[member].version
    versions = newer_versions(parameters, state, behaviour)
    slots[slot].mark = done
    if versions > 0:
        slots[slot].version_work += np.float64(versions) * np.float64(grown)
    fleet.members[member].end_version = behaviour + versions


@jit(counted=False)
def _book_versions_kernel(parameters, state, fleet):
    """Before a version becomes visible: tokens of steps that have begun belong to the one before it."""
    engines = fleet.engines
    for place in range(engines.shape[0]):
        _catch_up(parameters, fleet.coefficients[0], engines[place], state.now)
    for slot in range(parameters.slots):
        if fleet.slots[slot].phase != ON_ENGINE:
            continue
        request = fleet.requests[slot]
        engine = engines[request.engine]
        done = decoded_now(engine, request)
        if request.phase != WAITING and engine.standing == 0:
            done += 1
        _book_tokens(parameters, state, fleet, slot, done)


# --- what time alone brings about --------------------------------------------------------------------


@jit(inline=True, counted=False)
def _attend_engines_kernel(parameters, state, fleet):
    """After an event and its settle: let engines know that decoding stops, or goes on."""
    stopped = decoding_is_stopped(state)
    if stopped and state.engines_stopped == 0:
        state.engines_stopped = 1
        for place in range(fleet.engines.shape[0]):
            _look_soon(parameters, state, fleet, place, state.clock)
    elif not stopped and state.engines_stopped == 1:
        state.engines_stopped = 0
        state.engines_due = state.now


@jit(counted=False)
def _begin_standing_kernel(parameters, state, fleet):
    """After the last event of a tick: engines that stand still do their boundary."""
    tick = state.engines_due
    state.engines_due = NEVER
    if decoding_is_stopped(state):
        return
    for place in range(fleet.engines.shape[0]):
        engine = fleet.engines[place]
        if engine.standing == 1 and engine.waiting + engine.running > 0:
            engine.clock = tick << UNITS_BITS
            _go_on_kernel(parameters, state, fleet, place)
            state.cost += 1


@jit(counted=False)
def _end_decode_kernel(parameters, state, fleet, slot, clock, tick):
    """A rollout has all its tokens: its tail begins, or it is due in this tick, by (clock, slot)."""
    slots = fleet.slots
    tokens = fleet.requests[slot].tokens
    _book_tokens(parameters, state, fleet, slot, tokens)
    slots[slot].done = tokens
    if slots[slot].tail > 0 or clock == tick << UNITS_BITS:
        slots[slot].phase = TAIL
        key = event_key(parameters, tick + slots[slot].tail, slot)
        set_key(fleet.time_tree, parameters.leaves, slot, key)
        return
    slots[slot].phase = DUE
    if state.due == 0:
        state.due_head = 0
        state.due_tail = 0
    place = state.due_tail
    while place > state.due_head:
        before = slots[place - 1].due
        ended = fleet.requests[before].end_clock
        if ended < clock or (ended == clock and before < slot):
            break
        slots[place].due = before
        place -= 1
    slots[place].due = slot
    state.due_tail += 1
    state.due += 1


@jit(counted=False)
def _boundary_kernel(parameters, state, fleet, place, tick):
    """Let the next change of an engine happen, at a clock value up to a tick."""
    engine = fleet.engines[place]
    requests = fleet.requests
    if engine.standing == 1:
        # Nothing runs, and the head was not to be admitted before.
        clock = engine.change_clock
        engine.change_clock = NEVER
        if decoding_is_stopped(state) or clock == tick << UNITS_BITS:
            if not decoding_is_stopped(state):
                state.engines_due = tick
            _note_change(parameters, state, fleet, place)
            return
        engine.clock = clock
        _go_on_kernel(parameters, state, fleet, place)
        return
    _take_steps_kernel(parameters, fleet.coefficients[0], engine, engine.change_steps)
    engine.running -= engine.cancelled
    engine.context -= engine.cancelled_context + engine.cancelled
    engine.cancelled = 0
    engine.cancelled_context = 0
    slot = leave_decoded(engine, requests)
    while slot >= 0:
        after = requests[slot].next
        requests[slot].next = -1
        _end_decode_kernel(parameters, state, fleet, slot, engine.clock, tick)
        state.cost += 1
        slot = after
    if engine.aborts == 1:
        _abort_engine(parameters, engine, requests, engine.clock)
    if decoding_is_stopped(state):
        engine.standing = 1
        engine.change_steps = 0
        engine.change_clock = NEVER
        state.engines_in_step -= 1
        _note_change(parameters, state, fleet, place)
        return
    _go_on_kernel(parameters, state, fleet, place)


@jit(counted=False)
def _pass_boundaries_kernel(parameters, state, fleet, tick):
    """Let every change of every engine up to a tick happen, in the order of clock values."""
    limit = tick << UNITS_BITS
    while fleet.engine_tree[1] <= limit:
        place = first_slot(fleet.engine_tree, parameters.engine_leaves)
        _boundary_kernel(parameters, state, fleet, place, tick)
        state.cost += 1


@jit(counted=False)
def _note_levels_kernel(fleet, row, now):
    """Write what runs, waits and is cached over all engines into a row of the timeline."""
    coefficients = fleet.coefficients[0]
    row.running = 0
    row.engine_waiting = 0
    row.kv_tokens = 0
    for place in range(fleet.engines.shape[0]):
        engine = fleet.engines[place]
        row.running += engine.running
        row.engine_waiting += engine.waiting
        row.kv_tokens += engine.context
        if engine.standing == 0:
            steps = steps_past(coefficients, engine, now << UNITS_BITS) - 1
            row.kv_tokens += engine.running * steps


@jit(counted=False)
def _close_engines_kernel(parameters, coefficients, engines, end):
    """Bring a copy of the engines to the end of a run, for its summary."""
    coefficients = coefficients[0]
    parameters = parameters[0]
    for place in range(engines.shape[0]):
        engine = engines[place]
        _catch_up(parameters, coefficients, engine, end)
        _sum_waiting(parameters, engine, end << UNITS_BITS)
