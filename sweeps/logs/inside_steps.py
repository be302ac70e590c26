"""What a step's seconds hold: evaluations, checkpoints, publications; first steps; what is in no column."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from ...kernels.errors import many
from .canonical import NOW_AND_THEN, PHASES
from .log_findings import LogFinding, shortly

_INSIDE_WORDS = {
    True: "inside the step's seconds",
    False: "beside the step's seconds",
    None: "the log does not tell whether inside the step's seconds",
}
_FIRST = 3
_NEIGHBOURS = 10
_POLLED = 0.95


def warm_up_rows(
    step_seconds: np.ndarray, runs: np.ndarray, segments: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Return which rows are first steps of a segment that took far longer than the ones after them.

    Of the first three rows of a segment those up to the last that took more than 1.2 times the middle of the
    next twenty, and more than that and 6 times their spread.

    Examples
    --------
    >>> zeros = np.zeros(12, dtype=int)
    >>> warm_up_rows(np.array([30.0] + 11 * [10.0]), zeros, zeros, np.arange(12)).nonzero()[0].tolist()
    [0]
    """
    found = np.zeros(len(step_seconds), dtype=bool)
    for place in {(int(run), int(segment)) for run, segment in zip(runs, segments)}:
        rows = np.flatnonzero((runs == place[0]) & (segments == place[1]) & np.isfinite(step_seconds))
        rows = rows[np.argsort(steps[rows], kind="stable")]
        if len(rows) < _FIRST + 5:
            continue
        later = step_seconds[rows[_FIRST : _FIRST + 20]]
        middle = float(np.median(later))
        spread = 1.4826 * float(np.median(np.abs(later - middle)))
        slow = step_seconds[rows[:_FIRST]] > max(1.2 * middle, middle + 6 * spread)
        if slow.any():
            found[rows[: int(np.flatnonzero(slow)[-1]) + 1]] = True
    return found


def held(
    values: Mapping[str, np.ndarray], told: Mapping[str, bool]
) -> tuple[dict[str, bool | None], list[LogFinding]]:
    """Say whether steps hold their evaluations, checkpoints and publications.

    Parameters
    ----------
    values : mapping of str to ndarray
    told : mapping of str to bool
        What the framework's code says; the rest is found by the seconds themselves.

    Returns
    -------
    (dict, list of LogFinding)
        True, False, or None where the log does not tell, for each of those columns that is there.
    """
    result: dict[str, bool | None] = {}
    found: list[LogFinding] = []
    step = values.get("step_seconds")
    if step is None:
        return result, found
    there = {name: np.nan_to_num(values[name], nan=0.0) for name in NOW_AND_THEN if name in values}
    special = np.any([part > 0 for part in there.values()], axis=0) if there else np.zeros(len(step), bool)
    plain = np.flatnonzero(~special & np.isfinite(step))
    rows = np.flatnonzero(special & np.isfinite(step))
    if len(rows) and len(plain) >= _FIRST:
        usual = np.array([np.median(step[_nearest(plain, row)]) for row in rows.tolist()])
        spread = 1.4826 * float(np.median(np.abs(step[plain] - np.median(step[plain]))))
        result |= _best_split({name: part[rows] for name, part in there.items()}, step[rows] - usual, spread)
        result |= {name: told[name] for name in result if name in told}
        for name, inside in result.items():
            count = int((there[name] > 0).sum())
            typical = float(np.median(there[name][there[name] > 0])) if count else 0.0
            words = f"{many(count, 'step')} with {typical:.3g} s of it: "
            words += _INSIDE_WORDS[inside]
            found.append(LogFinding("beside" if inside is False else "holds", name, count, "kept", words))
    if "publication_seconds" in values:
        inside = told.get("publication_seconds", _publication_inside(values, step))
        result["publication_seconds"] = inside
        if inside is False:
            words = "not a part of the step's seconds: it runs beside, or after it"
            found.append(LogFinding("beside", "publication_seconds", 0, "kept", words))
    return result, found


def _nearest(plain: np.ndarray, row: int) -> np.ndarray:
    return plain[np.argsort(np.abs(plain - row), kind="stable")[:_NEIGHBOURS]]


def _best_split(parts: Mapping[str, np.ndarray], excess: np.ndarray, spread: float) -> dict[str, bool | None]:
    """Choose which columns explain best how much longer the steps are that have them."""
    names = [name for name, part in parts.items() if (part > 0).any()]
    errors = {}
    for chosen in product((False, True), repeat=len(names)):
        explained = sum((parts[name] for name, one in zip(names, chosen) if one), np.zeros(len(excess)))
        errors[chosen] = float(np.median(np.abs(excess - explained)))
    best = min(errors, key=lambda chosen: errors[chosen])
    result: dict[str, bool | None] = {}
    for place, name in enumerate(names):
        other = tuple(not one if k == place else one for k, one in enumerate(best))
        size = float(np.median(parts[name][parts[name] > 0]))
        clear = errors[other] - errors[best] > 0.4 * size and size > spread / max(1.0, len(excess)) ** 0.5
        result[name] = best[place] if clear else None
    return result


def _publication_inside(values: Mapping[str, np.ndarray], step: np.ndarray) -> bool | None:
    own = values["publication_seconds"]
    others = _sum_of_phases(values, without=("publication_seconds",))
    room = step - others
    both = np.isfinite(room) & np.isfinite(own) & (own > 0)
    if not both.any():
        return None
    share = float(np.median(room[both] / own[both]))
    return True if share > 0.9 else False if share < 0.5 else None


def _sum_of_phases(values: Mapping[str, np.ndarray], without: tuple[str, ...] = ()) -> np.ndarray:
    parts = [
        np.nan_to_num(values[name], nan=0.0) for name in PHASES if name in values and name not in without
    ]
    found: np.ndarray = np.sum(parts, axis=0) if parts else np.zeros(len(values["step_seconds"]))
    return found


def rests(values: Mapping[str, np.ndarray], inside: Mapping[str, bool | None]) -> list[LogFinding]:
    """Say how much of the steps is in no column, or in several."""
    step = values.get("step_seconds")
    if step is None or not any(name in values for name in PHASES):
        return []
    without = tuple(name for name in PHASES if inside.get(name) is False)
    told = _sum_of_phases(values, without)
    known = np.isfinite(step) & (step > 0) & (told > 0)
    if not known.any():
        return []
    share = float(np.median(told[known] / step[known]))
    if share < 0.9:
        words = f"{1 - share:.0%} of a step, in the middle, are in no column that is read"
        return [LogFinding("rest", "step_seconds", int(known.sum()), "kept", words)]
    over = told[known] > 1.05 * step[known]
    if over.mean() > 0.05:
        words = f"the phases' sum exceeds the step in {many(int(over.sum()), 'row')}: they overlap"
        return [LogFinding("overlap", "step_seconds", int(over.sum()), "kept", words)]
    return []


def summed_steps(values: Mapping[str, np.ndarray], derived: bool) -> list[LogFinding]:
    """Say that a step's seconds are no clock's but the sum of its phases, as some trainers log them."""
    step = values.get("step_seconds")
    names = [name for name in PHASES if name in values]
    if step is None or derived or len(names) < 3:
        return []
    told = np.sum([values[name] for name in names], axis=0)
    known = np.isfinite(told) & np.isfinite(step) & (step > 0)
    if known.sum() < 3 or np.mean(np.abs(told[known] / step[known] - 1) < 1e-6) < 0.9:
        return []
    words = "is the sum of its phases, no clock's time: what lies between them is not in it"
    return [LogFinding("meaning", "step_seconds", int(known.sum()), "kept", words)]


def whole_seconds(values: Mapping[str, np.ndarray]) -> list[LogFinding]:
    """Name times that only come in whole seconds, as those do that are looked at once a second."""
    found = []
    for name in ("step_seconds", *PHASES):
        if name not in values:
            continue
        known = values[name][np.isfinite(values[name]) & (values[name] >= 0.5)]
        if len(known) < 10 or len(np.unique(np.round(known))) < 2:
            continue
        if np.mean(np.abs(known - np.round(known)) < 0.02) > _POLLED:
            words = "comes in whole seconds: looked at once a second, or read from a clock without fractions"
            found.append(LogFinding("polled", name, len(known), "kept", words))
    return found


def part_batches(values: Mapping[str, np.ndarray], steps: np.ndarray) -> list[LogFinding]:
    """Name steps with fewer rollouts than all the others."""
    if "rollouts" not in values:
        return []
    known = np.flatnonzero(np.isfinite(values["rollouts"]))
    if len(known) < 10:
        return []
    numbers, counts = np.unique(values["rollouts"][known], return_counts=True)
    usual, share = numbers[np.argmax(counts)], counts.max() / len(known)
    odd = known[values["rollouts"][known] < usual]
    if share < 0.9 or not len(odd):
        return []
    words = (
        f"fewer than {usual:g} rollouts in {many(len(odd), 'step')} ({shortly(sorted(steps[odd].tolist()))})"
    )
    return [LogFinding("part_batch", "rollouts", len(odd), "kept", words)]


def constants(values: Mapping[str, np.ndarray]) -> list[LogFinding]:
    """Name times that are the same in every row."""
    found = []
    for name in ("step_seconds", *PHASES):
        known = values[name][np.isfinite(values[name])] if name in values else np.zeros(0)
        if len(known) >= 20 and known[0] and (known == known[0]).all():
            words = f"{known[0]:.4g} in every row: check that it is measured"
            found.append(LogFinding("constant", name, len(known), "kept", words))
    return found
