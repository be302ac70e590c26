"""A choice of values for all that was fitted, and the configuration that it gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config.config import PipelineConfig
from ..laws.lengths import LengthLaw
from .estimates import Estimates
from .fits import Fit
from .generation import MOST_SHARED
from .lengths import lognormal_of
from .setup import FASTEST, Setup

HORIZON_SECONDS = 5e5  # the longest run; a shared speed allows no longer one
NOMINAL_TOKENS = 1000.0  # of a response, where the log has no lengths: times do not depend on it
SLOTS = "slots"  # what is uncertain where the rollouts at once were assumed
USUAL_SIGMA = Fit("", 0.6, 0.3, 1.1, "", 0, "", open=True)


@dataclass(frozen=True)
class Values:
    """One choice of values: those of the configuration, or with one of them at an end of its interval.

    Attributes
    ----------
    train_fixed, train_per_token : float
        Seconds of a step beside waits and publications.
    train_spread : float
    sync_seconds, fetch_seconds, slowdown : float
    mean_tokens, sigma, between_prompts : float
        Of the law of lengths.
    shared : float
        The share of a rollout's time among many that is work which all in flight share.
    overhead : float
        The share of the longest rollout's seconds alone that its tokens do not take.
    idle_seconds : float
        What a step spends on neither training nor publication: what the speed of decoding must bring about.
    lag, drops : float
        What it must bring about where the trainer hardly waits; NaN where they are not logged.
    speed : float
        Tokens a second of a rollout alone; found last.
    delay : float
        Seconds from one generation to the next beside it; found in place of the speed, where a log has both.
    slots : int
        Rollouts at once, where they are not those of the set-up; 0 where they are.
    """

    train_fixed: float
    train_per_token: float
    train_spread: float
    sync_seconds: float
    fetch_seconds: float
    slowdown: float
    mean_tokens: float
    sigma: float
    between_prompts: float
    shared: float
    overhead: float
    idle_seconds: float
    lag: float = math.nan
    drops: float = math.nan
    speed: float = 1.0
    delay: float = 0.0
    slots: int = 0


def middle(found: Estimates, setup: Setup) -> Values:
    """Return the values of the configuration, but for what a simulation finds."""
    fixed, rate = training_of(found, "value", 0.0)
    lengths = found.lengths
    return Values(
        train_fixed=fixed,
        train_per_token=rate,
        train_spread=found.spread,
        sync_seconds=found.publication.seconds.value if found.publication else 0.0,
        fetch_seconds=found.fetch.value if found.fetch else 0.0,
        slowdown=found.interference.value if found.interference else 0.0,
        mean_tokens=lengths.segments[-1][1] if lengths else NOMINAL_TOKENS,
        sigma=lengths.sigma.value if lengths else 0.6,
        between_prompts=min(lengths.between_prompts.value, 0.98 * lengths.sigma.value) if lengths else 0.0,
        shared=_usual_share(found),
        overhead=found.generation.overhead if found.generation else 0.0,
        idle_seconds=found.idle.value,
        lag=found.lag.value,
        drops=found.drops.value,
    )


def _usual_share(found: Estimates) -> float:
    if found.generation is not None:
        return found.generation.shared[0] if math.isfinite(found.generation.shared[0]) else 0.0
    return 0.5 * MOST_SHARED


def training_of(found: Estimates, which: str, tokens: float) -> tuple[float, float]:
    """Return seconds and seconds for each token of a step, all phases together: values, lows or highs.

    The ends are those of steps with so many tokens: a fixed part and a part for each token that err against
    each other do not err together.
    """
    fixed = sum(one.fixed.value for one in found.phases)
    rate = sum(one.per_token.value for one in found.phases if one.per_token)
    if which == "value":
        return fixed, rate
    place = 0 if which == "low" else 1
    mean = fixed + rate * tokens
    told = [(one.interval(tokens)[place], float(one.seconds(tokens))) for one in found.phases]
    off = math.sqrt(sum((end - value) ** 2 for end, value in told))
    factor = 1 + (off if which == "high" else -off) / mean if mean > 0 else 1.0
    return fixed * factor, rate * factor


def spans(found: Estimates, values: Values, setup: Setup) -> dict[str, tuple[str, Values, Values]]:
    """Return, by what is uncertain, the values with it at either end of its interval, and words for it."""
    lengths, fits = found.lengths, {}

    def two(name: str, words: str, low: float, high: float) -> None:
        if high - low > 1e-9 * max(abs(high), 1.0):
            first: dict[str, Any] = {name: low}
            last: dict[str, Any] = {name: high}
            fits[name] = (words, replace(values, **first), replace(values, **last))

    tokens = setup.rollouts * (values.mean_tokens + float(setup.fields.get("prompt_tokens", 0)))
    low, high = training_of(found, "low", tokens), training_of(found, "high", tokens)
    if high[0] + high[1] > low[0] + low[1]:
        fits["training"] = (
            "training",
            replace(values, train_fixed=low[0], train_per_token=low[1]),
            replace(values, train_fixed=high[0], train_per_token=high[1]),
        )
    fits["idle"] = (
        "speed of generation",
        replace(values, idle_seconds=found.idle.low, drops=found.drops.high, lag=found.lag.high),
        replace(values, idle_seconds=found.idle.high, drops=found.drops.low, lag=found.lag.low),
    )
    if found.generation is not None:
        two("shared", "work that rollouts share", *found.generation.shared[1:])
    elif not setup.speed_is_given:
        two("shared", "work that rollouts share", 0.0, MOST_SHARED)
    if found.fetch:
        two("fetch_seconds", "fetch", found.fetch.low, found.fetch.high)
    if found.publication:
        two("sync_seconds", "publication", found.publication.seconds.low, found.publication.seconds.high)
    if found.interference:
        two("slowdown", "slowdown of training", found.interference.low, found.interference.high)
    if setup.assumes("rollout_workers") and int(setup.fields["rollout_workers"]) > setup.rollouts:
        fits[SLOTS] = ("rollouts at once (assumed)", replace(values, slots=setup.rollouts), values)
    sigma = lengths.sigma if lengths else USUAL_SIGMA
    two("sigma", "spread of lengths", max(sigma.low, values.between_prompts + 0.02), sigma.high)
    if lengths:
        most = min(lengths.between_prompts.high, 0.98 * values.sigma)
        two("between_prompts", "spread between prompts", min(lengths.between_prompts.low, most), most)
    return fits


def law_of(found: Estimates, values: Values, means: Sequence[tuple[int, float]] = ()) -> LengthLaw:
    """Return the law of some values: of their mean, or by segments of (first version, mean)."""
    maximum = found.lengths.maximum if found.lengths else int(16 * NOMINAL_TOKENS)
    own = math.sqrt(max(values.sigma**2 - values.between_prompts**2, 0.02**2))
    if len(means) < 2:
        return lognormal_of(round(means[0][1] if means else values.mean_tokens, 2), own, maximum)
    return LengthLaw.schedule([(first, lognormal_of(round(mean, 2), own, maximum)) for first, mean in means])


def config_of(
    setup: Setup,
    found: Estimates,
    values: Values,
    *,
    law: LengthLaw | None = None,
    more: Mapping[str, Any] | None = None,
) -> PipelineConfig:
    """Return the configuration of some values.

    Parameters
    ----------
    setup : Setup
    found : Estimates
    values : Values
    law : LengthLaw, optional
        In place of the one that the values give.
    more : mapping
        Further fields, as how long to run.
    """
    several = int(setup.config().updates_per_batch)
    fields: dict[str, Any] = {
        "response_length": law or law_of(found, values),
        "prompt_sigma": _short(values.between_prompts) if setup.group_size > 1 else 0.0,
        "train_overhead_seconds": _short(values.train_fixed / several),
        "train_tokens_per_second": _short(1 / values.train_per_token)
        if values.train_per_token > 0
        else FASTEST,
        "train_spread": _short(values.train_spread),
        "sync_seconds": _short(values.sync_seconds),
        "fetch_seconds": _short(values.fetch_seconds),
        "train_slowdown_when_generating": _short(values.slowdown),
        **(more or {}),
    }
    if found.evaluation is not None and setup.holds.get("evaluation_seconds"):
        fields |= {
            "evaluation_every_updates": found.evaluation.every * several,
            "evaluation_seconds": _short(found.evaluation.seconds.value),
        }
    if not setup.speed_is_given:
        fields |= _decoding(setup, found, values)
    else:
        fields["rollout_overhead_seconds"] = _short(values.delay)
    if values.slots:
        setup = setup.with_slots(values.slots)
    return setup.config(**fields)


def _decoding(setup: Setup, found: Estimates, values: Values) -> dict[str, Any]:
    """Return speed, slowdown and overhead of decoding, from the shares that the rest of the values say.

    Of a generation, ``shared`` is work of all, and ``overhead`` of what is left is the longest rollout's
    that its tokens do not take; so ``g = shared / ((1 - shared) * (1 - overhead)) * longest / others``.
    """
    generation = found.generation
    longest = generation.longest if generation else math.nan
    if generation and longest > 0 and generation.all_tokens > 2 * longest:
        others = generation.all_tokens / longest - 1
    else:
        slots = values.slots or int(setup.fields["rollout_workers"])
        others = max(2, min(slots, 2 * setup.rollouts)) - 1.0
        longest = values.mean_tokens
    slowdown = values.shared / ((1 - values.shared) * (1 - values.overhead)) / others
    seconds = values.overhead / (1 - values.overhead) * longest / values.speed
    return {
        "decode_tokens_per_second": _short(values.speed),
        "decode_slowdown_per_rollout": _short(slowdown),
        "rollout_overhead_seconds": _short(seconds + values.delay),
    }


def _short(value: float) -> float:
    """Keep six digits, so that a file holds what was tried."""
    return float(f"{value:.6g}")
