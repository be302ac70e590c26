"""Time in whole ticks of a microsecond."""

from __future__ import annotations

import math

MAXIMUM_TICKS = 2**52
TICKS_PER_SECOND = 1_000_000


def ticks(seconds: float) -> int:
    """Turn seconds into whole microseconds, ``min(floor(x * 1e6 + 0.5), 2**52)``; the loops compile it too.

    Examples
    --------
    >>> ticks(1.5)
    1500000
    """
    scaled = seconds * 1e6 + 0.5
    return MAXIMUM_TICKS if scaled >= 4503599627370496.0 else math.floor(scaled)
