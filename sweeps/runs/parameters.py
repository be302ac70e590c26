"""From a configuration to what a loop reads: its parameters, and the general loop's tables."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.batches import drift_by_lag_kernel
from ...kernels.pipeline.groups import decile_guide_of
from ...kernels.pipeline.metrics import LAG_BINS
from ...kernels.pipeline.records import FULL_RATE
from ...kernels.pipeline.ticks import ticks
from ..config.config import Limit, PipelineConfig
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw
from ..laws.seconds import SecondsLaw

NO_CAP = 2**60
_PUBLICATIONS = {
    "background": records.BACKGROUND,
    "drain": records.DRAIN,
    "pause": records.PAUSE,
    "abort": records.ABORT,
}
_ORDERS = {
    "fifo": records.FIFO,
    "started": records.STARTED,
    "oldest_version": records.OLDEST_VERSION,
    "freshest": records.FRESHEST,
    "random": records.RANDOM,
}
_CHECKS = {"update": records.AT_UPDATE, "dequeue": records.AT_DEQUEUE, "never": records.NO_CHECK}
_DONE = {
    "published": records.DONE_PUBLISHED,
    "popped": records.DONE_POPPED,
    "trained": records.DONE_TRAINED,
}
# What was packed last: units of a sweep side by side have the same configurations (which are frozen).
_packed_last: deque[tuple[tuple[PipelineConfig, ...], tuple[bool, bool, bool], np.ndarray]] = deque(maxlen=4)


def _read_only(table: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(table).view()
    view.flags.writeable = False
    return view


# The general loop's tables of laws, as functions give them one after another.
_OF_ENVIRONMENT = ("environment_cdf", "environment_guide", "environment_ticks")
_OF_TRACE = ("trace_tokens", "trace_ticks", "trace_group_starts", "trace_group_of_row")
_OF_DRIFT = ("drift_lags", "drift_values", "lag_spreads", "lag_inflations")
_OF_SEGMENTS = ("segments", "segment_cdf", "segment_guide", "segment_tokens", "segment_ticks")
_NO_INTEGERS = np.zeros(1, np.int64)
_NO_REALS = np.ones(1, np.float64)
_NO_GUIDE = np.zeros(2, np.int64)
_NO_DRIFT = (_read_only(np.zeros(0, records.DRIFT_LAG)), _read_only(np.zeros(0, np.float64)))


def pack(
    configs: Sequence[PipelineConfig],
    *,
    batches: bool = False,
    timeline: bool = False,
    rollouts: bool = False,
) -> np.ndarray:
    """Pack configurations into one PARAMETERS each, for either loop; the flags say which rows to record."""
    flags = batches, timeline, rollouts
    for known, said, packed in tuple(_packed_last):
        if said == flags and len(known) == len(configs) and all(map(operator.is_, known, configs)):
            return packed.copy()
    record = {"record_batches": batches, "record_timeline": timeline, "record_rollouts": rollouts}
    names = records.PARAMETERS.names or ()
    rows = (_rules(config) | _physics(config) | record for config in configs)
    packed = np.array([tuple(row[name] for name in names) for row in rows], records.PARAMETERS)
    _packed_last.append((tuple(configs), flags, packed.copy()))
    return packed


def _rules(config: PipelineConfig) -> dict[str, int | bool]:
    law = config.response_length
    sequential = config.mode == "sequential"
    # In `sequential` nothing is in flight when a version is published, and the trainer waits for it anyway:
    # the three styles that keep work out are one run, and a drain, with nothing to drain, is the plainest.
    publication = "drain" if sequential and config.publication != "background" else config.publication
    slow_rate = int(np.floor(FULL_RATE / (1.0 + config.train_slowdown_when_generating) + 0.5))
    slows_down = config.decode_slowdown_per_rollout > 0
    stops = publication in ("pause", "abort")
    takes_turns = not config.generation_while_training or config.evaluation_stops_generation
    # A failure may end a transfer early, after the ends of rollouts were moved by the whole of it.
    cut_short = stops and config.has_failures
    virtual = config.engine is not None or slows_down or takes_turns or cut_short or slow_rate < FULL_RATE
    slot_bits = max(1, (config.rollout_workers - 1).bit_length())
    return {
        "sequential": sequential,
        "horizon": ticks(config.duration_seconds),
        "warmup": ticks(config.warmup_seconds),
        "stop_after_updates": config.stop_after_updates or 0,
        "slots": config.rollout_workers,
        "slot_bits": slot_bits,
        "leaves": 1 << slot_bits,
        "queue_cap": NO_CAP if config.max_queue_tokens is None else config.max_queue_tokens,
        "reserve": config.admission == "reserve",
        "cap_is_open": config.max_queue_tokens is None or config.queue_overflow == "drop_oldest",
        "max_queue_groups": config.max_queue_groups or 0,
        "batch_tokens": config.batch_tokens or 0,
        "batch_groups": config.batch_groups or 0,
        "max_lag": config.max_policy_lag,
        "sync_every": config.sync_every_updates,
        "sync_ticks": ticks(config.sync_seconds),
        "law_minimum": law.minimum,
        "law_maximum": law.maximum,
        "overhead_ticks": ticks(config.rollout_overhead_seconds),
        "virtual_clock": virtual,
        "moves_ends": stops and not virtual,
        "work_unit": FULL_RATE if slows_down else 1,
        "slow_train_rate": slow_rate,
        "prompt_tokens": config.prompt_tokens,
        "publication": _PUBLICATIONS[publication],
        "blocks_trainer": config.publication_blocks_trainer,
        "group_size": config.group_size,
        "trace_groups": law.group_starts is not None and config.group_size > 1,
        "updates_per_batch": config.updates_per_batch,
        "prefetch": config.prefetch_batches,
        "max_running": -1 if config.max_running_groups is None else config.max_running_groups,
        "admit_batch": config.admit == "batch",
        "one_batch": config.one_batch_at_a_time,
        "order": _ORDERS[config.queue_order],
        "stale_check": _CHECKS[config.stale_check],
        "requeue": config.stale_action == "requeue",
        "redraw": config.redraw_on_requeue,
        "cancel": config.cancel_in_flight,
        "holds": config.queue_overflow == "hold",
        "fetch_ticks": ticks(config.fetch_seconds),
        "evaluation_every": config.evaluation_every_updates or 0,
        "evaluation_ticks": ticks(config.evaluation_seconds),
        "evaluation_stops": config.evaluation_stops_generation,
        "training_stops": not config.generation_while_training,
        "segments": len(law.segments),
        "engines": config.engine.count if config.engine else 0,
        "engine_leaves": 1 << (config.engine.count - 1).bit_length() if config.engine else 1,
        "failures": config.has_failures,
        "trainer_fails": config.trainer_mtbf_seconds is not None,
        "workers_fail": config.worker_mtbf_seconds is not None,
        "restart_ticks": ticks(config.restart_seconds),
        "checkpoint_every": config.checkpoint_every_updates or 0,
        "checkpoint_ticks": ticks(config.checkpoint_seconds),
        "saves_queue": saves_queue(config),
        "environment": _environment(config),
    }


def _physics(config: PipelineConfig) -> dict[str, float]:
    return {
        "decode_rate": config.decode_tokens_per_second,
        "rollout_overhead": config.rollout_overhead_seconds,
        "train_overhead": config.train_overhead_seconds,
        "train_rate": config.train_tokens_per_second,
        "drift": config.drift_per_version,
        "drift_exponent": config.drift_length_exponent,
        "mean_tokens": config.response_length.mean_tokens,
        "prompt_sigma": config.prompt_sigma,
        "filter": config.filter_probability,
        "resume_seconds": config.resume_seconds,
        "reprefill_rate": config.reprefill_tokens_per_second or 0.0,
        "train_spread": config.train_spread,
        "trainer_mtbf": config.trainer_mtbf_seconds or 0.0,
        "worker_mtbf": config.worker_mtbf_seconds or 0.0,
    }


def saves_queue(config: PipelineConfig) -> bool:
    """Tell whether a run keeps the queue of a checkpoint: one that a failure may go back to."""
    goes_back = config.trainer_mtbf_seconds is not None and config.checkpoint_every_updates is not None
    return goes_back and config.checkpoint_scope == "full"


def _environment(config: PipelineConfig) -> int:
    if config.response_length.paired_seconds is not None:
        return records.ENVIRONMENT_PAIRED
    return records.NO_ENVIRONMENT if config.environment_seconds is None else records.ENVIRONMENT_LAW


# All that the general loop's tables depend on: where it is equal, so are they.
read_by_tables: Callable[[PipelineConfig], tuple[Any, ...]] = attrgetter(
    "response_length",
    "environment_seconds",
    "decode_slowdown_per_rollout",
    "rollout_workers",
    "limits",
    "drift",
    "drift_per_version",
)


def general_tables(config: PipelineConfig) -> records.Tables:
    """Return the tables for the general loop, all read-only: one kind of array, one compilation."""
    return _tables_of(*read_by_tables(config))


def _tables_of(
    law: LengthLaw,
    environment: SecondsLaw | None,
    slowdown: float,
    slots: int,
    limits: Sequence[Limit],
    measured: DriftLaw | None,
    drift: float,
) -> records.Tables:
    of_drift = (*drift_tables(measured), *_drift_by_lag(drift))
    return records.Tables(
        work_rates=_read_only(work_rates(slowdown, slots)),
        limits=_read_only(_limits(limits)),
        **dict(zip(_OF_DRIFT, map(_read_only, of_drift))),
        **_tables_of_laws(law, environment),
    )


@lru_cache(maxsize=4)
def _tables_of_laws(law: LengthLaw, environment: SecondsLaw | None) -> dict[str, np.ndarray]:
    """Return the tables of the laws, read-only; those of the last ones are kept, for a sweep's cells."""
    tables = dict(zip(_OF_TRACE, _trace(law))) | dict(zip(_OF_SEGMENTS, segment_tables(law)))
    tables |= {"cdf": law.cdf, "guide": law.guide}
    quantiles = np.asarray(law.quantile(np.arange(1, 10) / 10), np.int64)
    tables["decile_edges"], tables["decile_guide"] = decile_guide_of(quantiles)
    of_environment = (_NO_REALS, _NO_GUIDE, _NO_INTEGERS)
    if environment is not None:
        of_environment = (environment.cdf, environment.guide, _ticks_of(environment.values_seconds))
    tables |= dict(zip(_OF_ENVIRONMENT, of_environment))
    return {name: _read_only(table) for name, table in tables.items()}


@lru_cache(maxsize=16)
def _drift_by_lag(drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate the drift of whole lags and what it does to the ESS, by the very functions of a loop."""
    spreads, inflations = np.empty(LAG_BINS), np.empty(LAG_BINS)
    drift_by_lag_kernel(drift, spreads, inflations)
    return spreads, inflations


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
    rates = np.floor(FULL_RATE / (1.0 + slowdown * others) + 0.5)
    return np.maximum(rates, 1.0).astype(np.int64)


def drift_tables(drift: DriftLaw | None) -> tuple[np.ndarray, np.ndarray]:
    """Return DRIFT_LAG[L] and the log weights of a measured drift, read-only; both empty without one."""
    if drift is None:
        return _NO_DRIFT
    table = drift.table
    rows = np.zeros(len(table.share), records.DRIFT_LAG)
    for name in records.DRIFT_LAG.names or ():
        rows[name] = getattr(table, name)
    return _read_only(rows), _read_only(table.values)


def _limits(limits: Sequence[Limit]) -> np.ndarray:
    rows = [(limit.count == "finished", _DONE[limit.done], limit.groups) for limit in limits]
    return np.array(rows, records.LIMIT)


def _trace(law: LengthLaw) -> tuple[Any, Any, Any, Any]:
    """Return tokens, ticks, group starts and group of each row of a trace; dummies where there is none."""
    if law.paired_seconds is not None:
        return law.paired_tokens, _ticks_of(law.paired_seconds), _NO_GUIDE, _NO_INTEGERS
    if law.group_starts is not None:
        return law.group_tokens, _NO_INTEGERS, law.group_starts, law.group_of_row
    return _NO_INTEGERS, _NO_INTEGERS, _NO_GUIDE, _NO_INTEGERS


def _ticks_of(seconds: np.ndarray) -> np.ndarray:
    return np.array([ticks(float(value)) for value in seconds], np.int64)


def segment_tables(law: LengthLaw) -> tuple[np.ndarray, ...]:
    """Put the tables and rows of a law by version one after another; empty for any other law."""
    rows, cdfs, guides, tokens, seconds = (
        [],
        [_NO_REALS[:0]],
        [_NO_GUIDE[:0]],
        [_NO_GUIDE[:0]],
        [_NO_GUIDE[:0]],
    )
    for version, part in law.segments:
        starts = [sum(map(len, arrays)) for arrays in (cdfs, guides, tokens)]
        cdfs.append(part.cdf)
        guides.append(part.guide)
        if part.paired_tokens is not None and part.paired_seconds is not None:
            tokens.append(part.paired_tokens)
            seconds.append(_ticks_of(part.paired_seconds))
        ends = [sum(map(len, arrays)) for arrays in (cdfs, guides, tokens)]
        places = [place for pair in zip(starts, ends) for place in pair]
        rows.append((version, part.minimum, part.maximum, *places, part.mean_tokens))
    joined = (np.concatenate(arrays) for arrays in (cdfs, guides, tokens, seconds))
    return np.array(rows, records.SEGMENT), *joined
