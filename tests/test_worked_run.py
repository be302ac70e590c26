"""The worked run of the model, number by number."""

from __future__ import annotations

import pytest

from lagsweep import LengthLaw, PipelineConfig, simulate_pipeline


@pytest.fixture(scope="module")
def result():
    config = PipelineConfig(
        response_length=LengthLaw.fixed(100),
        rollout_workers=2,
        decode_tokens_per_second=100,
        rollout_overhead_seconds=0,
        batch_tokens=200,
        max_queue_tokens=300,
        train_overhead_seconds=1,
        train_tokens_per_second=200,
        sync_seconds=0.5,
        max_policy_lag=1,
        duration_seconds=8,
    )
    return simulate_pipeline(config, rollouts=True)


def test_batches_have_the_stated_times_and_lags(result):
    assert [(batch.start, batch.end) for batch in result.batches] == [(1, 3), (3, 5), (6, 8)]
    assert [(batch.mean_lag, batch.max_lag) for batch in result.batches] == [(0, 0), (1, 1), (1, 1)]
    assert [batch.rollouts for batch in result.batches] == [2, 2, 2]
    assert [batch.update for batch in result.batches] == [1, 2, 3]


def test_the_last_batch_is_rollouts_9_and_8_in_that_order(result):
    """Slot 1 is freed last at 5 s and used first, so at the tie of 6 s slot 0 lands first with number 9."""
    numbers = {rollout.number for rollout in result.rollouts if rollout.start == 5}
    trained_last = [r.number for r in result.rollouts if r.outcome == "trained" and r.start == 5]

    assert numbers == {8, 9}
    assert trained_last == [8, 9]
    assert result.batches[2].normalized_ess == pytest.approx(_ess_of_batch(0.2, [9, 8]), abs=1e-12)


def _ess_of_batch(drift, numbers):
    from math import exp

    import numpy as np
    from scipy.special import ndtri

    words = np.random.Philox(key=0).random_raw(4 * (max(numbers) + 1)).reshape(-1, 4)
    normals = [float(ndtri(((int(words[i, 1]) >> 12) + 0.5) * 2.0**-52)) for i in numbers]
    weights = [exp(drift * z - drift * drift / 2) for z in normals]
    return sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights))


def test_counts(result):
    assert result.discarded_rollouts == 4
    assert result.generated_tokens == 1400
    assert result.max_queue_tokens_observed == 400
    assert result.syncs == 2
    assert result.updates == 3


def test_time_integrals(result):
    assert result.backpressure_seconds == 1.0
    assert result.idle_slot_seconds == 2.0
    assert result.mean_queue_tokens == 125.0
