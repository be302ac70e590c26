"""What the runs of a unit gave, as arrays of cells and seeds: filled block by block while they are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels.pipeline.metrics import LAG_BINS
from ..runs.many import fill_value, not_reported
from .plan import Part


@dataclass
class Failure:
    """Why a run failed: one line, and the traceback for whoever mends it."""

    reason: str
    details: str = ""


@dataclass
class UnitArrays:
    """What the runs of one unit gave, as (cells, seeds) arrays.

    Attributes
    ----------
    metrics : dict of ndarray, each (cells, seeds), those of windows (cells, seeds, windows)
    lag_counts : ndarray of integers, (cells, seeds, bins), or None
        The smallest integers and the fewest bins (of a run's 65) that hold what was seen; with all bins, as
        in the dataset, they would be seven tenths of a sweep's bytes.
    status : ndarray of uint8, (cells, seeds)
    failures : dict
        (cell, seed) -> Failure, places within the unit.
    tables : dict of list
        Recorded columns; ``config`` and ``seed_index`` are places within the unit.
    """

    metrics: dict[str, np.ndarray]
    lag_counts: np.ndarray | None
    status: np.ndarray
    failures: dict[tuple[int, int], Failure] = field(default_factory=dict)
    tables: dict[str, list[dict[str, np.ndarray]]] = field(default_factory=dict)

    def put(
        self,
        cells: np.ndarray,
        seeds: np.ndarray,
        metrics: Mapping[str, np.ndarray],
        lag_counts: np.ndarray | None,
        status: np.ndarray,
    ) -> None:
        """Put the values of some cells at some seeds in: what is kept of them."""
        at = _place(cells, seeds)
        for name, values in self.metrics.items():
            values[at] = metrics[name] if name in metrics else _absent(name, values, status)
        if self.lag_counts is not None and lag_counts is not None:
            self.lag_counts, bins = with_room(self.lag_counts, lag_counts), lag_counts.shape[-1]
            self.lag_counts[..., :bins][at] = lag_counts
            self.lag_counts[..., bins:][at] = 0
        self.status[at] = status


def _absent(name: str, values: np.ndarray, status: np.ndarray) -> np.ndarray:
    absent = not_reported(name, values.dtype, status)
    return absent.reshape(*status.shape, *(1,) * (values.ndim - 2))  # of windows: the same in each


def _place(cells: np.ndarray, seeds: np.ndarray) -> Any:
    """Index cells × seeds: by slices where both are runs of neighbours, which is several times faster."""
    spans = [slice(int(some[0]), int(some[-1]) + 1) for some in (cells, seeds)]
    neighbours = all(span.stop - span.start == len(some) for span, some in zip(spans, (cells, seeds)))
    return tuple(spans) if neighbours else np.ix_(cells, seeds)


def _smallest_kind(largest: int) -> np.dtype:
    """Return the smallest integers that hold counts up to one; int64 beyond 32 bits, as in the dataset."""
    return np.dtype(np.uint16 if largest < 2**16 else np.uint32 if largest < 2**32 else np.int64)


def with_room(held: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return counts by lag with room for others: as they are, or with more bins or larger integers."""
    kind = np.promote_types(held.dtype, _smallest_kind(int(more.max(initial=0))))
    bins = max(held.shape[-1], more.shape[-1])
    if kind == held.dtype and bins == held.shape[-1]:
        return held
    roomy = np.zeros((*held.shape[:-1], bins), kind)
    roomy[..., : held.shape[-1]] = held
    return roomy


def empty_arrays(part: Part, cells: int, seeds: int) -> UnitArrays:
    """Make arrays for some runs of a part in which nothing is done: -1, NaN, status 0."""
    return UnitArrays(
        metrics={
            metric.name: np.full(
                (cells, seeds, *part.tail_of(metric.name)), fill_value(metric.dtype), metric.dtype
            )
            for metric in part.variables
        },
        lag_counts=np.zeros((cells, seeds, 0), np.uint16) if part.keep_lag_counts else None,
        status=np.zeros((cells, seeds), np.uint8),
    )


def new_arrays(part: Part) -> UnitArrays:
    """Make the arrays of a whole part."""
    return empty_arrays(part, part.design.size, len(part.seeds))


def all_lag_bins(counts: np.ndarray) -> np.ndarray:
    """Return counts by lag with all bins of a run, int64, whatever they were held in.

    Examples
    --------
    >>> all_lag_bins(np.array([[3, 1]], np.uint16)).shape
    (1, 65)
    """
    whole = np.zeros((*counts.shape[:-1], LAG_BINS), np.int64)
    whole[..., : counts.shape[-1]] = counts
    return whole
