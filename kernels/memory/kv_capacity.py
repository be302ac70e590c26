"""What fits: sequences in a KV budget, tokens on pipeline stages, groups that share their prompt.

Engines admit whole pages, so capacity is counted in pages: ``floor(pages / pages per sequence)``, never
tokens over length. Stages of a pipeline are compared one by one, need with room; the tightest decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._arguments import Integers, Numbers
from ..errors import ConfigError
from ._exact import amount, check_shapes, count
from .kv_cache import token_layer_bytes


@dataclass(frozen=True, eq=False)
class KVCapacity:
    """What a budget admits: whole pages, pages of one sequence beyond the shared ones, whole sequences."""

    blocks: Integers
    blocks_per_sequence: Integers
    shared_blocks: Integers
    sequences: Integers
    used_blocks: Integers


def max_sequences(
    budget_bytes: Numbers,
    bytes_per_token: Numbers,
    tokens_per_sequence: Numbers,
    *,
    block_tokens: Numbers = 16,
    shared_prefix_tokens: Numbers = 0,
    group_size: Numbers = 1,
) -> KVCapacity:
    """Return the most sequences that fit a budget, each in whole pages.

    Parameters
    ----------
    budget_bytes : int or array_like
        Memory of the KV pool on one rank.
    bytes_per_token : number or array_like
        What one token keeps there: ``kv_cache_bytes(1, 1, ...)`` with the tensor-parallel size.
    tokens_per_sequence : int or array_like
        Full length of a sequence, prompt included; at least 1.
    block_tokens : int or array_like
        Page size in tokens.
    shared_prefix_tokens : int or array_like
        Leading tokens that all sequences of a group share; only whole pages of them are shared.
    group_size : int or array_like
        Sequences per group. The last group may be admitted in part.

    Returns
    -------
    KVCapacity
        ``blocks`` in the budget, ``blocks_per_sequence`` (its own), ``shared_blocks`` (once per group),
        ``sequences`` and ``used_blocks``.

    Raises
    ------
    ConfigError
        A shared prefix longer than the sequence; no bytes per token; negative, NaN, bool.

    Examples
    --------
    65,536 tokens of pool are 3.28 sequences of 20,000, of which 3 are admitted:

    >>> max_sequences(65536, 1, 20_000).sequences
    3
    >>> max_sequences(65536, 1, 20_000, shared_prefix_tokens=16_000, group_size=8).sequences
    8
    """
    budget = amount("budget_bytes", budget_bytes)
    each = amount("bytes_per_token", bytes_per_token)
    tokens = count("tokens_per_sequence", tokens_per_sequence, minimum=1)
    block = count("block_tokens", block_tokens, minimum=1)
    prefix = count("shared_prefix_tokens", shared_prefix_tokens)
    group = count("group_size", group_size, minimum=1)
    shape = check_shapes(
        budget_bytes=budget,
        bytes_per_token=each,
        tokens_per_sequence=tokens,
        block_tokens=block,
        shared_prefix_tokens=prefix,
        group_size=group,
    )
    if each.smallest() <= 0:
        way_out = "Give kv_cache_bytes(1, 1, ...)."
        raise ConfigError("bytes_per_token", "must be above 0", bytes_per_token, way_out)
    if np.any(np.asarray(prefix.numerator > tokens.numerator)):
        raise ConfigError(
            "shared_prefix_tokens",
            "must not exceed tokens_per_sequence",
            shared_prefix_tokens,
            "The prompt is part of the sequence.",
        )
    blocks = budget.floor_divide(each * block)
    shared = prefix.floor_divide(block)
    own = tokens.ceil_divide(block) - shared
    per_group = shared + own * group
    groups = blocks.floor_divide(per_group)
    rest = blocks - groups * per_group
    # The last group pays for its shared pages before its first own one. A sequence whose pages are all shared
    # owns none; then a group fits whole or not at all.
    room = rest - rest.minimum(shared)
    partial = room.floor_divide(own.maximum(1)).minimum(group - 1) * own.minimum(1)
    sequences = groups * group + partial
    used = groups * per_group + partial * own + shared * partial.minimum(1)
    results = (blocks, own, shared, sequences, used)
    return KVCapacity(*(value.broadcast(shape).result("max_sequences") for value in results))


def group_cache_tokens(
    prompt_tokens: Numbers,
    response_tokens: Numbers,
    *,
    group_size: Numbers | None = None,
    block_tokens: Numbers = 1,
) -> Integers:
    """Return the tokens that a group of sequences with one prompt holds, the prompt counted once.

    Only whole pages of the prompt are shared; its last partial page is copied for each sequence, which
    writes its own response there (vLLM's prefix cache shares full pages alone).

    Parameters
    ----------
    prompt_tokens : int or array_like
        Tokens of the shared prompt.
    response_tokens : int or array_like
        Response length of each sequence. With ``group_size`` one length for all of them; without, the last
        axis lists the group's members.
    group_size : int or array_like, optional
        Sequences in the group.
    block_tokens : int or array_like
        Page size in tokens; 1 shares the prompt to the last token.

    Returns
    -------
    int or numpy.ndarray
        Tokens of cache, whole pages each; times ``kv_cache_bytes(1, 1, ...)`` they are bytes.

    Raises
    ------
    ConfigError
        Negative, NaN, bool or fractional counts; members missing.

    Examples
    --------
    >>> group_cache_tokens(1000, 500, group_size=8), group_cache_tokens(1000, [100, 700, 20])
    (5000, 1820)
    """
    prompt = count("prompt_tokens", prompt_tokens)
    response = count("response_tokens", response_tokens)
    block = count("block_tokens", block_tokens, minimum=1)
    check_shapes(prompt_tokens=prompt, block_tokens=block)
    shared = prompt.floor_divide(block) * block
    tail = prompt - shared
    if group_size is not None:
        group = count("group_size", group_size, minimum=1)
        check_shapes(prompt_tokens=prompt, response_tokens=response, block_tokens=block, group_size=group)
        own = (tail + response).ceil_divide(block) * block * group
        return (shared + own).result("group_cache_tokens")
    if not response.shape:
        rule = "must list the group's members when group_size is left out"
        raise ConfigError("response_tokens", rule, response_tokens, "Give group_size or a list.")
    check_shapes(prompt_tokens=prompt.along_last(), response_tokens=response, block_tokens=block.along_last())
    own = (tail.along_last() + response).ceil_divide(block.along_last()) * block.along_last()
    return (shared + own.total()).result("group_cache_tokens")


@dataclass(frozen=True, eq=False)
class StageCapacity:
    """Tokens that each pipeline stage can cache, and the smallest of them, which is the pipeline's.

    ``need_bytes`` and ``fits`` are None unless wanted tokens were given.
    """

    bytes_per_token: Integers
    max_tokens_per_stage: Integers
    max_tokens: int
    tightest_stage: int
    need_bytes: Integers | None = None
    fits: bool | None = None


def stage_capacity(
    layers_per_stage: Numbers,
    available_bytes: Numbers,
    num_kv_heads: Numbers,
    head_dim: Numbers,
    element_bytes: Numbers = 2,
    *,
    wanted_tokens: Numbers | None = None,
    block_tokens: int = 1,
    scale_bytes_per_token_head: Numbers = 0,
    tensor_parallel: Numbers = 1,
) -> StageCapacity:
    """Compare need and room stage by stage; the tightest stage decides.

    Parameters
    ----------
    layers_per_stage : array_like of int
        Layers of each pipeline stage.
    available_bytes : array_like
        KV memory on one rank of each stage.
    num_kv_heads, head_dim, element_bytes, scale_bytes_per_token_head, tensor_parallel : number
        As in :func:`~.memory.kv_cache.kv_cache_bytes`.
    wanted_tokens : int, optional
        Tokens that all stages must cache.
    block_tokens : int
        Page size; the answer is whole pages.

    Returns
    -------
    StageCapacity
        ``max_tokens`` is the minimum over stages; stages count from 0.

    Raises
    ------
    ConfigError
        Not one stage, lists of different lengths, and as ``kv_cache_bytes``.

    Examples
    --------
    >>> stage_capacity([16, 32], [4 * 2**30, 12 * 2**30], 4, 128, wanted_tokens=131_072)
    StageCapacity(bytes_per_token=array([32768, 65536]), max_tokens_per_stage=array([131072, 196608]),
                  max_tokens=131072, tightest_stage=0, need_bytes=array([4294967296, 8589934592]), fits=True)
    """
    layers = count("layers_per_stage", layers_per_stage, minimum=1)
    room = amount("available_bytes", available_bytes)
    block = count("block_tokens", block_tokens, minimum=1)
    if len(layers.shape) != 1 or not layers.shape[0]:
        raise ConfigError(
            "layers_per_stage", "must list the stages", layers_per_stage, "Give one number per stage."
        )
    one = token_layer_bytes(
        num_kv_heads, head_dim, element_bytes, None, scale_bytes_per_token_head, tensor_parallel
    )
    wanted = None if wanted_tokens is None else count("wanted_tokens", wanted_tokens)
    others = {"available_bytes": room, "block_tokens": block, "num_kv_heads": one}
    others |= {} if wanted is None else {"wanted_tokens": wanted}
    if check_shapes(layers_per_stage=layers, **others) != layers.shape:
        rule = f"must fit the {layers.shape[0]} stages"
        shapes = {name: value.shape for name, value in others.items()}
        raise ConfigError(", ".join(others), rule, shapes, "Give one number, or one per stage.")
    each = layers * one
    if each.smallest() <= 0:
        raise ConfigError("element_bytes", "must be above 0", element_bytes, "A token takes some memory.")
    tokens = (room.floor_divide(each * block) * block).broadcast(layers.shape)
    most = tokens.result("max_tokens_per_stage")
    need = fits = None
    if wanted is not None:
        wanted = wanted.ceil_divide(block) * block
        need = (wanted * each).result("need_bytes")
        fits = bool((most >= wanted.result("wanted_tokens")).all())
    return StageCapacity(
        each.result("bytes_per_token"), most, int(most.min()), int(most.argmin()), need, fits
    )
