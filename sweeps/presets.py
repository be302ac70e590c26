"""Configurations of real systems: each preset is a function of that system's own knobs.

A preset gives the *rules* of a system (what may start, what is dropped, what a publication does); speeds,
lengths and numbers of slots are the workload, and stay as they are set beside it. What a system's batch
holds (groups per batch, samples per group) is part of the workload too.

The rules were read from each system's public repository at the commit named in its metadata; systems move,
so a preset carries repository, commit and date. All of them are stated with one admission ledger (see
``limits`` in :class:`lagsweep.PipelineConfig`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lagsweep.errors import ConfigError, message, nearest
from lagsweep.sweeps.config import PipelineConfig

DEFAULT_GROUPS = 16
DEFAULT_GROUP_SIZE = 8


@dataclass(frozen=True)
class Knob:
    """One setting of a system, under that system's own name.

    Parameters
    ----------
    name : str
    default : int, float, bool, str or None
        The system's default.
    text : str
        What it does there.
    minimum : float, optional
        Smallest legal value.
    choices : tuple of str
        The legal words, for a knob that takes one.
    """

    name: str
    default: Any
    text: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()

    def checked(self, value: Any) -> Any:
        """Give the value in the knob's type.

        Raises
        ------
        ConfigError
            For a value of another type or out of range.
        """
        if self.choices:
            if value not in self.choices:
                rule = f"must be one of {', '.join(self.choices)}"
                raise ConfigError(message(self.name, rule, value, nearest(str(value), self.choices)))
            return value
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(message(self.name, "must be true or false", value, "Give true or false."))
            return value
        if value is None:
            if self.default is None:
                return None
            raise ConfigError(
                message(self.name, "must be a number", value, f"The default is {self.default}.")
            )
        return self._number(value)

    def _number(self, value: Any) -> Any:
        whole = isinstance(self.default, int) or (self.default is None and self.name != "reprefill")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if isinstance(value, bool | str) or not math.isfinite(number):
            raise ConfigError(
                message(self.name, "must be a number", value, f"The default is {self.default}.")
            )
        if whole and number != int(number):
            raise ConfigError(message(self.name, "must be a whole number", value, "Give a whole number."))
        if self.minimum is not None and number < self.minimum:
            rule = f"must be at least {self.minimum:g}"
            raise ConfigError(message(self.name, rule, value, f"Give {self.minimum:g} or more."))
        return int(number) if whole else number


@dataclass(frozen=True)
class Workload:
    """What a preset may look at: the batch in groups, and the hardware it is set beside."""

    batch_groups: int
    group_size: int
    rollout_workers: int
    train_tokens_per_second: float


@dataclass(frozen=True)
class Preset:
    """A real system's rules.

    Attributes
    ----------
    name, title : str
    repository, commit, date : str
        Where the rules were read.
    knobs : tuple of Knob
    rules : callable
        ``rules(workload, **knobs) -> dict`` of configuration fields.
    lag_bound : str
        In the system's own words of unit: what bounds the lag.
    bound_kind : {"exact", "hard", "typical", "none"}
        ``hard`` can be proved for every trained sample; ``typical`` bounds an aggregate only.
    leaves_out : tuple of str
        What the system does and the preset does not.
    alias_of : str, optional
        The preset with the same rules under other names.
    """

    name: str
    title: str
    repository: str
    commit: str
    date: str
    knobs: tuple[Knob, ...]
    rules: Callable[..., dict[str, Any]]
    lag_bound: str
    bound_kind: str
    leaves_out: tuple[str, ...] = ()
    alias_of: str | None = None
    needs: tuple[str, ...] = field(default=())

    def settings(self, workload: Workload, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Give the configuration fields for some knobs; those left out are at the system's defaults.

        Raises
        ------
        ConfigError
            For an unknown knob or a bad value.
        """
        by_name = {knob.name: knob for knob in self.knobs}
        for name in knobs:
            if name not in by_name:
                hint = nearest(name, by_name) or f"Its knobs: {', '.join(by_name) or 'none'}."
                raise ConfigError(
                    message(f"{self.name}.{name}", "is not a knob of this preset", knobs[name], hint)
                )
        values = {name: knob.checked(knobs.get(name, knob.default)) for name, knob in by_name.items()}
        return self.rules(workload, **values)


@cache
def all_presets() -> dict[str, Preset]:
    """Give every preset by name, in alphabetical order."""
    from lagsweep.sweeps import presets_ahead, presets_budget, presets_dropping

    found = [*presets_ahead.PRESETS, *presets_budget.PRESETS, *presets_dropping.PRESETS]
    return {preset.name: preset for preset in sorted(found, key=lambda preset: preset.name)}


def find_preset(name: str) -> Preset:
    """Give a preset by name.

    Raises
    ------
    ConfigError
        For an unknown one; the nearest known name is given.

    Examples
    --------
    >>> find_preset("areal").bound_kind
    'typical'
    """
    presets = all_presets()
    if name not in presets:
        hint = nearest(str(name), presets) or f"Known: {', '.join(presets)}."
        raise ConfigError(message("preset", "must be a known preset", name, hint))
    return presets[name]


def preset_settings(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Give the configuration fields of a preset set beside some workload.

    Parameters
    ----------
    name : str
    fields : mapping
        Configuration fields and the preset's knobs, mixed. A field named here wins over the preset's rule.

    Returns
    -------
    dict
        Fields for :class:`lagsweep.PipelineConfig`.

    Raises
    ------
    ConfigError
        For a name that is neither a field nor a knob, or a bad value.

    Examples
    --------
    >>> fields = preset_settings("areal", {"max_head_offpolicyness": 2, "batch_groups": 4})
    >>> fields["limits"]
    [{'count': 'started', 'done': 'published', 'groups': 12}]
    """
    preset = find_preset(name)
    knob_names = {knob.name for knob in preset.knobs}
    known = PipelineConfig.model_fields
    knobs = {key: value for key, value in fields.items() if key in knob_names}
    own = {key: value for key, value in fields.items() if key not in knob_names}
    for key, value in own.items():
        if key not in known:
            hint = nearest(key, [*known, *knob_names]) or f"Knobs of {name}: {', '.join(sorted(knob_names))}."
            raise ConfigError(message(key, f"is neither a field nor a knob of preset {name!r}", value, hint))
    defaults = PipelineConfig.model_fields
    workload = Workload(
        batch_groups=_whole(own, "batch_groups", DEFAULT_GROUPS),
        group_size=_whole(own, "group_size", DEFAULT_GROUP_SIZE),
        rollout_workers=_whole(own, "rollout_workers", defaults["rollout_workers"].default),
        train_tokens_per_second=float(
            own.get("train_tokens_per_second", defaults["train_tokens_per_second"].default)
        ),
    )
    rules = preset.settings(workload, knobs)
    common = {
        "batch_tokens": None,
        "batch_groups": workload.batch_groups,
        "group_size": workload.group_size,
        "max_queue_tokens": None,
    }
    kept = {key: value for key, value in own.items() if key not in preset.needs}
    return common | {"stale_check": "never"} | rules | kept


def _whole(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(message(name, "must be a whole number of at least 1", value, "Give 1 or more."))
    return value


def preset_config(name: str, **fields: Any) -> PipelineConfig:
    """Build the configuration of a preset beside a workload.

    Parameters
    ----------
    name : str
    **fields
        Knobs of the preset and fields of the configuration, mixed.

    Returns
    -------
    PipelineConfig

    Raises
    ------
    ConfigError
        As :func:`preset_settings`, and as for a new configuration.

    Examples
    --------
    >>> preset_config("tinker", max_steps_off_policy=3).max_policy_lag
    3
    """
    return PipelineConfig(**preset_settings(name, fields))
