"""Means with Student intervals (Student, "The probable error of a mean", Biometrika 6, 1908)."""

from __future__ import annotations

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
    share = one_number("confidence", confidence, above=0.0, maximum=1.0, way_out="Give 0.95.")
    if share == 1:
        raise ConfigError("confidence", "must be below 1", confidence, "Give 0.95.")
    return student(values, 0.5 + share / 2)


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
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without a second of imports

    values = np.asarray(values, np.float64)
    count = np.sum(~np.isnan(values), axis=-1)
    total = np.nansum(values, axis=-1)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    square = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    variance = np.divide(square, count - 1, out=np.full(total.shape, np.nan), where=count > 1)
    half = stdtrit(np.maximum(count - 1, 1), probability) * np.sqrt(variance / np.maximum(count, 1))
    return mean, half
