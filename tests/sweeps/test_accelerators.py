"""Shipped cards, a card of one's own, and what follows from a model on a card."""

from __future__ import annotations

import json

import pytest

from lagsweep import ConfigError
from lagsweep.sweeps.engines.accelerators import accelerator_from, load_accelerator, shipped_accelerators
from lagsweep.sweeps.engines.cache_tokens import cache_tokens
from lagsweep.sweeps.engines.roofline import Prior, deployment_of, priors_of

OWN = {"name": "mine", "memory_bytes": 24e9, "memory_bytes_per_second": 1e12, "bf16_flops_per_second": 1e14}
WANTED = (
    "H100-SXM", "H200-SXM", "H20", "A100-SXM-80GB", "B200", "GB200", "L40S", "RTX 4090",
    "RTX PRO 6000 Blackwell", "MI300X", "MI325X", "MI355X", "TPU v5p",
)  # fmt: skip


def test_the_cards_that_people_train_on_are_there_each_with_a_source():
    cards = shipped_accelerators()

    assert set(WANTED) <= set(cards)
    assert all(card.source and card.memory_evidence for card in cards.values())
    assert all(1e10 < card.memory_bytes < 1e12 for card in cards.values())
    assert all(1e13 < card.bf16_flops_per_second < 1e16 for card in cards.values())


def test_every_name_and_alias_finds_its_card_in_any_case_and_no_other():
    cards = shipped_accelerators().values()
    names = [name for card in cards for name in (card.name, *card.aliases)]

    assert len({name.lower() for name in names}) == len(names)
    for card in cards:
        assert all(load_accelerator(name.upper()) is card for name in (card.name, *card.aliases))


def test_an_unknown_card_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"accelerator: must be a known name.*Did you mean 'H100-SXM'\?"):
        load_accelerator("H100-SMX")


def test_a_row_of_ones_own_is_read(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**OWN, "aliases": ["my card"], "link": "PCIe 4 x16"}))
    card = load_accelerator(path)

    assert (card.name, card.memory_bytes, card.has_fast_links) == ("mine", 24e9, False)


def test_every_finding_of_a_row_is_said():
    row = {"name": 3, "memory_bytes": -1, "memory_bytes_per_second": "fast", "colour": "blue"}
    with pytest.raises(ConfigError) as caught:
        accelerator_from(row, "mine.json")

    assert [(one.field, one.rule) for one in caught.value.findings] == [
        ("mine.json: colour", "is not a known field"),
        ("mine.json: bf16_flops_per_second", "is required"),
        ("mine.json: name", "must be text"),
        ("mine.json: memory_bytes", "must be above 0"),
        ("mine.json: memory_bytes_per_second", "must be a number"),
    ]


@pytest.mark.parametrize(
    ("model", "card", "options", "utilization", "logged", "within"),
    [
        ("Llama-3.1-8B", "H100", {}, 0.95, 476_016, 0.002),
        ("Llama-3.1-8B", "H100", {"cache_format": "fp8"}, 0.95, 952_032, 0.002),
        ("Qwen2.5-7B", "H100", {}, 0.95, 1_096_000, 0.002),
        ("Llama-3.1-8B", "A100-40GB", {}, 0.90, 163_168, 0.004),
        # Weights fill this card: a small error of bytes is a large one of tokens.
        ("Llama-3.1-8B", "RTX 4090", {}, 0.90, 41_408, 0.09),
    ],
)
def test_the_cache_is_what_vllm_logged(model, card, options, utilization, logged, within):
    found = cache_tokens(deployment_of(model, card, **options), utilization=utilization)

    assert found.tokens == pytest.approx(logged, rel=within)
    assert found.low < found.tokens < found.high


def test_weights_that_do_not_fit_leave_no_cache():
    assert cache_tokens(deployment_of("Qwen3-32B", "RTX 4090")).tokens == 0


@pytest.mark.parametrize(
    ("model", "card", "options", "measured_milliseconds"),
    [
        ("Llama-3.1-8B", "RTX 4090", {}, 19.0),
        ("Llama-3.1-8B", "RTXPRO6000", {}, 13.7),
        ("Qwen3-32B", "RTXPRO6000", {"tensor_parallel": 2}, 25.8),
        ("Qwen3-30B-A3B", "RTXPRO6000", {"engines": 2, "expert_parallel": True}, 21.3),
        ("Mixtral-8x7B-v0.1", "H100", {"tensor_parallel": 2}, 17.35),
    ],
)
def test_a_step_by_the_priors_alone_is_near_what_was_measured(model, card, options, measured_milliseconds):
    """Within a quarter: that is what a plan without a measurement can say."""
    deployment = deployment_of(model, card, **options)
    middles = [prior.middle for prior in priors_of(deployment.shape)]
    step = deployment.coefficients(middles, 64)["step_seconds"]

    assert 1e3 * step == pytest.approx(measured_milliseconds, rel=0.25)


def test_few_rollouts_read_few_experts():
    """Even routing: 8, 15.5 and 29.1 of 128 experts for 1, 2 and 4 rollouts."""
    deployment = deployment_of("Qwen3-30B-A3B", "H100")

    assert [deployment.bytes_read(n) / 1e9 for n in (1, 2, 4, 256)] == pytest.approx(
        [6.08, 9.48, 15.65, 60.44], rel=0.003
    )


def test_the_ridge_is_where_arithmetic_takes_as_long_as_weights():
    assert deployment_of("Llama-3.1-8B", "H100").ridge_rollouts == pytest.approx(295, abs=1)
    assert deployment_of("Llama-3.1-8B", "RTX 4090").ridge_rollouts == pytest.approx(164, abs=1)


def test_windows_do_not_grow_with_a_long_context():
    """gpt-oss: half of its layers see 128 tokens; what one more token costs is the other half."""
    deployment = deployment_of("gpt-oss-20b", "H100")

    assert deployment.cache_bytes_per_token == 12 * 2 * 8 * 64 * 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"engine_format": "bf15"}, "engine_format: must be one of bf16, fp8, mxfp4-experts"),
        ({"cache_format": "int3"}, "cache_format: must be one of bf16, fp8"),
        ({"expert_parallel": True}, "expert_parallel: needs a mixture of experts"),
        ({"tensor_parallel": 3}, "tensor_parallel: must divide"),
        ({"tensor_parallel": 0}, "tensor_parallel: must be at least 1"),
        ({"engines": 1.5}, "engines: must be a whole number"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        deployment_of("Llama-3.1-8B", "H100", **options)


def test_a_share_may_be_zero_and_nothing_else():
    share, length = Prior("s", "", 0.0, 0.0, 1.0), Prior("h", "", 2.0, 1.0, 4.0)

    assert (share.value(-0.5), share.value(0.5)) == (0.0, 0.5)
    assert length.value(length.centre) == pytest.approx(2.0)
    assert length.value(length.centre + 1.645 * length.spread) == pytest.approx(4.0)
