"""The best of several candidates by paired differences, with a stated probability (Kim and Nelson).

Every candidate is run with the same seeds. After ``n0`` values of each, the variance of every paired
difference is estimated once; from then on one more value of each candidate left is looked at a time, and a
candidate goes as soon as another one leads it by more than what chance still allows::

    eta     = ((2 alpha / (k - 1)) ** (-2 / (n0 - 1)) - 1) / 2
    h2      = 2 eta (n0 - 1)
    W_il(r) = max(0, delta / (2 r) (h2 S2_il / delta^2 - r))
    i goes  when  mean_i(r) < mean_l(r) - W_il(r)  for some l that is left
    end     when one is left, or when r passes  max h2 S2_il / delta^2

with ``k`` candidates, the error ``alpha`` and the indifference ``delta``, the smallest difference that is
worth detecting (S.-H. Kim and B. L. Nelson, "A fully sequential procedure for indifference-zone selection in
simulation", ACM TOMACS 11, 2001, with c = 1). Alpha is shared out by Bonferroni's rule, so values of one seed
may depend on each other; common random numbers only make the differences less variable, and the procedure
shorter.

The proof asks for values that are normal and independent from seed to seed, and for a best candidate that
leads by at least delta: then that one is chosen with probability 1 - alpha or more. Where several lie within
delta of the best one, any of them may be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import one_number, one_whole, raw_array
from ..errors import ConfigError

FIRST_VALUES = 20  # before the variances are estimated; Kim and Nelson advise 10 to 20
LEFT = -1
MOST_VALUES = 2.0**62  # nobody will look at so many


@dataclass(frozen=True)
class Selection:
    """How far a selection has come.

    Attributes
    ----------
    best : int
        The candidate that leads, of those left.
    decided : bool
        Whether it is chosen with the asked probability; else more values are needed.
    left_out_after : ndarray of int64, shape (candidates,)
        After how many values a candidate went; -1 for one that is left.
    looked_at : int
        How many values of each candidate left have been looked at.
    most_values : int
        After how many values the selection ends at the latest; 0 before the variances are known.
    """

    best: int
    decided: bool
    left_out_after: NDArray[np.int64]
    looked_at: int
    most_values: int

    @property
    def left(self) -> NDArray[np.int64]:
        """The candidates that are left, in order."""
        return np.flatnonzero(self.left_out_after == LEFT)


def select_best(
    values: ArrayLike, indifference: float, confidence: float = 0.95, first_values: int = FIRST_VALUES
) -> Selection:
    """Choose the candidate with the largest mean, as far as the values reach.

    The same values give the same answer, so a selection goes on by calling this again with more of them.

    Parameters
    ----------
    values : array_like of float64, shape (candidates, seeds)
        In the unit of the objective; larger is better. A candidate that has gone needs no further values: NaN
        stand in their place. Column j of all candidates comes from the same seed.
    indifference : float
        In the same unit, above 0: the smallest difference worth detecting.
    confidence : float
        Probability of a right choice, above 1 / candidates and below 1.
    first_values : int
        Values of each candidate before the first look, at least 2.

    Returns
    -------
    Selection

    Raises
    ------
    ConfigError
        For arguments out of range, or a value that is missing while its candidate is left.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> values = np.array([[0.0], [1.0], [0.2]]) + rng.normal(size=(3, 200))
    >>> found = select_best(values, indifference=0.5)
    >>> found.best, found.decided
    (1, True)
    """
    array = _table(values)
    count = array.shape[0]
    delta = one_number("indifference", indifference, above=0.0, way_out="Give 1 % of the best mean.")
    first = one_whole("first_values", first_values, minimum=2, way_out="Give 20.")
    sure = one_number("confidence", confidence, above=1.0 / max(count, 2), maximum=1.0, way_out="Give 0.95.")
    if sure == 1:
        raise ConfigError("confidence", "must be below 1", confidence, "Give 0.95.")
    gone = np.full(count, LEFT, np.int64)
    if count == 1:
        return Selection(0, True, gone, 0, 0)
    if array.shape[1] < first:
        means = _means(array, np.arange(count))
        return Selection(int(np.argmax(means)) if array.shape[1] else 0, False, gone, array.shape[1], 0)
    return _screen(array, delta, 1.0 - sure, first)


def _table(values: ArrayLike) -> NDArray[np.float64]:
    array = raw_array("values", values).astype(np.float64)
    if array.ndim != 2 or not array.shape[0]:
        rule = "must be a table of candidates × seeds"
        raise ConfigError("values", rule, np.shape(array), "Give one row for each candidate.")
    if np.isinf(array).any():
        raise ConfigError("values", "must be finite", np.inf, "Leave such a candidate out.")
    return array


def _means(array: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    found = array[rows]
    return np.asarray(found.mean(axis=1)) if found.shape[1] else np.zeros(len(rows))


def _refuse_gap(block: NDArray[np.float64], rows: NDArray[np.int64], start: int) -> None:
    """Refuse a missing value of a candidate that is left."""
    bad = np.argwhere(np.isnan(block))
    if len(bad):
        row, column = bad[0]
        raise ConfigError(
            f"values[{int(rows[row])}, {start + int(column)}]",
            "must not be missing while its candidate is left",
            float("nan"),
            "Run it, or leave the candidate out.",
        )


def _screen(array: NDArray[np.float64], delta: float, alpha: float, first: int) -> Selection:
    count, seeds = array.shape
    everyone = np.arange(count)
    _refuse_gap(array[:, :first], everyone, 0)
    with np.errstate(over="ignore"):  # a threshold beyond float64 never closes
        eta = (np.float64(2.0 * alpha / (count - 1)) ** (-2.0 / (first - 1)) - 1.0) / 2.0
    # Centred first: differences of large numbers that differ little lose nothing then.
    start = array[:, :first] - array[:, :first].mean(axis=0)
    spread = (start - start.mean(axis=1, keepdims=True)) / delta
    # h2 S2_il / delta^2, the number of values at which a pair's threshold closes
    closes = np.empty((count, count))
    with np.errstate(over="ignore", invalid="ignore"):
        for row in range(count):
            closes[row] = 2.0 * eta * ((spread[row] - spread) ** 2).sum(axis=1)
    closes = np.nan_to_num(closes, nan=0.0, posinf=MOST_VALUES)  # nan: an infinite eta, and no difference
    most = max(first, int(min(np.floor(closes.max()), MOST_VALUES)) + 1)
    gone = np.full(count, LEFT, np.int64)
    left = everyone
    total = array[:, :first].sum(axis=1)
    looked = first
    while True:
        means = total[left] / looked
        width = np.maximum(0.0, delta / (2.0 * looked) * (closes[np.ix_(left, left)] - looked))
        behind = (means[:, None] < means[None, :] - width).any(axis=1)
        if behind.any():
            gone[left[behind]] = looked
            left, means = left[~behind], means[~behind]
        best = int(left[np.argmax(means)])
        if len(left) == 1 or looked >= most:
            return Selection(best, True, gone, looked, most)
        if looked == seeds:
            return Selection(best, False, gone, looked, most)
        column = array[left, looked]
        _refuse_gap(column[:, None], left, looked)
        total[left] += column
        looked += 1
