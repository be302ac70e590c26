"""Charts of sweeps and runs for notebooks and papers: Altair charts with units and intervals.

Each function gives an Altair chart: show it in a notebook, save it with ``chart.save("x.svg")``, change it
with Altair's own methods. Data are aggregated first, so a sweep of a million runs draws at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance, listed
from ...kernels.errors import ConfigError
from ..checks import confidence_of
from ..results.cells import cell_coordinates, find_cell
from ..results.frontier import ESS, THROUGHPUT, frontier
from ..results.frontier_table import worth_a_look
from ..results.lag_shares import lag_intervals
from ..results.words import short_label
from ..runs.result import PipelineResult
from .panels import heatmap_panels

if TYPE_CHECKING:
    import altair
    import xarray

    from ..results.frontier import Frontier

MOST_POINTS = 1500
FIGURES = (THROUGHPUT, ESS, "mean_lag", "seconds_per_update", "effective_tokens_per_second")


def plot_frontier(
    ds: xarray.Dataset, *, throughput: str = THROUGHPUT, ess: str = ESS, confidence: float = 0.95
) -> altair.LayerChart:
    """Draw every cell of a sweep: throughput against effective sample size, with intervals.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` gives.
    throughput, ess : str
        The two metrics; the frontier has most of both.
    confidence : float
        Of the intervals.

    Returns
    -------
    altair.LayerChart
        Large points are on the frontier, which a dashed line follows.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=60), {"max_lag": [0, 1, 2]}, seeds=3)
    >>> plot_frontier(ds).to_dict()["layer"][0]["mark"]["type"]
    'line'
    """

    return chart_of(frontier(ds, throughput=throughput, ess=ess, confidence=confidence))


def chart_of(found: Frontier, *, always: Sequence[int] = (), linked: bool = False) -> altair.LayerChart:
    """Draw a frontier; of a large one some cells and those in `always`."""
    from .frontier import frontier_chart, frontier_rows

    cells = thinned(found.frame, always=always).to_dicts()
    return frontier_chart(
        frontier_rows(cells, found.throughput, found.ess, found.axes),
        throughput=found.throughput,
        ess=found.ess,
        axes=found.axes,
        baseline=found.baseline,
        confidence=found.confidence,
        linked=linked,
    )


def thinned(frame: Any, most: int = MOST_POINTS, always: Sequence[int] = ()) -> Any:
    """Keep of a large sweep some cells that differ, by rank, on and off the frontier, and those named."""
    import polars as pl

    if frame.height <= most:
        return frame
    figures = [name for name in frame.columns if not name.endswith("_half_width") and name in FIGURES]
    different = frame.unique(figures, keep="first", maintain_order=True)
    kept = pl.lit(False)
    for part in (pl.col("on_frontier"), ~pl.col("on_frontier")):
        rank = part.cast(pl.Int64).cum_sum() - 1
        step = (part.sum() + most // 2 - 1) // (most // 2)
        kept = kept | (part & (rank % step == 0))
    chosen = different.filter(kept)["cell"].to_list()
    return frame.filter(pl.col("cell").is_in([*chosen, *always]))


def plot_heatmap(
    ds: xarray.Dataset,
    metric: str = THROUGHPUT,
    *,
    x: str | None = None,
    y: str | None = None,
    facet: str | None = None,
    at: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> altair.ConcatChart:
    """Draw a metric over two axes of a grid, one heatmap for each value of a third.

    Parameters
    ----------
    ds : xarray.Dataset
        Of a grid with at least one axis.
    metric : str
    x, y, facet : str, optional
        Axes; ``max_lag``, ``queue_cap`` and ``sync_cadence`` where the sweep has them, else its first ones.
    at : mapping, optional
        Values of the other axes; the best cell's where left out.
    confidence : float
        Of the half widths in the tiles.

    Returns
    -------
    altair.ConcatChart

    Raises
    ------
    ConfigError
        For a design of points, or an unknown axis or value.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> axes = {"max_lag": [0, 1], "queue_cap": [4000, 8000]}
    >>> chart = plot_heatmap(run_sweep(PipelineConfig(duration_seconds=60), axes, seeds=2))
    >>> len(chart.to_dict()["concat"])
    1
    """
    import altair as alt

    confidence = confidence_of(confidence)
    panels = heatmap_panels(ds, (metric,), x=x, y=y, facet=facet, at=at, confidence=confidence)
    charts = [panel.chart(metric, legend=k == 0) for k, panel in enumerate(panels)]
    together = alt.concat(*charts, columns=min(3, len(charts)), spacing=24)
    where = panels[0].where
    return (
        together.properties(title=alt.TitleParams(where, anchor="start", fontSize=12)) if where else together
    )


def plot_lag(
    ds: xarray.Dataset,
    cells: Sequence[int | Mapping[str, Any]] | None = None,
    *,
    confidence: float = 0.95,
) -> altair.LayerChart:
    """Draw how old the trained rollouts were, for up to six cells: the share of each lag, with intervals.

    Parameters
    ----------
    ds : xarray.Dataset
    cells : sequence of int or mapping, optional
        Ids or axis values; the ones worth a look when left out (see :func:`lagsweep.frontier`).
    confidence : float
        Of the intervals over seeds.

    Returns
    -------
    altair.LayerChart

    Raises
    ------
    ConfigError
        For an unknown cell, or more than six.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=120), {"max_lag": [0, 1, 2]}, seeds=3)
    >>> len(plot_lag(ds, [{"max_lag": 0}, {"max_lag": 2}]).to_dict()["layer"])
    3
    """
    from .lag import MOST_CELLS, lag_chart

    if cells is None:
        found = worth_a_look(frontier(ds, confidence=confidence))
        cells = list(dict.fromkeys(row["cell"] for _, row in found))
    confidence = confidence_of(confidence)
    cells = listed("cells", cells, "List the cells, by id or by their axis values.")
    if not cells:
        way_out = "Name cells, or sweep settings under which something is trained."
        raise ConfigError("cells", "must have trained rollouts, and none has", None, way_out)
    if len(cells) > MOST_CELLS:
        raise ConfigError(
            "cells", f"must be at most {MOST_CELLS}", len(cells), "Draw them in several charts."
        )
    return lag_chart(
        lag_rows_of(ds, [find_cell(ds, cell) for cell in cells], confidence), confidence=confidence
    )


def lag_rows_of(
    ds: xarray.Dataset, rows: Sequence[int], confidence: float, labels: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Read the lag counts of some cells, given by their place, and of nothing else."""
    from .lag import interval_rows

    cells, axes = cell_coordinates(ds)
    means, halves = lag_intervals(ds, rows, confidence)
    found = []
    for k, row in enumerate(rows):
        settings = {name: values[row].item() for name, values in axes.items()}
        label = labels[k] if labels is not None else short_label(settings) or "base"
        found += interval_rows(means[k], halves[k], int(cells[row]), label)
    return found


def plot_timeline(run: PipelineResult) -> altair.VConcatChart:
    """Draw one run over time: the queue against its cap, the lag of each batch, when the trainer trained.

    Parameters
    ----------
    run : PipelineResult
        As :func:`lagsweep.simulate_pipeline` gives.

    Returns
    -------
    altair.VConcatChart
        The warm-up is shaded.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, simulate_pipeline
    >>> chart = plot_timeline(simulate_pipeline(PipelineConfig(duration_seconds=60)))
    >>> len(chart.to_dict()["vconcat"])
    3
    """
    from .timeline import timeline_chart

    instance("run", run, PipelineResult, "Give what simulate_pipeline returns.")
    config, batches = run.config, run.batches_frame()
    times = run.timeline_frame()["time"].to_numpy()
    stopped = config.stop_after_updates is not None and run.final_version >= config.stop_after_updates
    return timeline_chart(
        _levels(run),
        batches.rename({"expected_normalized_ess": "ess"})
        .select("update", "start", "end", "mean_lag", "max_lag", "ess")
        .to_dicts(),
        cap=config.max_queue_tokens if config.mode == "bounded_async" else None,
        batch_tokens=config.batch_tokens,
        warmup_seconds=config.warmup_seconds,
        end_seconds=float(times.max()) if stopped else config.duration_seconds,
    )


def _levels(run: PipelineResult) -> list[dict[str, Any]]:
    """Return the queue's level after each event; of a long run, the highest of each span of time."""
    import polars as pl

    from .timeline import MOST_STEPS

    frame = run.timeline_frame().select("time", tokens_high="queue_tokens")
    if frame.height > MOST_STEPS:
        span = run.config.duration_seconds / MOST_STEPS
        frame = (
            frame.group_by((pl.col("time") / span).floor().alias("span"))
            .agg(pl.col("time").min(), pl.col("tokens_high").max())
            .sort("span")
            .drop("span")
        )
    return frame.to_dicts()
