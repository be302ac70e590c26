"""Presets of real systems: their lags in a case made by hand, their knobs, their bounds, their aliases."""

from __future__ import annotations

import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagsweep.errors import ConfigError
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.config.engine import Engine
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import (
    all_presets,
    find_preset,
    preset_bound_kind,
    preset_config,
    preset_lag_bound,
    preset_settings,
)
from lagsweep.sweeps.runs.simulate import simulate_pipeline

# Two groups of two make a batch: four rollouts of exactly 10 s. A step takes 10 s, a publication 1 s, and
# four slots generate one batch at a time, eight two of them.
EVEN = {
    "batch_groups": 2,
    "group_size": 2,
    "rollout_workers": 4,
    "response_length": LengthLaw.fixed(100),
    "decode_tokens_per_second": 10.0,
    "rollout_overhead_seconds": 0.0,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 40.0,
    "sync_seconds": 1.0,
    "duration_seconds": 400.0,
    "stop_after_updates": 10,
}
TWO_AT_ONCE = {"rollout_workers": 8}
QUICK = {"rollout_workers": 8, "decode_tokens_per_second": 40.0}  # a batch in 2.5 s, a quarter of a step

# (preset, its knobs and what else differs from EVEN, largest lag of batches 0, 1, …, why)
SEQUENCES = [
    ("synchronous", {}, [0, 0, 0, 0], "batch j starts under the weights of j batches"),
    ("synchronous_colocated", {}, [0, 0, 0, 0], "the same on all GPUs"),
    ("trl_grpo", {}, [0, 0, 0, 0], "one update per generation"),
    (
        "trl_grpo",
        {"steps_per_generation": 2, "vllm_mode": "server"},
        [1, 1, 1, 1],
        "the second of two updates",
    ),
    ("verl_one_step_off", {}, [0, 1, 1, 1, 1], "batch 1 starts when batch 0 is popped, at version 0"),
    ("slime_train_async", {}, [0, 1, 1, 1, 1], "the same rule"),
    (
        "slime_train_async",
        {"update_weights_interval": 2},
        [0, 1, 2, 1, 2, 1, 2],
        "batch 2 starts at the pop of batch 1, and version 1 is never published; so every second batch",
    ),
    ("openrlhf", TWO_AT_ONCE, [0, 1, 1, 1, 1], "the slot is free from the pop of the batch before"),
    (
        "openrlhf",
        {"async_queue_size": 2, **TWO_AT_ONCE},
        [0, 1, 1, 1, 1],
        "one batch at a time, as slow as the trainer: the second slot is never needed",
    ),
    (
        "openrlhf",
        {"async_queue_size": 2, **QUICK},
        [0, 1, 2, 2, 2],
        "generation keeps up: batch j starts at the pop of batch j - 2",
    ),
    ("nemo_rl_legacy", {}, [0, 1, 1, 1, 1], "targets v and v + 1"),
    (
        "nemo_rl_legacy",
        {"max_trajectory_age_steps": 2, **TWO_AT_ONCE},
        [0, 1, 2, 2, 2],
        "targets up to v + 2",
    ),
    ("nemo_rl_in_order", {}, [0, 1, 1, 1, 1], "batch i from version i - 1 on"),
    ("nemo_rl_in_order", {"max_lookahead_versions": 0}, [0, 0, 0, 0], "batch i from version i on"),
    (
        "nemo_rl_in_order",
        {"max_lookahead_versions": 2, **QUICK},
        [0, 1, 2, 2, 2],
        "batch i from version i - 2 on",
    ),
    ("nemo_rl_ready_first", {}, [0, 1, 1, 1, 1], "the same gate"),
    ("nemo_rl_weight_fifo", {}, [0, 1, 1, 1, 1], "the same gate"),
    ("nemo_rl_windowed", {}, [0, 1, 1, 1, 1], "no gate, but four slots make one batch per step"),
    ("areal", {}, [0, 0, 0, 0], "η = 0: B groups per version"),
    ("areal", {"max_head_offpolicyness": 1}, [0, 1, 1, 1, 1], "(η + v + 1) B groups, one batch running"),
    ("areal", {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 4, **QUICK}, [0, 1, 2, 2, 2], "η = 2"),
    ("skyrl", {"max_staleness_steps": 0}, [0, 0, 0, 0], "S = 0"),
    ("skyrl", {"max_staleness_steps": 1}, [0, 1, 1, 1, 1], "as AReaL with η = 1"),
    ("skyrl", QUICK, [0, 1, 2, 3, 4, 4, 4], "S = 4, as generation keeps up"),
    (
        "verl_fully_async",
        {},
        [0, 1, 2, 3, 0, 1, 2, 3],
        "int(1.1 × 4 × 2) = 8 groups: four batches per window",
    ),
    (
        "verl_fully_async",
        {"staleness_threshold": 0.5},
        [0, 1, 2, 3, 4, 1, 2, 3, 4],
        "12 groups: the fifth batch runs when the publication comes, the sixth starts after it",
    ),
    (
        "verl_fully_async",
        {"require_batches": 2, "trigger_parameter_sync_step": 1},
        [1, 1, 1, 1],
        "on-policy but for the second mini-batch of a step",
    ),
    ("rllm", {}, [0, 0, 0, 0], "s = 0, K = 1"),
    ("rllm", {"trigger_parameter_sync_step": 2}, [0, 1, 0, 1, 0, 1], "two batches per window"),
    ("rllm", {"staleness_threshold": 1}, [0, 1, 1, 1, 1], "one batch ahead"),
    ("pipelinerl", {"max_lag": 0}, [0, 0, 0, 0], "one batch of samples per version"),
    ("pipelinerl", {"max_lag": 4}, [0, 1, 1, 1, 1], "four samples, a batch, ahead"),
    ("pipelinerl", {}, [0, 1, 1, 1, 1], "no limit, but four slots make one batch per step"),
    ("roll", {}, [0, 0, 0, 0], "α = 0"),
    ("roll", {"async_generation_ratio": 1}, [0, 1, 1, 1, 1], "a batch ahead, in start order"),
    (
        "roll",
        {"async_generation_ratio": 0.5, "rollout_workers": 6},
        [0, 1, 1, 1, 1],
        "ceil(0.5 × 2) = 1 group ahead, so half of each batch is of the version before",
    ),
    ("rlinf", {}, [0, 1, 1, 1, 1], "(S + v + 1) B"),
    ("rlinf", {"staleness_threshold": 0}, [0, 0, 0, 0], "S = 0"),
    ("verl_v1", {}, [0, 1, 1, 1, 1], "a warm-up batch beside the one in training"),
    ("verl_v1", {"num_warmup_batches": 0}, [0, 0, 0, 0], "nothing is submitted before the batch is trained"),
    ("verl_v1", {"num_warmup_batches": 2, **QUICK}, [0, 1, 2, 2, 2], "two warm-up batches"),
    ("verl_v1", {"max_off_policy_strategy": "wait"}, [0, 1, 1, 1, 1], "the same where nothing straggles"),
    (
        "verl_v1",
        {"max_off_policy_strategy": "wait", "max_off_policy_threshold": 2, "num_warmup_batches": 4, **QUICK},
        [0, 1, 1, 1, 1],
        "a threshold of 2 leaves one batch ahead",
    ),
    ("prime_rl", {}, [0, 1, 1, 1, 1], "the lead of 1 is one batch; four slots fill it"),
    (
        "prime_rl",
        QUICK,
        [0, 1, 2, 3, 1, 2, 3],
        "the gate sees what is finished: four batches land under version 0, and the next start under 3",
    ),
    ("open_instruct", {"async_steps": 1}, [0, 1, 1, 1, 1], "a batch is refilled from the pop on"),
    (
        "open_instruct",
        {"async_steps": 2, **TWO_AT_ONCE},
        [0, 1, 2, 2, 2],
        "two batches outstanding at each pop",
    ),
    ("miles", TWO_AT_ONCE, [0, 1, 1, 1, 1], "one batch of trajectories in flight"),
    ("slime_fully_async", {"concurrency": 2, **TWO_AT_ONCE}, [0, 1, 1, 1, 1], "two groups run, two wait"),
    ("trl_async", {"max_staleness": 1, **TWO_AT_ONCE}, [0, 1, 1, 1, 1], "one batch in flight"),
    (
        "trl_async",
        {"max_staleness": 1, "weight_sync_steps": 2},
        [0, 1, 2, 1, 2, 1, 2],
        "one publication old is two updates and up to one more; batch 2 starts before the first one",
    ),
    ("tinker", {}, [0, 1, 1, 1, 1], "one batch ahead of the weights"),
    (
        "tinker",
        {"stale_groups": "requeue"},
        [0, 1, 1, 1, 1],
        "batch 2 starts at 20 s, a second before version 1 is out, and is repeated at 30 s; and so on",
    ),
    ("torchforge", {}, [0, 1, 1, 1, 1], "one batch per step, drained before each publication"),
    ("queue_drop", {}, [0, 1, 1, 1, 1], "one batch per step, nothing to drop"),
]


def lags(name, **fields):
    run = simulate_pipeline(preset_config(name, **{**EVEN, **fields}))
    return [batch.max_lag for batch in run.batches]


@pytest.mark.parametrize(("name", "fields", "expected", "why"), SEQUENCES, ids=lambda value: str(value)[:40])
def test_lags_in_the_even_case_are_those_made_by_hand(name, fields, expected, why):
    found = lags(name, **fields)

    assert found[: len(expected)] == expected, why
    bound = preset_lag_bound(name, {**EVEN, **fields})
    assert bound is None or max(found) <= bound


def test_every_preset_is_in_the_table_of_sequences():
    assert {name for name, *_ in SEQUENCES} == set(all_presets())


def test_half_a_batch_is_fresh_at_a_ratio_of_one_half():
    run = simulate_pipeline(
        preset_config("roll", **{**EVEN, "async_generation_ratio": 0.5, "rollout_workers": 6})
    )

    assert [batch.mean_lag for batch in run.batches][:4] == [0.0, 0.5, 0.5, 0.5]


def test_the_off_by_one_table():
    # Equal service times, order of start, admission by batch, a blocked trainer.
    semaphore = {"limits": [{"count": "started", "done": "popped", "groups": 4}], "admit": "batch"}
    common = {"queue_order": "started", "publication": "drain", "publication_blocks_trainer": True}
    plain = {**EVEN, "batch_tokens": None, "max_queue_tokens": None, "stale_check": "never"}
    at_once = PipelineConfig(**plain | semaphore | common | TWO_AT_ONCE)
    one_by_one = at_once.replace(one_batch_at_a_time=True)

    assert lags("verl_one_step_off")[:4] == [0, 1, 1, 1]
    assert [batch.max_lag for batch in simulate_pipeline(at_once).batches][:5] == [0, 1, 2, 2, 2]
    assert [batch.max_lag for batch in simulate_pipeline(one_by_one).batches][:5] == [0, 1, 1, 1, 1]
    assert lags("nemo_rl_legacy", max_trajectory_age_steps=1)[:4] == [0, 1, 1, 1]
    assert preset_lag_bound("verl_v1", {"max_off_policy_threshold": 8}) == 7
    areal = simulate_pipeline(
        preset_config("areal", **EVEN, max_head_offpolicyness=3, max_concurrent_rollouts=8)
    )
    skyrl = simulate_pipeline(preset_config("skyrl", **EVEN, max_staleness_steps=3))
    assert areal.timeline == skyrl.timeline
    assert areal.batches == skyrl.batches


# --- what the ledger says ---------------------------------------------------------------------------------

B, G = 3, 4
LEDGERS = {
    ("synchronous", ()): ("started", "published", B),
    ("synchronous_colocated", ()): ("started", "published", B),
    ("trl_grpo", ()): ("started", "published", B),
    ("verl_one_step_off", ()): ("started", "popped", B),
    ("slime_train_async", ()): ("started", "popped", B),
    ("openrlhf", (("async_queue_size", 2),)): ("started", "popped", 2 * B),
    ("nemo_rl_legacy", (("max_trajectory_age_steps", 2),)): ("started", "published", 3 * B),
    ("nemo_rl_in_order", (("max_lookahead_versions", 2),)): ("started", "published", 3 * B),
    ("nemo_rl_ready_first", (("max_staleness_versions", 2),)): ("started", "published", 3 * B),
    ("nemo_rl_weight_fifo", (("max_staleness_versions", 2),)): ("started", "published", 3 * B),
    ("areal", (("max_head_offpolicyness", 2),)): ("started", "published", 3 * B),
    ("skyrl", (("max_staleness_steps", 2),)): ("started", "published", 3 * B),
    ("rlinf", (("staleness_threshold", 2),)): ("started", "published", 3 * B),
    ("roll", (("async_generation_ratio", 0.5),)): ("started", "published", B + 2),
    ("verl_fully_async", (("staleness_threshold", 0.5),)): ("started", "published", 18),
    ("rllm", (("staleness_threshold", 0.5),)): ("started", "published", 4),
    ("pipelinerl", (("max_lag", 9),)): ("started", "published", B + 3),
    ("verl_v1", (("num_warmup_batches", 2),)): ("started", "trained", 3 * B),
    ("tinker", (("max_steps_off_policy", 2), ("sampling_steps_ahead", 2))): ("started", "published", 3 * B),
    ("prime_rl", ()): ("finished", "published", 2 * B),
    ("open_instruct", (("async_steps", 2),)): ("started", "popped", 2 * B),
    ("miles", (("async_data_buffer_capacity_factor", 1.5),)): ("finished", "popped", 4),
    ("slime_fully_async", (("concurrency", 5),)): ("finished", "popped", 5),
    ("trl_async", (("queue_maxsize", 50),)): ("finished", "popped", 12),
}
WITHOUT_LEDGER = {"torchforge", "queue_drop", "nemo_rl_windowed"}


@pytest.mark.parametrize(("key", "line"), LEDGERS.items(), ids=lambda value: str(value)[:30])
def test_the_ledger_has_the_line_of_the_system(key, line):
    name, knobs = key
    config = preset_config(name, batch_groups=B, group_size=G, **dict(knobs))

    assert [(limit.count, limit.done, limit.groups) for limit in config.limits] == [line]


def test_the_other_systems_have_no_ledger():
    assert {name for name, _ in LEDGERS} | WITHOUT_LEDGER == set(all_presets())
    assert all(preset_config(name).limits == () for name in WITHOUT_LEDGER)


# --- knobs ------------------------------------------------------------------------------------------------

# A workload in which everything matters: a long tail, more slots than one batch, groups that straggle.
UNEVEN = {
    "batch_groups": 4,
    "group_size": 4,
    "rollout_workers": 64,
    "response_length": LengthLaw.lognormal(median=200, sigma=1.2, minimum=10, maximum=8000),
    "decode_tokens_per_second": 20.0,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 700.0,
    "sync_seconds": 2.0,
    "duration_seconds": 40_000.0,
    "stop_after_updates": 60,
}
SCARCE = {"rollout_workers": 4, "train_tokens_per_second": 7000.0}
SLOW_TRAINER = {"train_tokens_per_second": 250.0}
ABORTS = {"reprefill_tokens_per_second": 500.0}
# (preset, knob): another value than the default, and beside what it matters.
KNOBS = {
    ("areal", "max_head_offpolicyness"): (2, {"max_concurrent_rollouts": 16}),
    ("areal", "max_concurrent_rollouts"): (2, {"max_head_offpolicyness": 4}),
    ("skyrl", "max_staleness_steps"): (1, {}),
    ("skyrl", "num_parallel_generation_workers"): (4, {}),
    ("verl_fully_async", "staleness_threshold"): (1.0, {}),
    ("verl_fully_async", "trigger_parameter_sync_step"): (2, {}),
    ("verl_fully_async", "require_batches"): (2, {}),
    ("verl_fully_async", "partial_rollout"): (False, {"staleness_threshold": 1.0}),
    ("verl_fully_async", "concurrent_samples_per_replica"): (2, {"replicas": 1, "staleness_threshold": 1.0}),
    ("verl_fully_async", "replicas"): (1, {"concurrent_samples_per_replica": 3}),
    ("rllm", "staleness_threshold"): (1.0, {}),
    ("rllm", "trigger_parameter_sync_step"): (3, {}),
    ("rllm", "partial_rollout"): (False, {"staleness_threshold": 1.0}),
    ("pipelinerl", "max_lag"): (16, {}),
    ("pipelinerl", "pop_old_data"): (False, SLOW_TRAINER),
    ("pipelinerl", "ring_buffer"): (32, SLOW_TRAINER),
    ("pipelinerl", "raw_queue"): (2, SLOW_TRAINER),
    ("pipelinerl", "chunk"): (1, SLOW_TRAINER),
    ("pipelinerl", "llm_max_rollouts"): (16, {"engines": 1}),
    ("pipelinerl", "engines"): (1, {"llm_max_rollouts": 16}),
    ("roll", "async_generation_ratio"): (0.5, {}),
    ("rlinf", "staleness_threshold"): (2, {}),
    ("nemo_rl_ready_first", "max_staleness_versions"): (2, {}),
    ("nemo_rl_ready_first", "max_inflight_prompts"): (2, {}),
    ("nemo_rl_weight_fifo", "max_staleness_versions"): (2, {}),
    ("nemo_rl_weight_fifo", "max_inflight_prompts"): (2, {}),
    ("nemo_rl_in_order", "max_lookahead_versions"): (2, {}),
    ("nemo_rl_in_order", "max_inflight_prompts"): (2, {}),
    ("nemo_rl_windowed", "max_staleness_versions"): (3, {}),
    ("nemo_rl_windowed", "max_inflight_prompts"): (4, {}),
    ("nemo_rl_windowed", "sample_freshest_first"): (True, {"max_staleness_versions": 4, **SLOW_TRAINER}),
    ("nemo_rl_legacy", "max_trajectory_age_steps"): (2, {}),
    ("nemo_rl_legacy", "in_flight_weight_updates"): (True, {}),
    # Only with a cost of the re-prefill does it matter whether the KV cache is dropped.
    ("nemo_rl_legacy", "recompute_kv_cache_after_weight_updates"): (True, {"in_flight_weight_updates": True}),
    ("synchronous_colocated", "rollout_share"): (0.25, {}),
    ("synchronous_colocated", "training_scaling"): (0.2, {}),
    ("trl_grpo", "steps_per_generation"): (2, {}),
    ("trl_grpo", "num_iterations"): (2, {}),
    ("trl_grpo", "gradient_accumulation_steps"): (2, {"steps_per_generation": 4}),
    ("trl_grpo", "vllm_mode"): ("server", {}),
    ("trl_grpo", "rollout_share"): (0.25, {}),
    ("slime_train_async", "update_weights_interval"): (2, {}),
    ("openrlhf", "async_queue_size"): (2, SLOW_TRAINER),
    ("openrlhf", "partial_rollout_enable"): (True, {}),
    ("verl_v1", "max_off_policy_threshold"): (2, {"num_warmup_batches": 3}),
    ("verl_v1", "num_warmup_batches"): (3, {}),
    ("verl_v1", "max_off_policy_strategy"): ("wait", {"num_warmup_batches": 3}),
    ("verl_v1", "parameter_sync_step"): (2, {}),
    ("verl_v1", "trainer_mode"): ("colocate_async", {}),
    ("prime_rl", "max_off_policy_steps"): (1, {}),
    ("prime_rl", "max_inflight"): (16, {}),
    ("open_instruct", "async_steps"): (2, {}),
    ("open_instruct", "inflight_updates"): (False, {}),
    ("miles", "async_data_buffer_capacity_factor"): (0.5, SLOW_TRAINER),
    ("miles", "max_weight_staleness"): (0, {}),
    ("miles", "async_unused_samples_handler"): ("retry", {"max_weight_staleness": 0}),
    ("miles", "pause_generation_mode"): ("in_place", ABORTS),
    ("miles", "update_weights_interval"): (2, {}),
    ("miles", "rollout_submission_granularity"): ("group", {}),
    ("slime_fully_async", "concurrency"): (4, {}),
    ("trl_async", "max_staleness"): (1, {}),
    ("trl_async", "queue_maxsize"): (16, SLOW_TRAINER),
    ("trl_async", "weight_sync_steps"): (2, {}),
    ("trl_async", "max_inflight_tasks"): (8, {}),
    ("tinker", "max_steps_off_policy"): (3, {"stale_groups": "requeue"}),
    ("tinker", "sampling_steps_ahead"): (0, {}),
    ("tinker", "stale_groups"): ("requeue", {}),
    ("torchforge", "max_policy_age"): (3, {}),
    ("queue_drop", "fully_async_queue_factor"): (1, SLOW_TRAINER),
}


def metrics_of(config):
    return {**simulate_pipeline(config).metrics}


@pytest.mark.parametrize(("preset", "knob"), KNOBS, ids=lambda value: value)
def test_the_knob_changes_the_run(preset, knob):
    value, beside = KNOBS[preset, knob]
    default = preset_config(preset, **{**UNEVEN, **beside})
    if knob in ("pause_generation_mode", "recompute_kv_cache_after_weight_updates"):
        # A cost of the re-prefill belongs to one of the two sides alone.
        workload = {key: field for key, field in {**UNEVEN, **beside}.items() if key not in ABORTS}
        aborts, pauses = sorted(
            (preset_config(preset, **workload), preset_config(preset, **workload, **{knob: value})),
            key=lambda config: config.publication,
        )
        assert (aborts.publication, pauses.publication) == ("abort", "pause")
        assert metrics_of(aborts.replace(**ABORTS)) != metrics_of(pauses)
        return
    changed = preset_config(preset, **{**UNEVEN, **beside, knob: value})

    assert find_preset(preset).checked_knobs({knob: value})[knob] == value
    assert metrics_of(changed) != metrics_of(default)


def test_every_knob_is_in_the_table():
    assert set(KNOBS) == {
        (preset.name, knob.name) for preset in all_presets().values() for knob in preset.knobs
    }


@pytest.mark.parametrize("name", all_presets())
def test_a_preset_at_its_defaults_trains(name):
    run = simulate_pipeline(preset_config(name, **UNEVEN))

    assert run.final_version == 60
    assert not run.stalled


def test_trl_at_staleness_0_stalls_as_the_system_does_and_a_cap_of_its_own_helps():
    stalled = simulate_pipeline(preset_config("trl_async", **UNEVEN, max_staleness=0))
    helped = simulate_pipeline(preset_config("trl_async", **UNEVEN, max_staleness=0, max_inflight_tasks=16))

    assert stalled.stalled
    assert stalled.generated_rollouts == 0
    assert helped.final_version == 60
    assert helped.max_lag_observed == 0


# --- bounds -----------------------------------------------------------------------------------------------

BOUND_KNOBS = {
    "slime_train_async": {"update_weights_interval": [1, 3]},
    "openrlhf": {"async_queue_size": [1, 3], "partial_rollout_enable": [False, True]},
    "nemo_rl_legacy": {"max_trajectory_age_steps": [1, 3], "in_flight_weight_updates": [False, True]},
    "nemo_rl_in_order": {"max_lookahead_versions": [0, 1, 3]},
    "nemo_rl_weight_fifo": {"max_staleness_versions": [0, 1, 3]},
    "nemo_rl_windowed": {"max_staleness_versions": [0, 1, 3], "sample_freshest_first": [False, True]},
    "roll": {"async_generation_ratio": [0.0, 0.5, 1.0, 2.5]},
    "rlinf": {"staleness_threshold": [0, 1, 3]},
    "verl_v1": {
        "max_off_policy_threshold": [1, 3, 8],
        "num_warmup_batches": [0, 1, 4],
        "max_off_policy_strategy": ["drop", "wait"],
        "parameter_sync_step": [1, 2],
        "trainer_mode": ["separate_async", "colocate_async"],
    },
    "prime_rl": {"max_off_policy_steps": [0, 1, 8]},
    "open_instruct": {"async_steps": [1, 4]},
    "miles": {"max_weight_staleness": [0, 2], "update_weights_interval": [1, 2]},
    "trl_async": {"max_staleness": [1, 4], "weight_sync_steps": [1, 2]},
    "tinker": {"max_steps_off_policy": [0, 1, 3], "stale_groups": ["requeue"]},
    "torchforge": {"max_policy_age": [0, 2]},
    "trl_grpo": {"steps_per_generation": [1, 2], "num_iterations": [1, 2]},
    "synchronous": {},
    "synchronous_colocated": {},
    "verl_one_step_off": {},
}


@st.composite
def hard_presets(draw):
    name = draw(st.sampled_from(sorted(BOUND_KNOBS)))
    knobs = {knob: draw(st.sampled_from(values)) for knob, values in BOUND_KNOBS[name].items()}
    sigma = draw(st.sampled_from([0.3, 1.0, 2.0]))
    groups = draw(st.integers(4, 6))
    workload = {
        "batch_groups": groups - groups % knobs.get("parameter_sync_step", 1),
        "group_size": draw(st.integers(1, 4)),
        "rollout_workers": draw(st.integers(1, 48)),
        "response_length": LengthLaw.lognormal(median=100, sigma=sigma, minimum=1, maximum=20_000),
        "decode_tokens_per_second": draw(st.sampled_from([5.0, 50.0])),
        "train_tokens_per_second": draw(st.sampled_from([100.0, 1000.0, 10_000.0])),
        "train_overhead_seconds": 0.0,
        "sync_seconds": draw(st.sampled_from([0.0, 3.0])),
        "filter_probability": draw(st.sampled_from([0.0, 0.3])),
        "prompt_sigma": draw(st.sampled_from([0.0, 0.8])),
        "duration_seconds": 3000.0,
        "stop_after_updates": 40,
        "seed": draw(st.integers(0, 2**32)),
    }
    return name, {**workload, **knobs}


def test_hard_presets_are_those_that_the_property_test_draws():
    hard = {name for name, preset in all_presets().items() if preset.bound_kind in ("hard", "exact")}

    # tinker's bound was hard by the rule before, which is the one that is drawn.
    assert hard | {"tinker"} == set(BOUND_KNOBS)


@given(hard_presets())
def test_a_hard_bound_holds_for_any_lengths(drawn):
    name, fields = drawn
    run = simulate_pipeline(preset_config(name, **fields))

    assert run.max_lag_observed <= preset_lag_bound(name, fields)


TYPICAL = {
    "areal": {"max_head_offpolicyness": 1, "max_concurrent_rollouts": 8},
    "skyrl": {"max_staleness_steps": 1},
    "verl_fully_async": {"trigger_parameter_sync_step": 1, "staleness_threshold": 1.0},
    "rllm": {"staleness_threshold": 1.0},
    "pipelinerl": {"max_lag": 16},
    "nemo_rl_ready_first": {},
    "tinker": {},
}


@pytest.mark.parametrize("name", TYPICAL)
def test_a_straggler_passes_a_typical_bound_and_equal_lengths_do_not(name):
    knobs = TYPICAL[name]
    tail = simulate_pipeline(preset_config(name, **{**UNEVEN, **knobs}))
    even = {**UNEVEN, **knobs, "response_length": LengthLaw.fixed(200), "rollout_overhead_seconds": 0.0}
    level = simulate_pipeline(preset_config(name, **even))

    assert preset_lag_bound(name, {**UNEVEN, **knobs}) == 1
    assert preset_bound_kind(name, {**UNEVEN, **knobs}) == "typical"
    assert tail.max_lag_observed > 1
    assert level.max_lag_observed == 1


def test_typical_presets_are_those_that_a_straggler_is_shown_to_pass():
    assert set(TYPICAL) == {name for name, preset in all_presets().items() if preset.bound_kind == "typical"}


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("areal", {"max_concurrent_rollouts": 4}),
        ("skyrl", {"max_staleness_steps": 0}),
        ("verl_fully_async", {"staleness_threshold": 0.0, "trigger_parameter_sync_step": 3}),
        ("rllm", {"trigger_parameter_sync_step": 3}),
        ("pipelinerl", {"max_lag": 0}),
        ("nemo_rl_ready_first", {"max_staleness_versions": 0}),
    ],
)
def test_a_typical_bound_is_hard_where_nothing_may_start_ahead(name, knobs):
    run = simulate_pipeline(preset_config(name, **{**UNEVEN, **knobs}))
    window = knobs.get("trigger_parameter_sync_step", 1)

    assert preset_bound_kind(name, {**UNEVEN, **knobs}) == "hard"
    assert run.max_lag_observed == preset_lag_bound(name, {**UNEVEN, **knobs}) == window - 1


def test_a_preset_without_a_bound_says_so():
    for name, preset in all_presets().items():
        unbounded = preset_lag_bound(name) is None
        assert unbounded == (preset.bound_kind == "none" or name in ("miles", "pipelinerl")), name
    assert preset_lag_bound("miles", {"max_weight_staleness": 1, "update_weights_interval": 2}) == 3
    assert preset_lag_bound("pipelinerl", {"max_lag": 129, "batch_groups": 16, "group_size": 8}) == 2


def test_verl_v1_streams_mini_batches_to_a_trainer_of_its_own():
    knobs = {"parameter_sync_step": 4, "max_off_policy_threshold": 3, "num_warmup_batches": 2}
    config = preset_config("verl_v1", batch_groups=16, **knobs)
    assert (config.batch_groups, config.updates_per_batch, config.sync_every_updates) == (4, 1, 4)
    assert config.limits[0].model_dump() == {"count": "started", "done": "trained", "groups": 48}
    # Ages count in global steps: up to 2 of them, and 3 more mini-batches of the step itself.
    assert config.max_policy_lag == 11 == preset_lag_bound("verl_v1", knobs)


def test_verl_v1_colocated_takes_the_global_batch_whole_and_turns():
    knobs = {"parameter_sync_step": 4, "max_off_policy_threshold": 3, "trainer_mode": "colocate_async"}
    config = preset_config("verl_v1", batch_groups=16, **knobs)
    assert (config.batch_groups, config.updates_per_batch, config.sync_every_updates) == (16, 4, 4)
    assert not config.generation_while_training
    assert config.max_policy_lag == 8
    assert preset_lag_bound("verl_v1", knobs) == 11


def test_presets_take_the_settings_of_trainer_and_workload():
    more = {
        "fetch_seconds": 3.0,
        "evaluation_every_updates": 5,
        "evaluation_seconds": 9.0,
        "train_spread": 0.19,
    }
    for name in all_presets():
        config = preset_config(name, **more)
        assert {field: getattr(config, field) for field in more} == more


# --- aliases ----------------------------------------------------------------------------------------------

ALIAS_VALUES = {
    "max_head_offpolicyness": [0, 1, 2],
    "max_concurrent_rollouts": [4, 8, 12],
    "max_staleness_steps": [0, 1, 2],
    "num_parallel_generation_workers": [4, 8, 12],
    "concurrent_samples_per_replica": [4],
    "replicas": [None, 1, 2, 3],
    "concurrency": [4, 8],
    "async_data_buffer_capacity_factor": [1.0, 2.0],
    "max_lag": [None, 0, 8, 16],
    "max_inflight_prompts": [8, 32],
    "max_inflight": [16, 1024],
    "max_inflight_tasks": [-1, 16],
    "queue_maxsize": [16, 32, 1024],
    "async_generation_ratio": [0.0, 0.5, 1.0],
    "staleness_threshold": [0, 0.5, 1, 2],
    "steps_per_generation": [None, 2],
    "trigger_parameter_sync_step": [1, 2],
    "rollout_share": [0.5, 0.25],
    "max_off_policy_threshold": [1, 2, 3],
    "num_warmup_batches": [0, 1],
}


def grid_of(preset):
    columns = []
    for knob in preset.knobs:
        values = ALIAS_VALUES.get(knob.name)
        if values is None:
            if knob.choices:
                values = list(knob.choices)
            elif isinstance(knob.default, bool):
                values = [False, True]
            else:
                low = int(knob.minimum)
                values = list({knob.default, low, low + 1})
        columns.append(values)
    return columns


def configurations(preset):
    """Return every configuration of a grid of knobs, as something that can be compared."""
    defaults = {name: field.default for name, field in PipelineConfig.model_fields.items()}
    workload = {"batch_groups": 4, "group_size": 2, "rollout_workers": 64}
    found = set()
    for values in itertools.product(*grid_of(preset)):
        knobs = dict(zip((knob.name for knob in preset.knobs), values))
        try:
            settings = preset_settings(preset.name, {**knobs, **workload})
        except ConfigError:
            continue
        found.add(json.dumps({**defaults, **settings}, sort_keys=True, default=str))
    return found


def test_presets_that_give_the_same_configuration_are_declared_aliases_and_no_others():
    all_found = {name: configurations(preset) for name, preset in all_presets().items()}
    same = {
        frozenset(pair)
        for pair in itertools.combinations(all_found, 2)
        if all_found[pair[0]] & all_found[pair[1]]
    }
    declared = {
        frozenset((name, alias.preset)) for name, preset in all_presets().items() for alias in preset.aliases
    }

    assert {tuple(sorted(pair)) for pair in same} == {tuple(sorted(pair)) for pair in declared}


@pytest.mark.parametrize(("staleness", "workers"), [(0, 4), (1, 4), (2, 12), (3, 7)])
def test_the_budgets_of_areal_and_skyrl_are_one(staleness, workers):
    areal = preset_config(
        "areal",
        **EVEN | {"batch_groups": 4},
        max_head_offpolicyness=staleness,
        max_concurrent_rollouts=workers,
    )
    skyrl = preset_config(
        "skyrl",
        **EVEN | {"batch_groups": 4},
        max_staleness_steps=staleness,
        num_parallel_generation_workers=workers,
    )

    assert areal == skyrl


# --- metadata ---------------------------------------------------------------------------------------------

FORK = "okoge-kaz/miles (queue-drop of the study of 2026-07-03)"


@pytest.mark.parametrize("name", all_presets())
def test_metadata_name_source_bound_and_what_is_left_out(name):
    preset = all_presets()[name]

    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", preset.date)
    if preset.repository.startswith("none"):
        assert name.startswith("synchronous")
    else:
        assert preset.repository == FORK or re.fullmatch(r"[\w.-]+/[\w.-]+", preset.repository)
        assert re.fullmatch(r"[0-9a-f]{7}", preset.commit)
    assert preset.title
    assert preset.lag_bound
    assert preset.bound_kind in ("exact", "hard", "typical", "none")
    assert preset.leaves_out
    assert all(text and not text.endswith(".") for text in preset.leaves_out)
    assert all(knob.text for knob in preset.knobs)
    assert all(alias.preset in all_presets() and alias.when for alias in preset.aliases)
    assert all(knob.name not in PipelineConfig.model_fields for knob in preset.knobs)


def test_the_systems_that_the_project_promises_are_there():
    assert set(all_presets()) == {
        *("trl_async", "trl_grpo", "verl_one_step_off", "verl_fully_async", "verl_v1", "openrlhf"),
        *(
            "nemo_rl_legacy",
            "nemo_rl_in_order",
            "nemo_rl_weight_fifo",
            "nemo_rl_windowed",
            "nemo_rl_ready_first",
        ),
        *(
            "areal",
            "pipelinerl",
            "prime_rl",
            "slime_train_async",
            "slime_fully_async",
            "skyrl",
            "roll",
            "tinker",
        ),
        *("open_instruct", "rllm", "rlinf", "torchforge", "miles", "synchronous", "synchronous_colocated"),
        "queue_drop",
    }


# --- workloads --------------------------------------------------------------------------------------------


def test_a_colocated_loop_has_the_slots_and_the_rate_of_both_sides():
    config = preset_config(
        "synchronous_colocated",
        rollout_share=0.25,
        rollout_workers=32,
        train_tokens_per_second=900.0,
        decode_slowdown_per_rollout=0.02,
    )

    assert config.rollout_workers == 128
    assert config.train_tokens_per_second == 1200.0
    # As many rollouts on four times the engines slow each other down a quarter as much.
    assert config.decode_slowdown_per_rollout == 0.005


def test_a_server_beside_the_trainer_keeps_the_slots_that_were_given():
    config = preset_config("trl_grpo", vllm_mode="server", rollout_workers=32)

    assert config.rollout_workers == 32


def test_a_field_given_wins_over_the_rule():
    settings = preset_settings("areal", {"publication": "pause", "batch_groups": np.int64(4)})

    assert settings["publication"] == "pause"
    assert settings["limits"] == [{"count": "started", "done": "published", "groups": 4}]


def test_batches_by_tokens_are_refused_beside_a_batch_in_groups():
    with pytest.raises(ConfigError, match="batch_tokens: must be none when batch_groups is given"):
        preset_config("areal", batch_tokens=4000)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: find_preset("areel"),
            "preset: must be a known preset (got 'areel'). Did you mean 'areal'?",
        ),
        (
            lambda: preset_config("areal", max_head_offpolicynes=2),
            "max_head_offpolicynes: is neither a field nor a knob of preset 'areal' (got 2). "
            "Did you mean 'max_head_offpolicyness'?",
        ),
        (
            lambda: preset_config("skyrl", max_staleness_step=2),
            "max_staleness_step: is neither a field nor a knob of preset 'skyrl' (got 2). "
            "Did you mean 'max_staleness_steps'?",
        ),
        (
            lambda: find_preset("skyrl").checked_knobs({"workers": 2}),
            "skyrl.workers: is not a knob of this preset (got 2). "
            "Its knobs: max_staleness_steps, num_parallel_generation_workers.",
        ),
        (
            lambda: preset_config("openrlhf", async_queue_size=0),
            "async_queue_size: must be at least 1 (got 0). The default is 1.",
        ),
        (
            lambda: preset_config("openrlhf", async_queue_size=1.5),
            "async_queue_size: must be a whole number (got 1.5). The default is 1.",
        ),
        (
            lambda: preset_config("openrlhf", async_queue_size=True),
            "async_queue_size: must be a finite number (got True). The default is 1.",
        ),
        (
            lambda: preset_config("verl_fully_async", staleness_threshold=math.nan),
            "staleness_threshold: must be a finite number (got nan). The default is 0.1.",
        ),
        (
            lambda: preset_config("verl_fully_async", partial_rollout=1),
            "partial_rollout: must be true or false (got 1). Give true or false.",
        ),
        (
            lambda: preset_config("verl_v1", max_off_policy_strategy="weit"),
            "max_off_policy_strategy: must be one of drop, wait (got 'weit'). Did you mean 'wait'?",
        ),
        (
            lambda: preset_config("synchronous_colocated", rollout_share=1.0),
            "rollout_share: must be at most 0.999 (got 1.0). The default is 0.5.",
        ),
        (
            lambda: preset_config("areal", max_concurrent_rollouts=0),
            "max_concurrent_rollouts: must be at least 1 (got 0). Leave it out.",
        ),
        (
            lambda: preset_config("areal", batch_groups=0),
            "batch_groups: must be a whole number of at least 1 (got 0). Give 1 or more.",
        ),
        (
            lambda: preset_config("areal", train_tokens_per_second="fast"),
            "train_tokens_per_second: must be a finite number (got 'fast'). Give one of at least 0.",
        ),
        (
            lambda: preset_config("skyrl", num_parallel_generation_workers=768),
            "num_parallel_generation_workers: must be between batch_groups (16) and 80, SkyRL's own check "
            "(got 768). Give a number in that range; 80 leaves the budget alone to bind.",
        ),
        (
            lambda: preset_config("trl_grpo", steps_per_generation=3, gradient_accumulation_steps=2),
            "steps_per_generation: times num_iterations must be a multiple of 2, the accumulation (got 3). "
            "An update that spans two generations is not modelled.",
        ),
        (
            lambda: preset_config("verl_v1", parameter_sync_step=32),
            "parameter_sync_step: must divide batch_groups, which is 16, the batch of a global step "
            "(got 32). A mini-batch has batch_groups / parameter_sync_step groups.",
        ),
        (
            lambda: preset_config("tinker", sampling_steps_ahead=3),
            "sampling_steps_ahead: must be at most max_steps_off_policy, which is 1 (got 3). "
            "The system refuses it too.",
        ),
        (
            lambda: preset_config("tinker", sampling_steps_ahead=1, stale_groups="requeue"),
            "sampling_steps_ahead: belongs to stale_groups 'pace' (got 1). Leave one of the two out.",
        ),
    ],
)
def test_an_error_names_the_knob_the_rule_the_value_and_the_way_out(call, text):
    with pytest.raises(ConfigError) as caught:
        call()

    assert str(caught.value) == text


NEW_SETTINGS = {
    "engine": {"engine": Engine(count=2, step_seconds=0.02, kv_cache_tokens=3000)},
    "fetch": {"fetch_seconds": 1.5},
    "evaluation": {"evaluation_every_updates": 2, "evaluation_seconds": 5.0},
    "spread": {"train_spread": 0.2},
    "schedule": {
        "response_length": LengthLaw.schedule([(0, LengthLaw.fixed(90)), (2, LengthLaw.fixed(180))])
    },
}


@pytest.mark.parametrize("settings", NEW_SETTINGS.values(), ids=NEW_SETTINGS)
@pytest.mark.parametrize("name", all_presets())
def test_every_preset_takes_engines_and_the_settings_of_the_trainer(name, settings):
    needs = {"max_inflight_tasks": 1024} if name == "trl_async" else {}
    small = {"batch_groups": 4, "group_size": 2, "rollout_workers": 8, "duration_seconds": 400.0}
    config = preset_config(name, **small, **settings, **needs)
    run = simulate_pipeline(config)

    assert run.updates > 2
    if "engine" in settings:
        assert config.engine.step_seconds == 0.02
        assert run.decoded_tokens >= run.generated_tokens > 0
    else:
        assert {key: getattr(config, key) for key in settings} == settings
