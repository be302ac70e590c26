"""Runs of the general engine (levels 1 to 3): one run in full detail, or many for their metrics.

The arrays of an :class:`EngineRun` are the whole state of a run: it can stop anywhere, be saved, and go on
bit for bit. They grow only when the kernel asks, so memory follows what is live, not the length of the run
(recorded rows apart). Each call of the kernel comes back after a bounded amount of work, well under half a
second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.pipeline import state as layout
from ...kernels.pipeline.general import _advance_engine_kernel, _reset_engine_kernel
from ...kernels.pipeline.metrics import ENGINE_METRICS
from ...kernels.pipeline.summary import engine_metrics
from ..config.config import PipelineConfig
from ..config.rules import ticks
from .parameters import engine_parameters

if TYPE_CHECKING:
    from .general_result import EngineResult
    from .many import BatchResult, Record

COST_BUDGET = 1_000_000  # events and scanned records: about a tenth of a second
LARGEST_LIVE_ROLLOUTS = 2**25  # about four gigabytes of records
_FIRST_RECORDS = 2**14  # rollouts to make room for at first, at most


class EngineRun:
    """One run of the general engine that can stop anywhere, be saved, and go on.

    Parameters
    ----------
    config : PipelineConfig
        Of any level.
    batches, timeline, rollouts : bool
        Which rows to record.

    Examples
    --------
    >>> run = EngineRun(PipelineConfig(publication="pause", duration_seconds=30))
    >>> run.advance(until_seconds=10)
    False
    >>> again = EngineRun.from_arrays(run.config, run.arrays())
    >>> run.advance(), again.advance()
    (True, True)
    >>> run.result().metrics == again.result().metrics
    True
    """

    _SAVED = (
        "state", "sums", "time_tree", "work_tree", "slots", "version_work", "groups", "group_factors",
        "members", "member_versions", "histograms", "slot_ticks", "trainer_ticks",
        "batch_rows", "batch_floats", "timeline_rows", "rollout_rows",
    )  # fmt: skip

    def __init__(
        self,
        config: PipelineConfig,
        *,
        batches: bool = False,
        timeline: bool = False,
        rollouts: bool = False,
    ) -> None:
        self.config = config
        self.parameters = engine_parameters(config, batches=batches, timeline=timeline, rollouts=rollouts)
        self._tables = self.parameters.tables()
        slots, size = config.rollout_workers, config.group_size
        leaves = int(self.parameters.whole[layout.P_LEAVES])
        records = 1 + max(4, min(2 * slots, _FIRST_RECORDS // size))
        self.state = np.zeros(layout.S_COUNT, np.int64)
        self.sums = np.zeros(layout.F_COUNT, np.float64)
        self.time_tree = np.full(2 * leaves, layout.NEVER, np.int64)
        self.work_tree = np.full(2 * leaves, layout.NEVER, np.int64)
        self.slots = np.zeros((slots, layout.L_COUNT), np.int64)
        self.version_work = np.zeros(slots, np.float64)
        self.groups = np.zeros((records, layout.G_COUNT), np.int64)
        self.group_factors = np.zeros(records, np.float64)
        self.members = np.zeros((records * size, layout.M_COUNT), np.int64)
        self.member_versions = np.zeros(records * size, np.float64)
        self.histograms = np.zeros((layout.H_COUNT, layout.H_BINS), np.int64)
        self.slot_ticks = np.zeros(layout.C_FIRST_LIMIT + len(config.limits), np.int64)
        self.trainer_ticks = np.zeros(layout.T_CAUSES, np.int64)
        self.batch_rows = np.zeros((64 * batches, layout.B_COUNT), np.int64)
        self.batch_floats = np.zeros((64 * batches, layout.BF_COUNT), np.float64)
        self.timeline_rows = np.zeros((64 * timeline, layout.T_COUNT), np.int64)
        self.rollout_rows = np.zeros(((64 + slots) * rollouts, layout.O_COUNT), np.int64)
        self.begin(config.seed)

    def begin(self, seed: int) -> None:
        """Put the run at time 0 of a seed."""
        self.seed = np.uint64(seed)
        _reset_engine_kernel(
            self.parameters.whole,
            self.state,
            self.sums,
            self.time_tree,
            self.work_tree,
            self.slots,
            self.version_work,
            self.groups,
            self.histograms,
            self.slot_ticks,
            self.trainer_ticks,
        )
        self._chain_unused(1)
        self._make_scratch()

    def _chain_unused(self, first: int) -> None:
        """Put the records from `first` on in front of the unused ones."""
        groups, state = self.groups, self.state
        count = len(groups) - first
        groups[first:, layout.G_NEXT] = np.arange(first + 1, len(groups) + 1)
        groups[-1, layout.G_NEXT] = state[layout.S_FREE_HEAD]
        state[layout.S_FREE_HEAD] = first
        state[layout.S_FREE] += count

    def _make_scratch(self) -> None:
        self._log_weights = np.zeros(len(self.members), np.float64)
        self._picks = np.zeros(len(self.groups), np.int64)

    def step(self, until_ticks: int = layout.NEVER, budget: int = COST_BUDGET) -> bool:
        """Call the kernel once; tell whether every event up to the time has happened.

        Raises
        ------
        ConfigError
            If more rollouts would have to be kept at once than memory allows.
        """
        status = _advance_engine_kernel(
            self.parameters.whole,
            self.parameters.real,
            self.seed,
            np.int64(until_ticks),
            np.int64(budget),
            *self._tables,
            self.state,
            self.sums,
            self.time_tree,
            self.work_tree,
            self.slots,
            self.version_work,
            self.groups,
            self.group_factors,
            self.members,
            self.member_versions,
            self._log_weights,
            self._picks,
            self.histograms,
            self.slot_ticks,
            self.trainer_ticks,
            self.batch_rows,
            self.batch_floats,
            self.timeline_rows,
            self.rollout_rows,
        )
        if status == layout.GROW_GROUPS:
            self._grow_groups()
        elif status == layout.GROW_BATCHES:
            self.batch_rows = _enlarged(self.batch_rows, 2 * len(self.batch_rows))
            self.batch_floats = _enlarged(self.batch_floats, len(self.batch_rows))
        elif status == layout.GROW_TIMELINE:
            self.timeline_rows = _enlarged(self.timeline_rows, 2 * len(self.timeline_rows))
        elif status == layout.GROW_ROLLOUTS:
            self.rollout_rows = _enlarged(self.rollout_rows, 2 * len(self.rollout_rows))
        return bool(status == layout.REACHED)

    def _grow_groups(self) -> None:
        size = self.config.group_size
        first = len(self.groups)
        records = max(2 * first, first + int(self.state[layout.S_NEEDED]))
        if records * size > LARGEST_LIVE_ROLLOUTS:
            raise ConfigError(
                "max_queue_tokens",
                f"must keep fewer than {LARGEST_LIVE_ROLLOUTS} rollouts queued and running at once",
                self.config.max_queue_tokens,
                "Lower the cap, max_running_groups, batch_groups or the limits.",
            )
        self.groups = _enlarged(self.groups, records)
        self.group_factors = _enlarged(self.group_factors, records)
        self.members = _enlarged(self.members, records * size)
        self.member_versions = _enlarged(self.member_versions, records * size)
        self._chain_unused(first)
        self._make_scratch()

    def advance(self, until_seconds: float | None = None) -> bool:
        """Let every event up to a time happen (none: up to the end) and nothing else.

        Returns
        -------
        bool
            Whether the run has come to its end.
        """
        until = layout.NEVER if until_seconds is None else ticks(until_seconds)
        while not self.step(until):
            pass
        return self.is_over or until >= int(self.parameters.whole[layout.P_HORIZON])

    @property
    def is_over(self) -> bool:
        """Whether the run was ended by ``stop_after_updates``."""
        return bool(self.state[layout.S_ENDED])

    def arrays(self) -> dict[str, np.ndarray]:
        """Copy everything that the run needs to go on."""
        return {name: getattr(self, name).copy() for name in self._SAVED} | {"seed": np.array(self.seed)}

    @classmethod
    def from_arrays(cls, config: PipelineConfig, arrays: dict[str, np.ndarray]) -> EngineRun:
        """Take up a saved run of the same configuration where it stopped."""
        recorded = {
            name: len(arrays[f"{rows}_rows"]) > 0
            for name, rows in (("batches", "batch"), ("timeline", "timeline"), ("rollouts", "rollout"))
        }
        run = cls(config, **recorded)
        for name in cls._SAVED:
            setattr(run, name, np.array(arrays[name], order="C"))
        run.seed = np.uint64(arrays["seed"])
        run._make_scratch()
        return run

    def summary(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        """Close the sums as if the run went to its end without another event.

        Returns
        -------
        tuple
            Every metric by name, slot ticks by cause, trainer ticks by cause.
        """
        return engine_metrics(
            self.parameters.whole,
            self.parameters.real,
            self.state,
            self.sums,
            self.groups,
            self.slot_ticks,
            self.trainer_ticks,
        )

    def result(self) -> EngineResult:
        """Close a run that was advanced to its end and give what it reports."""
        from .general_result import engine_result

        return engine_result(self)


def _enlarged(rows: np.ndarray, count: int) -> np.ndarray:
    larger = np.zeros((count, *rows.shape[1:]), rows.dtype)
    larger[: len(rows)] = rows
    return larger


def engine_simulate(config: PipelineConfig, *, rollouts: bool = False) -> EngineResult:
    """Simulate one run of any level in full detail.

    Parameters
    ----------
    config : PipelineConfig
    rollouts : bool
        Also keep one row per rollout.

    Returns
    -------
    EngineResult

    Examples
    --------
    >>> result = engine_simulate(PipelineConfig(group_size=4, batch_groups=4, batch_tokens=None))
    >>> result.trained_rollouts == 16 * result.updates
    True
    """
    run = EngineRun(config, batches=True, timeline=True, rollouts=rollouts)
    run.advance()
    return run.result()


def engine_batch(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    *,
    record: Record | None = None,
    cancel: threading.Event | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> BatchResult:
    """Run configurations of any level at every seed with the general engine, in the calling thread.

    Parameters and result are those of :func:`.runs.many.simulate_batch`; `metrics` also holds
    the engine's own.

    Raises
    ------
    Cancelled
        If the caller asked to stop.
    """
    from .general_result import joined_tables, recorded_tables
    from .many import RECORD_NOTHING, Cancelled, empty_result
    from .status import DONE, FAILED

    record = record or RECORD_NOTHING
    seeds = np.asarray(seeds, np.uint64)
    result = empty_result(len(configs), len(seeds))
    for metric in ENGINE_METRICS:
        fill = np.nan if metric.dtype == "float64" else -1
        result.metrics[metric.name] = np.full((len(configs), len(seeds)), fill, metric.dtype)
    tables: dict[str, list[dict[str, np.ndarray]]] = {"batches": [], "timeline": [], "rollouts": []}
    done = 0
    for index, config in enumerate(configs):
        run = EngineRun(config, batches=record.batches, timeline=record.timeline, rollouts=record.rollouts)
        for seed_index, seed in enumerate(seeds):
            run.begin(int(seed))
            try:
                over = False
                while not over:
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("cancelled")
                    over = run.step()
            except ConfigError as error:
                result.status[index, seed_index] = FAILED
                result.reasons[index, seed_index] = str(error)
                run = EngineRun(
                    config, batches=record.batches, timeline=record.timeline, rollouts=record.rollouts
                )
            else:
                for name, value in run.summary()[0].items():
                    result.metrics[name][index, seed_index] = value
                result.lag_counts[index, seed_index] = run.histograms[layout.H_TRAINING]
                result.status[index, seed_index] = DONE
                recorded_tables(run, index, seed_index, tables)
            done += 1
            if on_progress is not None:
                on_progress(done)
    joined_tables(tables, result)
    return result
