"""What a search may choose from: ranges and lists of values, and the points that make sense in them.

A range is searched whole: ``{from = 1, to = 9}`` of a field of whole numbers is each of them, of other fields
any number between; with ``scale = "log"`` the parts of a range count by ratios. A list, and a range with a
``count`` or a ``step``, are the values to choose from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, Finding
from ..config.config import PipelineConfig
from ..config.rules import contradictions
from ..results.scenarios import SCENARIO_FIELDS
from ..spec.axes import expand, field_of_axis, identity, is_knob, is_whole, knob_may_be_whole, plain
from ..spec.cells import unchecked_config
from ..spec.design import design_from_groups, sampled_group, scaled_values
from ..spec.spec import SweepSpec

Point = dict[str, Any]
_DIGITS = 4  # of a number drawn from a range: what a person would type
LENGTHS_OF_A_RUN = ("duration_seconds", "warmup_seconds", "stop_after_updates")
MOST_LISTED = 1000  # whole numbers of a range, beyond which it is searched between its ends
_TRIES = 20  # draws for each point that is wanted, before fewer are accepted


@dataclass(frozen=True)
class Axis:
    """One thing to choose: a list of values, or a range.

    Attributes
    ----------
    name, field : str
    values : tuple, optional
        What there is to choose from; None for a range of numbers between.
    given : mapping or tuple
        As the design's own functions take it.
    """

    name: str
    field: str
    values: tuple[Any, ...] | None
    given: Any

    def at(self, places: np.ndarray) -> list[Any]:
        """Return the values at places between 0 and 1."""
        found = scaled_values(self.name, self.given, places)
        return found if self.values is not None else [self._short(value) for value in found]

    def _short(self, value: Any) -> Any:
        """Round a number to a few digits, within the range."""
        low, high = self.given["from"], self.given["to"]
        number = min(max(float(f"{value:.{_DIGITS}g}"), low), high)
        return round(number) if self.whole else float(number)

    def place(self, value: Any) -> float:
        """Return where in its range or list a value lies, between 0 and 1."""
        if self.values is not None:
            keys = [identity(item) for item in self.values]
            return (keys.index(identity(value)) + 0.5) / len(keys)
        low, high = self.given["from"], self.given["to"]
        if high == low:
            return 0.5
        if self.given.get("scale") == "log":
            return math.log(value / low) / math.log(high / low)
        return float((value - low) / (high - low))

    @property
    def whole(self) -> bool:
        """Whether a range is one of whole numbers: by its field, or as written where that does not say."""
        written = all(isinstance(self.given[end], int) for end in ("from", "to"))
        return is_whole(self.field) or (is_knob(self.field) and written and knob_may_be_whole(self.field))

    @property
    def at_start(self) -> Any:
        """Its first value."""
        return self.at(np.zeros(1))[0]

    @property
    def described(self) -> Any:
        """Its values or its range as plain data."""
        return dict(self.given) if self.values is None else [plain(value) for value in self.values]

    @property
    def ordered(self) -> bool:
        """Whether neighbours in the list are alike: numbers are, words are not."""
        return self.values is None or all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in self.values
        )


@dataclass
class Space:
    """The points of a search.

    Attributes
    ----------
    base : PipelineConfig
    axes : tuple of Axis
    constraints : tuple of str
        A point that breaks one is not tried.
    refused : int
        How many points were drawn that contradict themselves or break a constraint.
    reason : Finding, optional
        What was wrong with the first that contradicted itself.
    """

    base: PipelineConfig
    axes: tuple[Axis, ...]
    constraints: tuple[str, ...] = ()
    refused: int = 0
    reason: Finding | None = None
    _seen: set[tuple[str, ...]] = field(default_factory=set, repr=False)

    @property
    def size(self) -> float:
        """How many points there are; infinite with a range of numbers between."""
        sizes = (math.inf if axis.values is None else len(axis.values) for axis in self.axes)
        return float(math.prod(sizes))

    def everything(self) -> list[Point]:
        """Return every point that makes sense; only for a finite space."""
        names = [axis.name for axis in self.axes]
        rows = itertools.product(*(axis.values or () for axis in self.axes))
        return list(self._fresh(dict(zip(names, row)) for row in rows))

    def spread(self, count: int, seed: int) -> list[Point]:
        """Draw about so many new points, spread over the whole by a Latin hypercube."""
        found: list[Point] = []
        for attempt in range(_TRIES):
            if len(found) >= count:
                break
            group = sampled_group(
                {axis.name: axis.given for axis in self.axes},
                method="latin_hypercube",
                points=max(count - len(found), 2),
                seed=seed + attempt,
            )
            rows = (dict(zip(group, row)) for row in zip(*group.values()))
            found += self._fresh(self._shortened(row) for row in rows)
        return found[:count]

    def _shortened(self, point: Point) -> Point:
        return {
            axis.name: point[axis.name] if axis.values is not None else axis._short(point[axis.name])
            for axis in self.axes
        }

    def around(self, parents: Sequence[Point], count: int, reach: float, seed: int) -> list[Point]:
        """Draw about so many new points near some others.

        Parameters
        ----------
        parents : sequence of points
            Best first; each has the same share.
        count : int
        reach : float
            Spread of a step, as a share of a range.
        seed : int
        """
        rng = np.random.Generator(np.random.Philox(seed))
        found: list[Point] = []
        for attempt in range(_TRIES * count):
            if len(found) >= count or not parents:
                break
            found += self._fresh([self._step(parents[attempt % len(parents)], reach, rng)])
        return found

    def _step(self, parent: Point, reach: float, rng: np.random.Generator) -> Point:
        moved = rng.random(len(self.axes)) < 0.5
        moved[rng.integers(len(self.axes))] = True
        point = dict(parent)
        for axis, moves in zip(self.axes, moved):
            if moves:
                point[axis.name] = _moved(axis, parent[axis.name], reach, rng)
        return point

    def _fresh(self, points: Iterator[Point] | list[Point]) -> Iterator[Point]:
        """Give the points that were not given before and make sense."""
        for point in points:
            key = self.key(point)
            if key in self._seen:
                continue
            self._seen.add(key)
            if self._makes_sense(point):
                yield point
            else:
                self.refused += 1

    def only_fresh(self, points: Sequence[Point]) -> list[Point]:
        """Return those of some points that were not given before and make sense."""
        return list(self._fresh(list(points)))

    def _makes_sense(self, point: Point) -> bool:
        design = design_from_groups([{name: [value]} for name, value in point.items()])
        spec = SweepSpec(base=self.base, design=design, seeds=(0,), constraints=self.constraints)
        if spec.excluded.any():
            return False
        try:
            wrong = contradictions(unchecked_config(self.base, design.settings(0)))
        except ConfigError as error:  # a preset's own rules
            wrong = list(error.findings)
        if wrong and self.reason is None:
            self.reason = wrong[0]
        return not wrong

    def key(self, point: Point) -> tuple[str, ...]:
        """Return what two equal points have in common."""
        return tuple(identity(point[axis.name]) for axis in self.axes)


def _moved(axis: Axis, value: Any, reach: float, rng: np.random.Generator) -> Any:
    place = axis.place(value)
    if not axis.ordered:
        return axis.at(rng.random(1))[0]
    step = rng.normal() * reach
    if axis.values is not None:  # at least to the next value
        step = math.copysign(max(abs(step), 1 / len(axis.values)), step)
    moved = place + step
    moved = -moved if moved < 0 else 2 - moved if moved > 1 else moved  # back from an end
    return axis.at(np.array([min(max(moved, 0.0), 1.0)]))[0]


def space_of(
    base: PipelineConfig,
    axes: Mapping[str, Any],
    constraints: Sequence[str] = (),
    *,
    scenarios_too: bool = False,
) -> Space:
    """Make a space from axes as sweeps have them; axes that nobody chooses only with `scenarios_too`.

    Raises
    ------
    ConfigError
        For an axis that is none, values that are refused by their field, or an axis that nobody chooses.

    Examples
    --------
    >>> space = space_of(PipelineConfig(), {"max_lag": {"from": 0, "to": 8}, "sync_cadence": [1, 2]})
    >>> space.size
    18.0
    """
    if not axes:
        way_out = "Write --axis max_lag=0..8, or a section [axes]."
        raise ConfigError("axes", "must name what to choose", None, way_out)
    found = tuple(_axis(name, given, scenarios_too) for name, given in axes.items())
    return Space(base, found, tuple(constraints))


def _axis(name: str, given: Any, scenarios_too: bool) -> Axis:
    setting = field_of_axis(name)
    if setting in LENGTHS_OF_A_RUN:
        way_out = f"Put one value into the base: --{setting.replace('_', '-')}."
        raise ConfigError(
            f"axes.{name}", "says how long a run is looked at, not what is chosen", setting, way_out
        )
    if setting in SCENARIO_FIELDS and not scenarios_too:
        way_out = "Put one value into the base, and search once for each."
        raise ConfigError(f"axes.{name}", "is not a thing to choose", setting, way_out)
    if _is_between(setting, given):
        for end in (given["from"], given["to"]):  # their field's own rules
            design_from_groups([{name: [end]}])
        scaled_values(name, given, np.array([0.0, 1.0]))  # and those of ranges
        return Axis(name, setting, None, dict(given))
    values = design_from_groups([{name: expand(name, given)}]).columns[name][1]
    return Axis(name, setting, tuple(values), list(values))


def _is_between(setting: str, given: Any) -> bool:
    """Tell whether a range is searched between its ends, and not value by value."""
    if not isinstance(given, Mapping) or {"count", "step"} & set(given) or not {"from", "to"} <= set(given):
        return False
    if not is_whole(setting) or given.get("scale", "linear") != "linear":
        return True
    low, high = given["from"], given["to"]
    return isinstance(low, int) and isinstance(high, int) and high - low >= MOST_LISTED
