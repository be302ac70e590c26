"""Bytes of a key-value cache: full attention of any head sharing, latent attention, pages, scales, ranks.

One token of one layer keeps a key and a value per KV head::

    bytes = sequences * tokens * layers * kv_heads * (key_dim + value_dim) * element_bytes

KV heads are ``num_key_value_heads`` (all heads for MHA, a few for GQA, 1 for MQA), and the head dimension is
the published one, not hidden size over heads: Qwen3-0.6B has 16 heads of 128 with a hidden size of 1024.
Latent attention (MLA) keeps one compressed vector per token whatever the number of heads.

Windows and mixed layers are in :mod:`.memory.kv_layers`, budgets in
:mod:`.memory.kv_capacity`. Not counted: an engine's block tables, fragmentation between pools,
activations of the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._arguments import Integers, Numbers, choice
from ..errors import ConfigError
from ._exact import Exact, amount, check_shapes, count

# DeepSeek's fp8 layout: the latent in fp8 with one fp32 scale per 128 values, the rotary part in bf16.
_LATENT_TILE = 128
LATENT_LAYOUTS = ("plain", "fp8_ds_mla")


def heads_on_rank(num_kv_heads: Exact, tensor_parallel: Exact) -> Exact:
    """Return the KV heads on one rank: split while they last, then one on each.

    Raises
    ------
    ConfigError
        Neither number divides the other; engines refuse such a split too.
    """
    heads, ranks = num_kv_heads, tensor_parallel
    split = heads - heads.floor_divide(ranks) * ranks
    copies = ranks - ranks.floor_divide(heads) * heads
    if split.minimum(copies).largest():
        raise ConfigError(
            "tensor_parallel",
            "must divide num_kv_heads, or be a multiple of it so that heads are repeated",
            ranks.numerator,
            f"num_kv_heads is {heads.numerator}.",
        )
    return heads.ceil_divide(ranks)


def token_layer_bytes(
    num_kv_heads: Any,
    head_dim: Any,
    element_bytes: Any,
    value_head_dim: Any,
    scale_bytes_per_token_head: Any,
    tensor_parallel: Any,
) -> Exact:
    """Return what one token of one layer keeps on one rank."""
    heads = count("num_kv_heads", num_kv_heads, minimum=1)
    ranks = count("tensor_parallel", tensor_parallel, minimum=1)
    keys = count("head_dim", head_dim, minimum=1)
    values = keys if value_head_dim is None else count("value_head_dim", value_head_dim, minimum=1)
    element = amount("element_bytes", element_bytes)
    scale = amount("scale_bytes_per_token_head", scale_bytes_per_token_head)
    check_shapes(
        num_kv_heads=heads,
        tensor_parallel=ranks,
        head_dim=keys,
        value_head_dim=values,
        element_bytes=element,
        scale_bytes_per_token_head=scale,
    )
    return heads_on_rank(heads, ranks) * ((keys + values) * element + scale * 2)


def _paged(tokens: Exact, block_tokens: Any) -> Exact:
    block = count("block_tokens", block_tokens, minimum=1)
    check_shapes(tokens_per_sequence=tokens, block_tokens=block)
    return tokens.ceil_divide(block) * block


def kv_cache_bytes(
    num_sequences: Numbers,
    tokens_per_sequence: Numbers,
    num_layers: Numbers,
    num_kv_heads: Numbers,
    head_dim: Numbers,
    element_bytes: Numbers = 2,
    *,
    value_head_dim: Numbers | None = None,
    scale_bytes_per_token_head: Numbers = 0,
    block_tokens: Numbers = 1,
    tensor_parallel: Numbers = 1,
) -> Integers:
    """Return the KV cache of full attention: MHA, GQA and MQA differ in ``num_kv_heads`` alone.

    Parameters
    ----------
    num_sequences, tokens_per_sequence : int or array_like
        Sequences and the tokens each of them holds. No sequences (or no tokens) cost 0.
    num_layers : int or array_like
        Layers, or those of one pipeline stage.
    num_kv_heads, head_dim : int or array_like
        ``num_key_value_heads`` and the published ``head_dim``.
    element_bytes : number or array_like
        2 for bf16, 1 for fp8 or int8, 0.5 for 4 bits.
    value_head_dim : int or array_like, optional
        Where values are not as wide as keys.
    scale_bytes_per_token_head : number or array_like
        Bytes of one scale kept per token and head, for keys and for values each: 4 for the fp32 scales of
        int8 and fp8 caches that quantise per token and head (vLLM's page size), 0 for per-tensor scales.
    block_tokens : int or array_like
        Page size in tokens; each sequence is rounded up to whole pages. 1 counts tokens.
    tensor_parallel : int or array_like
        Gives the bytes on one rank: heads are split, and repeated where there are fewer of them than ranks.

    Returns
    -------
    int or numpy.ndarray
        Bytes, rounded up once; a Python integer of any size for scalars, int64 for arrays.

    Raises
    ------
    ConfigError
        Negative, NaN, bool or fractional counts; a tensor-parallel size that fits no head count; an array
        element of 2**63 or more.

    Examples
    --------
    >>> kv_cache_bytes(num_sequences=64, tokens_per_sequence=4096, num_layers=32, num_kv_heads=4,
    ...                head_dim=128, element_bytes=2) == 16 * 2**30
    True
    >>> kv_cache_bytes(1, [1024, 2048], 28, 8, 128)
    array([117440512, 234881024])
    """
    sequences = count("num_sequences", num_sequences)
    tokens = _paged(count("tokens_per_sequence", tokens_per_sequence), block_tokens)
    layers = count("num_layers", num_layers, minimum=1)
    each = token_layer_bytes(
        num_kv_heads, head_dim, element_bytes, value_head_dim, scale_bytes_per_token_head, tensor_parallel
    )
    check_shapes(num_sequences=sequences, tokens_per_sequence=tokens, num_layers=layers, num_kv_heads=each)
    return (sequences * tokens * layers * each).result("kv_cache_bytes")


def latent_token_bytes(
    kv_lora_rank: Any, rope_head_dim: Any, element_bytes: Any = 2, layout: str = "plain"
) -> Exact:
    """Return what one token of one latent-attention layer keeps, as an exact amount."""
    choice("layout", layout, LATENT_LAYOUTS, way_out="Choose one.")
    latent = count("kv_lora_rank", kv_lora_rank, minimum=1)
    rotary = count("rope_head_dim", rope_head_dim)
    check_shapes(kv_lora_rank=latent, rope_head_dim=rotary)
    if layout == "plain":
        return (latent + rotary) * amount("element_bytes", element_bytes)
    return latent + latent.ceil_divide(_LATENT_TILE) * 4 + rotary * 2


def latent_kv_cache_bytes(
    num_sequences: Numbers,
    tokens_per_sequence: Numbers,
    num_layers: Numbers,
    kv_lora_rank: Numbers,
    rope_head_dim: Numbers,
    element_bytes: Numbers = 2,
    *,
    layout: str = "plain",
    block_tokens: Numbers = 1,
) -> Integers:
    """Return the cache of multi-head latent attention: one vector of latent plus rotary key, no head factor.

    Tensor parallelism does not shrink it: every rank needs the whole latent for its heads.

    Parameters
    ----------
    num_sequences, tokens_per_sequence, num_layers : int or array_like
        As in :func:`kv_cache_bytes`.
    kv_lora_rank, rope_head_dim : int or array_like
        512 and 64 in DeepSeek-V3.
    element_bytes : number or array_like
        Bytes per element of the plain layout.
    layout : {"plain", "fp8_ds_mla"}
        ``fp8_ds_mla`` keeps the latent in fp8 with an fp32 scale per 128 values and the rotary key in bf16:
        656 bytes for 512 and 64 (vLLM's latent cache), whatever ``element_bytes`` says.
    block_tokens : int or array_like
        Page size in tokens.

    Returns
    -------
    int or numpy.ndarray
        Bytes on each rank.

    Raises
    ------
    ConfigError
        As :func:`kv_cache_bytes`; an unknown layout.

    Examples
    --------
    >>> [latent_kv_cache_bytes(1, 1, 61, 512, 64, layout=layout) for layout in LATENT_LAYOUTS]
    [70272, 40016]
    """
    sequences = count("num_sequences", num_sequences)
    tokens = _paged(count("tokens_per_sequence", tokens_per_sequence), block_tokens)
    layers = count("num_layers", num_layers, minimum=1)
    each = latent_token_bytes(kv_lora_rank, rope_head_dim, element_bytes, layout)
    check_shapes(num_sequences=sequences, tokens_per_sequence=tokens, num_layers=layers, kv_lora_rank=each)
    return (sequences * tokens * layers * each).result("latent_kv_cache_bytes")


@dataclass(frozen=True, eq=False)
class PagedKVCache:
    """Pages of a set of sequences: how many, their bytes, the useful part and the waste in last pages."""

    blocks: Integers
    total_bytes: Integers
    useful_bytes: Integers
    waste_bytes: Integers


def paged_kv_cache(
    token_lengths: Numbers,
    num_layers: Numbers,
    num_kv_heads: Numbers,
    head_dim: Numbers,
    element_bytes: Numbers = 2,
    *,
    block_tokens: int = 16,
    scale_bytes_per_token_head: Numbers = 0,
    tensor_parallel: Numbers = 1,
) -> PagedKVCache:
    """Add up the pages of sequences of given lengths, each rounded up to whole pages.

    A page holds ``block_tokens`` tokens of all layers' keys and values (vLLM's full-attention pages, one per
    layer with the same number).

    Parameters
    ----------
    token_lengths : int or array_like
        Tokens of each sequence; the last axis is summed.
    num_layers, num_kv_heads, head_dim, element_bytes : int or number
        As in :func:`kv_cache_bytes`; scalars, or arrays that broadcast with the sums.
    block_tokens : int
        Page size in tokens; 16 is vLLM's usual default.
    scale_bytes_per_token_head, tensor_parallel : number, int
        As in :func:`kv_cache_bytes`.

    Returns
    -------
    PagedKVCache
        ``blocks``, ``total_bytes``, ``useful_bytes``, ``waste_bytes``.

    Raises
    ------
    ConfigError
        As :func:`kv_cache_bytes`.

    Examples
    --------
    >>> paged_kv_cache([15, 16, 17], 32, 8, 128)
    PagedKVCache(blocks=4, total_bytes=8388608, useful_bytes=6291456, waste_bytes=2097152)
    """
    lengths = count("token_lengths", token_lengths)
    block = count("block_tokens", block_tokens, minimum=1)
    layers = count("num_layers", num_layers, minimum=1)
    one = token_layer_bytes(
        num_kv_heads, head_dim, element_bytes, None, scale_bytes_per_token_head, tensor_parallel
    )
    check_shapes(num_layers=layers, num_kv_heads=one)
    each = layers * one
    shape = check_shapes(token_lengths=lengths, block_tokens=block)
    if shape != lengths.shape:
        raise ConfigError("block_tokens", "must be one number", block_tokens, "Give one page size.")
    check_shapes(token_lengths=lengths.total(), num_kv_heads=each)
    blocks = lengths.ceil_divide(block).total()
    useful = (lengths.total() * each).ceil()
    held = (blocks * block * each).ceil()
    waste = held - useful
    return PagedKVCache(
        blocks.result("blocks"),
        held.result("total_bytes"),
        useful.result("useful_bytes"),
        waste.result("waste_bytes"),
    )
