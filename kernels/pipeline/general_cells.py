"""Many configurations of the general loop at many seeds in one call: the inner loop of a sweep above level 1.

The configurations of a call have arrays and tables alike, and nothing that brings a run back to Python before
its end: no failures, no engines, no questions, no recorded rows. The call comes back when its budget is spent
or an array is too small, and goes on exactly there when it is called again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._jit import jit
from .general import _advance_general_kernel
from .lean_cells import forget_other_draws
from .records import GENERAL_STATE, GROUP, H_TRAINING, NEVER, OUT_OF_BUDGET, REACHED, SLOT, initial_state
from .summary import general_metrics_kernel

RUN_COST = 50  # what beginning and closing a run costs, in events, for the budget …
RECORDS_PER_EVENT = 4  # … and how many records are cleared in the time of an event


class Unused(NamedTuple):
    """What a run's records hold at time 0, an array of one each."""

    state: np.ndarray  # GENERAL_STATE[1]
    slot: np.ndarray  # SLOT[1]
    group: np.ndarray  # GROUP[1]


UNUSED = Unused(initial_state(GENERAL_STATE), np.zeros(1, SLOT), np.zeros(1, GROUP))


@jit(counted=False)
def _reset_general_kernel(arrays, unused):
    """Put the arrays of a run at time 0: every slot idle, nothing queued, engines and failures apart.

    arrays GeneralArrays, unused Unused.
    """
    slots, groups = arrays.slots, arrays.groups
    slot_count, group_count = slots.shape[0], groups.shape[0]
    arrays.time_tree[:] = NEVER
    arrays.work_tree[:] = NEVER
    arrays.histograms[:] = 0
    arrays.slot_ticks[:] = 0
    arrays.trainer_ticks[:] = 0
    arrays.segment_starts[:] = 0
    # A stack: the slot freed last is used first, and at time 0 slot 0 is on top.
    for place in range(slot_count):
        slots[place] = unused.slot[0]
        slots[place].idle_stack = slot_count - 1 - place
    # Record 0 is the end mark of every list; the others are unused, one after another.
    for record in range(group_count):
        groups[record] = unused.group[0]
        if 0 < record < group_count - 1:
            groups[record].next = record + 1
    arrays.state[0] = unused.state[0]
    state = arrays.state[0]
    state.idle = slot_count
    state.free_head = 1
    state.free = group_count - 1


@jit(counted=False)
def run_general_cells_kernel(
    parameters, seeds, progress, budget, tables, draws, arrays, failures, unused, metrics, lag_counts
):
    """Run all configurations at the first seed, at the second…, to their ends and write their metrics.

    Parameters
    ----------
    parameters : PARAMETERS[c]
        Of configurations that `tables` and the sizes of `arrays` belong to.
    seeds : uint64[s]
    progress : int64[2]
        The run in hand, ``seed's place * c + configuration``, and whether it has begun (0 or 1); updated.
    budget : int64
        Come back at a cost of about so many events and scanned records.
    tables : Tables
    draws : MemberDraws
    arrays : GeneralArrays
    failures : FAILURES[1]
        Read alone: nothing fails.
    unused : Unused
    metrics : GENERAL_REPORT[s * c], lag_counts : int64[s * c, LAG_BINS]
        Filled, run by run.

    Returns
    -------
    int64
        REACHED when all are done, else OUT_OF_BUDGET or GROW_GROUPS, as the loop.
    """
    count = parameters.shape[0]
    while progress[0] < metrics.shape[0]:
        run = progress[0]
        cell = run % count
        seed = seeds[run // count]
        one = parameters[cell : cell + 1]
        if progress[1] == 0:
            forget_other_draws(draws, seed)
            _reset_general_kernel(arrays, unused)
            progress[1] = 1
            budget -= RUN_COST + (arrays.groups.shape[0] + arrays.slots.shape[0]) // RECORDS_PER_EVENT
        cost_before = arrays.state[0].cost
        status = _advance_general_kernel(
            one, seed, np.int64(NEVER), max(np.int64(1), budget), tables, draws, arrays, failures
        )
        budget -= arrays.state[0].cost - cost_before
        if status != REACHED:
            return status
        # The ticks by cause are closed where they stand: the run is at its end.
        general_metrics_kernel(
            one, arrays, metrics[run : run + 1], arrays.slot_ticks, arrays.trainer_ticks, tables
        )
        for lag in range(lag_counts.shape[1]):
            lag_counts[run, lag] = arrays.histograms[H_TRAINING, lag]
        progress[0] += 1
        progress[1] = 0
        if budget <= 0 and progress[0] < metrics.shape[0]:
            return np.int64(OUT_OF_BUDGET)
    return np.int64(REACHED)
