"""How threads are handed their work: each run once, in blocks that fit what blocks have been taking."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lagsweep import Engine, PipelineConfig, recommend, run_sweep
from lagsweep.sweeps.execute import threads
from lagsweep.sweeps.execute.threads import BLOCK_SECONDS, LEAST_SECONDS, _Feed

BASE = PipelineConfig(duration_seconds=20.0, rollout_workers=2)


def works(*shapes):
    """Stand in for units of so many cells and seeds, a tenth of the runs done before."""
    todo = [np.random.default_rng(7).random(shape) > 0.1 for shape in shapes]
    return [SimpleNamespace(todo=runs, configs=lambda cells: [BASE] * len(cells)) for runs in todo]


def cut(units, count, run_seconds, guess):
    """Cut units for some threads, each run taking so long; gives the runs of each block."""
    left = sum(int(unit.todo.sum()) for unit in units)
    feed, sizes = _Feed(units, left, count, guess), []
    found = {id(unit): np.zeros(unit.todo.shape, int) for unit in units}
    while (block := feed.next()) is not None:
        assert len(block.configs) == len(block.cells)
        found[id(block.work)][np.ix_(block.cells, block.seeds)] += 1
        sizes.append(len(block.cells) * len(block.seeds))
        feed.took(sizes[-1], sizes[-1] * run_seconds)
    for unit in units:
        np.testing.assert_array_equal(found[id(unit)], unit.todo)
    return sizes


def test_options_of_other_cells_do_not_show_in_a_cell_however_the_work_is_cut():
    engine = Engine(step_seconds=0.02)
    base = PipelineConfig(duration_seconds=20.0, rollout_workers=2, publication="pause")
    axes = {"engine": [None, engine], "trainer_mtbf_seconds": [None, 8.0], "max_lag": [1, 2]}
    whole = run_sweep(base, axes, 2, executor="serial")

    assert run_sweep(base, axes, 2, threads=2).identical(whole)
    assert run_sweep(base, axes, 2, threads=16).identical(whole)
    for name, axis in (("decode_steps", "engine"), ("lost_updates", "trainer_mtbf_seconds")):
        without, with_it = (whole[name].isel({axis: place}) for place in (0, 1))
        assert (without == 0).all()
        assert (with_it >= 0).all()
    assert (whole.engine_busy_seconds.isel(engine=0) == 0).all()
    assert np.isnan(whole.mean_kv_cache_share.isel(engine=0)).all()
    assert np.isnan(whole.goodput_fraction.isel(trainer_mtbf_seconds=0)).all()


def test_where_cells_use_different_options_the_times_of_all_add_up():
    base = PipelineConfig(duration_seconds=400.0, publication="pause")
    ds = run_sweep(base, {"fetch_seconds": [0.0, 5.0], "max_lag": [1, 2]}, 3)
    causes = ("busy", "publication", "running_groups", "batch", "fetch")
    total = sum(ds[f"trainer_{cause}_seconds"] for cause in causes)

    np.testing.assert_allclose(total, 400.0)
    assert "trainer: training" in str(recommend(ds))


@pytest.mark.parametrize("count", [1, 2, 16])
@pytest.mark.parametrize("run_seconds", [1e-6, 1e-4, 1.0])
@pytest.mark.parametrize("guess", [1e-5, 1e-2])
def test_every_run_left_is_handed_out_once(count, run_seconds, guess):
    cut(works((7, 5), (40, 30), (1, 300)), count, run_seconds, guess)


def test_blocks_of_short_runs_are_worth_their_set_up():
    # One rectangle: nothing was done before.
    unit = SimpleNamespace(todo=np.ones((10, 4_000), bool), configs=lambda cells: [BASE] * len(cells))
    run_seconds = 1e-5
    sizes = cut([unit], 2, run_seconds, guess=1e-3)

    assert sum(sizes) == 40_000
    assert max(sizes) * run_seconds <= BLOCK_SECONDS
    # A block is whole seeds of the ten cells; the last ones share what is left.
    large = [size for size in sizes[1:] if size >= LEAST_SECONDS / run_seconds - 10]
    assert len(large) >= len(sizes) - 10
    assert len(sizes) < 120


def test_long_runs_are_handed_out_one_by_one():
    unit = SimpleNamespace(todo=np.ones((4, 4), bool), configs=lambda cells: [BASE] * len(cells))
    assert set(cut([unit], 2, 1.0, guess=1e-5)[2:]) == {1}


def test_what_blocks_keep_and_how_they_are_cut_change_no_result(monkeypatch):
    axes = {"publication": ["background", "pause"], "max_lag": [0, 1, 2], "duration_seconds": [5.0, 45.0]}
    whole = run_sweep(BASE, axes, 6, executor="serial")
    for block_seconds, least in ((1e-9, 0.0), (1e-3, 1e-3)):
        monkeypatch.setattr(threads, "BLOCK_SECONDS", block_seconds)
        monkeypatch.setattr(threads, "LEAST_SECONDS", least)
        assert run_sweep(BASE, axes, 6, threads=2).identical(whole)
