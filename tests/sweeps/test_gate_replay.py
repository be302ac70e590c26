"""A gate decides as the kernel does: simulated runs are fed to it, event by event."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.gate_replay import replay
from strategies import engine_configs
from strategies.general_configs import general_settings, to_config
from strategies.pipeline_configs import pipeline_settings
from strategies.trainer_configs import trainer_settings

import lagsweep as ls

# The workloads beside a preset: small batches, few slots, lengths that differ, horizons of some forty updates.
SMALL = {
    "decode_tokens_per_second": 50.0,
    "train_tokens_per_second": 400.0,
    "train_overhead_seconds": 0.5,
    "response_length": ls.LengthLaw.lognormal(median=60, sigma=1.0, minimum=5, maximum=400),
    "duration_seconds": 90.0,
}
# Knobs off their defaults, so that every rule of every preset is met.
KNOBS = {
    "areal": {"max_head_offpolicyness": [0, 1, 3], "max_concurrent_rollouts": [None, 2, 9]},
    "skyrl": {"max_staleness_steps": [0, 1, 4]},
    "verl_fully_async": {
        "staleness_threshold": [0.0, 0.5, 1.0],
        "trigger_parameter_sync_step": [1, 2, 4],
        "partial_rollout": [True, False],
    },
    "verl_v1": {
        "max_off_policy_threshold": [1, 2, 8],
        "max_off_policy_strategy": ["drop", "wait"],
        "trainer_mode": ["separate_async", "colocate_async"],
    },
    "rllm": {"staleness_threshold": [0.0, 1.0], "partial_rollout": [True, False]},
    "pipelinerl": {"max_lag": [None, 0, 8], "pop_old_data": [True, False], "ring_buffer": [1, 4, 128]},
    "roll": {"async_generation_ratio": [0.0, 0.5, 1.0, 2.0]},
    "rlinf": {"staleness_threshold": [0, 1, 2]},
    "openrlhf": {"async_queue_size": [1, 2], "partial_rollout_enable": [True, False]},
    "prime_rl": {"max_off_policy_steps": [0, 1, 8], "max_inflight": [2, 1024]},
    "miles": {"max_weight_staleness": [None, 0, 1], "async_unused_samples_handler": ["drop", "retry"]},
    "trl_async": {"max_staleness": [1, 4], "queue_maxsize": [4, 1024]},
    "tinker": {"max_steps_off_policy": [0, 1, 2], "stale_groups": ["pace", "requeue"]},
    "torchforge": {"max_policy_age": [0, 1, 2]},
    "queue_drop": {"fully_async_queue_factor": [1, 2]},
    "nemo_rl_windowed": {"max_staleness_versions": [0, 1], "sample_freshest_first": [True, False]},
    "nemo_rl_weight_fifo": {"max_staleness_versions": [0, 1]},
    "slime_fully_async": {"concurrency": [None, 2, 5]},
    "slime_train_async": {"update_weights_interval": [1, 2]},
}
NEITHER = {"evaluation_every_updates", "evaluation_seconds", "evaluation_stops_generation"}


@given(general_settings())
def test_every_answer_is_the_kernels_with_rules_at_random(drawn):
    replay(to_config(drawn))


@given(pipeline_settings(themes=("free", "stale", "publish", "starve", "stall", "reserve", "instant")))
def test_every_answer_is_the_kernels_in_the_core(drawn):
    replay(to_config(drawn))


@given(trainer_settings().filter(lambda drawn: drawn["mode"] != "sequential"))
def test_every_answer_is_the_kernels_with_fetches_turns_and_full_queues(drawn):
    replay(to_config({name: value for name, value in drawn.items() if name not in NEITHER}))


@given(engine_configs.engine_settings().filter(lambda drawn: drawn["mode"] != "sequential"))
@settings(max_examples=20)
def test_every_answer_is_the_kernels_beside_engines(drawn):
    kept = {name: value for name, value in drawn.items() if name not in NEITHER}
    replay(engine_configs.to_config(kept))


@given(general_settings(), st.integers(1, 12))
@settings(max_examples=20)
def test_a_gate_saved_and_restored_at_any_call_decides_on_as_before(drawn, every):
    replay(to_config(drawn), save_every=every)


@st.composite
def of_preset(draw, name):
    pick = {knob: draw(st.sampled_from(values)) for knob, values in KNOBS.get(name, {}).items()}
    batch = draw(st.integers(1, 4))
    workload = {
        "batch_groups": batch,
        "group_size": draw(st.integers(1, 3)),
        "rollout_workers": draw(st.sampled_from([1, 2, 4, 8, 16])),
        "sync_seconds": draw(st.sampled_from([0.0, 0.5, 2.0])),
        "filter_probability": draw(st.sampled_from([0.0, 0.0, 0.3])),
        "seed": draw(st.integers(0, 2**64 - 1)),
    }
    return ls.preset_config(name, **SMALL, **workload, **pick)


@pytest.mark.parametrize("name", ls.all_presets())
def test_every_answer_is_the_kernels_under_the_rules_of_a_preset(name):
    seen = Counter()

    @given(of_preset(name))
    @settings(max_examples=12)
    def check(config):
        seen.update(replay(config, save_every=50))

    check()
    assert seen["trained"] > 0
    assert seen["start: yes"] > 0
    assert seen["pop: yes"] > 0
