"""When failures of the general loop strike, and a worker's failure; the trainer's is in :mod:`.rollback`.

Up-time k of the trainer, in which it is not restarting, is ``max(1, ticks(-mtbf * log1p(-u)))`` ticks, u from
``w0`` of the block with key word 4 and counter k + 1; up-time k of slot i, in wall time, has key word 5 and
counter (k + 1, i). A failure is the first event of its tick, the trainer's before those of workers, these in
the order of the slots.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import philox_rounds, uniform_from_word
from .clock import book_time, first_slot, set_key
from .fleet import _leave_engine_kernel, fleet_of
from .records import (
    DECODING,
    DUE,
    EMPTY,
    EVENT_FAILURE,
    EVENT_WORKER_FAILURE,
    HELD,
    LOST,
    NEVER,
    ON_ENGINE,
    TRAINER_BATCH,
    TRAINER_BUSY,
    TRAINER_CHECKPOINT,
    TRAINER_FETCH,
    TRAINER_RESTART,
    TRAINER_RUNNING_GROUPS,
)
from .rollback import _fail_trainer_kernel
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)
_NO_VERSION = 2**62  # newer than any


@jit(counted=False)
def _up_ticks_kernel(seed, stream, number, slot, mtbf):
    """Draw an up-time in ticks, exponential with a mean of `mtbf` seconds; its number counts from 0."""
    zero = np.uint64(0)
    counter = np.uint64(number + 1)
    w0, _w1, _w2, _w3 = philox_rounds(seed, np.uint64(stream), counter, np.uint64(slot), zero, zero)
    return max(np.int64(1), np.int64(ticks_of(-mtbf * math.log1p(-uniform_from_word(w0)))))


@jit(counted=False)
def _next_worker_failure(parameters, seed, failing, slot, since):
    """Schedule the next failure of a slot; one after the horizon never comes."""
    number = failing.worker_counts[slot]
    time = since + _up_ticks_kernel(seed, np.int64(5), number, slot, parameters.worker_mtbf)
    failing.worker_counts[slot] = number + 1
    if time > parameters.horizon:
        time = np.int64(NEVER)
    set_key(failing.worker_tree, parameters.leaves, slot, time)


@jit(counted=False)
def _note_strike(parameters, failing):
    """Note which failure is the next one."""
    failures = failing.failures[0]
    failures.strike_time = failures.failure_time
    if parameters.workers_fail == 1:
        failures.strike_time = min(failures.strike_time, failing.worker_tree[1])


@jit(counted=False)
def _begin_failures_kernel(parameters, seed, failing):
    """Schedule the first failures of a run; its start is its first checkpoint.

    parameters PARAMETERS[1], seed uint64, failing FailureArrays.
    """
    parameters = parameters[0]
    if parameters.trainer_fails == 1:
        up_ticks = _up_ticks_kernel(seed, np.int64(4), np.int64(0), np.int64(0), parameters.trainer_mtbf)
        failing.failures[0].failure_time = up_ticks
    if parameters.workers_fail == 1:
        for slot in range(parameters.slots):
            _next_worker_failure(parameters, seed, failing, slot, np.int64(0))
    _note_strike(parameters, failing)


@jit(counted=False)
def _failure_strikes_kernel(parameters, seed, arrays, failing):
    """Let the next failure strike, up to its settle: the trainer's first, then workers' by slot.

    parameters PARAMETERS[1], seed uint64, arrays GeneralArrays, failing FailureArrays. A worker with nothing
    in flight loses nothing, and that is no event.
    """
    parameters = parameters[0]
    state = arrays.state[0]
    failures = failing.failures[0]
    time = failures.strike_time
    state.cost += 1
    if failures.failure_time == time:
        book_time(parameters, state, arrays.slot_ticks, arrays.trainer_ticks, time)
        _fail_trainer_kernel(parameters, state, arrays, failing)
        failures.count += 1
        up_again = time + parameters.restart_ticks
        if up_again > time:
            failures.restart_time = up_again
            failures.wait_time = up_again
        up_ticks = _up_ticks_kernel(seed, np.int64(4), failures.count, np.int64(0), parameters.trainer_mtbf)
        failures.failure_time = up_again + up_ticks
        state.event = EVENT_FAILURE
        state.settling = 2
    else:
        slot = first_slot(failing.worker_tree, parameters.leaves)
        if arrays.slots[slot].phase not in (EMPTY, HELD):
            book_time(parameters, state, arrays.slot_ticks, arrays.trainer_ticks, time)
            _fail_worker_kernel(parameters, state, arrays, failures, slot)
            state.event = EVENT_WORKER_FAILURE
            state.settling = 2
        _next_worker_failure(parameters, seed, failing, slot, time)
    _note_strike(parameters, failing)


@jit(counted=False)
def _fail_worker_kernel(parameters, state, arrays, failures, slot):
    """The rollout in a slot is to start again in this settle, first of all that starts.

    Its slot stands above the idle ones, and counts as one once the trainer has been looked at.
    """
    slots = arrays.slots
    groups = arrays.groups
    members = arrays.members
    record = slots[slot].group
    position = slots[slot].member
    first = record * parameters.group_size
    member = first + position
    phase = slots[slot].phase
    if phase == ON_ENGINE:
        _leave_engine_kernel(parameters, state, fleet_of(arrays), slot)
    elif phase == DECODING:
        set_key(arrays.work_tree, parameters.leaves, slot, np.int64(NEVER))
        state.decoding -= 1
    elif phase == DUE:
        state.due -= 1
    set_key(arrays.time_tree, parameters.leaves, slot, np.int64(NEVER))
    slots[slot].phase = EMPTY
    slots[state.idle].idle_stack = slot
    state.in_flight_tokens -= members[member].tokens
    failures.again = record
    failures.again_member = position
    if parameters.record_rollouts == 1:
        arrays.rollout_rows[members[member].row].outcome = LOST
    # The oldest start among the others: the new one may be the oldest.
    version = np.int64(_NO_VERSION)
    for other in range(first, first + groups[record].started):
        if other != member:
            version = min(version, members[other].version)
    groups[record].version = version
    state.cost += groups[record].started


@jit
def failure_metrics_kernel(parameters, failures, trainer_ticks, end, metrics):
    """Write what failures and checkpoints cost, beside the other metrics of a run.

    parameters PARAMETERS[1], failures FAILURES[1], trainer_ticks int64[n] closed at the end, end int64 in
    ticks; metrics GENERAL_REPORT[1] is filled. The trainer waits for data while its batch is not full, is
    fetched, or waits for running groups.
    """
    failures = failures[0]
    metrics = metrics[0]
    data = trainer_ticks[TRAINER_RUNNING_GROUPS] + trainer_ticks[TRAINER_BATCH] + trainer_ticks[TRAINER_FETCH]
    could = max(np.int64(0), end - parameters[0].warmup) - data
    kept = trainer_ticks[TRAINER_BUSY] - failures.lost_busy_ticks
    metrics.lost_updates = failures.lost_updates
    metrics.lost_tokens = failures.lost_tokens
    metrics.repeated_prompts = failures.repeated_groups
    metrics.trainer_checkpoint_seconds = trainer_ticks[TRAINER_CHECKPOINT] / 1e6
    metrics.trainer_restart_seconds = trainer_ticks[TRAINER_RESTART] / 1e6
    metrics.goodput_fraction = np.float64(kept) / np.float64(could) if could > 0 else math.nan
    if failures.wait_time != NEVER:
        metrics.stalled = 0
