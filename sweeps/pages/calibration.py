"""A calibrated run as one offline page: how it predicts, what was fitted, its steps, what is open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ..calibrate.backtest import HeldRow
from ..calibrate.calibration import Calibration
from ..calibrate.estimates import step_seconds
from ..calibrate.phases import PhaseFit, column, rest_of_step, tokens_of
from ..calibrate.sentences import ess_note, what_if_said, what_if_table
from ..calibrate.text import backtest_table, fit_table, interval, prediction_table, run_said, sentences
from ..calibrate.what_if import WhatIf
from ..charts.calibration import STEP_COLOURS, lengths_chart, phase_chart, steps_chart
from ..charts.ends import ends_chart
from ..charts.engine import SET_COLOURS
from ..charts.style import plain_value
from ..checks import text_of
from ..files import write_atomically
from .figures import Figure
from .page import Table, checked_page, linked_page

NAME = ("--page", "calibration.html")  # the option that names the page, and an example
_MOST_POINTS = 1500
_MOST_PHASES = 4
_MOST_CHANGES = 60  # cells that are drawn
_SMALLEST_PHASE = 0.02  # of a step, that is drawn
FITTED, HELD = SET_COLOURS


def checked_calibration_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
    """
    return checked_page(path, *NAME)


def write_calibration_page(
    path: str | Path,
    calibration: Calibration,
    *,
    changed: WhatIf | None = None,
    toml: str = "",
    line: str = "",
) -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
        ``something.html``.
    calibration : Calibration
    changed : WhatIf, optional
        A sweep around the run: what other settings would change comes first then.
    toml : str
        The configuration as a file.
    line : str
        The command that makes the page again.

    Raises
    ------
    ConfigError
        For a bad file name.
    """
    target = checked_page(path, *NAME)
    instance("calibration", calibration, Calibration, "Give what calibrate returns.")
    if changed is not None:
        instance("changed", changed, WhatIf, "Give what what_if returns.")
    toml, line = (text_of(name, text, "Give text.") for name, text in (("toml", toml), ("line", line)))
    over_time, phases = _over_time(calibration), _phases(calibration)
    changes = [] if changed is None else [_changes(changed)]
    title = f"Calibrated on {calibration.source}" if changed is None else f"What if: {calibration.source}"
    said = sentences(calibration) if changed is None else what_if_said(changed)
    table = None if changed is None else _table(what_if_table(changed), (0, len(changed.axes) + 1))
    content = linked_page(
        "calibration.html",
        f"{title} · lagsweep",
        [*changes, *over_time, *phases],
        lambda _: {},
        heading=title,
        said=[("", one) for one in said],
        assumed=[str(one) for one in calibration.assumed],
        changes=changes,
        changed=table,
        ess_note="" if changed is None else ess_note(changed),
        run_said=[] if changed is None else [("", one) for one in run_said(calibration)],
        counts=f"{calibration.fitted:,} steps fitted, {calibration.held:,} held",
        backtest=_table(backtest_table(calibration), (0, 4)) if calibration.tests else None,
        fits=_table(fit_table(calibration), (0, 2, 3)),
        predictions=_table(prediction_table(calibration), (0, 2, 3, 4)),
        over_time=over_time,
        phases=phases,
        read=[str(one) for one in calibration.read],
        columns=[f"{name}: {found}" for name, found in calibration.columns.items()],
        toml=toml,
        line=line,
    )
    write_atomically(target, content)
    return target


def _table(found: tuple[list[str], list[list[str]]], words: tuple[int, ...]) -> Table:
    header, rows = found
    kinds = ["text whole" if k == 0 else "text" if k in words else "" for k in range(len(header))]
    return Table(list(zip(header, kinds)), rows)


def _changes(found: WhatIf) -> Figure:
    """Draw the seconds of a step in every cell, with what the log leaves open."""
    rows = [_change(found, place) for place, one in enumerate(found.changes) if not one.stalled]
    caption = (
        "Seconds of a step in every cell, from end to end of what the log leaves open; the orange one is the "
        "run as it is. Bars that overlap are not settings that are alike: what is open moves them together."
    )
    middle = found.as_it_is.step.value
    draw = partial(_draw_changes, rows[:_MOST_CHANGES], middle)
    return Figure("changes", "A step under other settings", caption, draw)


def _change(found: WhatIf, place: int) -> dict[str, Any]:
    one = found.changes[place]
    low, high = plain_value(one.step.low), plain_value(one.step.high)
    return {
        "label": ", ".join(f"{name} {value}" for name, value in one.settings.items()),
        "kind": "best" if place == found.base else "other",
        "value": plain_value(one.step.value) if one.step.identified else None,
        "low": low,
        "high": high,
        "shown": interval(one.step.low, one.step.high),
    }


def _draw_changes(rows: Sequence[Any], middle: float, linked: bool) -> Any:
    return ends_chart(rows, title="seconds of a step", middle=middle)


def _numbers(found: Calibration) -> np.ndarray:
    """Return the numbers of the steps."""
    if "step" in found.steps.columns:
        return found.steps["step"].to_numpy().astype(np.float64)
    return np.arange(len(found.steps), dtype=np.float64)


def _rows(found: Calibration, values: np.ndarray, **others: np.ndarray) -> list[dict[str, Any]]:
    """Return the points of a chart: steps, evenly thinned where there are very many."""
    numbers = _numbers(found)
    known = np.flatnonzero(np.isfinite(values))
    for more in others.values():
        known = known[np.isfinite(more[known])]
    stride = max(1, -(-len(known) // _MOST_POINTS))
    return [
        {
            "step": plain_value(float(numbers[place])),
            "value": plain_value(float(values[place])),
            **{name: plain_value(float(more[place])) for name, more in others.items()},
            "set": FITTED if place < found.fitted else HELD,
        }
        for place in known[::stride]
    ]


def _over_time(found: Calibration) -> list[Figure]:
    """Draw the step and what it waits, by step."""
    quantities = [
        ("step", "step", "Seconds of a step", step_seconds(found.steps)),
        ("wait", "wait", "Seconds that a step waits", column(found.steps, _wait_column(found))),
        ("lag", "lag", "Lag in versions", column(found.steps, "lag_mean")),
    ]
    figures = []
    for name, test, title, values in quantities:
        rows = _rows(found, values)
        if not rows:
            continue
        row = next((one for one in found.tests if one.name.partition(":")[0] == test), None)
        caption = f"{title}, by step: those that were fitted on and those that were held."
        predicted = _predicted(found, row)
        if predicted:
            caption += " The line is the mean that was predicted for the held ones, the band its range."
        draw = partial(_draw_steps, rows, predicted, title.lower())
        figures.append(
            Figure(f"steps-{name}", title, caption, draw, STEP_COLOURS if predicted else SET_COLOURS)
        )
    lengths = found.estimates.lengths
    if lengths is not None:
        rows = _rows(found, column(found.steps, "response_tokens_mean"))
        caption = (
            "Mean response of each step; the lines are the segments that the fitted steps were cut into."
        )
        draw = partial(_draw_lengths, rows, _segments(found))
        figures.append(Figure("lengths", "Lengths", caption, draw, SET_COLOURS))
    return figures


def _wait_column(found: Calibration) -> str:
    return "generation_seconds" if found.setup.in_turn else "wait_seconds"


def _draw_steps(rows: Sequence[Any], predicted: dict[str, float], title: str, linked: bool) -> Any:
    return steps_chart(rows, predicted, title)


def _draw_lengths(rows: Sequence[Any], segments: Sequence[Any], linked: bool) -> Any:
    return lengths_chart(rows, segments)


def _draw_phase(rows: Sequence[Any], line: Sequence[Any], title: str, linked: bool) -> Any:
    return phase_chart(rows, line, title)


def _predicted(found: Calibration, row: HeldRow | None) -> dict[str, float]:
    """Return where the prediction of the held steps stands."""
    if row is None or not found.held or not np.isfinite([row.predicted, row.low, row.high]).all():
        return {}
    numbers = _numbers(found)
    ends = {"first": float(numbers[found.fitted]), "last": float(numbers[-1])}
    return {**ends, "value": row.predicted, "low": row.low, "high": row.high}


def _segments(found: Calibration) -> list[dict[str, float]]:
    numbers, lengths = _numbers(found), found.estimates.lengths
    assert lengths is not None
    firsts = [first for first, _ in lengths.segments]
    lasts = [*(first - 1 for first in firsts[1:]), found.fitted - 1]
    return [
        {"first": float(numbers[first]), "last": float(numbers[last]), "mean": mean}
        for first, last, (_, mean) in zip(firsts, lasts, lengths.segments)
    ]


def _phases(found: Calibration) -> list[Figure]:
    """Draw the largest phases over their tokens."""
    tokens = tokens_of(found.steps)
    if not np.isfinite(tokens).any():
        return []
    least = _SMALLEST_PHASE * found.estimates.step.value
    large = [one for one in found.estimates.phases if one.mean.value >= least]
    largest = sorted(large, key=lambda one: -one.mean.value)[:_MOST_PHASES]
    return [figure for one in largest if (figure := _phase(found, one, tokens)) is not None]


def _phase(found: Calibration, phase: PhaseFit, tokens: np.ndarray) -> Figure | None:
    rest = rest_of_step(found.steps, found.setup.holds)
    seconds = rest if phase.column == "rest_seconds" else column(found.steps, phase.column)
    if seconds is None:
        return None
    rows = _rows(found, seconds, tokens=tokens, seconds=seconds)
    if not rows:
        return None
    reach = [min(row["tokens"] for row in rows), max(row["tokens"] for row in rows)]
    line = [{"tokens": one, "seconds": float(phase.seconds(one))} for one in reach]
    kind = "a fixed part and one for each token" if phase.per_token else "a fixed part: tokens do not show"
    caption = f"Seconds of {phase.words} over the tokens of the step; the line is the fit, {kind}."
    draw = partial(_draw_phase, rows, line, f"{phase.words}, s")
    return Figure(f"phase-{phase.column}", phase.words.capitalize(), caption, draw, SET_COLOURS)
