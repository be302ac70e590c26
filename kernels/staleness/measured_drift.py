"""Drift as it was measured: log ratios by lag as one empirical law each, and what it makes of an ESS.

At a lag with n log ratios ``x`` the weights are ``exp(x - c)``, with ``c = log(mean(exp(x)))``, so that their
mean is 1 (importance weights have that mean, and n of them only nearly). All n are equally likely: the
quantile at u is the log weight numbered ``floor(u * n)`` in rising order. A lag between two measured ones, a
share t of the way, has the quantile ``(1 - t) * q0(u) + t * q1(u)``. The first and second moments of the
weights are sums over the steps of these quantiles; of rollouts with moments ``m1`` and ``m2``

``expected normalized ESS = (sum m1)**2 / (n * sum m2)``,

Kish's rule (Survey Sampling, 1965) for many rollouts of these lags. A normal law of variance ``s**2`` and
mean weight 1 has ``m1 = 1`` and ``m2 = exp(s**2)``: :func:`lagsweep.kernels.expected_normalized_ess`.

The tail of an empirical law ends at its largest value. Where weights are heavy-tailed, so few log ratios miss
what would lower the ESS most: the ESS of a law is then more often too high than too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..intervals import mean_interval

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


class DriftTable(NamedTuple):
    """Log weights of all measured lags, one after another, and what each whole lag makes of them.

    Attributes
    ----------
    values : ndarray of float64, shape (v,)
        Log weights of mean weight 1, rising within each measured lag.
    first_start, first_count, second_start, second_count : ndarray of int64, shape (largest lag + 1,)
        Where the values of the measured lags at or below and at or above each lag are, and how many.
    share : ndarray of float64, shape (largest lag + 1,)
        Of the second in the mixture of quantiles; 0 at a measured lag.
    first_moment, second_moment : ndarray of float64, shape (largest lag + 1,)
        Of the weights.
    """

    values: Reals
    first_start: Wholes
    first_count: Wholes
    second_start: Wholes
    second_count: Wholes
    share: Reals
    first_moment: Reals
    second_moment: Reals


def log_mean_exp(log_ratios: Reals) -> float:
    """Return the logarithm of the mean of ``exp(log_ratios)``, without overflow.

    Examples
    --------
    >>> round(log_mean_exp(np.log([1.0, 3.0])), 12) == round(float(np.log(2.0)), 12)
    True
    """
    largest = float(log_ratios.max())
    return largest + float(np.log(np.mean(np.exp(log_ratios - largest))))


def drift_table(lags: Sequence[int], log_ratios: Sequence[Reals]) -> DriftTable:
    """Build the table of a measured drift.

    Parameters
    ----------
    lags : sequence of int
        The measured lags, rising, 0 or more. Lag 0 is a weight of 1 where it is not among them.
    log_ratios : sequence of ndarray of float64
        Trainer minus behaviour log probability, finite, at least one at each lag.

    Returns
    -------
    DriftTable

    Examples
    --------
    >>> table = drift_table([2], [np.log([0.5, 1.5])])
    >>> table.share.tolist(), table.second_moment.round(3).tolist()
    ([0.0, 0.5, 0.0], [1.0, 1.0, 1.25])
    """
    measured = [int(lag) for lag in lags]
    parts = [np.sort(one) - log_mean_exp(one) for one in log_ratios]
    if measured[0] > 0:
        measured.insert(0, 0)
        parts.insert(0, np.zeros(1))
    counts = np.array([len(one) for one in parts], np.int64)
    starts = np.cumsum(counts) - counts
    wanted = np.arange(measured[-1] + 1)
    first = np.searchsorted(measured, wanted, side="right") - 1
    second = np.searchsorted(measured, wanted, side="left")
    low, high = np.array(measured)[first], np.array(measured)[second]
    share = np.where(high > low, (wanted - low) / np.maximum(high - low, 1), 0.0)
    moments = np.empty((2, len(wanted)))
    for place, one in enumerate(parts):
        at = measured[place]
        # The mean weight of a measured lag is 1 by its shift, whatever rounding leaves of it.
        moments[:, at] = 1.0, np.mean(np.exp(2 * one))
        between = slice(at + 1, measured[place + 1] if place + 1 < len(parts) else at + 1)
        if between.start < between.stop:
            moments[:, between] = _mixed_moments(one, parts[place + 1], share[between])
    return DriftTable(
        np.concatenate(parts), starts[first], counts[first], starts[second], counts[second], share, *moments
    )


def _mixed_moments(low: Reals, high: Reals, shares: Reals) -> Reals:
    """Return first and second moments, shape (2, shares), of weights whose quantiles are mixed."""
    few, many = len(low), len(high)
    # Both quantiles are constant between these; in whole parts of 1 / (few * many), so that none is lost.
    edges = np.union1d(np.arange(few + 1) * many, np.arange(many + 1) * few)
    widths = np.diff(edges) / (few * many)
    below, above = low[edges[:-1] // many], high[edges[:-1] // few]
    weights = [np.exp((1.0 - share) * below + share * above) for share in shares]
    return np.array([[np.sum(widths * w) for w in weights], [np.sum(widths * w * w) for w in weights]])


class JackknifedEss(NamedTuple):
    """The normalized ESS of some log ratios, and the half width of its interval; NaN of a single record."""

    normalized_ess: float
    half_width: float


def jackknifed_ess(log_ratios: Reals, records: Wholes, confidence: float = 0.95) -> JackknifedEss:
    """Return the normalized ESS of log ratios and an interval by leaving out one record at a time.

    With R records, ``e`` the ESS of all and ``e_r`` that without record r, the pseudovalues
    ``R * e - (R - 1) * e_r`` have about the spread of R independent values (J. Tukey, 1958), so their Student
    interval stands for that of the ESS. Tokens of one record move together: whole records are left out.

    Parameters
    ----------
    log_ratios : ndarray of float64, shape (n,)
    records : ndarray of int64, shape (n,)
        Which record each is of.
    confidence : float
        Between 0 and 1.

    Examples
    --------
    >>> found = jackknifed_ess(np.log([0.9, 1.1, 1.0, 1.0]), np.array([0, 0, 1, 2]))
    >>> round(found.normalized_ess, 3), 0 < found.half_width < 0.02
    (0.995, True)
    """
    weights = np.exp(log_ratios - log_ratios.max())
    _, own = np.unique(records, return_inverse=True)
    counts, sums, squares = (
        np.bincount(own, column) for column in (np.ones(len(weights)), weights, weights * weights)
    )
    whole = sums.sum() ** 2 / (counts.sum() * squares.sum())
    if len(counts) < 2:
        return JackknifedEss(float(whole), float("nan"))
    rest = [column.sum() - column for column in (sums, counts, squares)]
    with np.errstate(divide="ignore", invalid="ignore"):
        without = rest[0] ** 2 / (rest[1] * rest[2])
    _, half = mean_interval(len(counts) * whole - (len(counts) - 1) * without, confidence)
    return JackknifedEss(float(whole), float(half))
