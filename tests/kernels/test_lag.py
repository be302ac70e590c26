"""Policy lag: the limit's edge, counts, quantiles and summaries against exact twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import ess_twin
from oracle.case_files import bug

from lagsweep.errors import ConfigError
from lagsweep.kernels.staleness.lag import (
    LAG_BINS,
    lag_counts,
    lag_quantiles,
    lag_quantiles_from_counts,
    lag_summary,
    policy_lag,
    sequence_lag,
    within_lag,
)
from lagsweep.kernels.staleness.ragged import offsets_from_lengths

lag_rows = st.lists(st.integers(0, 90), max_size=40)


@pytest.mark.parametrize("limit", [0, 2])
def test_the_limit_keeps_exactly_what_is_not_beyond_it(limit):
    case = bug("bug-stale-01")

    found = within_lag(case["input"]["trainer_version"], case["input"]["behaviour_versions"], limit)

    assert found.tolist() == case["expected"][f"max_lag={limit}"]


def test_filler_rows_stay_out_of_the_summary():
    case = bug("bug-stale-05")
    versions = case["input"]["versions"] + case["input"]["filler_versions"]

    found = lag_summary(case["input"]["trainer_version"], versions, mask=[1, 1, 1, 0, 0])

    assert (found.minimum, found.maximum, found.count) == (0, 3, 3)
    assert found.mean == pytest.approx(case["expected"]["lag_mean"], rel=1e-12)


def test_a_rollout_that_spans_versions_goes_by_its_oldest_token_or_token_by_token():
    case = bug("bug-stale-06")
    trainer, tokens = case["input"]["trainer_version"], case["input"]["token_versions"]
    limit = case["input"]["max_lag"]

    mask = within_lag(trainer, tokens, limit)

    assert sequence_lag(trainer, tokens) == case["expected"]["sequence_lag"]
    assert within_lag(trainer, min(tokens), limit) is case["expected"]["sequence_rule_keeps"]
    assert mask.tolist() == [bool(x) for x in case["expected"]["token_mask"]]
    assert mask.sum() == case["expected"]["trained_tokens_token_rule"]


def test_token_versions_on_padding_are_not_judged():
    versions = [[-1, 3, 4], [-1, -1, -1]]

    found = sequence_lag([6, 6], versions, mask=[[0, 1, 1], [0, 0, 0]])

    assert found.tolist() == [3, -1]


def test_a_version_newer_than_the_trainers_is_refused():
    with pytest.raises(ConfigError) as refused:
        policy_lag(17, [16, 18])

    assert str(refused.value) == (
        "behaviour_version: must not be newer than the trainer's version 17 (got 18). A version was counted "
        "up before its weights were there, or the two are swapped."
    )


def test_an_empty_batch_has_no_lag():
    summary = lag_summary(3, [])

    assert (summary.minimum, summary.maximum, summary.count) == (-1, -1, 0)
    assert math.isnan(summary.mean)
    assert lag_quantiles([], [0.5]).tolist() == [-1]
    assert lag_counts([]).sum() == 0


def test_the_last_bin_is_64_or_more():
    counts = lag_counts([0, 63, 64, 65, 10**12])

    assert counts.shape == (LAG_BINS,)
    assert (counts[0], counts[63], counts[64]) == (1, 1, 3)


@given(lag_rows)
def test_counts_equal_the_twin_for_usual_and_for_arbitrary_bins(lags):
    edges = [0, 1, 2, 4, 8, 16, 64]

    assert lag_counts(lags).tolist() == ess_twin.counts_by_lag(lags, range(LAG_BINS))
    assert lag_counts(lags, edges=edges).tolist() == ess_twin.counts_by_lag(lags, edges)


@given(st.lists(lag_rows, min_size=1, max_size=6))
def test_ragged_groups_are_counted_and_ranked_one_by_one(rows):
    flat, offsets = [lag for row in rows for lag in row], offsets_from_lengths([len(row) for row in rows])

    counts = lag_counts(flat, group_offsets=offsets)
    medians = lag_quantiles(flat, [0.5, 0.95], group_offsets=offsets)

    assert counts.tolist() == [lag_counts(row).tolist() for row in rows]
    assert medians.tolist() == [lag_quantiles(row, [0.5, 0.95]).tolist() for row in rows]


@given(lag_rows.filter(len), st.integers(0, 100))
def test_quantiles_equal_the_twin(lags, percent):
    exact = ess_twin.quantile(lags, f"{percent}/100")

    assert lag_quantiles(lags, percent / 100) == exact
    capped = [min(lag, LAG_BINS - 1) for lag in lags]
    from_counts = lag_quantiles_from_counts(lag_counts(lags), percent / 100)
    assert from_counts == ess_twin.quantile(capped, f"{percent}/100")


def test_quantiles_of_many_cells_come_from_their_counts():
    counts = np.zeros((2, 3, LAG_BINS), dtype=np.int64)
    counts[..., 2] = 9
    counts[..., 5] = 1
    counts[1, 2] = 0

    found = lag_quantiles_from_counts(counts, [0.5, 0.95])

    assert found.shape == (2, 3, 2)
    assert found[0, 0].tolist() == [2, 5]
    assert found[1, 2].tolist() == [-1, -1]
    assert lag_quantiles_from_counts([1, 0, 1], 1.0, edges=[0, 4, 16]) == 16


def test_counts_of_huge_batches_do_not_wrap():
    case = bug("bug-numba-07")["input"]["values"]

    found = lag_quantiles_from_counts(np.array(case, dtype=np.int32), [0.3, 0.5, 1.0])

    assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: lag_counts([-1]),
            "lag: must be at least 0 (got -1). Give a whole number in that range.",
        ),
        (
            lambda: lag_counts([0, 3], edges=[1, 2]),
            "lag: must be at least the first edge, 1 (got 0). Begin the edges at 0.",
        ),
        (
            lambda: lag_counts([0], edges=[0, 2, 2]),
            "edges: must be one rising row of lags (got [0, 2, 2]). Give the least lag of each bin, such as "
            "[0, 1, 2, 4, 8].",
        ),
        (
            lambda: lag_quantiles([0], 1.5),
            "quantiles: must be at most 1 (got 1.5). Give a number in that range.",
        ),
        (
            lambda: lag_quantiles_from_counts([1, 2], 0.5, edges=[0]),
            "edges: must name all 2 bins (got [0]). Give one edge per bin.",
        ),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ConfigError) as refused:
        call()

    assert str(refused.value) == text
