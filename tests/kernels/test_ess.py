"""The effective sample size against stored cases, a 60-digit twin, real rollouts and its own properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import ess_twin
from oracle.case_files import bug, cases, close, real_rollouts

from lagsweep.errors import ConfigError
from lagsweep.kernels.staleness.ess import (
    STATUSES,
    effective_sample_size,
    ess_report,
    expected_normalized_ess,
)
from lagsweep.kernels.staleness.ess_levels import LEVELS, rollout_ess, sequence_log_weights
from lagsweep.kernels.staleness.ragged import offsets_from_lengths
from lagsweep.testing import log_ratios

NAN, INF = float("nan"), float("inf")
log_weight_rows = log_ratios(max_size=30, largest=1e6, impossible=True)


def _live(row):
    return any(lw > -INF for lw in row)


# -- stored cases ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("ess.json", function="effective_sample_size"), ids=lambda c: c["id"])
def test_stored_case(case):
    expected = case["expected"]
    if "raises" in expected or math.isnan(expected["ess"]):
        # For NaN the case allows NaN or an error; we raise, and give NaN when asked.
        with pytest.raises(ValueError, match="must"):
            effective_sample_size(**case["inputs"])
        assert math.isnan(effective_sample_size(**case["inputs"], invalid="nan"))
        return

    report = ess_report(**case["inputs"])

    assert close(report.ess, expected["ess"], case["tolerance"])
    assert close(report.normalized_ess, expected["normalized_ess"], case["tolerance"])
    assert effective_sample_size(**case["inputs"]) == report.ess


@pytest.mark.parametrize(
    "case", cases("ess_real.json", function="effective_sample_size"), ids=lambda c: c["id"]
)
def test_real_rollouts_give_the_stored_ess_at_each_level(case):
    records = real_rollouts()
    version = case["inputs"]["trainer_version"]
    ratios = [np.subtract(r["trainer_logprobs"][version], r["behavior_logprobs"]) for r in records]
    offsets = offsets_from_lengths([len(r) for r in ratios])

    report = rollout_ess(np.concatenate(ratios), level=case["inputs"]["level"], group_offsets=offsets)

    assert report.count == case["expected"]["n"]
    assert close(report.ess, case["expected"]["ess"], case["tolerance"])
    assert close(report.normalized_ess, case["expected"]["normalized_ess"], case["tolerance"])


def test_large_log_weights_do_not_overflow():
    case = bug("bug-ess-01")

    found = [effective_sample_size(log_weights=row) for row in case["input"]["log_weights"]]

    assert found == pytest.approx(case["expected"]["ess"], rel=1e-12)


def test_weights_need_not_sum_to_one():
    case = bug("bug-ess-02")

    found = [effective_sample_size(row) for row in case["input"]["weights"]]

    assert found == case["expected"]["ess"]


def test_pooled_and_per_sequence_ess_are_two_answers():
    case = bug("bug-ess-04")
    flat = np.concatenate(case["input"]["log_ratios"])
    offsets = offsets_from_lengths([len(row) for row in case["input"]["log_ratios"]])

    pooled = rollout_ess(flat, level="token", group_offsets=offsets)
    within = rollout_ess(flat, level="within_sequence", group_offsets=offsets)

    assert pooled.ess == pytest.approx(case["expected"]["pooled_ess"], rel=1e-12)
    assert pooled.normalized_ess == pytest.approx(case["expected"]["pooled_ratio"], rel=1e-12)
    assert within.normalized_ess == pytest.approx(case["expected"]["per_sequence_ratio"], rel=1e-12)
    assert within.normalized_ess.mean() == pytest.approx(case["expected"]["mean_of_ratios"], rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_are_double_whatever_the_input(dtype):
    case = bug("bug-ess-08")

    found = effective_sample_size(log_weights=np.array(case["input"]["log_weights"], dtype=dtype))

    assert found == case["expected"]["ess"]


def test_the_compiled_kernel_sees_nan():
    values = [NAN if v == "nan" else v for v in bug("bug-numba-02")["input"]["x"]]

    report = ess_report(log_weights=values, group_offsets=[0, 1, 2, 3])

    assert report.status.tolist().count("nan") == bug("bug-numba-02")["expected"]["nan_count"]


# -- conventions at the edges ------------------------------------------------------------------------------


def test_each_kind_of_group_has_its_status():
    log_weights = [0.0, 0.0, -INF, NAN, INF, 0.0]

    report = ess_report(log_weights=log_weights, group_offsets=[0, 2, 2, 3, 4, 6])

    assert report.status.tolist() == ["ok", "empty", "all_zero", "nan", "infinite"]
    assert report.count.tolist() == [2, 0, 1, 1, 2]
    np.testing.assert_array_equal(report.ess, [2.0, 0.0, 0.0, NAN, NAN])
    np.testing.assert_array_equal(report.normalized_ess, [1.0, NAN, 0.0, NAN, NAN])
    assert report.ok.tolist() == [True, False, False, False, False]
    assert ess_report([1.0, -1.0]).status == "negative"
    assert ess_report([1.0, -1.0]).status in STATUSES


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"log_weights": [0.0, NAN]},
            "log_weights[1]: must not be NaN (got nan). Find its source, or give invalid='nan' or use "
            "ess_report to see which groups are bad.",
        ),
        (
            {"log_weights": [[0.0, 0.0], [INF, 0.0]], "axis": 1},
            "log_weights, group 1, value 0: must be finite, or -inf for a weight of zero (got inf). Find its "
            "source, or give invalid='nan' or use ess_report to see which groups are bad.",
        ),
        (
            {"weights": [1.0, -2.0]},
            "weights[1]: must be 0 or more (got -2.0). Find its source, or give invalid='nan' or use "
            "ess_report to see which groups are bad.",
        ),
        (
            {"weights": [1.0], "log_weights": [1.0]},
            "weights: exactly one of weights and log_weights is needed (got 'both'). Give log_weights where "
            "you have logs.",
        ),
        (
            {"weights": [1.0], "mask": [1, 0]},
            "mask: must have the values' shape (got (2,)). Give a mask of the shape of weights, (1,).",
        ),
        (
            {"weights": [1.0, 2.0], "group_offsets": [0, 1]},
            "group_offsets: must rise from 0 to the number of values, 2, without going back (got [0, 1]). "
            "Use offsets_from_lengths(lengths).",
        ),
        (
            {"weights": [True, False]},
            "weights: must be a number (got [True, False]). Give a number, or an array of numbers.",
        ),
        (
            {"weights": [1.0], "axis": 1},
            "axis: must be an axis of an array of 1 dimensions (got 1). Give None to take everything as one "
            "group.",
        ),
        (
            {"weights": [1.0], "invalid": "drop"},
            "invalid: must be 'raise' or 'nan' (got 'drop'). Give 'nan' to get NaN for a bad group.",
        ),
    ],
)
def test_refusals_name_the_field_the_rule_and_the_way_out(arguments, text):
    with pytest.raises(ConfigError) as refused:
        effective_sample_size(**arguments)

    assert str(refused.value) == text


def test_a_mask_takes_values_out_of_the_count_even_when_they_are_nan():
    found = effective_sample_size(log_weights=[0.0, NAN, 0.0], mask=[1, 0, 1], normalized=True)

    assert found == 1.0


def test_the_smallest_and_largest_floats_are_weights_too():
    assert effective_sample_size([5e-324, 5e-324]) == 2.0
    assert effective_sample_size([1.7e308, 1.7e308]) == 2.0
    assert effective_sample_size([1.7e308, 5e-324]) == 1.0
    assert effective_sample_size(log_weights=[1e308, -1e308]) == 1.0


def test_an_axis_gives_one_answer_per_row_or_column():
    weights = np.array([[1.0, 3.0], [2.0, 2.0]])

    assert effective_sample_size(weights, axis=1) == pytest.approx([1.6, 2.0])
    assert effective_sample_size(weights, axis=0) == pytest.approx([9 / 5, 25 / 13])
    assert effective_sample_size(np.ones((3, 0)), axis=1).tolist() == [0.0, 0.0, 0.0]


# -- properties --------------------------------------------------------------------------------------------


@given(log_weight_rows)
def test_equals_the_twin(row):
    report = ess_report(log_weights=row)

    assert report.ess == pytest.approx(ess_twin.kish_from_logs(row), rel=1e-12)


@given(st.lists(st.floats(0, 1.7e308), max_size=30))
def test_linear_weights_equal_the_twin(weights):
    assert effective_sample_size(weights) == pytest.approx(ess_twin.kish(weights), rel=1e-12)


@given(log_weight_rows.filter(_live))
def test_lies_between_one_and_the_number_of_weights(row):
    report = ess_report(log_weights=row)

    assert 1 <= report.ess <= len(row)
    assert 1 / len(row) <= report.normalized_ess <= 1


@given(st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=30), st.integers(-5000, 5000))
def test_a_common_shift_changes_nothing(row, shift):
    moved = [lw + shift for lw in row]

    assert effective_sample_size(log_weights=moved) == effective_sample_size(log_weights=row)


@given(st.lists(st.floats(1e-100, 1e100), min_size=1, max_size=30), st.integers(-300, 300))
def test_a_power_of_two_changes_nothing(weights, exponent):
    scaled = [math.ldexp(w, exponent) for w in weights]

    assert effective_sample_size(scaled) == effective_sample_size(weights)


@given(st.lists(log_weight_rows, max_size=8))
def test_ragged_groups_equal_each_group_alone(rows):
    flat = [lw for row in rows for lw in row]
    offsets = offsets_from_lengths([len(row) for row in rows]) if rows else [0]

    together = effective_sample_size(log_weights=flat, group_offsets=offsets)

    assert together.tolist() == [effective_sample_size(log_weights=row) for row in rows]


@given(log_weight_rows, st.data())
def test_masked_values_count_as_absent(row, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row)))
    kept = [lw for lw, active in zip(row, mask) if active]

    assert effective_sample_size(log_weights=row, mask=mask) == effective_sample_size(log_weights=kept)


@given(log_weight_rows.filter(_live), st.integers(1, 5))
def test_each_zero_weight_counts_in_n_but_not_in_the_ess(row, zeros):
    padded = [*row, *[-INF] * zeros]

    assert effective_sample_size(log_weights=padded) == effective_sample_size(log_weights=row)
    assert ess_report(log_weights=padded).count == len(row) + zeros


# -- levels ------------------------------------------------------------------------------------------------


def test_the_sequence_level_repeated_per_token_is_what_verl_reports():
    case = next(c for c in cases("ess.json") if c["id"] == "ess-35")
    ratio, mask = case["inputs"]["log_ratio"], case["inputs"]["response_mask"]

    repeated = rollout_ess(ratio, level="sequence_per_token", mask=mask)
    plain = rollout_ess(ratio, level="sequence", mask=mask)

    # verl adds 1e-8 to the mean weight, hence the wider tolerance.
    assert repeated.normalized_ess == pytest.approx(case["expected"]["rollout_is_eff_sample_size"], rel=1e-7)
    assert plain.normalized_ess == pytest.approx(case["expected"]["per_sequence_normalized_ess"], rel=1e-12)
    assert (repeated.count, plain.count) == (9, 2)


@given(st.lists(st.lists(st.floats(-20, 20), max_size=6), min_size=1, max_size=6))
def test_levels_equal_the_twin(sequences):
    flat = [x for row in sequences for x in row]
    offsets = offsets_from_lengths([len(row) for row in sequences])
    live = [row for row in sequences if row]
    logs = {
        "token": flat,
        "sequence": [math.fsum(row) for row in live],
        "sequence_geometric": [math.fsum(row) / len(row) for row in live],
        "sequence_per_token": [math.fsum(row) for row in live for _ in row],
    }

    for level, log_weights in logs.items():
        report = rollout_ess(flat, level=level, group_offsets=offsets)
        assert report.ess == pytest.approx(ess_twin.kish_from_logs(log_weights), rel=1e-11)
        assert report.count == len(log_weights)
    within = rollout_ess(flat, level="within_sequence", group_offsets=offsets)
    assert within.ess == pytest.approx([ess_twin.kish_from_logs(row) for row in sequences], rel=1e-12)


def test_padded_rows_and_flat_sequences_agree():
    ratio = np.array([[0.3, -0.2, 9.0], [1.0, 0.5, -0.5]])
    mask = np.array([[1, 1, 0], [1, 1, 1]])

    for level in LEVELS:
        padded = rollout_ess(ratio, level=level, mask=mask)
        flat = rollout_ess(ratio[mask == 1], level=level, group_offsets=[0, 2, 5])
        np.testing.assert_array_equal(padded.ess, flat.ess)


def test_a_sequence_without_active_tokens_does_not_count():
    report = rollout_ess([[0.0, 0.0], [5.0, 5.0]], level="sequence", mask=[[1, 1], [0, 0]])

    assert (report.ess, report.count) == (1.0, 1)


def test_the_level_must_be_named():
    with pytest.raises(
        ConfigError, match=r"level: must be one of .* \(got 'sequnce'\)\. Did you mean 'sequence'\?"
    ):
        rollout_ess([[0.0]], level="sequnce")


def test_an_active_nan_ratio_is_refused_by_its_place():
    with pytest.raises(ConfigError) as refused:
        sequence_log_weights([[0.0, NAN]], mask=[[1, 1]])

    assert str(refused.value) == (
        "log_ratio, active token 1: must be a number below infinity (got nan). Mask the token out, or find "
        "where the log probability was lost."
    )


# -- the drift model's expectation -------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), min_size=1, max_size=20), st.floats(0, 10))
def test_expected_normalized_ess_equals_the_twin(lags, drift):
    found = expected_normalized_ess(lags, drift)

    assert found == pytest.approx(ess_twin.expected_normalized(lags, drift), rel=1e-11, abs=1e-300)


def test_expected_normalized_ess_is_what_many_rollouts_show():
    rng = np.random.default_rng(5)
    lags = np.repeat([0, 1, 2, 3], 50_000)
    s = 0.2 * np.sqrt(lags)

    observed = effective_sample_size(
        log_weights=s * rng.standard_normal(lags.size) - s * s / 2, normalized=True
    )

    assert observed == pytest.approx(expected_normalized_ess(lags, 0.2), rel=2e-3)


def test_expected_normalized_ess_broadcasts_and_takes_an_axis():
    lags = np.array([[0, 0], [1, 3]])

    table = expected_normalized_ess(lags, np.array([0.1, 0.5])[:, None, None], axis=-1)

    assert table.shape == (2, 2)
    assert table[:, 0].tolist() == [1.0, 1.0]
    assert table[1, 1] == pytest.approx(2 / (math.exp(0.25) + math.exp(0.75)), rel=1e-12)
    assert math.isnan(expected_normalized_ess([], 0.2))
