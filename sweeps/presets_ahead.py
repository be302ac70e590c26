"""Presets of systems that run a counted number of batches ahead, and of synchronous loops.

These bound the lag by construction: batch j is generated after some event of batch j - k, in start order, so
a straggler holds its batch back instead of growing old.
"""

from __future__ import annotations

from typing import Any

from lagsweep.sweeps.presets import Knob, Preset, Workload


def limit(count: str, done: str, groups: int) -> list[dict[str, Any]]:
    """Give a ledger of one line."""
    return [{"count": count, "done": done, "groups": groups}]


def _synchronous(workload: Workload) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", workload.batch_groups),
        "queue_order": "started",
        "publication": "drain",
        "publication_blocks_trainer": True,
    }


def _colocated(workload: Workload, rollout_share: float) -> dict[str, Any]:
    # All GPUs generate, then all train: the slots and the rate of both sides of a split together.
    return {
        **_synchronous(workload),
        "rollout_workers": max(1, round(workload.rollout_workers / rollout_share)),
        "train_tokens_per_second": workload.train_tokens_per_second / (1.0 - rollout_share),
    }


def _trl_grpo(
    workload: Workload,
    steps_per_generation: int,
    num_iterations: int,
    gradient_accumulation_steps: int,
    vllm_mode: str,
    rollout_share: float,
) -> dict[str, Any]:
    updates = max(1, steps_per_generation * num_iterations // gradient_accumulation_steps)
    rules = _synchronous(workload) if vllm_mode == "server" else _colocated(workload, rollout_share)
    # Weights reach the generator before the next generation, after all updates of this one.
    return {**rules, "updates_per_batch": updates, "sync_every_updates": updates}


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
        "max_policy_lag": max_trajectory_age_steps,
    }


def _nemo_rl_in_order(workload: Workload, window: int) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", window * workload.batch_groups),
        "queue_order": "started",
        "publication": "pause",
        "max_policy_lag": window,
    }


_SHARE = Knob("rollout_share", 0.5, "share of all GPUs that the given rollout_workers stand for", 0.01)
_WINDOW = Knob("window", 1, "batches that may be ahead of the trainer", 1)
_NEMO = ("NVIDIA-NeMo/RL", "7ea279a", "2026-08-22")

PRESETS: tuple[Preset, ...] = (
    Preset(
        "synchronous",
        "Synchronous loop on two groups of GPUs (disaggregated)",
        "none: the textbook loop",
        "",
        "",
        (),
        _synchronous,
        "0",
        "exact",
        ("GPUs of one side idle while the other works",),
    ),
    Preset(
        "synchronous_colocated",
        "Synchronous loop in which every GPU generates, then every GPU trains",
        "none: the textbook loop",
        "",
        "",
        (_SHARE,),
        _colocated,
        "0",
        "exact",
        ("sync_seconds stands for the switch between the phases", "memory that both sides need at once"),
        needs=("rollout_workers", "train_tokens_per_second"),
    ),
    Preset(
        "trl_grpo",
        "TRL GRPOTrainer (classic)",
        "huggingface/trl",
        "f2cd577",
        "2026-07-24",
        (
            Knob("steps_per_generation", 1, "micro-steps per generation", 1),
            Knob("num_iterations", 1, "passes over a generation", 1),
            Knob("gradient_accumulation_steps", 1, "micro-steps per optimizer update", 1),
            Knob("vllm_mode", "colocate", "where the engine runs", choices=("colocate", "server")),
            _SHARE,
        ),
        _trl_grpo,
        "steps_per_generation * num_iterations / gradient_accumulation_steps - 1 updates",
        "exact",
        ("micro-batches and their order", "reuse of a generation beyond the split into updates"),
        needs=("rollout_workers", "train_tokens_per_second"),
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
        "exact",
        ("resume keeps the data loader alone: the batch in flight is lost",),
        alias_of="slime_train_async",
    ),
    Preset(
        "slime_train_async",
        "slime train_async",
        "THUDM/slime",
        "624b824",
        "2026-08-21",
        (Knob("update_weights_interval", 1, "publish every so many rollout batches", 1),),
        _slime_train_async,
        "1 … update_weights_interval",
        "exact",
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
            Knob("partial_rollout_enable", False, "pause and resume instead of a lock around generation"),
        ),
        _openrlhf,
        "async_queue_size batches",
        "hard",
        ("over-sampling (vllm_generate_batch_size above the batch), which adds to the bound",),
    ),
    Preset(
        "nemo_rl_legacy",
        "NeMo RL async_grpo (legacy)",
        *_NEMO,
        (
            Knob("max_trajectory_age_steps", 1, "oldest age trained, in steps", 1),
            Knob("in_flight_weight_updates", False, "do not drain before a refit"),
            Knob("recompute_kv_cache_after_weight_updates", False, "drop the KV cache at a refit"),
        ),
        _nemo_rl_legacy,
        "max_trajectory_age_steps",
        "hard",
        ("replacement of failed generations", "targets are batches in start order here"),
    ),
    Preset(
        "nemo_rl_in_order",
        "NeMo RL single controller, sampler in_order",
        *_NEMO,
        (_WINDOW,),
        _nemo_rl_in_order,
        "window",
        "hard",
        ("streaming train on part of a batch", "shrinking batches", "max_inflight_prompts"),
    ),
)
