"""A Hugging Face ``config.json`` read as a model shape.

Only what fixes tensors and KV cache is read, and only for architectures whose tensors are known here; another
one is refused rather than guessed, since a wrong bias or norm makes a total that looks right and is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ...kernels.memory.shapes import ExpertShape, LatentShape, ModelShape
from ..checks import Flag, WholeNumber, checked

# Default of use_sliding_window-like switches: these architectures apply their window to every layer.
_WINDOW_ON_ALL_LAYERS = ("mistral", "mixtral")
# What an architecture's configuration class fills in where a file leaves it out (nested ones often do).
_CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "gpt_oss": {"head_dim": 64, "attention_bias": True},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
}
_MISSING = object()
_GIVE_IT = "Give the model's own config.json."


# What is true or false in a file; everything else that is asked for is a whole number.
_FLAGS = ("attention_bias", "tie_word_embeddings", "use_sliding_window")


def _need(config: Mapping[str, Any], *names: str, default: Any = _MISSING) -> Any:
    """Take the first of several names that the config has with a value, checked: a number or a flag."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if name in _FLAGS:
            return checked(Flag, name, value, way_out="JSON's are true and false.")
        return checked(WholeNumber, name, value, low=0, high=2**52, way_out=_GIVE_IT)
    if default is _MISSING:
        raise ConfigError(names[0], "is required", None, _GIVE_IT)
    return default


def _texts(config: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    """Take a list of words or numbers, if the config has one."""
    value = config.get(name)
    if value is not None and not isinstance(value, list | tuple):
        raise ConfigError(name, "must be a list", value, _GIVE_IT)
    return value


def _refuse(config: Mapping[str, Any], name: str, allowed: tuple[Any, ...], why: str) -> None:
    value = config.get(name)
    if value is not None and not any(value == known and type(value) is type(known) for known in allowed):
        raise ConfigError(name, f"must be {allowed[0]!r}", value, why)


def _sliding(config: Mapping[str, Any], model_type: str, layers: int) -> dict[str, Any]:
    """Read the window and the number of layers that have it."""
    window = _need(config, "sliding_window", default=None)
    types = _texts(config, "layer_types")
    if types is not None:
        known = ("full_attention", "sliding_attention")
        unknown = [kind for place, kind in enumerate(types) if kind not in (*known, *types[:place])]
        if unknown or len(types) != layers:
            rule = "must name full_attention or sliding_attention for each layer"
            raise ConfigError("layer_types", rule, unknown or len(types), "See its length.")
        sliding = sum(kind == "sliding_attention" for kind in types)
    elif model_type in _WINDOW_ON_ALL_LAYERS:
        sliding = layers if window else 0
    elif model_type == "gemma3_text":
        sliding = layers - layers // max(1, _need(config, "sliding_window_pattern"))
    elif model_type == "gpt_oss":
        sliding = (layers + 1) // 2
    elif _need(config, "use_sliding_window", default=False):
        # Qwen: the window applies from layer max_window_layers on, and only when switched on.
        sliding = max(0, layers - _need(config, "max_window_layers", default=layers))
    else:
        sliding = 0
    return {"sliding_window": window, "sliding_layers": sliding} if sliding else {}


def _common(config: Mapping[str, Any], model_type: str, name: str) -> dict[str, Any]:
    heads = _need(config, "num_attention_heads")
    hidden = _need(config, "hidden_size")
    layers = _need(config, "num_hidden_layers")
    return {
        "name": name,
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": _need(config, "num_key_value_heads", default=heads),
        "head_dim": _need(config, "head_dim", default=hidden // max(1, heads)),
        "ffn_size": _need(config, "intermediate_size"),
        "vocabulary_size": _need(config, "vocab_size"),
        "tied_embeddings": _need(config, "tie_word_embeddings", default=False),
        "max_positions": _need(config, "max_position_embeddings", default=None),
        **_sliding(config, model_type, layers),
    }


def _llama(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    _refuse(config, "mlp_bias", (False,), "MLP biases are not counted here.")
    bias = _need(config, "attention_bias", default=False)
    shape = _common(config, model_type, name)
    return ModelShape(**shape, qkv_bias=bias, output_bias=bias, qk_norm=model_type == "qwen3")


def _qwen2(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    return ModelShape(**_common(config, model_type, name), qkv_bias=True)


def _mixtral(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    shape = _common(config, model_type, name)
    experts = ExpertShape(
        num_experts=_need(config, "num_local_experts"),
        experts_per_token=_need(config, "num_experts_per_tok"),
        ffn_size=shape["ffn_size"],
    )
    return ModelShape(**shape, experts=experts)


def _qwen3_moe(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    _refuse(config, "decoder_sparse_step", (1,), "Layers that skip the experts are not counted here.")
    plain = _texts(config, "mlp_only_layers") or []
    if list(plain) != list(range(len(plain))):
        rule = "must be the first layers, in order"
        raise ConfigError("mlp_only_layers", rule, plain, "Only leading ones are counted.")
    bias = _need(config, "attention_bias", default=False)
    experts = ExpertShape(
        num_experts=_need(config, "num_experts", "num_local_experts"),
        experts_per_token=_need(config, "num_experts_per_tok"),
        ffn_size=_need(config, "moe_intermediate_size"),
        dense_layers=len(plain),
    )
    shape = _common(config, model_type, name)
    return ModelShape(**shape, qkv_bias=bias, output_bias=bias, qk_norm=True, experts=experts)


def _deepseek_v3(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    _refuse(config, "attention_bias", (False,), "Biases of latent attention are not counted here.")
    _refuse(config, "moe_layer_freq", (1,), "Layers that skip the experts are not counted here.")
    latent = LatentShape(
        q_lora_rank=_need(config, "q_lora_rank"),
        kv_lora_rank=_need(config, "kv_lora_rank"),
        qk_nope_head_dim=_need(config, "qk_nope_head_dim"),
        qk_rope_head_dim=_need(config, "qk_rope_head_dim"),
        v_head_dim=_need(config, "v_head_dim"),
    )
    experts = ExpertShape(
        num_experts=_need(config, "n_routed_experts"),
        experts_per_token=_need(config, "num_experts_per_tok"),
        ffn_size=_need(config, "moe_intermediate_size"),
        shared_experts=_need(config, "n_shared_experts", default=0),
        dense_layers=_need(config, "first_k_dense_replace", default=0),
        router_bias=True,
    )
    shape = _common(config, model_type, name)
    shape["head_dim"] = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    return ModelShape(**shape, latent=latent, experts=experts)


def _gpt_oss(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    shape = _common(config, model_type, name)
    bias = _need(config, "attention_bias")
    experts = ExpertShape(
        num_experts=_need(config, "num_local_experts", "num_experts"),
        experts_per_token=_need(config, "num_experts_per_tok", "experts_per_token"),
        ffn_size=shape["ffn_size"],
        router_bias=True,
        expert_bias=True,
    )
    return ModelShape(**shape, qkv_bias=bias, output_bias=bias, attention_sinks=True, experts=experts)


def _gemma3(config: Mapping[str, Any], model_type: str, name: str) -> ModelShape:
    _refuse(config, "attention_bias", (False,), "Attention biases of Gemma are not counted here.")
    return ModelShape(**_common(config, model_type, name), qk_norm=True, norms_per_layer=4)


ARCHITECTURES: dict[str, Callable[[Mapping[str, Any], str, str], ModelShape]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _qwen2,
    "qwen3": _llama,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
    "gemma3_text": _gemma3,
}


def shape_from_config(config: Mapping[str, Any], name: str, file: str = "config.json") -> ModelShape:
    """Read a ``config.json`` as a model shape.

    Parameters
    ----------
    config : mapping
        The parsed file.
    name : str
        What to call the model.
    file : str
        What the file is called, for messages.

    Returns
    -------
    ModelShape
        The text decoder; of a multimodal Gemma 3, its text part.

    Raises
    ------
    ConfigError
        An architecture that is not known here, a field that is missing, a variant that is not counted.

    Examples
    --------
    >>> config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...           "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
    >>> from lagsweep.kernels.memory.parameters import parameter_count
    >>> parameter_count(shape_from_config(config, "mine")).total
    8030261248
    """
    if not isinstance(config, Mapping):
        raise ConfigError(file, "must be an object", config, "Give the model's config.json.")
    try:
        return _shape(config, name)
    except ConfigError as error:
        raise error.within(f"{file}: ") from None


def _shape(config: Mapping[str, Any], name: str) -> ModelShape:
    """Read a shape; errors name the field alone."""
    model_type = config.get("model_type")
    if model_type == "gemma3":
        text = config.get("text_config")
        if not isinstance(text, Mapping):
            raise ConfigError("text_config", "must be an object", text, _GIVE_IT)
        return _shape({**text, "model_type": "gemma3_text"}, name)
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        hint = nearest(str(model_type), ARCHITECTURES) or "Its tensors are not known here."
        rule = f"must be one of {', '.join(ARCHITECTURES)}"
        raise ConfigError("model_type", rule, model_type, hint)
    filled = {**_CLASS_DEFAULTS.get(model_type, {}), **config}
    return ARCHITECTURES[model_type](filled, model_type, name)
