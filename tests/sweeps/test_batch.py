"""The batch driver: which rows belong to whom, progress, cancellation."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from lagsweep import LengthLaw, PipelineConfig, simulate_pipeline
from lagsweep.kernels.pipeline.draws import DRAW_WINDOW
from lagsweep.kernels.pipeline.records import PARAMETERS
from lagsweep.kernels.pipeline.rollouts import MORE_DRAWS, draws_are_plain
from lagsweep.sweeps.runs.general import GeneralRun, draw_plainly, new_draws
from lagsweep.sweeps.runs.many import Cancelled, Record, simulate_batch
from lagsweep.sweeps.runs.setups import Kept

SEEDS = np.array([4, 7], np.uint64)
SMALL = PipelineConfig(duration_seconds=60, rollout_workers=4)
MIXED = [
    SMALL.replace(publication="pause"),
    SMALL,
    SMALL.replace(group_size=2),
    SMALL.replace(max_policy_lag=0),
]


@pytest.mark.parametrize("table", ["batches", "timeline", "rollouts"])
def test_rows_of_all_levels_stand_in_the_order_of_configurations_and_seeds(table):
    result = simulate_batch(MIXED, SEEDS, record=Record(**{table: True}))
    columns = getattr(result, table)
    place = columns["config"] * len(SEEDS) + columns["seed_index"]

    assert np.all(np.diff(place) >= 0)
    assert set(place.tolist()) == set(range(len(MIXED) * len(SEEDS)))


def test_recorded_batches_are_those_of_single_runs():
    result = simulate_batch(MIXED, SEEDS, record=Record(batches=True))
    for row, config in enumerate(MIXED):
        for column, seed in enumerate(SEEDS):
            alone = simulate_pipeline(config.replace(seed=int(seed)))
            mine = (result.batches["config"] == row) & (result.batches["seed_index"] == column)
            assert result.batches["tokens"][mine].tolist() == [batch.tokens for batch in alone.batches]
            assert result.metrics["updates"][row, column] == alone.updates


def test_metrics_of_the_general_engine_are_empty_for_level_1():
    result = simulate_batch(MIXED, SEEDS)

    assert np.all(result.metrics["trained_groups"][[1, 3]] == -1)
    assert np.all(result.metrics["trained_groups"][[0, 2]] >= 0)
    assert np.all(np.isnan(result.metrics["mean_token_lag"][[1, 3]]))


def test_progress_counts_every_run_once():
    seen = []
    simulate_batch(MIXED, SEEDS, on_progress=seen.append)

    assert seen == sorted(seen)
    assert seen[-1] == len(MIXED) * len(SEEDS)


def test_a_set_event_stops_the_batch_before_it_runs():
    cancel = threading.Event()
    cancel.set()

    with pytest.raises(Cancelled):
        simulate_batch(MIXED, SEEDS, cancel=cancel)


@pytest.mark.parametrize("options", [{}, {"prompt_sigma": 0.3, "filter_probability": 0.2}])
def test_configurations_that_share_a_seeds_draws_give_what_each_gives_alone(monkeypatch, options):
    # So few are shared that every run goes on beyond them.
    monkeypatch.setattr("lagsweep.sweeps.runs.general_cells.DRAW_BUFFER_ROLLOUTS", 70)
    groups = {"group_size": 2, "batch_groups": 4, "batch_tokens": None, "duration_seconds": 300.0}
    base = PipelineConfig(**groups, **options)
    other_law = base.replace(response_length=LengthLaw.fixed(200))
    configs = [base, other_law, base.replace(rollout_workers=3), base.replace(publication="pause")]
    seeds = np.array([5, 0, 2**64 - 1], np.uint64)

    together = simulate_batch(configs, seeds)

    for row, config in enumerate(configs):
        alone = simulate_batch([config], seeds)
        assert alone.metrics["generated_rollouts"].min() > 70
        for name, values in alone.metrics.items():
            np.testing.assert_array_equal(together.metrics[name][row], values[0], err_msg=name)
        np.testing.assert_array_equal(together.lag_counts[row], alone.lag_counts[0])


@pytest.mark.parametrize("options", [{}, {"prompt_sigma": 0.3, "filter_probability": 0.2}])
def test_how_many_draws_are_kept_changes_no_result(options):
    # 400 slots, whose work is cancelled and runs again: most of that was drawn before the window's first.
    config = PipelineConfig(
        rollout_workers=400,
        group_size=4,
        batch_groups=8,
        batch_tokens=None,
        max_policy_lag=1,
        cancel_in_flight=True,
        stale_action="requeue",
        duration_seconds=120.0,
        **options,
    )
    draws = [new_draws(), new_draws(70), new_draws(1 << 13), new_draws(1 << 13, plain=True)]
    found = []
    for some in draws:
        run = GeneralRun(config, draws=some, rollouts=True)
        for _ in range(2):  # from what is drawn already, too
            run.begin(3)
            while not run.step():
                pass
            found.append((run.result().metrics, run.tables(core=True)["rollouts"]))

    (metrics, rollouts), numbers = found[0], found[0][1]["number"]
    assert metrics["generated_rollouts"] > 1_000
    assert len(numbers) - len(np.unique(numbers)) > 2 * DRAW_WINDOW  # of those that ran again
    for others, rows in found[1:]:
        np.testing.assert_equal(others, metrics)
        for name, column in rows.items():
            np.testing.assert_array_equal(column, rollouts[name], err_msg=name)


@pytest.mark.parametrize(
    "more", [{}, *({name: 1} for name in MORE_DRAWS), {"publication": 2}, {"redraw": 1}, {"drift": 0.5}]
)
def test_kernels_and_python_say_alike_what_draws_nothing_but_lengths(more):
    parameters = np.zeros(2, PARAMETERS)
    for name, value in more.items():
        parameters[name][1] = value
    says = getattr(draws_are_plain, "py_func", draws_are_plain)

    assert draw_plainly(parameters) == all(says(one) for one in parameters.view(np.recarray))
    assert draw_plainly(parameters) == (not set(more) & set(MORE_DRAWS))


def same(one, other):
    assert one.metrics.keys() == other.metrics.keys()
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name], err_msg=name)
    np.testing.assert_array_equal(one.lag_counts, other.lag_counts)
    np.testing.assert_array_equal(one.status, other.status)
    assert one.reasons == other.reasons


def test_what_a_thread_keeps_for_its_next_block_changes_no_result():
    kept = Kept()
    levels = [MIXED, [SMALL, SMALL.replace(max_policy_lag=0)], MIXED[:1], MIXED[2:], MIXED, MIXED]
    for configs, seeds in zip(levels, (SEEDS, SEEDS, SEEDS[:1], SEEDS, np.array([9], np.uint64), SEEDS)):
        same(simulate_batch(configs, seeds, kept=kept), simulate_batch(configs, seeds))


def test_a_thread_that_was_stopped_keeps_nothing_of_it():
    kept, cancel = Kept(), threading.Event()
    first = simulate_batch(MIXED, SEEDS, kept=kept)
    with pytest.raises(Cancelled):
        simulate_batch(MIXED, SEEDS, kept=kept, cancel=cancel, on_progress=lambda runs: cancel.set())

    same(simulate_batch(MIXED, SEEDS, kept=kept), first)


def test_rows_of_one_block_are_not_written_over_by_the_next():
    kept, record = Kept(), Record(rollouts=True)
    first = simulate_batch([SMALL], SEEDS[:1], record=record, kept=kept)
    rows = {name: column.copy() for name, column in first.rollouts.items()}
    simulate_batch([SMALL], SEEDS[1:], record=record, kept=kept)

    for name, column in rows.items():
        np.testing.assert_array_equal(first.rollouts[name], column)
