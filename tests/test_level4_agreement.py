"""Failures: loop and twin agree, what is lost adds up, and stopping anywhere changes nothing."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
from oracle.level4 import run_level4
from oracle.trace_rules import check_rules
from strategies.failing_configs import failing_settings, to_config, to_twin
from strategies.pipeline_configs import pipeline_settings

from lagsweep.kernels.errors import ConfigError
from lagsweep.kernels.pipeline import records
from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, OPTIONAL_METRICS, metrics_of_options
from lagsweep.kernels.recovery.cost import expected_overhead_fraction
from lagsweep.kernels.recovery.interval import optimal_checkpoint_interval
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.runs.general import GeneralRun, simulate_general
from lagsweep.sweeps.trace.events import trace_events
from lagsweep.sweeps.trace.tracks import tracks_of

# Everything fails often: a step takes a second, and so does a rollout.
BUSY = {
    "duration_seconds": 120.0,
    "rollout_workers": 4,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("uniform", 16, 164),
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 4,
    "limits": (("started", "popped", 8),),
    "prefetch_batches": 1,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 400.0,
    "max_policy_lag": 100,
    "sync_seconds": 0.5,
    "publication": "pause",
    "trainer_mtbf_seconds": 12.0,
    "restart_seconds": 2.5,
    "checkpoint_every_updates": 2,
    "checkpoint_seconds": 0.75,
    "worker_mtbf_seconds": 20.0,
}


def check(drawn):
    """Run both; return the twin's run and the result."""
    config, twin = to_config(drawn), run_level4(to_twin(drawn))
    told = (*GENERAL_METRICS, *metrics_of_options(config.options_in_use))
    result = simulate_general(config, rollouts=True)
    assert_same_run(result, twin, tuple(metric.name for metric in told))
    if config.trainer_mtbf_seconds is not None:
        assert [row.lost for row in result.batches] == [row["lost"] for row in twin["batches"]]
    return twin, result


# Its checkpoint is older than the room that was made for more groups.
GROWN = {
    "response_length": ("fixed", 100), "rollout_workers": 1, "decode_tokens_per_second": 200.0,
    "rollout_overhead_seconds": 0.0, "max_queue_tokens": None, "batch_tokens": None, "batch_groups": 1,
    "train_overhead_seconds": 0.0, "train_tokens_per_second": 100.0, "max_policy_lag": 0,
    "drift_per_version": 0.0, "duration_seconds": 20.0, "group_size": 1, "stale_check": "never",
    "trainer_mtbf_seconds": 20 / 3, "restart_seconds": 0.0, "checkpoint_every_updates": 1,
    "checkpoint_seconds": 0.0, "checkpoint_scope": "full", "worker_mtbf_seconds": 10.0,
}  # fmt: skip

# What comes back from a checkpoint runs again with its own draws, and with those of its prompt.
REDRAWN = GROWN | {
    "response_length": ("uniform", 16, 64), "decode_tokens_per_second": 80.0, "batch_groups": None,
    "batch_tokens": 2, "train_tokens_per_second": 1e12, "duration_seconds": 40.0, "group_size": 2,
    "prompt_sigma": 0.3, "sync_seconds": 0.0, "stale_check": "update", "stale_action": "requeue",
    "redraw_on_requeue": True, "limits": (), "prefetch_batches": 0, "publication": "background",
    "trainer_mtbf_seconds": 40 / 3, "worker_mtbf_seconds": 20.0,
}  # fmt: skip


@settings(max_examples=400)
@given(failing_settings())
@example(REDRAWN)
def test_random_failures_agree(drawn):
    check(drawn)


@settings(max_examples=200)
@given(failing_settings(engines=True))
def test_random_failures_with_engines_agree(drawn):
    check(drawn)


# --- stopping anywhere changes nothing --------------------------------------------------------------------


def assert_same_result(ours, theirs):
    """Fail unless two results are the same, bit for bit."""
    assert {name: repr(value) for name, value in ours.metrics.items()} == {
        name: repr(value) for name, value in theirs.metrics.items()
    }
    assert ours.timeline == theirs.timeline
    assert ours.batches == theirs.batches
    assert ours.rollouts == theirs.rollouts
    assert ours.trainer_ticks == theirs.trainer_ticks


@settings(max_examples=80)
@given(failing_settings() | failing_settings(engines=True), st.lists(st.floats(0, 1), min_size=1, max_size=4))
@example(GROWN, [1.0])
def test_a_run_with_failures_saved_anywhere_goes_on_as_if_nothing_had_been(drawn, shares):
    config = to_config(drawn)
    straight = simulate_general(config, rollouts=True)
    run = GeneralRun(config, batches=True, timeline=True, rollouts=True)
    for share in sorted(shares):
        run.step(int(share * drawn["duration_seconds"] * 1e6), budget=1 + int(share * 40))
        run = restore_simulation(simulation_checkpoint(run))
    run.advance()
    assert_same_result(run.result(), straight)


@pytest.mark.parametrize("scope", ["full", "weights_only"])
def test_a_run_is_saved_after_every_event_in_the_midst_of_restarts_and_checkpoints(scope):
    config = to_config(BUSY | {"checkpoint_scope": scope})
    straight = simulate_general(config, rollouts=True)
    run, stood_in = GeneralRun(config, batches=True, timeline=True, rollouts=True), set()
    for row in straight.timeline:
        run.advance(row.time)
        run = restore_simulation(simulation_checkpoint(run))
        stood_in.add(row.trainer_bound_by)
    run.advance()
    assert stood_in >= {"restart", "checkpoint", "busy"}
    assert_same_result(run.result(), straight)


# --- traces -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(failing_settings())
def test_traces_of_runs_with_failures_keep_the_rules_of_their_format(drawn):
    result = simulate_general(to_config(drawn), rollouts=True)
    check_rules(list(trace_events(result, tracks_of(result))), [row.number for row in result.rollouts])


def test_a_trace_tells_every_failure_checkpoint_and_restart():
    result = simulate_general(to_config(BUSY), rollouts=True)
    events = list(trace_events(result, tracks_of(result)))
    of_timeline = Counter(row.event for row in result.timeline)
    instants = Counter(event["name"] for event in events if event["ph"] == "i")
    assert instants["failure"] == of_timeline["failure"] > 3
    assert instants["worker failure"] == of_timeline["worker_failure"] > 3
    seconds = Counter()
    for event in events:
        if event["ph"] == "X":
            seconds[event["name"]] += event["dur"] / 1e6
    assert seconds["checkpoint"] == pytest.approx(result.trainer_checkpoint_seconds)
    assert seconds["restart"] == pytest.approx(result.trainer_restart_seconds)
    busy = sum(row.end - row.start for row in result.batches)
    assert seconds["lost step"] + busy == pytest.approx(result.trainer_busy_seconds, abs=2.0)
    lost = [event["name"] for event in events if event.get("args", {}).get("outcome") == "lost in a failure"]
    assert sum(name.startswith("update ") for name in lost) == sum(row.lost for row in result.batches)
    assert any(name.startswith("lost: publish") for name in lost)


# --- what holds whatever fails ------------------------------------------------------------------------------


@settings(max_examples=150)
@given(failing_settings() | failing_settings(engines=True))
def test_what_is_generated_is_trained_lost_or_still_there(drawn):
    config = to_config(drawn | {"warmup_seconds": 0.0})
    run = simulate_general(config, rollouts=True)
    gone = (
        run.trained_tokens + run.discarded_tokens + run.filtered_tokens + run.evicted_tokens
        + run.cancelled_tokens + run.lost_tokens + run.queued_tokens + run.in_training_tokens
        + run.unfinished_group_tokens
    )  # fmt: skip
    # A queue that comes back brings what had been trained or discarded once more.
    full = config.trainer_mtbf_seconds is not None and config.checkpoint_scope == "full"
    assert gone >= run.generated_tokens if full else gone == run.generated_tokens
    assert run.updates == run.final_version + run.lost_updates
    assert run.trained_rollouts == sum(run.lag_counts)
    outcomes = Counter(row.outcome for row in run.rollouts)
    assert outcomes["trained"] == run.trained_rollouts
    assert outcomes["running"] == run.timeline[-1].in_flight
    kept = [row for row in run.batches if not (config.trainer_mtbf_seconds is not None and row.lost)]
    assert run.trained_tokens == sum(row.tokens for row in kept)


@settings(max_examples=150)
@given(failing_settings() | failing_settings(engines=True))
def test_causes_add_up_and_goodput_is_its_formula(drawn):
    config = to_config(drawn)
    run = GeneralRun(config, batches=True, timeline=True)
    run.advance()
    result, state = run.result(), run.state
    end = round(config.duration_seconds * 1e6) if not state.ended else int(state.now)
    measured = max(0, end - round(config.warmup_seconds * 1e6))
    assert sum(result.trainer_ticks.values()) == measured
    assert sum(result.slot_ticks.values()) == config.rollout_workers * measured
    waits = sum(result.trainer_ticks[name] for name in ("running_groups", "batch"))
    waits += result.trainer_ticks.get("fetch", 0)
    if measured > waits:
        busy = result.goodput_fraction * (measured - waits)
        assert -1 <= busy <= result.trainer_ticks["busy"] + 1
        if not result.lost_updates and config.trainer_mtbf_seconds is None:
            assert busy == pytest.approx(result.trainer_ticks["busy"])
    else:
        assert math.isnan(result.goodput_fraction)


@settings(max_examples=60)
@given(failing_settings() | failing_settings(engines=True))
def test_every_slot_and_every_quota_is_given_back_once(drawn):
    config = to_config(drawn)
    run = GeneralRun(config)
    moments = np.linspace(0.0, config.duration_seconds, 25)
    for moment in moments:
        run.advance(float(moment))
        groups, state = run.held.groups, run.state
        states = Counter(groups["state"][1:].tolist())
        live = states[records.GROUP_RUNNING] + states[records.GROUP_QUEUED] + states[records.GROUP_POPPED]
        assert state.started == run.held.failures[0].kept_groups + live
        assert state.free == states[records.GROUP_UNUSED]
        phases = run.held.slots["phase"]
        assert state.idle == np.count_nonzero(phases == records.EMPTY)
        assert sorted(run.held.slots["idle_stack"][: state.idle]) == np.flatnonzero(phases == 0).tolist()
        started = groups["started"] - groups["finished"]
        in_flight = int(started[groups["state"] == records.GROUP_RUNNING].sum())
        assert in_flight == config.rollout_workers - state.idle - state.held


@settings(max_examples=100)
@given(pipeline_settings(), st.sampled_from([3, 8, 20]), st.sampled_from(["full", "weights_only"]))
def test_queue_and_lag_keep_their_bounds_between_failures(drawn, failures, scope):
    failing = {"trainer_mtbf_seconds": drawn["duration_seconds"] / failures, "checkpoint_scope": scope}
    failing |= {"checkpoint_every_updates": 1, "restart_seconds": drawn["duration_seconds"] / 40}
    config = to_config(drawn | failing)
    run = simulate_general(config, rollouts=True)
    longest = config.response_length.maximum
    if config.mode == "sequential":
        bound = config.batch_tokens + config.rollout_workers * longest
    else:
        bound = config.max_queue_tokens
        bound += config.rollout_workers * longest if config.admission == "threshold" else 1
    assert all(row.queue_tokens < bound for row in run.timeline)
    assert all(row.max_lag <= config.max_policy_lag for row in run.batches)
    for before, row in itertools.pairwise(run.timeline):
        assert row.published <= row.version
        if row.event == "failure":
            assert row.published == row.version <= before.version
            assert row.version % config.checkpoint_every_updates == 0
        else:
            assert row.published >= before.published


# --- by hand ------------------------------------------------------------------------------------------------

# One slot whose rollout of a microsecond is a batch; a step takes 10 s.
IDEAL = {
    "rollout_workers": 1,
    "response_length": ("fixed", 1),
    "decode_tokens_per_second": 1e9,
    "rollout_overhead_seconds": 0.0,
    "max_queue_tokens": 1,
    "batch_tokens": 1,
    "train_tokens_per_second": 1e9,
    "max_policy_lag": 10**6,
    "sync_seconds": 0.0,
}


def overhead(checkpoint, mtbf, step, cadence, updates, seed, **more):
    """Return extra seconds per second of work of a trainer whose data are always ready."""
    failing = {"trainer_mtbf_seconds": mtbf, "checkpoint_seconds": checkpoint}
    failing |= {"checkpoint_every_updates": cadence, "stop_after_updates": updates, "seed": seed}
    length = {"duration_seconds": 2e9, "train_overhead_seconds": step}
    run = GeneralRun(to_config(IDEAL | failing | length | more))
    run.advance()
    summary = run.summary()
    assert summary.final_version == updates
    return float(summary.last_progress_seconds) / (updates * step) - 1.0


# Seconds of a checkpoint, between failures and of a step: an example of Young's rule, and one of J. T. Daly,
# FGCS 22 (2006) 303-312, whose best interval is 9.1 minutes.
@pytest.mark.parametrize(("checkpoint", "mtbf", "step"), [(180.0, 36000.0, 300.0), (300.0, 900.0, 30.0)])
def test_the_exact_optimum_has_within_two_percent_the_least_overhead(checkpoint, mtbf, step):
    best = round(optimal_checkpoint_interval(checkpoint, mtbf, method="exact") / step)
    cadences = sorted({max(1, round(best * share)) for share in (0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 2.5)})
    updates = round(600 * mtbf / step)
    found = {}
    for cadence in cadences:
        whole = updates // cadence * cadence
        found[cadence] = np.mean([overhead(checkpoint, mtbf, step, cadence, whole, seed) for seed in (1, 2)])
    assert found[best] <= 1.02 * min(found.values())
    assert max(found.values()) > 1.1 * found[best]  # the ends of the range are worse: there is an optimum
    for cadence, value in found.items():
        expected = expected_overhead_fraction(cadence * step, checkpoint, mtbf)
        assert value == pytest.approx(expected, rel=0.12)


def test_goodput_of_an_ideal_trainer_is_what_its_overhead_leaves():
    config = to_config(
        IDEAL
        | {
            "duration_seconds": 1e6,
            "train_overhead_seconds": 10.0,
            "trainer_mtbf_seconds": 2000.0,
            "restart_seconds": 100.0,
            "checkpoint_every_updates": 10,
            "checkpoint_seconds": 20.0,
        }
    )
    result = simulate_general(config)
    assert result.goodput_fraction == pytest.approx(10.0 * result.final_version / 1e6, rel=1e-3)
    assert result.trainer_restart_seconds == pytest.approx(100.0 * _failures(result), abs=100.0)
    assert result.lost_updates == result.updates - result.final_version > 0


def _failures(result):
    return sum(row.event == "failure" for row in result.timeline)


def test_a_queue_that_fills_during_a_restart_hides_it_and_weights_alone_lose_it():
    failing = {"trainer_mtbf_seconds": 1200.0, "restart_seconds": 180.0, "checkpoint_every_updates": 20}
    base = {"duration_seconds": 60_000.0, "response_length": ("uniform", 200, 400), "max_policy_lag": 10**6}
    base |= {
        "batch_tokens": 2500,
        "train_tokens_per_second": 360.0,
        "rollout_workers": 5,
        "sync_seconds": 0.0,
    }
    base |= {"rollout_overhead_seconds": 0.5, "decode_tokens_per_second": 50.0}
    base |= {"train_overhead_seconds": 1.0}

    def trained(cap, more):
        configs = [to_config(base | {"max_queue_tokens": cap, "seed": seed} | more) for seed in range(4)]
        return sum(simulate_general(config).trained_tokens for config in configs)

    def loss(cap, **more):
        return 1.0 - trained(cap, failing | more) / trained(cap, {})

    assert loss(75_000) < loss(2_600) - 0.02
    assert loss(75_000) < loss(75_000, checkpoint_scope="weights_only")


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_alone", "needed"),
    [
        ({"restart_seconds": 3.0}, "trainer_mtbf_seconds"),
        ({"checkpoint_seconds": 3.0}, "checkpoint_every_updates"),
        ({"checkpoint_scope": "weights_only"}, "trainer_mtbf_seconds and checkpoint_every_updates"),
        (
            {"checkpoint_scope": "weights_only", "trainer_mtbf_seconds": 9.0},
            "trainer_mtbf_seconds and checkpoint_every_updates",
        ),
    ],
)
def test_a_cost_without_its_cause_is_refused(given_alone, needed):
    (name, *_) = given_alone
    with pytest.raises(ConfigError, match=f"{name}: has an effect with {needed} only"):
        PipelineConfig(**given_alone)


@pytest.mark.parametrize("name", ["trainer_mtbf_seconds", "worker_mtbf_seconds", "checkpoint_every_updates"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True])
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        PipelineConfig(**{name: value})


def test_runs_without_failures_keep_their_metrics_and_their_saved_form():
    told = {metric.name for metric in OPTIONAL_METRICS["failures"]}
    run = GeneralRun(PipelineConfig(duration_seconds=30.0, publication="pause"))
    run.advance()
    assert told.isdisjoint(run.result().metrics)
    assert not any("saved" in name or "fail" in name or "worker" in name for name in run.arrays())
    assert run.arrays()["trainer_ticks"].shape == (6,)
    failing = simulate_general(PipelineConfig(duration_seconds=30.0, worker_mtbf_seconds=20.0))
    assert told <= set(failing.metrics)


def test_where_nothing_can_fail_in_time_the_run_is_the_one_without_failures():
    base = PipelineConfig(duration_seconds=200.0, group_size=2, publication="abort", resume_seconds=0.5)
    plain = simulate_general(base, rollouts=True)
    rare = simulate_general(base.replace(trainer_mtbf_seconds=1e12, worker_mtbf_seconds=1e12), rollouts=True)
    for name, value in plain.metrics.items():
        np.testing.assert_array_equal(rare.metrics[name], value, err_msg=name)
    assert rare.timeline == plain.timeline
    assert rare.rollouts == plain.rollouts
    assert rare.lost_updates == rare.lost_tokens == rare.repeated_prompts == 0
