"""The twin itself: the worked run of the semantics page, number by number, and small sums by hand."""

from __future__ import annotations

import math

import pytest
from oracle.level1 import run_level1, ticks


def fixed(tokens):
    return {"minimum": tokens, "cdf": [1.0], "cut": False}


WORKED = {
    "duration_seconds": 8.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": fixed(100),
    "max_queue_tokens": 300,
    "batch_tokens": 200,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 1,
    "sync_seconds": 0.5,
}


@pytest.fixture(scope="module")
def worked():
    return run_level1(WORKED)


def test_worked_run_batches(worked):
    spans = [(batch["start"], batch["end"]) for batch in worked["batches"]]
    assert spans == [(1.0, 3.0), (3.0, 5.0), (6.0, 8.0)]
    assert [batch["lags"] for batch in worked["batches"]] == [[0, 0], [1, 1], [1, 1]]
    assert worked["batches"][2]["numbers"] == [9, 8]
    assert [batch["update"] for batch in worked["batches"]] == [1, 2, 3]


def test_worked_run_counts(worked):
    assert worked["discarded_rollouts"] == 4
    assert worked["generated_tokens"] == 1400
    assert worked["max_queue_tokens_observed"] == 400
    assert worked["syncs"] == 2
    assert worked["updates"] == worked["final_version"] == 3
    assert worked["lag_counts"][:3] == [2, 4, 0]


def test_worked_run_seconds(worked):
    assert worked["backpressure_seconds"] == 1.0
    assert worked["idle_slot_seconds"] == 2.0
    assert worked["mean_queue_tokens"] == 125.0
    assert worked["trainer_wait_seconds"] == 2.0
    assert worked["rollout_utilization"] == 14.0 / 16.0


def test_ticks_round_half_up_and_are_held():
    assert ticks(0.5e-6) == 1
    assert ticks(0.4e-6) == 0
    assert ticks(1e300) == 2**52
    assert ticks(float("inf")) == 2**52


def test_sequential_phases_never_overlap():
    run = run_level1({**WORKED, "mode": "sequential", "duration_seconds": 12.0})
    spans = [(batch["start"], batch["end"]) for batch in run["batches"]]
    assert spans == [(1.0, 3.0), (4.5, 6.5), (8.0, 10.0)]
    assert run["max_lag_observed"] == 0
    assert run["mean_normalized_ess"] == 1.0
    assert run["backpressure_seconds"] == 0.0


def test_expected_ess_of_one_lag_is_exp_of_minus_the_drift_squared():
    run = run_level1({**WORKED, "drift_per_version": 0.5})
    assert run["batches"][1]["expected_normalized_ess"] == pytest.approx(math.exp(-0.25), rel=1e-14)


def test_a_stop_ends_the_run_with_its_update_and_its_settle():
    run = run_level1({**WORKED, "stop_after_updates": 2})
    assert run["end_ticks"] == 5_000_000
    assert run["final_version"] == 2
    assert run["timeline"][-1]["event"] == "update"
    assert run["seconds_since_last_update"] == 0.0
