"""Extend a stored sweep: more seeds, more values, another axis, without running again what is done.

The larger store is built aside and takes the folder's name when it is whole, so a kill at any moment leaves
the old store or the new one. Where a unit stays what it was, its files are linked, not copied, which makes
adding seeds and values to a large store a matter of its metadata; where the cut changes (a unit that grows
at an edge, much larger units for a much larger sweep), the values are read and written again. A new axis
has the store's old setting as its first value.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..execute.plan import Part, plan_parts
from ..execute.progress import Progress
from ..execute.units import Box, box_shape, intersection, unit_name, unit_of_name
from ..results.dataset import variable_table
from ..runs.status import DONE, FAILED
from ..spec.spec import SweepSpec
from ..spec.union import added, union_spec
from .journal import UNIT
from .lock import StoreLock, is_held
from .opening import REPLACED
from .place import beside
from .resume import make_ready
from .run_record import RUN_NAME
from .store import SweepStore, fill_folder
from .tables import part_name

_EXTENDING = ".extending-"
_LARGER_UNITS = 4  # cut anew when the sweep has outgrown its units by this factor


def extend_store(
    store: SweepStore,
    asked: SweepSpec,
    lock: StoreLock,
    *,
    unit_runs: int | None,
    progress: Progress,
    rerun: bool = False,
) -> tuple[SweepStore, StoreLock]:
    """Return a store that holds what is stored and what is asked, with its lock held.

    Parameters
    ----------
    store : SweepStore
        Its lock is held.
    asked : SweepSpec
    lock : StoreLock
        That of `store`; released when the folder has changed hands.
    unit_runs : int, optional
        Cut anew into units of about so many runs.
    progress : Progress
    rerun : bool
        Take nothing over: all of it is run again.

    Raises
    ------
    StoreError
        If what is asked is not an extension of what is stored.
    """
    union = union_spec(store.spec, asked, store.folder)
    if union.fingerprint != store.spec.fingerprint:
        progress.note(f"store: extended by {added(store.spec, union)}")
    elif not rerun:
        progress.note("store: already holds what is asked, and more")
        return store, lock
    if rerun:
        progress.note("store: everything in it is undone and run again")
    else:
        # What does not hold now must not get a new digest that it fits.
        make_ready(store, progress)
    cut = _cut(store, union, unit_runs, anew=rerun)
    if len(cut) < len(store.parts):
        progress.note("store: its baseline has no meaning beside what is added, and is left out")
    folder = store.folder
    building = folder.with_name(f"{folder.name}{_EXTENDING}{secrets.token_hex(4)}")
    building.mkdir()
    new_lock = StoreLock(building)
    try:
        fill_folder(building, union, cut)
        larger = SweepStore(building)
        if not rerun:
            _copy_done(store, larger)
        larger.close()
        store.place.check()
        lock.check()
        store.close()
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / RUN_NAME, building / RUN_NAME)
        replaced = folder.with_name(f"{folder.name}{REPLACED}{secrets.token_hex(4)}")
        os.rename(folder, replaced)
        os.rename(building, folder)
    except BaseException:
        new_lock.release()
        if folder.exists():
            shutil.rmtree(building, ignore_errors=True)
        raise
    lock.release()
    new_lock.moved_to(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return SweepStore(folder), new_lock


def recover_swap(folder: Path) -> None:
    """Finish, or take back, an extension that was killed while the folders changed names."""
    replaced = [path for path in beside(folder, REPLACED) if not is_held(path)]
    extending = [path for path in beside(folder, _EXTENDING) if not is_held(path)]
    if not folder.exists() and replaced:
        # The old one moves away only when the new one is whole.
        source = extending.pop() if extending else replaced.pop()
        os.rename(source, folder)
    for leftover in (*replaced, *extending):
        shutil.rmtree(leftover, ignore_errors=True)


def _cut(store: SweepStore, union: SweepSpec, unit_runs: int | None, *, anew: bool) -> list[Part]:
    """Choose the units: the store's, unless the sweep has outgrown them or others are asked for."""
    parts = []
    for whole in plan_parts(union, unit_runs):
        old = store.part(whole.name)
        # What the store has not, what is added has not either: half a column would read as a whole one.
        held = {metric.name for metric in (whole if anew else old).variables}
        part = whole.without(metric.name for metric in whole.variables if metric.name not in held)
        kept = [old.layout.chunks[old.dims.index(dim)] if dim in old.dims else 1 for dim in part.dims]
        outgrown = np.prod(part.layout.chunks) > _LARGER_UNITS * np.prod(kept)
        parts.append(part if outgrown or unit_runs is not None else part.with_chunks(kept))
    return parts


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


def _copy_done(old: SweepStore, new: SweepStore) -> None:
    """Put everything that the old journal calls done into the new store and its journal."""
    for part in new.parts:
        place = _Placement(old.part(part.name), part)
        records = old.journal.units(part.name)
        done = {
            name: [place.forward(box) for box in _done_boxes(place.old, name, record)]
            for name, record in records.items()
        }
        for unit in part.layout.units():
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
                digest, tables = linked
            else:
                tables = _copied(old, new, place, unit, shared, sources)
                digest = new.unit_digest(part, unit)
            record: dict[str, Any] = {
                "kind": UNIT,
                "part": part.name,
                "unit": unit_name(unit),
                "runs": 0,
                "failed": 0,
                "seconds": 0.0,
                "digest": digest,
                "tables": tables,
            }
            status = new.read_status(part, unit, record)
            record |= {
                "runs": int(np.isin(status, (DONE, FAILED)).sum()),
                "failed": int((status == FAILED).sum()),
            }
            if _volume(boxes) < _volume([box]):
                record["boxes"] = [[list(ends) for ends in was] for was in boxes]
            new.journal.append(record)


def _volume(boxes: Sequence[Box]) -> int:
    """Count the runs of boxes that do not overlap."""
    return sum(int(np.prod(box_shape(box))) for box in boxes)


def _done_boxes(part: Part, name: str, record: dict[str, Any]) -> list[Box]:
    whole = part.layout.box(unit_of_name(name))
    boxes = [tuple((int(a), int(b)) for a, b in box) for box in record.get("boxes", [whole])]
    return [shared for box in boxes if (shared := intersection(whole, box)) is not None]


def _sources(place: _Placement, shared: Box) -> list[str]:
    """Name the old units that a box of the new part touches, in order."""
    import itertools

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
) -> tuple[str, dict[str, str]] | None:
    """Link the files of a unit that is what it was; gives its digests as they were, None if it is not."""
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
    for name in variable_table(place.new):
        target = new.files.chunk_file(name, unit)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(old.files.chunk_file(name, source), target)
    line = old.journal.units(place.old.name)[sources[0]]
    tables = dict(line.get("tables", {}))
    for table in tables:
        target = new.folder / part_name(table, new.work_name(place.new, unit))
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(old.folder / part_name(table, f"{place.old.prefix}{sources[0]}"), target)
    return str(line["digest"]), tables


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _copied(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    unit: tuple[int, ...],
    shared: Box,
    sources: list[str],
) -> dict[str, str]:
    """Copy values and table rows of the runs that a new unit shares with the old store."""
    back = place.back(shared)
    for name in variable_table(place.new):
        values = place.turned(old.read(place.old, name, back), shared)
        new.files.write({name: values}, shared)
    return _copied_tables(old, new, place, unit, shared, sources)


def _copied_tables(
    old: SweepStore,
    new: SweepStore,
    place: _Placement,
    unit: tuple[int, ...],
    shared: Box,
    sources: list[str],
) -> dict[str, str]:
    import polars

    from ..execute.units import box_cells
    from .tables import in_run_order, read_unit_tables, write_part

    cells = place.new.cell_ids.reshape(-1)[box_cells(shared[:-1], place.new.layout.shape[:-1])]
    seeds = place.new.seeds[shared[-1][0] : shared[-1][1]]
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
            digests[table] = write_part(new.place, table, new.work_name(place.new, unit), rows)
    return digests
