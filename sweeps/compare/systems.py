"""Several systems' rules on the same rollouts, side by side: a sweep over the axis ``system``.

Every system gets the same workload (slots, speeds, lengths, batch) and the same seeds, so rollout number i
has the same length in each of them, and differences are taken seed by seed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance, listed
from ...kernels.errors import ConfigError
from ..checks import flag_of, mapping_of
from ..config.config import PipelineConfig
from ..config.rules import REPLACED_BY_ENGINE
from ..execute.options import Executor, Observer
from ..presets.registry import find_preset, preset_bound_kind, preset_lag_bound, preset_settings
from ..presets.systems import (
    ABORT_FIELDS,
    SYSTEM,
    WORKLOAD,
    read_system,
    system_config,
    system_label,
    workload_config,
)
from ..spec.carried import spec_of
from ..spec.make import make_spec
from ..spec.spec import SweepSpec
from ..sweep.run import run_spec

if TYPE_CHECKING:
    import xarray

BASELINE = "synchronous_colocated"
# More GPUs train faster by an exponent between these, measured: the baseline is run at both ends. The upper
# end is the preset's default.
LEAST_SCALING = {"training_scaling": 0.2}
LEAST_LABEL = "colocated at 0.2"
NAME = "comparison"
# What is compared when nothing is said: a batch of 16 prompts × 8 rollouts of a reasoning model, 256 slots on
# engines that slow down as they fill (40 tokens/s alone, 13 with all slots), and a trainer that is about as
# fast as they are. Two batches fit into the slots, so budgets bind and not slots.
DEFAULT_WORKLOAD: dict[str, Any] = {
    "batch_groups": 16,
    "group_size": 8,
    "rollout_workers": 256,
    "response_length": {"law": "shipped", "name": "aime-rl-1000"},
    "decode_tokens_per_second": 40.0,
    "decode_slowdown_per_rollout": 0.008,
    "rollout_overhead_seconds": 1.0,
    "reprefill_tokens_per_second": 5000.0,
    "train_overhead_seconds": 5.0,
    "train_tokens_per_second": 2800.0,
    "sync_seconds": 3.0,
    "drift_per_version": 0.2,
    "duration_seconds": 12_000.0,
    "warmup_seconds": 2000.0,
}


@dataclass(frozen=True)
class System:
    """One of the systems compared.

    Attributes
    ----------
    label : str
        Its preset's name, with a number where the preset is compared with itself.
    preset : str
    knobs : dict
        What was set beside the workload.
    config : PipelineConfig
    lag_bound : int or None
        In versions.
    bound_kind : str
        exact, hard, typical or none.
    workload : dict
        The fields that all systems have in common.
    """

    label: str
    preset: str
    knobs: dict[str, Any]
    config: PipelineConfig
    lag_bound: int | None
    bound_kind: str
    workload: dict[str, Any]


def whole_workload(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields that all systems have in common: ``DEFAULT_WORKLOAD`` with some changes.

    An engine stands in the place of the default speeds of decoding and re-prefill.
    """
    changes = changes or {}
    replaced = REPLACED_BY_ENGINE if changes.get("engine") is not None else ()
    common = {name: value for name, value in DEFAULT_WORKLOAD.items() if name not in replaced}
    return {**common, **changes}


def compared_systems(
    named: Sequence[tuple[str, Mapping[str, Any]]],
    workload: Mapping[str, Any] | None = None,
    *,
    baseline: bool = True,
) -> list[System]:
    """Set presets beside one workload.

    Parameters
    ----------
    named : sequence of (preset, knobs)
        A preset may come more than once, with other knobs; a field among the knobs is set for it alone.
    workload : mapping, optional
        Fields that differ from ``DEFAULT_WORKLOAD``, for all systems.
    baseline : bool
        Add a synchronous loop on all GPUs, unless it is among them: once with training that is faster in
        proportion to the GPUs, once with ``training_scaling`` 0.2.

    Raises
    ------
    ConfigError
        For fewer than two systems, one that is repeated, unknown names or bad values.

    Examples
    --------
    >>> systems = compared_systems([("areal", {}), ("areal", {"max_head_offpolicyness": 2})])
    >>> [system.label for system in systems]
    ['areal 1', 'areal 2', 'synchronous_colocated', 'colocated at 0.2']
    """
    rule, way_out = "must be pairs of (preset, knobs)", "Write ('areal', {})."
    pairs = [listed("systems", pair, way_out, rule=rule) for pair in listed("systems", named, way_out)]
    if not all(len(pair) == 2 for pair in pairs):
        raise ConfigError("systems", rule, named, way_out)
    wanted = [(find_preset(name).name, mapping_of("knobs", knobs, way_out)) for name, knobs in pairs]
    workload = mapping_of("workload", workload, "Give names of fields.")
    if flag_of("baseline", baseline) and BASELINE not in [name for name, _ in wanted]:
        wanted += [(BASELINE, {}), (BASELINE, dict(LEAST_SCALING))]
    if len(wanted) < 2:
        way_out = "Name two presets or more; `lagsweep presets` lists them."
        raise ConfigError("systems", "must be at least two", [name for name, _ in wanted], way_out)
    for position, system in enumerate(wanted):
        if system in wanted[:position]:
            way_out = "Leave one out, or give it other knobs."
            raise ConfigError("systems", "must differ", system[0], way_out)
    common = whole_workload(workload)
    systems = [_system(name, knobs, common) for name, knobs in wanted]
    for field in ABORT_FIELDS:
        if (workload or {}).get(field) and all(
            getattr(system.config, field) in (None, 0) for system in systems
        ):
            rule = "has an effect on systems that abort only, and none of these does"
            raise ConfigError(field, rule, (workload or {})[field], "Leave it out.")
    return _numbered(systems)


def _system(name: str, knobs: dict[str, Any], common: Mapping[str, Any]) -> System:
    preset_settings(name, {**common, **knobs})  # what is wrong with a preset's own names says so itself
    try:
        config = system_config(name, knobs, common)
    except ConfigError as error:
        raise error.within(f"{name}: ") from None
    fields = {**common, **knobs}
    bound, kind = preset_lag_bound(name, fields), preset_bound_kind(name, fields)
    return System(name, name, knobs, config, bound, kind, dict(common))


def _numbered(systems: list[System]) -> list[System]:
    """Give systems of one preset numbers, in the order given; the baseline's ends are told by their knob."""
    presets = [system.preset for system in systems]
    both_ends = len(baseline_ends(systems)) == 2
    numbered = []
    for position, system in enumerate(systems):
        label = system.preset
        if label == BASELINE and both_ends:
            label = LEAST_LABEL if system.knobs else BASELINE
        elif presets.count(label) > 1:
            label = f"{label} {presets[: position + 1].count(label)}"
        numbered.append(replace(system, label=label))
    return numbered


def baseline_ends(systems: Sequence[System]) -> list[int]:
    """Return the places of the baseline at least and at full scaling; empty unless it is these two."""
    found = [place for place, system in enumerate(systems) if system.preset == BASELINE]
    knobs = [systems[place].knobs for place in found]
    return found if knobs in ([{}, LEAST_SCALING], [LEAST_SCALING, {}]) else []


def comparison_spec(systems: Sequence[System], seeds: Sequence[int] | int, name: str = NAME) -> SweepSpec:
    """Write a comparison as a sweep over the axis ``system``.

    Parameters
    ----------
    systems : sequence of System
        As :func:`compared_systems` gives.
    seeds : int or sequence of int
        ``n`` means 0 … n - 1.
    name : str
        Of the sweep.
    """
    if not systems:
        raise ConfigError("systems", "must be at least one", [], "Give what compared_systems returns.")
    labels = [system_label(system.preset, system.knobs) for system in systems]
    return make_spec(workload_config(**systems[0].workload), {SYSTEM: labels}, seeds, name=name)


def compare_systems(
    systems: Sequence[System],
    seeds: Sequence[int] | int,
    *,
    store: str | Path | None = None,
    executor: Executor = "threads",
    threads: int | None = None,
    cancel: threading.Event | None = None,
    progress: Observer | None = None,
) -> xarray.Dataset:
    """Run every system at every seed.

    Parameters
    ----------
    systems : sequence of System
        As :func:`compared_systems` gives.
    seeds : int or sequence of int
        ``n`` means 0 … n - 1.
    store, executor, threads, progress
        As :func:`lagsweep.run_sweep`.
    cancel : threading.Event, optional
        When set, the runs stop within half a second.

    Returns
    -------
    xarray.Dataset
        A sweep's result with the axis ``system``: its dimensions are ``system`` and ``seed`` (and ``lag``).

    Raises
    ------
    ConfigError
        If a run fails.
    Cancelled
        If it was asked to stop.
    """
    way_out = "Give what compared_systems returns."
    systems = [instance("systems", system, System, way_out) for system in listed("systems", systems, way_out)]
    spec = comparison_spec(systems, seeds)
    ds = run_spec(spec, store=store, executor=executor, threads=threads, progress=progress, cancel=cancel)
    if "reason" in ds:
        raise ConfigError(next(str(reason) for reason in ds["reason"].values.ravel() if reason))
    return ds


def systems_of(ds: xarray.Dataset) -> list[System]:
    """Read back which systems a sweep compared.

    Raises
    ------
    ConfigError
        If it is not a sweep over the axis ``system`` alone.
    """
    spec = spec_of(ds)
    if list(spec.design.columns) != [SYSTEM] or spec.base.preset is None or spec.base.preset[0] != WORKLOAD:
        rule = "must be a sweep over the axis system alone"
        raise ConfigError("dataset", rule, list(spec.design.columns), "Select it, or use recommend.")
    labels = [str(label) for label in ds[SYSTEM].values]
    return _numbered([_system(*read_system(label), spec.base.preset[1]) for label in labels])
