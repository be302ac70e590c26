"""Presets of systems that let generation run and drop, replace or repeat what has grown too old.

The bound is hard where the test stands at the dequeue and nothing waits between it and the step; what is
generated and dropped is wasted, and the rollouts that survive are shorter than those that were drawn.
"""

from __future__ import annotations

import math
from typing import Any

from lagsweep.sweeps.presets import Knob, Preset, Workload
from lagsweep.sweeps.presets_ahead import limit


def _verl_v1(
    workload: Workload,
    max_off_policy_threshold: int,
    num_warmup_batches: int,
    max_off_policy_strategy: str,
    parameter_sync_step: int,
) -> dict[str, Any]:
    rules: dict[str, Any] = {
        "limits": limit("started", "trained", (1 + num_warmup_batches) * workload.batch_groups),
        "publication": "abort",
        "publication_blocks_trainer": True,
        "max_policy_lag": max_off_policy_threshold - 1,
        "updates_per_batch": min(parameter_sync_step, workload.batch_groups),
        "sync_every_updates": min(parameter_sync_step, workload.batch_groups),
    }
    if max_off_policy_strategy == "wait":
        return {**rules, "queue_order": "started"}
    return {**rules, "queue_order": "oldest_version", "stale_check": "dequeue"}


def _prime_rl(workload: Workload, max_off_policy_steps: int, max_inflight: int | None) -> dict[str, Any]:
    running = None if max_inflight is None else max(1, max_inflight // workload.group_size)
    return {
        "limits": limit("finished", "published", 2 * workload.batch_groups),
        "max_running_groups": running,
        "stale_check": "dequeue",
        "max_policy_lag": max_off_policy_steps,
        "cancel_in_flight": True,
        "publication": "pause",
    }


def _open_instruct(workload: Workload, async_steps: int) -> dict[str, Any]:
    return {
        "limits": limit("started", "popped", async_steps * workload.batch_groups),
        "stale_check": "dequeue",
        "max_policy_lag": async_steps,
        "publication": "pause",
    }


def _buffered(groups: int, running: int) -> dict[str, Any]:
    return {"limits": limit("finished", "popped", groups), "max_running_groups": running}


def _miles(
    workload: Workload,
    buffer_factor: float,
    max_weight_staleness: int | None,
    pause_mode: str,
    update_weights_interval: int,
) -> dict[str, Any]:
    rules = {
        **_buffered(math.floor(buffer_factor * workload.batch_groups), workload.batch_groups),
        "publication": "abort" if pause_mode == "retract" else "pause",
        "sync_every_updates": update_weights_interval,
    }
    if max_weight_staleness is None:
        return rules
    return {**rules, "stale_check": "dequeue", "max_policy_lag": max_weight_staleness}


def _slime_fully_async(workload: Workload, concurrency: int | None) -> dict[str, Any]:
    groups = concurrency or 2 * workload.batch_groups
    return {**_buffered(groups, groups), "publication": "abort"}


def _trl_async(
    workload: Workload, max_staleness: int, queue_maxsize: int, weight_sync_steps: int
) -> dict[str, Any]:
    # At max_staleness 0 the system's own rule allows nothing in flight and hangs; so does this.
    return {
        **_buffered(queue_maxsize // workload.group_size, max_staleness * workload.batch_groups),
        "stale_check": "dequeue",
        "max_policy_lag": max_staleness * weight_sync_steps,
        "publication": "pause",
        "sync_every_updates": weight_sync_steps,
    }


def _tinker(workload: Workload, max_steps_off_policy: int) -> dict[str, Any]:
    return {
        "max_running_groups": workload.batch_groups,
        "stale_check": "dequeue",
        "stale_action": "requeue",
        "max_policy_lag": max_steps_off_policy,
        "publication": "background",
    }


def _torchforge(workload: Workload, max_policy_age: int) -> dict[str, Any]:
    return {
        "queue_order": "random",
        "stale_check": "dequeue",
        "max_policy_lag": max_policy_age,
        "publication": "drain",
    }


def _queue_drop(workload: Workload, queue_batches: int, concurrent_groups: int | None) -> dict[str, Any]:
    return {
        "queue_overflow": "drop_oldest",
        "max_queue_groups": queue_batches * workload.batch_groups,
        "max_running_groups": concurrent_groups,
        "publication": "pause",
    }


def _windowed(
    workload: Workload, max_staleness: int, max_inflight_prompts: int | None, freshest_first: bool
) -> dict[str, Any]:
    return {
        "stale_check": "dequeue",
        "max_policy_lag": max_staleness,
        "cancel_in_flight": True,
        "queue_order": "freshest" if freshest_first else "fifo",
        "max_running_groups": max_inflight_prompts,
        "publication": "pause",
    }


PRESETS: tuple[Preset, ...] = (
    Preset(
        "verl_v1",
        "verl V1 trainer",
        "verl-project/verl",
        "1dda039",
        "2026-08-22",
        (
            Knob("max_off_policy_threshold", 8, "evict at this age", 1),
            Knob("num_warmup_batches", 1, "batches outstanding beside the one in training", 0),
            Knob("max_off_policy_strategy", "drop", "what the threshold does", choices=("drop", "wait")),
            Knob("parameter_sync_step", 1, "mini-batches (updates) per global step", 1),
        ),
        _verl_v1,
        "max_off_policy_threshold - 1",
        "hard",
        ("polling of 2 s", "the switch mode that lends trainer GPUs", "the wait rule as start order"),
    ),
    Preset(
        "prime_rl",
        "prime-rl",
        "PrimeIntellect-ai/prime-rl",
        "559b447",
        "2026-08-21",
        (
            Knob("max_off_policy_steps", 8, "oldest version trained, in steps", 0),
            Knob("max_inflight", 1024, "rollouts running at once", 1),
        ),
        _prime_rl,
        "max_off_policy_steps",
        "hard",
        ("the adaptive ceiling by KV use", "admission bursts", "pruning of zero-advantage groups"),
    ),
    Preset(
        "open_instruct",
        "open-instruct",
        "allenai/open-instruct",
        "e6c3044",
        "2026-08-22",
        (Knob("async_steps", 8, "batches of prompts outstanding", 1),),
        _open_instruct,
        "async_steps at the dequeue",
        "hard",
        ("packing of a batch",),
    ),
    Preset(
        "miles",
        "miles fully async",
        "radixark/miles",
        "31f1ca9",
        "2026-08-22",
        (
            Knob("buffer_factor", 2.0, "buffer in batches", 0.0),
            Knob("max_weight_staleness", None, "drop above this age; none: never", 0),
            Knob("pause_mode", "retract", "what a publication does", choices=("retract", "in_place")),
            Knob("update_weights_interval", 1, "steps per publication", 1),
        ),
        _miles,
        "max_weight_staleness if set, else none",
        "hard",
        ("a slot freed per sample rather than per group", "recycling instead of dropping"),
    ),
    Preset(
        "slime_fully_async",
        "slime fully async",
        "THUDM/slime",
        "624b824",
        "2026-08-21",
        (Knob("concurrency", None, "groups running and groups buffered; none: two batches", 1),),
        _slime_fully_async,
        "none",
        "none",
        ("the default of 512 per engine", "aborted groups that go back with their tokens"),
    ),
    Preset(
        "trl_async",
        "TRL AsyncGRPO",
        "huggingface/trl",
        "f2cd577",
        "2026-07-24",
        (
            Knob("max_staleness", 4, "oldest age at the dequeue, in publications", 0),
            Knob("queue_maxsize", 1024, "samples in the queue", 1),
            Knob("weight_sync_steps", 1, "steps per publication", 1),
        ),
        _trl_async,
        "max_staleness publications at the dequeue",
        "hard",
        ("rows filled to a token budget (batches hold whole groups here)", "drops of single samples"),
    ),
    Preset(
        "tinker",
        "tinker-cookbook async",
        "thinking-machines-lab/tinker-cookbook",
        "9dfcc3a",
        "2026-08-19",
        (Knob("max_steps_off_policy", 1, "oldest age trained, in steps", 0),),
        _tinker,
        "max_steps_off_policy",
        "hard",
        ("the user sets max_steps_off_policy: 1 is this preset's choice",),
    ),
    Preset(
        "torchforge",
        "torchforge replay buffer",
        "meta-pytorch/torchforge",
        "6e77f0b",
        "2025-11-15",
        (Knob("max_policy_age", 1, "oldest age sampled", 0),),
        _torchforge,
        "max_policy_age",
        "hard",
        ("resampling of used episodes, off by default",),
    ),
    Preset(
        "queue_drop",
        "Drop the oldest of a full queue (Applied Compute's study)",
        "okoge-kaz/miles",
        "31f1ca9",
        "2026-08-22",
        (
            Knob("queue_batches", 2, "capacity of the queue, in batches", 1),
            Knob("concurrent_groups", None, "groups running at once; none: every slot", 1),
        ),
        _queue_drop,
        "none",
        "none",
        ("the commit named is of the system that the study's fork grew from",),
    ),
    Preset(
        "nemo_rl_windowed",
        "NeMo RL single controller, sampler windowed",
        "NVIDIA-NeMo/RL",
        "7ea279a",
        "2026-08-22",
        (
            Knob("max_staleness", 1, "oldest age trained, in steps", 0),
            Knob("max_inflight_prompts", 32, "groups running at once", 1),
            Knob("freshest_first", False, "take the freshest first"),
        ),
        _windowed,
        "max_staleness",
        "hard",
        ("max_buffered_rollouts", "streaming train on part of a batch", "shrinking batches"),
    ),
)
