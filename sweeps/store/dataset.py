"""A stored sweep as a dataset and as tables, in which no value is read that the journal does not prove.

The dataset is a view of the moment at which it was opened: which units are done, and the digests of their
chunks. Metadata and coordinates come from the spec and are held against the files once, at the opening.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from ...kernels.errors import StoreError
from ..execute.units import unit_name
from ..results.cells import NOT_RECORDED
from ..results.dataset import coordinate_table, variable_table, with_reasons
from .metadata import metadata_problems, problem_file
from .place import MISSING, refusal
from .proof import ZARR_NAME, StoredVariable, whole_while_rewritten
from .recorded import unrecorded_names
from .tables import FAILURES, part_file, part_name, proven_part, read_part

if TYPE_CHECKING:
    from .store import SweepStore


class _Chunked(BackendArray):
    """A variable for xarray, read when it is used."""

    def __init__(self, variable: StoredVariable) -> None:
        self.variable = variable
        self.shape, self.dtype = variable.array.shape, variable.array.dtype

    def chunks(self, dims: tuple[str, ...]) -> dict[str, int]:
        """Name how far a chunk goes along each dimension, for readers who go by whole chunks."""
        return dict(zip(dims, self.variable.array.chunks, strict=True))

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self.variable.read)


class _SweepBackend(BackendEntrypoint):
    """Opens a store for xarray; not registered, since :func:`lagsweep.open_sweep` is its one user."""

    def open_dataset(  # type: ignore[override]
        self, filename_or_obj: Any, *, drop_variables: Any = None, store: SweepStore
    ) -> xarray.Dataset:
        """Return the dataset, nothing of it read."""
        variables = {}
        for part in store.parts:
            done = list(store.done_units(part))
            for name, (_, dims, about) in variable_table(part).items():
                array = _Chunked(store.variable(part, name, done))
                variables[name] = xarray.Variable(
                    dims, indexing.LazilyIndexedArray(array), about, {"preferred_chunks": array.chunks(dims)}
                )
        attributes = {name: value for name, value in store.attributes.items() if name != "coordinates"}
        if missing := unrecorded_names(store.parts):
            attributes[NOT_RECORDED] = " ".join(missing)
        return xarray.Dataset(variables, coordinate_table(store.spec), attributes)


def dataset_of(store: SweepStore) -> xarray.Dataset:
    """Open the dataset of a store.

    Raises
    ------
    StoreError
        If its metadata, coordinates or journal are not its own, or a file of them is damaged.
    """
    settle(store)
    dataset = xarray.open_dataset(
        str(store.folder / ZARR_NAME), engine=_SweepBackend, chunks=None, backend_kwargs={"store": store}
    )
    return with_reasons(dataset, _reasons(store, dataset))


def settle(store: SweepStore) -> None:
    """Make sure that a store can be read: metadata, coordinates, and what the journal says of them.

    A unit that is being written again, and is not what it was, counts as not done.

    Raises
    ------
    StoreError
    """
    problems = metadata_problems(store)
    if problems:
        raise StoreError(*(found for problem in problems for found in refusal_of(store, problem).findings))
    if store.journal.foreign:
        raise refusal(store.folder, store.journal.path.name, "is the journal of another sweep")
    complete = store.files.attributes.get("complete")
    if not isinstance(complete, bool):
        raise refusal(store.folder, f"{ZARR_NAME}/zarr.json", "must say whether the sweep is complete")
    for part in store.parts:
        for unit, record in list(store.done_units(part)):
            if record.get("rewriting") and not whole_while_rewritten(store, part, unit_name(unit), record):
                store.journal.forget(part.name, unit_name(unit))
    for part, unit in store.units() if complete else ():
        if not store.is_done(part, unit):
            what = f"does not tell of unit {store.work_name(part, unit)}, but the store says complete"
            raise refusal(store.folder, store.journal.path.name, what, store.opened_as)


def refusal_of(store: SweepStore, problem: tuple[str, str, str]) -> StoreError:
    """Make the error about a problem of the metadata."""
    return refusal(store.folder, problem_file(problem), problem[2], store.opened_as)


def _reasons(store: SweepStore, dataset: xarray.Dataset) -> dict[tuple[int, int], str]:
    parts = _parts_of(store, FAILURES)
    if not parts:
        return {}
    cells = {int(cell): place for place, cell in enumerate(dataset["cell"].values.reshape(-1))}
    seeds = {int(seed): place for place, seed in enumerate(dataset["seed"].values)}
    return {
        (cells[cell], seeds[seed]): reason
        for name, digest in parts
        for cell, seed, reason in read_part(store.folder, FAILURES, name, digest)
        .select("cell", "seed", "reason")
        .iter_rows()
        if cell in cells
    }


def _parts_of(store: SweepStore, table: str) -> list[tuple[str, str]]:
    """Name the parts of a table that the journal tells of, in the order of their names, with digests."""
    return sorted(
        (store.work_name(part, unit), str(record["tables"][table]))
        for part in store.parts
        for unit, record in store.done_units(part)
        if table in record.get("tables", {})
    )


def table_of(store: SweepStore, table: str) -> Any:
    """Open a long table of a store, each part held against the journal when it is read.

    Raises
    ------
    StoreError
    """
    import polars
    from polars.io.plugins import register_io_source

    settle(store)
    folder, parts = store.folder, _parts_of(store, table)
    if not parts:
        raise StoreError(
            "table", "must be one that the store keeps", table, "Run with --tables, or look into tables/."
        )
    for name, _ in parts:
        if not part_file(folder, table, name).is_file():
            raise refusal(folder, part_name(table, name), MISSING)

    def rows(
        columns: list[str] | None, predicate: Any, most: int | None, batch: int | None
    ) -> Iterator[polars.DataFrame]:
        left = np.inf if most is None else most
        for content in _ahead(folder, table, parts):
            frame = polars.read_parquet(io.BytesIO(content))
            frame = frame if predicate is None else frame.filter(predicate)
            frame = frame if columns is None else frame.select(columns)
            yield frame if len(frame) <= left else frame.head(int(left))
            left -= len(frame)
            if left <= 0:
                return

    first = proven_part(folder, table, *parts[0])
    return register_io_source(rows, schema=polars.read_parquet_schema(io.BytesIO(first)))


def _ahead(folder: Path, table: str, parts: list[tuple[str, str]]) -> Iterator[bytes]:
    """Read parts one by one; the next is read and held against its digest while the last is decoded."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(proven_part, folder, table, *parts[0])
        for following in (*parts[1:], None):
            content = coming.result()
            if following is not None:
                coming = reader.submit(proven_part, folder, table, *following)
            yield content
