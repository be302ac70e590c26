"""One file of a step log: its columns by the framework's map, its rows with steps, in the file's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError, many, shown_names
from ..engines.columns import unit_of
from .canonical import COLUMNS, unit_factor
from .console import console_records
from .frameworks import Framework, Source, recognized
from .impossible import elapsed_seconds, odd_columns, same_twice
from .log_findings import LogFinding, shortly
from .reading import (
    Given,
    NumberTable,
    ReadColumn,
    described,
    found_column,
    made,
    misleading,
    notes_of,
    way_that_works,
)
from .tables import read_table

_RUN_NAMES = ("run", "run_id", "run_name", "source_run", "experiment")
_ROUNDED = ("rollouts",)
_STEPS = tuple(
    Source("column", (name,)) for name in ("step", "global_step", "training_step", "_step", "Step")
)
_FRAMEWORKS = (
    "verl, TRL, OpenRLHF, NeMo RL, AReaL, slime and miles, prime-rl, SkyRL, open-instruct, tinker-cookbook"
)


@dataclass
class FileRows:
    """The rows of one file, or of several of the same kind one after the other.

    Attributes
    ----------
    framework : Framework, optional
        None where the user named every column.
    values : dict of str to ndarray of float64
        A column of the step log each; one whose source is a growth still as the file's running total.
    columns : dict of str to ReadColumn
    steps : ndarray of int64
    labels : list of str
        The run that each row names.
    segments : ndarray of float64, optional
        By the file itself.
    elapsed : ndarray of float64, optional
    places : list of (str, int)
        File and row of each.
    growing : set of str
        The columns that are running totals still.
    """

    framework: Framework | None
    values: dict[str, np.ndarray]
    columns: dict[str, ReadColumn]
    steps: np.ndarray
    labels: list[str]
    segments: np.ndarray | None
    elapsed: np.ndarray | None
    places: list[tuple[str, int]]
    growing: set[str] = field(default_factory=set)
    findings: list[LogFinding] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, kept: np.ndarray, reason: str) -> None:
        """Leave the other rows out, for a reason."""
        for row in np.flatnonzero(~kept).tolist():
            file, number = self.places[row]
            self.left_out.append(
                {"file": file, "row": number, "step": int(self.steps[row]), "reason": reason}
            )
        self.take(np.flatnonzero(kept))

    def take(self, rows: np.ndarray) -> None:
        """Keep some rows, in a given order."""
        self.values = {name: values[rows] for name, values in self.values.items()}
        self.steps = self.steps[rows]
        self.labels = [self.labels[row] for row in rows.tolist()]
        self.segments = None if self.segments is None else self.segments[rows]
        self.elapsed = None if self.elapsed is None else self.elapsed[rows]
        self.places = [self.places[row] for row in rows.tolist()]


def read_file(path: Any, framework: Framework | None, given: Mapping[str, Given]) -> FileRows:
    """Read one file.

    Parameters
    ----------
    path : path
    framework : Framework, optional
        Found by the columns' names when left out.
    given : mapping of str to Given
        What the user says of columns.

    Raises
    ------
    ConfigError
        If it cannot be read, no framework fits and no column is named, or a named column is not there.
    """
    table = NumberTable(read_table(path, console_records))
    name = Path(table.table.source).name
    framework = framework or recognized(table.names)
    given = {**_plain_names(table, framework), **given}
    if framework is None and not any(one.column and role in COLUMNS for role, one in given.items()):
        raise _unknown(name, table.names)
    ways: dict[str, tuple[Source, ...]] = dict(framework.columns) if framework else {"step": _STEPS}
    said: dict[str, Given] = {}
    for role, one in given.items():
        said[role] = found_column(one, table.names, role)
        if one.column:
            ways[role] = (Source("column", (said[role].column,)),)
    empty: list[str] = []
    found = {
        role: (*chosen, table)
        for role in ("step", "segment", *COLUMNS)
        if (chosen := way_that_works(ways.get(role, ()), table, empty)) is not None
    }
    values, columns = {}, {}
    for role, (way, names, _) in found.items():
        if role not in COLUMNS:
            continue
        one = said.get(role, Given(""))
        unit = one.unit or (unit_of(one.column)[1] if one.column and COLUMNS[role].is_time else "")
        unit = unit or ("s" if COLUMNS[role].is_time else next(iter(COLUMNS[role].units)))
        factor = unit_factor(role, unit)
        values[role] = made(way, names, table) * factor
        if role in _ROUNDED and way.kind in ("product", "quotient"):
            values[role] = np.round(values[role])
        note = framework.notes.get(role, "") if framework and not one.column else ""
        said_by = "user" if one.column or one.unit else "framework"
        columns[role] = ReadColumn(role, described(way, names), unit, factor, said_by, note, name)
    if not values:
        raise _nothing_read(name, framework, table.names)
    read = {each for way, names, _ in found.values() for each in names}
    rows = FileRows(
        framework=framework,
        values=values,
        columns=columns,
        steps=np.zeros(len(table.table.frame), dtype=np.int64),
        labels=_labels(table, ways.get("run", ())),
        segments=made(*found["segment"]) if "segment" in found else None,
        elapsed=elapsed_seconds(table),
        places=[(name, row) for row in table.table.rows],
        growing={role for role, (way, _, _) in found.items() if way.kind == "change"},
    )
    rows.findings += [LogFinding("file", name, 0, "kept", words) for words in table.table.notes]
    rows.findings += _units(columns)
    rows.findings += notes_of(framework, columns) if framework else []
    rows.findings += misleading(framework, table) if framework else []
    if empty:
        words = f"{many(len(empty), 'column')} of the framework's names without a value"
        rows.findings.append(LogFinding("empty", ", ".join(empty[:4]), 0, "not read", words))
    rows.findings += odd_columns(table, read)
    rows.findings += same_twice(table, read)
    _with_steps(rows, table, ways.get("step", ()), found)
    rows.findings += table.form_findings()
    return rows


def _units(columns: Mapping[str, ReadColumn]) -> list[LogFinding]:
    return [
        LogFinding("unit", one.source, 0, "converted", f"{one.unit}, times {one.factor:g}: {name}")
        for name, one in columns.items()
        if one.factor != 1
    ]


def _plain_names(table: NumberTable, framework: Framework | None) -> dict[str, Given]:
    """Read names of our own with any unit behind: step_ms, wait_seconds."""
    if framework is not None and framework.name != "lagsweep":
        return {}
    found: dict[str, Given] = {}
    for name in table.names:
        stem, unit = unit_of(name)
        role = f"{stem}_seconds"
        if unit and role in COLUMNS and (role not in found or name == role):
            found[role] = Given(name, unit)
    return found


def _unknown(name: str, present: Sequence[str]) -> ConfigError:
    if any("gen throughput" in one.lower() or "generation throughput" in one.lower() for one in present):
        rule = "must be a log of steps: these are samples of an inference engine"
        way_out = "Fit them: lagsweep engine fit --samples FILE; or --samples FILE beside the trainer's log."
        return ConfigError(name, rule, NO_VALUE, way_out)
    rule = f"has no column of a framework that is known ({_FRAMEWORKS})"
    way_out = (
        "Say what its columns are, as --column step=NAME --column step_seconds=NAME:ms; it has "
        f"{shown_names(present)}."
    )
    return ConfigError(name, rule, NO_VALUE, way_out)


def _nothing_read(name: str, framework: Framework | None, present: Sequence[str]) -> ConfigError:
    title = framework.title if framework else "the named columns"
    rule = f"has no value in any column of a step log ({title})"
    return ConfigError(name, rule, NO_VALUE, f"It has {shown_names(present)}.")


def _labels(table: NumberTable, ways: Sequence[Source]) -> list[str]:
    """Return the run that each row names, if it names any."""
    for name in (*(one.names[0] for one in ways), *_RUN_NAMES):
        if name in table.names:
            texts = table.texts(name)
            if len(set(texts)) > 1:
                return texts
    return [""] * len(table.table.frame)


def _with_steps(rows: FileRows, table: NumberTable, ways: Sequence[Source], found: Mapping[str, Any]) -> None:
    """Give every row its step; rows without one take that of a row with the same number of another kind."""
    count = len(rows.steps)
    has_value = np.any([np.isfinite(values) for values in rows.values.values()], axis=0)
    if "step" not in found:
        rows.steps = np.arange(1, count + 1)
        words = "no column has the step: rows are counted from 1"
        rows.findings.append(LogFinding("derived", "step", count, "added", words))
        rows.keep(has_value, "holds no value that is read")
        return
    step = made(*found["step"])
    chosen = found["step"][1][0]
    for way in ways:
        missing = ~np.isfinite(step) & has_value
        if not missing.any():
            break
        if way.names[0] == chosen or way.names[0] not in table.names:
            continue
        other = table.numbers(way.names[0])
        both = np.isfinite(step) & np.isfinite(other)
        known = dict(zip(other[both].tolist(), step[both].tolist()))
        step = np.where(missing, [known.get(each, np.nan) for each in other.tolist()], step)
    whole = np.isfinite(step) & (step == np.floor(step)) & (step >= 0) & (step < 2**52)
    rows.steps = np.where(whole, step, -1).astype(np.int64)
    kept = has_value.copy()
    rows.keep(kept, "holds no value that is read")
    whole = whole[kept]
    if not whole.all():
        words = f"{many(int((~whole).sum()), 'row')} without a step that is a whole number"
        rows.findings.append(LogFinding("no_step", chosen, int((~whole).sum()), "left out", words))
        rows.keep(whole, "has no step")


def merged_rows(rows: FileRows) -> None:
    """Join neighbouring rows of a step that fill different columns; leave out rows that are there twice."""
    names = list(rows.values)
    matrix = np.array([rows.values[name] for name in names]).T if names else np.zeros((len(rows.steps), 0))
    kept = np.ones(len(rows.steps), dtype=bool)
    joined: list[int] = []
    repeated = np.zeros(len(rows.steps), dtype=bool)
    home = 0
    for row in range(1, len(rows.steps)):
        same = rows.steps[row] == rows.steps[home] and rows.labels[row] == rows.labels[home]
        both = np.isfinite(matrix[row]) & np.isfinite(matrix[home])
        if same and (matrix[row][both] == matrix[home][both]).all():
            new = np.isfinite(matrix[row]) & ~np.isfinite(matrix[home])
            if new.any():
                matrix[home] = np.where(np.isfinite(matrix[home]), matrix[home], matrix[row])
                joined.append(int(rows.steps[row]))
                kept[row] = False
                continue
            repeated[row] = True
            continue
        home = row
    rows.values = {name: matrix[:, place].copy() for place, name in enumerate(names)}
    if joined:
        words = f"{many(len(joined), 'row')} joined with the one of the same step: each fills other columns"
        rows.findings.append(LogFinding("merged", "step", len(joined), "joined", words))
    if repeated.any():
        steps = shortly(sorted(set(rows.steps[repeated].tolist())))
        words = f"{many(int(repeated.sum()), 'row')} there twice with the same values (steps {steps})"
        rows.findings.append(LogFinding("repeated", "step", int(repeated.sum()), "left out", words))
    places = repeated[kept]
    rows.take(np.flatnonzero(kept))
    if places.any():
        rows.keep(~places, "the same row stands before it")
