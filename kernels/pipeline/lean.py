"""The event loop of one simulated pipeline, level 1: the simulator's heart.

One run is `rollout_workers` slots, a FIFO queue of finished rollouts measured in tokens, a trainer and a
publication channel. Three kinds of events happen, always the smallest (time, kind, slot) of what is
scheduled: a publication completes, a training step completes, a rollout completes. After each event the run
settles: first the trainer may start, then slots may start.

The state is records of named fields (:mod:`.pipeline.records`), so stopping, saving and resuming are the
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
from ..draws.philox import middle_uniform, normal_from_word, rollout_words, uniform_from_word
from ..draws.sampler import sample_length
from .ess import batch_ess, exp_saturating, measured_log_weight
from .metrics import LAG_BINS
from .places import place
from .records import (
    DISCARDED,
    EVENT_PUBLICATION,
    EVENT_ROLLOUT,
    EVENT_START,
    EVENT_UPDATE,
    GROW_BATCHES,
    GROW_RING,
    GROW_ROLLOUTS,
    GROW_TIMELINE,
    IN_TRAINING,
    NEVER,
    OUT_OF_BUDGET,
    QUEUED,
    REACHED,
    RUNNING,
    TRAINED,
)
from .ticks import ticks

_DRAW_BLOCK = 512
_NO_VERSION = 2**62

ticks_of = jit(inline=True)(ticks)


@jit
def _draw_ahead_kernel(parameters, seed, draws, last):
    """Draw the seed's rollouts up to last - 1 that are not drawn yet: lengths and noise."""
    measured = draws.drift_lags.shape[0] > 0
    for number in range(draws.drawn[0], last):
        w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
        draws.tokens[number] = sample_length(
            uniform_from_word(w0), parameters.law_minimum, draws.cdf, draws.guide
        )
        draws.noise[number] = middle_uniform(w1) if measured else normal_from_word(w1)
    draws.drawn[0] = last


@jit
def _draw_one_kernel(seed, number, law_minimum, cdf, guide):
    """Draw one rollout's length alone, for numbers past the shared buffer."""
    w0, _w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    return sample_length(uniform_from_word(w0), law_minimum, cdf, guide)


@jit
def _noise_of_kernel(seed, number, measured):
    """Draw one rollout's noise alone, for numbers past the shared buffer: a normal, or its uniform."""
    _w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    return middle_uniform(w1) if measured else normal_from_word(w1)


@jit
def _reset_lean_kernel(parameters, arrays):
    """Put a run at time 0: every slot idle, nothing queued. Parameters PARAMETERS[1], LeanArrays."""
    parameters = parameters[0]
    arrays.state[0] = arrays.initial[0]
    slots = parameters.slots
    arrays.state[0].idle = slots
    for index in range(slots):
        # A stack: the slot freed last is used first, and at time 0 slot 0 is on top.
        arrays.idle_stack[index] = slots - 1 - index
    for index in range(2 * parameters.leaves):
        arrays.tree[index] = NEVER
    arrays.lag_counts[:] = 0
    arrays.training_lags[:] = 0


@jit(counted=False, distinct=True)
def _advance_lean_kernel(parameters, seed, until, event_budget, draws, arrays):
    """Let every event up to `until` happen, at most `event_budget` of them.

    Parameters
    ----------
    parameters : PARAMETERS[1]
    seed : uint64
    until, event_budget : int64
        Ticks (the horizon is kept beside it), and events after which to come back.
    draws : Draws
        Of this seed's first rollouts, shared by all configurations; filled on demand.
    arrays : LeanArrays
        Recorded rows are written only where the parameters ask for them.

    Returns
    -------
    int64
        REACHED, OUT_OF_BUDGET, or GROW_…: which array to double before the next call.
    """
    parameters = parameters[0]
    state = arrays.state[0]
    tree = arrays.tree
    idle_stack = arrays.idle_stack
    slots = arrays.slots
    ring = arrays.ring
    log_weights = arrays.log_weights
    lag_counts = arrays.lag_counts
    training_lags = arrays.training_lags
    batch_rows = arrays.batch_rows
    timeline_rows = arrays.timeline_rows
    rollout_rows = arrays.rollout_rows
    cdf = draws.cdf
    guide = draws.guide
    drawn = draws.drawn
    drawn_tokens = draws.tokens
    drawn_noise = draws.noise
    drift_lags = draws.drift_lags
    drift_values = draws.drift_values
    drift_last = drift_lags.shape[0] - 1  # -1: the drift is not measured
    sequential = parameters.sequential == 1
    horizon = parameters.horizon
    warmup = parameters.warmup
    stop_after_updates = parameters.stop_after_updates
    slot_count = parameters.slots
    queue_cap = parameters.queue_cap
    reserve = parameters.reserve == 1
    batch_tokens = parameters.batch_tokens
    max_lag = parameters.max_lag
    sync_every = parameters.sync_every
    sync_ticks = parameters.sync_ticks
    law_maximum = parameters.law_maximum
    slot_bits = parameters.slot_bits
    slot_mask = (np.int64(1) << slot_bits) - 1
    leaves = parameters.leaves
    record_batches = parameters.record_batches == 1
    record_timeline = parameters.record_timeline == 1
    record_rollouts = parameters.record_rollouts == 1
    decode_rate = parameters.decode_rate
    rollout_overhead = parameters.rollout_overhead
    train_overhead = parameters.train_overhead
    train_rate = parameters.train_rate
    drift = parameters.drift
    ring_mask = ring.shape[0] - 1
    buffer_size = drawn_tokens.shape[0]
    last_time = min(until, horizon)
    if state.ended == 1:
        return REACHED

    now = state.now
    version = state.version
    published = state.published
    publication_time = state.publication_time
    training_time = state.training_time
    queue_tokens = state.queue_tokens
    head = state.ring_head
    tail = state.ring_tail
    in_flight = state.in_flight
    in_flight_tokens = state.in_flight_tokens
    idle = state.idle
    next_rollout = state.next_rollout
    max_queue = state.max_queue
    generated_tokens = state.generated_tokens
    generated_rollouts = state.generated_rollouts
    backpressure_ticks = state.backpressure_ticks
    idle_slot_ticks = state.idle_slot_ticks
    trainer_wait_ticks = state.trainer_wait_ticks
    queue_token_ticks = state.queue_token_ticks
    # s = drift * sqrt(lag) and exp(s**2) of the lags up to the largest that has occurred under this drift.
    spreads = arrays.lag_spreads
    inflations = arrays.lag_inflations
    known = arrays.known_lags[0]
    if known.drift != drift:
        known.drift = drift
        known.count = 0
    known_lags = known.count
    resumed = min(next_rollout, buffer_size)
    if drawn[0] < resumed:
        # A restored state comes without draws; they are a function of the seed, so they come back.
        _draw_ahead_kernel(parameters, seed, draws, resumed)
    queue_oldest = np.int64(_NO_VERSION)  # nothing queued is older; what has left may have been
    for position in range(head, tail):
        queue_oldest = min(queue_oldest, ring[place(position & ring_mask)].version)
    ended = False
    status = REACHED
    events_left = event_budget

    while True:
        # --- room for what one event and its settle may add -------------------------------------------
        if tail - state.ring_training > ring_mask - 1:
            status = GROW_RING
            break
        if record_batches and state.batch_rows == batch_rows.shape[0]:
            status = GROW_BATCHES
            break
        if record_timeline and state.timeline_rows == timeline_rows.shape[0]:
            status = GROW_TIMELINE
            break
        if record_rollouts and next_rollout + slot_count > rollout_rows.shape[0]:
            status = GROW_ROLLOUTS
            break

        freed = np.int64(-1)  # the slot whose leaf still holds the event that just happened
        event = EVENT_START
        if state.begun == 0:
            state.begun = 1
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
                published = state.publication_version
                if measured:
                    state.syncs += 1
                if state.waiting_version >= 0:
                    state.publication_version = state.waiting_version
                    state.waiting_version = -1
                    publication_time = time + sync_ticks
                else:
                    publication_time = np.int64(NEVER)

            elif training_time == time:
                # --- a training step completes ------------------------------------------------------
                event = EVENT_UPDATE
                version += 1
                training_time = np.int64(NEVER)
                state.last_update_time = time
                rollouts = state.training_rollouts
                ess = state.training_ess
                expected_ess = state.training_expected_ess
                if measured:
                    state.updates += 1
                    state.trained_tokens += state.training_tokens
                    state.trained_rollouts += rollouts
                    state.max_lag = max(state.max_lag, state.training_lag_max)
                    state.lag_sum += np.float64(state.training_lag_sum) / np.float64(rollouts)
                    state.ess_sum += ess
                    state.ess_min = min(state.ess_min, ess)
                    state.expected_ess_sum += expected_ess
                    state.effective_tokens += np.float64(state.training_tokens) * expected_ess
                for lag in range(min(state.training_lag_max, LAG_BINS - 1) + 1):
                    if measured:
                        lag_counts[place(lag)] += training_lags[place(lag)]
                    training_lags[place(lag)] = 0
                if record_batches:
                    row = state.batch_rows
                    batch_rows[row].start = state.training_start
                    batch_rows[row].end = time
                    batch_rows[row].tokens = state.training_tokens
                    batch_rows[row].rollouts = rollouts
                    batch_rows[row].lag_sum = state.training_lag_sum
                    batch_rows[row].max_lag = state.training_lag_max
                    batch_rows[row].ess = ess
                    batch_rows[row].expected_ess = expected_ess
                    state.batch_rows = row + 1
                if record_rollouts:
                    for position in range(state.ring_training, head):
                        rollout_rows[ring[place(position & ring_mask)].number].outcome = TRAINED
                state.ring_training = head
                state.training_tokens = 0

                if version % sync_every == 0:
                    if sync_ticks == 0:
                        published = version
                        if measured:
                            state.syncs += 1
                    elif publication_time == NEVER:
                        state.publication_version = version
                        publication_time = time + sync_ticks
                    else:
                        state.waiting_version = version

                oldest = version - max_lag
                if queue_oldest < oldest:
                    # Something in the queue may be too old; else nobody need look through it.
                    kept = head
                    queue_oldest = np.int64(_NO_VERSION)
                    for position in range(head, tail):
                        source = place(position & ring_mask)
                        if ring[source].version < oldest:
                            tokens = ring[source].tokens
                            queue_tokens -= tokens
                            if measured:
                                state.discarded_tokens += tokens
                                state.discarded_rollouts += 1
                            if record_rollouts:
                                rollout_rows[ring[source].number].outcome = DISCARDED
                        else:
                            target = place(kept & ring_mask)
                            if target != source:
                                ring[target] = ring[source]
                            queue_oldest = min(queue_oldest, ring[target].version)
                            kept += 1
                    tail = kept
                if version == stop_after_updates:
                    ended = True

            else:
                # --- a rollout completes ------------------------------------------------------------
                event = EVENT_ROLLOUT
                freed = root & slot_mask
                tokens = slots[place(freed)].tokens
                behaviour_version = slots[place(freed)].version
                number = slots[place(freed)].number
                idle_stack[place(idle)] = freed
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
                        state.discarded_tokens += tokens
                        state.discarded_rollouts += 1
                else:
                    target = place(tail & ring_mask)
                    ring[target].tokens = tokens
                    ring[target].version = behaviour_version
                    ring[target].number = number
                    tail += 1
                    queue_oldest = min(queue_oldest, behaviour_version)
                    queue_tokens += tokens
                    if measured:
                        max_queue = max(max_queue, queue_tokens)
                if record_rollouts:
                    rollout_rows[number].end = time
                    rollout_rows[number].outcome = outcome

        # --- settle, first half: the trainer may start ------------------------------------------------
        if training_time == NEVER and queue_tokens >= batch_tokens:
            if not sequential or (in_flight == 0 and publication_time == NEVER):
                budget = queue_tokens if sequential else batch_tokens
                tokens = np.int64(0)
                lag_sum = np.int64(0)
                lag_max = np.int64(0)
                first = head
                moment_sum = 0.0
                inflation_sum = 0.0
                largest = -math.inf
                while tokens < budget:
                    source = place(head & ring_mask)
                    tokens += ring[source].tokens
                    lag = version - ring[source].version
                    lag_sum += lag
                    training_lags[place(min(lag, LAG_BINS - 1))] += 1
                    lag_max = max(lag_max, lag)
                    log_weight = 0.0
                    if drift_last >= 0:
                        row = min(lag, drift_last)
                        number = ring[source].number
                        uniform = (
                            drawn_noise[place(number)]
                            if number < buffer_size
                            else _noise_of_kernel(seed, number, True)
                        )
                        log_weight = measured_log_weight(drift_lags, drift_values, row, uniform)
                        moment_sum += drift_lags[row].first_moment
                        inflation = drift_lags[row].second_moment
                    else:
                        if lag < LAG_BINS:
                            while known_lags <= lag:
                                spread = drift * math.sqrt(np.float64(known_lags))
                                spreads[place(known_lags)] = spread
                                inflations[place(known_lags)] = exp_saturating(spread * spread)
                                known_lags += 1
                            spread = spreads[place(lag)]
                            inflation = inflations[place(lag)]
                        else:
                            spread = drift * math.sqrt(np.float64(lag))
                            inflation = exp_saturating(spread * spread)
                        if lag > 0:
                            number = ring[source].number
                            normal = (
                                drawn_noise[place(number)]
                                if number < buffer_size
                                else _noise_of_kernel(seed, number, False)
                            )
                            log_weight = spread * normal - spread * spread / 2
                    log_weights[place(head - first)] = log_weight
                    largest = max(largest, log_weight)
                    inflation_sum += inflation
                    if record_rollouts:
                        number = ring[source].number
                        rollout_rows[number].lag = lag
                        rollout_rows[number].outcome = IN_TRAINING
                    head += 1
                queue_tokens -= tokens
                count = head - first
                weighted = lag_max > 0 or drift_last >= 0
                state.training_ess = batch_ess(log_weights, count, largest, weighted)
                state.training_expected_ess = (
                    moment_sum * moment_sum / (np.float64(count) * inflation_sum)
                    if drift_last >= 0
                    else 1.0 / (inflation_sum / np.float64(count))
                )
                state.training_start = now
                state.training_tokens = tokens
                state.training_rollouts = count
                state.training_lag_sum = lag_sum
                state.training_lag_max = lag_max
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
                    _draw_ahead_kernel(parameters, seed, draws, last)
                tokens = drawn_tokens[place(number)]
            else:
                tokens = _draw_one_kernel(seed, number, parameters.law_minimum, cdf, guide)
            idle -= 1
            slot = idle_stack[place(idle)]
            slots[place(slot)].tokens = tokens
            slots[place(slot)].version = published
            slots[place(slot)].number = number
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
            tree[place(node)] = key
            while node > 1:
                key = min(key, tree[place(node ^ 1)])
                node >>= 1
                tree[place(node)] = key
            if record_rollouts:
                rollout_rows[number].tokens = tokens
                rollout_rows[number].version = published
                rollout_rows[number].start = now
                rollout_rows[number].end = -1
                rollout_rows[number].lag = -1
                rollout_rows[number].outcome = RUNNING
        if freed >= 0:
            node = leaves + freed
            key = np.int64(NEVER)
            tree[place(node)] = key
            while node > 1:
                key = min(key, tree[place(node ^ 1)])
                node >>= 1
                tree[place(node)] = key

        if record_timeline:
            row = state.timeline_rows
            timeline_rows[row].time = now
            timeline_rows[row].queue_tokens = queue_tokens
            timeline_rows[row].in_flight = in_flight
            timeline_rows[row].version = version
            timeline_rows[row].published = published
            timeline_rows[row].event = event
            state.timeline_rows = row + 1
        if ended:
            state.ended = 1
            break

    state.now = now
    state.version = version
    state.published = published
    state.publication_time = publication_time
    state.training_time = training_time
    state.queue_tokens = queue_tokens
    state.ring_head = head
    state.ring_tail = tail
    state.in_flight = in_flight
    state.in_flight_tokens = in_flight_tokens
    state.idle = idle
    state.next_rollout = next_rollout
    state.max_queue = max_queue
    state.generated_tokens = generated_tokens
    state.generated_rollouts = generated_rollouts
    state.backpressure_ticks = backpressure_ticks
    state.idle_slot_ticks = idle_slot_ticks
    state.trainer_wait_ticks = trainer_wait_ticks
    state.events += event_budget - events_left
    state.queue_token_ticks = queue_token_ticks
    known.count = known_lags
    return status
