"""Presets of systems with a budget of work ahead of the published weights that train whatever arrives.

A count budget bounds an aggregate: under first-in-first-out and equal durations the lag stays below the
knob, but a single straggler may exceed it. Exceptions that wait for the oldest are marked ``hard``.
"""

from __future__ import annotations

import math
from typing import Any

from lagsweep.errors import ConfigError, message
from lagsweep.sweeps.presets import Knob, Preset, Workload
from lagsweep.sweeps.presets_ahead import limit


def _budget(groups: int, running: int | None, style: str) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", groups),
        "max_running_groups": running,
        "publication": style,
        "publication_blocks_trainer": True,
    }


def _areal(
    workload: Workload, max_head_offpolicyness: int, max_concurrent_rollouts: int | None
) -> dict[str, Any]:
    groups = (max_head_offpolicyness + 1) * workload.batch_groups
    return _budget(groups, max_concurrent_rollouts or workload.batch_groups, "abort")


def _skyrl(workload: Workload, max_staleness_steps: int, num_parallel_generation_workers: int | None) -> dict:
    largest = (max_staleness_steps + 1) * workload.batch_groups
    workers = largest if num_parallel_generation_workers is None else num_parallel_generation_workers
    if not workload.batch_groups <= workers <= largest:
        rule = f"must be between batch_groups ({workload.batch_groups}) and {largest}, SkyRL's own check"
        way_out = f"Give a number in that range; {largest} keeps every slot busy."
        raise ConfigError(message("num_parallel_generation_workers", rule, workers, way_out))
    return _budget(largest, workers, "abort")


def _verl_fully_async(
    workload: Workload,
    staleness_threshold: float,
    trigger_parameter_sync_step: int,
    require_batches: int,
    partial_rollout: bool,
    concurrent_samples: int | None,
) -> dict[str, Any]:
    # batch_groups is what one trainer step takes: require_batches mini-batches, one update each.
    queue = int((1 + staleness_threshold) * trigger_parameter_sync_step * workload.batch_groups)
    running = queue if concurrent_samples is None else min(concurrent_samples, queue)
    return {
        **_budget(queue, running, "abort" if partial_rollout else "drain"),
        "updates_per_batch": min(require_batches, workload.batch_groups),
        "sync_every_updates": trigger_parameter_sync_step * min(require_batches, workload.batch_groups),
    }


def _rllm(
    workload: Workload, staleness_threshold: float, trigger_parameter_sync_step: int, partial_rollout: bool
) -> dict[str, Any]:
    quota = int((1 + staleness_threshold) * trigger_parameter_sync_step * workload.batch_groups)
    style = "pause" if partial_rollout else "drain"
    return {**_budget(quota, None, style), "sync_every_updates": trigger_parameter_sync_step}


def _pipelinerl(workload: Workload, max_lag: int | None, max_running: int | None) -> dict[str, Any]:
    rules: dict[str, Any] = {"publication": "pause", "max_running_groups": max_running}
    if max_lag is not None:
        groups = workload.batch_groups + math.ceil(max_lag / workload.group_size)
        rules["limits"] = limit("started", "published", groups)
    return rules


def _roll(workload: Workload, async_generation_ratio: float) -> dict[str, Any]:
    ahead = math.ceil(async_generation_ratio * workload.batch_groups)
    return {
        **_budget(workload.batch_groups + ahead, None, "abort"),
        "queue_order": "started",
        "cancel_in_flight": True,
        "max_policy_lag": math.ceil(async_generation_ratio),
    }


def _rlinf(workload: Workload, staleness_threshold: int) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", (staleness_threshold + 1) * workload.batch_groups),
        "stale_check": "update",
        "max_policy_lag": staleness_threshold,
    }


def _ready_first(workload: Workload, window: int) -> dict[str, Any]:
    return {"limits": limit("started", "published", window * workload.batch_groups), "publication": "pause"}


def _weight_fifo(workload: Workload, window: int) -> dict[str, Any]:
    return {
        **_ready_first(workload, window),
        "queue_order": "oldest_version",
        "stale_check": "dequeue",
        "max_policy_lag": window,
    }


_WINDOW = Knob("window", 1, "batches that may be ahead of the trainer", 1)
_NEMO = ("NVIDIA-NeMo/RL", "7ea279a", "2026-08-22")
_NEMO_LEAVES_OUT = ("streaming train on part of a batch", "shrinking batches", "max_inflight_prompts")

PRESETS: tuple[Preset, ...] = (
    Preset(
        "areal",
        "AReaL",
        "areal-project/AReaL",
        "cbff54d",
        "2026-08-22",
        (
            Knob("max_head_offpolicyness", 0, "batches that may start ahead of the weights", 0),
            Knob("max_concurrent_rollouts", None, "groups running at once; none: the batch", 1),
        ),
        _areal,
        "max_head_offpolicyness",
        "typical",
        ("a user's should_accept filter", "per-rank counts of SPMD mode", "the shuffle inside a batch"),
    ),
    Preset(
        "skyrl",
        "SkyRL fully async",
        "NovaSky-AI/SkyRL",
        "a956457",
        "2026-08-21",
        (
            Knob("max_staleness_steps", 4, "batches that may start ahead of the weights", 0),
            Knob("num_parallel_generation_workers", None, "groups at once; none: as many as pass", 1),
        ),
        _skyrl,
        "max_staleness_steps",
        "typical",
        ("the drain at the end of an epoch", "the default of 768 workers, which small batches refuse"),
        alias_of="areal",
    ),
    Preset(
        "verl_fully_async",
        "verl fully_async_policy",
        "verl-project/verl",
        "1dda039",
        "2026-08-22",
        (
            Knob("staleness_threshold", 0.1, "share of a window that may be stale", 0.0),
            Knob("trigger_parameter_sync_step", 4, "trainer steps per publication", 1),
            Knob("require_batches", 1, "mini-batches (updates) per trainer step", 1),
            Knob("partial_rollout", True, "abort and resume at a publication"),
            Knob("concurrent_samples", None, "groups running at once; none: the budget", 1),
        ),
        _verl_fully_async,
        "ceil(staleness_threshold) publications",
        "typical",
        (
            "polling of 10 s",
            "the client's 1 s sleep at a retry (set resume_seconds)",
            "versions stamped at the end",
        ),
    ),
    Preset(
        "rllm",
        "rLLM",
        "rllm-org/rllm",
        "9beb6e0",
        "2026-08-15",
        (
            Knob("staleness_threshold", 0.0, "share of a window that may be stale", 0.0),
            Knob("trigger_parameter_sync_step", 1, "trainer steps per publication", 1),
            Knob("partial_rollout", True, "pause at a publication instead of draining"),
        ),
        _rllm,
        "0 publications at staleness_threshold 0, else ceil(staleness_threshold)",
        "typical",
        (),
    ),
    Preset(
        "pipelinerl",
        "PipelineRL",
        "ServiceNow/PipelineRL",
        "58d3934",
        "2026-06-19",
        (
            Knob("max_lag", None, "samples that may start ahead of the weights; none: no limit", 0),
            Knob("max_running", None, "groups running at once; none: every slot", 1),
        ),
        _pipelinerl,
        "max_lag samples, none without it",
        "typical",
        ("packing to seq_length", "the queues of 64", "pop_old_data", "lag counted in samples"),
    ),
    Preset(
        "roll",
        "ROLL",
        "alibaba/ROLL",
        "8eb27cc",
        "2026-08-19",
        (Knob("async_generation_ratio", 0.0, "batches that may start ahead of the weights", 0.0),),
        _roll,
        "ceil(async_generation_ratio)",
        "hard",
        ("the mix of oldest samples at a fractional ratio", "additional prompts"),
    ),
    Preset(
        "rlinf",
        "RLinf async PPO",
        "RLinf/RLinf",
        "a3816b5",
        "2026-08-22",
        (Knob("staleness_threshold", 1, "batches that may start ahead of the weights", 0),),
        _rlinf,
        "staleness_threshold",
        "hard",
        ("on_policy_min_ratio", "polling of 1 s"),
    ),
    Preset(
        "nemo_rl_ready_first",
        "NeMo RL single controller, sampler ready_first",
        *_NEMO,
        (_WINDOW,),
        _ready_first,
        "window",
        "typical",
        _NEMO_LEAVES_OUT,
    ),
    Preset(
        "nemo_rl_weight_fifo",
        "NeMo RL single controller, sampler weight_fifo",
        *_NEMO,
        (_WINDOW,),
        _weight_fifo,
        "window",
        "hard",
        _NEMO_LEAVES_OUT,
    ),
)
