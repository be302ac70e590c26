"""A stored sweep: one folder with the Zarr group, long tables, the spec and the journal.

::

    <folder>/cells.zarr/      metrics; one chunk of each array is one unit; only Zarr's own files
             tables/          parquet, one part a unit: batches, timeline, rollouts, masks, failures
             spec.toml        the spec, to read and to run again
             journal.jsonl    what is done; written after the data
             run.json         commands, times, host, versions
             lock             held by the run that is under way

The folder is made aside (``<folder>.building-…``) and renamed when it is whole. A unit's data are written,
then its line in the journal; a kill in between leaves the unit undone, and doing it again gives the same
bytes. When all is done, ``complete`` and the consolidated metadata are written in one step.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import StoreError
from ..checks import path_of, text_of
from ..execute.plan import CELLS, Part, plan_parts
from ..execute.units import Box, intersection, unit_name, unit_of_name
from ..execute.work import UnitArrays, UnitWork, empty_arrays
from ..results.dataset import SCHEMA_VERSION, variable_table, variable_values, with_reasons
from ..spec.carried import check_law, spec_from_text
from ..spec.spec import SweepSpec
from ..spec.writing import spec_to_toml
from .arrays import ZarrFiles, create_group
from .journal import CREATED, FINISHED, JOURNAL_NAME, UNIT, Journal
from .lock import StoreLock, is_held
from .tables import FAILURES, read_unit_tables, remove_leftovers, table_path, write_unit_tables

if TYPE_CHECKING:
    import polars
    import xarray

ZARR_NAME = "cells.zarr"
SPEC_NAME = "spec.toml"
_BUILDING = ".building-"


def store_folder(spec: SweepSpec, results: Path) -> Path:
    """Name the folder of a sweep: its name and the first 8 digits of its fingerprint."""
    return results / f"{spec.name}-{spec.fingerprint[:8]}"


class SweepStore:
    """A stored sweep, opened to be run.

    Attributes
    ----------
    folder : Path
    spec : SweepSpec
    parts : list of Part
        Cut into units as the arrays on disk are.
    journal : Journal
    files : ZarrFiles
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = _open_files(folder)
        self.attributes = self.files.attributes
        check_schema(self.attributes, folder)
        self.spec = _stored_spec(self.attributes, folder)
        check_law(self.spec, self.attributes["law_digest"])
        self.parts = [
            part.with_chunks(self.files.chunks(f"{part.prefix}status")) for part in plan_parts(self.spec, 1)
        ]
        self.journal = Journal(folder / JOURNAL_NAME)

    def part(self, name: str) -> Part:
        """Return a part by its name."""
        return next(part for part in self.parts if part.name == name)

    @property
    def complete(self) -> bool:
        """Whether the run was finished and nothing has been asked since."""
        return bool(self.files.attributes["complete"]) and self.journal.finished

    def units(self) -> Iterator[tuple[Part, tuple[int, ...]]]:
        """Return every unit: the baseline's first, since they are few, then the sweep's own."""
        for part in sorted(self.parts, key=lambda part: part.name == CELLS):
            for unit in part.layout.units():
                yield part, unit

    def done_mask(self, part: Part, unit: Sequence[int]) -> np.ndarray:
        """Tell which runs of a unit the journal calls done: bool (cells, seeds)."""
        return done_mask(part, unit, self.journal.units(part.name).get(unit_name(unit)))

    def read_unit(self, part: Part, unit: Sequence[int]) -> UnitArrays:
        """Read what a unit holds on disk."""
        box = part.layout.box(unit)
        cells, seeds = len(part.layout.cells(unit)), box[-1][1] - box[-1][0]
        arrays = empty_arrays(part.metrics, cells, seeds, lag_counts=part.keep_lag_counts)
        for name in arrays.metrics:
            arrays.metrics[name] = self.files.read(part.prefix + name, box).reshape(cells, seeds)
        arrays.status = self.files.read(f"{part.prefix}status", box).reshape(cells, seeds)
        if arrays.lag_counts is not None:
            counts = self.files.read(f"{part.prefix}lag_counts", (*box, (0, arrays.lag_counts.shape[-1])))
            arrays.lag_counts = counts.reshape(arrays.lag_counts.shape)
        return arrays

    def write_unit(self, work: UnitWork, kept_tables: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write a unit's data and tables; gives the journal's record, which is not written yet."""
        part, unit = work.part, work.unit
        box = part.layout.box(unit)
        shape = tuple(stop - start for start, stop in box)
        values = variable_values(part, work.arrays, shape)
        self.files.write(values, box)
        tables = write_unit_tables(self.folder, work, self.spec, kept_tables)
        status = work.arrays.status
        return {
            "kind": UNIT,
            "part": part.name,
            "unit": unit_name(unit),
            "runs": int(np.isin(status, (1, 2)).sum()),
            "failed": int((status == 2).sum()),
            "seconds": round(work.seconds, 3),
            "digest": self.unit_digest(part, unit),
            "tables": tables,
        }

    def unit_digest(self, part: Part, unit: Sequence[int]) -> str:
        """Digest a unit's chunk files, one after the other in the order of the variables."""
        return "".join(self.files.digest(name, unit) or "-" * 8 for name in variable_table(part))

    def finish(self) -> None:
        """Mark the store complete: the group's metadata, then the journal."""
        self.files.set_complete(True)
        self.journal.append({"kind": FINISHED, "fingerprint": self.spec.fingerprint})

    def reopen(self) -> None:
        """Take back the mark before a complete store is changed."""
        if self.files.attributes["complete"]:
            self.files.set_complete(False)

    def close(self) -> None:
        """Close the journal."""
        self.journal.close()


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


def _open_files(folder: Path) -> ZarrFiles:
    if not (folder / ZARR_NAME / "zarr.json").exists():
        raise StoreError(
            "store", "must be the folder of a stored sweep", str(folder), "Check the path, or run the sweep."
        )
    try:
        return ZarrFiles(folder / ZARR_NAME)
    except Exception as error:
        raise StoreError(
            "store", f"its metadata cannot be read: {error}", str(folder), "Restore zarr.json, or run anew."
        ) from error


def check_schema(attributes: dict[str, Any], folder: Path) -> None:
    """Refuse a store that a newer version of Lagsweep wrote, or that is not one.

    Raises
    ------
    StoreError
    """
    found = attributes.get("schema_version")
    if not isinstance(found, int) or "spec" not in attributes:
        raise StoreError(
            "store",
            "must be the result of a sweep",
            str(folder),
            "Its attributes lack spec and schema_version.",
        )
    if found > SCHEMA_VERSION:
        raise StoreError(
            "schema_version", f"must be at most {SCHEMA_VERSION}", found, "Use a newer lagsweep to read it."
        )


def _stored_spec(attributes: dict[str, Any], folder: Path) -> SweepSpec:
    try:
        spec = spec_from_text(attributes["spec"])
    except ValueError as error:
        raise StoreError(
            "spec", f"the stored spec cannot be read: {error}", str(folder), "Use the version that made it."
        ) from error
    if spec.fingerprint != attributes["fingerprint"]:
        raise StoreError(
            "fingerprint",
            f"must be {spec.fingerprint[:8]}, that of the stored spec",
            attributes["fingerprint"][:8],
            "The store's metadata were changed by hand; run the sweep anew.",
        )
    return spec


def create_store(folder: Path, spec: SweepSpec, unit_runs: int | None = None) -> tuple[SweepStore, StoreLock]:
    """Make the folder of a sweep, whole or not at all, and hold its lock.

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
        fill_folder(building, spec, plan_parts(spec, unit_runs))
        os.rename(building, folder)
    except OSError as error:
        lock.release()
        shutil.rmtree(building, ignore_errors=True)
        raise StoreError(
            "store", f"cannot be made: {error.strerror or error}", str(folder), "Name another with --store."
        ) from error
    except BaseException:
        lock.release()
        shutil.rmtree(building, ignore_errors=True)
        raise
    return SweepStore(folder), lock


def fill_folder(folder: Path, spec: SweepSpec, parts: Sequence[Part]) -> None:
    """Write everything that a store has before its first unit."""
    create_group(folder / ZARR_NAME, spec, parts)
    (folder / "tables").mkdir()
    (folder / SPEC_NAME).write_text(spec_to_toml(spec), encoding="utf-8")
    journal = Journal(folder / JOURNAL_NAME)
    units = {part.name: part.layout.count for part in parts}
    journal.append(
        {"kind": CREATED, "fingerprint": spec.fingerprint, "schema": SCHEMA_VERSION, "units": units}
    )
    journal.close()


def sweep_buildings(folder: Path) -> None:
    """Remove folders that killed runs left half-made; those that a living run is making stay."""
    for leftover in folder.parent.glob(f"{folder.name}{_BUILDING}*"):
        if not is_held(leftover):
            shutil.rmtree(leftover, ignore_errors=True)


def open_sweep(path: str | Path) -> xarray.Dataset:
    """Open a stored sweep as a dataset; values are read when they are used.

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
        If there is no stored sweep, or a newer version made it.
    """
    import xarray

    folder = path_of("path", path)
    folder = folder.parent if folder.name == ZARR_NAME else folder
    files = _open_files(folder)
    check_schema(files.attributes, folder)
    dataset = xarray.open_zarr(
        str(folder / ZARR_NAME),
        consolidated=bool(files.attributes["complete"]),
        chunks=None,
        decode_timedelta=False,
    )
    spec = _stored_spec(files.attributes, folder)
    dataset = dataset[[name for part in plan_parts(spec, 1) for name in variable_table(part)]]
    for name, coordinate in dataset.coords.items():
        if coordinate.dtype.kind not in "iufb":
            labels = np.array(coordinate.values.tolist(), dtype=np.str_)
            dataset = dataset.assign_coords({name: (coordinate.dims, labels, coordinate.attrs)})
    return with_reasons(dataset, _reasons(folder, dataset))


def _reasons(folder: Path, dataset: xarray.Dataset) -> dict[tuple[int, int], str]:
    if not any(table_path(folder, FAILURES).glob("*.parquet")):
        return {}
    frame = read_table(folder, FAILURES).collect()
    cells = {int(cell): place for place, cell in enumerate(dataset["cell"].values.reshape(-1))}
    seeds = {int(seed): place for place, seed in enumerate(dataset["seed"].values)}
    return {
        (cells[cell], seeds[seed]): reason
        for cell, seed, reason in frame.select("cell", "seed", "reason").iter_rows()
        if cell in cells
    }


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
        If the store does not keep that table.
    """
    import polars

    folder = table_path(path_of("path", path), text_of("table", table, "Name a table of the store."))
    if not any(path_of("table", folder).glob("*.parquet")):
        raise StoreError(
            "table", "must be one that the store keeps", table, "Run with --tables, or look into tables/."
        )
    return polars.scan_parquet(folder / "*.parquet")


__all__ = [
    "Box",
    "SweepStore",
    "create_store",
    "open_sweep",
    "read_table",
    "read_unit_tables",
    "remove_leftovers",
    "store_folder",
    "unit_of_name",
]
