"""Levels 2 and 3 by hand: clocks, publications, groups, ledger, orders, stale work."""

from __future__ import annotations

import pytest
from strategies.round_runs import ONE_BATCH, SHORT_LONG, run, seed_with

from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.laws.seconds import SecondsLaw
from lagsweep.sweeps.runs.general import simulate_general


def starts(result, count):
    return [row.start for row in result.rollouts[:count]]


def ends(result, count):
    return [row.end for row in result.rollouts[:count]]


# The work clock, two slots


def test_two_rollouts_at_half_speed_and_the_longer_one_alone_at_full_speed():
    # Together 2 s for the first 100 tokens of each; the other 100 tokens alone, 1 s.
    result = run(
        decode_slowdown_per_rollout=1.0, response_length=SHORT_LONG, seed=seed_with([100, 200]), **ONE_BATCH
    )

    assert ends(result, 2) == [2.0, 3.0]


def test_a_rollout_that_joins_slows_the_one_that_runs():
    # 200 tokens at half speed while short ones follow one another beside it: 4 s, and 100 tokens take 2 s.
    result = run(
        decode_slowdown_per_rollout=1.0,
        response_length=SHORT_LONG,
        seed=seed_with([200, 100, 100]),
        limits=[Limit("started", "trained", 3)],
        batch_groups=3,
    )

    assert sorted(ends(result, 3)) == [2.0, 4.0, 4.0]


def test_tools_and_overhead_are_not_slowed_and_free_the_clock():
    # Decode 2 s together, then 3 s of tools: the clock then belongs to the longer one.
    result = run(
        decode_slowdown_per_rollout=1.0,
        response_length=SHORT_LONG,
        seed=seed_with([100, 200]),
        environment_seconds=SecondsLaw.fixed(3.0),
        rollout_overhead_seconds=1.0,
        **ONE_BATCH,
    )

    assert ends(result, 2) == [2.0 + 4.0, 3.0 + 4.0]


def test_a_trace_of_pairs_gives_each_length_its_own_seconds():
    law = LengthLaw.paired([100, 200], [5.0, 0.25])
    result = run(response_length=law)

    assert {(row.tokens, row.end - row.start) for row in result.rollouts if row.end} == {
        (100, 6.0),
        (200, 2.25),
    }


def test_a_trace_of_pairs_is_never_run_without_its_seconds():
    law = LengthLaw.paired([100, 200], [5.0, 0.25])

    assert not PipelineConfig(response_length=law).is_level_1


# Publications


def test_a_pause_freezes_what_decodes_and_it_goes_on_under_the_new_version():
    # The step ends at 1.5 with the second pair half done; 0.5 s of pause; they end at 2.5 under version 1.
    result = run(publication="pause")
    row = result.rollouts[2]

    assert (row.start, row.end, row.behaviour_version, row.end_version) == (1.0, 2.5, 0, 1)
    assert result.batches[1].start == 2.5
    assert result.batches[1].mean_lag == 1.0


def test_token_lag_weighs_each_version_by_the_tokens_made_under_it():
    # Of the second pair's tokens half were made under version 0 and half under version 1, the trainer's.
    result = run(publication="pause", stop_after_updates=2)

    assert result.mean_token_lag == (0.0 + 0.5) / 2
    assert result.mean_rollout_lag == 0.5
    assert result.mean_end_lag == 0.0


def test_an_abort_adds_resume_time_and_prefills_the_tokens_so_far_again():
    # Half done at 1.5; publication to 2.0; 0.25 s to resume and 50 tokens at 100 per second; half to go.
    result = run(publication="abort", resume_seconds=0.25, reprefill_tokens_per_second=100.0)

    assert result.rollouts[2].end == 2.0 + 0.25 + 0.5 + 0.5


def test_an_abort_without_re_prefill_is_a_pause():
    paused, aborted = run(publication="pause"), run(publication="abort")

    assert repr(paused.metrics) == repr(aborted.metrics)


def test_a_drain_lets_admitted_groups_finish_with_members_that_still_wait():
    # One slot, groups of two. The step ends at 2.5, in the middle of a group: its second member starts at 3.
    result = run(
        publication="drain", rollout_workers=1, group_size=2, batch_groups=1, train_overhead_seconds=0.5
    )

    assert starts(result, 5) == [0.0, 1.0, 2.0, 3.0, 4.5]
    assert next(row.time for row in result.timeline if row.event == "publication") == 4.5


def test_a_blocked_trainer_waits_for_the_drain_and_the_transfer():
    result = run(
        publication="drain",
        publication_blocks_trainer=True,
        rollout_workers=1,
        group_size=2,
        batch_groups=1,
    )

    # The second group is ready at 4.0, the publication ends at 4.5.
    assert result.batches[1].start == 4.5
    assert result.trainer_ticks["publication"] >= 2_000_000


def test_training_that_decoding_slows_down_ends_at_the_tick_with_its_work_done():
    # 2 s of work from 1.0 on, at half speed while the next pair decodes until 2.0, then at full speed.
    result = run(
        train_slowdown_when_generating=1.0,
        train_overhead_seconds=2.0,
        limits=[Limit("started", "trained", 4)],
    )

    assert result.batches[0].end == 1.0 + 1.0 + 1.5


def test_prompt_tokens_count_in_the_step_alone():
    # Two rollouts of 100 tokens with prompts of 150: (200 + 300) / 100 s.
    result = run(prompt_tokens=150, train_overhead_seconds=0.0, train_tokens_per_second=100.0)

    assert result.batches[0].end - result.batches[0].start == 5.0
    assert result.batches[0].tokens == 200


# Groups, batches, ledger


def test_a_group_is_ready_with_its_slowest_member_and_as_old_as_its_first():
    # One slot, groups of two: the second member starts after version 1 is out, the group stays of version 0.
    result = run(
        rollout_workers=1,
        group_size=2,
        batch_groups=1,
        sync_seconds=0.0,
        max_policy_lag=0,
        stale_check="dequeue",
    )
    second = [row for row in result.rollouts if row.group == 1]

    assert [row.behaviour_version for row in second] == [0, 1]
    assert {row.outcome for row in second} == {"discarded"}


def test_groups_larger_than_the_slots_run_in_turns():
    result = run(group_size=5, rollout_workers=2, batch_groups=1)

    assert starts(result, 5) == [0.0, 0.0, 1.0, 1.0, 2.0]
    assert result.batches[0].start == 3.0
    assert result.batches[0].rollouts == 5


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_a_token_budget_below_the_longest_response_takes_one_group_at_least(groups):
    result = run(batch_groups=None, batch_tokens=1, group_size=groups)

    assert {row.groups for row in result.batches} == {1}


def test_all_groups_filtered_trains_nothing_and_counts_everything():
    result = run(filter_probability=1.0, group_size=2)

    assert result.updates == 0
    assert result.filtered_groups == result.generated_groups > 10
    assert result.filtered_tokens + result.unfinished_group_tokens == result.generated_tokens


def test_half_the_groups_filtered_halves_the_batches():
    kept, half = run(duration_seconds=2000.0), run(duration_seconds=2000.0, filter_probability=0.5)

    assert half.generated_groups == kept.generated_groups
    assert abs(half.filtered_groups / half.generated_groups - 0.5) < 0.02
    assert abs(half.updates / kept.updates - 0.5) < 0.02


def test_filtered_groups_give_their_room_back():
    # Without room for more than one batch ahead, a filtered group that kept its place would stop the run.
    result = run(filter_probability=0.5, limits=[Limit("started", "published", 2)], duration_seconds=200.0)

    assert result.updates > 20
    assert not result.stalled


def test_a_dropped_group_is_replaced_alone_when_batches_are_admitted_at_once():
    settings = {"admit": "batch", "filter_probability": 0.4, "duration_seconds": 1.5, **ONE_BATCH}
    seed = next(seed for seed in range(100) if run(seed=seed, **settings).filtered_groups == 1)
    result = run(seed=seed, **settings)

    # Two at once at 0, one of them filtered at 1, one more at 1 although a batch has no room.
    assert [row.start for row in result.rollouts] == [0.0, 0.0, 1.0]


def test_prompts_make_the_lengths_of_a_group_alike():
    law = LengthLaw.lognormal(300, 0.4, 1, 5000)
    result = run(response_length=law, group_size=2, prompt_sigma=0.8, duration_seconds=3000.0)
    pairs: dict[int, list[int]] = {}
    for row in result.rollouts:
        pairs.setdefault(row.group, []).append(row.tokens)
    whole = [pair for pair in pairs.values() if len(pair) == 2]
    mean = sum(sum(pair) for pair in whole) / (2 * len(whole))
    spread = sum((x - mean) ** 2 for pair in whole for x in pair) / (2 * len(whole))
    shared = sum((a - mean) * (b - mean) for a, b in whole) / len(whole)

    # Of log variances 0.16 and 0.64 the prompt's share of the variance is exp(.64) - 1 of exp(.8) - 1: 0.73.
    assert 0.6 < shared / spread < 0.85
    # The factor has mean 1: the law's mean stays.
    assert abs(mean / law.mean_tokens - 1) < 0.1


def test_two_updates_a_batch_train_the_second_half_one_version_later():
    result = run(updates_per_batch=2, batch_groups=3, rollout_workers=3)

    assert result.batches[0].update == 2
    assert [row.lag for row in result.rollouts[:3]] == [0, 0, 1]
    assert result.final_version % 2 == 0


def test_prefetched_batches_are_younger_at_dequeue_than_at_training():
    settings = {"prefetch_batches": 2, "train_overhead_seconds": 5.0, "duration_seconds": 100.0}
    result = run(stale_check="dequeue", **settings)

    assert result.mean_dequeue_lag < result.mean_rollout_lag
    assert result.lags["dequeue", "updates"].sum() == result.trained_rollouts


def test_lag_is_told_apart_at_start_dequeue_and_training_in_updates_and_in_publications():
    # Three seconds to publish one-second steps: the weights that slots start with are versions behind.
    result = run(sync_seconds=3.0, train_overhead_seconds=1.0, duration_seconds=60.0, max_policy_lag=50)

    assert result.mean_start_lag > 1.5
    assert result.lags["start", "publications"][0] == result.trained_rollouts
    assert result.mean_rollout_lag >= result.mean_dequeue_lag > result.mean_start_lag
    assert result.mean_rollout_lag_publications < result.mean_rollout_lag / 2


# Orders


def test_the_order_of_start_waits_for_the_oldest_group():
    # The first group is long: a younger pair is ready at 1 s, but the first batch waits until 2 s.
    settings = {"response_length": SHORT_LONG, "seed": seed_with([200, 100, 100]), "rollout_workers": 3}
    waiting, first_ready = run(queue_order="started", **settings), run(queue_order="fifo", **settings)

    assert waiting.batches[0].start == 2.0
    assert waiting.trainer_ticks["running_groups"] >= 1_000_000
    assert first_ready.batches[0].start == 1.0
    assert first_ready.trainer_ticks["running_groups"] == 0


def test_freshest_first_trains_younger_work_than_oldest_first():
    settings = {"train_overhead_seconds": 3.0, "stale_check": "never", "duration_seconds": 120.0}
    lags = {
        order: run(queue_order=order, **settings).mean_lag for order in ("freshest", "fifo", "oldest_version")
    }

    assert lags["freshest"] < lags["fifo"]
    assert lags["oldest_version"] == lags["fifo"]  # equal rollouts arrive in the order of their versions


def test_a_queue_that_drops_its_oldest_never_holds_more_and_closes_no_admission():
    result = run(
        queue_overflow="drop_oldest",
        max_queue_groups=3,
        max_queue_tokens=1,
        train_overhead_seconds=4.0,
        duration_seconds=100.0,
    )

    assert max(row.queue_groups for row in result.timeline) == 3
    assert result.max_queue_tokens_observed == 300
    assert result.slot_ticks["busy"] == 2 * 100_000_000
    assert result.evicted_groups > 100


# Stale work


def test_requeued_work_runs_again_with_the_same_draws_or_with_new_ones():
    settings = {
        "response_length": SHORT_LONG,
        "sync_seconds": 0.0,
        "max_policy_lag": 0,
        "train_overhead_seconds": 0.3,
        "batch_groups": 1,
        "stale_check": "dequeue",
        "stale_action": "requeue",
    }
    same, redrawn = run(**settings), run(redraw_on_requeue=True, **settings)
    lengths: dict[int, set[int]] = {}
    for row in same.rollouts:
        lengths.setdefault(row.number, set()).add(row.tokens)

    assert same.requeued_groups > 3
    assert max(len(seen) for seen in lengths.values()) == 1
    assert len(lengths) < len(same.rollouts)
    assert [row.number for row in redrawn.rollouts] == list(range(len(redrawn.rollouts)))


def test_cancelled_groups_free_their_slots_at_once_and_their_tokens_are_wasted():
    # Steps of 0.5 s, lag 0: the pair that started at 1.0 is cancelled at 1.5, half done.
    result = run(cancel_in_flight=True, max_policy_lag=0, sync_seconds=0.0, duration_seconds=1.6)

    assert result.cancelled_groups == 2
    assert result.wasted_tokens == 100
    assert result.cancelled_tokens == 0
    assert starts(result, 6) == [0.0, 0.0, 1.0, 1.0, 1.5, 1.5]
    assert [row.outcome for row in result.rollouts[2:4]] == ["cancelled"] * 2


def test_what_time_decoded_under_a_slower_clock_is_what_is_wasted():
    # Both at half speed from 2.0 on: a quarter is done when the step ends at 2.5.
    result = run(
        cancel_in_flight=True,
        max_policy_lag=0,
        sync_seconds=0.0,
        duration_seconds=2.6,
        decode_slowdown_per_rollout=1.0,
    )

    assert result.wasted_tokens == 2 * 25


# Sequential


@pytest.mark.parametrize("publication", ["drain", "pause", "abort"])
def test_sequential_takes_the_physics_of_the_engine_and_no_publication_style_matters(publication):
    base = PipelineConfig(mode="sequential", decode_slowdown_per_rollout=0.05, prompt_tokens=50)
    plain, styled = simulate_general(base), simulate_general(base.replace(publication=publication))

    assert plain.max_lag_observed == 0
    # But for the name of what idle slots wait for.
    causes = ("slots_publication_seconds", "slots_sequential_seconds")
    waits = [sum(run.metrics[name] for name in causes) for run in (plain, styled)]
    rest = [
        {name: run.metrics[name] for name in run.metrics if name not in causes} for run in (plain, styled)
    ]
    assert waits[0] == pytest.approx(waits[1], rel=1e-12)
    assert repr(rest[0]) == repr(rest[1])
    assert plain.slot_ticks["sequential"] + plain.slot_ticks["busy"] == 8 * 120_000_000


# What counts from time 0 on, and what a baseline waits for


def test_what_is_admitted_at_time_0_counts_where_there_is_no_warm_up():
    # Two slots and room for one group: two start at time 0 and nothing after.
    at_once = {"max_running_groups": 1, "group_size": 2, "batch_groups": 1, "duration_seconds": 0.5}
    one, none = run(**at_once), run(**at_once, warmup_seconds=0.25)

    assert (one.admitted_groups, one.running_groups) == (1, 1)
    assert (none.admitted_groups, none.running_groups) == (0, 1)


@pytest.mark.parametrize(
    ("publication", "cause"),
    [
        ("background", "sequential"),
        ("drain", "publication"),
        ("pause", "publication"),
        ("abort", "publication"),
    ],
)
def test_idle_slots_of_a_sequential_run_wait_for_a_publication_that_keeps_work_out(publication, cause):
    base = PipelineConfig(
        mode="sequential",
        duration_seconds=20.0,
        rollout_workers=2,
        decode_tokens_per_second=100.0,
        rollout_overhead_seconds=0.0,
        response_length=LengthLaw.fixed(100),
        batch_tokens=200,
        train_overhead_seconds=1.0,
        train_tokens_per_second=1e9,
        sync_seconds=2.0,
    )
    result = simulate_general(base.replace(publication=publication))

    # Rounds of 1 s of rollouts, 1 s of training, 2 s of publication.
    ticks = {"sequential": 2 * 5 * 1_000_000, "publication": 0}
    ticks[cause] += 2 * 5 * 2_000_000
    found = result.slot_ticks
    assert found["busy"] == 2 * 5 * 1_000_000
    assert {name: round(found[name], -4) for name in ticks} == ticks
    assert round(result.trainer_ticks["publication"], -4) == 5 * 2_000_000
