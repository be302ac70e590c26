"""What the inputs leave open: all of them at their fast and slow ends, and each alone.

Ends are simulated for the cells that are asked for, with one seed: lengths are the same in all of them, so
what differs is the input. Other cells take the ratio of their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.errors import ConfigError
from .candidates import Candidates
from .carrying_out import Runner, Simulated
from .cells import Cell
from .inputs import Input
from .screening import bound_of

SIMULATED, BY_BOUNDS = "simulated", "bounds"
_CLEARLY = 1.01  # with one seed, less is no difference


@dataclass(frozen=True)
class Span:
    """From the fast end of all inputs to the slow one.

    Attributes
    ----------
    fast, slow : float
        What to multiply seconds per update with; infinite where the cell cannot be at that end.
    fast_effective, slow_effective : float
        The same of effective tokens per second.
    source : str
        ``simulated`` or ``bounds``.
    """

    fast: float
    slow: float
    fast_effective: float
    slow_effective: float
    source: str


@dataclass(frozen=True)
class Effect:
    """What one input does to the best cell, alone, and to the choice.

    Attributes
    ----------
    input : Input
    low_seconds, high_seconds : float
        Seconds per update at its low and high end; infinite where the cell cannot be there.
    better_low, better_high : int or None
        The place, among the rivals, of a cell that has over 1 % more effective tokens per second there.
    """

    input: Input
    low_seconds: float
    high_seconds: float
    better_low: int | None
    better_high: int | None

    @property
    def swing_seconds(self) -> float:
        """How far the answer moves between its ends."""
        return abs(self.high_seconds - self.low_seconds)


def at_ends(inputs: Sequence[Input]) -> tuple[dict[str, float], dict[str, float]]:
    """Return all inputs at their fast ends, and at their slow ends."""
    return {one.name: one.fast for one in inputs}, {one.name: one.slow for one in inputs}


def spans_of(
    candidates: Candidates, cells: Sequence[Cell], simulated: Sequence[bool], runner: Runner
) -> list[Span]:
    """Return each cell's span.

    Parameters
    ----------
    candidates : Candidates
    cells : sequence of Cell
        Feasible ones.
    simulated : sequence of bool
        Whose ends are simulated.
    runner : Runner
    """
    ends = at_ends(candidates.question.inputs)
    points = {
        place: [dict(cell.point), *(_point(candidates, cell, values) for values in ends)]
        for place, cell in enumerate(cells)
        if simulated[place]
    }
    known = [point for own in points.values() for point in own if point is not None]
    rows = iter(runner.points(known, 1))
    found = {place: [None if point is None else next(rows) for point in own] for place, own in points.items()}
    return [
        _from_runs(found[place]) if place in found else _from_bounds(candidates, cell, ends)
        for place, cell in enumerate(cells)
    ]


def _from_runs(rows: Sequence[Simulated | None]) -> Span:
    middle, fast, slow = rows
    assert middle is not None
    return Span(
        _ratio(fast, middle, "seconds_per_update", 0.0),
        _ratio(slow, middle, "seconds_per_update", math.inf),
        _ratio(fast, middle, "effective_tokens_per_second", math.inf),
        _ratio(slow, middle, "effective_tokens_per_second", 0.0),
        SIMULATED,
    )


def _ratio(end: Simulated | None, middle: Simulated, name: str, without: float) -> float:
    return without if end is None or end.stalled else float(getattr(end, name) / getattr(middle, name))


def _from_bounds(candidates: Candidates, cell: Cell, ends: Sequence[Mapping[str, float]]) -> Span:
    middle = bound_of(candidates.config(cell.point)).bound_seconds
    fast, slow = (
        math.inf if point is None else bound_of(candidates.config(point)).bound_seconds / middle
        for point in (_point(candidates, cell, values) for values in ends)
    )
    return Span(fast, slow, 1.0 / fast, 1.0 / slow, BY_BOUNDS)


def _point(candidates: Candidates, cell: Cell, values: Mapping[str, float]) -> dict[str, Any] | None:
    """Return a cell's point at some inputs; none where it cannot be there."""
    try:
        return candidates.point(cell, values)
    except ConfigError:
        return None


def effects_of(
    candidates: Candidates, best: Cell, rivals: Sequence[Cell], runner: Runner
) -> tuple[float, list[Effect]]:
    """Move each input alone to its ends, at the best cell and at its rivals.

    Returns
    -------
    float
        Seconds per update of the best cell at the same seed, with every input at its default.
    list of Effect
        That which moves the answer most comes first.
    """
    usual = candidates.question.values()
    opened = [one for one in candidates.question.inputs if one.is_open]
    cells = [best, *rivals]
    places: list[tuple[int, int, int]] = []  # input, end, cell
    points: list[dict[str, Any]] = [dict(cell.point) for cell in cells]
    for place, one in enumerate(opened):
        for end, value in enumerate((one.low, one.high)):
            for which, cell in enumerate(cells):
                point = _point(candidates, cell, {**usual, one.name: value})
                if point is not None:
                    places.append((place, end, which))
                    points.append(point)
    rows = runner.points(points, 1)
    found = dict(zip(places, rows[len(cells) :]))
    effects = [_effect(one, place, found, len(cells)) for place, one in enumerate(opened)]
    return rows[0].seconds_per_update, sorted(effects, key=lambda one: -one.swing_seconds)


def _effect(one: Input, place: int, found: Mapping[tuple[int, int, int], Simulated], cells: int) -> Effect:
    seconds, better = [], []
    for end in (0, 1):
        rows = [found.get((place, end, which)) for which in range(cells)]
        own = rows[0]
        alive = own is not None and not own.stalled
        seconds.append(own.seconds_per_update if own is not None and alive else math.inf)
        speeds = [0.0 if row is None or row.stalled else row.effective_tokens_per_second for row in rows]
        first = max(range(cells), key=lambda which: speeds[which])
        better.append(first - 1 if first and speeds[first] > _CLEARLY * speeds[0] else None)
    return Effect(one, seconds[0], seconds[1], better[0], better[1])
