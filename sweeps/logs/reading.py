"""A file's columns turned into those of a step log: names, units, sums, and what came in odd forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...kernels.errors import ConfigError, many, nearest, shown_names
from ..checks import mapping_of, text_of
from .canonical import COLUMNS, PLACES, unit_factor
from .frameworks import Framework, Source, matching
from .log_findings import LogFinding
from .numbers import as_numbers, forms_in_words
from .tables import RawTable


class ReadColumn(NamedTuple):
    """How a column of a step log came about.

    Attributes
    ----------
    name : str
        The log's column.
    source : str
        The file's, or how it was made of several.
    unit : str
        What the file's is in.
    factor : float
        What it was multiplied with.
    said_by : str
        ``framework`` or ``user``.
    note : str
        What it really holds, where its name does not say so.
    file : str
    """

    name: str
    source: str
    unit: str
    factor: float
    said_by: str
    note: str = ""
    file: str = ""

    def __str__(self) -> str:
        """Write it as tables show it."""
        scaled = "" if self.factor == 1 else f" ({self.unit}, times {self.factor:g})"
        return f"{self.source}{scaled}"


@dataclass
class NumberTable:
    """The columns of a file as numbers, read when they are asked for; NaN where there is none."""

    table: RawTable
    forms: dict[str, dict[str, int]] = field(default_factory=dict)
    _read: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the columns' names."""
        return self.table.frame.columns

    def numbers(self, name: str) -> np.ndarray:
        """Return one column as float64."""
        if name not in self._read:
            numbers, forms = as_numbers(self.table.frame[name])
            if forms:
                self.forms[name] = forms
            self._read[name] = numbers.to_numpy().astype(np.float64)
        return self._read[name]

    def is_empty(self, name: str) -> bool:
        """Tell whether a column has no number."""
        return not np.isfinite(self.numbers(name)).any()

    def texts(self, name: str) -> list[str]:
        """Return one column as texts, empty where there is nothing."""
        return ["" if value is None else str(value) for value in self.table.frame[name].to_list()]

    def form_findings(self) -> list[LogFinding]:
        """Say which columns came in odd forms, all with the same forms together."""
        together: dict[tuple[str, ...], list[str]] = {}
        for name, forms in self.forms.items():
            together.setdefault(tuple(forms), []).append(name)
        found = []
        for names in together.values():
            sums: dict[str, int] = {}
            for name in names:
                for form, count in self.forms[name].items():
                    sums[form] = sums.get(form, 0) + count
            about = names[0] if len(names) == 1 else f"{names[0]} and {many(len(names) - 1, 'other')}"
            lost = "infinite" in sums or "words" in sums
            words = f"values {forms_in_words(sums)}"
            found.append(
                LogFinding("text", about, max(sums.values()), "left out" if lost else "converted", words)
            )
        return found


@dataclass(frozen=True)
class Given:
    """What the user says of a column: its name in the file, and its unit."""

    column: str
    unit: str = ""


def given_columns(columns: object, units: object) -> dict[str, Given]:
    """Check what the user says of columns: ``NAME`` or ``NAME:unit``, and units by column.

    Raises
    ------
    ConfigError
        For names that a step log does not have, and units that a column cannot have.

    Examples
    --------
    >>> given_columns({"step_seconds": "t:ms"}, None)
    {'step_seconds': Given(column='t', unit='ms')}
    """
    known = (*PLACES, *COLUMNS)
    way_out = f"Map some of {', '.join(known)}."
    found: dict[str, Given] = {}
    for name, text in mapping_of("columns", columns, way_out).items():
        _known_name("columns", name, known)
        text = text_of(f"columns {name}", text, "Give a column's name, or NAME:unit.")
        column, colon, unit = text.rpartition(":")
        is_unit = bool(colon) and name in COLUMNS and unit.lower() in COLUMNS[name].units
        found[name] = Given(column, unit) if is_unit else Given(text)
    for name, unit in mapping_of("units", units, way_out).items():
        _known_name("units", name, tuple(COLUMNS))
        unit = text_of(f"units {name}", unit, "Give a unit.")
        unit_factor(name, unit)
        found[name] = Given(found[name].column if name in found else "", unit)
    return found


def _known_name(field_name: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        rule = f"must be one of {', '.join(known)}"
        raise ConfigError(field_name, rule, name, nearest(name, known))


def found_column(given: Given, present: Sequence[str], name: str) -> Given:
    """Find the column that a user named; a colon in its own name is none before a unit.

    Raises
    ------
    ConfigError
        If the file has no such column.
    """
    whole = f"{given.column}:{given.unit}"
    if given.column and given.column not in present and whole in present:
        return Given(whole)
    if given.column and given.column not in present:
        way_out = nearest(given.column, present) or f"It has {shown_names(present)}."
        raise ConfigError(f"columns {name}", "must be a column of the file", given.column, way_out)
    return given


def way_that_works(
    ways: Sequence[Source], table: NumberTable, empty: list[str]
) -> tuple[Source, list[str]] | None:
    """Return the first way to make a column whose parts are there and not empty, with the file's names.

    Of a difference only the first two must be there. Columns that are there but empty are added to a list.
    """
    for one in ways:
        names: list[str] = []
        for place, pattern in enumerate(one.names):
            here = matching(pattern, table.names)
            full = [name for name in here if not table.is_empty(name)]
            empty += [name for name in here if name not in full and name not in empty]
            if full:
                names.append(full[0])
            elif not (one.kind == "minus" and place > 1):
                names = []
                break
        if names:
            return one, names
    return None


def made(one: Source, names: Sequence[str], table: NumberTable) -> np.ndarray:
    """Return a column made of the file's; what grows over a run is returned as it stands there."""
    parts = [table.numbers(name) for name in names]
    with np.errstate(divide="ignore", invalid="ignore"):
        match one.kind:
            case "sum":
                found = np.sum(parts, axis=0)
            case "minus":
                found = parts[0] - np.sum([np.nan_to_num(part, nan=0.0) for part in parts[1:]], axis=0)
                found = np.where(np.isfinite(parts[1]), found, np.nan)
            case "product":
                found = np.prod(parts, axis=0)
            case "quotient":
                found = parts[0] / np.sum(parts[1:], axis=0)
            case _:
                found = parts[0].copy()
    result: np.ndarray = np.where(np.isfinite(found), found, np.nan)
    return result


def described(one: Source, names: Sequence[str]) -> str:
    """Say which of the file's columns a column was made of."""
    return str(Source(one.kind, tuple(names)))


def misleading(framework: Framework, table: NumberTable) -> list[LogFinding]:
    """Name the columns that are there and not read, because their names mislead."""
    return [
        LogFinding("unused", name, 0, "not read", words)
        for pattern, words in framework.unused.items()
        for name in matching(pattern, table.names)
    ]


def notes_of(framework: Framework, columns: Mapping[str, ReadColumn]) -> list[LogFinding]:
    """Say what columns really hold, where their names do not say so."""
    return [
        LogFinding("meaning", f"{name} = {one.source}", 0, "kept", one.note)
        for name, one in columns.items()
        if one.note
    ]
