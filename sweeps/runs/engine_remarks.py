"""What holds engines back in a run, in sentences: waiting for a place, preemption, and being stopped.

The numbers are a run's metrics, or their means over seeds; nothing is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config.config import PipelineConfig
    from ..config.engine import Engine

WORTH_SAYING = 0.2  # of slot time, of engine time, or preemptions a rollout
_AT_ITS_LIMIT = 0.9  # of max_running: what runs is held back by it and not by the cache


def engine_remarks(config: PipelineConfig, metrics: Mapping[str, float]) -> list[str]:
    """Say what takes a fifth or more of an engine run's time or work; nothing without engines.

    Parameters
    ----------
    config : PipelineConfig
    metrics : mapping of str to float
        Those of a run, by their names.

    Returns
    -------
    list of str
        Sentences without a full stop, the largest share first.

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import PipelineConfig
    >>> from lagsweep.sweeps.config.engine import Engine
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> config = PipelineConfig(engine=Engine(step_seconds=0.02, max_running=4), rollout_workers=16)
    >>> print(*engine_remarks(config, simulate_pipeline(config).metrics))
    rollouts spend 73% of their time in a slot waiting for an engine: engine.max_running (4) lets no more run
    """
    engine = config.engine
    if engine is None:
        return []
    found = [*_waiting(engine, metrics), *_repeating(config, engine, metrics), *_stopped(config, metrics)]
    return [text for _, text in sorted(found, key=lambda one: -one[0])]


def _waiting(engine: Engine, metrics: Mapping[str, float]) -> list[tuple[float, str]]:
    share = _share(metrics["slots_engine_queue_seconds"], metrics["slots_busy_seconds"])
    why = _what_is_full(engine, metrics)
    if share < WORTH_SAYING or not why:
        return []
    return [(share, f"rollouts spend {share:.0%} of their time in a slot waiting for an engine: {why}")]


def _what_is_full(engine: Engine, metrics: Mapping[str, float]) -> str:
    """Name the limit that keeps rollouts in an engine's queue; empty where there is none."""
    running = metrics["mean_engine_running"]
    if engine.max_running is not None and running >= _AT_ITS_LIMIT * engine.max_running:
        return f"engine.max_running ({engine.max_running}) lets no more run"
    if engine.kv_cache_tokens is not None:
        return f"{_cache(engine)} holds {_held(metrics)}"
    return ""


def _repeating(
    config: PipelineConfig, engine: Engine, metrics: Mapping[str, float]
) -> list[tuple[float, str]]:
    each = _share(metrics["preemptions"], metrics["generated_rollouts"])
    again = _share(metrics["reprefilled_tokens"], metrics["decoded_tokens"])
    if each < WORTH_SAYING:
        lost = "publication 'abort' takes the caches, and engines prefill"
        text = f"{lost} {again:.0%} as many tokens once more as they decode"
        return [(again, text)] if config.publication == "abort" and again >= WORTH_SAYING else []
    text = (
        f"engines preempt again and again, {each:.2g} times a rollout, and prefill {again:.0%} as many "
        f"tokens once more as they decode: {_cache(engine)} holds {_held(metrics)}"
    )
    return [(min(each, 1.0), text)]


def _stopped(config: PipelineConfig, metrics: Mapping[str, float]) -> list[tuple[float, str]]:
    engine = config.engine
    assert engine is not None
    seconds = (metrics["engine_busy_seconds"] + metrics["engine_idle_seconds"]) / engine.count
    found = []
    if config.publication in ("pause", "abort"):
        share = _share(metrics["syncs"] * config.sync_seconds, seconds)
        found.append(
            (
                share,
                f"publication {config.publication!r} stops the engines for {share:.0%} of the time, "
                f"sync_seconds ({config.sync_seconds:g}) at each of {metrics['syncs']:,.0f} publications",
            )
        )
    if not config.generation_while_training:
        share = _share(metrics["trainer_busy_seconds"], seconds)
        found.append(
            (share, f"generation_while_training (false) stops the engines for {share:.0%} of the time")
        )
    return [one for one in found if one[0] >= WORTH_SAYING]


def _cache(engine: Engine) -> str:
    return f"engine.kv_cache_tokens ({engine.kv_cache_tokens:,})"


def _held(metrics: Mapping[str, float]) -> str:
    running, context = metrics["mean_engine_running"], metrics["mean_engine_context_tokens"]
    if not running > 0:
        return "too few"
    return f"{running:.3g} rollouts of {context / running:,.0f} tokens in the mean"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 and math.isfinite(part) else 0.0
