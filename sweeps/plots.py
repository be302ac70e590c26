"""Charts of sweeps and runs for notebooks and papers: Altair charts with units and intervals.

Each function gives an Altair chart: show it in a notebook, save it with ``chart.save("x.svg")``, change it
with Altair's own methods. Data are aggregated first, so a sweep of a million runs draws at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lagsweep.sweeps.analysis import ESS, THROUGHPUT

if TYPE_CHECKING:
    import altair
    import xarray

MOST_POINTS = 1500


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
    from lagsweep.sweeps.analysis import frontier
    from lagsweep.sweeps.chart_frontier import frontier_chart, frontier_rows

    found = frontier(ds, throughput=throughput, ess=ess, confidence=confidence)
    rows = frontier_rows(thinned(found.frame).to_dicts(), throughput, ess, found.axes)
    return frontier_chart(
        rows,
        throughput=throughput,
        ess=ess,
        axes=found.axes,
        baseline=found.baseline,
        confidence=confidence,
    )


def thinned(frame: Any, most: int = MOST_POINTS) -> Any:
    """Keep every cell of the frontier and, of a large sweep, only some of the others, evenly by rank."""
    import polars as pl

    if frame.height <= most:
        return frame
    step = -(-frame.height // most)
    return frame.filter(pl.col("on_frontier") | (pl.int_range(pl.len()) % step == 0))
