"""Checkpoints of the general loop, and what a failure of the trainer takes back to the last one.

There are two places for checkpoints: one holds the last whole one, the other is being written. A checkpoint
holds the state of its beginning, from its end on; the start of the run is one too. A failure loses what is
live. A checkpoint that holds the queue brings back its groups, and puts those that ran then in front of those
that wait to run again.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .clock import set_key
from .fleet import _leave_engine_kernel, fleet_of
from .groups import leave_live
from .records import (
    CHANNEL_FREE,
    EMPTY,
    GROUP_POPPED,
    GROUP_QUEUED,
    GROUP_REQUEUED,
    GROUP_RUNNING,
    GROUP_UNUSED,
    H_OF_TRAINED,
    LOST,
    NEVER,
    ON_ENGINE,
    QUEUED,
    TRAINED,
    TRAINER_BUSY,
)
from .steps import _after_publication_kernel, end_checkpoint

_NO_VERSION = 2**62  # older than no group's


@jit(counted=False)
def _copy_words(source, first, target, place, count):
    """Copy int64 words from `first` on to those from `place` on."""
    for word in range(count):
        target[place + word] = source[first + word]


@jit(counted=False)
def _copy_queue(groups, members, first, other_groups, other_members, place):
    """Copy all records of groups and members between a run and a checkpoint, from one half to another.

    first and place say which half of the source and the target, in runs of the smaller number of groups.
    """
    count = min(groups.shape[0], other_groups.shape[0])
    words = groups.view(np.int64)
    size = count * (words.shape[0] // groups.shape[0])
    _copy_words(words, first * size, other_groups.view(np.int64), place * size, size)
    words = members.view(np.int64)
    size = min(words.shape[0], other_members.view(np.int64).shape[0])
    _copy_words(words, first * size, other_members.view(np.int64), place * size, size)


@jit(counted=False)
def _begin_checkpoint_kernel(parameters, arrays, failing):
    """Begin a checkpoint: a step has ended, its publication has started, and the settle is still to come.

    parameters PARAMETERS[1], arrays GeneralArrays, failing FailureArrays.
    """
    parameters = parameters[0]
    state = arrays.state[0]
    failures = failing.failures[0]
    if parameters.trainer_fails == 1:
        place = 1 - failures.saved
        words = arrays.state.view(np.int64)
        count = words.shape[0]
        _copy_words(words, 0, failing.saved_state.view(np.int64), place * count, count)
        failing.saved_tokens[place] = failures.kept_tokens
        failing.saved_trained[place] = failures.kept_groups
        for row in range(H_OF_TRAINED):
            for lag in range(arrays.histograms.shape[1]):
                failing.saved_histograms[place, row, lag] = arrays.histograms[row, lag]
        if parameters.saves_queue == 1:
            _copy_queue(arrays.groups, arrays.members, 0, failing.saved_groups, failing.saved_members, place)
            state.cost += arrays.members.shape[0]
    if parameters.checkpoint_ticks > 0:
        failures.checkpoint_time = state.now + parameters.checkpoint_ticks
        failures.wait_time = failures.checkpoint_time
    else:
        end_checkpoint(failures, arrays.trainer_ticks)
        _after_publication_kernel(parameters, state, False)


@jit(counted=False)
def _empty_slots_kernel(parameters, state, arrays):
    """Lose what is in flight: every slot is idle, as at time 0."""
    slots = arrays.slots
    count = parameters.slots
    for slot in range(count):
        if slots[slot].phase == ON_ENGINE:
            _leave_engine_kernel(parameters, state, fleet_of(arrays), slot)
        slots[slot].phase = EMPTY
        slots[slot].idle_stack = count - 1 - slot
        set_key(arrays.time_tree, parameters.leaves, slot, np.int64(NEVER))
        set_key(arrays.work_tree, parameters.leaves, slot, np.int64(NEVER))
    for place in range(arrays.engines.shape[0]):
        arrays.engines[place].aborts = 0
        arrays.engines[place].abort_until = 0
    state.idle = count
    state.in_flight_tokens = 0
    state.decoding = 0
    state.due = 0
    state.held = 0
    state.held_head = 0
    state.held_tail = 0
    state.stopped = 0
    state.cost += count


@jit(counted=False)
def _count_losses_kernel(parameters, state, groups, members, rows, failing, measured):
    """Return the tokens that are live and do not come back, and note what is lost in the recorded rows."""
    place = failing.failures[0].saved
    version = failing.saved_state[place].version
    base = place * groups.shape[0]
    size = parameters.group_size
    recording = parameters.record_rollouts == 1
    saves_queue = parameters.saves_queue == 1
    tokens = np.int64(0)
    if recording:
        state.cost += state.next_row
        for row in range(state.next_row):
            if rows[row].outcome == TRAINED and rows[row].version + rows[row].lag >= version:
                rows[row].outcome = LOST
    for record in range(1, groups.shape[0]):
        kind = groups[record].state
        if kind in (GROUP_RUNNING, GROUP_QUEUED, GROUP_POPPED):
            for member in range(record * size, record * size + groups[record].started):
                if measured:
                    state.left_tokens += members[member].tokens
                    state.left_rollouts += 1
                if recording:
                    rows[members[member].row].outcome = LOST
            comes_back = False
            if saves_queue and kind != GROUP_RUNNING:
                saved = failing.saved_groups[base + record]
                comes_back = saved.state == GROUP_QUEUED and saved.admission == groups[record].admission
            if not comes_back:
                tokens += groups[record].tokens
    state.cost += groups.shape[0]
    if saves_queue and recording:
        for record in range(base, base + groups.shape[0]):
            if failing.saved_groups[record].state == GROUP_QUEUED:
                for member in range(record * size, (record + 1) * size):
                    rows[failing.saved_members[member].row].outcome = QUEUED
    return tokens


@jit(counted=False)
def _restore_sums_kernel(state, histograms, failing, place):
    """Let the version, and sums over trained work, be those of a checkpoint."""
    saved = failing.saved_state[place]
    state.version = saved.version
    state.published = saved.version
    state.trained_batches = saved.trained_batches
    state.batches = saved.batches
    state.trained_tokens = saved.trained_tokens
    state.trained_rollouts = saved.trained_rollouts
    state.trained_groups = saved.trained_groups
    state.max_lag = saved.max_lag
    state.lag_start_sum = saved.lag_start_sum
    state.lag_dequeue_sum = saved.lag_dequeue_sum
    state.lag_training_sum = saved.lag_training_sum
    state.lag_end_sum = saved.lag_end_sum
    state.sync_lag_dequeue_sum = saved.sync_lag_dequeue_sum
    state.sync_lag_training_sum = saved.sync_lag_training_sum
    state.lag_sum = saved.lag_sum
    state.ess_sum = saved.ess_sum
    state.ess_min = saved.ess_min
    state.expected_ess_sum = saved.expected_ess_sum
    state.effective_tokens = saved.effective_tokens
    state.token_lag_sum = saved.token_lag_sum
    for row in range(H_OF_TRAINED):
        for lag in range(histograms.shape[1]):
            histograms[row, lag] = failing.saved_histograms[place, row, lag]


@jit(counted=False)
def _restore_queue_kernel(parameters, state, groups, members, failing, place):
    """Let the groups be those of a checkpoint: its queue, and in front of those that wait what ran then."""
    _copy_queue(failing.saved_groups, failing.saved_members, place, groups, members, 0)
    saved = failing.saved_state[place]
    state.queue_tokens = saved.queue_tokens
    state.queue_groups = saved.queue_groups
    state.queue_oldest = saved.queue_oldest
    state.front = saved.front
    state.front_count = saved.front_count
    state.requeue_head = saved.requeue_head
    state.requeue_tail = saved.requeue_tail
    state.requeued = saved.requeued
    state.places = saved.places
    last = np.int64(0)
    record = groups[0].live_next
    while record != 0:
        after = groups[record].live_next
        if groups[record].state == GROUP_RUNNING:
            leave_live(parameters, state, groups, record)
            groups[record].state = GROUP_REQUEUED
            groups[record].drawn = max(groups[record].drawn, groups[record].started)
            if last == 0:
                groups[record].next = state.requeue_head
                state.requeue_head = record
            else:
                groups[record].next = groups[last].next
                groups[last].next = record
            if groups[record].next == 0:
                state.requeue_tail = record
            last = record
            state.requeued += 1
            state.places += 1
        record = after
    state.cost += members.shape[0]


@jit(counted=False)
def _forget_groups_kernel(state, groups):
    """Lose every group that is queued, runs, or waits to run again."""
    for record in range(groups.shape[0]):
        groups[record].state = GROUP_UNUSED
        groups[record].version = -1
        groups[record].tokens = 0
        groups[record].started = 0
        groups[record].finished = 0
        groups[record].in_front = 0
    end = groups[0]  # the end mark of every list
    end.next = 0
    end.previous = 0
    end.rank_next = 0
    end.rank_previous = 0
    end.live_next = 0
    end.live_previous = 0
    state.queue_tokens = 0
    state.queue_groups = 0
    state.queue_oldest = _NO_VERSION
    state.front = 0
    state.front_count = 0
    state.requeue_head = 0
    state.requeue_tail = 0
    state.requeued = 0
    state.places = 0
    state.cost += groups.shape[0]


@jit(counted=False)
def _collect_unused_kernel(state, groups):
    """Chain every record that is neither queued nor waits to run again; what was popped then is lost."""
    state.free_head = 0
    state.free = 0
    for record in range(groups.shape[0] - 1, 0, -1):
        if groups[record].state == GROUP_POPPED:
            state.places += 1
            groups[record].state = GROUP_UNUSED
        if groups[record].state == GROUP_UNUSED:
            groups[record].next = state.free_head
            state.free_head = record
            state.free += 1


@jit(counted=False)
def _fail_trainer_kernel(parameters, state, arrays, failing):
    """The trainer fails: what is live is lost, and it goes back to its last checkpoint."""
    measured = state.now > parameters.warmup
    groups = arrays.groups
    members = arrays.members
    failures = failing.failures[0]
    place = failures.saved
    version = failing.saved_state[place].version
    lost = _count_losses_kernel(parameters, state, groups, members, arrays.rollout_rows, failing, measured)
    busy = arrays.trainer_ticks[TRAINER_BUSY]
    if measured:
        failures.lost_updates += state.version - version
        failures.lost_tokens += lost + failures.kept_tokens - failing.saved_tokens[place]
        failures.repeated_groups += failures.kept_groups - failing.saved_trained[place]
        failures.lost_busy_ticks += busy - failures.busy_mark
    failures.busy_mark = busy
    failures.kept_tokens = failing.saved_tokens[place]
    failures.kept_groups = failing.saved_trained[place]
    failures.checkpoint_time = NEVER
    failures.wait_time = NEVER

    _empty_slots_kernel(parameters, state, arrays)
    _restore_sums_kernel(state, arrays.histograms, failing, place)
    if parameters.saves_queue == 1 and version > 0:
        _restore_queue_kernel(parameters, state, groups, members, failing, place)
    else:
        _forget_groups_kernel(state, groups)
    _collect_unused_kernel(state, groups)
    state.running = 0
    state.starting = 0
    state.started = failures.kept_groups + state.queue_groups
    state.popped_batches = state.trained_batches
    state.popped_groups = failures.kept_groups
    state.popped_head = 0
    state.popped_tail = 0
    state.popped_tokens = 0
    state.prefetched = 0

    state.training = 0
    state.training_time = NEVER
    state.training_version = state.version
    state.fetch_time = NEVER
    state.evaluation_time = NEVER
    state.evaluation_due = 0
    state.channel = CHANNEL_FREE
    state.publication_time = NEVER
    state.publication_version = state.published
    state.waiting_version = -1
    if measured:
        state.max_queue = max(state.max_queue, state.queue_tokens)
