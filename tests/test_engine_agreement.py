"""Pipelines with engines: the loop in closed form and the twin that takes single steps give the same run."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run, same
from oracle.level23_engines import run_engines
from strategies.engine_configs import engine_settings, to_config, to_twin

from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, metrics_of_options
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
from lagsweep.sweeps.runs.general import GeneralRun, simulate_general

LEVELS = ("running", "engine_waiting", "kv_tokens")


def check(drawn):
    """Run both; every metric, event, batch and rollout is the same, and so is what engines hold."""
    twin, config = run_engines(to_twin(drawn)), to_config(drawn)
    result = simulate_general(config, rollouts=True)
    told = (*GENERAL_METRICS, *metrics_of_options(config.options_in_use))
    assert_same_run(result, twin, tuple(metric.name for metric in told))
    for ours, theirs in zip(result.timeline, twin["timeline"], strict=True):
        assert [ours[name] for name in LEVELS] == [theirs[name] for name in LEVELS], ours
    for ours, theirs in zip(result.engines_frame().iter_rows(named=True), twin["engines"], strict=True):
        assert all(same(ours[name], theirs[name]) for name in theirs), (ours, theirs)
    return result, twin


@settings(max_examples=400)
@given(engine_settings())
def test_random_pipelines_with_engines_agree(drawn):
    check(drawn)


@settings(max_examples=60)
@given(engine_settings(), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_stopping_anywhere_and_resuming_from_a_checkpoint_changes_nothing(drawn, shares):
    config = to_config(drawn)
    straight = simulate_general(config, rollouts=True)
    run = GeneralRun(config, batches=True, timeline=True, rollouts=True)
    for share in sorted(shares):
        run.step(int(share * drawn["duration_seconds"] * 1e6), budget=1 + int(share * 40))
        run = restore_simulation(simulation_checkpoint(run))
    run.advance()
    again = run.result()

    assert {name: repr(value) for name, value in again.metrics.items()} == {
        name: repr(value) for name, value in straight.metrics.items()
    }
    assert again.timeline == straight.timeline
    assert again.rollouts == straight.rollouts


# Two batches' worth of slots on engines whose steps end between ticks.
FRACTIONS = {
    "duration_seconds": 30.0,
    "rollout_workers": 6,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("uniform", 16, 64),
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 3,
    "prompt_tokens": 7,
    "engine": {
        "count": 2, "step_seconds": 0.0100000003, "step_seconds_per_rollout": 1e-3 / 3,
        "step_seconds_per_context_token": 1e-6 / 7, "prefill_seconds_per_token": 1e-5 / 3,
        "kv_cache_tokens": 150,
    },
}  # fmt: skip


@pytest.mark.parametrize("publication", ["background", "drain", "pause", "abort"])
@pytest.mark.parametrize("sync_seconds", [0.0, 1e-6, 0.004, 0.5])
def test_every_publication_style_agrees_when_steps_end_between_ticks(publication, sync_seconds):
    more = {"resume_seconds": 0.25} if publication == "abort" else {}
    _, twin = check({**FRACTIONS, "publication": publication, "sync_seconds": sync_seconds, **more})
    if publication == "abort" and sync_seconds < 0.01:
        assert "admission_between_ticks" in twin["reached"]


@pytest.mark.parametrize("routing", ["least_loaded", "round_robin", "group"])
@pytest.mark.parametrize("action", ["drop", "requeue"])
def test_routings_with_groups_and_cancellation_agree(routing, action):
    _, twin = check(
        {
            **FRACTIONS,
            "group_size": 3,
            "max_policy_lag": 0,
            "cancel_in_flight": True,
            "stale_action": action,
            "publication": "pause",
            "sync_seconds": 0.1,
            "engine": {**FRACTIONS["engine"], "routing": routing},
        }
    )
    assert "cancelled" in twin["reached"]


def test_training_is_slowed_by_steps_and_turns_agree():
    check({**FRACTIONS, "train_slowdown_when_generating": 0.5, "publication": "pause", "sync_seconds": 0.3})
    check({**FRACTIONS, "generation_while_training": False, "publication": "abort", "sync_seconds": 0.3})
