"""Engines in a trace: a process each, with counters, prefills, what stopped it, and preemptions.

Counters tell the level after each change and right before it, since contexts grow in between. Slices are the
steps in which something was prefilled and the times in which decoding was stopped; other steps are not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..config.engine import Engine
    from ..runs.engine_history import EngineHistory

FIRST_ENGINE = 4  # processes before it: trainer, slots, queue
WORK, PREEMPTIONS = 1, 2
CACHE = "cache tokens"


def engine_names(count: int) -> Iterator[tuple[int, str, tuple[tuple[int, str], ...]]]:
    """Give process, name and tracks of each engine.

    Examples
    --------
    >>> list(engine_names(1))
    [(4, 'engine 0', ((1, 'prefill and stops'), (2, 'preemptions')))]
    """
    for engine in range(count):
        tracks = ((WORK, "prefill and stops"), (PREEMPTIONS, "preemptions"))
        yield FIRST_ENGINE + engine, f"engine {engine}", tracks


def engine_events(
    history: EngineHistory, engine: Engine, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    """Return the events of every engine.

    Parameters
    ----------
    history : EngineHistory
    engine : Engine
        Of the run.
    window : (float, float)
        In microseconds; what lies outside is left out.
    """
    for place in range(engine.count):
        yield from _counters(history, place, engine.kv_cache_tokens, window)
    yield from _slices(history, window)
    for preempted in history.preempted:
        if window[0] <= preempted.tick <= window[1]:
            count = len(preempted.rollouts)
            yield {
                "name": "preempted" if count == 1 else f"{count} preempted", "cat": "preemption", "ph": "i",
                "s": "t", "ts": preempted.tick, "pid": FIRST_ENGINE + preempted.engine, "tid": PREEMPTIONS,
                "args": {"count": count, "rollouts": list(preempted.rollouts)},
            }  # fmt: skip


def _counters(
    history: EngineHistory, place: int, cache_tokens: int | None, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    levels = history.of_engine(place)
    ticks = levels["ticks"]
    for name, unit, column in (
        ("running", "rollouts", "running"),
        ("waiting", "rollouts", "waiting"),
        (CACHE, "used", "kv_tokens"),
    ):
        values = levels[column]
        changed = np.append(True, values[1:] != values[:-1])[: len(values)]
        inside = (ticks >= window[0]) & (ticks <= window[1])
        for tick, value in zip(ticks[changed & inside].tolist(), values[changed & inside].tolist()):
            args = {unit: value}
            if name == CACHE and cache_tokens is not None:
                args["free"] = cache_tokens - value  # stacked on what is used they reach what it holds
            yield {
                "name": name, "ph": "C", "ts": tick, "pid": FIRST_ENGINE + place, "tid": 0, "args": args,
            }  # fmt: skip


def _slices(history: EngineHistory, window: tuple[float, float]) -> Iterator[dict[str, Any]]:
    for prefill in history.prefills:
        args: dict[str, Any] = {"tokens": prefill.tokens}
        if prefill.repeated:
            args["repeated_tokens"] = prefill.repeated
        end = min(prefill.end, history.end)
        yield from _slice("prefill", "prefill", prefill.engine, prefill.start, end, args, window)
    for stands in history.standing:
        name = f"stopped: {stands.cause}"
        yield from _slice(name, "stopped", stands.engine, stands.start, stands.end, {}, window)


def _slice(
    name: str, category: str, engine: int, start: int, end: int, args: dict[str, Any],
    window: tuple[float, float],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    if end >= window[0] and start <= window[1]:
        yield {
            "name": name, "cat": category, "ph": "X", "ts": start, "dur": end - start,
            "pid": FIRST_ENGINE + engine, "tid": WORK, "args": args,
        }  # fmt: skip
