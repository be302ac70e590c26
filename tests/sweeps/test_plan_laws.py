"""Engines and trainers of a plan: the laws by hand, and what others measured."""

from __future__ import annotations

import json
import math

import pytest

from lagsweep import ConfigError, LengthLaw, load_network
from lagsweep.sweeps.engines.accelerators import load_accelerator
from lagsweep.sweeps.engines.cache_tokens import cache_tokens
from lagsweep.sweeps.engines.roofline import deployment_of
from lagsweep.sweeps.memory.models import load_model
from lagsweep.sweeps.plan.engine_law import (
    all_reduce_seconds,
    bytes_read,
    mean_context,
    running_at_once,
    step_coefficients,
)
from lagsweep.sweeps.plan.inputs import colocated_inputs, engine_inputs, given_inputs, trainer_inputs
from lagsweep.sweeps.plan.measured import load_measured, measured_inputs
from lagsweep.sweeps.plan.networks import network_from, shipped_networks
from lagsweep.sweeps.plan.trainer_law import (
    flops_per_token,
    mean_sequence,
    publication_seconds,
    train_tokens_per_second,
    trainer_memory,
)

H100 = 3.35e12  # bytes per second
PEAK = 989e12


def usual(name):
    return {one.name: one.value for one in engine_inputs(load_model(name).shape)}


def test_a_step_reads_the_weights_and_waits_for_each_layer():
    one = deployment_of("Llama-3.1-8B", "H100")
    found = step_coefficients(one, usual("Llama-3.1-8B"), 32, 1000)
    weights = (8_030_261_248 - 128_256 * 4096) * 2  # the input table is looked up

    assert found["step_seconds"] == pytest.approx(32 * 60e-6 + weights / (0.9 * H100))
    assert found["step_seconds_per_rollout"] == 0
    assert found["step_seconds_per_context_token"] == pytest.approx(131_072 / (0.6 * H100))
    assert found["prefill_seconds_per_token"] == pytest.approx(2 * weights / 2 / (0.5 * PEAK), rel=2e-3)


@pytest.mark.parametrize("rollouts", [300, 500, 2000])
def test_beyond_the_ridge_a_step_with_all_its_rollouts_takes_their_arithmetic(rollouts):
    one = deployment_of("Llama-3.1-8B", "H100")
    values = usual("Llama-3.1-8B")
    found = step_coefficients(one, values, rollouts, 1000)
    arithmetic = rollouts * one.flops_per_token / one.peak / values["rollout_efficiency"]
    reading = one.bytes_read(rollouts) / (0.9 * H100)
    step = found["step_seconds"] + rollouts * found["step_seconds_per_rollout"]

    assert arithmetic > reading  # the maximum of the two, not their sum
    assert step == pytest.approx(32 * 60e-6 + arithmetic)
    assert found["step_seconds"] == pytest.approx(32 * 60e-6 + reading)


def test_all_reduces_follow_the_measured_law_of_large_messages_and_none_of_small_ones():
    # 70B-like widths on 4 ranks, 32 rollouts: 512 KB, 13.4 us of bytes; measured 20.2 with the 4.5 of a call.
    wide = deployment_of("Qwen3-32B", "H100", tensor_parallel=4)
    fixed, each = all_reduce_seconds(wide, 100)

    assert fixed == 0
    assert 51.2 * each / (2 * 64) == pytest.approx(51.2 * 5120 * 2 / 39e9)
    assert all_reduce_seconds(wide, 4) == (0, 0)
    assert all_reduce_seconds(deployment_of("Qwen3-32B", "H100"), 100) == (0, 0)


def test_all_reduces_over_pcie_cost_their_calls_too():
    fixed, each = all_reduce_seconds(deployment_of("Qwen3-32B", "L40S", tensor_parallel=2), 1)

    assert fixed == pytest.approx(2 * 64 * 20e-6)
    assert each > 0


def test_fewer_distinct_experts_are_never_fewer_than_a_tokens_own():
    one = deployment_of("Qwen3-30B-A3B", "H100")

    assert bytes_read(one, 1, 0.8) == pytest.approx(bytes_read(one, 1))
    assert bytes_read(one, 64, 0.8) < bytes_read(one, 64)
    assert bytes_read(deployment_of("Qwen3-8B", "H100"), 64, 0.8) == bytes_read(
        deployment_of("Qwen3-8B", "H100"), 1
    )


def test_layers_with_windows_read_and_keep_less_of_long_contexts():
    mistral = deployment_of("Mistral-7B-v0.1", "H100")
    values = usual("Mistral-7B-v0.1")
    near, far = (
        step_coefficients(mistral, values, 8, tokens)["step_seconds_per_context_token"]
        for tokens in (2000, 40_960)
    )

    assert far == pytest.approx(near / 10, rel=1e-3)
    assert (
        cache_tokens(mistral, context_tokens=40_960).tokens
        > 9 * cache_tokens(mistral, context_tokens=2000).tokens
    )
    assert cache_tokens(mistral).bytes_per_token == 131_072  # one layer after another has a window


def test_what_others_keep_on_a_card_leaves_less_to_the_cache():
    one = deployment_of("Qwen3-8B", "H100")
    whole, less = cache_tokens(one), cache_tokens(one, reserved_bytes=1e9)

    assert whole.left_bytes - less.left_bytes == 1e9
    assert whole.tokens - less.tokens == pytest.approx(1e9 / whole.bytes_per_token, abs=16)


def test_a_rollout_is_caught_at_half_of_its_answer_longer_ones_more_often():
    law = LengthLaw.from_counts([100, 300], [1, 1])

    assert mean_context(law, 50) == 50 + (100**2 + 300**2) / (2 * 400)
    assert running_at_once(64, 10_000, 250.0, 1000.0) == 40
    assert running_at_once(64, None, 250.0, 1000.0) == 64
    assert running_at_once(64, None, 250.0, 3.0) == 3


def test_training_a_token_takes_six_operations_a_parameter_and_its_attention():
    shape = load_model("Llama-3.1-8B").shape
    law = LengthLaw.from_counts([1000, 3000], [1, 1])
    length = (1500**2 + 3500**2) / 5000
    active = 8_030_261_248 - 128_256 * 4096

    assert mean_sequence(law, 500) == length
    assert flops_per_token(shape, law, 500) == pytest.approx(6 * active + 6 * 32 * 4096 * length)
    rates = [
        train_tokens_per_second(
            shape, load_accelerator("H100"), gpus, law, 500, share_of_peak=0.33, forward_passes=passes
        )
        for gpus, passes in ((8, 0), (16, 0), (8, 2))
    ]
    assert rates[1] == pytest.approx(2 * rates[0], rel=1e-5)
    assert rates[2] == pytest.approx(rates[0] / 1.76, rel=1e-5)


def test_a_published_training_speed_lies_inside_the_range_of_mfu():
    # torchtitan, Llama-3.1-8B at 8,192 tokens on 8 H100 with FSDP: 5,762 and 6,667 tokens/s/GPU.
    shape, card = load_model("Llama-3.1-8B").shape, load_accelerator("H100")
    mfu = trainer_inputs(shape, card, load_network("one-node"))[0]
    low, high = (
        train_tokens_per_second(
            shape, card, 1, LengthLaw.fixed(8192), 0, share_of_peak=share, forward_passes=0
        )
        for share in (mfu.low, mfu.high)
    )

    assert low < 5762 < 6667 < high


def test_a_trainers_memory_is_the_ledgers_and_shrinks_with_its_gpus():
    record, card = load_model("Qwen3-32B"), load_accelerator("H100")
    some = {"tensor_parallel": 4, "longest_tokens": 8192}
    few, many = (trainer_memory(record, card, gpus=gpus, rollout_gpus=8, **some) for gpus in (4, 32))
    turns = trainer_memory(record, card, gpus=32, rollout_gpus=None, **some)

    assert few.missing_bytes > 0 == many.missing_bytes
    assert many.resident_bytes == 0
    # Weights in bf16 and an fp32 master copy with two moments, over 32 GPUs, stay while engines run.
    assert turns.resident_bytes == pytest.approx(32_762_123_264 * 14 / 32, rel=1e-6)


def test_a_publication_is_all_parameters_over_the_networks_rate():
    shape = load_model("Qwen3-32B").shape

    assert publication_seconds(shape, 5e9) == pytest.approx(2 * 32_762_123_264 / 5e9, rel=1e-5)
    # verl issue 7060, 32B over NCCL between groups of H100: 14.2 and 17.9 s; the range holds both.
    way = shipped_networks()["across-nodes"]
    assert publication_seconds(shape, way.high) < 14.2 < 17.9 < publication_seconds(shape, way.low)


def test_every_input_has_a_source_and_its_default_between_its_ends():
    for name in ("Qwen3-8B", "Qwen3-30B-A3B"):
        shape = load_model(name).shape
        found = [
            *engine_inputs(shape),
            *trainer_inputs(shape, load_accelerator("B200"), load_network("across-nodes")),
            *colocated_inputs(),
        ]
        assert all(one.low <= one.value <= one.high and one.source for one in found)
        assert all({one.fast, one.slow} == {one.low, one.high} for one in found)


def test_younger_cards_and_mixtures_train_slower_by_default():
    def share(model, card):
        return trainer_inputs(load_model(model).shape, load_accelerator(card), load_network("one-node"))[
            0
        ].value

    assert share("Qwen3-8B", "B200") == pytest.approx(0.8 * share("Qwen3-8B", "H100"))
    assert share("Qwen3-30B-A3B", "H100") < share("Qwen3-8B", "H100")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"mfu": 0.4}, "inputs.mfu"),
        ({"model_flops_utilization": 1.4}, "inputs.model_flops_utilization"),
        ({"weight_efficiency": 0}, "inputs.weight_efficiency"),
        ({"weight_efficiency": [0.9, 0.8]}, "inputs.weight_efficiency"),
        ({"weight_efficiency": [0.7, 0.8, 0.9]}, "inputs.weight_efficiency"),
        ({"weight_efficiency": "good"}, "inputs.weight_efficiency"),
    ],
)
def test_an_input_that_cannot_be_is_refused(given, field):
    shape = load_model("Qwen3-8B").shape
    inputs = [
        *engine_inputs(shape),
        *trainer_inputs(shape, load_accelerator("H100"), load_network("one-node")),
    ]
    with pytest.raises(ConfigError) as caught:
        given_inputs(inputs, given)

    assert caught.value.findings[0].field == field


def test_a_network_of_ones_own_is_read_with_or_without_a_range(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text('name = "ours"\nbytes_per_second = 12e9\n')
    row = tmp_path / "ours.json"
    row.write_text(json.dumps({"name": "ours", "bytes_per_second": 12e9, "low": 8e9, "high": 20e9}))

    assert (load_network(path).low, load_network(path).high) == (12e9, 12e9)
    assert (load_network(row).low, load_network(str(row)).high) == (8e9, 20e9)


def test_every_finding_of_a_network_is_said():
    with pytest.raises(ConfigError) as caught:
        network_from({"bytes_per_seconds": 1e9, "low": -1, "name": 3}, "net.toml")

    fields = [one.field for one in caught.value.findings]
    assert fields == [
        "net.toml: bytes_per_seconds",
        "net.toml: low",
        "net.toml: name",
        "net.toml: bytes_per_second",
    ]
    with pytest.raises(ConfigError, match="must lie between low and high"):
        network_from({"bytes_per_second": 1e9, "low": 2e9}, "net.toml")
    with pytest.raises(ConfigError, match=r"Did you mean 'one-node'\?"):
        load_network("one-nod")


def test_a_measured_engine_brings_its_intervals_as_ranges(tmp_path):
    path = tmp_path / "engine.toml"
    path.write_text(
        "step_seconds = 0.02\nkv_cache_tokens = 90000\n[fitted]\ntensor_parallel = 2\n"
        "[fitted.intervals]\nstep_seconds = { value = 0.02, low = 0.018, high = 0.021 }\n"
        'step_seconds_per_rollout = { low = "?" }\n'
    )
    found = load_measured(path)
    inputs = {one.name: one for one in measured_inputs(found)}

    assert (found.tensor_parallel, found.engine.kv_cache_tokens) == (2, 90_000)
    assert (inputs["step_seconds"].low, inputs["step_seconds"].high) == (0.018, 0.021)
    assert not inputs["step_seconds_per_rollout"].is_open
    assert all(math.isfinite(one.value) for one in inputs.values())
