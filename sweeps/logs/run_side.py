"""One side of a run: the rows of its files sorted into runs and segments, and looked through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError
from .canonical import COLUMNS
from .impossible import refusals, without_negatives
from .inside_steps import (
    constants,
    held,
    part_batches,
    rests,
    summed_steps,
    warm_up_rows,
    whole_seconds,
)
from .log_findings import LogFinding, shortly
from .one_file import FileRows, merged_rows
from .run_rows import gaps, runs_and_segments

if TYPE_CHECKING:
    import polars as pl


def stacked(files: list[FileRows]) -> list[FileRows]:
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


class Side:
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
        total = rows.columns.get("step_seconds")
        rows.findings += summed_steps(rows.values, total is not None and " + " in total.source)
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
