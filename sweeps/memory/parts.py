"""The ledger's components for one model: training state by recipe, activations, engine weights, KV cache."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ...kernels.memory.activations import ActivationMemory, activation_bytes
from ...kernels.memory.kv_layers import hybrid_kv_cache_bytes
from ...kernels.memory.parameter_ranks import parameters_on_rank
from ...kernels.memory.parameters import lora_parameters, parameter_count, parameter_tensors, tensor_shapes
from ...kernels.memory.recipes import (
    MXFP4_BYTES,
    NF4_BYTES,
    adafactor_state_bytes,
    block_scaled_bytes,
    blockwise_8bit_state_bytes,
)
from ...kernels.memory.shapes import ModelShape, model_kv_layers
from ...kernels.memory.state import ModelState, model_state_bytes

_FP8_BYTES = block_scaled_bytes(8, 128 * 128, 32)
# What an engine stores per part; parts that are not named stay bf16.
ENGINE_FORMATS: dict[str, dict[str, Fraction]] = {
    "bf16": {},
    "fp8": dict.fromkeys(("attention", "mlp", "experts"), _FP8_BYTES),
    "mxfp4-experts": {"experts": MXFP4_BYTES},
}


def training_state(shape: ModelShape, recipe: str, lora_rank: int | None = None) -> ModelState:
    """Build the state of one trained model, tensor by tensor where the recipe asks for it.

    Parameters
    ----------
    shape : ModelShape
        The model.
    recipe : str
        A name in :data:`~.memory.recipes.RECIPES`. ``muon`` trains the layers' matrices with Muon
        and the rest with Adam; ``adam_8bit`` and ``adafactor`` go by tensor sizes; ``qlora`` quantises the
        matrices and leaves embedding, head and norms bf16.
    lora_rank : int, optional
        Train adapters of this rank on all matrices in place of the whole model; ``qlora`` needs it.

    Returns
    -------
    ModelState
        Of the whole model, before sharding.

    Raises
    ------
    ConfigError
        Adapters with a recipe that is for whole models, or ``qlora`` without adapters.
    """
    counted = parameter_count(shape)
    total = counted.total
    if lora_rank is None:
        if recipe == "qlora":
            raise ConfigError(
                "lora_rank", "is required with the recipe 'qlora'", None, "Give a rank such as 16."
            )
        return _whole_model(shape, recipe, total, counted.matrices)
    if recipe in ("muon", "adafactor", "adam_8bit"):
        way_out = "Take adam_mixed, or leave the rank out."
        raise ConfigError("lora_rank", f"does not go with the recipe {recipe!r}", lora_rank, way_out)
    adapters = lora_parameters(shape, lora_rank)
    if recipe != "qlora":
        return model_state_bytes(total + adapters, adapters, recipe=recipe)
    base = model_state_bytes(counted.matrices, 0, parameter_bytes=NF4_BYTES)
    rest = model_state_bytes(total - counted.matrices, 0, recipe="frozen")
    return base + rest + model_state_bytes(adapters, recipe="adam_mixed")


def _whole_model(shape: ModelShape, recipe: str, total: int, matrices: int) -> ModelState:
    if recipe == "muon":
        rest = model_state_bytes(total - matrices, recipe="adam_mixed")
        return model_state_bytes(matrices, recipe="muon") + rest
    if recipe == "adam_8bit":
        extra = blockwise_8bit_state_bytes(tensor_shapes(shape))
        return model_state_bytes(total, recipe=recipe, optimizer_state_bytes=0, optimizer_extra_bytes=extra)
    if recipe == "adafactor":
        extra = adafactor_state_bytes(tensor_shapes(shape))
        return model_state_bytes(total, recipe=recipe, optimizer_extra_bytes=extra)
    return model_state_bytes(total, recipe=recipe)


def largest_gathered_parameters(shape: ModelShape) -> int:
    """Count the largest unit that ZeRO-3 gathers at once: one decoder layer, the embedding, or the head."""
    layer = {"dense": 0, "expert": 0}
    of_kind = {"all": shape.num_layers, "dense": shape.dense_layers, "expert": shape.expert_layers}
    whole = 0
    for tensor in parameter_tensors(shape):
        if tensor.layers in of_kind:
            each = tensor.parameters // of_kind[tensor.layers]
            for kind in layer:
                layer[kind] += each if tensor.layers in ("all", kind) else 0
        else:
            whole = max(whole, tensor.parameters)
    used = [size for kind, size in layer.items() if of_kind[kind]]
    return max(whole, *used)


def training_activations(shape: ModelShape, tokens: int, recompute: str) -> ActivationMemory:
    """Estimate the activations of ``tokens`` packed tokens on one rank, fused attention taken for granted."""
    hidden, heads = shape.hidden_size, shape.num_heads
    extra = (shape.norms_per_layer - 2) * hidden
    if shape.latent is not None:
        latent = shape.latent
        key = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
        sizes: dict[str, Any] = {"query_size": key, "key_size": key, "value_size": heads * latent.v_head_dim}
        sizes["output_size"] = heads * latent.v_head_dim
        # Both latents are kept before and after their norm.
        extra += 2 * (latent.q_lora_rank + latent.kv_lora_rank) + latent.qk_rope_head_dim
    else:
        query, key = heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        sizes = {"query_size": query, "key_size": key}
        extra += query + key if shape.qk_norm else 0
    parts = [(shape.dense_layers, shape.ffn_size, 1, 0)]
    if shape.experts is not None:
        experts = shape.experts
        width = experts.ffn_size * (experts.experts_per_token + experts.shared_experts)
        copies = experts.experts_per_token + min(1, experts.shared_experts)
        # The router keeps its fp32 scores: two bf16 elements each.
        parts.append((shape.expert_layers, width, copies, 2 * experts.num_experts))
    kinds = [
        activation_bytes(
            num_sequences=1,
            tokens_per_sequence=tokens,
            num_layers=layers,
            hidden_size=hidden,
            ffn_size=width,
            num_heads=heads,
            experts_per_token=copies,
            extra_elements=extra + scores,
            recompute=recompute,
            **sizes,
        )
        for layers, width, copies, scores in parts
        if layers
    ]
    stored = sum(kind.stored_bytes for kind in kinds)
    working = max(kind.working_bytes for kind in kinds)
    return ActivationMemory(stored, working, stored + working)


def engine_weight_bytes(shape: ModelShape, tensor_parallel: int, engine_format: str) -> int:
    """Return the bytes of an inference engine's weights on one rank."""
    if engine_format not in ENGINE_FORMATS:
        way_out = nearest(engine_format, ENGINE_FORMATS) or "Choose one."
        rule = f"must be one of {', '.join(ENGINE_FORMATS)}"
        raise ConfigError("engine_format", rule, engine_format, way_out)
    (parts,) = parameters_on_rank(shape, tensor_parallel=tensor_parallel).parts
    sizes = ENGINE_FORMATS[engine_format]
    exact = sum((Fraction(count) * sizes.get(part, 2) for part, count in parts.items()), Fraction(0))
    return -(-exact.numerator // exact.denominator)


def engine_kv_bytes(
    shape: ModelShape,
    sequences: int,
    tokens: int,
    *,
    tensor_parallel: int,
    element_bytes: Fraction | float,
    scale_bytes: int,
    block_tokens: int,
    window_policy: str,
    shared_prompt_tokens: int = 0,
    group_size: int = 1,
) -> int:
    """Return an engine's KV cache on one rank; a group's prompt counts once on layers that see all of it.

    Windowed layers are charged in full for each sequence, since they soon stop holding the prompt.
    """
    layers = model_kv_layers(shape)
    settings: dict[str, Any] = {
        "element_bytes": element_bytes,
        "scale_bytes_per_token_head": scale_bytes,
        "block_tokens": block_tokens,
        "window_policy": window_policy,
        "tensor_parallel": tensor_parallel,
    }
    held = int(hybrid_kv_cache_bytes(layers, sequences, tokens, **settings))
    shared_tokens = min(shared_prompt_tokens, tokens) // block_tokens * block_tokens
    whole = [layer for layer in layers if layer.window_tokens is None]
    repeats = sequences - -(-sequences // group_size)
    if not (whole and repeats and shared_tokens):
        return held
    return held - int(hybrid_kv_cache_bytes(whole, repeats, shared_tokens, **settings))
