"""Many configurations at many seeds, in the calling thread: the body of one work unit of a sweep.

The kernels release the GIL and come back at least every half second, so a pool of threads can run several
units at once and a cancellation is seen soon. Results depend on (configuration, seed) alone, never on how
the work was cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.errors import LagsweepError
from ...kernels.pipeline.metrics import FLOAT_METRICS, INTEGER_METRICS, LAG_BINS
from ..config.config import PipelineConfig
from .status import DONE

if TYPE_CHECKING:
    from .lean import Cells


class Cancelled(LagsweepError):
    """The caller asked a running batch to stop; nothing of it counts."""


@dataclass(frozen=True)
class Record:
    """Which tables a batch keeps beside the metrics."""

    batches: bool = False
    timeline: bool = False
    rollouts: bool = False

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
    lag_counts : ndarray of int64, (configurations, seeds, 65)
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


def empty_result(configs: int, seeds: int) -> BatchResult:
    """Make a result with nothing done: zeros, NaN, status 0."""
    metrics: dict[str, np.ndarray] = {
        metric.name: np.zeros((configs, seeds), metric.dtype) for metric in INTEGER_METRICS
    }
    metrics |= {metric.name: np.full((configs, seeds), np.nan) for metric in FLOAT_METRICS}
    return BatchResult(
        metrics, np.zeros((configs, seeds, LAG_BINS), np.int64), np.zeros((configs, seeds), np.uint8)
    )


def simulate_batch(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    *,
    record: Record = RECORD_NOTHING,
    cancel: threading.Event | None = None,
    on_progress: Callable[[int], None] | None = None,
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
    seeds = np.asarray(seeds, np.uint64)
    result = empty_result(len(configs), len(seeds))
    level_1: dict[str, list[int]] = {}
    general: list[int] = []
    for index, config in enumerate(configs):
        if config.is_level_1:
            level_1.setdefault(config.response_length.digest, []).append(index)
        else:
            general.append(index)
    finished = _Progress(cancel, on_progress)
    tables: dict[str, list[dict[str, np.ndarray]]] = {"batches": [], "timeline": [], "rollouts": []}
    for members in level_1.values():
        _run_level_1(configs, members, seeds, record, result, tables, finished)
    if general:
        _run_general(configs, general, seeds, record, result, tables, finished)
    for name, parts in tables.items():
        setattr(result, name, _joined(parts, len(seeds)))
    return result


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


def _run_level_1(
    configs: Sequence[PipelineConfig],
    members: list[int],
    seeds: np.ndarray,
    record: Record,
    result: BatchResult,
    tables: dict[str, list[dict[str, np.ndarray]]],
    finished: _Progress,
) -> None:
    from .lean import Cells

    flags = {"batches": record.batches, "timeline": record.timeline, "rollouts": record.rollouts}
    cells = Cells([configs[index] for index in members], record=flags)
    rows = np.array(members)
    for seed_index, seed in enumerate(seeds):
        cells.begin(int(seed))
        taken = 0
        done = False
        while not done:
            finished.check()
            done = cells.step()
            now = int(cells.progress[0])
            if record.anything and now > taken:
                _take_tables(cells, configs[members[taken]], members[taken], seed_index, record, tables)
            finished.add(now - taken)
            taken = now
        for column, metric in enumerate(INTEGER_METRICS):
            result.metrics[metric.name][rows, seed_index] = cells.integers[:, column]
        for column, metric in enumerate(FLOAT_METRICS):
            result.metrics[metric.name][rows, seed_index] = cells.floats[:, column]
        result.lag_counts[rows, seed_index] = cells.lag_counts
        result.status[rows, seed_index] = DONE


def _take_tables(
    cells: Cells,
    config: PipelineConfig,
    config_index: int,
    seed_index: int,
    record: Record,
    tables: dict[str, list[dict[str, np.ndarray]]],
) -> None:
    """Copy the rows of the run that just ended."""
    from ...kernels.pipeline import lean_layout as layout
    from ..config.rules import ticks
    from .simulate import batch_columns, timeline_columns, trained_lags, truncated

    workspace, state = cells.workspace, cells.workspace.state
    if record.batches:
        count = state[layout.S_BATCH_ROWS]
        columns = batch_columns(
            workspace.batch_rows[:count], workspace.batch_floats[:count], ticks(config.warmup_seconds)
        )
        tables["batches"].append(_labelled(columns, config_index, seed_index))
    if record.timeline:
        columns = timeline_columns(workspace.timeline_rows[: state[layout.S_TIMELINE_ROWS]])
        tables["timeline"].append(_labelled(columns, config_index, seed_index))
    if record.rollouts:
        rows = workspace.rollout_rows[: state[layout.S_NEXT_ROLLOUT]].copy()
        law = config.response_length
        ends = rows[:, layout.O_END]
        columns = {
            "number": np.arange(len(rows)),
            "tokens": rows[:, layout.O_TOKENS],
            "behaviour_version": rows[:, layout.O_VERSION],
            "start": rows[:, layout.O_START] / 1e6,
            "end": np.where(ends >= 0, ends / 1e6, np.nan),
            "lag": trained_lags(rows),
            "outcome": np.array(layout.OUTCOME_NAMES)[rows[:, layout.O_OUTCOME]],
            "truncated": truncated(rows[:, layout.O_TOKENS], law.maximum, law.cut_at_maximum),
        }
        tables["rollouts"].append(_labelled(columns, config_index, seed_index))


def _labelled(columns: dict[str, np.ndarray], config: int, seed_index: int) -> dict[str, np.ndarray]:
    count = len(next(iter(columns.values())))
    labels = {"config": np.full(count, config, np.int64), "seed_index": np.full(count, seed_index, np.int64)}
    return labels | columns


def _joined(parts: list[dict[str, np.ndarray]], seeds: int) -> dict[str, np.ndarray]:
    """Put the rows of all runs under one another, ordered by configuration, then seed."""
    if not parts:
        return {}
    order = sorted(range(len(parts)), key=lambda k: _first_label(parts[k], seeds))
    return {name: np.concatenate([parts[k][name] for k in order]) for name in parts[0]}


def _first_label(part: dict[str, np.ndarray], seeds: int) -> int:
    return int(part["config"][0]) * seeds + int(part["seed_index"][0]) if len(part["config"]) else -1


def _run_general(
    configs: Sequence[PipelineConfig],
    members: list[int],
    seeds: np.ndarray,
    record: Record,
    result: BatchResult,
    tables: dict[str, list[dict[str, np.ndarray]]],
    finished: _Progress,
) -> None:
    """Run configurations of levels 2 and 3 with the general engine."""
    from .general import engine_batch

    before = finished.runs

    def progress(runs: int) -> None:
        finished.add(before + runs - finished.runs)

    part = engine_batch(
        [configs[index] for index in members],
        seeds,
        record=record,
        cancel=finished._cancel,
        on_progress=progress,
    )
    rows = np.array(members)
    for name, values in part.metrics.items():
        if name not in result.metrics:
            fill = np.nan if values.dtype.kind == "f" else -1
            result.metrics[name] = np.full((len(configs), len(seeds)), fill, values.dtype)
        result.metrics[name][rows] = values
    result.lag_counts[rows] = part.lag_counts
    result.status[rows] = part.status
    result.reasons |= {(members[i], j): why for (i, j), why in part.reasons.items()}
    for name, parts in tables.items():
        columns = getattr(part, name)
        if columns:
            # One part a run, so that they can be put in order among those of level 1.
            whose = np.stack([columns["config"], columns["seed_index"]])
            starts = np.flatnonzero(np.any(np.diff(whose, prepend=-1) != 0, axis=0))
            labelled = columns | {"config": rows[columns["config"]]}
            for first, last in zip(starts, [*starts[1:], len(columns["config"])]):
                parts.append({column: values[first:last] for column, values in labelled.items()})
