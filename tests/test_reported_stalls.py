"""Staleness and back-pressure cases that users of real systems reported, replayed in the simulator."""

from __future__ import annotations

import pytest

from lagsweep.sweeps.config import Limit, PipelineConfig
from lagsweep.sweeps.length_laws import LengthLaw
from lagsweep.sweeps.simulate import simulate_pipeline

PLAIN = {"rollout_overhead_seconds": 0.0, "sync_seconds": 0.0, "train_overhead_seconds": 0.0}


def run(**settings):
    return simulate_pipeline(PipelineConfig(**{**PLAIN, **settings}), rollouts=True)


def test_back_pressure_is_time_with_its_own_counter_and_queueing_counts_as_lag():
    # One worker, a rollout of 60 tokens a second, steps of 3 s. Reported as an invisible wait for capacity in
    # verl-project/verl#7010, agentscope-ai/Trinity-RFT#382 and PrimeIntellect-ai/prime-rl#3310.
    result = run(
        rollout_workers=1,
        response_length=LengthLaw.fixed(60),
        decode_tokens_per_second=60.0,
        max_queue_tokens=100,
        batch_tokens=60,
        train_tokens_per_second=20.0,
        max_policy_lag=10,
        duration_seconds=301.5,
    )
    assert (result.updates, result.trained_tokens) == (100, 6000)
    assert result.backpressure_seconds == 199.0
    assert [batch.max_lag for batch in result.batches[:8]] == [0, 1, 2, 2, 2, 2, 2, 2]


def stuck_seed(law):
    """Return a seed of whose first four rollouts exactly one is the one that never ends."""
    for seed in range(100):
        first = run(response_length=law, rollout_workers=4, seed=seed, duration_seconds=0.001).rollouts
        if [row.tokens for row in first].count(law.maximum) == 1:
            return seed
    raise AssertionError("no seed found")


def test_one_straggler_that_never_ends_leaves_the_time_of_last_progress():
    # Four groups a batch, three ready after 2 s, the fourth never: no error, a buffer one short for hours.
    # Reported in NovaSky-AI/SkyRL#1173, NVIDIA-NeMo/RL#3238 and verl-project/verl#3895.
    law = LengthLaw.from_table(200, [0.75] * 99_800 + [1.0])
    result = run(
        response_length=law,
        rollout_workers=4,
        decode_tokens_per_second=100.0,
        batch_tokens=None,
        batch_groups=4,
        max_queue_tokens=None,
        limits=[Limit("started", "trained", 4)],
        seed=stuck_seed(law),
        duration_seconds=900.0,
    )
    assert (result.updates, result.queued_groups, result.running_groups) == (0, 3, 1)
    assert result.last_progress_seconds == 2.0
    assert not result.stalled


@pytest.mark.parametrize("workers", [2, 4])
def test_a_lag_of_zero_with_as_many_slots_as_a_batch_makes_progress(workers):
    # A limit divided among the workers twice rounds to zero and hangs (areal-project/AReaL#1396).
    result = run(
        response_length=LengthLaw.uniform(50, 100),
        rollout_workers=workers,
        batch_tokens=None,
        batch_groups=2,
        max_queue_tokens=None,
        max_policy_lag=0,
        limits=[Limit("started", "published", 2)],
        max_running_groups=2,
        duration_seconds=60.0,
    )
    assert result.updates >= 10
    assert result.max_lag_observed == 0


@pytest.mark.parametrize("age", [0, 1, 2])
def test_work_admitted_and_not_trained_never_exceeds_the_budget(age):
    # A counter that is lost while the version is kept admits a burst (areal-project/AReaL#1388, #1345).
    batch = 4
    result = run(
        response_length=LengthLaw.lognormal(median=60, sigma=1.0, minimum=10, maximum=500),
        rollout_workers=16,
        batch_tokens=None,
        batch_groups=batch,
        max_queue_tokens=None,
        stale_check="never",
        limits=[Limit("started", "published", (age + 1) * batch)],
        duration_seconds=300.0,
    )
    assert result.updates > 20
    for row in result.timeline:
        assert row.running_groups + row.queue_groups <= (age + 1) * batch
