"""What a run of the general engine reports: the measured sums of a state, closed at the end of the run.

Closing changes nothing in the state, so a run can be summarised at any stop and still go on. This is plain
Python, because it runs once per run. Sums stay whole numbers until the last division.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import state as at
from .metrics import SLOT_CONSTRAINTS, TRAINER_CONSTRAINTS


def _ratio(top: float, bottom: float) -> float:
    """Divide, NaN where there is nothing to average."""
    return top / bottom if bottom > 0 else math.nan


def engine_metrics(
    params: np.ndarray,
    rates: np.ndarray,
    state: np.ndarray,
    sums: np.ndarray,
    groups: np.ndarray,
    slot_ticks: np.ndarray,
    trainer_ticks: np.ndarray,
) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Close a run that has reached its end.

    Parameters
    ----------
    params, rates, state, sums, groups, slot_ticks, trainer_ticks : ndarray
        The arrays of the event loop's kernel.

    Returns
    -------
    tuple
        Metrics by name, slot ticks by cause, trainer ticks by cause.
    """
    whole, value, real = params.tolist(), state.tolist(), sums.tolist()
    now, warmup = value[at.S_NOW], whole[at.P_WARMUP]
    end = now if value[at.S_ENDED] else whole[at.P_HORIZON]
    # The last stretch, from the last event to the end, inside the measured span.
    tail_ticks = max(0, end - max(now, warmup))
    measured_ticks = max(0, end - warmup)
    idle, slots = value[at.S_IDLE], whole[at.P_SLOTS]
    slot_ticks, trainer_ticks = slot_ticks.copy(), trainer_ticks.copy()
    slot_ticks[value[at.S_IDLE_CAUSE]] += idle * tail_ticks
    slot_ticks[at.C_BUSY] += (slots - idle) * tail_ticks
    trainer_ticks[value[at.S_TRAINER_CAUSE]] += tail_ticks
    metrics = _level_1_integers(value, whole)
    metrics |= _level_1_floats(value, whole, real, end, tail_ticks, measured_ticks, int(trainer_ticks[0]))
    metrics |= _group_integers(value, groups)
    metrics |= _lags_and_biases(value, real, float(rates[at.PF_MEAN_TOKENS]))
    by_slot = slot_ticks.tolist()
    for name, bound_ticks in zip(SLOT_CONSTRAINTS, by_slot):
        metrics[f"slots_{name}_seconds"] = bound_ticks / 1e6
    metrics["slots_limits_seconds"] = sum(by_slot[at.C_FIRST_LIMIT :]) / 1e6
    for name, bound_ticks in zip(TRAINER_CONSTRAINTS, trainer_ticks.tolist()):
        metrics[f"trainer_{name}_seconds"] = bound_ticks / 1e6
    metrics["last_progress_seconds"] = now / 1e6
    return metrics, slot_ticks, trainer_ticks


def _level_1_integers(value: list[int], whole: list[int]) -> dict[str, Any]:
    idle_trainer = value[at.S_TRAINING] == 0
    nothing_runs = value[at.S_IDLE] == whole[at.P_SLOTS]
    nothing_published = value[at.S_CHANNEL] == at.CHANNEL_FREE
    measured_queue = value[at.S_MAX_QUEUE]
    return {
        "updates": value[at.S_UPDATES],
        "trained_tokens": value[at.S_TRAINED_TOKENS],
        "trained_rollouts": value[at.S_TRAINED_ROLLOUTS],
        "generated_tokens": value[at.S_GENERATED_TOKENS],
        "generated_rollouts": value[at.S_GENERATED_ROLLOUTS],
        "discarded_tokens": value[at.S_DISCARDED_TOKENS],
        "discarded_rollouts": value[at.S_DISCARDED_GROUPS] * whole[at.P_GROUP_SIZE],
        "syncs": value[at.S_SYNCS],
        "max_queue_tokens_observed": measured_queue if measured_queue >= 0 else value[at.S_QUEUE_TOKENS],
        "max_lag_observed": value[at.S_MAX_LAG],
        "final_version": value[at.S_VERSION],
        "queued_tokens": value[at.S_QUEUE_TOKENS],
        "in_training_tokens": value[at.S_POPPED_TOKENS],
        "stalled": int(nothing_runs and idle_trainer and nothing_published),
    }


def _level_1_floats(
    value: list[int],
    whole: list[int],
    real: list[float],
    end: int,
    tail_ticks: int,
    measured_ticks: int,
    busy_ticks: int,
) -> dict[str, float]:
    seconds = measured_ticks / 1e6
    idle = value[at.S_IDLE]
    queue_ticks = real[at.F_QUEUE_TOKEN_TICKS] + float(value[at.S_QUEUE_TOKENS]) * float(tail_ticks)
    idle_ticks = value[at.S_IDLE_SLOT_TICKS] + idle * tail_ticks
    backpressure_ticks = value[at.S_BACKPRESSURE_TICKS]
    if idle > 0 and value[at.S_CAP_CLOSED]:
        backpressure_ticks += tail_ticks
    slot_ticks = whole[at.P_SLOTS] * measured_ticks
    updates, batches = value[at.S_UPDATES], value[at.S_BATCHES]
    return {
        "trained_tokens_per_second": _ratio(float(value[at.S_TRAINED_TOKENS]), seconds),
        "effective_tokens_per_second": _ratio(real[at.F_EFFECTIVE_TOKENS], seconds),
        "backpressure_seconds": backpressure_ticks / 1e6,
        "idle_slot_seconds": idle_ticks / 1e6,
        "mean_queue_tokens": _ratio(queue_ticks, float(measured_ticks)),
        "mean_lag": _ratio(real[at.F_LAG_SUM], batches),
        "mean_normalized_ess": _ratio(real[at.F_ESS_SUM], batches),
        "min_normalized_ess": real[at.F_ESS_MIN] if batches else math.nan,
        "mean_expected_normalized_ess": _ratio(real[at.F_EXPECTED_ESS_SUM], batches),
        "seconds_per_update": _ratio(seconds, updates),
        "trainer_wait_seconds": (measured_ticks - busy_ticks) / 1e6,
        "trainer_utilization": _ratio(float(busy_ticks), float(measured_ticks)),
        "rollout_utilization": _ratio(float(slot_ticks - idle_ticks), float(slot_ticks)),
        "seconds_since_last_update": (end - value[at.S_LAST_UPDATE_TIME]) / 1e6,
    }


def _group_integers(value: list[int], groups: np.ndarray) -> dict[str, int]:
    running = groups[:, at.G_STATE] == at.G_RUNNING
    popped = int(np.count_nonzero(groups[:, at.G_STATE] == at.G_POPPED))
    if value[at.S_TRAINING]:
        popped -= int(groups[value[at.S_POPPED_HEAD], at.G_BATCH_GROUPS])
    return {
        "trained_groups": value[at.S_TRAINED_GROUPS],
        "generated_groups": value[at.S_GENERATED_GROUPS],
        "admitted_groups": value[at.S_ADMITTED_GROUPS],
        "discarded_groups": value[at.S_DISCARDED_GROUPS],
        "filtered_groups": value[at.S_FILTERED_GROUPS],
        "filtered_tokens": value[at.S_FILTERED_TOKENS],
        "evicted_groups": value[at.S_EVICTED_GROUPS],
        "evicted_tokens": value[at.S_EVICTED_TOKENS],
        "cancelled_groups": value[at.S_CANCELLED_GROUPS],
        "cancelled_tokens": value[at.S_CANCELLED_TOKENS],
        "wasted_tokens": value[at.S_WASTED_TOKENS],
        "requeued_groups": value[at.S_REQUEUED_GROUPS],
        "queued_groups": value[at.S_QUEUE_GROUPS],
        "running_groups": value[at.S_RUNNING],
        "prefetched_groups": popped,
        "unfinished_group_tokens": int(groups[running, at.G_TOKENS].sum()),
    }


def _lags_and_biases(value: list[int], real: list[float], law_mean: float) -> dict[str, float]:
    rollouts = value[at.S_TRAINED_ROLLOUTS]
    trained_mean = _ratio(value[at.S_TRAINED_TOKENS], rollouts)
    left_mean = _ratio(value[at.S_LEFT_TOKENS], value[at.S_LEFT_ROLLOUTS])
    return {
        "mean_start_lag": _ratio(value[at.S_LAG_START_SUM], rollouts),
        "mean_dequeue_lag": _ratio(value[at.S_LAG_DEQUEUE_SUM], rollouts),
        "mean_rollout_lag": _ratio(value[at.S_LAG_TRAINING_SUM], rollouts),
        "mean_dequeue_lag_publications": _ratio(value[at.S_SYNC_LAG_DEQUEUE_SUM], rollouts),
        "mean_rollout_lag_publications": _ratio(value[at.S_SYNC_LAG_TRAINING_SUM], rollouts),
        "mean_end_lag": _ratio(value[at.S_LAG_END_SUM], rollouts),
        "mean_token_lag": _ratio(real[at.F_TOKEN_LAG_SUM], value[at.S_TRAINED_TOKENS]),
        "length_bias_law": trained_mean / law_mean,
        "length_bias_drawn": trained_mean / left_mean,
    }
