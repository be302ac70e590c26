"""A measured drift by its definition: sorted log ratios, exact fractions, no table."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction


def middle(word):
    """Return the uniform in (0, 1) whose normal quantile is the staleness noise of a word."""
    return ((word >> 12) + 0.5) * 2.0**-52


def shifted(ratios):
    """Return sorted log weights whose weights have mean 1."""
    top = max(ratios)
    shift = top + math.log(math.fsum(math.exp(value - top) for value in ratios) / len(ratios))
    return [value - shift for value in sorted(ratios)]


class DriftTwin:
    """What records say: pairs of a lag and its log ratios; the last lag stands for all beyond."""

    def __init__(self, by_lag):
        self.laws = {0: [0.0]} | {lag: shifted(ratios) for lag, ratios in by_lag}

    def around(self, lag):
        """Return the measured laws below and above a lag, and the share of the upper one."""
        lag = min(lag, max(self.laws))
        low = max(known for known in self.laws if known <= lag)
        high = min(known for known in self.laws if known >= lag)
        share = 0.0 if low == high else (lag - low) / (high - low)
        return self.laws[low], self.laws[high], share

    def log_weight(self, lag, u):
        """Return the quantile at u."""
        low, high, share = self.around(lag)
        first, second = (law[min(math.floor(u * len(law)), len(law) - 1)] for law in (low, high))
        return (1 - share) * first + share * second

    def moments(self, lag):
        """Return mean and mean square of the weights at a lag, step by step of the quantile."""
        low, high, share = self.around(lag)
        ends = sorted({Fraction(k, len(law)) for law in (low, high) for k in range(len(law) + 1)})
        steps = []
        for begin, end in itertools.pairwise(ends):
            first, second = (law[math.floor(begin * len(law))] for law in (low, high))
            steps.append((float(end - begin), math.exp((1 - share) * first + share * second)))
        return tuple(math.fsum(width * weight**power for width, weight in steps) for power in (1, 2))

    def ess_of(self, lags, uniforms):
        """Return a batch's normalized effective sample size, and its value for many rollouts of its lags."""
        weights = [math.exp(self.log_weight(lag, u)) for lag, u in zip(lags, uniforms)]
        normalized = math.fsum(weights) ** 2 / (len(lags) * math.fsum(weight**2 for weight in weights))
        firsts, seconds = zip(*(self.moments(lag) for lag in lags))
        return normalized, math.fsum(firsts) ** 2 / (len(lags) * math.fsum(seconds))
