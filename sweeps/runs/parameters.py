"""From a configuration of any level to the general engine's parameters and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.pipeline import state as layout
from ..config.config import PipelineConfig
from ..config.rules import ticks

NO_CAP = 2**60
_PUBLICATIONS = {
    "background": layout.BACKGROUND,
    "drain": layout.DRAIN,
    "pause": layout.PAUSE,
    "abort": layout.ABORT,
}
_ORDERS = {
    "fifo": layout.FIFO,
    "started": layout.STARTED,
    "oldest_version": layout.OLDEST_VERSION,
    "freshest": layout.FRESHEST,
    "random": layout.RANDOM,
}
_CHECKS = {"update": layout.AT_UPDATE, "dequeue": layout.AT_DEQUEUE, "never": layout.NO_CHECK}
_DONE = {
    "published": layout.DONE_PUBLISHED,
    "popped": layout.DONE_POPPED,
    "trained": layout.DONE_TRAINED,
}
_NO_INTEGERS = np.zeros(1, np.int64)
_NO_REALS = np.ones(1, np.float64)
_NO_GUIDE = np.zeros(2, np.int64)


@dataclass(frozen=True)
class EngineParameters:
    """What a run of the engine reads and never writes, in the kernel's order."""

    whole: np.ndarray
    real: np.ndarray
    cdf: np.ndarray
    guide: np.ndarray
    work_rates: np.ndarray
    limits: np.ndarray
    environment: tuple[np.ndarray, np.ndarray, np.ndarray]
    trace: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    decile_edges: np.ndarray

    def tables(self) -> tuple[np.ndarray, ...]:
        """Give all tables in the kernel's order, all read-only: one kind of array, one compilation."""
        tables = (self.cdf, self.guide, self.work_rates, self.limits)
        return tuple(
            _read_only(table) for table in (*tables, *self.environment, *self.trace, self.decile_edges)
        )


def engine_parameters(
    config: PipelineConfig, *, batches: bool = False, timeline: bool = False, rollouts: bool = False
) -> EngineParameters:
    """Pack a configuration of any level for the general engine; the flags say which rows are recorded."""
    law = config.response_length
    environment = config.environment_seconds
    whole, real = _whole(config), _real(config)
    whole[layout.P_RECORD_BATCHES] = batches
    whole[layout.P_RECORD_TIMELINE] = timeline
    whole[layout.P_RECORD_ROLLOUTS] = rollouts
    return EngineParameters(
        whole=whole,
        real=real,
        cdf=law.cdf,
        guide=law.guide,
        work_rates=work_rates(config.decode_slowdown_per_rollout, config.rollout_workers),
        limits=_limits(config),
        environment=(_NO_REALS, _NO_GUIDE, _NO_INTEGERS)
        if environment is None
        else (environment.cdf, environment.guide, _ticks_of(environment.values_seconds)),
        trace=_trace(config),
        decile_edges=np.asarray(law.quantile(np.arange(1, 10) / 10), np.int64),
    )


def work_rates(slowdown: float, slots: int) -> np.ndarray:
    """Tabulate what one tick adds to the work clock with 0…slots rollouts decoding.

    ``max(1, floor(2**24 / (1 + g * (n - 1)) + 0.5))`` units of 2**-24 of a tick, or one tick where nothing
    slows down.

    Examples
    --------
    >>> work_rates(1.0, 3).tolist()
    [16777216, 16777216, 8388608, 5592405]
    """
    if slowdown == 0.0:
        return np.ones(slots + 1, np.int64)
    others = np.maximum(np.arange(slots + 1, dtype=np.float64) - 1.0, 0.0)
    rates = np.floor(layout.FULL_RATE / (1.0 + slowdown * others) + 0.5)
    return np.maximum(rates, 1.0).astype(np.int64)


def _whole(config: PipelineConfig) -> np.ndarray:
    law = config.response_length
    slots = config.rollout_workers
    sequential = config.mode == "sequential"
    # In `sequential` nothing is in flight when a version is published, and the trainer waits for it anyway.
    publication = "background" if sequential else config.publication
    slow_rate = int(np.floor(layout.FULL_RATE / (1.0 + config.train_slowdown_when_generating) + 0.5))
    slows_down = config.decode_slowdown_per_rollout > 0
    stops = publication in ("pause", "abort")
    whole = np.zeros(layout.P_COUNT, np.int64)
    whole[layout.P_SEQUENTIAL] = sequential
    whole[layout.P_HORIZON] = ticks(config.duration_seconds)
    whole[layout.P_WARMUP] = ticks(config.warmup_seconds)
    whole[layout.P_STOP_AFTER_UPDATES] = config.stop_after_updates or 0
    whole[layout.P_SLOTS] = slots
    whole[layout.P_SLOT_BITS] = max(1, (slots - 1).bit_length())
    whole[layout.P_LEAVES] = 1 << whole[layout.P_SLOT_BITS]
    whole[layout.P_QUEUE_CAP] = NO_CAP if config.max_queue_tokens is None else config.max_queue_tokens
    whole[layout.P_RESERVE] = config.admission == "reserve"
    whole[layout.P_CAP_IS_OPEN] = config.max_queue_tokens is None or config.queue_overflow == "drop_oldest"
    whole[layout.P_MAX_QUEUE_GROUPS] = config.max_queue_groups or 0
    whole[layout.P_BATCH_TOKENS] = config.batch_tokens or 0
    whole[layout.P_BATCH_GROUPS] = config.batch_groups or 0
    whole[layout.P_MAX_LAG] = config.max_policy_lag
    whole[layout.P_SYNC_EVERY] = config.sync_every_updates
    whole[layout.P_SYNC_TICKS] = ticks(config.sync_seconds)
    whole[layout.P_LAW_MINIMUM] = law.minimum
    whole[layout.P_LAW_MAXIMUM] = law.maximum
    whole[layout.P_OVERHEAD_TICKS] = ticks(config.rollout_overhead_seconds)
    whole[layout.P_VIRTUAL_CLOCK] = slows_down or stops or slow_rate < layout.FULL_RATE
    whole[layout.P_WORK_UNIT] = layout.FULL_RATE if slows_down else 1
    whole[layout.P_SLOW_TRAIN_RATE] = slow_rate
    if law.paired_seconds is not None:
        whole[layout.P_ENVIRONMENT] = layout.ENVIRONMENT_PAIRED
    elif config.environment_seconds is not None:
        whole[layout.P_ENVIRONMENT] = layout.ENVIRONMENT_LAW
    whole[layout.P_PROMPT_TOKENS] = config.prompt_tokens
    whole[layout.P_PUBLICATION] = _PUBLICATIONS[publication]
    whole[layout.P_BLOCKS_TRAINER] = config.publication_blocks_trainer
    whole[layout.P_GROUP_SIZE] = config.group_size
    whole[layout.P_TRACE_GROUPS] = law.group_starts is not None and config.group_size > 1
    whole[layout.P_UPDATES_PER_BATCH] = config.updates_per_batch
    whole[layout.P_PREFETCH] = config.prefetch_batches
    whole[layout.P_MAX_RUNNING] = -1 if config.max_running_groups is None else config.max_running_groups
    whole[layout.P_ADMIT_BATCH] = config.admit == "batch"
    whole[layout.P_ONE_BATCH] = config.one_batch_at_a_time
    whole[layout.P_ORDER] = _ORDERS[config.queue_order]
    whole[layout.P_STALE_CHECK] = _CHECKS[config.stale_check]
    whole[layout.P_REQUEUE] = config.stale_action == "requeue"
    whole[layout.P_REDRAW] = config.redraw_on_requeue
    whole[layout.P_CANCEL] = config.cancel_in_flight
    return whole


def _real(config: PipelineConfig) -> np.ndarray:
    real = np.zeros(layout.PF_COUNT, np.float64)
    real[layout.PF_DECODE_RATE] = config.decode_tokens_per_second
    real[layout.PF_ROLLOUT_OVERHEAD] = config.rollout_overhead_seconds
    real[layout.PF_TRAIN_OVERHEAD] = config.train_overhead_seconds
    real[layout.PF_TRAIN_RATE] = config.train_tokens_per_second
    real[layout.PF_DRIFT] = config.drift_per_version
    real[layout.PF_DRIFT_EXPONENT] = config.drift_length_exponent
    real[layout.PF_MEAN_TOKENS] = config.response_length.mean_tokens
    real[layout.PF_PROMPT_SIGMA] = config.prompt_sigma
    real[layout.PF_FILTER] = config.filter_probability
    real[layout.PF_RESUME_SECONDS] = config.resume_seconds
    real[layout.PF_REPREFILL_RATE] = config.reprefill_tokens_per_second or 0.0
    return real


def _limits(config: PipelineConfig) -> np.ndarray:
    rows = [(limit.count == "finished", _DONE[limit.done], limit.groups) for limit in config.limits]
    return np.array(rows, np.int64).reshape(len(rows), layout.LIMIT_COLUMNS)


def _trace(config: PipelineConfig) -> tuple[Any, Any, Any, Any]:
    """Give tokens, ticks, group starts and group of each row of a trace; dummies where there is none."""
    law = config.response_length
    if law.paired_seconds is not None:
        return law.paired_tokens, _ticks_of(law.paired_seconds), _NO_GUIDE, _NO_INTEGERS
    if law.group_starts is not None:
        return law.group_tokens, _NO_INTEGERS, law.group_starts, law.group_of_row
    return _NO_INTEGERS, _NO_INTEGERS, _NO_GUIDE, _NO_INTEGERS


def _read_only(table: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(table).view()
    view.flags.writeable = False
    return view


def _ticks_of(seconds: np.ndarray) -> np.ndarray:
    return np.array([ticks(float(value)) for value in seconds], np.int64)
