"""The ledger: phases are sums of their parts, and what is said to fit fits and no more."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lagsweep.errors import ConfigError
from lagsweep.kernels import (
    adafactor_state_bytes,
    blockwise_8bit_state_bytes,
    kv_cache_bytes,
    lora_parameters,
    parameter_count,
    tensor_shapes,
)
from lagsweep.sweeps.memory.ledger import LedgerSettings, build_ledger
from lagsweep.sweeps.memory.models import load_model, shipped_models
from lagsweep.sweeps.memory.parts import (
    engine_kv_bytes,
    engine_weight_bytes,
    largest_gathered_parameters,
    training_activations,
    training_state,
)

QWEN = load_model("Qwen3-8B")
P = 8_190_735_360
ENGINE = {
    "tensor_parallel": 1,
    "element_bytes": 2,
    "scale_bytes": 0,
    "block_tokens": 16,
    "window_policy": "payload",
}


def _ledger(name="Qwen3-8B", **settings):
    return build_ledger(load_model(name), LedgerSettings(**settings))


def test_the_phases_of_qwen3_8b_by_hand():
    peak = _ledger().peak
    state = {"weights": 2 * P // 8, "gradients": 2 * P // 8, "adam": 12 * P // 8}
    engine, cache = 2 * P, 8 * 8192 * 147_456
    sampling = 8 * 151_936 * 6
    table = 151_936 * 4096
    layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 12288 + 2 * 4096 + 256
    full_layer = 2 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 12288 + 4096 + 1024)
    activations = 8192 * (36 * 2 * 4096 + full_layer - 2 * 4096)

    assert table > layer
    assert peak.phase_totals == {
        "rollout": engine + cache + sampling + state["weights"] + state["adam"],
        "training": sum(state.values()) + 4 * table + activations + 8192 * 151_936 * 14,
        "publication": engine + state["weights"] + state["adam"] + max(2**30, 2 * table) + 2 * table,
    }
    assert peak.phase == "rollout"
    assert peak.headroom_bytes == 80 * 10**9 - peak.peak_bytes
    assert peak.dominant_component == "engine weights"


@hypothesis_settings(max_examples=25)
@given(
    st.sampled_from(["Qwen3-0.6B", "gpt-oss-20b", "DeepSeek-V3", "Mistral-7B-v0.1"]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1, 8]),
    st.integers(1, 20_000),
    st.booleans(),
)
def test_most_sequences_fit_and_one_more_per_engine_does_not(name, ranks, group, context, colocated):
    settings = LedgerSettings(
        gpus=16,
        rollout_gpus=None if colocated else 8,
        tensor_parallel=ranks,
        context_tokens=context,
        shared_prompt_tokens=context // 2,
        group_size=group,
        device_bytes=160 * 10**9,
        reserve_bytes=2**30,
    )
    record = load_model(name)
    ledger = build_ledger(record, settings)

    def rollout_fits(sequences):
        one = build_ledger(record, dataclasses.replace(settings, sequences=sequences)).peak
        return one.phase_headroom_bytes["rollout"] >= 0

    if ledger.most_sequences:
        assert rollout_fits(ledger.most_sequences)
    assert not rollout_fits(ledger.most_sequences + 1)


@pytest.mark.parametrize("name", ["Qwen3-8B", "gpt-oss-20b", "Qwen3-4B"])
def test_the_longest_context_fits_and_one_token_more_does_not(name):
    record, settings = load_model(name), LedgerSettings(sequences=48, tensor_parallel=2)
    longest = build_ledger(record, settings).longest_context_tokens

    def headroom(tokens):
        one = dataclasses.replace(settings, context_tokens=tokens, micro_batch_tokens=8192)
        return build_ledger(record, one).peak.phase_headroom_bytes["rollout"]

    assert headroom(longest) >= 0
    assert headroom(longest + 1) < 0


def test_nothing_fits_where_the_weights_do_not():
    ledger = _ledger("DeepSeek-V3", gpus=8)

    assert (ledger.most_sequences, ledger.longest_context_tokens) == (0, 0)
    assert ledger.peak.fits is False


def test_a_window_that_holds_all_it_can_fits_any_context():
    ledger = _ledger("Mistral-7B-v0.1", gpus=16)

    assert ledger.longest_context_tokens == 2**40


@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_every_shipped_model_has_a_ledger(name):
    ledger = _ledger(name, gpus=64, tensor_parallel=4)

    for phase, total in ledger.peak.phase_totals.items():
        assert total == sum(ledger.peak.phase_components[phase].values())
        assert min(ledger.peak.phase_components[phase].values()) > 0


def test_colocation_offloading_and_sleep_decide_what_lives_in_a_phase():
    apart = _ledger(rollout_gpus=8).peak.phase_components
    offloaded = _ledger(offload_training=True).peak.phase_components
    awake = _ledger(engine_sleeps=False).peak.phase_components

    assert set(apart) == {"rollout", "training", "publication, receiving", "publication, sending"}
    assert set(apart["rollout"]) == {"engine weights", "KV cache", "sampling logits"}
    assert "engine weights" not in apart["publication, sending"]
    assert set(offloaded["rollout"]) == {"engine weights", "KV cache", "sampling logits"}
    assert "optimizer and master copy" not in offloaded["publication"]
    assert "training weights" in offloaded["publication"]
    assert {"engine weights", "KV cache"} <= set(awake["training"]) & set(awake["publication"])


def test_a_reference_model_and_a_critic_are_added_to_training():
    plain, more = _ledger().peak, _ledger(reference_model=True, critic=True).peak
    added = more.phase_totals["training"] - plain.phase_totals["training"]

    assert added == 2 * P // 8 + 16 * P // 8
    assert more.phase_components["rollout"]["reference model"] == 2 * P // 8


def test_replicated_weights_are_not_gathered():
    for settings in ({"zero_stage": 2}, {"gpus": 1}):
        parts = _ledger(**settings).peak.phase_components
        assert "one gathered layer" not in parts["training"]
        assert "one gathered layer" not in parts["publication"]


def test_training_state_goes_by_tensors_where_the_recipe_does():
    shape = QWEN.shape
    matrices = parameter_count(shape).matrices
    adapters = lora_parameters(shape, 16)

    assert training_state(shape, "adam_mixed").total_bytes == 16 * P
    assert training_state(shape, "muon").total_bytes == 12 * matrices + 16 * (P - matrices)
    small = blockwise_8bit_state_bytes(tensor_shapes(shape))
    assert training_state(shape, "adam_8bit").total_bytes == 8 * P + small
    factors = adafactor_state_bytes(tensor_shapes(shape))
    assert training_state(shape, "adafactor").total_bytes == 8 * P + factors
    assert factors < P // 100
    assert training_state(shape, "adam_mixed", 16).total_bytes == 2 * P + 16 * adapters
    quantised = -(-matrices * Fraction(4126953125, 10**9) // 8)
    assert training_state(shape, "qlora", 16).total_bytes == quantised + 2 * (P - matrices) + 16 * adapters


def test_a_published_mxfp4_checkpoint_weighs_what_it_does():
    # gpt-oss-20b is a 13.76 GB checkpoint: 4.25 bits for the experts' matrices, bf16 for the rest.
    size = engine_weight_bytes(load_model("gpt-oss-20b").shape, 1, "mxfp4-experts")

    assert size == pytest.approx(13.76e9, rel=3e-3)


def test_engine_formats_change_matrices_only():
    shape = QWEN.shape
    bf16, fp8 = (engine_weight_bytes(shape, 2, name) for name in ("bf16", "fp8"))
    parts = parameter_count(shape).parts

    assert bf16 == 2 * (P + parts["norm"]) // 2 + (36 * 2 * 128)  # norms, q/k norms too, are on both ranks
    assert bf16 / 2 < fp8 < bf16


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 16))
def test_groups_share_whole_pages_of_their_prompt(sequences, tokens, prompt, group):
    prompt = min(prompt, tokens)
    shape = QWEN.shape
    held = engine_kv_bytes(shape, sequences, tokens, shared_prompt_tokens=prompt, group_size=group, **ENGINE)
    page = kv_cache_bytes(1, 16, 36, 8, 128)
    pages = set()
    for number in range(sequences):
        for place in range(-(-tokens // 16)):
            owner = number // group if (place + 1) * 16 <= prompt else (number, "own")
            pages.add((place, owner))

    assert held == len(pages) * page


def test_windowed_layers_are_charged_for_each_sequence():
    shape = load_model("gpt-oss-20b").shape
    shared = engine_kv_bytes(shape, 8, 4096, shared_prompt_tokens=2048, group_size=8, **ENGINE)
    apart = engine_kv_bytes(shape, 8, 4096, **ENGINE)

    assert apart - shared == 7 * 2048 * 24_576


def test_the_largest_gathered_unit_is_a_table_or_a_layer():
    assert largest_gathered_parameters(QWEN.shape) == 151_936 * 4096
    deepseek = load_model("DeepSeek-V3").shape
    assert largest_gathered_parameters(deepseek) > 256 * 3 * 7168 * 2048


@pytest.mark.parametrize("name", sorted(shipped_models()))
def test_recomputation_never_keeps_more(name):
    shape = shipped_models()[name].shape
    kept = {rule: training_activations(shape, 4096, rule) for rule in ("none", "selective", "full")}

    assert kept["none"].stored_bytes == kept["selective"].stored_bytes > kept["full"].stored_bytes
    assert kept["full"].stored_bytes == 4096 * shape.num_layers * shape.hidden_size * 2


def test_notes_say_what_a_reader_would_miss():
    deepseek = _ledger("DeepSeek-V3", gpus=64, tensor_parallel=8, critic=True).notes
    gpt = _ledger("gpt-oss-20b", context_tokens=200_000).notes

    assert deepseek == (
        "The published checkpoint is fp8 e4m3, 128x128 blocks; the engine is charged with bf16.",
        "Latent KV cache is repeated on every tensor-parallel rank.",
        "The critic is taken as a second model of the policy's shape and recipe.",
    )
    assert gpt[0] == "The context is longer than the 131072 positions in the model's config."
    assert gpt[2] == "12 layers have a window of 128 tokens; their cache follows the policy 'payload'."


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"gpus": 0}, "gpus: must be at least 1 (got 0). Give 1 or more."),
        ({"gpus": True}, "gpus: must be a number, not a truth value (got True). Give a number."),
        (
            {"tensor_parallel": 3},
            "tensor_parallel: must divide gpus, so that engines tile the GPUs (got 3). gpus is 8.",
        ),
        (
            {"rollout_gpus": 6, "tensor_parallel": 4},
            "tensor_parallel: must divide rollout_gpus, so that engines tile the GPUs (got 4). "
            "rollout_gpus is 6.",
        ),
        (
            {"shared_prompt_tokens": 9000},
            "shared_prompt_tokens: must not exceed context_tokens (got 9000). "
            "The prompt is part of the context.",
        ),
        (
            {"reserve_bytes": 80 * 10**9},
            "reserve_bytes: must be below device_bytes (got 80000000000). device_bytes is 80000000000.",
        ),
        (
            {"recipe": "qlora"},
            "lora_rank: is required with the recipe 'qlora' (got None). Give a rank such as 16.",
        ),
        (
            {"recipe": "muon", "lora_rank": 16},
            "lora_rank: does not go with the recipe 'muon' (got 16). Take adam_mixed, or leave the rank out.",
        ),
        (
            {"engine_format": "fp16"},
            "engine_format: must be one of bf16, fp8, mxfp4-experts (got 'fp16'). Did you mean 'bf16'?",
        ),
        ({"zero_stage": 5}, "zero_stage: must be 0, 1, 2 or 3 (got 5). Stage 3 shards everything (FSDP)."),
        ({"shard_group_size": 3}, "shard_group_size: must divide world_size (got 3). world_size is 8."),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, text):
    with pytest.raises(ConfigError) as caught:
        _ledger(**settings)

    assert str(caught.value) == text
