"""What a fit does not tell, in words: what only the priors say, limits that are missing, a poor match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .over_time import most_at_once
from .requests import Requests

if TYPE_CHECKING:
    from .engine_fit import EngineFit

_TOGETHER = 0.7
_POOR = 0.05
_NEAR_FULL = 0.9
_INSIDE_A_STEP = ("layer_seconds", "weight_efficiency")


def doubts(fit: EngineFit) -> tuple[str, ...]:
    """Say what to mind, most important first."""
    return (*_match(fit), *_memory(fit), *_beyond(fit), *_untold(fit), *_seen(fit))


def _match(fit: EngineFit) -> Iterator[str]:
    shown = fit.held or fit.fitted
    if shown.per_token_median > _POOR or abs(shown.end_to_end_mean) > 2 * _POOR:
        yield (
            "the engine as described does not explain these times: check the model, the card, tensor "
            "parallelism, the number of engines, and the units"
        )
    if not isinstance(fit.requests, Requests) or fit.result is None:
        return
    if "queue_wait" not in fit.requests.measured:
        return
    waited = fit.requests.measured["queue_wait"]
    told = fit.result.requests_frame()["queue_wait_seconds"].to_numpy()
    seen, made = float(np.nanmean(waited)), float(np.nanmean(told))
    if abs(seen - made) > 0.5 and not 0.67 < (made + 0.1) / (seen + 0.1) < 1.5:
        yield (
            f"requests waited {seen:.3g} s before they ran, on the fitted engine {made:.3g} s: a limit is "
            "not as given (--max-running, --kv-cache-tokens, --engines)"
        )


def _memory(fit: EngineFit) -> Iterator[str]:
    held = fit.engine.kv_cache_tokens
    if held is None or fit.result is None or not fit.given["kv_cache_tokens"].startswith("by"):
        return
    most = most_at_once(fit.result)[2]
    if most > _NEAR_FULL * held:
        yield (
            f"memory decides here, and its {held:,} tokens are worked out ({fit.given['kv_cache_tokens']}): "
            "give --kv-cache-tokens as the engine printed it"
        )


def _beyond(fit: EngineFit) -> Iterator[str]:
    for one in fit.parameters:
        prior = one.prior
        assert prior is not None
        if one.name.endswith("_efficiency") and one.low > 1:
            yield f"{one.words}: {one.value:.2f} is above 1, as no card can do: is it another card or format?"
        elif not prior.is_share and not prior.low / 1.5 < one.value < prior.high * 1.5:
            yield f"{one.words}: {one.value:.3g} is far from what was seen elsewhere"


def _untold(fit: EngineFit) -> Iterator[str]:
    fixed = fit.coefficients[0]
    if any(one.name in _INSIDE_A_STEP and one.told_by != "data" for one in fit.parameters):
        yield (
            "how the fixed part of a step divides into the layers' own time and the reading of weights is "
            f"the priors' saying; their sum is known to ±{(fixed.high - fixed.low) / 2 / fixed.value:.0%}"
        )
    alone = [one.words for one in fit.parameters if one.told_by == "prior" and one.name not in _INSIDE_A_STEP]
    if alone:
        yield f"the data do not tell these, the priors do: {'; '.join(alone)}"
    running, context = _typical(fit)
    drawn = [fit.deployment.coefficients(one, running) for one in fit.optimum.draws]
    each = np.array([running * one["step_seconds_per_rollout"] for one in drawn])
    token = np.array([context * one["step_seconds_per_context_token"] for one in drawn])
    one_part, together = max(each.std(), token.std()), (each + token).std()
    if together < _TOGETHER * one_part:
        yield (
            "the time of a rollout and that of its context are not told apart, since they rise and fall "
            f"together here: the two are {1e3 * (each + token).mean():.3g} ± {2e3 * together:.1g} ms of a "
            f"typical step, one alone ± {2e3 * one_part:.1g} ms; a run with other lengths would tell them"
        )


def _typical(fit: EngineFit) -> tuple[float, float]:
    """Return the rollouts of a typical step, and their context."""
    if not isinstance(fit.requests, Requests):
        running = float(np.median(fit.requests.running))
        return running, running * float(np.median(fit.requests.context_tokens))
    assert fit.result is not None
    totals = fit.result.totals
    return float(totals["mean_engine_running"] or 0), float(totals["mean_engine_context_tokens"] or 0)


def _seen(fit: EngineFit) -> Iterator[str]:
    if not isinstance(fit.requests, Requests):
        most = float(fit.requests.running.max())
        yield (
            f"seen: up to {most:,.0f} rollouts at once; prefill is not told apart from the cache, and shows "
            "in its share"
        )
        return
    assert fit.result is not None
    running, _, context = most_at_once(fit.result)
    yield (
        f"seen: up to {running:,} rollouts at once and {context:,.0f} tokens of context on an engine; beyond "
        "that the fit goes on in a straight line"
    )
    ridge = fit.deployment.ridge_rollouts
    if running < ridge < 1024:
        yield f"from about {ridge:,.0f} rollouts on a step's arithmetic shows, which no step here tells"
