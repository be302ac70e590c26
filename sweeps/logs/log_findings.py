"""What was found in a log: as data, with the words that a report prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class LogFinding(NamedTuple):
    """One thing that was found in a log, and what was done about it.

    Attributes
    ----------
    kind : str
        ``restart``, ``repeated``, ``gap``, ``interleaved``, ``merged``, ``unit``, ``broken``, ``zero``,
        ``constant``, ``empty``, ``warm_up``, ``text``, ``same_twice``, ``holds``, ``beside``, ``polled``,
        ``unused``, ``meaning``, ``derived``, ``sides``, ``file``, ``negative``, ``part_batch``, ``no_time``.
    about : str
        The column or the steps that it is about.
    rows : int
        How many rows it concerns; 0 where it is not about rows.
    done : str
        ``kept``, ``left out``, ``refused``, ``converted``, ``split``, ``joined``, ``added``, ``not read``.
    words : str
        A sentence for the reader.

    Examples
    --------
    >>> print(LogFinding("gap", "step", 2, "kept", "2 steps are missing"))
    gap, step: 2 steps are missing (kept)
    """

    kind: str
    about: str
    rows: int
    done: str
    words: str

    def __str__(self) -> str:
        """Write it as one line."""
        return f"{self.kind}, {self.about}: {self.words} ({self.done})"


def shortly(numbers: Iterable[int], most: int = 6) -> str:
    """Write whole numbers as ranges, cut where there are many.

    Examples
    --------
    >>> shortly([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    >>> shortly(range(0, 40, 2), most=3)
    '0, 2, 4 and 17 more'
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges_shortly(ranges, most)


def ranges_shortly(ranges: Sequence[tuple[int, int]], most: int = 6) -> str:
    """Write ranges of whole numbers, cut where there are many.

    Examples
    --------
    >>> ranges_shortly([(3, 4), (8, 8)])
    '3-4, 8'
    """
    words = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges[:most]]
    rest = sum(last - first + 1 for first, last in ranges[most:])
    return ", ".join(words) + (f" and {rest:,} more" if rest else "")


def kinds(findings: Sequence[LogFinding]) -> dict[str, int]:
    """Count findings by kind, in the order in which they came."""
    found: dict[str, int] = {}
    for one in findings:
        found[one.kind] = found.get(one.kind, 0) + 1
    return found
