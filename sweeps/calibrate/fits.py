"""One fitted number with its interval and the rows it came from; block bootstrap; least squares above zero.

Steps that follow each other are alike, so whole blocks of them are drawn again (circular block bootstrap,
Politis and Romano, in "Exploring the Limits of Bootstrap", 1992). Every draw is seeded: the same log gives
the same intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np

DRAWS = 400
SHARE = 0.95  # of every interval
_MOST_DEVIATIONS = 5.0  # of the median absolute one: what lies further off does not decide a slope


@dataclass(frozen=True)
class Fit:
    """One fitted number.

    Attributes
    ----------
    name : str
        What it is, in plain words.
    value, low, high : float
        Its value and the ends of its interval.
    unit : str
    rows : int
        Steps that it was fitted on.
    how : str
        How it was found.
    open : bool
        The data give a range and no value: the interval is what they leave possible, `value` is only what
        the configuration takes.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    rows: int
    how: str
    open: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "unit": self.unit,
            "rows": self.rows,
            "how": self.how,
            "open": self.open,
        }

    def scaled(self, factor: float) -> Fit:
        """Return the same fit in another unit."""
        return Fit(
            self.name,
            self.value * factor,
            self.low * factor,
            self.high * factor,
            self.unit,
            self.rows,
            self.how,
            self.open,
        )


def block_draws(rows: int, *, seed: int = 0, draws: int = DRAWS) -> np.ndarray:
    """Draw the rows of bootstrap samples, in blocks of neighbours.

    Parameters
    ----------
    rows : int
    seed, draws : int

    Returns
    -------
    ndarray of int64, shape (draws, rows)
        Places of rows; blocks have about the cube root of the rows, twice.

    Examples
    --------
    >>> block_draws(6, draws=1).shape
    (1, 6)
    """
    length = _block_length(rows)
    blocks = -(-rows // length)
    starts = np.random.default_rng(seed).integers(0, rows, size=(draws, blocks, 1))
    places = (starts + np.arange(length)) % rows
    found: np.ndarray = places.reshape(draws, blocks * length)[:, :rows]
    return found


def _block_length(rows: int) -> int:
    return max(1, min(rows, round(2 * rows ** (1 / 3))))


def ends(values: np.ndarray, share: float = SHARE, *, rows: int | None = None) -> tuple[float, float]:
    """Return the ends of the middle share of bootstrap values.

    Parameters
    ----------
    values : ndarray of float64
    share : float
    rows : int, optional
        How many steps the samples are of. A few blocks spread less than what they stand for: the ends are
        moved out as Student's law is wider than the normal one, for as many blocks. What is below 0 in no
        sample is not moved below it.

    Examples
    --------
    >>> ends(np.arange(101.0), 0.5)
    (25.0, 75.0)
    >>> ends(np.arange(101.0), rows=20)[0]
    0.0
    """
    tail = 50 * (1 - share)
    low, middle, high = np.percentile(values, (tail, 50, 100 - tail))
    if rows is None:
        return float(low), float(high)
    wider = _wider(max(3, rows // _block_length(rows)), share)
    first, last = float(middle - wider * (middle - low)), float(middle + wider * (high - middle))
    return (max(0.0, first) if (values >= 0).all() else first), last


@cache
def _wider(blocks: int, share: float) -> float:
    from scipy.special import ndtri, stdtrit

    tail = 0.5 + share / 2
    return float(stdtrit(blocks - 1, tail) / ndtri(tail) * math.sqrt(blocks / (blocks - 1)))


def mean_fit(name: str, values: np.ndarray, unit: str, how: str, *, seed: int = 0) -> Fit:
    """Fit a mean over steps.

    Parameters
    ----------
    name : str
    values : ndarray of float64, shape (steps,)
        In the order of the steps; NaN are left out.
    unit, how : str
    seed : int

    Examples
    --------
    >>> fit = mean_fit("publication", np.array([2.0, 2.0, 2.0]), "s", "mean")
    >>> fit.value, fit.low, fit.high, fit.rows
    (2.0, 2.0, 2.0, 3)
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return Fit(name, np.nan, np.nan, np.nan, unit, 0, how, open=True)
    low, high = ends(known[block_draws(len(known), seed=seed)].mean(axis=1), rows=len(known))
    return Fit(name, float(known.mean()), low, high, unit, len(known), how)


def above_zero(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve least squares with coefficients of at least 0, for many samples at once.

    Every set of columns is tried and the best one whose coefficients are all positive is kept: exact, and
    quick for the two or three columns that a fit has (the active sets of Lawson and Hanson, "Solving Least
    Squares Problems", 1974, chapter 23, in full).

    Parameters
    ----------
    columns : ndarray of float64, shape (samples, rows, coefficients)
    target : ndarray of float64, shape (samples, rows)

    Returns
    -------
    ndarray of float64, shape (samples, coefficients)

    Examples
    --------
    >>> x = np.array([[[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]])
    >>> above_zero(x, np.array([[3.0, 5.0, 7.0]])).round(6).tolist()
    [[1.0, 2.0]]
    >>> above_zero(x, np.array([[7.0, 5.0, 3.0]])).round(6).tolist()
    [[5.0, 0.0]]
    """
    scale = np.abs(columns).max(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    columns = columns / scale
    gram = np.einsum("snp,snq->spq", columns, columns)
    right = np.einsum("snp,sn->sp", columns, target)
    samples, _, count = columns.shape
    best = np.zeros((samples, count))
    gain = np.zeros(samples)  # how much the squares fall against all zeros
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            place = np.ix_(range(samples), chosen, chosen)
            tiny = 1e-12 * np.eye(size)
            found = np.linalg.solve(gram[place] + tiny, right[:, list(chosen)][..., None])[..., 0]
            gained = np.einsum("sp,sp->s", found, right[:, list(chosen)])
            better = (found >= 0).all(axis=1) & (gained > gain * (1 + 1e-12))
            gain = np.where(better, gained, gain)
            whole = np.zeros((samples, count))
            whole[:, list(chosen)] = found
            best = np.where(better[:, None], whole, best)
    return best / scale


def inliers(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Tell which rows may decide slopes: those within five median absolute deviations of a first fit.

    Parameters
    ----------
    columns : ndarray of float64, shape (rows, coefficients)
    target : ndarray of float64, shape (rows,)

    Returns
    -------
    ndarray of bool, shape (rows,)
    """
    kept = np.ones(len(target), dtype=bool)
    for _ in range(3):
        found = above_zero(columns[None, kept], target[None, kept])[0]
        off = target - columns @ found
        middle = np.median(off[kept])
        spread = 1.4826 * np.median(np.abs(off[kept] - middle))
        again = np.abs(off - middle) <= _MOST_DEVIATIONS * spread + 1e-9
        if again.sum() < max(5, len(target) // 2) or (again == kept).all():
            break
        kept = again
    return kept


def fit_rows(fits: Sequence[Fit]) -> list[dict[str, object]]:
    """Return fits as rows of a frame."""
    return [one.as_dict() for one in fits]
