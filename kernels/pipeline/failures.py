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
from .clock import first_slot, set_key
from .fleet import _leave_engine_kernel
from .records import (
    DECODING,
    DUE,
    EMPTY,
    EVENT_CHECKPOINT,
    EVENT_FAILURE,
    EVENT_RESTART,
    EVENT_WORKER_FAILURE,
    HELD,
    LOST,
    NEVER,
    ON_ENGINE,
)
from .rollback import _fail_trainer_kernel, end_checkpoint
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
def _begin_failures_kernel(parameters, seed, failing):
    """Schedule the first failures; the start of the run is its first checkpoint."""
    if parameters.trainer_fails == 1:
        up_ticks = _up_ticks_kernel(seed, np.int64(4), np.int64(0), np.int64(0), parameters.trainer_mtbf)
        failing.failures[0].failure_time = up_ticks
    if parameters.workers_fail == 1:
        for slot in range(parameters.slots):
            _next_worker_failure(parameters, seed, failing, slot, np.int64(0))


@jit(counted=False)
def _next_of_failures(parameters, failures, worker_tree):
    """Return the next tick at which a failure strikes, or a checkpoint or restart ends."""
    time = min(failures.failure_time, min(failures.restart_time, failures.checkpoint_time))
    if parameters.workers_fail == 1:
        time = min(time, worker_tree[1])
    return time


@jit(counted=False)
def _idle_worker_fails_kernel(parameters, state, seed, slots, failing, time):
    """Let the first worker that fails at a tick do so where nothing is in flight: that is no event.

    Tells whether it was so. A failure of the trainer in this tick comes first.
    """
    if parameters.workers_fail == 0 or failing.worker_tree[1] != time:
        return False
    if failing.failures[0].failure_time == time:
        return False
    slot = first_slot(failing.worker_tree, parameters.leaves)
    if slots[slot].phase not in (EMPTY, HELD):
        return False
    _next_worker_failure(parameters, seed, failing, slot, time)
    state.cost += 1
    return True


@jit(counted=False)
def _failure_strikes_kernel(parameters, state, seed, arrays, failing, measured):
    """Let the failure that is due now strike; gives its event, or -1 where none is due."""
    now = state.now
    failures = failing.failures[0]
    if failures.failure_time == now:
        _fail_trainer_kernel(parameters, state, arrays, failing, measured)
        failures.count += 1
        up_again = now + parameters.restart_ticks
        failures.restart_time = up_again if up_again > now else np.int64(NEVER)
        up_ticks = _up_ticks_kernel(seed, np.int64(4), failures.count, np.int64(0), parameters.trainer_mtbf)
        failures.failure_time = up_again + up_ticks
        return np.int64(EVENT_FAILURE)
    if parameters.workers_fail == 1 and failing.worker_tree[1] == now:
        slot = first_slot(failing.worker_tree, parameters.leaves)
        _fail_worker_kernel(parameters, state, arrays, failures, slot)
        _next_worker_failure(parameters, seed, failing, slot, now)
        return np.int64(EVENT_WORKER_FAILURE)
    return np.int64(-1)


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
        _leave_engine_kernel(parameters, state, arrays, slot)
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


@jit(counted=False)
def _end_wait_kernel(failures, busy, now):
    """End the checkpoint or the restart that is over now; gives its event."""
    if failures.checkpoint_time == now:
        end_checkpoint(failures, busy)
        return np.int64(EVENT_CHECKPOINT)
    failures.restart_time = NEVER
    return np.int64(EVENT_RESTART)


@jit(inline=True, counted=False)
def note_kept(failures, tokens, groups):
    """Note what a step that has ended trained."""
    failures.kept_tokens += tokens
    failures.kept_groups += groups
