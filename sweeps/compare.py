"""Several systems' rules on the same rollouts, side by side.

Every system gets the same workload (slots, speeds, lengths, batch) and the same seeds, so rollout number i
has the same length in each of them, and differences are taken seed by seed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from lagsweep.errors import ConfigError, message
from lagsweep.kernels.metrics import LAG_BINS, METRIC_BY_NAME
from lagsweep.sweeps.config import PipelineConfig
from lagsweep.sweeps.presets import find_preset, preset_config

if TYPE_CHECKING:
    import xarray

_SEEDS_PER_BLOCK = 4
LAG_QUANTILES = (0.5, 0.99)


def systems_from_names(
    names: Sequence[str], workload: Mapping[str, Any], knobs: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, PipelineConfig]:
    """Build one configuration per preset name, all beside the same workload.

    Parameters
    ----------
    names : sequence of str
        Preset names; two at least, none twice.
    workload : mapping
        Configuration fields, the same for all.
    knobs : mapping, optional
        Preset name -> its knobs.

    Raises
    ------
    ConfigError
        For fewer than two names, a repeated or unknown one, or bad fields or knobs.
    """
    if len(names) < 2:
        way_out = "Name two presets or more; `lagsweep presets` lists them."
        raise ConfigError(message("systems", "must be at least two", list(names), way_out))
    repeated = [name for name in names if list(names).count(name) > 1]
    if repeated:
        raise ConfigError(message("systems", "must be named once each", repeated[0], "Leave one out."))
    unknown = [name for name in knobs or {} if name not in names]
    if unknown:
        way_out = f"Compared are {', '.join(names)}."
        raise ConfigError(message("knob", "must belong to a system that is compared", unknown[0], way_out))
    return {
        find_preset(name).name: preset_config(name, **{**workload, **(knobs or {}).get(name, {})})
        for name in names
    }


def compare_systems(
    systems: Mapping[str, PipelineConfig],
    seeds: Sequence[int] | int,
    *,
    threads: int | None = None,
    cancel: threading.Event | None = None,
) -> xarray.Dataset:
    """Run every system at every seed.

    Parameters
    ----------
    systems : mapping of str to PipelineConfig
    seeds : int or sequence of int
        ``n`` means 0 … n - 1.
    threads : int, optional
        None: one per CPU.
    cancel : threading.Event, optional

    Returns
    -------
    xarray.Dataset
        Dimensions ``system``, ``seed`` (and ``lag``); one variable per metric, NaN or -1 where a system has
        none.
    """
    import xarray as xr

    from lagsweep.sweeps.batch import simulate_batch
    from lagsweep.sweeps.executors import checked_threads

    chosen = np.arange(seeds, dtype=np.uint64) if isinstance(seeds, int) else np.asarray(seeds, np.uint64)
    blocks = [
        (row, first) for first in range(0, len(chosen), _SEEDS_PER_BLOCK) for row in range(len(systems))
    ]
    configs = list(systems.values())
    cancel = cancel or threading.Event()

    def run(block: tuple[int, int]) -> Any:
        row, first = block
        return simulate_batch([configs[row]], chosen[first : first + _SEEDS_PER_BLOCK], cancel=cancel)

    metrics: dict[str, np.ndarray] = {}
    lag_counts = np.zeros((len(configs), len(chosen), LAG_BINS), np.int64)
    with ThreadPoolExecutor(checked_threads(threads), thread_name_prefix="lagsweep") as pool:
        try:
            for (row, first), part in zip(blocks, pool.map(run, blocks)):
                columns = slice(first, first + _SEEDS_PER_BLOCK)
                for name, values in part.metrics.items():
                    if name not in metrics:
                        fill = np.nan if values.dtype.kind == "f" else -1
                        metrics[name] = np.full((len(configs), len(chosen)), fill, values.dtype)
                    metrics[name][row, columns] = values[0]
                lag_counts[row, columns] = part.lag_counts[0]
        except BaseException:
            cancel.set()
            raise
    variables: dict[str, Any] = {
        name: (("system", "seed"), values, _attributes(name)) for name, values in metrics.items()
    }
    variables["lag_counts"] = (("system", "seed", "lag"), lag_counts, {"units": "rollouts"})
    return xr.Dataset(
        variables,
        coords={"system": list(systems), "seed": chosen, "lag": np.arange(LAG_BINS)},
        attrs={"drift_per_version": configs[0].drift_per_version},
    )


def _attributes(name: str) -> dict[str, str]:
    metric = METRIC_BY_NAME.get(name)
    return {"units": metric.units, "long_name": metric.long_name} if metric else {}


def lag_quantile(counts: np.ndarray, share: float) -> int:
    """Give the smallest lag that at least a share of the trained rollouts does not exceed (-1 if none).

    Examples
    --------
    >>> lag_quantile(np.array([5, 4, 1]), 0.5)
    0
    """
    total = int(counts.sum())
    return int(np.searchsorted(np.cumsum(counts), share * total)) if total else -1


def wasted_share(ds: xarray.Dataset) -> np.ndarray:
    """Give the share of all decoded tokens that were dropped for age, evicted or cancelled, per run.

    Work without a learning signal (filtered) is not waste in this sense.
    """
    completed = ds["generated_tokens"].values.astype(np.float64)
    lost = ds["discarded_tokens"].values.astype(np.float64)
    decoded = completed
    if "wasted_tokens" in ds:
        wasted = np.maximum(ds["wasted_tokens"].values, 0)
        lost = lost + wasted + np.maximum(ds["evicted_tokens"].values, 0)
        # Completed members of cancelled groups stand in both sums.
        decoded = decoded + wasted - np.maximum(ds["cancelled_tokens"].values, 0)
    return np.divide(lost, decoded, out=np.full(lost.shape, np.nan), where=decoded > 0)


def comparison_rows(ds: xarray.Dataset, *, confidence: float = 0.95) -> list[dict[str, Any]]:
    """Average each system over its seeds, with Student intervals, and pair it with the first system.

    Returns
    -------
    list of dict
        One per system; ``*_half_width`` beside each mean, ``*_difference`` and its half width against the
        first system, lags from all seeds' counts.
    """
    from lagsweep.sweeps.analysis import mean_interval

    shown = (
        "seconds_per_update",
        "trained_tokens_per_second",
        "effective_tokens_per_second",
        "mean_expected_normalized_ess",
        "mean_lag",
        "trainer_utilization",
        "rollout_utilization",
        "length_bias_law",
        "trainer_publication_seconds",
    )
    waste = wasted_share(ds)
    rows = []
    for position, system in enumerate(ds["system"].values):
        row: dict[str, Any] = {"system": str(system), "seeds": ds.sizes["seed"]}
        for name in shown:
            if name in ds:
                values = ds[name].values.astype(np.float64)
                row[name], row[f"{name}_half_width"] = _pair(mean_interval(values[position], confidence))
                difference = mean_interval(values[position] - values[0], confidence)
                row[f"{name}_difference"], row[f"{name}_difference_half_width"] = _pair(difference)
        row["wasted_share"], row["wasted_share_half_width"] = _pair(
            mean_interval(waste[position], confidence)
        )
        counts = ds["lag_counts"].values[position].sum(axis=0)
        row["lag_median"], row["lag_99"] = (lag_quantile(counts, share) for share in LAG_QUANTILES)
        row["lag_largest"] = int(ds["max_lag_observed"].values[position].max())
        row["stalled_runs"] = int(ds["stalled"].values[position].sum())
        row["runs_without_update"] = int((ds["updates"].values[position] == 0).sum())
        rows.append(row)
    return rows


def _pair(values: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    return float(values[0]), float(values[1])
