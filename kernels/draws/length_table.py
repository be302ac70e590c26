"""Length laws as integer tables: built, checked, mixed and summarised with NumPy alone.

A length law is a discrete law over the whole tokens ``minimum`` … ``minimum + n - 1``, held as a
non-decreasing float64 table ``cdf`` of n entries: ``cdf[k - minimum]`` is the probability of at most ``k``
tokens, and ``cdf[-1]`` is 1. The length for a uniform ``u`` in [0, 1) is
``minimum + searchsorted(cdf, u, side="right")``; equal tables give equal integers on every machine.
:mod:`.draws.sampler` holds the compiled sampler; this module loads no Numba, so that a
configuration can be made and checked without it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._arguments import is_whole, raw_array
from ..errors import ConfigError

# Eight cells for each entry leave one cell in eight to search, so the branch is predicted well: measured
# 3.4 ns a draw for 2,048 entries, 10 ns with one cell each. Above 2**16 cells the cache costs more than
# it saves.
_CELLS_PER_ENTRY = 8
_LARGEST_GUIDE = 2**16
# A table's bound, in entries: 128 MiB of float64. Longer responses are not simulated token by token.
LARGEST_TABLE = 2**24


class LengthTable(NamedTuple):
    """A length law as the sampler wants it.

    Attributes
    ----------
    minimum : int
        The length of the table's first entry, at least 1.
    cdf : ndarray of float64, shape (n,)
        Probability of at most ``minimum + i`` tokens; non-decreasing, ends with 1.
    guide : ndarray of int64, shape (2**p + 1,)
        Where to look: see :func:`guide_table`.
    """

    minimum: int
    cdf: np.ndarray
    guide: np.ndarray


class LawMoments(NamedTuple):
    """What a table says about its law, in tokens."""

    mean: float
    variance: float
    smallest: int
    largest: int


def table_from_cdf_values(values: Any) -> np.ndarray:
    """Turn values of a continuous distribution function at ``k + 0.5`` into a table's ``cdf``.

    A running maximum removes a decrease by rounding, the last entry becomes 1: what lies outside is clipped
    into the ends.

    Parameters
    ----------
    values : array_like of float
        ``F(k + 0.5)`` for k = minimum … maximum.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    ConfigError
        If there is no value, or one is not a number.

    Examples
    --------
    >>> table_from_cdf_values([0.25, 0.5, 0.75]).tolist()
    [0.25, 0.5, 1.0]
    """
    cdf = np.array(values, dtype=np.float64)
    if cdf.ndim != 1 or cdf.size == 0:
        raise ConfigError(
            "cdf", "must be one row of at least one value", cdf.shape, "Give F(k + 0.5) for each k."
        )
    if np.isnan(cdf).any():
        raise ConfigError(
            "cdf", "must hold numbers only", math.nan, "Check the parameters of the distribution."
        )
    cdf = np.clip(np.maximum.accumulate(cdf), 0.0, 1.0)
    cdf[-1] = 1.0
    return cdf


def table_from_counts(counts: Any) -> np.ndarray:
    """Turn how often each length was seen into a table's ``cdf``: exact counts over their total.

    Parameters
    ----------
    counts : array_like of int
        How often minimum, minimum + 1, … were seen; at least one is positive.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    ConfigError
        If the counts are not whole, negative or all 0.

    Examples
    --------
    >>> table_from_counts([1, 0, 3]).tolist()
    [0.25, 0.25, 1.0]
    """
    array = np.asarray(counts)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise ConfigError(
            "counts", "must be one row of whole numbers", counts, "Give one count for each length."
        )
    total = int(array.sum())
    if int(array.min()) < 0 or not 0 < total < 2**53:
        raise ConfigError(
            "counts", "must be 0 or more, with a positive sum", counts, "Count each length once or more."
        )
    return np.cumsum(array, dtype=np.int64) / total


def mix_tables(parts: Sequence[tuple[float, int, np.ndarray]]) -> tuple[int, np.ndarray]:
    """Mix laws: a draw comes from each part with the probability of its weight.

    Parameters
    ----------
    parts : sequence of (weight, minimum, cdf)
        Weights are positive; they are divided by their sum.

    Returns
    -------
    (int, ndarray of float64)
        The mixture's minimum and ``cdf``.

    Raises
    ------
    ConfigError
        If there is no part or a weight is not positive and finite.

    Examples
    --------
    >>> mix_tables([(1, 2, np.array([1.0])), (3, 4, np.array([1.0]))])
    (2, array([0.25, 0.25, 1.  ]))
    """
    weights = [float(weight) for weight, _, _ in parts]
    if not weights or not all(weight > 0 and math.isfinite(weight) for weight in weights):
        raise ConfigError(
            "parts", "must have positive, finite weights", weights, "Leave out parts of weight 0."
        )
    minimum = min(low for _, low, _ in parts)
    size = max(low + cdf.size for _, low, cdf in parts) - minimum
    total = math.fsum(weights)
    mixed = np.zeros(size)
    for weight, (_, low, cdf) in zip(weights, parts, strict=True):
        first = low - minimum
        mixed[first : first + cdf.size] += weight / total * cdf
        mixed[first + cdf.size :] += weight / total
    return minimum, table_from_cdf_values(mixed)


def check_table(minimum: int, cdf: Any) -> np.ndarray:
    """Check a table from outside and give its ``cdf`` as contiguous float64.

    Raises
    ------
    ConfigError
        If ``minimum`` is below 1, or ``cdf`` is empty, too long, decreasing, outside [0, 1], or does not end
        with 1.

    Examples
    --------
    >>> check_table(5, [0.5, 1.0]).tolist()
    [0.5, 1.0]
    """
    if is_whole(minimum) and minimum > 2**52:
        raise ConfigError("minimum", "must be at most 2**52", minimum, "Give the law in tokens.")
    if not is_whole(minimum) or minimum < 1:
        raise ConfigError(
            "minimum",
            "must be a whole number of at least 1",
            minimum,
            "A response has a token.",
        )
    array = np.ascontiguousarray(raw_array("cdf", cdf), dtype=np.float64)
    if array.ndim != 1 or not 1 <= array.size <= LARGEST_TABLE:
        raise ConfigError(
            "cdf", f"must be one row of 1 to {LARGEST_TABLE} values", array.shape, "Shorten the law."
        )
    inside = bool((array >= 0.0).all() and (array <= 1.0).all())
    if not inside or (np.diff(array) < 0.0).any() or array[-1] != 1.0:
        raise ConfigError(
            "cdf", "must grow from 0 or more to exactly 1", array, "Build it with table_from_cdf_values."
        )
    return array


def guide_table(cdf: np.ndarray) -> np.ndarray:
    """Build the guide that makes a draw take constant time on average (Chen and Asau, 1974).

    [0, 1) is cut into 2**p cells. ``guide[j]`` is the answer at the left end of cell j and ``guide[j + 1]``
    bounds the answer inside it, so that few entries are left to compare, mostly none. A power of two keeps
    ``u * 2**p`` exact, and with it the cell.

    Parameters
    ----------
    cdf : ndarray of float64
        A checked table.

    Returns
    -------
    ndarray of int64, shape (2**p + 1,)

    Examples
    --------
    >>> guide_table(np.array([0.5, 1.0])).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    cells = min(_CELLS_PER_ENTRY << (cdf.size - 1).bit_length(), _LARGEST_GUIDE) if cdf.size > 1 else 1
    guide = np.empty(cells + 1, dtype=np.int64)
    guide[:-1] = np.searchsorted(cdf, np.arange(cells) / cells, side="right")
    guide[-1] = np.searchsorted(cdf, 1.0, side="left")
    return guide


def table_digest(minimum: int, cdf: np.ndarray) -> str:
    """Digest a table: SHA-256 of its minimum (int64) and its ``cdf`` (float64), both little-endian.

    Examples
    --------
    >>> table_digest(1, np.array([1.0]))[:8]
    'deba79ae'
    """
    digest = hashlib.sha256(int(minimum).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(cdf, dtype="<f8").tobytes())
    return digest.hexdigest()


def law_moments(minimum: int, cdf: np.ndarray) -> LawMoments:
    """Return mean and variance of a law, and the smallest and largest length it can really give.

    The mean is ``sum(k * p[k])`` with ``p`` the differences of the table, summed without rounding error.

    Examples
    --------
    >>> law_moments(10, np.array([0.5, 0.5, 1.0, 1.0]))
    LawMoments(mean=11.0, variance=1.0, smallest=10, largest=12)
    """
    probability = np.diff(cdf, prepend=0.0)
    possible = np.flatnonzero(probability)
    offsets = possible.astype(np.float64)
    share = probability[possible]
    mean = math.fsum(offsets * share)
    variance = math.fsum((offsets - mean) ** 2 * share)
    return LawMoments(
        mean=minimum + mean,
        variance=variance,
        smallest=minimum + int(possible[0]),
        largest=minimum + int(possible[-1]),
    )
