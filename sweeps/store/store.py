"""A stored sweep: one folder with the Zarr group, long tables, the spec and the journal.

::

    <folder>/cells.zarr/      metrics; one chunk of each array is one unit; only Zarr's own files
             tables/          parquet, one part a unit: batches, timeline, rollouts, masks, failures
             spec.toml        the spec, to read and to run again
             journal.jsonl    what is done; written after the data
             run.json         commands, times, host, versions
             lock             held by the run that is under way
             packs/           units of a sweep under way whose units are merged at the end, one file a unit
             kept/            old files of units that are being written again, while they are

The folder is made aside (``<folder>.building-…``) and renamed when it is whole. A unit's data are written,
then its line in the journal; a kill in between leaves the unit undone, and doing it again gives the same
bytes. When all is done, ``complete`` and the consolidated metadata are written in one step. Whatever is read
is held against the journal's digests (:mod:`.proof`).
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import StoreError
from ..checks import path_of, text_of
from ..execute.plan import CELLS, Part, plan_parts
from ..execute.unit_arrays import UnitArrays, empty_arrays
from ..execute.units import Box, intersection, unit_name
from ..execute.work import UnitWork
from ..results import dataset as results
from ..results.dataset import coordinate_table, variable_table, variable_values
from ..runs.status import DONE, FAILED
from ..spec.carried import check_law
from ..spec.spec import SweepSpec
from ..spec.writing import spec_to_toml
from .arrays import create_group, digest_of
from .content import CONTENT, content_text, unit_share
from .cut import merged_parts
from .digests import fast_digest, slow_digest
from .journal import CREATED, FINISHED, JOURNAL_NAME, MADE, SCHEMA, UNIT, Journal
from .lock import StoreLock, is_held
from .opening import check_schema, open_files, open_journal, stored_chunks, stored_spec
from .packs import BLOCK_BYTES, Slice, as_block, pack_name, packed, slice_of
from .place import Place, beside, identity_of
from .proof import ZARR_NAME, StoredVariable, digest_at
from .recorded import UNRECORDED, unrecorded
from .tables import TABLES_NAME, Digest, remove_leftovers, write_unit_tables

if TYPE_CHECKING:
    import polars
    import xarray

SPEC_NAME = "spec.toml"
_SAID_ELSEWHERE = ("spec", "fingerprint", "schema_version", "complete", "coordinates")
_BUILDING = ".building-"


def store_folder(spec: SweepSpec, results: Path) -> Path:
    """Name the folder of a sweep: its name and the first 8 digits of its fingerprint."""
    return results / f"{spec.name}-{spec.fingerprint[:8]}"


class SweepStore:
    """A stored sweep, opened to be run or read.

    Attributes
    ----------
    folder : Path
    opened_as : tuple of int
        Device and inode of the folder.
    spec : SweepSpec
    parts : list of Part
        Cut into units as the arrays on disk are.
    journal : Journal
        As it was when the store was opened, and what was added through it.
    files : ZarrFiles
    merged_later : set of str
        The parts whose units are merged when all is done; until then each is one file.
    """

    def __init__(self, folder: Path, *, same_law: bool = True) -> None:
        self.folder, self.opened_as = folder, identity_of(folder)
        self.files = open_files(folder)
        self.attributes = self.files.attributes
        check_schema(self.attributes, folder)
        self.spec = stored_spec(self.attributes, folder)
        if same_law:
            check_law(self.spec, str(self.attributes.get("law_digest")))
        self.journal = open_journal(folder, self.spec)
        planned = [part.with_chunks(stored_chunks(self.files, part)) for part in plan_parts(self.spec, 1)]
        self.parts = [part.without(unrecorded(self.files, part, self.journal)) for part in planned]
        self._place_of: dict[str, int] = {}  # of a variable, among those of its part
        self._chunk_bytes: dict[str, list[int]] = {}  # of a part's variables, before they are compressed
        for part in self.parts:
            for place, (name, (dtype, _, _)) in enumerate(variable_table(part).items()):
                self._place_of[name] = place
                tail = part.tail_of(name)
                layout = part.layout
                array = self.files.define(name, dtype, (*layout.shape, *tail), (*layout.chunks, *tail))
                self._chunk_bytes.setdefault(part.name, []).append(array.chunk_bytes)
        cut = zip(merged_parts(self.spec, self.parts), self.parts)
        self.merged_later = {own.name for later, own in cut if later.layout != own.layout}
        self.files.members = {*self._place_of, *coordinate_table(self.spec)}

    @cached_property
    def place(self) -> Place:
        """The folder, held open to be written into."""
        place = self.files.place
        self.journal.place = place
        return place

    @property
    def table_digest(self) -> Digest:
        """What digests the parts of its tables, by the store's form."""
        fast = int(self.attributes["schema_version"]) >= results.FAST_TABLE_DIGESTS
        return fast_digest if fast else slow_digest

    def work_name(self, part: Part, unit: Sequence[int]) -> str:
        """Name a unit, with its part unless it is the sweep's own."""
        return f"{part.prefix}{unit_name(unit)}"

    def part(self, name: str) -> Part:
        """Return a part by its name."""
        return next(part for part in self.parts if part.name == name)

    @property
    def complete(self) -> bool:
        """Whether the run was finished and nothing has been asked since."""
        return bool(self.files.attributes.get("complete")) and self.journal.finished

    def units(self) -> Iterator[tuple[Part, tuple[int, ...]]]:
        """Return every unit: the baseline's first, since they are few, then the sweep's own."""
        for part in sorted(self.parts, key=lambda part: part.name == CELLS):
            for unit in part.layout.units():
                yield part, unit

    def done_mask(self, part: Part, unit: Sequence[int], record: dict[str, Any] | None = None) -> np.ndarray:
        """Tell which runs of a unit the journal (or `record`) calls done: bool (cells, seeds)."""
        return done_mask(part, unit, record or self.journal.units(part.name).get(unit_name(unit)))

    def variable(self, part: Part, name: str, units: Iterable[tuple[Sequence[int], Any]]) -> StoredVariable:
        """Return a variable to be read; `units` are the units to be read, with their lines in the journal."""
        place = self._place_of[name]
        known = [(tuple(unit), record) for unit, record in units if record]
        packs = {unit: self.slice_of(part, unit, record, place) for unit, record in known}
        return StoredVariable(
            self.folder,
            name,
            self.files.array(name),
            {unit: digest_at(record, place) for unit, record in known},
            self.opened_as,
            {unit: where for unit, where in packs.items() if where is not None},
        )

    def slice_of(self, part: Part, unit: Sequence[int], record: dict[str, Any], place: int) -> Slice | None:
        """Tell where a unit's pack has the chunk of its part's variable number `place`, if it has one."""
        return slice_of(record, self.work_name(part, unit), place, self._chunk_bytes[part.name])

    def done_units(self, part: Part) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Return the units of a part that the journal tells of, with their lines."""
        records = self.journal.units(part.name)
        for unit in part.layout.units():
            record = records.get(unit_name(unit))
            if record is not None:
                yield unit, record

    def read(self, part: Part, name: str, box: Box) -> np.ndarray:
        """Read a box of one variable, held against the journal; fill values where nothing is done."""
        variable = self.variable(part, name, self.done_units(part))
        tail = (slice(None),) * (len(variable.array.shape) - len(box))
        return variable.read((*(slice(start, stop) for start, stop in box), *tail))

    def read_unit(self, part: Part, unit: Sequence[int], record: dict[str, Any] | None = None) -> UnitArrays:
        """Read what a unit holds on disk, held against its line in the journal (or against `record`)."""
        record = record or self.journal.units(part.name).get(unit_name(unit))
        box = part.layout.box(unit)
        cells, seeds = len(part.layout.cells(unit)), box[-1][1] - box[-1][0]
        arrays = empty_arrays(part, cells, seeds)
        for name in arrays.metrics:
            arrays.metrics[name] = self._values(part, name, unit, record)
        arrays.status = self.read_status(part, unit, record)
        if arrays.lag_counts is not None:
            arrays.lag_counts = self._values(part, "lag_counts", unit, record)
        return arrays

    def read_status(
        self, part: Part, unit: Sequence[int], record: dict[str, Any] | None = None
    ) -> np.ndarray:
        """Read what became of a unit's runs: uint8 (cells, seeds)."""
        record = record or self.journal.units(part.name).get(unit_name(unit))
        return self._values(part, "status", unit, record)

    def _values(
        self, part: Part, name: str, unit: Sequence[int], record: dict[str, Any] | None
    ) -> np.ndarray:
        variable = self.variable(part, part.prefix + name, [(unit, record)])
        box = part.layout.box(unit)
        tail = variable.array.shape[len(box) :]
        at = (slice(start, stop) for start, stop in box)
        values = variable.read((*at, *(slice(None) for _ in tail)))
        return values.reshape(len(part.layout.cells(unit)), box[-1][1] - box[-1][0], *tail)

    def write_unit(
        self, work: UnitWork, before: Mapping[str, str | polars.DataFrame] | None = None
    ) -> dict[str, Any]:
        """Write a unit's data and tables; gives the journal's record, which is not written yet.

        `before` has the digests of its tables' parts, or rows, of which those of other runs stay.
        """
        part, unit = work.part, work.unit
        box = part.layout.box(unit)
        shape = tuple(stop - start for start, stop in box)
        values = variable_values(part, work.arrays, shape)
        digest, pack = self._write_arrays(part, values, box, work.name)
        tables = write_unit_tables(self.place, work, self.spec, self.table_digest, before)
        status = work.arrays.status
        return {
            "kind": UNIT,
            "part": part.name,
            "unit": unit_name(unit),
            "runs": int(((status == DONE) | (status == FAILED)).sum()),
            "failed": int((status == FAILED).sum()),
            "seconds": round(work.seconds, 3),
            "digest": digest,
            "tables": tables,
            **pack,
            CONTENT: content_text(unit_share(part, work.cells, work.seeds, work.arrays).share()),
        }

    def _write_arrays(
        self, part: Part, values: dict[str, np.ndarray], box: Box, name: str
    ) -> tuple[str, dict[str, Any]]:
        """Write a unit's arrays, as chunks or as one pack: the digests, and what is told of the pack."""
        if part.name not in self.merged_later:
            return self.files.write(values, box), {}
        if sum(self._chunk_bytes[part.name]) <= BLOCK_BYTES:
            raw = [self.files.array(variable).filled(array, box)[1] for variable, array in values.items()]
            whole, about = as_block(raw)
            self.place.write(pack_name(name), whole)
            return "", about
        contents = [content for _, _, content in self.files.encoded(values, box)]
        whole, about = packed(contents)
        self.place.write(pack_name(name), whole)
        return "".join(map(digest_of, contents)), about

    def is_done(self, part: Part, unit: Sequence[int]) -> bool:
        """Tell whether all of a unit is done, or the rounds of a stopping rule decide what is."""
        decided = self.spec.until is not None and part.name == CELLS
        return decided or bool(self.done_mask(part, unit).all())

    def finish(self) -> None:
        """Mark the store complete: the group's metadata, then the journal.

        Raises
        ------
        StoreError
            If a unit is not done.
        """
        for part, unit in self.units():
            if not self.is_done(part, unit):
                raise StoreError(
                    "complete",
                    f"must not be said, unit {self.work_name(part, unit)} is not done",
                    str(self.folder),
                    "Give the same command again.",
                )
        if self.journal.damaged or not self.journal.records or self.journal.records[0]["kind"] != CREATED:
            self.journal.rewrite(self.place, self.living_lines())
        # A worker that was killed while others went on may have left files that no resume will sweep.
        self.files.sweep_leftovers()
        remove_leftovers(self.folder)
        self.files.set_complete(True)
        self.journal.append({"kind": FINISHED, "fingerprint": self.spec.fingerprint})

    def living_lines(self) -> list[dict[str, Any]]:
        """Return the journal without its dead lines: the creation, and the last line of each done unit."""
        done = {id(record) for part in self.parts for _, record in self.done_units(part)}
        created = creation_line(self.spec, self.parts, self.attributes)
        created[SCHEMA] = self.attributes["schema_version"]
        return [created, *(record for record in self.journal.records if id(record) in done)]

    def reopen(self) -> None:
        """Take back the mark before a complete store is changed."""
        if self.files.attributes.get("complete"):
            self.files.set_complete(False)

    def close(self) -> None:
        """Close the journal and the folder."""
        self.journal.close()
        if "place" in self.__dict__:
            self.place.close()


def done_mask(part: Part, unit: Sequence[int], record: dict[str, Any] | None) -> np.ndarray:
    """Turn a unit's journal record into a mask of its done runs: bool (cells, seeds)."""
    box = part.layout.box(unit)
    shape = tuple(stop - start for start, stop in box)
    mask = np.zeros(shape, bool)
    if record is not None:
        for done in record.get("boxes", [[list(ends) for ends in box]]):
            shared = intersection(box, tuple((int(a), int(b)) for a, b in done))
            if shared is not None:
                mask[tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(shared, box))] = True
    return mask.reshape(-1, shape[-1])


def create_store(
    folder: Path, spec: SweepSpec, unit_runs: int | None = None, parts: Sequence[Part] | None = None
) -> tuple[SweepStore, StoreLock]:
    """Make the folder of a sweep, whole or not at all, and hold its lock; `parts` are planned if not given.

    Raises
    ------
    StoreError
        If the folder appeared meanwhile, or cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep_buildings(folder)
    building = folder.with_name(f"{folder.name}{_BUILDING}{secrets.token_hex(4)}")
    building.mkdir()
    lock = StoreLock(building)
    try:
        fill_folder(building, spec, plan_parts(spec, unit_runs) if parts is None else parts)
        os.rename(building, folder)
    except OSError as error:
        lock.release()
        shutil.rmtree(building, ignore_errors=True)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise StoreError(
                "store",
                "cannot be made: another run made it at the same moment",
                str(folder),
                "Give the same command again; it goes on, or says who is running on it.",
            ) from error
        raise StoreError(
            "store", f"cannot be made: {error.strerror or error}", str(folder), "Name another with --store."
        ) from error
    except BaseException:
        lock.release()
        shutil.rmtree(building, ignore_errors=True)
        raise
    lock.moved_to(folder)
    return SweepStore(folder), lock


def fill_folder(folder: Path, spec: SweepSpec, parts: Sequence[Part]) -> None:
    """Write everything that a store has before its first unit."""
    create_group(folder / ZARR_NAME, spec, parts)
    (folder / TABLES_NAME).mkdir()
    (folder / SPEC_NAME).write_text(spec_to_toml(spec), encoding="utf-8")
    journal = Journal(folder / JOURNAL_NAME)
    journal.append(creation_line(spec, parts))
    journal.close()


def creation_line(
    spec: SweepSpec, parts: Sequence[Part], attributes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the journal's first line; how the store was made is what its attributes say, if it has some."""
    made = attributes or results.result_attributes(spec, complete=False)
    units = {part.name: part.layout.count for part in parts}
    left_out = {part.name: sorted(part.unrecorded) for part in parts if part.unrecorded}
    return {
        "kind": CREATED,
        "fingerprint": spec.fingerprint,
        SCHEMA: results.schema_of(spec),
        "units": units,
        MADE: {name: value for name, value in made.items() if name not in _SAID_ELSEWHERE},
        **({UNRECORDED: left_out} if left_out else {}),
    }


def sweep_buildings(folder: Path) -> None:
    """Remove folders that killed runs left half-made; those that a living run is making stay."""
    for leftover in beside(folder, _BUILDING):
        if not is_held(leftover):
            shutil.rmtree(leftover, ignore_errors=True)


def open_sweep(path: str | Path) -> xarray.Dataset:
    """Open a stored sweep as a dataset; values are read when they are used, and checked when they are read.

    Every chunk is held against the journal's digest at the moment it is read. A dataset that is open while
    another process goes on with the store gives what was there when it was opened, or an error.

    Parameters
    ----------
    path : path
        The sweep's folder, or ``cells.zarr`` in it.

    Returns
    -------
    xarray.Dataset
        As :func:`lagsweep.run_sweep` gives. The attribute ``complete`` is false while runs are missing;
        ``status`` says which.

    Raises
    ------
    StoreError
        If there is no stored sweep, a newer version made it, or its metadata or coordinates do not hold;
        later, when values are read, if a file of theirs does not.
    """
    from .dataset import dataset_of

    folder = path_of("path", path)
    return dataset_of(_to_be_read(folder.parent if folder.name == ZARR_NAME else folder))


def _to_be_read(folder: Path) -> SweepStore:
    """Open a store whose values are read later, maybe from another working folder."""
    open_files(folder)  # what is no store is told by the name that was given
    return SweepStore(folder.absolute(), same_law=False)


def read_table(path: str | Path, table: str) -> polars.LazyFrame:
    """Open a stored long table as a polars LazyFrame; rows carry ``cell`` and ``seed``.

    Parameters
    ----------
    path : path
        The sweep's folder.
    table : {"batches", "timeline", "rollouts", "masks", "failures"}

    Raises
    ------
    StoreError
        If the store does not keep that table, or a part that the journal tells of is not there. A part that
        is not the one of the journal is an error when the rows are collected.
    """
    from .dataset import table_of

    return table_of(
        _to_be_read(path_of("path", path)),
        text_of("table", table, "Name a table of the store."),
    )
