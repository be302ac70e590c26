"""The frontier of throughput against ESS, and paired differences.

All configurations of a seed see the same rollouts, so differences between cells are taken seed by seed,
which removes what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ...kernels.intervals import mean_interval
from ...kernels.pipeline.metrics import with_nan
from ..checks import confidence_of, text_of
from ..runs.status import DONE, FAILED, NOT_RUN
from ..spec.carried import spec_of
from .cells import (
    GOODPUT,
    axis_names,
    cell_coordinates,
    cell_values,
    find_cell,
    halted_runs,
    has_failures,
    not_recorded,
    read_once,
    recorded_values,
)
from .drift_words import standing_of
from .frontier_table import frontier_text
from .left_out import same_runs_of
from .scenarios import Scenarios, rows_by_number, scenario_axes, scenarios_of

if TYPE_CHECKING:
    import polars
    import xarray

ESS = "mean_expected_normalized_ess"
THROUGHPUT = "trained_tokens_per_second"


@dataclass(frozen=True)
class Frontier:
    """Every cell's means with intervals, and which cells no other cell beats in both of two metrics.

    Attributes
    ----------
    frame : polars.DataFrame
        One row a cell, fastest first. For each metric shown a column and ``<metric>_half_width``; ``runs``
        that were done, and ``halted_runs`` of these, which stalled or trained nothing.
    throughput, ess : str
        The two metrics compared; both are maximized.
    drift_per_version : float
        The drift that the ESS figures assume, where it was not measured.
    baseline : dict, optional
        The sequential baseline's means, where it was run beside the cells.
    level_1 : bool
        Whether no cell uses an option of levels 2 and 3.
    scenario_axes : tuple of str
        Axes that nobody chooses, such as the drift, where they have several values: cells are compared within
        each of their scenarios, never across.
    scenarios : tuple of (values, baseline)
        Of each scenario the values of those axes and the baseline beside it; none where there is one
        scenario, or where no scenario has two settings to compare.
    drift : str
        What the ESS figures rest on, in words.
    same_runs : dict
        Of cells of the frontier that have the same figures: cell -> the first cell with the very same runs.
    failed_runs, missing_runs : int
        How many runs failed, and how many were not done yet.
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
    scenario_axes: tuple[str, ...] = ()
    scenarios: tuple[tuple[dict[str, Any], dict[str, Any] | None], ...] = ()
    drift: str = ""
    same_runs: Mapping[int, int] = field(default_factory=dict, repr=False)
    failed_runs: int = 0
    missing_runs: int = 0

    def parts(self) -> Sequence[tuple[dict[str, Any], Frontier]]:
        """Return the frontier of each scenario, in the sweep's order, with the scenario's values.

        The whole, without values, where there are no `scenarios`. Of many scenarios only those are made that
        are asked for.
        """
        return ScenarioParts(self) if self.scenarios else [({}, self)]

    @property
    def alone(self) -> bool:
        """Whether each configuration is a scenario of its own, so that nothing can be compared with it."""
        return bool(self.scenario_axes) and not self.scenarios

    @property
    def configurations(self) -> int:
        """How many cells ran; excluded ones are none."""
        return int((self.frame["runs"] > 0).sum())

    def on_frontier(self) -> polars.DataFrame:
        """Return the rows that no other row beats."""
        import polars as pl

        return self.frame.filter(pl.col("on_frontier"))

    def __str__(self) -> str:

        return frontier_text(self)


class ScenarioParts(Sequence["tuple[dict[str, Any], Frontier]"]):
    """The frontiers of the scenarios of a sweep, each made when it is looked at.

    Parameters
    ----------
    whole : Frontier
        Of all scenarios.
    """

    def __init__(self, whole: Frontier) -> None:
        import polars as pl

        self._whole = whole
        axes = list(whole.scenario_axes)
        known = pl.DataFrame(
            [values for values, _ in whole.scenarios], schema=whole.frame.select(axes).schema
        )
        numbers = whole.frame.select(axes).join(
            known.with_row_index("scenario"), on=axes, how="left", maintain_order="left"
        )["scenario"]
        self._rows = rows_by_number(numbers.to_numpy(), len(whole.scenarios))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> tuple[dict[str, Any], Frontier]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[dict[str, Any], Frontier]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        whole = self._whole
        values, baseline = whole.scenarios[place]
        axes = tuple(name for name in whole.axes if name not in whole.scenario_axes)
        frame = whole.frame[self._rows[place]]
        part = replace(whole, frame=frame, axes=axes, baseline=baseline, scenario_axes=(), scenarios=())
        return values, part


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


def _cell_table(
    ds: xarray.Dataset, metrics: tuple[str, ...], compared: tuple[str, ...], confidence: float
) -> dict[str, np.ndarray]:
    """Average each metric over the seeds of each cell; what is compared must be recorded."""
    cells, axes = cell_coordinates(ds, numeric=True)

    def read(name: str) -> np.ndarray:
        return cell_values(ds, name) if name in compared else recorded_values(ds, name)

    columns = {"cell": cells, **axes, **_averaged(read, metrics, confidence)}
    done = ds["status"].transpose(..., "seed").values == DONE
    columns["runs"] = done.reshape(len(cells), -1).sum(axis=-1)
    columns["halted_runs"] = np.sum(halted_runs(ds), axis=-1)
    return columns


def _averaged(
    read: Callable[[str], np.ndarray], metrics: tuple[str, ...], confidence: float
) -> dict[str, np.ndarray]:
    """Average metrics, of which one is held at a time."""
    columns: dict[str, np.ndarray] = {}
    for metric in metrics:
        columns[metric], columns[f"{metric}_half_width"] = mean_interval(read(metric), confidence)
    updates = read("updates")
    rollouts = np.divide(
        read("trained_rollouts"), updates, out=np.full(updates.shape, np.nan), where=updates > 0
    )
    columns["rollouts_per_batch"], _ = mean_interval(rollouts, confidence)
    return columns


def baseline_rows(
    ds: xarray.Dataset,
    metrics: tuple[str, ...],
    confidence: float,
    places: Sequence[Mapping[str, int]],
) -> list[dict[str, float] | None]:
    """Average the sequential baseline that was run beside the cells, at some places of the axes.

    A dataset keeps it in variables named ``baseline_<metric>``; it has one value a seed unless an axis
    changes the sequential pipeline too. None where there is no baseline, or not exactly one at a place.
    All of it is read once, however many places there are.
    """
    missing: list[dict[str, float] | None] = [None] * len(places)
    if "baseline_status" not in ds:
        return missing
    dims = [str(dim) for dim in ds["baseline_status"].dims if dim != "seed"]
    if not all(set(dims) <= set(at) for at in places):
        return missing
    shape = tuple(ds.sizes[dim] for dim in dims)

    def values_of(name: str) -> np.ndarray:
        return np.ascontiguousarray(ds[name].transpose(*dims, "seed").values.reshape(-1, ds.sizes["seed"]))

    done = values_of("baseline_status") == DONE
    nothing = np.full(done.shape, np.nan)

    def read(name: str) -> np.ndarray:
        stored = f"baseline_{name}"
        values = nothing if stored in not_recorded(ds) else with_nan(name, values_of(stored))
        return np.where(done, values, np.nan)

    columns = {**_averaged(read, metrics, confidence), "runs": done.sum(axis=1).astype(np.float64)}
    rows = [int(np.ravel_multi_index([at[dim] for dim in dims], shape)) if dims else 0 for at in places]
    return [{name: float(column[row]) for name, column in columns.items()} for row in rows]


def _beside(
    ds: xarray.Dataset, found: Scenarios, metrics: tuple[str, ...], confidence: float
) -> tuple[tuple[dict[str, Any], dict[str, Any] | None], ...]:
    """Return each scenario's values with the baseline beside it."""
    dims = [str(dim) for dim in ds["status"].dims if dim != "seed"]
    shape = [ds.sizes[dim] for dim in dims]
    places = []
    for rows in found.rows():
        at = dict(zip(dims, map(int, np.unravel_index(rows[0], shape)))) if dims else {}
        places.append({dim: place for dim, place in at.items() if dim in found.axes})
    return tuple(zip(found.values, baseline_rows(ds, metrics, confidence, places)))


def baseline_values(ds: xarray.Dataset, metric: str, rows: Sequence[int]) -> np.ndarray | None:
    """Return the sequential baseline's metric beside some cells: float64 (rows, seeds), NaN where not done.

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
    scenarios: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> Frontier:
    """Compare all cells of a sweep: throughput against ESS, means over seeds with Student intervals.

    What nobody chooses makes scenarios, as in :func:`lagsweep.recommend`: each has a frontier of its own.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` gives.
    throughput, ess : str
        The two metrics; a cell is on the frontier when no other has both means at least as large and one
        larger.
    scenarios : sequence of str, optional
        Axes that nobody chooses; ``response_length``, ``environment_seconds``, ``drift_per_version``,
        ``drift`` and the failure rates where they are axes, when left out. None of them for one frontier of
        all cells: ``[]``.
    confidence : float
        Of each interval.

    Returns
    -------
    Frontier
        ``print`` it for a table; ``.frame`` is polars.
    """
    import polars as pl

    confidence = confidence_of(confidence)
    spec = spec_of(ds)
    text_of("throughput", throughput, "Name a metric.")
    text_of("ess", ess, "Name a metric.")
    read_once(ds, ("status", "updates", "stalled"))
    failing = (GOODPUT,) if has_failures(ds) else ()
    metrics = tuple(dict.fromkeys((throughput, ess, *SHOWN, *failing)))
    columns = _cell_table(ds, metrics, (throughput, ess), confidence)
    found = scenarios_of(columns, scenario_axes(ds, scenarios), len(columns["cell"]))
    columns["on_frontier"] = np.zeros(len(columns["cell"]), bool)
    for rows in found.rows():
        columns["on_frontier"][rows] = nondominated(columns[throughput][rows], columns[ess][rows])
    status = ds["status"].values
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
        baseline_rows(ds, metrics, confidence, [{}])[0],
        spec.is_level_1,
        found.axes,
        _beside(ds, found, metrics, confidence) if found.compare else (),
        standing_of(spec),
        same_runs_of(ds, columns, (throughput, ess)),
        int((status == FAILED).sum()),
        int((status == NOT_RUN).sum()),
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
    confidence = confidence_of(confidence)
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
