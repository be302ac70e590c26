"""What staleness does to one batch, for both loops: importance weights and the effective sample size."""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from .places import place


@jit(inline=True)
def exp_saturating(x):
    """``exp(x)``, infinite where it overflows (CPython's raises, Numba's does not)."""
    return math.exp(x) if x < 709.0 else math.inf


@jit(inline=True)
def measured_log_weight(lags, values, row, uniform):
    """Return a rollout's log weight under a measured drift: its quantile at a uniform in (0, 1).

    lags DRIFT_LAG[L], values float64[v], row int64: its lag, at most L - 1. The quantile of n equally
    likely values is the one numbered ``floor(uniform * n)``, rising; between measured lags they are mixed.
    """
    lag = lags[row]
    first = lag.first_start + min(np.int64(uniform * np.float64(lag.first_count)), lag.first_count - 1)
    second = lag.second_start + min(np.int64(uniform * np.float64(lag.second_count)), lag.second_count - 1)
    return (1.0 - lag.share) * values[first] + lag.share * values[second]


@jit(inline=True)
def batch_ess(log_weights, count, largest, weighted):
    """Return a batch's normalized ESS: `count` float64 log weights, the largest one, whether any is not 0."""
    ess = 1.0
    if weighted:
        weight_sum = 0.0
        square_sum = 0.0
        for index in range(count):
            weight = math.exp(log_weights[place(index)] - largest)
            weight_sum += weight
            square_sum += weight * weight
        ess = weight_sum * weight_sum / (np.float64(count) * square_sum)
    return ess
