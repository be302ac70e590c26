"""Simulating cells of a plan: as an ordinary sweep over points, in memory or in a store."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..execute.options import Executor, Observer
from ..presets.systems import workload_config
from ..results.cells import cell_values
from ..results.shares import time_shares
from ..spec.axes import identity
from ..spec.make import make_spec
from ..spec.spec import SweepSpec
from ..sweep.run import run_spec

if TYPE_CHECKING:
    import xarray

MEASURED_UPDATES = 20
SEEDS = 3
_WINDOW = 5  # updates: the first window is the warm-up
_LONGEST_WINDOW = 100
_LONGEST_RUN = 40  # times the updates at the lowest bound: only what stalls gets there
SECONDS, EFFECTIVE, TRAINED, LAG, ESS = _WINDOWED = (
    "window_seconds_per_update",
    "window_effective_tokens_per_second",
    "window_trained_tokens_per_second",
    "window_mean_lag",
    "window_mean_expected_normalized_ess",
)


@dataclass(frozen=True)
class Horizon:
    """How long runs last: windows of so many updates, the first of which is left out.

    The store's own metrics leave out a warm-up in seconds, which ends within that window.
    """

    window: int
    stop_after_updates: int
    warmup_seconds: float
    duration_seconds: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of a configuration."""
        return {
            "warmup_seconds": self.warmup_seconds,
            "stop_after_updates": self.stop_after_updates,
            "duration_seconds": self.duration_seconds,
        }


def horizon_of(
    best_bound_seconds: float, cadences: Iterable[int] = (1,), measured_updates: int = MEASURED_UPDATES
) -> Horizon:
    """Choose a horizon by the lowest bound of an update: whole rounds of every cadence are measured.

    Examples
    --------
    >>> horizon_of(100.0)
    Horizon(window=5, stop_after_updates=25, warmup_seconds=400.0, duration_seconds=100000.0)
    >>> horizon_of(100.0, [16]).stop_after_updates
    48
    """
    cycle = math.lcm(*set(cadences))
    window = _WINDOW if measured_updates % cycle == 0 else min(cycle, _LONGEST_WINDOW)
    updates = window + -(-measured_updates // window) * window
    return Horizon(
        window,
        updates,
        float(f"{(window - 1) * best_bound_seconds:.4g}"),
        float(f"{_LONGEST_RUN * updates * best_bound_seconds:.4g}"),
    )


def sweep_of(
    workload: Mapping[str, Any],
    horizon: Horizon,
    points: Sequence[Mapping[str, Any]],
    seeds: int,
    name: str = "plan",
) -> SweepSpec:
    """Write points as a sweep; what all of them share goes into its base.

    Raises
    ------
    ConfigError
        For a point that cannot be.
    """
    columns = {axis: [point[axis] for point in points] for axis in points[0]}
    varied = {
        axis: values
        for axis, values in columns.items()
        if axis == "system" or len({identity(value) for value in values}) > 1
    }
    common = {axis: values[0] for axis, values in columns.items() if axis not in varied}
    if "sync_cadence" in common:
        common["sync_every_updates"] = common.pop("sync_cadence")
    base = workload_config(**workload, **horizon.fields(), **common)
    return make_spec(base, [varied], seeds, name=name, windows=horizon.window)


@dataclass(frozen=True)
class Simulated:
    """What the runs of a point gave, averaged over seeds.

    Attributes
    ----------
    seconds_per_update, seconds_half_width : float
    effective_tokens_per_second, effective_half_width : float
    trained_tokens_per_second, mean_lag, ess : float
    largest_lag : int
    trainer_waits, rollouts_wait : float
        Shares of time: the trainer's that is not training, the slots' that is not busy.
    stalled : bool
        Whether a run stalled, or did not come to its end.
    """

    seconds_per_update: float
    seconds_half_width: float
    effective_tokens_per_second: float
    effective_half_width: float
    trained_tokens_per_second: float
    mean_lag: float
    ess: float
    largest_lag: int
    trainer_waits: float
    rollouts_wait: float
    stalled: bool


def simulated_rows(ds: xarray.Dataset) -> list[Simulated]:
    """Read what a sweep's points gave, in their order, without the first window."""
    windows = {name: ds[name].values[..., 1:] for name in _WINDOWED}
    seconds = windows[SECONDS]
    # Windows have as many updates each: sums over seconds, but the mean of what is a mean by batches.
    means = {
        SECONDS: seconds.mean(axis=-1),
        **{
            name: (windows[name] * seconds).sum(axis=-1) / seconds.sum(axis=-1)
            for name in (EFFECTIVE, TRAINED)
        },
        **{name: windows[name].mean(axis=-1) for name in (LAG, ESS)},
    }
    found = {name: mean_interval(values) for name, values in means.items()}
    lags, stalled = cell_values(ds, "max_lag_observed"), cell_values(ds, "stalled")
    shares = time_shares(ds, range(len(lags)))
    return [
        Simulated(
            seconds_per_update=float(found[SECONDS][0][row]),
            seconds_half_width=float(found[SECONDS][1][row]),
            effective_tokens_per_second=float(found[EFFECTIVE][0][row]),
            effective_half_width=float(found[EFFECTIVE][1][row]),
            trained_tokens_per_second=float(found[TRAINED][0][row]),
            mean_lag=float(found[LAG][0][row]),
            ess=float(found[ESS][0][row]),
            largest_lag=0 if np.isnan(lags[row]).all() else int(np.nanmax(lags[row])),
            trainer_waits=1.0 - shares[row]["trainer"]["training"],
            rollouts_wait=1.0 - shares[row]["slots"]["busy"],
            stalled=bool(np.nansum(stalled[row]) or not np.isfinite(found[SECONDS][0][row])),
        )
        for row in range(len(lags))
    ]


@dataclass
class Runner:
    """Runs points and remembers what they gave, so that no point is simulated twice."""

    workload: Mapping[str, Any]
    horizon: Horizon
    executor: Executor = "threads"
    threads: int | None = None
    progress: Observer | None = None
    cancel: threading.Event | None = None

    def run(self, spec: SweepSpec, store: str | Path | None = None) -> tuple[xarray.Dataset, list[Simulated]]:
        """Run a sweep of points."""
        ds = run_spec(
            spec,
            store=store,
            executor=self.executor,
            threads=self.threads,
            progress=self.progress,
            cancel=self.cancel,
        )
        return ds, simulated_rows(ds)

    def points(self, points: Sequence[Mapping[str, Any]], seeds: int) -> list[Simulated]:
        """Simulate points in memory; equal ones once."""
        keys = [tuple(identity(value) for value in point.values()) for point in points]
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        chosen = sorted(first.values())
        if not chosen:
            return []
        spec = sweep_of(self.workload, self.horizon, [points[place] for place in chosen], seeds)
        rows = dict(zip((keys[place] for place in chosen), self.run(spec)[1]))
        return [rows[key] for key in keys]
