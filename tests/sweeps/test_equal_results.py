"""When two results are equal, and that equal ones have one hash."""

from __future__ import annotations

import math
import pickle

from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.runs.simulate import simulate_pipeline

SHORT = PipelineConfig(duration_seconds=30)


def test_the_same_run_twice_is_equal_and_has_one_hash():
    one, again = simulate_pipeline(SHORT), simulate_pipeline(SHORT)

    assert one is not again
    assert one == again
    assert len({one, again}) == 1
    assert pickle.loads(pickle.dumps(one)) == one


def test_another_seed_or_setting_is_another_result():
    one = simulate_pipeline(SHORT)

    assert one != simulate_pipeline(SHORT.replace(seed=SHORT.seed + 1))
    assert one != simulate_pipeline(SHORT.replace(duration_seconds=40))
    assert one != one.metrics


def test_a_metric_that_differs_makes_two_results_of_one_configuration_differ():
    one, other = simulate_pipeline(SHORT), simulate_pipeline(SHORT)
    other.metrics["updates"] += 1

    assert one != other


def test_a_mean_of_nothing_equals_a_mean_of_nothing():
    nothing = PipelineConfig(duration_seconds=0.001)
    one, again = simulate_pipeline(nothing), simulate_pipeline(nothing)

    assert any(math.isnan(value) for value in one.metrics.values())
    assert one == again
