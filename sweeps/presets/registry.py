"""Configurations of real systems: each preset is a function of that system's own knobs.

A preset gives the *rules* of a system (what may start, what is dropped, what a publication does); speeds,
lengths and numbers of slots are the workload, and stay as they are set beside it. What a system's batch
holds (groups per batch, samples per group) is part of the workload too.

The rules were read from each system's public repository at the commit named in its metadata; systems move,
so a preset carries repository, commit and date. All of them are stated with one admission ledger (see
``limits`` in :class:`lagsweep.PipelineConfig`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from ...kernels.errors import ConfigError, nearest
from ..checks import RealNumber, WholeNumber, checked, mapping_of
from ..config.config import PipelineConfig, as_drift_law, as_engine
from ..config.rules import contradictions
from ..laws.drift import DriftLaw
from . import ahead, budget, dropping
from .base import Preset, Workload

if TYPE_CHECKING:
    from ..config.settings import PresetSettings

DEFAULT_GROUPS = 16
DEFAULT_GROUP_SIZE = 8
_BETWEEN_WORDS = re.compile(r"[\s-]+")


@cache
def all_presets() -> dict[str, Preset]:
    """Return every preset by name, in alphabetical order."""
    found = [*ahead.PRESETS, *budget.PRESETS, *dropping.PRESETS]
    return {preset.name: preset for preset in sorted(found, key=lambda preset: preset.name)}


def find_preset(name: str) -> Preset:
    """Return a preset by name, as :func:`preset_name` reads it.

    Raises
    ------
    ConfigError
        For an unknown one; the nearest known name is given, or those that begin so.

    Examples
    --------
    >>> find_preset("areal").bound_kind
    'typical'
    >>> find_preset("prime-rl").name
    'prime_rl'
    """
    presets = all_presets()
    if not isinstance(name, str) or preset_name(name) not in presets:
        raise ConfigError("preset", "must be a known preset", name, _meant(name, presets))
    return presets[preset_name(name)]


def preset_name(text: str) -> str:
    """Return a preset's name from how people write a system: any case, dashes or spaces for underscores.

    Examples
    --------
    >>> [preset_name(text) for text in ("prime-rl", "AReaL", " verl fully async ")]
    ['prime_rl', 'areal', 'verl_fully_async']
    """
    return _BETWEEN_WORDS.sub("_", text.strip()).lower()


def _meant(name: Any, presets: Mapping[str, Preset]) -> str:
    """Say which names may be meant."""
    plain = preset_name(name) if isinstance(name, str) else ""
    begin = [known for known in presets if plain and known.startswith(f"{plain}_")]
    if len(begin) > 1:
        return f"Did you mean one of {', '.join(begin)}?"
    return nearest(plain or name, presets) or f"Known: {', '.join(presets)}."


class _Asked(NamedTuple):
    """A preset beside a workload, worked out once for its settings and its bound."""

    preset: Preset
    knobs: dict[str, Any]
    own: dict[str, Any]
    workload: Workload
    rules: dict[str, Any]


def _asked(name: str, fields: Mapping[str, Any]) -> _Asked:
    preset, knobs, own = fields_and_knobs(name, fields)
    workload = _workload(own)
    return _Asked(preset, knobs, own, workload, preset.rules(workload, **knobs))


def preset_settings(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration fields of a preset set beside some workload.

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
    return _settings(_asked(name, fields))


def _settings(asked: _Asked) -> dict[str, Any]:
    preset, _, own, workload, rules = asked
    common = {
        "batch_tokens": None,
        "batch_groups": workload.batch_groups,
        "group_size": workload.group_size,
        "max_queue_tokens": None,
        "stale_check": "never",
    }
    kept = {key: value for key, value in own.items() if not (key in preset.needs and key in rules)}
    return common | rules | kept


def preset_lag_bound(name: str, fields: Mapping[str, Any] = MappingProxyType({})) -> int | None:
    """Return a preset's bound of the lag in versions; None where the system has none.

    Parameters
    ----------
    name : str
    fields : mapping
        Configuration fields and the preset's knobs, mixed, as in :func:`preset_settings`.

    Raises
    ------
    ConfigError
        As :func:`preset_settings`.

    Examples
    --------
    >>> preset_lag_bound("prime_rl"), preset_lag_bound("slime_fully_async")
    (8, None)
    """
    preset, knobs, own = fields_and_knobs(name, fields)
    return preset.largest_lag(_workload(own), **knobs)


def preset_bound_kind(name: str, fields: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Say how a preset's bound is meant at some knobs: exact, hard, typical or none.

    A typical bound is hard where the budget is what one publication needs: then nothing of a later window
    can be trained before all of it.

    Examples
    --------
    >>> preset_bound_kind("areal"), preset_bound_kind("areal", {"max_head_offpolicyness": 1})
    ('hard', 'typical')
    """
    return _bound_kind(_asked(name, fields))


def _bound_kind(asked: _Asked) -> str:
    preset, knobs, _, workload, rules = asked
    if preset.largest_lag(workload, **knobs) is None:
        return "none"
    batches = rules.get("sync_every_updates", 1) // rules.get("updates_per_batch", 1)
    budgets = [
        limit["groups"]
        for limit in rules.get("limits", [])
        if limit["count"] == "started" and limit["done"] == "published"
    ]
    if preset.bound_kind == "typical" and budgets and min(budgets) <= batches * workload.batch_groups:
        return "hard"
    return preset.bound_kind


def fields_and_knobs(name: str, fields: Mapping[str, Any]) -> tuple[Preset, dict[str, Any], dict[str, Any]]:
    """Tell a preset's knobs, checked and whole, from the fields they are mixed with.

    Returns
    -------
    tuple of Preset, dict of knobs and dict of fields

    Raises
    ------
    ConfigError
        For a name that is neither, or a knob's bad value.
    """
    preset = find_preset(name)
    fields = mapping_of("fields", fields, "Give names of fields and knobs.")
    knob_names = {knob.name for knob in preset.knobs}
    known = PipelineConfig.model_fields
    for key, value in fields.items():
        if key not in known and key not in knob_names:
            hint = nearest(key, [*known, *knob_names]) or f"Its knobs: {', '.join(sorted(knob_names))}."
            raise ConfigError(key, f"is neither a field nor a knob of preset {name!r}", value, hint)
    knobs = preset.checked_knobs({key: value for key, value in fields.items() if key in knob_names})
    return preset, knobs, {key: value for key, value in fields.items() if key not in knob_names}


def _workload(fields: Mapping[str, Any]) -> Workload:
    defaults = {name: field.default for name, field in PipelineConfig.model_fields.items()}
    given = {**defaults, **fields}
    return Workload(
        batch_groups=_whole("batch_groups", fields.get("batch_groups", DEFAULT_GROUPS)),
        group_size=_whole("group_size", fields.get("group_size", DEFAULT_GROUP_SIZE)),
        rollout_workers=_whole("rollout_workers", given["rollout_workers"]),
        train_tokens_per_second=_real("train_tokens_per_second", given["train_tokens_per_second"]),
        decode_slowdown_per_rollout=_real(
            "decode_slowdown_per_rollout", given["decode_slowdown_per_rollout"]
        ),
        engine=as_engine(fields.get("engine")),
    )


def _whole(name: str, value: Any) -> int:
    return checked(WholeNumber, name, value, low=1, rule="must be a whole number of at least 1")


def _real(name: str, value: Any) -> float:
    way_out = "Give one of at least 0."
    return checked(RealNumber, name, value, low=0, rule="must be a finite number", way_out=way_out)


def preset_config(name: str, **fields: Unpack[PresetSettings]) -> PipelineConfig:
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
    >>> preset_config("tinker", max_steps_off_policy=3, stale_groups="requeue").max_policy_lag
    3
    """
    asked = _asked(name, fields)
    settings = _settings(asked)
    # A measured drift must cover every lag, of which the preset may know more than its rules alone tell.
    drift = as_drift_law(settings.pop("drift", None))
    config = PipelineConfig(**settings)
    config.remember_preset(asked.preset.name, fields, preset_config, _proved_bound(asked))
    return config if drift is None else with_drift(config, drift)


# The fields beside the rules of the configurations asked last: the cells of a sweep have one base.
_asked_last: deque[tuple[PipelineConfig, frozenset[str]]] = deque(maxlen=4)


def changed_beside_rules(base: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig | None:
    """Copy a preset's configuration with checked values that its rules neither read nor set.

    What :meth:`PipelineConfig.replace` gives, for a sweep's many cells, without asking the preset again.

    Returns
    -------
    PipelineConfig or None
        None where the preset has to be asked: a change may touch its rules, or contradicts another field.

    Examples
    --------
    >>> base = preset_config("areal")
    >>> changed_beside_rules(base, {"sync_seconds": 2.0}) == base.replace(sync_seconds=2.0)
    True
    >>> changed_beside_rules(base, {"batch_groups": 2}) is None
    True
    """
    if base.preset is None or base.drift is not None or not changes.keys() <= _beside_rules(base):
        return None
    made = base.model_copy(update=dict(changes))
    if contradictions(made):
        return None
    name, fields = base.preset
    made.remember_preset(name, {**fields, **changes}, preset_config, base.lag_bound_of_preset)
    return made


def _beside_rules(base: PipelineConfig) -> frozenset[str]:
    """Name the fields that the rules of a configuration's preset neither read nor set; none for a system."""
    for known, found in tuple(_asked_last):
        if known is base:
            return found
    name, fields = base.preset or ("", {})
    found = frozenset[str]()
    if name in all_presets():
        asked = _asked(name, fields)
        read = {field.name for field in dataclass_fields(Workload)} | asked.knobs.keys()
        ruled = read | {*_settings(asked._replace(own={})), *asked.preset.needs, "drift"}
        found = frozenset(PipelineConfig.model_fields) - ruled
    _asked_last.append((base, found))
    return found


def with_drift(config: PipelineConfig, drift: DriftLaw) -> PipelineConfig:
    """Return a configuration with a measured drift, everything else as it is.

    Raises
    ------
    ConfigError
        If the two contradict each other.
    """
    made = config.model_copy(update={"drift": drift})
    found = contradictions(made)
    if found:
        raise ConfigError(*found)
    return made


def _proved_bound(asked: _Asked) -> int | None:
    """Return a preset's bound of the lag, if it holds for every rollout and none of its rules is replaced."""
    preset, knobs, own, workload, _ = asked
    rules = {"stale_check": "never", "max_queue_tokens": None} | asked.rules
    replaced = any(own[key] != rule for key, rule in rules.items() if key in own and key not in preset.needs)
    if replaced or _bound_kind(asked) not in ("exact", "hard"):
        return None
    return preset.largest_lag(workload, **knobs)
