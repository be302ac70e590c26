"""The publication channel of the general loop, and the cancellation of running groups that are too old.

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
from .fleet import _abort_engines_kernel, _book_versions_kernel, _leave_engine_kernel, fleet_of
from .groups import _retire_kernel, decile_of, leave_live
from .holding import _leave_held_kernel
from .moving import _move_ends_kernel
from .records import (
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
    GROUP_RUNNING,
    H_CANCELLED_DECILES,
    NEVER,
    ON_ENGINE,
    PAUSE,
)
from .shifting import _shift_ends_kernel, shift_versions, unshift_slot
from .stops import STOPPED_BY_PUBLICATION, let_decoding_go, stop_decoding
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)


@jit(counted=False)
def _abort_kernel(parameters, state, arrays):
    """Take every decoding rollout off the clock, until its tokens are prefilled again after the transfer."""
    slots = arrays.slots
    members = arrays.members
    leaves = parameters.leaves
    size = parameters.group_size
    back = state.now + parameters.sync_ticks
    for slot in range(parameters.slots):
        if slots[slot].phase != DECODING:
            continue
        member = slots[slot].group * size + slots[slot].member
        account_work(state, slots, slot, newer_versions(parameters, state, members[member].version))
        delay = parameters.resume_seconds
        if parameters.reprefill_rate > 0.0:
            tokens = share_done(
                members[member].tokens,
                slots[slot].done,
                members[member].decode_ticks,
                parameters.work_unit,
            )
            delay = delay + np.float64(tokens) / parameters.reprefill_rate
        take_off_clock(state, slots, arrays.work_tree, leaves, slot)
        set_key(arrays.time_tree, leaves, slot, quiet_key(parameters, back + ticks_of(delay), slot))
    state.cost += parameters.slots


@jit(counted=False)
def _channel_kernel(parameters, state, arrays, measured):
    """Let the channel go on as far as it can in this tick: start, transfer, complete, start the next."""
    slots = arrays.slots
    members = arrays.members
    shift = arrays.shift[0]
    style = parameters.publication
    while True:
        if state.channel == CHANNEL_FREE:
            if state.waiting_version < 0:
                return
            state.publication_version = state.waiting_version
            state.waiting_version = -1
            state.channel = CHANNEL_DRAINING
        if state.channel == CHANNEL_DRAINING:
            if style == DRAIN and state.running > state.held:
                return
            state.channel = CHANNEL_TRANSFER
            state.publication_time = state.now + parameters.sync_ticks
            if style >= PAUSE:
                stop_decoding(state, STOPPED_BY_PUBLICATION)
            if shift.on == 1:
                _shift_ends_kernel(parameters, state, shift, slots, members, arrays.time_tree)
            elif parameters.moves_ends == 1:
                _move_ends_kernel(parameters, state, arrays)
            elif style == ABORT and parameters.engines > 0:
                _abort_engines_kernel(parameters, state, fleet_of(arrays))
            elif style == ABORT:
                _abort_kernel(parameters, state, arrays)
        if state.publication_time > state.now:
            return
        if parameters.moves_ends == 1:
            pass  # booked when the transfer began: nothing has decoded since
        elif style >= PAUSE and parameters.engines > 0:
            _book_versions_kernel(parameters, state, fleet_of(arrays))
            state.cost += parameters.slots
        elif style >= PAUSE:
            for slot in range(parameters.slots):
                if slots[slot].phase == DECODING:
                    member = slots[slot].group * parameters.group_size + slots[slot].member
                    versions = newer_versions(parameters, state, members[member].version)
                    account_work(state, slots, slot, versions)
            state.cost += parameters.slots
        shift_versions(state, shift, state.publication_version)
        state.published = state.publication_version
        state.channel = CHANNEL_FREE
        state.publication_time = NEVER
        let_decoding_go(state, STOPPED_BY_PUBLICATION)
        state.publications += 1
        if measured:
            state.syncs += 1


@jit(counted=False)
def _free_slot_kernel(parameters, state, arrays, slot):
    """Empty a slot whose rollout is cancelled; the slot freed last is used first."""
    slots = arrays.slots
    leaves = parameters.leaves
    phase = slots[slot].phase
    if phase == DECODING:
        set_key(arrays.work_tree, leaves, slot, np.int64(NEVER))
        state.decoding -= 1
    elif phase == DUE:
        state.due -= 1
    set_key(arrays.time_tree, leaves, slot, np.int64(NEVER))
    slots[slot].phase = EMPTY
    slots[state.idle].idle_stack = slot
    state.idle += 1


@jit(counted=False)
def _cancel_running_kernel(parameters, state, tables, arrays, measured):
    """Cancel every running group that is too old, in the order of admission, members as they started."""
    groups = arrays.groups
    members = arrays.members
    shift = arrays.shift[0]
    size = parameters.group_size
    oldest_kept = state.version - parameters.max_lag
    # Groups start in the order of their admission, so none is older than one admitted before, unless a
    # failure brought back an older version.
    in_order = parameters.failures == 0
    record = groups[0].live_next
    while record != 0:
        after = groups[record].live_next
        state.cost += 1
        version = groups[record].version
        if in_order and (version < 0 or version >= oldest_kept):
            break
        if groups[record].state != GROUP_RUNNING or version < 0 or version >= oldest_kept:
            record = after
            continue
        for member in range(record * size, record * size + groups[record].started):
            tokens = members[member].tokens
            slot = members[member].slot
            done = tokens
            if slot == COMPLETED:
                if measured:
                    state.cancelled_tokens += tokens
            elif arrays.slots[slot].phase == ON_ENGINE:
                done = _leave_engine_kernel(parameters, state, fleet_of(arrays), slot)
                state.in_flight_tokens -= tokens
                _free_slot_kernel(parameters, state, arrays, slot)
            else:
                unshift_slot(state, shift, arrays.slots[slot], members[member])
                done = member_tokens_done(
                    parameters,
                    state,
                    arrays.slots,
                    slot,
                    tokens,
                    members[member].decode_ticks,
                    members[member].start,
                    state.now,
                )
                state.in_flight_tokens -= tokens
                _free_slot_kernel(parameters, state, arrays, slot)
            if measured:
                state.wasted_tokens += done
                state.left_tokens += tokens
                state.left_rollouts += 1
                decile = decile_of(tokens, tables.decile_edges, tables.decile_guide)
                arrays.histograms[H_CANCELLED_DECILES, decile] += 1
            if parameters.record_rollouts == 1:
                arrays.rollout_rows[members[member].row].outcome = CANCELLED
        state.cost += groups[record].started
        if measured:
            state.cancelled_groups += 1
        if groups[record].finished == size:
            _leave_held_kernel(state, arrays.slots, groups, record)
        if state.starting == record:
            state.starting = after
        state.running -= 1
        leave_live(parameters, state, groups, record)
        _retire_kernel(parameters, state, groups, record, parameters.requeue == 1, measured)
        record = after
