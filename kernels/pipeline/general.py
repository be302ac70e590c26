"""The general event loop, levels 1 to 3: groups, admission ledger, publication styles, work clock.

One run is `rollout_workers` slots, groups of rollouts that share a prompt, a queue of ready groups, a
trainer and a publication channel. Events are the smallest (time, kind, slot) of what is scheduled: a
publication completes, a training step completes, a rollout completes. After each event the run settles:
first the trainer may start, then slots may start. What time alone brings about in a tick (a decode ends and
a tool call goes on, a re-prefill ends) holds before the events of that tick and is no event of its own.

With every option off this is the run of :mod:`.pipeline.lean`, bit for bit, more slowly. The
state is flat arrays (:mod:`.pipeline.state`), so stopping, saving and resuming are the same
thing as running.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import rollout_words, uniform_from_word
from ..draws.sampler import sample_length
from .admission import _closed_gate_kernel, cap_closes, next_admission
from .clock import (
    _pass_time_kernel,
    bring_clock,
    event_key,
    next_decode_time,
    next_training_time,
    put_on_clock,
    set_key,
    work_of,
)
from .draws import _draw_member_kernel, noise_bits
from .groups import (
    _drop_group_kernel,
    _drop_stale_kernel,
    admit_group,
    join_queue,
)
from .lean import ticks_of
from .lean_layout import EVENT_PUBLICATION, EVENT_ROLLOUT, EVENT_START, EVENT_UPDATE
from .publication import _cancel_running_kernel, _channel_kernel
from .state import (
    AT_DEQUEUE,
    AT_UPDATE,
    C_BUSY,
    C_PUBLICATION,
    CHANNEL_DRAINING,
    CHANNEL_FREE,
    COMPLETED,
    COMPLETED_MEMBER,
    DISCARDED,
    DUE,
    EMPTY,
    EVICTED,
    F_ESS_MIN,
    F_QUEUE_TOKEN_TICKS,
    FILTERED,
    G_DRAWN,
    G_FILTERED,
    G_FINISHED,
    G_LIVE_NEXT,
    G_NEXT,
    G_NUMBER,
    G_STARTED,
    G_TOKENS,
    G_VERSION,
    GROW_BATCHES,
    GROW_GROUPS,
    GROW_ROLLOUTS,
    GROW_TIMELINE,
    L_DONE,
    L_DUE,
    L_GROUP,
    L_IDLE_STACK,
    L_MEMBER,
    L_PHASE,
    L_TAIL,
    M_DECODE_TICKS,
    M_END_VERSION,
    M_NOISE,
    M_NUMBER,
    M_PUBLICATIONS,
    M_ROW,
    M_SLOT,
    M_START,
    M_TOKENS,
    M_TRAINER_VERSION,
    M_VERSION,
    NEVER,
    NO_ENVIRONMENT,
    O_END,
    O_END_VERSION,
    O_GROUP,
    O_LAG,
    O_MEMBER,
    O_NUMBER,
    O_OUTCOME,
    O_READY,
    O_START,
    O_TOKENS,
    O_VERSION,
    OUT_OF_BUDGET,
    P_BLOCKS_TRAINER,
    P_CANCEL,
    P_ENVIRONMENT,
    P_GROUP_SIZE,
    P_HORIZON,
    P_LAW_MINIMUM,
    P_LEAVES,
    P_MAX_LAG,
    P_MAX_QUEUE_GROUPS,
    P_OVERHEAD_TICKS,
    P_PREFETCH,
    P_RECORD_BATCHES,
    P_RECORD_ROLLOUTS,
    P_RECORD_TIMELINE,
    P_SEQUENTIAL,
    P_SLOT_BITS,
    P_SLOTS,
    P_STALE_CHECK,
    P_STOP_AFTER_UPDATES,
    P_SYNC_EVERY,
    P_TRACE_GROUPS,
    P_UPDATES_PER_BATCH,
    P_VIRTUAL_CLOCK,
    P_WARMUP,
    P_WORK_UNIT,
    PF_DECODE_RATE,
    PF_FILTER,
    PF_PROMPT_SIGMA,
    PF_ROLLOUT_OVERHEAD,
    QUEUED,
    REACHED,
    RUNNING,
    S_ADMITTED_GROUPS,
    S_BACKPRESSURE_TICKS,
    S_BATCH_ROWS,
    S_BEGUN,
    S_CAP_CLOSED,
    S_CHANNEL,
    S_CLOCK,
    S_COST,
    S_DUE,
    S_DUE_HEAD,
    S_ENDED,
    S_EVENT,
    S_EVENTS,
    S_FREE,
    S_FREED,
    S_GENERATED_GROUPS,
    S_GENERATED_ROLLOUTS,
    S_GENERATED_TOKENS,
    S_IDLE,
    S_IDLE_CAUSE,
    S_IDLE_SLOT_TICKS,
    S_IN_FLIGHT_TOKENS,
    S_LAST_UPDATE_TIME,
    S_MAX_LAG,
    S_MAX_QUEUE,
    S_NEEDED,
    S_NEXT_NUMBER,
    S_NEXT_ROW,
    S_NOW,
    S_PREFETCHED,
    S_PUBLICATION_TIME,
    S_PUBLICATIONS,
    S_PUBLISHED,
    S_QUEUE_GROUPS,
    S_QUEUE_OLDEST,
    S_QUEUE_TOKENS,
    S_REQUEUED,
    S_RUNNING,
    S_SETTLING,
    S_STARTING,
    S_STOPPED,
    S_TIMELINE_ROWS,
    S_TRAINER_CAUSE,
    S_TRAINING,
    S_TRAINING_TIME,
    S_VERSION,
    S_WAITING_VERSION,
    T_CAUSE_BATCH,
    T_CAUSE_BUSY,
    T_CAUSE_PUBLICATION,
    T_CAUSE_RUNNING_GROUPS,
    T_EVENT,
    T_IDLE_CAUSE,
    T_IN_FLIGHT,
    T_PUBLISHED,
    T_QUEUE_GROUPS,
    T_QUEUE_TOKENS,
    T_RUNNING_GROUPS,
    T_TIME,
    T_TRAINER_CAUSE,
    T_VERSION,
    TAIL,
    TIMED,
)
from .trainer import (
    _finish_batch_kernel,
    _take_batch_kernel,
    finds_enough,
    holds_enough,
    start_step,
)


@jit(counted=False)
def _reset_engine_kernel(
    params,
    state,
    sums,
    time_tree,
    work_tree,
    slots,
    version_work,
    groups,
    histograms,
    slot_ticks,
    trainer_ticks,
):
    """Put a run at time 0: every slot idle, nothing queued. Shapes as in `_advance_engine_kernel`."""
    state[:] = 0
    sums[:] = 0.0
    time_tree[:] = NEVER
    work_tree[:] = NEVER
    slots[:] = 0
    version_work[:] = 0.0
    groups[:] = 0
    histograms[:] = 0
    slot_ticks[:] = 0
    trainer_ticks[:] = 0
    state[S_PUBLICATION_TIME] = NEVER
    state[S_WAITING_VERSION] = -1
    state[S_TRAINING_TIME] = NEVER
    state[S_FREED] = -1
    state[S_MAX_QUEUE] = -1
    state[S_MAX_LAG] = -1
    state[S_QUEUE_OLDEST] = 2**62
    sums[F_ESS_MIN] = math.inf
    count = params[P_SLOTS]
    state[S_IDLE] = count
    for index in range(count):
        # A stack: the slot freed last is used first, and at time 0 slot 0 is on top.
        slots[index, L_IDLE_STACK] = count - 1 - index


@jit(counted=False)
def _advance_engine_kernel(
    params,
    rates,
    seed,
    until,
    budget,
    cdf,
    guide,
    work_rates,
    limits,
    environment_cdf,
    environment_guide,
    environment_ticks,
    trace_tokens,
    trace_ticks,
    trace_group_starts,
    trace_group_of_row,
    decile_edges,
    state,
    sums,
    time_tree,
    work_tree,
    slots,
    version_work,
    groups,
    group_factors,
    members,
    member_versions,
    log_weights,
    picks,
    histograms,
    slot_ticks,
    trainer_ticks,
    batch_rows,
    batch_floats,
    timeline_rows,
    rollout_rows,
):
    """Let every event up to `until` happen, at a cost (events and scanned records) of about `budget`.

    Parameters
    ----------
    params : int64[P_COUNT], rates : float64[PF_COUNT]
    seed : uint64
    until, budget : int64
        Ticks (the horizon is kept beside it), and the cost after which to come back.
    cdf : float64[maximum - minimum + 1], guide : int64[…]
        The length law's table and its guide.
    work_rates : int64[slots + 1]
        Units of work that a tick adds to W with so many rollouts decoding.
    limits : int64[n, LIMIT_COLUMNS]
    environment_cdf : float64[e], environment_guide : int64[…], environment_ticks : int64[e]
        The law of the environment's seconds, in ticks.
    trace_tokens, trace_ticks : int64[r], trace_group_starts : int64[g + 1], trace_group_of_row : int64[r]
        Rows of a trace of pairs or of groups.
    decile_edges : int64[9]
        Quantiles of the length law at 0.1…0.9.
    state : int64[S_COUNT], sums : float64[F_COUNT]
    time_tree, work_tree : int64[2 * leaves]
        Packed keys of rollouts (and, even, re-prefills) that end at a known tick; targets of W.
    slots : int64[slots, L_COUNT], version_work : float64[slots]
    groups : int64[g, G_COUNT], group_factors : float64[g]
    members : int64[g * group_size, M_COUNT], member_versions : float64[g * group_size]
    log_weights : float64[g * group_size], picks : int64[g]
        Scratch.
    histograms : int64[H_COUNT, 65], slot_ticks : int64[C_FIRST_LIMIT + n], trainer_ticks : int64[4]
    batch_rows : int64[b, B_COUNT], batch_floats : float64[b, BF_COUNT], timeline_rows : int64[t, T_COUNT],
    rollout_rows : int64[n, O_COUNT]
        Recorded rows, written only where the parameters ask for them.

    Returns
    -------
    int64
        REACHED, OUT_OF_BUDGET, or GROW_…: which array to make larger before the next call.
    """
    warmup = params[P_WARMUP]
    slot_count = params[P_SLOTS]
    leaves = params[P_LEAVES]
    slot_bits = params[P_SLOT_BITS]
    size = params[P_GROUP_SIZE]
    sequential = params[P_SEQUENTIAL] == 1
    virtual = params[P_VIRTUAL_CLOCK] == 1
    record_timeline = params[P_RECORD_TIMELINE] == 1
    record_rollouts = params[P_RECORD_ROLLOUTS] == 1
    plain = (
        params[P_TRACE_GROUPS] == 0
        and params[P_ENVIRONMENT] == NO_ENVIRONMENT
        and rates[PF_PROMPT_SIGMA] == 0.0
        and rates[PF_FILTER] == 0.0
    )
    last_time = min(until, params[P_HORIZON])
    if state[S_ENDED] == 1:
        return REACHED
    last_cost = state[S_COST] + budget

    while True:
        if state[S_SETTLING] == 0:
            # --- room for what one event may record ---------------------------------------------------
            if params[P_RECORD_BATCHES] == 1 and state[S_BATCH_ROWS] == batch_rows.shape[0]:
                return GROW_BATCHES
            if record_timeline and state[S_TIMELINE_ROWS] == timeline_rows.shape[0]:
                return GROW_TIMELINE
            if record_rollouts and state[S_NEXT_ROW] + slot_count > rollout_rows.shape[0]:
                return GROW_ROLLOUTS
            event = np.int64(EVENT_START)
            state[S_FREED] = -1
            if state[S_BEGUN] == 0:
                state[S_BEGUN] = 1
            else:
                # --- the next moment at which anything happens ----------------------------------------
                root = time_tree[1]
                slot_time = np.int64(NEVER)
                is_quiet = False  # the end of a re-prefill, no event
                if root < NEVER:
                    slot_time = root >> (slot_bits + 1)
                    is_quiet = (root >> slot_bits) & 1 == 0
                time = min(state[S_PUBLICATION_TIME], slot_time)
                if virtual:
                    training_time = next_training_time(params, state)
                    decode_time = next_decode_time(state, work_rates, work_tree)
                    time = min(min(time, decode_time), training_time)
                    if state[S_DUE] > 0:
                        time = state[S_CLOCK]
                else:
                    training_time = state[S_TRAINING_TIME]
                    decode_time = np.int64(NEVER)
                    time = min(time, training_time)
                if time > last_time:
                    return REACHED
                if state[S_COST] >= last_cost:
                    return OUT_OF_BUDGET
                state[S_COST] += 1

                # --- what time alone brings about: ends of decode, ends of re-prefill -------------------
                if virtual:
                    bring_clock(params, state, work_rates, time)
                    if decode_time == time or (is_quiet and slot_time == time):
                        _pass_time_kernel(
                            params, state, slots, version_work, members, time_tree, work_tree, time
                        )
                        continue

                # --- time integrals over the measured part of (now, time] ------------------------------
                now = state[S_NOW]
                measured = time > warmup
                if measured:
                    span = time - max(now, warmup)
                    if state[S_MAX_QUEUE] < 0:
                        state[S_MAX_QUEUE] = state[S_QUEUE_TOKENS]
                    sums[F_QUEUE_TOKEN_TICKS] += np.float64(state[S_QUEUE_TOKENS]) * np.float64(span)
                    idle_ticks = state[S_IDLE] * span
                    state[S_IDLE_SLOT_TICKS] += idle_ticks
                    slot_ticks[state[S_IDLE_CAUSE]] += idle_ticks
                    slot_ticks[C_BUSY] += (slot_count - state[S_IDLE]) * span
                    trainer_ticks[state[S_TRAINER_CAUSE]] += span
                    if state[S_IDLE] > 0 and state[S_CAP_CLOSED] == 1:
                        state[S_BACKPRESSURE_TICKS] += span
                now = time
                state[S_NOW] = time
                state[S_EVENTS] += 1
                channel_may_move = False

                if state[S_PUBLICATION_TIME] == time:
                    # --- a publication completes --------------------------------------------------------
                    event = np.int64(EVENT_PUBLICATION)
                    channel_may_move = True

                elif training_time == time:
                    # --- a training step completes ------------------------------------------------------
                    event = np.int64(EVENT_UPDATE)
                    _finish_batch_kernel(
                        params,
                        rates,
                        state,
                        sums,
                        groups,
                        members,
                        member_versions,
                        log_weights,
                        histograms,
                        decile_edges,
                        batch_rows,
                        batch_floats,
                        rollout_rows,
                        measured,
                    )
                    state[S_LAST_UPDATE_TIME] = time
                    version = state[S_VERSION]
                    sync_every = params[P_SYNC_EVERY]
                    if version // sync_every > (version - params[P_UPDATES_PER_BATCH]) // sync_every:
                        state[S_WAITING_VERSION] = version
                    if params[P_STALE_CHECK] == AT_UPDATE and (
                        state[S_QUEUE_OLDEST] < version - params[P_MAX_LAG]
                    ):
                        _drop_stale_kernel(
                            params,
                            state,
                            groups,
                            members,
                            histograms,
                            decile_edges,
                            rollout_rows,
                            measured,
                        )
                    if params[P_CANCEL] == 1:
                        _cancel_running_kernel(
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
                        )
                    stop = params[P_STOP_AFTER_UPDATES]
                    if stop > 0 and version >= stop:
                        state[S_ENDED] = 1
                    channel_may_move = True

                else:
                    # --- a rollout completes ------------------------------------------------------------
                    event = np.int64(EVENT_ROLLOUT)
                    if state[S_DUE] > 0:
                        slot = slots[state[S_DUE_HEAD], L_DUE]
                        while slots[slot, L_PHASE] != DUE:  # cancelled in this very tick
                            state[S_DUE_HEAD] += 1
                            slot = slots[state[S_DUE_HEAD], L_DUE]
                        state[S_DUE_HEAD] += 1
                        state[S_DUE] -= 1
                    else:
                        slot = root & (leaves - 1)
                        state[S_FREED] = slot
                    record = slots[slot, L_GROUP]
                    member = record * size + slots[slot, L_MEMBER]
                    tokens = members[member, M_TOKENS]
                    slots[slot, L_PHASE] = EMPTY
                    slots[state[S_IDLE], L_IDLE_STACK] = slot
                    state[S_IDLE] += 1
                    state[S_IN_FLIGHT_TOKENS] -= tokens
                    members[member, M_SLOT] = COMPLETED
                    if virtual:
                        work = slots[slot, L_DONE]
                        member_versions[member] = version_work[slot] / np.float64(work) if work > 0 else 0.0
                    groups[record, G_TOKENS] += tokens
                    groups[record, G_FINISHED] += 1
                    if measured:
                        state[S_GENERATED_TOKENS] += tokens
                        state[S_GENERATED_ROLLOUTS] += 1
                    if record_rollouts:
                        row = members[member, M_ROW]
                        rollout_rows[row, O_END] = time
                        rollout_rows[row, O_END_VERSION] = members[member, M_END_VERSION]
                        rollout_rows[row, O_OUTCOME] = COMPLETED_MEMBER

                    if groups[record, G_FINISHED] == size:
                        # The group is ready: filtered, too old, or the newest of the queue.
                        state[S_RUNNING] -= 1
                        if measured:
                            state[S_GENERATED_GROUPS] += 1
                        if record_rollouts:
                            for other in range(record * size, (record + 1) * size):
                                rollout_rows[members[other, M_ROW], O_READY] = time
                                rollout_rows[members[other, M_ROW], O_OUTCOME] = QUEUED
                        reason = np.int64(QUEUED)
                        if groups[record, G_FILTERED] == 1:
                            reason = np.int64(FILTERED)
                        elif params[P_STALE_CHECK] == AT_UPDATE and (
                            state[S_VERSION] - groups[record, G_VERSION] > params[P_MAX_LAG]
                        ):
                            reason = np.int64(DISCARDED)
                        else:
                            join_queue(params, state, groups, record)
                            limit = params[P_MAX_QUEUE_GROUPS]
                            if limit > 0 and state[S_QUEUE_GROUPS] > limit:
                                record = groups[0, G_NEXT]  # in the queue for longest
                                reason = np.int64(EVICTED)
                        if reason != QUEUED:
                            _drop_group_kernel(
                                params,
                                state,
                                groups,
                                members,
                                histograms,
                                decile_edges,
                                rollout_rows,
                                record,
                                reason,
                                measured,
                            )
                        if measured:
                            state[S_MAX_QUEUE] = max(state[S_MAX_QUEUE], state[S_QUEUE_TOKENS])
                        channel_may_move = state[S_CHANNEL] == CHANNEL_DRAINING

                # --- the publication channel, as far as it can go in this tick ---------------------------
                if channel_may_move and (state[S_WAITING_VERSION] >= 0 or state[S_CHANNEL] != CHANNEL_FREE):
                    _channel_kernel(
                        params,
                        rates,
                        state,
                        slots,
                        version_work,
                        members,
                        time_tree,
                        work_tree,
                        measured,
                    )
            state[S_EVENT] = event

            # --- settle, first half: the trainer may start, and pop ahead while it trains ---------------
            while True:
                training = state[S_TRAINING] == 1
                if training:
                    if state[S_PREFETCHED] >= params[P_PREFETCH]:
                        break
                else:
                    if params[P_BLOCKS_TRAINER] == 1 and state[S_CHANNEL] != CHANNEL_FREE:
                        break
                    if state[S_PREFETCHED] > 0:
                        start_step(params, rates, state, groups)
                        continue
                if not finds_enough(params, state):
                    break
                if params[P_STALE_CHECK] == AT_DEQUEUE and (
                    state[S_QUEUE_OLDEST] < state[S_VERSION] - params[P_MAX_LAG]
                ):
                    _drop_stale_kernel(
                        params,
                        state,
                        groups,
                        members,
                        histograms,
                        decile_edges,
                        rollout_rows,
                        state[S_NOW] > warmup,
                    )
                    if not finds_enough(params, state):
                        break
                _take_batch_kernel(params, state, seed, groups, members, picks, rollout_rows)

        # --- settle, second half: slots may start --------------------------------------------------------
        state[S_SETTLING] = 1
        now = state[S_NOW]
        while state[S_IDLE] > 0:
            if state[S_STOPPED] == 1:
                state[S_IDLE_CAUSE] = C_PUBLICATION
                break
            record = state[S_STARTING]
            if record == 0:
                cause = _closed_gate_kernel(params, state, limits)
                if cause >= 0:
                    state[S_IDLE_CAUSE] = cause
                    break
                needed = next_admission(params, state)
                if state[S_FREE] + state[S_REQUEUED] < needed:
                    state[S_NEEDED] = needed
                    return GROW_GROUPS
                for _ in range(needed):
                    admit_group(params, state, groups, members)
                if now > warmup:
                    state[S_ADMITTED_GROUPS] += needed
                record = state[S_STARTING]

            # The next member of the group starts in the slot freed last.
            position = groups[record, G_STARTED]
            member = record * size + position
            if position < groups[record, G_DRAWN]:
                number = members[member, M_NUMBER]
            else:
                number = state[S_NEXT_NUMBER]
                state[S_NEXT_NUMBER] += 1
                members[member, M_NUMBER] = number
            environment = np.int64(0)
            if plain:
                w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
                noise = noise_bits(w1)
                tokens = sample_length(uniform_from_word(w0), params[P_LAW_MINIMUM], cdf, guide)
            else:
                tokens, environment, noise = _draw_member_kernel(
                    params,
                    rates,
                    seed,
                    number,
                    cdf,
                    guide,
                    environment_cdf,
                    environment_guide,
                    environment_ticks,
                    trace_tokens,
                    trace_ticks,
                    trace_group_starts,
                    trace_group_of_row,
                    groups,
                    group_factors,
                    record,
                    position,
                )
            if position == 0 or state[S_PUBLISHED] < groups[record, G_VERSION]:
                groups[record, G_VERSION] = state[S_PUBLISHED]

            total = max(
                np.int64(1), ticks_of(rates[PF_ROLLOUT_OVERHEAD] + np.float64(tokens) / rates[PF_DECODE_RATE])
            )
            overhead = min(total, params[P_OVERHEAD_TICKS])
            state[S_IDLE] -= 1
            slot = slots[state[S_IDLE], L_IDLE_STACK]
            state[S_IN_FLIGHT_TOKENS] += tokens
            slots[slot, L_GROUP] = record
            slots[slot, L_MEMBER] = position
            members[member, M_NOISE] = noise
            members[member, M_TOKENS] = tokens
            members[member, M_VERSION] = state[S_PUBLISHED]
            members[member, M_TRAINER_VERSION] = state[S_VERSION]
            members[member, M_PUBLICATIONS] = state[S_PUBLICATIONS]
            members[member, M_START] = now
            members[member, M_END_VERSION] = state[S_PUBLISHED]
            members[member, M_SLOT] = slot
            members[member, M_DECODE_TICKS] = total - overhead
            member_versions[member] = 0.0
            if virtual and total > overhead:
                slots[slot, L_DONE] = 0
                slots[slot, L_TAIL] = overhead + environment
                version_work[slot] = 0.0
                put_on_clock(
                    state, slots, work_tree, leaves, slot, work_of(total - overhead, params[P_WORK_UNIT])
                )
            else:
                slots[slot, L_PHASE] = TAIL if virtual else TIMED
                slots[slot, L_DONE] = 0
                end = now + total + environment
                set_key(time_tree, leaves, slot, event_key(params, end, slot))
                if slot == state[S_FREED]:
                    state[S_FREED] = -1
            if record_rollouts:
                row = state[S_NEXT_ROW]
                state[S_NEXT_ROW] += 1
                members[member, M_ROW] = row
                rollout_rows[row, O_NUMBER] = number
                rollout_rows[row, O_TOKENS] = tokens
                rollout_rows[row, O_VERSION] = state[S_PUBLISHED]
                rollout_rows[row, O_START] = now
                rollout_rows[row, O_END] = -1
                rollout_rows[row, O_LAG] = -1
                rollout_rows[row, O_OUTCOME] = RUNNING
                rollout_rows[row, O_GROUP] = groups[record, G_NUMBER]
                rollout_rows[row, O_MEMBER] = position
                rollout_rows[row, O_END_VERSION] = -1
                rollout_rows[row, O_READY] = -1
            groups[record, G_STARTED] = position + 1
            if position + 1 == size:
                state[S_STARTING] = groups[record, G_LIVE_NEXT]
        state[S_SETTLING] = 0
        if state[S_FREED] >= 0:
            set_key(time_tree, leaves, state[S_FREED], np.int64(NEVER))

        # --- what holds until the next event -------------------------------------------------------------
        state[S_CAP_CLOSED] = 0
        if state[S_IDLE] > 0 and cap_closes(params, state, next_admission(params, state)):
            state[S_CAP_CLOSED] = 1
        if state[S_TRAINING] == 1:
            state[S_TRAINER_CAUSE] = T_CAUSE_BUSY
        elif state[S_CHANNEL] != CHANNEL_FREE and (params[P_BLOCKS_TRAINER] == 1 or sequential):
            state[S_TRAINER_CAUSE] = T_CAUSE_PUBLICATION
        elif holds_enough(params, state):
            state[S_TRAINER_CAUSE] = T_CAUSE_RUNNING_GROUPS
        else:
            state[S_TRAINER_CAUSE] = T_CAUSE_BATCH
        if record_timeline:
            row = state[S_TIMELINE_ROWS]
            timeline_rows[row, T_TIME] = now
            timeline_rows[row, T_QUEUE_TOKENS] = state[S_QUEUE_TOKENS]
            timeline_rows[row, T_IN_FLIGHT] = slot_count - state[S_IDLE]
            timeline_rows[row, T_VERSION] = state[S_VERSION]
            timeline_rows[row, T_PUBLISHED] = state[S_PUBLISHED]
            timeline_rows[row, T_EVENT] = state[S_EVENT]
            timeline_rows[row, T_QUEUE_GROUPS] = state[S_QUEUE_GROUPS]
            timeline_rows[row, T_RUNNING_GROUPS] = state[S_RUNNING]
            timeline_rows[row, T_IDLE_CAUSE] = state[S_IDLE_CAUSE] if state[S_IDLE] > 0 else C_BUSY
            timeline_rows[row, T_TRAINER_CAUSE] = state[S_TRAINER_CAUSE]
            state[S_TIMELINE_ROWS] = row + 1
        if state[S_ENDED] == 1:
            return REACHED
