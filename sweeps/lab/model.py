"""What a section of the lab is made of: paragraphs, tables and charts, apart from how they are shown.

Tables keep raw values; the terminal, the page and the CSV files format them on their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

GIB = 2**30
REAL_MODEL = "real-model"


@dataclass(frozen=True)
class Column:
    """A column: its key in the rows, its heading, and how a value is written.

    Attributes
    ----------
    key, heading : str
        The key is also the CSV's heading.
    spec : str
        A format specification such as ``,.2f``, or ``bytes``; empty for text and numbers as they are.
    half_width : str
        Key of the half width of the interval, written after the value as ``± x``; a CSV column of its own.
    """

    key: str
    heading: str
    spec: str = ""
    half_width: str = ""

    def text(self, row: dict[str, Any]) -> str:
        """Write one cell.

        Examples
        --------
        >>> Column("rate", "tokens/s", ",.1f", "half").text({"rate": 1234.56, "half": 7.89})
        '1,234.6 ± 7.9'
        >>> Column("rate", "tokens/s", ",.1f").text({"rate": None})
        '-'
        """
        shown = _written(row[self.key], self.spec)
        if row[self.key] is None:
            return shown
        return f"{shown} ± {_written(row[self.half_width], self.spec)}" if self.half_width else shown

    def is_number(self, rows: list[dict[str, Any]]) -> bool:
        """Tell whether the column is to be aligned at the right."""
        return all(isinstance(row[self.key], int | float | None) for row in rows)


def _written(value: Any, spec: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if spec == "bytes":
        from ...kernels import human_bytes

        return human_bytes(value)
    return format(value, spec) if spec and not isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Table:
    """A table with a name for its file and a title for its readers."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]

    def texts(self) -> list[list[str]]:
        """Write all cells, row by row."""
        return [[column.text(row) for column in self.columns] for row in self.rows]

    def csv_columns(self) -> list[str]:
        """Name the CSV's columns: half widths follow what they belong to."""
        return [name for column in self.columns for name in (column.key, column.half_width) if name]


@dataclass(frozen=True)
class Chart:
    """A chart: a Vega-Lite specification without colours of text, and what it shows in words."""

    name: str
    title: str
    description: str
    spec: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Section:
    """One of the lab's ten sections."""

    number: int
    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Profile:
    """How much the lab simulates.

    Attributes
    ----------
    name : str
        ``smoke``, ``full``, or ``real-model``, which simulates as much as ``smoke``.
    duration_seconds : float
        Simulated time of each loop.
    seeds : int
        Runs behind each mean, from `first_seed` on.
    sweep_seeds : int
        Runs behind each point of the sweep of section 6.
    sweep_duration_seconds : float
        Simulated time of each of them.
    """

    name: str
    duration_seconds: float
    seeds: int
    sweep_seeds: int
    sweep_duration_seconds: float
    first_seed: int = 12016


_SMOKE = Profile("smoke", 120.0, seeds=50, sweep_seeds=20, sweep_duration_seconds=600.0)
PROFILES: dict[str, Profile] = {
    "smoke": _SMOKE,
    "full": Profile("full", 240.0, seeds=1000, sweep_seeds=200, sweep_duration_seconds=3600.0),
    REAL_MODEL: replace(_SMOKE, name=REAL_MODEL),
}
