"""Which cells had the very same runs: at every seed every figure that both report is equal.

Equal means, or an equal objective, say too little: one of two cells that train as much may throw away twice
as much. So what ties in some figures is held against each other in all of them, a variable at a time, and
of a large store nothing else is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.pipeline.metrics import UNUSED_VALUES
from ..runs.status import DONE
from .cells import not_recorded, read_once, run_metrics

if TYPE_CHECKING:
    import xarray

# Looked at first: where runs differ at all, they mostly do in these.
_TELLING = ("status", "generated_tokens", "discarded_tokens", "idle_slot_seconds", "mean_queue_tokens")


def split_by_runs(
    ds: xarray.Dataset, ties: Iterable[Sequence[int]], places: np.ndarray | None = None
) -> list[list[int]]:
    """Split settings that tie into those with the very same runs.

    Parameters
    ----------
    ds : xarray.Dataset
    ties : iterable of sequences of int
        Settings that tie with one another; none occurs twice.
    places : ndarray of int64, shape (settings, scenarios), optional
        The rows of each setting, in cell order; a setting is a row where it is left out.

    Returns
    -------
    list of lists of int
        Every setting once, beside those with its runs, in the order given. Where metrics are of an option
        that some of them do not use, these do not count between the two.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> axes = {"max_lag": [0, 40, 50]}
    >>> split_by_runs(run_sweep(PipelineConfig(duration_seconds=600), axes, seeds=2), [[0, 1, 2]])
    [[0], [1, 2]]
    """
    open_ties = [list(tie) for tie in ties]
    found: list[list[int]] = []
    lost = not_recorded(ds)
    names = [name for name in run_metrics(ds) if name not in lost and name not in _TELLING]
    for name in (*(name for name in _TELLING if name in ds and name not in lost), *names):
        found += [tie for tie in open_ties if len(tie) < 2]
        open_ties = [tie for tie in open_ties if len(tie) > 1]
        if not open_ties:
            break
        read_once(ds, ("status",))
        settings = np.concatenate(open_ties)
        rows = settings[:, None] if places is None else places[settings]
        bits = _bits(ds, name, rows.reshape(-1)).reshape(len(settings), -1)
        open_ties = _split(bits, open_ties, UNUSED_VALUES.get(name))
    return found + open_ties


def _bits(ds: xarray.Dataset, name: str, rows: np.ndarray) -> np.ndarray:
    """Return a variable of some cells as whole numbers to compare, (rows, seeds): NaN is equal to NaN."""
    dims = [str(dim) for dim in ds["status"].dims if dim != "seed"]
    # One request for all: the box along the axes in which they lie.
    at = np.unravel_index(rows, [ds.sizes[dim] for dim in dims])
    box = [np.unique(place, return_inverse=True) for place in at]
    some = ds[list(dict.fromkeys((name, "status")))].isel({dim: own for dim, (own, _) in zip(dims, box)})
    inside = tuple(where.reshape(-1) for _, where in box)

    def read(variable: str) -> np.ndarray:
        return np.asarray(some[variable].transpose(*dims, "seed").values[inside])

    values = read(name).astype(np.float64) + 0.0  # -0 is 0
    return np.where((read("status") == DONE) & ~np.isnan(values), values, np.nan).view(np.int64)


def _split(bits: np.ndarray, ties: Sequence[list[int]], unused: float | None) -> list[list[int]]:
    """Split each tie by the rows of its settings; `unused` is what stands where a run has no such metric."""
    sizes = [len(tie) for tie in ties]
    starts = np.cumsum([0, *sizes[:-1]])
    alike = np.logical_and.reduceat((bits == bits[np.repeat(starts, sizes)]).all(axis=1), starts)
    nothing = np.array([np.nan if unused is None else unused, np.nan]).view(np.int64)
    found = []
    for tie, start, one in zip(ties, starts.tolist(), alike.tolist()):
        if one:
            found.append(tie)
            continue
        parts: dict[bytes, list[int]] = {}
        for row, setting in zip(bits[start : start + len(tie)], tie):
            reports = unused is None or not np.isin(row, nothing).all()
            parts.setdefault(row.tobytes() if reports else b"", []).append(setting)
        found += [tie] if len(parts) - (b"" in parts) < 2 else parts.values()
    return found
