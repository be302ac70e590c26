"""A digest of what a store holds, whatever its cut, its order, or the way it came about.

Each run gives a number made from its cell's id, its seed and the bits of all its values; the digest is the
sum of them, modulo 2**64. So it is the same for any units, merged or not, for any order of values along the
axes, and for a store that was extended, killed or run on a cluster. A unit's share of the sum is in its line
of the journal; the chunks' digests in the same line guard the values it was made from. Long tables are no
part of it. It compares stores; it keeps out no forger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..execute.plan import Part
from ..results.dataset import variable_table, variable_values
from ..runs.status import DONE, FAILED

if TYPE_CHECKING:
    from ..execute.unit_arrays import UnitArrays
    from .store import SweepStore

CONTENT = "content"  # a unit's share, in its line of the journal
_FEW_RUNS = 1024  # of a unit whose variables are taken in together
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class RunDigests:
    """The numbers of some runs, while their values are taken in, a variable at a time.

    Parameters
    ----------
    cells : ndarray of int64
        Ids.
    seeds : ndarray of uint64
    """

    def __init__(self, cells: np.ndarray, seeds: np.ndarray) -> None:
        self.numbers = _mixed(_mixed(cells.astype(np.uint64))[:, None] ^ seeds[None, :])
        self._counted = np.zeros(self.numbers.shape, bool)

    def take(self, name: str, values: np.ndarray) -> None:
        """Take in a variable's values: (cells, seeds), or (cells, seeds, bins)."""
        bits = values.view(np.uint64) if values.dtype.itemsize == 8 else values.astype(np.uint64)
        if values.ndim == 3:
            bits = ((bits ^ (bits >> np.uint64(32))) * _factors(values.shape[2])).sum(
                axis=-1, dtype=np.uint64
            )
        elif name.endswith("status"):
            self._counted = (values == DONE) | (values == FAILED)
        bits = bits ^ (bits >> np.uint64(32))  # lest two changes of a sign cancel
        bits *= _factor_of(name)
        self.numbers += bits

    def take_small(self, values: Mapping[str, np.ndarray]) -> None:
        """Take in variables of 8 bytes a run, (cells, seeds) each, in one go: for units of few runs."""
        names = list(values)
        bits = np.array([values[name].view(np.uint64) for name in names])
        bits ^= bits >> np.uint64(32)
        bits *= _factors_of(tuple(names))
        self.numbers += bits.sum(axis=0, dtype=np.uint64)

    def share(self, counted: np.ndarray | None = None) -> int:
        """Sum the runs that were done or failed (of those, if given, that count)."""
        mask = self._counted if counted is None else self._counted & counted
        return int(_mixed(self.numbers[mask]).sum(dtype=np.uint64))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Scatter the bits of each number (the last steps of SplitMix64)."""
    numbers = numbers ^ (numbers >> np.uint64(30))
    numbers *= _FIRST
    numbers ^= numbers >> np.uint64(27)
    numbers *= _SECOND
    numbers ^= numbers >> np.uint64(31)
    return numbers


@cache
def _factors(count: int) -> np.ndarray:
    return _mixed(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


@cache
def _factor_of(name: str) -> np.uint64:
    """Return a variable's odd factor: so a value that stands under another name counts otherwise."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") | 1)


@cache
def _factors_of(names: tuple[str, ...]) -> np.ndarray:
    return np.array([_factor_of(name) for name in names])[:, None, None]


def content_text(total: int) -> str:
    """Write a digest, or a unit's share of it, in sixteen letters.

    Examples
    --------
    >>> content_text(255)
    '00000000000000ff'
    """
    return f"{total % 2**64:016x}"


def unit_share(part: Part, cells: np.ndarray, seeds: np.ndarray, arrays: UnitArrays) -> RunDigests:
    """Take in all values of a unit's runs, in the order of the variables."""
    digests = RunDigests(part.cell_ids.reshape(-1)[cells], seeds)
    values = variable_values(part, arrays, digests.numbers.shape)
    small = {}
    if digests.numbers.size <= _FEW_RUNS:
        small = {
            name: array for name, array in values.items() if array.ndim == 2 and array.dtype.itemsize == 8
        }
        digests.take_small(small)
    for name in variable_table(part):
        if name not in small:
            digests.take(name, np.ascontiguousarray(values[name]))
    return digests


def store_content(store: SweepStore, *, read_all: bool = False) -> str:
    """Return the digest of a store's runs, as far as they are done.

    Parameters
    ----------
    store : SweepStore
    read_all : bool
        Make it from the values and not from the journal; a unit whose line has none is read anyway.

    Raises
    ------
    StoreError
        If a file that is read is not the one that the journal tells of.
    """
    total = 0
    for part in store.parts:
        for unit, record in store.done_units(part):
            told = record.get(CONTENT)
            if read_all or record.get("rewriting") or not isinstance(told, str):
                total += share_on_disk(store, part, unit, record)
            else:
                total += int(told, 16)
    return content_text(total)


def share_on_disk(store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any]) -> int:
    """Make a unit's share from the values on disk, held against its line in the journal.

    Raises
    ------
    StoreError
    """
    start, stop = part.layout.box(unit)[-1]
    arrays = store.read_unit(part, unit, record)
    digests = unit_share(part, part.layout.cells(unit), part.seeds[start:stop], arrays)
    return digests.share(store.done_mask(part, unit, record))
