"""A line through steps by their relative error: no coefficient below 0, what is far off dropped.

The start is the least sum of absolute relative errors, which a minority of bad windows does not move. Then
least squares of relative error over what lies within 3 robust standard deviations of the middle, until no
window comes or goes: 1.4826 times the median absolute deviation, times 1 + 5 / (windows - coefficients) for
few windows (P. J. Rousseeuw, A. M. Leroy, Robust Regression and Outlier Detection, 1987, chapter 5). With
three coefficients or fewer the best set that is not below 0 is found by trying all subsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

_ROUNDS = 50
_CLIP = 3.0
_SIGMA = 1.4826
_LEAST = 1e-4


@dataclass(frozen=True)
class RobustLine:
    """A line and which windows it was fitted to.

    Attributes
    ----------
    coefficients : ndarray of float64
    kept : ndarray of bool
    errors : ndarray of float64
        Told over seen, less 1, of every window.
    """

    coefficients: np.ndarray
    kept: np.ndarray
    errors: np.ndarray


def robust_line(
    columns: np.ndarray,
    seen: np.ndarray,
    weights: np.ndarray | None = None,
    start: np.ndarray | None = None,
) -> RobustLine:
    """Fit ``columns @ coefficients`` to what was seen.

    Parameters
    ----------
    columns : ndarray of float64, shape (windows, coefficients)
    seen : ndarray of float64, shape (windows,)
        Above 0.
    weights : ndarray of float64, optional
        How often each window counts.
    start : ndarray of float64, optional
        Coefficients to begin with, in place of the least sum of absolute errors.

    Examples
    --------
    >>> running = np.arange(1.0, 21.0)
    >>> seen = 0.01 + 0.002 * running
    >>> seen[4] = 1.0
    >>> line = robust_line(np.column_stack([np.ones(20), running]), seen)
    >>> line.coefficients.round(6).tolist(), int(line.kept.sum())
    ([0.01, 0.002], 19)
    """
    relative = columns / seen[:, None]
    size = np.abs(relative).max(axis=0)
    size[size == 0] = 1.0
    relative = relative / size
    often = np.ones(len(seen)) if weights is None else weights
    found = _least_absolute(relative, often) if start is None else start * size
    kept = np.zeros(len(seen), dtype=bool)
    for _ in range(_ROUNDS):
        errors = relative @ found - 1
        inside = _within(errors, often, columns.shape[1])
        if (inside == kept).all():
            break
        kept = inside
        found = _least(relative[kept], often[kept])
    return RobustLine(found / size, kept, relative @ found - 1)


def _least_absolute(relative: np.ndarray, often: np.ndarray) -> np.ndarray:
    """Return the coefficients with the least sum of absolute relative errors, by weights that are renewed."""
    found = _least(relative, often)
    for _ in range(_ROUNDS):
        apart = np.abs(relative @ found - 1)
        again = _least(relative, often / np.maximum(apart, _LEAST))
        if np.allclose(again, found, rtol=1e-7, atol=0):
            break
        found = again
    return found


def _within(errors: np.ndarray, often: np.ndarray, coefficients: int) -> np.ndarray:
    """Return which errors are near the middle of all, their spread widened for few windows."""
    counted = np.repeat(errors, often.astype(np.int64))
    middle = np.median(counted)
    few = 1 + 5 / max(1, len(counted) - coefficients)
    spread = _SIGMA * few * float(np.median(np.abs(counted - middle)))
    found: np.ndarray = np.abs(errors - middle) <= _CLIP * max(spread, 1e-9)
    return found


def _least(relative: np.ndarray, often: np.ndarray) -> np.ndarray:
    """Return the coefficients of at least 0 with the least weighted sum of squared relative errors."""
    gram = relative.T @ (relative * often[:, None])
    side = relative.T @ often
    count = len(side)
    best, least = np.zeros(count), 0.0
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            place = list(chosen)
            part = gram[np.ix_(place, place)]
            try:
                one = np.linalg.solve(part, side[place])
            except np.linalg.LinAlgError:  # columns that are multiples of each other: a smaller set tells all
                continue
            if not (one >= 0).all():
                continue
            loss = float(one @ part @ one - 2 * side[place] @ one)
            if loss < least - 1e-15 * abs(least):
                best = np.zeros(count)
                best[place] = one
                least = loss
    return best


def drawn_lines(columns: np.ndarray, seen: np.ndarray, *, draws: int = 300, seed: int = 0) -> np.ndarray:
    """Return coefficients fitted to windows drawn again, in blocks, since neighbours share their errors.

    Blocks are of ``ceil(windows ** (1/3))`` windows (P. Hall, J. L. Horowitz, B.-Y. Jing, Biometrika 82
    (1995) 561-574), taken around the end.

    Returns
    -------
    ndarray of float64, shape (draws, coefficients)
    """
    rng = np.random.default_rng(seed)
    start = robust_line(columns, seen).coefficients
    count = len(seen)
    length = int(np.ceil(count ** (1 / 3)))
    blocks = -(-count // length)
    found = np.empty((draws, columns.shape[1]))
    for draw in range(draws):
        starts = rng.integers(0, count, blocks)
        places = ((starts[:, None] + np.arange(length)) % count).ravel()[:count]
        often = np.bincount(places, minlength=count).astype(np.float64)
        there = often > 0
        found[draw] = robust_line(columns[there], seen[there], often[there], start).coefficients
    return found
