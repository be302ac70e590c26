"""What the data leave open: the run simulated with each fitted number at the ends of its interval.

For each end the speed of decoding is found again, since it follows from the rest. A prediction that no end
moves by more than a tenth from end to end is identified; any other is a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..presets.registry import preset_lag_bound
from ..runs.simulate import simulate_pipeline
from .configuration import HORIZON_SECONDS, Values, config_of, law_of, spans
from .estimates import Estimates
from .fits import Fit
from .lengths import fit_lengths
from .matching import Match, Moments, match, moments, shortened, steps_to_run
from .setup import Setup
from .simulated_log import step_log_of

WIDEST = 0.1  # of a prediction, from end to end: what is wider is a range
_FASTER = 8.0  # than the slowest generation that a log allows
_ROUNDS = 2  # of mending lengths that the rules of a run bias
_BIASED = 0.015  # of the mean of what is trained
_DROPPED = 0.01  # of the rollouts of a batch

RULES = "rules (assumed)"

# What is predicted: the name in the moments of a run, words, unit, and whether it is a share of a step.
PREDICTED = {
    "step_seconds": ("step", "s"),
    "wait_seconds": ("wait", "s a step"),
    "lag": ("lag", "versions"),
    "drops": ("dropped rollouts", "a step"),
    "tokens_per_second": ("trained tokens", "tokens/s"),
    "decode_speed": ("one rollout in flight", "tokens/s"),
}


@dataclass(frozen=True)
class End:
    """The values with one fitted number at an end of its interval, the speed found again.

    Attributes
    ----------
    about : str
        Which number.
    words : str
    side : str
        ``low`` or ``high``.
    values : Values
    known : bool
        Whether the log tells the speed of generation there.
    """

    about: str
    words: str
    side: str
    values: Values
    known: bool = True


@dataclass(frozen=True)
class Span:
    """A prediction with the range that the data leave.

    Attributes
    ----------
    value, low, high : float
    by : str
        The fitted number that moves it most, in words; empty where nothing does.
    """

    value: float
    low: float
    high: float
    by: str

    def less(self, seconds: float) -> Span:
        """Return the same prediction less something that is known, at least 0."""
        value, low, high = (max(0.0, one - seconds) for one in (self.value, self.low, self.high))
        return Span(value, low, high, self.by)

    def at_most(self, most: float) -> Span:
        """Return the same prediction of what is never above some amount."""
        return replace(self, high=max(self.value, min(most, self.high)))

    @property
    def identified(self) -> bool:
        """Whether the range is at most a tenth of the value wide."""
        if not math.isfinite(self.value):
            return False
        return self.high - self.low <= WIDEST * abs(self.value) + 1e-9


def matched(setup: Setup, found: Estimates, *, seed: int = 0) -> tuple[Values, Match, Estimates]:
    """Find the speed, and mend the lengths where the rules of the run bias what is trained.

    Runs that drop what is late train short responses: the simulated run is read as a log, and the law is
    moved by what its log shows too little (indirect inference, Gourieroux, Monfort and Renault, Journal of
    Applied Econometrics 8, 1993).

    Returns
    -------
    values, match, estimates
        The estimates with the lengths mended.
    """
    from .configuration import middle

    values = middle(found, setup)
    best = match(setup, found, values, seed=seed)
    for _ in range(_ROUNDS):
        if found.lengths is None or len(found.lengths.segments) > 1 or "response_length" in setup.given:
            break
        if not _is_biased(setup, found, best.applied(values), seed):
            break
        found = _mended(setup, found, best.applied(values), seed)
        values = middle(found, setup)
        best = match(setup, found, values, near=best.applied(values), seed=seed)
    return best.applied(values), best, found


def _is_biased(setup: Setup, found: Estimates, values: Values, seed: int) -> bool:
    config = config_of(setup, found, values)
    told = moments(config, steps_to_run(setup, found.steps), found.step.value, seed=seed)
    assert found.lengths is not None
    if told.stalled:
        return False
    dropped = max(told.drops, np.nan_to_num(found.drops.value)) / setup.rollouts
    return dropped > _DROPPED or abs(told.mean_tokens / found.lengths.mean.value - 1) > _BIASED


def _mended(setup: Setup, found: Estimates, values: Values, seed: int) -> Estimates:
    """Move mean and spread of the law by how much a simulated log misses the log's own."""
    lengths = found.lengths
    assert lengths is not None
    run = steps_to_run(setup, found.steps)
    config = config_of(setup, found, values)
    several = config.updates_per_batch
    result = simulate_pipeline(
        config.replace(
            duration_seconds=min(HORIZON_SECONDS, 3 * found.step.value * run),
            stop_after_updates=run * several,
            seed=seed,
        ),
        rollouts=True,
    )
    frame = step_log_of(result)[run // 10 :]
    again = fit_lengths(frame, group_size=setup.group_size, seed=seed) if len(frame) >= 20 else None
    if again is None:
        return found
    factor = float(np.clip(lengths.mean.value / again.mean.value, 0.7, 1.4))
    sigma, told = lengths.sigma, again.sigma
    wider = 1.0 if sigma.open or told.open else float(np.clip(sigma.value / told.value, 0.7, 1.6))
    mean = lengths.segments[-1][1] * factor
    mended = replace(
        lengths,
        mean=lengths.mean,
        sigma=replace(
            sigma,
            value=sigma.value * wider,
            low=min(sigma.low, sigma.low * wider),
            high=max(sigma.high, sigma.high * wider),
        ),
        segments=((0, mean),),
    )
    return replace(found, lengths=mended)


def ends_of(
    setup: Setup, found: Estimates, values: Values, *, known: bool = True, seed: int = 0
) -> list[End]:
    """Return the values at every end, each with its own speed.

    Where the log does not tell the speed (`known` is false), generation may be as fast as one likes too.
    """
    made = []
    for about, (words, low, high) in spans(found, values, setup).items():
        for side, own in (("low", low), ("high", high)):
            best = match(setup, found, own, near=values, seed=seed)
            made.append(End(about, words, side, best.applied(own), best.known))
    if not known:
        fast = replace(values, speed=_FASTER * values.speed)
        made.append(End("speed", "speed of generation", "high", fast, False))
    return made


def span_of(value: float, by_end: Sequence[tuple[End, float]], *, least: float = 0.0) -> Span:
    """Put a prediction and what it is at the ends together: deviations of different numbers add in squares.

    Numbers that are merely open (a range and no value) do not err by chance: the widest of them counts whole.

    Parameters
    ----------
    value : float
        At the fitted numbers.
    by_end : sequence of (End, float)
        At the ends.
    least : float
        What the quantity is never below: 0 for seconds, tokens, versions, shares.
    """
    below = above = 0.0
    widest, by = 0.0, ""
    groups: dict[str, list[float]] = {}
    for end, told in by_end:
        if math.isfinite(told):
            groups.setdefault(end.words, []).append(told - value)
    for words, deviations in groups.items():
        down, up = min(0.0, *deviations), max(0.0, *deviations)
        below, above = below + down**2, above + up**2
        if up - down > widest:
            widest, by = up - down, words
    low, high = value - math.sqrt(below), value + math.sqrt(above)
    return Span(value, max(least, low) if math.isfinite(low) else low, high, by)


def simulated(
    setup: Setup,
    found: Estimates,
    values: Values,
    means: Sequence[tuple[int, float]],
    steps: int,
    *,
    seed: int = 0,
) -> Moments:
    """Simulate a run whose lengths have the means of some segments of its steps."""
    run = steps_to_run(setup, steps)
    several = int(setup.config().updates_per_batch)
    law = None
    if means:
        # A law that the rules bias keeps its own mean beside the one that was trained.
        bias = (
            values.mean_tokens / found.lengths.mean.value
            if found.lengths and len(found.lengths.segments) == 1
            else 1.0
        )
        own = [(first, mean * bias) for first, mean in means]
        law = law_of(found, values, shortened(own, steps, run, several))
    return moments(config_of(setup, found, values, law=law), run, found.step.value, seed=seed)


def predictions(
    setup: Setup,
    found: Estimates,
    values: Values,
    ends: Sequence[End],
    means: Sequence[tuple[int, float]] = (),
    steps: int | None = None,
    *,
    seed: int = 0,
) -> dict[str, Span]:
    """Predict a run with the range that the data leave, by the name of what is predicted."""
    steps = found.steps if steps is None else steps
    own = simulated(setup, found, values, means, steps, seed=seed)
    at_ends = [(end, simulated(setup, found, end.values, means, steps, seed=seed)) for end in ends]
    told = {
        name: span_of(getattr(own, name), [(end, getattr(told, name)) for end, told in at_ends])
        for name in PREDICTED
    }
    return told | _by_what_is_assumed(setup, found, told)


def _by_what_is_assumed(setup: Setup, found: Estimates, told: Mapping[str, Span]) -> dict[str, Span]:
    """Return as ranges what is not in the log and an assumption decides: tokens, by the rules lag and drops.

    Seconds do not rest on the mean of lengths that is assumed; all that is in tokens is in proportion to it.
    """
    changed = {}
    nominal = found.lengths is None and "response_length" not in setup.given
    if nominal or setup.assumes("batch_groups"):
        by = "lengths (assumed)" if nominal else "batch (assumed)"
        changed["tokens_per_second"] = Span(told["tokens_per_second"].value, 0.0, math.inf, by)
    if nominal and not setup.speed_is_given:
        changed["decode_speed"] = Span(told["decode_speed"].value, 0.0, math.inf, "lengths (assumed)")
    if setup.in_turn or not setup.assumes("preset"):
        return changed
    lag, drops = told["lag"], told["drops"]
    if not math.isfinite(found.lag.value):
        bound = preset_lag_bound(setup.preset, setup.fields)
        high = lag.high if bound is None else max(lag.high, float(bound))
        changed["lag"] = Span(lag.value, 0.0, high, RULES)
    if not math.isfinite(found.drops.value) and drops.high > _DROPPED * setup.rollouts:
        changed["drops"] = Span(drops.value, 0.0, drops.high, RULES)
    return changed


def speed_fit(found: Estimates, values: Values, ends: Sequence[End], best: Match, speed: Span) -> Fit | None:
    """Return what was found by simulation, with its interval, all that bears on it counted.

    Parameters
    ----------
    found : Estimates
    values : Values
    ends : sequence of End
    best : Match
    speed : Span
        The predicted speed of a rollout in flight.
    """
    if best.by == "engine":
        return None
    if best.by == "delay":
        span = span_of(values.delay, [(end, end.values.delay) for end in ends])
        how = "what a simulated run must wait beside its generation to wait as long"
        return Fit("between generations", span.value, span.low, span.high, "s", found.steps, how)
    how = {
        "waits": "the speed at which a simulated run waits as long",
        "drops": "the speed at which a simulated run drops as much",
        "lag": "the speed at which a simulated run has the same lag",
        "nothing": "the trainer hardly waits: at least this fast",
    }[best.by]
    known = best.known and all(end.known for end in ends)
    return Fit(
        "decoding: a rollout in flight", speed.value, speed.low, speed.high if known else math.inf,
        "tokens/s", found.steps, how, open=not speed.identified or not known,
    )  # fmt: skip
