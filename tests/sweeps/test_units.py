"""How a sweep is cut into units: every run in exactly one, names that last, rectangles that cover."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.execute.plan import UNIT_ROWS, guessed_rollouts, wanted_unit_runs
from lagsweep.sweeps.execute.units import (
    Layout,
    box_cells,
    choose_chunks,
    default_unit_runs,
    intersection,
    rectangles,
    tiles,
    unit_name,
    unit_of_name,
)
from lagsweep.sweeps.spec.make import make_spec

shapes = st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple)


@given(cell_shape=shapes, seeds=st.integers(1, 200), unit_runs=st.integers(1, 400))
def test_units_tile_the_sweep(cell_shape, seeds, unit_runs):
    layout = Layout((*cell_shape, seeds), choose_chunks(cell_shape, seeds, unit_runs))
    counted = np.zeros(layout.shape, int)

    for unit in layout.units():
        counted[tuple(slice(*ends) for ends in layout.box(unit))] += 1

    assert (counted == 1).all()
    assert layout.count == len(list(layout.units()))


@given(cell_shape=shapes, seeds=st.integers(1, 200), unit_runs=st.integers(1, 400))
def test_units_have_about_the_runs_asked_for(cell_shape, seeds, unit_runs):
    chunks = choose_chunks(cell_shape, seeds, unit_runs)
    size = math.prod(chunks)

    assert size <= unit_runs
    assert size * 16 >= min(unit_runs, math.prod(cell_shape) * seeds) or size >= 16


@given(cell_shape=shapes, seeds=st.integers(1, 60), unit_runs=st.integers(1, 100), data=st.data())
def test_a_unit_keeps_its_name_and_runs_when_the_sweep_grows(cell_shape, seeds, unit_runs, data):
    old = Layout((*cell_shape, seeds), choose_chunks(cell_shape, seeds, unit_runs))
    more = data.draw(st.tuples(*(st.integers(0, 5) for _ in old.shape)))
    new = Layout(tuple(a + b for a, b in zip(old.shape, more)), old.chunks)

    for unit in old.units():
        assert intersection(old.box(unit), new.box(unit)) == old.box(unit)


@given(unit=st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_names_of_units_read_back(unit):
    assert unit_of_name(unit_name(unit)) == tuple(unit)


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple), data=st.data())
def test_cells_of_a_box_are_counted_as_numpy_does(shape, data):
    box = tuple(
        (start, data.draw(st.integers(start + 1, size)))
        for size in shape
        for start in [data.draw(st.integers(0, size - 1))]
    )
    everything = np.arange(math.prod(shape)).reshape(shape)

    assert np.array_equal(box_cells(box, shape), everything[tuple(slice(*ends) for ends in box)].reshape(-1))


@given(data=st.data(), cells=st.integers(1, 6), seeds=st.integers(1, 6))
def test_rectangles_cover_what_is_missing_and_nothing_else(data, cells, seeds):
    flat = data.draw(st.lists(st.booleans(), min_size=cells * seeds, max_size=cells * seeds))
    todo = np.array(flat, bool).reshape(cells, seeds)
    counted = np.zeros(todo.shape, int)

    for some, at in rectangles(todo):
        counted[np.ix_(some, at)] += 1

    assert np.array_equal(counted, todo.astype(int))


@given(cells=st.integers(1, 10_000), seeds=st.integers(1, 1000), runs=st.integers(1, 10_000))
def test_blocks_are_not_larger_than_asked(cells, seeds, runs):
    block_cells, block_seeds = tiles(cells, seeds, runs)

    assert 1 <= block_cells <= cells
    assert 1 <= block_seeds <= seeds
    assert block_cells * block_seeds <= runs


def test_short_runs_make_units_of_at_least_forty_thousand():
    assert all(default_unit_runs(seconds) >= 40_000 for seconds in (0.0, 1e-7, 1e-6, 1e-5, 5e-5))
    assert default_unit_runs(1e-3) == 2000
    assert default_unit_runs(100.0) == 1


def test_units_with_tables_hold_fewer_runs():
    base = PipelineConfig(duration_seconds=100.0)

    with_rows = wanted_unit_runs(make_spec(base, {}, 1, tables=["rollouts"]))
    without = wanted_unit_runs(make_spec(base, {}, 1))

    assert with_rows * 2 * guessed_rollouts(base, make_spec(base, {}, 1).design) <= UNIT_ROWS
    assert without >= 40_000
    assert with_rows < without


def test_all_pairs_of_boxes_meet_where_their_runs_do():
    boxes = [
        ((a, b), (c, d))
        for a, b, c, d in itertools.product(range(3), range(1, 4), range(3), range(1, 4))
        if a < b and c < d
    ]
    runs = {box: {(i, j) for i in range(*box[0]) for j in range(*box[1])} for box in boxes}

    for one, other in itertools.product(boxes, boxes):
        shared = intersection(one, other)
        assert (runs[one] & runs[other]) == (
            {(i, j) for i in range(*shared[0]) for j in range(*shared[1])} if shared else set()
        )
