"""Charts of sweeps and runs for notebooks and papers: Altair charts with units and intervals.

Each function gives an Altair chart: show it in a notebook, save it with ``chart.save("x.svg")``, change it
with Altair's own methods. Data are aggregated first, so a sweep of a million runs draws at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import instance, listed
from ...kernels.errors import ConfigError
from ..checks import confidence_of
from ..results.cells import cell_coordinates, find_cell
from ..results.frontier import ESS, THROUGHPUT, frontier
from ..results.frontier_table import MOST_SCENARIOS, worth_a_look
from ..results.lag_shares import lag_intervals
from ..results.numbers import number
from ..results.scenarios import scenario_axes, scenarios_of
from ..results.words import axis_words, metric_title, short_label
from ..runs.result import PipelineResult
from .gists import frontier_gist, lag_gist, timeline_gist
from .marks import Mark, Marks, marks_of
from .panels import heatmap_panels

if TYPE_CHECKING:
    import altair
    import xarray

    from ..results.frontier import Frontier

MOST_POINTS = 1500
FIGURES = (THROUGHPUT, ESS, "mean_lag", "seconds_per_update", "effective_tokens_per_second")


def plot_frontier(
    ds: xarray.Dataset,
    *,
    throughput: str = THROUGHPUT,
    ess: str = ESS,
    scenarios: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> altair.LayerChart | altair.ConcatChart:
    """Draw every cell of a sweep: throughput against effective sample size, with intervals.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` gives.
    throughput, ess : str
        The two metrics; the frontier has most of both.
    scenarios : sequence of str, optional
        Axes that nobody chooses, as in :func:`lagsweep.frontier`.
    confidence : float
        Of the intervals.

    Returns
    -------
    altair.LayerChart or altair.ConcatChart
        Large points are on the frontier, which a dashed line follows. One chart for each of at most six
        scenarios, where there are several.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=60), {"max_lag": [0, 1, 2]}, seeds=3)
    >>> plot_frontier(ds).to_dict()["layer"][0]["mark"]["type"]
    'line'
    """
    found = frontier(ds, throughput=throughput, ess=ess, scenarios=scenarios, confidence=confidence)
    return titled(chart_of_all(found), frontier_title(found))


def frontier_title(found: Frontier) -> str:
    """Name the chart of a frontier by its two metrics."""
    if (found.throughput, found.ess) == (THROUGHPUT, ESS):
        return "Throughput against effective sample size"
    first = metric_title(found.throughput).partition(",")[0]
    return f"{first[:1].upper()}{first[1:]} against {metric_title(found.ess).partition(',')[0]}"


def titled(chart: Any, title: str) -> Any:
    """Give a chart for a file or a notebook its title; a page has titles of its own."""
    import altair as alt

    return chart.properties(title=alt.TitleParams(title, anchor="start", fontSize=13, offset=10))


def chart_of_all(found: Frontier, *, always: Sequence[int] = ()) -> altair.LayerChart | altair.ConcatChart:
    """Draw the frontier of each scenario, side by side where there are several."""
    import altair as alt

    marks, parts = marks_in(found), found.parts()
    if len(parts) == 1:
        return chart_of(found, marks, always=always)
    places = np.unique(np.linspace(0, len(parts) - 1, min(MOST_SCENARIOS, len(parts))).round().astype(int))
    charts = [
        titled(chart_of(part, marks, always=always), scenario_words(values))
        for values, part in (parts[place] for place in places)
    ]
    gist = " ".join(f"{chart.title.text}: {chart.description}" for chart in charts)
    return alt.concat(*charts, columns=2, spacing=30).properties(description=gist)


def scenario_words(values: Mapping[str, Any]) -> str:
    """Name a scenario above its chart.

    Examples
    --------
    >>> scenario_words({"drift_per_version": 0.3})
    'drift per version 0.3'
    """
    return ", ".join(f"{axis_words(name).phrase} {number(value)}" for name, value in values.items())


def marks_in(found: Frontier) -> Marks:
    """Choose the colours and shapes of a sweep's cells, the same for all its scenarios and charts."""
    axes = [name for name in found.axes if name not in found.scenario_axes] if found.scenarios else found.axes
    return marks_of({name: found.frame[name].unique().sort().to_list() for name in axes})


def chart_of(
    found: Frontier, marks: Marks | None = None, *, always: Sequence[int] = (), linked: bool = False
) -> altair.LayerChart:
    """Draw the frontier of one scenario; of a large one some cells and those in `always`."""
    from .frontier import frontier_chart

    marks = marks_in(found) if marks is None else marks
    rows = rows_of(found, marks, always)
    chart = frontier_chart(
        rows,
        throughput=found.throughput,
        ess=found.ess,
        axes=found.axes,
        marks=marks,
        joined=not found.alone,
        baseline=found.baseline,
        confidence=found.confidence,
        linked=linked,
    )
    return chart.properties(description=frontier_gist(rows, found.throughput, found.ess))


def rows_of(found: Frontier, marks: Marks, always: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return the rows that the chart of a frontier has."""
    from .frontier import frontier_rows

    cells = thinned(found.frame, always=always).to_dicts()
    return frontier_rows(cells, found.throughput, found.ess, found.axes, marks)


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
        Values of other axes, which are then not shown; the best cell's where left out.
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
    where = panels[0].where.lstrip("; ")
    name = metric_title(metric)
    title = alt.TitleParams(
        f"{name[:1].upper()}{name[1:]}", subtitle=where or alt.Undefined, anchor="start", fontSize=13
    )
    gist = " ".join(panel.gist(metric) for panel in panels)
    return together.properties(title=title, description=gist)


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
        picked = worth_a_look(frontier(ds, confidence=confidence))
        cells = list(dict.fromkeys(row["cell"] for _, row in picked))[:MOST_CELLS]
    confidence = confidence_of(confidence)
    cells = listed("cells", cells, "List the cells, by id or by their axis values.")
    if not cells:
        way_out = "Name cells, or sweep settings under which something is trained."
        raise ConfigError("cells", "must have trained rollouts, and none has", None, way_out)
    if len(cells) > MOST_CELLS:
        raise ConfigError(
            "cells", f"must be at most {MOST_CELLS}", len(cells), "Draw them in several charts."
        )
    places = [find_cell(ds, cell) for cell in cells]
    rows = lag_rows_of(ds, places, confidence)
    ids, columns = cell_coordinates(ds, numeric=True)
    look = _marks_of_sweep(ds, columns)
    by_cell = {
        int(ids[row]): look.of({name: column[row].item() for name, column in columns.items()})
        for row in places
    }
    marks = {row["label"]: by_cell[row["cell"]] for row in rows}
    chart = lag_chart(rows, marks, confidence=confidence).properties(description=lag_gist(rows))
    return titled(chart, "How old the trained rollouts were")


def _marks_of_sweep(ds: xarray.Dataset, columns: Mapping[str, np.ndarray]) -> Marks:
    """Choose what :func:`marks_in` chooses, from the axes alone: no metric is read."""
    scenarios = scenarios_of(columns, scenario_axes(ds, None), ds["cell"].size)
    nobody = scenarios.axes if scenarios.compare else ()
    return marks_of({name: np.unique(own).tolist() for name, own in columns.items() if name not in nobody})


def marks_by_label(found: Frontier, cells: Mapping[str, int]) -> dict[str, Mark]:
    """Return how cells look, by the labels that they have in a chart."""
    marks, frame = marks_in(found), found.frame
    rows = {row["cell"]: row for row in frame.filter(frame["cell"].is_in([*cells.values()])).to_dicts()}
    return {label: marks.of(rows[cell]) for label, cell in cells.items()}


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
    levels, end = _levels(run), float(times.max()) if stopped else config.duration_seconds
    rows = (
        batches.rename({"expected_normalized_ess": "ess"})
        .select("update", "start", "end", "mean_lag", "max_lag", "ess")
        .to_dicts()
    )
    chart = timeline_chart(
        levels,
        rows,
        cap=config.max_queue_tokens if config.mode == "bounded_async" else None,
        batch_tokens=config.batch_tokens,
        warmup_seconds=config.warmup_seconds,
        end_seconds=end,
    )
    return titled(chart.properties(description=timeline_gist(levels, rows, end)), "One run over time")


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
