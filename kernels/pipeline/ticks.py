"""Time in whole ticks of a microsecond, for both loops."""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit

MAXIMUM_TICKS = 2**52


@jit(inline=True)
def ticks_of(seconds):
    """Turn seconds (float64) into whole microseconds, ``min(floor(x * 1e6 + 0.5), 2**52)``."""
    scaled = seconds * 1e6 + 0.5
    return np.int64(MAXIMUM_TICKS) if scaled >= 4503599627370496.0 else np.int64(math.floor(scaled))
