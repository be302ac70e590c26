"""A measured drift: both loops and their independent twin agree, integers exactly, floats to 1e-12."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
from oracle.drift_twin import DriftTwin
from oracle.level1 import run_level1
from oracle.level23 import run_level23
from scipy.special import ndtri
from strategies import general_configs, pipeline_configs
from strategies.general_configs import general_settings
from strategies.pipeline_configs import DRIFTS, pipeline_settings, with_measured_drift
from strategies.trainer_configs import trainer_settings

from lagsweep.sweeps.config.drift_rules import largest_lag
from lagsweep.sweeps.laws.drift import DriftLaw
from lagsweep.sweeps.runs.general import simulate_general
from lagsweep.sweeps.runs.simulate import simulate_pipeline

LEVEL_1 = {
    "duration_seconds": 40.0,
    "rollout_workers": 3,
    "decode_tokens_per_second": 60.0,
    "response_length": ("uniform", 16, 64),
    "max_queue_tokens": 400,
    "batch_tokens": 150,
    "train_overhead_seconds": 0.25,
    "train_tokens_per_second": 300.0,
    "max_policy_lag": 7,
    "sync_every_updates": 4,
}


def law_of(drift, beyond="last"):
    return DriftLaw.from_log_ratios(*zip(*drift), level="token", beyond=beyond)


@settings(max_examples=60)
@given(with_measured_drift(pipeline_settings()))
def test_random_configurations_of_both_loops_agree(drawn):
    config = pipeline_configs.to_config(drawn)
    twin = run_level1(pipeline_configs.to_twin(drawn))

    assert_same_run(simulate_pipeline(config, rollouts=True), twin)
    assert simulate_general(config).metrics["mean_normalized_ess"] == pytest.approx(
        twin["mean_normalized_ess"], rel=1e-12, nan_ok=True
    )


@settings(max_examples=60)
@given(with_measured_drift(general_settings()))
def test_random_configurations_with_every_option_agree(drawn):
    twin = run_level23(general_configs.to_twin(drawn))

    assert_same_run(simulate_general(general_configs.to_config(drawn), rollouts=True), twin)


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("simulate", [simulate_pipeline, simulate_general])
def test_every_lag_has_its_law(drift, simulate):
    drawn = {**LEVEL_1, "drift": drift}
    result = simulate(pipeline_configs.to_config(drawn), rollouts=True)
    twin = run_level1(pipeline_configs.to_twin(drawn))

    assert len({lag for batch in twin["batches"] for lag in batch["lags"]}) > 4
    assert_same_run(result, twin)


@pytest.mark.parametrize("drift", DRIFTS)
def test_moments_and_quantiles_are_those_of_the_definition(drift):
    table, twin = law_of(drift).table, DriftTwin(drift)
    for lag in range(len(table.share)):
        ours = table.first_moment[lag], table.second_moment[lag]
        assert ours == pytest.approx(twin.moments(lag), rel=1e-12)
        if lag in dict(drift):
            assert ours[0] == 1.0
    assert law_of(drift).normalized_ess(99) == law_of(drift).normalized_ess(max(twin.laws))


def test_a_normal_law_in_proportion_to_the_lag_gives_the_figures_of_a_drift_per_version():
    spread = 0.3
    normal = ndtri((np.arange(2**15) + 0.5) / 2**15)
    by_lag = [(lag, spread * math.sqrt(lag) * normal) for lag in range(1, 8)]
    measured = DriftLaw.from_log_ratios(*zip(*by_lag), level="token")
    assumed = pipeline_configs.to_config({**LEVEL_1, "drift_per_version": spread})
    ours = simulate_pipeline(assumed.replace(drift=measured, drift_per_version=0.2)).metrics
    theirs = simulate_pipeline(assumed).metrics

    for name in ("mean_expected_normalized_ess", "mean_normalized_ess", "effective_tokens_per_second"):
        assert ours[name] == pytest.approx(theirs[name], rel=2e-4)
    assert ours["trained_tokens"] == theirs["trained_tokens"]
    assert ours["mean_expected_normalized_ess"] < 0.9


@settings(max_examples=60)
@given(st.one_of(general_settings(), trainer_settings()))
def test_no_rollout_is_trained_beyond_the_largest_lag_of_the_rules(drawn):
    config = general_configs.to_config(drawn)
    bound = largest_lag(config)
    seen = simulate_general(config).max_lag_observed

    assert bound is None or seen <= bound
