"""Parameters counted from a model's shape: all, active, by part, of adapters.

Every count is a sum over :func:`parameter_tensors`, which lists each tensor of a checkpoint, so totals agree
with the checkpoint to the last parameter, q/k norms and biases included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .._arguments import Integers, Numbers, instance, listed
from ..errors import ConfigError, nearest
from ._exact import count
from .shapes import ExpertShape, ModelShape

PARTS = ("embedding", "head", "attention", "mlp", "experts", "router", "norm")


@dataclass(frozen=True)
class ParameterTensor:
    """Equal tensors of a model: their shape, how many there are, how many one token uses.

    ``cut`` says what tensor parallelism does: ``ranks`` splits it, ``kv_heads`` splits it until the heads are
    repeated, ``vocabulary`` pads and splits it, ``experts`` follows the experts, ``none`` repeats it.
    """

    name: str
    part: str
    shape: tuple[int, ...]
    copies: int
    active_copies: int
    layers: str
    cut: str

    @property
    def parameters(self) -> int:
        """Elements of all copies."""
        return math.prod(self.shape) * self.copies

    @property
    def active_parameters(self) -> int:
        """Elements that one token meets."""
        return math.prod(self.shape) * self.active_copies


def _attention_tensors(shape: ModelShape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield (name, shape, cut) of one layer's attention."""
    hidden, heads = shape.hidden_size, shape.num_heads
    if shape.latent is not None:
        latent = shape.latent
        key = latent.qk_nope_head_dim + latent.qk_rope_head_dim
        yield "q_a_proj", (latent.q_lora_rank, hidden), "none"
        yield "q_a_layernorm", (latent.q_lora_rank,), "none"
        yield "q_b_proj", (heads * key, latent.q_lora_rank), "ranks"
        yield "kv_a_proj_with_mqa", (latent.kv_lora_rank + latent.qk_rope_head_dim, hidden), "none"
        yield "kv_a_layernorm", (latent.kv_lora_rank,), "none"
        up = heads * (latent.qk_nope_head_dim + latent.v_head_dim)
        yield "kv_b_proj", (up, latent.kv_lora_rank), "ranks"
        yield "o_proj", (hidden, heads * latent.v_head_dim), "ranks"
        return
    query, keys = heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    yield "q_proj", (query, hidden), "ranks"
    yield "k_proj", (keys, hidden), "kv_heads"
    yield "v_proj", (keys, hidden), "kv_heads"
    yield "o_proj", (hidden, query), "ranks"
    if shape.qkv_bias:
        yield "q_proj.bias", (query,), "ranks"
        yield "k_proj.bias", (keys,), "kv_heads"
        yield "v_proj.bias", (keys,), "kv_heads"
    if shape.output_bias:
        yield "o_proj.bias", (hidden,), "none"
    if shape.qk_norm:
        yield "q_norm", (shape.head_dim,), "none"
        yield "k_norm", (shape.head_dim,), "none"
    if shape.attention_sinks:
        yield "sinks", (heads,), "ranks"


def _mlp_tensors(hidden: int, ffn: int, bias: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "gate_proj", (ffn, hidden)
    yield "up_proj", (ffn, hidden)
    yield "down_proj", (hidden, ffn)
    if bias:
        yield "gate_proj.bias", (ffn,)
        yield "up_proj.bias", (ffn,)
        yield "down_proj.bias", (hidden,)


def _expert_tensors(shape: ModelShape, experts: ExpertShape) -> Iterator[ParameterTensor]:
    hidden, layers = shape.hidden_size, shape.expert_layers
    yield ParameterTensor("router", "router", (experts.num_experts, hidden), layers, layers, "expert", "none")
    if experts.router_bias:
        yield ParameterTensor(
            "router.bias", "router", (experts.num_experts,), layers, layers, "expert", "none"
        )
    for name, size in _mlp_tensors(hidden, experts.ffn_size, experts.expert_bias):
        every, used = layers * experts.num_experts, layers * experts.experts_per_token
        yield ParameterTensor(f"experts.{name}", "experts", size, every, used, "expert", "experts")
    if experts.shared_experts:
        for name, size in _mlp_tensors(hidden, experts.ffn_size, False):
            shared = layers * experts.shared_experts
            yield ParameterTensor(f"shared_experts.{name}", "mlp", size, shared, shared, "expert", "ranks")


def parameter_tensors(shape: ModelShape) -> tuple[ParameterTensor, ...]:
    """List a model's tensors, equal ones together.

    Parameters
    ----------
    shape : ModelShape
        The model.

    Returns
    -------
    tuple of ParameterTensor
        Embedding, layers, final norm and head; a tied head is not listed again.
    """
    instance("shape", shape, ModelShape, "Build one, or read a model's config.")
    hidden, layers = shape.hidden_size, shape.num_layers
    vocabulary = (shape.vocabulary_size, hidden)
    found = [ParameterTensor("embed_tokens", "embedding", vocabulary, 1, 1, "first", "vocabulary")]
    for name, size, cut in _attention_tensors(shape):
        found.append(ParameterTensor(name, "attention", size, layers, layers, "all", cut))
    norms = layers * shape.norms_per_layer
    found.append(ParameterTensor("layer_norms", "norm", (hidden,), norms, norms, "all", "none"))
    for name, size in _mlp_tensors(hidden, shape.ffn_size, False):
        dense = shape.dense_layers
        found.append(ParameterTensor(name, "mlp", size, dense, dense, "dense", "ranks"))
    if shape.experts is not None:
        found.extend(_expert_tensors(shape, shape.experts))
    found.append(ParameterTensor("norm", "norm", (hidden,), 1, 1, "last", "none"))
    if not shape.tied_embeddings:
        found.append(ParameterTensor("lm_head", "head", vocabulary, 1, 1, "last", "vocabulary"))
    return tuple(tensor for tensor in found if tensor.copies)


def tensor_shapes(shape: ModelShape) -> list[tuple[tuple[int, ...], int]]:
    """List (shape, copies) of a model's tensors, for optimizers whose state depends on them."""
    return [(tensor.shape, tensor.copies) for tensor in parameter_tensors(shape)]


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a model: all, those one token meets, and by part.

    ``active`` counts embedding and head once each; ``active_without_embedding`` leaves the input embedding
    out, a lookup and no product, as gpt-oss does when it names 3.6B.
    """

    total: int
    active: int
    active_without_embedding: int
    parts: dict[str, int]
    matrices: int


def parameter_count(shape: ModelShape) -> ParameterCount:
    """Count a model's parameters from its shape.

    Parameters
    ----------
    shape : ModelShape
        The model.

    Returns
    -------
    ParameterCount
        ``total``, ``active``, ``active_without_embedding``, ``parts`` by name and ``matrices`` (elements of
        tensors with two axes inside the layers, which is what Muon trains).

    Examples
    --------
    >>> from lagsweep.kernels.memory.shapes import ModelShape
    >>> llama = ModelShape(name="Llama-3-70B", num_layers=80, hidden_size=8192, num_heads=64, num_kv_heads=8,
    ...                    head_dim=128, ffn_size=28672, vocabulary_size=128256)
    >>> parameter_count(llama).total
    70553706496
    """
    tensors = parameter_tensors(shape)
    parts = dict.fromkeys(PARTS, 0)
    for tensor in tensors:
        parts[tensor.part] += tensor.parameters
    active = sum(tensor.active_parameters for tensor in tensors)
    # A tied table is a lookup at the input and a product at the output: it stays in.
    lookup = 0 if shape.tied_embeddings else parts["embedding"]
    inside = ("attention", "mlp", "experts", "router")
    matrices = sum(
        tensor.parameters for tensor in tensors if tensor.part in inside and len(tensor.shape) == 2
    )
    return ParameterCount(sum(parts.values()), active, active - lookup, parts, matrices)


def lora_parameters(
    shape: ModelShape, rank: Numbers, targets: str | Iterable[str] = "all-linear"
) -> Integers:
    """Count the parameters of LoRA adapters: ``rank * (inputs + outputs)`` for each adapted matrix.

    Parameters
    ----------
    shape : ModelShape
        The model.
    rank : int or array_like
        The adapters' rank; at least 1.
    targets : {"all-linear", "attention", "mlp"} or iterable of str
        Matrices to adapt, by group or by name (``q_proj``, ``down_proj``, ...). ``all-linear`` is every
        matrix of the layers except a router, experts one by one, never embedding or head (as in peft).

    Returns
    -------
    int or numpy.ndarray
        Trainable parameters; add them to the model's own for ``model_state_bytes``.

    Raises
    ------
    ConfigError
        A name that no matrix has; a rank below 1.

    Examples
    --------
    >>> from lagsweep.kernels.memory.shapes import ModelShape
    >>> llama = ModelShape(name="Llama-3-8B", num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=8,
    ...                    head_dim=128, ffn_size=14336, vocabulary_size=128256)
    >>> lora_parameters(llama, 64), lora_parameters(llama, 16, "attention")
    (167772160, 13631488)
    """
    ranks = count("rank", rank, minimum=1)
    parts = {"all-linear": ("attention", "mlp", "experts"), "attention": ("attention",)}
    parts["mlp"] = ("mlp", "experts")
    matrices = [
        tensor
        for tensor in parameter_tensors(shape)
        if len(tensor.shape) == 2 and tensor.part in parts["all-linear"]
    ]
    if isinstance(targets, str) and targets in parts:
        chosen = [tensor for tensor in matrices if tensor.part in parts[targets]]
    else:
        way_out = "Name a group, or list the matrices' names."
        given = (targets,) if isinstance(targets, str) else listed("targets", targets, way_out)
        if not all(isinstance(name, str) for name in given):
            raise ConfigError("targets", "must name matrices of the model", targets, way_out)
        names = set(given)
        known = {tensor.name.rpartition(".")[2] for tensor in matrices}
        for name in sorted(names - known):
            hint = nearest(name, [*known, *parts]) or f"Known are {', '.join(sorted(known))}."
            raise ConfigError("targets", "must name matrices of the model", name, hint)
        chosen = [tensor for tensor in matrices if tensor.name.rpartition(".")[2] in names]
    return (ranks * sum(sum(tensor.shape) * tensor.copies for tensor in chosen)).result("lora_parameters")
