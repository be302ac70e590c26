"""Failures: loop and twin agree, what is lost adds up, and stopping anywhere changes nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
from oracle.level4 import run_level4
from oracle.trace_rules import check_rules
from strategies.failing_configs import failing_settings, to_config, to_twin

from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, metrics_of_options
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
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


@settings(max_examples=400)
@given(failing_settings())
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
