"""How old the trained rollouts of some cells were: the share of each lag, averaged over the seeds.

A run has 65 counts, so those of a million runs take half a gigabyte. They are read in pieces along the seeds
and turned into sums while they are read; the figures are those of the whole, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import intervals_of_pieces
from ..runs.status import DONE

if TYPE_CHECKING:
    import xarray

PIECE_RUNS = 32_768  # whose counts are held at once: 17 MB, and some copies


def lag_shares(counts: np.ndarray) -> np.ndarray:
    """Turn counts into shares of a run's trained rollouts: float64, NaN for a run that trained none.

    Parameters
    ----------
    counts : ndarray of int64, shape (…, 65)
        Trained rollouts of a run by lag.

    Examples
    --------
    >>> lag_shares(np.array([[3, 1], [0, 0]])).tolist()
    [[0.75, 0.25], [nan, nan]]
    """
    totals = counts.sum(axis=-1, keepdims=True)
    return np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)


def lag_intervals(
    ds: xarray.Dataset, rows: Sequence[int], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Average the share of each lag over the seeds of some cells, with the half width of the interval.

    Seeds that are not done, or trained nothing, are left out.

    Parameters
    ----------
    ds : xarray.Dataset
    rows : sequence of int
        Places in the order of the cells.
    confidence : float
        Of the Student intervals.

    Returns
    -------
    mean, half_width : ndarray of float64, shape (rows, 65)
        NaN where there is nothing to average.
    """
    return intervals_of_pieces(_pieces(ds, rows), confidence)


def _pieces(ds: xarray.Dataset, rows: Sequence[int]) -> Callable[[], Iterable[np.ndarray]]:
    """Return a reader of shares in pieces along the seeds: each (seeds, rows, 65)."""
    dims = [dim for dim in ds["status"].dims if dim != "seed"]
    # All cells in one request, so that no chunk is read twice: the box along the axes in which they lie.
    # Cells one by one along several axes would make xarray index every single count.
    places = np.unravel_index(np.asarray(rows, np.int64), [ds.sizes[dim] for dim in dims]) if dims else ()
    box = [np.unique(place, return_inverse=True) for place in places]
    some = ds[["lag_counts", "status"]].isel({dim: along for dim, (along, _) in zip(dims, box)})
    inside: Any = (slice(None), *(where for _, where in box)) if dims else (slice(None), None)
    cells = int(np.prod([len(along) for along, _ in box], dtype=np.int64))
    seeds, step = ds.sizes["seed"], _seeds_of_a_piece(ds["lag_counts"], cells)

    def read(start: int) -> np.ndarray:
        piece = some.isel(seed=slice(start, start + step))
        shares = lag_shares(piece["lag_counts"].transpose("seed", *dims, "lag").values[inside])
        shares[piece["status"].transpose("seed", *dims).values[inside] != DONE] = np.nan
        return shares

    def all_of_them() -> Iterator[np.ndarray]:
        for start in range(0, seeds, step):
            yield read(start)

    if seeds > step:
        return all_of_them
    whole = [read(0)]  # read once for both rounds
    return lambda: whole


def _seeds_of_a_piece(counts: xarray.DataArray, rows: int) -> int:
    """Return how many seeds are read at once: whole chunks of a store, so that none is read twice."""
    wanted = max(1, PIECE_RUNS // max(1, rows))
    chunk = int(counts.encoding.get("preferred_chunks", {}).get("seed", 1))
    return max(1, wanted // chunk) * chunk
