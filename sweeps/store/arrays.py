"""The Zarr group of a sweep: template, chunks in and out, digests of chunk files, closing metadata.

Zarr is used directly: one chunk of every array is one unit, so writing through xarray would only add time.
Chunks are compressed with a checksum, which Zarr's default codec lacks (it returns wrong numbers on a
flipped bit). The closing metadata goes into one file in one replacement: ``complete`` and the consolidated
metadata appear together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.pipeline.metrics import LAG_BINS
from ..execute.plan import Part
from ..execute.units import Box
from ..execute.work import fill_value
from ..results.dataset import coordinate_table, result_attributes, variable_table
from ..spec.spec import SweepSpec

DIGEST_BYTES = 4  # of each chunk's file, in the journal
_WRITE_ALL = {"write_empty_chunks": True}  # else a chunk of fill values leaves no file


def create_group(path: Path, spec: SweepSpec, parts: Sequence[Part]) -> None:
    """Make the template: all arrays with their metadata, coordinates filled, ``complete`` false."""
    import zarr

    coordinates = coordinate_table(spec)
    attributes = result_attributes(spec, complete=False)
    attributes["coordinates"] = " ".join(
        name for name, (dims, _, _) in coordinates.items() if dims != (name,)
    )
    group = zarr.create_group(str(path), zarr_format=3, attributes=attributes)
    for name, (dims, values, about) in coordinates.items():
        _create_coordinate(group, name, dims, values, about)
    for part in parts:
        for name, (dtype, dims, about) in variable_table(part).items():
            tail = (LAG_BINS,) if dims[-1] == "lag" else ()
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

    return [ZstdCodec(level=1, checksum=True)]


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


class ZarrFiles:
    """The group of a stored sweep, opened."""

    def __init__(self, path: Path) -> None:
        import zarr

        self.path = path
        self._group = zarr.open_group(str(path), mode="r+", use_consolidated=False)
        self._arrays: dict[str, Any] = {}

    @property
    def attributes(self) -> dict[str, Any]:
        """The group's attributes."""
        return dict(self._group.attrs)

    def array(self, name: str) -> Any:
        """Return an array, opened so that chunks of fill values are written too."""
        if name not in self._arrays:
            array: Any = self._group[name]
            self._arrays[name] = array.with_config(_WRITE_ALL)
        return self._arrays[name]

    def chunks(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array's chunks."""
        return tuple(self.array(name).chunks)

    def has(self, name: str) -> bool:
        """Tell whether an array exists."""
        return (self.path / name / "zarr.json").exists()

    def write(self, values: Mapping[str, np.ndarray], box: Box) -> None:
        """Write a box of several arrays, each with its own trailing dimensions."""
        at = tuple(slice(start, stop) for start, stop in box)
        for name, array in values.items():
            self.array(name)[at] = array

    def read(self, name: str, box: Box) -> np.ndarray:
        """Read a box of one array."""
        return np.asarray(self.array(name)[tuple(slice(start, stop) for start, stop in box)])

    def chunk_file(self, name: str, unit: Sequence[int]) -> Path:
        """Name the file that holds one unit of an array."""
        tail = ("0",) * (self.array(name).ndim - len(unit))
        return self.path.joinpath(name, "c", *(str(index) for index in unit), *tail)

    def digest(self, name: str, unit: Sequence[int]) -> str:
        """Digest the file that holds one unit of an array; empty if there is none."""
        try:
            content = self.chunk_file(name, unit).read_bytes()
        except FileNotFoundError:
            return ""
        return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()

    def set_complete(self, complete: bool) -> None:
        """Write ``complete``, and with it (or without) the consolidated metadata, in one replacement."""
        from ..files import write_atomically

        file = self.path / "zarr.json"
        root = json.loads(file.read_text())
        root["attributes"]["complete"] = complete
        root.pop("consolidated_metadata", None)
        if complete:
            folders = sorted(item.name for item in self.path.iterdir() if (item / "zarr.json").exists())
            metadata = {name: json.loads((self.path / name / "zarr.json").read_text()) for name in folders}
            root["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata}
        write_atomically(file, json.dumps(root, indent=2).encode())

    def sweep_leftovers(self) -> int:
        """Remove the unfinished files that a killed run left behind; tells how many."""
        leftovers = [*self.path.rglob("*.partial"), *self.path.rglob(".*.tmp")]
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        return len(leftovers)
