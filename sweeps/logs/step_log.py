"""A run's steps from its logs, as they are: one row a step, and all that was found on the way."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError
from ..checks import texts_of
from .canonical import COLUMNS, PLACES
from .frameworks import framework_named
from .impossible import refusals, without_negatives
from .inside_steps import constants, held, part_batches, rests, warm_up_rows, whole_seconds
from .log_findings import LogFinding, many, shortly
from .one_file import FileRows, merged_rows, read_file
from .reading import ReadColumn, given_columns
from .run_rows import gaps, runs_and_segments

if TYPE_CHECKING:
    import polars as pl

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class StepLog:
    """The steps of one or several runs.

    Attributes
    ----------
    frame : polars.DataFrame
        One row a step that is kept, by run, segment and step: ``run``, ``segment``, ``step`` (int64), then
        seconds, counts, tokens and lags (float64), null where the log says nothing. Columns that no file has
        are there, all null.
    columns : mapping of str to ReadColumn
        Which of the files' columns became which, with unit and factor.
    findings : tuple of LogFinding
        All that was found, and what was done about it.
    left_out : polars.DataFrame
        ``file``, ``row``, ``step``, ``reason`` of each row that is not in the frame.
    frameworks : tuple of str
        Whose logs they are.
    sources : tuple of str
        The files.
    step_holds : mapping of str to bool or None
        Whether ``step_seconds`` holds the evaluation, the checkpoint, the publication of a step; None where
        the log does not tell.
    """

    frame: pl.DataFrame
    columns: Mapping[str, ReadColumn]
    findings: tuple[LogFinding, ...]
    left_out: pl.DataFrame
    frameworks: tuple[str, ...]
    sources: tuple[str, ...]
    step_holds: Mapping[str, bool | None] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many steps are kept."""
        return len(self.frame)

    def __str__(self) -> str:
        """Write which columns were read as what, and all that was found, in 80 columns."""
        from .text import step_log_text

        return step_log_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the steps themselves as plain data."""
        return {
            "sources": list(self.sources),
            "frameworks": list(self.frameworks),
            "steps": len(self),
            "runs": int(self.frame["run"].n_unique()),
            "columns": {name: one._asdict() for name, one in self.columns.items()},
            "step_holds": dict(self.step_holds),
            "findings": [one._asdict() for one in self.findings],
            "left_out": self.left_out.to_dicts(),
        }

    def found(self, *kinds: str) -> list[LogFinding]:
        """Return the findings of some kinds."""
        kinds = texts_of("kinds", kinds, "Give kinds of findings, as restart.")
        return [one for one in self.findings if one.kind in kinds]


def read_step_log(
    path_or_paths: AnyPath | Sequence[AnyPath],
    *,
    framework: str | None = None,
    columns: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
) -> StepLog:
    """Read the step log of a run, whatever framework wrote it.

    Parameters
    ----------
    path_or_paths : path, or sequence of paths
        CSV, JSON lines, JSON, parquet, each plain or with ``.gz``; a console's text (``.log``, ``.txt``);
        TensorBoard's event file or folder. Several files are parts of one run after each other, or its two
        sides (prime-rl's trainer and orchestrator), which are joined by step.
    framework : str, optional
        Which framework wrote it; found by the columns' names when left out.
    columns : mapping of str to str, optional
        The file's column of ``run``, ``segment``, ``step`` or a column of the frame, as ``NAME`` or
        ``NAME:unit`` (s, ms, us, min, h; % for shares): beats the framework's.
    units : mapping of str to str, optional
        The unit of a column of the frame.

    Returns
    -------
    StepLog

    Raises
    ------
    ConfigError
        If a file cannot be read, no framework fits and no column is named, or nothing is left.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("step,timing_s/gen,timing_s/step\\n1,5,9\\n2,4,8\\n")
    >>> log = read_step_log(path)
    >>> log.frameworks, log.frame["generation_seconds"].to_list()
    (('verl',), [5.0, 4.0])
    """
    paths = _paths(path_or_paths)
    chosen = None if framework is None else framework_named(framework)
    given = given_columns(columns, units)
    files = [read_file(path, chosen, given) for path in paths]
    stacks = [_Stack(rows) for rows in _stacked(files)]
    for stack in stacks:
        stack.clean()
    return _joined(stacks, tuple(str(path) for path in paths))


read_steps = read_step_log


def _paths(given: Any) -> list[Any]:
    paths = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(paths, Iterable):
        raise ConfigError("path", "must be a path, or several", given, "Give the path of a log.")
    paths = list(paths)
    if not paths:
        raise ConfigError("path", "must name a file", NO_VALUE, "Give the path of a log.")
    return paths


def _stacked(files: list[FileRows]) -> list[FileRows]:
    """Put files of one framework behind each other."""
    found: list[FileRows] = []
    for rows in files:
        name = rows.framework.name if rows.framework else ""
        home = next((one for one in found if (one.framework.name if one.framework else "") == name), None)
        if home is None:
            found.append(rows)
            continue
        _append(home, rows)
    families = {one.framework.family if one.framework else "" for one in found}
    if len(families) > 1:
        rule = "must be logs of one framework"
        names = ", ".join(one.framework.title if one.framework else "named columns" for one in found)
        raise ConfigError("path", rule, names, "Read each by itself.")
    return found


def _append(home: FileRows, rows: FileRows) -> None:
    """Add the rows of another file."""
    before, more = len(home.steps), len(rows.steps)
    for name in dict.fromkeys((*home.values, *rows.values)):
        parts = (
            home.values.get(name, np.full(before, np.nan)),
            rows.values.get(name, np.full(more, np.nan)),
        )
        home.values[name] = np.concatenate(parts)
    home.columns = {**rows.columns, **home.columns}
    home.steps = np.concatenate([home.steps, rows.steps])
    home.labels += rows.labels
    for name in ("segments", "elapsed"):
        own, other = getattr(home, name), getattr(rows, name)
        if own is not None or other is not None:
            parts = (
                np.full(before, np.nan) if own is None else own,
                np.full(more, np.nan) if other is None else other,
            )
            setattr(home, name, np.concatenate(parts))
    home.places += rows.places
    home.growing |= rows.growing
    home.findings += [one for one in rows.findings if one not in home.findings]
    home.left_out += rows.left_out


class _Stack:
    """The rows of one side of a run, sorted into runs and segments and looked through."""

    def __init__(self, rows: FileRows) -> None:
        self.rows = rows
        self.runs = np.zeros(0, dtype=np.int64)
        self.segments = np.zeros(0, dtype=np.int64)
        self.holds: dict[str, bool | None] = {}

    @property
    def side(self) -> str:
        """Return which side of a run it is."""
        return self.rows.framework.side if self.rows.framework else ""

    def clean(self) -> None:
        """Sort rows, refuse columns, leave first steps out, and note all of it."""
        rows = self.rows
        merged_rows(rows)
        seconds = rows.values.get("step_seconds", np.full(len(rows.steps), np.nan))
        if "step_seconds" in rows.growing:
            seconds = np.full(len(rows.steps), np.nan)
        self.runs, self.segments, found = runs_and_segments(rows.steps, rows.labels, rows.segments, seconds)
        rows.findings += found
        self._in_order()
        self._growths()
        rows.findings += without_negatives(rows.values, rows.columns)
        order = np.arange(len(rows.steps))
        for one in refusals(rows.values, rows.columns, self.runs, rows.elapsed, order):
            source = rows.columns.pop(one.name).source
            del rows.values[one.name]
            words = f"cannot be {one.name}: {one.words}"
            rows.findings.append(LogFinding(one.kind, source, len(rows.steps), "refused", words))
        if not rows.values:
            reasons = "; ".join(f"{one.about}: {one.words}" for one in rows.findings if one.done == "refused")
            raise ConfigError(
                "path", f"must have a column that can be read ({reasons})", NO_VALUE, "Mend it."
            )
        some = np.any([np.isfinite(values) for values in rows.values.values()], axis=0)
        self._keep(some, "holds no value that is read")
        rows.findings += gaps(self.runs, self.segments, rows.steps)
        self._first_steps()
        rows.findings += constants(rows.values) + whole_seconds(rows.values)
        rows.findings += part_batches(rows.values, rows.steps)
        self.holds, found = held(rows.values, self._told())
        rows.findings += found + rests(rows.values, self.holds)

    def _told(self) -> dict[str, bool]:
        """Return what the framework's code says of what a step holds."""
        one = self.rows.framework
        if one is None:
            return {}
        return dict.fromkeys(one.inside, True) | dict.fromkeys(one.beside, False)

    def _keep(self, kept: np.ndarray, reason: str) -> None:
        self.rows.keep(kept, reason)
        self.runs, self.segments = self.runs[kept], self.segments[kept]

    def _in_order(self) -> None:
        order = np.lexsort((self.rows.steps, self.segments, self.runs))
        self.rows.take(order)
        self.runs, self.segments = self.runs[order], self.segments[order]

    def _growths(self) -> None:
        """Turn running totals into what each step added, by step where steps are missing."""
        rows = self.rows
        follows = np.zeros(len(rows.steps), dtype=bool)
        follows[1:] = (np.diff(self.runs) == 0) & (np.diff(self.segments) == 0)
        apart = np.ones(len(rows.steps))
        apart[1:] = np.diff(rows.steps)
        for name in sorted(rows.growing & set(rows.values)):
            total = rows.values[name]
            grown = np.full(len(total), np.nan)
            with np.errstate(invalid="ignore", divide="ignore"):
                grown[1:] = np.diff(total) / apart[1:]
            grown[~follows] = np.nan
            rows.values[name] = np.where(np.isfinite(grown), grown, np.nan)
            words = f"a total over the run: what each step adds ({rows.columns[name].source})"
            rows.findings.append(
                LogFinding("derived", name, int(np.isfinite(grown).sum()), "converted", words)
            )

    def _first_steps(self) -> None:
        rows = self.rows
        if "step_seconds" not in rows.values:
            return
        slow = warm_up_rows(rows.values["step_seconds"], self.runs, self.segments, rows.steps)
        if not slow.any():
            return
        usual = float(np.median(rows.values["step_seconds"][np.isfinite(rows.values["step_seconds"])]))
        most = float(np.nanmax(rows.values["step_seconds"][slow]))
        words = (
            f"first steps took up to {most:.4g} s, {usual:.4g} s is usual "
            f"(steps {shortly(sorted(set(rows.steps[slow].tolist())))})"
        )
        rows.findings.append(LogFinding("warm_up", "step_seconds", int(slow.sum()), "left out", words))
        self._keep(~slow, "a first step, slower than those after it")

    def frame(self) -> pl.DataFrame:
        """Return the rows as a frame with the columns that are there."""
        import polars as pl

        places = {"run": self.runs, "segment": self.segments, "step": self.rows.steps}
        columns = [pl.Series(name, values, pl.Int64) for name, values in places.items()]
        for name in COLUMNS:
            if name in self.rows.values:
                columns.append(pl.Series(name, self.rows.values[name], pl.Float64).fill_nan(None))
        return pl.DataFrame(columns)


def _joined(stacks: list[_Stack], sources: tuple[str, ...]) -> StepLog:
    """Join the sides of a run by step, and give the whole its columns."""
    import polars as pl

    stacks = sorted(stacks, key=lambda one: one.side != "trainer")
    first = stacks[0]
    frame, columns = first.frame(), dict(first.rows.columns)
    findings = list(first.rows.findings)
    left_out = list(first.rows.left_out)
    for other in stacks[1:]:
        more = other.frame()
        twice = [name for name in more.columns if name in columns]
        both = frame.join(more.drop(twice), on=list(PLACES), how="full", coalesce=True)
        added = len(both) - len(frame)
        frame = both.sort(PLACES)
        columns |= {name: one for name, one in other.rows.columns.items() if name not in columns}
        findings += [one for one in other.rows.findings if one not in findings]
        left_out += other.rows.left_out
        words = f"joined by step with the other side; {many(added, 'step')} are only in one of them"
        if twice:
            words += f"; {', '.join(twice)} from the trainer's"
        findings.append(LogFinding("sides", Path(sources[-1]).name, added, "joined", words))
    missing = [pl.lit(None, pl.Float64).alias(name) for name in COLUMNS if name not in frame.columns]
    frame = frame.with_columns(missing).select(*PLACES, *COLUMNS)
    if not len(frame):
        raise ConfigError(
            "path", "must hold at least one step that can be used", NO_VALUE, "Name another log."
        )
    schema = {"file": pl.String, "row": pl.Int64, "step": pl.Int64, "reason": pl.String}
    return StepLog(
        frame=frame,
        columns=columns,
        findings=tuple(findings),
        left_out=pl.DataFrame(left_out, schema=schema),
        frameworks=tuple(
            one.rows.framework.name if one.rows.framework else "named columns" for one in stacks
        ),
        sources=sources,
        step_holds=first.holds,
    )
