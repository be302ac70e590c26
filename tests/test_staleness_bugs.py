"""Staleness and back-pressure bugs that were reported for real systems, each as a run that must behave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from strategies.round_runs import config_of, run, seed_with

from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.diagnosis import STARVED, explain_stall, progress_status
from lagsweep.sweeps.runs.general import GeneralRun, simulate_general


def reported(case_id):
    cases = json.loads((Path(__file__).parent / "data" / "staleness_bug_reports.json").read_text())
    return next(case for case in cases if case["id"] == case_id)


AHEAD = {
    "rollout_workers": 64,
    "batch_groups": 4,
    "sync_seconds": 0.25,
    "publication": "abort",
    "publication_blocks_trainer": True,
    "stale_check": "never",
}


def test_admission_keeps_its_counters_over_a_resume():
    case = reported("bug-stale-02")
    lag, batch = case["input"]["max_lag"], case["input"]["batch"]
    config = config_of(
        **AHEAD, limits=[Limit("started", "published", (lag + 1) * batch)], duration_seconds=1e6
    )
    at_version = case["input"]["restored_version"]
    first = GeneralRun(config.replace(stop_after_updates=at_version))
    first.advance()
    seconds = first.state.now / 1e6
    saved = GeneralRun(config, batches=True, timeline=True)
    saved.advance(seconds)
    resumed = GeneralRun.from_arrays(config, saved.arrays())
    assert resumed.result().final_version == at_version
    for _ in range(200):
        seconds += 0.25
        resumed.advance(seconds)
        result = resumed.result()
        outstanding = resumed.state.started - resumed.state.trained_groups
        assert outstanding <= case["expected"]["right_capacity"]
    assert result.final_version > at_version + 50
    assert result.max_lag_observed <= case["expected"]["max_observed_lag_after_resume"]


@pytest.mark.parametrize(("limit", "waits"), [(2, 0), (5, 2)])
def test_dropping_stale_work_starves_long_prompts_and_it_shows(limit, waits):
    # The report consumes at once; here a group waits in the queue for a step or two: so much more limit.
    case = reported("bug-stale-04")
    short, long = case["input"]["workers"]
    rate = short["tokens"] / short["duration_s"]
    law = LengthLaw.empirical([short["tokens"]] * 10 + [long["tokens"]])
    result = run(
        response_length=law,
        decode_tokens_per_second=rate,
        rollout_workers=8,
        batch_groups=4,
        train_overhead_seconds=case["input"]["publish_every_s"],
        sync_seconds=0.0,
        max_policy_lag=limit + waits,
        queue_order="oldest_version",
        limits=[Limit("finished", "popped", 8)],
        duration_seconds=1000.0,
    )
    kept = case["expected"][f"max_lag={limit}"]["kept"]["long"] > 0
    trained = {row.tokens for row in result.rollouts if row.outcome == "trained"}

    assert (long["tokens"] in trained) == kept
    if not kept:
        assert result.discarded_tokens > 0
        assert result.length_bias_law < 0.6
        assert result.length_bias_drawn < 1.0


def test_a_straggler_that_never_ends_leaves_a_run_that_says_what_is_missing():
    case = reported("bug-stale-07")
    groups = case["input"]["groups_per_batch"]
    law = LengthLaw.empirical([200, 200, 200, 10_000_000])
    config = config_of(
        response_length=law,
        seed=seed_with([200, 200, 200, 10_000_000], law),
        rollout_workers=case["input"]["workers"],
        batch_groups=groups,
        limits=[Limit("started", "trained", groups)],
        duration_seconds=case["input"]["horizon_s"],
    )
    result = simulate_general(config)

    assert progress_status(config, result) == STARVED == case["expected"]["status"]
    assert result.updates == case["expected"]["trained_steps"]
    assert result.queued_groups == case["expected"]["buffered_groups"]
    assert result.last_progress_seconds == case["expected"]["last_progress_s"]
    assert explain_stall(config, result) == (
        "starved, last progress at 2 s: 1 rollout ends after duration_seconds (1000), and batch_groups (4) "
        "waits for it."
    )


def test_back_pressure_is_counted_and_queue_time_counts_as_lag():
    case = reported("bug-stale-11")
    given, expected = case["input"], case["expected"]
    result = simulate_general(
        PipelineConfig(
            rollout_workers=given["workers"],
            response_length=LengthLaw.fixed(given["tokens_per_rollout"]),
            decode_tokens_per_second=given["tokens_per_rollout"] / given["generate_s"],
            rollout_overhead_seconds=0.0,
            max_queue_tokens=given["queue_capacity_tokens"],
            batch_tokens=given["batch_tokens"],
            train_overhead_seconds=given["train_step_s"],
            train_tokens_per_second=1e12,
            sync_seconds=0.0,
            max_policy_lag=5,
            duration_seconds=given["horizon_s"],
        )
    )

    assert result.updates == expected["trained_steps"]
    assert result.trained_tokens == expected["trained_tokens"]
    assert result.backpressure_seconds == expected["worker_blocked_s"]
    assert [batch.max_lag for batch in result.batches][:8] == expected["lag_first_8"]
    assert {batch.max_lag for batch in result.batches[8:]} == {expected["steady_lag"]}


def test_limits_of_a_whole_batch_let_the_first_step_complete_at_lag_zero():
    case = reported("bug-stale-13")
    given = case["input"]
    result = run(
        rollout_workers=given["workers"],
        batch_groups=given["batch"],
        max_policy_lag=given["max_lag"],
        max_running_groups=given["max_concurrent"],
        limits=[Limit("started", "published", (given["max_lag"] + 1) * given["batch"])],
    )

    assert result.updates >= case["expected"]["steps_completed_in_horizon_at_least"]
    assert result.max_lag_observed == given["max_lag"]
