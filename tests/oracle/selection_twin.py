"""Kim and Nelson's procedure written out from the paper, pair by pair in plain Python; no code is shared."""

from __future__ import annotations

import math
from statistics import fmean


def kim_nelson(values, delta, alpha, n0):
    """Return (best, decided, values after which each candidate went or None)."""
    k, have = len(values), len(values[0])
    eta = 0.5 * ((2 * alpha / (k - 1)) ** (-2 / (n0 - 1)) - 1)
    h2 = 2 * eta * (n0 - 1)
    variance = {}
    for i in range(k):
        for other in range(k):
            gaps = [values[i][j] - values[other][j] for j in range(n0)]
            middle = fmean(gaps)
            variance[i, other] = sum((gap - middle) ** 2 for gap in gaps) / (n0 - 1)
    last = max(n0, max(math.floor(h2 * variance[pair] / delta**2) for pair in variance) + 1)
    left, went = list(range(k)), [None] * k
    for r in range(n0, have + 1):
        means = {i: math.fsum(values[i][:r]) / r for i in left}
        keep = []
        for i in left:
            beaten = False
            for other in left:
                width = max(0.0, delta / (2 * r) * (h2 * variance[i, other] / delta**2 - r))
                if other != i and means[i] < means[other] - width:
                    beaten = True
            if beaten:
                went[i] = r
            else:
                keep.append(i)
        left = keep
        best = max(left, key=lambda i: (means[i], -i))
        if len(left) == 1 or r >= last:
            return best, True, went
    return best, False, went
