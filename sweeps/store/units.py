"""One unit of a stored sweep: its work made from what is on disk, and written back with its tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.unit_arrays import empty_arrays
from ..execute.units import unit_name
from ..execute.work import UnitWork, recording
from .store import SweepStore

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
    before = None if work.todo_asked.all() else (known or {}).get("tables")
    return store.write_unit(work, before)
