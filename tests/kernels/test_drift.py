"""Drift from what is logged: formulas on drawn weights, bounds on real rollouts, round trips."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep import kernels as k
from lagsweep.errors import ConfigError

DATA = Path(__file__).resolve().parents[1] / "data" / "rollouts"
REAL = json.loads((DATA / "ess_real.json").read_text(encoding="utf-8"))
RECORDS = [
    json.loads(line) for line in (DATA / "real_rollouts_smollm2.jsonl").read_text("utf-8").splitlines()
]


def measured(version, level):
    return next(
        case["expected"]["normalized_ess"]
        for case in REAL
        if case["inputs"]["trainer_version"] == version and case["inputs"].get("level") == level
    )


def measured_kl(version):
    return next(
        case["expected"]["k3_kl"]
        for case in REAL
        if case["inputs"]["trainer_version"] == version and case["function"] == "offpolicy_metrics"
    )


def log_ratios(version):
    return [
        np.array(record["trainer_logprobs"][version]) - np.array(record["behavior_logprobs"])
        for record in RECORDS
    ]


@pytest.fixture(scope="module")
def drawn():
    """Two million log ratios of drift 0.3 at lag 2, by their own formula."""
    spread = 0.3 * math.sqrt(2)
    return spread * np.random.default_rng(3).standard_normal(2_000_000) - spread**2 / 2


def test_each_way_back_finds_the_drift_of_drawn_ratios(drawn):
    ratio = np.exp(drawn)
    ess = ratio.sum() ** 2 / (ratio**2).sum() / len(ratio)

    assert k.drift_from_ess(ess, 2) == pytest.approx(0.3, rel=0.01)
    assert k.drift_from_kl(-drawn.mean(), 2) == pytest.approx(0.3, rel=0.01)
    assert k.drift_from_kl((ratio - drawn - 1).mean(), 2) == pytest.approx(0.3, rel=0.01)
    for width in (0.1, 0.2, 0.5):
        share = (np.abs(ratio - 1) > width).mean()
        assert k.drift_from_clip_fraction(share, width, 2) == pytest.approx(0.3, rel=0.01)


@given(st.floats(1e-3, 5), st.floats(0.1, 64))
def test_an_ess_gives_back_its_drift(drift, lag):
    ess = math.exp(-(drift**2) * lag)
    if ess > 1e-300:  # smaller ones have fewer digits
        assert k.drift_from_ess(ess, lag) == pytest.approx(drift, rel=1e-6)


@given(st.floats(0, 0.99), st.floats(0.01, 0.9))
def test_a_larger_share_outside_is_a_larger_drift(share, width):
    low, high = k.drift_from_clip_fraction([share, share + 1e-3], width)

    assert low < high


@given(st.floats(0, 3), st.integers(1, 10_000), st.floats(0, 1))
def test_a_sequence_lies_between_tokens_apart_and_together(drift, tokens, correlation):
    found = k.sequence_drift(drift, tokens, correlation)

    assert drift * math.sqrt(tokens) * (1 - 1e-12) <= found <= drift * tokens * (1 + 1e-12)


def test_sums_of_correlated_tokens_have_the_drift_of_the_formula():
    rng = np.random.default_rng(5)
    shared, own = rng.standard_normal((100_000, 1)), rng.standard_normal((100_000, 20))
    tokens = 0.1 * (math.sqrt(0.3) * shared + math.sqrt(0.7) * own)

    assert tokens.sum(axis=1).std() == pytest.approx(k.sequence_drift(0.1, 20, 0.3), rel=0.01)


class TestRealRollouts:
    """SmolLM2-135M after real optimizer steps (tests/data/rollouts/SOURCES.md)."""

    def test_ess_and_kl_of_tokens_tell_of_one_drift_at_lag_1(self):
        by_ess = k.drift_from_ess(measured(1, "token"))

        assert by_ess == pytest.approx(0.173, abs=0.001)
        assert k.drift_from_kl(measured_kl(1)) == pytest.approx(by_ess, rel=0.05)

    def test_the_sequence_lies_between_its_bounds(self):
        tokens = np.mean([len(one) for one in log_ratios(1)])
        token, sequence = (k.drift_from_ess(measured(1, level)) for level in ("token", "sequence"))
        geometric = k.drift_from_ess(measured(1, "sequence_geometric"))

        assert k.sequence_drift(token, tokens, 0) < sequence < k.sequence_drift(token, tokens, 1)
        assert token / math.sqrt(tokens) < geometric < token
        assert sequence == pytest.approx(1.517, abs=0.001)
        assert geometric == pytest.approx(0.125, abs=0.001)

    def test_a_clip_ratio_of_real_tokens_tells_less(self):
        # Most tokens hardly move and a few move far: what a normal law makes of the middle is too small.
        ratios = np.exp(np.concatenate(log_ratios(1)))
        share = float((np.abs(ratios - 1) > 0.2).mean())
        drift = k.drift_from_clip_fraction(share, 0.2)

        assert 0.05 < share < 0.25
        assert 0.5 < drift / k.drift_from_ess(measured(1, "token")) < 1

    def test_it_grows_faster_than_the_lag(self):
        found = [np.concatenate(log_ratios(version)) for version in (1, 2, 3)]
        variances = [-math.log(k.effective_sample_size(log_weights=one, normalized=True)) for one in found]

        assert variances[1] > 4 * variances[0]
        assert variances[2] > 9 * variances[0]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: k.drift_from_ess(0.0), "normalized_ess"),
        (lambda: k.drift_from_ess(1.1), "normalized_ess"),
        (lambda: k.drift_from_ess(0.9, 0), "lag"),
        (lambda: k.drift_from_kl(-0.1), "kl"),
        (lambda: k.drift_from_clip_fraction(1.0, 0.2), "fraction"),
        (lambda: k.drift_from_clip_fraction(0.1, 1.0), "clip_range"),
        (lambda: k.sequence_drift(0.1, 0), "tokens"),
        (lambda: k.sequence_drift(0.1, 10, 1.5), "correlation"),
    ],
)
def test_what_is_out_of_range_is_refused(call, field):
    with pytest.raises(ConfigError, match=rf"^{field}"):
        call()


def test_an_ess_above_that_of_fresh_data_is_no_drift():
    assert k.drift_from_ess(0.99, ess_at_lag_0=0.98) == 0.0
