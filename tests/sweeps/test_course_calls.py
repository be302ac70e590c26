"""Every call that the course's lab makes works as it stands there, with its arguments and its facts.

The order is the lab's: memory, phases and overlap, the two loops, the queue, staleness, the record, weight
synchronization, checkpoints. All names come from ``lagsweep.kernels`` and ``lagsweep.sweeps``.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from lagsweep.kernels import (
    BYTES_PER_GIB,
    checkpoint_cadence,
    completion_token_mask,
    effective_sample_size,
    human_bytes,
    ideal_sharded_memory,
    kv_cache_bytes,
    model_state_bytes,
    optimal_checkpoint_interval,
    peak_memory,
    pipeline_report,
    rollout_contract_errors,
    straggler_report,
    synchronization_schedule,
    synchronization_transfer_time,
)
from lagsweep.sweeps import (
    PipelineConfig,
    checkpoint_as_dict,
    make_checkpoint,
    recovery_drill,
    result_row,
    simulate_pipeline,
)

SEED = 12016
GIB = 2**30
MIXED = {"parameter_bytes": 2, "gradient_bytes": 2, "optimizer_state_bytes": 8}


# Memory


@pytest.mark.parametrize(
    ("parameters", "settings", "total"),
    [
        (7_000_000_000, {**MIXED, "master_parameter_bytes": 0}, 84_000_000_000),
        (7_000_000_000, {**MIXED, "master_parameter_bytes": 4}, 112_000_000_000),
        (
            7_070_000_000,
            {**MIXED, "master_parameter_bytes": 4, "trainable_parameters": 70_000_000},
            7_070_000_000 * 2 + 70_000_000 * 14,
        ),
    ],
    ids=["12 bytes a parameter", "16 bytes a parameter", "adapters of 1 %"],
)
def test_model_state_is_counted_in_logical_bytes(parameters, settings, total):
    profile = model_state_bytes(parameters, **settings)

    assert profile.total_bytes == total
    assert profile.total_bytes / BYTES_PER_GIB == pytest.approx(total / GIB)
    assert human_bytes(profile.total_bytes) == f"{total / GIB:.2f} GiB"


def _kv_16_gib():
    return kv_cache_bytes(
        num_sequences=64,
        tokens_per_sequence=4096,
        num_layers=32,
        num_kv_heads=4,
        head_dim=128,
        element_bytes=2,
    )


def test_the_kv_cache_of_64_sequences_is_16_gib_exactly():
    assert _kv_16_gib() == 16 * BYTES_PER_GIB
    assert human_bytes(_kv_16_gib()) == "16.00 GiB"


def test_the_names_that_are_imported_and_not_called_can_be_called():
    assert ideal_sharded_memory is not None
    assert float(effective_sample_size([1.0, 1.0, 0.0, 0.0])) == 2.0


# Phases, overlap, stragglers


def test_the_phase_with_the_largest_sum_is_the_peak():
    report = peak_memory(
        {
            "rollout": [14 * BYTES_PER_GIB, _kv_16_gib(), 2 * BYTES_PER_GIB],
            "training": [14 * BYTES_PER_GIB, 8 * BYTES_PER_GIB, 28 * BYTES_PER_GIB],
            "weight publication": [14 * BYTES_PER_GIB, 14 * BYTES_PER_GIB, 2 * BYTES_PER_GIB],
        }
    )
    rows = [{"phase": name, "GiB": value / BYTES_PER_GIB} for name, value in report.phase_totals.items()]

    assert (report.phase, report.peak_bytes) == ("training", 50 * GIB)
    assert human_bytes(report.peak_bytes) == "50.00 GiB"
    assert rows == [
        {"phase": "rollout", "GiB": 32.0},
        {"phase": "training", "GiB": 50.0},
        {"phase": "weight publication", "GiB": 30.0},
    ]


def test_ten_batches_overlap_from_800_to_620_seconds():
    report = pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=10)

    assert np.isclose(report.sequential_total, 800.0)
    assert np.isclose(report.pipeline_total, 620.0)
    assert "620" in str(report)


def test_one_slow_member_leaves_a_third_of_the_group_busy():
    report = straggler_report([3, 3, 4, 4, 5, 5, 6, 18])

    assert np.isclose(report.utilization, 1 / 3)
    assert "0.33" in str(report)


# The two loops


@pytest.fixture(scope="module", params=[120.0, 240.0], ids=["smoke", "full"])
def results(request):
    bounded = {
        "mode": "bounded_async",
        "duration_seconds": request.param,
        "max_queue_tokens": 7000,
        "seed": SEED,
    }
    configs = {
        "sequential": PipelineConfig(mode="sequential", duration_seconds=request.param, seed=SEED),
        "every update": PipelineConfig(**bounded, max_policy_lag=2, sync_every_updates=1),
        "every 3 updates": PipelineConfig(**bounded, max_policy_lag=6, sync_every_updates=3),
    }
    return {name: simulate_pipeline(config) for name, config in configs.items()}


def test_each_loop_reports_a_finite_rate_and_a_flat_row(results):
    table = pd.DataFrame([{"profile": name, **result_row(result)} for name, result in results.items()])

    assert list(table["profile"]) == list(results)
    for result in results.values():
        assert math.isfinite(result.trained_tokens_per_second)
        assert result.trained_tokens_per_second >= 0
    assert all(not isinstance(value, dict | list) for value in table.iloc[0])


def test_the_timeline_gives_the_queue_over_time(results):
    for result in results.values():
        times = [row["time"] for row in result.timeline]
        levels = [row["queue_tokens"] for row in result.timeline]

        assert times == sorted(times)
        assert min(levels) >= 0
        assert result.config.mode in ("sequential", "bounded_async")


def test_queue_depth_backpressure_and_discards_are_attributes(results):
    for result in results.values():
        assert result.max_queue_tokens_observed >= 0
        assert result.backpressure_seconds >= 0
        assert result.discarded_rollouts >= 0
    assert results["sequential"].backpressure_seconds == 0
    # Admission stops at the cap, rollouts in flight still land.
    deepest = max(results[name].max_queue_tokens_observed for name in ("every update", "every 3 updates"))
    assert 7000 <= deepest < 7000 + 8 * 2048


def test_batches_give_update_lag_and_ess(results):
    for name, result in results.items():
        assert [batch.update for batch in result.batches] == list(range(1, len(result.batches) + 1))
        for batch in result.batches:
            assert 0 <= batch.mean_lag <= batch.max_lag <= result.config.max_policy_lag
            assert 0 < batch.normalized_ess <= 1 + 1e-12
            if name == "sequential":
                assert (batch.mean_lag, batch.max_lag, batch.normalized_ess) == (0, 0, 1.0)


def test_batches_can_be_grouped_into_a_table(results):
    rows = [
        {"profile": name, "update": b.update, "mean lag": b.mean_lag, "normalized ESS": b.normalized_ess}
        for name, result in results.items()
        for b in result.batches
    ]
    grouped = (
        pd.DataFrame(rows)
        .groupby("profile")
        .agg(
            updates=("update", "count"),
            p95_lag=("mean lag", lambda lags: lags.quantile(0.95)),
            lowest=("normalized ESS", "min"),
        )
    )

    assert set(grouped.index) == set(results)
    assert (grouped["updates"] > 0).all()
    assert grouped.loc["sequential", "lowest"] == 1.0


# The record


def _record():
    return {
        "sample_id": "s-0007",
        "prompt_id": "p-12",
        "policy_version": 4,
        "prompt_tokens": [11, 12, 13, 14],
        "response_tokens": [21, 22, 23, 2],
        "behavior_logprobs": [-0.5, -1.25, -0.75, -0.125],
        "decoding": {"temperature": 1.0, "top_p": 1.0},
        "reward": {"correctness": 0.0, "format": 1.0},
        "stop_reason": "eos",
        "verifier_version": "v2",
    }


def test_a_good_record_has_no_errors():
    assert rollout_contract_errors(_record()) == []


def test_a_record_without_log_probabilities_and_with_version_minus_1_has_both_errors():
    broken = {**_record(), "policy_version": -1}
    del broken["behavior_logprobs"]
    found = rollout_contract_errors(broken)
    text = "\n".join(map(str, found))

    assert found
    assert "behavior_logprobs" in text
    assert "policy_version" in text


# Weight synchronization


@pytest.mark.parametrize(("payload", "seconds"), [(14_000_000_000, 0.85), (140_000_000, 0.157)])
def test_transfer_time_counts_decimal_gigabytes(payload, seconds):
    assert synchronization_transfer_time(payload, 25.0, setup_seconds=0.15, efficiency=0.80) == pytest.approx(
        seconds
    )


@pytest.mark.parametrize(("every", "count"), [(1, 16), (2, 8), (4, 4), (8, 2)])
def test_a_schedule_of_16_updates_counts_synchronizations_and_lag(every, count):
    schedule = synchronization_schedule(sync_every=every, updates=16)

    assert schedule.synchronization_count == count
    assert schedule.max_lag == every - 1
    assert schedule.mean_lag == pytest.approx((every - 1) / 2)


# Checkpoints and the drill


def test_youngs_interval_is_an_hour_exactly():
    interval = optimal_checkpoint_interval(180.0, 10 * 3600.0)
    cadence = checkpoint_cadence(interval, checkpoint_seconds=180.0, mtbf_seconds=10 * 3600.0)

    assert interval == 3600.0
    assert "0.05" in str(cadence)


def test_a_manifest_is_one_row_of_a_table():
    rng = np.random.default_rng(SEED)
    rng.integers(0, 10_000, size=8)
    manifest = make_checkpoint(
        optimizer_step=3, current_version=3, published_version=3, dataset_cursor=8, rng=rng
    )
    table = pd.DataFrame([checkpoint_as_dict(manifest)]).drop(columns=["rng_state"])

    assert len(table) == 1
    assert table.loc[0, "dataset_cursor"] == 8
    assert "rng_state" not in table.columns


def test_the_drill_tells_the_whole_resume_from_the_one_of_weights_alone():
    drill = recovery_drill(seed=SEED, before=8, after=8)

    assert drill.exact_match
    assert not drill.broken_match
    assert drill.resumed == drill.uninterrupted != drill.broken_resume


# Generated rows through the first end of sequence


@pytest.mark.parametrize(
    ("eos_ids", "lengths"),
    [([2], [3, 4, 1]), ([2, 7], [2, 4, 1]), ([], [4, 4, 4])],
    ids=["one", "two", "none"],
)
def test_lengths_run_through_the_first_end_of_sequence(eos_ids, lengths):
    rows = np.array([[5, 7, 2, 0], [5, 5, 5, 5], [2, 2, 2, 2]])

    assert completion_token_mask(rows, eos_ids).sum(axis=1).tolist() == lengths
