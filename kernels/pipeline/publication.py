"""The publication channel of the general engine, and the cancellation of running groups that are too old.

A publication is `draining` (style `drain`: until no group runs), then in `transfer` for `sync_seconds`.
Styles `pause` and `abort` stop decoding during the transfer, and what is in flight goes on under the new
version; an aborted rollout stays off the clock a while longer, to prefill its tokens again. One publication
is under way at a time; one newer version waits.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .clock import (
    account_work,
    member_tokens_done,
    newer_versions,
    quiet_key,
    set_key,
    share_done,
    take_off_clock,
)
from .groups import _retire_kernel, decile_of, leave_live
from .lean import ticks_of
from .state import (
    ABORT,
    CANCELLED,
    CHANNEL_DRAINING,
    CHANNEL_FREE,
    CHANNEL_TRANSFER,
    COMPLETED,
    DECODING,
    DRAIN,
    DUE,
    EMPTY,
    G_LIVE_NEXT,
    G_RUNNING,
    G_STARTED,
    G_STATE,
    G_VERSION,
    H_CANCELLED_DECILES,
    L_DONE,
    L_GROUP,
    L_IDLE_STACK,
    L_MEMBER,
    L_PHASE,
    M_DECODE_TICKS,
    M_ROW,
    M_SLOT,
    M_START,
    M_TOKENS,
    M_VERSION,
    NEVER,
    O_OUTCOME,
    P_GROUP_SIZE,
    P_LEAVES,
    P_MAX_LAG,
    P_PUBLICATION,
    P_RECORD_ROLLOUTS,
    P_REQUEUE,
    P_SLOTS,
    P_SYNC_TICKS,
    P_WORK_UNIT,
    PAUSE,
    PF_REPREFILL_RATE,
    PF_RESUME_SECONDS,
    S_CANCELLED_GROUPS,
    S_CANCELLED_TOKENS,
    S_CHANNEL,
    S_COST,
    S_DECODING,
    S_DUE,
    S_IDLE,
    S_IN_FLIGHT_TOKENS,
    S_LEFT_ROLLOUTS,
    S_LEFT_TOKENS,
    S_NOW,
    S_PUBLICATION_TIME,
    S_PUBLICATION_VERSION,
    S_PUBLICATIONS,
    S_PUBLISHED,
    S_RUNNING,
    S_STARTING,
    S_STOPPED,
    S_SYNCS,
    S_VERSION,
    S_WAITING_VERSION,
    S_WASTED_TOKENS,
)


@jit(counted=False)
def _abort_kernel(params, rates, state, slots, version_work, members, time_tree, work_tree):
    """Take every decoding rollout off the clock, until its tokens are prefilled again after the transfer."""
    leaves = params[P_LEAVES]
    size = params[P_GROUP_SIZE]
    back = state[S_NOW] + params[P_SYNC_TICKS]
    for slot in range(params[P_SLOTS]):
        if slots[slot, L_PHASE] != DECODING:
            continue
        member = slots[slot, L_GROUP] * size + slots[slot, L_MEMBER]
        account_work(
            state, slots, version_work, slot, newer_versions(params, state, members[member, M_VERSION])
        )
        delay = rates[PF_RESUME_SECONDS]
        if rates[PF_REPREFILL_RATE] > 0.0:
            tokens = share_done(
                members[member, M_TOKENS],
                slots[slot, L_DONE],
                members[member, M_DECODE_TICKS],
                params[P_WORK_UNIT],
            )
            delay = delay + np.float64(tokens) / rates[PF_REPREFILL_RATE]
        take_off_clock(state, slots, work_tree, leaves, slot)
        set_key(time_tree, leaves, slot, quiet_key(params, back + ticks_of(delay), slot))
    state[S_COST] += params[P_SLOTS]


@jit(counted=False)
def _channel_kernel(params, rates, state, slots, version_work, members, time_tree, work_tree, measured):
    """Let the channel go on as far as it can in this tick: start, transfer, complete, start the next."""
    style = params[P_PUBLICATION]
    while True:
        if state[S_CHANNEL] == CHANNEL_FREE:
            if state[S_WAITING_VERSION] < 0:
                return
            state[S_PUBLICATION_VERSION] = state[S_WAITING_VERSION]
            state[S_WAITING_VERSION] = -1
            state[S_CHANNEL] = CHANNEL_DRAINING
        if state[S_CHANNEL] == CHANNEL_DRAINING:
            if style == DRAIN and state[S_RUNNING] > 0:
                return
            state[S_CHANNEL] = CHANNEL_TRANSFER
            state[S_PUBLICATION_TIME] = state[S_NOW] + params[P_SYNC_TICKS]
            if style >= PAUSE:
                state[S_STOPPED] = 1
            if style == ABORT:
                _abort_kernel(params, rates, state, slots, version_work, members, time_tree, work_tree)
        if state[S_PUBLICATION_TIME] > state[S_NOW]:
            return
        if style >= PAUSE:
            for slot in range(params[P_SLOTS]):
                if slots[slot, L_PHASE] == DECODING:
                    member = slots[slot, L_GROUP] * params[P_GROUP_SIZE] + slots[slot, L_MEMBER]
                    versions = newer_versions(params, state, members[member, M_VERSION])
                    account_work(state, slots, version_work, slot, versions)
            state[S_COST] += params[P_SLOTS]
        state[S_PUBLISHED] = state[S_PUBLICATION_VERSION]
        state[S_CHANNEL] = CHANNEL_FREE
        state[S_PUBLICATION_TIME] = NEVER
        state[S_STOPPED] = 0
        state[S_PUBLICATIONS] += 1
        if measured:
            state[S_SYNCS] += 1


@jit(counted=False)
def _free_slot_kernel(params, state, slots, time_tree, work_tree, slot):
    """Empty a slot whose rollout is cancelled; the slot freed last is used first."""
    leaves = params[P_LEAVES]
    phase = slots[slot, L_PHASE]
    if phase == DECODING:
        set_key(work_tree, leaves, slot, np.int64(NEVER))
        state[S_DECODING] -= 1
    elif phase == DUE:
        state[S_DUE] -= 1
    set_key(time_tree, leaves, slot, np.int64(NEVER))
    slots[slot, L_PHASE] = EMPTY
    slots[state[S_IDLE], L_IDLE_STACK] = slot
    state[S_IDLE] += 1


@jit(counted=False)
def _cancel_running_kernel(
    params,
    state,
    slots,
    groups,
    members,
    histograms,
    decile_edges,
    time_tree,
    work_tree,
    rollout_rows,
    measured,
):
    """Cancel every running group that is too old, in the order of admission, members as they started."""
    size = params[P_GROUP_SIZE]
    oldest_kept = state[S_VERSION] - params[P_MAX_LAG]
    record = groups[0, G_LIVE_NEXT]
    while record != 0:
        after = groups[record, G_LIVE_NEXT]
        state[S_COST] += 1
        version = groups[record, G_VERSION]
        if groups[record, G_STATE] != G_RUNNING or version < 0 or version >= oldest_kept:
            record = after
            continue
        for member in range(record * size, record * size + groups[record, G_STARTED]):
            tokens = members[member, M_TOKENS]
            slot = members[member, M_SLOT]
            done = tokens
            if slot == COMPLETED:
                if measured:
                    state[S_CANCELLED_TOKENS] += tokens
            else:
                done = member_tokens_done(
                    params,
                    state,
                    slots,
                    slot,
                    tokens,
                    members[member, M_DECODE_TICKS],
                    members[member, M_START],
                    state[S_NOW],
                )
                state[S_IN_FLIGHT_TOKENS] -= tokens
                _free_slot_kernel(params, state, slots, time_tree, work_tree, slot)
            if measured:
                state[S_WASTED_TOKENS] += done
                state[S_LEFT_TOKENS] += tokens
                state[S_LEFT_ROLLOUTS] += 1
                histograms[H_CANCELLED_DECILES, decile_of(tokens, decile_edges)] += 1
            if params[P_RECORD_ROLLOUTS] == 1:
                rollout_rows[members[member, M_ROW], O_OUTCOME] = CANCELLED
        state[S_COST] += groups[record, G_STARTED]
        if measured:
            state[S_CANCELLED_GROUPS] += 1
        if state[S_STARTING] == record:
            state[S_STARTING] = after
        state[S_RUNNING] -= 1
        leave_live(params, state, groups, record)
        _retire_kernel(params, state, groups, record, params[P_REQUEUE] == 1, measured)
        record = after
