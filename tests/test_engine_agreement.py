"""Pipelines with engines: the loop in closed form and the twin that takes single steps give the same run."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
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
