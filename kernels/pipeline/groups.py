"""Lists of groups in the general engine: queued, live, requeued, popped, and unused records.

All lists are chained through the groups' records; record 0 is the end mark. The queue stands in the order of
arrival; for the orders by version, its groups stand in a second list as the trainer takes them. Live groups,
running or queued, stand in the order of admission; with the order `started` a front is kept: the groups
before it are all queued, so "the B oldest live groups are ready" is one comparison.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .state import (
    DISCARDED,
    FILTERED,
    FRESHEST,
    G_ADMISSION,
    G_DRAWN,
    G_FILTERED,
    G_FINISHED,
    G_IN_FRONT,
    G_LIVE_NEXT,
    G_LIVE_PREVIOUS,
    G_NEXT,
    G_NUMBER,
    G_PREVIOUS,
    G_QUEUED,
    G_RANK_NEXT,
    G_RANK_PREVIOUS,
    G_REQUEUED,
    G_RUNNING,
    G_STARTED,
    G_STATE,
    G_TOKENS,
    G_UNUSED,
    G_VERSION,
    H_DROPPED_DECILES,
    M_ROW,
    M_SLOT,
    M_TOKENS,
    NOT_STARTED,
    O_OUTCOME,
    OLDEST_VERSION,
    P_GROUP_SIZE,
    P_MAX_LAG,
    P_ORDER,
    P_RECORD_ROLLOUTS,
    P_REDRAW,
    P_REQUEUE,
    S_COST,
    S_DISCARDED_GROUPS,
    S_DISCARDED_TOKENS,
    S_EVICTED_GROUPS,
    S_EVICTED_TOKENS,
    S_FILTERED_GROUPS,
    S_FILTERED_TOKENS,
    S_FREE,
    S_FREE_HEAD,
    S_FRONT,
    S_FRONT_COUNT,
    S_LEFT_ROLLOUTS,
    S_LEFT_TOKENS,
    S_NEXT_ADMISSION,
    S_NEXT_GROUP,
    S_PLACES,
    S_QUEUE_GROUPS,
    S_QUEUE_OLDEST,
    S_QUEUE_TOKENS,
    S_REQUEUE_HEAD,
    S_REQUEUE_TAIL,
    S_REQUEUED,
    S_REQUEUED_GROUPS,
    S_RUNNING,
    S_STARTED,
    S_STARTING,
    S_VERSION,
    STARTED,
)


@jit(inline=True, counted=False)
def decile_of(tokens, decile_edges):
    """Give the decile (0…9) of a length, by the law's quantiles int64[9] at 0.1…0.9."""
    decile = 0
    for edge in range(9):
        if tokens > decile_edges[edge]:
            decile += 1
    return decile


@jit(counted=False)
def _advance_front_kernel(state, groups):
    """Move the front past groups that are queued."""
    front = state[S_FRONT]
    while front != 0 and groups[front, G_STATE] == G_QUEUED:
        groups[front, G_IN_FRONT] = 1
        state[S_FRONT_COUNT] += 1
        front = groups[front, G_LIVE_NEXT]
    state[S_FRONT] = front


@jit(inline=True, counted=False)
def leave_live(params, state, groups, record):
    """Take a group out of the live ones."""
    before = groups[record, G_LIVE_PREVIOUS]
    after = groups[record, G_LIVE_NEXT]
    groups[before, G_LIVE_NEXT] = after
    groups[after, G_LIVE_PREVIOUS] = before
    if params[P_ORDER] == STARTED:
        if groups[record, G_IN_FRONT] == 1:
            state[S_FRONT_COUNT] -= 1
            groups[record, G_IN_FRONT] = 0
        elif state[S_FRONT] == record:
            state[S_FRONT] = after
            _advance_front_kernel(state, groups)


@jit(inline=True, counted=False)
def is_ranked(params):
    """Say whether the trainer takes groups by their version."""
    return params[P_ORDER] == OLDEST_VERSION or params[P_ORDER] == FRESHEST


@jit(inline=True, counted=False)
def leave_queue(params, state, groups, record):
    """Take a group out of the queue."""
    before = groups[record, G_PREVIOUS]
    after = groups[record, G_NEXT]
    groups[before, G_NEXT] = after
    groups[after, G_PREVIOUS] = before
    if is_ranked(params):
        before = groups[record, G_RANK_PREVIOUS]
        after = groups[record, G_RANK_NEXT]
        groups[before, G_RANK_NEXT] = after
        groups[after, G_RANK_PREVIOUS] = before
    state[S_QUEUE_TOKENS] -= groups[record, G_TOKENS]
    state[S_QUEUE_GROUPS] -= 1


@jit(counted=False)
def _rank_kernel(params, state, groups, record):
    """Put a group at its place by version among the queued, behind those of the same version."""
    version = groups[record, G_VERSION]
    if params[P_ORDER] == OLDEST_VERSION:
        before = groups[0, G_RANK_PREVIOUS]
        while before != 0 and groups[before, G_VERSION] > version:
            before = groups[before, G_RANK_PREVIOUS]
            state[S_COST] += 1
        after = groups[before, G_RANK_NEXT]
    else:
        after = groups[0, G_RANK_NEXT]
        while after != 0 and groups[after, G_VERSION] >= version:
            after = groups[after, G_RANK_NEXT]
            state[S_COST] += 1
        before = groups[after, G_RANK_PREVIOUS]
    groups[record, G_RANK_NEXT] = after
    groups[record, G_RANK_PREVIOUS] = before
    groups[before, G_RANK_NEXT] = record
    groups[after, G_RANK_PREVIOUS] = record


@jit(inline=True, counted=False)
def join_queue(params, state, groups, record):
    """Put a ready group at the end of the queue."""
    last = groups[0, G_PREVIOUS]
    groups[record, G_NEXT] = 0
    groups[record, G_PREVIOUS] = last
    groups[last, G_NEXT] = record
    groups[0, G_PREVIOUS] = record
    groups[record, G_STATE] = G_QUEUED
    state[S_QUEUE_TOKENS] += groups[record, G_TOKENS]
    state[S_QUEUE_GROUPS] += 1
    state[S_QUEUE_OLDEST] = min(state[S_QUEUE_OLDEST], groups[record, G_VERSION])
    if is_ranked(params):
        _rank_kernel(params, state, groups, record)
    if params[P_ORDER] == STARTED and state[S_FRONT] == record:
        _advance_front_kernel(state, groups)


@jit(inline=True, counted=False)
def free_record(state, groups, record):
    """Give a record back."""
    groups[record, G_STATE] = G_UNUSED
    groups[record, G_NEXT] = state[S_FREE_HEAD]
    state[S_FREE_HEAD] = record
    state[S_FREE] += 1


@jit(inline=True, counted=False)
def admit_group(params, state, groups, members):
    """Admit one group: one that waits to run again, else a fresh prompt. There is an unused record."""
    record = state[S_REQUEUE_HEAD]
    if record != 0:
        state[S_REQUEUE_HEAD] = groups[record, G_NEXT]
        if state[S_REQUEUE_HEAD] == 0:
            state[S_REQUEUE_TAIL] = 0
        state[S_REQUEUED] -= 1
        fresh = params[P_REDRAW] == 1
    else:
        record = state[S_FREE_HEAD]
        state[S_FREE_HEAD] = groups[record, G_NEXT]
        state[S_FREE] -= 1
        groups[record, G_DRAWN] = 0
        fresh = True
    if fresh:
        groups[record, G_NUMBER] = state[S_NEXT_GROUP]
        state[S_NEXT_GROUP] += 1
    groups[record, G_ADMISSION] = state[S_NEXT_ADMISSION]
    state[S_NEXT_ADMISSION] += 1
    groups[record, G_STATE] = G_RUNNING
    groups[record, G_VERSION] = -1
    groups[record, G_TOKENS] = 0
    groups[record, G_STARTED] = 0
    groups[record, G_FINISHED] = 0
    groups[record, G_FILTERED] = 0
    groups[record, G_IN_FRONT] = 0
    first = record * params[P_GROUP_SIZE]
    for member in range(first, first + params[P_GROUP_SIZE]):
        members[member, M_SLOT] = NOT_STARTED
    last = groups[0, G_LIVE_PREVIOUS]
    groups[record, G_LIVE_PREVIOUS] = last
    groups[record, G_LIVE_NEXT] = 0
    groups[last, G_LIVE_NEXT] = record
    groups[0, G_LIVE_PREVIOUS] = record
    if state[S_FRONT] == 0:
        state[S_FRONT] = record
    if state[S_STARTING] == 0:
        state[S_STARTING] = record
    state[S_RUNNING] += 1
    state[S_STARTED] += 1
    if state[S_PLACES] > 0:
        state[S_PLACES] -= 1


@jit(counted=False)
def _retire_kernel(params, state, groups, record, requeue, measured):
    """A group that left untrained gives back its quota; it waits to run again, or its record is unused."""
    state[S_STARTED] -= 1
    state[S_PLACES] += 1
    if not requeue:
        free_record(state, groups, record)
        return
    groups[record, G_STATE] = G_REQUEUED
    if params[P_REDRAW] == 1:
        groups[record, G_DRAWN] = 0
    else:
        groups[record, G_DRAWN] = max(groups[record, G_DRAWN], groups[record, G_STARTED])
    groups[record, G_NEXT] = 0
    if state[S_REQUEUE_TAIL] == 0:
        state[S_REQUEUE_HEAD] = record
    else:
        groups[state[S_REQUEUE_TAIL], G_NEXT] = record
    state[S_REQUEUE_TAIL] = record
    state[S_REQUEUED] += 1
    if measured:
        state[S_REQUEUED_GROUPS] += 1


@jit(counted=False)
def _drop_group_kernel(
    params, state, groups, members, histograms, decile_edges, rollout_rows, record, reason, measured
):
    """A ready group leaves untrained: DISCARDED (too old), FILTERED or EVICTED. It no longer runs."""
    size = params[P_GROUP_SIZE]
    tokens = groups[record, G_TOKENS]
    if groups[record, G_STATE] == G_QUEUED:
        leave_queue(params, state, groups, record)
    leave_live(params, state, groups, record)
    first = record * size
    if measured:
        if reason == DISCARDED:
            state[S_DISCARDED_TOKENS] += tokens
            state[S_DISCARDED_GROUPS] += 1
        elif reason == FILTERED:
            state[S_FILTERED_TOKENS] += tokens
            state[S_FILTERED_GROUPS] += 1
        else:
            state[S_EVICTED_TOKENS] += tokens
            state[S_EVICTED_GROUPS] += 1
        state[S_LEFT_TOKENS] += tokens
        state[S_LEFT_ROLLOUTS] += size
        for member in range(first, first + size):
            histograms[H_DROPPED_DECILES, decile_of(members[member, M_TOKENS], decile_edges)] += 1
    if params[P_RECORD_ROLLOUTS] == 1:
        for member in range(first, first + size):
            rollout_rows[members[member, M_ROW], O_OUTCOME] = reason
    state[S_COST] += size
    _retire_kernel(params, state, groups, record, reason == DISCARDED and params[P_REQUEUE] == 1, measured)


@jit(counted=False)
def _drop_stale_kernel(params, state, groups, members, histograms, decile_edges, rollout_rows, measured):
    """Every queued group that is too old leaves, in the order of arrival."""
    oldest_kept = state[S_VERSION] - params[P_MAX_LAG]
    oldest = np.int64(2**62)
    record = groups[0, G_NEXT]
    while record != 0:
        after = groups[record, G_NEXT]
        state[S_COST] += 1
        if groups[record, G_VERSION] < oldest_kept:
            _drop_group_kernel(
                params,
                state,
                groups,
                members,
                histograms,
                decile_edges,
                rollout_rows,
                record,
                np.int64(DISCARDED),
                measured,
            )
        else:
            oldest = min(oldest, groups[record, G_VERSION])
        record = after
    state[S_QUEUE_OLDEST] = oldest
