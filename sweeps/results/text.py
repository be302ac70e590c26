"""Tables and sentences for a terminal of 80 columns: numbers, intervals, grids, wrapped text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTH = 80
SHORT_AXES = {"queue_cap": "cap", "max_lag": "lag≤", "sync_cadence": "sync"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


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
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    if isinstance(value, int | float):
        return f"{int(value):,}" if abs(value) >= 10_000 else f"{int(value)}"
    return str(value)


def fixed(value: Any, digits: int) -> str:
    """Write a number with so many decimals, a dash for none.

    Examples
    --------
    >>> fixed(1234.5678, 1), fixed(None, 1)
    ('1,234.6', '-')
    """
    return "-" if missing(value) else f"{value:,.{digits}f}"


def with_half_width(mean: Any, half: Any, digits: int) -> str:
    """Write a mean with the half width of its interval, where it has one.

    Examples
    --------
    >>> with_half_width(1963.7, 2.6, 0), with_half_width(0.25, float("nan"), 2)
    ('1,964 ±3', '0.25')
    """
    return fixed(mean, digits) if missing(half) or missing(mean) else f"{mean:,.{digits}f} ±{half:.{digits}f}"


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


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Name a configuration by its axes.

    Examples
    --------
    >>> describe_settings({"queue_cap": 240000, "max_lag": 2})
    'queue_cap=240,000 max_lag=2'
    """
    return " ".join(f"{name}={number(value)}" for name, value in settings.items()) or "the base"


def grid(header: Sequence[str], lines: Sequence[Sequence[str]], *, left: int = 0) -> str:
    """Set columns right-aligned (the first `left` ones left-aligned) under a rule.

    Examples
    --------
    >>> print(grid(["axis", "value"], [["cap", "7"]], left=1))
    axis  value
    ────  ─────
    cap       7
    """
    everything = [header, *lines]
    widths = [max(len(line[k]) for line in everything) for k in range(len(header))]
    text = [
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in everything
    ]
    return "\n".join([text[0], "  ".join("─" * width for width in widths), *text[1:]])


def grid_with_settings(
    axes: Sequence[str], header: Sequence[str], rows: Sequence[tuple[Sequence[Any], Sequence[str]]]
) -> str:
    """Set a table whose rows begin with axis values; when that is too wide, rows are numbered instead.

    Parameters
    ----------
    axes : sequence of str
        Names of the axes.
    header : sequence of str
        Of the other columns.
    rows : sequence of (axis values, other cells)
        Axis values of None leave the place empty; a single text stands in the first place.
    """
    short = [SHORT_AXES.get(name, name) for name in axes]
    lines = [[*_axis_cells(values, len(axes)), *cells] for values, cells in rows]
    text = grid([*short, *header], lines)
    if max(len(line) for line in text.splitlines()) <= WIDTH:
        return text
    numbered = [[str(place), *cells] for place, (_, cells) in enumerate(rows, start=1)]
    legend = []
    for place, (values, _) in enumerate(rows, start=1):
        label = values if isinstance(values, str) else describe_settings(dict(zip(axes, values)))
        legend += textwrap.wrap(f"{place}: {label}", WIDTH, subsequent_indent="   ")
    return "\n".join([grid(["#", *header], numbered), "", *legend])


def _axis_cells(values: Sequence[Any], count: int) -> list[str]:
    if isinstance(values, str):
        return [values, *("" for _ in range(count - 1))] if count else []
    return [number(value) for value in values]


def wrapped(text: str, indent: str = "", first: str | None = None) -> str:
    """Fill a sentence to the width, with an indent; nothing that is a command is broken at a hyphen."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def bar(share: float, width: int = 10) -> str:
    """Draw a share between 0 and 1 as a bar.

    Examples
    --------
    >>> bar(0.5, 4), len(bar(0.33, 10))
    ('██  ', 10)
    """
    if missing(share):
        return " " * width
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
