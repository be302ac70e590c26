"""What moves a metric most: which of some ranges its values depend on, by Sobol's or Morris's indices.

Every point has the same seeds. What the seeds add to the variance is given as a share of it: it counts among
no setting's first-order index.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ...kernels._arguments import choice
from ...kernels.errors import ConfigError
from ..charts.indices import indices_chart
from ..checks import (
    WholeNumber,
    checked,
    confidence_of,
    mapping_of,
    path_of,
    text_of,
    texts_of,
)
from ..config.config import PipelineConfig
from ..execute.options import Executor, Observer
from ..execute.progress import checked_progress
from ..json_text import plain_data
from ..results.cells import cell_values, halted_runs
from ..results.words import describe_settings
from .folder import begun, folder_of, space_facts
from .indices import METHODS, design_of, indices_of, points_of
from .question import Question, units_of
from .space import Point, space_of
from .stages import Stages, why_stalled

if TYPE_CHECKING:
    import xarray
    from altair import FacetChart, LayerChart

METRICS = ("seconds_per_update", "trained_tokens_per_second", "mean_expected_normalized_ess")
FILE = "sensitivity.json"


@dataclass(frozen=True)
class Sensitivity:
    """What moves metrics most; ``print`` it.

    Attributes
    ----------
    method : {"sobol", "morris"}
    frame : polars.DataFrame
        One row for each metric and axis, the strongest first: ``metric``, ``axis`` and, by Sobol, ``S1``,
        ``ST`` and the half widths of their bootstrap intervals; by Morris ``mu_star``, its half width,
        ``sigma``, ``mu`` in the metric's unit.
    means, spreads, noise : dict
        Metric -> its mean over the points, its standard deviation over them, and the share of that variance
        that comes from the seeds.
    units : dict
    points, base_points, seeds, runs : int
        Points that were run, the base points or trajectories asked for, seeds of each, all runs.
    confidence : float
        Of the intervals.
    ranges : dict
        Axis -> its range or values.
    folder : Path, optional
    base : dict, optional
        The settings that no range changes, where they differ from the defaults.
    constraints : tuple of str
        What every point keeps.
    """

    method: str
    frame: pl.DataFrame = field(repr=False)
    means: dict[str, float]
    spreads: dict[str, float]
    noise: dict[str, float]
    units: dict[str, str]
    points: int
    base_points: int
    seeds: int
    runs: int
    confidence: float
    ranges: dict[str, Any]
    folder: Path | None = None
    base: dict[str, Any] | None = None
    constraints: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON (None for NaN)."""
        return plain_data(
            {
                "method": self.method,
                "indices": list(self.frame.iter_rows(named=True)),
                "means": self.means,
                "spreads": self.spreads,
                "noise": self.noise,
                "units": self.units,
                "points": self.points,
                "base_points": self.base_points,
                "seeds": self.seeds,
                "runs": self.runs,
                "confidence": self.confidence,
                "ranges": self.ranges,
                "folder": None if self.folder is None else str(self.folder),
                "base": self.base,
                "constraints": list(self.constraints),
            }
        )

    def chart(self, metric: str | None = None) -> LayerChart | FacetChart:
        """Draw the indices of one metric, the first one if none is named.

        Raises
        ------
        ConfigError
            For a metric that was not asked for.
        """
        name = next(iter(self.means)) if metric is None else metric
        choice("metric", name, tuple(self.means))
        rows = list(self.frame.filter(pl.col("metric") == name).iter_rows(named=True))
        return indices_chart(rows, method=self.method, metric=name, units=self.units[name])

    def __str__(self) -> str:
        from .sensitivity_text import sensitivity_text

        return sensitivity_text(self)


def sensitivity(
    base: PipelineConfig,
    axes: Mapping[str, Any],
    *,
    metrics: str | Sequence[str] = (),
    method: str = "sobol",
    points: int = 64,
    seeds: int = 4,
    constraints: Sequence[str] = (),
    confidence: float = 0.95,
    store: str | Path | None = None,
    results: str | Path | None = None,
    name: str = "sweep",
    executor: Executor = "threads",
    threads: int | None = None,
    progress: Observer | None = None,
    cancel: threading.Event | None = None,
) -> Sensitivity:
    """Tell which settings move metrics most, over ranges.

    Parameters
    ----------
    base : PipelineConfig
        What no axis changes.
    axes : mapping
        Axis -> range or values, as for :func:`lagsweep.search`; laws and drift may vary here too.
    metrics : str or sequence of str
        ``seconds_per_update``, ``trained_tokens_per_second`` and ``mean_expected_normalized_ess`` if none is
        given.
    method : {"sobol", "morris"}
    points : int
        Base points (Sobol, made a power of two) or trajectories (Morris).
    seeds : int
        Of each point.
    constraints : sequence of str
        Every point must keep them: the indices have a meaning over a box alone.
    confidence : float
        Of the intervals, by bootstrap over the points.
    store, results, name
        As for :func:`lagsweep.search`: a folder that keeps the runs.
    executor, threads, progress, cancel
        As :func:`lagsweep.run_sweep`.

    Returns
    -------
    Sensitivity

    Raises
    ------
    ConfigError
        For anything wrong in the arguments, where SALib is missing, where a point contradicts itself, and
        where a run has no value.
    StoreError
        If the folder holds something else, or cannot be written.

    Examples
    --------
    >>> found = sensitivity(
    ...     PipelineConfig(duration_seconds=200, train_tokens_per_second=1000),
    ...     {"train_overhead_seconds": {"from": 1.0, "to": 9.0}, "sync_seconds": {"from": 0.1, "to": 0.2}},
    ...     metrics="seconds_per_update",
    ...     points=16,
    ... )
    >>> found.frame["axis"][0]
    'train_overhead_seconds'
    """
    if not isinstance(base, PipelineConfig):
        raise ConfigError("base", "must be a PipelineConfig", base, "Build one, as PipelineConfig().")
    method = choice("method", method, METHODS)
    rules = texts_of("constraints", constraints, "Write ['queue_cap >= batch_tokens'].")
    text_of("name", name, "Give a word.")
    space = space_of(
        base, mapping_of("axes", axes, "Write {'max_lag': [0, 1, 2]}."), rules, scenarios_too=True
    )
    asked = (metrics,) if isinstance(metrics, str) else texts_of("metrics", metrics, "Name metrics.")
    wanted = tuple(dict.fromkeys(asked)) or METRICS
    units = units_of(space, "metrics", wanted)
    count = checked(
        WholeNumber, "points", points, low=4, high=2**16, rule="must be a whole number from 4 to 65,536"
    )
    each = checked(
        WholeNumber, "seeds", seeds, low=1, high=10_000, rule="must be a whole number from 1 to 10,000"
    )
    sure = confidence_of(confidence)
    observer = checked_progress(progress)
    unit = design_of(method, space, count)
    rows, which = points_of(space, unit)
    facts: dict[str, Any] = space_facts(space) | {"method": method, "points": count, "seeds": each}
    folder = None if store is None else path_of("store", store)
    if folder is None and results is not None:
        folder = folder_of(facts, name, path_of("results", results), "sensitivity")
    if folder is not None:
        begun(folder, facts, file=FILE, kind="sensitivity")
    stages = Stages(base, Question((), (), ()), folder, executor, threads, observer, cancel)
    ds = stages.run("runs", rows, range(base.seed, base.seed + each))
    _refuse_idle(ds, rows, stages)
    found, means, spreads, noise = [], {}, {}, {}
    for metric in wanted:
        values = cell_values(ds, metric)
        of_points = values.mean(axis=1)
        found += indices_of(method, space, unit, of_points[which], metric, sure, base.seed)
        whole = of_points[which]
        means[metric], spreads[metric] = float(whole.mean()), float(whole.std())
        from_seeds = float(values.var(axis=1, ddof=1).mean() / each) if each > 1 else float("nan")
        noise[metric] = from_seeds / spreads[metric] ** 2 if spreads[metric] > 0 else float("nan")
    strongest = "ST" if method == "sobol" else "mu_star"
    order = {metric: place for place, metric in enumerate(wanted)}
    frame = (
        pl.DataFrame(found)
        .with_columns(pl.col("metric").replace_strict(order, return_dtype=pl.Int64).alias("_order"))
        .sort(["_order", strongest], descending=[False, True], maintain_order=True)
        .drop("_order")
    )
    return Sensitivity(
        method=method,
        frame=frame,
        means=means,
        spreads=spreads,
        noise=noise,
        units=dict(zip(wanted, units)),
        points=len(rows),
        base_points=count,
        seeds=each,
        runs=stages.runs,
        confidence=sure,
        ranges={axis.name: axis.described for axis in space.axes},
        folder=folder,
        base=facts["base"],
        constraints=space.constraints,
    )


def _refuse_idle(ds: xarray.Dataset, rows: Sequence[Point], stages: Stages) -> None:
    """Refuse ranges with points at which a run stalls or trains nothing: its metrics say nothing there."""
    bad = np.flatnonzero((halted_runs(ds) | np.isnan(cell_values(ds, "updates"))).any(axis=1))
    if len(bad):
        point = rows[int(bad[0])]
        rule = f"must be ranges in which every run trains ({len(bad):,} of {len(rows):,} points have others)"
        why = why_stalled(stages.config(point), ds["seed"].values.tolist())
        way_out = "Narrow the ranges, or make the runs longer."
        raise ConfigError("axes", rule, describe_settings(point), f"{why} {way_out}" if why else way_out)
