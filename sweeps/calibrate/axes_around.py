"""The axes of a sweep around a run: its own value among the others, knobs by their system's names.

What follows from a setting goes along with it: where the number of rollouts at once was assumed from the
rules, it is that of each value's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..presets.registry import preset_lag_bound
from ..spec.axes import expand, field_of_axis, read_none
from .lag_knob import LAG, lag_knob
from .setup import Setup, slots_by_rules

GPU_AXES = ("rollout_gpus", "trainer_gpus")


@dataclass(frozen=True)
class Axis:
    """One axis around a run.

    Attributes
    ----------
    name : str
        As it was asked for.
    column : str
        The axis of the sweep.
    values : tuple
        As they are asked for and shown.
    inner : tuple
        As the sweep takes them.
    own : int
        The place of the run's own value.
    along : mapping of str to tuple
        Axes that go along, value by value.
    """

    name: str
    column: str
    values: tuple[Any, ...]
    inner: tuple[Any, ...]
    own: int
    along: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def group(self) -> dict[str, list[Any]]:
        """Return the axis as the sweep takes it, with what goes along."""
        return {self.column: list(self.inner), **{name: list(values) for name, values in self.along.items()}}


def axes_around(config: PipelineConfig, setup: Setup, axes: Mapping[str, Any]) -> list[Axis]:
    """Return the axes of a sweep around a run.

    Parameters
    ----------
    config : PipelineConfig
        The run as it is.
    setup : Setup
    axes : mapping
        Axis to values or a range.

    Raises
    ------
    ConfigError
        For no axis, an unknown one, or values that its field or knob refuses.
    """
    if not isinstance(axes, Mapping) or not axes:
        raise ConfigError("axes", "must name what would change", axes, "Write {'max_lag': [1, 2, 4]}.")
    fixed = any(field_of_axis(name) == "rollout_workers" for name in axes if name != LAG)
    return [_axis(config, setup, name, values, fixed) for name, values in axes.items()]


def _axis(config: PipelineConfig, setup: Setup, name: str, given: Any, fixed: bool) -> Axis:
    if name == LAG:
        found = _lag(config, expand(name, given))
        if found is not None:
            return found if fixed else _with_slots(setup, found)
    column = field_of_axis(name)
    values = [read_none(column, value) for value in expand(name, given)]
    own = _own(config, column)
    values, place = _among(values, own)
    axis = Axis(name, name, tuple(values), tuple(values), place)
    return axis if fixed else _with_slots(setup, axis)


def _lag(config: PipelineConfig, values: Any) -> Axis | None:
    """Return the axis of the lag by the knob that bounds it; None where the field itself does."""
    knob = lag_knob(config)
    if knob is None or config.preset is None:
        return None
    name, by_lag = knob
    preset, fields = config.preset
    own = preset_lag_bound(preset, fields)
    wanted = list(values)
    missing = [lag for lag in wanted if lag not in by_lag]
    if missing:
        shown = ", ".join(map(str, sorted(by_lag)[:8]))
        rule = f"must be lags that {preset}'s {name} can give: {shown}, ..."
        raise ConfigError(LAG, rule, missing[0], f"Or give --axis preset.{name}=VALUES.")
    wanted, place = _among(wanted, own)
    inner = [by_lag.get(lag, fields.get(name)) for lag in wanted]
    inner[place] = fields.get(name, inner[place])
    return Axis(LAG, f"preset.{name}", tuple(wanted), tuple(inner), place)


def _own(config: PipelineConfig, column: str) -> Any:
    """Return a run's own value of a field or knob."""
    if column.startswith("preset.") and config.preset is not None:
        from ..presets.registry import find_preset

        name = column.removeprefix("preset.")
        preset, fields = config.preset
        knobs = {knob.name: knob.default for knob in find_preset(preset).knobs}
        return fields.get(name, knobs.get(name))
    if column.startswith("engine.") and config.engine is not None:
        return getattr(config.engine, column.removeprefix("engine."))
    return getattr(config, column, None)


def _among(values: list[Any], own: Any) -> tuple[list[Any], int]:
    """Return values with the run's own among them, and its place."""
    for place, value in enumerate(values):
        if value == own:
            return values, place
    numbers = all(isinstance(one, int | float) for one in (*values, own))
    found = sorted([*values, own]) if numbers else [own, *values]
    return found, found.index(own)


def _with_slots(setup: Setup, axis: Axis) -> Axis:
    """Let the rollouts at once follow the rules, where they were assumed from them."""
    assumed = any(one.field == "rollout_workers" for one in setup.assumed)
    if not assumed or not axis.column.startswith("preset."):
        return axis
    knob = axis.column.removeprefix("preset.")
    slots = []
    for place, value in enumerate(axis.inner):
        fields = {name: one for name, one in setup.fields.items() if name != "rollout_workers"}
        own = int(setup.fields["rollout_workers"])
        slots.append(own if place == axis.own else slots_by_rules(setup.preset, {**fields, knob: value}))
    along = {"rollout_workers": tuple(slots)} if len(set(slots)) > 1 else {}
    return Axis(axis.name, axis.column, axis.values, axis.inner, axis.own, along)
