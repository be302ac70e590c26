"""Engines in closed form equal the twin that takes one step at a time, in every time and every count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.engine_twin import U, run_requests

from lagsweep import ConfigError, Engine, simulate_engine
from lagsweep.sweeps.config.engine import UNITS_PER_SECOND, coefficients_of, units

SUMS = {
    "decode_steps": "steps",
    "decoded_tokens": "decoded",
    "prefilled_tokens": "prefilled",
    "reprefilled_tokens": "reprefilled",
    "preemptions": "preemptions",
}


@st.composite
def deployments(draw):
    """An engine whose numbers meet at ties often, and requests that just fit it."""
    longest = draw(st.integers(1, 40))
    requests = draw(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(1, longest), st.integers(0, 60)),
            min_size=1,
            max_size=24,
        )
    )
    fit = max(prompt + tokens for prompt, tokens, _ in requests)
    # Seconds that are whole microseconds, halves of one, or whole numbers of u.
    step = draw(st.sampled_from([0.0, 1e-6, 2e-6, 7e-6, 5e-7, 3 / UNITS_PER_SECOND]))
    rollout = draw(st.sampled_from([0.0, 1e-6, 2.5e-7, 1 / UNITS_PER_SECOND]))
    if units(step) + units(rollout) == 0:
        step = 1e-6
    engine = Engine(
        count=draw(st.integers(1, 4)),
        step_seconds=step,
        step_seconds_per_rollout=rollout,
        step_seconds_per_context_token=draw(st.sampled_from([0.0, 1e-8, 1e-7, 1 / UNITS_PER_SECOND])),
        prefill_seconds_per_token=draw(st.sampled_from([0.0, 1e-7, 1e-6])),
        kv_cache_tokens=draw(st.one_of(st.none(), st.integers(fit, 3 * fit))),
        max_running=draw(st.one_of(st.none(), st.integers(1, 6))),
        routing=draw(st.sampled_from(["least_loaded", "round_robin"])),
    )
    return engine, requests


def both(engine, requests):
    prompts, tokens, at = (np.array(column) for column in zip(*requests))
    found = simulate_engine(engine, prompts, tokens, at / 1e6)
    coefficients = coefficients_of(engine)[0]
    twin = run_requests(
        (
            *(int(coefficients[name]) for name in ("step", "rollout", "context", "prefill")),
            engine.kv_cache_tokens,
            engine.max_running,
        ),
        engine.count,
        engine.routing,
        [tuple(map(int, request)) for request in requests],
    )
    return found, twin


def assert_equal(engine, requests):
    found, (engines, made) = both(engine, requests)
    rows = found._requests
    for row, one in zip(rows, made):
        times = (
            row["engine"],
            row["admitted_clock"],
            row["first_clock"],
            row["end_clock"],
            row["preemptions"],
        )
        assert times == (one.engine, one.admitted, one.first, one.end, one.preemptions)
    for name, own in SUMS.items():
        assert found.totals[name] == sum(getattr(each, own) for each in engines)
    steps = sum(each.steps for each in engines)
    assert found.totals["mean_engine_running"] == sum(each.running_sum for each in engines) / steps
    assert found.totals["mean_engine_context_tokens"] == sum(each.context_sum for each in engines) / steps
    busy = sum(each.busy for each in engines) / UNITS_PER_SECOND
    assert found.totals["engine_busy_seconds"] == pytest.approx(busy, rel=1e-12)
    if engine.kv_cache_tokens:
        largest = max(each.largest for each in engines)
        assert found.totals["max_kv_cache_share"] == largest / engine.kv_cache_tokens <= 1


@settings(max_examples=400, deadline=None)
@given(deployments())
def test_the_closed_form_equals_single_steps(deployment):
    assert_equal(*deployment)


def test_many_requests_on_a_small_cache_equal_single_steps():
    random = np.random.default_rng(7)
    for _ in range(20):
        requests = list(
            zip(random.integers(0, 60, 120), random.integers(1, 90, 120), random.integers(0, 3000, 120))
        )
        engine = Engine(
            count=int(random.integers(1, 4)),
            step_seconds=float(random.choice([3e-6, 1.7e-6])),
            step_seconds_per_rollout=2e-7,
            step_seconds_per_context_token=3e-9,
            prefill_seconds_per_token=1e-8,
            kv_cache_tokens=int(random.integers(150, 700)),
        )
        assert_equal(engine, requests)


def test_one_request_takes_the_sum_of_an_arithmetic_series():
    engine = Engine(
        step_seconds=0.01, step_seconds_per_rollout=1e-3, step_seconds_per_context_token=1e-6,
        prefill_seconds_per_token=1e-5,
    )  # fmt: skip
    frame = simulate_engine(engine, [500], [1000]).requests_frame()
    steps = sum(0.011 + 1e-6 * (500 + k) for k in range(1000)) + 500 * 1e-5

    assert frame["end_to_end_seconds"][0] == pytest.approx(steps, rel=1e-9)
    assert frame["first_token_seconds"][0] == pytest.approx(0.011 + 500e-6 + 500e-5, rel=1e-9)
    assert frame["seconds_per_token"][0] == pytest.approx((steps - 0.011 - 500e-6 - 500e-5) / 999, rel=1e-9)


def test_every_token_is_decoded_once_and_what_is_prefilled_is_prompts_and_repeats():
    random = np.random.default_rng(3)
    prompts, tokens = random.integers(1, 300, 500), random.integers(1, 900, 500)
    engine = Engine(count=2, step_seconds=0.01, kv_cache_tokens=5000, max_running=40)
    totals = simulate_engine(engine, prompts, tokens, random.uniform(0, 50, 500)).totals

    assert totals["decoded_tokens"] == tokens.sum()
    assert totals["preemptions"] > 0
    assert totals["prefilled_tokens"] == prompts.sum() + totals["reprefilled_tokens"]


def test_an_engine_admits_first_come_first_served():
    random = np.random.default_rng(5)
    at = np.round(np.sort(random.uniform(0, 5, 300)), 6)
    engine = Engine(step_seconds=0.01, kv_cache_tokens=3000)
    frame = simulate_engine(
        engine, random.integers(0, 100, 300), random.integers(1, 500, 300), at
    ).requests_frame()

    assert (np.diff(frame["queue_wait_seconds"].to_numpy() + at) >= -1e-9).all()


def test_the_largest_steps_and_times_stay_exact():
    # Close to the ends of the clock: 2**42 ticks, and steps below 2**62 u.
    engine = Engine(step_seconds=1.0, step_seconds_per_context_token=2e-6)
    frame = simulate_engine(engine, [10], [1_500_000], [100.5]).requests_frame()
    exact = units(1.0) * 1_500_000 + units(2e-6) * (10 * 1_500_000 + 1_500_000 * 1_499_999 // 2)

    assert frame["end_to_end_seconds"][0] == exact / UNITS_PER_SECOND
    assert exact > 2**61
    with pytest.raises(ConfigError, match="must end within"):
        simulate_engine(engine, [10], [3_000_000])


@pytest.mark.parametrize(
    ("fields", "requests", "words"),
    [
        ({"step_seconds": 0.0}, ([1], [1]), "must take time"),
        ({"step_seconds": -1.0}, ([1], [1]), "engine.step_seconds"),
        ({"step_seconds": 1.0, "count": 0}, ([1], [1]), "engine.count"),
        ({"step_seconds": 1.0, "kv_cache_tokens": 0}, ([1], [1]), "engine.kv_cache_tokens"),
        ({"step_seconds": 1.0, "routing": "best"}, ([1], [1]), "engine.routing"),
        ({"step_seconds": 1.0, "speed": 2}, ([1], [1]), "engine.speed"),
        ({}, ([1], [1]), "engine.step_seconds"),
        ({"step_seconds": 1.0, "routing": "group"}, ([1], [1]), "needs a pipeline's groups"),
        (
            {"step_seconds": 1.0, "kv_cache_tokens": 10},
            ([1, 5], [2, 6]),
            "output_tokens, position 1: must fit",
        ),
        ({"step_seconds": 1.0}, ([1], [0]), "output_tokens"),
        ({"step_seconds": 1.0}, ([1, 2], [1, 2, 3]), "must be one row"),
        ({"step_seconds": 1.0}, ([], []), "prompt_tokens"),
        ({"step_seconds": 1.0}, ([1], [1], [-1.0]), "arrival_seconds"),
        ({"step_seconds": 1.0}, ([1], [1], [5e6]), "arrival_seconds, position 0"),
        ({"step_seconds": 1.0, "step_seconds_per_context_token": 3e6}, ([9], [9]), "a step could last"),
    ],
)
def test_bad_engines_and_requests_are_refused_with_the_field(fields, requests, words):
    with pytest.raises(ConfigError, match=words):
        simulate_engine(Engine(**fields), *requests)


def test_a_tick_is_two_to_the_twentieth_of_the_clock():
    assert units(1e-6) == U
