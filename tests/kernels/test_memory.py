"""Model state, its shards, and the peak over phases: stored cases, bug reports, properties, messages."""

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
    BYTES_PER_GB,
    BYTES_PER_GIB,
    RECIPES,
    ModelShape,
    activation_bytes,
    adafactor_state_bytes,
    block_scaled_bytes,
    blockwise_8bit_state_bytes,
    gathered_layer_bytes,
    human_bytes,
    ideal_sharded_memory,
    lora_parameters,
    model_state_bytes,
    parameter_count,
    parameters_on_rank,
    peak_memory,
)

BUGS = {
    bug["id"]: bug
    for bug in json.loads((Path(__file__).parents[1] / "data" / "memory_bug_reports.json").read_text())
}
LLAMA_8B = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 128,
    "ffn_size": 14336,
    "vocabulary_size": 128256,
}
counts = st.integers(0, 10**13)
each_bytes = st.one_of(st.integers(0, 16), st.sampled_from([0.5, 0.25, 1.03125, Fraction(1, 3)]))
CLAIMED = {
    "model_state_bytes",
    "ideal_sharded_memory",
    "lora_trainable_parameters",
    "parameter_count",
    "peak_memory",
    "human_bytes",  # test_units.py
    "deepspeed_zero2_estimate",
    "deepspeed_zero3_estimate",
    "megatron_theoretical_memory",
    "eleutherai_calc_transformer_mem",
}


def _by_id(function: str) -> list:
    return [pytest.param(case, id=case["id"]) for case in cases("memory", function)]


def test_every_stored_case_is_claimed_by_a_test():
    assert {case["function"] for case in cases("memory")} == CLAIMED


@pytest.mark.parametrize("case", _by_id("model_state_bytes"))
def test_model_state_agrees_with_the_stored_cases(case):
    # Conventions followed: parameters count the adapters (mem-03, mem-14), no parameters cost nothing
    # (mem-05), bytes that are given are taken as they are, without scales of an 8-bit optimizer (mem-10).
    inputs = dict(case["inputs"])
    if "raises" in case["expected"]:
        with pytest.raises(ValueError, match=r"^trainable_parameters: must not exceed parameters"):
            model_state_bytes(inputs.pop("parameters"), **inputs)
        return
    state = model_state_bytes(inputs.pop("parameters"), **inputs)

    assert state.total_bytes == case["expected"]["total_bytes"]
    assert type(state.total_bytes) is int
    assert sum(state.components.values()) == state.total_bytes


@pytest.mark.parametrize("case", _by_id("ideal_sharded_memory"))
def test_shards_agree_with_the_stored_cases(case):
    # Conventions followed: a plain total is sharded whole (mem-35) and rounded up (mem-36: 4, not 3.33 or 3).
    inputs, expected = dict(case["inputs"]), case["expected"]
    world = inputs.pop("world_size")
    if "total_bytes" in inputs:
        if "raises" in expected:
            with pytest.raises(ValueError, match=r"^world_size: must be at least 1"):
                ideal_sharded_memory(inputs["total_bytes"], world)
        else:
            sharded = ideal_sharded_memory(inputs["total_bytes"], world)
            assert sharded.bytes_per_rank == expected["bytes_per_rank"]
        return
    stage = inputs.pop("zero_stage")
    sharded = ideal_sharded_memory(model_state_bytes(**inputs), world, zero_stage=stage)

    assert abs(sharded.bytes_per_rank - expected["bytes_per_rank"]) <= case["tolerance"]  # bytes: it is 0.5
    published = expected["published_GB"]
    digits = len(str(published).partition(".")[2])
    assert abs(sharded.bytes_per_rank / BYTES_PER_GB - published) <= 0.5001 * 10**-digits


@pytest.mark.parametrize("case", _by_id("lora_trainable_parameters"))
def test_lora_parameters_agree_with_peft(case):
    shape = ModelShape(name="Llama-3-8B", **LLAMA_8B)

    assert lora_parameters(shape, case["inputs"]["rank"]) == case["expected"]


@pytest.mark.parametrize("case", _by_id("parameter_count"))
def test_parameters_agree_with_an_instantiated_model(case):
    numbers = LLAMA_8B | {"num_layers": 80, "hidden_size": 8192, "num_heads": 64, "ffn_size": 28672}

    assert parameter_count(ModelShape(name="Llama-3-70B", **numbers)).total == case["expected"]


@pytest.mark.parametrize("case", _by_id("deepspeed_zero2_estimate") + _by_id("deepspeed_zero3_estimate"))
def test_deepspeeds_estimate_is_ours_with_its_own_recipe(case):
    # Not our default: DeepSpeed counts 16- and 32-bit gradients; its host-memory figure is not computed here.
    inputs, expected = case["inputs"], case["expected"]
    world = inputs["num_gpus_per_node"] * inputs["num_nodes"]
    if "zero2" in case["function"]:
        state = model_state_bytes(inputs["total_params"], recipe="adam_mixed_two_gradients")
        ours = ideal_sharded_memory(state, world, zero_stage=2).bytes_per_rank
    else:
        state = model_state_bytes(inputs["total_params"], recipe="adam_mixed_fp32_gradients")
        gathered = gathered_layer_bytes(inputs["largest_layer_params"])
        assert gathered == expected["largest_layer_bytes"]
        ours = gathered + ideal_sharded_memory(state, world, zero_stage=3).bytes_per_rank

    assert ours == expected["gpu_bytes"]


@pytest.mark.parametrize("case", _by_id("megatron_theoretical_memory"))
def test_megatrons_estimate_is_ours_plus_its_own_extras(case):
    # We put the final norm on the last stage where Megatron spreads it, and leave out its embedding dropout,
    # its input ids, its logits (ours are logits_peak_bytes) and the 5 % it adds without sequence parallelism.
    inputs, expected = case["inputs"], case["expected"]
    tp, pp = inputs["tensor_model_parallel_size"], inputs["pipeline_model_parallel_size"]
    dp, h, vocabulary = inputs["data_parallel_size"], inputs["hidden_size"], inputs["padded_vocab_size"]
    shape = ModelShape(
        name=inputs["label"],
        num_layers=inputs["num_layers"],
        hidden_size=h,
        num_heads=inputs["num_attention_heads"],
        num_kv_heads=inputs["num_query_groups"],
        head_dim=inputs["kv_channels"],
        ffn_size=inputs["ffn_hidden_size"],
        vocabulary_size=vocabulary,
    )
    loaded = parameters_on_rank(shape, tensor_parallel=tp, pipeline_parallel=pp).most_loaded
    state = model_state_bytes(loaded, recipe="adam_mixed_fp32_gradients")
    ours = ideal_sharded_memory(state, dp, zero_stage=1).bytes_per_rank
    final_norm_elsewhere = h - h // pp
    assert (
        ours - final_norm_elsewhere * (6 + 12 / dp) == expected["weight_and_optimizer_bytes_most_loaded_rank"]
    )

    layers = {
        "num_sequences": inputs["micro_batch_size"],
        "tokens_per_sequence": inputs["seq_length"],
        "num_layers": inputs["num_layers"],
        "hidden_size": h,
        "num_heads": inputs["num_attention_heads"],
        "gated": False,
        "dropout": True,
        "tensor_parallel": tp,
    }
    tokens = inputs["micro_batch_size"] * inputs["seq_length"]
    split = activation_bytes(**layers, ffn_size=inputs["ffn_hidden_size"], sequence_parallel=True)
    head = 4 * (h + vocabulary) if pp == 1 else 0
    extras = tokens * (8 * pp + h * pp + head) / tp
    assert split.total_bytes + extras == expected["activation_bytes_sp_selective"]

    # Without sequence parallelism Megatron takes f = 4 h whatever the model's width is.
    whole = activation_bytes(**layers, ffn_size=4 * h)
    logits = 2 * (vocabulary / tp + h) if pp == 1 else 0
    with_extras = 1.05 * (whole.total_bytes + tokens * (8 * pp + h * pp + logits))
    assert with_extras == pytest.approx(expected["activation_bytes_without_sp"], rel=1e-12)


@pytest.mark.parametrize("case", _by_id("eleutherai_calc_transformer_mem"))
def test_eleutherais_calculator_is_ours_with_fp32_gradients(case):
    # Its parameter count of this GPT (MHA, learned positions, 51,200 entries); its all-gather buckets are not
    # counted here. "checkpoint_activations" there is selective recomputation.
    inputs, expected = case["inputs"], case["expected"]
    layers, h, tokens = inputs["num_layers"], inputs["hidden_size"], inputs["sequence_length"]
    parameters = 12 * layers * h * h + 2 * 51_200 * h + h * tokens + 8 * h * layers + 2 * h
    state = model_state_bytes(parameters, recipe="adam_mixed_fp32_gradients")
    shards = ideal_sharded_memory(state, inputs["num_gpus"], zero_stage=inputs["zero_stage"]).components
    kept = activation_bytes(
        num_sequences=inputs["batch_size_per_gpu"],
        tokens_per_sequence=tokens,
        num_layers=layers,
        hidden_size=h,
        ffn_size=4 * h,
        num_heads=inputs["num_attention_heads"],
        gated=False,
        dropout=True,
    )
    ours = {
        "model_GiB": shards["weights"],
        "gradient_GiB": shards["gradients"],
        "optimizer_GiB": shards["optimizer"] + shards["master"],
        "activation_GiB": kept.total_bytes,
    }

    for name, size in ours.items():
        assert abs(size / BYTES_PER_GIB - expected[name]) <= 0.005


@pytest.mark.parametrize("case", _by_id("peak_memory"))
def test_the_peak_agrees_with_the_stored_cases(case):
    # Conventions followed: the first phase wins a tie, no phase is an error, an empty phase costs nothing.
    phases, expected = case["inputs"]["phases"], case["expected"]
    if "raises" in expected:
        with pytest.raises(ValueError, match=r"^phases: must name at least one phase"):
            peak_memory(phases)
        return
    peak = peak_memory(phases)

    assert (peak.phase, peak.peak_bytes) == (expected["phase"], expected["peak_bytes"])
    assert dict(peak.phase_totals) == expected["phase_totals"]


def test_sizes_without_names_of_phases_are_refused():
    with pytest.raises(ConfigError) as caught:
        peak_memory([14, 16])

    assert str(caught.value) == (
        "phases: must map names to sizes (got [14, 16]). Give {'rollout': [...], 'training': [...]}."
    )


def test_which_zero2_terms_are_sharded_is_shown_term_by_term():
    bug = BUGS["bug-mem-01"]
    totals = {}
    for recipe, name in (("adam_mixed", "without"), ("adam_mixed_two_gradients", "with_fp32_grad_copy")):
        sharded = ideal_sharded_memory(
            model_state_bytes(bug["input"]["params"], recipe=recipe), bug["input"]["gpus"], zero_stage=2
        )
        totals[name] = sharded.bytes_per_rank
        assert {term: (part.shards) for term, part in sharded.terms.items()} == {
            "weights": 1,
            "gradients": 8,
            "optimizer": 8,
            "master": 8,
        }
        assert sum(part.bytes_per_rank for part in sharded.terms.values()) == sharded.bytes_per_rank
    expected = bug["expected"]
    assert totals == {name: expected[f"{name}_bytes"] for name in totals}
    assert totals["without"] / BYTES_PER_GIB == pytest.approx(expected["without_gib"], rel=1e-6)
    assert sharded.terms["gradients"].bytes_per_element == (6,)
    assert sharded.terms["master"].bytes_per_element == (4,)


def test_a_distributed_optimizer_costs_6_plus_12_over_dp():
    bug = BUGS["bug-mem-02"]
    parameters = 6400
    by_recipe = ideal_sharded_memory(
        model_state_bytes(parameters, recipe="adam_mixed_fp32_gradients"), bug["input"]["dp"], zero_stage=1
    )
    by_terms = ideal_sharded_memory(
        model_state_bytes(parameters, gradient_bytes=4), bug["input"]["dp"], sharded=("optimizer", "master")
    )
    expected = bug["expected"]["bytes_per_param"]

    assert (by_recipe.bytes_per_rank / parameters).tolist() == expected
    assert by_terms.bytes_per_rank.tolist() == by_recipe.bytes_per_rank.tolist()


def test_gb_and_gib_of_one_state_are_two_labelled_figures():
    bug = BUGS["bug-mem-11"]
    total = model_state_bytes(bug["input"]["params"]).total_bytes

    assert total == bug["expected"]["bytes"]
    assert total / BYTES_PER_GB == bug["expected"]["GB"]
    assert total / BYTES_PER_GIB == pytest.approx(bug["expected"]["GiB"], rel=1e-9)
    assert human_bytes(total) == "99.84 GiB"
    assert human_bytes(total, decimal=True) == "107.20 GB"


@given(counts, st.data())
def test_state_is_the_textbook_sum_rounded_up_once(parameters, data):
    trainable = data.draw(st.integers(0, parameters))
    sizes = data.draw(st.tuples(each_bytes, each_bytes, each_bytes, each_bytes, each_bytes))
    names = ("parameter", "gradient", "optimizer_state", "master_parameter", "frozen_parameter")
    state = model_state_bytes(
        parameters, trainable, **{f"{name}_bytes": size for name, size in zip(names, sizes)}
    )
    weight, gradient, optimizer, master, frozen = (Fraction(size) for size in sizes)
    exact = trainable * (weight + gradient + optimizer + master) + (parameters - trainable) * frozen

    assert state.total_bytes == -(-exact // 1)
    assert state.total_bytes <= sum(state.components.values()) <= state.total_bytes + 3


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=5), st.lists(each_bytes, min_size=1, max_size=4))
def test_arrays_give_what_scalars_give(parameters, sizes):
    column = [[size] for size in sizes]
    state = model_state_bytes(parameters, optimizer_state_bytes=column)

    assert state.total_bytes.dtype == np.int64
    for row, size in enumerate(sizes):
        for place, number in enumerate(parameters):
            alone = model_state_bytes(number, optimizer_state_bytes=size)
            assert state.total_bytes[row, place] == alone.total_bytes
            assert state.optimizer_bytes[row, place] == alone.optimizer_bytes
            assert state.weights_bytes[row, place] == alone.weights_bytes


@given(counts, counts, st.sampled_from(sorted(set(RECIPES) - {"adafactor"})))
def test_more_trainable_parameters_never_cost_less(one, two, recipe):
    low, high = sorted((one, two))
    each = RECIPES[recipe].parameter_bytes
    few = model_state_bytes(high, low, recipe=recipe, frozen_parameter_bytes=each)
    all_of_them = model_state_bytes(high, recipe=recipe)

    assert few.total_bytes <= all_of_them.total_bytes
    assert few.weights_bytes == all_of_them.weights_bytes


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("adam_mixed", 16),
        ("adam_mixed_fp32_gradients", 18),
        ("adam_mixed_two_gradients", 20),
        ("adam_no_master", 12),
        ("adam_fp32", 16),
        ("adam_bf16", 8),
        ("adam_8bit", Fraction(1003125, 100000)),
        ("muon", 12),
        ("sgd_momentum", 12),
        ("adafactor", 8),
        ("frozen", 2),
    ],
)
def test_recipes_cost_what_they_are_known_for(recipe, expected):
    extra = {"optimizer_extra_bytes": 0} if recipe == "adafactor" else {}

    assert RECIPES[recipe].bytes_per_parameter == expected
    assert model_state_bytes(10**6, recipe=recipe, **extra).total_bytes == 10**6 * expected


def test_a_quantised_base_costs_4127_bits_and_its_adapters_16_bytes():
    assert float(block_scaled_bytes(4, 64, 8, 256)) * 8 == pytest.approx(4.127, abs=5e-5)
    state = model_state_bytes(8_043_892_736, 13_631_488, recipe="qlora")

    assert state.weights_bytes == -(-8_030_261_248 * Fraction(4126953125, 10**9) // 8) + 2 * 13_631_488
    assert state.total_bytes - state.weights_bytes == 14 * 13_631_488


def test_a_given_size_replaces_the_recipes_one_only():
    state = model_state_bytes(100, recipe="adam_8bit", master_parameter_bytes=0)

    assert state.master_bytes == 0
    assert state.optimizer_bytes == -(-100 * 65 // 32)


def test_states_of_two_groups_add_up():
    matrices, rest = model_state_bytes(1000, recipe="muon"), model_state_bytes(24, recipe="adam_mixed")
    both = matrices + rest

    assert both.parameters == both.trainable_parameters == 1024
    assert both.total_bytes == 12 * 1000 + 16 * 24
    assert both.optimizer_bytes == 4 * 1000 + 8 * 24
    sharded = ideal_sharded_memory(both, 8)
    assert sharded.bytes_per_rank == both.total_bytes // 8
    assert sharded.terms["optimizer"].bytes_per_element == (4, 8)
    with pytest.raises(TypeError):
        matrices + 5


def test_small_tensors_of_an_8bit_optimizer_stay_32_bit():
    assert blockwise_8bit_state_bytes([((4095,), 1)]) == 2 * 4 * 4095
    assert blockwise_8bit_state_bytes([((4096,), 1)]) == 2 * (4096 + 4 * 16)
    assert blockwise_8bit_state_bytes([((4097,), 3)]) == 3 * 2 * (4097 + 4 * 17)
    assert blockwise_8bit_state_bytes([((4096,), 1)], block_elements=2048, states=1) == 4096 + 8


def test_adafactor_keeps_rows_and_columns_of_the_last_two_axes():
    assert adafactor_state_bytes([((6, 5), 1)]) == 4 * 11
    assert adafactor_state_bytes([((7,), 2)]) == 4 * 14
    assert adafactor_state_bytes([((3, 6, 5), 1)], element_bytes=2) == 2 * (3 * 6 + 3 * 5)
    assert adafactor_state_bytes([((6, 5), 2)], momentum=True) == 4 * 2 * (11 + 30)


@given(st.integers(0, 10**9), st.integers(1, 4096), st.integers(0, 3), st.booleans(), each_bytes)
def test_shards_hold_the_state_and_little_more(parameters, world, stage, whole_elements, size):
    state = model_state_bytes(parameters, parameter_bytes=size)
    sharded = ideal_sharded_memory(state, world, zero_stage=stage, whole_elements=whole_elements)

    for name, term in sharded.terms.items():
        first = {"optimizer": 1, "master": 1, "gradients": 2, "weights": 3}[name]
        assert term.shards == (world if stage >= first else 1)
        slack = term.shards * (Fraction(max(term.bytes_per_element, default=0)) + 1 if whole_elements else 1)
        assert term.total_bytes <= term.bytes_per_rank * term.shards < term.total_bytes + slack
    parts = sum(term.bytes_per_rank for term in sharded.terms.values())
    assert sharded.bytes_per_rank <= parts <= sharded.bytes_per_rank + (0 if whole_elements else 3)
    if not whole_elements:
        exact = sum(Fraction(term.total_bytes, term.shards) for term in sharded.terms.values())
        assert sharded.bytes_per_rank in (-(-exact // 1), -(-exact // 1) - 1)  # totals were rounded up before
    held = sum(term.bytes_per_rank * term.shards for term in sharded.terms.values())
    assert held == sum(term.total_bytes for term in sharded.terms.values()) + sharded.padding_bytes


@given(st.integers(0, 10**12), st.lists(st.integers(1, 10**5), min_size=2, max_size=6, unique=True))
def test_more_ranks_and_higher_stages_never_cost_more(parameters, worlds):
    worlds = sorted(worlds)
    state = model_state_bytes(parameters)
    table = ideal_sharded_memory(state, worlds, zero_stage=[[0], [1], [2], [3]]).bytes_per_rank

    assert table.shape == (4, len(worlds))
    assert (np.diff(table, axis=0) <= 0).all()
    assert (np.diff(table, axis=1) <= 0).all()
    assert (table[0] == state.total_bytes).all()
    for row in range(4):
        for place, world in enumerate(worlds):
            alone = ideal_sharded_memory(state, world, zero_stage=row)
            assert table[row, place] == alone.bytes_per_rank


def test_hybrid_groups_shard_inside_and_repeat_outside():
    state = model_state_bytes(1_000_000)
    hybrid = ideal_sharded_memory(state, 64, shard_group_size=8)

    assert hybrid.bytes_per_rank == ideal_sharded_memory(state, 8).bytes_per_rank
    mixed = ideal_sharded_memory(state, 64, shard_group_size={"weights": 8})
    assert mixed.components == {
        "weights": 2_000_000 // 8,
        "gradients": 2_000_000 // 64,
        "optimizer": 8_000_000 // 64,
        "master": 4_000_000 // 64,
    }


def test_a_flat_buffer_pads_elements_and_not_bytes():
    state = model_state_bytes(5, recipe="frozen")

    assert ideal_sharded_memory(state, 4).bytes_per_rank == 3
    padded = ideal_sharded_memory(state, 4, whole_elements=True)
    assert (padded.bytes_per_rank, padded.padding_bytes) == (4, 6)


GIB_PARTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 10**12), max_size=4)


@given(st.dictionaries(st.sampled_from("pqrs"), GIB_PARTS, min_size=1), st.integers(0, 10**13))
def test_the_peak_is_the_largest_sum_by_brute_force(phases, device):
    peak = peak_memory(phases, device_bytes=device)
    totals = {name: sum(parts.values()) for name, parts in phases.items()}
    first = next(name for name in phases if totals[name] == max(totals.values()))

    assert peak.phase_totals == totals
    assert (peak.phase, peak.peak_bytes) == (first, totals[first])
    assert peak.headroom_bytes == device - totals[first]
    assert peak.fits == (device >= totals[first])
    if phases[first]:
        assert phases[first][peak.dominant_component] == max(phases[first].values())
    else:
        assert peak.dominant_component is None
    everywhere = [name for name in "abcd" if all(name in parts for parts in phases.values())]
    same = [name for name in everywhere if len({parts[name] for parts in phases.values()}) == 1]
    assert sorted(peak.shared_components) == same


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(0, 50), st.integers(0, 60))
def test_a_peak_over_arrays_is_the_peak_of_each_element(kv, other, device):
    peak = peak_memory({"rollout": {"kv": kv, "weights": 10}, "training": {"adam": other}, "x": []}, device)

    for place, size in enumerate(kv):
        alone = peak_memory(
            {"rollout": {"kv": size, "weights": 10}, "training": {"adam": other}, "x": []}, device
        )
        assert peak.phase[place] == alone.phase
        assert peak.peak_bytes[place] == alone.peak_bytes
        assert peak.dominant_component[place] == alone.dominant_component
        assert peak.headroom_bytes[place] == alone.headroom_bytes
        assert peak.fits[place] == alone.fits


def test_components_of_a_plain_list_are_named_by_position():
    peak = peak_memory({"a": [1, 5, 5], "b": np.array([2, 3])})

    assert peak.dominant_component == 1
    assert peak.headroom_bytes is None
    assert peak.fits is None
    assert peak.shared_components == ()


def test_a_python_total_beyond_int64_is_exact_and_an_array_says_so():
    assert model_state_bytes(10**19).total_bytes == 16 * 10**19
    with pytest.raises(ConfigError, match=r"^total_bytes: must stay below 2\*\*63 in an array"):
        model_state_bytes([10**18])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: model_state_bytes(100, 101),
            "trainable_parameters: must not exceed parameters, which count the adapters too (got 101). "
            "Add the adapters to parameters (100).",
        ),
        (lambda: model_state_bytes(-1), "parameters: must not be negative (got -1). Give 0 or more."),
        (lambda: model_state_bytes(0.5), "parameters: must be a whole number (got 0.5). Give whole numbers."),
        (
            lambda: model_state_bytes(1, gradient_bytes=float("nan")),
            "gradient_bytes: must be finite (got nan). Give a finite number.",
        ),
        (
            lambda: model_state_bytes(True),
            "parameters: must be a number, not a truth value (got True). Give a number.",
        ),
        (
            lambda: model_state_bytes(1, recipe="adam_mixd"),
            f"recipe: must be one of {', '.join(RECIPES)} (got 'adam_mixd'). Did you mean 'adam_mixed'?",
        ),
        (
            lambda: model_state_bytes(1, recipe="adafactor"),
            "optimizer_extra_bytes: is required with the recipe 'adafactor', whose state depends on tensor "
            "shapes (got None). Give adafactor_state_bytes(shapes).",
        ),
        (
            lambda: ideal_sharded_memory(model_state_bytes(1), 12, shard_group_size=8),
            "shard_group_size: must divide world_size (got 8). world_size is 12.",
        ),
        (
            lambda: ideal_sharded_memory(model_state_bytes(1), 2, zero_stage=4),
            "zero_stage: must be 0, 1, 2 or 3 (got 4). Stage 3 shards everything (FSDP).",
        ),
        (
            lambda: ideal_sharded_memory(model_state_bytes(1), 2, sharded="weight"),
            "sharded: must name terms out of weights, gradients, optimizer, master (got 'weight'). "
            "Did you mean 'weights'?",
        ),
        (
            lambda: ideal_sharded_memory(10, 2, zero_stage=1),
            "state: must be a model state when anything but the world size is chosen (got 10). "
            "Build it with model_state_bytes, which knows the terms.",
        ),
        (
            lambda: peak_memory({"a": 5}),
            "phases['a']: must list its components (got 5). "
            "Give {phase: {name: bytes}} or {phase: [bytes, ...]}.",
        ),
        (
            lambda: peak_memory({"a": {"kv": -1}}),
            "phases['a']['kv']: must not be negative (got -1). Give 0 or more.",
        ),
        (
            lambda: blockwise_8bit_state_bytes([5]),
            "tensors: must be pairs of (shape, copies) (got 5). Write ((4096, 1024), 32).",
        ),
    ],
)
def test_impossible_input_is_refused_with_a_way_out(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text
