"""The general engine and its independent twin give the same run: integers exactly, floats to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from oracle.compare import assert_same_run
from oracle.level23 import run_level23
from strategies.general_configs import GROUPED, PAIRED, general_settings, to_config, to_twin
from strategies.pipeline_configs import pipeline_settings

from lagsweep.kernels.pipeline.metrics import GENERAL_METRICS, metrics_of_options
from lagsweep.sweeps.runs.general import simulate_general
from lagsweep.sweeps.runs.simulate import simulate_pipeline

ON_TOP = tuple(metric.name for metric in GENERAL_METRICS)

# Two slots, one-second rollouts of 100 tokens, batches of two groups, a step of one second.
ROUND = {
    "duration_seconds": 40.0,
    "rollout_workers": 2,
    "decode_tokens_per_second": 100.0,
    "rollout_overhead_seconds": 0.0,
    "response_length": ("fixed", 100),
    "max_queue_tokens": None,
    "batch_tokens": None,
    "batch_groups": 2,
    "train_overhead_seconds": 0.0,
    "train_tokens_per_second": 200.0,
    "max_policy_lag": 1,
    "sync_seconds": 0.5,
}
BY_BATCH = {
    "admit": "batch",
    "queue_order": "started",
    "stale_check": "never",
    "publication_blocks_trainer": True,
}


def check(drawn):
    """Run both, the general engine also where level 1 would do; return the twin's run."""
    twin = run_level23(to_twin(drawn))
    config = to_config(drawn)
    options = tuple(metric.name for metric in metrics_of_options(config.options_in_use))
    assert_same_run(simulate_general(config, rollouts=True), twin, ON_TOP + options)
    return twin


def agree(**changes):
    return check({**ROUND, **changes})


def lags(run):
    return [batch["max_lag"] for batch in run["batches"]][:6]


@settings(max_examples=300)
@given(general_settings(level_3=False))
def test_random_engines_and_publications_agree(drawn):
    check(drawn)


@settings(max_examples=500)
@given(general_settings())
def test_random_configurations_agree(drawn):
    check(drawn)


@settings(max_examples=150)
@given(pipeline_settings())
def test_with_every_option_off_the_engine_gives_the_level_1_run_bit_for_bit(drawn):
    config = to_config(drawn)
    engine, level_1 = simulate_general(config, rollouts=True), simulate_pipeline(config, rollouts=True)
    for name, value in level_1.metrics.items():
        np.testing.assert_array_equal(engine.metrics[name], value, err_msg=name)
    np.testing.assert_array_equal(engine.lag_counts, level_1.lag_counts)
    for table in ("batches", "timeline", "rollouts"):
        ours, theirs = getattr(engine, table), getattr(level_1, table)
        assert [{name: row[name] for name in other} for row, other in zip(ours, theirs)] == [
            dict(row) for row in theirs
        ]
        assert len(ours) == len(theirs)


# The engine


@pytest.mark.parametrize("slowdown", [1e-3, 0.037, 1.0, 1e9])
@pytest.mark.parametrize("law", [("fixed", 100), ("uniform", 16, 64), ("lognormal", 60, 0.5, 10, 200)])
def test_a_slower_engine_agrees(slowdown, law):
    agree(decode_slowdown_per_rollout=slowdown, response_length=law, rollout_workers=5, seed=3)


@pytest.mark.parametrize("publication", ["background", "pause", "abort"])
@pytest.mark.parametrize("slowdown", [0.0, 0.1, 1.0])
def test_completions_in_one_tick_with_and_without_a_tail_agree(publication, slowdown):
    for seed in range(4):
        agree(
            environment_seconds=(0.0, 0.5, 1.0),
            decode_slowdown_per_rollout=slowdown,
            publication=publication,
            rollout_workers=6,
            response_length=("table", 50, (1,) + (0,) * 49 + (1,)),
            batch_groups=3,
            seed=seed,
        )


@pytest.mark.parametrize("publication", ["background", "drain", "pause", "abort"])
@pytest.mark.parametrize("sync_seconds", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("blocks", [False, True])
def test_every_publication_style_agrees(publication, sync_seconds, blocks):
    more = {"resume_seconds": 0.25, "reprefill_tokens_per_second": 200.0} if publication == "abort" else {}
    agree(
        publication=publication,
        sync_seconds=sync_seconds,
        publication_blocks_trainer=blocks,
        rollout_workers=4,
        response_length=("uniform", 16, 64),
        max_policy_lag=5,
        **more,
    )


def test_publications_that_follow_one_another_under_abort_agree():
    twin = agree(
        publication="abort",
        resume_seconds=1.0,
        sync_seconds=3.0,
        train_tokens_per_second=1e12,
        response_length=("uniform", 16, 164),
        environment_seconds=(0.5, 4.0),
        rollout_workers=6,
        max_policy_lag=20,
    )
    assert {"waiting_publication", "reprefill"} <= twin["reached"]


@pytest.mark.parametrize("publication", ["background", "pause"])
def test_a_horizon_beyond_the_clock_of_one_word_agrees(publication):
    # 2**39 ticks are 6.4 days; without slowdown a longer run is legal.
    agree(
        publication=publication,
        duration_seconds=1e6,
        decode_tokens_per_second=1e-3,
        train_tokens_per_second=1e-2,
        sync_seconds=5e3,
    )


def test_zero_decode_work_agrees():
    agree(
        rollout_overhead_seconds=1.0, decode_tokens_per_second=1e12, publication="abort", resume_seconds=1.0
    )


def test_a_trace_of_pairs_agrees():
    agree(response_length=PAIRED, rollout_workers=4, publication="pause", sync_seconds=1.0)


@pytest.mark.parametrize("factor", [0.2, 1.0, 1e9])
def test_training_slowed_by_decoding_agrees(factor):
    agree(train_slowdown_when_generating=factor, rollout_workers=3, publication="pause")


@pytest.mark.parametrize("exponent", [-1.0, 0.5, 2.0])
def test_drift_by_length_agrees(exponent):
    agree(drift_length_exponent=exponent, response_length=("uniform", 16, 64), drift_per_version=1.0)


# Groups and rules


@pytest.mark.parametrize("law", [("fixed", 100), GROUPED, ("uniform", 16, 64)])
@pytest.mark.parametrize("sigma", [0.0, 0.7])
def test_groups_agree(law, sigma):
    agree(group_size=3, response_length=law, prompt_sigma=sigma if law is not GROUPED else 0.0)


@pytest.mark.parametrize("order", ["fifo", "started", "oldest_version", "freshest", "random"])
@pytest.mark.parametrize("check_at", ["update", "dequeue", "never"])
@pytest.mark.parametrize("action", ["drop", "requeue"])
def test_every_order_check_and_action_agrees(order, check_at, action):
    agree(
        queue_order=order,
        stale_check=check_at,
        stale_action=action,
        rollout_workers=5,
        response_length=("lognormal", 60, 0.5, 10, 200),
        train_tokens_per_second=120.0,
        batch_groups=3,
        cancel_in_flight=check_at != "dequeue",
    )


@pytest.mark.parametrize("order", ["oldest_version", "freshest"])
@pytest.mark.parametrize("seed", range(6))
def test_stale_groups_wait_again_in_the_order_of_arrival(order, seed):
    agree(
        queue_order=order,
        stale_check="dequeue",
        stale_action="requeue",
        rollout_workers=8,
        response_length=("lognormal", 20, 1.5, 1, 500),
        train_tokens_per_second=120.0,
        duration_seconds=60.0,
        seed=seed,
    )


def test_a_random_order_of_large_batches_agrees():
    agree(queue_order="random", batch_groups=7, rollout_workers=6, stale_check="never", duration_seconds=80.0)


@pytest.mark.parametrize("redraw", [False, True])
def test_cancelled_and_requeued_groups_agree(redraw):
    twin = agree(
        group_size=3,
        max_policy_lag=0,
        cancel_in_flight=True,
        stale_action="requeue",
        redraw_on_requeue=redraw,
        batch_groups=1,
        rollout_workers=5,
        response_length=("lognormal", 60, 0.5, 10, 200),
        prompt_sigma=0.5,
        publication="pause",
    )
    assert {"cancelled", "requeue"} <= twin["reached"]


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_a_queue_that_drops_its_oldest_agrees(groups):
    twin = agree(queue_overflow="drop_oldest", max_queue_groups=groups, rollout_workers=6)
    assert "evicted" in twin["reached"]


@pytest.mark.parametrize("updates", [1, 2, 3])
@pytest.mark.parametrize("cadence", [1, 2, 5])
def test_several_updates_a_batch_agree(updates, cadence):
    agree(updates_per_batch=updates, sync_every_updates=cadence, batch_groups=3, max_policy_lag=9)


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("check_at", ["update", "dequeue"])
def test_prefetched_batches_agree(ahead, check_at):
    twin = agree(prefetch_batches=ahead, rollout_workers=5, stale_check=check_at, max_policy_lag=2)
    assert "prefetch" in twin["reached"]


@pytest.mark.parametrize("count", ["started", "finished"])
@pytest.mark.parametrize("done", ["published", "popped", "trained"])
@pytest.mark.parametrize("admit", ["group", "batch"])
def test_every_limit_agrees(count, done, admit):
    agree(
        limits=[(count, done, 5), ("started", "popped", 9)], admit=admit, rollout_workers=6, max_policy_lag=4
    )


@pytest.mark.parametrize("filter_probability", [0.3, 1.0])
@pytest.mark.parametrize("admit", ["group", "batch"])
def test_filtered_groups_give_back_their_room(filter_probability, admit):
    agree(
        filter_probability=filter_probability,
        admit=admit,
        limits=[("started", "published", 4)],
        group_size=2,
        rollout_workers=6,
    )


def test_no_running_group_at_all_stalls_in_both():
    assert agree(max_running_groups=0)["stalled"]


@pytest.mark.parametrize("warmup", [3.0, 10.0])
@pytest.mark.parametrize("stop", [None, 4, 7])
def test_warmups_and_stops_agree(warmup, stop):
    agree(warmup_seconds=warmup, stop_after_updates=stop, updates_per_batch=2, publication="abort")


# The off-by-one table: equal service times, order of start, admission by batch, a blocked trainer


def test_the_off_by_one_table():
    agree_by_batch = lambda **rules: lags(agree(**{**BY_BATCH, "publication": "drain", **rules}))  # noqa: E731
    assert agree_by_batch(limits=[("started", "popped", 2)]) == [0, 1, 1, 1, 1, 1]
    assert agree_by_batch(limits=[("started", "popped", 4)], rollout_workers=4) == [0, 1, 2, 2, 2, 2]
    one = {"limits": [("started", "popped", 4)], "rollout_workers": 4, "one_batch_at_a_time": True}
    assert agree_by_batch(**one) == [0, 1, 1, 1, 1, 1]
    assert agree_by_batch(limits=[("started", "published", 4)]) == [0, 1, 1, 1, 1, 1]
    assert agree_by_batch(limits=[("started", "published", 2)]) == [0] * 6
