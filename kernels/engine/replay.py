"""Requests to one deployment, without a trainer: arrivals, boundaries, a timeline."""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .boundary import begin_standing, change, enter, routed_engine, tick_of
from .records import NEVER, UNITS_BITS, _record
from .steps import steps_past

FINISHED, GROW_TIMELINE = range(2)
LAST_CLOCK = 2**62  # u: nothing is computed beyond

REPLAY = _record("next", "rows")  # the next arrival, rows of the timeline
TIMELINE = _record("clock", "engine", "running", "waiting", "kv_tokens")


@jit(counted=False)
def _replay_requests_kernel(coefficients, engines, requests, order, ticks, replay, rows, touched):
    """Go on until every request that can end by LAST_CLOCK has ended, or the timeline is full.

    Parameters
    ----------
    coefficients, engines, requests : COEFFICIENTS[1], ENGINE[E], REQUEST[n]
        Requests hold prompt_tokens and tokens.
    order, ticks : int64[n]
        Requests as they arrive, and when.
    replay : REPLAY[1]
        How far it is.
    rows : TIMELINE[r]
        A row at each change.
    touched : int64[E]
        Scratch.

    Returns
    -------
    int64
        FINISHED or GROW_TIMELINE.
    """
    coefficients = coefficients[0]
    replay = replay[0]
    horizon = np.int64(LAST_CLOCK)
    while True:
        if replay.rows + engines.shape[0] > rows.shape[0]:
            return GROW_TIMELINE
        first = np.int64(0)
        for place in range(1, engines.shape[0]):
            if engines[place].change_clock < engines[first].change_clock:
                first = np.int64(place)
        clock = engines[first].change_clock
        arrives = replay.next < order.shape[0]
        if clock == NEVER and not arrives:
            return FINISHED
        if clock != NEVER and (not arrives or tick_of(clock) <= ticks[replay.next]):
            change(coefficients, engines[first], requests, horizon, True)
            _write(coefficients, rows, replay, engines, first, engines[first].clock)
            continue
        tick = ticks[replay.next]
        touched[:] = 0
        while replay.next < order.shape[0] and ticks[replay.next] == tick:
            number = order[replay.next]
            place = routed_engine(coefficients, engines, number)
            enter(coefficients, engines, requests, number, place, tick, horizon)
            touched[place] = 1
            replay.next += 1
        for place in range(engines.shape[0]):
            if touched[place] == 1:
                if engines[place].standing == 1:
                    begin_standing(coefficients, engines[place], requests, tick, horizon)
                _write(coefficients, rows, replay, engines, place, tick << UNITS_BITS)


@jit(counted=False)
def _write(coefficients, rows, replay, engines, place, clock):
    row = rows[replay.rows]
    engine = engines[place]
    row.clock = clock
    row.engine = place
    row.running = engine.running
    row.waiting = engine.waiting
    row.kv_tokens = engine.context
    if engine.clock < clock:  # in the midst of steps: tokens decoded since
        row.kv_tokens += engine.running * (steps_past(coefficients, engine, clock) - 1)
    replay.rows += 1
