"""Shapes of decoder-only transformers: the numbers that fix their tensors and their KV cache.

A :class:`ModelShape` describes RMS-norm decoders with rotary positions and gated MLPs: Llama, Mistral, Qwen,
Gemma 3 (text), mixtures of experts (Mixtral, Qwen3-MoE, gpt-oss), latent attention (DeepSeek-V3).
Parameters are counted in :mod:`.memory.parameters`.

Not described: LayerNorm models with biases everywhere (GPT-2), vision towers, the multi-token-prediction
layers of DeepSeek-V3 (its published 671B leave them out as well).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .._arguments import instance
from ..errors import ConfigError
from ._exact import one_count
from .kv_layers import KVLayer


def _check_fields(shape: Any, optional: tuple[str, ...] = ()) -> None:
    """Check the whole-number fields of a shape: at least 1, or at least 0 for the optional ones."""
    for field in fields(shape):
        value = getattr(shape, field.name)
        if field.type == "int" or (field.type == "int | None" and value is not None):
            least = 0 if field.name in optional else 1
            object.__setattr__(shape, field.name, one_count(field.name, value, least))
        elif field.type == "bool" and not isinstance(value, bool):
            raise ConfigError(field.name, "must be True or False", value, "Give a truth value.")


@dataclass(frozen=True, kw_only=True)
class ExpertShape:
    """A mixture of experts; the first ``dense_layers`` layers have a plain MLP instead."""

    num_experts: int
    experts_per_token: int
    ffn_size: int
    shared_experts: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    expert_bias: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_fields(self, optional=("shared_experts", "dense_layers"))
        if self.experts_per_token > self.num_experts:
            way_out = f"num_experts is {self.num_experts}."
            rule = "must not exceed num_experts"
            raise ConfigError("experts_per_token", rule, self.experts_per_token, way_out)


@dataclass(frozen=True, kw_only=True)
class LatentShape:
    """Multi-head latent attention."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_fields(self)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers that fix a decoder's tensors.

    ``output_bias`` is a bias of the attention's output projection, ``attention_sinks`` one learned number per
    head, ``norms_per_layer`` 2 or, with norms after attention and MLP too (Gemma 3), 4. ``sliding_layers`` of
    the layers see ``sliding_window`` tokens.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocabulary_size: int
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    attention_sinks: bool = False
    norms_per_layer: int = 2
    sliding_window: int | None = None
    sliding_layers: int = 0
    max_positions: int | None = None
    experts: ExpertShape | None = None
    latent: LatentShape | None = None

    def __post_init__(self) -> None:
        """Check the numbers and how they fit together."""
        _check_fields(self, optional=("sliding_layers",))
        for name, kind in (("experts", ExpertShape), ("latent", LatentShape)):
            if getattr(self, name) is not None:
                instance(name, getattr(self, name), kind, "Leave it out where the model has none.")
        if not isinstance(self.name, str):
            raise ConfigError("name", "must be text", self.name, "Give the model's name.")
        if self.num_heads % self.num_kv_heads:
            way_out = f"num_heads is {self.num_heads}."
            raise ConfigError("num_kv_heads", "must divide num_heads", self.num_kv_heads, way_out)
        if self.sliding_layers > self.num_layers:
            way_out = f"num_layers is {self.num_layers}."
            rule = "must not exceed num_layers"
            raise ConfigError("sliding_layers", rule, self.sliding_layers, way_out)
        if self.sliding_layers and self.sliding_window is None:
            way_out = "Give the window's tokens."
            raise ConfigError("sliding_window", "is required with sliding_layers", None, way_out)
        if self.experts is not None and self.experts.dense_layers > self.num_layers:
            way_out = f"num_layers is {self.num_layers}."
            rule = "must not exceed num_layers"
            raise ConfigError("dense_layers", rule, self.experts.dense_layers, way_out)

    @property
    def dense_layers(self) -> int:
        """Layers with a plain MLP."""
        return self.num_layers if self.experts is None else self.experts.dense_layers

    @property
    def expert_layers(self) -> int:
        """Layers with a mixture of experts."""
        return self.num_layers - self.dense_layers


def model_kv_layers(shape: ModelShape) -> tuple[KVLayer, ...]:
    """List a model's layers as KV layers, full attention first.

    Examples
    --------
    >>> shape = ModelShape(name="tiny", num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2,
    ...                    head_dim=16, ffn_size=128, vocabulary_size=256, sliding_window=8,
    ...                    sliding_layers=3)
    >>> [(layer.kind, layer.copies) for layer in model_kv_layers(shape)]
    [('full', 1), ('sliding', 3)]
    """
    instance("shape", shape, ModelShape, "Build one, or read a model's config.")
    if shape.latent is not None:
        one = KVLayer.latent(shape.latent.kv_lora_rank, shape.latent.qk_rope_head_dim)
        return (one * shape.num_layers,)
    full = KVLayer.full(shape.num_kv_heads, shape.head_dim) * (shape.num_layers - shape.sliding_layers)
    if not shape.sliding_layers:
        return (full,)
    window = KVLayer.sliding(shape.num_kv_heads, shape.head_dim, shape.sliding_window or 1)
    kinds = (full, window * shape.sliding_layers)
    return tuple(layer for layer in kinds if layer.copies)
