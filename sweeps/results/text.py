"""Plain text that fits the terminal: the tables of all commands, wrapped sentences, bars.

Sentences take 80 columns at most, tables the whole width. One rule narrows every table: words are folded,
then headings; where figures themselves would not fit, the last columns are left out, and that is said.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any

from .numbers import missing, number
from .shown import shown_text
from .words import axis_heading, describe_settings

WIDTH = 80
UNBOUNDED = 1_000_000  # columns: a table as wide as it likes
_NARROWEST = 30
_LONGEST_WORD = 22  # of a column of words that is never cut to make room
_GAP = "  "
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def terminal_width() -> int:
    """Return the columns there are to write in: 80, or fewer on a narrow terminal."""
    return min(WIDTH, table_width())


def table_width() -> int:
    """Return the columns that a table may take: all of the terminal, 80 where there is none."""
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def aligned(cells: Sequence[str], widths: Sequence[int], left: Collection[int] = ()) -> str:
    """Set one line of columns right-aligned, but those whose place is in `left`.

    Examples
    --------
    >>> aligned(["cap", "7"], [5, 3], left=[0])
    'cap      7'
    """
    return _GAP.join(
        cell.ljust(width) if place in left else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths))
    ).rstrip()


def grid(
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    left: Collection[int] = (),
    width: int | None = None,
) -> str:
    """Set a table under a rule.

    Parameters
    ----------
    header : sequence of str
    lines : sequence of sequences of str
    left : collection of int
        Places of the columns that are left-aligned: those of words.
    width : int, optional
        Columns there are; the terminal's where it is left out.

    Examples
    --------
    >>> print(grid(["axis", "value"], [["cap", "7"]], left=[0]))
    axis  value
    ────  ─────
    cap       7
    >>> print(grid(["what", "much", "more"], [["cap", "1,000", "2,000"]], left=[0], width=14))
    what   much
    ────  ─────
    cap   1,000
    Left out at
    this width:
    more.
    """
    width = table_width() if width is None else width
    everything = [[shown_text(cell, None, lines=True) for cell in line] for line in (header, *lines)]
    kept = _kept_columns(everything, left, width)
    dropped = [heading.replace("\n", " ") for heading in everything[0][kept:]]
    everything = [line[:kept] for line in everything]
    widths = [max(len(part) for cell in column for part in cell.split("\n")) for column in zip(*everything)]
    _narrow(widths, everything, left, width)
    above, *rest = (_folded(line, widths, left) for line in everything)
    rule = _GAP.join("─" * size for size in widths)
    said = (
        [wrapped(f"Left out at this width: {', '.join(filter(None, dropped))}.", width=width)]
        if dropped
        else []
    )
    return "\n".join([*above, rule, *(line for lines in rest for line in lines), *said])


def _kept_columns(everything: Sequence[Sequence[str]], left: Collection[int], most: int) -> int:
    """Return how many columns, from the first, fit without a figure or a word of the first one being cut."""
    needed = 0
    count = len(everything[0])
    for place in range(count):
        body = [_narrowest(part) for line in everything[1:] for part in line[place].split("\n")]
        above = _narrowest(everything[0][place])
        least = max([*body, 1] if place in left else [*body, above, 1])
        needed += min(least, _LONGEST_WORD) if place in left else least
        if needed + len(_GAP) * place > most:
            return max(2, place)
    return count


def _narrow(widths: list[int], everything: Sequence[Sequence[str]], left: Collection[int], most: int) -> None:
    """Take room from the widest columns: words first, then figures' own headings, then within words."""
    whole = [
        max(_narrowest(part) for cell in column for part in cell.split("\n")) for column in zip(*everything)
    ]
    places = range(len(widths))
    while sum(widths) + len(_GAP) * (len(widths) - 1) > most:
        soft = [place for place in places if widths[place] > whole[place]]
        place = max([p for p in soft if p in left] or soft or places, key=widths.__getitem__)
        if widths[place] == 1:
            return
        widths[place] -= 1


def _folded(line: Sequence[str], widths: Sequence[int], left: Collection[int]) -> list[str]:
    """Return the lines of text that one line of a table takes."""
    cells = [
        [part for own in cell.split("\n") for part in folded(own, width)] for cell, width in zip(line, widths)
    ]
    return [aligned(one, widths, left) for one in zip_longest(*cells, fillvalue="")]


def folded(text: str, width: int) -> list[str]:
    """Return a text in lines, folded under its own beginning.

    Examples
    --------
    >>> folded("- one two", 7)
    ['- one', '  two']
    """
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=" " * _indent(text), break_on_hyphens=False)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" -"))


def _narrowest(text: str) -> int:
    """Return the width below which a word would be cut."""
    return _indent(text) + max(map(len, text.split()), default=0)


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
    lines = [[*_axis_cells(values, len(axes)), *cells] for values, cells in rows]
    text = grid([*map(axis_heading, axes), *header], lines, width=UNBOUNDED)
    if fits(text):
        return text
    numbered = [[str(place), *cells] for place, (_, cells) in enumerate(rows, start=1)]
    legend = []
    for place, (values, _) in enumerate(rows, start=1):
        label = values if isinstance(values, str) else describe_settings(dict(zip(axes, values)))
        legend += textwrap.wrap(f"{place}: {label}", terminal_width(), subsequent_indent="   ")
    return "\n".join([grid(["#", *header], numbered), "", *legend])


def _axis_cells(values: Sequence[Any], count: int) -> list[str]:
    if isinstance(values, str):
        return [values, *("" for _ in range(count - 1))] if count else []
    return [number(value) for value in values]


def fits(text: str) -> bool:
    """Tell whether a table is no wider than the terminal."""
    return max(map(len, text.splitlines()), default=0) <= table_width()


def wrapped(text: str, indent: str = "", first: str | None = None, *, width: int | None = None) -> str:
    """Fill a sentence to the terminal's width, with an indent; no command is broken at a hyphen."""
    return textwrap.fill(
        text,
        terminal_width() if width is None else width,
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
