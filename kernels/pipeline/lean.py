"""The event loop of one simulated pipeline, level 1: the simulator's heart.

One run is `rollout_workers` slots, a FIFO queue of finished rollouts measured in tokens, a trainer and a
publication channel. Three kinds of events happen, always the smallest (time, kind, slot) of what is
scheduled: a publication completes, a training step completes, a rollout completes. After each event the run
settles: first the trainer may start, then slots may start.

The state is flat arrays (:mod:`.pipeline.lean_layout`), so stopping, saving and resuming are the
same thing as running. Slot events stand in a tournament tree of packed keys ``time << bits | slot``: each
slot has one leaf, an update is log2(slots) branch-free minima, and ties fall to the lowest slot. The
publication and the training step are two scalars beside it.

Time integrals are sums over events in order and are closed only at events and at the end, so a stop never
splits a sum.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import normal_from_word, rollout_words, uniform_from_word
from ..draws.sampler import sample_length
from .lean_layout import (
    B_END,
    B_LAG_SUM,
    B_MAX_LAG,
    B_ROLLOUTS,
    B_START,
    B_TOKENS,
    BF_ESS,
    BF_EXPECTED_ESS,
    DISCARDED,
    EVENT_PUBLICATION,
    EVENT_ROLLOUT,
    EVENT_START,
    EVENT_UPDATE,
    F_EFFECTIVE_TOKENS,
    F_ESS_MIN,
    F_ESS_SUM,
    F_EXPECTED_ESS_SUM,
    F_LAG_SUM,
    F_QUEUE_TOKEN_TICKS,
    F_TRAINING_ESS,
    F_TRAINING_EXPECTED_ESS,
    GROW_BATCHES,
    GROW_RING,
    GROW_ROLLOUTS,
    GROW_TIMELINE,
    IN_TRAINING,
    NEVER,
    O_END,
    O_LAG,
    O_OUTCOME,
    O_START,
    O_TOKENS,
    O_VERSION,
    OUT_OF_BUDGET,
    P_BATCH_TOKENS,
    P_HORIZON,
    P_LAW_MAXIMUM,
    P_LAW_MINIMUM,
    P_LEAVES,
    P_MAX_LAG,
    P_QUEUE_CAP,
    P_RECORD_BATCHES,
    P_RECORD_ROLLOUTS,
    P_RECORD_TIMELINE,
    P_RESERVE,
    P_SEQUENTIAL,
    P_SLOT_BITS,
    P_SLOTS,
    P_STOP_AFTER_UPDATES,
    P_SYNC_EVERY,
    P_SYNC_TICKS,
    P_WARMUP,
    PF_DECODE_RATE,
    PF_DRIFT,
    PF_ROLLOUT_OVERHEAD,
    PF_TRAIN_OVERHEAD,
    PF_TRAIN_RATE,
    QUEUED,
    R_NUMBER,
    R_TOKENS,
    R_VERSION,
    REACHED,
    RUNNING,
    S_BACKPRESSURE_TICKS,
    S_BATCH_ROWS,
    S_BEGUN,
    S_DISCARDED_ROLLOUTS,
    S_DISCARDED_TOKENS,
    S_ENDED,
    S_EVENTS,
    S_GENERATED_ROLLOUTS,
    S_GENERATED_TOKENS,
    S_IDLE,
    S_IDLE_SLOT_TICKS,
    S_IN_FLIGHT,
    S_IN_FLIGHT_TOKENS,
    S_LAST_UPDATE_TIME,
    S_MAX_LAG,
    S_MAX_QUEUE,
    S_NEXT_ROLLOUT,
    S_NOW,
    S_PUBLICATION_TIME,
    S_PUBLICATION_VERSION,
    S_PUBLISHED,
    S_QUEUE_TOKENS,
    S_RING_HEAD,
    S_RING_TAIL,
    S_RING_TRAINING,
    S_SYNCS,
    S_TIMELINE_ROWS,
    S_TRAINED_ROLLOUTS,
    S_TRAINED_TOKENS,
    S_TRAINER_WAIT_TICKS,
    S_TRAINING_LAG_MAX,
    S_TRAINING_LAG_SUM,
    S_TRAINING_ROLLOUTS,
    S_TRAINING_START,
    S_TRAINING_TIME,
    S_TRAINING_TOKENS,
    S_UPDATES,
    S_VERSION,
    S_WAITING_VERSION,
    T_EVENT,
    T_IN_FLIGHT,
    T_PUBLISHED,
    T_QUEUE_TOKENS,
    T_TIME,
    T_VERSION,
    TRAINED,
)
from .metrics import LAG_BINS

_MAXIMUM_TICKS = 2**52
_DRAW_BLOCK = 512


@jit(inline=True)
def ticks_of(seconds):
    """Turn seconds (float64) into whole microseconds, ``min(floor(x * 1e6 + 0.5), 2**52)``."""
    scaled = seconds * 1e6 + 0.5
    return np.int64(_MAXIMUM_TICKS) if scaled >= 4503599627370496.0 else np.int64(math.floor(scaled))


@jit(inline=True)
def exp_saturating(x):
    """``exp(x)``, infinite where it overflows (CPython's raises, Numba's does not)."""
    return math.exp(x) if x < 709.0 else math.inf


@jit
def _draw_ahead_kernel(seed, first, last, law_minimum, cdf, guide, drawn_tokens, drawn_normals):
    """Fill lengths (int64) and standard normals (float64) of the rollouts first…last-1 of one seed."""
    for number in range(first, last):
        w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
        drawn_tokens[number] = sample_length(uniform_from_word(w0), law_minimum, cdf, guide)
        drawn_normals[number] = normal_from_word(w1)


@jit
def _draw_one_kernel(seed, number, law_minimum, cdf, guide):
    """Draw one rollout's length alone, for numbers past the shared buffer."""
    w0, _w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    return sample_length(uniform_from_word(w0), law_minimum, cdf, guide)


@jit
def _normal_of_kernel(seed, number):
    """Draw one rollout's standard normal alone, for numbers past the shared buffer."""
    _w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    return normal_from_word(w1)


@jit
def _reset_kernel(params, state, sums, tree, idle_stack, lag_counts, training_lags):
    """Put a run at time 0: every slot idle, nothing queued, versions 0.

    params int64[P_COUNT], state int64[S_COUNT], sums float64[F_COUNT], tree int64[2 * leaves],
    idle_stack int64[slots], lag_counts and training_lags int64[65].
    """
    state[:] = 0
    sums[:] = 0.0
    state[S_PUBLICATION_TIME] = NEVER
    state[S_WAITING_VERSION] = -1
    state[S_TRAINING_TIME] = NEVER
    state[S_MAX_QUEUE] = -1
    state[S_MAX_LAG] = -1
    sums[F_ESS_MIN] = math.inf
    slots = params[P_SLOTS]
    state[S_IDLE] = slots
    for index in range(slots):
        # A stack: the slot freed last is used first, and at time 0 slot 0 is on top.
        idle_stack[index] = slots - 1 - index
    for index in range(2 * params[P_LEAVES]):
        tree[index] = NEVER
    lag_counts[:] = 0
    training_lags[:] = 0


@jit
def _advance_kernel(
    params,
    rates,
    seed,
    until,
    event_budget,
    cdf,
    guide,
    drawn,
    drawn_tokens,
    drawn_normals,
    state,
    sums,
    tree,
    idle_stack,
    slots,
    ring,
    log_weights,
    lag_counts,
    training_lags,
    batch_rows,
    batch_floats,
    timeline_rows,
    rollout_rows,
):
    """Let every event up to `until` happen, at most `event_budget` of them.

    Parameters
    ----------
    params : int64[P_COUNT], rates : float64[PF_COUNT]
    seed : uint64
    until, event_budget : int64
        Ticks (the horizon is kept beside it), and events after which to come back.
    cdf : float64[maximum - minimum + 1], guide : int64[…]
        The length law's table and its guide.
    drawn : int64[1], drawn_tokens : int64[d], drawn_normals : float64[d]
        Draws of this seed's first rollouts, shared by all configurations; filled on demand.
    state : int64[S_COUNT], sums : float64[F_COUNT], tree : int64[2 * leaves], idle_stack : int64[slots]
    slots : int64[slots, R_COUNT]
        Tokens, behaviour version and number of the rollout in each slot.
    ring : int64[r, R_COUNT], log_weights : float64[r]
        Finished rollouts (r a power of two): those in training, then the queue; and scratch.
    lag_counts, training_lags : int64[65]
    batch_rows : int64[b, B_COUNT], batch_floats : float64[b, BF_COUNT], timeline_rows : int64[t, T_COUNT],
    rollout_rows : int64[n, O_COUNT]
        Recorded rows, written only where the parameters ask for them.

    Returns
    -------
    int64
        REACHED, OUT_OF_BUDGET, or GROW_…: which array to double before the next call.
    """
    sequential = params[P_SEQUENTIAL] == 1
    horizon = params[P_HORIZON]
    warmup = params[P_WARMUP]
    stop_after_updates = params[P_STOP_AFTER_UPDATES]
    slot_count = params[P_SLOTS]
    queue_cap = params[P_QUEUE_CAP]
    reserve = params[P_RESERVE] == 1
    batch_tokens = params[P_BATCH_TOKENS]
    max_lag = params[P_MAX_LAG]
    sync_every = params[P_SYNC_EVERY]
    sync_ticks = params[P_SYNC_TICKS]
    law_minimum = params[P_LAW_MINIMUM]
    law_maximum = params[P_LAW_MAXIMUM]
    slot_bits = params[P_SLOT_BITS]
    slot_mask = (np.int64(1) << slot_bits) - 1
    leaves = params[P_LEAVES]
    record_batches = params[P_RECORD_BATCHES] == 1
    record_timeline = params[P_RECORD_TIMELINE] == 1
    record_rollouts = params[P_RECORD_ROLLOUTS] == 1
    decode_rate = rates[PF_DECODE_RATE]
    rollout_overhead = rates[PF_ROLLOUT_OVERHEAD]
    train_overhead = rates[PF_TRAIN_OVERHEAD]
    train_rate = rates[PF_TRAIN_RATE]
    drift = rates[PF_DRIFT]
    ring_mask = ring.shape[0] - 1
    buffer_size = drawn_tokens.shape[0]
    last_time = min(until, horizon)
    if state[S_ENDED] == 1:
        return REACHED

    now = state[S_NOW]
    version = state[S_VERSION]
    published = state[S_PUBLISHED]
    publication_time = state[S_PUBLICATION_TIME]
    training_time = state[S_TRAINING_TIME]
    queue_tokens = state[S_QUEUE_TOKENS]
    head = state[S_RING_HEAD]
    tail = state[S_RING_TAIL]
    in_flight = state[S_IN_FLIGHT]
    in_flight_tokens = state[S_IN_FLIGHT_TOKENS]
    idle = state[S_IDLE]
    next_rollout = state[S_NEXT_ROLLOUT]
    max_queue = state[S_MAX_QUEUE]
    generated_tokens = state[S_GENERATED_TOKENS]
    generated_rollouts = state[S_GENERATED_ROLLOUTS]
    backpressure_ticks = state[S_BACKPRESSURE_TICKS]
    idle_slot_ticks = state[S_IDLE_SLOT_TICKS]
    trainer_wait_ticks = state[S_TRAINER_WAIT_TICKS]
    queue_token_ticks = sums[F_QUEUE_TOKEN_TICKS]
    # s = drift * sqrt(lag) and exp(s**2) of the lags that occur.
    spreads = np.empty(LAG_BINS, np.float64)
    inflations = np.empty(LAG_BINS, np.float64)
    for lag in range(LAG_BINS):
        spreads[lag] = drift * math.sqrt(np.float64(lag))
        inflations[lag] = exp_saturating(spreads[lag] * spreads[lag])
    resumed = min(next_rollout, buffer_size)
    if drawn[0] < resumed:
        # A restored state comes without draws; they are a function of the seed, so they come back.
        _draw_ahead_kernel(seed, drawn[0], resumed, law_minimum, cdf, guide, drawn_tokens, drawn_normals)
        drawn[0] = resumed
    ended = False
    status = REACHED
    events_left = event_budget

    while True:
        # --- room for what one event and its settle may add -------------------------------------------
        if tail - state[S_RING_TRAINING] > ring_mask - 1:
            status = GROW_RING
            break
        if record_batches and state[S_BATCH_ROWS] == batch_rows.shape[0]:
            status = GROW_BATCHES
            break
        if record_timeline and state[S_TIMELINE_ROWS] == timeline_rows.shape[0]:
            status = GROW_TIMELINE
            break
        if record_rollouts and next_rollout + slot_count > rollout_rows.shape[0]:
            status = GROW_ROLLOUTS
            break

        freed = np.int64(-1)  # the slot whose leaf still holds the event that just happened
        event = EVENT_START
        if state[S_BEGUN] == 0:
            state[S_BEGUN] = 1
        else:
            # --- the next event: smallest (time, kind, slot) ---------------------------------------
            root = tree[1]
            slot_time = root >> slot_bits if root < NEVER else np.int64(NEVER)
            time = min(min(publication_time, training_time), slot_time)
            if time > last_time:
                break
            if events_left == 0:
                status = OUT_OF_BUDGET
                break
            events_left -= 1

            # --- time integrals over the measured part of (now, time] --------------------------------
            measured = time > warmup
            if measured:
                span = time - max(now, warmup)
                if max_queue < 0:
                    max_queue = queue_tokens
                queue_token_ticks += np.float64(queue_tokens) * np.float64(span)
                idle_slot_ticks += idle * span
                if idle > 0 and not sequential:
                    backpressure_ticks += span
                if training_time == NEVER:
                    trainer_wait_ticks += span
            now = time

            if publication_time == time:
                # --- a publication completes --------------------------------------------------------
                event = EVENT_PUBLICATION
                published = state[S_PUBLICATION_VERSION]
                if measured:
                    state[S_SYNCS] += 1
                if state[S_WAITING_VERSION] >= 0:
                    state[S_PUBLICATION_VERSION] = state[S_WAITING_VERSION]
                    state[S_WAITING_VERSION] = -1
                    publication_time = time + sync_ticks
                else:
                    publication_time = np.int64(NEVER)

            elif training_time == time:
                # --- a training step completes ------------------------------------------------------
                event = EVENT_UPDATE
                version += 1
                training_time = np.int64(NEVER)
                state[S_LAST_UPDATE_TIME] = time
                rollouts = state[S_TRAINING_ROLLOUTS]
                ess = sums[F_TRAINING_ESS]
                expected_ess = sums[F_TRAINING_EXPECTED_ESS]
                if measured:
                    state[S_UPDATES] += 1
                    state[S_TRAINED_TOKENS] += state[S_TRAINING_TOKENS]
                    state[S_TRAINED_ROLLOUTS] += rollouts
                    state[S_MAX_LAG] = max(state[S_MAX_LAG], state[S_TRAINING_LAG_MAX])
                    sums[F_LAG_SUM] += np.float64(state[S_TRAINING_LAG_SUM]) / np.float64(rollouts)
                    sums[F_ESS_SUM] += ess
                    sums[F_ESS_MIN] = min(sums[F_ESS_MIN], ess)
                    sums[F_EXPECTED_ESS_SUM] += expected_ess
                    sums[F_EFFECTIVE_TOKENS] += np.float64(state[S_TRAINING_TOKENS]) * expected_ess
                for lag in range(min(state[S_TRAINING_LAG_MAX], LAG_BINS - 1) + 1):
                    if measured:
                        lag_counts[lag] += training_lags[lag]
                    training_lags[lag] = 0
                if record_batches:
                    row = state[S_BATCH_ROWS]
                    batch_rows[row, B_START] = state[S_TRAINING_START]
                    batch_rows[row, B_END] = time
                    batch_rows[row, B_TOKENS] = state[S_TRAINING_TOKENS]
                    batch_rows[row, B_ROLLOUTS] = rollouts
                    batch_rows[row, B_LAG_SUM] = state[S_TRAINING_LAG_SUM]
                    batch_rows[row, B_MAX_LAG] = state[S_TRAINING_LAG_MAX]
                    batch_floats[row, BF_ESS] = ess
                    batch_floats[row, BF_EXPECTED_ESS] = expected_ess
                    state[S_BATCH_ROWS] = row + 1
                if record_rollouts:
                    for position in range(state[S_RING_TRAINING], head):
                        rollout_rows[ring[position & ring_mask, R_NUMBER], O_OUTCOME] = TRAINED
                state[S_RING_TRAINING] = head
                state[S_TRAINING_TOKENS] = 0

                if version % sync_every == 0:
                    if sync_ticks == 0:
                        published = version
                        if measured:
                            state[S_SYNCS] += 1
                    elif publication_time == NEVER:
                        state[S_PUBLICATION_VERSION] = version
                        publication_time = time + sync_ticks
                    else:
                        state[S_WAITING_VERSION] = version

                oldest = version - max_lag
                kept = head
                for position in range(head, tail):
                    source = position & ring_mask
                    if ring[source, R_VERSION] < oldest:
                        tokens = ring[source, R_TOKENS]
                        queue_tokens -= tokens
                        if measured:
                            state[S_DISCARDED_TOKENS] += tokens
                            state[S_DISCARDED_ROLLOUTS] += 1
                        if record_rollouts:
                            rollout_rows[ring[source, R_NUMBER], O_OUTCOME] = DISCARDED
                    else:
                        target = kept & ring_mask
                        if target != source:
                            for column in range(3):
                                ring[target, column] = ring[source, column]
                        kept += 1
                tail = kept
                if version == stop_after_updates:
                    ended = True

            else:
                # --- a rollout completes ------------------------------------------------------------
                event = EVENT_ROLLOUT
                freed = root & slot_mask
                tokens = slots[freed, R_TOKENS]
                behaviour_version = slots[freed, R_VERSION]
                number = slots[freed, R_NUMBER]
                idle_stack[idle] = freed
                idle += 1
                in_flight -= 1
                in_flight_tokens -= tokens
                if measured:
                    generated_tokens += tokens
                    generated_rollouts += 1
                outcome = QUEUED
                if version - behaviour_version > max_lag:
                    outcome = DISCARDED
                    if measured:
                        state[S_DISCARDED_TOKENS] += tokens
                        state[S_DISCARDED_ROLLOUTS] += 1
                else:
                    target = tail & ring_mask
                    ring[target, R_TOKENS] = tokens
                    ring[target, R_VERSION] = behaviour_version
                    ring[target, R_NUMBER] = number
                    tail += 1
                    queue_tokens += tokens
                    if measured:
                        max_queue = max(max_queue, queue_tokens)
                if record_rollouts:
                    rollout_rows[number, O_END] = time
                    rollout_rows[number, O_OUTCOME] = outcome

        # --- settle, first half: the trainer may start ------------------------------------------------
        if training_time == NEVER and queue_tokens >= batch_tokens:
            if not sequential or (in_flight == 0 and publication_time == NEVER):
                budget = queue_tokens if sequential else batch_tokens
                tokens = np.int64(0)
                lag_sum = np.int64(0)
                lag_max = np.int64(0)
                first = head
                inflation_sum = 0.0
                largest = -math.inf
                while tokens < budget:
                    source = head & ring_mask
                    tokens += ring[source, R_TOKENS]
                    lag = version - ring[source, R_VERSION]
                    lag_sum += lag
                    training_lags[min(lag, LAG_BINS - 1)] += 1
                    lag_max = max(lag_max, lag)
                    if lag < LAG_BINS:
                        spread = spreads[lag]
                        inflation = inflations[lag]
                    else:
                        spread = drift * math.sqrt(np.float64(lag))
                        inflation = exp_saturating(spread * spread)
                    log_weight = 0.0
                    if lag > 0:
                        number = ring[source, R_NUMBER]
                        normal = (
                            drawn_normals[number] if number < buffer_size else _normal_of_kernel(seed, number)
                        )
                        log_weight = spread * normal - spread * spread / 2
                    log_weights[head - first] = log_weight
                    largest = max(largest, log_weight)
                    inflation_sum += inflation
                    if record_rollouts:
                        number = ring[source, R_NUMBER]
                        rollout_rows[number, O_LAG] = lag
                        rollout_rows[number, O_OUTCOME] = IN_TRAINING
                    head += 1
                queue_tokens -= tokens
                count = head - first
                ess = 1.0
                if lag_max > 0:
                    weight_sum = 0.0
                    square_sum = 0.0
                    for index in range(count):
                        weight = math.exp(log_weights[index] - largest)
                        weight_sum += weight
                        square_sum += weight * weight
                    ess = weight_sum * weight_sum / (np.float64(count) * square_sum)
                sums[F_TRAINING_ESS] = ess
                sums[F_TRAINING_EXPECTED_ESS] = 1.0 / (inflation_sum / np.float64(count))
                state[S_TRAINING_START] = now
                state[S_TRAINING_TOKENS] = tokens
                state[S_TRAINING_ROLLOUTS] = count
                state[S_TRAINING_LAG_SUM] = lag_sum
                state[S_TRAINING_LAG_MAX] = lag_max
                training_time = now + ticks_of(train_overhead + np.float64(tokens) / train_rate)

        # --- settle, second half: slots may start -----------------------------------------------------
        while idle > 0:
            if sequential:
                is_open = (
                    training_time == NEVER
                    and publication_time == NEVER
                    and queue_tokens + in_flight_tokens < batch_tokens
                )
            elif reserve:
                is_open = queue_tokens + law_maximum * (in_flight + 1) <= queue_cap
            else:
                is_open = queue_tokens < queue_cap
            if not is_open:
                break
            number = next_rollout
            next_rollout += 1
            if number < buffer_size:
                if number >= drawn[0]:
                    last = min(number + _DRAW_BLOCK, buffer_size)
                    _draw_ahead_kernel(
                        seed, number, last, law_minimum, cdf, guide, drawn_tokens, drawn_normals
                    )
                    drawn[0] = last
                tokens = drawn_tokens[number]
            else:
                tokens = _draw_one_kernel(seed, number, law_minimum, cdf, guide)
            idle -= 1
            slot = idle_stack[idle]
            slots[slot, R_TOKENS] = tokens
            slots[slot, R_VERSION] = published
            slots[slot, R_NUMBER] = number
            in_flight += 1
            in_flight_tokens += tokens
            end = now + max(np.int64(1), ticks_of(rollout_overhead + np.float64(tokens) / decode_rate))
            if slot == freed:
                freed = np.int64(-1)
            if end <= horizon:
                key = (end << slot_bits) | slot
            else:
                key = np.int64(NEVER)  # in flight for ever: it would land after the horizon
            node = leaves + slot
            tree[node] = key
            while node > 1:
                key = min(key, tree[node ^ 1])
                node >>= 1
                tree[node] = key
            if record_rollouts:
                rollout_rows[number, O_TOKENS] = tokens
                rollout_rows[number, O_VERSION] = published
                rollout_rows[number, O_START] = now
                rollout_rows[number, O_END] = -1
                rollout_rows[number, O_LAG] = -1
                rollout_rows[number, O_OUTCOME] = RUNNING
        if freed >= 0:
            node = leaves + freed
            key = np.int64(NEVER)
            tree[node] = key
            while node > 1:
                key = min(key, tree[node ^ 1])
                node >>= 1
                tree[node] = key

        if record_timeline:
            row = state[S_TIMELINE_ROWS]
            timeline_rows[row, T_TIME] = now
            timeline_rows[row, T_QUEUE_TOKENS] = queue_tokens
            timeline_rows[row, T_IN_FLIGHT] = in_flight
            timeline_rows[row, T_VERSION] = version
            timeline_rows[row, T_PUBLISHED] = published
            timeline_rows[row, T_EVENT] = event
            state[S_TIMELINE_ROWS] = row + 1
        if ended:
            state[S_ENDED] = 1
            break

    state[S_NOW] = now
    state[S_VERSION] = version
    state[S_PUBLISHED] = published
    state[S_PUBLICATION_TIME] = publication_time
    state[S_TRAINING_TIME] = training_time
    state[S_QUEUE_TOKENS] = queue_tokens
    state[S_RING_HEAD] = head
    state[S_RING_TAIL] = tail
    state[S_IN_FLIGHT] = in_flight
    state[S_IN_FLIGHT_TOKENS] = in_flight_tokens
    state[S_IDLE] = idle
    state[S_NEXT_ROLLOUT] = next_rollout
    state[S_MAX_QUEUE] = max_queue
    state[S_GENERATED_TOKENS] = generated_tokens
    state[S_GENERATED_ROLLOUTS] = generated_rollouts
    state[S_BACKPRESSURE_TICKS] = backpressure_ticks
    state[S_IDLE_SLOT_TICKS] = idle_slot_ticks
    state[S_TRAINER_WAIT_TICKS] = trainer_wait_ticks
    state[S_EVENTS] += event_budget - events_left
    sums[F_QUEUE_TOKEN_TICKS] = queue_token_ticks
    return status
