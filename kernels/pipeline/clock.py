"""Clocks of the general engine: tournament trees of event keys, the virtual work clock W, training work.

W counts nominal decode work. With n rollouts decoding, one tick adds ``rates[n]`` units to W, so a rollout
that began at W and needs w units ends its decode at the first tick at which W has grown by w, whatever the
others do in between. Everything is whole numbers, so it does not matter when W is brought forward.

A unit is a tick while decoding has one speed, and 2**-24 of a tick when it slows down with concurrency.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .state import (
    DECODING,
    DUE,
    FULL_RATE,
    L_DONE,
    L_DUE,
    L_GROUP,
    L_MARK,
    L_MEMBER,
    L_PHASE,
    L_REST,
    L_TAIL,
    L_TARGET,
    M_END_VERSION,
    M_VERSION,
    NEVER,
    OFF_CLOCK,
    P_GROUP_SIZE,
    P_HORIZON,
    P_LEAVES,
    P_PUBLICATION,
    P_SLOT_BITS,
    P_SLOW_TRAIN_RATE,
    P_WORK_UNIT,
    PAUSE,
    S_CLOCK,
    S_DECODING,
    S_DUE,
    S_DUE_HEAD,
    S_DUE_TAIL,
    S_PUBLISHED,
    S_REST_PARTS,
    S_REST_TICKS,
    S_STOPPED,
    S_TRAINING,
    S_TRAINING_TIME,
    S_WORK,
    TAIL,
)

_PARTS_MASK = FULL_RATE - 1


@jit(inline=True, counted=False)
def set_key(tree, leaves, slot, key):
    """Give a slot a new key (int64) in a tournament tree int64[2 * leaves]: a node holds its smallest key."""
    node = leaves + slot
    tree[node] = key
    while node > 1:
        other = tree[node ^ 1]
        key = other if other < key else key
        node >>= 1
        if tree[node] == key:
            break
        tree[node] = key


@jit(inline=True, counted=False)
def first_slot(tree, leaves):
    """Find the slot with the smallest key, the lowest slot of several."""
    key = tree[1]
    node = np.int64(1)
    while node < leaves:
        node <<= 1
        if tree[node] != key:
            node += 1
    return node - leaves


@jit(inline=True, counted=False)
def event_key(params, time, slot):
    """Pack the key of a rollout that ends at a tick: ``(2 * tick + 1) << bits | slot``."""
    if time > params[P_HORIZON]:
        return np.int64(NEVER)
    return ((2 * time + 1) << params[P_SLOT_BITS]) | slot


@jit(inline=True, counted=False)
def quiet_key(params, time, slot):
    """Pack the key of a re-prefill that ends at a tick, before the events of that tick: ``2 * tick``."""
    if time > params[P_HORIZON]:
        return np.int64(NEVER)
    return ((2 * time) << params[P_SLOT_BITS]) | slot


@jit(inline=True, counted=False)
def add_saturating(left, right):
    """Add two non-negative int64, held at NEVER."""
    return NEVER if left > NEVER - right else left + right


@jit(inline=True, counted=False)
def work_of(ticks, unit):
    """Turn nominal ticks into units of work, held at NEVER."""
    return NEVER if ticks > NEVER // unit else ticks * unit


@jit(counted=False)
def bring_clock(params, state, rates, time):
    """Bring W, and the work of a training step that can be slowed down, forward to a tick."""
    span = time - state[S_CLOCK]
    if span > 0:
        decoding = state[S_DECODING] > 0 and state[S_STOPPED] == 0
        if decoding:
            state[S_WORK] += span * rates[state[S_DECODING]]
        slow_rate = params[P_SLOW_TRAIN_RATE]
        if state[S_TRAINING] == 1 and slow_rate < FULL_RATE:
            rate = slow_rate if decoding else np.int64(FULL_RATE)
            # span * rate in two words: whole ticks, and parts of 2**-24.
            low = (span & _PARTS_MASK) * rate
            ticks = state[S_REST_TICKS] - ((span >> 24) * rate + (low >> 24))
            parts = state[S_REST_PARTS] - (low & _PARTS_MASK)
            if parts < 0:
                parts += FULL_RATE
                ticks -= 1
            state[S_REST_TICKS] = max(ticks, np.int64(0))
            state[S_REST_PARTS] = parts if ticks >= 0 else np.int64(0)
        state[S_CLOCK] = time


@jit(counted=False)
def next_decode_time(state, rates, work_tree):
    """Give the first tick at which W reaches the smallest target; NEVER if W stands still."""
    target = work_tree[1]
    if target == NEVER or state[S_STOPPED] == 1:
        return np.int64(NEVER)
    left = target - state[S_WORK]
    if left <= 0:
        return state[S_CLOCK]
    rate = rates[state[S_DECODING]]
    ticks = left if rate == 1 else (left - 1) // rate + 1
    return add_saturating(state[S_CLOCK], ticks)


@jit(counted=False)
def next_training_time(params, state):
    """Give the tick at which the step under way ends if nothing changes; NEVER if none is under way."""
    slow_rate = params[P_SLOW_TRAIN_RATE]
    if slow_rate == FULL_RATE or state[S_TRAINING] == 0:
        return state[S_TRAINING_TIME]
    ticks = state[S_REST_TICKS]
    parts = state[S_REST_PARTS]
    if ticks == 0 and parts == 0:
        return state[S_CLOCK]
    if state[S_DECODING] == 0 or state[S_STOPPED] == 1:
        return state[S_CLOCK] + ticks + (1 if parts > 0 else 0)
    if slow_rate == 0:
        return np.int64(NEVER)
    whole = ticks // slow_rate
    if whole >= np.int64(1) << 34:
        return np.int64(NEVER)
    rest = ((ticks % slow_rate) << 24) + parts
    return state[S_CLOCK] + (whole << 24) + (rest + slow_rate - 1) // slow_rate


@jit(inline=True, counted=False)
def newer_versions(params, state, behaviour_version):
    """Say by how many versions a rollout in flight has moved on since its start."""
    if params[P_PUBLICATION] < PAUSE:
        return np.int64(0)
    return state[S_PUBLISHED] - behaviour_version


@jit(inline=True, counted=False)
def account_work(state, slots, version_work, slot, versions):
    """Book the work a decoding rollout did since its mark, under weights `versions` newer than its first.

    slots int64[slots, L_COUNT]; version_work float64[slots] sums versions × work. What W grew past the
    target in the last tick is not the rollout's.
    """
    work = min(state[S_WORK], slots[slot, L_TARGET])
    growth = work - slots[slot, L_MARK]
    slots[slot, L_DONE] += growth
    slots[slot, L_MARK] = work
    if versions > 0:
        version_work[slot] += np.float64(versions) * np.float64(growth)


@jit(inline=True, counted=False)
def take_off_clock(state, slots, work_tree, leaves, slot):
    """Stop one decoding rollout: its work so far is kept, W no longer counts for it."""
    slots[slot, L_REST] = slots[slot, L_TARGET] - slots[slot, L_MARK]
    slots[slot, L_PHASE] = OFF_CLOCK
    set_key(work_tree, leaves, slot, np.int64(NEVER))
    state[S_DECODING] -= 1


@jit(inline=True, counted=False)
def put_on_clock(state, slots, work_tree, leaves, slot, work):
    """Let a rollout decode `work` more units (int64)."""
    target = add_saturating(state[S_WORK], work)
    slots[slot, L_PHASE] = DECODING
    slots[slot, L_MARK] = state[S_WORK]
    slots[slot, L_TARGET] = target
    set_key(work_tree, leaves, slot, target)
    state[S_DECODING] += 1


@jit(counted=False)
def share_done(tokens, done, decode_ticks, unit):
    """Give ``floor(tokens * done / (decode_ticks * unit))`` exactly; `done` is in units of work.

    With whole ticks and parts of `done`, this is ``floor((tokens * whole + floor(tokens * part / unit)) /
    decode_ticks)``, since a floor may be taken in steps. The first product needs more than 63 bits only for
    decodes of days.
    """
    whole = done // unit
    if whole >= decode_ticks:
        return tokens
    rest = tokens * (done - whole * unit) // unit
    if whole < np.int64(1) << 36:
        return (tokens * whole + rest) // decode_ticks
    quotient = np.int64(0)
    ticks = np.int64(0)
    for position in range(26, -1, -1):
        quotient <<= 1
        ticks <<= 1
        if (tokens >> position) & 1:
            ticks += whole
        while ticks >= decode_ticks:
            ticks -= decode_ticks
            quotient += 1
    return quotient + (1 if ticks + rest >= decode_ticks else 0)


@jit(counted=False)
def member_tokens_done(params, state, slots, slot, tokens, decode_ticks, start, now):
    """Give the tokens that a rollout in a slot has decoded so far; all of them if it is past decoding."""
    phase = slots[slot, L_PHASE]
    if phase in (TAIL, DUE):
        return tokens
    if phase == DECODING:
        done = slots[slot, L_DONE] + min(state[S_WORK], slots[slot, L_TARGET]) - slots[slot, L_MARK]
    elif phase == OFF_CLOCK:
        done = slots[slot, L_DONE]
    else:
        done = min(now - start, decode_ticks) * params[P_WORK_UNIT]
    return share_done(tokens, done, decode_ticks, params[P_WORK_UNIT])


@jit(counted=False)
def _pass_time_kernel(params, state, slots, version_work, members, time_tree, work_tree, time):
    """Do what time alone brings about at a tick: decodes end by (target, slot), then re-prefills end.

    The clock stands at `time`. A decode's end is no event: a tail begins, or the rollout is due in this
    tick. Rollouts due in one tick go in the order (target, slot), those whose tail is over counting as met
    at W now: so they go by slot wherever decoding has one speed.
    """
    leaves = params[P_LEAVES]
    while work_tree[1] <= state[S_WORK]:
        slot = first_slot(work_tree, leaves)
        member = slots[slot, L_GROUP] * params[P_GROUP_SIZE] + slots[slot, L_MEMBER]
        versions = newer_versions(params, state, members[member, M_VERSION])
        account_work(state, slots, version_work, slot, versions)
        members[member, M_END_VERSION] = members[member, M_VERSION] + versions
        set_key(work_tree, leaves, slot, np.int64(NEVER))
        state[S_DECODING] -= 1
        if slots[slot, L_TAIL] > 0 or slots[slot, L_TARGET] == state[S_WORK]:
            slots[slot, L_PHASE] = TAIL
            set_key(time_tree, leaves, slot, event_key(params, time + slots[slot, L_TAIL], slot))
        else:
            slots[slot, L_PHASE] = DUE
            if state[S_DUE] == 0:
                state[S_DUE_HEAD] = 0
                state[S_DUE_TAIL] = 0
            slots[state[S_DUE_TAIL], L_DUE] = slot
            state[S_DUE_TAIL] += 1
            state[S_DUE] += 1
    while time_tree[1] < NEVER and time_tree[1] >> params[P_SLOT_BITS] == 2 * time:
        slot = time_tree[1] & (leaves - 1)
        set_key(time_tree, leaves, slot, np.int64(NEVER))
        put_on_clock(state, slots, work_tree, leaves, slot, slots[slot, L_REST])
