"""Clocks of the general loop: tournament trees of event keys, the virtual work clock W, training work.

W counts nominal decode work. With n rollouts decoding, one tick adds ``rates[n]`` units to W, so a rollout
that began at W and needs w units ends its decode at the first tick at which W has grown by w, whatever the
others do in between. Everything is whole numbers, so it does not matter when W is brought forward.

A unit is a tick while decoding has one speed, and 2**-24 of a tick when it slows down with concurrency.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .places import place
from .records import (
    DECODING,
    DUE,
    FULL_RATE,
    NEVER,
    OFF_CLOCK,
    PAUSE,
    SLOTS_BUSY,
    SLOTS_HELD,
    TAIL,
)
from .stops import decoding_is_stopped

_PARTS_MASK = FULL_RATE - 1


@jit(inline=True, counted=False)
def set_key(tree, leaves, slot, key):
    """Set a slot's key (int64) in a tournament tree int64[2 * leaves]: a node holds its smallest key."""
    node = leaves + slot
    tree[place(node)] = key
    while node > 1:
        key = min(key, tree[place(node ^ 1)])
        node >>= 1
        tree[place(node)] = key


@jit(counted=False)
def rebuild_tree(tree, leaves):
    """Set all nodes above the leaves of a tournament tree int64[2 * leaves], after many keys have changed."""
    for node in range(leaves - 1, 0, -1):
        tree[place(node)] = min(tree[place(2 * node)], tree[place(2 * node + 1)])


@jit(inline=True, counted=False)
def first_slot(tree, leaves):
    """Find the slot with the smallest key, the lowest slot of several."""
    key = tree[1]
    node = np.int64(1)
    while node < leaves:
        node <<= 1
        if tree[place(node)] != key:
            node += 1
    return node - leaves


@jit(inline=True, counted=False)
def event_key(parameters, time, slot):
    """Pack the key of a rollout that ends at a tick: ``(2 * tick + 1) << bits | slot``."""
    if time > parameters.horizon:
        return np.int64(NEVER)
    return ((2 * time + 1) << parameters.slot_bits) | slot


@jit(inline=True, counted=False)
def quiet_key(parameters, time, slot):
    """Pack the key of a re-prefill that ends at a tick, before the events of that tick: ``2 * tick``."""
    if time > parameters.horizon:
        return np.int64(NEVER)
    return ((2 * time) << parameters.slot_bits) | slot


@jit(inline=True, counted=False)
def add_saturating(left, right):
    """Add two non-negative int64, held at NEVER."""
    return NEVER if left > NEVER - right else left + right


@jit(inline=True, counted=False)
def work_of(ticks, unit):
    """Turn nominal ticks into units of work, held at NEVER."""
    return NEVER if ticks > NEVER // unit else ticks * unit


@jit(inline=True, counted=False)
def book_time(parameters, state, slot_ticks, trainer_ticks, time):
    """Bring the run to the tick of an event: sum what held since the last one, after the warm-up."""
    warmup = parameters.warmup
    now = state.now
    if time > warmup:
        span = time - max(now, warmup)
        if state.max_queue < 0:
            state.max_queue = state.queue_tokens
        state.queue_token_ticks += np.float64(state.queue_tokens) * np.float64(span)
        idle = state.idle
        busy = parameters.slots - idle
        if idle > 0:
            state.idle_slot_ticks += idle * span
            slot_ticks[place(state.idle_cause)] += idle * span
            if state.cap_closed == 1:
                state.backpressure_ticks += span
        if state.held > 0:
            busy -= state.held
            slot_ticks[SLOTS_HELD] += state.held * span
        slot_ticks[SLOTS_BUSY] += busy * span
        trainer_ticks[place(state.trainer_cause)] += time - max(max(now, warmup), state.trainer_booked)
    state.now = time
    state.events += 1


@jit(counted=False)
def bring_clock(parameters, state, work_rates, time):
    """Bring W, and the work of a training step that can be slowed down, forward to a tick."""
    span = time - state.clock
    if span > 0:
        decoding = state.decoding > 0 and not decoding_is_stopped(state)
        if decoding:
            state.work += span * work_rates[state.decoding]
        slow_rate = parameters.slow_train_rate
        if state.training == 1 and slow_rate < FULL_RATE and state.fetch_time == NEVER:
            generating = decoding or state.engines_in_step > 0
            rate = slow_rate if generating else np.int64(FULL_RATE)
            # span * rate in two words: whole ticks, and parts of 2**-24.
            low = (span & _PARTS_MASK) * rate
            ticks = state.rest_ticks - ((span >> 24) * rate + (low >> 24))
            parts = state.rest_parts - (low & _PARTS_MASK)
            if parts < 0:
                parts += FULL_RATE
                ticks -= 1
            state.rest_ticks = max(ticks, np.int64(0))
            state.rest_parts = parts if ticks >= 0 else np.int64(0)
        state.clock = time


@jit(counted=False)
def next_decode_time(state, work_rates, work_tree):
    """Return the first tick at which W reaches the smallest target; NEVER if W stands still."""
    target = work_tree[1]
    if target == NEVER or decoding_is_stopped(state):
        return np.int64(NEVER)
    left = target - state.work
    if left <= 0:
        return state.clock
    rate = work_rates[state.decoding]
    ticks = left if rate == 1 else (left - 1) // rate + 1
    return add_saturating(state.clock, ticks)


@jit(counted=False)
def next_training_time(parameters, state):
    """Return the tick at which the step under way ends if nothing changes; NEVER if none is under way."""
    slow_rate = parameters.slow_train_rate
    if slow_rate == FULL_RATE or state.training == 0 or state.fetch_time != NEVER:
        return state.training_time
    ticks = state.rest_ticks
    parts = state.rest_parts
    if ticks == 0 and parts == 0:
        return state.clock
    if (state.decoding == 0 or decoding_is_stopped(state)) and state.engines_in_step == 0:
        return state.clock + ticks + (1 if parts > 0 else 0)
    if slow_rate == 0:
        return np.int64(NEVER)
    whole = ticks // slow_rate
    if whole >= np.int64(1) << 34:
        return np.int64(NEVER)
    rest = ((ticks % slow_rate) << 24) + parts
    return state.clock + (whole << 24) + (rest + slow_rate - 1) // slow_rate


@jit(inline=True, counted=False)
def newer_versions(parameters, state, behaviour_version):
    """Say by how many versions a rollout in flight has moved on since its start."""
    if parameters.publication < PAUSE:
        return np.int64(0)
    return state.published - behaviour_version


@jit(inline=True, counted=False)
def account_work(state, slots, slot, versions):
    """Book the work a decoding rollout did since its mark, under weights `versions` newer than its first.

    slots SLOT[slots]. What W grew past the target in the last tick is not the rollout's.
    """
    work = min(state.work, slots[slot].target)
    growth = work - slots[slot].mark
    slots[slot].done += growth
    slots[slot].mark = work
    if versions > 0:
        slots[slot].version_work += np.float64(versions) * np.float64(growth)


@jit(inline=True, counted=False)
def take_off_clock(state, slots, work_tree, leaves, slot):
    """Stop one decoding rollout: its work so far is kept, W no longer counts for it."""
    slots[slot].rest = slots[slot].target - slots[slot].mark
    slots[slot].phase = OFF_CLOCK
    set_key(work_tree, leaves, slot, np.int64(NEVER))
    state.decoding -= 1


@jit(inline=True, counted=False)
def put_on_clock(state, slots, work_tree, leaves, slot, work):
    """Let a rollout decode `work` more units (int64)."""
    target = add_saturating(state.work, work)
    slots[slot].phase = DECODING
    slots[slot].mark = state.work
    slots[slot].target = target
    set_key(work_tree, leaves, slot, target)
    state.decoding += 1


@jit(counted=False)
def share_done(tokens, done, decode_ticks, unit):
    """Return ``floor(tokens * done / (decode_ticks * unit))`` exactly; `done` is in units of work.

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
def member_tokens_done(parameters, state, slots, slot, tokens, decode_ticks, start, now):
    """Return the tokens that a rollout in a slot has decoded so far; all of them if it is past decoding."""
    phase = slots[slot].phase
    if phase in (TAIL, DUE):
        return tokens
    if phase == DECODING:
        done = slots[slot].done + min(state.work, slots[slot].target) - slots[slot].mark
    elif phase == OFF_CLOCK:
        done = slots[slot].done
    elif parameters.moves_ends == 1:
        done = slots[slot].done + max(np.int64(0), min(now, slots[slot].target) - slots[slot].mark)
    else:
        done = min(now - start, decode_ticks) * parameters.work_unit
    return share_done(tokens, done, decode_ticks, parameters.work_unit)


@jit(counted=False)
def _pass_time_kernel(parameters, state, slots, members, time_tree, work_tree, time):
    """Do what time alone brings about at a tick: decodes end by (target, slot), then re-prefills end.

    The clock stands at `time`. A decode's end is no event: a tail begins, or the rollout is due in this
    tick. Rollouts due in one tick go in the order (target, slot), those whose tail is over counting as met
    at W now: so they go by slot wherever decoding has one speed.
    """
    leaves = parameters.leaves
    while work_tree[1] <= state.work:
        slot = first_slot(work_tree, leaves)
        member = slots[slot].group * parameters.group_size + slots[slot].member
        versions = newer_versions(parameters, state, members[member].version)
        account_work(state, slots, slot, versions)
        members[member].end_version = members[member].version + versions
        set_key(work_tree, leaves, slot, np.int64(NEVER))
        state.decoding -= 1
        if slots[slot].tail > 0 or slots[slot].target == state.work:
            slots[slot].phase = TAIL
            set_key(time_tree, leaves, slot, event_key(parameters, time + slots[slot].tail, slot))
        else:
            slots[slot].phase = DUE
            if state.due == 0:
                state.due_head = 0
                state.due_tail = 0
            slots[state.due_tail].due = slot
            state.due_tail += 1
            state.due += 1
    while time_tree[1] < NEVER and time_tree[1] >> parameters.slot_bits == 2 * time:
        slot = time_tree[1] & (leaves - 1)
        set_key(time_tree, leaves, slot, np.int64(NEVER))
        put_on_clock(state, slots, work_tree, leaves, slot, slots[slot].rest)
