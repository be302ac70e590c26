"""The kernel and its independent twin give the same run: integers exactly, floats to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from oracle.compare import assert_same_run
from oracle.level1 import run_level1
from strategies.pipeline_configs import LAWS, build_law, law_table, pipeline_settings, to_config, to_twin

from lagsweep.sweeps.runs.simulate import simulate_pipeline

# Two slots, one-second rollouts of 100 tokens, a step of two seconds: every event falls on half seconds.
ROUND = {
    "duration_seconds": 20.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("fixed", 100),
    "max_queue_tokens": 300,
    "batch_tokens": 200,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 1,
    "sync_seconds": 0.5,
}


def agree(**changes):
    """Run both on the round settings with some changed; return the twin's run."""
    drawn = {**ROUND, **changes}
    twin = run_level1(to_twin(drawn))
    assert_same_run(simulate_pipeline(to_config(drawn), rollouts=True), twin)
    return twin


@settings(max_examples=400)
@given(pipeline_settings())
def test_random_configurations_agree(drawn):
    twin = run_level1(to_twin(drawn))
    assert_same_run(simulate_pipeline(to_config(drawn), rollouts=True), twin)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_the_defaults_agree_at_any_seed(seed):
    drawn = {"response_length": ("lognormal", 300, 0.6, 16, 2048), "seed": seed}
    assert_same_run(simulate_pipeline(to_config(drawn), rollouts=True), run_level1(to_twin(drawn)))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: "-".join(str(part) for part in law)[:24])
def test_length_tables_agree(law):
    minimum, cdf, cut = law_table(law)
    ours = build_law(law)
    assert (ours.minimum, ours.cut_at_maximum) == (minimum, cut)
    np.testing.assert_allclose(ours.cdf, cdf, rtol=0, atol=4e-16)


def test_the_worked_run_agrees():
    twin = agree(duration_seconds=8.0)
    assert twin["discarded_rollouts"] == 4


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_ties_agree(workers):
    twin = agree(rollout_workers=workers, max_queue_tokens=2000, sync_seconds=1.0)
    assert "tie" in twin["reached"]
    assert twin["updates"] > 5


def test_publication_step_and_rollout_in_one_tick_agree():
    # Rollouts of 1 s, steps of 2 s, publications of 2 s: from 3 s on all three kinds meet at odd seconds.
    twin = agree(sync_seconds=2.0, max_policy_lag=3, max_queue_tokens=2000)
    meeting = {row["event"] for row in twin["timeline"] if row["time"] == 5.0}
    assert meeting == {"publication", "update", "rollout"}


@pytest.mark.parametrize("sync_seconds", [0.0, 1e-7])
def test_publications_of_no_ticks_agree(sync_seconds):
    twin = agree(sync_seconds=sync_seconds)
    assert twin["syncs"] == twin["updates"]
    assert "instant_publication" in twin["reached"]
    assert all(row["event"] != "publication" for row in twin["timeline"])


def test_steps_of_no_ticks_agree():
    twin = agree(train_overhead_seconds=0.0, train_tokens_per_second=1e12)
    assert all(batch["start"] == batch["end"] for batch in twin["batches"])
    assert twin["updates"] == 20


def test_rollouts_of_no_ticks_last_one():
    twin = agree(decode_tokens_per_second=1e18, duration_seconds=50e-6, train_tokens_per_second=1e18)
    assert twin["rollouts"][0]["end"] == 1e-6


def test_all_durations_zero_agree():
    twin = agree(
        decode_tokens_per_second=1e18,
        train_overhead_seconds=0.0,
        train_tokens_per_second=1e18,
        sync_seconds=0.0,
        duration_seconds=40e-6,
    )
    assert twin["updates"] == 40


@pytest.mark.parametrize("sync_seconds", [0.0, 0.5])
def test_a_cap_below_the_batch_agrees(sync_seconds):
    twin = agree(max_queue_tokens=50, batch_tokens=500, sync_seconds=sync_seconds)
    assert twin["stalled"]
    assert twin["updates"] == 0


def test_reserve_with_a_cap_below_batch_and_maximum_agrees():
    twin = agree(
        admission="reserve", max_queue_tokens=250, batch_tokens=200, response_length=("uniform", 50, 150)
    )
    assert twin["max_queue_tokens_observed"] <= 250
    assert twin["stalled"]


@pytest.mark.parametrize("mode", ["bounded_async", "sequential"])
def test_a_cadence_above_the_lag_agrees(mode):
    twin = agree(mode=mode, sync_every_updates=4, max_policy_lag=1)
    assert "starvation" in twin["reached"]
    assert twin["updates"] == 2


@pytest.mark.parametrize("mode", ["bounded_async", "sequential"])
def test_a_batch_of_one_token_agrees(mode):
    twin = agree(mode=mode, batch_tokens=1, response_length=("uniform", 1, 4), duration_seconds=8.0)
    assert all(batch["rollouts"] == 1 for batch in twin["batches"])
    assert twin["updates"] > 2


@pytest.mark.parametrize("mode", ["bounded_async", "sequential"])
@pytest.mark.parametrize("admission", ["threshold", "reserve"])
def test_one_slot_agrees(mode, admission):
    twin = agree(mode=mode, admission=admission, rollout_workers=1)
    assert twin["updates"] > 2


@pytest.mark.parametrize("duration", [1.0, 3.0, 5.0, 5.5])
def test_an_event_on_the_horizon_happens_in_both(duration):
    twin = agree(duration_seconds=duration, sync_seconds=2.5, max_policy_lag=3)
    assert "event_on_horizon" in twin["reached"]
    assert twin["timeline"][-1]["time"] == duration


def test_a_horizon_one_tick_before_an_event_agrees():
    twin = agree(duration_seconds=2.999999)
    assert twin["updates"] == 0
    assert agree(duration_seconds=3.0)["updates"] == 1


@pytest.mark.parametrize("updates", [1, 2, 3, 100])
@pytest.mark.parametrize("mode", ["bounded_async", "sequential"])
def test_a_stop_after_an_update_agrees(updates, mode):
    twin = agree(stop_after_updates=updates, mode=mode)
    assert twin["final_version"] == updates or updates == 100


@pytest.mark.parametrize("warmup", [0.0, 2.0, 4.0, 5.0, 6.0, 10.0])
def test_a_stop_before_at_and_after_the_warmup_agrees(warmup):
    twin = agree(stop_after_updates=2, warmup_seconds=warmup)
    assert twin["final_version"] == 2
    assert twin["updates"] == {0.0: 2, 2.0: 2, 4.0: 1}.get(warmup, 0)


@pytest.mark.parametrize("warmup", [1.0, 3.0, 3.5, 5.0, 10.0])
def test_a_warmup_on_an_event_agrees(warmup):
    twin = agree(warmup_seconds=warmup)
    assert "event_on_warmup" in twin["reached"]
    assert [batch["measured"] for batch in twin["batches"]] == [
        batch["end"] > warmup for batch in twin["batches"]
    ]


def test_a_warmup_one_tick_before_an_update_counts_it():
    assert agree(warmup_seconds=2.999999)["updates"] == agree(warmup_seconds=3.0)["updates"] + 1


def test_a_waiting_publication_that_is_replaced_agrees():
    twin = agree(train_overhead_seconds=0.0, sync_seconds=7.0, max_policy_lag=10)
    assert "replaced_publication" in twin["reached"]
    published = [row["published"] for row in twin["timeline"] if row["event"] == "publication"]
    assert published[0] == 1
    assert published[1] > 2


def test_lags_of_64_and_more_share_the_last_bin():
    twin = agree(
        batch_tokens=1,
        train_overhead_seconds=0.0,
        train_tokens_per_second=1e12,
        max_policy_lag=200,
        sync_every_updates=100,
        duration_seconds=60.0,
    )
    assert twin["lag_counts"][64] > 10
    assert twin["max_lag_observed"] > 64


@pytest.mark.parametrize("drift", [0.0, 1.0, 10.0])
def test_ess_agrees_where_weights_overflow(drift):
    twin = agree(drift_per_version=drift, max_policy_lag=100, sync_every_updates=30, duration_seconds=100.0)
    assert twin["max_lag_observed"] > 20
    assert 0.0 <= twin["mean_expected_normalized_ess"] <= 1.0
