"""Means with Student intervals (Student, "The probable error of a mean", Biometrika 6, 1908)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ._arguments import one_number
from .errors import ConfigError


def mean_interval(
    values: NDArray[np.float64], confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average the last axis and give the half width of the Student interval of the mean.

    Parameters
    ----------
    values : ndarray of float64
        NaN are left out.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    mean, half_width : ndarray
        NaN where there is nothing to average; the half width also where there is one value alone.

    Examples
    --------
    >>> mean, half = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)
    (2.0, 2.484)
    """
    return student(values, _probability(confidence))


def _probability(confidence: float) -> float:
    """Return the probability of the quantile that an interval of this confidence, on both sides, needs."""
    share = one_number("confidence", confidence, above=0.0, maximum=1.0, way_out="Give 0.95.")
    if share == 1:
        raise ConfigError("confidence", "must be below 1", confidence, "Give 0.95.")
    return 0.5 + share / 2


def student(
    values: NDArray[np.float64], probability: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average the last axis, and multiply the standard error of the mean by a quantile of Student's law.

    Parameters
    ----------
    values : ndarray of float64
        NaN are left out.
    probability : float
        Of the quantile: for an interval of 95 % on both sides 0.975, on one side 0.95.

    Returns
    -------
    mean, half_width : ndarray
        NaN where there is nothing to average; the half width also where there is one value alone.
    """
    values = np.asarray(values, np.float64)
    count = np.sum(~np.isnan(values), axis=-1)
    mean = _over(np.nansum(values, axis=-1), count)
    square = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    return mean, _half_width(count, square, probability)


def intervals_of_pieces(
    pieces: Callable[[], Iterable[NDArray[np.float64]]], confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average a table that comes in pieces, along its first axis, as :func:`mean_interval` would the whole.

    The rows are added one after the other, as NumPy adds the rows of a whole table, so the figures of a table
    of two columns or more are the same to the last bit however it is cut. Only one piece is held at a time.

    Parameters
    ----------
    pieces : callable
        Gives the pieces from the first on, each ndarray of float64, shape (rows, …); NaN are left out. It is
        called twice: for the means, and for the spread around them.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    mean, half_width : ndarray, shape (…)
        NaN where there is nothing to average; the half width also where there is one value alone.

    Raises
    ------
    ConfigError
        For a confidence outside (0, 1), or when there is no piece.

    Examples
    --------
    >>> table = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0]])
    >>> mean, half = intervals_of_pieces(lambda: [table[:1], table[1:]])
    >>> mean.tolist(), half.round(3).tolist()
    ([2.0, 6.0], [2.484, 12.706])
    """
    probability = _probability(confidence)
    count = total = square = None
    for piece in pieces():
        empty = np.isnan(piece)
        own = np.sum(~empty, axis=0)
        count = own if count is None else count + own
        total = _rows_added(np.where(empty, 0.0, piece), total)
    if count is None or total is None:
        raise ConfigError("pieces", "must have at least one piece", 0, "Give a table of no rows as one.")
    mean = _over(total, count)
    for piece in pieces():
        apart = piece - mean
        np.multiply(apart, apart, out=apart)
        square = _rows_added(np.where(np.isnan(apart), 0.0, apart), square)
    assert square is not None  # the pieces are the same again
    return mean, _half_width(count, square, probability)


def _rows_added(rows: NDArray[np.float64], before: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Add rows, one after the other, to what was added before; the first row may be written over."""
    if before is not None:
        if not len(rows):
            return before
        rows[0] += before
    # In this layout rows are added whole, one by one; else, and with one column, NumPy adds by halves.
    added: NDArray[np.float64] = np.add.reduce(np.ascontiguousarray(rows), axis=0)
    return added


def _over(total: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _half_width(
    count: NDArray[np.int64], square: NDArray[np.float64], probability: float
) -> NDArray[np.float64]:
    """Return the half width of the interval of a mean, from the sum of the squares around it."""
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without a second of imports

    variance = np.divide(square, count - 1, out=np.full(square.shape, np.nan), where=count > 1)
    half: NDArray[np.float64] = stdtrit(np.maximum(count - 1, 1), probability) * np.sqrt(
        variance / np.maximum(count, 1)
    )
    return half
