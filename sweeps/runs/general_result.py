"""What a run of the general engine reports, as named columns, metrics and distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.pipeline import state as layout
from ...kernels.pipeline.lean_layout import EVENT_NAMES
from ...kernels.pipeline.metrics import ENGINE_METRICS, METRICS, SLOT_CONSTRAINTS, TRAINER_CONSTRAINTS
from ..config.config import PipelineConfig
from .simulate import PipelineResult, truncated

if TYPE_CHECKING:
    from .general import EngineRun
    from .many import BatchResult

LAG_HISTOGRAMS = {
    ("training", "updates"): layout.H_TRAINING,
    ("start", "updates"): layout.H_START,
    ("dequeue", "updates"): layout.H_DEQUEUE,
    ("end", "updates"): layout.H_END,
    ("dequeue", "publications"): layout.H_DEQUEUE_SYNCS,
    ("training", "publications"): layout.H_TRAINING_SYNCS,
}


class EngineResult(PipelineResult):
    """What one run of the general engine reports: everything of a :class:`PipelineResult`."""

    def __init__(self, *arguments: Any, details: dict[str, Any]) -> None:
        super().__init__(*arguments)
        self.lags = details["lags"]
        self.slot_ticks = details["slot_ticks"]
        self.trainer_ticks = details["trainer_ticks"]
        self.length_deciles = details["length_deciles"]


def slot_constraint_names(config: PipelineConfig) -> list[str]:
    """Name what can bind the slots: the fixed causes, then each limit of the ledger.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import Limit
    >>> config = PipelineConfig(batch_tokens=None, batch_groups=4, limits=[Limit("started", "published", 8)])
    >>> slot_constraint_names(config)[-2:]
    ['sequential', 'limits.0: started < 4 * published + 8']
    """
    groups = config.batch_groups
    names = list(SLOT_CONSTRAINTS)
    for index, limit in enumerate(config.limits):
        done = f"{groups} * {limit.done}" if groups else "popped groups"
        names.append(f"limits.{index}: {limit.count} < {done} + {limit.groups}")
    return names


def engine_result(run: EngineRun) -> EngineResult:
    """Close a run that was advanced to its end and give what it reports."""
    metrics, slot_ticks, trainer_ticks = run.summary()
    metrics = {metric.name: metrics[metric.name] for metric in METRICS + ENGINE_METRICS}
    metrics["stalled"] = bool(metrics["stalled"])
    whole = run.parameters.whole
    columns = {}
    if whole[layout.P_RECORD_BATCHES]:
        columns["batches"] = _batch_columns(run) | _batch_extras(run)
    if whole[layout.P_RECORD_TIMELINE]:
        columns["timeline"] = _timeline_columns(run) | _timeline_extras(run)
    if whole[layout.P_RECORD_ROLLOUTS]:
        columns["rollouts"] = _rollout_columns(run, missing=None) | _rollout_extras(run)
    details = {
        "lags": _lags(run.histograms, metrics["trained_rollouts"]),
        "slot_ticks": dict(zip(slot_constraint_names(run.config), map(int, slot_ticks))),
        "trainer_ticks": dict(zip(TRAINER_CONSTRAINTS, map(int, trainer_ticks))),
        "length_deciles": {
            "trained": run.histograms[layout.H_TRAINED_DECILES, :10].copy(),
            "dropped": run.histograms[layout.H_DROPPED_DECILES, :10].copy(),
            "cancelled": run.histograms[layout.H_CANCELLED_DECILES, :10].copy(),
        },
    }
    config = run.config if run.config.seed == int(run.seed) else run.config.replace(seed=int(run.seed))
    return EngineResult(config, metrics, run.histograms[layout.H_TRAINING].copy(), columns, details=details)


def _lags(histograms: np.ndarray, trained: int) -> dict[tuple[str, str], np.ndarray]:
    lags = {key: histograms[row].copy() for key, row in LAG_HISTOGRAMS.items()}
    # A rollout starts with the newest published weights.
    lags["start", "publications"] = np.zeros_like(histograms[0])
    lags["start", "publications"][0] = trained
    return lags


def _batch_columns(run: EngineRun) -> dict[str, np.ndarray]:
    count = run.state[layout.S_BATCH_ROWS]
    rows, floats = run.batch_rows[:count], run.batch_floats[:count]
    return {
        "update": rows[:, layout.B_UPDATE].copy(),
        "start": rows[:, layout.B_START] / 1e6,
        "end": rows[:, layout.B_END] / 1e6,
        "tokens": rows[:, layout.B_TOKENS].copy(),
        "rollouts": rows[:, layout.B_ROLLOUTS].copy(),
        "mean_lag": rows[:, layout.B_LAG_SUM] / np.maximum(rows[:, layout.B_ROLLOUTS], 1),
        "max_lag": rows[:, layout.B_MAX_LAG].copy(),
        "normalized_ess": floats[:, layout.BF_ESS].copy(),
        "expected_normalized_ess": floats[:, layout.BF_EXPECTED_ESS].copy(),
        "measured": rows[:, layout.B_END] > run.parameters.whole[layout.P_WARMUP],
    }


def _batch_extras(run: EngineRun) -> dict[str, np.ndarray]:
    rows = run.batch_rows[: run.state[layout.S_BATCH_ROWS]]
    mean = rows[:, layout.B_DEQUEUE_LAG_SUM] / np.maximum(rows[:, layout.B_ROLLOUTS], 1)
    return {"groups": rows[:, layout.B_GROUPS].copy(), "mean_dequeue_lag": mean}


def _timeline_columns(run: EngineRun) -> dict[str, np.ndarray]:
    rows = run.timeline_rows[: run.state[layout.S_TIMELINE_ROWS]]
    return {
        "time": rows[:, layout.T_TIME] / 1e6,
        "queue_tokens": rows[:, layout.T_QUEUE_TOKENS].copy(),
        "in_flight": rows[:, layout.T_IN_FLIGHT].copy(),
        "version": rows[:, layout.T_VERSION].copy(),
        "published": rows[:, layout.T_PUBLISHED].copy(),
        "event": np.array(EVENT_NAMES)[rows[:, layout.T_EVENT]],
    }


def _timeline_extras(run: EngineRun) -> dict[str, np.ndarray]:
    rows = run.timeline_rows[: run.state[layout.S_TIMELINE_ROWS]]
    return {
        "queue_groups": rows[:, layout.T_QUEUE_GROUPS].copy(),
        "running_groups": rows[:, layout.T_RUNNING_GROUPS].copy(),
        "slots_bound_by": np.array(slot_constraint_names(run.config))[rows[:, layout.T_IDLE_CAUSE]],
        "trainer_bound_by": np.array(TRAINER_CONSTRAINTS)[rows[:, layout.T_TRAINER_CAUSE]],
    }


def _rollout_columns(run: EngineRun, *, missing: Any) -> dict[str, np.ndarray]:
    """Name the columns of the rollouts; where there is no end or lag stands None, or NaN and -1."""
    rows = run.rollout_rows[: run.state[layout.S_NEXT_ROW]]
    law = run.config.response_length
    lags: np.ndarray = rows[:, layout.O_LAG].copy()
    ends: np.ndarray = np.where(rows[:, layout.O_END] >= 0, rows[:, layout.O_END] / 1e6, np.nan)
    if missing is None:
        lags, ends = _with_none(lags, lags < 0), _with_none(ends, np.isnan(ends))
    return {
        "number": rows[:, layout.O_NUMBER].copy(),
        "tokens": rows[:, layout.O_TOKENS].copy(),
        "behaviour_version": rows[:, layout.O_VERSION].copy(),
        "start": rows[:, layout.O_START] / 1e6,
        "end": ends,
        "lag": lags,
        "outcome": np.array(layout.OUTCOME_NAMES)[rows[:, layout.O_OUTCOME]],
        "truncated": truncated(rows[:, layout.O_TOKENS], law.maximum, law.cut_at_maximum),
    }


def _rollout_extras(run: EngineRun) -> dict[str, np.ndarray]:
    rows = run.rollout_rows[: run.state[layout.S_NEXT_ROW]]
    ready, last = rows[:, layout.O_READY], rows[:, layout.O_END_VERSION]
    return {
        "group": rows[:, layout.O_GROUP].copy(),
        "member": rows[:, layout.O_MEMBER].copy(),
        "end_version": _with_none(last.copy(), last < 0),
        "group_ready": _with_none(ready / 1e6, ready < 0),
    }


def _with_none(values: np.ndarray, absent: np.ndarray) -> np.ndarray:
    shown = values.astype(object)
    shown[absent] = None
    return shown


def recorded_tables(
    run: EngineRun, config: int, seed_index: int, tables: dict[str, list[dict[str, np.ndarray]]]
) -> None:
    """Append the rows of a run that just ended, with the columns that every level has."""
    whole = run.parameters.whole
    for name, wanted, columns in (
        ("batches", whole[layout.P_RECORD_BATCHES], _batch_columns),
        ("timeline", whole[layout.P_RECORD_TIMELINE], _timeline_columns),
        ("rollouts", whole[layout.P_RECORD_ROLLOUTS], lambda run: _rollout_columns(run, missing=-1)),
    ):
        if wanted:
            rows = columns(run)
            count = len(next(iter(rows.values())))
            labels = {
                "config": np.full(count, config, np.int64),
                "seed_index": np.full(count, seed_index, np.int64),
            }
            tables[name].append(labels | rows)


def joined_tables(tables: dict[str, list[dict[str, np.ndarray]]], result: BatchResult) -> None:
    """Put the rows of all runs under one another, ordered by configuration, then seed."""
    for name, parts in tables.items():
        if parts:
            joined = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
            setattr(result, name, joined)
