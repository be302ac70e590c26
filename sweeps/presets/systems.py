"""Systems as values of one axis: a preset with knobs, written as one label, beside one workload.

A label is a preset's name, or ``areal:max_head_offpolicyness=2``; several knobs are joined by ``+``, or by
commas. The workload is what all systems have in common: a configuration whose rules each system replaces by
its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig, as_drift_law
from .registry import (
    DEFAULT_GROUP_SIZE,
    DEFAULT_GROUPS,
    fields_and_knobs,
    find_preset,
    preset_config,
    preset_settings,
)

SYSTEM = "system"
WORKLOAD = "workload"  # stands where a preset's name would: the rules come from each cell's system
# Settings of an abort: in a common workload they are for the systems that abort.
ABORT_FIELDS = ("resume_seconds", "reprefill_tokens_per_second")
_BETWEEN_KNOBS = re.compile(r"[,+](?=\s*[A-Za-z_][\w-]*\s*=)")
_BETWEEN_LABELS = re.compile(r",(?!\s*[A-Za-z_][\w-]*\s*=)")


def read_scalar(text: str) -> Any:
    """Read a number, true, false, or leave the text.

    Examples
    --------
    >>> [read_scalar(text) for text in ("3", "0.5", "1e3", "true", "none", "fifo")]
    [3, 0.5, 1000.0, True, 'none', 'fifo']
    """
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text


def read_system(text: str, where: str = "systems") -> tuple[str, dict[str, Any]]:
    """Read ``NAME`` or ``NAME:KNOB=VALUE,KNOB=VALUE``.

    Raises
    ------
    ConfigError
        For a knob without a value, or one that is given twice.

    Examples
    --------
    >>> read_system("miles:max_weight_staleness=none,pause_generation_mode=in_place")
    ('miles', {'max_weight_staleness': None, 'pause_generation_mode': 'in_place'})
    """
    name, _, rest = text.partition(":")
    knobs: dict[str, Any] = {}
    for part in _BETWEEN_KNOBS.split(rest) if rest else []:
        knob, equals, value = (piece.strip() for piece in part.partition("="))
        knob = knob.replace("-", "_")
        if not (equals and knob and value) or knob in knobs:
            way_out = "Write areal:max_head_offpolicyness=4, several with commas between, each once."
            raise ConfigError(where, "must read PRESET:KNOB=VALUE", text, way_out)
        parsed = read_scalar(value)
        knobs[knob] = None if parsed == "none" else parsed
    return name.strip(), knobs


def split_labels(text: str) -> list[str]:
    """Split a list of labels at its commas; a comma before another knob belongs to the label.

    Examples
    --------
    >>> split_labels("areal,miles:max_weight_staleness=2,max_concurrent=4,prime_rl")
    ['areal', 'miles:max_weight_staleness=2,max_concurrent=4', 'prime_rl']
    """
    return [part.strip() for part in _BETWEEN_LABELS.split(text)] if text.strip() else []


class SystemLabel(str):
    """A checked label; two that say the same in another order have one :attr:`identity`."""

    @property
    def identity(self) -> str:
        """The label with its knobs in alphabetical order."""
        preset, knobs = read_system(self)
        return str(system_label(preset, dict(sorted(knobs.items()))))


def system_label(preset: str, knobs: Mapping[str, Any]) -> SystemLabel:
    """Write a system as the label that :func:`read_system` reads.

    Examples
    --------
    >>> system_label("miles", {"pause_generation_mode": "in_place", "max_weight_staleness": None})
    'miles:pause_generation_mode=in_place+max_weight_staleness=none'
    """
    written = [f"{name}={_written(preset, name, value)}" for name, value in knobs.items()]
    return SystemLabel(f"{preset}:{'+'.join(written)}" if written else preset)


def _written(preset: str, name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, int | float | np.number):
        return repr(value.item() if isinstance(value, np.number) else value)
    if isinstance(value, str) and read_scalar(value) == value and not set(value) & set(",+=:"):
        return value
    raise ConfigError(
        f"{preset}.{name}", "must be a number, a word, true, false or none", value, "Set it in the base."
    )


def checked_label(value: Any, where: str) -> SystemLabel:
    """Check a value of the axis ``system``, and write it in the one form that labels have.

    Raises
    ------
    ConfigError
        For an unknown preset, or what is neither a knob of it nor a field.
    """
    if not isinstance(value, str):
        raise ConfigError(where, "must be a system's label", value, "Write 'areal' or 'areal:KNOB=2'.")
    preset, knobs = read_system(value, where)
    preset = find_preset(preset).name
    fields_and_knobs(preset, knobs)
    return system_label(preset, knobs)


def workload_config(name: str = WORKLOAD, *, system: str | None = None, **fields: Any) -> PipelineConfig:
    """Build a workload; with `system`, the configuration of that system beside it.

    Parameters
    ----------
    name : str
        ``workload``.
    system : str, optional
        A label.
    **fields
        Fields of the configuration, and with `system` also knobs of its preset.

    Raises
    ------
    ConfigError
        As for a new configuration.

    Examples
    --------
    >>> workload = workload_config(batch_groups=4, group_size=2)
    >>> workload.replace(system="areal:max_head_offpolicyness=2").limits[0].groups
    12
    """
    fields = {"batch_groups": DEFAULT_GROUPS, "group_size": DEFAULT_GROUP_SIZE, **fields}
    if system is not None:
        preset, knobs = read_system(system)
        return system_config(preset, knobs, fields)
    aborts = {} if fields.get("publication") == "abort" else _of_aborts(fields)
    # A system's own rules say which lags a measured drift must cover, so it is held against them alone.
    drift = as_drift_law(fields.get("drift"))
    left_out = {*aborts, "drift"}
    config = PipelineConfig(**{field: value for field, value in fields.items() if field not in left_out})
    if drift is not None:
        config = config.model_copy(update={"drift": drift})
    if aborts:
        # No rule of the workload's own uses them: they are checked where they count, and kept.
        checked = PipelineConfig(publication="abort", **aborts)
        config = config.model_copy(update={field: getattr(checked, field) for field in aborts})
    config.remember_preset(WORKLOAD, fields, workload_config)
    return config


def system_config(preset: str, knobs: Mapping[str, Any], workload: Mapping[str, Any]) -> PipelineConfig:
    """Build the configuration of one system beside a workload's fields.

    Settings of an abort are left out where the system never aborts.

    Raises
    ------
    ConfigError
        As for a new configuration.
    """
    fields = {**workload, **knobs}
    rules = preset_settings(preset, fields)
    if rules.get("publication") != "abort":
        fields = {name: value for name, value in fields.items() if name not in ABORT_FIELDS or name in knobs}
    return preset_config(preset, **fields)


def _of_aborts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ABORT_FIELDS if name in fields}
