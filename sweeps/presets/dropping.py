"""Presets of systems that let generation run and drop, replace or repeat what has grown too old.

The bound is hard where the test stands at the dequeue and nothing waits between it and the step; what is
generated and dropped is wasted, and the rollouts that survive are shorter than those that were drawn.
"""

from __future__ import annotations

import math
from typing import Any

from ...kernels.errors import ConfigError
from .ahead import NEMO, NEMO_INFLIGHT, NEMO_LEAVES_OUT
from .base import Alias, Knob, Preset, Workload, limit


def _drop_at_dequeue(largest_lag: int) -> dict[str, Any]:
    return {"stale_check": "dequeue", "max_policy_lag": largest_lag}


def _oldest_publication(publications: int, updates: int) -> int:
    """Return the largest lag in updates of work at most so many publications old."""
    return (publications + 1) * updates - 1


def _verl_v1(
    workload: Workload,
    max_off_policy_threshold: int,
    num_warmup_batches: int,
    max_off_policy_strategy: str,
    parameter_sync_step: int,
    trainer_mode: str,
) -> dict[str, Any]:
    # batch_groups is the batch of a global step: parameter_sync_step mini-batches, one update each.
    colocated = trainer_mode == "colocate_async"
    if not colocated and workload.batch_groups % parameter_sync_step:
        rule = f"must divide batch_groups, which is {workload.batch_groups}, the batch of a global step"
        way_out = "A mini-batch has batch_groups / parameter_sync_step groups."
        raise ConfigError("parameter_sync_step", rule, parameter_sync_step, way_out)
    oldest = max_off_policy_threshold - 1
    waits = max_off_policy_strategy == "wait"
    ahead = min(num_warmup_batches, oldest) if waits else num_warmup_batches
    rules: dict[str, Any] = {
        "limits": limit("started", "trained", (1 + ahead) * workload.batch_groups),
        "publication": "abort",
        "publication_blocks_trainer": True,
        "sync_every_updates": parameter_sync_step,
    }
    if colocated:
        # The global batch is taken whole, and one set of GPUs takes turns.
        rules |= {"updates_per_batch": parameter_sync_step, "generation_while_training": False}
        largest = oldest * parameter_sync_step
    else:
        # Mini-batches are taken one by one. Ages count in global steps, so all of a step keep what its first
        # one keeps.
        rules["batch_groups"] = workload.batch_groups // parameter_sync_step
        largest = _oldest_publication(oldest, parameter_sync_step)
    if waits:
        return rules | {"queue_order": "started"}
    return rules | {"queue_order": "oldest_version"} | _drop_at_dequeue(largest)


def _verl_v1_lag(
    workload: Workload,
    max_off_policy_threshold: int,
    max_off_policy_strategy: str,
    parameter_sync_step: int,
    trainer_mode: str,
    **rest: Any,
) -> int:
    """Return the largest lag in updates; starts that follow each mini-batch may be a publication older."""
    if max_off_policy_strategy == "wait" and trainer_mode == "separate_async":
        return (max_off_policy_threshold + 1) * parameter_sync_step - 2
    return max_off_policy_threshold * parameter_sync_step - 1


def _prime_rl(workload: Workload, max_off_policy_steps: int, max_inflight: int) -> dict[str, Any]:
    return {
        "limits": limit("finished", "published", 2 * workload.batch_groups),
        "max_running_groups": max(1, max_inflight // workload.group_size),
        "cancel_in_flight": True,
        "publication": "pause",
        **_drop_at_dequeue(max_off_policy_steps),
    }


def _open_instruct(workload: Workload, async_steps: int, inflight_updates: bool) -> dict[str, Any]:
    return {
        "limits": limit("started", "popped", async_steps * workload.batch_groups),
        "publication": "pause" if inflight_updates else "drain",
        **_drop_at_dequeue(async_steps),
    }


def _buffered(groups: int, running: int | None) -> dict[str, Any]:
    return {
        "limits": limit("finished", "popped", groups),
        "max_running_groups": running,
        "publication_blocks_trainer": True,
    }


def _miles(
    workload: Workload,
    async_data_buffer_capacity_factor: float,
    max_weight_staleness: int | None,
    async_unused_samples_handler: str,
    pause_generation_mode: str,
    update_weights_interval: int,
    rollout_submission_granularity: str,
) -> dict[str, Any]:
    by_group = rollout_submission_granularity == "group"
    buffered = math.floor(async_data_buffer_capacity_factor * workload.batch_groups)
    rules = {
        **_buffered(buffered, workload.batch_groups if by_group else None),
        "publication": "abort" if pause_generation_mode == "retract" else "pause",
        "sync_every_updates": update_weights_interval,
    }
    if not by_group:
        # A trajectory that ends frees its own place among those of one batch.
        places = workload.batch_groups * workload.group_size
        rules["rollout_workers"] = min(workload.rollout_workers, places)
    if max_weight_staleness is None:
        return rules
    action = "requeue" if async_unused_samples_handler == "retry" else "drop"
    oldest = _oldest_publication(max_weight_staleness, update_weights_interval)
    return rules | _drop_at_dequeue(oldest) | {"stale_action": action}


def _slime_fully_async(workload: Workload, concurrency: int | None) -> dict[str, Any]:
    groups = concurrency or 2 * workload.batch_groups
    return {**_buffered(groups, groups), "publication": "abort"}


def _trl_async(
    workload: Workload,
    max_staleness: int,
    queue_maxsize: int,
    weight_sync_steps: int,
    max_inflight_tasks: int,
) -> dict[str, Any]:
    if max_inflight_tasks < 0:
        # At max_staleness 0 the system's own rule allows nothing in flight and waits for ever; so does this.
        running = max_staleness * workload.batch_groups
    else:
        running = max_inflight_tasks // workload.group_size
    return {
        **_buffered(queue_maxsize // workload.group_size, running),
        "publication": "pause",
        "sync_every_updates": weight_sync_steps,
        **_drop_at_dequeue(_oldest_publication(max_staleness, weight_sync_steps)),
    }


def _tinker(
    workload: Workload, max_steps_off_policy: int, sampling_steps_ahead: int | None, stale_groups: str
) -> dict[str, Any]:
    rules = {"max_running_groups": workload.batch_groups, "publication": "background"}
    if stale_groups == "requeue":
        if sampling_steps_ahead is not None:
            rule, way_out = "belongs to stale_groups 'pace'", "Leave one of the two out."
            raise ConfigError("sampling_steps_ahead", rule, sampling_steps_ahead, way_out)
        return {**rules, "stale_action": "requeue", **_drop_at_dequeue(max_steps_off_policy)}
    ahead = min(1, max_steps_off_policy) if sampling_steps_ahead is None else sampling_steps_ahead
    if ahead > max_steps_off_policy:
        rule = f"must be at most max_steps_off_policy, which is {max_steps_off_policy}"
        raise ConfigError("sampling_steps_ahead", rule, ahead, "The system refuses it too.")
    return {
        **rules,
        "limits": limit("started", "published", (ahead + 1) * workload.batch_groups),
        "queue_order": "oldest_version",
    }


def _torchforge(workload: Workload, max_policy_age: int) -> dict[str, Any]:
    return {"queue_order": "random", "publication": "drain", **_drop_at_dequeue(max_policy_age)}


def _queue_drop(workload: Workload, fully_async_queue_factor: int) -> dict[str, Any]:
    return {
        "queue_overflow": "drop_oldest",
        "max_queue_groups": fully_async_queue_factor * workload.batch_groups,
        "publication": "pause",
        "publication_blocks_trainer": True,
    }


def _windowed(
    workload: Workload, max_staleness_versions: int, max_inflight_prompts: int, sample_freshest_first: bool
) -> dict[str, Any]:
    return {
        "cancel_in_flight": True,
        "queue_order": "freshest" if sample_freshest_first else "fifo",
        "max_running_groups": max_inflight_prompts,
        "publication": "pause",
        **_drop_at_dequeue(max_staleness_versions),
    }


PRESETS: tuple[Preset, ...] = (
    Preset(
        "verl_v1",
        "verl V1 trainer, separate and colocated async",
        "verl-project/verl",
        "1dda039",
        "2026-08-22",
        (
            Knob("max_off_policy_threshold", 8, "global steps a group may span; 1 is on-policy", 1),
            Knob("num_warmup_batches", 1, "batches outstanding beside the one in training", 0),
            Knob("max_off_policy_strategy", "drop", "what the threshold does", choices=("drop", "wait")),
            Knob("parameter_sync_step", 1, "mini-batches (updates) per global step", 1),
            Knob(
                "trainer_mode",
                "separate_async",
                "mini-batches streamed to a trainer of its own, or one set of GPUs that takes turns",
                choices=("separate_async", "colocate_async"),
            ),
        ),
        _verl_v1,
        "max_off_policy_threshold - 1 global steps",
        _verl_v1_lag,
        "hard",
        (
            "polling of 2 s",
            "the switch mode that lends trainer GPUs to generation",
            "wait: here in start order with at most threshold - 1 batches ahead, so it waits sooner than "
            "the system, which looks at unfinished prompts of that age only",
            "a group's age counts from its first start here, from its submission there",
            "the prompts of a global step come at its begin there, with each mini-batch trained here",
        ),
        needs=("batch_groups",),
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
        "max_off_policy_steps versions",
        lambda workload, max_off_policy_steps, max_inflight: max_off_policy_steps,
        "hard",
        (
            "the ceiling that follows KV use, and admission bursts",
            "pruning of zero-advantage groups (set filter_probability)",
            "polling of 1 s",
            "batches counted in tokens",
        ),
    ),
    Preset(
        "open_instruct",
        "open-instruct",
        "allenai/open-instruct",
        "e6c3044",
        "2026-08-22",
        (
            Knob("async_steps", 8, "batches of prompts outstanding, and oldest step trained", 1),
            Knob("inflight_updates", True, "publish without a drain"),
        ),
        _open_instruct,
        "async_steps versions",
        lambda workload, async_steps, inflight_updates: async_steps,
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
            Knob("async_data_buffer_capacity_factor", 2.0, "buffer of finished groups, in batches", 0.0),
            Knob("max_weight_staleness", None, "oldest age trained, in publications; none: any", 0),
            Knob(
                "async_unused_samples_handler",
                "drop",
                "what happens to a stale group",
                choices=("drop", "retry"),
            ),
            Knob(
                "pause_generation_mode",
                "retract",
                "recompute the KV cache after a publication, or keep it",
                choices=("retract", "in_place"),
            ),
            Knob("update_weights_interval", 1, "steps per publication", 1),
            Knob(
                "rollout_submission_granularity",
                "sample",
                "what frees a place in flight",
                choices=("sample", "group"),
            ),
        ),
        _miles,
        "max_weight_staleness publications if set, else none",
        lambda workload, max_weight_staleness, update_weights_interval, **rest: (
            None
            if max_weight_staleness is None
            else _oldest_publication(max_weight_staleness, update_weights_interval)
        ),
        "hard",
        ("async_max_concurrent_samples (set rollout_workers)", "evaluation on the rollout engines"),
        aliases=(
            Alias(
                "slime_fully_async",
                "concurrency = one batch, async_data_buffer_capacity_factor = 1, granularity group",
            ),
            Alias(
                "trl_async",
                "the same staleness and interval, one batch in flight, as large a buffer, in_place, "
                "granularity group",
            ),
        ),
        needs=("rollout_workers",),
    ),
    Preset(
        "slime_fully_async",
        "slime fully async",
        "THUDM/slime",
        "624b824",
        "2026-08-21",
        (Knob("concurrency", None, "groups running, and groups queued; none: two batches", 1),),
        _slime_fully_async,
        "none",
        lambda workload, concurrency: None,
        "none",
        (
            "its default concurrency, 512 for each engine, which depends on the engines",
            "aborted groups that go back with their tokens",
            "polling of 1 s",
        ),
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
            Knob("max_inflight_tasks", -1, "completions running; -1: max_staleness batches", -1),
        ),
        _trl_async,
        "max_staleness publications at the dequeue",
        lambda workload, max_staleness, weight_sync_steps, **rest: _oldest_publication(
            max_staleness, weight_sync_steps
        ),
        "hard",
        (
            "rows filled to a token budget: batches hold whole groups here",
            "drops of single samples",
            "the 16 groups of the scoring queue",
            "what waits in open rows after the test at the dequeue",
            "max_staleness 0 stalls, as there: nothing may be in flight; set max_inflight_tasks",
        ),
    ),
    Preset(
        "tinker",
        "tinker-cookbook async",
        "thinking-machines-lab/tinker-cookbook",
        "0324fc1",
        "2026-07-13",
        (
            Knob("max_steps_off_policy", 1, "oldest age trained, in steps", 0),
            Knob("sampling_steps_ahead", None, "batches that may start ahead; none: 1 at most", 0),
            Knob(
                "stale_groups",
                "pace",
                "hold starts back, or (the rule before) repeat what is too old",
                choices=("pace", "requeue"),
            ),
        ),
        _tinker,
        "max_steps_off_policy versions",
        lambda workload, max_steps_off_policy, **rest: max_steps_off_policy,
        "typical",
        (
            "0324fc1 and the date are of pull request 822, which calls sampling_steps_ahead pipeline_depth; "
            "the main branch (9dfcc3a, 2026-08-19) had stale_groups = requeue",
            "the trainer waits for the new sampler before its next step (set publication_blocks_trainer)",
            "pace: the wait, before a step, for rollouts that reach their largest age in it: a straggler may "
            "pass the bound here; with requeue the bound is hard",
            "it has no default for max_steps_off_policy: 1 is this preset's choice",
            "a repeated prompt keeps its lengths here (set redraw_on_requeue)",
            "batches trained while they still fill (StreamMinibatchConfig)",
        ),
    ),
    Preset(
        "torchforge",
        "torchforge replay buffer",
        "meta-pytorch/torchforge",
        "6e77f0b",
        "2025-11-15",
        (Knob("max_policy_age", 1, "oldest age sampled, in steps", 0),),
        _torchforge,
        "max_policy_age versions",
        lambda workload, max_policy_age: max_policy_age,
        "hard",
        ("episodes sampled one by one: groups here", "resampling of used episodes, off by default"),
    ),
    Preset(
        "queue_drop",
        "Drop the oldest of a full queue (Applied Compute's study)",
        "okoge-kaz/miles (queue-drop of the study of 2026-07-03)",
        "0b38c79",
        "2026-07-03",
        (Knob("fully_async_queue_factor", 2, "capacity of the queue, in batches", 1),),
        _queue_drop,
        "none",
        lambda workload, fully_async_queue_factor: None,
        "none",
        ("its cap on running groups: every slot may be used here",),
        aliases=(Alias("pipelinerl", "without max_lag, a buffer of fully_async_queue_factor batches"),),
    ),
    Preset(
        "nemo_rl_windowed",
        "NeMo RL single controller, sampler windowed",
        *NEMO,
        (
            Knob("max_staleness_versions", 1, "oldest age trained, in versions", 0),
            NEMO_INFLIGHT,
            Knob("sample_freshest_first", False, "take the freshest first"),
        ),
        _windowed,
        "max_staleness_versions versions",
        lambda workload, max_staleness_versions, **rest: max_staleness_versions,
        "hard",
        NEMO_LEAVES_OUT,
    ),
)
