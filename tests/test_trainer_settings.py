"""Fetch, evaluation, spread, turns, laws by version, a queue that holds: twin, sums by hand, resumes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle.compare import assert_same_run
from oracle.level23 import run_level23
from scipy.special import ndtri
from strategies.general_configs import general_settings, to_config, to_twin

from lagsweep.kernels.errors import ConfigError
from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, metrics_of_options
from lagsweep.sweeps.checkpoint.simulation import restore_simulation, simulation_checkpoint
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.diagnosis import constraint_intervals, explain_stall, phase_bounds
from lagsweep.sweeps.runs.general import GeneralRun, simulate_general
from lagsweep.sweeps.runs.simulate import simulate_pipeline
from lagsweep.sweeps.testing.trainer_settings import trainer_settings

# Two slots of one-second rollouts, batches of two groups, a step of one second.
ROUND = {
    "duration_seconds": 40.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("fixed", 100),
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 100,
    "sync_seconds": 0.5,
    "stale_check": "never",
}


def check(drawn):
    """Run both; return the twin's run and the result."""
    config, twin = to_config(drawn), run_level23(to_twin(drawn))
    told = (*GENERAL_METRICS, *metrics_of_options(config.options_in_use))
    result = simulate_general(config, rollouts=True)
    assert_same_run(result, twin, tuple(metric.name for metric in told))
    return twin, result


def agree(**changes):
    return check({**ROUND, **changes})[1]


def steps(result):
    return [(row.start, row.end) for row in result.batches]


# --- the twin ---------------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(trainer_settings())
def test_random_trainers_and_workloads_agree(drawn):
    check(drawn)


@pytest.mark.parametrize("publication", ["background", "drain", "pause", "abort"])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_every_publication_style_with_turns_and_evaluation_agrees(publication, blocks, stops):
    agree(
        publication=publication,
        publication_blocks_trainer=blocks,
        generation_while_training=not stops,
        evaluation_every_updates=2,
        evaluation_seconds=1.25,
        evaluation_stops_generation=stops,
        fetch_seconds=0.3,
        rollout_workers=4,
        response_length=("uniform", 16, 64),
        environment_seconds=(0.0, 0.5),
        **({"resume_seconds": 0.25} if publication == "abort" else {}),
    )


@pytest.mark.parametrize("order", ["fifo", "started", "oldest_version", "freshest", "random"])
@pytest.mark.parametrize("check_at", ["update", "dequeue", "never"])
def test_a_queue_that_holds_agrees_in_every_order(order, check_at):
    agree(
        queue_order=order,
        stale_check=check_at,
        cancel_in_flight=check_at != "never",
        max_policy_lag=1,
        queue_overflow="hold",
        max_queue_groups=3,
        group_size=2,
        rollout_workers=7,
        response_length=("lognormal", 60, 0.5, 10, 200),
        train_tokens_per_second=120.0,
        publication="drain",
    )


@pytest.fixture(scope="module")
def reached():
    counts = Counter()

    @settings(
        max_examples=400,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(trainer_settings())
    def count(drawn):
        counts.update(run_level23(to_twin(drawn))["reached"])
        counts["examples"] += 1

    count()
    return counts


@pytest.mark.parametrize("state", ["fetch", "evaluation", "held"])
def test_states_are_reached_in_five_percent_of_examples(reached, state):
    assert reached[state] >= 0.05 * reached["examples"]


# --- off changes nothing, and stopping anywhere changes nothing -------------------------------------------


@settings(max_examples=60)
@given(general_settings())
def test_values_that_mean_off_change_nothing(drawn):
    off = {"fetch_seconds": 0.0, "train_spread": 0.0, "generation_while_training": True}
    off |= {"evaluation_every_updates": 3, "evaluation_seconds": 0.0}
    plain, other = (simulate_general(to_config(some), rollouts=True) for some in (drawn, drawn | off))
    told = set(other.metrics) - set(plain.metrics)
    assert told <= {"trainer_evaluation_seconds"}
    kept = {name: value for name, value in other.metrics.items() if name not in told}
    np.testing.assert_equal(kept, plain.metrics)
    assert str(other.batches) == str(plain.batches)
    assert str(other.timeline) == str(plain.timeline)


@settings(max_examples=60)
@given(general_settings())
def test_one_segment_gives_that_law_s_run_bit_for_bit(drawn):
    law = drawn["response_length"]
    if law[0] == "grouped":
        return
    plain = simulate_general(to_config(drawn), rollouts=True)
    other = simulate_general(
        to_config({**drawn, "response_length": ("schedule", ((0, law),))}), rollouts=True
    )
    np.testing.assert_equal(other.metrics, plain.metrics)
    for table in ("batches", "timeline", "rollouts"):
        assert str(getattr(other, table)) == str(getattr(plain, table))
    np.testing.assert_equal(other.length_deciles, plain.length_deciles)


@settings(max_examples=60)
@given(trainer_settings(), st.floats(0, 1), st.floats(0, 1))
def test_stopping_anywhere_saving_and_resuming_changes_nothing(drawn, first, second):
    config = to_config(drawn)
    whole = simulate_general(config, rollouts=True)
    run = GeneralRun(config, batches=True, timeline=True, rollouts=True)
    for share in sorted((first, second)):
        run.advance(share * config.duration_seconds)
        run = restore_simulation(simulation_checkpoint(run))
    run.step(budget=2)
    run = restore_simulation(simulation_checkpoint(run))
    run.advance()
    resumed = run.result()
    np.testing.assert_equal(resumed.metrics, whole.metrics)
    for table in ("batches", "timeline", "rollouts"):
        assert str(getattr(resumed, table)) == str(getattr(whole, table))


@settings(max_examples=100)
@given(trainer_settings())
def test_causes_sum_to_all_time_and_intervals_to_the_causes(drawn):
    config = to_config({**drawn, "warmup_seconds": 0.0})
    result = simulate_general(config)
    total = sum(result.trainer_ticks.values())
    assert sum(result.slot_ticks.values()) == config.rollout_workers * total
    found = Counter()
    for start, end, cause in (
        constraint_intervals(result).select("start_ticks", "end_ticks", "trainer_bound_by").iter_rows()
    ):
        assert start <= end
        found[cause] += end - start
    assert +found == +Counter(result.trainer_ticks)


# --- fetch ------------------------------------------------------------------------------------------------


def test_a_step_starts_when_its_batch_is_fetched():
    result = agree(fetch_seconds=0.25)
    assert steps(result)[:3] == [(1.25, 2.25), (2.5, 3.5), (3.75, 4.75)]
    assert result.trainer_ticks["fetch"] == pytest.approx(0.25e6 * len(result.batches), abs=0.25e6)
    assert result.trainer_wait_seconds == pytest.approx(40.0 - result.trainer_busy_seconds)


def test_a_prefetched_batch_is_fetched_during_the_step_before():
    result = agree(fetch_seconds=0.25, prefetch_batches=1, rollout_workers=6)
    assert steps(result)[:3] == [(1.25, 2.25), (2.25, 3.25), (3.25, 4.25)]
    assert result.trainer_ticks["fetch"] == 250_000


def test_a_batch_that_is_fetched_counts_as_in_training():
    result = agree(fetch_seconds=1000.0)
    assert (result.updates, result.in_training_tokens, result.trainer_batch_seconds) == (0, 200, 1.0)
    assert not result.stalled
    assert result.trainer_fetch_seconds == 39.0


def test_in_sequential_a_fetch_counts_as_a_step_under_way():
    result = agree(
        mode="sequential", batch_groups=None, batch_tokens=200, fetch_seconds=2.0, stale_check="update"
    )
    # One second of rollouts, two of fetch, one of training, half of publication.
    assert steps(result)[:2] == [(3.0, 4.0), (7.5, 8.5)]
    assert [row.start for row in result.rollouts[:4]] == [0.0, 0.0, 4.5, 4.5]


# --- evaluation -------------------------------------------------------------------------------------------


def test_an_evaluation_keeps_the_trainer_from_its_next_step():
    result = agree(evaluation_every_updates=2, evaluation_seconds=3.0, rollout_workers=6)
    assert steps(result)[:4] == [(1.0, 2.0), (2.0, 3.0), (6.0, 7.0), (7.0, 8.0)]
    assert "evaluation" in {row.event for row in result.timeline}


def test_an_evaluation_begins_after_the_publication_that_blocks_the_trainer():
    apart = agree(
        evaluation_every_updates=1, evaluation_seconds=3.0, publication_blocks_trainer=True, rollout_workers=6
    )
    beside = agree(evaluation_every_updates=1, evaluation_seconds=3.0, rollout_workers=6)
    assert steps(apart)[1][0] == 2.0 + 0.5 + 3.0
    assert steps(beside)[1][0] == 2.0 + 3.0
    assert apart.trainer_ticks["publication"] > 0 == beside.trainer_ticks["publication"]


def test_an_evaluation_may_stop_decoding():
    going = agree(evaluation_every_updates=1, evaluation_seconds=10.0)
    stopped = agree(evaluation_every_updates=1, evaluation_seconds=10.0, evaluation_stops_generation=True)
    # The step of the first two rollouts ends at 2 s, with the next two; those after them wait.
    assert [row.end for row in going.rollouts[:6]] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert [row.end for row in stopped.rollouts[:6]] == [1.0, 1.0, 2.0, 2.0, 13.0, 13.0]
    assert [row.start for row in stopped.rollouts[4:6]] == [2.0, 2.0]


@pytest.mark.parametrize(("stops", "starts"), [(False, 2.5), (True, 5.5)])
def test_in_sequential_an_evaluation_closes_admission_only_where_it_stops_generation(stops, starts):
    result = agree(
        mode="sequential",
        batch_groups=None,
        batch_tokens=200,
        stale_check="update",
        evaluation_every_updates=1,
        evaluation_seconds=3.0,
        evaluation_stops_generation=stops,
    )
    assert result.rollouts[2].start == starts
    assert result.batches[1].start == (5.5 if not stops else 6.5)


def test_an_evaluation_that_is_unfinished_at_the_end_is_cut():
    result = agree(evaluation_every_updates=1, evaluation_seconds=1000.0)
    assert result.trainer_evaluation_seconds == 38.0
    assert not result.stalled


# --- spread -----------------------------------------------------------------------------------------------


def test_every_configuration_of_a_seed_has_the_same_spread_at_its_nth_step():
    one = agree(train_spread=0.19, seed=3)
    other = agree(train_spread=0.19, seed=3, train_tokens_per_second=100.0, rollout_workers=5)
    factors = [[(row.end - row.start) for row in run.batches[:12]] for run in (one, other)]
    np.testing.assert_allclose(2.0 * np.array(factors[0]), factors[1], rtol=1e-5)
    z = np.array(
        [np.random.Philox(key=np.array([3, 3], np.uint64), counter=n).random_raw(4)[1] for n in range(3)]
    )

    normals = ndtri(((z >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
    np.testing.assert_allclose(factors[0][:3], np.exp(0.19 * normals - 0.19**2 / 2), atol=1e-6)


def test_the_spread_keeps_the_mean_step():
    result = simulate_pipeline(
        to_config({**ROUND, "train_spread": 0.5, "duration_seconds": 6000.0, "rollout_workers": 4})
    )
    lengths = [row.end - row.start for row in result.batches]
    assert np.mean(lengths) == pytest.approx(1.0, abs=4 * np.std(lengths) / len(lengths) ** 0.5)
    assert np.std(np.log(lengths)) == pytest.approx(0.5, rel=0.05)


# --- turns ------------------------------------------------------------------------------------------------


def test_decoding_stands_still_while_a_step_is_under_way():
    result = agree(
        generation_while_training=False, response_length=("uniform", 50, 150), publication_blocks_trainer=True
    )
    away = [(row.start, row.end + 0.5) for row in result.batches]
    for row in result.rollouts[:20]:
        if row.end is None:
            continue
        stopped = sum(max(0.0, min(row.end, end) - max(row.start, start)) for start, end in away)
        assert row.end - row.start == pytest.approx(row.tokens / 100 + stopped, abs=1e-9)


def test_overhead_and_environment_go_on_while_decoding_stands_still():
    result = agree(generation_while_training=False, environment_seconds=(0.5,), sync_seconds=0.0)
    # The first two end at 1.5 s; the step until 2.5 s lets the next two start and wait.
    assert [(row.start, row.end) for row in result.rollouts[:4]] == [(0.0, 1.5)] * 2 + [(1.5, 4.0)] * 2


def test_a_drain_is_not_held_up_by_the_trainer_that_waits_for_it():
    result = agree(generation_while_training=False, publication="drain", publication_blocks_trainer=True)
    assert result.updates > 5


@pytest.mark.parametrize("name", ["prefetch_batches", "train_slowdown_when_generating"])
def test_turns_refuse_what_needs_both_sides_at_once(name):
    with pytest.raises(ConfigError, match=f"{name}: must be left out with generation_while_training false"):
        PipelineConfig(generation_while_training=False, **{name: 1})


def test_turns_bound_an_update_by_decoding_and_training_together():
    config = to_config(ROUND)
    assert phase_bounds(config)[:2] == (1.0, 1.0)
    turns = config.replace(generation_while_training=False, fetch_seconds=0.5)
    assert phase_bounds(turns)[:2] == (2.0, 1.5)
    evaluated = config.replace(evaluation_every_updates=4, evaluation_seconds=2.0)
    assert phase_bounds(evaluated)[1] == 1.5


# --- laws by version --------------------------------------------------------------------------------------


def test_lengths_follow_the_version_that_a_rollout_starts_with():
    law = ("schedule", ((0, ("fixed", 100)), (2, ("fixed", 40))))
    result = agree(response_length=law, rollout_workers=4)
    assert {(row.behaviour_version >= 2, row.tokens) for row in result.rollouts} == {(False, 100), (True, 40)}
    started = Counter(row.tokens for row in result.rollouts)
    mean = (100 * started[100] + 40 * started[40]) / started.total()
    trained = result.trained_tokens / result.trained_rollouts
    assert result.length_bias_law == pytest.approx(trained / mean, rel=1e-12)


def test_cut_rollouts_are_those_at_the_end_of_their_own_segment():
    law = ("schedule", ((0, ("lognormal", 60, 0.5, 10, 70)), (1, ("lognormal", 60, 0.5, 10, 200))))
    result = agree(response_length=law, rollout_workers=4)
    for row in result.rollouts:
        assert row.truncated == (row.tokens == (200 if row.behaviour_version else 70))


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "must be a list of pairs of version and law"),
        ([(1, LengthLaw.fixed(3))], "must be 0"),
        ([(0, LengthLaw.fixed(3)), (0, LengthLaw.fixed(4))], "must be above that of the segment before, 0"),
        (
            [(0, LengthLaw.grouped([1, 2], ["a", "a"]))],
            "must be neither a schedule nor a trace",
        ),
        ([(0, LengthLaw.schedule([(0, LengthLaw.fixed(3))]))], "must be neither a schedule"),
        ([(0, 300)], "must be a pair of version and law"),
    ],
)
def test_bad_segments_are_refused(segments, message):
    with pytest.raises(ConfigError, match=message):
        LengthLaw.schedule(segments)


def test_a_schedule_is_data_and_comes_back_whole():
    plain = {
        "law": "schedule",
        "segments": [
            {"from": 0, "law": "lognormal", "median": 300},
            {"from": 100, "law": "paired", "tokens": [3, 4], "seconds": [0.5, 1.0]},
        ],
    }
    law = LengthLaw.from_dict(plain)
    assert LengthLaw.from_dict(law.to_dict()) == law == LengthLaw.from_dict(law.to_dict(embed=True))
    assert law != LengthLaw.from_dict({**plain, "segments": plain["segments"][:1]})
    assert (law.minimum, law.maximum, law.brings_seconds) == (3, 2048, True)
    with pytest.raises(ConfigError, match="must each have a version"):
        LengthLaw.from_dict({"law": "schedule", "segments": [{"law": "fixed", "n": 3}]})
    with pytest.raises(ConfigError, match="environment_seconds: must be none"):
        PipelineConfig(response_length=law, environment_seconds={"law": "fixed", "seconds": 1.0})


def test_reserve_holds_room_for_the_longest_of_all_segments():
    law = LengthLaw.schedule([(0, LengthLaw.fixed(100)), (5, LengthLaw.fixed(900))])
    with pytest.raises(ConfigError, match="must be at least 900"):
        PipelineConfig(response_length=law, admission="reserve", max_queue_tokens=500)


# --- a queue that holds -----------------------------------------------------------------------------------


def test_a_held_group_keeps_its_slot_until_the_queue_has_room():
    result = agree(queue_overflow="hold", max_queue_groups=2, train_tokens_per_second=20.0)
    # A step takes ten seconds: two groups queue, two keep their slots until the next pop at 11 s.
    assert [row.start for row in result.rollouts[:8]] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 11.0, 11.0]
    assert result.slots_held_seconds == 2 * ((11 - 3) + (21 - 12) + (31 - 22) + (40 - 32))
    assert result.slot_ticks["held"] == round(result.slots_held_seconds * 1e6)
    assert result.rollout_utilization == 1.0
    assert max(row.queue_groups for row in result.timeline) == 2
    assert max(row.held_slots for row in result.timeline) == 2


def test_a_cap_below_the_batch_stalls_and_says_so():
    config = to_config({**ROUND, "queue_overflow": "hold", "max_queue_groups": 1})
    result = simulate_pipeline(config)
    assert result.stalled
    assert "max_queue_groups (1) holds groups back before the queue holds batch_groups (2)" in explain_stall(
        config, result
    )


def test_held_groups_ahead_of_the_batch_stall_and_say_so():
    config = to_config(
        {
            **ROUND,
            "queue_overflow": "hold",
            "max_queue_groups": 2,
            "queue_order": "started",
            "response_length": ("lognormal", 60, 1.5, 1, 2000),
            "rollout_workers": 6,
            "duration_seconds": 400.0,
        }
    )
    stalled = [simulate_pipeline(config.replace(seed=seed)) for seed in range(20)]
    stalled = [result for result in stalled if result.stalled]
    assert stalled
    assert "lets groups keep" in explain_stall(stalled[0].config, stalled[0])


def test_hold_refuses_reserve_and_needs_its_cap():
    with pytest.raises(ConfigError, match="must be 'threshold' with queue_overflow 'hold'"):
        PipelineConfig(queue_overflow="hold", max_queue_groups=4, admission="reserve")
    with pytest.raises(ConfigError, match="belongs to queue_overflow 'drop_oldest' and 'hold'"):
        PipelineConfig(queue_overflow="hold")


def test_evaluation_settings_need_their_cadence():
    with pytest.raises(ConfigError, match="evaluation_seconds: has an effect with evaluation_every_updates"):
        PipelineConfig(evaluation_seconds=3.0)
