"""How a sweep is cut into units of work, as pure functions: a unit is one chunk of every array.

A layout is a regular grid of chunks over (axes…, seed). A unit is named by its place in that grid,
``1.0.3``, so its name and its runs stay what they are when values are added at the end of an axis or seeds
at the end of the seeds. Seeds lie together first: all cells of a seed share its draws, so a unit takes
whole columns of cells where it can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Box = tuple[tuple[int, int], ...]

SHORT_UNIT_RUNS = 40_000  # with it, 25 metrics of a million runs are written in under a second
MOST_UNIT_RUNS = 100_000
UNIT_SECONDS = 2.0  # a unit of longer runs: about what may be lost by a kill, per thread
EVENT_SECONDS = 60e-9  # order of magnitude of one event on one core
SHARED_SEEDS = 16  # seeds of a unit, at least, where all cells do not fit


@dataclass(frozen=True)
class Layout:
    """A regular grid of chunks over (axes…, seed).

    Parameters
    ----------
    shape : tuple of int
        Cells along each axis, then seeds.
    chunks : tuple of int
        The same for one unit; a unit at an edge is smaller.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        """How many units lie along each dimension."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks))

    @property
    def count(self) -> int:
        """The number of units."""
        return math.prod(self.grid)

    def units(self) -> Iterator[tuple[int, ...]]:
        """Return every unit's place in the grid, in order."""
        return itertools.product(*(range(count) for count in self.grid))

    def box(self, unit: Sequence[int]) -> Box:
        """Return where a unit starts and stops along each dimension."""
        return tuple(
            (index * chunk, min((index + 1) * chunk, size))
            for index, chunk, size in zip(unit, self.chunks, self.shape)
        )

    def cells(self, unit: Sequence[int]) -> np.ndarray:
        """Return a unit's cells, counted along the whole design, in order (int64)."""
        return box_cells(self.box(unit)[:-1], self.shape[:-1])


def box_shape(box: Box) -> tuple[int, ...]:
    """Return how many runs a box holds along each dimension."""
    return tuple(stop - start for start, stop in box)


def box_cells(box: Box, shape: Sequence[int]) -> np.ndarray:
    """Return the cells of a box over the axes, counted along a design of this shape.

    Examples
    --------
    >>> box_cells(((0, 2), (1, 3)), (2, 3)).tolist()
    [1, 2, 4, 5]
    """
    places = np.zeros(1, np.int64)
    for (start, stop), size in zip(box, shape):
        places = (places[:, None] * size + np.arange(start, stop)).reshape(-1)
    return places


def intersection(a: Box, b: Box) -> Box | None:
    """Return the runs that two boxes share, None if there are none."""
    shared = tuple((max(x[0], y[0]), min(x[1], y[1])) for x, y in zip(a, b))
    return shared if all(start < stop for start, stop in shared) else None


def unit_name(unit: Sequence[int]) -> str:
    """Name a unit by its place, as ``1.0.3``."""
    return ".".join(str(index) for index in unit)


def unit_of_name(name: str) -> tuple[int, ...]:
    """Read a unit's place from its name.

    Examples
    --------
    >>> unit_of_name("1.0.3")
    (1, 0, 3)
    """
    return tuple(int(part) for part in name.split("."))


def default_unit_runs(run_seconds: float) -> int:
    """Choose how many runs a unit has, from a guess of one run's seconds.

    Examples
    --------
    >>> default_unit_runs(2e-5), default_unit_runs(1e-3)
    (100000, 2000)
    """
    if run_seconds <= UNIT_SECONDS / SHORT_UNIT_RUNS:
        return MOST_UNIT_RUNS
    return max(1, min(int(UNIT_SECONDS / run_seconds), MOST_UNIT_RUNS))


def choose_chunks(cell_shape: Sequence[int], seeds: int, unit_runs: int) -> tuple[int, ...]:
    """Choose the shape of a unit with about `unit_runs` runs.

    Parameters
    ----------
    cell_shape : sequence of int
        Cells along each axis.
    seeds : int
    unit_runs : int
        At least 1.

    Returns
    -------
    tuple of int
        Chunk lengths of the axes, then of the seeds.

    Examples
    --------
    >>> choose_chunks((3, 5, 4), 1000, 6000)
    (3, 5, 4, 100)
    >>> choose_chunks((50, 1000), 100, 40_000)
    (2, 1000, 20)
    """
    cells = math.prod(cell_shape)
    if cells <= unit_runs:
        return (*cell_shape, max(1, min(seeds, unit_runs // cells)))
    seed_chunk = max(1, min(seeds, SHARED_SEEDS, unit_runs))
    room = max(1, unit_runs // seed_chunk)
    chunks: list[int] = []
    for size in reversed(cell_shape):
        chunks.append(min(size, room))
        room = max(1, room // size)
    # The last seeds' unit may as well take what is left of the room.
    taken = math.prod(chunks)
    return (*reversed(chunks), max(1, min(seeds, unit_runs // taken)))


def rectangles(todo: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cut runs still to do into (cells, seeds) rectangles: cells with the same missing seeds go together.

    Parameters
    ----------
    todo : ndarray of bool, (cells, seeds)

    Returns
    -------
    list of (ndarray, ndarray)
        Indices of cells and of seeds.

    Examples
    --------
    >>> [(a.tolist(), b.tolist()) for a, b in rectangles(np.array([[0, 1], [1, 1], [0, 1]], bool))]
    [([0, 2], [1]), ([1], [0, 1])]
    """
    if todo.all():
        return [(np.arange(todo.shape[0]), np.arange(todo.shape[1]))] if todo.size else []
    groups: dict[bytes, list[int]] = {}
    for cell, row in enumerate(todo):
        if row.any():
            groups.setdefault(row.tobytes(), []).append(cell)
    return [(np.array(cells), np.flatnonzero(todo[cells[0]])) for cells in groups.values()]


def tiles(cells: int, seeds: int, block_runs: int) -> tuple[int, int]:
    """Choose how many cells and seeds one block of a rectangle takes: all cells if they fit.

    Examples
    --------
    >>> tiles(60, 1000, 600), tiles(5000, 10, 1000)
    ((60, 10), (100, 10))
    """
    if cells <= block_runs:
        return cells, max(1, min(seeds, block_runs // cells))
    seed_tile = min(seeds, SHARED_SEEDS, block_runs)
    return max(1, block_runs // seed_tile), seed_tile
