"""What staleness does to one batch, for both loops: importance weights and the effective sample size."""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit


@jit(inline=True)
def exp_saturating(x):
    """``exp(x)``, infinite where it overflows (CPython's raises, Numba's does not)."""
    return math.exp(x) if x < 709.0 else math.inf


@jit(inline=True)
def batch_ess(log_weights, count, largest, lag_max):
    """Return a batch's normalized ESS: `count` log weights (float64), the largest one, the largest lag."""
    ess = 1.0
    if lag_max > 0:
        weight_sum = 0.0
        square_sum = 0.0
        for index in range(count):
            weight = math.exp(log_weights[index] - largest)
            weight_sum += weight
            square_sum += weight * weight
        ess = weight_sum * weight_sum / (np.float64(count) * square_sum)
    return ess
