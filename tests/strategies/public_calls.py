"""A valid call of every public function, and the odd values that are put in its arguments' places.

The functions are found by listing them: ``lagsweep.__all__``, ``lagsweep.kernels`` with its topics, and the
methods of their classes. One that has no entry in :func:`valid_calls` fails a test, so that a new function is
tried with every odd value on the day it is written.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import random
import shutil
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

import lagsweep as ls
from lagsweep import kernels as k
from lagsweep.testing import good_record

_OURS = "lagsweep"


def _is_record(value: Any) -> bool:
    """Tell whether a class only holds what it is given, as the results of functions do."""
    if not inspect.isclass(value):
        return False
    checks = hasattr(value, "__post_init__")
    return issubclass(value, tuple | Warning) or (dataclasses.is_dataclass(value) and not checks)


def public_callables() -> dict[str, Callable[..., Any]]:
    """List every public function, class and method by its name."""
    topics = [getattr(k, name) for name in k.__all__ if inspect.ismodule(getattr(k, name))]
    found: dict[str, Callable[..., Any]] = {}
    for module in (ls, k, *topics):
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value):
                continue
            if not _is_record(value) or name in valid_calls():
                found[name] = value
            if inspect.isclass(value):
                found |= _methods(name, value)
    return dict(sorted(found.items()))


def _methods(name: str, owner: type) -> dict[str, Callable[..., Any]]:
    methods = {}
    for attribute in dir(owner):
        raw = inspect.getattr_static(owner, attribute)
        function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        if attribute.startswith("_") or not inspect.isfunction(function):
            continue
        if function.__module__.startswith(_OURS):
            methods[f"{name}.{attribute}"] = getattr(owner, attribute)
    return methods


class Hostile:
    """An object of another program: whatever is asked of it raises."""

    def _refuse(self, *_: object) -> Any:
        raise RuntimeError("asked of a hostile object")

    __repr__ = __str__ = __float__ = __int__ = __index__ = __array__ = __len__ = __iter__ = _refuse


def deep_list(depth: int = 100_000) -> list[Any]:
    """Nest a list deeper than Python recurses."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


@cache
def _odd() -> tuple[Any, ...]:
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    return (
        *(None, True, False, np.True_, ..., NotImplemented),
        *(0, 1, -1, 5, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, -(10**400)),
        *(0.5, 1.5, -0.0, 2.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324),
        *(np.float32(1.5), np.int64(3), np.uint8(200), np.uint64(2**64 - 1), np.longdouble("1e4000"), 1 + 2j),
        *(np.float64("nan"), Fraction(1, 3), Fraction(10**400, 3), Decimal("1.5"), Decimal("NaN")),
        *(Decimal("1e999999"), "", "x", "5", "nan", "a\0b", "\udc80", "x" * 5000, b"x", bytearray(b"x")),
        *([], [[]], [1, 2], [[1], [1]], [[1, 2], [3]], ["a"], [None], [True], [10**400], [float("nan")]),
        *([1, [2]], [1.0, "x"], [{}], [[1, 2], [3, 4]], (), (1, 2), (1, "x"), [1 + 1j], [Fraction(1, 3)]),
        *(np.array(3), np.array([1, 2]), np.array([]), np.zeros((0, 3)), np.ones((2, 3, 4)), np.array([[]])),
        *(np.array(["a"]), np.array([1 + 1j]), np.array([1, None]), np.array([2**64 - 1], dtype=np.uint64)),
        *(np.array([1, 2], dtype="m8[s]"), np.array(["2020"], dtype="M8[s]"), np.timedelta64(1, "s")),
        *(masked, np.ma.masked, np.zeros(2, dtype=[("a", "i8")]), np.float16([1, 2]), np.array([b"x"])),
        *(np.longdouble([1, 2]), np.broadcast_to(np.float64(1), (2, 0, 2)), np.full((1,) * 40, 1.0)),
        *({}, {"a": 1}, {1: 2}, {"a": [1]}, {"seconds": "x"}, OrderedDict(a=None), set(), frozenset([1])),
        *(range(3), slice(1), object(), lambda *_: None, Path("x"), date(2020, 1, 1)),
        *(Hostile(), [Hostile()], deep_list(), BytesIO(b"x"), np.random.default_rng(0), random.Random(0), np),
        *(ls.ConfigError("x"), ls.LengthLaw.fixed(3), memoryview(b"xy"), [[1.5, 2], [0.5, 1]]),
    )  # fmt: skip


class OneUse:
    """Makes an iterator when the call is made: one that was used up would be another value."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def odd_values() -> list[Any]:
    """Every odd value, in a fixed order."""
    return [*_odd(), OneUse(lambda: iter([1, 2])), OneUse(lambda: iter(()))]


def shown(value: Any) -> str:
    """Write an odd value for a report."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) < 80 else f"{type(value).__name__} {text[:60]}..."


@dataclasses.dataclass
class Call:
    """A valid call: its positional arguments (of functions that take any number), and those by name."""

    keywords: dict[str, Any] = dataclasses.field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    target: Callable[[], Any] | None = None

    def places(self) -> list[int | str]:
        """List the arguments that may be replaced."""
        return [*range(len(self.positional)), *self.keywords]

    def make(self, function: Callable[..., Any], replaced: Mapping[int | str, Any] = {}) -> Any:
        """Call the function with some arguments replaced; a method gets a fresh owner."""
        at = {
            place: value.make() if isinstance(value, OneUse) else value for place, value in replaced.items()
        }
        if self.target is not None:
            function = getattr(self.target(), function.__name__)
        positional = [at.get(place, _fresh(value)) for place, value in enumerate(self.positional)]
        keywords = {name: at.get(name, _fresh(value)) for name, value in self.keywords.items()}
        outcome = function(*positional, **keywords)
        if inspect.isgenerator(outcome):
            list(outcome)
        return outcome


def _fresh(value: Any) -> Any:
    if isinstance(value, Lazy):
        return value.make()
    return copy.deepcopy(value) if isinstance(value, list | dict | np.ndarray) else value


@dataclasses.dataclass
class Lazy:
    """An argument that is made when it is used: it is costly, or used up by the call."""

    make: Callable[[], Any]


ENGINE = ls.Engine(step_seconds=0.01, kv_cache_tokens=100)
BASE = ls.PipelineConfig(duration_seconds=20, rollout_workers=2, batch_tokens=300, max_queue_tokens=1000)


@cache
def _dataset() -> Any:
    return ls.run_sweep(BASE, {"max_lag": [0, 1], "queue_cap": [1000, 2000]}, 2)


@cache
def _dataset_of_options() -> Any:
    return ls.run_sweep(BASE, {"publication": ["background", "pause"]}, 2)


@cache
def _compared() -> Any:
    return ls.compare_systems(_systems(), 2)


@cache
def _systems() -> Any:
    workload = {"duration_seconds": 60.0, "warmup_seconds": 0.0, "rollout_workers": 4}
    return ls.compared_systems([("areal", {}), ("tinker", {})], workload)


@cache
def _result() -> Any:
    return ls.simulate_pipeline(BASE, rollouts=True)


@cache
def _general_result() -> Any:
    return ls.simulate_pipeline(BASE.replace(publication="pause"), rollouts=True)


@cache
def _store() -> str:
    ls.run_sweep(BASE, {"max_lag": [0, 1]}, 2, store="a-store", tables=["batches"])
    return str(Path("a-store").resolve())


def _parts() -> str:
    shutil.rmtree("some-tasks", ignore_errors=True)  # joined by the call before
    ls.run_sweep(BASE, {"max_lag": [0, 1]}, 2, store="some-tasks", task=(1, 1))
    return str(Path("some-tasks").resolve())


def len_of_batches(run: Any) -> int:
    """Count the updates of a run, for `map_runs`."""
    return len(run.batches)


def _run() -> Any:
    return ls.start_run(BASE)


def _finished_run() -> Any:
    run = ls.start_run(BASE)
    ls.advance_run(run)
    return run


def _manifest() -> Any:
    return ls.make_checkpoint(
        optimizer_step=3,
        current_version=3,
        published_version=3,
        dataset_cursor=0,
        rng=np.random.default_rng(0),
    )


def _saved() -> str:
    path = Path("checkpoints") / "step-3.json"
    path.parent.mkdir(exist_ok=True)
    ls.save_checkpoint(_manifest(), path)
    return str(path)


@cache
def _requests() -> Any:
    return ls.read_requests(_file("requests.csv", _REQUESTS))


_QUESTION = {
    "model": "Qwen3-0.6B",
    "accelerator": "H100",
    "gpus": 8,
    "prompts": 2,
    "group_size": 2,
    "law": ls.LengthLaw.fixed(50),
    "prompt_tokens": 10,
    "max_tokens": 100,
}


@cache
def _plan() -> Any:
    few = {"rollout_gpus": [4], "tensor_parallel": [2], "systems": ["synchronous"], "caps": [8]}
    return ls.plan(**_QUESTION, **few, seeds=1)


@cache
def _fit() -> Any:
    return ls.fit_engine(_requests(), model="Llama-3.1-8B", accelerator="H100", kv_cache_tokens="none")


def _samples() -> Any:
    return ls.read_engine_log(_file("samples.csv", _SAMPLES))


@cache
def _steps() -> Any:
    """A log so short that trying every odd value on it takes little time."""
    config = ls.preset_config(
        "openrlhf", batch_groups=4, group_size=2, rollout_workers=8, stop_after_updates=28
    )
    return ls.step_log_of(ls.simulate_pipeline(config.replace(duration_seconds=5e4), rollouts=True))


@cache
def _calibration() -> Any:
    return ls.calibrate(_steps(), preset="openrlhf", held=0.2, group_size=2, rollout_workers=8)


@cache
def _what_if() -> Any:
    return ls.what_if(_calibration(), {"rollout_workers": [4, 8]}, seeds=1)


def _file(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


_REQUESTS = "arrival_s,prompt_tokens,output_tokens,e2e_s\n" + "\n".join(
    f"{place / 10},5,4,{0.05 + place / 1000}" for place in range(24)
)
_STAGES = "running,prompt_tokens,output_tokens,seconds_per_token\n2,50,9,0.01\n8,50,9,0.011\n32,50,9,0.015\n"
_STEPS = "step,timing_s/gen,timing_s/step\n1,5,9\n2,4,8\n"
_SAMPLES = "t_s,#running-req,#token,gen throughput (token/s)\n" + "\n".join(
    f"{place},{running},{100 * running + 40 * place},{running / (0.01 + running / 1e4 + place / 1e5):.3f}"
    for place, running in enumerate(6 * [4] + 6 * [8] + 6 * [16])
)
_SPEC = "name = 'x'\nseeds = 1\n[base]\nduration_seconds = 20\n[axes]\nmax_lag = [0, 1]\n"
RECORD = good_record()
SHAPE = k.ModelShape(
    name="small",
    num_layers=4,
    hidden_size=8,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    ffn_size=16,
    vocabulary_size=32,
)
_LAYER = {"kind": "full", "copies": 2, "num_kv_heads": 2, "head_dim": 4}
_CDF = [0.25, 0.5, 1.0]
_TOKENS = [[5, 6, 2], [5, 2, 0]]
_LAGS = [[0, 1, 2], [3, 0, 1]]
_RATIO = [[0.0, 0.1], [0.2, -0.3]]
_ON = [[1, 1], [1, 0]]
_LIMITS = {
    "schema": "lagsweep",
    "eos_token_ids": [2],
    "vocabulary_size": 100,
    "max_context_tokens": 100,
    "published_version": 18,
    "trainer_version": 18,
    "max_policy_lag": 2,
    "encode": lambda text: [31, 15, 2],
}
_LINK = {"payload_bytes": 1e9, "gigabytes_per_second": 25.0}
_TRANSFER = {**_LINK, "setup_seconds": 0.1, "efficiency": 0.8, "calls": 4, "seconds_per_call": 0.01}
_CHAIN = {**_LINK, "receivers": 4, "seconds_per_step": 0.001}
_INTERVAL = {
    "interval_seconds": 3600.0,
    "checkpoint_seconds": 180.0,
    "mtbf_seconds": 36000.0,
    "restart_seconds": 300.0,
}
_WEIGHTS = {"axis": 1, "mask": _ON, "group_offsets": None}
_KV = {
    "num_sequences": 2,
    "tokens_per_sequence": 100,
    "num_layers": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "element_bytes": 2,
}
_MASK = {"tokens": _TOKENS, "eos_token_ids": [2], "lengths": [3, 2], "threads": 1}


def _kernel_calls() -> dict[str, Call]:
    kv = {key: value for key, value in _KV.items() if key not in ("num_sequences", "tokens_per_sequence")}
    keywords: dict[str, dict[str, Any]] = {
        # contract
        "RolloutContract": _LIMITS,
        "batch_contract_errors": {"records": [RECORD], "group_size": 1, "warnings": True, **_LIMITS},
        "require_contract": {"record": RECORD, **_LIMITS},
        "rollout_contract_errors": {"record": RECORD, "warnings": True, **_LIMITS},
        # draws
        "make_length_table": {"minimum": 1, "cdf": _CDF},
        "normals": {"words": k.philox_words(1)},
        "philox_words": {"seed": 1, "first": 2, "count": 3, "stream": 0},
        "sample_lengths": {"uniforms": [0.1, 0.9], "table": k.make_length_table(1, _CDF)},
        "sample_rows": {"uniforms": [0.1, 0.9], "rows": 3},
        "uniforms": {"words": k.philox_words(1)},
        # masks
        "completion_ended": _MASK,
        "completion_lengths": _MASK,
        "completion_token_mask": _MASK,
        "truncation_flags": {**_MASK, "pad_token_id": 0},
        "completion_statistics": {
            "generated_lengths": [3, 2],
            "truncated": [0, 1],
            "exclude_truncated": True,
            "effective_mask": [[1, 1, 1], [0, 0, 0]],
        },
        "mask_from_lengths": {"lengths": [1, 2], "width": 3},
        "masked_mean": {"values": [[1.0, 2.0], [3.0, 4.0]], "mask": _ON, "aggregate": "sequence"},
        "shifted_mask": {"mask": [[0, 1], [0, 0]]},
        "trained_tokens": {"mask": _ON},
        # memory
        "ExpertShape": {
            "num_experts": 4,
            "experts_per_token": 2,
            "ffn_size": 8,
            "shared_experts": 1,
            "dense_layers": 1,
            "router_bias": True,
            "expert_bias": False,
        },
        "KVLayer": {
            **_LAYER,
            "value_head_dim": 4,
            "window_tokens": None,
            "kv_lora_rank": 0,
            "rope_head_dim": 0,
            "state_bytes": 0,
        },
        "LatentShape": {
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 4,
            "qk_rope_head_dim": 4,
            "v_head_dim": 4,
        },
        "ModelShape": {field.name: getattr(SHAPE, field.name) for field in dataclasses.fields(SHAPE)},
        "activation_bytes": {
            "num_sequences": 2,
            "tokens_per_sequence": 16,
            "num_layers": 2,
            "hidden_size": 8,
            "ffn_size": 16,
            "num_heads": 4,
            "query_size": 8,
            "key_size": 4,
            "value_size": 4,
            "output_size": 8,
            "extra_elements": 0,
            "experts_per_token": 1,
            "recompute": "selective",
            "gated": True,
            "dropout": False,
            "tensor_parallel": 2,
            "sequence_parallel": True,
            "fused_attention": True,
            "element_bytes": 2,
        },
        "adafactor_state_bytes": {"tensors": [((4, 8), 2)], "element_bytes": 4, "momentum": True},
        "block_scaled_bytes": {
            "bits": 4,
            "block_elements": 64,
            "scale_bits": 8,
            "second_block_elements": 256,
        },
        "blockwise_8bit_state_bytes": {
            "tensors": [((64, 128), 2)],
            "block_elements": 256,
            "states": 2,
            "smallest_quantized_elements": 4096,
        },
        "gathered_layer_bytes": {"largest_layer_parameters": 100, "parameter_bytes": 2, "gradient_bytes": 2},
        "group_cache_tokens": {
            "prompt_tokens": 10,
            "response_tokens": [5, 6],
            "group_size": None,
            "block_tokens": 16,
        },
        "human_bytes": {"number": 2**30, "decimal": False},
        "hybrid_kv_cache_bytes": {
            "layers": [k.KVLayer(**_LAYER), k.KVLayer.sliding(2, 4, 8)],
            "num_sequences": 2,
            "tokens_per_sequence": 16,
            "element_bytes": 2,
            "window_policy": "payload",
            "block_tokens": 1,
            "max_batched_tokens": 64,
            "scale_bytes_per_token_head": 0,
            "latent_layout": "plain",
            "tensor_parallel": 1,
        },
        "ideal_sharded_memory": {
            "state": k.model_state_bytes(1000),
            "world_size": 4,
            "zero_stage": 2,
            "shard_group_size": 2,
            "sharded": None,
            "whole_elements": True,
        },
        "kv_cache_bytes": {
            **_KV,
            "value_head_dim": 8,
            "scale_bytes_per_token_head": 0,
            "block_tokens": 16,
            "tensor_parallel": 1,
        },
        "latent_kv_cache_bytes": {
            "num_sequences": 2,
            "tokens_per_sequence": 100,
            "num_layers": 4,
            "kv_lora_rank": 512,
            "rope_head_dim": 64,
            "element_bytes": 2,
            "layout": "plain",
            "block_tokens": 16,
        },
        "logits_peak_bytes": {
            "num_tokens": 100,
            "vocabulary_size": 1000,
            "copy_bytes": (2, 4),
            "chunk_tokens": 10,
            "tensor_parallel": 1,
        },
        "lora_parameters": {"shape": SHAPE, "rank": 8, "targets": "all-linear"},
        "max_sequences": {
            "budget_bytes": 1e9,
            "bytes_per_token": 1000,
            "tokens_per_sequence": 100,
            "block_tokens": 16,
            "shared_prefix_tokens": 8,
            "group_size": 2,
        },
        "model_kv_layers": {"shape": SHAPE},
        "model_state_bytes": {
            "parameters": 1000,
            "trainable_parameters": 100,
            "recipe": "adam_mixed",
            "parameter_bytes": 2,
            "gradient_bytes": 2,
            "optimizer_state_bytes": 8,
            "master_parameter_bytes": 4,
            "frozen_parameter_bytes": 1,
            "optimizer_extra_bytes": 8,
        },
        "paged_kv_cache": {
            "token_lengths": [10, 20],
            **kv,
            "block_tokens": 16,
            "scale_bytes_per_token_head": 0,
            "tensor_parallel": 1,
        },
        "parameter_count": {"shape": SHAPE},
        "parameter_tensors": {"shape": SHAPE},
        "parameters_on_rank": {
            "shape": SHAPE,
            "tensor_parallel": 2,
            "pipeline_parallel": 2,
            "expert_parallel": 1,
        },
        "parse_bytes": {"text": "80GB", "field": "size"},
        "peak_memory": {"phases": {"train": {"weights": 10, "state": 5}}, "device_bytes": 100},
        "sliding_window_tokens": {
            "tokens_per_sequence": 100,
            "window_tokens": 16,
            "window_policy": "payload",
            "block_tokens": 16,
            "max_batched_tokens": 64,
        },
        "stage_capacity": {
            "layers_per_stage": [4, 4],
            "available_bytes": [10**6, 10**6],
            "num_kv_heads": 2,
            "head_dim": 8,
            "element_bytes": 2,
            "wanted_tokens": 100,
            "block_tokens": 1,
            "scale_bytes_per_token_head": 0,
            "tensor_parallel": 1,
        },
        "tensor_shapes": {"shape": SHAPE},
        # overlap
        "expected_maximum": {"minimum": 1, "cdf": _CDF, "draws": [1, 2]},
        "expected_maximum_exponential": {"draws": 2, "mean": 10.0},
        "expected_maximum_lognormal": {"draws": 2, "sigma": 0.5, "mu": 0.0},
        "expected_maximum_normal": {"draws": 2, "mean": 0.0, "deviation": 1.0},
        "expected_maximum_uniform": {"draws": 2, "low": 0.0, "high": 1.0},
        "group_utilization": {
            "minimum": 1,
            "cdf": _CDF,
            "workers": 2,
            "seconds_per_token": 1.0,
            "overhead_seconds": 0.5,
        },
        "pipeline_makespan": {
            "rollout_seconds": [3.0, 4.0],
            "train_seconds": [1.0, 2.0],
            "buffer": 1,
        },
        "pipeline_report": {"rollout_seconds": 60.0, "train_seconds": 20.0, "batches": 10},
        "straggler_report": {"durations": [3, 4, 5]},
        # recovery
        "checkpoint_availability": _INTERVAL,
        "checkpoint_cadence": _INTERVAL,
        "select_best": {
            "values": np.arange(60.0).reshape(2, 30),
            "indifference": 0.5,
            "confidence": 0.9,
            "first_values": 5,
        },
        "expected_overhead_fraction": _INTERVAL,
        "expected_run_seconds": {"work_seconds": 36000.0, **_INTERVAL},
        "mtbf_estimate": {"run_seconds": 1e6, "failures": 3, "failures_per_second": None, "confidence": 0.9},
        "multilevel_checkpoints": {"checkpoint_seconds": [1.0, 10.0], "mtbf_seconds": [1e3, 1e4]},
        "optimal_checkpoint_interval": {
            "checkpoint_seconds": 180.0,
            "mtbf_seconds": 36000.0,
            "method": "exact",
            "restart_seconds": 0.0,
        },
        "scale_mtbf_seconds": {"mtbf_seconds": 1e4, "measured_devices": 8, "devices": 64},
        # staleness
        "drift_from_clip_fraction": {"fraction": [0.1, 0.2], "clip_range": 0.2, "lag": [1.0, 2.0]},
        "drift_from_ess": {"normalized_ess": [0.97, 0.8], "lag": [1.0, 2.0], "ess_at_lag_0": 0.99},
        "drift_from_kl": {"kl": [0.01, 0.05], "lag": [1.0, 2.0]},
        "sequence_drift": {"token_drift": 0.2, "tokens": [10, 100], "correlation": 0.01},
        "effective_sample_size": {
            "weights": [[1.0, 2.0], [3.0, 4.0]],
            "log_weights": None,
            **_WEIGHTS,
            "normalized": True,
            "invalid": "raise",
        },
        "ess_report": {"weights": None, "log_weights": _RATIO, **_WEIGHTS},
        "expected_normalized_ess": {"lag": _LAGS, "drift_per_version": 0.2, "axis": 1},
        "lag_counts": {
            "lag": _LAGS,
            "edges": [0, 1, 2],
            "axis": 1,
            "mask": [[1, 1, 1], [1, 0, 1]],
            "group_offsets": None,
        },
        "lag_quantiles": {
            "lag": [0, 1, 2, 3],
            "quantiles": [0.5, 0.9],
            "axis": None,
            "mask": [1, 1, 0, 1],
            "group_offsets": [0, 2, 4],
        },
        "lag_quantiles_from_counts": {"counts": _LAGS, "quantiles": 0.5, "edges": [0, 1, 2]},
        "lag_summary": {"trainer_version": 5, "behaviour_version": [3, 4], "mask": [1, 1]},
        "off_policy_report": {
            "trainer_logprobs": [[-0.5, -0.6], [-0.1, -0.2]],
            "behavior_logprobs": [[-0.4, -0.6], [-0.1, -0.3]],
            "mask": _ON,
            "group_offsets": None,
            "high": 2.0,
            "low": 0.5,
        },
        "offsets_from_lengths": {"lengths": [1, 2]},
        "pareto_khat": {"log_weights": np.linspace(0, 1, 100), "relative_efficiency": 1.0},
        "policy_lag": {"trainer_version": 5, "behaviour_version": [3, 4]},
        "rollout_ess": {"log_ratio": _RATIO, "level": "token", "mask": _ON, "group_offsets": None},
        "sequence_importance_weights": {
            "log_ratio": _RATIO,
            "level": "sequence",
            "mode": "mask",
            "lower": 0.5,
            "upper": 2.0,
            "mask": _ON,
            "group_offsets": None,
        },
        "sequence_lag": {"trainer_version": [6, 7], "token_versions": [[3, 4], [5, 6]], "mask": _ON},
        "sequence_log_weights": {
            "log_ratio": [0.0, 0.1, 0.2, 0.3],
            "level": "sequence_geometric",
            "mask": [1, 1, 1, 0],
            "group_offsets": [0, 2, 4],
        },
        "token_importance_weights": {
            "log_ratio": _RATIO,
            "mode": "mask",
            "lower": 0.5,
            "upper": 2.0,
            "keep": _ON,
        },
        "within_lag": {"trainer_version": 5, "behaviour_version": [3, 4], "max_policy_lag": 1},
        # sync
        "best_chain_chunks": _CHAIN,
        "bf16_update_visible": {"weight": 1.0, "update": 0.01},
        "binomial_tree_seconds": _CHAIN,
        "bucket_count": {"payload_bytes": 1e9, "bucket_bytes": 2**20},
        "delta_payload_bytes": {
            "parameters": 1e9,
            "changed_fraction": 0.01,
            "value_bytes": 2,
            "index_bytes": 4,
            "encoding": "index",
        },
        "fan_out_seconds": _CHAIN,
        "gigabits_to_gigabytes_per_second": {"gigabits_per_second": 400},
        "node_fan_out_seconds": {
            "payload_bytes": 1e9,
            "links_per_node": 4,
            "link_gigabytes_per_second": 25.0,
            "inner_gigabytes_per_second": 300.0,
            "staged": True,
        },
        "pipelined_chain_seconds": {**_CHAIN, "chunks": 4},
        "point_to_point_seconds": {
            "bytes_by_pair": [[1e9, 2e9], [3e9, 4e9]],
            "sender_gigabytes_per_second": 25.0,
            "receiver_gigabytes_per_second": 25.0,
        },
        "publication_report": {
            "transfer_seconds": 8.0,
            "prepare_seconds": 1.0,
            "drain_seconds": 1.0,
            "install_seconds": 1.0,
            "background_fraction": 0.5,
            "period_seconds": 20.0,
        },
        "ring_all_reduce_seconds": {**_LINK, "ranks": 8},
        "sharded_point_to_point_seconds": {
            "payload_bytes": 1e9,
            "senders": 4,
            "receivers": 8,
            "sender_gigabytes_per_second": 25.0,
            "receiver_gigabytes_per_second": 25.0,
            "copies": 1,
        },
        "synchronization_schedule": {
            "sync_every": 4,
            "updates": 10,
            "publish_last": True,
            "pause_seconds": 1.0,
        },
        "synchronization_transfer_time": _TRANSFER,
        "transfer_report": _TRANSFER,
        # admission
        "staleness_budget": {
            "updates_per_sync": 4,
            "batches_per_update": 4,
            "batch_size": 32,
            "staleness_threshold": 0.5,
        },
        "staleness_capacity": {
            "max_staleness": 4,
            "current_version": 10,
            "consumer_batch_size": 8,
            "accepted": 100,
            "running": 10,
            "concurrency_limit": 64,
        },
        # methods of the kernels' classes
        "KVLayer.chunked": {"num_kv_heads": 2, "head_dim": 4, "chunk_tokens": 8},
        "KVLayer.constant": {"state_bytes": 100},
        "KVLayer.full": {"num_kv_heads": 2, "head_dim": 4, "value_head_dim": 4},
        "KVLayer.latent": {"kv_lora_rank": 512, "rope_head_dim": 64},
        "KVLayer.sliding": {"num_kv_heads": 2, "head_dim": 4, "window_tokens": 8},
    }
    calls = {name: Call(dict(values)) for name, values in keywords.items()}
    contract = k.RolloutContract
    finding = k.contract.ContractFinding
    calls |= {
        "combined_mask": Call({"keep": [1, 0]}, ([[1, 1], [1, 1]], [[1, 0], [1, 1]])),
        "ContractFinding": Call(
            {"parts": ls.Finding("a", "b"), "code": "c", "severity": "error", "occurrences": 1}
        ),
        "ContractFinding.as_dict": Call(target=lambda: finding(ls.Finding("a", "b"), "code", "error")),
        "ContractFinding.within": Call(
            {"place": "x."}, target=lambda: finding(ls.Finding("a", "b"), "c", "error")
        ),
        "OffPolicyReport.alarms": Call(target=lambda: k.off_policy_report([-0.5], [-0.4])),
        "RolloutContract.check": Call({"record": RECORD}, target=contract),
        "RolloutContract.errors": Call({"record": RECORD, "warnings": True}, target=contract),
        "SynchronizationSchedule.lags": Call(target=lambda: k.synchronization_schedule(4, 10)),
    }
    return calls


def _measured_records() -> str:
    record = {**RECORD, "trainer_logprobs": [RECORD["behavior_logprobs"]]}
    return _file("measured.jsonl", json.dumps(record) + "\n")


def _law_calls() -> dict[str, Call]:
    law = "LengthLaw."
    seconds = "SecondsLaw."
    made = ls.LengthLaw.fixed(30)
    ticking = ls.SecondsLaw.fixed(2.0)
    drifting = ls.DriftLaw.from_log_ratios([0, 1], [[0.0], [0.1, -0.1]], level="token")
    csv = Lazy(lambda: _file("a.csv", "tokens,seconds,group\n3,1.0,a\n4,2.0,a\n5,1.5,b\n6,1.0,b\n"))
    spec = made.to_dict()
    calls = {
        "LengthLaw": {
            "minimum": 1,
            "cdf": np.array([0.5, 1.0]),
            "name": "x",
            "spec": spec,
            "cut_at_maximum": False,
            "source": None,
            "rows": None,
            "parts": (),
            "segments": (),
            "embedded": None,
        },
        "DriftLaw": {
            "level": "token",
            "lags": [0, 1],
            "log_ratios": [[0.0], [0.1, -0.1]],
            "name": "x",
            "spec": drifting.to_dict(),
            "beyond": "last",
            "source": None,
            "embedded": None,
        },
        "DriftLaw.from_dict": {"mapping": drifting.to_dict(), "folder": None},
        "DriftLaw.from_log_ratios": {
            "lags": [0, 2],
            "log_ratios": [[0.0], [0.1, -0.1]],
            "level": "sequence",
            "beyond": "last",
            "name": "x",
        },
        "DriftLaw.from_records": {"path": Lazy(_measured_records), "level": "token", "beyond": "last"},
        "SecondsLaw": {
            "values_seconds": np.array([1.0, 2.0]),
            "cdf": np.array([0.5, 1.0]),
            "name": "x",
            "spec": ticking.to_dict(),
            "source": None,
            "embedded": None,
        },
        law + "empirical": {"lengths": [3, 4]},
        law + "fixed": {"n": 3},
        law + "from_counts": {"tokens": [3, 4], "counts": [1, 2]},
        law + "from_dict": {"mapping": spec, "folder": None},
        law + "from_file": {"path": csv, "column": "tokens"},
        law + "from_scipy": {"name": "gamma", "minimum": 1, "maximum": 100, "a": 2.0, "scale": 10.0},
        law + "from_table": {"minimum": 1, "cdf": _CDF, "cut_at_maximum": True},
        law + "geometric": {"mean": 30.0, "maximum": 100},
        law + "grouped": {"tokens": [3, 4, 5, 6], "groups": ["a", "a", "b", "b"]},
        law + "grouped_from_file": {"path": csv, "column": "tokens", "group_column": "group"},
        law + "lognormal": {"median": 300, "sigma": 0.6, "minimum": 16, "maximum": 2048},
        law + "schedule": {"segments": [(0, made), (4, ls.LengthLaw.fixed(40))]},
        law + "mixture": {"parts": [(0.5, made), (0.5, ls.LengthLaw.fixed(40))]},
        law + "paired": {"tokens": [3, 4], "seconds": [1.0, 2.0]},
        law + "paired_from_file": {"path": csv, "tokens_column": "tokens", "seconds_column": "seconds"},
        law + "shipped": {"name": "aime-rl-1000"},
        law + "uniform": {"minimum": 3, "maximum": 9},
        seconds + "empirical": {"seconds": [1.0, 2.0]},
        seconds + "exponential": {"mean": 2.0},
        seconds + "fixed": {"seconds": 2.0},
        seconds + "from_dict": {"mapping": ticking.to_dict(), "folder": None},
        seconds + "from_file": {"path": csv, "column": "seconds"},
        seconds + "from_scipy": {"name": "gamma", "a": 2.0, "scale": 10.0},
        seconds + "lognormal": {"median": 2.0, "sigma": 0.5, "maximum": 100.0},
        seconds + "uniform": {"minimum": 1.0, "maximum": 2.0},
    }
    owned = {
        law + "quantile": {"q": [0.5]},
        law + "sample": {"count": 3, "seed": 0, "first": 0},
        law + "to_dict": {"embed": True},
        law + "within_group_correlation": {},
    }
    ticked = {seconds + "quantile_seconds": {"uniforms": [0.5]}, seconds + "to_dict": {"embed": True}}
    drifted = {"DriftLaw.normalized_ess": {"lag": 1}, "DriftLaw.to_dict": {"embed": True}}
    grouped = ls.LengthLaw.grouped([3, 4, 5, 6], ["a", "a", "b", "b"])
    return (
        {name: Call(values) for name, values in calls.items()}
        | {name: Call(values, target=lambda: grouped) for name, values in owned.items()}
        | {name: Call(values, target=lambda: ticking) for name, values in ticked.items()}
        | {name: Call(values, target=lambda: drifting) for name, values in drifted.items()}
    )


def _checkpoint_calls() -> dict[str, Call]:
    manifest = Lazy(_manifest)
    counters = {"optimizer_step": 3, "current_version": 3, "published_version": 3, "dataset_cursor": 0}
    parts = {
        **counters,
        "rng": Lazy(lambda: {"a": np.random.default_rng(0)}),
        "python_random": False,
        "components": {"model": "x"},
        "counters": {"seen": 3},
        "queue": [1],
        "in_flight": [2],
        "state": {"x": 1},
        "files": {},
        "previous": None,
    }
    folder = Lazy(lambda: str(Path(_saved()).parent))
    cursor = {"samples": 10, "epochs": 2, "shuffle_seed": 1}

    def issued() -> Any:
        made = ls.PromptCursor(10)
        made.issue()
        return made

    opening = {"components": None, "allow_changed": ()}
    keywords = {
        "Manifest": {"payload": Lazy(lambda: _manifest().payload), "accepted_changes": ()},
        "checkpoint_as_dict": {"manifest": manifest},
        "latest_checkpoint": {"folder": folder, **opening},
        "load_checkpoint": {"path": Lazy(_saved), **opening},
        "make_checkpoint": parts,
        "recovery_drill": {"seed": 1, "before": 4, "after": 3, "settings": None},
        "restore_python_random": {"manifest": manifest},
        "restore_rng": {"manifest": manifest, "name": None},
        "restore_simulation": {"manifest": Lazy(lambda: ls.simulation_checkpoint(_run()))},
        "save_checkpoint": {"manifest": manifest, "path": Lazy(_saved)},
        "simulation_checkpoint": {"run": Lazy(_run), "previous": None},
        "simulation_components": {"config": BASE},
        "PromptCursor": cursor,
        "PromptCursor.from_state": {"state": ls.PromptCursor(10).as_state()},
    }
    owned = {
        "PromptCursor.as_state": {},
        "PromptCursor.issue": {},
        "PromptCursor.outstanding": {},
        "PromptCursor.prompt_id": {"number": 0},
        "PromptCursor.reissue": {"numbers": [0]},
        "PromptCursor.settle": {"number": 0, "outcome": "trained"},
    }
    return {name: Call(values) for name, values in keywords.items()} | {
        name: Call(values, target=issued) for name, values in owned.items()
    }


def _gate_calls() -> dict[str, Call]:
    rules = {"batch_groups": 1, "group_size": 1, "rollout_workers": 2, "max_running_groups": 2}

    def fresh() -> Any:
        return ls.RolloutGate(ls.preset_config("areal", max_head_offpolicyness=3, **rules))

    def with_a_batch() -> Any:
        gate = fresh()
        gate.finish(gate.start().rollout, 10)
        gate.start()
        return gate

    def popped() -> Any:
        gate = with_a_batch()
        gate.pop()
        return gate

    def trained() -> Any:
        gate = popped()
        gate.trained()
        return gate

    owned: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
        "start": (fresh, {"wait_seconds": 0.0}),
        "finish": (with_a_batch, {"rollout": 1, "tokens": 5, "filtered": False}),
        "pop": (with_a_batch, {"wait_seconds": 0.0}),
        "trained": (popped, {}),
        "publish": (trained, {"version": 1}),
        "wait_for_drain": (fresh, {"wait_seconds": 0.0}),
        "close": (fresh, {}),
        "counts": (popped, {}),
        "save": (popped, {}),
        "restore": (fresh, {"state": popped().save()}),
    }
    calls = {f"RolloutGate.{name}": Call(values, target=make) for name, (make, values) in owned.items()}
    return {"RolloutGate": Call({"config": BASE}), **calls}


@cache
def _sensitivity() -> ls.Sensitivity:
    return ls.sensitivity(BASE, {"max_lag": [1, 2]}, metrics="updates", points=4, seeds=1)


def _sweep_calls() -> dict[str, Call]:
    ds = Lazy(_dataset)
    result = Lazy(_result)
    general = Lazy(_general_result)
    axes = {"max_lag": [0, 1]}
    chosen = {"max_lag": 0, "queue_cap": 1000}
    names = {"throughput": "trained_tokens_per_second", "ess": "mean_expected_normalized_ess"}
    spec = Lazy(_spec)
    keywords: dict[str, dict[str, Any]] = {
        "Engine": {
            "count": 2,
            "step_seconds": 0.01,
            "step_seconds_per_rollout": 1e-5,
            "step_seconds_per_context_token": 1e-8,
            "prefill_seconds_per_token": 1e-6,
            "kv_cache_tokens": 100,
            "max_running": 4,
            "routing": "round_robin",
        },
        "PipelineConfig": BASE.to_dict(full=True),
        "PipelineConfig.from_dict": {"plain": BASE.to_dict()},
        "SweepSpec": {
            "base": BASE,
            "design": Lazy(lambda: _spec().design),
            "seeds": (0, 1),
            "constraints": (),
            "name": "x",
            "baseline": False,
            "masks": False,
            "tables": (),
            "until": None,
            "custom": None,
            "windows": None,
            "runner": None,
        },
        "advance_run": {"run": Lazy(_run), "until_seconds": 10.0},
        "all_presets": {},
        "compare_systems": {
            "systems": Lazy(_systems),
            "seeds": 1,
            "store": None,
            "executor": "threads",
            "threads": 1,
            "cancel": None,
            "progress": None,
        },
        "compared_systems": {
            "named": [("areal", {})],
            "workload": {"duration_seconds": 60.0, "warmup_seconds": 0.0},
            "baseline": True,
        },
        "comparison_rows": {"ds": Lazy(_compared), "against": None, "confidence": 0.95},
        "cells_frame": {"ds": ds, "metrics": ("updates", "mean_lag"), "confidence": 0.95},
        "config_at": {"dataset": ds, "cell": chosen, "seed": 0},
        "constraint_intervals": {"result": general},
        "explain_stall": {"config": BASE, "result": result},
        "finish_run": {"run": Lazy(_finished_run)},
        "frontier": {"ds": ds, **names, "scenarios": None, "confidence": 0.95},
        "length_bias": {"result": general},
        "length_quantiles": {"result": general, "quantiles": (0.5, 0.9)},
        "load_spec": {"path": Lazy(lambda: _file("s.toml", _SPEC)), "rollout_workers": 2},
        "open_sweep": {"path": Lazy(_store)},
        "token_version_ess": {"ds": Lazy(_dataset_of_options)},
        "paired_difference": {
            "ds": ds,
            "metric": "updates",
            "cell": {"max_lag": 1, "queue_cap": 1000},
            "reference": chosen,
            "confidence": 0.95,
        },
        "phase_bounds": {"config": BASE},
        "plot_frontier": {"ds": ds, **names, "scenarios": None, "confidence": 0.95},
        "plot_heatmap": {
            "ds": ds,
            "metric": "updates",
            "x": "max_lag",
            "y": "queue_cap",
            "facet": None,
            "at": None,
            "confidence": 0.95,
        },
        "plot_lag": {"ds": ds, "cells": [chosen], "confidence": 0.95},
        "plot_timeline": {"run": result},
        "preset_bound_kind": {"name": "areal", "fields": {}},
        "preset_config": {"name": "areal", "max_head_offpolicyness": 2, "rollout_workers": 4},
        "preset_lag_bound": {"name": "areal", "fields": {}},
        "load_accelerator": {"name_or_path": "H100"},
        "fit_engine": {
            "measured": Lazy(_requests),
            "model": "Llama-3.1-8B",
            "accelerator": "H100",
            "tensor_parallel": 1,
            "engines": 1,
            "expert_parallel": False,
            "engine_format": "bf16",
            "cache_format": "bf16",
            "kv_cache_tokens": "none",
            "max_running": 4,
            "routing": "least_loaded",
            "held_every": 2,
            "held_first": False,
            "priors": None,
        },
        "load_network": {"name_or_path": "one-node"},
        "plan": {
            **_QUESTION,
            "rollout_gpus": [4],
            "tensor_parallel": [2],
            "systems": ["synchronous"],
            "max_lags": [1],
            "caps": [8],
            "cadences": [1],
            "network": "one-node",
            "gpus_per_node": 8,
            "forward_passes": 1,
            "optimizer_steps": 1,
            "reference_model": False,
            "engine_format": "bf16",
            "cache_format": "bf16",
            "utilization": 0.9,
            "drift_per_version": 0.2,
            "drift": None,
            "price": 2.0,
            "inputs": {"weight_efficiency": 0.9},
            "measured": None,
            "trainer_mtbf_seconds": 36_000.0,
            "restart_seconds": None,
            "checkpoint_seconds": 60.0,
            "storage_bytes_per_second": None,
            "seeds": 1,
            "most_simulated": 2,
            "store": None,
            "executor": "threads",
            "threads": 1,
            "progress": None,
            "cancel": None,
        },
        "write_plan_page": {"path": "plan.html", "plan": Lazy(_plan), "line": ""},
        "calibrate": {
            "log": Lazy(_steps),
            "preset": "openrlhf",
            "lengths": None,
            "samples": None,
            "rollout_gpus": 4,
            "trainer_gpus": 4,
            "other_sizes": None,
            "held": 0.2,
            "fit_steps": None,
            "seed": 0,
            "framework": None,
            "columns": None,
            "units": None,
            "group_size": 2,
            "rollout_workers": 8,
        },
        "step_log_of": {"result": result},
        "what_if": {
            "calibration": Lazy(_calibration),
            "axes": {"rollout_workers": [4, 8]},
            "seeds": 1,
            "threads": 1,
        },
        "fit_engine_samples": {"log": Lazy(_samples)},
        "read_engine_log": {
            "path": Lazy(lambda: _file("samples.csv", _SAMPLES)),
            "engine": None,
            "kv_cache_tokens": 4000,
            "where": {},
            "columns": {},
        },
        "read_step_log": {
            "path_or_paths": Lazy(lambda: _file("steps.csv", _STEPS)),
            "framework": None,
            "columns": {},
            "units": {},
        },
        "read_requests": {
            "path": Lazy(lambda: _file("requests.csv", _REQUESTS)),
            "columns": {},
            "unit": "seconds",
            "where": {},
            "all_at_once": False,
        },
        "read_stages": {
            "path": Lazy(lambda: _file("stages.csv", _STAGES)),
            "columns": {},
            "unit": "seconds",
            "where": {},
        },
        "write_engine_page": {
            "path": "engine.html",
            "engine": ENGINE,
            "requests": Lazy(_requests),
            "result": Lazy(lambda: ls.simulate_engine(ENGINE, [5] * 24, [4] * 24)),
            "fit": None,
            "toml": "",
            "line": "",
        },
        "read_records": {"path": Lazy(lambda: _file("r.jsonl", "{}\n"))},
        "read_table": {"path": Lazy(_store), "table": "batches"},
        "recommend": {
            "ds": ds,
            "maximize": "trained_tokens_per_second",
            "minimize": None,
            "min_ess": 0.1,
            "max_lag": 5,
            "min_goodput": None,
            "scenarios": None,
            "confidence": 0.95,
            "store": None,
        },
        "result_row": {"result": result},
        "run_spec": {
            "spec": spec,
            "store": None,
            "executor": "threads",
            "threads": 1,
            "progress": None,
            "cancel": None,
            "task": None,
        },
        "run_sweep": {
            "base": BASE,
            "axes": axes,
            "seeds": 1,
            "store": None,
            "executor": "threads",
            "threads": 1,
            "masks": False,
            "tables": (),
            "progress": None,
            "windows": None,
            "custom": None,
            "baseline": False,
            "task": None,
        },
        "map_runs": {"ds": ds, "function": len_of_batches, "rollouts": False},
        "search": {
            "base": BASE,
            "axes": {"max_lag": [0, 1]},
            "maximize": "trained_tokens_per_second",
            "minimize": (),
            "min_ess": None,
            "max_lag": None,
            "min_goodput": None,
            "constraints": (),
            "budget_runs": 200,
            "budget_seconds": None,
            "indifference": 0.05,
            "confidence": 0.9,
            "explore_seeds": 2,
            "candidates": 2,
            "sampler": "around",
            "store": None,
            "results": None,
            "name": "sweep",
            "executor": "threads",
            "threads": 1,
            "progress": None,
            "cancel": None,
        },
        "sensitivity": {
            "base": BASE,
            "axes": {"max_lag": [1, 2]},
            "metrics": "seconds_per_update",
            "method": "sobol",
            "points": 4,
            "seeds": 1,
            "constraints": (),
            "confidence": 0.9,
            "store": None,
            "results": None,
            "name": "sweep",
            "executor": "threads",
            "threads": 1,
            "progress": None,
            "cancel": None,
        },
        "simulate_custom": {
            "config": BASE,
            "admission": None,
            "length": None,
            "metrics": [],
            "rollouts": True,
        },
        "simulate_engine": {
            "engine": ENGINE,
            "prompt_tokens": (5, 6),
            "output_tokens": (9, 3),
            "arrival_seconds": (0.0, 0.5),
        },
        "simulate_pipeline": {"config": BASE, "rollouts": True},
        "start_run": {"config": BASE, "rollouts": True},
        "validate_records": {
            "statistics": True,
            "source": Lazy(lambda: BytesIO(b"{}\n")),
            "contract": None,
            "max_line_bytes": 1000,
        },
        "merge_stores": {"stores": Lazy(_parts), "store": None, "progress": None},
        "verify_store": {
            "folder": Lazy(_store),
            "sample": 1,
            "everything": False,
            "cell": None,
            "threads": 1,
            "progress": None,
            "cancel": None,
            "custom": None,
        },
        "write_sensitivity_page": {
            "found": Lazy(_sensitivity),
            "path": "sensitivity.html",
            "line": "",
        },
        "write_report": {
            "ds": ds,
            "path": "report.html",
            "store": None,
            "maximize": "trained_tokens_per_second",
            "min_ess": 0.1,
            "max_lag": 5,
            "reference": None,
            "confidence": 0.95,
            "images": False,
            "sensitivity": None,
            "progress": None,
        },
        "write_trace": {
            "result": result,
            "path": "trace.json",
            "max_events": 100_000,
            "window_seconds": (0.0, 10.0),
            "about": {"a": 1},
        },
    }
    return {name: Call(values) for name, values in keywords.items()} | _owned_calls()


@cache
def _spec() -> Any:
    return ls.load_spec(_file("s.toml", _SPEC), rollout_workers=2)


def _owned_calls() -> dict[str, Call]:
    error = ("batch_tokens", "must be at least 1", 0, "Give more.")
    errors = ("Cancelled", "CheckpointError", "ConfigError", "ContractError", "LagsweepError", "StoreError")
    calls = {name: Call({}, error) for name in errors}
    calls |= {
        f"{name}.within": Call({"place": "x."}, target=lambda name=name: getattr(ls, name)(*error))
        for name in errors
    }
    preset = lambda: ls.all_presets()["areal"]  # noqa: E731
    report = lambda: ls.validate_records(BytesIO(b"{}\n"))  # noqa: E731
    calls |= {
        "Finding.within": Call({"place": "x."}, target=lambda: ls.Finding(*error)),
        "Frontier.on_frontier": Call(target=lambda: ls.frontier(_dataset())),
        "Frontier.parts": Call(target=lambda: ls.frontier(_dataset())),
        "Knob.checked": Call({"value": 3}, target=lambda: preset().knobs[0]),
        "Engine.to_dict": Call(target=lambda: ENGINE),
        "Calibration.as_dict": Call(target=_calibration),
        "Calibration.backtest_frame": Call(target=_calibration),
        "Calibration.fits_frame": Call(target=_calibration),
        "Calibration.predictions_frame": Call(target=_calibration),
        "Calibration.sweep": Call(
            {"axes": {"rollout_workers": [4, 8]}, "seeds": 1, "store": None, "threads": 1},
            target=_calibration,
        ),
        "Calibration.to_toml": Call({"name": "run.toml"}, target=_calibration),
        "WhatIf.as_dict": Call(target=_what_if),
        "WhatIf.frame": Call(target=_what_if),
        "EngineFit.as_dict": Call(target=_fit),
        "EngineFit.to_toml": Call({"name": "engine.toml"}, target=_fit),
        "Plan.sweep": Call({"axes": {"sync_seconds": [1.0]}, "seeds": 1}, target=_plan),
        "Plan.to_dict": Call(target=_plan),
        "EngineSamplesFit.as_dict": Call(target=lambda: ls.fit_engine_samples(_samples())),
        "EngineSamplesFit.to_toml": Call(
            {"name": "engine.toml"}, target=lambda: ls.fit_engine_samples(_samples())
        ),
        "EngineSamplesFit.value": Call(
            {"name": "step_seconds"}, target=lambda: ls.fit_engine_samples(_samples())
        ),
        "StepLog.as_dict": Call(target=lambda: ls.read_step_log(_file("steps.csv", _STEPS))),
        "StepLog.found": Call({}, ("rest",), target=lambda: ls.read_step_log(_file("steps.csv", _STEPS))),
        "Stages.without": Call({"place": 0}, target=lambda: ls.read_stages(_file("stages.csv", _STAGES))),
        "EngineResult.requests_frame": Call(target=lambda: ls.simulate_engine(ENGINE, 5, 9)),
        "EngineResult.timeline_frame": Call(target=lambda: ls.simulate_engine(ENGINE, 5, 9)),
        "Limit": Call({"count": "started", "done": "published", "groups": 3}),
        "PipelineConfig.remember_preset": Call(
            {"name": "areal", "fields": {}, "rebuild": ls.preset_config, "lag_bound": None},
            target=lambda: BASE.replace(seed=1),
        ),
        "PipelineConfig.replace": Call({"max_policy_lag": 3, "seed": 1}, target=lambda: BASE),
        "PipelineConfig.to_dict": Call({"full": True}, target=lambda: BASE),
        "PipelineResult": Call(
            {
                "config": BASE,
                "metrics": Lazy(lambda: _result().metrics),
                "lag_counts": Lazy(lambda: _result().lag_counts),
                "columns": Lazy(lambda: _result()._columns if hasattr(_result(), "_columns") else {}),
            }
        ),
        "PipelineResult.engines_frame": Call(
            target=lambda: ls.simulate_pipeline(BASE.replace(engine=ls.Engine(step_seconds=0.02)))
        ),
        "PipelineResult.batches_frame": Call(target=_result),
        "PipelineResult.rollouts_frame": Call(target=_result),
        "PipelineResult.timeline_frame": Call(target=_result),
        "Preset.checked_knobs": Call({"knobs": {}}, target=preset),
        "Progress": Call(),
        "Progress.advance": Call({"runs": 1}, target=ls.Progress),
        "Progress.begin": Call({"total": 1, "done": 0}, target=ls.Progress),
        "Progress.block": Call({"unit": "x", "runs": 1, "seconds": 1.0}, target=ls.Progress),
        "Progress.end": Call(target=ls.Progress),
        "Progress.failure": Call({"text": "x"}, target=ls.Progress),
        "Progress.kept": Call({"runs": 1}, target=ls.Progress),
        "Progress.note": Call({"text": "x"}, target=ls.Progress),
        "Progress.steps": Call({"what": "x", "total": 1}, target=ls.Progress),
        "Recommendation.to_dict": Call(target=lambda: ls.recommend(_dataset())),
        "RecordReport.as_dict": Call(target=report),
        "RecordReport.ok": Call({"strict": True}, target=report),
        "Row": Call({"columns": {"a": 1}}),
        "SearchResult.to_dict": Call(
            target=lambda: ls.search(BASE, {"max_lag": [0, 1]}, budget_runs=200, candidates=2)
        ),
        "Sensitivity.to_dict": Call(target=_sensitivity),
        "Sensitivity.chart": Call({"metric": None}, target=_sensitivity),
        "SweepSpec.config": Call({"cell": 0, "seed": 0}, target=_spec),
        "SweepSpec.replace": Call({"seeds": (0,), "name": "x", "until": None}, target=_spec),
        "SweepSpec.run": Call({"threads": 1, "store": None}, target=_spec),
        "SweepSpec.to_json": Call(target=_spec),
        "SweepSpec.to_plain": Call(target=_spec),
        "VerifyReport": Call(
            {"folder": Path("x"), "complete": True, "findings": [], "notes": [], "repairs": []}
            | {"wrong_units": set(), "stray_files": [], "units": 1, "units_done": 1, "chunks": 1}
            | {"runs_checked": 1, "content": "0" * 16}
        ),
        "VerifyReport.add": Call(
            {"kind": "x", "where": "y", "what": "z", "unit": None, "stray": None},
            target=lambda: ls.verify_store(_store(), sample=1),
        ),
    }
    return calls


@cache
def valid_calls() -> dict[str, Call]:
    """Give every public function's valid call by its name."""
    return _kernel_calls() | _law_calls() | _checkpoint_calls() | _gate_calls() | _sweep_calls()
