"""An engine from a data sheet: what a step reads, computes and sends, at the efficiencies of a plan.

::

    step = layers * h + max(weights / (bandwidth * e_w), 2 A n / (T * peak * e_b)) + all-reduces
           + cache bytes * context / (T * bandwidth * e_k)

n rollouts run. The reading of weights overlaps with arithmetic, so the larger of the two counts: below the
ridge a rollout's arithmetic shows nothing. An engine of a pipeline has one fixed part and one part for each
rollout, so beyond the ridge both are taken from the line through an empty step and one with n rollouts: it is
right at both ends. Of a mixture of experts those experts are read that n tokens are sent to; while a batch
ends, with fewer running, a real engine reads fewer, and is faster than this.

All-reduces: two a layer. The fixed time of a layer holds that of small messages over NVLink; bytes count
where a message is over about 100 KB, at rates measured on H100 and in proportion to the links of other cards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..config.engine import Engine
from ..engines.roofline import Deployment
from ..laws.lengths import LengthLaw

# Bytes per second of an all-reduce by the number of ranks, and the links they were measured on (H100 SXM).
_REDUCE_RATES = {2: 66e9, 4: 39e9, 8: 39e9}
_MEASURED_LINK = 450e9
_SMALL_MESSAGE_BYTES = 100e3


def mean_context(law: LengthLaw, prompt_tokens: int) -> float:
    """Return the context of a rollout caught at any moment: its prompt, and half of its answer.

    Long answers run longer, so they are caught more often: E[L^2] / (2 E[L]).

    Examples
    --------
    >>> mean_context(LengthLaw.fixed(1000), 500)
    1000.0
    """
    share = np.diff(law.cdf, prepend=0.0)
    tokens = law.minimum + np.arange(len(law.cdf), dtype=np.float64)
    return prompt_tokens + float(np.dot(share, tokens * tokens) / (2.0 * np.dot(share, tokens)))


def running_at_once(cap: int, cache_tokens: int | None, context: float, most: float) -> float:
    """Return how many rollouts an engine decodes at once: by its cap, its cache, and what can be in flight.

    Examples
    --------
    >>> running_at_once(256, 300_000, 5000.0, 1000.0)
    60.0
    """
    held = math.inf if cache_tokens is None else cache_tokens / context
    return max(1.0, min(cap, held, most))


def bytes_read(deployment: Deployment, rollouts: float, distinct: float = 1.0) -> float:
    """Return the bytes of weights that one rank reads in a step.

    Parameters
    ----------
    deployment : Deployment
    rollouts : float
        Tokens in the step.
    distinct : float
        Distinct experts as a share of what even routing reads; a token's own experts are always read.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.roofline import deployment_of
    >>> mixture = deployment_of("Qwen3-30B-A3B", "H100")
    >>> round(bytes_read(mixture, 1) / 1e9, 2), round(bytes_read(mixture, 32) / 1e9, 2)
    (6.08, 53.09)
    """
    experts = deployment.shape.experts
    if experts is None:
        return deployment.bytes_read(rollouts)
    one = experts.experts_per_token / experts.num_experts
    whole, least = deployment.bytes_read(math.inf), deployment.bytes_read(1)
    of_experts = (whole - least) / (1.0 - one) if one < 1.0 else 0.0
    rest = whole - of_experts
    share = (deployment.bytes_read(rollouts) - rest) / of_experts if of_experts else 0.0
    return rest + of_experts * max(one, distinct * share)


def all_reduce_seconds(deployment: Deployment, rollouts: float) -> tuple[float, float]:
    """Return what all-reduces add to a step, and to it for each rollout.

    Over PCIe small messages cost too; over fast links those are part of a layer's fixed time.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.roofline import deployment_of
    >>> fixed, each = all_reduce_seconds(deployment_of("Qwen3-32B", "H100", tensor_parallel=4), 32)
    >>> fixed, round(32 * each * 1e3, 2)
    (0.0, 1.08)
    """
    card, ranks, hidden = deployment.accelerator, deployment.tensor_parallel, deployment.shape.hidden_size
    if ranks == 1:
        return 0.0, 0.0
    if not card.has_fast_links:
        return deployment.all_reduce_seconds()
    if rollouts * hidden * 2 < _SMALL_MESSAGE_BYTES:
        return 0.0, 0.0
    rate = _REDUCE_RATES[min((known for known in _REDUCE_RATES if known >= ranks), default=8)]
    rate *= (card.link_bytes_per_second or _MEASURED_LINK) / _MEASURED_LINK
    return 0.0, 2 * deployment.shape.num_layers * 2 * hidden / rate


def step_coefficients(
    deployment: Deployment, values: Mapping[str, float], rollouts: float, context: float
) -> dict[str, float]:
    """Return an engine's coefficients at some inputs and so many running rollouts.

    Parameters
    ----------
    deployment : Deployment
    values : mapping
        The inputs of :func:`.inputs.engine_inputs` by name.
    rollouts : float
        How many run at once: where arithmetic overtakes the weights, and which experts are read.
    context : float
        Tokens of a usual rollout's context: what layers with windows keep of it.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.roofline import deployment_of
    >>> from lagsweep.sweeps.plan.inputs import engine_inputs
    >>> one = deployment_of("Llama-3.1-8B", "H100")
    >>> usual = {each.name: each.value for each in engine_inputs(one.shape)}
    >>> found = step_coefficients(one, usual, 64, 2000)
    >>> round(found["step_seconds"] * 1e3, 2), found["step_seconds_per_rollout"]
    (6.9, 0.0)
    >>> step_coefficients(one, usual, 512, 2000)["step_seconds_per_rollout"] > 0
    True
    """
    bandwidth = deployment.accelerator.memory_bytes_per_second
    arithmetic = deployment.flops_per_token / deployment.peak
    weights = bytes_read(deployment, rollouts, values.get("distinct_experts", 1.0))
    reading = weights / (bandwidth * values["weight_efficiency"])
    beyond = max(0.0, rollouts * arithmetic / values["rollout_efficiency"] - reading)
    fixed, each = all_reduce_seconds(deployment, rollouts)
    return {
        "step_seconds": deployment.shape.num_layers * values["layer_seconds"] + fixed + reading,
        "step_seconds_per_rollout": beyond / rollouts + each,
        "step_seconds_per_context_token": deployment.cache_bytes_at(context)
        / (bandwidth * values["cache_efficiency"]),
        "prefill_seconds_per_token": arithmetic / values["prefill_efficiency"],
    }


def engine_from(coefficients: Mapping[str, float], **rest: Any) -> Engine:
    """Build an engine, with six digits of each coefficient.

    Examples
    --------
    >>> engine_from({"step_seconds": 0.0123456789}, count=2).step_seconds
    0.0123457
    """
    short = {name: float(f"{value:.6g}") for name, value in coefficients.items()}
    return Engine(**short, **rest)
