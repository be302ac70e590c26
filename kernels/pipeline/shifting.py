"""Publications that stop all decodes alike: the ends of rollouts move together, with no pass over the slots.

Where nothing is prefilled again, every rollout that decodes when a transfer begins ends later by as long as
the transfer takes. So the tree holds ends less the sum of these times, the shift, and a publication adds to
it. Only rollouts past their decode, whose ends stay, are looked up and set anew; they are among the next
ends, for what follows a decode is the overhead, of one length.

In ticks less the shift, decoding goes on without a stop. With V(t) the versions published, summed over the
ticks up to t, a decode from s to t under a first version v has done the work ``V(t) - V(s) - v * (t - s)``
under newer ones. Since the last stop V is a line, ``V(t) = book + published * t``, and a slot keeps ``book``
as it was at its start: so that work is ``book - its book + (published - v) * t``. All are whole numbers.

The shift holds within one call of the loop. Whoever reads the slots between two calls, or saves them, finds
them as :mod:`.moving` says.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .clock import event_key, rebuild_tree
from .moving import book_stretch
from .places import place
from .records import ABORT, CHANNEL_TRANSFER, EMPTY, NEVER, NO_ENVIRONMENT, TAIL, TIMED
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)


@jit(inline=True, counted=False)
def _stops_alike(parameters):
    """Say whether a publication moves the ends of all rollouts that decode by the same number of ticks."""
    prefills = parameters.publication == ABORT and (
        parameters.reprefill_rate > 0.0 or ticks_of(parameters.resume_seconds) > 0
    )
    return (
        parameters.moves_ends == 1
        and parameters.environment == NO_ENVIRONMENT
        and not prefills
        and parameters.sync_ticks <= parameters.horizon  # keys have room for no more
    )


@jit(inline=True, counted=False)
def _member_of(parameters, worker):
    """Return the place of the member that a slot works on."""
    return worker.group * parameters.group_size + worker.member


@jit(inline=True, counted=False)
def shifted_key(parameters, shift, time, slot):
    """Pack the key of a rollout that ends at a tick, as the tree holds it."""
    if time > parameters.horizon:
        return np.int64(NEVER)
    return ((2 * (time - shift.ticks) + 1) << parameters.slot_bits) | slot


@jit(inline=True, counted=False)
def shifted_work(state, shift, worker):
    """Return the work under newer versions of a rollout whose decode has ended under the published one."""
    versions = state.published - worker.rest
    return np.float64(shift.book - worker.mark + versions * worker.target)


@jit(inline=True, counted=False)
def _unshift(state, shift, worker, rollout, is_stopped):
    """Let the slot of a rollout that decodes hold its stretch as a run that is not shifted does.

    is_stopped: it has begun before the last stop.
    """
    if is_stopped:
        stop = shift.stop
        versions = state.published - worker.rest
        worker.version_work = np.float64(shift.book - worker.mark + versions * stop)
        worker.done = stop - (worker.target - rollout.decode_ticks)
        worker.mark = stop + shift.ticks
    else:
        worker.mark = rollout.start
    worker.target += shift.ticks


@jit(inline=True, counted=False)
def unshift_slot(state, shift, worker, rollout):
    """Let a slot hold what one does in a run that is not shifted, apart from its key."""
    if shift.on == 1 and worker.phase == TIMED:
        is_stopped = rollout.publications != state.publications or state.channel == CHANNEL_TRANSFER
        _unshift(state, shift, worker, rollout, is_stopped)


@jit(counted=False)
def _begin_shift_kernel(parameters, state, shift, slots, members, has_stretches):
    """Shift the ends of a run that goes on, by nothing yet, where publications can do so.

    shift is a SHIFT, slots SLOT[slots], members MEMBER[…]. A run without stretches is seen at each event.
    """
    shift.on = 1 if has_stretches and _stops_alike(parameters) else 0
    shift.ticks = 0
    shift.book = 0
    shift.stop = state.publication_time if state.channel == CHANNEL_TRANSFER else state.now
    if shift.on == 0:
        return
    for slot in range(parameters.slots):
        worker = slots[place(slot)]
        if worker.phase != TIMED:
            continue
        rollout = members[place(_member_of(parameters, worker))]
        if rollout.publications != state.publications:
            shift.stop = worker.mark  # all that were stopped went on together
        versions = state.published - worker.rest
        worker.mark = versions * worker.mark - np.int64(worker.version_work)


@jit(counted=False)
def _end_shift_kernel(parameters, state, shift, slots, members, tree):
    """Let slots and tree int64[2 * leaves] be those of a run that is not shifted, empty slots all alike."""
    leaves = parameters.leaves
    for slot in range(parameters.slots):
        worker = slots[place(slot)]
        leaf = place(leaves + slot)
        if worker.phase == TIMED:
            unshift_slot(state, shift, worker, members[place(_member_of(parameters, worker))])
            tree[leaf] = event_key(parameters, worker.target + worker.tail, slot)
        elif tree[leaf] != NEVER:
            time = (tree[leaf] >> (parameters.slot_bits + 1)) + shift.ticks
            tree[leaf] = event_key(parameters, time, slot)  # none if it has been moved beyond the horizon
        if worker.phase == EMPTY:
            worker.target = 0
            worker.mark = 0
            worker.done = 0
            worker.rest = 0
            worker.tail = 0
            worker.version_work = 0.0
    rebuild_tree(tree, leaves)
    shift.on = 0
    shift.ticks = 0


@jit(inline=True, counted=False)
def come_back(parameters, state, shift, slots, members, tree, status):
    """Return what the loop comes back with; before, the shift ends. Every way out of the loop is this one."""
    if shift.on == 1:
        _end_shift_kernel(parameters, state, shift, slots, members, tree)
    return np.int64(status)


@jit(inline=True, counted=False)
def _end_decode(parameters, state, shift, worker, members, stop):
    """Let a rollout whose decode has ended by a stop, in ticks less the shift, hold what it has decoded."""
    if worker.phase == TIMED and worker.target <= stop:
        rollout = members[place(_member_of(parameters, worker))]
        _unshift(state, shift, worker, rollout, rollout.publications != state.publications)
        book_stretch(state, worker, worker.target)
        rollout.end_version = state.published
        worker.phase = TAIL


@jit(counted=False)
def _shift_ends_kernel(parameters, state, shift, slots, members, tree):
    """A transfer that stops decoding begins now: all ends but those of rollouts past their decode move.

    A decode that ends in this tick has ended.
    """
    leaves = parameters.leaves
    stop = state.now - shift.ticks
    latest = min(stop + parameters.overhead_ticks, parameters.horizon)  # end of what is past its decode
    beyond = (2 * latest + 2) << parameters.slot_bits
    by = parameters.sync_ticks << (parameters.slot_bits + 1)
    # Down to each leaf whose key is small enough, from left to right, and up again over what has changed.
    node = np.int64(1)
    while True:
        if tree[place(node)] < beyond:
            if node < leaves:
                node <<= 1
                continue
            worker = slots[place(node - leaves)]
            _end_decode(parameters, state, shift, worker, members, stop)
            if worker.phase == TAIL:
                tree[place(node)] -= by
        while node > 1 and node & 1 == 1:
            node >>= 1
            tree[place(node)] = min(tree[place(2 * node)], tree[place(2 * node + 1)])
        if node == 1:
            break
        node += 1
    if state.now + parameters.overhead_ticks > parameters.horizon:
        # So near the end, a rollout may be past its decode whose end lies beyond the horizon: it has no key.
        for slot in range(parameters.slots):
            _end_decode(parameters, state, shift, slots[place(slot)], members, stop)
    shift.stop = stop
    shift.ticks += parameters.sync_ticks
    # What a pass over the slots would count: where a run comes back does not depend on how it was stopped.
    state.cost += parameters.slots


@jit(inline=True, counted=False)
def shift_versions(state, shift, version):
    """A transfer is complete: note that what decodes is under `version` from its stop on."""
    shift.book -= (version - state.published) * shift.stop
