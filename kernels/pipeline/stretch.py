"""A stretch of the general loop: rollouts complete and start, one after another, and nothing else happens.

Nearly every event is the end of a rollout after which its slot starts the next one. Between two events of
another kind (a publication, a training step, …) only a few of the loop's rules can matter. What can happen
there is done here, with the loop's own helpers, in a kernel small enough that its values stay in registers;
whatever else comes up is left to the loop, before the event or in the middle of the settle after it.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .admission import closed_gate, counts_starts, next_admission, note_cap
from .clock import book_time, rebuild_tree, set_key
from .draws import segment_of
from .groups import admit_group, join_queue
from .places import place
from .records import (
    AT_UPDATE,
    CHANNEL_DRAINING,
    CHANNEL_FREE,
    EVENT_ROLLOUT,
    NEVER,
    SLOTS_PUBLICATION,
)
from .rollouts import draw_member, draws_are_plain, end_rollout, start_rollout, timed_end
from .stops import starts_are_stopped
from .trainer import finds_enough, note_trainer


@jit(inline=True, counted=False)
def has_stretches(parameters, asked):
    """Say whether a run's rollouts end at known ticks, unseen: no work clock, no questions, no rows."""
    return (
        parameters.virtual_clock == 0
        and parameters.sequential == 0
        and parameters.failures == 0
        and parameters.holds == 0
        and parameters.record_timeline == 0
        and parameters.record_rollouts == 0
        and asked.admission == 0
        and asked.length == 0
    )


@jit(inline=True, counted=False)
def _next_other_time(state):
    """Return the tick of the next event that is not the end of a rollout."""
    time = min(state.publication_time, state.training_time)
    return min(time, min(state.fetch_time, state.evaluation_time))


@jit(inline=True, counted=False)
def _joins_plainly(parameters, state, group):
    """Say whether a group that is ready now joins the queue and nothing else comes of it."""
    limit = parameters.max_queue_groups
    return (
        group.filtered == 0
        # One that drains goes on when the last running group is ready.
        and (state.channel != CHANNEL_DRAINING or state.running > 1)
        and (limit == 0 or state.queue_groups < limit)
        and (parameters.stale_check != AT_UPDATE or state.version - group.version <= parameters.max_lag)
    )


@jit(inline=True, counted=False)
def _trainer_moves(parameters, state):
    """Say whether the trainer may start a step, or pop ahead."""
    if state.training == 1 or state.evaluation_time != NEVER:
        if state.prefetched >= parameters.prefetch:
            return False
    elif parameters.blocks_trainer == 1 and state.channel != CHANNEL_FREE:
        return False
    return finds_enough(parameters, state)


@jit(inline=True, counted=False)
def _note_keys(state, time_tree, slots, leaves, started):
    """Bring the tree in line with the leaves of the slots that have just started, the last of the idle stack.

    The first of them is the slot freed by the event that has just happened. Many are cheaper together: a path
    is log2(leaves) nodes, all nodes are less than `leaves`.
    """
    if started == 0:
        if state.freed >= 0:
            set_key(time_tree, leaves, state.freed, np.int64(NEVER))
    elif started << 4 < leaves:
        for index in range(started):
            slot = slots[place(state.idle + index)].idle_stack
            set_key(time_tree, leaves, slot, time_tree[place(leaves + slot)])
    else:
        rebuild_tree(time_tree, leaves)
    state.freed = -1


@jit(counted=False)
def _complete_rollouts_kernel(
    parameters,
    state,
    shift,
    seed,
    last_time,
    last_cost,
    tables,
    draws,
    time_tree,
    slots,
    groups,
    members,
    slot_ticks,
    trainer_ticks,
    segment_starts,
):
    """Let slots start, then rollouts complete up to `last_time` (int64 ticks), while nothing else happens.

    The run has stretches; it is settled, or in the second half of a settle (``state.settling`` is 1). It is
    settled again afterwards, or before a settle (2), or in its second half, with too few records of groups.
    Events count in ``state.cost``, up to `last_cost`.

    Of GeneralArrays only what it needs is given: each array of a call is seven words to copy.
    """
    size = parameters.group_size
    leaves = parameters.leaves
    slot_bits = parameters.slot_bits
    moves_ends = parameters.moves_ends == 1
    plain = draws_are_plain(parameters)
    warmup = parameters.warmup
    last = min(last_time, _next_other_time(state) - 1)
    while True:
        if state.settling == 0:
            # --- the next end of a rollout -------------------------------------------------------------
            root = time_tree[1]
            time = (root >> (slot_bits + 1)) + shift.ticks
            if root == NEVER or time > last or state.cost >= last_cost:
                return
            slot = root & (leaves - 1)
            worker = slots[place(slot)]
            group = groups[place(worker.group)]
            is_ready = group.finished + 1 == size
            if is_ready and not _joins_plainly(parameters, state, group):
                return

            # --- the rollout completes -----------------------------------------------------------------
            state.cost += 1
            state.event = EVENT_ROLLOUT
            measured = time > warmup
            book_time(parameters, state, slot_ticks, trainer_ticks, time)
            record, _member, _finished = end_rollout(
                state, shift, slots, groups, members, size, slot, moves_ends, measured
            )
            state.freed = slot
            if is_ready:
                state.running -= 1
                join_queue(parameters, state, groups, record)
                if measured:
                    state.generated_groups += 1
                    state.max_queue = max(state.max_queue, state.queue_tokens)
                if _trainer_moves(parameters, state):
                    state.settling = 2
                    return
                note_trainer(parameters, state)

        # --- slots may start -----------------------------------------------------------------------------
        started = np.int64(0)
        is_short = False  # of records of groups
        while state.idle > 0:
            if starts_are_stopped(state):
                state.idle_cause = SLOTS_PUBLICATION
                break
            record = state.starting
            if record == 0:
                cause = closed_gate(parameters, state, tables.limits)
                if cause >= 0:
                    state.idle_cause = cause
                    break
                needed = next_admission(parameters, state)
                if state.free + state.requeued < needed:
                    state.settling = 1
                    is_short = True
                    break
                for _ in range(needed):
                    admit_group(parameters, state, groups)
                if counts_starts(parameters, state):
                    state.admitted_groups += needed
                record = state.starting
            group = groups[place(record)]
            position = group.started
            rollout = members[place(record * size + position)]
            is_fresh = position >= group.drawn
            number = state.next_number if is_fresh else rollout.number
            published = state.published
            tokens, environment, noise = draw_member(
                parameters, seed, tables, draws, groups, record, position, number, is_fresh, published, plain
            )
            if is_fresh:
                state.next_number += 1
                rollout.number = number
            if parameters.segments > 0 and counts_starts(parameters, state):
                segment_starts[segment_of(tables, published)] += 1
            if position == 0 or published < group.version:
                group.version = published
            slot, overhead, decode_ticks = start_rollout(
                parameters, state, slots, rollout, record, position, tokens, noise
            )
            tail = overhead + environment
            key = timed_end(parameters, state, shift, slots, slot, decode_ticks, tail, moves_ends, False)
            time_tree[place(leaves + slot)] = key
            started += 1
            group.started = position + 1
            if position + 1 == size:
                state.starting = group.live_next
        _note_keys(state, time_tree, slots, leaves, started)
        if is_short:
            return
        note_cap(parameters, state)
        if state.settling == 1:
            state.settling = 0
            note_trainer(parameters, state)
            if state.ended == 1:
                return
