"""The steps that a calibration uses: read from what was given, one run, those that have a time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars

from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked, path_of
from ..config.engine import Engine
from ..logs.engine_log import EngineLog, read_engine_log
from ..logs.engine_samples_fit import fit_engine_samples
from ..logs.frameworks import shipped_frameworks
from ..logs.lengths import LengthRecords, read_lengths
from ..logs.log_findings import LogFinding
from ..logs.sampled_engine import sampled_engine
from ..logs.step_log import StepLog, read_step_log
from .estimates import step_seconds
from .phases import TRAINER_PHASES, WORDS, column

FEWEST_STEPS = 20
AnyPath: TypeAlias = str | os.PathLike[str]
LogInput: TypeAlias = AnyPath | Sequence[AnyPath] | StepLog | polars.DataFrame


@dataclass(frozen=True)
class LogSteps:
    """The steps of one run.

    Attributes
    ----------
    frame : polars.DataFrame
    source : str
        Where they are from, in words.
    findings : tuple of LogFinding
        What the log's reader found.
    columns : mapping of str to str
        What each column was read from, in words.
    frameworks : tuple of str
    holds : mapping
        Whether the seconds of a step hold evaluations, checkpoints, publications.
    """

    frame: polars.DataFrame
    source: str
    findings: tuple[LogFinding, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()
    holds: Mapping[str, bool | None] = field(default_factory=dict)


def read_log(
    log: Any, framework: str | None, columns: Mapping[str, str] | None, units: Mapping[str, str] | None
) -> LogSteps:
    """Return the steps of what was given.

    Parameters
    ----------
    log : path, list of paths, StepLog or polars.DataFrame
    framework, columns, units
        As for :func:`read_step_log`.

    Raises
    ------
    ConfigError
        As :func:`read_step_log`, and for what is none of these.
    """
    if isinstance(log, polars.DataFrame | StepLog):
        for name, given in (("framework", framework), ("columns", columns), ("units", units)):
            if given is not None and not (isinstance(given, dict) and not given):
                raise ConfigError(name, "must be left out for steps that were read", given, "Leave it out.")
    if isinstance(log, polars.DataFrame):
        own = {name: name for name in log.columns if name in WORDS}
        return LogSteps(*_one_run(log, "a frame"), columns=own, holds=_holds(log))
    if not isinstance(log, StepLog):
        if not isinstance(log, str | os.PathLike | list | tuple):
            way_out = "Give a path, several paths, or what read_step_log returns."
            raise ConfigError("log", "must be a step log", log, way_out)
        log = read_step_log(log, framework=framework, columns=columns, units=units)
    frame, source, more = _one_run(log.frame, ", ".join(Path(one).name for one in log.sources))
    return LogSteps(
        frame,
        source,
        (*log.findings, *more),
        {name: f"{one.source} ({one.unit})" for name, one in log.columns.items()},
        log.frameworks,
        log.step_holds,
    )


def _holds(frame: polars.DataFrame) -> dict[str, bool | None]:
    """Tell whether a step holds its publication: not if its parts would then be longer than the step."""
    step = column(frame, "step_seconds")
    names = [*TRAINER_PHASES, "wait_seconds", "publication_seconds"]
    parts = np.nansum([column(frame, name) for name in names], axis=0)
    known = np.isfinite(step) & np.isfinite(column(frame, "publication_seconds"))
    if not known.any():
        return {}
    return {"publication_seconds": bool(parts[known].mean() <= 1.005 * step[known].mean())}


def read_responses(lengths: Any) -> LengthRecords | None:
    """Return single responses, from a file or already read; None where none were given."""
    if lengths is None or isinstance(lengths, LengthRecords):
        return lengths
    return read_lengths(path_of("lengths", lengths))


def engine_of(samples: Any, given: Any) -> Engine:
    """Return the engine that samples tell.

    Raises
    ------
    ConfigError
        If an engine was given too, or the samples do not tell one.
    """
    if given is not None:
        raise ConfigError("samples", "must be left out with an engine", samples, "Give one of both.")
    log = samples if isinstance(samples, EngineLog) else read_engine_log(path_of("samples", samples))
    return sampled_engine(fit_engine_samples(log))


def _one_run(frame: polars.DataFrame, source: str) -> tuple[polars.DataFrame, str, tuple[LogFinding, ...]]:
    """Keep the run with the most steps."""
    if "run" not in frame.columns or frame["run"].n_unique() < 2:
        return frame, source, ()
    counts = frame.group_by("run").len().sort("len", "run", descending=[True, False])
    chosen, kept = counts.row(0)
    words = f"{len(counts)} runs in the log: run {chosen}, the longest with {kept:,} steps, is calibrated"
    left = len(frame) - kept
    found = LogFinding("interleaved", "run", left, "left out", words)
    return frame.filter(polars.col("run") == chosen), source, (found,)


def usable(frame: polars.DataFrame, frameworks: Sequence[str] = ()) -> polars.DataFrame:
    """Keep the steps that have a time.

    Parameters
    ----------
    frame : polars.DataFrame
    frameworks : sequence of str
        Whose log it is.

    Raises
    ------
    ConfigError
        Where there are no times, none of the trainer's, or too few steps.
    """
    seconds = step_seconds(frame)
    if not np.isfinite(seconds).any():
        way_out = f"Name a column: --column step_seconds=NAME. Known are {', '.join(WORDS)}."
        rule = "must hold seconds of its steps or of their parts"
        raise ConfigError("log", rule, frame.columns, way_out)
    parts = ["wait_seconds", *TRAINER_PHASES]
    if not any(np.isfinite(column(frame, name)).any() for name in parts):
        present = [name for name in WORDS if np.isfinite(column(frame, name)).any()]
        raise ConfigError("log", *_without_trainer(frameworks, parts, ", ".join(present)))
    kept = frame.filter(polars.Series(np.isfinite(seconds)))
    if len(kept) < FEWEST_STEPS:
        rule = f"must have at least {FEWEST_STEPS} steps with a time"
        raise ConfigError("log", rule, len(kept), "Let the run go on.")
    return kept


def _without_trainer(frameworks: Sequence[str], parts: Sequence[str], present: str) -> tuple[str, str, str]:
    """Return rule, value and way out for a log that has none of the trainer's parts of a step.

    Some systems never write them; of others there is a log, or a newer one, that has them.
    """
    known = [shipped_frameworks()[name] for name in frameworks if name in shipped_frameworks()]
    names = " and ".join(dict.fromkeys(one.title for one in known))
    sources = [str(ways[0]) for one in known for name, ways in one.columns.items() if name in parts]
    needs = "must have the trainer's waits or its training in seconds: without them a step tells neither"
    own = "--column training_seconds=NAME"
    if any(one.side for one in known):
        return f"{needs}, and one of {names} has neither", present, f"Give the trainer's log too, or {own}."
    if known and not sources:
        way_out = f"Log such a time in the trainer yourself and name it: {own}."
        return f"{needs}, and a log of {names} has no such column", present, way_out
    if known:
        shown = ", ".join(sources[:3])
        return f"{needs}, and this one of {names} has neither", present, f"Give one with {shown}, or {own}."
    return needs, present, f"Give the trainer's log too, or name a column: {own}."


def fitted_steps(frame: polars.DataFrame, held: float, fit_steps: Any) -> int:
    """Return how many first rows are fitted on.

    Parameters
    ----------
    frame : polars.DataFrame
    held : float
        The share that is held.
    fit_steps : int, optional
        Steps to fit on, by their numbers; then `held` does not count.

    Raises
    ------
    ConfigError
        If these are too few.
    """
    steps = len(frame)
    if fit_steps is None:
        return max(min(FEWEST_STEPS, steps), steps - int(held * steps))
    wanted = checked(WholeNumber, "fit_steps", fit_steps, low=FEWEST_STEPS, high=2**52)
    numbers = frame["step"].to_numpy() if "step" in frame.columns else np.arange(steps)
    count = int((numbers < numbers[0] + wanted).sum())
    if count < FEWEST_STEPS:
        rule = f"must leave at least {FEWEST_STEPS} steps that have a time"
        raise ConfigError("fit_steps", rule, fit_steps, "Give more.")
    return count
