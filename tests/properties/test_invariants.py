"""The invariants of the simulated pipeline, each a property over arbitrary valid configurations."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies.pipeline_configs import law_maximum, pipeline_settings, to_config

from lagsweep.sweeps.execute.unit_arrays import all_lag_bins
from lagsweep.sweeps.runs.many import Record, simulate_batch
from lagsweep.sweeps.runs.simulate import advance_run, finish_run, simulate_pipeline, start_run

COUNTS = (
    "updates",
    "trained_tokens",
    "trained_rollouts",
    "generated_tokens",
    "generated_rollouts",
    "discarded_tokens",
    "discarded_rollouts",
    "syncs",
)
INTEGRALS = ("backpressure_seconds", "idle_slot_seconds", "trainer_wait_seconds")
NO_WARMUP = {"warmup_seconds": 0.0}


def run(drawn, **changes):
    return simulate_pipeline(to_config({**drawn, **changes}), rollouts=True)


def equal_runs(one, other):
    """Whether two results are the same, bit for bit."""
    for name, value in one.metrics.items():
        theirs = other.metrics[name]
        if value != theirs and not (math.isnan(value) and math.isnan(theirs)):
            return False
    tables = ("batches", "timeline", "rollouts")
    return np.array_equal(one.lag_counts, other.lag_counts) and all(
        getattr(one, table) == getattr(other, table) for table in tables
    )


def measured_seconds(result):
    """The span by which rates divide, from a run without a warm-up."""
    config = result.config
    if config.stop_after_updates is not None and result.final_version == config.stop_after_updates:
        return result.batches[-1].end
    return config.duration_seconds


# Bounds


@given(pipeline_settings())
def test_the_queue_keeps_its_bound(drawn):
    result = run(drawn)
    longest, workers = law_maximum(drawn["response_length"]), drawn["rollout_workers"]
    highest = max(result.max_queue_tokens_observed, *(row.queue_tokens for row in result.timeline))
    if drawn["mode"] == "sequential":
        assert highest < drawn["batch_tokens"] + workers * longest
    elif drawn["admission"] == "reserve":
        assert highest <= drawn["max_queue_tokens"]
    else:
        assert highest < drawn["max_queue_tokens"] + workers * longest


@given(pipeline_settings())
def test_no_batch_is_older_than_the_lag_limit(drawn):
    result = run(drawn)
    limit = drawn["max_policy_lag"]
    assert result.max_lag_observed <= limit
    assert all(0 <= batch.mean_lag <= batch.max_lag <= limit for batch in result.batches)
    assert sum(result.lag_counts[limit + 1 :]) == 0 or limit >= len(result.lag_counts) - 1
    assert sum(result.lag_counts) == result.trained_rollouts


@given(pipeline_settings())
def test_every_batch_is_full_and_below_one_response_more(drawn):
    budget, longest = drawn["batch_tokens"], law_maximum(drawn["response_length"])
    assert all(budget <= batch.tokens < budget + longest for batch in run(drawn).batches)


@given(pipeline_settings())
def test_ess_lies_between_one_over_n_and_one(drawn):
    for batch in run(drawn).batches:
        assert 1 / batch.rollouts - 1e-12 <= batch.normalized_ess <= 1 + 1e-12
        assert 0 <= batch.expected_normalized_ess <= 1
        if batch.max_lag == 0:
            assert batch.normalized_ess == batch.expected_normalized_ess == 1.0


# Conservation


@given(pipeline_settings())
def test_tokens_are_conserved(drawn):
    result = run(drawn, **NO_WARMUP)
    assert result.generated_tokens == (
        result.trained_tokens + result.in_training_tokens + result.queued_tokens + result.discarded_tokens
    )


@given(pipeline_settings())
def test_rollouts_are_conserved_by_outcome(drawn):
    result = run(drawn, **NO_WARMUP)
    tokens = dict.fromkeys(("trained", "in_training", "queued", "discarded", "running"), 0)
    counts = dict(tokens)
    for rollout in result.rollouts:
        tokens[rollout.outcome] += rollout.tokens
        counts[rollout.outcome] += 1
    assert tokens["trained"] == result.trained_tokens
    assert tokens["in_training"] == result.in_training_tokens
    assert tokens["queued"] == result.queued_tokens
    assert tokens["discarded"] == result.discarded_tokens
    assert counts["trained"] == result.trained_rollouts
    assert counts["discarded"] == result.discarded_rollouts
    assert counts["running"] == result.timeline[-1].in_flight
    assert sum(counts.values()) - counts["running"] == result.generated_rollouts


@given(pipeline_settings())
def test_idle_slot_seconds_complete_the_occupied_ones(drawn):
    result = run(drawn, **NO_WARMUP)
    seconds = measured_seconds(result)
    whole = drawn["rollout_workers"] * seconds
    assert result.idle_slot_seconds == pytest.approx(
        whole * (1 - result.rollout_utilization), rel=1e-12, abs=1e-9 * whole
    )
    assert result.trainer_wait_seconds == pytest.approx(
        seconds * (1 - result.trainer_utilization), rel=1e-12, abs=1e-9 * seconds
    )
    assert 0 <= result.backpressure_seconds <= result.idle_slot_seconds + 1e-12


# Versions


@given(pipeline_settings())
def test_published_versions_never_fall_and_never_lead_the_trainer(drawn):
    result = run(drawn, **NO_WARMUP)
    published = [row.published for row in result.timeline]
    versions = [row.version for row in result.timeline]
    assert published == sorted(published)
    assert versions == sorted(versions)
    assert all(behind <= ahead for behind, ahead in zip(published, versions))
    assert all(version % drawn["sync_every_updates"] == 0 for version in published)
    assert result.updates == result.final_version == len(result.batches) == versions[-1]
    assert [batch.update for batch in result.batches] == list(range(1, result.updates + 1))


@given(pipeline_settings())
def test_an_update_discards_from_the_queue_only_what_just_became_too_old(drawn):
    # With steps of a tick or more, an update precedes every completion of its tick: the queue at an update
    # holds what ended earlier. What then leaves it is a batch, or has exactly the version that just became
    # too old.
    result = run(drawn, **NO_WARMUP)
    assume(all(batch.start < batch.end for batch in result.batches))
    limit = drawn["max_policy_lag"]
    starts = {batch.start: batch.tokens for batch in result.batches}
    previous = result.timeline[0]
    for row in result.timeline[1:]:
        if row.event == "update":
            dropped = sum(
                rollout.tokens
                for rollout in result.rollouts
                if rollout.outcome == "discarded"
                and rollout.behaviour_version == row.version - limit - 1
                and rollout.end < row.time
            )
            taken = previous.queue_tokens - row.queue_tokens - dropped
            possible = {0, starts.get(row.time, 0)}
            if row.version == result.final_version:
                possible.add(result.in_training_tokens)
            assert taken in possible
        previous = row
    for rollout in result.rollouts:
        too_old = result.final_version - rollout.behaviour_version > limit
        assert rollout.outcome != "queued" or not too_old
        assert rollout.outcome != "discarded" or too_old


# One run is a function of its configuration and seed


@given(pipeline_settings(), st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.999]))
def test_counts_over_two_spans_add_up(drawn, share):
    duration = drawn["duration_seconds"]
    middle = duration * share
    assume(middle >= 1e-6 and round(middle * 1e6) < round(duration * 1e6))
    whole = run(drawn, **NO_WARMUP)
    first = run(drawn, **NO_WARMUP, duration_seconds=middle)
    second = run(drawn, warmup_seconds=middle)
    for name in COUNTS:
        assert getattr(first, name) + getattr(second, name) == getattr(whole, name), name
    assert np.array_equal(first.lag_counts + second.lag_counts, whole.lag_counts)
    for name in INTEGRALS:
        total = getattr(first, name) + getattr(second, name)
        assert total == pytest.approx(getattr(whole, name), rel=1e-12, abs=1e-12), name
    assert max(first.max_lag_observed, second.max_lag_observed) == whole.max_lag_observed
    assert (
        max(first.max_queue_tokens_observed, second.max_queue_tokens_observed)
        == whole.max_queue_tokens_observed
    )


@given(pipeline_settings(), st.sampled_from([0.1, 0.3, 0.5, 0.9]))
def test_a_shorter_run_is_a_prefix_of_a_longer_one(drawn, share):
    shorter = drawn["duration_seconds"] * share
    assume(shorter >= 1e-6)
    whole = run(drawn, **NO_WARMUP)
    part = run(drawn, **NO_WARMUP, duration_seconds=shorter)
    assert part.batches == whole.batches[: len(part.batches)]
    assert part.timeline == whole.timeline[: len(part.timeline)]
    started = [(r.number, r.tokens, r.behaviour_version, r.start) for r in part.rollouts]
    assert (
        started
        == [(r.number, r.tokens, r.behaviour_version, r.start) for r in whole.rollouts][: len(started)]
    )


@given(pipeline_settings(), st.integers(1, 6))
def test_a_run_to_an_update_is_a_prefix_of_the_run_to_the_horizon(drawn, updates):
    whole = run({**drawn, "stop_after_updates": None}, **NO_WARMUP)
    part = run(drawn, **NO_WARMUP, stop_after_updates=updates)
    assert part.batches == whole.batches[:updates]
    assert part.timeline == whole.timeline[: len(part.timeline)]


@given(pipeline_settings(), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_stops_and_resumes_anywhere_change_nothing(drawn, shares):
    config = to_config(drawn)
    state = None
    for share in [*sorted(shares), None]:
        # Each leg starts from the saved arrays alone, in a fresh run.
        leg = start_run(config, rollouts=True)
        if state is not None:
            leg.restore(state)
        advance_run(leg, None if share is None else share * drawn["duration_seconds"])
        state = leg.arrays()
    assert equal_runs(finish_run(leg), run(drawn))


@given(st.lists(pipeline_settings(), min_size=1, max_size=4), st.integers(0, 2**64 - 4))
def test_one_configuration_or_many_give_the_same_runs(drawn, seed):
    seeds = np.array([seed, seed + 2], np.uint64)
    together = simulate_batch([to_config(one) for one in drawn], seeds, record=Record(batches=True))
    for row, one in enumerate(drawn):
        for column in range(2):
            alone = run({**one, "seed": int(seeds[column])})
            for name, value in alone.metrics.items():
                np.testing.assert_array_equal(together.metrics[name][row, column], value, err_msg=name)
            assert np.array_equal(all_lag_bins(together.lag_counts)[row, column], alone.lag_counts)


@settings(max_examples=20)
@given(st.lists(pipeline_settings(), min_size=2, max_size=8))
def test_threads_and_cuts_do_not_change_a_run(drawn):
    configs = [to_config(one) for one in drawn]
    seeds = np.arange(6, dtype=np.uint64)
    whole = simulate_batch(configs, seeds)
    cuts = [(one, part) for one in configs for part in (seeds[:1], seeds[1:4], seeds[4:])]
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda cut: simulate_batch([cut[0]], cut[1]), cuts))
    for name, values in whole.metrics.items():
        pieces = np.concatenate([part.metrics[name][0] for part in parts]).reshape(len(configs), len(seeds))
        np.testing.assert_array_equal(values, pieces, err_msg=name)


# Modes


@given(pipeline_settings(themes=("sequential",)))
def test_sequential_with_a_publication_per_update_has_no_lag(drawn):
    result = run(drawn, sync_every_updates=1)
    assert sum(result.lag_counts[1:]) == 0
    assert result.discarded_rollouts == 0
    assert result.backpressure_seconds == 0
    assert all(batch.normalized_ess == 1.0 for batch in result.batches)


@given(pipeline_settings(themes=("sequential",)))
def test_sequential_never_overlaps_its_phases(drawn):
    result = run(drawn)
    for batch in result.batches:
        for rollout in result.rollouts:
            ended = math.inf if rollout.end is None else rollout.end
            assert ended <= batch.start or rollout.start >= batch.end


@given(pipeline_settings(themes=("sequential",)))
def test_sequential_never_stalls(drawn):
    assert not run(drawn).stalled


@given(pipeline_settings())
def test_threshold_with_a_cap_of_a_batch_never_stalls(drawn):
    cap = max(drawn["max_queue_tokens"], drawn["batch_tokens"])
    assert not run(drawn, mode="bounded_async", admission="threshold", max_queue_tokens=cap).stalled


# Little's law, exactly


@given(pipeline_settings())
def test_slot_time_is_the_sum_of_the_rollouts_times(drawn):
    result = run(drawn, **NO_WARMUP)
    end = measured_seconds(result)
    ticks = sum(
        round(min(r.end if r.end is not None else end, end) * 1e6) - round(r.start * 1e6)
        for r in result.rollouts
    )
    occupied = result.rollout_utilization * drawn["rollout_workers"] * end * 1e6
    assert occupied == pytest.approx(ticks, rel=1e-9, abs=1e-6)
