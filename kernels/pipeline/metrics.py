"""The names, types, units and meanings of what a run reports: one table that every layer reads.

The order is the order of the kernel's output rows and of a dataset's variables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Metric(NamedTuple):
    """One reported quantity of a run."""

    name: str
    dtype: str
    units: str
    long_name: str


LAG_BINS = 65  # lags 0…63, and "64 or more"

INTEGER_METRICS: tuple[Metric, ...] = (
    Metric("updates", "int64", "updates", "optimizer updates completed"),
    Metric("trained_tokens", "int64", "tokens", "tokens trained"),
    Metric("trained_rollouts", "int64", "rollouts", "rollouts trained"),
    Metric("generated_tokens", "int64", "tokens", "tokens of completed rollouts"),
    Metric("generated_rollouts", "int64", "rollouts", "rollouts completed"),
    Metric("discarded_tokens", "int64", "tokens", "tokens discarded as too old"),
    Metric("discarded_rollouts", "int64", "rollouts", "rollouts discarded as too old"),
    Metric("syncs", "int64", "publications", "publications completed"),
    Metric("max_queue_tokens_observed", "int64", "tokens", "largest queue level"),
    Metric("max_lag_observed", "int64", "versions", "largest lag trained (-1 if no batch)"),
    Metric("final_version", "int64", "updates", "trainer version at the end of the run"),
    Metric("queued_tokens", "int64", "tokens", "tokens in the queue at the end"),
    Metric("in_training_tokens", "int64", "tokens", "tokens in the unfinished step at the end"),
    Metric("stalled", "int64", "1", "whether nothing could happen any more at the end"),
)

FLOAT_METRICS: tuple[Metric, ...] = (
    Metric("trained_tokens_per_second", "float64", "tokens/s", "trained tokens per second"),
    Metric(
        "effective_tokens_per_second", "float64", "tokens/s", "trained tokens times expected ESS per second"
    ),
    Metric("backpressure_seconds", "float64", "s", "time with an idle slot while the cap closes admission"),
    Metric("idle_slot_seconds", "float64", "slot s", "slot-seconds idle"),
    Metric("mean_queue_tokens", "float64", "tokens", "queue level, averaged over time"),
    Metric("mean_lag", "float64", "versions", "lag, mean over batches of the batch mean"),
    Metric("mean_normalized_ess", "float64", "1", "normalized ESS, mean over batches"),
    Metric("min_normalized_ess", "float64", "1", "normalized ESS, smallest batch"),
    Metric("mean_expected_normalized_ess", "float64", "1", "expected normalized ESS, mean over batches"),
    Metric("seconds_per_update", "float64", "s", "measured time per update"),
    Metric("trainer_wait_seconds", "float64", "s", "time the trainer is idle"),
    Metric("trainer_utilization", "float64", "1", "share of time a training step is under way"),
    Metric("rollout_utilization", "float64", "1", "share of slot time occupied"),
    Metric("seconds_since_last_update", "float64", "s", "time since the last update at the end"),
)

METRICS: tuple[Metric, ...] = INTEGER_METRICS + FLOAT_METRICS
METRIC_BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}

# --- what the general loop reports on top (levels 2 and 3) ---

GENERAL_INTEGER_METRICS: tuple[Metric, ...] = (
    Metric("trained_groups", "int64", "groups", "groups trained"),
    Metric("generated_groups", "int64", "groups", "groups whose last member completed"),
    Metric("admitted_groups", "int64", "groups", "groups admitted"),
    Metric("discarded_groups", "int64", "groups", "ready groups given up as too old, to run again or not"),
    Metric("filtered_groups", "int64", "groups", "groups dropped without learning signal"),
    Metric("filtered_tokens", "int64", "tokens", "tokens of groups dropped without learning signal"),
    Metric("evicted_groups", "int64", "groups", "groups dropped from a full queue"),
    Metric("evicted_tokens", "int64", "tokens", "tokens of groups dropped from a full queue"),
    Metric("cancelled_groups", "int64", "groups", "running groups cancelled as too old"),
    Metric("cancelled_tokens", "int64", "tokens", "tokens of completed members of cancelled groups"),
    Metric("wasted_tokens", "int64", "tokens", "tokens decoded in cancelled groups"),
    Metric("requeued_groups", "int64", "groups", "groups sent back to run again"),
    Metric("queued_groups", "int64", "groups", "groups in the queue at the end"),
    Metric("running_groups", "int64", "groups", "groups running at the end"),
    Metric("prefetched_groups", "int64", "groups", "groups taken for later steps at the end"),
    Metric(
        "unfinished_group_tokens",
        "int64",
        "tokens",
        "tokens of completed members of running groups at the end",
    ),
)

GENERAL_FLOAT_METRICS: tuple[Metric, ...] = (
    Metric("mean_start_lag", "float64", "versions", "trainer's version less behaviour version at the start"),
    Metric(
        "mean_dequeue_lag", "float64", "versions", "lag when taken by the trainer, mean over trained rollouts"
    ),
    Metric("mean_rollout_lag", "float64", "versions", "lag when trained, mean over trained rollouts"),
    Metric("mean_dequeue_lag_publications", "float64", "publications", "lag when taken, in publications"),
    Metric("mean_rollout_lag_publications", "float64", "publications", "lag when trained, in publications"),
    Metric("mean_end_lag", "float64", "versions", "lag by the version of the last token"),
    Metric("mean_token_lag", "float64", "versions", "lag, mean over trained tokens"),
    Metric("length_bias_law", "float64", "1", "mean trained length over the law's mean"),
    Metric("length_bias_drawn", "float64", "1", "mean trained length over the mean of all groups that left"),
    Metric("slots_busy_seconds", "float64", "slot s", "slot-seconds occupied"),
    Metric(
        "slots_publication_seconds", "float64", "slot s", "slot-seconds idle: a publication admits nothing"
    ),
    Metric("slots_max_running_seconds", "float64", "slot s", "slot-seconds idle: max_running_groups"),
    Metric("slots_one_batch_seconds", "float64", "slot s", "slot-seconds idle: one_batch_at_a_time"),
    Metric("slots_token_cap_seconds", "float64", "slot s", "slot-seconds idle: the token cap"),
    Metric("slots_sequential_seconds", "float64", "slot s", "slot-seconds idle: a phase of sequential mode"),
    Metric("slots_limits_seconds", "float64", "slot s", "slot-seconds idle: a limit of the ledger"),
    Metric("trainer_busy_seconds", "float64", "s", "a training step is under way"),
    Metric("trainer_publication_seconds", "float64", "s", "the trainer waits for a publication"),
    Metric("trainer_running_groups_seconds", "float64", "s", "the trainer waits for groups that still run"),
    Metric("trainer_batch_seconds", "float64", "s", "the trainer waits: the batch is not full"),
    Metric("last_progress_seconds", "float64", "s", "time of the last event"),
)

GENERAL_METRICS: tuple[Metric, ...] = GENERAL_INTEGER_METRICS + GENERAL_FLOAT_METRICS

# What is reported only where a cell uses an option, by the name of the option: results without it keep their
# variables. ``PipelineConfig.options_in_use`` names the options of a configuration.
OPTIONAL_METRICS: dict[str, tuple[Metric, ...]] = {
    "hold": (Metric("slots_held_seconds", "float64", "slot s", "slot-seconds kept by held groups"),),
    "fetch": (Metric("trainer_fetch_seconds", "float64", "s", "the trainer waits: its batch is fetched"),),
    "evaluation": (
        Metric("trainer_evaluation_seconds", "float64", "s", "the trainer waits: an evaluation is under way"),
    ),
    "engine": (
        Metric("decode_steps", "int64", "steps", "steps of inference engines"),
        Metric("decoded_tokens", "int64", "tokens", "tokens decoded in steps"),
        Metric("prefilled_tokens", "int64", "tokens", "tokens prefilled"),
        Metric("reprefilled_tokens", "int64", "tokens", "tokens prefilled again after preemption or abort"),
        Metric("preemptions", "int64", "preemptions", "rollouts that lost their cache for want of memory"),
        Metric("engine_busy_seconds", "float64", "engine s", "engine-seconds in steps"),
        Metric("engine_idle_seconds", "float64", "engine s", "engine-seconds between steps"),
        Metric("mean_engine_running", "float64", "rollouts", "rollouts in a step, mean over steps"),
        Metric("mean_engine_context_tokens", "float64", "tokens", "context of a step, mean over steps"),
        Metric("mean_engine_waiting", "float64", "rollouts", "rollouts in an engine's queue, over time"),
        Metric("mean_kv_cache_share", "float64", "1", "share of the cache in use, mean over steps"),
        Metric("max_kv_cache_share", "float64", "1", "share of the cache in use, largest"),
        Metric("engine_tokens_per_second", "float64", "tokens/s", "decoded tokens per busy engine-second"),
        Metric(
            "slots_engine_queue_seconds", "float64", "slot s", "busy slot-seconds spent in an engine's queue"
        ),
    ),
    "failures": (
        Metric("lost_updates", "int64", "updates", "updates lost in failures of the trainer"),
        Metric(
            "lost_tokens", "int64", "tokens", "tokens trained, or generated and not trained, and then lost"
        ),
        Metric("repeated_prompts", "int64", "groups", "groups that lost updates had trained"),
        Metric("trainer_checkpoint_seconds", "float64", "s", "the trainer stands still: a checkpoint"),
        Metric("trainer_restart_seconds", "float64", "s", "the trainer is down after a failure"),
        Metric(
            "goodput_fraction",
            "float64",
            "1",
            "busy time of steps that were not lost, over the time in which the trainer had data",
        ),
    ),
}
METRIC_BY_NAME.update({metric.name: metric for metric in GENERAL_METRICS})
METRIC_BY_NAME.update({metric.name: metric for some in OPTIONAL_METRICS.values() for metric in some})


# What a sweep reports by windows of updates, over the dimension ``window``.
WINDOW_METRICS: tuple[Metric, ...] = (
    Metric("window_seconds_per_update", "float64", "s", "time per update"),
    Metric("window_trained_tokens_per_second", "float64", "tokens/s", "trained tokens per second"),
    Metric(
        "window_effective_tokens_per_second",
        "float64",
        "tokens/s",
        "trained tokens times expected ESS per second",
    ),
    Metric("window_mean_lag", "float64", "versions", "lag, mean over batches of the batch mean"),
    Metric(
        "window_mean_expected_normalized_ess", "float64", "1", "expected normalized ESS, mean over batches"
    ),
    Metric("window_trainer_wait_seconds", "float64", "s", "time the trainer is idle"),
    Metric("window_discarded_rollouts", "int64", "rollouts", "rollouts discarded as too old"),
    Metric("window_mean_tokens", "float64", "tokens", "tokens of a trained rollout"),
)
METRIC_BY_NAME.update({metric.name: metric for metric in WINDOW_METRICS})
WINDOW_NAMES = frozenset(metric.name for metric in WINDOW_METRICS)


def metrics_of_options(options: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics that some options bring, in the order of the table.

    Examples
    --------
    >>> [metric.name for metric in metrics_of_options({"evaluation", "fetch"})]
    ['trainer_fetch_seconds', 'trainer_evaluation_seconds']
    """
    wanted = set(options)
    return tuple(metric for name, some in OPTIONAL_METRICS.items() if name in wanted for metric in some)


def hidden_metrics(options: Iterable[str]) -> frozenset[str]:
    """Name the metrics of all options but these.

    Examples
    --------
    >>> sorted(hidden_metrics({"fetch", "evaluation", "engine", "failures"}))
    ['slots_held_seconds']
    """
    others = set(OPTIONAL_METRICS) - set(options)
    return frozenset(metric.name for metric in metrics_of_options(others))


def unused_values() -> dict[str, float]:
    """Give what each optional metric is in a run whose configuration does not use its option.

    Nothing was lost, decoded or waited for: counts and seconds are 0. A mean, a share or a rate of nothing
    is NaN.

    Examples
    --------
    >>> unused_values()["trainer_fetch_seconds"], unused_values()["goodput_fraction"]
    (0.0, nan)
    """
    of_nothing = re.compile(r"^(mean|max)_|_(per_second|fraction)$")
    every = (metric for metrics in OPTIONAL_METRICS.values() for metric in metrics)
    return {metric.name: math.nan if of_nothing.search(metric.name) else 0.0 for metric in every}


UNUSED_VALUES = unused_values()

# What the general loop sums after the warm-up; in the order of a saved run, so new ones go to the end.
GENERAL_SUMS = (
    "updates",
    "batches",
    "trained_tokens",
    "trained_rollouts",
    "trained_groups",
    "generated_tokens",
    "generated_rollouts",
    "generated_groups",
    "discarded_tokens",
    "discarded_groups",
    "filtered_tokens",
    "filtered_groups",
    "evicted_tokens",
    "evicted_groups",
    "cancelled_tokens",
    "cancelled_groups",
    "wasted_tokens",
    "requeued_groups",
    "admitted_groups",
    "left_tokens",  # drawn lengths of the groups that left
    "left_rollouts",
    "syncs",
    "max_queue",  # -1: the measured span has not begun
    "max_lag",
    "lag_start_sum",  # over trained rollouts, in updates …
    "lag_dequeue_sum",
    "lag_training_sum",
    "lag_end_sum",
    "sync_lag_dequeue_sum",  # … and in publications
    "sync_lag_training_sum",
    "backpressure_ticks",
    "idle_slot_ticks",
    "batch_rows",
    "timeline_rows",
)

# Why slots are idle and why the trainer waits, in the order of precedence; each limit of the ledger follows
# the slots' list with a name of its own.
SLOT_CONSTRAINTS = ("busy", "publication", "max_running", "one_batch", "token_cap", "sequential", "held")
TRAINER_CONSTRAINTS = (
    "busy", "publication", "running_groups", "batch", "fetch", "evaluation", "checkpoint", "restart",
)  # fmt: skip
# Those that are told only where a configuration uses an option.
OPTIONAL_CONSTRAINTS = {
    "held": "hold",
    "fetch": "fetch",
    "evaluation": "evaluation",
    "checkpoint": "failures",
    "restart": "failures",
}


# What stands for "no value" in a column of whole numbers, which has no NaN.
SENTINELS = {"max_lag_observed": -1}


def with_nan(metric: str, values: np.ndarray) -> np.ndarray:
    """Return values of a metric as float64 in which NaN stands for none: a sentinel is never a number.

    Examples
    --------
    >>> with_nan("max_lag_observed", np.array([2, -1])).tolist()
    [2.0, nan]
    """
    values = np.asarray(values, np.float64)
    return np.where(values == SENTINELS[metric], np.nan, values) if metric in SENTINELS else values


class MetricAttributes:
    """Every metric as an attribute of a result, for editors and type checkers; the tables above rule.

    Metrics of levels 2 and 3 are there when the run has such a level.
    """

    updates: int
    trained_tokens: int
    trained_rollouts: int
    generated_tokens: int
    generated_rollouts: int
    discarded_tokens: int
    discarded_rollouts: int
    syncs: int
    max_queue_tokens_observed: int
    max_lag_observed: int
    final_version: int
    queued_tokens: int
    in_training_tokens: int
    stalled: bool
    trained_tokens_per_second: float
    effective_tokens_per_second: float
    backpressure_seconds: float
    idle_slot_seconds: float
    mean_queue_tokens: float
    mean_lag: float
    mean_normalized_ess: float
    min_normalized_ess: float
    mean_expected_normalized_ess: float
    seconds_per_update: float
    trainer_wait_seconds: float
    trainer_utilization: float
    rollout_utilization: float
    seconds_since_last_update: float

    trained_groups: int
    generated_groups: int
    admitted_groups: int
    discarded_groups: int
    filtered_groups: int
    filtered_tokens: int
    evicted_groups: int
    evicted_tokens: int
    cancelled_groups: int
    cancelled_tokens: int
    wasted_tokens: int
    requeued_groups: int
    queued_groups: int
    running_groups: int
    prefetched_groups: int
    unfinished_group_tokens: int
    mean_start_lag: float
    mean_dequeue_lag: float
    mean_rollout_lag: float
    mean_dequeue_lag_publications: float
    mean_rollout_lag_publications: float
    mean_end_lag: float
    mean_token_lag: float
    length_bias_law: float
    length_bias_drawn: float
    slots_busy_seconds: float
    slots_publication_seconds: float
    slots_max_running_seconds: float
    slots_one_batch_seconds: float
    slots_token_cap_seconds: float
    slots_sequential_seconds: float
    slots_limits_seconds: float
    trainer_busy_seconds: float
    trainer_publication_seconds: float
    trainer_running_groups_seconds: float
    trainer_batch_seconds: float
    last_progress_seconds: float

    slots_held_seconds: float
    trainer_fetch_seconds: float
    trainer_evaluation_seconds: float

    decode_steps: int
    decoded_tokens: int
    prefilled_tokens: int
    reprefilled_tokens: int
    preemptions: int
    engine_busy_seconds: float
    engine_idle_seconds: float
    mean_engine_running: float
    mean_engine_context_tokens: float
    mean_engine_waiting: float
    mean_kv_cache_share: float
    max_kv_cache_share: float
    engine_tokens_per_second: float
    slots_engine_queue_seconds: float

    lost_updates: int
    lost_tokens: int
    repeated_prompts: int
    trainer_checkpoint_seconds: float
    trainer_restart_seconds: float
    goodput_fraction: float
