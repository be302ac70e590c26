"""What a run reports: the measured sums of a state, closed at the end of the run.

Closing changes nothing in the state, so a run can be summarised at any stop and still go on. Sums stay whole
numbers until the last division.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from .records import (
    CHANNEL_FREE,
    GROUP_POPPED,
    GROUP_RUNNING,
    NEVER,
    SLOTS_BUSY,
    SLOTS_FIRST_LIMIT,
    SLOTS_HELD,
    SLOTS_MAX_RUNNING,
    SLOTS_ONE_BATCH,
    SLOTS_PUBLICATION,
    SLOTS_SEQUENTIAL,
    SLOTS_TOKEN_CAP,
    TRAINER_BATCH,
    TRAINER_BUSY,
    TRAINER_EVALUATION,
    TRAINER_FETCH,
    TRAINER_PUBLICATION,
    TRAINER_RUNNING_GROUPS,
)


@jit(inline=True)
def _ratio(top, bottom):
    """Divide, NaN where there is nothing to average."""
    return top / bottom if bottom > 0.0 else math.nan


@jit(inline=True)
def _end_ticks(parameters, state):
    """Return the end of a run, and the ticks from its last event to there inside the measured span."""
    end = state.now if state.ended == 1 else parameters.horizon
    return end, max(np.int64(0), end - max(state.now, parameters.warmup))


@jit
def _write_core_kernel(parameters, state, metrics, batches, wait_ticks, idle_cap_closes, nothing_goes_on):
    """Write the metrics that both loops report in one way.

    parameters PARAMETERS, state and metrics LEAN_… or GENERAL_…; batches int64 trained in the measured span;
    wait_ticks int64 of the trainer; idle_cap_closes bool, whether the token cap holds idle slots back since
    the last event; nothing_goes_on bool, whether nothing is in flight and trainer and channel rest.
    """
    end, tail_ticks = _end_ticks(parameters, state)
    measured_ticks = max(np.int64(0), end - parameters.warmup)
    measured_seconds = measured_ticks / 1e6
    queue_token_ticks = state.queue_token_ticks + np.float64(state.queue_tokens) * np.float64(tail_ticks)
    idle_slot_ticks = state.idle_slot_ticks + state.idle * tail_ticks
    backpressure_ticks = state.backpressure_ticks
    if state.idle > 0 and idle_cap_closes:
        backpressure_ticks += tail_ticks
    slot_ticks = parameters.slots * measured_ticks

    metrics.updates = state.updates
    metrics.trained_tokens = state.trained_tokens
    metrics.trained_rollouts = state.trained_rollouts
    metrics.generated_tokens = state.generated_tokens
    metrics.generated_rollouts = state.generated_rollouts
    metrics.discarded_tokens = state.discarded_tokens
    metrics.syncs = state.syncs
    metrics.max_queue_tokens_observed = state.max_queue if state.max_queue >= 0 else state.queue_tokens
    metrics.max_lag_observed = state.max_lag
    metrics.final_version = state.version
    metrics.queued_tokens = state.queue_tokens
    metrics.stalled = 1 if nothing_goes_on else 0

    metrics.trained_tokens_per_second = _ratio(np.float64(state.trained_tokens), measured_seconds)
    metrics.effective_tokens_per_second = _ratio(state.effective_tokens, measured_seconds)
    metrics.backpressure_seconds = backpressure_ticks / 1e6
    metrics.idle_slot_seconds = idle_slot_ticks / 1e6
    metrics.mean_queue_tokens = _ratio(queue_token_ticks, np.float64(measured_ticks))
    metrics.mean_lag = _ratio(state.lag_sum, np.float64(batches))
    metrics.mean_normalized_ess = _ratio(state.ess_sum, np.float64(batches))
    metrics.min_normalized_ess = state.ess_min if batches > 0 else math.nan
    metrics.mean_expected_normalized_ess = _ratio(state.expected_ess_sum, np.float64(batches))
    metrics.seconds_per_update = _ratio(measured_seconds, np.float64(state.updates))
    metrics.trainer_wait_seconds = wait_ticks / 1e6
    metrics.trainer_utilization = _ratio(np.float64(measured_ticks - wait_ticks), np.float64(measured_ticks))
    metrics.rollout_utilization = _ratio(np.float64(slot_ticks - idle_slot_ticks), np.float64(slot_ticks))
    metrics.seconds_since_last_update = (end - state.last_update_time) / 1e6


@jit
def lean_metrics_kernel(parameters, state, metrics):
    """Write the metrics of a run of the lean loop that has reached its end.

    parameters PARAMETERS[1], state LEAN_STATE[1]; metrics LEAN_REPORT[1] is filled.
    """
    parameters = parameters[0]
    state = state[0]
    metrics = metrics[0]
    _end, tail_ticks = _end_ticks(parameters, state)
    trainer_is_idle = state.training_time == NEVER
    _write_core_kernel(
        parameters,
        state,
        metrics,
        state.updates,
        state.trainer_wait_ticks + (tail_ticks if trainer_is_idle else np.int64(0)),
        parameters.sequential == 0,
        state.idle == parameters.slots and trainer_is_idle and state.publication_time == NEVER,
    )
    metrics.discarded_rollouts = state.discarded_rollouts
    metrics.in_training_tokens = np.int64(0) if trainer_is_idle else state.training_tokens


@jit
def general_metrics_kernel(parameters, arrays, metrics, slot_ticks, trainer_ticks, tables):
    """Write the metrics of a run of the general loop that has reached its end.

    parameters PARAMETERS[1], arrays GeneralArrays, tables Tables; metrics GENERAL_REPORT[1] is filled;
    slot_ticks and trainer_ticks, copies of those of `arrays`, are closed at the end.
    """
    parameters = parameters[0]
    state = arrays.state[0]
    metrics = metrics[0]
    end, tail_ticks = _end_ticks(parameters, state)
    slot_ticks[state.idle_cause] += state.idle * tail_ticks
    slot_ticks[SLOTS_BUSY] += (parameters.slots - state.idle - state.held) * tail_ticks
    slot_ticks[SLOTS_HELD] += state.held * tail_ticks
    booked = max(max(state.now, parameters.warmup), state.trainer_booked)
    trainer_ticks[state.trainer_cause] += max(np.int64(0), end - booked)
    _write_core_kernel(
        parameters,
        state,
        metrics,
        state.batches,
        max(np.int64(0), end - parameters.warmup) - trainer_ticks[TRAINER_BUSY],
        state.cap_closed == 1,
        state.idle + state.held == parameters.slots
        and state.training == 0
        and state.channel == CHANNEL_FREE
        and state.evaluation_time == NEVER,
    )
    metrics.discarded_rollouts = state.discarded_groups * parameters.group_size
    metrics.in_training_tokens = state.popped_tokens
    _write_groups_kernel(state, arrays.groups, metrics)
    _write_lags_kernel(state, metrics, _law_mean(parameters, arrays.segment_starts, tables.segments))

    metrics.slots_busy_seconds = slot_ticks[SLOTS_BUSY] / 1e6
    metrics.slots_publication_seconds = slot_ticks[SLOTS_PUBLICATION] / 1e6
    metrics.slots_max_running_seconds = slot_ticks[SLOTS_MAX_RUNNING] / 1e6
    metrics.slots_one_batch_seconds = slot_ticks[SLOTS_ONE_BATCH] / 1e6
    metrics.slots_token_cap_seconds = slot_ticks[SLOTS_TOKEN_CAP] / 1e6
    metrics.slots_sequential_seconds = slot_ticks[SLOTS_SEQUENTIAL] / 1e6
    limits_ticks = np.int64(0)
    for cause in range(SLOTS_FIRST_LIMIT, slot_ticks.shape[0]):
        limits_ticks += slot_ticks[cause]
    metrics.slots_limits_seconds = limits_ticks / 1e6
    metrics.trainer_busy_seconds = trainer_ticks[TRAINER_BUSY] / 1e6
    metrics.trainer_publication_seconds = trainer_ticks[TRAINER_PUBLICATION] / 1e6
    metrics.trainer_running_groups_seconds = trainer_ticks[TRAINER_RUNNING_GROUPS] / 1e6
    metrics.trainer_batch_seconds = trainer_ticks[TRAINER_BATCH] / 1e6
    metrics.slots_held_seconds = slot_ticks[SLOTS_HELD] / 1e6
    metrics.trainer_fetch_seconds = trainer_ticks[TRAINER_FETCH] / 1e6
    metrics.trainer_evaluation_seconds = trainer_ticks[TRAINER_EVALUATION] / 1e6
    metrics.last_progress_seconds = state.now / 1e6


@jit
def _write_groups_kernel(state, groups, metrics):
    """Write what became of the groups; groups GROUP[g]."""
    popped = np.int64(0)
    unfinished_tokens = np.int64(0)
    for record in range(groups.shape[0]):
        group = groups[record]
        if group.state == GROUP_POPPED:
            popped += 1
        elif group.state == GROUP_RUNNING:
            unfinished_tokens += group.tokens
    if state.training == 1:
        popped -= groups[state.popped_head].batch_groups
    metrics.trained_groups = state.trained_groups
    metrics.generated_groups = state.generated_groups
    metrics.admitted_groups = state.admitted_groups
    metrics.discarded_groups = state.discarded_groups
    metrics.filtered_groups = state.filtered_groups
    metrics.filtered_tokens = state.filtered_tokens
    metrics.evicted_groups = state.evicted_groups
    metrics.evicted_tokens = state.evicted_tokens
    metrics.cancelled_groups = state.cancelled_groups
    metrics.cancelled_tokens = state.cancelled_tokens
    metrics.wasted_tokens = state.wasted_tokens
    metrics.requeued_groups = state.requeued_groups
    metrics.queued_groups = state.queue_groups
    metrics.running_groups = state.running
    metrics.prefetched_groups = popped
    metrics.unfinished_group_tokens = unfinished_tokens


@jit
def _law_mean(parameters, starts, segments):
    """Return the law's mean in tokens; of a law by version the segments', by the rollouts that started."""
    if parameters.segments == 0:
        return parameters.mean_tokens
    if parameters.segments == 1:
        return segments[0].mean_tokens
    total = 0.0
    count = np.int64(0)
    for segment in range(segments.shape[0]):
        total += segments[segment].mean_tokens * np.float64(starts[segment])
        count += starts[segment]
    return _ratio(total, np.float64(count))


@jit
def _write_lags_kernel(state, metrics, law_mean):
    """Write mean lags of the trained rollouts, and how their mean length differs from the law's."""
    rollouts = np.float64(state.trained_rollouts)
    trained_mean = _ratio(np.float64(state.trained_tokens), rollouts)
    left_mean = _ratio(np.float64(state.left_tokens), np.float64(state.left_rollouts))
    metrics.mean_start_lag = _ratio(np.float64(state.lag_start_sum), rollouts)
    metrics.mean_dequeue_lag = _ratio(np.float64(state.lag_dequeue_sum), rollouts)
    metrics.mean_rollout_lag = _ratio(np.float64(state.lag_training_sum), rollouts)
    metrics.mean_dequeue_lag_publications = _ratio(np.float64(state.sync_lag_dequeue_sum), rollouts)
    metrics.mean_rollout_lag_publications = _ratio(np.float64(state.sync_lag_training_sum), rollouts)
    metrics.mean_end_lag = _ratio(np.float64(state.lag_end_sum), rollouts)
    metrics.mean_token_lag = _ratio(state.token_lag_sum, np.float64(state.trained_tokens))
    metrics.length_bias_law = trained_mean / law_mean
    metrics.length_bias_drawn = trained_mean / left_mean
