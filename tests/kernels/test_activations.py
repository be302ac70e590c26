"""Activations and logits: the paper's formulas, tensor-parallel cuts, what recomputation saves."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import ConfigError
from lagsweep.kernels import activation_bytes, logits_peak_bytes

MEASURED = json.loads((Path(__file__).parents[1] / "data" / "saved_activations.json").read_text())["layers"]
GPT = {"gated": False, "dropout": True, "fused_attention": False}
sizes = st.integers(1, 64)


@st.composite
def gpt_layers(draw):
    ranks = draw(st.sampled_from([1, 2, 4, 8]))
    hidden = 8 * draw(sizes)
    return {
        "num_sequences": draw(st.integers(1, 4)),
        "tokens_per_sequence": draw(st.integers(1, 512)),
        "num_layers": draw(st.integers(1, 12)),
        "hidden_size": hidden,
        "ffn_size": 4 * hidden,
        "num_heads": 8 * draw(st.integers(1, 4)),
        "tensor_parallel": ranks,
    }


def _ceil(number: Fraction) -> int:
    return -(-number // 1)


@given(gpt_layers())
def test_a_gpt_layer_keeps_what_the_paper_says(layer):
    # Korthikanti et al. 2022, table 2; the figures are per layer, in bytes.
    s, b, h = layer["tokens_per_sequence"], layer["num_sequences"], layer["hidden_size"]
    a, t, layers = layer["num_heads"], layer["tensor_parallel"], layer["num_layers"]
    sbh, scores = s * b * h, Fraction(5 * a * s, h)
    table = {
        ("none", False): sbh * (10 + Fraction(24, t) + scores / t),
        ("selective", False): sbh * (10 + Fraction(24, t)),
        ("none", True): sbh * (34 + scores) / t,
        ("selective", True): Fraction(sbh * 34, t),
        ("full", False): Fraction(2 * sbh),
    }

    for (recompute, parallel), expected in table.items():
        kept = activation_bytes(**layer, **GPT, recompute=recompute, sequence_parallel=parallel)
        assert kept.stored_bytes == _ceil(expected * layers)


@given(gpt_layers(), st.booleans())
def test_recomputation_trades_stored_for_working_bytes(layer, parallel):
    kept = {
        recompute: activation_bytes(**layer, **GPT, recompute=recompute, sequence_parallel=parallel)
        for recompute in ("none", "selective", "full")
    }

    assert kept["none"].stored_bytes >= kept["selective"].stored_bytes >= kept["full"].stored_bytes
    assert kept["none"].working_bytes == 0
    assert kept["selective"].working_bytes <= kept["full"].working_bytes
    for memory in kept.values():
        assert memory.total_bytes in (
            memory.stored_bytes + memory.working_bytes,
            memory.stored_bytes + memory.working_bytes - 1,
        )
    # One layer whose tensors are all back is a layer that was never dropped.
    one = {**layer, "num_layers": 1}
    whole = activation_bytes(**one, **GPT, recompute="none", sequence_parallel=parallel).total_bytes
    back = activation_bytes(**one, **GPT, recompute="full", sequence_parallel=parallel).total_bytes
    assert whole <= back <= whole + 1


@given(gpt_layers())
def test_fused_attention_keeps_no_scores_with_or_without_recomputation(layer):
    fused = {**GPT, "fused_attention": True}
    none = activation_bytes(**layer, **fused, recompute="none")
    selective = activation_bytes(**layer, **fused, recompute="selective")

    assert none.stored_bytes == selective.stored_bytes
    assert selective.working_bytes == 0


@pytest.mark.parametrize("row", MEASURED)
def test_a_layer_keeps_what_autograd_saves_but_for_fp32_statistics(row):
    query, key = row["num_heads"] * row["head_dim"], row["num_kv_heads"] * row["head_dim"]
    kept = activation_bytes(
        num_sequences=row["num_sequences"],
        tokens_per_sequence=row["tokens_per_sequence"],
        num_layers=1,
        hidden_size=row["hidden_size"],
        ffn_size=row["ffn_size"],
        num_heads=row["num_heads"],
        query_size=query,
        key_size=key,
        extra_elements=query + key if row["qk_norm"] else 0,
        recompute="none",
        gated=row["gated"],
        fused_attention=row["fused_attention"],
    )

    assert kept.stored_bytes == row["saved_bytes"] - row["fp32_statistics_bytes"]
    assert row["fp32_statistics_bytes"] < 0.01 * row["saved_bytes"]


def test_a_grouped_gated_layer_is_counted_tensor_by_tensor():
    # Per token of a Qwen3-8B layer, 2 bytes each: norm inputs 2 h, linear inputs 2 h, queries and their
    # result 2 h, keys and values 2 * 1024, gate, up and product 3 f, inputs of the q/k norms h + 1024.
    h, f, kv = 4096, 12288, 1024
    kept = activation_bytes(
        num_sequences=1,
        tokens_per_sequence=7,
        num_layers=2,
        hidden_size=h,
        ffn_size=f,
        num_heads=32,
        key_size=kv,
        extra_elements=h + kv,
    )

    assert kept.stored_bytes == 7 * 2 * 2 * (4 * h + 2 * h + 2 * kv + 3 * f + h + kv)


def test_each_expert_gets_its_copy_of_the_input():
    settings = {"num_sequences": 1, "tokens_per_sequence": 1, "num_layers": 1, "num_heads": 1}
    dense = activation_bytes(**settings, hidden_size=16, ffn_size=24)
    routed = activation_bytes(**settings, hidden_size=16, ffn_size=24, experts_per_token=8)

    assert routed.stored_bytes - dense.stored_bytes == 7 * 16 * 2


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.sampled_from(["none", "selective", "full"])
)
def test_arrays_give_what_scalars_give(tokens, recompute):
    layer = {"num_layers": 3, "hidden_size": 64, "ffn_size": 128, "num_heads": 4, "recompute": recompute}
    ranks = [[1], [2], [4]]
    table = activation_bytes(num_sequences=1, tokens_per_sequence=tokens, tensor_parallel=ranks, **layer)

    for row, (rank,) in enumerate(ranks):
        for place, length in enumerate(tokens):
            alone = activation_bytes(
                num_sequences=1, tokens_per_sequence=length, tensor_parallel=rank, **layer
            )
            assert table.stored_bytes[row, place] == alone.stored_bytes
            assert table.total_bytes[row, place] == alone.total_bytes


@given(st.integers(0, 10**6), st.integers(1, 300_000), st.integers(1, 10**6), st.sampled_from([1, 2, 8]))
def test_logits_are_counted_once_for_each_live_copy(tokens, vocabulary, chunk, ranks):
    columns = -(-vocabulary // ranks)

    assert logits_peak_bytes(tokens, vocabulary, tensor_parallel=ranks) == tokens * columns * 14
    chunked = logits_peak_bytes(tokens, vocabulary, chunk_tokens=chunk, copy_bytes=(4,))
    assert chunked == min(tokens, chunk) * vocabulary * 4


def test_logits_broadcast():
    assert logits_peak_bytes([1, 2], [[10], [20]], copy_bytes=(2,)).tolist() == [[20, 40], [40, 80]]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"recompute": "ful"},
            "recompute: must be one of none, selective, full (got 'ful'). Did you mean 'full'?",
        ),
        ({"tensor_parallel": 3}, "tensor_parallel: must divide num_heads (got 3). num_heads is 8."),
        ({"gated": 1}, "gated: must be True or False (got 1). Give a truth value."),
        ({"hidden_size": -1}, "hidden_size: must not be negative (got -1). Give 0 or more."),
        ({"num_layers": 1.5}, "num_layers: must be a whole number (got 1.5). Give whole numbers."),
        ({"element_bytes": float("nan")}, "element_bytes: must be finite (got nan). Give a finite number."),
    ],
)
def test_impossible_input_is_refused_with_a_way_out(changes, text):
    layer = {
        "num_sequences": 1,
        "tokens_per_sequence": 8,
        "num_layers": 2,
        "hidden_size": 16,
        "ffn_size": 32,
        "num_heads": 8,
    }
    with pytest.raises(ConfigError) as caught:
        activation_bytes(**{**layer, **changes})

    assert str(caught.value) == text
