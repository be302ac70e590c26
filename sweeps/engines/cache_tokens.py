"""How many tokens of context an engine holds: the sum that vLLM does when it starts.

::

    tokens = (visible memory * utilization - weights - activations - other - graphs) / bytes a token

An engine prints its own number ("GPU KV cache size: 41,408 tokens"); that one is better than any sum, and
where weights fill the card a small error here is a large one in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.errors import NO_VALUE, ConfigError
from ..checks import WholeNumber, checked
from .roofline import Deployment

GIB = 2**30
UTILIZATION = 0.90
_BLOCK = 16
_LARGE_CARD_BYTES = 70 * GIB
_SAMPLER_BYTES = 15  # of a word of the vocabulary for each sequence: the sampler's logits


@dataclass(frozen=True)
class CacheTokens:
    """The sum's result and the range that its parts leave; 0 where weights do not fit.

    ``left_bytes`` is what the sum leaves to the cache on one rank (negative where memory is missing),
    ``doubt_bytes`` by how much its parts may be off, and ``bytes_per_token`` what a token takes there.
    """

    tokens: int
    low: int
    high: int
    left_bytes: float
    doubt_bytes: float
    bytes_per_token: float


def cache_tokens(
    deployment: Deployment,
    *,
    max_running: int | None = None,
    utilization: float = UTILIZATION,
    reserved_bytes: float = 0.0,
    context_tokens: float | None = None,
) -> CacheTokens:
    """Work out the tokens of context that one engine can hold.

    Parameters
    ----------
    deployment : Deployment
    max_running : int, optional
        The engine's limit of sequences; vLLM's default for the card when left out.
    utilization : float
        Share of the card's memory that the engine may take.
    reserved_bytes : float
        What others keep on each card while the engine runs, as a trainer that shares it.
    context_tokens : float, optional
        Of a usual rollout: layers with windows keep less of longer ones. Left out: one more token of a long
        context, or a window's where every layer has one.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.accelerators import load_accelerator
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> llama, card = load_model("Llama-3.1-8B"), load_accelerator("H100-SXM")
    >>> cache_tokens(Deployment(model=llama, accelerator=card), utilization=0.95).tokens
    476672
    """
    card, shape, ranks = deployment.accelerator, deployment.shape, deployment.tensor_parallel
    large = card.memory_bytes >= _LARGE_CARD_BYTES and not card.name.startswith("A100")
    sequences = max_running or (1024 if large else 256)
    activations = float(sequences * shape.vocabulary_size * _SAMPLER_BYTES)
    if large:
        activations = max(activations, 0.75 * GIB)
    if shape.experts is not None:
        activations += 0.5 * GIB
    other = 0.25 * GIB if ranks == 1 else (2.1 if card.has_fast_links else 0.55) * GIB
    left = card.memory_bytes * utilization - deployment.weight_bytes - activations - other - reserved_bytes
    doubt = (0.4 if ranks == 1 else 1.0) * GIB
    each = deployment.cache_bytes_per_token
    if context_tokens is not None:
        each = deployment.cache_bytes_at(context_tokens)
    elif not each:
        each = deployment.cache_bytes_at(shape.sliding_window or 1)
    low, middle, high = (
        max(0, int((left + part) / each) // _BLOCK * _BLOCK) for part in (-doubt, 0.0, doubt)
    )
    return CacheTokens(middle, low, high, left, doubt, each)


def limits_of(
    deployment: Deployment, kv_cache_tokens: int | str | None, max_running: int | None
) -> tuple[dict[str, int | None], dict[str, str]]:
    """Return what bounds an engine, and who says so."""
    given = {}
    if max_running is not None:
        max_running = checked(WholeNumber, "max_running", max_running, low=1, high=2**52)
    given["max_running"] = "no limit" if max_running is None else "given"
    if isinstance(kv_cache_tokens, str) and kv_cache_tokens == "none":
        held, given["kv_cache_tokens"] = None, "no limit, as was said"
    elif kv_cache_tokens is not None:
        held = checked(WholeNumber, "kv_cache_tokens", kv_cache_tokens, low=1, high=2**52)
        given["kv_cache_tokens"] = "given"
    else:
        found = cache_tokens(deployment, max_running=max_running)
        if not found.tokens:
            rule = "must be given: by the card's memory the weights do not fit"
            way_out = "Take the number that the engine printed when it started, or mend the model or card."
            raise ConfigError("kv_cache_tokens", rule, NO_VALUE, way_out)
        held = found.tokens
        given["kv_cache_tokens"] = f"by the card's memory: {found.low:,} to {found.high:,}"
    return {"kv_cache_tokens": held, "max_running": max_running}, given
