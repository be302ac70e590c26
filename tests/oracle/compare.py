"""Compare a result of the package with a run of the twin: integers exactly, floats to 1e-12."""

from __future__ import annotations

import math

INTEGERS = (
    "updates",
    "trained_tokens",
    "trained_rollouts",
    "generated_tokens",
    "generated_rollouts",
    "discarded_tokens",
    "discarded_rollouts",
    "syncs",
    "max_queue_tokens_observed",
    "max_lag_observed",
    "final_version",
    "queued_tokens",
    "in_training_tokens",
    "stalled",
)
FLOATS = (
    "trained_tokens_per_second",
    "effective_tokens_per_second",
    "backpressure_seconds",
    "idle_slot_seconds",
    "mean_queue_tokens",
    "mean_lag",
    "mean_normalized_ess",
    "min_normalized_ess",
    "mean_expected_normalized_ess",
    "seconds_per_update",
    "trainer_wait_seconds",
    "trainer_utilization",
    "rollout_utilization",
    "seconds_since_last_update",
)
BATCH_COLUMNS = (
    "update",
    "start",
    "end",
    "tokens",
    "rollouts",
    "mean_lag",
    "max_lag",
    "normalized_ess",
    "expected_normalized_ess",
    "measured",
)
TIMELINE_COLUMNS = ("time", "queue_tokens", "in_flight", "version", "published", "event")
ROLLOUT_COLUMNS = ("number", "tokens", "behaviour_version", "start", "end", "lag", "outcome", "truncated")


def same(ours, theirs):
    """Equal, NaN equal to NaN; floats within 1e-12, relative, absolute below 1."""
    if isinstance(theirs, float) and isinstance(ours, float):
        if math.isnan(theirs) or math.isnan(ours):
            return math.isnan(theirs) and math.isnan(ours)
        return abs(ours - theirs) <= 1e-12 * max(1.0, abs(theirs))
    return ours == theirs


def differences(result, twin, more=()):
    """List where a result differs from the twin's run, as readable lines; `more` names further metrics."""
    found = []
    for name in (*INTEGERS, *FLOATS, *more):
        ours, theirs = getattr(result, name), twin[name]
        if not same(ours, theirs):
            found.append(f"{name}: {ours!r}, the twin has {theirs!r}")
    if list(result.lag_counts) != twin["lag_counts"]:
        found.append(f"lag_counts: {list(result.lag_counts)}, the twin has {twin['lag_counts']}")
    for table, columns in (
        ("timeline", TIMELINE_COLUMNS),
        ("batches", BATCH_COLUMNS),
        ("rollouts", ROLLOUT_COLUMNS),
    ):
        ours, theirs = getattr(result, table), twin[table]
        if len(ours) != len(theirs):
            found.append(f"{table}: {len(ours)} rows, the twin has {len(theirs)}")
        for index, (mine, other) in enumerate(zip(ours, theirs)):
            wrong = [
                f"{name} {mine[name]!r}/{other[name]!r}"
                for name in columns
                if not same(mine[name], other[name])
            ]
            if wrong:
                found.append(f"{table}[{index}]: {', '.join(wrong)}")
                break
    return found


def assert_same_run(result, twin, more=()):
    """Fail with the list of differences, if there are any."""
    found = differences(result, twin, more)
    assert not found, "\n".join(found)
