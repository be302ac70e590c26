"""What a comparison shows of each system: means with intervals, paired differences, the lags' distribution.

Means over seeds carry Student intervals. A difference is taken seed by seed against one system, so what the
seeds share (every rollout's length) drops out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, nearest
from ...kernels.intervals import mean_interval
from .systems import baseline_ends, systems_of

if TYPE_CHECKING:
    import xarray

MEANS = (
    "seconds_per_update",
    "trained_tokens_per_second",
    "effective_tokens_per_second",
    "mean_expected_normalized_ess",
    "mean_rollout_lag",
    "mean_rollout_lag_publications",
    "mean_token_lag",
    "length_bias_law",
    "length_bias_drawn",
)
# As shares: of the measured time, or of slots × measured time. Those of options stand in a row only where
# a system uses the option.
TRAINER_SHARES = {
    "trainer_busy": "trainer_busy_seconds",
    "trainer_waits_publication": "trainer_publication_seconds",
    "trainer_waits_running": "trainer_running_groups_seconds",
    "trainer_waits_batch": "trainer_batch_seconds",
    "trainer_fetches": "trainer_fetch_seconds",
    "trainer_evaluates": "trainer_evaluation_seconds",
    "trainer_checkpoints": "trainer_checkpoint_seconds",
    "trainer_restarts": "trainer_restart_seconds",
}
SLOT_SHARES = {
    "slots_busy": "slots_busy_seconds",
    "slots_idle_publication": "slots_publication_seconds",
    "slots_idle_max_running": "slots_max_running_seconds",
    "slots_idle_one_batch": "slots_one_batch_seconds",
    "slots_idle_token_cap": "slots_token_cap_seconds",
    "slots_idle_limits": "slots_limits_seconds",
    "slots_held": "slots_held_seconds",
}
SPEEDS = ("trained_tokens_per_second", "effective_tokens_per_second")
OTHER_SHARES = ("wasted_share", "rollouts_per_batch")
FAILURES = ("goodput_fraction", "lost_updates", "lost_tokens", "repeated_prompts")
COMPARED = (*MEANS, *OTHER_SHARES, *TRAINER_SHARES, *SLOT_SHARES)
# Lags shown: (name, first, last).
LAG_COLUMNS = (("0", 0, 0), ("1", 1, 1), ("2-3", 2, 3), ("4-7", 4, 7), ("8+", 8, 64))
LAG_QUANTILES = {"lag_median": 0.5, "lag_90": 0.9, "lag_99": 0.99}


def lag_quantile(counts: np.ndarray, share: float) -> int:
    """Return the smallest lag that at least a share of the trained rollouts does not exceed (-1 if none).

    Examples
    --------
    >>> lag_quantile(np.array([5, 4, 1]), 0.5)
    0
    """
    total = int(counts.sum())
    return int(np.searchsorted(np.cumsum(counts), share * total)) if total else -1


def wasted_share(ds: xarray.Dataset) -> np.ndarray:
    """Return the share of all decoded tokens that were dropped for age, evicted or cancelled, per run.

    Work without a learning signal (filtered) is not waste in this sense.
    """
    decoded = ds["generated_tokens"].values.astype(np.float64)
    lost = ds["discarded_tokens"].values.astype(np.float64)
    if "wasted_tokens" in ds:
        wasted = np.maximum(ds["wasted_tokens"].values, 0)
        lost = lost + wasted + np.maximum(ds["evicted_tokens"].values, 0)
        # Completed members of cancelled groups stand in both sums.
        decoded = decoded + wasted - np.maximum(ds["cancelled_tokens"].values, 0)
    return np.divide(lost, decoded, out=np.full(lost.shape, np.nan), where=decoded > 0)


def _values(ds: xarray.Dataset) -> dict[str, np.ndarray]:
    """Return everything compared as (systems, seeds), NaN where there is nothing."""
    values = {name: ds[name].values.astype(np.float64) for name in MEANS}
    values |= {name: ds[name].values.astype(np.float64) for name in FAILURES if name in ds}
    trainer = {name: ds[metric].values for name, metric in TRAINER_SHARES.items() if metric in ds}
    slots = {name: ds[metric].values for name, metric in SLOT_SHARES.items() if metric in ds}
    for shares in (trainer, slots):
        whole = np.sum(list(shares.values()), axis=0)
        values |= {name: _over(part, whole) for name, part in shares.items()}
    values["wasted_share"] = wasted_share(ds)
    # A step trains one batch, and makes one or several updates of it.
    batches = ds["updates"].values / _updates_per_batch(ds)[:, None]
    values["rollouts_per_batch"] = _over(ds["trained_rollouts"].values, batches)
    return values


def _updates_per_batch(ds: xarray.Dataset) -> np.ndarray:
    return np.array([system.config.updates_per_batch for system in systems_of(ds)])


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=np.asarray(whole) > 0)


def check_against(against: str, labels: Sequence[str]) -> None:
    """Refuse a label that was not compared.

    Raises
    ------
    ConfigError
    """
    if not isinstance(against, str) or against not in labels:
        hint = nearest(against, labels) or f"Compared are {', '.join(labels)}."
        raise ConfigError("against", "must be one of the systems compared", against, hint)


def comparison_rows(
    ds: xarray.Dataset, *, against: str | None = None, confidence: float = 0.95
) -> list[dict[str, Any]]:
    """Average each system over its seeds, and pair it with one of them.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`.compare.systems.compare_systems` gives.
    against : str, optional
        Label of the system that differences are taken against; none: the first.
    confidence : float

    Returns
    -------
    list of dict
        One per system: ``<name>`` and ``<name>_half_width`` for each mean, ``<name>_difference`` and its
        half width against the chosen system, ``<name>_ratio`` of the means, and the lags of all seeds. With
        the baseline at both ends of ``training_scaling`` also ``<speed>_speedup``, its smallest and largest.

    Raises
    ------
    ConfigError
        For a label that was not compared.
    """
    systems = systems_of(ds)
    labels = [system.label for system in systems]
    against = labels[0] if against is None else against
    check_against(against, labels)
    reference = labels.index(against)
    values = _values(ds)
    rows = []
    for position, system in enumerate(systems):
        row = {
            name: getattr(system, name) for name in ("label", "preset", "knobs", "lag_bound", "bound_kind")
        }
        row["seeds"], row["against"] = ds.sizes["seed"], against
        for name, column in values.items():
            own = mean_interval(column[position], confidence)
            other = mean_interval(column[reference], confidence)
            difference = mean_interval(column[position] - column[reference], confidence)
            row[name], row[f"{name}_half_width"] = _pair(own)
            row[f"{name}_difference"], row[f"{name}_difference_half_width"] = _pair(difference)
            row[f"{name}_ratio"] = float(own[0] / other[0]) if other[0] else float("nan")
        rows.append(row | _lags(ds, position) | _ends(ds, position))
    _add_speedups(rows, baseline_ends(systems))
    return rows


def _add_speedups(rows: list[dict[str, Any]], ends: Sequence[int]) -> None:
    """Add each system's speed over the baseline's, from the less to the more favourable of its two ends."""
    for place, row in enumerate(rows):
        if ends and place not in ends:
            for name in SPEEDS:
                ratios = [_ratio(row[name], rows[end][name]) for end in ends]
                row[f"{name}_speedup"] = sorted(ratios)


def _ratio(value: float, other: float) -> float:
    return value / other if other else float("nan")


def _lags(ds: xarray.Dataset, position: int) -> dict[str, Any]:
    counts = ds["lag_counts"].values[position].sum(axis=0)
    total = max(int(counts.sum()), 1)
    last = int(np.flatnonzero(counts)[-1]) if counts.any() else -1
    found: dict[str, Any] = {name: lag_quantile(counts, share) for name, share in LAG_QUANTILES.items()}
    found["lag_shares"] = [float(count) / total for count in counts[: last + 1]]
    found["lag_largest"] = int(ds["max_lag_observed"].values[position].max())
    return found


def _ends(ds: xarray.Dataset, position: int) -> dict[str, int]:
    return {
        "stalled_runs": int(ds["stalled"].values[position].sum()),
        "runs_without_update": int((ds["updates"].values[position] == 0).sum()),
    }


def _pair(values: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    return float(values[0]), float(values[1])
