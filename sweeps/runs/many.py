"""Many configurations at many seeds, in the calling thread: the body of one work unit of a sweep.

The kernels release the GIL and come back at least every half second, so a pool of threads can run several
units at once and a cancellation is seen soon. Results depend on (configuration, seed) alone, never on how
the work was cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from ...kernels.errors import LagsweepError
from ...kernels.pipeline.metrics import UNUSED_VALUES
from ..config.config import PipelineConfig
from .setups import Kept, Setup
from .status import DONE, FAILED
from .windows import NO_WINDOWS, Windows, window_values


class Cancelled(LagsweepError):
    """The caller asked a running batch to stop; nothing of it counts."""


class Cells(Protocol):
    """Some configurations at some seeds, run one after another or together.

    Runs are counted seed by seed: that of a configuration is number ``seed's place * configurations + its
    place``. `finished` runs have come to their ends; without recorded rows not always the first ones.
    """

    REPORT: np.dtype
    lag_bins: int
    finished: int
    reasons: dict[int, str]  # why runs failed, by their numbers

    def begin(self, seeds: np.ndarray, metrics: np.ndarray, lag_counts: np.ndarray) -> None:
        """Start over: `seeds` uint64[s], `metrics` REPORT[runs], `lag_counts` int64[runs, bins] to fill."""

    def step(self) -> None:
        """Go on for a bounded time."""

    def batch_rows(self) -> np.ndarray:
        """Return the recorded batches of the run that has just come to its end."""

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what the run that has just come to its end recorded."""

    def let_go(self) -> None:
        """Hold no longer what was given to be filled."""


CellsOf: TypeAlias = Callable[..., Cells]
NOT_RUN_INTEGER = -1  # what an integer metric holds where no run was done; `status` says so too


@dataclass(frozen=True)
class Record:
    """Which tables and windows a batch keeps beside the metrics."""

    batches: bool = False
    timeline: bool = False
    rollouts: bool = False
    windows: Windows = NO_WINDOWS

    @property
    def anything(self) -> bool:
        """Whether any table is kept."""
        return self.batches or self.timeline or self.rollouts


RECORD_NOTHING = Record()


@dataclass
class BatchResult:
    """Metrics of configurations × seeds, and the recorded tables.

    Attributes
    ----------
    metrics : dict of ndarray, each (configurations, seeds)
        Those that a run reports; of a failed run :func:`fill_value`.
    lag_counts : ndarray of int64, (configurations, seeds, bins)
        Bins 0 to the largest lag that the rules allow, at most the 65 of a run; 0 for a failed run.
    status : ndarray of uint8, (configurations, seeds)
        1 done, 2 failed.
    reasons : dict
        (configuration, seed index) -> why a run failed.
    batches, timeline, rollouts : dict of ndarray
        Flat columns; ``config`` and ``seed_index`` say whose row it is. Empty unless recorded.
    """

    metrics: dict[str, np.ndarray]
    lag_counts: np.ndarray
    status: np.ndarray
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    batches: dict[str, np.ndarray] = field(default_factory=dict)
    timeline: dict[str, np.ndarray] = field(default_factory=dict)
    rollouts: dict[str, np.ndarray] = field(default_factory=dict)


def fill_value(dtype: str) -> float | int:
    """Return what a metric of this type holds where no run was done."""
    return np.nan if np.dtype(dtype).kind == "f" else NOT_RUN_INTEGER


def not_reported(name: str, dtype: np.dtype, status: np.ndarray) -> np.ndarray:
    """Return a metric of runs that do not report it: what it is without its option, where a run was done.

    Parameters
    ----------
    name : str
    dtype : dtype
    status : ndarray of uint8

    Returns
    -------
    ndarray of `dtype`, shaped as `status`
    """
    fill = fill_value(dtype.str)
    return np.where(status == DONE, UNUSED_VALUES.get(name, fill), fill).astype(dtype)


def empty_result(configs: int, seeds: int) -> BatchResult:
    """Make a result with nothing done: no metrics, no lags, status 0."""
    return BatchResult({}, np.zeros((configs, seeds, 0), np.int64), np.zeros((configs, seeds), np.uint8))


def simulate_batch(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    *,
    record: Record = RECORD_NOTHING,
    cancel: threading.Event | None = None,
    on_progress: Callable[[int], None] | None = None,
    cells_of: CellsOf | None = None,
    kept: Kept | None = None,
) -> BatchResult:
    """Run every configuration at every seed (a configuration's own seed is not used).

    Parameters
    ----------
    configs : sequence of PipelineConfig
    seeds : ndarray of uint64
    record : Record
        Tables to keep, one row set per run.
    cancel : threading.Event, optional
        Looked at between kernel calls; when set, :class:`Cancelled` is raised.
    on_progress : callable, optional
        Told how many runs have been finished in this call.
    cells_of : callable, optional
        Makes what runs configurations with rules of the user's own, in place of our loops.
    kept : Kept, optional
        What this thread keeps from one call to the next, of the same configurations.

    Returns
    -------
    BatchResult

    Examples
    --------
    >>> base = PipelineConfig(duration_seconds=30)
    >>> result = simulate_batch([base, base.replace(max_policy_lag=0)], np.arange(3, dtype=np.uint64))
    >>> result.metrics["updates"].shape
    (2, 3)
    """
    progress = _Progress(cancel, on_progress)
    kept = kept or Kept()
    setup = kept.setup_of(configs, record, cells_of)
    result = _simulate(setup, seeds, progress)
    kept.keep(setup)
    return result


def general_batch(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    *,
    record: Record = RECORD_NOTHING,
    cancel: threading.Event | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> BatchResult:
    """Run configurations of any level as :func:`simulate_batch` does, all with the general loop."""
    return _simulate(Setup(configs, record, lean=False), seeds, _Progress(cancel, on_progress))


class _Progress:
    def __init__(self, cancel: threading.Event | None, on_progress: Callable[[int], None] | None) -> None:
        self._cancel, self._on_progress, self.runs = cancel, on_progress, 0

    def check(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise Cancelled("the run was asked to stop")

    def add(self, runs: int) -> None:
        self.runs += runs
        if self._on_progress is not None and runs:
            self._on_progress(self.runs)


def _simulate(setup: Setup, seeds: np.ndarray, progress: _Progress) -> BatchResult:
    seeds = np.asarray(seeds, np.uint64)
    record = setup.record
    result = empty_result(len(setup.configs), len(seeds))
    tables: dict[str, list[dict[str, np.ndarray]]] = {"batches": [], "timeline": [], "rollouts": []}
    for cells, members in setup.cells():
        _run_members(cells, members, setup.hidden, seeds, record, result, tables, progress)
    for names, places in setup.hidden_beside:
        for name in names & result.metrics.keys():
            values = result.metrics[name]
            values[places] = not_reported(name, values.dtype, result.status[places])
    for name, parts in tables.items():
        setattr(result, name, _joined(parts, len(seeds)))
    return result


def _run_members(
    cells: Cells,
    members: list[int],
    hidden: frozenset[str],
    seeds: np.ndarray,
    record: Record,
    result: BatchResult,
    tables: dict[str, list[dict[str, np.ndarray]]],
    progress: _Progress,
) -> None:
    count = len(members)
    found = np.zeros((len(seeds), count), cells.REPORT)
    lags = np.zeros((len(seeds), count, cells.lag_bins), np.int64)
    done = np.ones((count, len(seeds)), bool)
    cells.begin(seeds, found.reshape(-1), lags.reshape(-1, cells.lag_bins))
    taken = 0
    while taken < count * len(seeds):
        progress.check()
        cells.step()
        seed_index, place = divmod(taken, count)
        if cells.finished > taken and taken not in cells.reasons:
            if record.anything:
                for name, columns in cells.tables().items():
                    if getattr(record, name):
                        tables[name].append(_labelled(columns, members[place], seed_index))
            if record.windows.count:
                _note_windows(cells, record.windows, members[place], seed_index, result)
        progress.add(cells.finished - taken)
        taken = cells.finished
    for run, why in cells.reasons.items():
        seed_index, place = divmod(run, count)
        done[place, seed_index] = False
        lags[seed_index, place] = 0
        result.reasons[members[place], seed_index] = why
    cells.let_go()
    _put(result, members, _by_metric(found, hidden, done), lags.swapaxes(0, 1), np.where(done, DONE, FAILED))


def _by_metric(found: np.ndarray, hidden: frozenset[str], done: np.ndarray) -> dict[str, np.ndarray]:
    """Turn reports (seeds, configurations) into an array (configurations, seeds) for each metric."""
    kind = found.dtype
    names = kind.names or ()
    # Every field has eight bytes: all are turned in one pass, where a pass each would read all reports again.
    words = found.view(np.int64).reshape(*found.shape, len(names))
    planes = np.ascontiguousarray(words.transpose(2, 1, 0))
    metrics, all_done = {}, bool(done.all())
    for metric, plane in zip(names, planes):
        if metric not in hidden:
            metrics[metric] = plane.view(kind[metric])
            if not all_done:
                metrics[metric][~done] = fill_value(kind[metric].str)
    return metrics


def _put(
    result: BatchResult,
    members: list[int],
    metrics: dict[str, np.ndarray],
    lags: np.ndarray,
    status: np.ndarray,
) -> None:
    """Put what some configurations gave into the result of all; where they are all, as it is."""
    shape = result.status.shape
    if len(members) == shape[0]:
        result.metrics |= metrics
        result.lag_counts, result.status = lags, status.astype(np.uint8)
        return
    for metric, values in metrics.items():
        if metric not in result.metrics:
            result.metrics[metric] = np.full(shape, fill_value(values.dtype.str), values.dtype)
        result.metrics[metric][members] = values
    if lags.shape[-1] > result.lag_counts.shape[-1]:
        missing = lags.shape[-1] - result.lag_counts.shape[-1]
        result.lag_counts = np.pad(result.lag_counts, ((0, 0), (0, 0), (0, missing)))
    result.lag_counts[members, :, : lags.shape[-1]] = lags
    result.status[members] = status


def _note_windows(cells: Cells, windows: Windows, config: int, seed_index: int, result: BatchResult) -> None:
    for name, values in window_values(cells.batch_rows(), windows).items():
        if name not in result.metrics:
            nothing = np.nan if values.dtype.kind == "f" else -1
            result.metrics[name] = np.full((*result.status.shape, windows.count), nothing, values.dtype)
        result.metrics[name][config, seed_index] = values


def _labelled(columns: dict[str, np.ndarray], config: int, seed_index: int) -> dict[str, np.ndarray]:
    count = len(next(iter(columns.values())))
    labels = {"config": np.full(count, config, np.int32), "seed_index": np.full(count, seed_index, np.int32)}
    return labels | columns


def _joined(parts: list[dict[str, np.ndarray]], seeds: int) -> dict[str, np.ndarray]:
    """Put the rows of all runs under one another, ordered by configuration, then seed."""
    if len(parts) < 2:  # a single long run is not copied
        return parts[0] if parts else {}
    order = sorted(range(len(parts)), key=lambda k: _first_label(parts[k], seeds))
    return {name: np.concatenate([parts[k][name] for k in order]) for name in parts[0]}


def _first_label(part: dict[str, np.ndarray], seeds: int) -> int:
    return int(part["config"][0]) * seeds + int(part["seed_index"][0]) if len(part["config"]) else -1
