"""Invariants of the general engine: conservation, bounds, spans, prefixes, over arbitrary valid settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies.general_configs import GROUPED, PAIRED, general_settings, longest_of, to_config
from strategies.pipeline_configs import LAWS

from lagsweep.sweeps.runs.general import simulate_general
from lagsweep.sweeps.runs.many import simulate_batch

NO_WARMUP = {"warmup_seconds": 0.0}
WAYS_OUT = ("discarded", "filtered", "evicted", "cancelled")
COUNTS = (
    "updates",
    "trained_tokens",
    "trained_rollouts",
    "trained_groups",
    "generated_tokens",
    "generated_rollouts",
    "generated_groups",
    "discarded_tokens",
    "discarded_groups",
    "filtered_tokens",
    "filtered_groups",
    "evicted_tokens",
    "evicted_groups",
    "cancelled_tokens",
    "cancelled_groups",
    "requeued_groups",
    "wasted_tokens",
    "syncs",
)
SLOTS = ("busy", "publication", "max_running", "one_batch", "token_cap", "sequential", "limits")
TRAINER = ("busy", "publication", "running_groups", "batch")
HEAVY = ("table", 10, (60, *([0] * 989), 1))
ANY_LAW = st.sampled_from((*LAWS, HEAVY, PAIRED))


def run(drawn, **changes):
    return simulate_general(to_config({**drawn, **changes}), rollouts=True)


def measured_seconds(result):
    """The span from 0 to the end of a run."""
    stop = result.config.stop_after_updates
    if stop is not None and result.final_version >= stop:
        return result.batches[-1].end
    return result.config.duration_seconds


# Conservation: every way out is taken once


@given(general_settings())
def test_tokens_are_conserved_with_every_way_out(drawn):
    result = run(drawn, **NO_WARMUP)
    inside = result.queued_tokens + result.in_training_tokens + result.unfinished_group_tokens
    left = sum(getattr(result, f"{way}_tokens") for way in WAYS_OUT)
    assert result.generated_tokens == result.trained_tokens + inside + left


@given(general_settings())
def test_groups_leave_once_and_give_back_their_slots(drawn):
    result = run(drawn, **NO_WARMUP)
    ready = result.trained_groups + result.queued_groups + result.prefetched_groups
    ready += result.discarded_groups + result.filtered_groups + result.evicted_groups
    in_step = result.generated_groups - ready
    batch = drawn.get("batch_groups")
    assert in_step >= 0
    assert (in_step + result.prefetched_groups > 0) == (result.in_training_tokens > 0)
    assert batch is None or in_step in (0, batch)
    # What runs holds a slot for each member that started and has not ended; no other slot is held.
    running = [row for row in result.rollouts if row.outcome == "running"]
    assert len(running) == result.timeline[-1].in_flight
    assert len(running) <= drawn["rollout_workers"]
    if drawn["group_size"] == 1 and drawn.get("admit", "group") == "group":
        assert result.running_groups == len(running)


@given(general_settings())
def test_outcomes_add_up_to_the_counts(drawn):
    result = run(drawn, **NO_WARMUP)
    tokens = dict.fromkeys(("trained", "in_training", "queued", "waiting", *WAYS_OUT), 0)
    for row in result.rollouts:
        if row.end is not None:
            tokens[row.outcome] += row.tokens
    assert tokens["trained"] == result.trained_tokens
    assert tokens["in_training"] == result.in_training_tokens
    assert tokens["queued"] == result.queued_tokens
    assert tokens["waiting"] == result.unfinished_group_tokens
    assert all(tokens[way] == getattr(result, f"{way}_tokens") for way in WAYS_OUT)


@given(general_settings())
def test_what_binds_sums_to_the_measured_time(drawn):
    result = run(drawn, **NO_WARMUP)
    ticks = round(measured_seconds(result) * 1e6)
    slots = sum(round(getattr(result, f"slots_{name}_seconds") * 1e6) for name in SLOTS)
    trainer = sum(round(getattr(result, f"trainer_{name}_seconds") * 1e6) for name in TRAINER)
    assert slots == drawn["rollout_workers"] * ticks
    assert trainer == ticks
    assert result.idle_slot_seconds == pytest.approx(slots / 1e6 - result.slots_busy_seconds, abs=1e-6)
    assert result.trainer_wait_seconds == pytest.approx(trainer / 1e6 - result.trainer_busy_seconds, abs=1e-6)


# Spans, prefixes, cuts


@given(general_settings(), st.sampled_from([0.25, 0.5, 0.9]))
def test_counts_over_two_spans_add_up(drawn, share):
    middle = drawn["duration_seconds"] * share
    assume(middle >= 1e-6 and round(middle * 1e6) < round(drawn["duration_seconds"] * 1e6))
    whole = run(drawn, **NO_WARMUP)
    first = run(drawn, **NO_WARMUP, duration_seconds=middle)
    second = run(drawn, warmup_seconds=middle)
    for name in COUNTS:
        assert getattr(first, name) + getattr(second, name) == getattr(whole, name), name
    assert np.array_equal(first.lag_counts + second.lag_counts, whole.lag_counts)
    for name in [f"slots_{part}_seconds" for part in SLOTS] + [f"trainer_{part}_seconds" for part in TRAINER]:
        total = getattr(first, name) + getattr(second, name)
        assert total == pytest.approx(getattr(whole, name), rel=1e-12, abs=1e-9), name


@given(general_settings(), st.sampled_from([0.1, 0.5, 0.9]))
def test_a_shorter_run_is_a_prefix_of_a_longer_one(drawn, share):
    shorter = drawn["duration_seconds"] * share
    assume(shorter >= 1e-6)
    whole, part = run(drawn, **NO_WARMUP), run(drawn, **NO_WARMUP, duration_seconds=shorter)
    assert part.batches == whole.batches[: len(part.batches)]
    assert part.timeline == whole.timeline[: len(part.timeline)]


@settings(max_examples=15)
@given(st.lists(general_settings(), min_size=2, max_size=6))
def test_threads_and_cuts_do_not_change_a_run(drawn):
    configs = [to_config(one) for one in drawn]
    seeds = np.arange(4, dtype=np.uint64)
    cuts = [(config, part) for config in configs for part in (seeds[:1], seeds[1:])]
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda cut: simulate_batch([cut[0]], cut[1]), cuts))
    whole = simulate_batch(configs, seeds)
    for name in parts[0].metrics:
        for row in range(len(configs)):
            pieces = [part.metrics.get(name) for part in parts[2 * row : 2 * row + 2]]
            if all(piece is not None for piece in pieces):
                np.testing.assert_array_equal(
                    whole.metrics[name][row], np.concatenate(pieces, axis=1)[0], err_msg=name
                )


# Bounds of the queue and of the lag


@given(general_settings())
def test_caps_hold(drawn):
    result = run(drawn)
    longest = longest_of(drawn["response_length"]) * drawn["group_size"]
    cap, workers = drawn.get("max_queue_tokens"), drawn["rollout_workers"]
    if drawn.get("queue_overflow", "block") == "drop_oldest":
        assert result.max_queue_tokens_observed <= drawn["max_queue_groups"] * longest
    elif cap is not None and drawn.get("admission") == "reserve":
        assert result.max_queue_tokens_observed <= cap
    elif cap is not None and drawn.get("admit", "group") == "group":
        assert result.max_queue_tokens_observed < cap + workers * longest
    most = drawn.get("max_running_groups")
    if most is not None:
        assert all(row.running_groups <= most for row in result.timeline)


@given(general_settings())
def test_lag_at_dequeue_keeps_the_limit_wherever_stale_work_is_checked(drawn):
    assume(drawn.get("stale_check") != "never" and drawn["prefetch_batches"] == 0)
    result = run(drawn)
    # With U updates a batch the last run of groups is trained U - 1 versions later.
    assert result.max_lag_observed <= drawn["max_policy_lag"] + drawn["updates_per_batch"] - 1


@given(ANY_LAW, st.integers(1, 3), st.integers(0, 3), st.integers(1, 8), st.integers(0, 2**64 - 1))
def test_the_order_of_start_bounds_the_lag_by_waiting_whatever_the_law(law, batch, age, workers, seed):
    result = run(
        {
            "response_length": law,
            "batch_tokens": None,
            "batch_groups": batch,
            "max_queue_tokens": None,
            "limits": [("started", "published", (age + 1) * batch)],
            "queue_order": "started",
            "stale_check": "never",
            "rollout_workers": workers,
            "seed": seed,
        }
    )
    assert result.max_lag_observed <= age
    assert result.discarded_groups == 0


@given(ANY_LAW, st.integers(1, 3), st.integers(0, 3), st.integers(1, 8), st.integers(0, 2**64 - 1))
def test_dropping_at_dequeue_bounds_the_lag_whatever_the_law(law, batch, limit, workers, seed):
    result = run(
        {
            "response_length": law,
            "batch_tokens": None,
            "batch_groups": batch,
            "max_queue_tokens": None,
            "stale_check": "dequeue",
            "max_policy_lag": limit,
            "rollout_workers": workers,
            "seed": seed,
        }
    )
    assert result.max_lag_observed <= limit


BUDGET = {
    "batch_tokens": None,
    "batch_groups": 4,
    "max_queue_tokens": None,
    "limits": [("started", "published", 8)],
    "stale_check": "never",
    "rollout_workers": 8,
    "rollout_overhead_seconds": 0.0,
    "decode_tokens_per_second": 100.0,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 1e4,
    "sync_seconds": 0.25,
    "publication": "abort",
    "publication_blocks_trainer": True,
    "duration_seconds": 200.0,
}


@settings(max_examples=40)
@given(ANY_LAW, st.integers(0, 2), st.integers(0, 2**64 - 1))
def test_work_admitted_and_not_trained_never_exceeds_the_budget(law, age, seed):
    groups = (age + 1) * BUDGET["batch_groups"]
    changes = {"response_length": law, "seed": seed, "limits": [("started", "published", groups)]}
    result = run({**BUDGET, **changes, "rollout_workers": 16, "duration_seconds": 40.0})
    assert all(row.running_groups + row.queue_groups <= groups for row in result.timeline)


@pytest.mark.parametrize("tokens", [10, 100, 1000])
def test_a_budget_of_starts_bounds_the_lag_of_equal_rollouts_in_order(tokens):
    assert run({**BUDGET, "response_length": ("fixed", tokens)}).max_lag_observed <= 1


def test_a_budget_of_starts_does_not_bound_the_lag_under_a_heavy_tail():
    seen = [run({**BUDGET, "response_length": HEAVY, "seed": seed}).max_lag_observed for seed in range(10)]
    assert max(seen) > 1


# No legal setting hangs

STUCK = {
    "lag of zero": {"max_policy_lag": 0},
    "a cap of one token": {"max_queue_tokens": 1},
    "a batch larger than the queue may hold": {"max_queue_tokens": 50, "batch_tokens": 1000},
    "a budget below the longest response": {"batch_tokens": 1},
    "all groups filtered": {"filter_probability": 1.0},
    "no group may run": {"max_running_groups": 0},
    "no group may start": {"limits": [("started", "popped", 0)]},
    "a queue of one group for a batch of two": {
        "batch_tokens": None,
        "batch_groups": 2,
        "queue_overflow": "drop_oldest",
        "max_queue_groups": 1,
    },
    "a batch that never has room": {
        "batch_tokens": None,
        "batch_groups": 4,
        "admit": "batch",
        "limits": [("started", "published", 3)],
    },
    "requeued for ever": {"stale_check": "dequeue", "stale_action": "requeue", "max_policy_lag": 0},
    "a step that never ends": {"train_slowdown_when_generating": 1e9},
    "a decode that never ends": {"decode_slowdown_per_rollout": 1e9},
}


@pytest.mark.parametrize("name", STUCK)
def test_no_legal_setting_hangs(name):
    result = run({"response_length": ("uniform", 16, 64), "duration_seconds": 30.0, **STUCK[name]})
    assert result.stalled == (
        result.timeline[-1].in_flight == 0
        and result.in_training_tokens == 0
        and result.timeline[-1].version == result.timeline[-1].published
    )
    assert result.last_progress_seconds <= 30.0


@pytest.mark.parametrize("action", ["drop", "requeue"])
def test_work_that_is_always_too_old_is_counted_each_time(action):
    # A long rollout outlives the versions that short ones make: it is cancelled, dropped or run again, so
    # long answers starve (thinking-machines-lab/tinker-cookbook#822, PrimeIntellect-ai/prime-rl#2960).
    result = run(
        {
            "response_length": ("table", 10, (3, *([0] * 89), 1)),
            "decode_tokens_per_second": 10.0,
            "rollout_overhead_seconds": 0.0,
            "rollout_workers": 4,
            "batch_tokens": None,
            "batch_groups": 1,
            "max_queue_tokens": 1000,
            "train_overhead_seconds": 1.0,
            "train_tokens_per_second": 1e6,
            "sync_seconds": 0.0,
            "max_policy_lag": 2,
            "stale_check": "dequeue",
            "stale_action": action,
            "cancel_in_flight": True,
            "duration_seconds": 200.0,
        }
    )
    assert result.cancelled_groups > 5
    assert result.wasted_tokens > 0
    assert result.requeued_groups == (result.cancelled_groups + result.discarded_groups) * (
        action == "requeue"
    )
    if action == "drop":
        assert {row.tokens for row in result.rollouts if row.outcome == "trained"} == {10}
        assert result.length_bias_law < result.length_bias_drawn < 1


def test_groups_of_a_trace_keep_their_members_together():
    result = run({"response_length": GROUPED, "group_size": 3, "duration_seconds": 60.0})
    allowed = {(100, 120, 140), (120, 140, 100), (140, 100, 120), (20, 20, 20), (60, 60, 60)}
    tail = (200, 50, 50, 50)
    allowed |= {tuple(tail[(start + k) % 4] for k in range(3)) for start in range(4)}
    tokens = [row.tokens for row in result.rollouts]
    assert {tuple(tokens[i : i + 3]) for i in range(0, len(tokens) - 2, 3)} <= allowed
