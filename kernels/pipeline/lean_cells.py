"""Many configurations of one seed in one call: the inner loop of a sweep.

A seed's rollouts are drawn once, into a buffer that all configurations with the same length law share
(common random numbers). The call comes back when its event budget is spent or an array is too small, and
goes on exactly there when it is called again.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .lean import _advance_kernel, _reset_kernel
from .lean_layout import NEVER, OUT_OF_BUDGET, REACHED, S_EVENTS
from .lean_summary import _summarize_kernel


@jit
def run_cells_kernel(
    params,
    rates,
    seed,
    progress,
    event_budget,
    cdf,
    guide,
    drawn,
    drawn_tokens,
    drawn_normals,
    state,
    sums,
    tree,
    idle_stack,
    slots,
    ring,
    log_weights,
    training_lags,
    batch_rows,
    batch_floats,
    timeline_rows,
    rollout_rows,
    integers,
    floats,
    lag_counts,
    stop_after_each,
):
    """Run configurations ``progress[0]``… of one seed to their ends and write their metrics.

    Parameters
    ----------
    params : int64[c, P_COUNT], rates : float64[c, PF_COUNT]
        One row a configuration; all share the length law's table.
    seed : uint64
    progress : int64[2]
        The configuration in hand, and whether it has begun (0 or 1); updated.
    event_budget : int64
        Come back after about so many events.
    integers : int64[c, 14], floats : float64[c, 14], lag_counts : int64[c, 65]
        Filled, row by row.
    stop_after_each : int64
        1: come back after each configuration, so that the caller can take its recorded rows.

    The other arrays are those of the event loop's kernel, as large as the largest configuration needs.

    Returns
    -------
    int64
        REACHED when a stop is due (all done, or one with `stop_after_each`), else the loop's status.
    """
    while progress[0] < params.shape[0]:
        cell = progress[0]
        if progress[1] == 0:
            _reset_kernel(params[cell], state, sums, tree, idle_stack, lag_counts[cell], training_lags)
            progress[1] = 1
        events_before = state[S_EVENTS]
        status = _advance_kernel(
            params[cell],
            rates[cell],
            seed,
            np.int64(NEVER),
            event_budget,
            cdf,
            guide,
            drawn,
            drawn_tokens,
            drawn_normals,
            state,
            sums,
            tree,
            idle_stack,
            slots,
            ring,
            log_weights,
            lag_counts[cell],
            training_lags,
            batch_rows,
            batch_floats,
            timeline_rows,
            rollout_rows,
        )
        event_budget -= state[S_EVENTS] - events_before
        if status != REACHED:
            return status
        _summarize_kernel(params[cell], state, sums, integers[cell], floats[cell])
        progress[0] += 1
        progress[1] = 0
        if stop_after_each == 1:
            return np.int64(REACHED)
        if event_budget <= 0 and progress[0] < params.shape[0]:
            return np.int64(OUT_OF_BUDGET)
    return np.int64(REACHED)
