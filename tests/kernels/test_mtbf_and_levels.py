"""Mean time between failures from observations, and checkpoints on several levels of storage."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    mtbf_estimate,
    multilevel_checkpoints,
    optimal_checkpoint_interval,
    scale_mtbf_seconds,
)


# Runs that reached their time limit did not fail: llnl/scr#239.
def test_only_failures_count_against_the_run_time():
    runs_hours, failures = [12, 12, 12, 12], 1
    estimate = mtbf_estimate(run_seconds=sum(runs_hours) * 3600, failures=failures)
    every_end = mtbf_estimate(run_seconds=sum(runs_hours) * 3600, failures=len(runs_hours))

    assert estimate.mtbf_seconds / 3600 == 48.0
    assert estimate.source == "run time and failures"
    assert optimal_checkpoint_interval(300.0, estimate.mtbf_seconds) / 60 == pytest.approx(
        169.7056274847714, rel=1e-9
    )
    assert optimal_checkpoint_interval(300.0, every_end.mtbf_seconds) / 60 == pytest.approx(
        84.8528137423857, rel=1e-9
    )


def test_a_rate_is_taken_as_it_is_and_named():
    estimate = mtbf_estimate(failures_per_second=1 / 36_000)

    assert estimate.source == "failure rate"
    assert (
        estimate.mtbf_seconds == estimate.lower_seconds == estimate.upper_seconds == pytest.approx(36_000.0)
    )


def test_the_published_failures_of_a_large_run():
    # Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs.
    estimate = mtbf_estimate(run_seconds=54 * 86_400, failures=419)

    assert round(estimate.mtbf_seconds) == 11_135
    assert scale_mtbf_seconds(estimate.mtbf_seconds, measured_devices=16_384, devices=1024) == pytest.approx(
        16 * estimate.mtbf_seconds
    )


@given(time=st.floats(1.0, 1e9), failures=st.integers(1, 500), confidence=st.floats(0.5, 0.99))
def test_the_interval_holds_the_means_that_the_count_does_not_contradict(time, failures, confidence):
    estimate = mtbf_estimate(run_seconds=time, failures=failures, confidence=confidence)
    tail = (1 - confidence) / 2

    assert estimate.lower_seconds < estimate.mtbf_seconds < estimate.upper_seconds
    # At the ends the observed count, or a more extreme one, has exactly the tail's probability.
    assert poisson.cdf(failures, time / estimate.lower_seconds) == pytest.approx(tail, rel=1e-6)
    assert poisson.sf(failures - 1, time / estimate.upper_seconds) == pytest.approx(tail, rel=1e-6)


def test_without_failures_only_the_lower_end_is_known():
    estimate = mtbf_estimate(run_seconds=[100.0, 200.0], failures=[0, 0])

    assert estimate.mtbf_seconds.tolist() == estimate.upper_seconds.tolist() == [np.inf, np.inf]
    assert estimate.lower_seconds == pytest.approx(np.array([100.0, 200.0]) / -np.log(0.025))


def test_one_job_may_be_asked_about_several_counts_of_failures():
    assert mtbf_estimate(run_seconds=100.0, failures=[1, 2]).mtbf_seconds.tolist() == [100.0, 50.0]


levels = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0.1, 1e3), min_size=n, max_size=n),
        st.lists(st.floats(1e3, 1e7), min_size=n, max_size=n),
    )
)


@given(level=levels)
def test_no_pattern_beats_the_bound_and_each_level_is_youngs(level):
    costs, means = level
    found = multilevel_checkpoints(costs, means)

    assert found.interval_seconds == pytest.approx(optimal_checkpoint_interval(costs, means))
    assert found.minimum_overhead == pytest.approx(np.sqrt(2 * np.array(costs) / means).sum())
    assert found.pattern_overhead >= found.minimum_overhead * (1 - 1e-12)
    multiples = found.pattern_multiples
    assert multiples[0] == 1
    assert (multiples[1:] % multiples[:-1] == 0).all()


@given(level=levels)
def test_the_patterns_overhead_is_that_of_its_intervals(level):
    costs, means = np.array(level[0]), np.array(level[1])
    found = multilevel_checkpoints(costs, means)
    intervals = found.pattern_interval_seconds * found.pattern_multiples

    assert (costs / intervals + intervals / (2 * means)).sum() == pytest.approx(found.pattern_overhead)


def test_the_pattern_is_within_half_a_percent_of_every_nested_pattern():
    rng = np.random.default_rng(20263)
    for _ in range(40):
        costs, means = np.sort(10 ** rng.uniform(0, 3, 3)), np.sort(10 ** rng.uniform(3, 7, 3))
        best = min(
            np.sqrt(2 * (costs / [1, a, a * b]).sum() * (np.array([1, a, a * b]) / means).sum())
            for a, b in product(range(1, 60), repeat=2)
        )

        assert multilevel_checkpoints(costs, means).pattern_overhead <= 1.005 * best


def test_levels_lie_on_the_last_axis():
    many = multilevel_checkpoints([2.0, 50.0], [[1e4, 1.6e5], [1e5, 1e6]])
    one = multilevel_checkpoints([2.0, 50.0], [1e5, 1e6])

    assert many.pattern_multiples.shape == (2, 2)
    assert many.minimum_overhead[1] == one.minimum_overhead
    assert many.pattern_overhead[1] == one.pattern_overhead


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: mtbf_estimate(run_seconds=100.0),
            "failures: must be given (got None). "
            "Give run_seconds and failures, or failures_per_second alone.",
        ),
        (
            lambda: mtbf_estimate(run_seconds=100.0, failures=1, failures_per_second=0.1),
            "failures_per_second: must not stand beside run_seconds or failures (got 0.1). "
            "Give run_seconds and failures, or failures_per_second alone.",
        ),
        (
            lambda: mtbf_estimate(run_seconds=100.0, failures=1, confidence=95),
            "confidence: must be below 1 (got 95). Give a share such as 0.95.",
        ),
        (
            lambda: mtbf_estimate(run_seconds=100.0, failures=-1),
            "failures: must be at least 0 (got -1). Give a whole number in that range.",
        ),
        (
            lambda: mtbf_estimate(run_seconds=[100.0] * 4, failures=1),
            "failures: must be a count for each of the 4 run times (got 1). "
            "Give sum(run_seconds) for one estimate over all runs, or the failures of each run.",
        ),
        (
            lambda: mtbf_estimate(run_seconds=[100.0] * 2, failures=[1]),
            "failures: must be a count for each of the 2 run times (got [1]). "
            "Give sum(run_seconds) for one estimate over all runs, or the failures of each run.",
        ),
        (
            lambda: multilevel_checkpoints(5.0, 100.0),
            "checkpoint_seconds: must hold 1 to 8 levels (got ()). "
            "Give one value per level on the last axis.",
        ),
        (
            lambda: scale_mtbf_seconds(100.0, measured_devices=0, devices=1),
            "measured_devices: must be at least 1 (got 0). Give a whole number in that range.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
