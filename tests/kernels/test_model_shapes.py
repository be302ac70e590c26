"""Shapes: parameters by list of tensors and by formula, adapters, ranks, KV layers, messages."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.parameter_twin import parameters_by_formula
from strategies.model_shapes import model_shapes

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    ExpertShape,
    LatentShape,
    ModelShape,
    hybrid_kv_cache_bytes,
    lora_parameters,
    model_kv_layers,
    parameter_count,
    parameter_tensors,
    parameters_on_rank,
    tensor_shapes,
)

TINY = {
    "name": "tiny",
    "num_layers": 4,
    "hidden_size": 64,
    "num_heads": 8,
    "num_kv_heads": 2,
    "head_dim": 16,
    "ffn_size": 128,
    "vocabulary_size": 100,
}
EXPERTS = ExpertShape(num_experts=8, experts_per_token=2, ffn_size=32, shared_experts=1, dense_layers=1)


@given(model_shapes())
def test_two_ways_to_count_agree(shape):
    counted = parameter_count(shape)

    assert (counted.total, counted.active) == parameters_by_formula(shape)
    assert counted.total == sum(counted.parts.values())
    assert counted.active <= counted.total
    lookup = 0 if shape.tied_embeddings else shape.vocabulary_size * shape.hidden_size
    assert counted.active - counted.active_without_embedding == lookup
    assert sum(math.prod(size) * copies for size, copies in tensor_shapes(shape)) == counted.total


@given(model_shapes())
def test_matrices_are_what_an_optimizer_of_matrices_trains(shape):
    inside = [t for t in parameter_tensors(shape) if t.part not in ("embedding", "head", "norm")]

    assert parameter_count(shape).matrices == sum(t.parameters for t in inside if len(t.shape) == 2)


@given(model_shapes())
def test_tying_the_tables_saves_exactly_the_head(shape):
    tied = dataclasses.replace(shape, tied_embeddings=True)
    untied = dataclasses.replace(shape, tied_embeddings=False)
    table = shape.vocabulary_size * shape.hidden_size

    assert parameter_count(untied).total - parameter_count(tied).total == table


@given(model_shapes())
def test_using_all_experts_makes_every_parameter_active(shape):
    if shape.experts is None:
        assert parameter_count(shape).active == parameter_count(shape).total
        return
    every = dataclasses.replace(shape.experts, experts_per_token=shape.experts.num_experts)
    counted = parameter_count(dataclasses.replace(shape, experts=every))

    assert counted.active == counted.total


@given(model_shapes(), st.integers(1, 64))
def test_adapters_add_two_thin_matrices_beside_each_target(shape, rank):
    matrices = [
        t for t in parameter_tensors(shape) if len(t.shape) == 2 and t.part in ("attention", "mlp", "experts")
    ]
    expected = sum((t.shape[0] * rank + rank * t.shape[1]) * t.copies for t in matrices)

    assert lora_parameters(shape, rank) == expected
    parts = lora_parameters(shape, rank, "attention") + lora_parameters(shape, rank, "mlp")
    assert parts == expected
    assert lora_parameters(shape, [rank, 2 * rank]).tolist() == [expected, 2 * expected]


def test_targets_can_be_named_one_by_one():
    shape = ModelShape(**TINY)
    four = [lora_parameters(shape, 1, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]

    assert four == [4 * (64 + 128), 4 * (64 + 32), 4 * (64 + 32), 4 * (64 + 128)]
    assert lora_parameters(shape, 1, ["q_proj", "k_proj", "v_proj", "o_proj"]) == sum(four)


@given(model_shapes(), st.data())
def test_stages_hold_the_whole_model_between_them(shape, data):
    stages = data.draw(st.sampled_from([s for s in range(1, 9) if shape.num_layers % s == 0]))
    loaded = parameters_on_rank(shape, pipeline_parallel=stages)
    again = shape.vocabulary_size * shape.hidden_size if shape.tied_embeddings and stages > 1 else 0

    assert sum(loaded.per_stage) == parameter_count(shape).total + again
    assert loaded.most_loaded == max(loaded.per_stage) == loaded.per_stage[loaded.stage]
    assert [sum(parts.values()) for parts in loaded.parts] == list(loaded.per_stage)


@given(model_shapes(), st.sampled_from([1, 2, 4]))
def test_ranks_hold_at_least_their_share_and_at_most_the_repeated_rest(shape, ranks):
    if shape.num_heads % ranks:
        with pytest.raises(ConfigError, match=r"^tensor_parallel: must divide num_heads"):
            parameters_on_rank(shape, tensor_parallel=ranks)
        return
    on_rank = parameters_on_rank(shape, tensor_parallel=ranks).most_loaded
    total = parameter_count(shape).total
    repeated = sum(
        t.parameters
        for t in parameter_tensors(shape)
        if t.cut in ("none", "kv_heads") or (t.cut == "experts" and len(t.shape) == 1)
    )
    padding = 2 * (ranks - 1) * shape.hidden_size

    assert total <= on_rank * ranks
    assert on_rank * ranks <= total + (ranks - 1) * repeated + padding


def test_experts_are_spread_whole_or_split_like_the_rest():
    shape = ModelShape(**TINY, experts=EXPERTS)
    alone = parameters_on_rank(shape)
    spread = parameters_on_rank(shape, expert_parallel=8)
    split = parameters_on_rank(shape, tensor_parallel=2)

    assert alone.parts[0]["experts"] == 3 * 8 * 3 * 64 * 32
    assert spread.parts[0]["experts"] == 3 * 1 * 3 * 64 * 32
    assert split.parts[0]["experts"] == 3 * 8 * 3 * 64 * 32 // 2
    assert spread.parts[0]["mlp"] == alone.parts[0]["mlp"]
    stages = parameters_on_rank(shape, pipeline_parallel=4)
    assert [parts["experts"] for parts in stages.parts] == [0, *[8 * 3 * 64 * 32] * 3]


def test_kv_layers_follow_the_shape():
    plain = ModelShape(**TINY)
    mixed = ModelShape(**TINY, sliding_window=8, sliding_layers=3)
    windowed = ModelShape(**TINY, sliding_window=8, sliding_layers=4)
    latent = LatentShape(q_lora_rank=8, kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4)

    assert hybrid_kv_cache_bytes(model_kv_layers(plain), 1, 20) == 20 * 4 * 2 * 2 * 16 * 2
    assert hybrid_kv_cache_bytes(model_kv_layers(mixed), 1, 20) == (20 + 3 * 8) * 2 * 2 * 16 * 2
    assert [layer.kind for layer in model_kv_layers(windowed)] == ["sliding"]
    (layer,) = model_kv_layers(ModelShape(**TINY, latent=latent))
    assert (layer.kind, layer.copies) == ("latent", 4)
    assert hybrid_kv_cache_bytes([layer], 1, 20) == 20 * 4 * 8 * 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads: must divide num_heads (got 3). num_heads is 8."),
        ({"num_layers": 0}, "num_layers: must be at least 1 (got 0). Give 1 or more."),
        ({"hidden_size": 64.5}, "hidden_size: must be a whole number (got 64.5). Give whole numbers."),
        ({"head_dim": True}, "head_dim: must be a number, not a truth value (got True). Give a number."),
        ({"qk_norm": 1}, "qk_norm: must be True or False (got 1). Give a truth value."),
        (
            {"sliding_layers": 5, "sliding_window": 8},
            "sliding_layers: must not exceed num_layers (got 5). num_layers is 4.",
        ),
        (
            {"sliding_layers": 2},
            "sliding_window: is required with sliding_layers (got None). Give the window's tokens.",
        ),
        (
            {"experts": dataclasses.replace(EXPERTS, dense_layers=5)},
            "dense_layers: must not exceed num_layers (got 5). num_layers is 4.",
        ),
    ],
)
def test_an_impossible_shape_is_refused(changes, text):
    with pytest.raises(ConfigError) as caught:
        ModelShape(**{**TINY, **changes})

    assert str(caught.value) == text


def test_more_experts_per_token_than_experts_are_refused():
    with pytest.raises(ConfigError, match=r"^experts_per_token: must not exceed num_experts \(got 9\)"):
        dataclasses.replace(EXPERTS, experts_per_token=9)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel: must divide num_heads (got 3). num_heads is 8."),
        ({"pipeline_parallel": 3}, "pipeline_parallel: must divide num_layers (got 3). num_layers is 4."),
        (
            {"expert_parallel": 2},
            "expert_parallel: needs a mixture of experts (got 2). tiny has no experts.",
        ),
        ({"tensor_parallel": 0}, "tensor_parallel: must be at least 1 (got 0). Give 1 or more."),
    ],
)
def test_a_split_that_does_not_divide_is_refused(sizes, text):
    with pytest.raises(ConfigError) as caught:
        parameters_on_rank(ModelShape(**TINY), **sizes)

    assert str(caught.value) == text


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(ConfigError) as caught:
        lora_parameters(ModelShape(**TINY), 8, ["q_proj", "upproj"])

    assert str(caught.value) == (
        "targets: must name matrices of the model (got 'upproj'). Did you mean 'up_proj'?"
    )
