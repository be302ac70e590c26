"""Slow twins of the ESS, weight and lag kernels: decimal arithmetic with 60 digits, one weight at a time.

No code is shared with the kernels, no maximum is subtracted: 60 digits and exponents of a million do not
need it.
"""

from __future__ import annotations

from collections import Counter
from decimal import Context, Decimal, localcontext
from fractions import Fraction

_WIDE = Context(prec=60, Emax=10**17, Emin=-(10**17))


def weights_from_logs(log_weights) -> list[Decimal]:
    with localcontext(_WIDE):
        return [Decimal(0) if lw == float("-inf") else Decimal(float(lw)).exp() for lw in log_weights]


def kish(weights) -> float:
    """(sum w)^2 / sum w^2; 0 when nothing lives."""
    with localcontext(_WIDE):
        exact = [Decimal(w) if isinstance(w, Decimal) else Decimal(float(w)) for w in weights]
        squares = sum((w * w for w in exact), Decimal(0))
        return float(sum(exact, Decimal(0)) ** 2 / squares) if squares else 0.0


def kish_from_logs(log_weights) -> float:
    return kish(weights_from_logs(log_weights))


def expected_normalized(lags, drift) -> float:
    with localcontext(_WIDE):
        moments = [(Decimal(drift) ** 2 * lag).exp() for lag in lags]
        return float(len(moments) / sum(moments))


def mean_exp(values) -> float:
    with localcontext(_WIDE):
        return float(sum(weights_from_logs(values), Decimal(0)) / len(values))


def quantile(lags, q) -> int:
    """Least lag whose share of lags at or below it reaches q, in exact fractions."""
    counts = Counter(lags)
    total, seen = len(lags), 0
    for lag in sorted(counts):
        seen += counts[lag]
        if Fraction(seen, total) >= Fraction(q):
            return lag
    raise ValueError("no lags")


def counts_by_lag(lags, edges) -> list[int]:
    result = [0] * len(edges)
    for lag in lags:
        result[max(k for k, edge in enumerate(edges) if edge <= lag)] += 1
    return result
