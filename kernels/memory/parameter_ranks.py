"""Parameters on one rank under tensor, pipeline and expert parallelism, stage by stage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._arguments import instance
from ..errors import ConfigError
from ._exact import Exact, check_divides, one_count
from .kv_cache import heads_on_rank
from .parameters import PARTS, ParameterTensor, parameter_tensors
from .shapes import ModelShape


@dataclass(frozen=True)
class StageParameters:
    """Parameters on one rank of each pipeline stage; the most loaded stage decides what fits.

    ``parts`` splits each stage's count by part: embedding, head, attention, mlp, experts, router, norm.
    """

    per_stage: tuple[int, ...]
    most_loaded: int
    stage: int
    parts: tuple[dict[str, int], ...]


def _rank_elements(
    tensor: ParameterTensor, shape: ModelShape, tensor_parallel: int, expert_ranks: int
) -> int:
    """Return the elements of one copy that lie on one rank."""
    if tensor.cut == "vocabulary":
        return -(-tensor.shape[0] // tensor_parallel) * tensor.shape[1]
    elements = math.prod(tensor.shape)
    if tensor.cut == "ranks":
        return elements // tensor_parallel
    if tensor.cut == "kv_heads":
        on_rank = heads_on_rank(Exact(shape.num_kv_heads), Exact(tensor_parallel)).numerator
        return elements // shape.num_kv_heads * on_rank
    if tensor.cut == "experts":
        return elements // expert_ranks if len(tensor.shape) == 2 else elements
    return elements


def _stage_layers(shape: ModelShape, stage: int, stages: int) -> dict[str, int]:
    """Count the layers of each kind on one stage, and whether the model begins or ends there."""
    each = shape.num_layers // stages
    dense = max(0, min(shape.dense_layers - stage * each, each))
    return {
        "all": each,
        "dense": dense,
        "expert": each - dense,
        "first": int(stage == 0),
        "last": int(stage == stages - 1),
    }


def parameters_on_rank(
    shape: ModelShape,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    expert_parallel: int = 1,
) -> StageParameters:
    """Count the parameters on one rank under tensor, pipeline and expert parallelism.

    Matrices are split over the tensor-parallel ranks, KV heads until they must be repeated, the vocabulary
    after padding; norms, router, experts' biases and latent down-projections are repeated. Experts are split
    over ``expert_parallel`` ranks and whole there; without expert parallelism they are split like the rest.
    A tied table lies on the first and, with more than one stage, again on the last stage.

    Parameters
    ----------
    shape : ModelShape
        The model.
    tensor_parallel, pipeline_parallel, expert_parallel : int
        Sizes of the groups. Stages hold equal numbers of layers.

    Returns
    -------
    StageParameters
        ``per_stage``, ``most_loaded`` and its ``stage``, ``parts`` of each stage.

    Raises
    ------
    ConfigError
        A size that does not divide heads, MLP width, layers or experts.

    Notes
    -----
    Megatron-LM's estimate spreads the final norm over all stages; it lies on the last one.

    Examples
    --------
    >>> from lagsweep.kernels.memory.shapes import ModelShape
    >>> llama = ModelShape(name="Llama-3-8B", num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=8,
    ...                    head_dim=128, ffn_size=14336, vocabulary_size=128256)
    >>> parameters_on_rank(llama, tensor_parallel=2).most_loaded
    4015263744
    """
    instance("shape", shape, ModelShape, "Build one, or read a model's config.")
    ranks = Exact(one_count("tensor_parallel", tensor_parallel, minimum=1))
    stages = Exact(one_count("pipeline_parallel", pipeline_parallel, minimum=1))
    spread = Exact(one_count("expert_parallel", expert_parallel, minimum=1))
    check_divides("pipeline_parallel", stages, "num_layers", Exact(shape.num_layers))
    check_divides("tensor_parallel", ranks, "num_heads", Exact(shape.num_heads))
    if shape.dense_layers:
        check_divides("tensor_parallel", ranks, "ffn_size", Exact(shape.ffn_size))
    experts = shape.experts
    if experts is not None:
        check_divides("expert_parallel", spread, "num_experts", Exact(experts.num_experts))
        check_divides("tensor_parallel", ranks, "the experts' ffn_size", Exact(experts.ffn_size))
    elif spread.numerator > 1:
        way_out = f"{shape.name} has no experts."
        raise ConfigError("expert_parallel", "needs a mixture of experts", expert_parallel, way_out)
    tp, pp, ep = ranks.numerator, stages.numerator, spread.numerator
    of_kind = {"all": shape.num_layers, "dense": shape.dense_layers, "expert": shape.expert_layers}
    parts = []
    for stage in range(pp):
        here = _stage_layers(shape, stage, pp)
        on_rank = dict.fromkeys(PARTS, 0)
        for tensor in parameter_tensors(shape):
            copies = tensor.copies // of_kind.get(tensor.layers, 1) * here[tensor.layers]
            if tensor.cut == "experts":
                copies //= ep
            on_rank[tensor.part] += copies * _rank_elements(tensor, shape, tp, tp if ep == 1 else 1)
        if shape.tied_embeddings and pp > 1 and stage == pp - 1:
            on_rank["head"] += -(-shape.vocabulary_size // tp) * shape.hidden_size
        parts.append(on_rank)
    per_stage = tuple(sum(on_rank.values()) for on_rank in parts)
    most = max(per_stage)
    return StageParameters(per_stage, most, per_stage.index(most), tuple(parts))
