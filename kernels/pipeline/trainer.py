"""The trainer of the general engine: when it has enough, what it takes, what a finished batch counts.

A batch's groups, in the order taken, are split into U runs, the first ones longer; run j trains at the
version of the step's start plus j.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import philox_rounds, uniform_from_word
from .draws import noise_from_bits
from .groups import decile_of, free_record, is_ranked, leave_live, leave_queue
from .lean import exp_saturating, ticks_of
from .state import (
    B_DEQUEUE_LAG_SUM,
    B_END,
    B_GROUPS,
    B_LAG_SUM,
    B_MAX_LAG,
    B_ROLLOUTS,
    B_START,
    B_TOKENS,
    B_UPDATE,
    BF_ESS,
    BF_EXPECTED_ESS,
    CHANNEL_FREE,
    F_EFFECTIVE_TOKENS,
    F_ESS_MIN,
    F_ESS_SUM,
    F_EXPECTED_ESS_SUM,
    F_LAG_SUM,
    F_TOKEN_LAG_SUM,
    FULL_RATE,
    G_BATCH_GROUPS,
    G_BATCH_TOKENS,
    G_DEQUEUE_PUBLICATIONS,
    G_DEQUEUE_VERSION,
    G_LIVE_NEXT,
    G_NEXT,
    G_POPPED,
    G_RANK_NEXT,
    G_STATE,
    G_TOKENS,
    H_BINS,
    H_DEQUEUE,
    H_DEQUEUE_SYNCS,
    H_END,
    H_START,
    H_TRAINED_DECILES,
    H_TRAINING,
    H_TRAINING_SYNCS,
    IN_TRAINING,
    M_END_VERSION,
    M_NOISE,
    M_PUBLICATIONS,
    M_ROW,
    M_TOKENS,
    M_TRAINER_VERSION,
    M_VERSION,
    NEVER,
    O_LAG,
    O_OUTCOME,
    P_BATCH_GROUPS,
    P_BATCH_TOKENS,
    P_GROUP_SIZE,
    P_ORDER,
    P_PROMPT_TOKENS,
    P_RECORD_BATCHES,
    P_RECORD_ROLLOUTS,
    P_SEQUENTIAL,
    P_SLOTS,
    P_SLOW_TRAIN_RATE,
    P_UPDATES_PER_BATCH,
    PF_DRIFT,
    PF_DRIFT_EXPONENT,
    PF_MEAN_TOKENS,
    PF_TRAIN_OVERHEAD,
    PF_TRAIN_RATE,
    RANDOM,
    S_BATCH_ROWS,
    S_BATCHES,
    S_CHANNEL,
    S_COST,
    S_FRONT_COUNT,
    S_IDLE,
    S_LAG_DEQUEUE_SUM,
    S_LAG_END_SUM,
    S_LAG_START_SUM,
    S_LAG_TRAINING_SUM,
    S_LEFT_ROLLOUTS,
    S_LEFT_TOKENS,
    S_MAX_LAG,
    S_NOW,
    S_POPPED_BATCHES,
    S_POPPED_GROUPS,
    S_POPPED_HEAD,
    S_POPPED_TAIL,
    S_POPPED_TOKENS,
    S_PREFETCHED,
    S_PUBLICATIONS,
    S_QUEUE_GROUPS,
    S_QUEUE_TOKENS,
    S_REST_PARTS,
    S_REST_TICKS,
    S_SYNC_LAG_DEQUEUE_SUM,
    S_SYNC_LAG_TRAINING_SUM,
    S_TRAINED_BATCHES,
    S_TRAINED_GROUPS,
    S_TRAINED_ROLLOUTS,
    S_TRAINED_TOKENS,
    S_TRAINING,
    S_TRAINING_PUBLICATIONS,
    S_TRAINING_START,
    S_TRAINING_TIME,
    S_TRAINING_VERSION,
    S_UPDATES,
    S_VERSION,
    STARTED,
    TRAINED,
)


@jit(inline=True, counted=False)
def holds_enough(params, state):
    """Say whether the queue holds a batch by number or by tokens, whatever the order says."""
    if params[P_BATCH_GROUPS] > 0:
        return state[S_QUEUE_GROUPS] >= params[P_BATCH_GROUPS]
    return state[S_QUEUE_TOKENS] >= params[P_BATCH_TOKENS]


@jit(inline=True, counted=False)
def finds_enough(params, state):
    """Say whether a batch can be taken now."""
    enough = holds_enough(params, state)
    if params[P_ORDER] == STARTED:
        enough = state[S_FRONT_COUNT] >= params[P_BATCH_GROUPS]
    if params[P_SEQUENTIAL] == 1:
        idle = state[S_IDLE] == params[P_SLOTS] and state[S_CHANNEL] == CHANNEL_FREE
        enough = enough and idle
    return enough


@jit(counted=False)
def _take_batch_kernel(params, state, seed, groups, members, picks, rollout_rows):
    """Take one batch from the queue and append it to the popped ones. picks int64[groups] is scratch."""
    size = params[P_GROUP_SIZE]
    order = params[P_ORDER]
    length = state[S_QUEUE_GROUPS]
    state[S_COST] += length if order == RANDOM else 0
    if order == RANDOM:
        record = groups[0, G_NEXT]
        for place in range(length):
            picks[place] = record
            record = groups[record, G_NEXT]
    batch = np.uint64(state[S_POPPED_BATCHES] + 1)
    head = np.int64(0)
    count = np.int64(0)
    tokens = np.int64(0)
    w0, w1, w2, w3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    while count < length:
        if params[P_BATCH_GROUPS] > 0:
            if count == params[P_BATCH_GROUPS]:
                break
        elif params[P_SEQUENTIAL] == 0 and tokens >= params[P_BATCH_TOKENS]:
            break
        if order == RANDOM:
            # Fisher-Yates in a copy: up to four picks share one block of the batch.
            lane = count & 3
            if lane == 0:
                zero = np.uint64(0)
                block = np.uint64(count >> 2)
                w0, w1, w2, w3 = philox_rounds(seed, np.uint64(1), batch, block, zero, zero)
            word = w0 if lane == 0 else (w1 if lane == 1 else (w2 if lane == 2 else w3))
            left = length - count
            chosen = count + np.int64(math.floor(uniform_from_word(word) * np.float64(left)))
            record = picks[chosen]
            picks[chosen] = picks[count]
        elif order == STARTED:
            record = groups[0, G_LIVE_NEXT]
        elif is_ranked(params):
            record = groups[0, G_RANK_NEXT]
        else:
            record = groups[0, G_NEXT]
        leave_queue(params, state, groups, record)
        leave_live(params, state, groups, record)
        groups[record, G_STATE] = G_POPPED
        groups[record, G_NEXT] = 0
        groups[record, G_DEQUEUE_VERSION] = state[S_VERSION]
        groups[record, G_DEQUEUE_PUBLICATIONS] = state[S_PUBLICATIONS]
        if state[S_POPPED_HEAD] == 0:
            state[S_POPPED_HEAD] = record
        else:
            groups[state[S_POPPED_TAIL], G_NEXT] = record
        state[S_POPPED_TAIL] = record
        if head == 0:
            head = record
        count += 1
        tokens += groups[record, G_TOKENS]
        if params[P_RECORD_ROLLOUTS] == 1:
            for member in range(record * size, (record + 1) * size):
                rollout_rows[members[member, M_ROW], O_OUTCOME] = IN_TRAINING
    groups[head, G_BATCH_GROUPS] = count
    groups[head, G_BATCH_TOKENS] = tokens
    state[S_POPPED_TOKENS] += tokens
    state[S_POPPED_BATCHES] += 1
    state[S_POPPED_GROUPS] += count
    state[S_PREFETCHED] += 1
    state[S_COST] += count


@jit(inline=True, counted=False)
def start_step(params, rates, state, groups):
    """Begin the step of the oldest batch taken."""
    head = state[S_POPPED_HEAD]
    rollouts = groups[head, G_BATCH_GROUPS] * params[P_GROUP_SIZE]
    tokens = groups[head, G_BATCH_TOKENS] + params[P_PROMPT_TOKENS] * rollouts
    length = ticks_of(rates[PF_TRAIN_OVERHEAD] + np.float64(tokens) / rates[PF_TRAIN_RATE])
    state[S_PREFETCHED] -= 1
    state[S_TRAINING] = 1
    state[S_TRAINING_START] = state[S_NOW]
    state[S_TRAINING_VERSION] = state[S_VERSION]
    state[S_TRAINING_PUBLICATIONS] = state[S_PUBLICATIONS]
    if params[P_SLOW_TRAIN_RATE] == FULL_RATE:
        state[S_TRAINING_TIME] = state[S_NOW] + length
    else:
        state[S_REST_TICKS] = length
        state[S_REST_PARTS] = 0


@jit(inline=True, counted=False)
def _count(histograms, row, lag):
    """Count one rollout in a histogram."""
    histograms[row, min(lag, H_BINS - 1)] += 1


@jit(counted=False)
def _finish_batch_kernel(
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
):
    """A step completes: count its batch, give its records back, let the version grow.

    member_versions float64[members]: mean version under which a member's work was done, less its first.
    log_weights float64[members] is scratch.
    """
    size = params[P_GROUP_SIZE]
    updates = params[P_UPDATES_PER_BATCH]
    head = state[S_POPPED_HEAD]
    count = groups[head, G_BATCH_GROUPS]
    batch_tokens = groups[head, G_BATCH_TOKENS]
    drift = rates[PF_DRIFT]
    exponent = rates[PF_DRIFT_EXPONENT]
    recording = params[P_RECORD_ROLLOUTS] == 1
    short_run = count // updates
    long_runs = count - short_run * updates
    version = state[S_TRAINING_VERSION]
    run_left = short_run + (1 if long_runs > 0 else 0)
    run = np.int64(0)

    rollouts = np.int64(0)
    lag_sum = np.int64(0)
    lag_max = np.int64(0)
    dequeue_lag_sum = np.int64(0)
    last_lag = np.int64(0)
    spread = 0.0
    inflation = 1.0
    inflation_sum = 0.0
    largest = -math.inf
    record = head
    for _ in range(count):
        if run_left == 0:
            run += 1
            run_left = short_run + (1 if run < long_runs else 0)
        run_left -= 1
        for member in range(record * size, (record + 1) * size):
            behaviour = members[member, M_VERSION]
            tokens = members[member, M_TOKENS]
            lag = version + run - behaviour
            dequeue_lag = groups[record, G_DEQUEUE_VERSION] - behaviour
            lag_sum += lag
            dequeue_lag_sum += dequeue_lag
            if lag != last_lag:
                last_lag = lag
                lag_max = max(lag_max, lag)
                spread = drift * math.sqrt(np.float64(lag))
                inflation = exp_saturating(spread * spread)
            own_spread = spread
            own_inflation = inflation
            if exponent != 0.0 and lag > 0:
                own_spread = spread * (np.float64(tokens) / rates[PF_MEAN_TOKENS]) ** exponent
                own_inflation = exp_saturating(own_spread * own_spread)
            log_weight = 0.0
            if lag > 0:
                normal = noise_from_bits(members[member, M_NOISE])
                log_weight = own_spread * normal - own_spread * own_spread / 2
            log_weights[rollouts] = log_weight
            largest = max(largest, log_weight)
            inflation_sum += own_inflation
            rollouts += 1
            if measured:
                publications = members[member, M_PUBLICATIONS]
                start_lag = members[member, M_TRAINER_VERSION] - behaviour
                end_lag = version + run - members[member, M_END_VERSION]
                dequeue_sync_lag = groups[record, G_DEQUEUE_PUBLICATIONS] - publications
                sync_lag = state[S_TRAINING_PUBLICATIONS] - publications
                _count(histograms, H_TRAINING, lag)
                _count(histograms, H_START, start_lag)
                _count(histograms, H_DEQUEUE, dequeue_lag)
                _count(histograms, H_END, end_lag)
                _count(histograms, H_DEQUEUE_SYNCS, dequeue_sync_lag)
                _count(histograms, H_TRAINING_SYNCS, sync_lag)
                histograms[H_TRAINED_DECILES, decile_of(tokens, decile_edges)] += 1
                state[S_LAG_START_SUM] += start_lag
                state[S_LAG_END_SUM] += end_lag
                state[S_SYNC_LAG_DEQUEUE_SUM] += dequeue_sync_lag
                state[S_SYNC_LAG_TRAINING_SUM] += sync_lag
                token_lag = np.float64(lag) - member_versions[member]
                sums[F_TOKEN_LAG_SUM] += np.float64(tokens) * token_lag
            if recording:
                row = members[member, M_ROW]
                rollout_rows[row, O_OUTCOME] = TRAINED
                rollout_rows[row, O_LAG] = lag
        after = groups[record, G_NEXT]
        free_record(state, groups, record)
        record = after
    state[S_POPPED_HEAD] = record
    if record == 0:
        state[S_POPPED_TAIL] = 0

    ess = 1.0
    if lag_max > 0:
        weight_sum = 0.0
        square_sum = 0.0
        for index in range(rollouts):
            weight = math.exp(log_weights[index] - largest)
            weight_sum += weight
            square_sum += weight * weight
        ess = weight_sum * weight_sum / (np.float64(rollouts) * square_sum)
    expected_ess = 1.0 / (inflation_sum / np.float64(rollouts))

    state[S_COST] += rollouts
    state[S_VERSION] += updates
    state[S_TRAINED_BATCHES] += 1
    state[S_POPPED_TOKENS] -= batch_tokens
    state[S_TRAINING] = 0
    state[S_TRAINING_TIME] = NEVER
    if measured:
        state[S_UPDATES] += updates
        state[S_BATCHES] += 1
        state[S_TRAINED_TOKENS] += batch_tokens
        state[S_TRAINED_ROLLOUTS] += rollouts
        state[S_TRAINED_GROUPS] += count
        state[S_LEFT_TOKENS] += batch_tokens
        state[S_LEFT_ROLLOUTS] += rollouts
        state[S_LAG_TRAINING_SUM] += lag_sum
        state[S_LAG_DEQUEUE_SUM] += dequeue_lag_sum
        state[S_MAX_LAG] = max(state[S_MAX_LAG], lag_max)
        sums[F_LAG_SUM] += np.float64(lag_sum) / np.float64(rollouts)
        sums[F_ESS_SUM] += ess
        sums[F_ESS_MIN] = min(sums[F_ESS_MIN], ess)
        sums[F_EXPECTED_ESS_SUM] += expected_ess
        sums[F_EFFECTIVE_TOKENS] += np.float64(batch_tokens) * expected_ess
    if params[P_RECORD_BATCHES] == 1:
        row = state[S_BATCH_ROWS]
        batch_rows[row, B_UPDATE] = state[S_VERSION]
        batch_rows[row, B_START] = state[S_TRAINING_START]
        batch_rows[row, B_END] = state[S_NOW]
        batch_rows[row, B_TOKENS] = batch_tokens
        batch_rows[row, B_ROLLOUTS] = rollouts
        batch_rows[row, B_LAG_SUM] = lag_sum
        batch_rows[row, B_MAX_LAG] = lag_max
        batch_rows[row, B_GROUPS] = count
        batch_rows[row, B_DEQUEUE_LAG_SUM] = dequeue_lag_sum
        batch_floats[row, BF_ESS] = ess
        batch_floats[row, BF_EXPECTED_ESS] = expected_ess
        state[S_BATCH_ROWS] = row + 1
