"""Presets of systems that run a counted number of batches ahead, and of synchronous loops.

These bound the lag by construction: batch j is generated after some event of batch j - k, in start order, so
a straggler holds its batch back instead of growing old.
"""

from __future__ import annotations

from typing import Any

from ...kernels.errors import ConfigError
from .base import Alias, Knob, Preset, Workload, limit


def _synchronous(workload: Workload) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", workload.batch_groups),
        "queue_order": "started",
        "publication": "drain",
        "publication_blocks_trainer": True,
    }


def _colocated(workload: Workload, rollout_share: float, training_scaling: float = 1.0) -> dict[str, Any]:
    # All GPUs generate, then all train: the slots and the rate of both sides of a split together, and the
    # rollouts spread over as many more engines. More GPUs seldom train faster in proportion.
    rate = workload.train_tokens_per_second / (1.0 - rollout_share) ** training_scaling
    engine = workload.engine
    count = max(1, round(engine.count / rollout_share)) if engine else 0
    return {
        **_synchronous(workload),
        **({"engine": engine.model_copy(update={"count": count})} if engine else {}),
        "rollout_workers": max(1, round(workload.rollout_workers / rollout_share)),
        "train_tokens_per_second": rate,
        "decode_slowdown_per_rollout": workload.decode_slowdown_per_rollout * rollout_share,
    }


def _trl_grpo(
    workload: Workload,
    steps_per_generation: int | None,
    num_iterations: int,
    gradient_accumulation_steps: int,
    vllm_mode: str,
    rollout_share: float,
) -> dict[str, Any]:
    micro_steps = (steps_per_generation or gradient_accumulation_steps) * num_iterations
    if micro_steps % gradient_accumulation_steps:
        rule = f"times num_iterations must be a multiple of {gradient_accumulation_steps}, the accumulation"
        way_out = "An update that spans two generations is not modelled."
        raise ConfigError("steps_per_generation", rule, steps_per_generation, way_out)
    updates = micro_steps // gradient_accumulation_steps
    rules = _synchronous(workload) if vllm_mode == "server" else _colocated(workload, rollout_share)
    rate = rules.get("train_tokens_per_second", workload.train_tokens_per_second)
    return {
        **rules,
        # Every iteration is one more pass over the batch.
        "train_tokens_per_second": rate / num_iterations,
        # Weights reach the generator before the next generation, after all updates of this one.
        "updates_per_batch": updates,
        "sync_every_updates": updates,
    }


def _one_ahead(workload: Workload, cadence: int) -> dict[str, Any]:
    return {
        "limits": limit("started", "popped", workload.batch_groups),
        "admit": "batch",
        "queue_order": "started",
        "publication": "drain",
        "publication_blocks_trainer": True,
        "sync_every_updates": cadence,
    }


def _verl_one_step_off(workload: Workload) -> dict[str, Any]:
    return _one_ahead(workload, 1)


def _slime_train_async(workload: Workload, update_weights_interval: int) -> dict[str, Any]:
    return _one_ahead(workload, update_weights_interval)


def _openrlhf(workload: Workload, async_queue_size: int, partial_rollout_enable: bool) -> dict[str, Any]:
    return {
        "limits": limit("started", "popped", async_queue_size * workload.batch_groups),
        "admit": "batch",
        "one_batch_at_a_time": True,
        "queue_order": "started",
        "publication": "pause" if partial_rollout_enable else "drain",
        "publication_blocks_trainer": True,
    }


def _nemo_rl_legacy(
    workload: Workload,
    max_trajectory_age_steps: int,
    in_flight_weight_updates: bool,
    recompute_kv_cache_after_weight_updates: bool,
) -> dict[str, Any]:
    if not in_flight_weight_updates:
        style = "drain"
    else:
        style = "abort" if recompute_kv_cache_after_weight_updates else "pause"
    return {
        "limits": limit("started", "published", (max_trajectory_age_steps + 1) * workload.batch_groups),
        "admit": "batch",
        "queue_order": "started",
        "publication": style,
        "publication_blocks_trainer": True,
    }


def nemo_gate(workload: Workload, versions: int, max_inflight_prompts: int) -> dict[str, Any]:
    """Return the gate of NeMo RL's samplers: batch i may be dispatched from version i - versions on."""
    return {
        "limits": limit("started", "published", (versions + 1) * workload.batch_groups),
        "max_running_groups": max_inflight_prompts,
        "publication": "pause",
    }


def _nemo_rl_in_order(
    workload: Workload, max_lookahead_versions: int, max_inflight_prompts: int
) -> dict[str, Any]:
    return {
        **nemo_gate(workload, max_lookahead_versions, max_inflight_prompts),
        "queue_order": "started",
    }


_SHARE = Knob(
    "rollout_share", 0.5, "share of all GPUs that the given rollout_workers stand for", 0.001, 0.999
)
NEMO = ("NVIDIA-NeMo/RL", "7ea279a", "2026-08-22")
NEMO_INFLIGHT = Knob("max_inflight_prompts", 32, "groups running at once", 1)
NEMO_LEAVES_OUT = (
    "training that begins on part of a batch (min_groups_for_streaming_train)",
    "shrinking batches (min_step_batch_fraction, on_dropped_prompt)",
    "max_buffered_rollouts",
)

PRESETS: tuple[Preset, ...] = (
    Preset(
        "synchronous",
        "Synchronous loop on two groups of GPUs",
        "none (the textbook loop)",
        "none",
        "2026-08-23",
        (),
        _synchronous,
        "0",
        lambda workload: 0,
        "exact",
        ("a disaggregated baseline: each side idles while the other works",),
        aliases=(Alias("trl_grpo", "vllm_mode = server, one update per generation"),),
    ),
    Preset(
        "synchronous_colocated",
        "Synchronous loop on all GPUs in turn (colocated)",
        "none (the textbook loop)",
        "none",
        "2026-08-23",
        (
            _SHARE,
            Knob("training_scaling", 1.0, "speed of training grows as the GPUs to this power", -1.0, 2.0),
        ),
        _colocated,
        "0",
        lambda workload, **knobs: 0,
        "exact",
        (
            "sync_seconds stands for the switch between the phases",
            "memory that both sides need at once",
            "that doubling the GPUs of generation seldom doubles its speed (training: training_scaling)",
        ),
        aliases=(Alias("trl_grpo", "one update per generation, the same rollout_share"),),
        needs=("rollout_workers", "train_tokens_per_second", "decode_slowdown_per_rollout", "engine"),
    ),
    Preset(
        "trl_grpo",
        "TRL GRPOTrainer (classic)",
        "huggingface/trl",
        "f2cd577",
        "2026-07-24",
        (
            Knob("steps_per_generation", None, "micro-steps of one generation; none: the accumulation", 1),
            Knob("num_iterations", 1, "passes over a generation", 1),
            Knob("gradient_accumulation_steps", 1, "micro-steps per update", 1),
            Knob("vllm_mode", "colocate", "where the engine runs", choices=("colocate", "server")),
            _SHARE,
        ),
        _trl_grpo,
        "steps_per_generation * num_iterations / gradient_accumulation_steps - 1 updates",
        lambda workload, **knobs: _trl_grpo(workload, **knobs)["updates_per_batch"] - 1,
        "hard",
        (
            "micro-batches",
            "a second iteration trains the same rollouts again; here each is trained once, at twice the cost",
        ),
        needs=("rollout_workers", "train_tokens_per_second", "decode_slowdown_per_rollout", "engine"),
    ),
    Preset(
        "verl_one_step_off",
        "verl one-step-off",
        "verl-project/verl",
        "1dda039",
        "2026-08-22",
        (),
        _verl_one_step_off,
        "1 (0 for the first batch)",
        lambda workload: 1,
        "exact",
        ("a resume keeps the data loader alone: the batch in flight is lost",),
        aliases=(Alias("slime_train_async", "update_weights_interval = 1"),),
    ),
    Preset(
        "slime_train_async",
        "slime train_async",
        "THUDM/slime",
        "624b824",
        "2026-08-21",
        (Knob("update_weights_interval", 1, "publish every so many rollout batches", 1),),
        _slime_train_async,
        "update_weights_interval batches (1 to it, 0 for the first batch)",
        lambda workload, update_weights_interval: update_weights_interval,
        "hard",
        ("over-sampling and partial rollouts, off by default",),
    ),
    Preset(
        "openrlhf",
        "OpenRLHF async",
        "OpenRLHF/OpenRLHF",
        "3c3be62",
        "2026-08-13",
        (
            Knob("async_queue_size", 1, "slots of the semaphore, in batches", 1),
            Knob("partial_rollout_enable", False, "pause and resume instead of a lock on generation"),
        ),
        _openrlhf,
        "async_queue_size batches",
        lambda workload, async_queue_size, partial_rollout_enable: async_queue_size,
        "hard",
        (
            "over-sampling (vllm_generate_batch_size above the batch), which adds to the bound",
            "dynamic filtering that replaces prompts inside a batch",
        ),
    ),
    Preset(
        "nemo_rl_legacy",
        "NeMo RL async_grpo (legacy)",
        *NEMO,
        (
            Knob("max_trajectory_age_steps", 1, "oldest age trained, in steps", 1),
            Knob("in_flight_weight_updates", False, "do not drain before a refit"),
            Knob("recompute_kv_cache_after_weight_updates", False, "drop the KV cache at a refit in flight"),
        ),
        _nemo_rl_legacy,
        "max_trajectory_age_steps (exactly 1 at 1, 0 for the first batch)",
        lambda workload, max_trajectory_age_steps, **rest: max_trajectory_age_steps,
        "hard",
        ("failed generations and their holes", "a batch's target step is its place in the start order"),
    ),
    Preset(
        "nemo_rl_in_order",
        "NeMo RL single controller, sampler in_order",
        *NEMO,
        (
            Knob("max_lookahead_versions", 1, "dispatch batches ahead of the trainer's version", 0),
            NEMO_INFLIGHT,
        ),
        _nemo_rl_in_order,
        "max_lookahead_versions",
        lambda workload, max_lookahead_versions, **rest: max_lookahead_versions,
        "hard",
        (*NEMO_LEAVES_OUT, "warmup_lookahead_versions"),
    ),
)
