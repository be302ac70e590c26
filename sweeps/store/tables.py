"""Long tables of a stored sweep: one parquet part a unit, linked to the dataset by ``cell`` and ``seed``.

A part is put in place in one step. Its rows are in the order of the unit's runs, so a unit that is done again
gives the same bytes. Parts are read by the names that the journal has, each against its digest.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..execute.plan import CELLS
from ..execute.work import UnitWork
from ..results.masks import mask_columns
from ..spec.spec import SweepSpec
from .digests import holds
from .packs import PACKS_NAME
from .place import CHANGED, KEPT, MISSING, UNFINISHED, Place, refusal
from .table_rows import UnitRows, places_in

if TYPE_CHECKING:
    import polars

FAILURES = "failures"
MASKS_TABLE = "masks"
TABLES_NAME = "tables"
_LEFTOVERS = (UNFINISHED, ".tmp")  # the second: of older versions


def part_name(table: str, work_name: str) -> str:
    """Name the file of one unit's rows, inside the store."""
    return f"{TABLES_NAME}/{table}/unit-{work_name}.parquet"


def part_file(folder: Path, table: str, work_name: str) -> Path:
    """Name the file of one unit's rows."""
    return folder / part_name(table, work_name)


def wanted_tables(spec: SweepSpec, part_name: str) -> tuple[str, ...]:
    """Name the tables that a part's units keep (failures apart, which come when they come)."""
    if part_name != CELLS:
        return ()
    return (*spec.tables, *((MASKS_TABLE,) if spec.masks else ()))


Digest = Callable[[bytes], str]


def write_unit_tables(
    place: Place,
    work: UnitWork,
    spec: SweepSpec,
    digest_of: Digest,
    before: Mapping[str, str | polars.DataFrame] | None = None,
) -> dict[str, str]:
    """Write a unit's parts.

    Parameters
    ----------
    place : Place
        The store's folder.
    work : UnitWork
    spec : SweepSpec
    digest_of : callable
        Digests a part's content in the form of the store.
    before : mapping, optional
        Table -> digest of the unit's part that is there, or the rows themselves: those of runs that are not
        done again stay.

    Returns
    -------
    dict
        Table -> digest of the part's file.
    """
    digests = {}

    def stored(table: str) -> polars.DataFrame | None:
        there = (before or {}).get(table)
        return read_part(place.folder, table, work.name, there) if isinstance(there, str) else there

    for table in wanted_tables(spec, work.part.name):
        rows = _rows(work, table, stored(table))
        if rows.has_columns:
            digests[table] = _put(place, part_name(table, work.name), rows.parquet(), digest_of)
    if work.arrays.failures or FAILURES in (before or {}):
        failures = _with_those_before(_failures(work), stored(FAILURES), work)
        if len(failures):
            digests[FAILURES] = write_part(place, FAILURES, work.name, failures, digest_of)
    for table in sorted({*wanted_tables(spec, work.part.name), FAILURES} - set(digests)):
        place.remove(part_name(table, work.name))
    return digests


def unit_frames(work: UnitWork, spec: SweepSpec) -> dict[str, polars.DataFrame]:
    """Return the rows of a unit's runs for each table that the sweep keeps."""
    return {table: _rows(work, table).frame() for table in wanted_tables(spec, work.part.name)}


def _rows(work: UnitWork, table: str, before: polars.DataFrame | None = None) -> UnitRows:
    if table == MASKS_TABLE:
        return UnitRows(work, work.arrays.tables.get("rollouts", []), before, mask_columns)
    return UnitRows(work, work.arrays.tables.get(table, []), before)


def _failures(work: UnitWork) -> polars.DataFrame:
    import polars

    found = sorted(work.arrays.failures.items())
    ids = work.part.cell_ids.reshape(-1)[work.cells]
    return polars.DataFrame(
        {
            "cell": np.array([ids[cell] for (cell, _), _ in found], np.int64),
            "seed": np.array([work.seeds[seed] for (_, seed), _ in found], np.uint64),
            "reason": polars.Series([failure.reason for _, failure in found], dtype=polars.String),
            "details": polars.Series([failure.details for _, failure in found], dtype=polars.String),
        }
    )


def _with_those_before(
    frame: polars.DataFrame, before: polars.DataFrame | None, work: UnitWork
) -> polars.DataFrame:
    """Add the failures of runs that were not done again, and put all in the order of the unit's runs."""
    import polars

    if before is None:
        return frame
    ids = work.part.cell_ids.reshape(-1)[work.cells]
    cells, seeds = np.nonzero(work.todo_asked)
    again = polars.DataFrame({"cell": ids[cells], "seed": work.seeds[seeds]})
    kept = before.join(again, on=["cell", "seed"], how="anti", maintain_order="left")
    return in_run_order(polars.concat([kept, frame.cast(before.schema)]), ids, work.seeds)


def in_run_order(frame: polars.DataFrame, cells: np.ndarray, seeds: np.ndarray) -> polars.DataFrame:
    """Put rows in the order of their runs: by cell, then seed, as listed; the rows of a run stay in order."""
    places = places_in(cells, frame["cell"]) * len(seeds) + places_in(seeds, frame["seed"])
    return frame[np.argsort(places, kind="stable")]


def write_part(place: Place, table: str, work_name: str, frame: polars.DataFrame, digest_of: Digest) -> str:
    """Put a unit's rows of a table in place in one step; gives the file's digest."""
    content = io.BytesIO()
    frame.write_parquet(content, statistics=True)
    return _put(place, part_name(table, work_name), content.getvalue(), digest_of)


def _put(place: Place, name: str, content: bytes, digest_of: Digest) -> str:
    place.write(name, content)
    return digest_of(content)


def read_part(folder: Path, table: str, work_name: str, digest: str) -> polars.DataFrame:
    """Read one unit's rows of a table, held against the journal's digest.

    Raises
    ------
    StoreError
        If the file is not there, or is not the one that the journal tells of.
    """
    import polars

    return polars.read_parquet(io.BytesIO(proven_part(folder, table, work_name, digest)))


def proven_part(folder: Path, table: str, work_name: str, digest: str) -> bytes:
    """Read the file of one unit's rows, held against the journal's digest.

    Raises
    ------
    StoreError
        If the file is not there, or is not the one that the journal tells of.
    """
    name, what = part_name(table, work_name), MISSING
    for root in (folder, folder / KEPT):
        try:
            content = (root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
            continue
        if holds(content, digest):
            return content
        what = CHANGED
    raise refusal(folder, name, what)


def read_unit_tables(folder: Path, work_name: str, digests: Mapping[str, str]) -> dict[str, polars.DataFrame]:
    """Read a unit's parts that the journal tells of."""
    return {table: read_part(folder, table, work_name, digest) for table, digest in sorted(digests.items())}


def remove_leftovers(folder: Path) -> int:
    """Remove the unfinished files that a killed run left; tells how many."""
    leftovers = [file for ending in _LEFTOVERS for file in (folder / TABLES_NAME).glob(f"*/*{ending}")]
    leftovers += (folder / PACKS_NAME).glob(f"*{UNFINISHED}")
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)
