"""A run's steps from its logs, as they are: one row a step, and all that was found on the way."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import NO_VALUE, ConfigError, many
from ..checks import texts_of
from .canonical import COLUMNS, PLACES
from .frameworks import framework_named
from .log_findings import LogFinding
from .one_file import read_file
from .reading import ReadColumn, given_columns
from .run_side import Side, stacked

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
    stacks = [Side(rows) for rows in stacked(files)]
    for stack in stacks:
        stack.clean()
    return _joined(stacks, tuple(str(path) for path in paths))


def _paths(given: Any) -> list[Any]:
    paths = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(paths, Iterable):
        raise ConfigError("path", "must be a path, or several", given, "Give the path of a log.")
    paths = list(paths)
    if not paths:
        raise ConfigError("path", "must name a file", NO_VALUE, "Give the path of a log.")
    return paths


def _joined(stacks: list[Side], sources: tuple[str, ...]) -> StepLog:
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
