"""The axes of a sweep around a run: its own value among the others, knobs by their system's names.

What follows from a setting goes along with it: where the number of rollouts at once was assumed from the
rules, it is that of each value's rules and batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...kernels.errors import ConfigError
from ..checks import RealNumber, checked
from ..config.config import PipelineConfig
from ..presets.registry import all_presets, preset_config, preset_lag_bound, preset_settings
from ..spec.axes import expand, field_of_axis, read_none
from .gpus import AXES, Gpus
from .lag_knob import LAG, lag_knob
from .setup import Setup, slots_by_rules

SLOTS_FIELD = "rollout_workers"
BY_RULES, ONE_BATCH, KEPT = "by the rules", "one batch", "kept"


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
    one_batch : tuple of int
        Rollouts of one batch at each value, where rollouts at once were assumed and batches differ: the
        fewest that are tried.
    factors : tuple of (float, float, float)
        Of an axis of GPUs: by how much each value makes its side longer; least, taken, most.
    changes_work : bool
        Whether its values change what a step trains.
    updates : tuple of int
        Updates of a step, value by value; empty where they are the run's own.
    """

    name: str
    column: str
    values: tuple[Any, ...]
    inner: tuple[Any, ...]
    own: int
    along: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    one_batch: tuple[int, ...] = ()
    factors: tuple[tuple[float, float, float], ...] = ()
    changes_work: bool = False
    updates: tuple[int, ...] = ()

    def group(self, config: PipelineConfig, which: int = 1, slots: str = BY_RULES) -> dict[str, list[Any]]:
        """Return the axis as the sweep takes it, with what goes along.

        Parameters
        ----------
        config : PipelineConfig
            The base of the sweep, whose fields an axis of GPUs scales.
        which : int
            0 for the least of its factors, 1 for those taken, 2 for the most.
        slots : str
            How many rollouts run at once, where they follow this axis: ``BY_RULES``, ``ONE_BATCH`` or
            ``KEPT`` as they are.
        """
        if self.factors:
            return scaled_fields(config, self.name, [one[which] for one in self.factors])
        along = dict(self.along)
        if slots != BY_RULES and self.one_batch:
            del along[SLOTS_FIELD]
            along |= {SLOTS_FIELD: self.one_batch} if slots == ONE_BATCH else {}
        return {self.column: list(self.inner), **{name: list(values) for name, values in along.items()}}


def axes_around(config: PipelineConfig, setup: Setup, gpus: Gpus, axes: Mapping[str, Any]) -> list[Axis]:
    """Return the axes of a sweep around a run.

    Parameters
    ----------
    config : PipelineConfig
        The run as it is.
    setup : Setup
    gpus : Gpus
    axes : mapping
        Axis to values or a range.

    Raises
    ------
    ConfigError
        For no axis, an unknown one, or values that its field or knob refuses.
    """
    if not isinstance(axes, Mapping) or not axes:
        raise ConfigError("axes", "must name what would change", axes, "Write {'max_lag': [1, 2, 4]}.")
    if "system" in axes:
        rule = "is no axis around a log, whose run follows the rules of one system"
        way_out = "Give a system's rules with --preset NAME, a call for each; lagsweep presets lists them."
        raise ConfigError("system", rule, axes["system"], way_out)
    fixed = any(field_of_axis(name, "axes", AXES) == SLOTS_FIELD for name in axes if name not in (LAG, *AXES))
    found: list[Axis] = []
    for name, values in axes.items():
        if name in AXES:
            found.append(_of_gpus(gpus, name, values))
            continue
        axis = _with_work(config, _axis(config, setup, name, values))
        follows = not fixed and not any(SLOTS_FIELD in one.along for one in found)  # two cannot set one field
        found.append(_with_slots(setup, axis) if follows else axis)
    return found


# What a step trains: the fields that say so. A step is a batch, however many updates it is cut into.
_WORK = ("batch_tokens", "batch_groups", "group_size", "response_length")
_BATCH = ("batch_groups", "group_size")  # of which the rollouts of a batch are the product


def _with_work(config: PipelineConfig, axis: Axis) -> Axis:
    """Say whether an axis changes what a step trains: itself, or through the rules of its system."""
    several: tuple[int, ...] = ()
    changes = axis.column.partition(".")[0] in _WORK
    if axis.column == "updates_per_batch":
        several = tuple(int(value) for value in axis.inner)
    elif axis.column.startswith("preset.") and config.preset is not None:
        name, fields = config.preset
        knob = axis.column.removeprefix("preset.")
        rules = [preset_settings(name, {**fields, knob: value}) for value in axis.inner]
        changes = any(one.get(field) != rules[0].get(field) for one in rules for field in _WORK)
        several = tuple(int(one.get("updates_per_batch", config.updates_per_batch)) for one in rules)
    return replace(axis, changes_work=changes, updates=several)


def _of_gpus(gpus: Gpus, name: str, given: Any) -> Axis:
    """Return an axis of the GPUs of one side."""
    own = gpus.rollout if name == "rollout_gpus" else gpus.trainer
    if own is None:
        flag = f"--{name.replace('_', '-')}"
        raise ConfigError(name, "needs the run's own number", given, f"Give {flag} N beside the log.")
    listed = list(given) if isinstance(given, list | tuple) else [given]
    values = [checked(RealNumber, name, one, low=1e-6) for one in listed]
    whole = [int(one) if float(one).is_integer() else one for one in (*values, own)]
    values, place = _among(whole[:-1], whole[-1])
    if name == "rollout_gpus":
        factors = tuple((own / one,) * 3 for one in values)
    else:
        factors = tuple(gpus.training(one) for one in values)
    return Axis(name, name, tuple(values), tuple(values), place, factors=factors)


PLAINEST = "areal"  # a system whose one knob is the lag
NO_WORK = 1e-15  # a slowdown that no clock shows


def scaled_fields(config: PipelineConfig, name: str, factors: list[float]) -> dict[str, list[Any]]:
    """Return the fields of one side at each of its numbers of GPUs.

    Training takes so many times as long, in all its parts; of generation the work that rollouts share does.
    """
    given = config.preset[1] if config.preset else {}

    def own(field: str) -> float:
        """Return what the preset was given: its rules are applied again."""
        return float(given.get(field, getattr(config, field)))

    if name == "trainer_gpus":
        seconds, rate = own("train_overhead_seconds"), own("train_tokens_per_second")
        return {
            "train_overhead_seconds": [seconds * one for one in factors],
            "train_tokens_per_second": [rate / one for one in factors],
        }
    if config.engine is not None:
        return {"engine.count": [max(1, round(config.engine.count / one)) for one in factors]}
    slowdown = own("decode_slowdown_per_rollout")
    # Where no work is shared all are 0, and a sweep refuses equal values: told apart by what changes no run.
    return {"decode_slowdown_per_rollout": [max(slowdown, NO_WORK) * one for one in factors]}


def _axis(config: PipelineConfig, setup: Setup, name: str, given: Any) -> Axis:
    if name == LAG:
        found = _lag(config, expand(name, given))
        if found is not None:
            return found
    column = field_of_axis(name, "axes", AXES)
    values = [read_none(column, value) for value in expand(name, given)]
    own = _own(config, column)
    values, place = _among(values, own)
    return Axis(name, name, tuple(values), tuple(values), place)


def _lag(config: PipelineConfig, values: Any) -> Axis | None:
    """Return the axis of the lag by the knob that bounds it; None where the field itself does."""
    knob = lag_knob(config)
    if knob is None and config.stale_check == "never":
        whose = config.preset[0] if config.preset else "this run"
        rule = f"has no effect under the rules of this run: {whose} has no knob that lets it run ahead"
        raise ConfigError(LAG, rule, list(values), _other_rules(config, list(values)))
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


def _other_rules(config: PipelineConfig, lags: list[Any]) -> str:
    """Name a system with a knob for these lags, of the same family if there is one."""
    family = config.preset[0].partition("_")[0] if config.preset else ""
    groups, size = config.batch_groups or 1, config.group_size
    ahead = []
    for name in all_presets():
        knob = lag_knob(preset_config(name, batch_groups=groups, group_size=size))
        if knob is not None and all(lag in knob[1] for lag in lags):
            ahead.append(name)
    if not ahead:
        return "Give the rules of another with --preset, and lags that its knob can give."
    # Of several: its own family's, then the one whose knob is the lag itself.
    chosen = min(ahead, key=lambda name: (name.partition("_")[0] != family, name != PLAINEST))
    return f"Give rules that have one: --preset {chosen} --axis {LAG}={','.join(map(str, lags))}."


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
    """Let the rollouts at once follow the rules and the batch, where they were assumed from them."""
    batch = axis.column in _BATCH and all(isinstance(value, int) for value in axis.inner)
    if not setup.assumes(SLOTS_FIELD) or not (batch or axis.column.startswith("preset.")):
        return axis
    changed = axis.column.removeprefix("preset.")
    fields = {name: one for name, one in setup.fields.items() if name != SLOTS_FIELD}
    slots = [slots_by_rules(setup.preset, {**fields, changed: value}) for value in axis.inner]
    slots[axis.own] = int(setup.fields[SLOTS_FIELD])
    if len(set(slots)) == 1:
        return axis
    own = axis.inner[axis.own]
    one_batch = tuple(max(1, round(setup.rollouts * value / own)) for value in axis.inner) if batch else ()
    return replace(axis, along={SLOTS_FIELD: tuple(slots)}, one_batch=one_batch)
