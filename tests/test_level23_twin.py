"""The twin of levels 2 and 3 itself: level 1 with the options off, sums by hand, the off-by-one table."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from oracle.compare import assert_same_run
from oracle.level1 import run_level1
from oracle.level23 import run_level23
from strategies import general_configs
from strategies.general_configs import general_settings
from strategies.pipeline_configs import pipeline_settings, to_twin

FIXED_100 = {"minimum": 100, "cdf": [1.0], "cut": False}

# Two slots of one-second rollouts, batches of two groups, a step of one second.
ROUND = {
    "duration_seconds": 60.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": FIXED_100,
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 100,
    "sync_seconds": 0.5,
    "stale_check": "never",
}
WAYS_OUT = ("discarded", "filtered", "evicted", "cancelled")
SLOT_CONSTRAINTS = ("busy", "publication", "max_running", "one_batch", "token_cap", "limits")
TRAINER_CONSTRAINTS = ("busy", "publication", "running_groups", "batch")
BY_BATCH = {
    "admit": "batch",
    "queue_order": "started",
    "publication": "drain",
    "publication_blocks_trainer": True,
}


def rounded(**changes):
    return run_level23({**ROUND, **changes})


def lags(run):
    assert all(batch["mean_lag"] == batch["max_lag"] for batch in run["batches"])
    return [batch["max_lag"] for batch in run["batches"]][:6]


@settings(max_examples=200)
@given(pipeline_settings())
def test_with_every_option_off_it_is_the_level_1_twin(drawn):
    assert_same_run(SimpleNamespace(**run_level23(to_twin(drawn))), run_level1(to_twin(drawn)))


@given(general_settings())
def test_tokens_and_groups_are_conserved(drawn):
    run = run_level23(general_configs.to_twin({**drawn, "warmup_seconds": 0.0}))
    dropped = sum(run[f"{way}_tokens"] for way in WAYS_OUT)
    held = run["queued_tokens"] + run["in_training_tokens"] + run["unfinished_group_tokens"]
    assert run["generated_tokens"] == run["trained_tokens"] + held + dropped
    inside = (
        run["running_groups"] + run["queued_groups"] + run["in_training_groups"] + run["prefetched_groups"]
    )
    left = run["trained_groups"] + sum(run[f"{way}_groups"] for way in WAYS_OUT)
    assert run["admissions_of_the_run"] == left + inside


@given(general_settings())
def test_bound_seconds_sum_to_the_measured_time(drawn):
    run = run_level23(general_configs.to_twin(drawn))
    seconds = run["measured_ticks"] / 1e6
    slots = sum(run[f"slots_{name}_seconds"] for name in SLOT_CONSTRAINTS)
    assert slots == pytest.approx(drawn["rollout_workers"] * seconds, rel=1e-12)
    trainer = sum(run[f"trainer_{name}_seconds"] for name in TRAINER_CONSTRAINTS)
    assert trainer == pytest.approx(seconds, rel=1e-12)


# The off-by-one table: equal service times, order of start, admission by batch, a blocked trainer


@pytest.mark.parametrize("sync_seconds", [0.0, 0.5])
def test_one_step_off_lags_zero_then_one(sync_seconds):
    run = rounded(**BY_BATCH, limits=[("started", "popped", 2)], sync_seconds=sync_seconds)
    assert lags(run) == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("publication", ["drain", "pause"])
def test_a_semaphore_of_two_with_slots_for_both_lags_zero_one_two(publication):
    rules = {
        **BY_BATCH,
        "publication": publication,
        "limits": [("started", "popped", 4)],
        "rollout_workers": 4,
    }
    assert lags(rounded(**rules)) == [0, 1, 2, 2, 2, 2]
    assert lags(rounded(**rules, one_batch_at_a_time=True)) == [0, 1, 1, 1, 1, 1]


def test_an_age_of_one_lags_zero_then_one():
    assert lags(rounded(**BY_BATCH, limits=[("started", "published", 4)])) == [0, 1, 1, 1, 1, 1]


def test_a_budget_of_one_published_batch_is_synchronous():
    assert lags(rounded(**BY_BATCH, limits=[("started", "published", 2)])) == [0] * 6


# Level 2 by hand


def test_two_decoding_rollouts_at_half_speed_last_twice_as_long():
    run = rounded(decode_slowdown_per_rollout=1.0, limits=[("started", "popped", 2)])
    assert [row["end"] for row in run["rollouts"][:2]] == [2.0, 2.0]


def test_one_of_two_goes_on_faster_when_the_other_ends():
    # 100 and 50 tokens at half speed: the short one ends at 1 s; the long one has half left, at full speed.
    law = {"minimum": 50, "cdf": [0.5] * 50 + [1.0], "cut": False}
    for seed in range(20):
        run = rounded(
            decode_slowdown_per_rollout=1.0, limits=[("started", "popped", 2)], response_length=law, seed=seed
        )
        if {row["tokens"] for row in run["rollouts"][:2]} == {50, 100}:
            assert sorted(row["end"] for row in run["rollouts"][:2]) == [1.0, 1.5]
            return
    pytest.fail("no seed drew both lengths")


def test_overhead_is_spent_after_the_decode_and_not_slowed():
    run = rounded(
        decode_slowdown_per_rollout=1.0, rollout_overhead_seconds=0.5, limits=[("started", "popped", 2)]
    )
    assert [row["end"] for row in run["rollouts"][:2]] == [2.5, 2.5]


def test_a_pause_stops_the_decode_for_its_length():
    # One slot. The steps end at 3 s and 5.5 s, in the ticks of the third and the fifth rollout, which end;
    # the next ones start when the pause of half a second is over.
    free = rounded(publication="background", rollout_workers=1)
    held = rounded(publication="pause", rollout_workers=1)
    assert [row["end"] for row in free["rollouts"][:4]] == [1.0, 2.0, 3.0, 4.0]
    assert [row["end"] for row in held["rollouts"][:5]] == [1.0, 2.0, 3.0, 4.5, 5.5]
    assert [row["start"] for row in held["rollouts"][3:6]] == [3.5, 4.5, 6.0]


def test_an_abort_adds_resume_and_reprefill_of_the_tokens_so_far():
    run = rounded(
        publication="abort",
        rollout_workers=1,
        resume_seconds=0.25,
        reprefill_tokens_per_second=100.0,
        train_tokens_per_second=400.0,
    )
    # The first step ends at 2.5 s: the third rollout has 50 tokens, 0.5 s of re-prefill.
    assert run["batches"][0]["end"] == 2.5
    assert run["rollouts"][2]["end"] == 2.5 + 0.5 + 0.25 + 0.5 + 0.5


def test_a_drain_begins_its_seconds_when_nothing_runs():
    run = rounded(publication="drain", rollout_workers=1, train_tokens_per_second=400.0)
    # The step ends at 2.5 s, the rollout in flight at 3 s; half a second later the next starts.
    assert run["rollouts"][3]["start"] == 3.5


def test_training_slows_while_at_least_one_rollout_decodes():
    run = rounded(train_slowdown_when_generating=1.0, limits=[("started", "trained", 2)])
    assert run["batches"][0]["end"] == 2.0
    run = rounded(train_slowdown_when_generating=1.0)
    assert run["batches"][0]["end"] == 3.0


def test_a_group_is_ready_with_its_last_member_and_as_old_as_its_first():
    run = rounded(group_size=3, batch_groups=1, train_tokens_per_second=300.0)
    assert run["batches"][0]["start"] == 2.0
    assert [detail["number"] for detail in run["batches"][0]["details"]] == [0, 1, 2]


def test_two_updates_a_batch_train_the_second_half_one_version_later():
    run = rounded(updates_per_batch=2, limits=[("started", "published", 2)])
    first = run["batches"][0]
    assert [detail["lag"] for detail in first["details"]] == [0, 1]
    assert (first["update"], run["updates"]) == (2, 2 * len(run["batches"]))


def test_prefetched_batches_are_younger_at_dequeue_than_at_training():
    run = rounded(prefetch_batches=2, rollout_workers=4)
    late = run["batches"][-1]["details"]
    assert all(detail["lag"] > detail["lag_at_dequeue"] for detail in late)


@pytest.fixture(scope="module")
def reached():
    counts = Counter()

    @settings(
        max_examples=500,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(general_settings())
    def count(drawn):
        run = run_level23(general_configs.to_twin(drawn))
        counts.update(run["reached"])
        counts["examples"] += 1
        counts["several_batches"] += len(run["batches"]) > 1

    count()
    return counts


STATES = (
    "stale",
    "filtered",
    "evicted",
    "cancelled",
    "requeue",
    "replacement",
    "prefetch",
    "drain",
    "pause",
    "abort",
    "reprefill",
    "waits_for_running",
    "discard_on_update",
    "discard_on_arrival",
    "discard_at_dequeue",
    "waiting_publication",
    "replaced_publication",
    "bound_by_publication",
    "bound_by_max_running",
    "bound_by_one_batch",
    "bound_by_token_cap",
    "bound_by_limit_0",
    "stall",
    "overshoot",
)


@pytest.mark.parametrize("state", STATES)
def test_engine_states_are_reached_in_one_percent_of_examples(reached, state):
    assert reached[state] >= 0.01 * reached["examples"]


def test_half_of_the_engine_examples_train_more_than_one_batch(reached):
    assert reached["several_batches"] >= 0.5 * reached["examples"]
