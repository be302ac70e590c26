"""Lists of groups in the general loop: queued, live, requeued, popped, and unused records.

All lists are chained through the groups' records; record 0 is the end mark. The queue stands in the order of
arrival; for the orders by version, its groups stand in a second list as the trainer takes them. Live groups,
running or queued, stand in the order of admission; with the order `started` a front is kept: the groups
before it are all queued, so "the B oldest live groups are ready" is one comparison.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .places import place
from .records import (
    DISCARDED,
    FILTERED,
    FRESHEST,
    GROUP_QUEUED,
    GROUP_REQUEUED,
    GROUP_RUNNING,
    GROUP_UNUSED,
    H_DROPPED_DECILES,
    NEVER,
    OLDEST_VERSION,
    STARTED,
)

DECILE_BUCKET_BITS = 4  # lengths of one entry of the guide to deciles, as a logarithm


def decile_guide_of(quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a law's quantiles at 0.1…0.9 with an end mark, int64[10], and their guide by lengths, uint8[b].

    Examples
    --------
    >>> edges, guide = decile_guide_of(np.arange(10, 100, 10))
    >>> guide.tolist()
    [0, 1, 3, 4, 6, 7, 9]
    >>> [int(decile_of(tokens, edges, guide)) for tokens in (10, 11, 90, 91, 5_000)]
    [0, 1, 8, 9, 9]
    """
    firsts = np.arange((int(quantiles[-1]) >> DECILE_BUCKET_BITS) + 2) << DECILE_BUCKET_BITS
    guide = np.searchsorted(quantiles, firsts, side="left").astype(np.uint8)
    return np.append(quantiles, NEVER).astype(np.int64), guide


@jit(inline=True, counted=False)
def decile_of(tokens, decile_edges, decile_guide):
    """Return the decile (0…9) of a length, by what `decile_guide_of` gives of the law's quantiles at 0.1…0.9.

    The guide says how many of them lie below the length's bucket; hardly ever is there more than one in it.
    """
    last = np.int64(decile_guide.shape[0] - 1)
    decile = np.int64(decile_guide[place(min(tokens >> DECILE_BUCKET_BITS, last))])
    decile += np.int64(tokens > decile_edges[place(decile)])
    while tokens > decile_edges[place(decile)]:
        decile += 1
    return decile


@jit(counted=False)
def _advance_front_kernel(state, groups):
    """Move the front past groups that are queued."""
    front = state.front
    while front != 0 and groups[front].state == GROUP_QUEUED:
        groups[front].in_front = 1
        state.front_count += 1
        front = groups[front].live_next
    state.front = front


@jit(inline=True, counted=False)
def leave_live(parameters, state, groups, record):
    """Take a group out of the live ones."""
    group = groups[place(record)]
    before = group.live_previous
    after = group.live_next
    groups[place(before)].live_next = after
    groups[place(after)].live_previous = before
    if parameters.order == STARTED:
        if group.in_front == 1:
            state.front_count -= 1
            group.in_front = 0
        elif state.front == record:
            state.front = after
            _advance_front_kernel(state, groups)


@jit(inline=True, counted=False)
def is_ranked(parameters):
    """Say whether the trainer takes groups by their version."""
    return parameters.order == OLDEST_VERSION or parameters.order == FRESHEST


@jit(inline=True, counted=False)
def leave_queue(parameters, state, groups, record):
    """Take a group out of the queue."""
    group = groups[place(record)]
    before = group.previous
    after = group.next
    groups[place(before)].next = after
    groups[place(after)].previous = before
    if is_ranked(parameters):
        before = group.rank_previous
        after = group.rank_next
        groups[before].rank_next = after
        groups[after].rank_previous = before
    state.queue_tokens -= group.tokens
    state.queue_groups -= 1


@jit(counted=False)
def _rank_kernel(parameters, state, groups, record):
    """Put a group at its place by version among the queued, behind those of the same version."""
    version = groups[record].version
    if parameters.order == OLDEST_VERSION:
        before = groups[0].rank_previous
        while before != 0 and groups[before].version > version:
            before = groups[before].rank_previous
            state.cost += 1
        after = groups[before].rank_next
    else:
        after = groups[0].rank_next
        while after != 0 and groups[after].version >= version:
            after = groups[after].rank_next
            state.cost += 1
        before = groups[after].rank_previous
    groups[record].rank_next = after
    groups[record].rank_previous = before
    groups[before].rank_next = record
    groups[after].rank_previous = record


@jit(inline=True, counted=False)
def join_queue(parameters, state, groups, record):
    """Put a ready group at the end of the queue."""
    group = groups[place(record)]
    last = groups[0].previous
    group.next = 0
    group.previous = last
    groups[place(last)].next = record
    groups[0].previous = record
    group.state = GROUP_QUEUED
    state.queue_tokens += group.tokens
    state.queue_groups += 1
    state.queue_oldest = min(state.queue_oldest, group.version)
    if is_ranked(parameters):
        _rank_kernel(parameters, state, groups, record)
    if parameters.order == STARTED and state.front == record:
        _advance_front_kernel(state, groups)


@jit(inline=True, counted=False)
def free_record(state, groups, record):
    """Return a record back."""
    group = groups[place(record)]
    group.state = GROUP_UNUSED
    group.next = state.free_head
    state.free_head = record
    state.free += 1


@jit(inline=True, counted=False)
def free_chain(state, groups, first, last, count):
    """Return records back that are chained already and are told apart as unused."""
    groups[place(last)].next = state.free_head
    state.free_head = first
    state.free += count


@jit(inline=True, counted=False)
def admit_group(parameters, state, groups):
    """Admit one group: one that waits to run again, else a fresh prompt. There is an unused record."""
    record = state.requeue_head
    if record != 0:
        group = groups[place(record)]
        state.requeue_head = group.next
        if state.requeue_head == 0:
            state.requeue_tail = 0
        state.requeued -= 1
        # What a checkpoint brings back keeps its draws, so also the prompt that they belong to.
        fresh = parameters.redraw == 1 and group.drawn == 0
    else:
        record = state.free_head
        group = groups[place(record)]
        state.free_head = group.next
        state.free -= 1
        group.drawn = 0
        fresh = True
    if fresh:
        group.number = state.next_group
        state.next_group += 1
    group.admission = state.next_admission
    state.next_admission += 1
    group.state = GROUP_RUNNING
    group.version = -1
    group.tokens = 0
    group.started = 0
    group.finished = 0
    group.filtered = 0
    group.in_front = 0
    last = groups[0].live_previous
    group.live_previous = last
    group.live_next = 0
    groups[place(last)].live_next = record
    groups[0].live_previous = record
    if state.front == 0:
        state.front = record
    if state.starting == 0:
        state.starting = record
    state.running += 1
    state.started += 1
    if state.places > 0:
        state.places -= 1


@jit(counted=False)
def _retire_kernel(parameters, state, groups, record, requeue, measured):
    """A group that left untrained gives back its quota; it waits to run again, or its record is unused."""
    state.started -= 1
    state.places += 1
    if not requeue:
        free_record(state, groups, record)
        return
    groups[record].state = GROUP_REQUEUED
    if parameters.redraw == 1:
        groups[record].drawn = 0
    else:
        groups[record].drawn = max(groups[record].drawn, groups[record].started)
    groups[record].next = 0
    if state.requeue_tail == 0:
        state.requeue_head = record
    else:
        groups[state.requeue_tail].next = record
    state.requeue_tail = record
    state.requeued += 1
    if measured:
        state.requeued_groups += 1


@jit(counted=False)
def _drop_group_kernel(parameters, state, tables, arrays, record, reason, measured):
    """A ready group leaves untrained: DISCARDED (too old), FILTERED or EVICTED. It no longer runs."""
    groups = arrays.groups
    members = arrays.members
    size = parameters.group_size
    tokens = groups[record].tokens
    if groups[record].state == GROUP_QUEUED:
        leave_queue(parameters, state, groups, record)
    leave_live(parameters, state, groups, record)
    first = record * size
    if measured:
        if reason == DISCARDED:
            state.discarded_tokens += tokens
            state.discarded_groups += 1
        elif reason == FILTERED:
            state.filtered_tokens += tokens
            state.filtered_groups += 1
        else:
            state.evicted_tokens += tokens
            state.evicted_groups += 1
        state.left_tokens += tokens
        state.left_rollouts += size
        for member in range(first, first + size):
            tokens_of_member = members[member].tokens
            decile = decile_of(tokens_of_member, tables.decile_edges, tables.decile_guide)
            arrays.histograms[H_DROPPED_DECILES, decile] += 1
    if parameters.record_rollouts == 1:
        for member in range(first, first + size):
            arrays.rollout_rows[members[member].row].outcome = reason
    if reason == DISCARDED and parameters.record_batches == 1:
        # With the batch that ends in this tick, else with the next.
        last = state.batch_rows - 1
        if last >= 0 and arrays.batch_rows[last].end == state.now:
            arrays.batch_rows[last].discarded += size
        else:
            state.discarded_since += size
    state.cost += size
    _retire_kernel(
        parameters, state, groups, record, reason == DISCARDED and parameters.requeue == 1, measured
    )


@jit(counted=False)
def _drop_stale_kernel(parameters, state, tables, arrays, measured):
    """Every queued group that is too old leaves, in the order of arrival."""
    groups = arrays.groups
    oldest_kept = state.version - parameters.max_lag
    oldest = np.int64(2**62)
    record = groups[0].next
    while record != 0:
        after = groups[record].next
        state.cost += 1
        if groups[record].version < oldest_kept:
            _drop_group_kernel(parameters, state, tables, arrays, record, np.int64(DISCARDED), measured)
        else:
            oldest = min(oldest, groups[record].version)
        record = after
    state.queue_oldest = oldest
