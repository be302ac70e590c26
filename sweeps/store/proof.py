"""What the journal says of a store's files, and the files held against it.

The journal has a digest of every chunk and of every part of a table. A chunk is read through here: its bytes
are held against the digest before they are decoded, so what is missing, damaged, swapped, or of another store
is an error with the file's name, never a number. While a unit is written again, its old files are kept under
``kept/``, as links; they still prove what the journal says, until the unit's next line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.pipeline.metrics import WINDOW_NAMES
from ..execute.plan import Part
from ..execute.units import unit_of_name
from ..results.dataset import variable_table
from .arrays import DIGEST_BYTES, StoredArray, chunk_name, compressed, digest_of
from .digests import file_holds
from .packs import PACK, Slice, pack_name, read_block, read_slice
from .place import CHANGED, KEPT, MISSING, Identity, refusal
from .tables import part_name

if TYPE_CHECKING:
    from .store import SweepStore

ZARR_NAME = "cells.zarr"
Places = tuple[int, ...]


def digests_of(part: Part, record: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each variable's chunk, from a unit's line in the journal."""
    return {name: digest_at(record, place) for place, name in enumerate(variable_table(part))}


def digest_at(record: Mapping[str, Any], place: int) -> str:
    """Return the digest of the chunk of variable number `place`, from a unit's line in the journal."""
    width = 2 * DIGEST_BYTES
    return str(record.get("digest", ""))[place * width : (place + 1) * width]


@dataclass(frozen=True)
class StoredVariable:
    """A variable on disk; each chunk is held against the journal's digest whenever it is read.

    Attributes
    ----------
    folder : Path
        The store's.
    name : str
    array : StoredArray
    digests : mapping
        Unit -> digest of its chunk. What has none is not done, and reads as fill values.
    opened_as : tuple of int
        Device and inode of the folder when it was opened.
    packs : mapping
        Unit -> where its chunk lies in a pack, for units that are one file.
    """

    folder: Path
    name: str
    array: StoredArray
    digests: Mapping[Places, str]
    opened_as: Identity | None = None
    packs: Mapping[Places, Slice] = field(default_factory=dict)

    def chunk(self, place: Places) -> np.ndarray | None:
        """Read one whole chunk; None if its unit is not done.

        Raises
        ------
        StoreError
            As :meth:`content`.
        """
        found = self._found(place)
        return None if found is None else self._decoded(*found)

    def content(self, place: Places) -> tuple[str, bytes] | None:
        """Read the bytes of one chunk, and the name of their file; None if its unit is not done.

        Raises
        ------
        StoreError
            If the file is not there, or is not the one that the journal tells of.
        """
        found = self._found(place)
        if found is None or not found[2]:
            return found and found[:2]
        return found[0], compressed(found[1])

    def _found(self, place: Places) -> tuple[str, bytes, bool] | None:
        """Read a chunk: its file's name, its bytes (of a block: its values'), whether it is of a block."""
        unit = place[: len(place) - self._tail]
        digest, pack = self.digests.get(unit), self.packs.get(unit)
        if digest is None:
            return None
        file, what = f"{ZARR_NAME}/{chunk_name(self.name, place)}" if pack is None else pack.file, MISSING
        for kept in (False, True):
            root = self.folder / KEPT if kept else self.folder
            try:
                if pack is not None and pack.digest:
                    values = read_block(root, pack)
                    if values is not None:
                        return file, values, True
                    what = CHANGED
                    continue
                content = (root / file).read_bytes() if pack is None else read_slice(root, pack)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                what = f"cannot be read: {error.strerror}"
                continue
            except (RuntimeError, ValueError) as error:  # of a block
                what = f"cannot be read: {str(error).splitlines()[0]}"
                continue
            if digest_of(content) == digest:
                return file, content, False
            what = CHANGED
        raise refusal(self.folder, file, what, self.opened_as)

    @property
    def _tail(self) -> int:
        """How many dimensions come after those of the units."""
        return 1 if self.name.endswith("lag_counts") or self.name in WINDOW_NAMES else 0

    def _decoded(self, file: str, content: bytes, of_block: bool) -> np.ndarray:
        try:
            return self.array.viewed(content) if of_block else self.array.decoded(content)
        except (RuntimeError, ValueError) as error:
            what = f"cannot be read: {str(error).splitlines()[0]}"
            raise refusal(self.folder, file, what, self.opened_as) from error

    def read(self, at: tuple[Any, ...]) -> np.ndarray:
        """Read a selection: one index, slice or array of indices for each dimension (an outer product)."""
        places = [
            np.atleast_1d(np.arange(size)[index]).astype(np.int64)
            for size, index in zip(self.array.shape, at, strict=True)
        ]
        out = np.full(tuple(map(len, places)), self.array.fill, self.array.dtype)
        pieces = [_pieces(found, chunk) for found, chunk in zip(places, self.array.chunks)]
        for combination in itertools.product(*pieces):
            chunk = self.chunk(tuple(number for number, _, _ in combination))
            if chunk is not None:
                target = tuple(to for _, to, _ in combination)
                source = tuple(inside for _, _, inside in combination)
                if all(isinstance(index, slice) for index in (*target, *source)):
                    out[target] = chunk[source]
                else:
                    out[_outer(target)] = chunk[_outer(source)]
        scalars = tuple(0 if isinstance(index, int | np.integer) else slice(None) for index in at)
        return out[scalars]


def _pieces(places: np.ndarray, chunk: int) -> list[tuple[int, Any, Any]]:
    """Cut indices along one dimension by chunks: number of the chunk, where to, where from."""
    found = []
    if isinstance(whole := _as_slice(places), slice):  # a span: no need to look at each place
        for number in range(whole.start // chunk, (whole.stop - 1) // chunk + 1):
            low, high = max(number * chunk, whole.start), min((number + 1) * chunk, whole.stop)
            to, inside = (
                slice(low - whole.start, high - whole.start),
                slice(low - number * chunk, high - number * chunk),
            )
            found.append((number, to, inside))
        return found
    numbers = places // chunk
    for number in np.unique(numbers):
        here = np.flatnonzero(numbers == number)
        found.append((int(number), _as_slice(here), _as_slice(places[here] - number * chunk)))
    return found


def _as_slice(places: np.ndarray) -> Any:
    if len(places) and (np.diff(places) == 1).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _outer(index: tuple[Any, ...]) -> Any:
    return np.ix_(*(np.arange(at.start, at.stop) if isinstance(at, slice) else at for at in index))


def unit_files(
    store: SweepStore, part: Part, unit: Places, record: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Return the files of a unit that its line in the journal tells of: kind, name, digest."""
    work_name = store.work_name(part, unit)
    if PACK in record:
        yield "chunk", pack_name(work_name), str(record[PACK])
    else:
        for name, digest in digests_of(part, record).items():
            yield "chunk", f"{ZARR_NAME}/{store.files.chunk_name(name, unit)}", digest
    for table, digest in dict(record.get("tables", {})).items():
        yield "table", part_name(table, work_name), str(digest)


def damage(
    store: SweepStore, part: Part, unit: Places, record: Mapping[str, Any], *, kept: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Return what of a unit does not hold, by digests alone: kind, file, what.

    Parameters
    ----------
    kept : bool
        Also take files that are kept while the unit is written again.
    """
    for kind, file, digest in unit_files(store, part, unit, record):
        what = _against(store.folder, file, digest, kept)
        if what:
            yield kind, file, what


def _against(folder: Path, file: str, digest: str, kept: bool) -> str:
    for root in (folder, folder / KEPT) if kept else (folder,):
        try:
            found = file_holds(root / file, digest)
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if found:
            return ""
    return CHANGED if (folder / file).is_file() else MISSING


def whole_while_rewritten(store: SweepStore, part: Part, unit: str, record: Mapping[str, Any]) -> bool:
    """Tell whether a unit that is being written again can still be read as it was."""
    return next(damage(store, part, unit_of_name(unit), record, kept=True), None) is None
