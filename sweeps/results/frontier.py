"""Means over seeds with intervals, the frontier of throughput against ESS, and paired differences.

Uncertainty comes from the seeds: a cell's mean carries a Student interval over its seeds (Student, "The
probable error of a mean", Biometrika 6, 1908). All configurations of a seed see the same rollouts, so
differences between cells are taken seed by seed, which removes what they share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, nearest

if TYPE_CHECKING:
    import polars
    import xarray

DONE = 1
ESS = "mean_expected_normalized_ess"
THROUGHPUT = "trained_tokens_per_second"


def cell_values(ds: xarray.Dataset, metric: str) -> np.ndarray:
    """Give a metric as float64 (cells, seeds): rows in the order of the cells, NaN where a run is not done.

    Raises
    ------
    ConfigError
        For an unknown metric; the nearest known one is named.
    """
    _check_seeds(ds)
    if metric not in ds.data_vars or ds[metric].dims[-1:] != ("seed",):
        known = [str(name) for name in ds.data_vars if ds[name].dims and ds[name].dims[-1] == "seed"]
        raise ConfigError("metric", "must be one of the dataset's", metric, nearest(metric, known))
    values = ds[metric].transpose(..., "seed").values.astype(np.float64)
    done = ds["status"].transpose(..., "seed").values == DONE
    return np.where(done, values, np.nan).reshape(-1, ds.sizes["seed"])


def _check_seeds(ds: xarray.Dataset) -> None:
    if "seed" not in ds.dims:
        raise ConfigError(
            "dataset", "must have the dimension seed", dict(ds.sizes), "Select seeds as [0], not as 0."
        )


def axis_names(ds: xarray.Dataset) -> list[str]:
    """Name the swept axes of a dataset, in order; for a design of points, the points' coordinates."""
    dims = [str(dim) for dim in ds["status"].dims if dim != "seed"]
    if dims == ["point"]:
        return [
            str(name) for name in ds.coords if ds[name].dims == ("point",) and name not in {"cell", "point"}
        ]
    return dims


def cell_coordinates(ds: xarray.Dataset) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Give the cell ids (int64) and each axis's value per cell, all flat and in the same order."""
    _check_seeds(ds)
    template = ds["status"].isel(seed=0, drop=True)
    cells = ds["cell"].transpose(*template.dims).values.reshape(-1)
    columns = {
        name: ds[name].broadcast_like(template).transpose(*template.dims).values.reshape(-1)
        for name in axis_names(ds)
    }
    return cells, columns


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Average the last axis and give the half width of the Student interval of the mean.

    Parameters
    ----------
    values : ndarray of float64
        NaN are left out.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    mean, half_width : ndarray
        NaN where there is nothing to average; the half width also where there is one value alone.

    Examples
    --------
    >>> mean, half = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)
    (2.0, 2.484)
    """
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls, without a second of imports

    values = np.asarray(values, np.float64)
    count = np.sum(~np.isnan(values), axis=-1)
    total = np.nansum(values, axis=-1)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    square = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    variance = np.divide(square, count - 1, out=np.full(total.shape, np.nan), where=count > 1)
    half = stdtrit(np.maximum(count - 1, 1), 0.5 + confidence / 2) * np.sqrt(variance / np.maximum(count, 1))
    return mean, half


@dataclass(frozen=True)
class Frontier:
    """Every cell's means with intervals, and which cells no other cell beats in both of two metrics.

    Attributes
    ----------
    frame : polars.DataFrame
        One row a cell, fastest first. For each metric shown a column and ``<metric>_half_width``.
    throughput, ess : str
        The two metrics compared; both are maximized.
    drift_per_version : float
        The drift that the ESS figures assume.
    baseline : dict, optional
        The sequential baseline's means, where it was run beside the cells.
    level_1 : bool
        Whether no cell uses an option of levels 2 and 3.
    """

    frame: polars.DataFrame
    axes: tuple[str, ...]
    throughput: str
    ess: str
    confidence: float
    drift_per_version: float
    seeds: int
    baseline: dict[str, Any] | None = None
    level_1: bool = True

    def on_frontier(self) -> polars.DataFrame:
        """Give the rows that no other row beats."""
        import polars as pl

        return self.frame.filter(pl.col("on_frontier"))

    def __str__(self) -> str:
        from .frontier_table import frontier_text

        return frontier_text(self)


SHOWN = (
    THROUGHPUT,
    "effective_tokens_per_second",
    ESS,
    "seconds_per_update",
    "mean_lag",
    "max_lag_observed",
    "trainer_utilization",
    "rollout_utilization",
    "backpressure_seconds",
)


def _cell_table(ds: xarray.Dataset, metrics: tuple[str, ...], confidence: float) -> dict[str, np.ndarray]:
    """Average each metric over the seeds of each cell."""
    cells, axes = cell_coordinates(ds)
    values = {name: cell_values(ds, name) for name in (*metrics, "updates", "trained_rollouts")}
    return {"cell": cells, **axes, **_averaged(values, metrics, confidence)}


def _averaged(
    values: dict[str, np.ndarray], metrics: tuple[str, ...], confidence: float
) -> dict[str, np.ndarray]:
    columns: dict[str, np.ndarray] = {}
    for metric in metrics:
        columns[metric], columns[f"{metric}_half_width"] = mean_interval(values[metric], confidence)
    updates = values["updates"]
    rollouts = np.divide(
        values["trained_rollouts"], updates, out=np.full(updates.shape, np.nan), where=updates > 0
    )
    columns["rollouts_per_batch"], _ = mean_interval(rollouts, confidence)
    columns["runs"] = np.sum(~np.isnan(updates), axis=-1)
    return columns


def baseline_row(
    ds: xarray.Dataset, metrics: tuple[str, ...], confidence: float = 0.95
) -> dict[str, float] | None:
    """Average the sequential baseline that was run beside the cells; None if there is not exactly one.

    A dataset keeps it in variables named ``baseline_<metric>``; it has one value a seed unless an axis
    changes the sequential pipeline too.
    """
    if "baseline_status" not in ds or ds["baseline_status"].dims != ("seed",):
        return None
    done = ds["baseline_status"].values == DONE
    names = (*metrics, "updates", "trained_rollouts")
    values = {
        name: np.where(done, ds[f"baseline_{name}"].values.astype(np.float64), np.nan)[None] for name in names
    }
    return {name: float(column[0]) for name, column in _averaged(values, metrics, confidence).items()}


def baseline_values(ds: xarray.Dataset, metric: str, rows: Sequence[int]) -> np.ndarray | None:
    """Give the sequential baseline's metric beside some cells: float64 (rows, seeds), NaN where not done.

    None if the sweep has no baseline.
    """
    if "baseline_status" not in ds or f"baseline_{metric}" not in ds:
        return None
    template = ds["status"]
    both = ds[[f"baseline_{metric}", "baseline_status"]].load()
    values = both[f"baseline_{metric}"].astype(np.float64).where(both["baseline_status"] == DONE)
    # It has the axes that matter to it alone; each cell takes its own.
    dims = [dim for dim in template.dims if dim != "seed"]
    places = (
        np.unravel_index(np.asarray(rows, np.int64), [template.sizes[dim] for dim in dims]) if dims else ()
    )
    own = [(dim, place) for dim, place in zip(dims, places) if dim in values.dims]
    array = values.transpose(*(dim for dim, _ in own), "seed").values
    if not own:
        return np.broadcast_to(array, (len(rows), array.shape[-1]))
    return array[tuple(place for _, place in own)]


def frontier(
    ds: xarray.Dataset,
    *,
    throughput: str = THROUGHPUT,
    ess: str = ESS,
    confidence: float = 0.95,
) -> Frontier:
    """Compare all cells of a sweep: throughput against ESS, means over seeds with Student intervals.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` gives.
    throughput, ess : str
        The two metrics; a cell is on the frontier when no other has both means at least as large and one
        larger.
    confidence : float
        Of each interval.

    Returns
    -------
    Frontier
        ``print`` it for a table; ``.frame`` is polars.
    """
    import polars as pl

    from ..execute.plan import is_level_1
    from ..spec.spec import spec_of

    spec = spec_of(ds)
    metrics = tuple(dict.fromkeys((throughput, ess, *SHOWN)))
    columns = _cell_table(ds, metrics, confidence)
    columns["on_frontier"] = nondominated(columns[throughput], columns[ess])
    frame = pl.DataFrame({name: pl.Series(name, values) for name, values in columns.items()})
    frame = frame.sort(throughput, descending=True, nulls_last=True)
    return Frontier(
        frame,
        tuple(axis_names(ds)),
        throughput,
        ess,
        confidence,
        spec.base.drift_per_version,
        ds.sizes["seed"],
        baseline_row(ds, metrics, confidence),
        is_level_1(spec),
    )


def nondominated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Tell which points no other point beats (both coordinates maximized; NaN never counts).

    Examples
    --------
    >>> nondominated(np.array([3.0, 2.0, 1.0, 1.0]), np.array([0.5, 0.9, 0.8, np.nan])).tolist()
    [True, True, False, False]
    """
    usable = ~(np.isnan(first) | np.isnan(second))
    order = np.lexsort((-second, -first))
    result = np.zeros(len(first), bool)
    best, best_first = -np.inf, np.inf
    for index in order:
        if not usable[index]:
            continue
        if second[index] > best or (second[index] == best and first[index] == best_first):
            result[index] = True
            best, best_first = second[index], first[index]
    return result


def find_cell(ds: xarray.Dataset, cell: int | Mapping[str, Any]) -> int:
    """Give the row (in cell order) of a cell named by id or by its axis values.

    Raises
    ------
    ConfigError
        When no cell, or more than one, is meant.
    """
    from ..spec.cells import find_cell as place_in_spec
    from ..spec.spec import spec_of

    cells, _ = cell_coordinates(ds)
    wanted: Any = cell
    if isinstance(cell, Mapping) or not np.isin(cells, cell).any():
        spec = spec_of(ds)  # it words what is wrong, and knows labels and fields
        wanted = int(spec.cell_ids.reshape(-1)[place_in_spec(spec, cell)])
    found = np.flatnonzero(cells == int(wanted))
    if len(found) != 1:
        raise ConfigError("cell", "must be in this selection of the sweep", cell, "Use the whole dataset.")
    return int(found[0])


@dataclass(frozen=True)
class PairedDifference:
    """One metric at one cell minus the same at another, seed by seed.

    Attributes
    ----------
    mean, low, high : float
        The mean difference and its Student interval.
    seeds : int
        Pairs used.
    """

    metric: str
    cell: int
    reference: int
    mean: float
    low: float
    high: float
    seeds: int
    confidence: float

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        verdict = "differ" if self.resolved else "cannot be told apart"
        return (
            f"{self.metric}: cell {self.cell} - cell {self.reference} = {self.mean:.6g} "
            f"[{self.low:.6g}, {self.high:.6g}] ({self.confidence:.0%}, {self.seeds} seeds; they {verdict})"
        )


def paired_difference(
    ds: xarray.Dataset,
    metric: str,
    cell: int | Mapping[str, Any],
    reference: int | Mapping[str, Any],
    *,
    confidence: float = 0.95,
) -> PairedDifference:
    """Subtract one cell's metric from another's, seed by seed, with a Student interval of the mean.

    Parameters
    ----------
    ds : xarray.Dataset
    metric : str
    cell, reference : int or dict
        A cell id, or one value for every axis.
    confidence : float

    Returns
    -------
    PairedDifference

    Raises
    ------
    ConfigError
        For an unknown metric or cell.
    """
    values = cell_values(ds, metric)
    cells, _ = cell_coordinates(ds)
    row, other = find_cell(ds, cell), find_cell(ds, reference)
    difference = values[row] - values[other]
    mean, half = mean_interval(difference, confidence)
    return PairedDifference(
        metric,
        int(cells[row]),
        int(cells[other]),
        float(mean),
        float(mean - half),
        float(mean + half),
        int(np.sum(~np.isnan(difference))),
        confidence,
    )
