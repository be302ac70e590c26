"""Intervals between checkpoints: rules, their optimum by brute force, their cost by simulated failures."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import agrees, cases
from scipy.optimize import minimize_scalar

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    checkpoint_availability,
    checkpoint_cadence,
    expected_overhead_fraction,
    expected_run_seconds,
    optimal_checkpoint_interval,
)

OUR_NAMES = {"exact_lambert_w": "exact", "availability_optimal": "availability"}
METHODS = ("young", "daly_first", "daly_higher", "exact", "availability")
saves = st.floats(1e-3, 1e5)
means = st.floats(1.0, 1e9)
restarts = st.floats(0, 1e4)


def test_every_stored_case_is_claimed_by_a_test():
    claimed = {
        "optimal_checkpoint_interval",
        "exact_lambert_w_small_ratio",
        "expected_runtime_overhead",
        "checkpoint_cadence",
    }

    assert {case["function"] for case in cases("checkpoint")} == claimed


@pytest.mark.parametrize(
    "case", cases("checkpoint", "optimal_checkpoint_interval"), ids=lambda case: case["id"]
)
def test_intervals_agree_with_the_stored_cases(case):
    inputs, expected = dict(case["inputs"]), case["expected"]
    method = inputs.pop("method", "young")
    if isinstance(expected, dict) and "raises" in expected:
        with pytest.raises(ValueError, match=r"_seconds: must "):
            optimal_checkpoint_interval(**inputs)
    elif isinstance(expected, dict):
        for rule, value in expected.items():
            assert agrees(
                optimal_checkpoint_interval(**inputs, method=OUR_NAMES.get(rule, rule)), case, value
            )
    else:
        found = optimal_checkpoint_interval(**inputs, method=OUR_NAMES.get(method, method))
        # The case measures the full period here; ours is the work between two saves, as for every rule.
        period = found + inputs["checkpoint_seconds"] if method == "availability_optimal" else found
        assert agrees(period, case)


@pytest.mark.parametrize(
    "case", cases("checkpoint", "expected_runtime_overhead"), ids=lambda case: case["id"]
)
def test_overheads_agree_with_the_stored_cases(case):
    inputs = {name: value for name, value in case["inputs"].items() if name != "label"}

    assert agrees(expected_overhead_fraction(**inputs), case)


def test_cadence_and_the_branch_point_agree_with_the_stored_cases():
    (cadence,) = cases("checkpoint", "checkpoint_cadence")
    (tiny,) = cases("checkpoint", "exact_lambert_w_small_ratio")
    interval = cadence["inputs"]["interval_seconds"]
    rest = {name: value for name, value in cadence["inputs"].items() if name != "interval_seconds"}
    found = checkpoint_cadence(interval, **rest)

    assert all(agrees(getattr(found, field), cadence, value) for field, value in cadence["expected"].items())
    assert agrees(optimal_checkpoint_interval(**tiny["inputs"], method="exact"), tiny)


def test_the_course_notebooks_calls_work_as_written():
    interval = optimal_checkpoint_interval(180.0, 10 * 3600.0)
    cadence = checkpoint_cadence(interval, checkpoint_seconds=180.0, mtbf_seconds=10 * 3600.0)

    assert interval == 3600.0
    assert str(interval) == "3600.0"
    assert "total_overhead=0.1" in str(cadence)


def exact_fraction_in_many_digits(ratio):
    """Bisect -log(1 - x) - x = ratio with 80 digits."""
    with localcontext() as context:
        context.prec = 80
        target, low, high = Decimal(ratio), Decimal(0), 1 - Decimal(10) ** -75
        for _ in range(240):
            middle = (low + high) / 2
            if -(1 - middle).ln() - middle < target:
                low = middle
            else:
                high = middle
        return float(low)


@pytest.mark.parametrize(
    "ratio", [1e-30, 1e-15, 1e-9, 1e-4, 0.01, 0.12, 0.124999, 0.125, 0.13, 0.5, 1.0, 3.0, 40.0]
)
def test_the_exact_optimum_holds_to_a_few_ulp_on_both_sides_of_every_seam(ratio):
    found = optimal_checkpoint_interval(ratio, 1.0, method="exact")

    assert found == pytest.approx(exact_fraction_in_many_digits(ratio), rel=5e-16)


@given(ratio=st.floats(1e-300, 1e300))
def test_the_exact_optimum_is_defined_and_ordered_for_every_ratio(ratio):
    interval = optimal_checkpoint_interval(ratio, 1.0, method="exact")

    assert 0 < interval <= 1
    assert interval <= optimal_checkpoint_interval(ratio, 1.0)
    assert interval <= optimal_checkpoint_interval(ratio * 1.5, 1.0, method="exact")


@given(save=st.floats(1e-2, 1e4), mean=st.floats(10, 1e8), restart=restarts)
def test_the_exact_optimum_is_the_bottom_of_the_expected_run_time(save, mean, restart):
    best = optimal_checkpoint_interval(save, mean, method="exact")
    cost = expected_overhead_fraction(best, save, mean, restart_seconds=0)
    around = expected_overhead_fraction(best * np.geomspace(0.01, 100, 201), save, mean, restart_seconds=0)
    shifted = expected_overhead_fraction([best, best * 1.01], save, mean, restart_seconds=min(restart, mean))

    assert cost <= around.min() + 1e-12 * (1 + cost)
    assert shifted[0] <= shifted[1]  # the restart moves the cost, not the optimum


@pytest.mark.parametrize(
    ("save", "mean"), [(180.0, 36_000.0), (5.0, 86_400.0), (600.0, 1200.0), (3600.0, 1800.0)]
)
def test_a_scalar_minimiser_finds_the_same_optimum(save, mean):
    found = minimize_scalar(
        lambda t: expected_overhead_fraction(t, save, mean),
        bounds=(1e-6, 2 * mean),
        method="bounded",
        options={"xatol": 1e-9},
    )

    assert optimal_checkpoint_interval(save, mean, method="exact") == pytest.approx(found.x, rel=1e-6)


@given(save=saves, mean=means, restart=restarts)
def test_the_availability_rule_is_the_top_of_the_availability(save, mean, restart):
    best = optimal_checkpoint_interval(save, mean, method="availability", restart_seconds=restart)
    top = checkpoint_availability(best, save, mean, restart_seconds=restart)
    around = checkpoint_availability(best * np.geomspace(0.01, 100, 201), save, mean, restart_seconds=restart)

    assert around.max() <= top * (1 + 1e-12)
    assert 0 <= top <= 1


@given(save=saves, mean=means)
def test_young_is_the_bottom_of_the_first_order_overhead(save, mean):
    best = optimal_checkpoint_interval(save, mean)
    bottom = checkpoint_cadence(best, checkpoint_seconds=save, mtbf_seconds=mean)
    around = checkpoint_cadence(best * np.geomspace(0.1, 10, 101), checkpoint_seconds=save, mtbf_seconds=mean)

    assert bottom.total_overhead <= around.total_overhead.min() * (1 + 1e-12)
    assert bottom.checkpoint_fraction == pytest.approx(bottom.expected_rework_fraction)
    assert bottom.total_overhead == pytest.approx(np.sqrt(2 * save / mean))


@given(ratio=st.floats(1e-9, 0.1))
def test_young_costs_less_than_half_a_percent_of_the_run_time_up_to_a_tenth(ratio):
    young, exact = (
        1 + expected_overhead_fraction(optimal_checkpoint_interval(ratio, 1.0, method=rule), ratio, 1.0)
        for rule in ("young", "exact")
    )

    assert exact * (1 - 1e-12) <= young <= 1.005 * exact


@given(
    save=saves,
    mean=means,
    factor=st.floats(1.0, 100.0),
    method=st.sampled_from(["young", "exact", "availability"]),
)
def test_dearer_saves_and_rarer_failures_make_longer_intervals(save, mean, factor, method):
    interval = optimal_checkpoint_interval(save, mean, method=method)

    assert optimal_checkpoint_interval(save * factor, mean, method=method) >= interval * (1 - 1e-12)
    assert optimal_checkpoint_interval(save, mean * factor, method=method) >= interval * (1 - 1e-12)


@given(
    save=saves, mean=means, scale=st.sampled_from([1 / 60, 1 / 3600, 1000.0]), method=st.sampled_from(METHODS)
)
def test_the_unit_of_time_does_not_matter(save, mean, scale, method):
    interval = optimal_checkpoint_interval(save, mean, method=method)

    # daly_first subtracts nearly equal numbers close to its end of validity
    assert optimal_checkpoint_interval(save * scale, mean * scale, method=method) == pytest.approx(
        interval * scale, rel=1e-9, abs=1e-9 * scale * save
    )


@given(save=st.floats(1.0, 100.0))
def test_dalys_higher_order_is_the_first_three_terms_of_the_exact_series(save):
    mean = 1e6
    p = np.sqrt(2 * save / mean)
    higher, exact = (
        optimal_checkpoint_interval(save, mean, method=rule) for rule in ("daly_higher", "exact")
    )

    assert higher / mean == pytest.approx(p - p**2 / 3 + p**3 / 36, rel=1e-12)
    assert abs(exact - higher) / mean <= p**4 / 250


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_dalys_published_optima(hours, minutes):
    interval = optimal_checkpoint_interval(300.0, hours * 3600.0, method="daly_higher") / 60

    assert interval == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


def test_the_limits_are_answers():
    for method in METHODS:
        assert optimal_checkpoint_interval(0.0, 36_000.0, method=method) == 0.0
        assert optimal_checkpoint_interval(180.0, float("inf"), method=method) == float("inf")
    forever = checkpoint_cadence(float("inf"), checkpoint_seconds=180.0, mtbf_seconds=float("inf"))

    assert (forever.total_overhead, forever.exact_overhead, forever.useful_fraction) == (0.0, 0.0, 1.0)
    assert expected_overhead_fraction(100.0, 5.0, float("inf")) == 0.05
    assert checkpoint_availability(float("inf"), 5.0, float("inf")) == 1.0
    assert optimal_checkpoint_interval(10.0, 1.0, method="daly_first") == 0.0


def test_formulas_broadcast_like_their_scalars():
    saves_, means_ = np.array([[1.0], [60.0], [4000.0]]), [600.0, 36_000.0, float("inf")]
    for method in METHODS:
        table = optimal_checkpoint_interval(saves_, means_, method=method, restart_seconds=30.0)
        assert table.shape == (3, 3)
        for i in range(3):
            for j in range(3):
                one = optimal_checkpoint_interval(
                    saves_[i, 0], means_[j], method=method, restart_seconds=30.0
                )
                assert table[i, j] == one
    cadence = checkpoint_cadence([100.0, 200.0], checkpoint_seconds=saves_, mtbf_seconds=600.0)
    assert cadence.total_overhead.shape == cadence.exact_overhead.shape == (3, 2)
    assert expected_run_seconds([0.0, 1e6], 100.0, 5.0, 600.0)[0] == 0.0


# The timer starts when a save has ended: dmtcp/dmtcp#783.
def test_a_save_longer_than_its_interval_neither_overlaps_nor_stops_the_work():
    cadence = checkpoint_cadence(10.0, checkpoint_seconds=12.0, mtbf_seconds=float("inf"))

    assert cadence.period_seconds == 22.0
    assert cadence.useful_fraction == pytest.approx(0.45454545454545453, rel=1e-12)
    assert 2200 / cadence.period_seconds == 100
    assert expected_run_seconds(1000.0, 10.0, 12.0, float("inf")) == pytest.approx(2200.0)


def simulated_run_seconds(rng, segments, interval, save, mean, restart):
    """Run one job: work and save segment by segment, restart after each failure, which may fail again."""
    elapsed = 0.0
    for _ in range(segments):
        need = interval + save
        while True:
            failure = rng.exponential(mean)
            if failure >= need:
                elapsed += need
                break
            elapsed += failure
            need = restart + interval + save if restart else interval + save
    return elapsed


@pytest.mark.parametrize(
    ("interval", "save", "mean", "restart"),
    [(600.0, 60.0, 3600.0, 0.0), (600.0, 60.0, 3600.0, 300.0), (1500.0, 200.0, 1200.0, 100.0)],
)
def test_simulated_failures_average_to_the_expected_run_time(interval, save, mean, restart):
    rng, segments, runs = np.random.default_rng(20262), 10, 3000
    times = np.array(
        [simulated_run_seconds(rng, segments, interval, save, mean, restart) for _ in range(runs)]
    )
    expected = expected_run_seconds(segments * interval, interval, save, mean, restart_seconds=restart)

    # Fixed seed; the expectation lies inside the 99.9 % confidence interval of the mean of 3000 runs.
    assert abs(times.mean() - expected) < 3.29 * times.std(ddof=1) / np.sqrt(runs)


@given(work=st.floats(0, 1e7), save=saves, mean=st.floats(1e3, 1e9), interval=st.floats(1, 1e4))
def test_a_run_never_takes_less_than_its_work_and_its_saves(work, save, mean, interval):
    run = expected_run_seconds(work, interval, save, mean)

    assert run >= work * (1 + save / interval) * (1 - 1e-9)
    assert expected_run_seconds(work, interval, save, mean, restart_seconds=60.0) >= run
    assert expected_run_seconds(work, interval, save, mean * 2) <= run


def test_a_hopeless_interval_costs_infinitely_much():
    assert expected_overhead_fraction(1e6, 10.0, 100.0) == float("inf")
    assert expected_run_seconds([0.0, 1.0], 1e6, 10.0, 100.0).tolist() == [0.0, float("inf")]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: optimal_checkpoint_interval(180.0, 0.0),
            "mtbf_seconds: must be greater than 0 (got 0.0). Give a number in that range.",
        ),
        (
            lambda: optimal_checkpoint_interval(180.0, 36_000.0, method="dali_higher"),
            "method: must name a known rule (got 'dali_higher'). Did you mean 'daly_higher'?",
        ),
        (
            lambda: optimal_checkpoint_interval(180.0, 36_000.0, method="x"),
            "method: must name a known rule (got 'x'). "
            "Choose one of young, daly_first, daly_higher, exact, availability.",
        ),
        (
            lambda: optimal_checkpoint_interval([1.0, 0.0], float("inf")),
            "checkpoint_seconds: must be positive where mtbf_seconds is infinite (got 0.0). "
            "Without failures and without cost every interval is as good.",
        ),
        (
            lambda: checkpoint_cadence(float("inf"), checkpoint_seconds=1.0, mtbf_seconds=10.0),
            "interval_seconds: must be finite where mtbf_seconds is (got inf). "
            "Save now and then if the job can fail.",
        ),
        (
            lambda: checkpoint_cadence(0.0, checkpoint_seconds=1.0, mtbf_seconds=10.0),
            "interval_seconds: must be greater than 0 (got 0.0). Give a number in that range.",
        ),
        (
            lambda: expected_run_seconds(True, 1.0, 1.0, 1.0),
            "work_seconds: must be a number (got True). Give a number, or an array of numbers.",
        ),
    ],
)
def test_impossible_input_is_named(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
