"""Reading a run: stalls and starvation named, what binds over time, bounds of the phases, lost lengths."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from strategies.general_configs import general_settings, to_config

from lagsweep.errors import ConfigError
from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.laws.seconds import SecondsLaw
from lagsweep.sweeps.runs.diagnosis import (
    PROGRESSING,
    STALLED,
    STARVED,
    constraint_intervals,
    explain_stall,
    length_bias,
    length_quantiles,
    phase_bounds,
    progress_status,
)
from lagsweep.sweeps.runs.general import simulate_general
from lagsweep.sweeps.runs.simulate import simulate_pipeline

GROUPS = {
    "response_length": LengthLaw.fixed(100),
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "rollout_workers": 2,
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 4,
    "train_overhead_seconds": 1.0,
    "train_tokens_per_second": 1e12,
    "duration_seconds": 60.0,
}


def groups(**changes):
    return PipelineConfig(**{**GROUPS, **changes})


HALTS = {
    "a cap below the batch": (
        PipelineConfig(max_queue_tokens=1000, batch_tokens=9000),
        STALLED,
        "max_queue_tokens (1000) closes admission before the queue holds batch_tokens (9000).",
    ),
    "a reserving cap below the batch": (
        groups(max_queue_tokens=300, admission="reserve"),
        STALLED,
        "max_queue_tokens (300) with admission 'reserve' closes admission before the queue holds "
        "batch_groups (4).",
    ),
    "a limit below the batch": (
        groups(limits=[Limit("finished", "published", 9), Limit("started", "trained", 3)]),
        STALLED,
        "limits.1 (started < 4 * trained + 3) closes admission before the queue holds batch_groups (4).",
    ),
    "no running group": (
        groups(max_running_groups=0),
        STALLED,
        "max_running_groups (0) admits nothing, batch_groups (4) needs groups.",
    ),
    "a batch at once that may not run at once": (
        groups(max_running_groups=3, admit="batch"),
        STALLED,
        "max_running_groups (3) is below batch_groups (4), which admit 'batch' admits at once.",
    ),
    "everything filtered": (
        groups(filter_probability=1.0),
        STARVED,
        "filter_probability (1) drops every group, so batch_groups (4) never comes together.",
    ),
    "a queue smaller than the batch": (
        groups(queue_overflow="drop_oldest", max_queue_groups=3),
        STARVED,
        "max_queue_groups (3) evicts groups before the queue holds batch_groups (4).",
    ),
    "published too seldom": (
        groups(sync_every_updates=4, max_policy_lag=1),
        STARVED,
        "sync_every_updates (4) publishes too seldom for max_policy_lag (1): every rollout is too old before "
        "the next version is published.",
    ),
    "published too seldom, level 1": (
        PipelineConfig(sync_every_updates=5, max_policy_lag=0, duration_seconds=600),
        STARVED,
        "sync_every_updates (5) publishes too seldom for max_policy_lag (0): every rollout is too old before "
        "the next version is published.",
    ),
    "a publication that never ends": (
        groups(publication="pause", sync_seconds=1e6, publication_blocks_trainer=True, rollout_workers=4),
        STARVED,
        None,
    ),
}


@pytest.mark.parametrize("name", HALTS)
def test_a_halt_names_the_settings_in_conflict_and_the_last_progress(name):
    config, status, conflict = HALTS[name]
    result = simulate_pipeline(config)
    text = explain_stall(config, result)

    assert progress_status(config, result) == status
    assert text.startswith(f"{status}, last progress at {result.timeline[-1].time:g} s: ")
    if conflict is not None:
        assert text.endswith(conflict)


def test_a_run_that_goes_on_has_nothing_to_explain():
    config = groups()
    result = simulate_pipeline(config)

    assert progress_status(config, result) == PROGRESSING
    assert explain_stall(config, result) == ""


@given(general_settings())
def test_every_halt_of_any_configuration_gets_a_sentence(drawn):
    config = to_config(drawn)
    result = simulate_general(config)
    text = explain_stall(config, result)

    assert (text == "") == (progress_status(config, result) == PROGRESSING)
    if text:
        assert text.endswith(".")
        assert "None" not in text


@given(general_settings())
def test_intervals_of_what_binds_sum_exactly_to_the_totals(drawn):
    config = to_config({**drawn, "warmup_seconds": 0.0})
    result = simulate_general(config)
    slots = dict.fromkeys(result.slot_ticks, 0)
    trainer = dict.fromkeys(result.trainer_ticks, 0)
    for row in constraint_intervals(result).iter_rows(named=True):
        span = row["end_ticks"] - row["start_ticks"]
        slots["busy"] += row["busy_slots"] * span
        slots[row["slots_bound_by"]] += row["idle_slots"] * span
        trainer[row["trainer_bound_by"]] += span

    assert slots == result.slot_ticks
    assert trainer == result.trainer_ticks


# The bound max(generation, training)


def test_deterministic_phases_reach_their_bound():
    # Four rollouts of 1 s on 2 slots: 2 s a batch; steps of 1 s. Generation binds, and is reached.
    config = groups(stale_check="never", duration_seconds=2000.0)
    bounds = phase_bounds(config)
    result = simulate_general(config)

    assert (bounds.generation_seconds, bounds.training_seconds) == pytest.approx((2.0, 1.0), rel=1e-9)
    assert bounds.binding == "generation"
    assert result.seconds_per_update == pytest.approx(bounds.bound_seconds, rel=0.01)


def test_a_slow_trainer_binds_and_several_updates_share_its_step():
    bounds = phase_bounds(groups(train_overhead_seconds=5.0, updates_per_batch=2))
    prompts = phase_bounds(
        groups(train_overhead_seconds=5.0, prompt_tokens=25, train_tokens_per_second=500.0)
    )

    assert bounds.binding == "training"
    assert bounds.bound_seconds == pytest.approx(5.0 / 2)
    assert prompts.bound_seconds == pytest.approx(5.0 + 4 * 125 / 500)


def test_the_bound_counts_slowdown_tools_and_filtered_groups():
    config = groups(
        response_length=LengthLaw.lognormal(100, 0.5, 1, 1000),
        rollout_workers=16,
        decode_slowdown_per_rollout=0.5,
        environment_seconds=SecondsLaw.exponential(1.0),
        filter_probability=0.5,
        stale_check="never",
        duration_seconds=4000.0,
    )
    result = simulate_general(config)

    # The number of rollouts that decode is taken at its mean, so this is an estimate: within a tenth here.
    assert phase_bounds(config).bound_seconds == pytest.approx(result.seconds_per_update, rel=0.1)


def test_the_bound_is_infinite_when_everything_is_filtered():
    assert math.isinf(phase_bounds(groups(filter_probability=1.0)).bound_seconds)


def test_a_trace_of_pairs_brings_its_own_seconds_into_the_bound():
    law = LengthLaw.paired([100, 100], [1.0, 3.0])

    assert phase_bounds(groups(response_length=law)).generation_seconds == pytest.approx(4 * 3.0 / 2)


# Lost lengths


def test_dropping_stale_work_shows_in_the_deciles_and_quantiles_of_the_trained_lengths():
    law = LengthLaw.lognormal(median=100, sigma=1.0, minimum=1, maximum=4000)
    config = groups(
        response_length=law,
        rollout_workers=16,
        max_policy_lag=1,
        cancel_in_flight=True,
        train_overhead_seconds=1.0,
        sync_seconds=0.0,
        duration_seconds=600.0,
    )
    result = simulate_general(config, rollouts=True)
    bias = length_bias(result)
    quantiles = length_quantiles(result)

    assert bias["up_to_tokens"].to_list() == [law.quantile(k / 10) for k in range(1, 11)]
    assert bias["trained"].sum() == result.trained_rollouts
    assert bias["dropped"].sum() == result.discarded_rollouts
    assert bias["cancelled"].sum() >= result.cancelled_groups
    lost = bias["lost_share"].to_list()
    assert lost[-1] > 0.9
    assert lost[-1] > lost[4] > lost[0] - 0.05
    assert (quantiles["trained_tokens"] <= quantiles["generated_tokens"]).all()
    assert result.length_bias_law < 0.8


def test_a_run_that_drops_nothing_has_no_bias():
    result = simulate_general(groups(stale_check="never", duration_seconds=600.0))

    assert result.length_bias_law == 1.0
    assert result.length_bias_drawn == 1.0
    assert length_bias(result)["dropped"].sum() == 0


def test_quantiles_need_recorded_rollouts():
    with pytest.raises(
        ConfigError, match=r"^rollouts: were not recorded \(got 0\)\. Run again with rollouts=True\.$"
    ):
        length_quantiles(simulate_general(groups()))
