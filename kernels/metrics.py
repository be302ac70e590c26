"""The names, types, units and meanings of what a run reports: one table that every layer reads.

The order is the order of the kernel's output rows and of a dataset's variables.
"""

from __future__ import annotations

from typing import NamedTuple


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
    Metric("effective_tokens_per_second", "float64", "tokens/s", "trained tokens times expected ESS per second"),
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
