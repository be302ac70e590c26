"""Every cell of a sweep as one row: its settings, its runs, and each metric's mean with its half width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..checks import confidence_of, texts_of
from ..runs.status import DONE, FAILED
from .cells import cell_coordinates, cell_values, read_once, run_metrics

if TYPE_CHECKING:
    import polars
    import xarray

ROWS_AT_ONCE = 2_000  # of what is printed: the text of all rows is several times as large as the frame


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
    names = run_metrics(ds) if metrics is None else texts_of("metrics", metrics, "List names of metrics.")
    cells, axes = cell_coordinates(ds, numeric=True)
    read_once(ds, ("status",))
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


def plain_rows(frame: polars.DataFrame) -> Iterator[list[dict[str, Any]]]:
    """Give the rows of a frame for JSON, a list at a time: what is not finite becomes null.

    Examples
    --------
    >>> import polars
    >>> list(plain_rows(polars.DataFrame({"cell": [1, 2], "mean_lag": [0.5, float("inf")]})))
    [[{'cell': 1, 'mean_lag': 0.5}, {'cell': 2, 'mean_lag': None}]]
    """
    import polars as pl
    import polars.selectors as cs

    floats = cs.float()
    for part in frame.iter_slices(ROWS_AT_ONCE):
        yield part.with_columns(pl.when(floats.is_finite()).then(floats)).rows(named=True)


def csv_pieces(frame: polars.DataFrame) -> Iterator[str]:
    """Write a frame as CSV, the header first, a piece at a time.

    Examples
    --------
    >>> import polars
    >>> "".join(csv_pieces(polars.DataFrame({"cell": [1, 2]})))
    'cell\\n1\\n2\\n'
    """
    yield frame.clear().write_csv()
    for part in frame.iter_slices(ROWS_AT_ONCE):
        yield part.write_csv(include_header=False)
