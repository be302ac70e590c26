"""Gather the runs of several stores into the units of one that is being built from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.unit_arrays import all_lag_bins, empty_arrays
from ..execute.units import Box, box_cells, intersection, unit_name
from ..execute.work import UnitWork, recording
from .store import SweepStore
from .tables import read_unit_tables


@dataclass
class Source:
    """One store to be joined, and where its seeds begin in the joined one."""

    folder: Path
    store: SweepStore
    offset: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)

    def done(self, part: str) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Return the units that count as done, with their lines."""
        for unit, record in self.store.done_units(self.store.part(part)):
            if not record.get("rewriting"):
                yield unit, record

    def mask(self, part: str) -> np.ndarray:
        """Tell which runs of a part it holds, in the part's own shape."""
        if part in self.masks:
            return self.masks[part]
        own = self.store.part(part)
        held = np.zeros(own.layout.shape, bool)
        for unit, _ in self.done(part):
            at = tuple(slice(start, stop) for start, stop in own.layout.box(unit))
            held[at] = self.store.done_mask(own, unit).reshape(held[at].shape)
        self.masks[part] = held
        return held


def gathered(
    sources: Sequence[Source], joined: SweepStore, part: Part, unit: tuple[int, ...]
) -> dict[str, Any]:
    """Write one unit of the joined store from the runs of all sources; gives its line in the journal.

    Raises
    ------
    StoreError
        If a file of a source is not the one that its journal tells of.
    """
    box = part.layout.box(unit)
    cells, first = len(part.layout.cells(unit)), box[-1][0]
    arrays = empty_arrays(part, cells, box[-1][1] - first)
    if arrays.lag_counts is not None:
        arrays.lag_counts = all_lag_bins(arrays.lag_counts)  # as they stand in the stores
    tables: dict[str, list[Any]] = {}
    for source in sources:
        seeds = len(source.store.spec.seeds)
        span = (*box[:-1], (source.offset, source.offset + seeds))
        shared = intersection(box, span)
        if shared is None:
            continue
        (start, stop), own = shared[-1], source.store.part(part.name)
        inside = (*box[:-1], (start - source.offset, stop - source.offset))
        held = source.mask(part.name)[tuple(slice(*ends) for ends in inside)].reshape(cells, -1)
        if not held.any():
            continue
        targets = {**arrays.metrics, "status": arrays.status}
        if arrays.lag_counts is not None:
            targets["lag_counts"] = arrays.lag_counts
        for name, target in targets.items():
            values = source.store.read(own, part.prefix + name, inside)
            view = target[:, start - first : stop - first]
            view[held] = values.reshape(view.shape)[held]
        _gather_tables(source, own, inside, tables)
    work = UnitWork(part, unit, arrays, np.zeros(arrays.status.shape, bool), recording(joined.spec, part))
    return joined.write_unit(work, _together(tables))


def _gather_tables(source: Source, part: Part, box: Box, tables: dict[str, list[Any]]) -> None:
    """Add the table rows of a box's runs."""
    import polars

    cells = part.cell_ids.reshape(-1)[box_cells(box[:-1], part.layout.shape[:-1])].tolist()
    seeds = part.seeds[slice(*box[-1])].tolist()
    for unit, record in source.done(part.name):
        if not record.get("tables") or intersection(part.layout.box(unit), box) is None:
            continue
        name = f"{part.prefix}{unit_name(unit)}"
        for table, frame in read_unit_tables(source.store.folder, name, record["tables"]).items():
            rows = frame.filter(polars.col("cell").is_in(cells) & polars.col("seed").is_in(seeds))
            tables.setdefault(table, []).append(rows)


def _together(tables: dict[str, list[Any]]) -> dict[str, Any]:
    import polars

    return {table: polars.concat(frames) for table, frames in tables.items()}
