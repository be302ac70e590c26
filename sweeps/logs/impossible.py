"""Columns that cannot be what their names say: refused, with the reason; and those to look at twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from ...kernels.errors import many
from .canonical import COLUMNS, MAY_BE_NEGATIVE, SECONDS
from .log_findings import LogFinding
from .reading import NumberTable, ReadColumn

_FEWEST = 10
_INSIDE = (
    "wait_seconds", "training_seconds", "log_probability_seconds", "reference_seconds", "value_seconds",
    "critic_seconds", "preparation_seconds",
)  # fmt: skip
_POSITIVE = ("step_seconds", "rollouts", "trained_tokens", "response_tokens_mean", "response_tokens_max")
_ELAPSED = ("_timestamp", "_runtime", "_timestamp_rel", "wall_s", "wall_seconds", "elapsed_s", "time")
_SPEEDS = ("*tokens_per_second*", "*tok_per_s*", "*throughput*", "*tokens_per_sec*", "*samples_per_sec*")
_TIMES = ("time*/*", "timing*", "*_time", "*_seconds", "perf/time*", "timeperf/*")
_MOST_SHARE = 100.0


@dataclass(frozen=True)
class Refusal:
    """A column that is not read: which, why, and what could mend it."""

    name: str
    kind: str
    words: str


def without_negatives(values: dict[str, np.ndarray], columns: Mapping[str, ReadColumn]) -> list[LogFinding]:
    """Set negative values to NaN where there can be none; columns full of them are refused elsewhere."""
    found = []
    for name in COLUMNS:
        if name not in values or name in MAY_BE_NEGATIVE:
            continue
        below = values[name] < 0
        known = np.isfinite(values[name]).sum()
        if below.any() and below.sum() <= 0.1 * known:
            values[name] = np.where(below, np.nan, values[name])
            words = f"{many(int(below.sum()), 'value')} below 0"
            found.append(LogFinding("negative", columns[name].source, int(below.sum()), "left out", words))
    return found


def refusals(
    values: Mapping[str, np.ndarray],
    columns: Mapping[str, ReadColumn],
    runs: np.ndarray,
    elapsed: np.ndarray | None,
    order: np.ndarray,
) -> list[Refusal]:
    """Find the columns that cannot be what they are read as.

    Parameters
    ----------
    values : mapping of str to ndarray
        The log's columns, in their own units.
    columns : mapping of str to ReadColumn
    runs : ndarray of int
        The run of each row.
    elapsed : ndarray, optional
        Seconds of a clock in the file.
    order : ndarray of int
        The rows sorted by run, segment and step.
    """
    found: dict[str, Refusal] = {}
    for rule in (_by_themselves, _totals, _beside_the_step, _beside_each_other):
        for one in rule(values, columns, order, runs):
            found.setdefault(one.name, one)
    step = values.get("step_seconds")
    if step is not None and elapsed is not None and "step_seconds" not in found:
        for one in _beside_the_clock(step[order], elapsed[order], runs[order]):
            found.setdefault(one.name, one)
    return list(found.values())


def _known(values: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    found: np.ndarray = values[name][np.isfinite(values[name])]
    return found


def _by_themselves(
    values: Mapping[str, np.ndarray], columns: Mapping[str, ReadColumn], order: np.ndarray, runs: np.ndarray
) -> Iterator[Refusal]:
    for name in values:
        if name not in COLUMNS:
            continue
        known = _known(values, name)
        if not len(known):
            continue
        if name not in MAY_BE_NEGATIVE and (known < 0).sum() > 0.1 * len(known):
            yield Refusal(name, "broken", f"below 0 in {many(int((known < 0).sum()), 'row')}")
        elif not known.any() and (name in SECONDS or name in _POSITIVE):
            yield Refusal(name, "zero", "0 in every row: it was not measured")
        elif name == "clipped_fraction" and (known > 1).any():
            yield Refusal(
                name, "broken", f"a share of up to {known.max():.4g}; if in percent, say so: NAME:%"
            )


def _totals(
    values: Mapping[str, np.ndarray], columns: Mapping[str, ReadColumn], order: np.ndarray, runs: np.ndarray
) -> Iterator[Refusal]:
    """Find running totals under the name of a step's own value."""
    for name in (*SECONDS, "trained_tokens", "rollouts", "dropped_rollouts"):
        if name not in values or columns[name].source.startswith("growth of"):
            continue
        for run in np.unique(runs):
            own = values[name][order][runs[order] == run]
            own = own[np.isfinite(own)]
            if len(own) < 2 * _FEWEST or own[-1] < 5 * max(own[0], 1e-12) or (np.diff(own) < 0).any():
                continue
            straight = np.corrcoef(np.arange(len(own)), own)[0, 1]
            if straight > 0.98 and (np.diff(own) > 0).mean() > 0.9:
                words = f"grows in every row, from {own[0]:.4g} to {own[-1]:.4g}: a total over the run"
                yield Refusal(name, "broken", words)
                break


def _beside_the_step(
    values: Mapping[str, np.ndarray], columns: Mapping[str, ReadColumn], order: np.ndarray, runs: np.ndarray
) -> Iterator[Refusal]:
    """Find phases that are longer than the step they are in, or no time at all."""
    step = values.get("step_seconds")
    if step is None:
        return
    for name in _INSIDE:
        if name not in values:
            continue
        both = np.isfinite(step) & np.isfinite(values[name]) & (step > 0)
        if not both.any():
            continue
        ratio = float(np.median(values[name][both] / step[both]))
        longer = float(np.mean(values[name][both] > 1.2 * step[both]))
        if longer > 0.5:
            milli = f"; if in milliseconds, say so: --column {name}=NAME:ms" if ratio > 50 else ""
            words = f"{ratio:.3g} times the step that holds it, in the middle{milli}"
            yield Refusal(name, "unit" if milli else "broken", words)
        elif name == "training_seconds" and both.sum() >= _FEWEST:
            typical = float(np.median(values[name][both]))
            if ratio < 1e-3 and typical < 0.05:
                words = (
                    f"{1e3 * typical:.2g} ms in the middle, {ratio:.2%} of the step: no update of a model "
                    "takes so little"
                )
                yield Refusal(name, "broken", words)


def _beside_each_other(
    values: Mapping[str, np.ndarray], columns: Mapping[str, ReadColumn], order: np.ndarray, runs: np.ndarray
) -> Iterator[Refusal]:
    for small, large in (
        ("response_tokens_mean", "response_tokens_max"),
        ("lag_mean", "lag_max"),
        ("rollouts", "trained_tokens"),
    ):
        if small not in values or large not in values:
            continue
        both = np.isfinite(values[small]) & np.isfinite(values[large])
        above = values[small][both] > values[large][both] * (1 + 1e-6) + 1e-9
        if both.any() and above.mean() > 0.5:
            words = f"below {columns[small].source} ({small}) in {many(int(above.sum()), 'row')}"
            yield Refusal(large, "broken", words)


def _beside_the_clock(step: np.ndarray, elapsed: np.ndarray, runs: np.ndarray) -> Iterator[Refusal]:
    passed = np.diff(elapsed)
    known = (np.diff(runs) == 0) & np.isfinite(passed) & np.isfinite(step[1:]) & (passed > 0) & (step[1:] > 0)
    if known.sum() < _FEWEST:
        return
    ratio = float(np.median(step[1:][known] / passed[known]))
    if ratio > 300 or ratio < 1 / 300:
        said = "milliseconds: --column step_seconds=NAME:ms" if 300 < ratio < 3000 else "another unit"
        words = f"{ratio:.3g} times what the file's own clock says; if in {said}, say so"
        yield Refusal("step_seconds", "unit", words)


def elapsed_seconds(table: NumberTable) -> np.ndarray | None:
    """Return the file's own clock, if it has one."""
    for name in _ELAPSED:
        if name in table.names and not table.is_empty(name):
            return table.numbers(name)
    return None


def odd_columns(table: NumberTable, read: set[str]) -> list[LogFinding]:
    """Name other columns whose values cannot be what their names say, and those that are empty."""
    found = []
    empty = []
    for name in table.names:
        speed = any(fnmatchcase(name.lower(), pattern) for pattern in _SPEEDS)
        utilisation = "mfu" in name.lower()
        if table.table.frame[name].null_count() == len(table.table.frame):
            empty.append(name)
            continue
        if not (speed or utilisation) or name in read:
            continue
        known = table.numbers(name)
        known = known[np.isfinite(known)]
        if not len(known):
            continue
        if utilisation and np.median(known) > _MOST_SHARE:
            words = f"{np.median(known):.4g} in the middle: no utilisation, as a share or in percent"
            found.append(LogFinding("broken", name, len(known), "not read", words))
        elif not known.any() and len(known) >= _FEWEST:
            found.append(LogFinding("zero", name, len(known), "not read", "0 in every row: not measured"))
    if empty:
        about = empty[0] if len(empty) == 1 else f"{empty[0]} and {many(len(empty) - 1, 'other')}"
        words = f"{many(len(empty), 'column')} without a value"
        found.append(LogFinding("empty", about, 0, "not read", words))
    return found


def same_twice(table: NumberTable, read: set[str]) -> list[LogFinding]:
    """Name times that stand in a file under two names."""
    seen: dict[bytes, str] = {}
    found = []
    names = [name for name in table.names if any(fnmatchcase(name, pattern) for pattern in _TIMES)]
    for name in [*[each for each in names if each in read], *[each for each in names if each not in read]]:
        values = table.numbers(name)
        known = values[np.isfinite(values)]
        if len(known) < 5 or len(np.unique(known)) < 3:
            continue
        key = np.nan_to_num(values, nan=-1.0).tobytes()
        if key in seen:
            words = f"the same numbers as {seen[key]}: counted once"
            found.append(LogFinding("same_twice", name, len(known), "not read", words))
        seen.setdefault(key, name)
    return found
