"""From cells to configurations: build them fast, check all of them, find one by id or by its values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import Counted, checked
from ..config.config import PipelineConfig, as_engine
from ..config.rules import NoEffect, contradictions, without_effect
from ..presets.registry import changed_beside_rules
from .axes import PRESET_PREFIX, checked_value, engine_field, field_of_axis, identity, label, nearly

if TYPE_CHECKING:
    from .design import Design
    from .spec import SweepSpec

_MOST_VALUES = 12  # of an axis, in a message


def unchecked_config(base: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """Copy a configuration with values that have been checked one by one already.

    What the base gives for other cells, and has no effect in this one, is left out.
    """
    return _config_and_idle(base, changes)[0]


def checked_config(base: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """Copy a configuration as a cell has it.

    Raises
    ------
    ConfigError
        If its settings contradict each other.
    """
    made = unchecked_config(base, changes)
    found = contradictions(made)
    if found:
        raise ConfigError(*found)
    return made


def _config_and_idle(base: PipelineConfig, changes: Mapping[str, Any]) -> tuple[PipelineConfig, set[str]]:
    """Build a cell's configuration, and name what the base gives without an effect in it."""
    changes = _with_engine(base, changes)
    if base.preset is not None:
        fields = {name.removeprefix(PRESET_PREFIX): value for name, value in changes.items()}
        return _of_preset(base, base.preset[1], fields)
    fields = dict(changes)
    if fields.get("batch_groups") is not None and "batch_tokens" not in base.model_fields_set:
        fields.setdefault("batch_tokens", None)  # as a new configuration does
    made, left_out = base.model_copy(update=fields), set()
    while idle := [name for name in without_effect(made) if name not in changes]:
        left_out.update(idle)
        made = made.model_copy(update=_defaults_of(idle))
    return made, left_out


def _of_preset(
    base: PipelineConfig, given: Mapping[str, Any], fields: dict[str, Any]
) -> tuple[PipelineConfig, set[str]]:
    """Build a cell of a preset or a system; a default stands for what has no effect."""
    if (made := changed_beside_rules(base, fields)) is not None:
        return made, set()
    left_out: set[str] = set()
    while True:
        try:
            return base.replace(**fields, **_defaults_of(left_out)), left_out
        except ConfigError as error:
            found = {finding.field for finding in error.findings if isinstance(finding, NoEffect)}
            idle = (found & set(given)) - set(fields) - left_out
            if not idle:
                raise
            left_out |= idle


def _defaults_of(names: Iterable[str]) -> dict[str, Any]:
    return {name: PipelineConfig.model_fields[name].default for name in names}


def _with_engine(base: PipelineConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put the fields of an engine that a cell sets, as ``engine.max_running``, into the cell's engine."""
    own = {name: value for name, value in changes.items() if engine_field(name)}
    if not own:
        return dict(changes)
    # A preset may give the pipeline more engines than it was given, and does so again for the cell.
    given = base.engine if base.preset is None else as_engine(base.preset[1].get("engine"))
    engine = changes.get("engine", given)
    rest = {name: value for name, value in changes.items() if name not in own}
    if engine is None:
        if "engine" in changes:  # without an engine there is nothing to set: one run for all of them
            return rest
        raise ConfigError(
            next(iter(own)), "needs an engine in the base", None, "Give [base.engine] or an axis engine."
        )
    fields = {str(engine_field(name)): value for name, value in own.items()}
    return rest | {"engine": type(engine)(**{**engine.to_dict(), **fields})}


def configs_of(
    base: PipelineConfig, design: Design, cells: Sequence[int] | np.ndarray
) -> list[PipelineConfig]:
    """Build the configurations of some cells of a checked design."""
    return [unchecked_config(base, settings) for settings in design.settings_of(cells)]


def contradicting_cells(spec: SweepSpec) -> list[tuple[str, Finding]]:
    """List the cells whose settings contradict each other, excluded ones apart, each with what is wrong.

    A value of the base that has an effect in no cell is wrong in all of them, which have no name here.
    """
    found = []
    idle: set[str] | None = None
    cells = _cells_that_differ(spec)
    for cell, settings in zip(cells, spec.design.settings_of(cells)):
        try:
            made, left_out = _config_and_idle(spec.base, settings)
            wrong = contradictions(made)
            idle = left_out if idle is None else idle & left_out
        except ConfigError as error:  # a preset's own rules
            wrong = list(error.findings)
        found += [(describe_cell(spec.design, int(cell)), finding) for finding in wrong]
    if not found:
        found += [("", _idle_everywhere(spec.base, name)) for name in sorted(idle or ())]
    return found


def _idle_everywhere(base: PipelineConfig, name: str) -> Finding:
    value = getattr(base, name)
    return Finding(f"base.{name}", "has no effect in any cell of the sweep", value, "Leave it out.")


# Fields of level 1 that no rule between fields looks at: checked one by one, they cannot contradict others.
RULE_FREE = (
    "stop_after_updates",
    "rollout_overhead_seconds",
    "train_overhead_seconds",
    "train_tokens_per_second",
    "max_policy_lag",
    "sync_every_updates",
    "sync_seconds",
    "drift_per_version",
)


def _cells_that_differ(spec: SweepSpec) -> np.ndarray:
    """Return cells that stand for all others: along axes that no rule looks at, one value stands for all."""
    kept = ~spec.excluded
    if spec.design.is_grid:
        # A measured drift must cover every lag, and is held against the fields that bound it.
        measured = spec.base.drift is not None or "drift" in spec.design.fields.values()
        rule_free = () if measured else RULE_FREE
        free = tuple(dim for dim, name in enumerate(spec.design.dims) if field_of_axis(name) in rule_free)
        first = np.zeros(kept.shape, bool)
        first[tuple(slice(0, 1) if dim in free else slice(None) for dim in range(kept.ndim))] = kept.any(
            axis=free, keepdims=True
        )
        kept = first
    return np.flatnonzero(kept.reshape(-1))


def describe_cell(design: Design, cell: int) -> str:
    """Name a cell by its axis values, as ``max_lag=2 sync_cadence=1``."""
    at = design.indices(cell)
    return (
        " ".join(f"{name}={label(values[at[dim]])}" for name, (dim, values) in design.columns.items())
        or "base"
    )


def find_cell(spec: SweepSpec, cell: Any) -> int:
    """Find a cell by its id or its axis values; gives its place in the design.

    Raises
    ------
    ConfigError
        If the sweep has no such cell, or more than one fits.
    """
    if isinstance(cell, Mapping):
        return _by_values(spec, cell)
    rule, way_out = "must be a cell's id or its axis values", "Use int(ds.cell[...])."
    one = cell.item() if getattr(cell, "ndim", None) == 0 else cell  # ds.cell[...] itself is an array
    number = checked(Counted, "cell", one, rule=rule, way_out=way_out)
    places = np.flatnonzero(spec.cell_ids.reshape(-1) == number)
    if not len(places):
        raise ConfigError(
            "cell", "must be the id of a cell of this sweep", int(cell), "The coordinate cell lists them."
        )
    return int(places[0])


def _by_values(spec: SweepSpec, wanted: Mapping[str, Any]) -> int:
    design = spec.design
    matches = np.ones(design.shape, bool)
    by_field = {setting: axis for axis, setting in design.fields.items()}
    named: dict[str, Any] = {}
    for name, value in wanted.items():
        axis = name if name in design.columns else by_field.get(field_of_axis(name, "cell"))
        if axis is None:
            hint = nearest(name, design.columns) or f"Axes: {', '.join(design.columns)}."
            raise ConfigError("cell", "must name axes of this sweep", name, hint)
        fitting = matches & design.broadcast(design.columns[axis][0], _is_value(design, axis, value))
        if not fitting.any():
            raise ConfigError(*_no_cell(design, matches, axis, value, named))
        matches, named = fitting, {**named, axis: value}
    places = np.flatnonzero(matches.reshape(-1))
    if len(places) != 1:
        rule = f"must fit exactly one cell, fits {len(places):,}"
        raise ConfigError("cell", rule, dict(wanted), _what_is_missing(design, matches))
    return int(places[0])


def _is_value(design: Design, axis: str, value: Any) -> np.ndarray:
    """Tell where along an axis a value stands, as a person or a coordinate may write it."""
    values = design.columns[axis][1]
    if isinstance(value, float) and value == math.inf and None in values:
        value = None  # as the coordinate of an axis of numbers and none has it
    labels = design.coordinates()[axis][1]
    if labels.dtype.kind == "U" and value in labels:
        return np.asarray(labels == value)  # a law, for one, is named by its label
    key = identity(nearly(checked_value(design.fields[axis], value, f"cell.{axis}"), values))
    return np.array([identity(item) == key for item in values])


def _no_cell(
    design: Design, matches: np.ndarray, axis: str, value: Any, named: Mapping[str, Any]
) -> tuple[str, str, Any, str]:
    """Say which value no cell has, alone or beside those named before it, and which there are."""
    rule = "no cell has this value"
    if not _is_value(design, axis, value).any():
        matches = np.ones(design.shape, bool)
    elif named:
        rule += f" beside {', '.join(f'{name}={label(given)}' for name, given in named.items())}"
    return f"cell.{axis}", rule, value, f"It is {_one_of(_values_there(design, matches, axis))} there."


def _what_is_missing(design: Design, matches: np.ndarray) -> str:
    """Name the axes along which the cells that fit differ, with the values that they have."""
    there = {axis: _values_there(design, matches, axis) for axis in design.columns}
    missing = [f"{axis} ({_one_of(values)})" for axis, values in there.items() if len(values) > 1]
    return f"Also name {', '.join(missing)}."


def _values_there(design: Design, matches: np.ndarray, axis: str) -> list[str]:
    """List the values that some cells have along an axis, each once."""
    dim, values = design.columns[axis]
    others = tuple(position for position in range(matches.ndim) if position != dim)
    return list(dict.fromkeys(label(values[at]) for at in np.flatnonzero(matches.any(axis=others))))


def _one_of(values: Sequence[str]) -> str:
    if len(values) > _MOST_VALUES:
        return f"{', '.join(values[:_MOST_VALUES])} or one of {len(values) - _MOST_VALUES:,} more"
    return " or ".join(", ".join(part) for part in (values[:-1], values[-1:]) if part)
