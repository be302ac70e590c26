"""Every number that a calibrated configuration holds and its log does not: named, with the way out.

The set-up assumes rules, batches and slots where nobody says them. What is fitted is assumed too where the
log leaves it open: the configuration has to take one value of the range, and the range is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...kernels.errors import Finding
from .configuration import Values, law_of
from .generation import MOST_SHARED
from .text import figure
from .waits import is_material

if TYPE_CHECKING:
    from .estimates import Estimates
    from .matching import Match
    from .setup import Setup

_LENGTHS = "Give --lengths FILE."


def assumptions(setup: Setup, found: Estimates, values: Values, best: Match) -> tuple[Finding, ...]:
    """Return all that is assumed of a run: its settings, and what its log leaves open.

    Parameters
    ----------
    setup : Setup
    found : Estimates
    values : Values
        What the configuration takes.
    best : Match
        How the speed was found.
    """
    made = [*_lengths(setup, found, values), *_speed(setup, found, values, best), *_rest(setup, found)]
    return (*setup.assumed, *(one for one in made if one.field not in setup.given))


def _lengths(setup: Setup, found: Estimates, values: Values) -> Iterator[Finding]:
    """Name what the law of lengths rests on."""
    if "response_length" in setup.given:
        return
    lengths = found.lengths
    if lengths is None:
        law = law_of(found, values)
        words = f"lognormal, mean {law.mean_tokens:,.0f} tokens, at most {law.maximum:,}"
        rule = f"is not in the log: {words} assumed; every figure in tokens rests on it"
        yield Finding("response_length", rule, way_out=f"{_LENGTHS[:-1]}, or --response-length LAW.")
        yield Finding(
            "spread of lengths",
            f"is not in the log: a sigma of {values.sigma:g} assumed, 0.3 to 1.1 tried",
            way_out=_LENGTHS,
        )
        return
    if lengths.sigma.open:
        low, high = figure(lengths.sigma.low), figure(lengths.sigma.high)
        rule = f"is not in the log: a sigma of {values.sigma:g} assumed, {low} to {high} tried"
        yield Finding("spread of lengths", rule, way_out=_LENGTHS)
    if not lengths.is_limit:
        rule = f"does not show in the log: {lengths.maximum:,} tokens assumed, well above what was seen"
        yield Finding("longest response", rule, way_out="Give --response-length LAW, which has a limit.")
    if lengths.between_prompts.open and setup.group_size > 1:
        high = figure(lengths.between_prompts.high)
        rule = f"is not told apart: {values.between_prompts:.2g} assumed, 0 to {high} tried"
        yield Finding("spread between prompts", rule, way_out=_LENGTHS)
    if "prompt_tokens" not in setup.fields:
        rule = "is not in the log: none assumed"
        yield Finding("prompt_tokens", rule, way_out="Give --prompt-tokens N.")


def _speed(setup: Setup, found: Estimates, values: Values, best: Match) -> Iterator[Finding]:
    """Name what is open of generation."""
    fetch = found.fetch
    if fetch is not None and fetch.open and is_material(fetch.high, found.step.value):
        rule = (
            f"cannot be told from generation, since every step waits: {values.fetch_seconds:g} assumed, "
            f"0 to {figure(fetch.high)} s tried"
        )
        yield Finding("fetch_seconds", rule, way_out="Give --fetch-seconds SECONDS.")
    if setup.speed_is_given:
        return
    engine = "Give --samples FILE, or --engine FILE."
    generation = found.generation
    if generation is None or generation.work_per_token.open:
        most = MOST_SHARED if generation is None else generation.shared[2]
        rule = f"is not in the log: {values.shared:.0%} of a rollout's time assumed, 0 to {most:.0%} tried"
        yield Finding("work that rollouts share", rule, way_out=engine)
    if not best.known:
        rule = "is at least what the configuration has: nothing waits for it; up to 8 times as fast tried"
        yield Finding("decode_tokens_per_second", rule, way_out=engine)


def _rest(setup: Setup, found: Estimates) -> Iterator[Finding]:
    """Name what no log of a trainer has."""
    if not setup.in_turn and found.interference is None:
        rule = "is not in the log: training is assumed as fast while rollouts are generated"
        way_out = "Give --train-slowdown-when-generating SHARE."
        yield Finding("train_slowdown_when_generating", rule, way_out=way_out)
    if found.checkpoint is not None and setup.holds.get("checkpoint_seconds"):
        seconds = found.checkpoint.seconds.value / found.checkpoint.every
        rule = f"are left out of the configuration: {figure(seconds)} s of a step in the log"
        yield Finding("checkpoints", rule, way_out="Add them to what is predicted.")
    drift = float(setup.config().drift_per_version)
    rule = f"is in no log: {drift:g} assumed; every ESS rests on it"
    yield Finding("drift_per_version", rule, way_out="Give --drift-per-version X.")
