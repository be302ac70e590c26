"""The general event loop, levels 1 to 4: groups, admission ledger, publication styles, work clock, failures.

One run is `rollout_workers` slots, groups of rollouts that share a prompt, a queue of ready groups, a
trainer and a publication channel. Events are the smallest (time, kind, slot) of what is scheduled: a
failure strikes, a publication completes, a training step completes, a rollout completes. After each event
the run settles: first the trainer may start, then slots may start. What time alone brings about in a tick (a
decode ends and a tool call goes on, a re-prefill ends) holds before the events of that tick and is no event
of its own.

With every option off this is the run of :mod:`.pipeline.lean`, bit for bit, more slowly. The
state is records of named fields (:mod:`.pipeline.records`), so stopping, saving and resuming are the same
thing as running.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .admission import closed_gate, counts_starts, next_admission, note_cap
from .asking import _ask_admission_kernel, _ask_length_kernel
from .batches import _finish_batch_kernel
from .clock import (
    _pass_time_kernel,
    book_time,
    bring_clock,
    next_decode_time,
    next_training_time,
    put_on_clock,
    set_key,
    work_of,
)
from .draws import segment_of
from .fleet import (
    _attend_engines_kernel,
    _begin_standing_kernel,
    _note_levels_kernel,
    _pass_boundaries_kernel,
    _start_on_engine_kernel,
    fleet_of,
)
from .groups import (
    _drop_group_kernel,
    _drop_stale_kernel,
    admit_group,
    join_queue,
)
from .holding import _join_held_kernel, hold_group, may_join, queue_is_full
from .places import place
from .publication import _cancel_running_kernel, _channel_kernel
from .records import (
    ASKS_ADMISSION,
    ASKS_LENGTH,
    AT_DEQUEUE,
    AT_UPDATE,
    CHANNEL_DRAINING,
    CHANNEL_FREE,
    COMPLETED_MEMBER,
    DISCARDED,
    DUE,
    EVENT_EVALUATION,
    EVENT_PUBLICATION,
    EVENT_ROLLOUT,
    EVENT_START,
    EVENT_UPDATE,
    EVICTED,
    FAILS,
    FILTERED,
    GROW_BATCHES,
    GROW_GROUPS,
    GROW_ROLLOUTS,
    GROW_TIMELINE,
    NEVER,
    NO_ANSWER,
    OUT_OF_BUDGET,
    QUEUED,
    REACHED,
    RUNNING,
    SAVES,
    SLOTS_BUSY,
    SLOTS_FIRST_LIMIT,
    SLOTS_PUBLICATION,
    TRAINER_CHECKPOINT,
    TRAINER_RESTART,
    TrainingTables,
)
from .rollouts import draw_member, draws_are_plain, end_rollout, start_rollout, timed_end
from .shifting import _begin_shift_kernel, come_back
from .steps import (
    _after_publication_kernel,
    _fetch_ends_kernel,
    checkpoint_is_due,
    end_evaluation,
    end_wait,
    note_kept,
    owes_evaluation,
    take_in_hand,
)
from .stops import starts_are_stopped
from .stretch import _complete_rollouts_kernel, has_stretches
from .trainer import (
    _take_batch_kernel,
    finds_enough,
    note_trainer,
)


@jit(counted=False)
def _advance_general_kernel(parameters, seed, until, budget, tables, draws, arrays, failures):
    """Let every event up to `until` happen, at a cost (events and scanned records) of about `budget`.

    Parameters
    ----------
    parameters : PARAMETERS[1]
    seed : uint64
    until, budget : int64
        Ticks (the horizon is kept beside it), and the cost after which to come back.
    tables : Tables
    draws : MemberDraws
        Of this seed's first rollouts, shared by all configurations of its length law; filled on demand.
    arrays : GeneralArrays
        Recorded rows are written only where the parameters ask for them.
    failures : FAILURES[1]

    Returns
    -------
    int64
        REACHED, OUT_OF_BUDGET, GROW_…: which array to make larger before the next call, ASKS_…: what to
        answer before it, or FAILS and SAVES: what to let happen before it, by the kernels of :mod:`.failures`
        and :mod:`.rollback`, which runs without failures need not compile.
    """
    parameters = parameters[0]
    state = arrays.state[0]
    time_tree = arrays.time_tree
    work_tree = arrays.work_tree
    slots = arrays.slots
    groups = arrays.groups
    members = arrays.members
    slot_ticks = arrays.slot_ticks
    trainer_ticks = arrays.trainer_ticks
    rollout_rows = arrays.rollout_rows
    asked = arrays.asked[0]
    shift = arrays.shift[0]
    fleet = fleet_of(arrays)
    failures = failures[0]
    work_rates = tables.work_rates
    warmup = parameters.warmup
    slot_count = parameters.slots
    leaves = parameters.leaves
    slot_bits = parameters.slot_bits
    size = parameters.group_size
    sequential = parameters.sequential == 1
    virtual = parameters.virtual_clock == 1
    moves_ends = parameters.moves_ends == 1
    with_engines = parameters.engines > 0
    with_failures = parameters.failures == 1
    record_timeline = parameters.record_timeline == 1
    record_rollouts = parameters.record_rollouts == 1
    plain = draws_are_plain(parameters)
    training_tables = TrainingTables(
        tables.decile_edges,
        tables.decile_guide,
        tables.segments,
        tables.drift_lags,
        tables.drift_values,
        tables.lag_spreads,
        tables.lag_inflations,
    )
    stretches = has_stretches(parameters, asked)
    last_time = min(until, parameters.horizon)
    if state.ended == 1 and state.settling == 0:  # else the last settle is still under way
        return REACHED
    last_cost = state.cost + budget
    _begin_shift_kernel(parameters, state, shift, slots, members, stretches)

    while True:
        if state.settling == 0:
            # --- room for what one event may record ---------------------------------------------------
            if parameters.record_batches == 1 and state.batch_rows == arrays.batch_rows.shape[0]:
                return come_back(parameters, state, shift, slots, members, time_tree, GROW_BATCHES)
            if record_timeline and state.timeline_rows == arrays.timeline_rows.shape[0]:
                return come_back(parameters, state, shift, slots, members, time_tree, GROW_TIMELINE)
            if record_rollouts and state.next_row + slot_count > rollout_rows.shape[0]:
                return come_back(parameters, state, shift, slots, members, time_tree, GROW_ROLLOUTS)
            event = np.int64(EVENT_START)
            state.freed = -1
            if state.begun == 0:
                state.begun = 1
            else:
                # --- the next moment at which anything happens ----------------------------------------
                if with_engines:
                    _attend_engines_kernel(parameters, state, fleet)
                root = time_tree[1]
                slot_time = np.int64(NEVER)
                is_quiet = False  # the end of a re-prefill, no event
                if root < NEVER:
                    slot_time = (root >> (slot_bits + 1)) + shift.ticks
                    is_quiet = (root >> slot_bits) & 1 == 0
                time = min(state.publication_time, slot_time)
                time = min(time, min(state.fetch_time, state.evaluation_time))
                if virtual:
                    training_time = next_training_time(parameters, state)
                    decode_time = next_decode_time(state, work_rates, work_tree)
                    time = min(min(time, decode_time), training_time)
                    if with_engines:
                        time = min(time, state.engine_time)
                    if state.due > 0:
                        time = state.clock
                else:
                    training_time = state.training_time
                    decode_time = np.int64(NEVER)
                    time = min(time, training_time)
                if with_failures:
                    time = min(time, min(failures.strike_time, failures.wait_time))
                if with_engines and state.engines_due < time and state.due == 0:
                    _begin_standing_kernel(parameters, state, fleet)
                    continue
                if time > last_time or state.cost >= last_cost:
                    return come_back(
                        parameters,
                        state,
                        shift,
                        slots,
                        members,
                        time_tree,
                        REACHED if time > last_time else OUT_OF_BUDGET,
                    )
                state.cost += 1

                # --- what time alone brings about: ends of decode, ends of re-prefill -------------------
                if virtual:
                    bring_clock(parameters, state, work_rates, time)
                    if decode_time == time or (is_quiet and slot_time == time):
                        _pass_time_kernel(parameters, state, slots, members, time_tree, work_tree, time)
                        continue

                    if with_engines and state.engine_time == time:
                        _pass_boundaries_kernel(parameters, state, fleet, time)
                        continue

                if state.fetch_time == time:
                    _fetch_ends_kernel(parameters, state, seed, arrays, time)
                    continue

                if with_failures and failures.strike_time == time:
                    return come_back(parameters, state, shift, slots, members, time_tree, FAILS)

                measured = time > warmup
                book_time(parameters, state, slot_ticks, trainer_ticks, time)
                now = time
                channel_may_move = False

                if state.publication_time == time:
                    # --- a publication completes --------------------------------------------------------
                    event = np.int64(EVENT_PUBLICATION)
                    channel_may_move = True

                elif training_time == time:
                    # --- a training step completes ------------------------------------------------------
                    event = np.int64(EVENT_UPDATE)
                    if with_failures:
                        head = state.popped_head
                        note_kept(failures, groups[head].batch_tokens, groups[head].batch_groups)
                    _finish_batch_kernel(
                        parameters,
                        state,
                        training_tables,
                        draws,
                        groups,
                        members,
                        arrays.histograms,
                        arrays.log_weights,
                        arrays.batch_rows,
                        rollout_rows,
                        measured,
                    )
                    state.last_update_time = time
                    version = state.version
                    sync_every = parameters.sync_every
                    if version // sync_every > (version - parameters.updates_per_batch) // sync_every:
                        state.waiting_version = version
                    if parameters.stale_check == AT_UPDATE and (
                        state.queue_oldest < version - parameters.max_lag
                    ):
                        _drop_stale_kernel(parameters, state, tables, arrays, measured)
                    if parameters.cancel == 1:
                        _cancel_running_kernel(parameters, state, tables, arrays, measured)
                    stop = parameters.stop_after_updates
                    if stop > 0 and version >= stop:
                        state.ended = 1
                    owes_evaluation(parameters, state)
                    channel_may_move = True

                elif state.evaluation_time == time:
                    # --- an evaluation ends -------------------------------------------------------------
                    event = np.int64(EVENT_EVALUATION)
                    end_evaluation(state)

                elif with_failures and failures.wait_time == time:
                    # --- a checkpoint is whole, or the trainer is up again ------------------------------
                    event = end_wait(failures, trainer_ticks)
                    channel_may_move = True

                else:
                    # --- a rollout completes ------------------------------------------------------------
                    event = np.int64(EVENT_ROLLOUT)
                    if state.due > 0:
                        slot = slots[state.due_head].due
                        while slots[slot].phase != DUE:  # cancelled in this very tick
                            state.due_head += 1
                            slot = slots[state.due_head].due
                        state.due_head += 1
                        state.due -= 1
                    else:
                        slot = root & (leaves - 1)
                        state.freed = slot
                    record, member, finished = end_rollout(
                        state, shift, slots, groups, members, size, slot, moves_ends, measured
                    )
                    group = groups[place(record)]
                    if record_rollouts:
                        row = members[member].row
                        rollout_rows[row].end = time
                        rollout_rows[row].end_version = members[member].end_version
                        rollout_rows[row].outcome = COMPLETED_MEMBER

                    if finished == size:
                        # The group is ready: filtered, held, too old, or the newest of the queue.
                        if measured:
                            state.generated_groups += 1
                        is_held = group.filtered == 0 and queue_is_full(parameters, state)
                        if record_rollouts:
                            for other in range(record * size, (record + 1) * size):
                                rollout_rows[members[other].row].ready = time
                                if not is_held:
                                    rollout_rows[members[other].row].outcome = QUEUED
                        state.running -= 1
                        reason = np.int64(QUEUED)
                        if is_held:
                            hold_group(state, slots, groups, record, slot)
                        elif group.filtered == 1:
                            reason = np.int64(FILTERED)
                        elif parameters.stale_check == AT_UPDATE and (
                            state.version - group.version > parameters.max_lag
                        ):
                            reason = np.int64(DISCARDED)
                        else:
                            join_queue(parameters, state, groups, record)
                            limit = parameters.max_queue_groups
                            if limit > 0 and parameters.holds == 0 and state.queue_groups > limit:
                                record = groups[0].next  # in the queue for longest
                                reason = np.int64(EVICTED)
                        if reason != QUEUED:
                            _drop_group_kernel(parameters, state, tables, arrays, record, reason, measured)
                        if measured:
                            state.max_queue = max(state.max_queue, state.queue_tokens)
                        channel_may_move = state.channel == CHANNEL_DRAINING

                # --- the publication channel, as far as it can go in this tick ---------------------------
                if channel_may_move and (state.waiting_version >= 0 or state.channel != CHANNEL_FREE):
                    _channel_kernel(parameters, state, arrays, measured)
                saving = False
                if with_failures and event == EVENT_UPDATE:
                    saving = checkpoint_is_due(parameters, state)
                if channel_may_move:
                    _after_publication_kernel(
                        parameters, state, saving or (with_failures and failures.checkpoint_time != NEVER)
                    )
                if saving:
                    state.event = event
                    state.settling = 2
                    return come_back(parameters, state, shift, slots, members, time_tree, SAVES)
            state.event = event

        if state.settling != 1:
            # --- settle, first half: the trainer may start, and pop ahead while it trains ---------------
            while True:
                if may_join(parameters, state):
                    _join_held_kernel(parameters, state, tables, arrays, state.now > warmup)
                if with_failures and failures.restart_time != NEVER:
                    break
                if (
                    state.training == 1
                    or state.evaluation_time != NEVER
                    or (with_failures and failures.checkpoint_time != NEVER)
                ):
                    if state.prefetched >= parameters.prefetch:
                        break
                else:
                    if parameters.blocks_trainer == 1 and state.channel != CHANNEL_FREE:
                        break
                    if state.prefetched > 0:
                        take_in_hand(parameters, state, seed, groups)
                        continue
                if not finds_enough(parameters, state):
                    break
                if parameters.stale_check == AT_DEQUEUE and (
                    state.queue_oldest < state.version - parameters.max_lag
                ):
                    _drop_stale_kernel(parameters, state, tables, arrays, state.now > warmup)
                    if not finds_enough(parameters, state):
                        if may_join(parameters, state):
                            continue
                        break
                _take_batch_kernel(parameters, state, seed, groups, members, arrays.picks, rollout_rows)

            if with_failures and failures.again > 0:  # the slot of a worker that failed is used first
                state.idle += 1

        # --- settle, second half: slots may start --------------------------------------------------------
        state.settling = 1
        if stretches:
            _complete_rollouts_kernel(
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
                arrays.segment_starts,
            )
            if state.ended == 1 and state.settling == 0:
                return come_back(parameters, state, shift, slots, members, time_tree, REACHED)
            if state.settling != 1:
                continue
        now = state.now
        while state.idle > 0:
            again = with_failures and failures.again > 0
            if starts_are_stopped(state) and not again:
                state.idle_cause = SLOTS_PUBLICATION
                break
            record = failures.again if again else state.starting
            if record == 0:
                cause = closed_gate(parameters, state, tables.limits)
                if cause >= 0:
                    state.idle_cause = cause
                    break
                needed = next_admission(parameters, state)
                if state.free + state.requeued < needed:
                    state.needed = needed
                    return come_back(parameters, state, shift, slots, members, time_tree, GROW_GROUPS)
                if asked.admission == 1 and not sequential:
                    if asked.answer == NO_ANSWER:
                        _ask_admission_kernel(parameters, state, arrays, needed)
                        return come_back(parameters, state, shift, slots, members, time_tree, ASKS_ADMISSION)
                    is_open = asked.answer == 1
                    asked.answer = NO_ANSWER
                    if not is_open:
                        state.idle_cause = SLOTS_FIRST_LIMIT + tables.limits.shape[0]
                        break
                for _ in range(needed):
                    admit_group(parameters, state, groups)
                if counts_starts(parameters, state):
                    state.admitted_groups += needed
                record = state.starting

            # The next member of the group starts in the slot freed last.
            group = groups[place(record)]
            position = failures.again_member if again else group.started
            rollout = members[place(record * size + position)]
            is_fresh = position >= group.drawn and not again
            number = state.next_number if is_fresh else rollout.number
            published = state.published
            tokens, environment, noise = draw_member(
                parameters, seed, tables, draws, groups, record, position, number, is_fresh, published, plain
            )
            if asked.length == 1 and again:
                tokens = rollout.tokens
            elif asked.length == 1:
                if asked.answer == NO_ANSWER:
                    _ask_length_kernel(state, seed, arrays, record, position, number, tokens)
                    return come_back(parameters, state, shift, slots, members, time_tree, ASKS_LENGTH)
                tokens = asked.answer
                asked.answer = NO_ANSWER
            if is_fresh:
                state.next_number += 1
                rollout.number = number
            if parameters.segments > 0 and counts_starts(parameters, state):
                arrays.segment_starts[segment_of(tables, published)] += 1
            if (position == 0 and not again) or published < group.version:
                group.version = published

            slot, overhead, decode_ticks = start_rollout(
                parameters, state, slots, rollout, record, position, tokens, noise
            )
            if with_engines:
                _start_on_engine_kernel(
                    parameters, state, fleet, slot, record, position, number, tokens, environment
                )
            elif virtual and decode_ticks > 0:
                slots[slot].tail = overhead + environment
                put_on_clock(
                    state, slots, work_tree, leaves, slot, work_of(decode_ticks, parameters.work_unit)
                )
            else:
                tail = overhead + environment
                key = timed_end(
                    parameters, state, shift, slots, slot, decode_ticks, tail, moves_ends, virtual
                )
                set_key(time_tree, leaves, slot, key)
                if slot == state.freed:
                    state.freed = -1
            if record_rollouts:
                row = state.next_row
                state.next_row += 1
                rollout.row = row
                rollout_rows[row].number = number
                rollout_rows[row].tokens = tokens
                rollout_rows[row].version = state.published
                rollout_rows[row].start = now
                rollout_rows[row].end = -1
                rollout_rows[row].lag = -1
                rollout_rows[row].outcome = RUNNING
                rollout_rows[row].group = group.number
                rollout_rows[row].member = position
                rollout_rows[row].end_version = -1
                rollout_rows[row].ready = -1
            if again:
                failures.again = 0
                continue
            group.started = position + 1
            if position + 1 == size:
                state.starting = group.live_next
        state.settling = 0
        if state.freed >= 0:
            set_key(time_tree, leaves, state.freed, np.int64(NEVER))

        # --- what holds until the next event -------------------------------------------------------------
        note_cap(parameters, state)
        if with_failures and failures.restart_time != NEVER:
            state.trainer_cause = TRAINER_RESTART
        elif with_failures and failures.checkpoint_time != NEVER:
            state.trainer_cause = TRAINER_CHECKPOINT
        else:
            note_trainer(parameters, state)
        if record_timeline:
            timeline_rows = arrays.timeline_rows
            row = state.timeline_rows
            timeline_rows[row].time = now
            timeline_rows[row].queue_tokens = state.queue_tokens
            timeline_rows[row].in_flight = slot_count - state.idle - state.held
            timeline_rows[row].version = state.version
            timeline_rows[row].published = state.published
            timeline_rows[row].event = state.event
            timeline_rows[row].queue_groups = state.queue_groups
            timeline_rows[row].running_groups = state.running
            timeline_rows[row].idle_cause = state.idle_cause if state.idle > 0 else SLOTS_BUSY
            timeline_rows[row].trainer_cause = state.trainer_cause
            timeline_rows[row].fetch_time = state.fetch_time
            timeline_rows[row].held = state.held
            if with_engines:
                _note_levels_kernel(fleet, timeline_rows[row], now)
            state.timeline_rows = row + 1
        if state.ended == 1:
            return come_back(parameters, state, shift, slots, members, time_tree, REACHED)
