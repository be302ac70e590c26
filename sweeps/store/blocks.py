"""Read a box of every variable of a store, as merging, extending and joining want it: all of them in turn.

Chunks that are files of their own are read a variable at a time, so that one variable is in memory. Of small
units that are blocks (:mod:`.packs`) each is read and held against the journal once, for all variables.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..execute.plan import Part
from ..execute.units import Box, box_shape, intersection
from ..results.dataset import variable_table
from .arrays import StoredArray
from .packs import BLOCK, PACK, Slice, pack_name, read_block
from .store import SweepStore

Lines = Sequence[tuple[tuple[int, ...], dict[str, Any] | None]]


def values_of_box(store: SweepStore, part: Part, box: Box, units: Lines) -> Iterator[tuple[str, np.ndarray]]:
    """Give the values of each variable over a box, in the order of the part's table.

    Parameters
    ----------
    store : SweepStore
    part : Part
        Of `store`.
    box : Box
        Axes and seeds.
    units : sequence of (unit, line)
        Those that the box touches, with their lines in the journal; fill values stand where there is none.

    Raises
    ------
    StoreError
        If a file that is read is not the one that the journal tells of.
    """
    if all(record is None or BLOCK in record for _, record in units):
        yield from _of_blocks(store, part, box, units).items()
        return
    for name in variable_table(part):
        variable = store.variable(part, name, units)
        tail = (slice(None),) * (len(variable.array.shape) - len(box))
        yield name, variable.read((*(slice(start, stop) for start, stop in box), *tail))


def _of_blocks(store: SweepStore, part: Part, box: Box, units: Lines) -> dict[str, np.ndarray]:
    arrays = {name: store.files.array(name) for name in variable_table(part)}
    found = {
        name: np.full((*box_shape(box), *array.shape[len(box) :]), array.fill, array.dtype)
        for name, array in arrays.items()
    }
    chunks = part.layout.chunks
    for unit, record in units:
        shared = intersection(part.layout.box(unit), box)
        if record is None or shared is None:
            continue
        corner = [index * size for index, size in zip(unit, chunks)]
        to = tuple(slice(start - low, stop - low) for (start, stop), (low, _) in zip(shared, box))
        inside = tuple(slice(start - low, stop - low) for (start, stop), low in zip(shared, corner))
        for name, values in _chunks_of_block(store, part, unit, record, arrays):
            found[name][to] = values[inside]
    return found


def _chunks_of_block(
    store: SweepStore,
    part: Part,
    unit: tuple[int, ...],
    record: dict[str, Any],
    arrays: dict[str, StoredArray],
) -> Iterator[tuple[str, np.ndarray]]:
    """Give the chunk of each variable; what does not hold in place is looked for among the kept, or told."""
    total = sum(array.chunk_bytes for array in arrays.values())
    raw = None
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        raw = read_block(
            store.folder, Slice(pack_name(store.work_name(part, unit)), 0, total, str(record[PACK]))
        )
    at = 0
    for name, array in arrays.items():
        if raw is not None and len(raw) == total:
            values = np.frombuffer(raw, array.dtype, math.prod(array.chunks), at).reshape(array.chunks)
        else:
            tail = (0,) * (len(array.shape) - len(unit))
            chunk = store.variable(part, name, [(unit, record)]).chunk((*unit, *tail))
            assert chunk is not None  # it has a line
            values = chunk
        at += array.chunk_bytes
        yield name, values
