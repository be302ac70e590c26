"""A unit's rows in run order, piece by piece: the same rows, and the same bytes, as all of them at once."""

from __future__ import annotations

import io
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.sweeps.runs.result import NAMES_OF
from lagsweep.sweeps.store.table_rows import GROUP_ROWS, UnitRows

CELL_IDS = np.array([40, 7, 19], np.int64)
SEEDS = np.array([9, 2, 5, 100], np.uint64)  # in no order, as a list of seeds may be


def work(asked=None):
    asked = np.ones((len(CELL_IDS), len(SEEDS)), bool) if asked is None else asked
    part = SimpleNamespace(cell_ids=CELL_IDS)
    return SimpleNamespace(part=part, cells=np.arange(len(CELL_IDS)), seeds=SEEDS, todo_asked=asked)


def block(runs, rows):
    """Rows of some runs, numbered within each: `rows` is the count of each run."""
    return {
        "config": np.repeat([cell for cell, _ in runs], rows).astype(np.int32),
        "seed_index": np.repeat([seed for _, seed in runs], rows).astype(np.int32),
        "number": np.concatenate([np.arange(count) for count in rows] or [np.zeros(0, np.int64)]),
        "event": np.concatenate([np.arange(count) for count in rows]).astype(np.uint8) % 5,
    }


def expected(blocks):
    """The same rows as plain tuples, sorted by cell, then seed, as they are listed."""
    rows = [
        (cell, seed, number, event)
        for one in blocks
        for cell, seed, number, event in zip(*(one[name].tolist() for name in one))
    ]
    rows.sort(key=lambda row: row[:3])
    return [
        (int(CELL_IDS[cell]), int(SEEDS[seed]), number, NAMES_OF["event"][event])
        for cell, seed, number, event in rows
    ]


@st.composite
def blocks_of_runs(draw):
    """Every run once, cut into blocks as threads finish them, each in the order of its runs."""
    runs = [(cell, seed) for cell in range(len(CELL_IDS)) for seed in range(len(SEEDS))]
    shuffled = draw(st.permutations(runs))
    cuts = sorted(draw(st.sets(st.integers(1, len(runs) - 1), max_size=5)))
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(runs)]):
        some = sorted(shuffled[start:stop])
        found.append((some, [draw(st.integers(0, 4)) for _ in some]))
    return found


@given(blocks_of_runs())
def test_rows_come_in_the_order_of_the_runs(drawn):
    blocks = [block(*one) for one in drawn]
    rows = UnitRows(work(), blocks)

    assert rows.frame().rows() == expected(blocks)
    assert rows.count == len(expected(blocks))
    assert pl.concat(rows.pieces()).equals(rows.frame())


@given(blocks_of_runs(), st.sets(st.integers(0, 11)))
def test_rows_of_runs_that_are_not_done_again_stay(drawn, again):
    asked = np.isin(np.arange(12), list(again)).reshape(3, 4)
    blocks = [block(*one) for one in drawn]
    before = UnitRows(work(), blocks).frame()
    redone = []
    for runs, counts in drawn:
        picked = [(run, count + 1) for run, count in zip(runs, counts) if asked[run]]  # a row more each
        if picked:
            redone.append(block([run for run, _ in picked], [count for _, count in picked]))
    kept = [row for row in expected(blocks) if not _asked(asked, row)]

    rows = UnitRows(work(asked), redone, before)

    assert sorted(rows.frame().rows(), key=_place) == rows.frame().rows()
    assert [row for row in rows.frame().rows() if not _asked(asked, row)] == kept
    assert [row for row in rows.frame().rows() if _asked(asked, row)] == expected(redone)


def _place(row):
    return CELL_IDS.tolist().index(row[0]), SEEDS.tolist().index(row[1]), row[2]


def _asked(asked, row):
    return asked[_place(row)[:2]]


def test_without_rows_the_columns_are_there_where_they_are_known():
    assert UnitRows(work(), []).frame().columns == ["cell", "seed"]
    assert not UnitRows(work(), []).has_columns
    nothing = UnitRows(work(), [block([(0, 0)], [0])])
    assert nothing.frame().columns == ["cell", "seed", "number", "event"]
    assert nothing.has_columns
    assert nothing.count == 0


@pytest.mark.parametrize(
    "count", [1, GROUP_ROWS, 163_840, 163_841, 184_321, 2 * GROUP_ROWS + 1, 294_913, 10 * GROUP_ROWS + 7]
)
def test_the_file_is_the_one_that_all_rows_at_once_give(count):
    """Stores that were made before must stay what they are, byte for byte, when they are made again."""
    counts = [count // 3, count - count // 3]
    rows = UnitRows(work(), [block([(2, 1)], counts[:1]), block([(0, 3)], counts[1:])])
    whole = io.BytesIO()
    rows.frame().write_parquet(whole, statistics=True)

    assert rows.parquet() == whole.getvalue()
    sizes = [len(piece) for piece in rows.pieces()]
    assert sizes == rows.group_sizes()
    assert sum(sizes) == count
    assert max(sizes) < 1.5 * GROUP_ROWS


def test_a_fault_of_the_machine_in_the_middle_stays_what_it_is():
    def lacking(columns):
        if columns["number"][0] > GROUP_ROWS:
            raise MemoryError
        return columns

    with pytest.raises(MemoryError):
        UnitRows(work(), [block([(0, 0)], [4 * GROUP_ROWS])], shown=lacking).parquet()
