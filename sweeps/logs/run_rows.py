"""Rows of a log sorted into runs and segments: restarts, two runs in one file, rows that came late.

Steps rise within a segment. A row joins the segment whose last step is the nearest below its own; one that
none can take begins another. Two such strands that take turns are two runs that wrote one file; one that
begins where another has ended is a restart. A strand that only fills the other's gaps came late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError, many
from .log_findings import LogFinding, ranges_shortly, shortly

_RECENT = 10
_SOON = 50
_MOST_STRANDS = 200


@dataclass
class _Strand:
    """Rows whose steps rise."""

    label: str
    rows: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, row: int, step: int, value: float) -> None:
        self.rows.append(row)
        self.steps.append(step)
        if np.isfinite(value) and value > 0:
            self.values.append(float(np.log(value)))

    def away(self, value: float) -> float:
        """Return how far a value is from what this strand had lately."""
        if not self.values or not (np.isfinite(value) and value > 0):
            return 0.0
        return abs(float(np.log(value)) - float(np.median(self.values[-_RECENT:])))


def runs_and_segments(
    steps: np.ndarray,
    labels: Sequence[str],
    given_segments: np.ndarray | None,
    values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, list[LogFinding]]:
    """Sort rows into runs and segments, both counted from 0 in the order of their first rows.

    Parameters
    ----------
    steps : ndarray of int64, shape (rows,)
    labels : sequence of str
        The run that each row names, or the same text for all.
    given_segments : ndarray of float64, optional
        What the file itself calls segments; NaN where it says nothing.
    values : ndarray of float64
        Seconds of each step: what tells two runs apart where both could go on.

    Raises
    ------
    ConfigError
        If steps go back in more than 200 rows: then they are none.

    Examples
    --------
    >>> runs, segments, found = runs_and_segments(
    ...     np.array([0, 1, 2, 3, 2, 3, 4]), [""] * 7, None, np.full(7, np.nan))
    >>> runs.tolist(), segments.tolist(), found[0].kind
    ([0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1], 'restart')
    """
    found: list[LogFinding] = []
    strands = _late_rows_put_back(_strands(steps, labels, values), found)
    runs = np.zeros(len(steps), dtype=np.int64)
    segments = np.zeros(len(steps), dtype=np.int64)
    ends: list[tuple[str, _Strand, int]] = []  # of each run: label, last strand, segments so far
    for strand in strands:
        place = _continued(strand, ends)
        if place is None:
            _told_apart(strand, ends, found)
            ends.append((strand.label, strand, 1))
            place, segment = len(ends) - 1, 0
        else:
            _, before, segment = ends[place]
            ends[place] = strand.label, strand, segment + 1
            again = sorted(set(before.steps) & set(strand.steps))
            rest = f", and steps {shortly(again)} are there twice" if again else ""
            words = f"goes on from step {strand.steps[0]} after step {before.steps[-1]}{rest}"
            found.append(LogFinding("restart", f"step {strand.steps[0]}", len(again), "split", words))
        runs[strand.rows], segments[strand.rows] = place, segment
    if given_segments is not None:
        segments = _with_given(runs, segments, given_segments, steps, found)
    return runs, segments, found


def _strands(steps: np.ndarray, labels: Sequence[str], values: np.ndarray) -> list[_Strand]:
    strands: list[_Strand] = []
    names = list(zip(labels, steps.tolist()))
    for row, (step, label) in enumerate(zip(steps.tolist(), labels)):
        open_ones = [one for one in strands if one.label == label and one.steps[-1] < step]
        nearest = max((one.steps[-1] for one in open_ones), default=None)
        fitting = [one for one in open_ones if one.steps[-1] == nearest]
        if not fitting:
            fitting = [_Strand(label)]
            strands += fitting
            if len(strands) > _MOST_STRANDS:
                rule = f"must rise within a run; it goes back in more than {_MOST_STRANDS} rows"
                raise ConfigError("column of step", rule, NO_VALUE, "Name another: --column step=NAME.")
        latest = max(fitting, key=lambda one: one.rows[-1] if one.rows else -1)
        if len(fitting) > 1 and names[row] in names[row + 1 : row + 1 + _SOON]:
            # The other will go on too: two runs, told apart by how long their steps were.
            latest = min(fitting, key=lambda one: one.away(values[row]))
        latest.add(row, step, float(values[row]))
    return strands


def _late_rows_put_back(strands: list[_Strand], found: list[LogFinding]) -> list[_Strand]:
    """Give rows that only fill the gaps of another strand back to it."""
    kept: list[_Strand] = []
    late = []
    for strand in strands:
        home = next(
            (
                one for one in kept
                if one.label == strand.label and strand.rows[0] < one.rows[-1] + 2
                and one.steps[0] <= strand.steps[0] and strand.steps[-1] <= one.steps[-1]
                and not set(strand.steps) & set(one.steps)
            ),
            None,
        )  # fmt: skip
        if home is None:
            kept.append(strand)
            continue
        pairs = sorted(zip([*home.steps, *strand.steps], [*home.rows, *strand.rows]))
        home.steps, home.rows = [step for step, _ in pairs], [row for _, row in pairs]
        late += strand.steps
    if late:
        words = f"{many(len(late), 'row')} came out of order (steps {shortly(sorted(late))})"
        found.append(LogFinding("out_of_order", "step", len(late), "kept", words))
    return kept


def _continued(strand: _Strand, ends: list[tuple[str, _Strand, int]]) -> int | None:
    """Return the run that a strand goes on with: the latest that had ended before it.

    One that begins at the first step of that run, or before, goes on with none.
    """
    for place in range(len(ends) - 1, -1, -1):
        label, before, _ = ends[place]
        if label == strand.label and max(before.rows) < min(strand.rows):
            return place if strand.steps[0] > before.steps[0] else None
    return None


def _told_apart(strand: _Strand, ends: list[tuple[str, _Strand, int]], found: list[LogFinding]) -> None:
    """Say why a strand is another run."""
    if not ends:
        return
    others = [before for label, before, _ in ends if label == strand.label]
    if not others:
        about = strand.label
        found.append(LogFinding("several_runs", about, len(strand.rows), "split", "another run by its name"))
        return
    beside = [before for before in others if min(strand.rows) < max(before.rows)]
    again = len(set(strand.steps) & {step for one in others for step in one.steps})
    if beside:
        words = (
            f"two runs wrote this file in turns: {many(again, 'step')} are there twice; where both are at "
        )
        words += "the same step a row goes to the one whose steps were as long"
        found.append(LogFinding("interleaved", "step", again, "split", words))
    else:
        words = f"begins again at step {strand.steps[0]}: another run"
        found.append(LogFinding("several_runs", f"step {strand.steps[0]}", len(strand.rows), "split", words))


def _with_given(
    runs: np.ndarray, segments: np.ndarray, given: np.ndarray, steps: np.ndarray, found: list[LogFinding]
) -> np.ndarray:
    """Cut segments also where the file says so."""
    result = segments.copy()
    for run in np.unique(runs).tolist():
        rows = np.flatnonzero(runs == run)
        pairs = [(int(segments[row]), float(np.nan_to_num(given[row], nan=-1))) for row in rows]
        order = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        result[rows] = [order[pair] for pair in pairs]
        for number, pair in enumerate(order):
            first = steps[rows[pairs.index(pair)]]
            if number and not any(one.about == f"step {first}" for one in found):
                words = f"segment {pair[1]:g} by the file begins at step {first}"
                found.append(LogFinding("restart", f"step {first}", 0, "split", words))
    return result


def gaps(runs: np.ndarray, segments: np.ndarray, steps: np.ndarray) -> list[LogFinding]:
    """Say which steps are not in the log.

    Examples
    --------
    >>> zeros = np.zeros(3, dtype=int)
    >>> print(gaps(zeros, zeros, np.array([1, 2, 5]))[0])
    gap, step: 2 steps are not in the log: 3-4 (kept)
    """
    missing: list[tuple[int, int]] = []
    strides = set()
    for place in {(int(run), int(segment)) for run, segment in zip(runs, segments)}:
        own = np.unique(steps[(runs == place[0]) & (segments == place[1])])
        apart = np.diff(own)
        strides |= set(apart.tolist())
        missing += zip((own[:-1][apart > 1] + 1).tolist(), (own[1:][apart > 1] - 1).tolist())
    if not missing:
        return []
    count = sum(last - first + 1 for first, last in missing)
    if len(strides) == 1:
        words = f"every {next(iter(strides))}th step is logged"
    else:
        verb = "is" if count == 1 else "are"
        words = f"{many(count, 'step')} {verb} not in the log: {ranges_shortly(sorted(missing))}"
    return [LogFinding("gap", "step", len(missing), "kept", words)]
