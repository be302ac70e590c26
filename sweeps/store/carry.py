"""Carry what is done from one store into another: a larger one, or the same sweep in other units.

Where a unit stays what it was, its files are linked, not copied; where the cut changes, values and rows are
read, held against the journal, and written again, a variable and a unit at a time.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.units import Box, box_cells, box_shape, intersection, unit_name, unit_of_name
from ..results.dataset import variable_table
from ..runs.many import Cancelled
from ..runs.status import DONE, FAILED
from .arrays import digest_of
from .blocks import values_of_box
from .content import CONTENT, RunDigests, content_text, share_on_disk
from .journal import UNIT
from .packs import BLOCK, PACK, SIZES, pack_name
from .proof import ZARR_NAME
from .store import SweepStore
from .tables import in_run_order, part_name, read_unit_tables, write_part


@dataclass(frozen=True)
class _Placement:
    """Where an old part lies in a new one: the first places along old dimensions, place 0 along new ones."""

    old: Part
    new: Part

    @property
    def region(self) -> Box:
        """The old part's runs, in the new part's places."""
        return self.forward(tuple((0, size) for size in self.old.layout.shape))

    def forward(self, box: Box) -> Box:
        """Turn a box of the old part into one of the new."""
        return tuple(
            box[self.old.dims.index(dim)] if dim in self.old.dims else (0, 1) for dim in self.new.dims
        )

    def back(self, box: Box) -> Box:
        """Turn a box of the new part, inside the region, into one of the old."""
        return tuple(box[self.new.dims.index(dim)] for dim in self.old.dims)

    def turned(self, values: np.ndarray, box: Box) -> np.ndarray:
        """Turn values read from the old part into the order and shape of the new."""
        order = [self.old.dims.index(dim) for dim in self.new.dims if dim in self.old.dims]
        tail = values.shape[len(self.old.dims) :]
        axes = (*order, *range(len(self.old.dims), values.ndim))
        return values.transpose(axes).reshape(*box_shape(box), *tail)

    @property
    def same_order(self) -> bool:
        """Whether the old dimensions keep their order (so that chunks of equal shape have equal bytes)."""
        return [dim for dim in self.new.dims if dim in self.old.dims] == list(self.old.dims)


def carry_over(
    old: SweepStore,
    new: SweepStore,
    cancel: threading.Event | None = None,
    *,
    digest_all: bool = False,
    step: Callable[[], None] = lambda: None,
) -> None:
    """Put everything that the old journal calls done into the new store and its journal.

    Parameters
    ----------
    old, new : SweepStore
    cancel : threading.Event, optional
    digest_all : bool
        Make the digest of the runs of units too that stay what they are, where an older journal has none.
    step : callable
        Called for each unit of the new store.

    Raises
    ------
    StoreError
        If a file that is read is not the one that the old journal tells of.
    Cancelled
        If `cancel` was set.
    """
    for part in new.parts:
        place = _Placement(old.part(part.name), part)
        records = old.journal.units(part.name)
        done = {
            name: [place.forward(box) for box in _done_boxes(place.old, name, record)]
            for name, record in records.items()
        }
        for unit in part.layout.units():
            if cancel is not None and cancel.is_set():
                raise Cancelled("the sweep was asked to stop")
            step()
            box = part.layout.box(unit)
            shared = intersection(box, place.region)
            if shared is None:
                continue
            sources = _sources(place, shared)
            boxes = [
                common
                for name in sources
                for was in done.get(name, [])
                if (common := intersection(box, was)) is not None
            ]
            if not boxes:
                continue
            linked = _linked(old, new, place, unit, sources, boxes == [box])
            if linked is not None:
                facts = linked
            else:
                facts = _copied(old, new, place, unit, boxes, sources)
            record: dict[str, Any] = {
                "kind": UNIT,
                "part": part.name,
                "unit": unit_name(unit),
                "runs": 0,
                "failed": 0,
                "seconds": _seconds(place, sources, records, box),
                **facts,
            }
            if digest_all and CONTENT not in record:
                record[CONTENT] = content_text(share_on_disk(new, part, unit, record))
            status = new.read_status(part, unit, record)
            record |= {
                "runs": int(np.isin(status, (DONE, FAILED)).sum()),
                "failed": int((status == FAILED).sum()),
            }
            if _volume(boxes) < _volume([box]):
                record["boxes"] = [[list(ends) for ends in was] for was in boxes]
            new.journal.append(record)


def _seconds(place: _Placement, sources: Sequence[str], records: Mapping[str, Any], box: Box) -> float:
    """Return the seconds of work in a new unit: of each old one, the share that lies in it."""
    total = 0.0
    for name in sources:
        whole = place.forward(place.old.layout.box(unit_of_name(name)))
        shared = intersection(whole, box)
        if shared is not None:
            seconds = float(records.get(name, {}).get("seconds", 0.0))
            total += seconds * _volume([shared]) / _volume([whole])
    return round(total, 3)


def _volume(boxes: Sequence[Box]) -> int:
    """Count the runs of boxes that do not overlap."""
    return sum(int(np.prod(box_shape(box))) for box in boxes)


def _done_boxes(part: Part, name: str, record: dict[str, Any]) -> list[Box]:
    whole = part.layout.box(unit_of_name(name))
    boxes = [tuple((int(a), int(b)) for a, b in box) for box in record.get("boxes", [whole])]
    return [shared for box in boxes if (shared := intersection(whole, box)) is not None]


def _sources(place: _Placement, shared: Box) -> list[str]:
    """Name the old units that a box of the new part touches, in order."""
    back = place.back(shared)
    ranges = [
        range(start // chunk, (stop - 1) // chunk + 1)
        for (start, stop), chunk in zip(back, place.old.layout.chunks)
    ]
    return [unit_name(unit) for unit in itertools.product(*ranges)]


def _linked(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    unit: tuple[int, ...],
    sources: list[str],
    whole: bool,
) -> dict[str, Any] | None:
    """Link the files of a unit that is what it was; gives what its line says of them, None if it is not."""
    if not whole or len(sources) != 1 or not place.same_order:
        return None
    source = unit_of_name(sources[0])
    chunks = [
        place.old.layout.chunks[place.old.dims.index(dim)] if dim in place.old.dims else 1
        for dim in place.new.dims
    ]
    if list(place.new.layout.chunks) != chunks or place.forward(
        place.old.layout.box(source)
    ) != place.new.layout.box(unit):
        return None
    line = old.journal.units(place.old.name)[sources[0]]
    was, now = f"{place.old.prefix}{sources[0]}", new.work_name(place.new, unit)
    facts = [CONTENT, "digest", "tables"]
    if PACK in line and place.new.name in new.merged_later:
        _link(old.folder / pack_name(was), new.folder / pack_name(now))
        facts += [PACK, SIZES, BLOCK]
    elif PACK in line:
        line = {**line, "digest": _unpack(old, new, place, source, unit, line)}
    else:
        for name in variable_table(place.new):
            _link(old.files.chunk_file(name, source), new.files.chunk_file(name, unit))
    for table in line.get("tables", {}):
        _link(old.folder / part_name(table, was), new.folder / part_name(table, now))
    return {name: line[name] for name in facts if name in line}


def _unpack(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    source: tuple[int, ...],
    unit: tuple[int, ...],
    line: dict[str, Any],
) -> str:
    """Write the chunks of a pack as files of their own, as a finished store has them; gives their digests."""
    digests = []
    for name in variable_table(place.new):
        variable = old.variable(place.old, name, [(source, line)])
        found = variable.content((*source, *(0 for _ in place.old.tail_of(name))))
        assert found is not None  # it has a line
        new.place.write(f"{ZARR_NAME}/{new.files.chunk_name(name, unit)}", found[1])
        digests.append(digest_of(found[1]))
    return "".join(digests)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _copied(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    unit: tuple[int, ...],
    boxes: Sequence[Box],
    sources: list[str],
) -> dict[str, Any]:
    """Copy values, one variable at a time, and table rows of the runs that a new unit shares with the old."""
    part, box = place.new, place.new.layout.box(unit)
    shared = intersection(box, place.region)
    assert shared is not None
    back = place.back(shared)
    cells, seeds = _runs_of_box(part, shared)
    runs, written = RunDigests(cells, seeds), ""
    lines = old.journal.units(place.old.name)
    known = [(unit_of_name(name), lines.get(name)) for name in sources]
    for name, values in values_of_box(old, place.old, back, known):
        values = place.turned(values, shared)
        written += new.files.write({name: values}, shared)
        tail = values.shape[len(box) :]
        runs.take(name, np.ascontiguousarray(values).reshape(len(cells), len(seeds), *tail))
    counted = _mask_of(boxes, shared).reshape(len(cells), len(seeds))
    tables = _copied_tables(old, new, place, unit, shared, sources)
    return {"digest": written, "tables": tables, CONTENT: content_text(runs.share(counted))}


def _runs_of_box(part: Part, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of a box's cells, and its seeds."""
    cells = part.cell_ids.reshape(-1)[box_cells(box[:-1], part.layout.shape[:-1])]
    return cells, part.seeds[box[-1][0] : box[-1][1]]


def _mask_of(boxes: Sequence[Box], whole: Box) -> np.ndarray:
    """Tell which runs of a box lie in some smaller ones."""
    mask = np.zeros(box_shape(whole), bool)
    for box in boxes:
        mask[tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(box, whole))] = True
    return mask


def _copied_tables(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    unit: tuple[int, ...],
    shared: Box,
    sources: list[str],
) -> dict[str, str]:
    import polars

    cells, seeds = _runs_of_box(place.new, shared)
    gathered: dict[str, list[polars.DataFrame]] = {}
    lines = old.journal.units(place.old.name)
    for name in sources:
        kept = dict(lines.get(name, {}).get("tables", {}))
        for table, frame in read_unit_tables(old.folder, f"{place.old.prefix}{name}", kept).items():
            inside = frame.filter(
                polars.col("cell").is_in(cells.tolist()) & polars.col("seed").is_in(seeds.tolist())
            )
            gathered.setdefault(table, []).append(inside)
    digests = {}
    for table, frames in gathered.items():
        rows = in_run_order(polars.concat(frames), cells, seeds)
        if len(rows):
            digests[table] = write_part(
                new.place, table, new.work_name(place.new, unit), rows, new.table_digest
            )
    return digests
