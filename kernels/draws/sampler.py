"""Sample response lengths from an integer table, exactly and in constant time on average.

The answer is that of ``minimum + numpy.searchsorted(cdf, u, side="right")`` for every table and every u in
[0, 1), ties included; the guide (:func:`.draws.length_table.guide_table`) only shortens the search.

A trace of rows (a measured rollout each) is sampled by row: :func:`pick_row` is the same rule for n equally
likely rows, without a table.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from .._arguments import is_whole, raw_array
from .._jit import jit
from ..errors import ConfigError
from .length_table import (
    LawMoments,
    LengthTable,
    check_table,
    guide_table,
    law_moments,
    mix_tables,
    table_digest,
    table_from_cdf_values,
    table_from_counts,
)

__all__ = [
    "LawMoments",
    "LengthTable",
    "check_table",
    "guide_table",
    "law_moments",
    "make_length_table",
    "member_row",
    "mix_tables",
    "pick_row",
    "sample_length",
    "sample_lengths",
    "sample_rows",
    "table_digest",
    "table_from_cdf_values",
    "table_from_counts",
]


@jit(inline=True)
def sample_length(uniform, minimum, cdf, guide):
    """Return a uniform's (float64) length (int64); ``minimum`` and ``guide`` are int64, ``cdf`` float64."""
    cell = np.int64(uniform * (guide.shape[0] - 1))
    low = guide[cell]
    high = guide[cell + 1]
    while low < high:
        middle = (low + high) >> 1
        if cdf[middle] <= uniform:
            low = middle + 1
        else:
            high = middle
    return minimum + low


@jit(inline=True)
def pick_row(uniform, rows):
    """Pick one of ``rows`` (int64) equally likely rows: the number of i >= 1 with ``i / rows <= uniform``.

    This is ``floor(uniform * rows)`` but for the rounding of that product; so, with rows in the order of
    their tokens, a row's tokens are exactly what the table of all rows' tokens gives for the same uniform.
    """
    row = np.int64(uniform * rows)
    while (row + 1) / rows <= uniform:
        row += 1
    while row / rows > uniform:
        row -= 1
    return row


@jit(inline=True)
def member_row(first_row, member, group_starts, group_of_row):
    """Return the row of a group's member (int64, from 0): member 0 has ``first_row``, the others the next.

    After the group's last row comes its first. ``group_starts`` is int64[groups + 1], ``group_of_row``
    int64[rows], as a grouped law holds them. With ``first_row`` picked by :func:`pick_row` among all rows,
    the row of each member is uniform over all rows.
    """
    group = group_of_row[first_row]
    start = group_starts[group]
    size = group_starts[group + 1] - start
    return start + (first_row - start + member) % size


@jit
def _sample_lengths_kernel(uniforms, minimum, cdf, guide, lengths):
    """Fill ``lengths`` (int64, flat) with the lengths for ``uniforms`` (float64, flat, in [0, 1))."""
    for i in range(uniforms.shape[0]):
        lengths[i] = sample_length(uniforms[i], minimum, cdf, guide)


@jit
def _sample_rows_kernel(uniforms, rows, picked):
    """Fill ``picked`` (int64, flat) with the rows for ``uniforms`` (float64, flat, in [0, 1))."""
    for i in range(uniforms.shape[0]):
        picked[i] = pick_row(uniforms[i], rows)


def make_length_table(minimum: int, cdf: ArrayLike) -> LengthTable:
    """Check a table and add its guide.

    Parameters
    ----------
    minimum : int
        Length of the first entry, at least 1.
    cdf : array_like of float
        Probability of at most minimum, minimum + 1, … tokens; non-decreasing, ends with 1.

    Returns
    -------
    LengthTable

    Raises
    ------
    ConfigError
        If the table breaks a rule.

    Examples
    --------
    >>> table = make_length_table(100, [0.25, 1.0])
    >>> sample_lengths([0.0, 0.25, 0.9], table).tolist()
    [100, 101, 101]
    """
    array = check_table(minimum, cdf)
    return LengthTable(int(minimum), array, guide_table(array))


def _checked_uniforms(uniforms: ArrayLike) -> np.ndarray:
    """Check that all values lie in [0, 1) and give them as contiguous float64."""
    array = raw_array("uniforms", uniforms).astype(np.float64, order="C")
    if not bool(((array >= 0.0) & (array < 1.0)).all()):
        raise ConfigError("uniforms", "must be in [0, 1)", array, "Make them with lagsweep.kernels.uniforms.")
    return array


class Table(Protocol):
    """What lengths are drawn from: a :class:`LengthTable`, or a law."""

    @property
    def minimum(self) -> int:
        """The smallest length."""
        ...

    @property
    def cdf(self) -> np.ndarray:
        """The cumulative probabilities of the lengths from the minimum on."""
        ...

    @property
    def guide(self) -> np.ndarray:
        """Where the search of each uniform begins."""
        ...


def _checked_table(table: Table) -> Table:
    """Check that something has the three parts of a table, in the types that the kernel takes."""
    parts = (getattr(table, "minimum", None), getattr(table, "cdf", None), getattr(table, "guide", None))
    minimum, *arrays = parts
    wanted = zip(arrays, (np.float64, np.int64))
    if not is_whole(minimum) or not all(
        isinstance(part, np.ndarray) and part.ndim == 1 and part.size and part.dtype == dtype
        for part, dtype in wanted
    ):
        raise ConfigError("table", "must be a LengthTable or a law", table, "Make it by make_length_table.")
    return table


def sample_lengths(uniforms: ArrayLike, table: Table) -> np.ndarray:
    """Return the lengths for uniforms: ``minimum + searchsorted(cdf, uniforms, side="right")``.

    Parameters
    ----------
    uniforms : array_like of float
        In [0, 1), any shape.
    table : LengthTable, LengthLaw
        Anything with ``minimum``, ``cdf`` and ``guide``.

    Returns
    -------
    ndarray of int64
        The same shape.

    Raises
    ------
    ConfigError
        If a uniform is outside [0, 1) or not a number.

    Examples
    --------
    >>> sample_lengths([[0.1, 0.6]], make_length_table(7, [0.5, 1.0])).tolist()
    [[7, 8]]
    """
    array = _checked_uniforms(uniforms)
    table = _checked_table(table)
    lengths = np.empty(array.shape, dtype=np.int64)
    _sample_lengths_kernel(
        array.reshape(-1), np.int64(table.minimum), table.cdf, table.guide, lengths.reshape(-1)
    )
    return lengths


def sample_rows(uniforms: ArrayLike, rows: int) -> np.ndarray:
    """Return the rows for uniforms, all ``rows`` being equally likely; see :func:`pick_row`.

    Examples
    --------
    >>> sample_rows([0.0, 0.5, 0.99], 4).tolist()
    [0, 2, 3]
    """
    if not is_whole(rows) or not 1 <= rows < 2**53:
        raise ConfigError("rows", "must be a whole number of at least 1", rows, "Give rows to pick.")
    array = _checked_uniforms(uniforms)
    picked = np.empty(array.shape, dtype=np.int64)
    _sample_rows_kernel(array.reshape(-1), np.int64(rows), picked.reshape(-1))
    return picked
