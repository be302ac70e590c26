"""Shipped model shapes against their sources, and a user's own config.json read as the same shapes."""

from __future__ import annotations

import json

import pytest
from oracle.parameter_twin import parameters_by_formula

from lagsweep.errors import ConfigError
from lagsweep.kernels import hybrid_kv_cache_bytes, model_kv_layers, parameter_count
from lagsweep.sweeps.memory.hf_config import shape_from_config
from lagsweep.sweeps.memory.models import load_model, model_rows, shipped_models

# Totals and bf16 KV bytes per token as their sources state them; a test compares the shapes with these.
PUBLISHED = {
    "Llama-3.1-8B": 8_030_261_248,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mixtral-8x7B-v0.1": 46_702_792_704,
    "gpt-oss-20b": 20_914_757_184,
}
KV_BYTES_PER_TOKEN = {
    "Llama-3.1-8B": 131_072,
    "Qwen2.5-7B": 57_344,
    "Qwen3-0.6B": 114_688,
    "Qwen3-4B": 147_456,
    "Qwen3-8B": 147_456,
    "Qwen3-32B": 262_144,
    "Qwen3-30B-A3B": 98_304,
    "Qwen3-235B-A22B": 192_512,
    "DeepSeek-V3": 70_272,
    "Mistral-7B-v0.1": 131_072,
    "Mixtral-8x7B-v0.1": 131_072,
    "gpt-oss-20b": 49_152,
}
QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40960,
    "attention_bias": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 36,
}
# The numbers of the models' own config.json files, the fields that matter here.
CONFIGS = {
    "Qwen3-8B": QWEN3,
    "Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "max_position_embeddings": 131072,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "Qwen2.5-7B": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "max_window_layers": 28,
    },
    "Qwen3-30B-A3B": QWEN3
    | {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "Mistral-7B-v0.1": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
    },
    "Mixtral-8x7B-v0.1": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "DeepSeek-V3": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "max_position_embeddings": 163840,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "max_position_embeddings": 131072,
        "sliding_window": 128,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
}


def test_twelve_models_are_shipped_each_with_sources():
    models = shipped_models()

    assert set(models) == set(KV_BYTES_PER_TOKEN)
    for name, record in models.items():
        assert record.shape.name == name
        assert record.sources
        assert (record.published_parameters is None) == (record.published_parameters_source is None)


@pytest.mark.parametrize("name", KV_BYTES_PER_TOKEN)
def test_parameters_agree_with_the_published_total_to_the_last_one(name):
    record = shipped_models()[name]
    counted = parameter_count(record.shape)

    assert (counted.total, counted.active) == parameters_by_formula(record.shape)
    assert record.published_parameters == PUBLISHED.get(name)
    assert record.parameters_label == ("published" if name in PUBLISHED else "computed")
    if name in PUBLISHED:
        assert counted.total == record.published_parameters


@pytest.mark.parametrize(("name", "per_token"), KV_BYTES_PER_TOKEN.items())
def test_kv_bytes_per_token_follow_from_the_shapes(name, per_token):
    layers = model_kv_layers(shipped_models()[name].shape)

    assert hybrid_kv_cache_bytes(layers, 1, 1) == per_token


def test_beyond_the_window_only_full_layers_grow():
    gpt, mistral = (
        model_kv_layers(shipped_models()[name].shape) for name in ("gpt-oss-20b", "Mistral-7B-v0.1")
    )

    assert hybrid_kv_cache_bytes(gpt, 1, 1001) - hybrid_kv_cache_bytes(gpt, 1, 1000) == 24_576
    assert hybrid_kv_cache_bytes(mistral, 1, 5001) == hybrid_kv_cache_bytes(mistral, 1, 5000)


@pytest.mark.parametrize(
    ("name", "active"), [("Qwen3-30B-A3B", 3.35e9), ("Qwen3-235B-A22B", 22.2e9), ("DeepSeek-V3", 37.6e9)]
)
def test_active_parameters_are_those_the_models_are_named_for(name, active):
    assert parameter_count(shipped_models()[name].shape).active == pytest.approx(active, rel=2e-3)


def test_gpt_oss_says_3_6b_active_without_its_input_embedding():
    counted = parameter_count(shipped_models()["gpt-oss-20b"].shape)

    assert counted.active_without_embedding == 3_608_307_264
    assert counted.active == 3_608_307_264 + 201_088 * 2880


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_file_gives_the_shipped_shape(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    shipped = shipped_models()[name].shape

    for path in (folder / "config.json", str(folder)):
        record = load_model(path)
        assert record.shape == shipped
        assert record.parameters_label == "computed"
        assert record.sources == (str(folder / "config.json"),)


@pytest.mark.parametrize(
    ("hidden", "ffn", "layers", "heads", "kv_heads", "dim", "total"),
    [
        (1152, 6912, 26, 4, 1, 256, 999_885_952),
        (2560, 10240, 34, 8, 4, 256, 3_880_099_328),
        (3840, 15360, 48, 16, 8, 256, 11_765_788_416),
        (5376, 21504, 62, 32, 16, 128, 27_009_002_240),
    ],
    ids=["1B", "4B", "12B", "27B"],
)
def test_gemma_3_text_models_are_counted_to_the_last_parameter(
    hidden, ffn, layers, heads, kv_heads, dim, total
):
    # Totals of the text presets of keras-hub, whose vocabulary is 262,144 without the 64 image tokens.
    config = {
        "model_type": "gemma3_text",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim,
        "vocab_size": 262_144,
        "sliding_window": 1024,
    }
    shape = shape_from_config(config, "gemma")

    assert parameter_count(shape).total == total
    assert shape.num_layers - shape.sliding_layers == {26: 4, 34: 5, 48: 8, 62: 10}[layers]
    assert shape.tied_embeddings


def test_a_multimodal_gemma_gives_its_text_part_with_the_class_defaults():
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    shape = shape_from_config({"model_type": "gemma3", "text_config": text}, "gemma")

    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (8, 4, 256)
    assert shape.vocabulary_size == 262_208


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 30}, 6),
        ({"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 30}, 0),
        ({"layer_types": ["sliding_attention"] * 4 + ["full_attention"] * 32, "sliding_window": 64}, 4),
    ],
)
def test_a_window_counts_only_where_it_is_switched_on(changes, layers):
    assert shape_from_config(QWEN3 | changes, "x").sliding_layers == layers


def test_head_dim_is_the_stated_one_and_hidden_over_heads_only_without_it():
    without = {name: value for name, value in CONFIGS["Llama-3.1-8B"].items() if name != "head_dim"}

    assert shape_from_config(without | {"head_dim": 64}, "x").head_dim == 64
    assert shape_from_config(without, "x").head_dim == 128
    assert (
        shape_from_config(
            {k: v for k, v in QWEN3.items() if k != "head_dim"} | {"hidden_size": 1024}, "x"
        ).head_dim
        == 128
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [("qwen3-8b", "Qwen3-8B"), ("Qwen/Qwen3-8B", "Qwen3-8B"), ("openai/GPT-OSS-20B", "gpt-oss-20b")],
)
def test_names_are_found_in_any_case_and_with_an_organisation(given, found):
    assert load_model(given).shape.name == found


def test_a_bare_name_is_the_shipped_model_and_a_path_is_the_file(tmp_path, monkeypatch):
    other = tmp_path / "Qwen3-8B"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(QWEN3 | {"num_hidden_layers": 2}))
    monkeypatch.chdir(tmp_path)

    assert load_model("Qwen3-8B").shape.num_layers == 36
    assert load_model("./Qwen3-8B/config.json").shape.num_layers == 2
    assert load_model(other).shape.num_layers == 2


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"model_type": "gpt2"}, "config.json: model_type: must be one of llama, "),
        ({"model_type": "qwen3moe"}, "(got 'qwen3moe'). Did you mean 'qwen3_moe'?"),
        ({}, "(got None). Its tensors are not known here."),
        ([1], "config.json: must be an object (got [1]). Give the model's config.json."),
        (
            {"model_type": "llama"},
            "config.json: num_attention_heads: is required (got None). Give the model's own config.json.",
        ),
        (
            CONFIGS["Llama-3.1-8B"] | {"mlp_bias": True},
            "config.json: mlp_bias: must be False (got True). MLP biases are not counted here.",
        ),
        (
            CONFIGS["Qwen3-30B-A3B"] | {"decoder_sparse_step": 2},
            "config.json: decoder_sparse_step: must be 1 (got 2). "
            "Layers that skip the experts are not counted here.",
        ),
        (
            CONFIGS["Qwen3-30B-A3B"] | {"mlp_only_layers": [3]},
            "config.json: mlp_only_layers: must be the first layers, in order (got [3]). "
            "Only leading ones are counted.",
        ),
        (
            QWEN3 | {"layer_types": ["linear_attention"] * 36},
            "config.json: layer_types: must name full_attention or sliding_attention for each layer "
            "(got ['linear_attention']). See its length.",
        ),
        (
            {k: v for k, v in CONFIGS["DeepSeek-V3"].items() if k != "q_lora_rank"},
            "config.json: q_lora_rank: is required (got None). Give the model's own config.json.",
        ),
        (
            QWEN3 | {"hidden_size": "4096"},
            "config.json: hidden_size: must be a whole number (got '4096'). Give the model's own ",
        ),
        (QWEN3 | {"num_key_value_heads": 5}, "num_kv_heads: must divide num_heads (got 5). num_heads is 32."),
    ],
)
def test_a_config_that_is_not_understood_is_refused_and_not_guessed(tmp_path, config, text):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        load_model(path)

    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ([1], "other.json: must be an object (got [1]). "),
        ({"model_type": "gpt2"}, "other.json: model_type: must be one of llama, "),
        ({"model_type": "gemma3"}, "other.json: text_config: must be an object (got None). "),
        (QWEN3 | {"attention_bias": "no"}, "other.json: attention_bias: must be "),
        (QWEN3 | {"hidden_size": 0}, "other.json: hidden_size: must be "),
        (QWEN3 | {"num_key_value_heads": 5}, "other.json: num_kv_heads: must divide num_heads (got 5)."),
    ],
)
def test_what_is_wrong_in_a_file_of_another_name_is_said_of_that_file(tmp_path, config, text):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        load_model(path)

    assert str(caught.value).startswith(text)


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    missing, broken = tmp_path / "none.json", tmp_path / "config.json"
    broken.write_text("{")

    with pytest.raises(ConfigError, match=r"^model: must be readable \(No such file or directory\)"):
        load_model(missing)
    with pytest.raises(ConfigError, match=r"^model: must be JSON \("):
        load_model(broken)


def test_an_unknown_name_gets_the_nearest_and_the_list():
    with pytest.raises(ConfigError) as caught:
        load_model("Qwen/Qwen3-9B")

    assert str(caught.value).startswith(
        "model: must be a known name or a path (got 'Qwen/Qwen3-9B'). Did you mean 'Qwen3-8B'? Known are "
    )
    assert str(caught.value).endswith("gpt-oss-20b; or give a path to a config.json.")
    with pytest.raises(ConfigError, match=r"\(got 'bert'\)\. Known are "):
        load_model("bert")


def test_rows_of_the_listing_carry_sources_and_the_kind_of_total():
    rows = {row["model"]: row for row in model_rows()}

    assert rows["DeepSeek-V3"]["parameters_label"] == "computed"
    assert rows["DeepSeek-V3"]["parameters_source"] is None
    assert rows["Qwen3-8B"]["parameters_source"].startswith("keras-team/keras-hub")
    assert all(row["sources"] for row in rows.values())
