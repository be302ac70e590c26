"""The fits of a calibration by themselves: known laws come back, outliers do no harm."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import lagsweep as ls
from lagsweep.sweeps.calibrate.fits import above_zero, block_draws, ends, mean_fit
from lagsweep.sweeps.calibrate.generation import fit_generation
from lagsweep.sweeps.calibrate.lengths import fit_lengths, lognormal_of, segments_of
from lagsweep.sweeps.calibrate.longest import longest_over_mean
from lagsweep.sweeps.calibrate.phases import fit_phase, fit_phases
from lagsweep.sweeps.calibrate.spread import spread_of_groups
from lagsweep.sweeps.calibrate.waits import fit_fetch, fit_interference, fit_recurring

DRAW = np.random.default_rng


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(4, 40))
def test_least_squares_above_zero_is_that_of_scipy(seed, coefficients, rows):
    draw = DRAW(seed)
    columns = draw.uniform(0.1, 2.0, (rows, coefficients))
    target = columns @ draw.normal(0.5, 1.0, coefficients) + draw.normal(0, 0.3, rows)

    found = above_zero(columns[None], target[None])[0]
    expected, _ = nnls(columns, target)

    assert np.allclose(found, expected, atol=1e-6)


def test_a_bootstrap_of_blocks_is_as_wide_as_means_of_correlated_steps_spread():
    """Steps of an autoregressive series: the interval of the mean holds the true one in nine of ten."""
    draw, hits, rounds = DRAW(1), 0, 200
    for _ in range(rounds):
        noise = draw.normal(size=160)
        steps = np.zeros(160)
        for k in range(1, 160):
            steps[k] = 0.5 * steps[k - 1] + noise[k]
        fit = mean_fit("step", 10 + steps, "s", "mean")
        hits += fit.low <= 10 <= fit.high
    assert hits >= 0.87 * rounds


def test_the_same_log_gives_the_same_draws_and_a_few_blocks_wider_ends():
    assert (block_draws(50, seed=3) == block_draws(50, seed=3)).all()
    values = DRAW(0).normal(size=400)
    low, high = ends(values)
    wider_low, wider_high = ends(values, rows=30)
    assert wider_low < low < high < wider_high


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.5, 5), st.floats(1e-3, 1e-2))
def test_a_phase_with_a_part_for_each_token_comes_back(seed, fixed, rate):
    draw = DRAW(seed)
    tokens = draw.uniform(1e3, 5e3, 200)
    seconds = (fixed + rate * tokens) * np.exp(draw.normal(0, 0.01, 200))
    found = fit_phase("training_seconds", "training", seconds, tokens)

    assert found.per_token is not None
    assert found.per_token.value == pytest.approx(rate, rel=0.1)
    assert found.seconds(3e3) == pytest.approx(fixed + rate * 3e3, rel=0.01)
    assert found.fixed.low <= found.fixed.value <= found.fixed.high
    assert found.per_token.low <= found.per_token.value <= found.per_token.high


def test_a_rate_that_may_as_well_be_0_is_left_out():
    draw = DRAW(2)
    tokens = draw.uniform(1e3, 2e3, 100)
    found = fit_phase("training_seconds", "training", 20 + draw.normal(0, 0.3, 100), tokens)

    assert found.per_token is None
    assert found.fixed.value == pytest.approx(20, abs=0.1)
    assert found.fixed.rows == 100


def test_a_rate_that_falls_with_tokens_is_left_out_too():
    tokens = np.linspace(1e3, 2e3, 60)
    assert fit_phase("training_seconds", "training", 40 - 0.01 * tokens, tokens).per_token is None


def test_a_step_that_is_far_off_moves_the_mean_but_no_slope():
    tokens = np.linspace(1e3, 2e3, 80)
    seconds = 2 + 0.01 * tokens
    seconds[79] += 300
    found = fit_phase("training_seconds", "training", seconds, tokens)

    assert found.per_token.value == pytest.approx(0.01, rel=1e-6)
    assert found.seconds(tokens).mean() == pytest.approx(seconds.mean())


def test_what_a_step_has_beside_its_phases_is_a_phase():
    frame = pl.DataFrame(
        {"step_seconds": 30 * [50.0], "wait_seconds": 30 * [20.0], "training_seconds": 30 * [25.0]}
    )
    found = {one.words: one.mean.value for one in fit_phases(frame)}
    assert found == {"training": 25.0, "rest of the step": 5.0}

    beside = fit_phases(frame.with_columns(publication_seconds=pl.lit(7.0)), {"publication_seconds": False})
    assert {one.words: one.mean.value for one in beside} == found


def test_a_generation_tells_the_longest_rollout_from_shared_work():
    draw = DRAW(4)
    longest = draw.uniform(500, 1500, 150)
    mean = draw.uniform(200, 300, 150)
    frame = pl.DataFrame(
        {
            "generation_seconds": 2 + longest / 50 + 2e-4 * (64 * mean - longest) + draw.normal(0, 0.05, 150),
            "response_tokens_mean": mean,
            "response_tokens_max": longest,
            "rollouts": 150 * [64.0],
        }
    )
    found = fit_generation(frame)

    assert found.per_longest == pytest.approx(1 / 50, rel=0.02)
    assert found.work_per_token.low <= 2e-4 <= found.work_per_token.high
    assert found.overhead == pytest.approx(2 / (2 + longest.mean() / 50), abs=0.03)


def test_generations_that_are_all_alike_leave_a_range_and_no_value():
    frame = pl.DataFrame(
        {"generation_seconds": 20 * [30.0], "response_tokens_mean": 20 * [200.0],
         "response_tokens_max": 20 * [512.0], "rollouts": 20 * [64.0]}
    )  # fmt: skip
    found = fit_generation(frame)

    assert found.alone.open
    assert found.work_per_token.open
    assert found.shared[1:] == (0.0, pytest.approx(0.9))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.35, 0.9))
def test_the_spread_of_lengths_comes_back_from_means_and_longest(seed, sigma):
    draw = DRAW(seed)
    tokens = np.exp(np.log(400) + sigma * draw.normal(size=(200, 64)))
    frame = pl.DataFrame(
        {"response_tokens_mean": tokens.mean(axis=1), "response_tokens_max": tokens.max(axis=1),
         "rollouts": 200 * [64.0]}
    )  # fmt: skip
    found = fit_lengths(frame)

    # One log is off by 2% (one standard deviation), and not to one side: five deviations and more.
    assert found.sigma.value == pytest.approx(sigma, rel=0.12)
    assert found.between_prompts.value == 0
    assert found.maximum >= tokens.max()


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.2])
def test_the_spread_of_lengths_leans_to_no_side(sigma):
    """Over 250 logs, of which each is off by 2 to 3%, so that their mean has a deviation of 0.2%."""
    draw, found = DRAW(3), []
    for seed in range(250):
        tokens = np.exp(np.log(400) + sigma * draw.standard_normal((100, 128))).round()
        frame = pl.DataFrame(
            {"response_tokens_mean": tokens.mean(axis=1), "response_tokens_max": tokens.max(axis=1),
             "rollouts": 100 * [128.0]}
        )  # fmt: skip
        found.append(fit_lengths(frame, seed=seed).sigma)

    assert not any(one.open for one in found)
    assert np.mean([one.value for one in found]) == pytest.approx(sigma, rel=0.005)
    assert np.mean([one.low <= sigma <= one.high for one in found]) >= 0.9


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.2, 1.6])
@pytest.mark.parametrize("count", [2, 8, 64])
@pytest.mark.parametrize("deviations", [0.3, 2.0, 20.0])
def test_the_longest_over_the_mean_is_that_of_drawn_batches(sigma, count, deviations):
    """With a maximum that cuts many of the lengths, few, or none."""
    maximum = round(400 * np.exp(deviations * sigma))
    tokens = np.exp(np.log(400) + sigma * DRAW(count).standard_normal((1_000_000 // count, count)))
    tokens = np.minimum(tokens, maximum)
    seen = tokens.max(axis=1) / tokens.mean(axis=1)

    # Taylor's series is off by 0.3% at two lengths of which many are cut; the rest is four deviations.
    off = 0.004 + 4 * seen.std() / len(seen) ** 0.5 / seen.mean()
    assert longest_over_mean(400.0, sigma, maximum, count) == pytest.approx(seen.mean(), rel=off)


def test_a_batch_of_one_is_its_own_longest():
    for maximum in (300, 500, 100_000):
        assert longest_over_mean(400.0, 0.8, maximum, 1) == pytest.approx(1.0, rel=1e-6)


def test_a_limit_shows_in_longest_responses_that_are_all_alike():
    draw = DRAW(5)
    tokens = np.minimum(512, np.exp(np.log(300) + 0.6 * draw.normal(size=(120, 64)))).round()
    frame = pl.DataFrame(
        {"response_tokens_mean": tokens.mean(axis=1), "response_tokens_max": tokens.max(axis=1),
         "clipped_fraction": (tokens == 512).mean(axis=1), "rollouts": 120 * [64.0]}
    )  # fmt: skip
    found = fit_lengths(frame)

    assert found.maximum == 512
    assert found.sigma.value == pytest.approx(0.6, abs=0.05)
    assert lognormal_of(found.mean.value, found.sigma.value, 512).mean_tokens == pytest.approx(
        tokens.mean(), rel=0.01
    )

    without = fit_lengths(frame.drop("clipped_fraction"))
    assert without.sigma.open  # every longest response is cut: nothing is told
    assert (without.sigma.low, without.sigma.high) == (0.3, 1.1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from([100.0, 160.0, 260.0]), min_size=1, max_size=4))
def test_drift_is_cut_where_it_happens(seed, means):
    kept = [means[0], *(b for a, b in pairwise(means) if a != b)]
    values = np.concatenate([DRAW(seed + k).normal(mean, 3, 40) for k, mean in enumerate(kept)])
    found = segments_of(values)

    assert len(found) == len(kept)
    assert all(abs(first - 40 * k) <= 1 for k, (first, _) in enumerate(found))
    assert [mean for _, mean in found] == pytest.approx(kept, abs=3)


def test_the_fetch_is_the_wait_of_steps_whose_batch_was_ready():
    draw = DRAW(6)
    waits = np.where(draw.random(200) < 0.4, 3.0 + draw.normal(0, 0.01, 200), 3 + draw.exponential(20, 200))
    found = fit_fetch(pl.DataFrame({"wait_seconds": waits}))
    assert found.value == pytest.approx(3, abs=0.05)
    assert not found.open

    always = fit_fetch(pl.DataFrame({"wait_seconds": 5 + draw.exponential(20, 200)}))
    assert always.open
    assert (always.low, always.value) == (0, 0)


def test_waits_in_whole_seconds_say_no_more_than_a_second():
    waits = np.where(np.arange(100) % 3 == 0, 1.0, 2.0)
    found = fit_fetch(pl.DataFrame({"wait_seconds": waits}))
    assert found.low <= 0.5 <= found.high
    assert found.high >= 1.5 or found.low <= 0.5


def test_what_happens_every_so_many_steps_is_found_with_its_length():
    frame = pl.DataFrame({"evaluation_seconds": [30.0 if k % 5 == 4 else None for k in range(40)]})
    found = fit_recurring(frame, "evaluation_seconds", "evaluation")
    assert (found.every, found.seconds.value, found.seconds.rows) == (5, 30.0, 8)
    assert fit_recurring(frame, "publication_seconds", "publication") is None


def test_training_beside_generation_is_slower_by_what_is_fitted():
    draw = DRAW(7)
    beside = np.arange(120) % 2 == 0
    frame = pl.DataFrame(
        {
            "step_seconds": 120 * [10.0],
            "generation_seconds": np.where(beside, 10.0, 0.0),
            "training_seconds": np.where(beside, 9.0, 7.5) * np.exp(draw.normal(0, 0.02, 120)),
        }
    )
    found = fit_interference(frame)
    assert found.low <= 0.2 <= found.high
    assert fit_interference(frame.head(10)) is None


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 0.5), st.floats(0.25, 0.6))
def test_spread_within_and_between_prompts_comes_back(seed, within, between):
    draw = DRAW(seed)
    means = np.repeat(draw.normal(6, between, 200), 8)
    found = spread_of_groups(np.exp(means + draw.normal(0, within, 1600)), np.arange(1600) // 8)

    assert found[0].value == pytest.approx(within, rel=0.1)
    assert found[1].value == pytest.approx(between, rel=0.35)


@pytest.mark.parametrize(
    ("values", "groups", "field"),
    [([1.0, 0.0], [0, 0], "values"), ([1.0, 2.0], [0], "groups"), ([1.0] * 6, [0, 0, 1, 1, 2, 2], "groups")],
)
def test_a_spread_that_cannot_be_fitted_is_refused(values, groups, field):
    with pytest.raises(ls.ConfigError) as raised:
        spread_of_groups(values, groups)
    assert raised.value.findings[0].field == field
