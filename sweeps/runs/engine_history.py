"""What went on engine by engine over a run: levels, preemptions, prefills, and what made an engine stand.

Engines keep no rows of their own: their run is in closed form between changes. A run of which this is asked
is run once more and stopped at each change of an engine, which changes nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...kernels.engine.records import UNITS_BITS
from ...kernels.errors import ConfigError
from ...kernels.pipeline.fleet_summary import engine_levels_kernel
from ...kernels.pipeline.stops import (
    STOPPED_BY_EVALUATION,
    STOPPED_BY_PUBLICATION,
    STOPPED_BY_TRAINING,
)
from .general import GeneralRun

if TYPE_CHECKING:
    from .result import PipelineResult

CAUSES = {
    STOPPED_BY_PUBLICATION: "publication",
    STOPPED_BY_TRAINING: "training",
    STOPPED_BY_EVALUATION: "evaluation",
}
RESUME = "resume"  # nothing runs, and the head of the queue may not be admitted yet, after an abort
LEVELS = ("running", "waiting", "kv_tokens")


class Preempted(NamedTuple):
    """Rollouts that an engine preempted at one tick, by their numbers."""

    engine: int
    tick: int
    rollouts: tuple[int, ...]


class Prefill(NamedTuple):
    """A step in which an engine prefilled: from and to (ticks), tokens, and how many of them once more."""

    engine: int
    start: int
    end: int
    tokens: int
    repeated: int


class Standing(NamedTuple):
    """A time (ticks) in which an engine had rollouts and stood still, and what stopped it."""

    engine: int
    start: int
    end: int
    cause: str


@dataclass(frozen=True, eq=False)
class EngineHistory:
    """What went on, engine by engine; the warm-up is told too.

    Attributes
    ----------
    ticks, engine, running, waiting, kv_tokens : ndarray of int64
        Levels: a row for each engine that changes at a tick, and one a tick before, since contexts grow until
        then. Of several changes in one tick the last one stands.
    preempted : list of Preempted
    prefills : list of Prefill
    standing : list of Standing
    end : int
        Tick at which the run ended.
    """

    ticks: np.ndarray
    engine: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    kv_tokens: np.ndarray
    preempted: list[Preempted]
    prefills: list[Prefill]
    standing: list[Standing]
    end: int

    def of_engine(self, engine: int) -> dict[str, np.ndarray]:
        """Return one engine's levels by name, with its ``ticks`` and the ``preemptions`` up to each.

        Examples
        --------
        >>> from lagsweep.sweeps.config.config import PipelineConfig
        >>> from lagsweep.sweeps.config.engine import Engine
        >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
        >>> config = PipelineConfig(engine=Engine(step_seconds=0.02), rollout_workers=4, duration_seconds=30)
        >>> int(engine_history(simulate_pipeline(config)).of_engine(0)["running"].max())
        4
        """
        own = self.engine == engine
        found = {name: getattr(self, name)[own] for name in ("ticks", *LEVELS)}
        times = np.array([one.tick for one in self.preempted if one.engine == engine], np.int64)
        counts = [0, *(len(one.rollouts) for one in self.preempted if one.engine == engine)]
        found["preemptions"] = np.cumsum(counts)[np.searchsorted(times, found["ticks"], side="right")]
        return found


def engine_history(result: PipelineResult) -> EngineHistory:
    """Tell what went on engine by engine, by running a run once more.

    Parameters
    ----------
    result : PipelineResult
        Of a configuration with an engine, recorded with its timeline.

    Raises
    ------
    ConfigError
        If the run has no engine, or its configuration does not give this run again (rules of the user's own
        that decide differently each time, or a result that was loaded without them).
    """
    if result.config.engine is None:
        way_out = "Give the configuration an engine."
        raise ConfigError("engine", "must be set for what went on engine by engine", None, way_out)
    run = (result.begin_again or partial(GeneralRun, result.config))(timeline=True)
    run.parameters["warmup"] = 0  # it changes sums alone, and those of the warm-up are told too
    timeline = result._columns["timeline"]
    events = np.unique(np.round(timeline["time"] * 1e6).astype(np.int64))
    stopped = run.parameters[0].stop_after_updates > 0 and result.final_version >= int(
        run.parameters[0].stop_after_updates
    )
    end = int(events[-1]) if stopped else int(run.parameters[0].horizon)
    watch = _Watch(run)
    for tick in _stops(run, events, end):
        watch.go_to(tick)
    watch.close(end)
    _check_same(timeline, run.tables()["timeline"])
    at, engine, running, waiting, kv_tokens = np.array(watch.rows, np.int64).reshape(-1, 5).T
    return EngineHistory(
        at, engine, running, waiting, kv_tokens, watch.preempted, watch.prefills, watch.standing, end
    )


def levels_at_moments(begin: Callable[..., GeneralRun], moments: int) -> dict[str, np.ndarray]:
    """Read what all engines of a run hold together at evenly spaced moments, its end among them.

    Parameters
    ----------
    begin : callable
        Begins the run, given what to record; it is run twice, first to know when it ends.
    moments : int

    Returns
    -------
    dict
        ``seconds`` and, after the events of that moment, ``running``, ``waiting``, ``kv_tokens`` and the
        ``preemptions`` so far; each of shape (moments,).

    Examples
    --------
    >>> from lagsweep.sweeps.config.config import PipelineConfig
    >>> from lagsweep.sweeps.config.engine import Engine
    >>> config = PipelineConfig(engine=Engine(step_seconds=0.02), rollout_workers=4, duration_seconds=30)
    >>> levels_at_moments(partial(GeneralRun, config), 3)["running"].tolist()
    [4, 4, 4]
    """
    run = begin()
    run.advance()
    end = int(run.state.now if run.state.ended else run.parameters[0].horizon)
    run = begin()
    run.parameters["warmup"] = 0  # preemptions of the warm-up count too
    ticks = (np.arange(1, moments + 1) * (end / moments)).astype(np.int64)
    ticks[-1] = end
    levels = np.zeros((moments, len(LEVELS)), np.int64)
    preemptions = np.zeros(moments, np.int64)
    each = np.zeros((len(run.held.engines), len(LEVELS)), np.int64)
    for place, tick in enumerate(ticks.tolist()):
        while not run.step(tick):
            pass
        engine_levels_kernel(run.held.coefficients, run.held.engines, np.int64(tick), each)
        levels[place] = each.sum(axis=0)
        preemptions[place] = run.held.engines["preemptions"].sum()
    return {"seconds": ticks / 1e6, **dict(zip(LEVELS, levels.T)), "preemptions": preemptions}


def _stops(run: GeneralRun, events: np.ndarray, end: int) -> Iterator[int]:
    """Give the ticks at which anything may change on an engine, each once the one before it has passed."""
    place = 0
    while True:
        state = run.state
        tick = min(int(state.engine_time), int(state.fetch_time), end)
        if place < len(events) and events[place] <= tick:
            tick = int(events[place])
            place += 1
        yield tick
        if tick == end:
            return


def _check_same(told: dict[str, np.ndarray], again: dict[str, np.ndarray]) -> None:
    """Refuse a history of another run than the one that was given."""
    for name, values in told.items():
        if name not in again or not np.array_equal(values, again[name]):
            rule = "must be what its configuration gives when it is run again"
            way_out = "Let rules of your own decide alike each time; run a loaded result anew."
            raise ConfigError("result", rule, f"timeline column {name}", way_out)


class _Watch:
    """A run that is looked at tick by tick."""

    def __init__(self, run: GeneralRun) -> None:
        self.run = run
        count = len(run.held.engines)
        self.rows: list[tuple[int, ...]] = []
        self.preempted: list[Preempted] = []
        self.prefills: list[Prefill] = []
        self.standing: list[Standing] = []
        self._before = np.zeros((count, len(LEVELS)), np.int64)
        self._after = np.zeros((count, len(LEVELS)), np.int64)
        self._last = [(0, 0, 0, 0)] * count  # tick and levels of an engine's last row
        self._seen = np.zeros(count, np.int64)  # preemptions
        self._times = run.held.requests["preemptions"].copy()
        self._prefilled = np.full(count, -1, np.int64)  # clock at which the last prefill noted began
        self._stands: list[tuple[int, str] | None] = [None] * count

    def go_to(self, tick: int) -> None:
        """Let everything up to a tick happen, and note what changed on engines."""
        run, before, after = self.run, self._before, self._after
        engine_levels_kernel(run.held.coefficients, run.held.engines, np.int64(tick), after)
        expected = after.copy()
        if tick > 0:
            engine_levels_kernel(run.held.coefficients, run.held.engines, np.int64(tick - 1), before)
        while not run.step(tick):
            pass
        engine_levels_kernel(run.held.coefficients, run.held.engines, np.int64(tick), after)
        for place in np.flatnonzero((expected != after).any(axis=1)).tolist():
            if tick > self._last[place][0] + 1:
                self._row(place, tick - 1, before[place])
            self._row(place, tick, after[place])
        self._note_preempted(tick)
        self._note_prefills()
        self._note_standing(tick)

    def close(self, end: int) -> None:
        """Note the levels at the end, and what still stands."""
        for place in range(len(self._last)):
            if self._last[place][0] < end:
                self._row(place, end, self._after[place])
            self._stand(place, end, None)

    def _row(self, place: int, tick: int, levels: np.ndarray) -> None:
        row = (tick, *levels.tolist())
        if not self.rows or row != self._last[place]:
            self.rows.append((tick, place, *row[1:]))
            self._last[place] = row

    def _note_preempted(self, tick: int) -> None:
        engines, requests = self.run.held.engines, self.run.held.requests
        count = engines["preemptions"]
        if np.array_equal(count, self._seen):
            self._times[:] = requests["preemptions"]
            return
        slots = np.flatnonzero(requests["preemptions"] > self._times)
        for place in np.flatnonzero(count > self._seen).tolist():
            own = slots[requests["engine"][slots] == place]
            self.preempted.append(Preempted(place, tick, tuple(sorted(self._numbers(own)))))
        self._seen[:], self._times[:] = count, requests["preemptions"]

    def _numbers(self, slots: np.ndarray) -> list[int]:
        held = self.run.held
        members = held.slots["group"][slots] * self.run.config.group_size + held.slots["member"][slots]
        numbers: list[int] = held.members["number"][members].tolist()
        return numbers

    def _note_prefills(self) -> None:
        engines, coefficients = self.run.held.engines, self.run.held.coefficients[0]
        fresh = (
            (engines["prefilling"] > 0) & (engines["clock"] != self._prefilled) & (engines["standing"] == 0)
        )
        for place in np.flatnonzero(fresh).tolist():
            engine = engines[place]
            clock = int(engine.clock)
            length = int(coefficients.step + coefficients.rollout * engine.running)
            length += int(coefficients.context * engine.context + coefficients.prefill * engine.prefilling)
            tokens, repeated = int(engine.prefilling), int(engine.repeating)
            span = (_tick_of(clock), _tick_of(clock + length))
            self.prefills.append(Prefill(place, *span, tokens, repeated))
            self._prefilled[place] = clock

    def _note_standing(self, tick: int) -> None:
        engines, stopped = self.run.held.engines, int(self.run.state.stopped)
        cause = " and ".join(word for bit, word in CAUSES.items() if stopped & bit) or RESUME
        busy = engines["running"] + engines["waiting"] > 0
        for place in range(len(engines)):
            stands = engines["standing"][place] == 1 and busy[place]
            self._stand(place, tick, cause if stands else None)

    def _stand(self, place: int, tick: int, cause: str | None) -> None:
        """Begin, go on with or end a time in which an engine stands still."""
        known = self._stands[place]
        if known is not None and known[1] != cause:
            if tick > known[0]:
                self.standing.append(Standing(place, known[0], tick, known[1]))
            known = None
        self._stands[place] = known if cause is None or known is not None else (tick, cause)


def _tick_of(clock: int) -> int:
    return -(-clock >> UNITS_BITS)
