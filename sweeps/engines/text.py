"""What the engine commands print: parameters with intervals, errors beside each other, times of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.text import grid, terminal_width, wrapped
from .agreement import Agreement
from .estimate import Estimate

if TYPE_CHECKING:
    from .engine_fit import EngineFit

# Of each coefficient: what to multiply it with so that it can be read, and the unit then.
READABLE = {
    "step_seconds": (1e3, "ms"),
    "step_seconds_per_rollout": (1e6, "µs"),
    "step_seconds_per_context_token": (1e9, "ns"),
    "prefill_seconds_per_token": (1e6, "µs"),
    "layer_seconds": (1e6, "µs"),
}
ERRORS = {
    "per_token_median": "time per token: median error of single requests",
    "per_token_mean": "time per token: mean",
    "per_token_90": "time per token: 90th percentile",
    "per_token_99": "time per token: 99th percentile",
    "end_to_end_median": "end to end: median error of single requests",
    "end_to_end_mean": "end to end: mean",
    "first_token_mean": "first token: mean",
}
TIMES = {
    "queue_wait_seconds": "wait for a place",
    "first_token_seconds": "first token",
    "seconds_per_token": "time per token",
    "end_to_end_seconds": "end to end",
}


def digits(value: float) -> str:
    """Write a number with three digits that mean something.

    Examples
    --------
    >>> digits(0.01234), digits(185.29), digits(0.0)
    ('0.0123', '185', '0')
    """
    if value == 0:
        return "0"
    found = f"{value:#.3g}"
    return found.rstrip(".") if "e" not in found else f"{value:,.0f}"


def reading(one: Estimate) -> tuple[str, str, str]:
    """Return an estimate's value, its interval and its unit as they are read best."""
    scale, unit = READABLE.get(one.name, (1.0, ""))
    value, low, high = (digits(scale * each) for each in (one.value, one.low, one.high))
    return value, f"{low} to {high}", unit


def parameter_rows(fit: EngineFit) -> tuple[list[str], list[list[str]]]:
    """Return the table of what was fitted: header and rows."""
    header = ["fitted", "value", "unit", "95 % interval", "before", "said by"]
    rows = []
    for one in fit.parameters:
        value, interval, unit = reading(one)
        scale = READABLE.get(one.name, (1.0, ""))[0]
        assert one.prior is not None
        before = f"{digits(scale * one.prior.low)} to {digits(scale * one.prior.high)}"
        rows.append([one.words, value, unit, interval, before, one.told_by])
    return header, rows


def coefficient_rows(fit: EngineFit) -> tuple[list[str], list[list[str]]]:
    """Return the table of a step's parts: header and rows."""
    rows = [[one.words, *_turned(reading(one))] for one in fit.coefficients]
    return ["a step", "value", "unit", "95 % interval"], rows


def _turned(parts: tuple[str, str, str]) -> tuple[str, str, str]:
    value, interval, unit = parts
    return value, unit, interval


def error_rows(columns: Mapping[str, Agreement | None]) -> tuple[list[str], list[list[str]]]:
    """Return the table of errors: one column for each set of requests."""
    shown = {name: one for name, one in columns.items() if one is not None}
    rows = []
    for name, words in ERRORS.items():
        values = [getattr(one, name) for one in shown.values()]
        if all(value != value for value in values):
            continue
        sign = "" if name.endswith("median") else "+"
        rows.append([words, *("-" if value != value else f"{value:{sign}.1%}" for value in values)])
    header = ["predicted against measured", *(f"{name}: {one.requests}" for name, one in shown.items())]
    return header, rows


def fit_text(fit: EngineFit, written: str = "") -> str:
    """Return what ``lagsweep engine fit`` prints."""
    width = terminal_width()
    parts = [wrapped(heading(fit), width=width), ""]
    for header, rows in (parameter_rows(fit), coefficient_rows(fit)):
        parts += [grid(header, rows, left=[0, len(header) - 1], width=width), ""]
    parts += [grid(*error_rows(agreements(fit)), left=[0], width=width), ""]
    bounds = "; ".join(f"{name}: {words}" for name, words in limits(fit))
    parts.append(wrapped(f"Limits: {bounds}.", indent="  ", first="", width=width))
    parts += [wrapped(note, first="- ", indent="  ", width=width) for note in fit.notes]
    return "\n".join([*parts, *([written] if written else [])])


def limits(fit: EngineFit) -> list[tuple[str, str]]:
    """Say what bounds the engine and who said so."""
    found = []
    for name, words in (("kv_cache_tokens", "tokens of cache"), ("max_running", "rollouts at once")):
        value = getattr(fit.engine, name)
        said = fit.given.get(name, "")
        found.append((words, said if value is None else f"{value:,} ({said})"))
    return found


def agreements(fit: EngineFit) -> dict[str, Agreement | None]:
    """Return the errors by what they are on."""
    return {"fitted on": fit.fitted, "held out": fit.held}


def heading(fit: EngineFit) -> str:
    """Name the model, its cards and the measurement in a sentence."""
    one = fit.deployment
    cards = f"{one.tensor_parallel} x " if one.tensor_parallel > 1 else ""
    engines = "" if one.engines == 1 else f", {one.engines} engines"
    held = f", {fit.held.requests} held out" if fit.held else ""
    return (
        f"{one.shape.name} on {cards}{one.accelerator.name}{engines}: fitted on {fit.fitted.requests} of "
        f"{len(fit.requests)} rows of {Path(fit.requests.source).name}{held}."
    )


def time_rows(frame: Any, measured: Mapping[str, np.ndarray]) -> tuple[list[str], list[list[str]]]:
    """Return the table of requests' times: mean, median and percentiles, measured below predicted."""
    rows = []
    names = ("queue_wait", "first_token", "per_token", "end_to_end")
    for (column, words), name in zip(TIMES.items(), names):
        rows.append([words, *_summary(frame[column].drop_nulls().to_numpy())])
        if name in measured:
            rows.append([f"  {words}, measured", *_summary(measured[name])])
    return ["seconds", "mean", "median", "90 %", "99 %", "largest"], rows


def _summary(values: np.ndarray) -> list[str]:
    known = values[np.isfinite(values)]
    if not len(known):
        return ["-"] * 5
    ends = np.percentile(known, (50, 90, 99)).tolist()
    return [digits(value) for value in (float(known.mean()), *ends, float(known.max()))]


def sentences(totals: Mapping[str, Any], running: int, waiting: int, context: float) -> Sequence[str]:
    """Say what an engine did with the requests."""
    preempted = int(totals["preemptions"])
    lost = "none was preempted" if not preempted else f"{preempted:,} times one was preempted"
    return [
        f"At most {running:,} rollouts ran and {waiting:,} waited at once, with {context:,.0f} tokens of "
        f"context; {lost}."
    ]
