"""Faults found by trying, each with its neighbours: the right values, and the words of what is refused.

That no function raises a raw error is held for all of them by ``test_public_calls.py``.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import lagsweep as ls
from lagsweep import kernels as k

REPORTS = {
    report["id"]: report
    for report in json.loads((Path(__file__).parent / "data" / "bug_reports_kernels.json").read_text("utf-8"))
}
NAN, INF = float("nan"), float("inf")


def refusal(function, *arguments, **keywords):
    with pytest.raises(ls.ConfigError) as refused:
        function(*arguments, **keywords)
    return str(refused.value)


# -- raw exceptions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [10**400, [1, 10**400], Fraction(10**400, 3)])
def test_a_number_beyond_float64_is_refused_by_name(value):
    assert refusal(k.pipeline_report, value, 1.0, 2).startswith("rollout_seconds: must stay below 1.8e308")
    assert refusal(k.effective_sample_size, value).startswith("weights: must stay below 1.8e308")


@pytest.mark.parametrize(
    "value",
    [np.timedelta64(1, "s"), np.array([1], "m8[s]"), [np.timedelta64(1, "s")], np.array(["2020"], "M8[s]")],
)
def test_times_are_no_numbers(value):
    assert refusal(k.straggler_report, value).startswith("durations: must be a number")


@pytest.mark.parametrize("value", [[0.5], np.array([0.5]), [[0.9, 0.95]]])
def test_an_array_where_one_number_belongs_is_refused(value):
    assert refusal(k.mtbf_estimate, run_seconds=1e6, failures=1, confidence=value).startswith("confidence:")
    assert "must be one number" in refusal(k.pareto_khat, np.arange(30.0), relative_efficiency=value)
    assert "must be one number" in refusal(k.mask_from_lengths, [1], [3])


def test_objects_of_another_kind_are_refused_by_name():
    assert refusal(k.parameter_count, 5).startswith("shape: must be a ModelShape (got 5)")
    assert refusal(k.sample_lengths, [0.5], 5).startswith("table: must be a LengthTable or a law")
    assert refusal(k.adafactor_state_bytes, 5).startswith("tensors: must be a list")
    assert refusal(ls.recommend, 5).startswith("dataset: must be the dataset of a sweep")
    assert refusal(ls.open_sweep, 5).startswith("path: must be a path")
    assert refusal(ls.load_spec, None).startswith("path: must be a path")
    assert refusal(ls.restore_rng, {}).startswith("manifest: must be a checkpoint with its generators")
    assert refusal(ls.validate_records, None).startswith("source: must be a path or a stream")
    assert refusal(ls.advance_run, ls.start_run(ls.PipelineConfig()), NAN).startswith(
        "until_seconds: must be finite"
    )
    base = ls.PipelineConfig(duration_seconds=5)
    assert refusal(ls.run_sweep, base, {"max_lag": [1]}, 1, tables=5).startswith("tables: must be a list")
    assert refusal(ls.run_sweep, base, {"max_lag": [1]}, 1, store=5).startswith("store: must be a path")
    assert refusal(ls.PipelineConfig, rollout_workers=np.array([1, 2])).startswith(
        "rollout_workers: must be a whole"
    )


def test_ragged_lists_axes_and_shapes_that_do_not_fit_are_refused():
    assert refusal(k.lag_quantiles_from_counts, [[1, 2], [3]], 0.5).startswith("counts: must be")
    assert refusal(k.expected_normalized_ess, [1, 2], 0.2, axis=5).startswith("axis: must be an axis")
    assert refusal(k.expected_normalized_ess, [1, 2], 0.2, axis="x").startswith("axis: must be an axis")
    assert "stages" in refusal(k.stage_capacity, [1, 2], [[10**6], [10**6]], 2, 8)
    assert "broadcast" in refusal(k.stage_capacity, [1, 2], [10**6] * 3, 2, 8)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32, int])
def test_ids_are_whole_numbers_of_numpy_too(kind):
    record = {"sample_id": kind(3), "prompt_id": kind(1)}

    codes = [found.code for found in k.batch_contract_errors([record, record])]

    assert "duplicate_sample_id" in codes
    assert "id_type" not in codes


# -- silently wrong ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept():
    return ls.run_sweep(ls.PipelineConfig(duration_seconds=60), {"max_lag": [0, 1]}, 3)


@pytest.mark.parametrize("confidence", [2, 0, 1, -0.5, NAN, "0.95", [0.95]])
def test_a_confidence_outside_0_to_1_is_refused(swept, confidence):
    first, second = ({"max_lag": lag} for lag in (0, 1))
    assert refusal(ls.frontier, swept, confidence=confidence).startswith("confidence: must")
    assert refusal(ls.plot_frontier, swept, confidence=confidence).startswith("confidence: must")
    assert refusal(ls.plot_lag, swept, confidence=confidence).startswith("confidence: must")
    difference = refusal(ls.paired_difference, swept, "updates", first, second, confidence=confidence)
    assert difference.startswith("confidence: must")


def test_a_layer_has_a_known_kind_and_a_window_only_where_it_needs_one():
    heads = {"num_kv_heads": 2, "head_dim": 4}
    assert refusal(k.KVLayer, kind="x", **heads).startswith("kind: must be one of full, sliding")
    assert "has no meaning for kind 'full'" in refusal(k.KVLayer, kind="full", window_tokens=8, **heads)
    assert "is needed by kind 'sliding'" in refusal(k.KVLayer, kind="sliding", **heads)
    assert "is needed by kind 'chunked'" in refusal(k.KVLayer, kind="chunked", **heads)
    assert refusal(k.KVLayer, kind="full", num_kv_heads=0, head_dim=4).startswith(
        "num_kv_heads: must be at least 1"
    )


@pytest.mark.parametrize("value", ["false", "no", 2, 1, None, [True]])
def test_a_flag_is_true_or_false(value):
    for text in (
        refusal(k.completion_statistics, [1], [True], exclude_truncated=value),
        refusal(k.effective_sample_size, [1.0], normalized=value),
        refusal(k.human_bytes, 1, decimal=value),
        refusal(k.adafactor_state_bytes, [((2, 2), 1)], momentum=value),
        refusal(ls.run_sweep, ls.PipelineConfig(), {"max_lag": [1]}, 1, masks=value),
    ):
        assert "must be true or false" in text.lower()


@pytest.mark.parametrize("dtype", [float, int, np.float32])
def test_masked_values_are_refused_not_taken_for_numbers(dtype):
    masked = np.ma.masked_array(np.array([1, 1], dtype), mask=[False, True])

    assert "must not hold masked values" in refusal(k.effective_sample_size, masked)
    assert "must not hold masked values" in refusal(k.trained_tokens, masked)
    assert "must not hold masked values" in refusal(k.kv_cache_bytes, masked, 1, 1, 1, 1)
    assert k.effective_sample_size(np.ma.masked_array([1.0, 3.0])) == 1.6


def test_sums_beyond_float64_are_refused_not_nan():
    assert refusal(k.pipeline_report, 60.0, 1e308, 10) == (
        "rollout_seconds, train_seconds, batches: must keep the result below 1.8e308, the end of float64 "
        "(got rollout_seconds=60.0, train_seconds=1e+308, batches=10). "
        "Give values nearer to 1, in other units if need be."
    )
    many = np.full(100, 1e308)
    assert "\n" not in refusal(k.pipeline_report, many, many, 10)
    assert "must keep the result below 1.8e308" in refusal(k.straggler_report, [1e308, 1e308])
    assert "must keep the result below 1.8e308" in refusal(k.transfer_report, 1e9, 1e308)
    assert k.expected_overhead_fraction(1e6, 10.0, 1.0) == INF  # an answer of its own


# -- a row's value beside a token's --------------------------------------------------------------------------


def test_one_flag_per_sequence_never_meets_one_value_per_token():
    given = REPORTS["mask-14"]["input"]

    assert "must not pair" in refusal(k.combined_mask, *given["combined_mask"])
    assert "must not pair" in refusal(k.token_importance_weights, **given["token_importance_weights"])
    assert "must not pair" in refusal(k.lag_summary, **given["lag_summary"])
    assert "must not pair" in refusal(
        k.token_importance_weights, [[0.0, 1.0], [0.0, 1.0]], mode="raw", keep=[1, 0]
    )
    assert "must not pair" in refusal(k.within_lag, [[5], [5]], [3, 5], 1)
    assert "must not pair" in refusal(k.masked_mean, [[1.0, 2.0], [3.0, 4.0]], [1, 0])


def test_an_axis_that_is_named_is_taken():
    assert k.combined_mask([[1], [1]], keep=[1, 0]).tolist() == [[True], [False]]
    keep = np.array([1, 0])
    weights = k.token_importance_weights([[0.0, 0.0], [0.0, 0.0]], mode="raw", keep=keep[:, None])
    assert weights.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert k.policy_lag(np.array([[5], [6]]), np.array([[3, 5]])).tolist() == [[2, 0], [3, 1]]
    assert k.policy_lag([5, 6, 7], [[3, 4, 5], [5, 6, 7]]).tolist() == [[2, 2, 2], [0, 0, 0]]


# -- work without a bound ------------------------------------------------------------------------------------


def test_limits_come_before_memory_and_threads_are_asked_for():
    assert "threads: must be at most 1024" in refusal(k.completion_token_mask, [[1]], [2], threads=20000)
    assert "width: must not ask for more than" in refusal(k.mask_from_lengths, [1], width=10**9)
    assert "count: must not ask for more than" in refusal(k.philox_words, 1, count=10**9)
    assert "must not ask for more than" in refusal(k.pipeline_report, np.ones((10**5, 1)), np.ones(10**5), 1)
    assert "must not ask for more than" in refusal(
        k.kv_cache_bytes, np.ones((10**5, 1)), np.ones(10**5), 1, 1, 1
    )
    assert "before: must be at most" in refusal(ls.recovery_drill, 1, 10**9, 1)


# -- sums ----------------------------------------------------------------------------------------------------


def test_a_publication_bucket_is_never_smaller_than_the_largest_tensor():
    from lagsweep.sweeps.memory.ledger import LedgerSettings, build_ledger
    from lagsweep.sweeps.memory.models import load_model

    models = REPORTS["sync-01"]["input"]["models"]
    for name, bucket in (("gpt-oss-20b", 2**30), ("DeepSeek-V3", 2**30), ("Llama-3.1-8B", 2**26)):
        phases = build_ledger(load_model(name), LedgerSettings(bucket_bytes=bucket)).peak.phase_components
        charged = {parts["bucket"] for parts in phases.values() if "bucket" in parts}
        assert charged == {models[name]["largest_tensor_bytes"]}
    phases = build_ledger(
        load_model("Llama-3.1-8B"), LedgerSettings(bucket_bytes=2**31)
    ).peak.phase_components
    assert {parts["bucket"] for parts in phases.values() if "bucket" in parts} == {2**31}


def test_k_hat_of_nearly_equal_weights_is_undefined_and_said():
    given = REPORTS["ess-10"]["input"]
    for counts in (given["log_weights"], *given["neighbours"]):
        high = next(float(name) for name in counts if name != "zeros")
        weights = np.r_[
            np.zeros(counts["zeros"]), np.full(counts[str(high) if str(high) in counts else "1e-12"], high)
        ]
        if weights.size - counts["zeros"] < 5:
            assert "k-hat is undefined" in refusal(k.pareto_khat, weights)
        else:
            assert k.pareto_khat(weights).reliable
    heavy = k.pareto_khat(np.r_[np.zeros(999), 1000.0])
    assert (heavy.khat, heavy.reliable) == (INF, False)


def test_a_budget_is_computed_in_the_order_of_its_system():
    report = REPORTS["stale-19"]
    cases = [[0.15, 20, 5], *report["input"]["neighbours"]]
    budgets = [
        k.staleness_budget(
            updates_per_sync=sync, batches_per_update=1, batch_size=size, staleness_threshold=share
        )
        for share, size, sync in cases
    ]

    assert budgets == [report["expected"]["samples"], *report["expected"]["neighbours"]]


def test_a_stamp_that_cannot_be_read_makes_the_version_unknown():
    report = REPORTS["rec-01"]
    given = report["input"]
    limits = {"schema": given["schema"], "trainer_version": 4, "max_policy_lag": 2, "warnings": True}
    for stamps in (["3", "default"], ["default", "3"], ["3", None], ["3", "4", ""]):
        found = k.rollout_contract_errors({**given["record"], "weight_versions": stamps}, **limits)
        assert [finding.code for finding in found] == report["expected"]["codes"]
    assert k.rollout_contract_errors({**given["record"], "weight_versions": ["3", "4"]}, **limits) == []


def test_means_over_micro_batches_and_the_ess_of_a_batch():
    given, expected = REPORTS["mask-16"]["input"], REPORTS["mask-16"]["expected"]
    assert k.masked_mean(given["values"], given["mask"]) == expected["token"]
    assert k.masked_mean(given["values"], given["mask"], aggregate="sequence") == expected["sequence"]
    batches = REPORTS["ess-12"]["input"]["micro_batches"]
    assert k.effective_sample_size(batches, axis=1, normalized=True).tolist() == [1.0, 1.0]
    assert k.effective_sample_size(batches, normalized=True) == pytest.approx(0.9, abs=1e-12)


@pytest.mark.parametrize(("workers", "place"), [(1, 0), (3, 1)])
def test_what_ends_at_the_horizon_counts(workers, place):
    report = REPORTS["stale-16"]
    settings = {"duration_seconds": 24, "decode_tokens_per_second": 100, "rollout_overhead_seconds": 0}
    settings |= {"train_overhead_seconds": 0.25, "train_tokens_per_second": 1e12, "sync_seconds": 0}
    config = ls.PipelineConfig(
        response_length=ls.LengthLaw.fixed(100),
        rollout_workers=workers,
        batch_tokens=100 * workers,
        **settings,
    )
    result = ls.simulate_pipeline(config)

    assert result.generated_rollouts == report["expected"]["generated_rollouts"][place]
    assert result.updates == report["expected"]["updates"][place]


@pytest.mark.parametrize("updates", [1, 2, 4])
def test_the_limit_on_the_lag_holds_for_the_first_update_of_a_batch(updates):
    assert REPORTS["stale-15"]["expected"]["or"].startswith("a refusal or a note")
    rules = {
        "batch_groups": 8,
        "batch_tokens": None,
        "max_policy_lag": 0,
        "limits": [("started", "published", 16)],
    }
    config = ls.PipelineConfig(
        updates_per_batch=updates,
        sync_every_updates=updates,
        duration_seconds=300,
        max_queue_tokens=None,
        **rules,
    )

    assert ls.simulate_pipeline(config).max_lag_observed == updates - 1
    page = (Path(__file__).parents[1] / "docs" / "generation-and-rules.md").read_text("utf-8")
    assert "`max_policy_lag` holds for a batch's first update" in page


def test_a_confidence_of_any_kind_of_number_is_drawn_and_written(tmp_path):
    base = ls.PipelineConfig(duration_seconds=200, rollout_workers=8, batch_tokens=2000)
    ds = ls.run_sweep(base, {"max_lag": [1, 2], "sync_cadence": [1, 2]}, seeds=2, progress=False)

    assert "33%" in json.dumps(ls.plot_heatmap(ds, "updates", confidence=Fraction(1, 3)).to_dict())
    ls.write_report(ds, tmp_path / "page.html", confidence=Fraction(1, 3))


def test_blocks_that_do_not_fit_the_layers_bytes_are_refused():
    layer = k.KVLayer(kind="full", num_kv_heads=2, head_dim=8)
    with pytest.raises(ls.ConfigError, match=r"tensor_parallel|block_tokens|element_bytes"):
        k.hybrid_kv_cache_bytes(
            [layer], num_sequences=1, tokens_per_sequence=16, element_bytes=2,
            block_tokens=np.ones((2, 3, 4)), tensor_parallel=[],
        )  # fmt: skip
