"""The slowest of n draws: exact for tables, closed forms and quadrature for the classical laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import agrees, cases
from oracle.overlap_twins import group_by_enumeration
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from lagsweep import LengthLaw
from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    expected_maximum,
    expected_maximum_exponential,
    expected_maximum_lognormal,
    expected_maximum_normal,
    expected_maximum_uniform,
    group_utilization,
    straggler_report,
)

weights = st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any)
group_sizes = st.integers(1, 5)


def table(counts):
    return np.cumsum(counts) / np.sum(counts)


@pytest.mark.parametrize(
    "case", cases("pipeline_straggler", "expected_max_lognormal"), ids=lambda case: case["id"]
)
def test_lognormal_cases_agree(case):
    inputs, expected = case["inputs"], case["expected"]
    found = expected_maximum_lognormal(inputs["workers"], inputs["sigma"], inputs["mu"])
    mean = np.exp(inputs["mu"] + inputs["sigma"] ** 2 / 2)

    assert agrees(found, case, expected["expected_max"])
    assert agrees(found / mean, case, expected["expected_max_over_mean"])
    assert agrees(mean / found, case, expected["ratio_of_means_utilization"])


def test_the_other_continuous_cases_agree():
    for function, formula in (
        ("expected_max_exponential", lambda i: expected_maximum_exponential(i["workers"], i["mean"])),
        ("expected_max_uniform", lambda i: expected_maximum_uniform(i["workers"], i["low"], i["high"])),
        ("expected_max_normal", lambda i: expected_maximum_normal(i["workers"])),
    ):
        for case in cases("pipeline_straggler", function):
            assert agrees(formula(case["inputs"]), case), case["id"]


@given(counts=weights, minimum=st.integers(1, 20), workers=group_sizes)
def test_a_table_agrees_with_every_group_enumerated(counts, minimum, workers):
    law = group_utilization(minimum, table(counts), workers)
    lengths = [minimum + i for i in range(len(counts))]
    longest, share = group_by_enumeration(lengths, [count / sum(counts) for count in counts], workers)

    assert expected_maximum(minimum, table(counts), workers) == pytest.approx(longest, rel=1e-12)
    assert law.expected_max_seconds == pytest.approx(longest, rel=1e-12)
    assert law.utilization == pytest.approx(share, rel=1e-12)
    assert law.ratio_of_means == pytest.approx(law.mean_seconds / longest, rel=1e-12)


@given(counts=weights, workers=group_sizes, overhead=st.floats(0, 10), pace=st.floats(0.01, 10))
def test_an_overhead_and_a_pace_are_a_change_of_lengths(counts, workers, overhead, pace):
    law = group_utilization(3, table(counts), workers, seconds_per_token=pace, overhead_seconds=overhead)
    durations = [overhead + pace * (3 + i) for i in range(len(counts))]
    longest, share = group_by_enumeration(durations, [count / sum(counts) for count in counts], workers)

    assert law.expected_max_seconds == pytest.approx(longest, rel=1e-12)
    assert law.utilization == pytest.approx(share, rel=1e-12)


@given(counts=weights, workers=st.integers(1, 10**6))
def test_a_larger_group_waits_longer_and_works_a_smaller_share(counts, workers):
    sizes = [workers, workers + 1]
    law = group_utilization(1, table(counts), sizes)

    assert law.expected_max_seconds[0] <= law.expected_max_seconds[1] * (1 + 1e-12)
    assert law.utilization[1] <= law.utilization[0] * (1 + 1e-12)
    assert law.ratio_of_means[1] <= law.ratio_of_means[0] * (1 + 1e-12)
    assert law.expected_max_seconds[1] <= len(counts) * (1 + 1e-12)


def test_a_group_of_one_and_a_fixed_length_wait_for_nobody():
    alone = group_utilization(4, [0.25, 0.5, 1.0], 1)

    assert (alone.utilization, alone.ratio_of_means) == (1.0, 1.0)
    assert alone.expected_max_seconds == alone.mean_seconds == 5.25
    assert group_utilization(700, [1.0], 4096).utilization == 1.0


def test_mean_of_ratios_and_ratio_of_means_are_the_known_different_numbers():
    # 8 lognormal workers, sigma 0.5, on a grid fine enough for four digits: 0.5573 by simulation, 0.5298.
    lengths = np.arange(1, 40_001)
    law = group_utilization(1, np.append(lognorm.cdf(lengths[:-1] + 0.5, 0.5, scale=1000), 1.0), 8)

    assert law.ratio_of_means == pytest.approx(1 / 1.888, abs=2e-4)
    assert law.utilization == pytest.approx(0.5573, abs=2e-3)


def test_neither_average_bounds_the_other():
    usual = group_utilization(1, table([1, 1, 1, 1]), 4)
    gapped = np.zeros(1001)
    gapped[[0, 99, 999, 1000]] = 0.15, 0.15, 0.05, 0.65
    unusual = group_utilization(1, np.append(np.cumsum(gapped)[:-1], 1.0), 2)

    assert usual.utilization > usual.ratio_of_means
    assert unusual.utilization < unusual.ratio_of_means


def test_on_real_response_lengths_the_order_of_the_averages_changes_with_the_group():
    law = LengthLaw.shipped("aime-rl-1000")
    found = group_utilization(law.minimum, law.cdf, [8, 16])

    assert found.utilization[0] > found.ratio_of_means[0]
    assert found.utilization[1] < found.ratio_of_means[1]


def test_sampled_groups_average_to_the_exact_utilization():
    rng = np.random.default_rng(20261)
    cdf = table(np.arange(1, 200) ** 2)
    groups = 1 + np.searchsorted(cdf, rng.random((40_000, 6)), side="right")
    sampled = straggler_report(groups).utilization
    error = sampled.std(ddof=1) / np.sqrt(sampled.size)

    assert abs(sampled.mean() - group_utilization(1, cdf, 6).utilization) < 4 * error


@pytest.mark.parametrize("workers", [1, 2, 8, 1000])
def test_quadratures_agree_with_scipy(workers):
    def order_density(z):
        return workers * norm.pdf(z) * norm.cdf(z) ** (workers - 1)

    plain = quad(lambda z: z * order_density(z), -12, 12, epsabs=1e-13, limit=400)[0]
    lifted = quad(lambda z: np.exp(0.7 * z) * order_density(z), -12, 14, epsabs=1e-12, limit=400)[0]

    assert expected_maximum_normal(workers, 5.0, 2.0) == pytest.approx(5 + 2 * plain, abs=1e-10)
    assert expected_maximum_lognormal(workers, 0.7) == pytest.approx(lifted, rel=1e-10)


def test_a_group_of_one_lognormal_has_the_laws_mean_for_every_width():
    sigma = np.array([0.0, 0.1, 1.0, 5.0, 20.0])

    assert expected_maximum_lognormal(1, sigma) == pytest.approx(np.exp(sigma**2 / 2), rel=1e-12)
    assert expected_maximum_lognormal(10**6, 0.0) == pytest.approx(1.0, rel=1e-12)


def test_harmonic_numbers_to_a_thousand_members():
    sizes = np.arange(1, 1001)

    assert expected_maximum_exponential(sizes, 2.0) == pytest.approx(2 * np.cumsum(1 / sizes), rel=1e-13)


def test_continuous_laws_broadcast():
    assert expected_maximum_lognormal([[1], [2]], [0.1, 0.2, 0.3]).shape == (2, 3)
    assert expected_maximum_normal([1, 2], [[0.0], [1.0]]).shape == (2, 2)
    assert expected_maximum_uniform([1, 3], 0.0, [1.0, 2.0]).tolist() == [0.5, 1.5]


def test_group_utilization_broadcasts_like_its_scalars():
    law = table([1, 2, 3])
    sizes, overheads = [[1], [2], [8]], [0.0, 4.0]
    many = group_utilization(2, law, sizes, seconds_per_token=0.5, overhead_seconds=overheads)

    assert many.utilization.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            one = group_utilization(2, law, sizes[i][0], seconds_per_token=0.5, overhead_seconds=overheads[j])
            assert many.utilization[i, j] == one.utilization
            assert many.expected_max_seconds[i, j] == one.expected_max_seconds


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: expected_maximum(1, [0.5, 1.0], 0),
            "draws: must be at least 1 (got 0). Give a whole number in that range.",
        ),
        (
            lambda: expected_maximum_uniform(2, 3.0, 1.0),
            "high - low: must be at least 0 (got -2.0). Give the smaller end as low.",
        ),
        (
            lambda: expected_maximum_uniform(2, 0.0, True),
            "high: must be a number (got True). Give a number, or an array of numbers.",
        ),
        (
            lambda: group_utilization(1, [1.0], 2, seconds_per_token=0),
            "seconds_per_token: must be greater than 0 (got 0.0). Give a number in that range.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text


def test_a_table_that_is_no_distribution_is_refused():
    with pytest.raises(ConfigError, match=r"^cdf: "):
        expected_maximum(1, [0.5, 0.4, 1.0], 2)
