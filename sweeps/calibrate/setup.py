"""What a run was set to: its rules, its batch, its slots, its GPUs; and which of it had to be assumed.

A log seldom holds a run's settings. What is given counts; what can be read from the log is read; the rest is
assumed, and every assumption is named with the flag that replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars

from ...kernels.errors import ConfigError, Finding
from ..checks import WholeNumber, checked
from ..config.config import PipelineConfig
from ..presets.registry import (
    DEFAULT_GROUPS,
    fields_and_knobs,
    find_preset,
    preset_config,
    preset_settings,
)
from .lag_knob import lag_knob
from .phases import TRAINER_PHASES, column

IN_TURN = "synchronous"
AHEAD = "skyrl"  # a budget of batches ahead of the weights, and nothing else
ONE_AHEAD = "verl_one_step_off"  # the lag is 1, always
# Whose rules a framework's own log follows where nobody says so.
OF_FRAMEWORK = {
    "verl_fully_async": "verl_fully_async",
    "verl_v1": "verl_v1",
    "prime_rl_trainer": "prime_rl",
    "prime_rl_orchestrator": "prime_rl",
    "open_instruct": "open_instruct",
    "areal": "areal",
    "skyrl": "skyrl",
    "openrlhf": "openrlhf",
    "tinker": "tinker",
}
_NOMINAL_ROLLOUTS = 256  # of a batch, where the log has no rollouts
_MOST_SLOTS = 2**14
_BELOW_LIMIT = 0.25  # versions
_WHOLE = {"group_size": 2**20, "batch_groups": 2**31, "rollout_workers": 2**24, "prompt_tokens": 2**52}
FASTEST = 1e12  # tokens a second: a training step without a part for each token


@dataclass(frozen=True)
class Setup:
    """The settings of a run that a calibration does not fit.

    Attributes
    ----------
    preset : str
        Whose rules the run follows.
    fields : mapping
        Knobs of the preset and fields of the configuration.
    in_turn : bool
        Whether generation and training take turns in the log.
    given : frozenset of str
        Names in `fields` that were given and not assumed.
    assumed : tuple of Finding
        What was not given and is not in the log.
    holds : mapping
        Whether the log's seconds of a step hold evaluations, checkpoints, publications.
    """

    preset: str
    fields: Mapping[str, Any]
    in_turn: bool
    given: frozenset[str]
    assumed: tuple[Finding, ...]
    holds: Mapping[str, bool | None] = field(default_factory=dict)

    @property
    def batch_groups(self) -> int:
        """Groups of a batch."""
        return int(self.fields["batch_groups"])

    @property
    def group_size(self) -> int:
        """Rollouts of a group."""
        return int(self.fields["group_size"])

    @property
    def rollouts(self) -> int:
        """Rollouts of a batch."""
        return self.batch_groups * self.group_size

    @property
    def speed_is_given(self) -> bool:
        """Whether the engine or the speed of decoding was given, and is not searched."""
        return not self.given.isdisjoint({"engine", "decode_tokens_per_second"})

    def assumes(self, name: str) -> bool:
        """Whether a setting was assumed."""
        return any(one.field == name for one in self.assumed)

    def with_slots(self, slots: int) -> Setup:
        """Return the same set-up with so many rollouts at once."""
        return replace(self, fields={**self.fields, "rollout_workers": slots})

    def config(self, **fields: Any) -> PipelineConfig:
        """Return the configuration with some more fields; what was given wins over them."""
        own = {name: value for name, value in fields.items() if name not in self.given}
        return preset_config(self.preset, **_undone(self.preset, {**own, **self.fields}, self.given))


def with_batch(frame: polars.DataFrame, setup: Setup) -> polars.DataFrame:
    """Put the rollouts of a batch where the log has none."""
    if np.isfinite(column(frame, "rollouts")).any():
        return frame
    return frame.with_columns(polars.lit(float(setup.rollouts)).alias("rollouts"))


def takes_turns(frame: polars.DataFrame) -> bool:
    """Tell whether generation and training take turns: generation is part of the step, and nothing waits.

    Examples
    --------
    >>> takes_turns(polars.DataFrame({"generation_seconds": [20.0], "training_seconds": [20.0]}))
    True
    >>> takes_turns(polars.DataFrame({"wait_seconds": [20.0], "training_seconds": [20.0]}))
    False
    """
    generation, wait = column(frame, "generation_seconds"), column(frame, "wait_seconds")
    if not np.isfinite(generation).any() or not np.isfinite(column(frame, "training_seconds")).any():
        return False
    if not np.isfinite(wait).any():
        step = column(frame, "step_seconds")
        if not np.isfinite(step).any():
            return True
        # Generation beside training: both together are longer than a step.
        parts = np.nansum([column(frame, name) for name in TRAINER_PHASES], axis=0)
        return bool(np.nanmean(generation + parts) <= 1.1 * np.nanmean(step))
    return False


def setup_of(
    frame: polars.DataFrame,
    preset: str | None,
    fields: Mapping[str, Any],
    *,
    frameworks: Sequence[str] = (),
    holds: Mapping[str, bool | None] | None = None,
) -> Setup:
    """Put together what a run was set to.

    Parameters
    ----------
    frame : polars.DataFrame
        Its steps.
    preset : str, optional
        Whose rules it follows.
    fields : mapping
        What is known: knobs and fields, mixed.
    frameworks : sequence of str
        Whose log it is.
    holds : mapping, optional
        What the log's seconds of a step hold.

    Raises
    ------
    ConfigError
        For an unknown preset or name, or a batch that the group size does not divide.
    """
    given = dict(fields)
    for name, most in _WHOLE.items():
        if given.get(name) is not None:
            given[name] = checked(WholeNumber, name, given[name], low=int(name != "prompt_tokens"), high=most)
    in_turn = takes_turns(frame)
    assumed: list[Finding] = []
    if preset is None:
        preset, rules = _rules_of(frame, in_turn, frameworks, assumed)
        given = {**rules, **given}
    find_preset(preset)
    fields_and_knobs(preset, given)
    if given.get("group_size") is None:
        given["group_size"] = _group_size(assumed)
    if given.get("batch_groups") is None:
        given["batch_groups"] = _batch_groups(frame, given["group_size"], assumed)
    prompt = column(frame, "prompt_tokens_mean")
    if given.get("prompt_tokens") is None and np.isfinite(prompt).any():
        given["prompt_tokens"] = round(float(np.nanmean(prompt)))
    if given.get("rollout_workers") is None:
        given["rollout_workers"] = _slots(preset, given, assumed)
    if "sync_seconds" not in given and not (np.nan_to_num(column(frame, "publication_seconds")) > 0).any():
        rule = "is not in the log: publications that take no time assumed"
        assumed.append(Finding("sync_seconds", rule, way_out="Give --sync-seconds SECONDS."))
    return Setup(
        preset,
        given,
        in_turn,
        frozenset(name for name in fields if fields[name] is not None),
        tuple(assumed),
        dict(holds or {}),
    )


def _rules_of(
    frame: polars.DataFrame, in_turn: bool, frameworks: Sequence[str], assumed: list[Finding]
) -> tuple[str, dict[str, Any]]:
    """Assume the rules of a run: none ahead; or the framework's, as far ahead as its lag says."""
    if in_turn:
        return IN_TURN, {}
    lags = column(frame, "lag_mean")
    known = lags[np.isfinite(lags)]
    # A straggler passes the limit of most systems, and most rollouts stay below it.
    seen = math.ceil(known.mean() - _BELOW_LIMIT) if len(known) else None
    preset = next((OF_FRAMEWORK[name] for name in frameworks if name in OF_FRAMEWORK), AHEAD)
    always = len(known) > 0 and known.min() == 1 == np.nanmax(column(frame, "lag_max"), initial=1)
    preset = ONE_AHEAD if always else preset
    knob = lag_knob(preset_config(preset))
    rules: dict[str, Any] = {}
    words = f"was not given: rules of {preset} assumed" + (", since the lag is always 1" if always else "")
    if knob is not None and (seen is not None or preset == AHEAD):
        name, values = knob
        lag = 1 if seen is None else next((one for one in sorted(values) if one >= seen), max(values))
        rules = {name: values[lag]}
        words += f" with {name} {values[lag]:g}" + (", as the lag says" if seen is not None else "")
    assumed.append(Finding("preset", words, way_out="Give --preset NAME; lagsweep presets lists them."))
    return preset, rules


def _group_size(assumed: list[Finding]) -> int:
    rule = "was not given: every rollout is assumed a prompt of its own"
    assumed.append(Finding("group_size", rule, way_out="Give --group-size N."))
    return 1


def _batch_groups(frame: polars.DataFrame, group_size: Any, assumed: list[Finding]) -> int:
    """Return the groups of a batch, from the rollouts of a step."""
    rollouts = column(frame, "rollouts")
    size = max(1, int(group_size))
    if not np.isfinite(rollouts).any():
        rule = f"is not in the log: {_NOMINAL_ROLLOUTS} rollouts a step assumed"
        assumed.append(Finding("batch_groups", rule, way_out="Give --batch-groups N."))
        return max(1, _NOMINAL_ROLLOUTS // size)
    each = float(np.nanmedian(rollouts))
    if each < size:
        rule = f"must be at most the rollouts of a step, {each:g}"
        raise ConfigError("group_size", rule, group_size, "Give the rollouts of one prompt.")
    return max(1, round(each / size))


def _slots(preset: str, given: Mapping[str, Any], assumed: list[Finding]) -> int:
    """Assume that as many rollouts run at once as the rules allow."""
    slots = slots_by_rules(preset, given)
    rule = f"was not given: {slots:,} rollouts at once assumed, what the rules allow"
    assumed.append(Finding("rollout_workers", rule, way_out="Give --rollout-workers N."))
    return slots


def slots_by_rules(preset: str, given: Mapping[str, Any]) -> int:
    """Return how many rollouts may run at once by a preset's rules alone."""
    settings = preset_settings(preset, given)
    size = int(settings.get("group_size", 1))
    batch = int(settings.get("batch_groups", DEFAULT_GROUPS))
    caps = [one["groups"] if isinstance(one, Mapping) else one.groups for one in settings.get("limits", [])]
    if settings.get("max_running_groups"):
        caps.append(settings["max_running_groups"])
    groups = max(1, min(caps)) if caps else 2 * batch
    return min(_MOST_SLOTS, groups * size)


def _undone(preset: str, fields: Mapping[str, Any], given: frozenset[str]) -> dict[str, Any]:
    """Return fields from which a preset's rules make these: what was measured is what must come out."""
    wanted = dict(fields)
    needs = [
        name
        for name in find_preset(preset).needs
        if isinstance(wanted.get(name), int | float) and name not in given
    ]
    made = preset_settings(preset, wanted)
    for name in needs:
        if name == "batch_groups" or not made.get(name) or not wanted[name]:
            continue
        factor = made[name] / wanted[name]
        if math.isclose(factor, 1.0):
            continue
        undone = wanted[name] / factor
        wanted[name] = max(1, round(undone)) if name == "rollout_workers" else undone
    return wanted
