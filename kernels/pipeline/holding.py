"""Groups that a full queue does not take: each keeps a slot until the queue has room.

A held group is ready and still counts as running. It keeps the slot of the member that made it ready; when
groups leave the queue the held ones join in the order in which they became ready.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .groups import _drop_group_kernel, join_queue
from .records import AT_UPDATE, DISCARDED, EMPTY, HELD, QUEUED


@jit(inline=True, counted=False)
def queue_is_full(parameters, state):
    """Say whether a group that becomes ready is held."""
    return parameters.holds == 1 and state.queue_groups >= parameters.max_queue_groups


@jit(inline=True, counted=False)
def may_join(parameters, state):
    """Say whether a held group finds room."""
    return state.held > 0 and not queue_is_full(parameters, state)


@jit(inline=True, counted=False)
def hold_group(state, slots, groups, record, slot):
    """Let a ready group keep the slot that was just freed, on top of the idle ones."""
    state.idle -= 1
    slots[slot].phase = HELD
    groups[record].held_slot = slot
    groups[record].next = 0
    if state.held == 0:
        state.held_head = record
    else:
        groups[state.held_tail].next = record
    state.held_tail = record
    state.held += 1
    state.running += 1


@jit(inline=True, counted=False)
def _free_held_slot(state, slots, groups, record):
    """Give back the slot of a group that is held no longer; the slot freed last is used first."""
    slot = groups[record].held_slot
    slots[slot].phase = EMPTY
    slots[state.idle].idle_stack = slot
    state.idle += 1
    state.held -= 1


@jit(counted=False)
def _leave_held_kernel(state, slots, groups, record):
    """Take a group that is cancelled out of the held ones, wherever it stands."""
    before = np.int64(0)
    held = state.held_head
    while held != record:
        before = held
        held = groups[held].next
        state.cost += 1
    after = groups[record].next
    if before == 0:
        state.held_head = after
    else:
        groups[before].next = after
    if after == 0:
        state.held_tail = before
    _free_held_slot(state, slots, groups, record)


@jit(counted=False)
def _join_held_kernel(parameters, state, tables, arrays, measured):
    """Let held groups join while the queue has room; each is checked for its age, as on arrival."""
    slots = arrays.slots
    groups = arrays.groups
    while may_join(parameters, state):
        record = state.held_head
        state.held_head = groups[record].next
        if state.held_head == 0:
            state.held_tail = 0
        _free_held_slot(state, slots, groups, record)
        state.running -= 1
        state.cost += 1
        if parameters.record_rollouts == 1:
            first = record * parameters.group_size
            for member in range(first, first + parameters.group_size):
                arrays.rollout_rows[arrays.members[member].row].outcome = QUEUED
        if parameters.stale_check == AT_UPDATE and (
            state.version - groups[record].version > parameters.max_lag
        ):
            _drop_group_kernel(parameters, state, tables, arrays, record, np.int64(DISCARDED), measured)
        else:
            join_queue(parameters, state, groups, record)
        if measured:
            state.max_queue = max(state.max_queue, state.queue_tokens)
