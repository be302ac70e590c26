"""Importance weights, off-policy diagnostics and the Pareto tail against cases, verl's figures and twins."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracle import ess_twin
from oracle.case_files import bug, cases, close, real_rollouts

from lagsweep.errors import ConfigError
from lagsweep.kernels.staleness.ess import effective_sample_size
from lagsweep.kernels.staleness.ess_levels import rollout_ess
from lagsweep.kernels.staleness.importance_weights import (
    sequence_importance_weights,
    token_importance_weights,
)
from lagsweep.kernels.staleness.off_policy import off_policy_report
from lagsweep.kernels.staleness.pareto_k import pareto_khat
from lagsweep.kernels.staleness.ragged import offsets_from_lengths
from lagsweep.testing import log_ratios

NAN, INF = float("nan"), float("inf")
ratio_rows = log_ratios(largest=2000, impossible=True)


def _case(case_id):
    return next(c for c in cases("ess.json") if c["id"] == case_id)


# -- weights -----------------------------------------------------------------------------------------------


def test_masked_weights_are_zero_outside_the_closed_interval():
    case = _case("ess-38")
    inputs = case["inputs"]

    found = token_importance_weights(
        inputs["log_ratio"], mode="mask", lower=inputs["lower"], upper=inputs["upper"]
    )

    assert found == pytest.approx(case["expected"]["weights"], rel=1e-12)
    assert token_importance_weights(math.log(2.0), mode="mask", lower=0.5, upper=2.0) == pytest.approx(2.0)


def test_a_geometric_mean_outside_the_bounds_drops_the_sequence():
    case = _case("ess-39")
    inputs = case["inputs"]

    found = sequence_importance_weights(
        inputs["log_ratio"],
        level="sequence_geometric",
        mode="mask",
        lower=inputs["lower"],
        upper=inputs["upper"],
    )

    assert found.kept.tolist() == case["expected"]["keep"]
    tokens = token_importance_weights(inputs["log_ratio"], mode="raw", keep=found.kept[:, None])
    assert tokens[0] == pytest.approx(np.exp(inputs["log_ratio"][0]))
    assert tokens[1].tolist() == [0.0, 0.0]


def test_a_rejected_row_contributes_exactly_nothing():
    case = bug("bug-ess-06")["input"]

    found = token_importance_weights(
        case["log_ratio"], mode="truncate", upper=case["clip_high"], keep=case["keep"]
    )
    everything = token_importance_weights(case["log_ratio"], mode="truncate", upper=case["clip_high"])

    assert found.tolist() == bug("bug-ess-06")["expected"]["weights"]
    assert everything.tolist() == [2.0, 1.0]
    assert token_importance_weights([NAN, 0.0], mode="raw", keep=[0, 1]).tolist() == [0.0, 1.0]


def test_both_sequence_levels_have_names_and_show_the_value_before_the_clip():
    case = bug("bug-ess-07")
    row = np.full((1, case["input"]["tokens"]), case["input"]["log_ratio_each"])
    bounds = {"mode": "truncate", "upper": case["input"]["clip_high"]}

    product = sequence_importance_weights(row, level="sequence", **bounds)
    geometric = sequence_importance_weights(row, level="sequence_geometric", **bounds)
    clipped = sequence_importance_weights(-row * 2, level="sequence", **bounds)

    assert product.weights[0] == pytest.approx(case["expected"]["exp_sum"], rel=1e-9)
    assert geometric.weights[0] == pytest.approx(case["expected"]["exp_mean"], rel=1e-12)
    assert (clipped.weights[0], clipped.kept[0]) == (2.0, False)
    assert clipped.log_weights[0] == pytest.approx(5.6)


@given(ratio_rows, st.floats(0, 3), st.floats(0.1, 5))
def test_bounds_hold_and_every_weight_is_finite(row, lower, width):
    upper = lower + width
    with np.errstate(over="ignore"):
        linear = np.exp(np.array(row))

    truncated = token_importance_weights(row, mode="truncate", upper=upper)
    clipped = token_importance_weights(row, mode="clip", lower=lower, upper=upper)
    masked = token_importance_weights(row, mode="mask", lower=lower, upper=upper)

    np.testing.assert_allclose(truncated, np.minimum(linear, upper), rtol=1e-12)
    np.testing.assert_allclose(clipped, np.clip(linear, lower, upper), rtol=1e-12)
    assert truncated.max(initial=0) <= upper
    assert clipped.min(initial=upper) >= lower
    # Exactly at a bound the logarithm decides; the linear form may round across it.
    away = (np.abs(linear - lower) > 1e-12 * upper) & (np.abs(linear - upper) > 1e-12 * upper)
    inside = (linear > lower) & (linear < upper)
    np.testing.assert_allclose(masked[away], np.where(inside, linear, 0)[away], rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"log_ratio": [NAN], "mode": "truncate", "upper": 2.0},
            "log_ratio: must be a number (got nan). Give bounds, or leave it out with keep.",
        ),
        (
            {"log_ratio": [800.0], "mode": "raw"},
            "log_ratio: must be a number whose exponential is finite (got 800.0). Give bounds, or leave it "
            "out with keep.",
        ),
        (
            {"log_ratio": [0.0], "mode": "truncate"},
            "upper: is needed by mode 'truncate' (got None). Give each mode its own bounds.",
        ),
        (
            {"log_ratio": [0.0], "mode": "raw", "upper": 2.0},
            "upper: has no meaning for mode 'raw' (got 2.0). Give each mode its own bounds.",
        ),
        (
            {"log_ratio": [0.0], "mode": "clip", "lower": 3.0, "upper": 2.0},
            "lower: must not exceed upper, 2 (got 3.0). Swap the bounds.",
        ),
        (
            {"log_ratio": [0.0], "mode": "trucate", "upper": 2.0},
            "mode: must be one of raw, truncate, clip, mask (got 'trucate'). Did you mean 'truncate'?",
        ),
        (
            {"log_ratio": [[0.0, 0.0]] * 3, "mode": "raw", "keep": [1, 0, 1]},
            "keep: must fit the shape of log_ratio, (3, 2) (got (3,)). Give one flag per row as "
            "keep[:, None].",
        ),
    ],
)
def test_refusals(arguments, text):
    with pytest.raises(ConfigError) as refused:
        token_importance_weights(**arguments)

    assert str(refused.value) == text


# -- verl's figures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case_id", ["ess-32", "ess-33"])
def test_verl_weight_metrics_can_be_rebuilt(case_id):
    case = _case(case_id)
    inputs, expected = case["inputs"], case["expected"]
    ratio, mask = np.array(inputs["log_ratio"]), np.array(inputs["response_mask"], dtype=bool)
    upper = inputs["rollout_is_threshold"]
    report = off_policy_report(ratio, np.zeros_like(ratio), mask=mask, high=upper)

    if inputs["rollout_is"] == "token":
        weights = token_importance_weights(ratio, mode="truncate", upper=upper)
        high, low = report.fraction_high, report.fraction_low
    else:
        sequence = sequence_importance_weights(
            ratio, level="sequence", mode="truncate", upper=upper, mask=mask
        )
        weights = np.repeat(sequence.weights[:, None], ratio.shape[1], axis=1)
        high, low = report.sequence_fraction_high, report.sequence_fraction_low
        assert np.exp(sequence.log_weights).max() == pytest.approx(expected["rollout_is_max"], rel=1e-9)
    active = weights[mask]
    per_row = (weights * mask).sum(axis=1) / mask.sum(axis=1)

    # verl adds 1e-8 inside its ESS and its masked means are of float32 masks.
    assert effective_sample_size(active, normalized=True) == pytest.approx(
        expected["rollout_is_eff_sample_size"], rel=1e-7
    )
    assert active.mean() == pytest.approx(expected["rollout_is_mean"], rel=1e-8)
    assert active.std() == pytest.approx(expected["rollout_is_std"], rel=1e-7)
    assert per_row.mean() == pytest.approx(expected["rollout_is_seq_mean"], rel=1e-8)
    assert per_row.std(ddof=1) == pytest.approx(expected["rollout_is_seq_std"], rel=1e-6)
    assert (high, low) == pytest.approx(
        (expected["rollout_is_ratio_fraction_high"], expected["rollout_is_ratio_fraction_low"]), abs=1e-8
    )


# -- off-policy diagnostics --------------------------------------------------------------------------------


def _real(version):
    records = real_rollouts()
    trainer = np.concatenate([r["trainer_logprobs"][version] for r in records])
    behaviour = np.concatenate([r["behavior_logprobs"] for r in records])
    return trainer, behaviour, offsets_from_lengths([len(r["response_tokens"]) for r in records])


@pytest.mark.parametrize("case", cases("ess_real.json", function="offpolicy_metrics"), ids=lambda c: c["id"])
def test_real_rollouts_give_the_stored_diagnostics(case):
    trainer, behaviour, offsets = _real(case["inputs"]["trainer_version"])

    report = off_policy_report(trainer, behaviour, group_offsets=offsets, high=2.0)

    found = {
        "k1_kl": report.k1_kl,
        "k3_kl": report.k3_kl,
        "chi2_token": report.chi2_token,
        "mean_abs_logdiff": report.mean_abs_log_ratio,
        "fraction_above_2": report.fraction_high,
        "mean_weight": report.mean_weight,
    }
    assert set(found) == set(case["expected"])
    for name, expected in case["expected"].items():
        assert close(found[name], expected, case["tolerance"]), name


def test_every_diagnostic_equals_its_formula_written_out():
    trainer, behaviour, offsets = _real(3)
    d = trainer - behaviour
    rows = [slice(a, b) for a, b in pairwise(offsets)]
    sums = np.array([math.fsum(d[row]) for row in rows])
    means = [(trainer[row].mean(), behaviour[row].mean()) for row in rows]

    report = off_policy_report(trainer, behaviour, group_offsets=offsets, high=2.0, low=0.25)

    expected = {
        "tokens": 902,
        "sequences": 32,
        "chi2_sequence": np.mean(np.exp(2 * sums)) - 1,
        "std_weight": np.exp(d).std(),
        "min_weight": math.exp(d.min()),
        "max_weight": math.exp(d.max()),
        "token_probability_error": ess_twin.mean_exp(np.abs(d)),
        "fraction_low": np.mean(np.exp(d) < 0.25),
        "sequence_fraction_high": np.mean(np.exp(sums) > 2),
        "sequence_fraction_low": np.mean(np.exp(sums) < 0.25),
        "trainer_perplexity": np.mean([math.exp(-t) for t, _ in means]),
        "behaviour_perplexity": np.mean([math.exp(-b) for _, b in means]),
        "log_perplexity_difference": np.mean([b - t for t, b in means]),
        "log_perplexity_abs_difference": np.mean([abs(b - t) for t, b in means]),
        "perplexity_ratio": np.mean([math.exp(b - t) for t, b in means]),
        "token_normalized_ess": rollout_ess(d, level="token", group_offsets=offsets).normalized_ess,
        "sequence_normalized_ess": rollout_ess(d, level="sequence", group_offsets=offsets).normalized_ess,
        "sequence_geometric_normalized_ess": rollout_ess(
            d, level="sequence_geometric", group_offsets=offsets
        ).normalized_ess,
    }
    for name, value in expected.items():
        assert getattr(report, name) == pytest.approx(value, rel=1e-11), name


def test_alarms_name_what_is_beyond_the_usual_thresholds():
    healthy, stale = (off_policy_report(*_real(v)[:2], group_offsets=_real(v)[2]) for v in (0, 3))

    assert healthy.alarms() == ()
    assert stale.alarms() == (
        "token normalized ESS 0.256 is below 0.3",
        "standard deviation of the weights 1.96 is above 1",
        "token probability error 1.41 is above 1.05",
    )


def test_a_batch_without_active_tokens_says_so_instead_of_dividing_by_zero():
    report = off_policy_report([[0.0, 0.0]], [[0.0, 0.0]], mask=[[0, 0]])

    assert (report.tokens, report.sequences) == (0, 0)
    assert math.isnan(report.k1_kl)
    assert math.isnan(report.sequence_geometric_normalized_ess)
    assert report.alarms() == ("no token is active",)


def test_values_beyond_a_float_are_infinity_not_clamped():
    report = off_policy_report([[0.0, -1.0], [0.0, 0.0]], [[-900.0, -1.0], [0.0, 0.0]])

    assert (report.chi2_sequence, report.max_weight, report.std_weight) == (INF, INF, INF)
    assert report.k1_kl == -225.0
    assert report.token_normalized_ess == 0.25


def test_a_trainer_probability_of_zero_is_legal_and_a_behaviour_one_is_not():
    report = off_policy_report([[-INF, -1.0]], [[-1.0, -1.0]])

    assert (report.min_weight, report.mean_weight, report.k1_kl, report.k3_kl) == (0.0, 0.5, INF, INF)
    with pytest.raises(ConfigError) as refused:
        off_policy_report([[-1.0]], [[-INF]])
    assert str(refused.value) == (
        "behavior_logprobs, active token 0: must be finite: a sampled token has a probability above 0 (got "
        "-inf). Mask the token out, or find where the log probability was lost."
    )


def test_a_length_mismatch_is_never_padded():
    with pytest.raises(
        ConfigError, match=r"trainer_logprobs: must match behavior_logprobs, \(1, 3\) \(got \(1, 2\)\)"
    ):
        off_policy_report([[-1.0, -1.0]], [[-1.0, -1.0, -1.0]])


@given(st.lists(st.lists(st.floats(-5, 0), min_size=1, max_size=5), min_size=1, max_size=5))
def test_the_same_policy_shows_no_difference(rows):
    flat = [x for row in rows for x in row]

    report = off_policy_report(flat, flat, group_offsets=offsets_from_lengths([len(r) for r in rows]))

    assert (report.k1_kl, report.k3_kl, report.chi2_token, report.chi2_sequence) == (0, 0, 0, 0)
    assert (report.mean_weight, report.std_weight, report.perplexity_ratio) == (1, 0, 1)
    assert (report.token_normalized_ess, report.sequence_normalized_ess) == (1, 1)
    assert report.alarms() == ()


# -- the Pareto tail ---------------------------------------------------------------------------------------


def _pareto_inputs(inputs):
    if inputs["n"] == 1000:
        return -0.5 * np.log(1 - (np.arange(1000) + 0.5) / 1000)
    if inputs["n"] == 200:
        return np.linspace(-1, 1, 200)
    return np.r_[np.linspace(-1, 1, 99), 1000.0] if inputs["n"] == 100 else np.zeros(10)


@pytest.mark.parametrize("case", cases("ess.json", function="psis"), ids=lambda c: c["id"])
def test_pareto_case(case):
    log_weights = _pareto_inputs(case["inputs"])
    if "raises" in case["expected"]:
        with pytest.raises(ValueError, match="must be at least 25"):
            pareto_khat(log_weights)
        return

    report = pareto_khat(log_weights)

    assert close(report.khat, case["expected"]["khat"], case["tolerance"])
    if "psis_ess" in case["expected"]:
        assert close(report.smoothed_ess, case["expected"]["psis_ess"], case["tolerance"])
        assert close(report.ess, case["expected"]["raw_ess"], 1e-12)


def test_a_tail_of_one_weight_is_never_called_reliable():
    report = pareto_khat(np.r_[np.linspace(-1, 1, 99), 1000.0])

    assert (report.reliable, report.tail_count, report.ess) == (False, 1, 1.0)


def test_the_sign_is_that_of_log_weights():
    heavy = -0.9 * np.log(1 - (np.arange(2000) + 0.5) / 2000)

    assert pareto_khat(heavy).khat == pytest.approx(0.9, abs=0.05)
    assert pareto_khat(-heavy).khat < 0


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.7])
def test_khat_finds_the_shape_of_drawn_pareto_weights(shape):
    rng = np.random.default_rng(11)

    reports = [pareto_khat(np.log1p(rng.pareto(1 / shape, 10_000))) for _ in range(20)]

    # One fit of a tail of 300 has a standard deviation of about (1 + k) / sqrt(300), 0.1 here.
    assert np.mean([report.khat for report in reports]) == pytest.approx(shape, abs=0.06)
    assert reports[0].good_limit == 0.7


def test_equal_tails_are_refused_with_what_to_look_at_instead():
    with pytest.raises(ConfigError) as refused:
        pareto_khat(np.zeros(100))

    assert str(refused.value) == (
        "log_weights: must differ in the tail: k-hat is undefined for equal weights (got 0.0). The ESS, 100, "
        "says all there is."
    )


@given(st.lists(st.floats(-3, 3), min_size=30, max_size=60, unique=True), st.integers(-400, 400))
def test_a_common_shift_leaves_khat_alone(row, shift):
    base = np.round(np.array(row), 6)
    assume(np.unique(np.sort(base)[-13:]).size == 13)
    report, moved = pareto_khat(base), pareto_khat(base + shift)

    assert moved.khat == pytest.approx(report.khat, abs=1e-5)
    assert moved.smoothed_ess == pytest.approx(report.smoothed_ess, rel=1e-5)
