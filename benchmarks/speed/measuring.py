"""Forms of one job measured in turn, round by round, and how the figures are written.

Compared figures always come from the same rounds of the same process: what else the machine does then falls
on all of them, and a ratio is taken within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SLACK = 1.1  # timings vary: an aim counts as broken when it is missed by over a tenth
FLAT = 1.25  # a last figure of at most this times the first is called flat

Forms = Mapping[str, Callable[[], object]]
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Promise:
    """What is aimed at, and what was found.

    Attributes
    ----------
    text : str
    share : float
        What was found over the aim: met at 1 or less.
    """

    text: str
    share: float

    @property
    def met(self) -> bool:
        """Whether the aim was met in this run."""
        return self.share <= 1

    @property
    def broken(self) -> bool:
        """Whether it was missed by more than timings vary."""
        return self.share > SLACK


@dataclass
class Section:
    """One part of the page.

    Attributes
    ----------
    title : str
    text : list of str
        Paragraphs and tables, in order.
    promises : list of Promise
    """

    title: str
    text: list[str] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)

    def at_most(self, text: str, found: float, aim: float) -> None:
        """Add an aim that figures should not exceed."""
        self.promises.append(Promise(f"{text}: {found:.2f}, at most {aim:g}", found / aim))

    def at_least(self, text: str, found: float, aim: float) -> None:
        """Add an aim that figures should reach."""
        self.promises.append(Promise(f"{text}: {found:.2f}, at least {aim:g}", aim / found))

    def agrees(self, text: str, holds: bool) -> None:
        """Add something that is either so or not."""
        self.promises.append(Promise(text, 0.0 if holds else float("inf")))

    def markdown(self) -> str:
        """Return the section, what is aimed at last."""
        told = "\n".join(f"- {'met' if one.met else '**missed**'}: {one.text}" for one in self.promises)
        return "\n\n".join([f"## {self.title}", *self.text, *([told] if told else [])]) + "\n"


def in_turn(forms: Forms, rounds: int, clock: Callable[[], float] = time.perf_counter) -> Seconds:
    """Time every form once in each round; rounds begin with another form each.

    Returns
    -------
    dict of str to list of float
        Seconds by form, one for each round.
    """
    seconds: Seconds = {name: [] for name in forms}
    names = list(forms)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            began = clock()
            forms[name]()
            seconds[name].append(clock() - began)
    return seconds


def ratios(seconds: Mapping[str, Sequence[float]], above: str, below: str) -> list[float]:
    """Return the ratio of two forms in each round."""
    return [a / b for a, b in zip(seconds[above], seconds[below])]


def scaled(samples: Iterable[float], factor: float) -> list[float]:
    """Return samples in another unit."""
    return [sample * factor for sample in samples]


def ranged(samples: Sequence[float], digits: int = 1) -> str:
    """Write median and extremes.

    Examples
    --------
    >>> ranged([2.0, 1.0, 4.0])
    '2.0 (1.0…4.0)'
    """
    median, low, high = statistics.median(samples), min(samples), max(samples)
    return f"{median:,.{digits}f} ({low:,.{digits}f}…{high:,.{digits}f})"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], words: int = 1) -> str:
    """Write a table whose first columns are words and whose others are figures."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, rule, *rows])


def growth(sizes: Sequence[float], medians: Sequence[float]) -> str:
    """Say in words how a figure goes with a size that grows.

    Examples
    --------
    >>> growth([1, 64], [30.0, 33.0])
    'flat (1.10 times over 64 times the size)'
    >>> growth([1, 64], [30.0, 60.0])
    'grows 2.00 times over 64 times the size'
    >>> growth([1, 64], [60.0, 30.0])
    'falls to 0.50 times over 64 times the size'
    """
    change, span = medians[-1] / medians[0], sizes[-1] / sizes[0]
    over = f"{change:.2f} times over {span:,.0f} times the size"
    if max(medians) <= FLAT * min(medians):
        return f"flat ({over})"
    return (
        f"falls to {over}" if change < 1 / FLAT else f"grows {over}" if change > FLAT else f"uneven ({over})"
    )
