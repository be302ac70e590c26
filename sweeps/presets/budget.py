"""Presets of systems with a budget of work ahead of the published weights that train whatever arrives.

A count budget bounds an aggregate: under first-in-first-out and equal durations the lag stays below the
knob, but a single straggler may exceed it. Exceptions that wait for the oldest, or drop it, are marked
``hard``.
"""

from __future__ import annotations

import math
from typing import Any

from ...kernels.errors import ConfigError
from .ahead import NEMO, NEMO_INFLIGHT, NEMO_LEAVES_OUT, nemo_gate
from .base import Alias, Knob, Preset, Workload, limit


def _budget(groups: int, running: int | None, style: str) -> dict[str, Any]:
    return {
        "limits": limit("started", "published", groups),
        "max_running_groups": running,
        "publication": style,
        "publication_blocks_trainer": True,
    }


def _window_lag(workload: Workload, rules: dict[str, Any]) -> int:
    """Return the lag of the last update on the oldest group that a budget lets in, in order of start."""
    batches = math.ceil(rules["limits"][0]["groups"] / workload.batch_groups)
    return batches * rules.get("updates_per_batch", 1) - 1


def _areal(
    workload: Workload, max_head_offpolicyness: int, max_concurrent_rollouts: int | None
) -> dict[str, Any]:
    groups = (max_head_offpolicyness + 1) * workload.batch_groups
    return _budget(groups, max_concurrent_rollouts or workload.batch_groups, "abort")


def _skyrl(
    workload: Workload, max_staleness_steps: int, num_parallel_generation_workers: int | None
) -> dict[str, Any]:
    largest = (max_staleness_steps + 1) * workload.batch_groups
    workers = largest if num_parallel_generation_workers is None else num_parallel_generation_workers
    if not workload.batch_groups <= workers <= largest:
        rule = f"must be between batch_groups ({workload.batch_groups}) and {largest}, SkyRL's own check"
        way_out = f"Give a number in that range; {largest} leaves the budget alone to bind."
        raise ConfigError("num_parallel_generation_workers", rule, workers, way_out)
    return _budget(largest, workers, "abort")


def _verl_fully_async(
    workload: Workload,
    staleness_threshold: float,
    trigger_parameter_sync_step: int,
    require_batches: int,
    partial_rollout: bool,
    concurrent_samples_per_replica: int,
    replicas: int | None,
) -> dict[str, Any]:
    # batch_groups is what one trainer step takes: require_batches mini-batches, one update each.
    # The product is verl's own, factor by factor, for the sake of its rounding.
    queue = int(workload.batch_groups * (staleness_threshold + 1) * trigger_parameter_sync_step)
    running = queue if replicas is None else min(concurrent_samples_per_replica * replicas, queue)
    return {
        **_budget(queue, running, "abort" if partial_rollout else "drain"),
        "updates_per_batch": require_batches,
        "sync_every_updates": trigger_parameter_sync_step * require_batches,
    }


def _rllm(
    workload: Workload, staleness_threshold: float, trigger_parameter_sync_step: int, partial_rollout: bool
) -> dict[str, Any]:
    quota = int((1 + staleness_threshold) * trigger_parameter_sync_step * workload.batch_groups)
    style = "pause" if partial_rollout else "drain"
    return {**_budget(quota, None, style), "sync_every_updates": trigger_parameter_sync_step}


def _pipelinerl(
    workload: Workload,
    max_lag: int | None,
    pop_old_data: bool,
    ring_buffer: int,
    raw_queue: int,
    chunk: int,
    llm_max_rollouts: int,
    engines: int | None,
) -> dict[str, Any]:
    rules: dict[str, Any] = {"publication": "pause", "publication_blocks_trainer": True}
    if engines is not None:
        rules["max_running_groups"] = max(1, llm_max_rollouts * engines // workload.group_size)
    if max_lag is not None:
        groups = workload.batch_groups + math.ceil(max_lag / workload.group_size)
        return rules | {"limits": limit("started", "published", groups)}
    # A buffer below one batch would never fill it; the trainer's own queue comes to its aid there.
    buffered = max(workload.batch_groups, raw_queue * chunk + ring_buffer // workload.group_size)
    if pop_old_data:
        return rules | {"queue_overflow": "drop_oldest", "max_queue_groups": buffered}
    return rules | {"limits": limit("finished", "popped", buffered)}


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


def _ready_first(
    workload: Workload, max_staleness_versions: int, max_inflight_prompts: int
) -> dict[str, Any]:
    return nemo_gate(workload, max_staleness_versions, max_inflight_prompts)


def _weight_fifo(
    workload: Workload, max_staleness_versions: int, max_inflight_prompts: int
) -> dict[str, Any]:
    return {
        **nemo_gate(workload, max_staleness_versions, max_inflight_prompts),
        "queue_order": "oldest_version",
        "stale_check": "dequeue",
        "max_policy_lag": max_staleness_versions,
    }


_NEMO_VERSIONS = Knob("max_staleness_versions", 1, "dispatch batches ahead of the trainer's version", 0)

PRESETS: tuple[Preset, ...] = (
    Preset(
        "areal",
        "AReaL",
        "areal-project/AReaL",
        "cbff54d",
        "2026-08-22",
        (
            Knob("max_head_offpolicyness", 0, "batches that may start ahead of the weights", 0),
            Knob("max_concurrent_rollouts", None, "groups running at once; none: one batch", 1),
        ),
        _areal,
        "max_head_offpolicyness versions",
        lambda workload, max_head_offpolicyness, **rest: max_head_offpolicyness,
        "typical",
        (
            "a user's should_accept filter",
            "counts per rank (SPMD mode)",
            "oldest-created first among the finished, and the shuffle: first finished, first trained here",
        ),
        aliases=(
            Alias("skyrl", "max_staleness_steps = max_head_offpolicyness, as many workers"),
            Alias(
                "verl_fully_async",
                "staleness_threshold = max_head_offpolicyness, one step of one update per publication, "
                "as many running",
            ),
        ),
    ),
    Preset(
        "skyrl",
        "SkyRL fully async",
        "NovaSky-AI/SkyRL",
        "a956457",
        "2026-08-21",
        (
            Knob("max_staleness_steps", 4, "batches that may start ahead of the weights", 0),
            Knob("num_parallel_generation_workers", None, "groups running at once; none: the budget", 1),
        ),
        _skyrl,
        "max_staleness_steps versions",
        lambda workload, max_staleness_steps, **rest: max_staleness_steps,
        "typical",
        (
            "the drain at the end of an epoch",
            "the default of 768 workers, which its own check refuses for small batches",
            "sample_full_batch, and clear_kv_cache_on_weight_sync (set reprefill_tokens_per_second)",
        ),
    ),
    Preset(
        "verl_fully_async",
        "verl fully_async_policy",
        "verl-project/verl",
        "1dda039",
        "2026-08-22",
        (
            Knob("staleness_threshold", 0.1, "share of a window that may start ahead of it", 0.0),
            Knob("trigger_parameter_sync_step", 4, "trainer steps per publication", 1),
            Knob("require_batches", 1, "mini-batches (updates) per trainer step", 1),
            Knob("partial_rollout", True, "abort and resume at a publication instead of draining"),
            Knob("concurrent_samples_per_replica", 16, "groups running at once on each replica", 1),
            Knob("replicas", None, "engine replicas; none: enough for the whole budget", 1),
        ),
        _verl_fully_async,
        "ceil(staleness_threshold) publications; in updates below "
        "(1 + staleness_threshold) * trigger_parameter_sync_step * require_batches",
        lambda workload, **knobs: _window_lag(workload, _verl_fully_async(workload, **knobs)),
        "typical",
        (
            "polling of 10 s",
            "the client's 1 s sleep before it resumes (set resume_seconds)",
            "its own counters, which stamp a sample at its end",
        ),
        aliases=(Alias("skyrl", "staleness_threshold = max_staleness_steps, one update per publication"),),
    ),
    Preset(
        "rllm",
        "rLLM",
        "rllm-org/rllm",
        "9beb6e0",
        "2026-08-15",
        (
            Knob("staleness_threshold", 0.0, "share of a window that may start ahead of it", 0.0),
            Knob("trigger_parameter_sync_step", 1, "trainer steps per publication", 1),
            Knob("partial_rollout", True, "pause at a publication instead of draining"),
        ),
        _rllm,
        "ceil(staleness_threshold) publications; in updates below "
        "(1 + staleness_threshold) * trigger_parameter_sync_step; hard at a threshold of 0",
        lambda workload, **knobs: _window_lag(workload, _rllm(workload, **knobs)),
        "typical",
        ("the quota that a filtered group gives back comes at once",),
    ),
    Preset(
        "pipelinerl",
        "PipelineRL",
        "ServiceNow/PipelineRL",
        "58d3934",
        "2026-06-19",
        (
            Knob("max_lag", None, "samples that may start ahead of the weights; none: no limit", 0),
            Knob("pop_old_data", True, "without max_lag: a full buffer drops its oldest, not blocks"),
            Knob("ring_buffer", 128, "samples in the preprocessor's ring buffer", 1),
            Knob("raw_queue", 8, "chunks in the raw queue", 1),
            Knob("chunk", 2, "groups of a chunk", 1),
            Knob("llm_max_rollouts", 64, "rollouts running at once on each engine", 1),
            Knob("engines", None, "engines; none: every slot may be used", 1),
        ),
        _pipelinerl,
        "ceil(max_lag / samples of a batch) versions with max_lag, none without",
        lambda workload, max_lag, **rest: (
            None
            if max_lag is None
            else math.ceil(math.ceil(max_lag / workload.group_size) / workload.batch_groups)
        ),
        "typical",
        (
            "packing to seq_length: a batch holds whole groups here",
            "lag counted in trained samples",
            "the problem, result and input queues, 64, 64 and 32 long",
        ),
        aliases=(
            Alias("rllm", "max_lag = a whole number of batches, staleness_threshold = that number, one step"),
        ),
    ),
    Preset(
        "roll",
        "ROLL",
        "alibaba/ROLL",
        "8eb27cc",
        "2026-08-19",
        (Knob("async_generation_ratio", 0.0, "batches that may start ahead of the weights", 0.0),),
        _roll,
        "ceil(async_generation_ratio) versions",
        lambda workload, async_generation_ratio: math.ceil(async_generation_ratio),
        "hard",
        (
            "the cap on samples of the oldest step at a fractional ratio",
            "is_use_additional_prompts",
            "model_update_frequency above 1",
        ),
    ),
    Preset(
        "rlinf",
        "RLinf async PPO",
        "RLinf/RLinf",
        "a3816b5",
        "2026-08-22",
        (Knob("staleness_threshold", 1, "batches that may start ahead of the weights", 0),),
        _rlinf,
        "staleness_threshold versions",
        lambda workload, staleness_threshold: staleness_threshold,
        "hard",
        ("on_policy_min_ratio", "polling of 1 s", "its recipes use 1 or 2: the default 1 is this preset's"),
    ),
    Preset(
        "nemo_rl_ready_first",
        "NeMo RL single controller, sampler ready_first",
        *NEMO,
        (_NEMO_VERSIONS, NEMO_INFLIGHT),
        _ready_first,
        "max_staleness_versions versions",
        lambda workload, max_staleness_versions, **rest: max_staleness_versions,
        "typical",
        NEMO_LEAVES_OUT,
    ),
    Preset(
        "nemo_rl_weight_fifo",
        "NeMo RL single controller, sampler weight_fifo",
        *NEMO,
        (_NEMO_VERSIONS, NEMO_INFLIGHT),
        _weight_fifo,
        "max_staleness_versions versions",
        lambda workload, max_staleness_versions, **rest: max_staleness_versions,
        "hard",
        (*NEMO_LEAVES_OUT, "waiting until the oldest version's batch is full"),
    ),
)
