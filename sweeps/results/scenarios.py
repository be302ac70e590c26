"""Scenarios: what nobody chooses, such as the law of the lengths or the drift, told from what is chosen.

A *scenario* axis is one that nobody chooses; the other axes make the *settings* to choose from. A setting is
judged within each scenario: that it is fast under short responses says nothing of another under long ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...kernels.errors import ConfigError, nearest
from ..checks import texts_of
from .cells import axis_names

if TYPE_CHECKING:
    import xarray

SCENARIO_FIELDS = (
    "response_length", "environment_seconds", "drift_per_version", "drift", "trainer_mtbf_seconds",
    "worker_mtbf_seconds",
)  # fmt: skip


def scenario_axes(ds: xarray.Dataset, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Name the axes that nobody chooses: those asked for, or the usual ones.

    Raises
    ------
    ConfigError
        For an unknown axis.
    """
    axes = axis_names(ds)
    if asked is None:
        return tuple(name for name in axes if name in SCENARIO_FIELDS)
    asked = texts_of("scenarios", asked, "Name axes of the sweep.")
    for name in asked:
        if name not in axes:
            hint = nearest(name, axes) or f"Axes: {', '.join(axes)}."
            raise ConfigError("scenarios", "must name axes of the sweep", name, hint)
    return tuple(name for name in axes if name in asked)


def numbered(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Number the distinct rows of some columns by first appearance.

    Examples
    --------
    >>> numbered([np.array([0.2, 0.1, 0.2]), np.array(["a", "a", "a"])], 3).tolist()
    [0, 1, 0]
    >>> numbered([], 2).tolist()
    [0, 0]
    """
    if not columns:
        return np.zeros(count, np.int64)
    codes = np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns], axis=1)
    _, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    order = np.empty(len(first), np.int64)
    order[np.argsort(first, kind="stable")] = np.arange(len(first))
    return order[inverse.reshape(-1)]


def rows_by_number(numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the rows that have each number below `count`, rising.

    Examples
    --------
    >>> [rows.tolist() for rows in rows_by_number(np.array([1, 0, 1]), 2)]
    [[1], [0, 2]]
    """
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.searchsorted(numbers[order], np.arange(1, count)))


class Scenarios(NamedTuple):
    """The scenarios of a sweep's cells.

    Attributes
    ----------
    axes : tuple of str
        Those that nobody chooses; none where all cells lie in one scenario.
    values : tuple of dict
        Of these axes, one for each scenario, by first appearance.
    numbers : ndarray of int64, shape (cells,)
        Each cell's scenario.
    """

    axes: tuple[str, ...]
    values: tuple[dict[str, Any], ...]
    numbers: np.ndarray

    def rows(self) -> list[np.ndarray]:
        """Return the rows of the cells of each scenario, rising."""
        return rows_by_number(self.numbers, len(self.values))

    @property
    def compare(self) -> bool:
        """Whether some scenario holds several settings, so that there is something to compare within it."""
        return bool(self.axes) and int(np.bincount(self.numbers).max(initial=0)) > 1


def scenarios_of(columns: Mapping[str, np.ndarray], axes: Sequence[str], count: int) -> Scenarios:
    """Tell the scenarios of cells apart.

    Parameters
    ----------
    columns : mapping of str to ndarray, shape (cells,)
        The value of each axis.
    axes : sequence of str
        Those that nobody chooses.
    count : int
        Cells.

    Examples
    --------
    >>> drift = {"drift_per_version": np.array([0.1, 0.3, 0.1, 0.3])}
    >>> found = scenarios_of(drift, ["drift_per_version"], 4)
    >>> [rows.tolist() for rows in found.rows()], found.values[1]
    ([[0, 2], [1, 3]], {'drift_per_version': 0.3})
    """
    numbers = numbered([columns[name] for name in axes], count)
    _, first = np.unique(numbers, return_index=True)
    if len(first) < 2:
        return Scenarios((), ({},), numbers)
    values = tuple({name: columns[name][row].item() for name in axes} for row in first)
    return Scenarios(tuple(axes), values, numbers)
