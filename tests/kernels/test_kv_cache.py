"""KV caches of every layer kind and what fits a budget: stored cases, bug reports, brute force by page."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.formula_cases import cases

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    BYTES_PER_GIB,
    KVLayer,
    group_cache_tokens,
    hybrid_kv_cache_bytes,
    kv_cache_bytes,
    latent_kv_cache_bytes,
    max_sequences,
    paged_kv_cache,
    sliding_window_tokens,
    stage_capacity,
)
from lagsweep.kernels.memory.kv_layers import WINDOW_POLICIES

BUGS = {
    bug["id"]: bug
    for bug in json.loads((Path(__file__).parents[1] / "data" / "memory_bug_reports.json").read_text())
}
CLAIMED = {
    "kv_cache_bytes",
    "kv_cache_bytes_sliding",
    "kv_cache_bytes_hybrid",
    "kv_cache_bytes_paged",
    "kv_cache_bytes_per_rank",
}
# The stored cases' words for the policies.
POLICIES = {
    "min(window,len)": "payload",
    "window-1 (HF DynamicSlidingWindowLayer)": "between_steps",
    "vLLM SlidingWindowSpec upper bound": "page_bound",
    "useful payload: min(window,len) on sliding layers": "payload",
    "reserved: every layer charged full length (unified pages)": "reserved",
}
tokens_of = st.integers(0, 300)
blocks = st.sampled_from([1, 3, 16])


def _by_id(*functions: str) -> list:
    return [pytest.param(case, id=case["id"]) for case in cases("kv") if case["function"] in functions]


def test_every_stored_case_is_claimed_by_a_test():
    assert {case["function"] for case in cases("kv")} == CLAIMED


@pytest.mark.parametrize("case", _by_id("kv_cache_bytes", "kv_cache_bytes_per_rank"))
def test_full_attention_agrees_with_the_stored_cases(case):
    # Conventions followed: no sequences cost nothing (kv-45); one scale per token and head for keys and for
    # values each (kv-40).
    inputs = {name: value for name, value in case["inputs"].items() if name != "model"}

    result = kv_cache_bytes(**inputs)
    assert result == case["expected"]
    assert type(result) is int


@pytest.mark.parametrize("case", _by_id("kv_cache_bytes_sliding", "kv_cache_bytes_hybrid"))
def test_windows_agree_with_each_published_answer(case):
    # Every published policy has a name here; "payload" is our default.
    inputs = case["inputs"]
    full = inputs.get("full_attention_layers", 0)
    heads, dim = inputs["num_kv_heads"], inputs["head_dim"]
    layers = [
        KVLayer.full(heads, dim) * full,
        KVLayer.sliding(heads, dim, inputs["sliding_window"]) * (inputs["num_layers"] - full),
    ]
    pages = {"block_tokens": inputs["block_size"]} if "block_size" in inputs else {}

    assert case["expected"] == hybrid_kv_cache_bytes(
        layers,
        inputs["num_sequences"],
        inputs["tokens_per_sequence"],
        element_bytes=inputs["element_bytes"],
        window_policy=POLICIES[inputs["policy"]],
        **pages,
        **({"max_batched_tokens": inputs["max_num_batched_tokens"]} if pages else {}),
    )


@pytest.mark.parametrize("case", _by_id("kv_cache_bytes_paged"))
def test_pages_agree_with_the_stored_cases(case):
    inputs, expected = case["inputs"], case["expected"]
    lengths = [4096] * 64 if inputs["token_lengths"] == "64 x 4096" else inputs["token_lengths"]
    pages = paged_kv_cache(
        lengths,
        inputs["num_layers"],
        inputs["num_kv_heads"],
        inputs["head_dim"],
        inputs["element_bytes"],
        block_tokens=inputs["block_size"],
    )

    assert pages.blocks == expected["blocks"]
    assert pages.total_bytes == expected["bytes"]
    assert pages.useful_bytes == expected["useful_bytes"]
    assert pages.waste_bytes == expected["waste_bytes"]


@pytest.mark.parametrize(
    ("layers", "kv_heads", "dim", "per_token"),
    [
        (32, 8, 128, 131_072),
        (80, 8, 128, 327_680),
        (126, 8, 128, 516_096),
        (36, 8, 128, 147_456),
        (48, 4, 128, 98_304),
    ],
    ids=["Llama-3-8B", "70B", "405B", "Qwen3-8B", "Qwen3-30B-A3B"],
)
def test_bytes_per_token_are_the_published_ones(layers, kv_heads, dim, per_token):
    assert kv_cache_bytes(1, 1, layers, kv_heads, dim) == per_token


def test_heads_are_kv_heads_and_the_hidden_size_plays_no_part():
    bug = BUGS["bug-mem-04"]
    shape = bug["input"]

    assert kv_cache_bytes(1, 1, shape["layers"], shape["kv_heads"], shape["head_dim"]) == 28_672
    by_heads = kv_cache_bytes(1, 1, shape["layers"], [12, 6, 2, 1], shape["head_dim"])
    assert by_heads.tolist() == [172_032, 86_016, 28_672, 14_336]  # MHA, GQA, GQA, MQA
    assert bug["expected"] == {"bytes_per_token": 28_672, "wrong_with_hidden": 172_032}


def test_the_tightest_pipeline_stage_decides():
    bug = BUGS["bug-mem-06"]
    inputs, expected = bug["input"], bug["expected"]
    room = [int(gib * BYTES_PER_GIB) for gib in inputs["available_gib"]]
    stages = stage_capacity(
        inputs["layers_per_stage"],
        room,
        inputs["kv_heads"],
        inputs["head_dim"],
        inputs["kv_bytes"],
        wanted_tokens=inputs["wanted_tokens"],
    )

    assert stages.max_tokens_per_stage.tolist() == expected["max_tokens_per_stage"]
    assert (stages.max_tokens, stages.tightest_stage) == (expected["max_tokens"], 0)
    assert (stages.need_bytes / BYTES_PER_GIB).tolist() == expected["need_gib_per_stage"]
    assert stages.fits is False


def test_kv_heads_are_divided_by_the_tensor_parallel_size():
    bug = BUGS["bug-mem-07"]
    inputs, expected = bug["input"], bug["expected"]
    each = kv_cache_bytes(
        1, 1, inputs["layers"], inputs["kv_heads"], inputs["head_dim"], tensor_parallel=inputs["tp"]
    )
    fits = max_sequences(
        inputs["pool_bytes_per_rank"], each, inputs["block_tokens"], block_tokens=inputs["block_tokens"]
    )

    assert each.tolist() == expected["bytes_per_token_per_rank"]
    assert fits.blocks.tolist() == expected["blocks"]


def test_sequences_are_admitted_in_whole_blocks():
    bug = BUGS["bug-mem-09"]
    inputs, expected = bug["input"], bug["expected"]
    fits = max_sequences(inputs["pool_tokens"], 1, inputs["max_len"], block_tokens=inputs["block_tokens"])
    short = max_sequences(inputs["pool_tokens"], 1, inputs["short_len"], block_tokens=inputs["block_tokens"])

    assert (fits.blocks, fits.blocks_per_sequence) == (expected["blocks"], expected["blocks_per_seq"])
    assert fits.sequences == expected["admitted"] < expected["fractional"]
    assert short.blocks_per_sequence == expected["short_blocks"]


def test_latent_attention_has_no_head_factor():
    assert latent_kv_cache_bytes(1, 1, 61, 512, 64) == 70_272
    assert latent_kv_cache_bytes(1, 1, 61, 512, 64, layout="fp8_ds_mla") == 61 * 656
    assert latent_kv_cache_bytes(3, 17, 61, 512, 64, block_tokens=16) == 3 * 32 * 70_272
    layers = [61 * KVLayer.latent(512, 64)]
    assert hybrid_kv_cache_bytes(layers, 1, 1, tensor_parallel=8) == 70_272
    assert hybrid_kv_cache_bytes(layers, 1, 1, latent_layout="fp8_ds_mla") == 40_016


@given(
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(1, 200),
    st.integers(1, 128),
    st.integers(1, 512),
)
def test_scalars_are_exact_at_any_size(sequences, tokens, layers, heads, dim):
    assert (
        kv_cache_bytes(sequences, tokens, layers, heads, dim) == 4 * sequences * tokens * layers * heads * dim
    )


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
    st.lists(st.sampled_from([0.5, 1, 2, 4]), min_size=1, max_size=3),
    blocks,
    st.sampled_from([1, 2, 4, 8, 16]),
)
def test_arrays_give_what_scalars_give(tokens, sizes, block, ranks):
    settings = {"block_tokens": block, "tensor_parallel": ranks, "scale_bytes_per_token_head": 4}
    table = kv_cache_bytes(3, tokens, 5, 8, 7, [[size] for size in sizes], **settings)

    assert table.shape == (len(sizes), len(tokens))
    for row, size in enumerate(sizes):
        for place, length in enumerate(tokens):
            assert table[row, place] == kv_cache_bytes(3, length, 5, 8, 7, size, **settings)


def test_an_array_beyond_int64_is_refused_and_a_scalar_is_not():
    overflow = (10**6, 10**7, 126, 8, 128, 4)

    assert kv_cache_bytes(*overflow) == 10_321_920_000_000_000_000 > 2**63
    with pytest.raises(
        ConfigError, match=r"^kv_cache_bytes: must stay below 2\*\*63 in an array \(got 10321920"
    ):
        kv_cache_bytes([10**6], *overflow[1:])


@given(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48]))
def test_ranks_split_heads_and_repeat_them_when_they_run_out(heads, ranks):
    whole = kv_cache_bytes(1, 5, 2, heads, 4)
    if heads % ranks and ranks % heads:
        with pytest.raises(
            ConfigError, match=r"^tensor_parallel: must divide num_kv_heads, or be a multiple"
        ):
            kv_cache_bytes(1, 5, 2, heads, 4, tensor_parallel=ranks)
        return
    on_rank = kv_cache_bytes(1, 5, 2, heads, 4, tensor_parallel=ranks)

    assert on_rank == whole // heads * max(1, heads // ranks)
    assert on_rank * ranks >= whole


@given(st.lists(tokens_of, min_size=1, max_size=6), blocks)
def test_pages_by_filling_them_token_by_token(lengths, block):
    pages = 0
    for length in lengths:
        free = 0
        for _ in range(length):
            if not free:
                pages, free = pages + 1, block
            free -= 1
    result = paged_kv_cache(lengths, 2, 3, 5, block_tokens=block)
    per_token = kv_cache_bytes(1, 1, 2, 3, 5)

    assert result.blocks == pages
    assert result.total_bytes == pages * block * per_token
    assert result.useful_bytes == sum(lengths) * per_token
    assert result.total_bytes == result.useful_bytes + result.waste_bytes
    assert result.total_bytes == int(kv_cache_bytes(1, lengths, 2, 3, 5, block_tokens=block).sum())


@given(tokens_of, st.integers(1, 40), blocks, st.integers(1, 64))
def test_policies_are_ordered_and_windows_are_what_a_ring_keeps(tokens, window, block, batched):
    held = {
        policy: sliding_window_tokens(tokens, window, policy, block_tokens=block, max_batched_tokens=batched)
        for policy in WINDOW_POLICIES
    }
    ring: list[int] = []
    for token in range(tokens):
        ring = [*ring, token][-window:]

    assert held["payload"] == len(ring)
    assert held["between_steps"] == len(ring[-(window - 1) :] if window > 1 else [])
    assert held["reserved"] == tokens
    assert held["between_steps"] <= held["payload"] <= held["reserved"]
    assert held["page_bound"] >= held["payload"]
    assert held["page_bound"] % block == 0
    if tokens:
        reach = min(window - 1 + batched, tokens)
        assert held["page_bound"] == (-(-reach // block) + 1) * block
    else:
        assert held["page_bound"] == 0


@given(st.lists(tokens_of, min_size=1, max_size=4), st.sampled_from(WINDOW_POLICIES))
def test_more_tokens_never_hold_less(lengths, policy):
    lengths = sorted(lengths)
    held = sliding_window_tokens(lengths, 16, policy)

    assert (np.diff(held) >= 0).all()


def test_a_mixed_model_is_the_sum_of_its_layers():
    layers = [
        3 * KVLayer.full(4, 8),
        KVLayer.sliding(4, 8, 10) * 2,
        KVLayer.chunked(4, 8, 7),
        KVLayer.latent(16, 4),
        5 * KVLayer.constant(1000),
        KVLayer.constant(0),
    ]
    per_token = 2 * 4 * 8 * 2
    expected = 6 * (3 * 25 * per_token + 2 * 10 * per_token + 7 * per_token + 25 * 40 + 5 * 1000)

    assert hybrid_kv_cache_bytes(layers, 6, 25) == expected
    assert hybrid_kv_cache_bytes(layers, [6, 0], 25).tolist() == [expected, 0]
    reserved = hybrid_kv_cache_bytes(layers, 6, 25, window_policy="reserved")
    assert reserved == 6 * (6 * 25 * per_token + 25 * 40 + 5 * 1000)


def test_a_chunk_drops_nothing_between_steps_and_needs_no_extra_page():
    layers = [KVLayer.chunked(1, 1, 32)]
    held = {
        policy: hybrid_kv_cache_bytes(
            layers, 1, 100, element_bytes=0.5, window_policy=policy, block_tokens=16, max_batched_tokens=20
        )
        for policy in WINDOW_POLICIES
    }

    assert held == {"payload": 32, "between_steps": 32, "page_bound": 64, "reserved": 112}


def test_uniform_layers_give_the_plain_formula():
    settings = {"element_bytes": 1, "scale_bytes_per_token_head": 4, "block_tokens": 16, "tensor_parallel": 2}
    hybrid = hybrid_kv_cache_bytes([28 * KVLayer.full(8, 128)], 7, [0, 1, 1000], **settings)

    assert hybrid.tolist() == kv_cache_bytes(7, [0, 1, 1000], 28, 8, 128, **settings).tolist()


@given(tokens_of, st.lists(tokens_of, min_size=1, max_size=6), blocks)
def test_a_group_by_collecting_its_distinct_pages(prompt, responses, block):
    pages = set()
    for member, response in enumerate(responses):
        for page in range(-(-(prompt + response) // block)):
            whole_prompt_page = (page + 1) * block <= prompt
            pages.add((page, None if whole_prompt_page else member))

    assert group_cache_tokens(prompt, responses, block_tokens=block) == len(pages) * block
    same = group_cache_tokens(prompt, responses[0], group_size=len(responses), block_tokens=block)
    listed = group_cache_tokens(prompt, [responses[0]] * len(responses), block_tokens=block)
    assert same == listed


def test_a_shared_prompt_is_counted_once_for_each_row_of_a_batch():
    table = group_cache_tokens([1000, 10], [[1, 2, 3], [4, 5, 6]])

    assert table.tolist() == [1006, 25]
    assert group_cache_tokens(1000, 500, group_size=[1, 8]).tolist() == [1500, 5000]


@given(
    st.integers(0, 400), st.integers(1, 60), st.integers(0, 60), st.integers(1, 5), blocks, st.integers(1, 3)
)
def test_capacity_by_admitting_one_sequence_after_another(pool, tokens, prefix, group, block, each):
    prefix = min(prefix, tokens)
    fits = max_sequences(
        pool, each, tokens, block_tokens=block, shared_prefix_tokens=prefix, group_size=group
    )
    total = pool // (each * block)
    shared = prefix // block
    own = -(-tokens // block) - shared
    used = admitted = 0
    for number in range(10_000):
        need = own + (shared if number % group == 0 else 0)
        # A sequence of shared pages alone costs nothing once its group is there.
        if used + need > total:
            break
        used, admitted = used + need, number + 1

    assert fits.blocks == total
    assert fits.sequences <= admitted
    if own:
        assert (fits.sequences, fits.used_blocks) == (admitted, used)
    else:
        assert fits.sequences == total // shared * group


def test_capacity_over_arrays_is_capacity_of_each_element():
    pools, lengths = [0, 1000, 123_456], [[17], [400]]
    fits = max_sequences(pools, 2, lengths, shared_prefix_tokens=10, group_size=4)

    for row, (length,) in enumerate(lengths):
        for place, pool in enumerate(pools):
            alone = max_sequences(pool, 2, length, shared_prefix_tokens=10, group_size=4)
            assert fits.sequences[row, place] == alone.sequences
            assert fits.blocks[row, place] == alone.blocks


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.data(), st.sampled_from([1, 2, 4]), blocks)
def test_a_stages_tokens_fit_and_one_page_more_does_not(layers, data, ranks, block):
    room = data.draw(st.lists(st.integers(0, 10**6), min_size=len(layers), max_size=len(layers)))
    stages = stage_capacity(layers, room, 4, 8, tensor_parallel=ranks, block_tokens=block)

    for stage, count in enumerate(layers):
        most = int(stages.max_tokens_per_stage[stage])
        assert most % block == 0
        assert kv_cache_bytes(1, most, count, 4, 8, tensor_parallel=ranks) <= room[stage]
        assert kv_cache_bytes(1, most + block, count, 4, 8, tensor_parallel=ranks) > room[stage]
    assert stages.max_tokens == min(stages.max_tokens_per_stage)
    assert stages.max_tokens_per_stage[stages.tightest_stage] == stages.max_tokens
    assert stages.need_bytes is None


def test_wanted_tokens_that_fit_say_so():
    assert stage_capacity([1, 1], 640, 1, 16, wanted_tokens=10).fits is True
    assert stage_capacity([1, 1], 640, 1, 16, wanted_tokens=11).fits is False
    assert stage_capacity([1, 1], 640, 1, 16, wanted_tokens=10, block_tokens=4).fits is False


def test_half_bytes_are_rounded_up_once():
    assert kv_cache_bytes(1, 1, 3, 1, 1, element_bytes=Fraction(1, 4)) == 2
    assert kv_cache_bytes(1, [1, 2], 1, 1, 1, element_bytes=0.25).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: kv_cache_bytes(1, 1, 1, 8, 128, tensor_parallel=3),
            "tensor_parallel: must divide num_kv_heads, or be a multiple of it so that heads are repeated "
            "(got 3). num_kv_heads is 8.",
        ),
        (lambda: kv_cache_bytes(1, 1, 0, 8, 128), "num_layers: must be at least 1 (got 0). Give 1 or more."),
        (
            lambda: kv_cache_bytes(1, -1, 1, 8, 128),
            "tokens_per_sequence: must not be negative (got -1). Give 0 or more.",
        ),
        (
            lambda: kv_cache_bytes(1, True, 1, 8, 128),
            "tokens_per_sequence: must be a number, not a truth value (got True). Give a number.",
        ),
        (
            lambda: kv_cache_bytes(1, 1, 1, 8, 128, float("inf")),
            "element_bytes: must be finite (got inf). Give a finite number.",
        ),
        (
            lambda: kv_cache_bytes(1, 1, 1, 8.5, 128),
            "num_kv_heads: must be a whole number (got 8.5). Give whole numbers.",
        ),
        (
            lambda: latent_kv_cache_bytes(1, 1, 1, 512, 64, layout="fp8"),
            "layout: must be one of plain, fp8_ds_mla (got 'fp8'). Did you mean 'fp8_ds_mla'?",
        ),
        (
            lambda: sliding_window_tokens(1, 1, "paylod"),
            "window_policy: must be one of payload, between_steps, page_bound, reserved (got 'paylod'). "
            "Did you mean 'payload'?",
        ),
        (
            lambda: hybrid_kv_cache_bytes([], 1, 1),
            "layers: must hold at least one layer (got []). List the model's layers.",
        ),
        (
            lambda: max_sequences(10, 0, 1),
            "bytes_per_token: must be above 0 (got 0). Give kv_cache_bytes(1, 1, ...).",
        ),
        (
            lambda: max_sequences(10, 1, 5, shared_prefix_tokens=6),
            "shared_prefix_tokens: must not exceed tokens_per_sequence (got 6). "
            "The prompt is part of the sequence.",
        ),
        (
            lambda: group_cache_tokens(10, 5),
            "response_tokens: must list the group's members when group_size is left out (got 5). "
            "Give group_size or a list.",
        ),
        (
            lambda: stage_capacity(16, 10, 1, 1),
            "layers_per_stage: must list the stages (got 16). Give one number per stage.",
        ),
        (
            lambda: stage_capacity([16, 16], [1, 2, 3], 1, 1),
            "layers_per_stage: must broadcast with the other arguments (got 'layers_per_stage (2,), "
            "available_bytes (3,)'). Give arrays of equal or compatible shapes.",
        ),
    ],
)
def test_impossible_input_is_refused_with_a_way_out(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
