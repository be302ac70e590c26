"""What is searched for: one metric or two, and the bounds that a setting must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ..checks import texts_of
from ..recommend.recommend import bounds_of
from ..recommend.table import Bound
from ..results.cadence import default_objective
from ..results.cells import GOODPUT
from ..spec.design import design_from_groups
from ..spec.spec import SweepSpec
from ..spec.stopping import reported_metrics
from .space import Space


@dataclass(frozen=True)
class Question:
    """What is searched for.

    Parameters
    ----------
    objectives : tuple of (metric, sense)
        One or two; the sense is 1 to maximize and -1 to minimize.
    bounds : tuple of Bound
    units : tuple of str
        Of the objectives.
    """

    objectives: tuple[tuple[str, int], ...]
    bounds: tuple[Bound, ...]
    units: tuple[str, ...]

    def unit(self, metric: str) -> str:
        """Return the unit of an objective."""
        return dict(zip((name for name, _ in self.objectives), self.units))[metric]


def question_of(
    space: Space,
    maximize: Any,
    minimize: Any,
    min_ess: float | None,
    max_lag: int | None,
    min_goodput: float | None = None,
) -> Question:
    """Check what is asked.

    Raises
    ------
    ConfigError
        For an unknown metric, more than two of them, or a bound out of range.
    """
    asked = [(name, 1) for name in _names("maximize", maximize)]
    asked += [(name, -1) for name in _names("minimize", minimize)]
    asked = asked or [(default_objective(spec_at_start(space).options_in_use), 1)]
    names = [name for name, _ in asked]
    if len(asked) > 2 or len(set(names)) < len(names):
        rule = "must be one metric or two different ones, with minimize"
        raise ConfigError("maximize", rule, names, "Give one or two.")
    bounds = bounds_of(min_ess, max_lag, min_goodput)
    if min_goodput is not None:
        units_of(space, "min_goodput", [GOODPUT])
    return Question(tuple(asked), bounds, units_of(space, "maximize", names))


def units_of(space: Space, argument: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the units of metrics that runs of a space report.

    Raises
    ------
    ConfigError
        For an unknown metric.
    """
    units = {metric.name: metric.units for metric in reported_metrics(spec_at_start(space))}
    for name in names:
        if name not in units:
            way_out = nearest(name, units) or "The reference lists the metrics."
            raise ConfigError(argument, "must be a metric of these runs", name, way_out)
    return tuple(units[name] for name in names)


def spec_at_start(space: Space) -> SweepSpec:
    """Make a sweep of one point of a space, to see which options its runs use."""
    columns = {axis.name: [axis.at_start] for axis in space.axes}
    return SweepSpec(base=space.base, design=design_from_groups([columns]), seeds=(0,))


def _names(field: str, given: Any) -> tuple[str, ...]:
    given = (given,) if isinstance(given, str) else given
    return texts_of(field, given, "Name metrics.")
