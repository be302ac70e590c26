"""The cells of a result read: their ids and axis values, a metric's values, means with intervals.

Uncertainty comes from the seeds: a cell's mean carries a Student interval over its seeds (Student, "The
probable error of a mean", Biometrika 6, 1908).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import is_whole
from ...kernels.errors import ConfigError, nearest
from ...kernels.pipeline.metrics import with_nan
from ..checks import sweep_dataset, text_of
from ..spec.carried import spec_of
from ..spec.cells import find_cell as place_in_spec

if TYPE_CHECKING:
    import xarray

DONE = 1
NOT_RECORDED = "not_recorded"  # attribute of a dataset: metrics that its store was made without
GOODPUT = "goodput_fraction"
_MOST_NAMED = 5


def cell_values(ds: xarray.Dataset, metric: str) -> np.ndarray:
    """Return a metric as float64 (cells, seeds): rows in the order of the cells, NaN where there is no value.

    A run that is not done has none, nor has the largest lag of a run that trained no batch.

    Raises
    ------
    ConfigError
        For an unknown metric, the nearest known one is named; for one that the store was made without.
    """
    _check_seeds(ds)
    text_of("metric", metric, "Name a metric of the dataset.")
    if metric in not_recorded(ds):
        way_out = "Run the sweep anew, or all of it again with --rerun."
        raise ConfigError("metric", "is not recorded: the store was made without it", metric, way_out)
    if metric not in ds.data_vars or ds[metric].dims[-1:] != ("seed",):
        known = [str(name) for name in ds.data_vars if ds[name].dims and ds[name].dims[-1] == "seed"]
        raise ConfigError("metric", "must be one of the dataset's", metric, nearest(metric, known))
    values = with_nan(metric, ds[metric].transpose(..., "seed").values)
    done = ds["status"].transpose(..., "seed").values == DONE
    return np.where(done, values, np.nan).reshape(-1, ds.sizes["seed"])


def read_once(ds: xarray.Dataset, names: Iterable[str]) -> None:
    """Read variables that are used several times; they stay in the dataset, as all that is read whole.

    A stored variable is read, held against its digests and decoded anew at each use, unless it is held.
    """
    for name in names:
        if name in ds.data_vars:
            ds[name].load()


def alone(ds: xarray.Dataset, row: int) -> xarray.Dataset:
    """Return one cell of a dataset, by its row in cell order: of what is stored only its chunks are read."""
    dims = [str(dim) for dim in ds["status"].dims if dim != "seed"]
    places = np.unravel_index(row, [ds.sizes[dim] for dim in dims]) if dims else ()
    return ds.isel({dim: [int(place)] for dim, place in zip(dims, places)})


def run_metrics(ds: xarray.Dataset) -> tuple[str, ...]:
    """Name the variables with a number a run, the baseline's not."""
    template = ds["status"].dims
    return tuple(
        str(name)
        for name, variable in ds.data_vars.items()
        if variable.dims == template and variable.dtype.kind in "iufb" and name != "status"
    )


def recorded_values(ds: xarray.Dataset, metric: str) -> np.ndarray:
    """Return a metric as :func:`cell_values` does, NaN throughout where its store was made without it.

    For what stands beside an answer; an answer itself is not made from what is not there.
    """
    if metric in not_recorded(ds):
        return np.full((ds["cell"].size, ds.sizes["seed"]), np.nan)
    return cell_values(ds, metric)


def not_recorded(ds: xarray.Dataset) -> tuple[str, ...]:
    """Name the variables that a dataset's store was made without.

    Examples
    --------
    >>> import xarray
    >>> not_recorded(xarray.Dataset(attrs={"not_recorded": "mean_lag syncs"}))
    ('mean_lag', 'syncs')
    """
    return tuple(str(ds.attrs.get(NOT_RECORDED, "")).split())


def has_failures(ds: xarray.Dataset) -> bool:
    """Tell whether a sweep has failures or checkpoints, and what they cost was recorded."""
    return GOODPUT in ds and GOODPUT not in not_recorded(ds)


def not_recorded_note(names: Sequence[str]) -> str:
    """Say which metrics a store was made without.

    Examples
    --------
    >>> not_recorded_note(["mean_lag", "syncs"])
    'not recorded in it: mean_lag, syncs'
    """
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"not recorded in it: {', '.join(names[:_MOST_NAMED])}{more}"


def halted_runs(ds: xarray.Dataset) -> np.ndarray:
    """Tell which runs that were done stalled or trained nothing: bool (cells, seeds)."""
    updates = recorded_values(ds, "updates")
    halted = updates == 0
    if "stalled" in ds:  # else of a selection of variables
        halted |= cell_values(ds, "stalled") == 1
    return np.asarray(halted)


def _check_seeds(ds: xarray.Dataset) -> None:
    sweep_dataset(ds)
    if "seed" not in ds.dims:
        raise ConfigError(
            "dataset", "must have the dimension seed", dict(ds.sizes), "Select seeds as [0], not as 0."
        )


def axis_names(ds: xarray.Dataset) -> list[str]:
    """Name the swept axes of a dataset, in order; for a design of points, the points' coordinates."""
    dims = [str(dim) for dim in sweep_dataset(ds)["status"].dims if dim != "seed"]
    if dims == ["point"]:
        return [
            str(name) for name in ds.coords if ds[name].dims == ("point",) and name not in {"cell", "point"}
        ]
    return dims


def cell_coordinates(
    ds: xarray.Dataset, *, numeric: bool = False
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the cell ids (int64) and each axis's value per cell, all flat and in the same order.

    An axis of numbers and none is given as labels or, with `numeric`, as numbers with infinity for none.
    """
    _check_seeds(ds)
    template = ds["status"].isel(seed=0, drop=True)
    cells = ds["cell"].transpose(*template.dims).values.reshape(-1)
    columns = {
        name: ds[name].broadcast_like(template).transpose(*template.dims).values.reshape(-1)
        for name in axis_names(ds)
    }
    if not numeric:
        columns = {name: _labels(values) for name, values in columns.items()}
    return cells, columns


def _labels(values: np.ndarray) -> np.ndarray:
    """Turn numbers into labels where infinity stands for none among them."""
    if values.dtype.kind != "f" or not np.isinf(values).any():
        return values
    finite = values[np.isfinite(values)]
    whole = bool((finite == np.round(finite)).all())
    return np.array(
        ["none" if value == np.inf else str(int(value) if whole else value) for value in values.tolist()]
    )


def find_cell(ds: xarray.Dataset, cell: int | Mapping[str, Any]) -> int:
    """Return the row (in cell order) of a cell named by id or by its axis values.

    Raises
    ------
    ConfigError
        When no cell, or more than one, is meant.
    """

    cells, _ = cell_coordinates(ds)
    wanted: Any = cell
    if isinstance(cell, Mapping) or not is_whole(cell) or not np.isin(cells, cell).any():
        spec = spec_of(ds)  # it words what is wrong, and knows labels and fields
        wanted = int(spec.cell_ids.reshape(-1)[place_in_spec(spec, cell)])
    found = np.flatnonzero(cells == int(wanted))
    if len(found) != 1:
        raise ConfigError("cell", "must be in this selection of the sweep", cell, "Use the whole dataset.")
    return int(found[0])
