"""Many configurations at many seeds in one call: the inner loop of a sweep.

A seed's rollouts are drawn once, into a buffer that all configurations with the same length law share
(common random numbers); then comes the next seed. The call comes back when its event budget is spent or an
array is too small, and goes on exactly there when it is called again.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .lean import _advance_lean_kernel, _reset_lean_kernel
from .records import NEVER, OUT_OF_BUDGET, REACHED
from .summary import lean_metrics_kernel


@jit(inline=True)
def forget_other_draws(draws, seed):
    """Keep the draws of a seed, or none: those of another are forgotten. Draws or MemberDraws."""
    if draws.seed[0] != seed:
        draws.seed[0] = seed
        draws.drawn[:] = 0


@jit
def run_cells_kernel(
    parameters, seeds, progress, event_budget, draws, arrays, metrics, lag_counts, stop_after_each
):
    """Run all configurations at the first seed, at the second…, to their ends and write their metrics.

    Parameters
    ----------
    parameters : PARAMETERS[c]
        All share the length law of `draws`.
    seeds : uint64[s]
    progress : int64[2]
        The run in hand, ``seed's place * c + configuration``, and whether it has begun (0 or 1); updated.
    event_budget : int64
        Come back after about so many events.
    draws : Draws
    arrays : LeanArrays
        As large as the largest configuration needs.
    metrics : LEAN_REPORT[s * c], lag_counts : int64[s * c, bins]
        Filled, run by run; as many bins as the largest lag of the configurations' rules needs.
    stop_after_each : int64
        1: come back after each run, so that the caller can take its recorded rows.

    Returns
    -------
    int64
        REACHED when a stop is due (all done, or one with `stop_after_each`), else the loop's status.
    """
    count = parameters.shape[0]
    while progress[0] < metrics.shape[0]:
        run = progress[0]
        cell = run % count
        seed = seeds[run // count]
        one = parameters[cell : cell + 1]
        if progress[1] == 0:
            forget_other_draws(draws, seed)
            _reset_lean_kernel(one, arrays)
            progress[1] = 1
        events_before = arrays.state[0].events
        status = _advance_lean_kernel(one, seed, np.int64(NEVER), event_budget, draws, arrays)
        event_budget -= arrays.state[0].events - events_before
        if status != REACHED:
            return status
        lean_metrics_kernel(one, arrays.state, metrics[run : run + 1])
        for lag in range(lag_counts.shape[1]):
            lag_counts[run, lag] = arrays.lag_counts[lag]
        progress[0] += 1
        progress[1] = 0
        if stop_after_each == 1:
            return np.int64(REACHED)
        if event_budget <= 0 and progress[0] < metrics.shape[0]:
            return np.int64(OUT_OF_BUDGET)
    return np.int64(REACHED)
