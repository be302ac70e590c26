"""Where the points of a search's later rounds come from: around the best, or from Optuna where it is there.

Optuna is asked through its ask-and-tell interface: what was tried is told, then so many points are asked for.
Nothing is kept in it, so a search that goes on tells it the same again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, nearest
from .space import Axis, Point, Space

if TYPE_CHECKING:
    from .stages import Tried

Sampler = Callable[[Space, Sequence[Point], "Sequence[Tried]", int, float, int], list[Point]]
AROUND = "around"
OPTUNA = ("optuna:tpe", "optuna:random", "optuna:nsgaii")
SAMPLERS = (AROUND, *OPTUNA)
_ASKS = 20  # for each point that is wanted, before fewer are accepted


def sampler_of(name: str) -> Sampler:
    """Return the sampler of a name.

    Raises
    ------
    ConfigError
        For an unknown name, or where its package is missing.
    """
    if name not in SAMPLERS:
        hint = nearest(str(name), SAMPLERS) or f"Choose among {', '.join(SAMPLERS)}."
        raise ConfigError("sampler", f"must be one of {', '.join(SAMPLERS)}", name, hint)
    if name == AROUND:
        return _around
    try:
        import optuna  # noqa: F401
    except ImportError:
        way_out = "pip install 'lagsweep[search]', or leave --sampler out."
        raise ConfigError("sampler", "needs the package optuna", name, way_out) from None
    return _Optuna(name.partition(":")[2])


def _around(
    space: Space, parents: Sequence[Point], tried: Sequence[Tried], count: int, reach: float, seed: int
) -> list[Point]:
    return space.around(parents, count, reach, seed)


class _Optuna:
    """Ask Optuna for points, after telling it all that was tried."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(
        self,
        space: Space,
        parents: Sequence[Point],
        tried: Sequence[Tried],
        count: int,
        reach: float,
        seed: int,
    ) -> list[Point]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        kinds: dict[str, Callable[..., Any]] = {
            "tpe": optuna.samplers.TPESampler,
            "random": optuna.samplers.RandomSampler,
            "nsgaii": optuna.samplers.NSGAIISampler,
        }
        goals = len(tried[0].gains)
        study = optuna.create_study(directions=["maximize"] * goals, sampler=kinds[self.kind](seed=seed))
        distributions = {axis.name: _distribution(axis) for axis in space.axes}
        worst = _worst(tried, goals)
        for one in tried:
            values = [
                gain if one.admissible else low - one.shortfall * scale
                for gain, (low, scale) in zip(one.gains, worst)
            ]
            params = {axis.name: _told(axis, one.point[axis.name]) for axis in space.axes}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=distributions, values=values)
            )
        found: list[Point] = []
        for _ in range(_ASKS * count):
            if len(found) >= count:
                break
            trial = study.ask(distributions)
            point = {axis.name: _asked(axis, trial.params[axis.name]) for axis in space.axes}
            fresh = space.only_fresh([point])
            if not fresh:  # else it would be suggested over and over
                study.tell(trial, [low - scale for low, scale in worst])
            found += fresh
        return found


def _worst(tried: Sequence[Tried], goals: int) -> list[tuple[float, float]]:
    """Return the least admissible gain of each objective, and a scale for what is worse than that."""
    found = []
    for goal in range(goals):
        gains = [one.gains[goal] for one in tried if one.admissible and math.isfinite(one.gains[goal])]
        low = min(gains, default=0.0)
        found.append((low, max(max(gains, default=1.0) - low, abs(low), 1.0)))
    return found


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.values is not None:
        count = len(axis.values)
        return IntDistribution(0, count - 1) if axis.ordered else CategoricalDistribution(range(count))
    return FloatDistribution(0.0, 1.0)


def _told(axis: Axis, value: Any) -> float:
    place = axis.place(value)
    return place if axis.values is None else min(int(place * len(axis.values)), len(axis.values) - 1)


def _asked(axis: Axis, told: Any) -> Any:
    if axis.values is not None:
        return axis.values[int(told)]
    return axis.at(np.array([told]))[0]
