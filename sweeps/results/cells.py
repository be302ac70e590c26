"""The cells of a result read: their ids and axis values, a metric's values, means with intervals.

Uncertainty comes from the seeds: a cell's mean carries a Student interval over its seeds (Student, "The
probable error of a mean", Biometrika 6, 1908).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import is_whole
from ...kernels.errors import ConfigError, nearest
from ..checks import confidence_of, sweep_dataset, text_of
from ..spec.carried import spec_of
from ..spec.cells import find_cell as place_in_spec

if TYPE_CHECKING:
    import xarray

DONE = 1


def cell_values(ds: xarray.Dataset, metric: str) -> np.ndarray:
    """Return a metric as float64 (cells, seeds): rows in the order of the cells, NaN where a run is not done.

    Raises
    ------
    ConfigError
        For an unknown metric; the nearest known one is named.
    """
    _check_seeds(ds)
    text_of("metric", metric, "Name a metric of the dataset.")
    if metric not in ds.data_vars or ds[metric].dims[-1:] != ("seed",):
        known = [str(name) for name in ds.data_vars if ds[name].dims and ds[name].dims[-1] == "seed"]
        raise ConfigError("metric", "must be one of the dataset's", metric, nearest(metric, known))
    values = ds[metric].transpose(..., "seed").values.astype(np.float64)
    done = ds["status"].transpose(..., "seed").values == DONE
    return np.where(done, values, np.nan).reshape(-1, ds.sizes["seed"])


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


def cell_coordinates(ds: xarray.Dataset) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the cell ids (int64) and each axis's value per cell, all flat and in the same order."""
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

    confidence = confidence_of(confidence)
    values = np.asarray(values, np.float64)
    count = np.sum(~np.isnan(values), axis=-1)
    total = np.nansum(values, axis=-1)
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    square = np.nansum((values - mean[..., None]) ** 2, axis=-1)
    variance = np.divide(square, count - 1, out=np.full(total.shape, np.nan), where=count > 1)
    half = stdtrit(np.maximum(count - 1, 1), 0.5 + confidence / 2) * np.sqrt(variance / np.maximum(count, 1))
    return mean, half


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
