"""Counts by lag of a sweep in memory: all bins as int64 to a reader, the few that are used underneath."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from ...kernels.pipeline.metrics import LAG_BINS
from ..execute.unit_arrays import all_lag_bins


class _AllBins(BackendArray):
    """Counts held in few bins and small integers, widened where they are read."""

    def __init__(self, held: np.ndarray) -> None:
        self._held = held
        self.shape, self.dtype = (*held.shape[:-1], LAG_BINS), np.dtype(np.int64)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        *runs, lags = key
        some = self._held
        whole: Any = slice(None)
        for axis, at in enumerate(runs):
            # One dimension after the other: an array of indices goes along its own alone, a number keeps it.
            kept: Any = [at] if isinstance(at, (int, np.integer)) else at
            some = some[(whole,) * axis + (kept,)]
        numbers = tuple(axis for axis, at in enumerate(runs) if isinstance(at, (int, np.integer)))
        return np.asarray(all_lag_bins(some)[..., lags].squeeze(axis=numbers))


def lag_array(held: np.ndarray) -> Any:
    """Return an array for xarray with all bins (…, 65) of counts held as (…, bins); written to, it is copied.

    Examples
    --------
    >>> import xarray
    >>> counts = xarray.Variable(("seed", "lag"), lag_array(np.array([[3, 1]], np.uint16)))
    >>> counts.dtype.name, counts.values[0, :3].tolist()
    ('int64', [3, 1, 0])
    """
    lazy: Any = indexing.LazilyIndexedArray(_AllBins(held))
    return indexing.CopyOnWriteArray(lazy)
