"""Theory as a judge of the simulator: closed forms, Little's law exactly, queueing limits."""

from __future__ import annotations

import numpy as np
import pytest

from lagsweep import LengthLaw, PipelineConfig, simulate_pipeline
from lagsweep.kernels import pipeline_report
from lagsweep.kernels.intervals import mean_interval

NO_LIMIT = 10**9


def _two_stage(rollout_seconds: float, train_seconds: float) -> PipelineConfig:
    """One slot and batches of one rollout: a two-stage line with room for one finished item."""
    return PipelineConfig(
        response_length=LengthLaw.fixed(100),
        rollout_workers=1,
        decode_tokens_per_second=100 / rollout_seconds,
        rollout_overhead_seconds=0,
        batch_tokens=1,
        max_queue_tokens=1,
        train_overhead_seconds=train_seconds,
        train_tokens_per_second=1e15,
        sync_seconds=0,
        max_policy_lag=NO_LIMIT,
        duration_seconds=1000,
    )


@pytest.mark.parametrize(("rollout", "train"), [(2.0, 0.5), (0.5, 2.0), (1.0, 1.0)])
def test_two_stage_overlap_ends_when_the_closed_form_says(rollout, train):
    result = simulate_pipeline(_two_stage(rollout, train))

    for count in (1, 2, 10, 100):
        expected = rollout + train + (count - 1) * max(rollout, train)
        assert result.batches[count - 1].end == pytest.approx(expected, abs=1e-9)
        report = pipeline_report(rollout_seconds=rollout, train_seconds=train, batches=count)
        assert report.pipeline_total == pytest.approx(expected, abs=1e-9)


def test_a_sequential_loop_takes_the_sum_of_its_phases():
    config = PipelineConfig(
        mode="sequential",
        response_length=LengthLaw.fixed(100),
        rollout_workers=4,
        decode_tokens_per_second=50,
        rollout_overhead_seconds=0.5,
        batch_tokens=800,
        train_overhead_seconds=1,
        train_tokens_per_second=400,
        sync_seconds=0.25,
        duration_seconds=500,
    )
    result = simulate_pipeline(config)

    # Two rounds of 2.5 s on four slots, 1 s + 800/400 s of training, 0.25 s of publication.
    ends = [batch.end for batch in result.batches]
    assert ends[0] == 8.0
    assert np.allclose(np.diff(ends), 8.25, atol=1e-9)


def test_deterministic_rates_meet_at_the_slower_side():
    base = PipelineConfig(
        response_length=LengthLaw.fixed(200),
        rollout_workers=10,
        decode_tokens_per_second=100,
        rollout_overhead_seconds=0,
        batch_tokens=2000,
        max_queue_tokens=8000,
        train_overhead_seconds=0,
        sync_seconds=0,
        max_policy_lag=NO_LIMIT,
        duration_seconds=5000,
        warmup_seconds=500,
    )
    slow_trainer = simulate_pipeline(base.replace(train_tokens_per_second=800))
    slow_slots = simulate_pipeline(base.replace(train_tokens_per_second=4000))

    assert slow_trainer.trained_tokens_per_second == pytest.approx(800, rel=1e-3)
    assert slow_trainer.trainer_utilization == pytest.approx(1, abs=1e-9)
    assert slow_slots.trained_tokens_per_second == pytest.approx(1000, rel=1e-3)
    assert slow_slots.rollout_utilization == pytest.approx(1, abs=1e-9)


def _without_discards(seed: int) -> PipelineConfig:
    return PipelineConfig(
        seed=seed, max_policy_lag=NO_LIMIT, duration_seconds=400, rollout_workers=6, max_queue_tokens=9000
    )


@pytest.mark.parametrize("seed", range(5))
def test_littles_law_holds_exactly_for_the_queue(seed):
    """The time integral of the queue's tokens is the sum of tokens × ticks that each rollout waited."""
    result = simulate_pipeline(_without_discards(seed), rollouts=True)
    horizon = 400 * 10**6
    started = [round(batch.start * 1e6) for batch in result.batches for _ in range(batch.rollouts)]
    landed = sorted(
        (round(r.end * 1e6), place, r.tokens, r.outcome)
        for place, r in enumerate(result.rollouts)
        if r.end is not None
    )
    in_training_since = result.timeline[-1].time
    waits = 0
    for position, (end, _, tokens, outcome) in enumerate(landed):
        if position < len(started):
            waits += tokens * (started[position] - end)
        elif outcome == "queued":
            waits += tokens * (horizon - end)
        else:
            trainer_start = _last_start(result)
            waits += tokens * (trainer_start - end)

    assert in_training_since <= 400
    assert result.mean_queue_tokens * horizon == pytest.approx(waits, rel=1e-13)


def _last_start(result) -> int:
    """When the unfinished step began: the queue's last fall in the timeline."""
    rows = result.timeline
    for before, after in zip(rows[-2::-1], rows[::-1]):
        if after.queue_tokens < before.queue_tokens or after.event == "update":
            return round(after.time * 1e6)
    raise AssertionError("no step was under way")


@pytest.mark.parametrize("seed", range(5))
def test_littles_law_holds_exactly_for_the_slots(seed):
    result = simulate_pipeline(_without_discards(seed), rollouts=True)
    horizon = 400 * 10**6
    occupied = sum(
        (horizon if r.end is None else round(r.end * 1e6)) - round(r.start * 1e6) for r in result.rollouts
    )

    assert result.rollout_utilization == pytest.approx(occupied / (6 * horizon), rel=1e-13)
    assert result.idle_slot_seconds == pytest.approx((6 * horizon - occupied) / 1e6, rel=1e-13)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_for_a_fixed_step_is_that_of_an_m_d_1_queue(load):
    """One slot with geometric lengths is a Poisson source; batches of one with a fixed step are M/D/1.

    Mean wait rho * D / (2 * (1 - rho)) (Pollaczek and Khinchine); the interval is over seeds.
    """
    step = load
    waits = []
    for seed in range(24):
        config = PipelineConfig(
            seed=seed,
            response_length=LengthLaw.geometric(mean=2000, maximum=60_000),
            rollout_workers=1,
            decode_tokens_per_second=2000,
            rollout_overhead_seconds=0,
            batch_tokens=1,
            max_queue_tokens=10**9,
            train_overhead_seconds=step,
            train_tokens_per_second=1e15,
            sync_seconds=0,
            max_policy_lag=NO_LIMIT,
            duration_seconds=4000,
        )
        result = simulate_pipeline(config, rollouts=True)
        landed = sorted(r.end for r in result.rollouts if r.end is not None)
        starts = np.array([batch.start for batch in result.batches])
        settled = starts > 400
        waits.append(float(np.mean((starts - np.array(landed[: len(starts)]))[settled])))
    mean, half = mean_interval(np.array(waits), confidence=0.999)
    expected = load * step / (2 * (1 - load))

    assert abs(mean - expected) < half
    assert half < 0.2 * expected


def test_a_trainer_with_work_waiting_runs_at_its_rate_whatever_the_lengths():
    config = PipelineConfig(
        rollout_workers=64,
        batch_tokens=20_000,
        max_queue_tokens=80_000,
        train_overhead_seconds=0,
        train_tokens_per_second=1000,
        max_policy_lag=NO_LIMIT,
        duration_seconds=3000,
        warmup_seconds=300,
        response_length=LengthLaw.lognormal(median=300, sigma=1.2, minimum=1, maximum=8000),
    )
    result = simulate_pipeline(config)

    assert result.trainer_wait_seconds == 0
    # What is left of a step at either end of the window is at most one batch.
    assert result.trained_tokens_per_second == pytest.approx(1000, abs=(20_000 + 8000) / 2700)
