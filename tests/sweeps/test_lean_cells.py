"""Runs of the lean loop that follow one another in one call are what each is alone."""

from __future__ import annotations

import numpy as np

from lagsweep import PipelineConfig
from lagsweep.sweeps.runs.lean import LeanCells
from lagsweep.sweeps.runs.simulate import simulate_pipeline


def test_a_drift_that_follows_another_has_its_own_weights():
    # Spreads by lag are kept from run to run: up to the largest lag so far, under the drift of the last run.
    config = PipelineConfig(duration_seconds=120, max_policy_lag=8)
    configs = [config.replace(drift_per_version=drift) for drift in (0.2, 0.5, 0.5, 0.0, 0.2)]
    cells = LeanCells(configs)
    metrics = np.zeros(len(configs), cells.REPORT)
    cells.begin(
        np.array([config.seed], np.uint64), metrics, np.zeros((len(configs), cells.lag_bins), np.int64)
    )
    while cells.finished < len(configs):
        cells.step()

    for one, found in zip(configs, metrics):
        alone = simulate_pipeline(one)
        for name in ("mean_normalized_ess", "min_normalized_ess", "mean_expected_normalized_ess"):
            assert found[name] == alone.metrics[name]
    assert len(set(metrics["mean_normalized_ess"].tolist())) == 3
