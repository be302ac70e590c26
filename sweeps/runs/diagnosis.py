"""Reading a run: why it came to a halt, what bound it when, what bounds it at best, which lengths it lost.

A configuration may stall (nothing can happen any more) or starve (rollouts go on, but no batch comes
together). Both happen in real systems and are legal; :func:`explain_stall` names the two settings in
conflict and the time of the last progress.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...kernels._arguments import instance, real_numbers
from ...kernels.errors import ConfigError, many
from ...kernels.pipeline.ticks import ticks
from ..config.config import PipelineConfig
from ..laws.lengths import LengthLaw
from .engine_remarks import engine_remarks
from .result import PipelineResult, Row

if TYPE_CHECKING:
    import polars


PROGRESSING, STALLED, STARVED = "progressing", "stalled", "starved"


def progress_status(config: PipelineConfig, result: PipelineResult) -> str:
    """Tell whether a run made progress to its end.

    Returns
    -------
    str
        ``"stalled"``: nothing was in flight and nothing under way. ``"starved"``: at the end the trainer
        was idle, and no update had come for half of the run or longer. Else ``"progressing"``.
    """
    if result.stalled:
        return STALLED
    idle_trainer = result.in_training_tokens == 0
    since = result.seconds_since_last_update
    if idle_trainer and since * 2 >= config.duration_seconds and config.stop_after_updates is None:
        return STARVED
    return PROGRESSING


def explain_stall(config: PipelineConfig, result: PipelineResult) -> str:
    """Say in one sentence why a run stalled or starved; empty when it made progress to its end.

    Parameters
    ----------
    config : PipelineConfig
    result : PipelineResult
        Of that configuration, run with its timeline (as :func:`.runs.simulate.simulate_pipeline`
        does).

    Returns
    -------
    str
        The status, the time of the last progress and the settings in conflict.

    Examples
    --------
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> config = PipelineConfig(max_queue_tokens=1000, batch_tokens=9000)
    >>> print(explain_stall(config, simulate_pipeline(config)))  # doctest: +NORMALIZE_WHITESPACE
    stalled, last progress at 16.1 s: max_queue_tokens (1000) closes admission before the queue holds
    batch_tokens (9000).
    """
    instance("config", config, PipelineConfig, "Give the configuration of the run.")
    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    status = progress_status(config, result)
    if status == PROGRESSING:
        return ""
    rows = result.timeline
    last = rows[-1] if rows else None
    seconds = last["time"] if last else 0.0
    return f"{status}, last progress at {seconds:g} s: {_conflict(config, result)}."


def failure_remark(config: PipelineConfig, metrics: Mapping[str, Any]) -> str:
    """Say what failures and checkpoints took of a run; empty where there are none, or none came.

    Examples
    --------
    >>> failure_remark(PipelineConfig(), {"updates": 3})
    ''
    """
    if not config.has_failures:
        return ""
    updates, lost = metrics["updates"], metrics["lost_updates"]
    if updates and lost == updates:
        every = config.checkpoint_every_updates
        saved = "nothing is saved" if every is None else f"saved is every {every} updates"
        return f"every update was lost in a failure: {saved}; set checkpoint_every_updates below what fits"
    if not lost:
        return ""
    share = lost / updates
    return (
        f"{lost:,} of {updates:,} updates were lost in failures ({share:.1%}): tokens/s and goodput leave "
        "them out, seconds_per_update counts them"
    )


def _batch(config: PipelineConfig) -> str:
    if config.batch_groups is not None:
        return f"batch_groups ({config.batch_groups})"
    return f"batch_tokens ({config.batch_tokens})"


def _conflict(config: PipelineConfig, result: PipelineResult) -> str:
    """Name the two settings that keep the run from a batch, the surest finding first."""
    batch = _batch(config)
    groups = config.batch_groups or 1
    last = result.timeline[-1]
    down = result.metrics.get("trainer_restart_seconds", 0.0)
    if 2 * down >= config.duration_seconds - config.warmup_seconds:
        return (
            f"restart_seconds ({config.restart_seconds:g}) keeps the trainer down for {down:,.0f} s, with a "
            f"failure every trainer_mtbf_seconds ({config.trainer_mtbf_seconds:g})"
        )
    if config.filter_probability == 1.0:
        return f"filter_probability (1) drops every group, so {batch} never comes together"
    if config.max_running_groups == 0:
        return f"max_running_groups (0) admits nothing, {batch} needs groups"
    if (
        config.admit == "batch"
        and config.max_running_groups is not None
        and config.max_running_groups < groups
    ):
        running = config.max_running_groups
        return f"max_running_groups ({running}) is below {batch}, which admit 'batch' admits at once"
    if config.max_queue_groups is not None and config.max_queue_groups < groups:
        does = "holds groups back" if config.queue_overflow == "hold" else "evicts groups"
        return f"max_queue_groups ({config.max_queue_groups}) {does} before the queue holds {batch}"
    if result.stalled and result.metrics.get("slots_held_seconds") and last["held_slots"]:
        cap = f"max_queue_groups ({config.max_queue_groups})"
        return f"{cap} lets groups keep {last['held_slots']} slots, and {batch} waits for groups behind them"
    if result.stalled:
        return _closed_admission(config, last, batch)
    never_late = config.stale_check != "never" or config.cancel_in_flight
    if never_late and config.sync_every_updates > config.max_policy_lag + config.updates_per_batch:
        return (
            f"sync_every_updates ({config.sync_every_updates}) publishes too seldom for max_policy_lag "
            f"({config.max_policy_lag}): every rollout is too old before the next version is published"
        )
    held_back = engine_remarks(config, result.metrics)
    return "; ".join([_waits(config, result, last, batch), *held_back[:1]])


def _closed_admission(config: PipelineConfig, last: Row, batch: str) -> str:
    bound_by = last.get("slots_bound_by", "token_cap")
    if bound_by == "token_cap":
        kind = " with admission 'reserve'" if config.admission == "reserve" else ""
        cap = f"max_queue_tokens ({config.max_queue_tokens}){kind}"
        return f"{cap} closes admission before the queue holds {batch}"
    if bound_by.startswith("limits."):
        name, rule = bound_by.split(": ", 1)
        return f"{name} ({rule}) closes admission before the queue holds {batch}"
    setting = {"max_running": "max_running_groups", "one_batch": "one_batch_at_a_time"}.get(
        bound_by, bound_by
    )
    return f"{setting} ({getattr(config, setting, bound_by)}) closes admission before the queue holds {batch}"


def _waits(config: PipelineConfig, result: PipelineResult, last: Row, batch: str) -> str:
    if last["in_flight"] > 0 and last["time"] * 2 < config.duration_seconds:
        horizon = f"duration_seconds ({config.duration_seconds:g})"
        left = last["in_flight"]
        ends, them = ("ends", "it") if left == 1 else ("end", "them")
        return f"{many(left, 'rollout')} {ends} after {horizon}, and {batch} waits for {them}"
    dropped = result.metrics.get("discarded_tokens", 0) + result.metrics.get("wasted_tokens", 0)
    if dropped > 0:
        lag = f"max_policy_lag ({config.max_policy_lag})"
        return f"{lag} is too small for rollouts this long: they are too old before {batch} comes together"
    if last["in_flight"] == 0:
        style, sync = config.publication, config.sync_seconds
        return f"publication ({style!r}) holds new work back for sync_seconds ({sync:g})"
    return f"duration_seconds ({config.duration_seconds:g}) is too short for {batch}"


class PhaseBounds(NamedTuple):
    """Seconds that one update needs at least, from one phase alone; the larger one bounds the run."""

    generation_seconds: float
    training_seconds: float

    @property
    def bound_seconds(self) -> float:
        """``max(generation, training)``: what perfect overlap would reach."""
        return max(self.generation_seconds, self.training_seconds)

    @property
    def binding(self) -> str:
        """Which phase it is."""
        return "generation" if self.generation_seconds >= self.training_seconds else "training"


def phase_bounds(config: PipelineConfig) -> PhaseBounds:
    """Return the seconds per update that generation and training need by themselves, on average.

    Generation has every slot occupied all the time and drops nothing; with a decode slowdown, n rollouts
    decode where ``n = slots * decode / (decode + tail)`` at the rate for n. With engines n is as many as
    their caches and batches hold at the mean context, and a token takes a step. Training goes from step to
    step. Overlap gains nothing beyond the larger of the two.

    Examples
    --------
    >>> from lagsweep.sweeps.laws.lengths import LengthLaw
    >>> config = PipelineConfig(response_length=LengthLaw.fixed(100), rollout_workers=2, batch_tokens=200,
    ...                         decode_tokens_per_second=100, rollout_overhead_seconds=0,
    ...                         train_overhead_seconds=1, train_tokens_per_second=200)
    >>> phase_bounds(config)
    PhaseBounds(generation_seconds=1.0, training_seconds=2.0)
    """
    law = instance("config", config, PipelineConfig, "Build one, as PipelineConfig().").response_length
    share = np.diff(law.cdf, prepend=0.0)
    tokens = law.minimum + np.arange(len(law.cdf))
    seconds = config.rollout_overhead_seconds + tokens / config.decode_tokens_per_second
    mean = float(np.dot(share, np.maximum(np.round(seconds * 1e6), 1.0))) / 1e6
    tail = ticks(config.rollout_overhead_seconds) / 1e6
    decode = max(0.0, mean - tail)
    if law.brings_seconds:
        tail += _seconds_of_rows(law)
    elif config.environment_seconds is not None:
        tail += config.environment_seconds.mean_seconds
    slots = float(config.rollout_workers)
    if config.batch_groups is not None:
        rollouts = float(config.batch_groups * config.group_size)
    else:
        rollouts = (config.batch_tokens or 0) / law.mean_tokens
    kept = 1.0 - config.filter_probability
    decode = _slowed_decode(decode, tail, slots, config.decode_slowdown_per_rollout)
    if config.engine is not None:
        decode, running = _decode_on_engines(config, tail)
        slots = min(slots, running * (decode + tail) / decode)
    per_rollout = tail + decode
    generation = math.inf if kept == 0.0 else per_rollout * rollouts / slots / kept
    step_tokens = rollouts * (law.mean_tokens + config.prompt_tokens)
    step = config.train_overhead_seconds + step_tokens / config.train_tokens_per_second
    training = _training_seconds(config, step)
    if not config.generation_while_training:
        # GPUs that take turns: decoding has what training leaves, tools and verifiers go on meanwhile.
        generation = max(generation, step + _decode_share(generation, per_rollout, tail))
    updates = config.updates_per_batch
    return PhaseBounds(generation / updates, training / updates)


def too_short_for_an_update(config: PipelineConfig) -> str:
    """Say what a first update needs where the run is shorter than that; empty where it is long enough.

    Nothing overlaps before the first update: its batch is generated, then trained.

    Examples
    --------
    >>> too_short_for_an_update(PipelineConfig(batch_tokens=120_000, rollout_workers=64))
    'a batch takes 40.1 s to make and 344 s to train, and the run lasts 120 s'
    >>> too_short_for_an_update(PipelineConfig())
    ''
    """
    bounds = phase_bounds(config)
    updates = config.updates_per_batch
    first = bounds.generation_seconds * updates + bounds.training_seconds
    if not math.isfinite(first) or first <= config.duration_seconds:
        return ""
    made, trained = bounds.generation_seconds * updates, bounds.training_seconds * updates
    return (
        f"a batch takes {made:.3g} s to make and {trained:.3g} s to train, "
        f"and the run lasts {config.duration_seconds:g} s"
    )


def _seconds_of_rows(law: LengthLaw) -> float:
    """Return the mean seconds that a law brings; of a law by version with equal weights."""
    laws = [part for _, part in law.segments] or [law]
    seconds = [0.0 if one.paired_seconds is None else float(np.mean(one.paired_seconds)) for one in laws]
    return sum(seconds) / len(seconds)


def _training_seconds(config: PipelineConfig, step: float) -> float:
    """Return the seconds of the trainer for a batch: step, fetch where no other step hides it, evaluation."""
    whole = step if config.prefetch_batches else step + config.fetch_seconds
    if config.evaluation_every_updates is None:
        return whole
    return whole + config.evaluation_seconds * min(
        1.0, config.updates_per_batch / config.evaluation_every_updates
    )


def _decode_share(generation: float, per_rollout: float, tail: float) -> float:
    """Return the seconds of generation that are decoding."""
    return 0.0 if not math.isfinite(generation) else generation * (per_rollout - tail) / per_rollout


def _decode_on_engines(config: PipelineConfig, tail: float) -> tuple[float, float]:
    """Return the seconds that a mean rollout decodes on an engine, and how many run over all engines.

    Their contexts are those of rollouts caught at any moment: prompt and half of the length, longer ones
    more often.
    """
    engine, law = config.engine, config.response_length
    assert engine is not None
    share = np.diff(law.cdf, prepend=0.0)
    tokens = law.minimum + np.arange(len(law.cdf), dtype=np.float64)
    mean = float(np.dot(share, tokens))
    context = config.prompt_tokens + float(np.dot(share, tokens * tokens)) / (2.0 * mean)
    most = math.inf if engine.max_running is None else float(engine.max_running)
    if engine.kv_cache_tokens is not None:
        most = min(most, max(1.0, engine.kv_cache_tokens / (context + 1.0)))
    each = engine.step_seconds_per_rollout + engine.step_seconds_per_context_token * context
    each += engine.prefill_seconds_per_token * config.prompt_tokens / mean
    slots = config.rollout_workers / engine.count
    running = min(most, slots)
    for _ in range(200):
        decode = mean * (engine.step_seconds + each * running)
        running = min(most, slots * decode / (decode + tail))
    return mean * (engine.step_seconds + each * running), running * engine.count


def _slowed_decode(decode: float, tail: float, slots: float, slowdown: float) -> float:
    """Solve ``d = decode * (1 + g * max(n - 1, 0))``, ``n = slots * d / (d + tail)``, step by step."""
    slow = decode
    for _ in range(200):
        occupied = slots * slow / (slow + tail) if slow > 0 else 0.0
        slow = decode * (1.0 + slowdown * max(occupied - 1.0, 0.0))
    return slow


def constraint_intervals(result: PipelineResult) -> polars.DataFrame:
    """Return what bound slots and trainer between one event and the next, as a frame.

    Slot time by ``slots_bound_by`` and trainer time by ``trainer_bound_by`` sum exactly to
    ``result.slot_ticks`` and ``result.trainer_ticks`` when the warm-up is 0. Slots that held groups keep have
    a column ``held_slots`` where the queue holds.

    Returns
    -------
    polars.DataFrame
        Columns ``start_ticks``, ``end_ticks``, ``busy_slots``, ``idle_slots``, ``slots_bound_by``,
        ``trainer_bound_by``.
    """
    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    import polars

    config = result.config
    rows = result.timeline_frame()
    starts = (rows["time"].to_numpy() * 1e6).round().astype(np.int64)
    end = starts[-1] if _stopped(config, result) else ticks(config.duration_seconds)
    busy = rows["in_flight"].to_numpy()
    kept = rows["held_slots"].to_numpy() if "held_slots" in rows else np.zeros_like(busy)
    found = polars.DataFrame(
        {
            "start_ticks": starts,
            "end_ticks": np.append(starts[1:], end),
            "busy_slots": busy,
            "idle_slots": config.rollout_workers - busy - kept,
            **({"held_slots": kept} if "held_slots" in rows else {}),
            "slots_bound_by": rows["slots_bound_by"],
            "trainer_bound_by": rows["trainer_bound_by"],
        }
    )
    return _split_at_fetches(found, rows["fetch_end"]) if "fetch_end" in rows else found


def _split_at_fetches(intervals: polars.DataFrame, fetch_ends: polars.Series) -> polars.DataFrame:
    """Cut the intervals in which a fetch ends: the step that begins there is no event."""
    import polars

    ends = (fetch_ends.cast(polars.Float64) * 1e6).round().cast(polars.Int64)
    cut = intervals.with_columns(fetch_end=ends).filter(polars.col("fetch_end") < polars.col("end_ticks"))
    busy = polars.lit("busy").alias("trainer_bound_by")
    after = cut.with_columns(polars.col("fetch_end").alias("start_ticks"), busy).drop("fetch_end")
    first = polars.min_horizontal(intervals["end_ticks"], ends).alias("end_ticks")
    return polars.concat([intervals.with_columns(first), after]).sort("start_ticks", maintain_order=True)


def _stopped(config: PipelineConfig, result: PipelineResult) -> bool:
    return config.stop_after_updates is not None and result.final_version >= config.stop_after_updates


def length_bias(result: PipelineResult) -> polars.DataFrame:
    """Show which lengths a run lost: rollouts that left, by decile of the length law.

    Returns
    -------
    polars.DataFrame
        Columns ``decile`` (1…10), ``up_to_tokens`` (the law's quantile), ``trained``, ``dropped`` (members
        of ready groups), ``cancelled`` (members of running groups that had started), ``lost_share`` (of all
        that left; NaN if none did).
    """
    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    import polars

    law = result.config.response_length
    counts = result.length_deciles
    left = counts["trained"] + counts["dropped"] + counts["cancelled"]
    lost = counts["dropped"] + counts["cancelled"]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(left > 0, lost / np.maximum(left, 1), np.nan)
    return polars.DataFrame(
        {
            "decile": np.arange(1, 11),
            "up_to_tokens": law.quantile(np.arange(1, 11) / 10),
            "trained": counts["trained"],
            "dropped": counts["dropped"],
            "cancelled": counts["cancelled"],
            "lost_share": share,
        }
    )


def length_quantiles(
    result: PipelineResult, quantiles: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
) -> polars.DataFrame:
    """Compare quantiles of trained lengths with those of all completed rollouts; for ``rollouts=True``.

    Returns
    -------
    polars.DataFrame
        Columns ``quantile``, ``generated_tokens``, ``trained_tokens``; NaN where there are no rollouts.

    Raises
    ------
    ConfigError
        If the run did not record its rollouts.
    """
    instance("result", result, PipelineResult, "Give what simulate_pipeline returns.")
    levels = np.atleast_1d(real_numbers("quantiles", quantiles, minimum=0, maximum=1))
    if levels.ndim > 1 or not levels.size:
        raise ConfigError("quantiles", "must be one row of fractions", quantiles, "Give (0.5, 0.9).")
    quantiles = tuple(levels.tolist())
    import polars

    if not result.rollouts:
        raise ConfigError("rollouts", "were not recorded", 0, "Run again with rollouts=True.")
    rows = result.rollouts_frame()
    finished = rows.filter(polars.col("end").is_not_null())["tokens"].to_numpy()
    trained = rows.filter(polars.col("outcome") == "trained")["tokens"].to_numpy()

    def at(values: np.ndarray) -> list[float]:
        if not len(values):
            return [math.nan] * len(quantiles)
        return np.quantile(values, quantiles, method="inverted_cdf").astype(np.float64).tolist()

    return polars.DataFrame(
        {"quantile": list(quantiles), "generated_tokens": at(finished), "trained_tokens": at(trained)}
    )
