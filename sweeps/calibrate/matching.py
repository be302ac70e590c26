"""The speed of decoding at which a simulated run is as idle as the logged one.

A trainer's log does not hold the speed of its engines; it holds how long the trainer waited for them. The
run is simulated, with the lengths as they drifted, and the speed is found at which it waits as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..config.config import PipelineConfig
from ..runs.general import GeneralRun
from ..runs.lean import LeanRun
from ..runs.result import PipelineResult
from .configuration import HORIZON_SECONDS, Values, config_of, law_of
from .estimates import Estimates
from .setup import Setup

MOST_ROLLOUTS = 40_000  # of one simulated run
FEWEST_STEPS, MOST_STEPS = 40, 300
_SKIPPED = 0.15  # of a run's steps, until it is as it stays
_CLOSE = 0.002  # relative, of the seconds of a step
_MOST_TRIES = 14
_MOST_SLOWER = 10.0
_MOST_CALLS = 40  # of a kernel that comes back after well under half a second
_FAST = 8.0  # times a speed at which a rollout fits into the idle time of a step: generation is free
_FREE = 0.01  # a step that generation makes longer by less than this does not tell its speed


@dataclass(frozen=True)
class Moments:
    """What a run did, by the step.

    Attributes
    ----------
    step_seconds, wait_seconds, lag, drops, tokens_per_second : float
    decode_speed : float
        Tokens a second of a rollout in flight.
    mean_tokens : float
        Of a trained response.
    ess : float
        Expected normalized effective sample size.
    stalled : bool
    """

    step_seconds: float
    wait_seconds: float
    lag: float
    drops: float
    tokens_per_second: float
    decode_speed: float
    mean_tokens: float
    ess: float
    stalled: bool


@dataclass(frozen=True)
class Match:
    """The speed that was found.

    Attributes
    ----------
    speed : float
        Tokens a second of a rollout alone.
    by : str
        What told it: ``waits``, ``drops``, ``lag``, or ``nothing``: any speed from this one on would do;
        ``delay``: the log has generations or the engine is known, and the waits tell what lies beside;
        ``engine``: the engine is known, and explains the waits or more.
    off : float
        What is left of the difference: in seconds over those of a step, or relative.
    tries : int
        Simulated runs.
    delay : float
        Seconds from one generation to the next beside it.
    """

    speed: float
    by: str
    off: float
    tries: int
    delay: float = 0.0

    def applied(self, values: Values) -> Values:
        """Return values with what was found."""
        return replace(values, speed=self.speed, delay=self.delay)

    @property
    def known(self) -> bool:
        """Whether the log tells the speed."""
        return self.by != "nothing"


def steps_to_run(setup: Setup, steps: int) -> int:
    """Return how many steps a simulated run takes."""
    most = max(FEWEST_STEPS, min(MOST_STEPS, MOST_ROLLOUTS // max(1, setup.rollouts)))
    return max(FEWEST_STEPS, min(most, steps))


def moments(config: PipelineConfig, steps: int, expected_seconds: float, *, seed: int = 0) -> Moments:
    """Simulate some steps and return what they did, without the first ones.

    Parameters
    ----------
    config : PipelineConfig
    steps : int
    expected_seconds : float
        Of a step. A run that takes ten times as long trains next to nothing, and is called stalled.
    seed : int
    """
    several = config.updates_per_batch
    run = _run(
        config.replace(
            duration_seconds=min(HORIZON_SECONDS, _MOST_SLOWER * expected_seconds * steps),
            warmup_seconds=0.0,
            stop_after_updates=steps * several,
            seed=seed,
        )
    )
    count = 0 if run is None else run.updates // several
    if run is None or count < min(steps, FEWEST_STEPS) or run.stalled:
        return Moments(math.inf, math.inf, math.nan, math.nan, 0.0, math.nan, math.nan, math.nan, True)
    rows = run.batches_frame()[: count * several]
    first = min(count - 1, int(_SKIPPED * count)) * several
    own = rows[first:]
    begin = float(rows["end"][first - 1]) if first else 0.0
    whole, batches = float(own["end"][-1]) - begin, len(own) // several
    busy = float((own["end"] - own["start"]).sum())
    spent = 0.0
    if config.publication_blocks_trainer:
        spent += config.sync_seconds * len(own) / config.sync_every_updates
    if config.evaluation_every_updates is not None:
        spent += config.evaluation_seconds * len(own) / config.evaluation_every_updates
    rollouts = float(own["rollouts"].sum())
    dropped = run.metrics.get("evicted_groups", 0) + run.metrics.get("cancelled_groups", 0)
    return Moments(
        step_seconds=whole / batches,
        wait_seconds=max(0.0, whole - busy - spent) / batches,
        lag=float((own["mean_lag"] * own["rollouts"]).sum()) / max(rollouts, 1.0),
        drops=(run.discarded_rollouts + dropped * config.group_size) / count,
        tokens_per_second=float(own["tokens"].sum()) / whole,
        decode_speed=decode_speed(run),
        mean_tokens=float(own["tokens"].sum()) / max(rollouts, 1.0),
        ess=float(own["expected_normalized_ess"].to_numpy().mean()),
        stalled=False,
    )


def decode_speed(run: PipelineResult) -> float:
    """Return the tokens a second of a rollout in flight: those completed over the time of busy slots.

    Examples
    --------
    >>> from lagsweep.sweeps.laws.lengths import LengthLaw
    >>> from lagsweep.sweeps.runs.simulate import simulate_pipeline
    >>> config = PipelineConfig(response_length=LengthLaw.fixed(100), rollout_overhead_seconds=0,
    ...                         decode_tokens_per_second=50, duration_seconds=200)
    >>> round(decode_speed(simulate_pipeline(config)))
    50
    """
    rate = run.trained_tokens_per_second
    seconds = run.trained_tokens / rate if rate > 0 else math.nan
    busy = run.rollout_utilization * run.config.rollout_workers * seconds
    return run.generated_tokens / busy if busy > 0 else math.nan


def _run(config: PipelineConfig) -> PipelineResult | None:
    """Simulate without the rows of events; None for a run that does far more than it trains."""
    loop = LeanRun if config.is_level_1 else GeneralRun
    run = loop(config, batches=True)
    for _ in range(_MOST_CALLS):
        if run.step():
            return run.result()
    return None


def shortened(
    segments: Sequence[tuple[int, float]], steps: int, run: int, several: int
) -> list[tuple[int, float]]:
    """Return segments of a run of fewer steps, each with its share of them, by versions.

    Examples
    --------
    >>> shortened([(0, 100.0), (50, 200.0)], 100, 40, 1)
    [(0, 100.0), (20, 200.0)]
    """
    found: list[tuple[int, float]] = []
    for first, mean in segments:
        version = round(first / max(steps, 1) * run) * several
        if found and version <= found[-1][0]:
            continue
        found.append((version, mean))
    return found


def match(
    setup: Setup, found: Estimates, values: Values, *, near: Values | None = None, seed: int = 0
) -> Match:
    """Find the speed at which the simulated run is as idle as the logged one.

    Parameters
    ----------
    setup : Setup
    found : Estimates
    values : Values
        Their `idle_seconds` is what the run must come to.
    near : Values, optional
        Values whose speed was found, to begin with.
    seed : int
    """
    run = steps_to_run(setup, found.steps)
    several = int(setup.config().updates_per_batch)
    means = found.lengths.segments if found.lengths else ((0, values.mean_tokens),)
    means = means if len(means) > 1 else ((0, values.mean_tokens),)
    law = law_of(found, values, shortened(means, found.steps, run, several))
    tried: dict[tuple[float, float], Moments] = {}

    def run_at(speed: float, delay: float = 0.0) -> Moments:
        if (speed, delay) not in tried:
            config = config_of(setup, found, replace(values, speed=speed, delay=delay), law=law)
            tried[speed, delay] = moments(config, run, found.step.value, seed=seed)
        return tried[speed, delay]

    wanted, whole = values.idle_seconds, max(found.step.value, 1e-9)

    def over(speed: float, delay: float = 0.0) -> float:
        return (run_at(speed, delay).wait_seconds - wanted) / whole

    if setup.speed_is_given:
        return _beside_engine(over, lambda: len(tried), whole, near)
    if found.generation is not None and not setup.in_turn and found.generation.longest > 0:
        speed = _measured_speed(found, values)
        if over(speed) < 0:
            guess = 1 / max(near.delay if near else 0.1 * whole, 1e-3 * whole)
            inverse, off = _falling(lambda one: over(speed, 1 / one), guess)
            return Match(speed, "delay", off, len(tried), 1 / inverse)
    start = near.speed if near else None
    mean = found.lengths.mean.value if found.lengths else values.mean_tokens
    # A rollout may spend most of its seconds on other things than its tokens.
    lone = mean / max(wanted, 0.05 * whole, 1e-6) / (1 - values.overhead)
    free = run_at(_FAST * max(lone, start or 0.0)).wait_seconds
    if wanted > free + _FREE * whole:
        speed, off = _falling(over, start or lone)
        return Match(speed, "waits", off, len(tried))
    least = max(wanted, free) + _FREE * whole
    slowest = _falling(lambda speed: (run_at(speed).wait_seconds - least) / whole, start or lone)[0]
    return _beyond(run_at, slowest, values, setup, len(tried))


def _beside_engine(
    over: Callable[[float, float], float], tries: Callable[[], int], whole: float, near: Values | None
) -> Match:
    """Find what lies beside the decoding of a given engine, where that alone does not explain the waits."""
    off = over(1.0, 0.0)
    if off > -_FREE:
        return Match(1.0, "engine", off, tries())
    guess = 1 / max(near.delay if near else 0.1 * whole, 1e-3 * whole)
    inverse, off = _falling(lambda one: over(1.0, 1 / one), guess)
    return Match(1.0, "delay", off, tries(), 1 / inverse)


def _measured_speed(found: Estimates, values: Values) -> float:
    """Return the speed of a rollout alone that generations of the log say."""
    generation = found.generation
    assert generation is not None
    alone = generation.mean.value * (1 - values.shared) * (1 - values.overhead)
    return generation.longest / max(alone, 1e-9)


def _beyond(
    run_at: Callable[[float], Moments], slowest: float, values: Values, setup: Setup, tries: int
) -> Match:
    """Find the speed of a generation ahead of the trainer from what it makes for nothing, or the lag."""
    drops, lag = values.drops, values.lag
    if math.isfinite(drops) and drops > _FREE * setup.rollouts and run_at(slowest).drops < drops:
        speed, off = _falling(lambda speed: 1 - run_at(speed).drops / drops, slowest)
        return Match(speed, "drops", off, tries)
    if math.isfinite(lag) and lag > 0:
        low, high = run_at(slowest).lag, run_at(_FAST * slowest).lag
        if low + _FREE * lag < lag < high - _FREE * lag:
            speed, off = _falling(lambda speed: 1 - run_at(speed).lag / lag, slowest)
            return Match(speed, "lag", off, tries)
    return Match(slowest, "nothing", 0.0, tries)


def _falling(function: Callable[[float], float], guess: float) -> tuple[float, float]:
    """Find where something that falls as the speed grows is 0, by the line through two ends.

    Returns
    -------
    speed, what is left
    """
    seen: dict[float, float] = {}

    def value(speed: float) -> float:
        if speed not in seen:
            seen[speed] = function(speed)
        return seen[speed]

    low = high = guess
    step = 1.25
    while value(low) < 0 and low > guess * 1e-6:
        low, high, step = low / step, low, step * 1.6
    while value(high) > 0 and high < guess * 1e6:
        low, high, step = high, high * step, step * 1.6
    for place in range(_MOST_TRIES):
        above, below = value(low), -value(high)
        if not (above > _CLOSE and below > _CLOSE) or high / low < 1.002:
            break
        part = above / (above + below) if place % 3 != 2 and math.isfinite(above) else 0.5
        part = min(0.9, max(0.1, part))
        speed = math.exp((1 - part) * math.log(low) + part * math.log(high))
        if value(speed) > 0:
            low = speed
        else:
            high = speed
    best = min(seen, key=lambda speed: abs(seen[speed]) if math.isfinite(seen[speed]) else math.inf)
    return best, seen[best]
