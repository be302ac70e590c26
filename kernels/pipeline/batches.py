"""A finished batch of the general loop: what it counts, its ESS, its records given back.

A batch's groups, in the order taken, are split into U runs, the first ones longer; run j trains at the
version of the step's start plus j.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from .draws import segment_of, shared_normal, uniform_from_bits
from .ess import batch_ess, exp_saturating, measured_log_weight
from .groups import decile_of, free_chain
from .metrics import LAG_BINS
from .places import place
from .records import (
    GROUP_UNUSED,
    H_DEQUEUE,
    H_DEQUEUE_SYNCS,
    H_END,
    H_START,
    H_TRAINED_DECILES,
    H_TRAINING,
    H_TRAINING_SYNCS,
    NEVER,
    TRAINED,
)


@jit(counted=False)
def drift_by_lag_kernel(drift, spreads, inflations):
    """Fill ``s = drift * sqrt(lag)`` and ``exp(s**2)`` of the lags 0…LAG_BINS - 1, float64[LAG_BINS] each."""
    for lag in range(LAG_BINS):
        spread = drift * math.sqrt(np.float64(lag))
        spreads[lag] = spread
        inflations[lag] = exp_saturating(spread * spread)


@jit(inline=True, counted=False)
def _count(histograms, row, lag, number):
    """Count so many rollouts in a histogram."""
    histograms[row, place(min(lag, LAG_BINS - 1))] += number


@jit(counted=False)
def _count_alike_kernel(state, histograms, number, versions, publications, dequeue_publications):
    """Count rollouts of a finished batch that stand one after another and differ in none of their lags.

    versions (behaviour, trainer's at the start, of the last token, at the dequeue, trained at), int64.
    """
    behaviour, trainer_version, end_version, dequeue_version, trained_at = versions
    lag = trained_at - behaviour
    start_lag = trainer_version - behaviour
    dequeue_lag = dequeue_version - behaviour
    end_lag = trained_at - end_version
    dequeue_sync_lag = dequeue_publications - publications
    sync_lag = state.training_publications - publications
    _count(histograms, H_TRAINING, lag, number)
    _count(histograms, H_START, start_lag, number)
    _count(histograms, H_DEQUEUE, dequeue_lag, number)
    _count(histograms, H_END, end_lag, number)
    _count(histograms, H_DEQUEUE_SYNCS, dequeue_sync_lag, number)
    _count(histograms, H_TRAINING_SYNCS, sync_lag, number)
    state.lag_start_sum += number * start_lag
    state.lag_end_sum += number * end_lag
    state.sync_lag_dequeue_sum += number * dequeue_sync_lag
    state.sync_lag_training_sum += number * sync_lag


@jit(inline=True, counted=False)
def _weigh(parameters, tables, draws, rollout, lag, spread, inflation):
    """Return a rollout's log weight, what its drift does to the ESS, and the first moment of a measured one.

    spread and inflation float64 are those of its lag, under a drift that is not measured.
    """
    log_weight = 0.0
    moment = 0.0
    last = tables.drift_lags.shape[0] - 1  # -1: the drift is not measured
    if last >= 0:
        row = min(lag, last)
        uniform = uniform_from_bits(rollout.noise)
        log_weight = measured_log_weight(tables.drift_lags, tables.drift_values, row, uniform)
        moment = tables.drift_lags[row].first_moment
        inflation = tables.drift_lags[row].second_moment
    elif lag > 0:
        if parameters.drift_exponent != 0.0:
            mean_tokens = parameters.mean_tokens
            if parameters.segments > 0:
                mean_tokens = tables.segments[segment_of(tables, rollout.version)].mean_tokens
            spread = spread * (np.float64(rollout.tokens) / mean_tokens) ** parameters.drift_exponent
            inflation = exp_saturating(spread * spread)
        normal = shared_normal(draws, rollout.number, rollout.noise)
        log_weight = spread * normal - spread * spread / 2
    return log_weight, inflation, moment


@jit(counted=False)
def _finish_batch_kernel(
    parameters,
    state,
    tables,
    draws,
    groups,
    members,
    histograms,
    log_weights,
    batch_rows,
    rollout_rows,
    measured,
):
    """A step completes: count its batch, give its records back, let the version grow. TrainingTables."""
    size = parameters.group_size
    updates = parameters.updates_per_batch
    head = state.popped_head
    count = groups[head].batch_groups
    batch_tokens = groups[head].batch_tokens
    drift = parameters.drift
    is_measured_drift = tables.drift_lags.shape[0] > 0
    recording = parameters.record_rollouts == 1
    short_run = count // updates
    long_runs = count - short_run * updates
    version = state.training_version
    # All groups of a batch were taken at once.
    dequeue_version = groups[head].dequeue_version
    dequeue_publications = groups[head].dequeue_publications

    rollouts = np.int64(0)
    lag_sum = np.int64(0)
    lag_max = np.int64(0)
    dequeue_lag_sum = np.int64(0)
    lag = np.int64(0)
    dequeue_lag = np.int64(0)
    spread = 0.0
    inflation = 1.0
    real_lag = 0.0
    moment_sum = 0.0
    inflation_sum = 0.0
    largest = -math.inf
    token_lag_sum = state.token_lag_sum
    # Rollouts in turn are mostly alike in their versions: they are counted together.
    alike = np.int64(0)
    behaviour = np.int64(-1)
    trainer_version = np.int64(-1)
    end_version = np.int64(-1)
    publications = np.int64(-1)
    last = head
    record = head
    for run in range(updates):
        trained_at = version + run
        groups_left = short_run + (1 if run < long_runs else 0)
        behaviour = np.int64(-1)  # as no rollout has: a run begins with rollouts that are unlike those before
        while groups_left > 0:
            groups_left -= 1
            member = record * size
            beyond = member + size
            while member < beyond:
                rollout = members[place(member)]
                member += 1
                # One branch for four comparisons: it is hard to foresee where rollouts are mixed.
                unlike = (
                    (rollout.version ^ behaviour)
                    | (rollout.trainer_version ^ trainer_version)
                    | (rollout.end_version ^ end_version)
                    | (rollout.publications ^ publications)
                )
                if unlike != 0:
                    if measured and alike > 0:
                        versions = behaviour, trainer_version, end_version, dequeue_version, trained_at
                        _count_alike_kernel(
                            state, histograms, alike, versions, publications, dequeue_publications
                        )
                    alike = np.int64(0)
                    behaviour = rollout.version
                    trainer_version = rollout.trainer_version
                    end_version = rollout.end_version
                    publications = rollout.publications
                    lag = trained_at - behaviour
                    dequeue_lag = dequeue_version - behaviour
                    lag_max = max(lag_max, lag)
                    if lag < LAG_BINS:
                        spread = tables.lag_spreads[place(lag)]
                        inflation = tables.lag_inflations[place(lag)]
                    else:
                        spread = drift * math.sqrt(np.float64(lag))
                        inflation = exp_saturating(spread * spread)
                    real_lag = np.float64(lag)
                alike += 1
                lag_sum += lag
                dequeue_lag_sum += dequeue_lag
                tokens = rollout.tokens
                log_weight, own_inflation, moment = _weigh(
                    parameters, tables, draws, rollout, lag, spread, inflation
                )
                log_weights[place(rollouts)] = log_weight
                largest = max(largest, log_weight)
                inflation_sum += own_inflation
                moment_sum += moment
                rollouts += 1
                if measured:
                    decile = decile_of(tokens, tables.decile_edges, tables.decile_guide)
                    histograms[H_TRAINED_DECILES, place(decile)] += 1
                    token_lag_sum += np.float64(tokens) * (real_lag - rollout.newer_versions)
                if recording:
                    row = rollout.row
                    rollout_rows[row].outcome = TRAINED
                    rollout_rows[row].lag = lag
            group = groups[place(record)]
            group.state = GROUP_UNUSED
            last = record
            record = group.next
        if measured and alike > 0:
            versions = behaviour, trainer_version, end_version, dequeue_version, trained_at
            _count_alike_kernel(state, histograms, alike, versions, publications, dequeue_publications)
        alike = np.int64(0)
    free_chain(state, groups, head, last, count)
    if measured:
        state.token_lag_sum = token_lag_sum
    state.popped_head = record
    if record == 0:
        state.popped_tail = 0

    ess = batch_ess(log_weights, rollouts, largest, lag_max > 0 or is_measured_drift)
    if is_measured_drift:
        expected_ess = moment_sum * moment_sum / (np.float64(rollouts) * inflation_sum)
    else:
        expected_ess = 1.0 / (inflation_sum / np.float64(rollouts))

    state.cost += rollouts
    state.version += updates
    state.trained_batches += 1
    state.popped_tokens -= batch_tokens
    state.training = 0
    state.training_time = NEVER
    if measured:
        state.updates += updates
        state.batches += 1
        state.trained_tokens += batch_tokens
        state.trained_rollouts += rollouts
        state.trained_groups += count
        state.left_tokens += batch_tokens
        state.left_rollouts += rollouts
        state.lag_training_sum += lag_sum
        state.lag_dequeue_sum += dequeue_lag_sum
        state.max_lag = max(state.max_lag, lag_max)
        state.lag_sum += np.float64(lag_sum) / np.float64(rollouts)
        state.ess_sum += ess
        state.ess_min = min(state.ess_min, ess)
        state.expected_ess_sum += expected_ess
        state.effective_tokens += np.float64(batch_tokens) * expected_ess
    if parameters.record_batches == 1:
        row = state.batch_rows
        batch_rows[row].update = state.version
        batch_rows[row].start = state.training_start
        batch_rows[row].end = state.now
        batch_rows[row].tokens = batch_tokens
        batch_rows[row].rollouts = rollouts
        batch_rows[row].lag_sum = lag_sum
        batch_rows[row].max_lag = lag_max
        batch_rows[row].groups = count
        batch_rows[row].dequeue_lag_sum = dequeue_lag_sum
        batch_rows[row].discarded = state.discarded_since
        state.discarded_since = 0
        batch_rows[row].ess = ess
        batch_rows[row].expected_ess = expected_ess
        state.batch_rows = row + 1
