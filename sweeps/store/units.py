"""One unit of a stored sweep: its work made from what is on disk, and written back with its tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.units import unit_name
from ..execute.work import UnitWork, empty_arrays, recording
from .store import SweepStore
from .tables import read_unit_tables

Known = dict[str, Any] | None  # a unit's line in the journal, if it is done wholly or in part


def known_as(store: SweepStore, part: Part, unit: tuple[int, ...]) -> Known:
    """Return what the journal tells of a unit, done wholly or in part: then it holds runs that count."""
    return store.journal.units(part.name).get(unit_name(unit))


def make_work(
    store: SweepStore, part: Part, unit: tuple[int, ...], todo: np.ndarray, *, known: Known = None
) -> UnitWork:
    """Make the work of a unit; runs that are done already, and not to do again, are read first.

    `known` comes from the process that keeps the journal: a worker's view of it may be old.
    """
    if todo.all() or not known:
        cells, seeds = todo.shape
        arrays = empty_arrays(part, cells, seeds)
    else:
        arrays = store.read_unit(part, unit, known)
    return UnitWork(part, unit, arrays, todo, recording(store.spec, part))


def write_work(store: SweepStore, work: UnitWork, *, known: Known = None) -> dict[str, Any]:
    """Write a unit's data and tables, with the rows of runs that were not done again; gives the record."""
    kept = None
    if known and not work.todo_asked.all():
        kept = {
            table: _rows_kept(frame, work)
            for table, frame in read_unit_tables(store.folder, work.name, known.get("tables", {})).items()
        }
    return store.write_unit(work, kept)


def _rows_kept(frame: Any, work: UnitWork) -> Any:
    import polars

    again = [
        (int(work.part.cell_ids.reshape(-1)[work.cells[cell]]), int(work.seeds[seed]))
        for cell, seed in np.argwhere(work.todo_asked)
    ]
    redone = polars.DataFrame(
        {
            "cell": np.array([cell for cell, _ in again], np.int64),
            "seed": np.array([seed for _, seed in again], np.uint64),
        }
    )
    return frame.join(redone, on=["cell", "seed"], how="anti", maintain_order="left")
