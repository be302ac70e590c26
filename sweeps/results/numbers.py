"""Numbers, shares and intervals as people read them: thousands apart, no digits that mean nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .shown import shown_text


def missing(value: Any) -> bool:
    """Tell whether a number is none at all."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def number(value: Any) -> str:
    """Write a value of an axis: thousands apart from 10,000 on, six digits of a fraction.

    Examples
    --------
    >>> [number(value) for value in (120000, 2, 0.125, "reserve", float("nan"))]
    ['120,000', '2', '0.125', 'reserve', '-']
    """
    if missing(value):
        return "-"
    if isinstance(value, float) and value == math.inf:
        return "none"  # of an axis that mixes numbers with none
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    if isinstance(value, int | float):
        return f"{int(value):,}" if abs(value) >= 10_000 else f"{int(value)}"
    return shown_text(str(value))


def formatted(value: Any, form: str) -> str:
    """Write a number by a format specification, a dash for none.

    Examples
    --------
    >>> formatted(0.1234, ".1%"), formatted(float("nan"), ".1%")
    ('12.3%', '-')
    """
    return "-" if missing(value) else format(value, form)


def fixed(value: Any, digits: int) -> str:
    """Write a number with so many decimals, a dash for none.

    Examples
    --------
    >>> fixed(1234.5678, 1), fixed(None, 1)
    ('1,234.6', '-')
    """
    return formatted(value, f",.{digits}f")


def with_half_width(mean: Any, half: Any, digits: int) -> str:
    """Write a mean with the half width of its interval, where it has one and not all seeds are equal.

    Examples
    --------
    >>> with_half_width(1963.7, 2.6, 0), with_half_width(0.25, float("nan"), 2), with_half_width(1.0, 0.0, 2)
    ('1,964 ±3', '0.25', '1.00')
    """
    return with_interval(mean, half, f",.{digits}f")


def with_interval(mean: Any, half: Any, form: str, signed: str = "") -> str:
    """Write a mean by a format specification with the half width of its interval; equal seeds have none.

    Parameters
    ----------
    mean, half : float or None
    form : str
    signed : str
        What the mean's has in front: ``+`` for a difference.

    Examples
    --------
    >>> with_interval(1963.7, 2.6, ",.0f", "+"), with_interval(277.8, 0.0, ".1f")
    ('+1,964 ±3', '277.8')
    """
    text = formatted(mean, f"{signed}{form}")
    return text if missing(half) or missing(mean) or all_equal(mean, half) else f"{text} ±{half:{form}}"


def all_equal(mean: Any, half: Any) -> bool:
    """Tell whether a half width is that of equal values, but for rounding; where there is none, it is not.

    Examples
    --------
    >>> all_equal(277.8, 1e-14), all_equal(277.8, 0.001), all_equal(0.0, 0.0)
    (True, False, True)
    """
    return not missing(mean) and not missing(half) and bool(half <= 1e-12 * abs(mean))


def seeds_words(done: Iterable[int], wanted: int) -> str:
    """Say how many seeds figures are of, where some of those wanted may be missing.

    Examples
    --------
    >>> seeds_words([2000, 2000], 2000), seeds_words([7], 300), seeds_words([3, 7], 300)
    ('2,000 seeds', '7 of 300 seeds', '3 to 7 of 300 seeds')
    """
    counts = sorted(done)
    if counts[0] == wanted:
        return f"{wanted:,} seeds"
    fewest, most = f"{counts[0]:,}", f"{counts[-1]:,}"
    return f"{fewest if fewest == most else f'{fewest} to {most}'} of {wanted:,} seeds"


def short_number(value: Any) -> str:
    """Write a value in few letters.

    Examples
    --------
    >>> short_number(240000), short_number(1500), short_number(0.5), short_number("reserve")
    ('240k', '1500', '0.5', 'reserve')
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 10_000 <= abs(value) < math.inf:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:.4g}{letter}"
    return number(value)


def digits_for(values: Iterable[Any], half_widths: Iterable[Any]) -> int:
    """Choose as many decimals as the intervals bear: one digit of the smallest half width, 4 at most."""
    largest = max((abs(value) for value in values if not missing(value)), default=0)
    # Half widths of nothing but rounding say nothing about decimals.
    halves = [half for half in half_widths if not missing(half) and half > 1e-9 * largest]
    if not halves:
        return 4 if largest <= 1 else 1 if largest < 1000 else 0
    return min(4, max(0, -math.floor(math.log10(min(halves)))))


def signed_percent(share: float, digits: int = 1) -> str:
    """Write a share as a percentage with its sign.

    Examples
    --------
    >>> signed_percent(0.0751), signed_percent(-0.0004, 2)
    ('+7.5%', '-0.04%')
    """
    return "-" if missing(share) else f"{_signed(share, digits)}%"


def _signed(share: float, digits: int) -> str:
    shown = f"{100 * share:+.{digits}f}"
    return shown[1:] if float(shown) == 0 else shown


def percent_interval(mean: float, low: float, high: float) -> str:
    """Write a relative difference with its interval, in as many decimals as the interval bears.

    Examples
    --------
    >>> percent_interval(0.075, 0.072, 0.078)
    '+7.5% [+7.2, +7.8]'
    >>> percent_interval(0.5, float("nan"), float("nan"))
    '+50.0%'
    """
    if missing(low):
        return signed_percent(mean)
    digits = digits_for((), [50 * (high - low)]) if high > low else 1
    digits = min(3, max(1, digits))
    return f"{signed_percent(mean, digits)} [{_signed(low, digits)}, {_signed(high, digits)}]"
