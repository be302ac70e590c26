"""KV caches of mixed layers: full, sliding window, chunked, latent, constant-state and none.

How much a windowed layer holds has four published answers, so the policy is a parameter:

``payload``
    ``min(window, tokens)``: what attention can still read. The lower bound, and our default, because the
    plain formula counts payload too.
``between_steps``
    ``min(window - 1, tokens)``: what transformers keeps between two decoding steps (measured there).
``page_bound``
    ``(ceil(min(window - 1 + max_batched_tokens, tokens) / block) + 1) * block`` tokens: what vLLM's block
    manager may hold while a long prompt is prefilled; like vLLM's, not capped at the sequence's own pages.
``reserved``
    ``tokens``: engines that give all layers pages of one pool reserve the full length on every layer.

A chunked layer (attention inside chunks of C tokens) holds at most its chunk: ``min(C, tokens)``, with the
policies read alike except that nothing is dropped between steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from .._arguments import Integers, Numbers, choice, instance, listed
from ..errors import ConfigError
from ._exact import Exact, amount, check_shapes, count, one_count
from .kv_cache import latent_token_bytes, token_layer_bytes

WINDOW_POLICIES = ("payload", "between_steps", "page_bound", "reserved")


LAYER_KINDS = ("full", "sliding", "chunked", "latent", "constant")
_HEADS = ("num_kv_heads", "head_dim")
_NEEDS = {
    "full": _HEADS,
    "sliding": (*_HEADS, "window_tokens"),
    "chunked": (*_HEADS, "window_tokens"),
    "latent": ("kv_lora_rank",),
    "constant": (),
}


@dataclass(frozen=True, kw_only=True)
class KVLayer:
    """What one kind of layer caches; ``copies`` of them in the model.

    Build it with :meth:`full`, :meth:`sliding`, :meth:`chunked`, :meth:`latent`, :meth:`constant`.
    """

    kind: str
    copies: int = 1
    num_kv_heads: int = 0
    head_dim: int = 0
    value_head_dim: int | None = None
    window_tokens: int | None = None
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    state_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the numbers, and that the kind has a window where it needs one and none elsewhere."""
        choice("kind", self.kind, LAYER_KINDS, way_out="Build it with KVLayer.full and its sisters.")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None:
                least = 1 if field.name in _NEEDS[self.kind] else 0
                object.__setattr__(self, field.name, one_count(field.name, value, least))
        windowed = self.kind in ("sliding", "chunked")
        if windowed != (self.window_tokens is not None):
            rule = (
                f"is needed by kind {self.kind!r}" if windowed else f"has no meaning for kind {self.kind!r}"
            )
            raise ConfigError("window_tokens", rule, self.window_tokens, "Give each kind its own numbers.")

    def __mul__(self, copies: int) -> KVLayer:
        return replace(self, copies=self.copies * one_count("copies", copies))

    __rmul__ = __mul__

    @classmethod
    def full(cls, num_kv_heads: int, head_dim: int, value_head_dim: int | None = None) -> KVLayer:
        """Build a layer that attends to everything."""
        return cls(kind="full", num_kv_heads=num_kv_heads, head_dim=head_dim, value_head_dim=value_head_dim)

    @classmethod
    def sliding(cls, num_kv_heads: int, head_dim: int, window_tokens: int) -> KVLayer:
        """Build a layer that attends to the last ``window_tokens`` tokens."""
        return cls(kind="sliding", num_kv_heads=num_kv_heads, head_dim=head_dim, window_tokens=window_tokens)

    @classmethod
    def chunked(cls, num_kv_heads: int, head_dim: int, chunk_tokens: int) -> KVLayer:
        """Build a layer that attends inside chunks of ``chunk_tokens`` tokens."""
        return cls(kind="chunked", num_kv_heads=num_kv_heads, head_dim=head_dim, window_tokens=chunk_tokens)

    @classmethod
    def latent(cls, kv_lora_rank: int, rope_head_dim: int) -> KVLayer:
        """Build a multi-head latent attention layer."""
        return cls(kind="latent", kv_lora_rank=kv_lora_rank, rope_head_dim=rope_head_dim)

    @classmethod
    def constant(cls, state_bytes: int) -> KVLayer:
        """Build a layer with a fixed state per sequence (Mamba, linear attention); 0 for none."""
        return cls(kind="constant", state_bytes=state_bytes)


def _policy(window_policy: str) -> str:
    return choice(
        "window_policy", window_policy, WINDOW_POLICIES, way_out="Choose one; the module explains them."
    )


def _held_tokens(
    tokens: Exact, window: Exact, policy: str, block: Exact, batched: Exact, *, sliding: bool
) -> Exact:
    if policy == "reserved":
        return tokens
    if policy == "between_steps" and sliding:
        return tokens.minimum(window - 1)
    if policy == "page_bound":
        reach = (window - 1 if sliding else window) + batched
        # The extra page is there because a window need not begin where a page does; chunks do.
        pages = tokens.minimum(reach).ceil_divide(block) + (1 if sliding else 0)
        return (pages * block).minimum(tokens * (pages * block))  # no tokens, no pages
    return tokens.minimum(window)


def sliding_window_tokens(
    tokens_per_sequence: Numbers,
    window_tokens: Numbers,
    window_policy: str = "payload",
    *,
    block_tokens: Numbers = 16,
    max_batched_tokens: Numbers = 8192,
) -> Integers:
    """Return the tokens that one sliding-window layer holds for one sequence.

    Parameters
    ----------
    tokens_per_sequence, window_tokens : int or array_like
        Length so far, and the window (at least 1).
    window_policy : {"payload", "between_steps", "page_bound", "reserved"}
        Whose answer; the module's docstring defines them.
    block_tokens, max_batched_tokens : int or array_like
        Page size and the tokens of one engine step; only ``page_bound`` uses them.

    Returns
    -------
    int or numpy.ndarray
        Tokens.

    Raises
    ------
    ConfigError
        An unknown policy; negative, NaN, bool or fractional counts.

    Examples
    --------
    >>> [sliding_window_tokens(32768, 4096, policy) for policy in WINDOW_POLICIES]
    [4096, 4095, 12304, 32768]
    """
    policy = _policy(window_policy)
    tokens = count("tokens_per_sequence", tokens_per_sequence)
    window = count("window_tokens", window_tokens, minimum=1)
    block = count("block_tokens", block_tokens, minimum=1)
    batched = count("max_batched_tokens", max_batched_tokens, minimum=1)
    shape = check_shapes(
        tokens_per_sequence=tokens, window_tokens=window, block_tokens=block, max_batched_tokens=batched
    )
    held = _held_tokens(tokens, window, policy, block, batched, sliding=True)
    return held.broadcast(shape).result("sliding_window_tokens")


def hybrid_kv_cache_bytes(
    layers: Iterable[KVLayer],
    num_sequences: Numbers,
    tokens_per_sequence: Numbers,
    *,
    element_bytes: Numbers = 2,
    window_policy: str = "payload",
    block_tokens: Numbers = 1,
    max_batched_tokens: Numbers = 8192,
    scale_bytes_per_token_head: Numbers = 0,
    latent_layout: str = "plain",
    tensor_parallel: Numbers = 1,
) -> Integers:
    """Add up the caches of a list of layers of different kinds, on one rank.

    Parameters
    ----------
    layers : iterable of KVLayer
        The model's layers, such as ``[12 * KVLayer.full(8, 64), 12 * KVLayer.sliding(8, 64, 128)]``.
    num_sequences, tokens_per_sequence : int or array_like
        As in :func:`~.memory.kv_cache.kv_cache_bytes`.
    element_bytes, scale_bytes_per_token_head, tensor_parallel : number or array_like
        As there; latent and constant layers are not split by tensor parallelism.
    window_policy : str
        What windowed and chunked layers hold; see :func:`sliding_window_tokens`.
    block_tokens : int or array_like
        Page size; every layer is rounded up to whole pages. 1 counts tokens.
    max_batched_tokens : int or array_like
        Tokens of one engine step, for ``page_bound``.
    latent_layout : {"plain", "fp8_ds_mla"}
        Layout of latent layers.

    Returns
    -------
    int or numpy.ndarray
        Bytes, rounded up once.

    Raises
    ------
    ConfigError
        No layers, an unknown policy, and as ``kv_cache_bytes``.

    Examples
    --------
    gpt-oss-20b, 32 sequences of 8192 tokens: 6.09 GiB of payload, 12 GiB where one pool serves all layers.

    >>> layers = [12 * KVLayer.full(8, 64), 12 * KVLayer.sliding(8, 64, 128)]
    >>> [hybrid_kv_cache_bytes(layers, 32, 8192, window_policy=policy) for policy in ("payload", "reserved")]
    [6543114240, 12884901888]
    """
    kinds = listed("layers", layers, "List the model's layers.")
    for layer in kinds:
        instance("layers", layer, KVLayer, "Build each with KVLayer.full and its sisters.")
    if not kinds:
        raise ConfigError("layers", "must hold at least one layer", [], "List the model's layers.")
    policy = _policy(window_policy)
    sequences = count("num_sequences", num_sequences)
    tokens = count("tokens_per_sequence", tokens_per_sequence)
    block = count("block_tokens", block_tokens, minimum=1)
    batched = count("max_batched_tokens", max_batched_tokens, minimum=1)
    shape = check_shapes(
        num_sequences=sequences, tokens_per_sequence=tokens, block_tokens=block, max_batched_tokens=batched
    )
    total = Exact(0)
    for layer in kinds:
        copies = count("copies", layer.copies)
        if layer.kind == "constant":
            total = total + sequences * amount("state_bytes", layer.state_bytes) * copies
            continue
        if layer.kind == "latent":
            each = latent_token_bytes(layer.kv_lora_rank, layer.rope_head_dim, element_bytes, latent_layout)
        else:
            each = token_layer_bytes(
                layer.num_kv_heads,
                layer.head_dim,
                element_bytes,
                layer.value_head_dim,
                scale_bytes_per_token_head,
                tensor_parallel,
            )
        held = tokens
        if layer.window_tokens is not None:
            window = count("window_tokens", layer.window_tokens, minimum=1)
            held = _held_tokens(tokens, window, policy, block, batched, sliding=layer.kind == "sliding")
        check_shapes(
            tokens_per_sequence=held, num_sequences=sequences, element_bytes=each, block_tokens=block
        )
        total = total + sequences * (held.ceil_divide(block) * block) * each * copies
    return total.broadcast(np.broadcast_shapes(total.shape, shape)).result("hybrid_kv_cache_bytes")
