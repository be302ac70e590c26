"""A sweep in memory: the documented form, the values of single runs, whatever the executor and the cut."""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter

import numpy as np
import pytest
import xarray as xr
from oracle.small_sweeps import one_by_one, small_base

import lagsweep as ls
from lagsweep.errors import ConfigError
from lagsweep.kernels.pipeline.metrics import METRICS
from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.execute import threads as executors
from lagsweep.sweeps.execute.plan import baseline_design
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.carried import config_at
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.sweep.run import run_spec, run_sweep

AXES = {"queue_cap": [200, 400], "max_lag": [0, 1, 3], "sync_cadence": [1, 2]}


class Watch(Progress):
    """Note which thread did which blocks."""

    def __init__(self):
        self.blocks = []
        self.runs = 0
        self.total = None
        self.notes = []

    def begin(self, total, done=0):
        self.total = total

    def advance(self, runs):
        self.runs += runs

    def block(self, unit, runs, seconds):
        self.blocks.append((threading.get_ident(), runs))

    def note(self, text):
        self.notes.append(text)


def test_a_dataset_has_the_documented_form():
    ds = run_sweep(small_base(), AXES, seeds=4)

    assert tuple(ds.sizes.items()) == (
        ("queue_cap", 2),
        ("max_lag", 3),
        ("sync_cadence", 2),
        ("seed", 4),
        ("lag", 65),
    )
    assert set(ds.data_vars) == {metric.name for metric in METRICS} | {"status", "lag_counts"}
    for metric in METRICS:
        variable = ds[metric.name]
        assert variable.dims == ("queue_cap", "max_lag", "sync_cadence", "seed")
        assert variable.dtype == metric.dtype
        assert variable.attrs == {"units": metric.units, "long_name": metric.long_name}
    assert ds.lag_counts.dims == ("queue_cap", "max_lag", "sync_cadence", "seed", "lag")
    assert ds.seed.dtype == np.uint64
    assert ds.cell.dtype == np.int64
    assert ds.cell.dims == ("queue_cap", "max_lag", "sync_cadence")
    assert ds.max_lag.values.tolist() == [0, 1, 3]
    assert (ds.status == 1).all()
    assert {"spec", "fingerprint", "schema_version", "law_digest", "complete", "lagsweep_version"} <= set(
        ds.attrs
    )
    assert ds.attrs["complete"] == 1


def test_values_are_those_of_single_runs():
    seeds = [3, 0, 2**64 - 1]
    base = small_base()

    ds = run_sweep(base, AXES, seeds=seeds)

    for name, values in one_by_one(base, AXES, seeds).items():
        np.testing.assert_array_equal(ds[name].values, values, err_msg=name)


def test_a_cell_can_be_run_again_in_full_detail():
    ds = run_sweep(small_base(), AXES, seeds=3)
    some = ds.isel(queue_cap=[1], max_lag=slice(None, None, -1), seed=[2])
    cell = some.cell[0, 0, 1]

    config = config_at(some, cell.item(), seed=2)
    result = ls.simulate_pipeline(config)

    assert (config.max_queue_tokens, config.max_policy_lag, config.sync_every_updates) == (400, 3, 2)
    assert result.trained_tokens == some.trained_tokens[0, 0, 1, 0].item()
    assert config == config_at(ds, {"queue_cap": 400, "max_lag": 3, "sync_cadence": 2}, seed=2)
    assert config == config_at(
        ds, {"max_queue_tokens": 400, "max_policy_lag": 3, "sync_every_updates": 2}, seed=2
    )


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (12345, "cell: must be the id of a cell of this sweep"),
        ({"max_lag": 3}, "cell: must fit exactly one cell, fits 4"),
        ({"max_lag": 3, "queue_cap": 200}, r"fits 2 .* Also name sync_cadence \(1 or 2\)\.$"),
        (
            {"max_lag": 9, "queue_cap": 200},
            r"cell\.max_lag: no cell has this value \(got 9\)\. It is 0, 1 or 3 there",
        ),
        ({"max_lagg": 3}, "Did you mean 'max_lag'"),
        (1.5, "cell: must be a cell's id or its axis values"),
        (True, "cell: must be a cell's id"),
    ],
)
def test_a_cell_that_is_not_there_is_refused(cell, text):
    ds = run_sweep(small_base(duration_seconds=1.0), AXES, seeds=1)

    with pytest.raises(ConfigError, match=text):
        config_at(ds, cell, seed=0)


def test_a_dataset_of_something_else_is_refused():
    with pytest.raises(ConfigError, match="dataset: must be the result of a sweep"):
        config_at(xr.Dataset(), 1)


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"threads": 7}, {"executor": "serial"}])
@pytest.mark.parametrize("block_seconds", [1e-9, 0.08])
def test_results_do_not_depend_on_threads_or_blocks(monkeypatch, options, block_seconds):
    reference = run_sweep(small_base(), AXES, seeds=11, executor="serial")
    monkeypatch.setattr(executors, "BLOCK_SECONDS", block_seconds)

    xr.testing.assert_identical(run_sweep(small_base(), AXES, seeds=11, **options), reference)


@pytest.mark.jit_only
def test_both_threads_work_on_many_blocks(monkeypatch):
    monkeypatch.setattr(executors, "BLOCK_SECONDS", 0.004)
    base = small_base(duration_seconds=3000.0)
    watch = Watch()

    ds = run_sweep(base, AXES, seeds=100, threads=2, progress=watch)

    blocks = Counter(thread for thread, _ in watch.blocks)
    assert len(watch.blocks) >= 50
    assert len(blocks) == 2
    assert min(blocks.values()) >= len(watch.blocks) / 10
    assert sum(runs for _, runs in watch.blocks) == watch.runs == watch.total == ds.status.size
    xr.testing.assert_identical(run_sweep(base, AXES, seeds=100, threads=1), ds)


def test_a_sweep_without_axes_is_one_cell():
    ds = run_sweep(small_base(), {}, seeds=[5])

    assert ds.updates.dims == ("seed",)
    assert ds.cell.dims == ()
    assert ds.updates.item() == ls.simulate_pipeline(small_base(seed=5)).updates


def test_points_are_one_dimension_with_the_axes_as_coordinates():
    axes = [{"max_lag": [0, 3], "sync_cadence": [1, 2]}, {"queue_cap": [400, 200]}]

    ds = run_sweep(small_base(), axes, seeds=2)

    assert ds.updates.dims == ("point", "seed")
    assert ds.max_lag.dims == ("point",)
    assert ds.max_lag.values.tolist() == [0, 0, 3, 3]
    assert ds.queue_cap.values.tolist() == [400, 200, 400, 200]
    grid = run_sweep(small_base(), AXES, seeds=2)
    for point in range(4):
        place = {name: ds[name].values[point] for name in AXES}
        assert ds.cell[point] == grid.cell.sel(place)
        assert (ds.trained_tokens[point].values == grid.trained_tokens.sel(place).values).all()


def test_laws_and_words_can_be_axes():
    laws = [LengthLaw.fixed(40), LengthLaw.uniform(20, 80)]

    ds = run_sweep(small_base(), {"response_length": laws, "admission": ["threshold", "reserve"]}, seeds=1)

    assert ds.response_length.values.tolist() == [law.name for law in laws]
    config = config_at(ds, ds.cell[0, 1].item(), seed=0)
    assert config.response_length == laws[0]
    assert config.admission == "reserve"
    assert set(ds.attrs["law_digest"].split(",")) == {law.digest for law in laws}


def test_excluded_cells_are_marked_and_not_run():
    spec = make_spec(small_base(), AXES, 3, constraints=["max_lag + 1 >= sync_cadence"])
    watch = Watch()

    ds = run_spec(spec, progress=watch)

    left_out = ds.sel(max_lag=0, sync_cadence=2)
    assert (left_out.status == 3).all()
    assert (left_out.updates == -1).all()
    assert left_out.trained_tokens_per_second.isnull().all()
    assert (ds.status == 3).sum() == left_out.status.size
    assert watch.total == watch.runs == 10 * 3
    assert (ds.drop_sel(max_lag=0).status == 1).all()


def test_a_failed_run_is_data_and_the_rest_goes_on(monkeypatch):
    fail_at_lag_1(monkeypatch)
    watch = Watch()

    ds = run_sweep(small_base(), AXES, seeds=3, progress=watch)

    failed = ds.status == 2
    assert failed.sum() == 4
    assert (failed == ((ds.max_lag == 1) & (ds.seed == 2))).all()
    assert set(ds.reason.values[failed.values]) == {"FloatingPointError: injected"}
    assert set(ds.reason.values[~failed.values]) == {""}
    assert ds.reason.dtype == object  # a text of fixed width would take the longest one's room for every run
    assert (ds.updates.values[failed.values] == -1).all()
    assert np.isnan(ds.mean_lag.values[failed.values]).all()
    reference = one_by_one(small_base(), AXES, [0, 1, 2])
    for metric in METRICS:
        np.testing.assert_array_equal(
            ds[metric.name].values[~failed.values], reference[metric.name][~failed.values]
        )
    assert len(watch.notes) == 4
    assert (
        "failed: queue_cap=200 max_lag=1 sync_cadence=1 seed=2: FloatingPointError: injected" in watch.notes
    )


def fail_at_lag_1(monkeypatch):
    """Make every run at lag 1 and seed 2 raise."""
    from lagsweep.sweeps.execute import work as unit_work

    real = unit_work.simulate_batch

    def sometimes(configs, seeds, **options):
        if any(config.max_policy_lag == 1 for config in configs) and 2 in seeds:
            raise FloatingPointError("injected")
        return real(configs, seeds, **options)

    monkeypatch.setattr(unit_work, "simulate_batch", sometimes)


def test_masks_say_what_became_of_each_rollout():
    base = small_base(response_length=LengthLaw.lognormal(40, 1.0, 10, 80))

    ds = run_sweep(base, {"max_lag": [0, 2]}, seeds=3, masks=True)

    longest = 0
    for k, lag in enumerate((0, 2)):
        for seed in range(3):
            rollouts = ls.simulate_pipeline(
                base.replace(max_policy_lag=lag, seed=seed), rollouts=True
            ).rollouts
            longest = max(longest, len(rollouts))
            count = len(rollouts)
            outcomes = [row.outcome for row in rollouts]
            at = {"max_lag": lag, "seed": seed}
            assert ds.trained.sel(at).values[:count].tolist() == [
                outcome == "trained" for outcome in outcomes
            ]
            assert ds.completed.sel(at).values[:count].tolist() == [
                outcome != "running" for outcome in outcomes
            ]
            assert ds.truncated.sel(at).values[:count].tolist() == [row.truncated for row in rollouts]
            assert not ds.completed.sel(at).values[count:].any()
            assert ds.completed.sel(at).sum() == ds.generated_rollouts[k, seed]
    assert ds.sizes["rollout"] == longest
    assert ds.truncated.any()


def test_the_baseline_is_the_sequential_pipeline_at_the_same_seeds():
    spec = make_spec(small_base(), AXES, 3, baseline=True)

    ds = run_spec(spec)

    assert ds.baseline_trained_tokens.dims == ("seed",)
    for seed in range(3):
        run = ls.simulate_pipeline(small_base(mode="sequential", seed=seed))
        assert ds.baseline_trained_tokens[seed] == run.trained_tokens
        assert ds.baseline_trained_tokens_per_second[seed] == run.trained_tokens_per_second
    assert (ds.baseline_mean_lag == 0).all()
    assert baseline_design(spec)[0].mode == "sequential"
    speedup = ds.trained_tokens_per_second / ds.baseline_trained_tokens_per_second
    assert speedup.dims == ds.updates.dims


def test_the_baseline_varies_along_axes_that_matter_to_it():
    spec = make_spec(
        small_base(), {"max_lag": [0, 2], "rollout_workers": [1, 4], "queue_cap": [400]}, 2, baseline=True
    )

    ds = run_spec(spec)
    some = ds.isel(rollout_workers=1, seed=0)

    assert ds.baseline_updates.dims == ("rollout_workers", "seed")
    expected = ls.simulate_pipeline(small_base(mode="sequential", rollout_workers=4, seed=0))
    assert some.baseline_trained_tokens.item() == expected.trained_tokens
    assert list(baseline_design(spec)[1].columns) == ["rollout_workers"]


@pytest.mark.parametrize(
    ("changes", "axes"),
    [
        ({"prompt_tokens": 5}, {"max_lag": [0]}),
        ({}, {"mode": ["sequential", "bounded_async"]}),
        ({"mode": "sequential"}, {}),
    ],
)
def test_there_is_no_baseline_where_it_has_no_meaning(changes, axes):
    spec = make_spec(small_base(duration_seconds=1.0, **changes), axes, 1, baseline=True)

    assert baseline_design(spec) is None
    assert not [name for name in run_spec(spec).data_vars if str(name).startswith("baseline_")]


def test_higher_levels_are_swept_too():
    base = small_base(batch_tokens=None, batch_groups=4, group_size=2, max_queue_tokens=None)
    limits = [(Limit(done="published", groups=4),), (Limit(done="published", groups=8),)]

    ds = run_sweep(base, {"limits": limits, "stale_check": ["update", "never"]}, seeds=2)

    assert ds.limits.values.tolist() == ["started<B*published+4", "started<B*published+8"]
    for place in np.ndindex(2, 2, 2):
        config = config_at(ds, ds.cell.values[place[:2]], seed=place[2])
        assert ds.trained_tokens.values[place] == ls.simulate_pipeline(config).trained_tokens


@pytest.mark.parametrize("executor", ["threads", "serial"])
def test_a_sweep_can_be_stopped(executor):
    cancel = threading.Event()

    class StopSoon(Progress):
        def advance(self, runs):
            cancel.set()

    spec = make_spec(small_base(duration_seconds=3000.0), AXES, 1000)

    with pytest.raises(Cancelled):
        run_spec(spec, executor=executor, progress=StopSoon(), cancel=cancel)


def test_a_keyboard_interrupt_in_the_main_thread_ends_the_pool(monkeypatch):
    threads = threading.active_count()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(executors, "wait", interrupt)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(small_base(duration_seconds=3000.0), AXES, seeds=1000)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"executor": "thread"}, "executor: must be 'threads', 'serial' or a Dask client .* 'threads'"),
        ({"threads": 0}, "threads: must be a whole number from 1 to 1024"),
        ({"threads": True}, "threads: must be a whole number"),
        ({"tables": ["batches"]}, "tables: need a store"),
        ({"tables": ["batch"]}, "tables: must be among"),
        ({"progress": 3}, "progress: must be a function"),
    ],
)
def test_bad_options_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        run_sweep(PipelineConfig(), {"max_lag": [0]}, 1, **options)


def test_progress_may_be_a_function():
    told = []

    run_sweep(small_base(), AXES, seeds=2, progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (24, 24)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def _to_a_full_disk(done, total):
    raise OSError(28, "No space left on device")


def _to_a_closed_file(done, total):
    file = io.StringIO()
    file.close()
    file.write(f"{done} of {total}")


class _LostObserver(Progress):
    def block(self, unit, runs, seconds):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("observer", [_to_a_full_disk, _to_a_closed_file, _LostObserver()])
def test_progress_that_cannot_be_written_is_switched_off_and_the_runs_go_on(
    observer, stored, tmp_path, capsys
):
    store = {"store": tmp_path / "sweep"} if stored else {}

    ds = run_sweep(small_base(), AXES, seeds=2, progress=observer, **store)

    assert (ds.status == 1).all()
    assert capsys.readouterr().err.count("progress: cannot be written") == 1


class _LostTerminal(io.StringIO):
    """A terminal that is closed while a bar is drawn on it."""

    def isatty(self):
        return True

    def write(self, text):
        if self.tell() > 40:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_bar_on_a_terminal_that_is_closed_does_not_end_a_run(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := _LostTerminal())

    ds = run_sweep(small_base(), AXES, seeds=2, progress=True)

    assert terminal.tell() > 40  # it was written to until it was lost
    assert (ds.status == 1).all()


def test_what_is_wrong_in_a_progress_function_itself_is_raised():
    def wrong(done, total):
        raise ValueError("a defect of mine")

    with pytest.raises(ValueError, match="a defect of mine"):
        run_sweep(small_base(), AXES, seeds=2, progress=wrong)
