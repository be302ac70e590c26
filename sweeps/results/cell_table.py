"""Every cell of a sweep as one row: its settings, its runs, and each metric's mean with its half width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.intervals import mean_interval
from ..checks import confidence_of, texts_of
from ..runs.status import DONE, FAILED
from .cells import cell_coordinates, cell_values

if TYPE_CHECKING:
    import polars
    import xarray


def cells_frame(
    ds: xarray.Dataset, metrics: Sequence[str] | None = None, *, confidence: float = 0.95
) -> polars.DataFrame:
    """Give every cell of a sweep as a row, to write as CSV or parquet or to hand to pandas.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` gives.
    metrics : sequence of str, optional
        Variables with a value a run; all of them if left out.
    confidence : float
        Of each interval.

    Returns
    -------
    polars.DataFrame
        Columns ``cell``, one an axis (infinity stands for none), ``runs`` and ``failed_runs``, then a
        metric's mean over the runs that are done and ``<metric>_half_width``, half the Student interval;
        NaN where there is no value.

    Raises
    ------
    ConfigError
        For an unknown metric or a confidence outside (0, 1).

    Examples
    --------
    >>> import lagsweep as ls
    >>> base = ls.PipelineConfig(duration_seconds=120)
    >>> ds = ls.run_sweep(base, axes={"max_lag": [1, 2]}, seeds=3, progress=False)
    >>> ls.cells_frame(ds, ["updates"]).columns
    ['cell', 'max_lag', 'runs', 'failed_runs', 'updates', 'updates_half_width']
    """
    import polars as pl

    confidence = confidence_of(confidence)
    names = _run_metrics(ds) if metrics is None else texts_of("metrics", metrics, "List names of metrics.")
    cells, axes = cell_coordinates(ds, numeric=True)
    status = ds["status"].transpose(..., "seed").values.reshape(len(cells), -1)
    columns: dict[str, np.ndarray] = {
        "cell": cells,
        **axes,
        "runs": (status == DONE).sum(axis=1),
        "failed_runs": (status == FAILED).sum(axis=1),
    }
    for name in names:
        columns[name], columns[f"{name}_half_width"] = mean_interval(cell_values(ds, name), confidence)
    return pl.DataFrame({name: pl.Series(name, values) for name, values in columns.items()})


def _run_metrics(ds: xarray.Dataset) -> tuple[str, ...]:
    """Name the variables with a number a run, the baseline's not."""
    template = ds["status"].dims
    return tuple(
        str(name)
        for name, variable in ds.data_vars.items()
        if variable.dims == template and variable.dtype.kind in "iufb" and name != "status"
    )
