"""Several systems' rules on the same rollouts, side by side.

Every system gets the same workload (slots, speeds, lengths, batch) and the same seeds, so rollout number i
has the same length in each of them, and differences are taken seed by seed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.pipeline.metrics import LAG_BINS, METRIC_BY_NAME
from ..config.config import PipelineConfig
from ..execute.progress import Progress
from ..json_text import json_text
from ..presets.registry import find_preset, preset_bound_kind, preset_lag_bound, preset_settings

if TYPE_CHECKING:
    import xarray

BASELINE = "synchronous_colocated"
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
# Settings of an abort: in a common workload they are for the systems that abort.
ABORT_FIELDS = ("resume_seconds", "reprefill_tokens_per_second")
_SEEDS_PER_BLOCK = 4


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
    """

    label: str
    preset: str
    knobs: dict[str, Any]
    config: PipelineConfig
    lag_bound: int | None
    bound_kind: str


def whole_workload(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Give the fields that all systems have in common: ``DEFAULT_WORKLOAD`` with some changes."""
    return {**DEFAULT_WORKLOAD, **(changes or {})}


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
        Add a synchronous loop on all GPUs, unless it is among them.

    Raises
    ------
    ConfigError
        For fewer than two systems, one that is repeated, unknown names or bad values.

    Examples
    --------
    >>> systems = compared_systems([("areal", {}), ("areal", {"max_head_offpolicyness": 2})])
    >>> [system.label for system in systems]
    ['areal 1', 'areal 2', 'synchronous_colocated']
    """
    wanted = [(find_preset(name).name, dict(knobs)) for name, knobs in named]
    if baseline and BASELINE not in [name for name, _ in wanted]:
        wanted.append((BASELINE, {}))
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
    settings = preset_settings(name, {**common, **knobs})
    if settings.get("publication") != "abort":
        settings = {key: value for key, value in settings.items() if key not in ABORT_FIELDS or key in knobs}
    try:
        config = PipelineConfig(**settings)
    except ConfigError as error:
        raise error.within(f"{name}: ") from None
    fields = {**common, **knobs}
    return System(name, name, knobs, config, preset_lag_bound(name, fields), preset_bound_kind(name, fields))


def _numbered(systems: list[System]) -> list[System]:
    """Give systems of one preset numbers, in the order given."""
    presets = [system.preset for system in systems]
    numbered = []
    for position, system in enumerate(systems):
        label = system.preset
        if presets.count(label) > 1:
            label = f"{label} {presets[: position + 1].count(label)}"
        numbered.append(replace(system, label=label))
    return numbered


def compare_systems(
    systems: Sequence[System],
    seeds: Sequence[int] | int,
    *,
    threads: int | None = None,
    cancel: threading.Event | None = None,
    progress: Progress | None = None,
) -> xarray.Dataset:
    """Run every system at every seed.

    Parameters
    ----------
    systems : sequence of System
    seeds : int or sequence of int
        ``n`` means 0 … n - 1.
    threads : int, optional
        None: one per CPU.
    cancel : threading.Event, optional
        When set, the runs stop within half a second.
    progress : Progress, optional

    Returns
    -------
    xarray.Dataset
        Dimensions ``system``, ``seed`` (and ``lag``); one variable per metric. The attribute ``systems``
        holds what was compared, as JSON.

    Raises
    ------
    Cancelled
        If it was asked to stop.
    """
    import xarray as xr

    chosen = np.arange(seeds, dtype=np.uint64) if isinstance(seeds, int) else np.asarray(seeds, np.uint64)
    metrics, lag_counts = _run_all(
        [system.config for system in systems],
        chosen,
        threads,
        cancel or threading.Event(),
        progress or Progress(),
    )
    variables: dict[str, Any] = {
        name: (("system", "seed"), values, _attributes(name)) for name, values in metrics.items()
    }
    variables["lag_counts"] = (("system", "seed", "lag"), lag_counts, {"units": "rollouts"})
    described = [
        {
            "label": system.label,
            "preset": system.preset,
            "knobs": system.knobs,
            "lag_bound": system.lag_bound,
            "bound_kind": system.bound_kind,
            "config": system.config.to_dict(),
        }
        for system in systems
    ]
    return xr.Dataset(
        variables,
        coords={"system": [system.label for system in systems], "seed": chosen, "lag": np.arange(LAG_BINS)},
        attrs={
            "drift_per_version": systems[0].config.drift_per_version,
            "systems": json_text(described),
        },
    )


def _run_all(
    configs: list[PipelineConfig],
    seeds: np.ndarray,
    threads: int | None,
    cancel: threading.Event,
    progress: Progress,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    from ..execute.threads import checked_threads
    from ..runs.many import simulate_batch

    blocks = [(row, first) for first in range(0, len(seeds), _SEEDS_PER_BLOCK) for row in range(len(configs))]
    metrics: dict[str, np.ndarray] = {}
    lag_counts = np.zeros((len(configs), len(seeds), LAG_BINS), np.int64)

    def run(block: tuple[int, int]) -> Any:
        row, first = block
        some = seeds[first : first + _SEEDS_PER_BLOCK]
        result = simulate_batch([configs[row]], some, cancel=cancel)
        progress.advance(len(some))
        return result

    progress.begin(len(configs) * len(seeds))
    with ThreadPoolExecutor(checked_threads(threads), thread_name_prefix="lagsweep") as pool:
        try:
            for (row, first), part in zip(blocks, pool.map(run, blocks)):
                columns = slice(first, first + _SEEDS_PER_BLOCK)
                for why in part.reasons.values():
                    raise ConfigError(str(why))
                for name, values in part.metrics.items():
                    if name not in metrics:
                        fill = np.nan if values.dtype.kind == "f" else -1
                        metrics[name] = np.full((len(configs), len(seeds)), fill, values.dtype)
                    metrics[name][row, columns] = values[0]
                lag_counts[row, columns] = part.lag_counts[0]
        except BaseException:
            cancel.set()  # the pool's exit waits for the threads, which see it soon
            raise
        finally:
            progress.end()
    return metrics, lag_counts


def _attributes(name: str) -> dict[str, str]:
    metric = METRIC_BY_NAME.get(name)
    return {"units": metric.units, "long_name": metric.long_name} if metric else {}
