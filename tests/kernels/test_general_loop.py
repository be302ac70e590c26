"""The general loop from inside: clocks and trees, its books at every stop, saving, growing, budgets."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies.general_configs import general_settings, to_config

from lagsweep.kernels._jit import jit
from lagsweep.kernels.pipeline import records as at
from lagsweep.kernels.pipeline.clock import (
    add_saturating,
    bring_clock,
    first_slot,
    next_training_time,
    set_key,
    share_done,
    work_of,
)
from lagsweep.kernels.pipeline.general import _advance_general_kernel
from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.general import GeneralRun, simulate_general
from lagsweep.sweeps.runs.many import general_batch
from lagsweep.sweeps.runs.parameters import general_tables, pack, work_rates
from lagsweep.sweeps.runs.simulate import simulate_pipeline

# Clocks and trees


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 6)), max_size=60))
def test_a_tree_gives_the_lowest_slot_with_the_smallest_key(slots, changes):
    leaves = 1 << max(1, (slots - 1).bit_length())
    tree = np.full(2 * leaves, at.NEVER, np.int64)
    keys = [at.NEVER] * leaves
    for slot, key in changes:
        keys[slot % slots] = key if key else at.NEVER
        set_key(tree, leaves, slot % slots, np.int64(keys[slot % slots]))
        assert tree[1] == min(keys)
        assert first_slot(tree, leaves) == keys.index(min(keys))


@given(
    st.integers(1, 2**24),
    st.integers(1, 2**52),
    st.sampled_from([1, 2**24]),
    st.floats(0, 1, exclude_max=True),
)
def test_the_share_of_a_decode_is_exact(tokens, decode_ticks, unit, share):
    decode_ticks = min(decode_ticks, 2**38) if unit > 1 else decode_ticks
    done = int(decode_ticks * unit * share)

    found = share_done(np.int64(tokens), np.int64(done), np.int64(decode_ticks), np.int64(unit))

    assert found == tokens * done // (decode_ticks * unit)


def test_work_beyond_64_bits_is_held_and_never_reached():
    assert work_of(np.int64(2**39), np.int64(2**24)) == at.NEVER
    assert work_of(np.int64(2**39 - 1), np.int64(2**24)) == (2**39 - 1) * 2**24
    assert add_saturating(np.int64(at.NEVER - 1), np.int64(2)) == at.NEVER
    assert add_saturating(np.int64(at.NEVER - 2), np.int64(2)) == at.NEVER


@pytest.mark.parametrize("slowdown", [1e-6, 0.037, 1.0, 1e9])
def test_work_rates_follow_the_formula(slowdown):
    rates = work_rates(slowdown, 50).tolist()

    assert rates[1] == 2**24
    for n in range(1, 51):
        assert rates[n] == max(1, int(2**24 / (1 + slowdown * (n - 1)) + 0.5))


def test_work_rates_are_ticks_without_slowdown():
    assert work_rates(0.0, 3).tolist() == [1, 1, 1, 1]


@jit
def end_of_step(parameters, states):
    """Take the records out of their arrays, as a loop does."""
    return next_training_time(parameters[0], states[0])


@jit
def bring(parameters, states, rates, time):
    """As `end_of_step`."""
    bring_clock(parameters[0], states[0], rates, time)


@pytest.mark.parametrize("factor", [0.2, 1.0, 2.5, 1e9])
def test_slowed_training_ends_at_the_first_tick_with_its_work_done(factor):
    """Against whole numbers of 2**-24 ticks, with the rate changing at random moments."""
    config = PipelineConfig(train_slowdown_when_generating=factor)
    parameters, rates = pack([config]), general_tables(config).work_rates
    slow = int(2**24 / (1 + factor) + 0.5)
    rng = random.Random(7)
    for _ in range(30):
        states = np.zeros(1, at.GENERAL_STATE)
        state = states[0]
        state.training = 1
        state.training_time = at.NEVER
        state.fetch_time = at.NEVER
        ticks = rng.randrange(0, 10**6)
        state.rest_ticks = ticks
        left, clock = ticks * 2**24, 0
        for _ in range(5):
            decoding = rng.random() < 0.5
            state.decoding = decoding
            rate = slow if decoding else 2**24
            end = end_of_step(parameters, states)
            assert end == (at.NEVER if rate == 0 and left > 0 else clock - (-left // max(rate, 1)))
            step = rng.randrange(0, 2 * 10**5)
            if clock + step >= end:
                break
            clock += step
            left -= step * rate
            bring(parameters, states, rates, np.int64(clock))


# One compiled form, whatever the configuration


@pytest.mark.jit_only
def test_every_configuration_uses_one_signature():
    law = LengthLaw.paired([10, 20], [0.5, 1.0])
    for config in (
        PipelineConfig(duration_seconds=20),
        PipelineConfig(duration_seconds=20, response_length=law, publication="abort"),
        PipelineConfig(duration_seconds=20, limits=[Limit("started", "popped", 3)], group_size=2),
    ):
        simulate_general(config, rollouts=True)

    assert len(_advance_general_kernel.signatures) == 1


# The books: every record, slot, place and token is in exactly one place, at every stop


def chain(groups, first, column):
    """Return the records of a list."""
    found, record = [], first
    while record != 0:
        found.append(int(record))
        assert len(found) <= len(groups)
        record = groups[record][column]
    return found


def check_books(run):
    """Check one state between two events; return nothing."""
    state, held = run.state, run.held
    groups, members, slots = held.groups, held.members, held.slots
    size = run.config.group_size
    queue = chain(groups, groups[0].next, "next")
    live = chain(groups, groups[0].live_next, "live_next")
    popped = chain(groups, state.popped_head, "next")
    requeued = chain(groups, state.requeue_head, "next")
    unused = chain(groups, state.free_head, "next")
    running = [record for record in live if groups[record].state == at.GROUP_RUNNING]
    assert sorted(queue) == sorted(set(live) - set(running))
    if run.config.queue_order in ("oldest_version", "freshest"):
        ranked = chain(groups, groups[0].rank_next, "rank_next")
        sign = 1 if run.config.queue_order == "oldest_version" else -1
        assert ranked == sorted(queue, key=lambda record: sign * groups[record].version)
    assert sorted(live + popped + requeued + unused) == list(range(1, len(groups)))
    assert [len(queue), len(running), len(requeued), len(unused)] == [
        state.queue_groups,
        state.running,
        state.requeued,
        state.free,
    ]
    assert groups["tokens"][queue].sum() == state.queue_tokens
    assert groups["tokens"][popped].sum() == state.popped_tokens
    admissions = groups["admission"][live]
    assert (np.diff(admissions) > 0).all()
    # No group is older than one admitted before: what looks for old ones stops at the first that is not.
    versions = groups["version"][live]
    begun = versions >= 0
    assert (np.diff(versions[begun]) >= 0).all()
    assert (np.diff(begun.astype(int)) <= 0).all()
    assert (groups["finished"][queue] == size).all()
    assert (groups["version"][queue] >= state.queue_oldest).all()
    # Slots: the idle ones are on the stack, each other one holds a started, unfinished member.
    idle = slots["idle_stack"][: state.idle].tolist()
    busy = sorted(set(range(len(slots))) - set(idle))
    assert len(set(idle)) == len(idle)
    holders = []
    for record in running:
        for position in range(size):
            slot = members[record * size + position].slot
            if slot >= 0 and position < groups[record].started:
                holders.append(int(slot))
                assert slots[slot].group == record
                assert slots[slot].member == position
    assert sorted(holders) == busy
    started = groups["started"][running].sum() - groups["finished"][running].sum()
    assert started == len(busy)
    # Quota: what counts as started is what is live, popped or trained.
    assert state.started == len(live) + len(popped) + state.trained_groups
    assert state.popped_groups == len(popped) + state.trained_groups
    front = next((k for k, record in enumerate(live) if record in running), len(live))
    if run.config.queue_order == "started":
        assert state.front_count == front
        assert state.front == (live[front] if front < len(live) else 0)
    for limit in run.config.limits:
        if limit.count == "started":
            assert state.started <= allowed(run, limit)
    if run.config.max_running_groups is not None:
        assert len(running) <= run.config.max_running_groups


def allowed(run, limit):
    """Return ``B * done + groups`` of a limit now."""
    state, batch = run.state, run.config.batch_groups
    if batch is None:
        return state.popped_groups + limit.groups
    done = {
        "published": state.published // run.config.updates_per_batch,
        "popped": state.popped_batches,
        "trained": state.trained_batches,
    }
    return batch * done[limit.done] + limit.groups


@given(general_settings(), st.integers(2, 9))
def test_every_exit_gives_back_record_slot_and_quota_exactly_once(drawn, stops):
    run = GeneralRun(to_config({**drawn, "warmup_seconds": 0.0}))
    for stop in range(stops + 1):
        run.advance(drawn["duration_seconds"] * stop / stops)
        check_books(run)


# Saving, growing, budgets


def outcome(run):
    """Return everything a run reports, comparable (NaN as text)."""
    result = run.result()
    tables = [result.batches, result.timeline, result.rollouts]
    return repr(result.metrics), tables, result.lag_counts.tolist(), result.slot_ticks, result.trainer_ticks


@given(general_settings(), st.lists(st.floats(0, 1), max_size=4))
def test_stopping_saving_and_resuming_gives_the_uninterrupted_run(drawn, stops):
    config = to_config(drawn)
    recorded = {"batches": True, "timeline": True, "rollouts": True}
    whole = GeneralRun(config, **recorded)
    whole.advance()
    run = GeneralRun(config, **recorded)
    for stop in sorted(stops):
        run.advance(drawn["duration_seconds"] * stop)
        run = GeneralRun.from_arrays(config, run.arrays())
    run.advance()

    assert outcome(run) == outcome(whole)


@given(general_settings(), st.integers(1, 7))
def test_the_budget_of_a_call_does_not_change_a_run(drawn, budget):
    config = to_config(drawn)
    whole, pieces = GeneralRun(config), GeneralRun(config)
    whole.advance()
    calls = 0
    while not pieces.step(budget=budget):
        calls += 1

    assert repr(pieces.summary()) == repr(whole.summary())
    assert pieces.state.cost == whole.state.cost


def test_records_grow_with_what_is_queued_and_nothing_else_changes():
    config = PipelineConfig(
        rollout_workers=2,
        group_size=3,
        max_queue_tokens=None,
        stale_check="never",
        train_tokens_per_second=10.0,
        duration_seconds=400,
    )
    small, large = GeneralRun(config, rollouts=True), GeneralRun(config, rollouts=True)
    first = len(small.held.groups)
    large._grow_live()
    large._grow_live()
    large._grow_live()
    small.advance()
    large.advance()

    assert len(small.held.groups) > first
    assert outcome(small) == outcome(large)
    check_books(small)


def test_a_run_that_would_not_fit_into_memory_is_refused_with_a_reason(monkeypatch):
    monkeypatch.setattr("lagsweep.sweeps.runs.general.LARGEST_LIVE_ROLLOUTS", 20)
    config = PipelineConfig(max_queue_tokens=None, stale_check="never", train_tokens_per_second=1.0)

    result = general_batch([config, config.replace(max_running_groups=0)], np.arange(2, dtype=np.uint64))

    assert result.status.tolist() == [[2, 2], [1, 1]]
    assert result.reasons[0, 1].startswith(
        "max_queue_tokens: must keep fewer than 20 rollouts queued and running at once (got None)."
    )
    assert result.metrics["trained_groups"].tolist() == [[-1, -1], [0, 0]]


def test_a_batch_of_runs_gives_what_single_runs_give():
    configs = [
        PipelineConfig(publication="abort", resume_seconds=0.5),
        PipelineConfig(group_size=2, batch_groups=3, batch_tokens=None, queue_order="random"),
    ]
    seeds = np.array([3, 2**64 - 1], np.uint64)
    told = []

    result = general_batch(configs, seeds, on_progress=told.append)

    assert told == [1, 2, 3, 4]
    for row, config in enumerate(configs):
        for column, seed in enumerate(seeds):
            single = simulate_general(config.replace(seed=int(seed)))
            for name, value in single.metrics.items():
                np.testing.assert_equal(float(result.metrics[name][row, column]), float(value), err_msg=name)
            assert result.lag_counts[row, column].tolist() == single.lag_counts.tolist()


@pytest.mark.parametrize("slots", [5, 513])
def test_event_keys_hold_the_longest_horizon_that_is_allowed(slots):
    config = PipelineConfig(
        rollout_workers=slots,
        decode_tokens_per_second=1e-7,
        batch_tokens=100_000,
        max_queue_tokens=None,
        train_tokens_per_second=1e-3,
        stale_check="update",
        duration_seconds=4.4e9,
    )
    level_1, general = simulate_pipeline(config), simulate_general(config)

    assert level_1.generated_rollouts > 0
    assert {name: general.metrics[name] for name in level_1.metrics} == pytest.approx(
        level_1.metrics, rel=0, abs=0, nan_ok=True
    )


# Ends that publications move


@given(general_settings(), st.sampled_from(["pause", "abort"]))
def test_ends_that_publications_move_are_those_of_the_work_clock(drawn, publication):
    once_more = {} if publication == "abort" else {"resume_seconds": 0.0, "reprefill_tokens_per_second": None}
    config = to_config(drawn).replace(
        mode="bounded_async",
        publication=publication,
        **once_more,
        decode_slowdown_per_rollout=0.0,
        train_slowdown_when_generating=0.0,
        generation_while_training=True,
        evaluation_stops_generation=False,
    )
    runs = [GeneralRun(config, batches=True, timeline=True, rollouts=True) for _ in range(2)]
    moved, by_clock = runs
    assert moved.parameters["moves_ends"][0] == 1
    assert moved.parameters["virtual_clock"][0] == 0
    by_clock.parameters["moves_ends"], by_clock.parameters["virtual_clock"] = 0, 1
    for run in runs:
        run.advance()
    assert repr(moved.result().metrics) == repr(by_clock.result().metrics)
    for name in ("batches", "timeline", "rollouts"):
        assert np.array_equal(moved.rows(name), by_clock.rows(name))


def test_a_transfer_that_ends_as_the_next_begins_aborts_what_has_just_gone_on():
    # Updates follow one another within a transfer, so one begins in the tick in which another ends.
    config = PipelineConfig(
        duration_seconds=300,
        rollout_workers=8,
        publication="abort",
        sync_seconds=7.0,
        resume_seconds=0.25,
        reprefill_tokens_per_second=900.0,
        train_tokens_per_second=100_000,
        batch_tokens=1_000,
        max_policy_lag=60,
    )
    by_clock = GeneralRun(config, timeline=True)
    by_clock.parameters["moves_ends"], by_clock.parameters["virtual_clock"] = 0, 1
    moved = GeneralRun(config, timeline=True)
    for run in (moved, by_clock):
        run.advance()
    assert moved.result().metrics == by_clock.result().metrics
    assert moved.result().metrics["syncs"] >= 20
    assert moved.result().metrics["mean_token_lag"] > 0


@pytest.mark.parametrize("publication", ["pause", "abort"])
def test_a_run_that_was_saved_by_the_work_clock_goes_on_by_it(publication):
    # As versions did that knew no other way.
    config = PipelineConfig(publication=publication, duration_seconds=60, sync_seconds=2.0)
    saved = GeneralRun(config, timeline=True)
    saved.parameters["moves_ends"], saved.parameters["virtual_clock"] = 0, 1
    saved.advance(until_seconds=30.0)
    assert np.isin(saved.held.slots["phase"], (at.DECODING, at.OFF_CLOCK)).any()
    gone_on = GeneralRun.from_arrays(config, saved.arrays())
    whole = GeneralRun(config, timeline=True)
    for run in (gone_on, whole):
        run.advance()
    assert repr(gone_on.result().metrics) == repr(whole.result().metrics)
    assert np.array_equal(gone_on.rows("timeline"), whole.rows("timeline"))
