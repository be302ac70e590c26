"""The Zarr group of a sweep: template, chunks in and out, digests of chunk files, closing metadata.

Zarr makes the template. Chunks are encoded here, to the bytes that Zarr would write: one chunk of every array
is one unit, so what is written and what is read is always a whole file, whose digest is known. Chunks are
compressed with a checksum, which Zarr's default codec lacks (it returns wrong numbers on a flipped bit). The
closing metadata goes into one file in one replacement: ``complete`` and the consolidated metadata appear
together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.units import Box
from ..results.dataset import coordinate_table, result_attributes, variable_table
from ..runs.many import fill_value
from ..spec.spec import SweepSpec
from .place import UNFINISHED, Place

DIGEST_BYTES = 4  # of each chunk's file, in the journal
METADATA_NAME = "zarr.json"
ZSTD_LEVEL = 1
_WRITE_ALL = {"write_empty_chunks": True}  # else a chunk of fill values leaves no file


def create_group(path: Path, spec: SweepSpec, parts: Sequence[Part]) -> None:
    """Make the template: all arrays with their metadata, coordinates filled, ``complete`` false."""
    import zarr

    coordinates = coordinate_table(spec)
    attributes = result_attributes(spec, complete=False)
    attributes["coordinates"] = " ".join(
        name for name, (dims, _, _) in coordinates.items() if dims != (name,)
    )
    group = zarr.create_group(path, zarr_format=3, attributes=attributes)
    for name, (dims, values, about) in coordinates.items():
        _create_coordinate(group, name, dims, values, about)
    for part in parts:
        for name, (dtype, dims, about) in variable_table(part).items():
            tail = part.tail_of(name)
            group.create_array(
                name,
                shape=(*part.layout.shape, *tail),
                chunks=(*part.layout.chunks, *tail),
                dtype=dtype,
                fill_value=_fill_of(name, dtype),
                compressors=_codecs(),
                dimension_names=dims,
                attributes=about,
            )


def _fill_of(name: str, dtype: str) -> Any:
    return 0 if name.endswith(("status", "lag_counts")) else fill_value(dtype)


def _codecs() -> list[Any]:
    from zarr.codecs import ZstdCodec

    return [ZstdCodec(level=ZSTD_LEVEL, checksum=True)]


def _create_coordinate(group: Any, name: str, dims: tuple[str, ...], values: np.ndarray, about: Any) -> None:
    text = values.dtype.kind == "U"
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=tuple(max(1, size) for size in values.shape),
        # Text of any length: a fixed width would cut what is added later.
        dtype=str if text else values.dtype,
        fill_value="" if text else 0,
        compressors=_codecs(),
        dimension_names=dims,
        attributes=about,
        config=_WRITE_ALL,
    )
    array[...] = values.astype(object) if text else values


@dataclass(frozen=True)
class StoredArray:
    """What the metadata of a variable say, as far as reading and writing its chunks needs it.

    Attributes
    ----------
    shape, chunks : tuple of int
    dtype : numpy dtype
    fill : scalar
        What stands where nothing was written.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    fill: Any

    def encoded(self, values: np.ndarray, box: Box) -> tuple[tuple[int, ...], bytes]:
        """Encode values over a box inside one chunk: the chunk's place, and its file as Zarr writes it."""
        place, raw = self.filled(values, box)
        return place, compressed(raw)

    def filled(self, values: np.ndarray, box: Box) -> tuple[tuple[int, ...], bytes]:
        """Fill up values over a box inside one chunk: the chunk's place, and the bytes of all of it."""
        ends = (*box, *((0, size) for size in self.shape[len(box) :]))
        place = tuple(start // chunk for (start, _), chunk in zip(ends, self.chunks))
        if values.shape == self.chunks and values.dtype == self.dtype:  # all of the chunk
            return place, values.tobytes()
        whole = np.full(self.chunks, self.fill, self.dtype)
        corner = [index * chunk for index, chunk in zip(place, self.chunks)]
        whole[tuple(slice(start - low, stop - low) for (start, stop), low in zip(ends, corner))] = values
        return place, whole.tobytes()

    def decoded(self, content: bytes) -> np.ndarray:
        """Decode a chunk's file; raises if its checksum or size does not hold."""
        return self.viewed(decompressed(content))

    def viewed(self, raw: bytes) -> np.ndarray:
        """Take the bytes of a whole chunk for its values; raises if their number does not hold."""
        return np.frombuffer(raw, self.dtype).reshape(self.chunks)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a chunk before it is compressed."""
        return math.prod(self.chunks) * self.dtype.itemsize


def compressed(raw: bytes) -> bytes:
    """Compress as Zarr does here, with a checksum."""
    return bytes(_zstd().encode(raw))


def decompressed(content: bytes) -> bytes:
    """Undo :func:`compressed`; raises RuntimeError if the checksum does not hold."""
    return bytes(_zstd().decode(content))


@cache
def _zstd() -> Any:
    from numcodecs.zstd import Zstd

    return Zstd(level=ZSTD_LEVEL, checksum=True)


def array_metadata(name: str, dtype: str, shape: Sequence[int], chunks: Sequence[int]) -> dict[str, Any]:
    """Return what ``zarr.json`` must say of a variable, attributes and dimension names apart."""
    kind = np.dtype(dtype)
    fill = _fill_of(name, dtype)
    little: dict[str, Any] = {"name": "bytes"}
    if kind.itemsize > 1:
        little["configuration"] = {"endian": "little"}
    zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": True}}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": kind.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN" if fill != fill else fill,
        "codecs": [little, zstd],
    }


class ZarrFiles:
    """The group of a stored sweep, opened.

    Attributes
    ----------
    path : Path
    root : dict
        The group's own metadata.
    members : set of str
        The arrays that belong into it; whatever is there, until it is told.
    """

    def __init__(self, path: Path, place: Place | None = None) -> None:
        self.path = path
        self.root: dict[str, Any] = self.metadata("")
        self.members = {item.name for item in path.iterdir() if (item / METADATA_NAME).exists()}
        self._place = place
        self._arrays: dict[str, StoredArray] = {}

    @property
    def place(self) -> Place:
        """The store's folder, to be written into."""
        if self._place is None:
            self._place = Place(self.path.parent)
        return self._place

    @property
    def attributes(self) -> dict[str, Any]:
        """The group's attributes."""
        return dict(self.root.get("attributes", {}))

    def metadata(self, name: str) -> dict[str, Any]:
        """Read the metadata of an array, or of the group where the name is empty.

        Raises
        ------
        OSError, ValueError
            If the file is not there, or is no JSON object.
        """
        try:
            found = json.loads((self.path / name / METADATA_NAME).read_bytes())
        except RecursionError:
            raise ValueError("is nested too deeply for metadata of Zarr") from None
        if not isinstance(found, dict) or not isinstance(found.get("attributes", {}), dict):
            raise ValueError("is no metadata of Zarr")
        return found

    def define(self, name: str, dtype: str, shape: Sequence[int], chunks: Sequence[int]) -> StoredArray:
        """Say what a variable is: from the spec and the units, not from what its own metadata say."""
        self._arrays[name] = StoredArray(tuple(shape), tuple(chunks), np.dtype(dtype), _fill_of(name, dtype))
        return self._arrays[name]

    def array(self, name: str) -> StoredArray:
        """Return what a variable is, from its metadata where it was not defined."""
        if name not in self._arrays:
            found = self.metadata(name)
            chunks = found["chunk_grid"]["configuration"]["chunk_shape"]
            self.define(name, found["data_type"], found["shape"], chunks)
        return self._arrays[name]

    def coordinate(self, name: str) -> np.ndarray:
        """Read a coordinate as it lies on disk."""
        import zarr

        return np.asarray(zarr.open_array(self.path / name, mode="r")[...])

    def has(self, name: str) -> bool:
        """Tell whether an array exists."""
        return (self.path / name / METADATA_NAME).exists()

    def write(self, values: Mapping[str, np.ndarray], box: Box) -> str:
        """Write a box, inside one unit, of several arrays; the rest of the unit holds fill values.

        Returns
        -------
        str
            The digests of the files, one after the other.
        """
        digests = []
        for name, place, content in self.encoded(values, box):
            self.place.write(f"{self.path.name}/{chunk_name(name, place)}", content)
            digests.append(digest_of(content))
        return "".join(digests)

    def encoded(
        self, values: Mapping[str, np.ndarray], box: Box
    ) -> Iterator[tuple[str, tuple[int, ...], bytes]]:
        """Encode a box, inside one unit, of several arrays: name, place of the chunk, its file's content."""
        for name, array in values.items():
            yield name, *self.array(name).encoded(array, box)

    def chunk_name(self, name: str, unit: Sequence[int]) -> str:
        """Name the file that holds one unit of an array, inside the group."""
        return chunk_name(name, (*unit, *(0,) * (len(self.array(name).shape) - len(unit))))

    def chunk_file(self, name: str, unit: Sequence[int]) -> Path:
        """Name the file that holds one unit of an array."""
        return self.path / self.chunk_name(name, unit)

    def set_complete(self, complete: bool) -> None:
        """Write ``complete``, and with it (or without) the consolidated metadata, in one replacement."""
        self.root["attributes"]["complete"] = complete
        self.root.pop("consolidated_metadata", None)
        if complete:
            self.root["consolidated_metadata"] = self.consolidated()
        self.place.write(f"{self.path.name}/{METADATA_NAME}", json.dumps(self.root, indent=2).encode())

    def consolidated(self) -> dict[str, Any]:
        """Return what the consolidated metadata must be: a copy of every array's own."""
        metadata = {name: self.metadata(name) for name in sorted(self.members)}
        return {"kind": "inline", "must_understand": False, "metadata": metadata}

    def sweep_leftovers(self) -> int:
        """Remove the unfinished files that a killed run left behind; tells how many."""
        leftovers = [*self.path.rglob(f"*{UNFINISHED}"), *self.path.rglob(".*.tmp")]
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        return len(leftovers)


def chunk_name(name: str, place: Sequence[int]) -> str:
    """Name a chunk's file inside the group.

    Examples
    --------
    >>> chunk_name("updates", (0, 3))
    'updates/c/0/3'
    """
    return "/".join([name, "c", *map(str, place)])


def digest_of(content: bytes, size: int = DIGEST_BYTES) -> str:
    """Digest a file's content."""
    return hashlib.blake2b(content, digest_size=size).hexdigest()


def digest_of_file(path: Path, size: int) -> str:
    """Digest a file, a piece at a time; empty if there is none."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=size)).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
