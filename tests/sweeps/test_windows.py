"""Results by windows of updates: they add up to the run, are sums over the twin, and are kept in stores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from oracle.level23 import run_level23
from strategies.general_configs import to_config, to_twin

from lagsweep import LengthLaw, PipelineConfig, open_sweep, run_sweep, simulate_pipeline
from lagsweep.kernels.errors import ConfigError, StoreError
from lagsweep.kernels.pipeline.metrics import WINDOW_METRICS
from lagsweep.sweeps.runs.general import GeneralRun
from lagsweep.sweeps.runs.windows import Windows, window_values
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.reading import spec_from_sections
from lagsweep.sweeps.store.replay import replay
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.testing.trainer_settings import trainer_settings

NAMES = [metric.name for metric in WINDOW_METRICS]
BASE = PipelineConfig(duration_seconds=4000.0, stop_after_updates=40, max_policy_lag=1, warmup_seconds=50.0)


def windows_of_twin(twin, updates, count):
    """Sum the twin's history over windows, from the page alone."""
    ends = []
    for window in range(count):
        after = [batch for batch in twin["batches"] if batch["update"] >= updates * (window + 1)]
        ends.append(after[0]["end"] if after else None)
    rows = []
    for begun, end in zip([0.0, *ends], ends):
        if end is None:
            rows.append(None)
            continue
        batches = [batch for batch in twin["batches"] if begun < batch["end"] <= end]
        lost = sum(row[3] for row in twin["drops"] if row[1] == "stale" and begun < row[0] / 1e6 <= end)
        busy = sum(batch["end"] - batch["start"] for batch in batches)
        rows.append((batches, end - begun, busy, lost))
    return rows


def steps_share_a_tick(twin):
    """Say whether two steps end in one tick: then their windows are a matter of numbers, not of time."""
    ends = [batch["end"] for batch in twin["batches"]]
    return len(set(ends)) < len(ends)


@settings(max_examples=150)
@given(trainer_settings())
def test_windows_of_random_runs_are_sums_over_the_twin_s_history(drawn):
    updates, count = 2, 6
    run = GeneralRun(to_config(drawn), batches=True)
    run.advance()
    found = window_values(run.rows("batches"), Windows(updates, count))
    twin = run_level23(to_twin(drawn))
    assume(not steps_share_a_tick(twin))
    for window, row in enumerate(windows_of_twin(twin, updates, count)):
        values = {name: found[name][window] for name in NAMES}
        if row is None or not row[0]:
            assert values.pop("window_discarded_rollouts") == 0
            assert all(math.isnan(value) for value in values.values())
            continue
        batches, seconds, busy, lost = row
        tokens = sum(batch["tokens"] for batch in batches)
        effective = sum(batch["tokens"] * batch["expected_normalized_ess"] for batch in batches)
        made = len(batches) * drawn.get("updates_per_batch", 1)
        expected = {
            "window_seconds_per_update": seconds / made,
            "window_trained_tokens_per_second": tokens / seconds,
            "window_effective_tokens_per_second": effective / seconds,
            "window_mean_lag": np.mean([batch["mean_lag"] for batch in batches]),
            "window_mean_expected_normalized_ess": np.mean(
                [batch["expected_normalized_ess"] for batch in batches]
            ),
            "window_trainer_wait_seconds": seconds - busy,
            "window_mean_tokens": tokens / sum(batch["rollouts"] for batch in batches),
            "window_discarded_rollouts": lost,
        }
        for name, value in expected.items():
            assert values[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name


@pytest.mark.parametrize("changes", [{}, {"publication": "pause", "batch_groups": 4, "group_size": 2}])
def test_windows_add_up_to_the_run(changes):
    config = BASE.replace(warmup_seconds=0.0, **changes)
    ds = run_sweep(config, {"max_lag": [1]}, seeds=2, windows=10)
    for seed in range(2):
        run = simulate_pipeline(config.replace(seed=seed))
        at = {name: ds[name].values[0, seed] for name in NAMES}
        seconds = 10 * at["window_seconds_per_update"]
        assert seconds.sum() == pytest.approx(run.batches[-1].end)
        assert (at["window_trained_tokens_per_second"] * seconds).sum() == pytest.approx(run.trained_tokens)
        assert at["window_discarded_rollouts"].sum() == run.discarded_rollouts > 0
        assert at["window_trainer_wait_seconds"].sum() == pytest.approx(run.trainer_wait_seconds)
        assert at["window_mean_lag"].mean() == pytest.approx(run.mean_lag)


def test_the_first_window_begins_at_time_0_whatever_the_warm_up():
    ds = run_sweep(BASE, {"max_lag": [1]}, seeds=1, windows=40)
    run = simulate_pipeline(BASE)
    assert ds["window_seconds_per_update"].item() == pytest.approx(run.batches[-1].end / 40)


def test_other_variables_are_what_they_are_without_windows():
    axes = {"max_lag": [0, 2], "stop_after_updates": [20, 50]}
    plain, other = (run_sweep(BASE, axes, seeds=3, windows=windows) for windows in (None, 10))
    assert set(other.data_vars) - set(plain.data_vars) == set(NAMES)
    for name in plain.data_vars:
        np.testing.assert_array_equal(plain[name].values, other[name].values)
    assert "window" not in plain.dims


def test_the_dimension_follows_the_longest_cell_and_shorter_ones_have_nothing_there():
    ds = run_sweep(BASE, {"stop_after_updates": [20, 45]}, seeds=2, windows=10)
    assert ds["window"].values.tolist() == [1, 11, 21, 31, 41]
    shown = np.isfinite(ds["window_mean_lag"].values[:, 0])
    assert shown.tolist() == [[True, True, False, False, False], [True, True, True, True, False]]
    assert ds["window_discarded_rollouts"].values[0, :, 2:].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_store_keeps_windows_and_can_be_verified_replayed_and_extended(tmp_path):
    axes = {"max_lag": [0, 2]}
    memory = run_sweep(BASE, axes, seeds=2, windows=10)
    run_sweep(BASE, axes, seeds=2, windows=10, store=tmp_path / "s")
    stored = open_sweep(tmp_path / "s")
    for name in NAMES:
        assert stored[name].dims == memory[name].dims == ("max_lag", "seed", "window")
        np.testing.assert_array_equal(stored[name].values, memory[name].values)
    assert verify_store(tmp_path / "s", sample=4).findings == []
    assert replay(stored, {"max_lag": 2}, seed=1).different == {}
    larger = run_sweep(BASE, {"max_lag": [0, 2, 4]}, seeds=3, windows=10, store=tmp_path / "s")
    np.testing.assert_array_equal(larger["window_mean_lag"].values[:2, :2], memory["window_mean_lag"].values)
    for changed in ({"windows": 20}, {"windows": None}):
        with pytest.raises(StoreError, match="windows: "):
            run_sweep(BASE, axes, seeds=2, store=tmp_path / "s", **changed)


def test_a_store_does_not_grow_by_longer_runs_that_need_more_windows(tmp_path):
    run_sweep(BASE, {"stop_after_updates": [20]}, seeds=1, windows=10, store=tmp_path / "s")
    with pytest.raises(StoreError, match="stop_after_updates: 2 windows in the store, 3 asked"):
        run_sweep(BASE, {"stop_after_updates": [20, 30]}, seeds=1, windows=10, store=tmp_path / "s")


def test_the_key_is_read_from_a_spec_and_kept_in_it():
    sections = {"windows": 10, "base": {"stop_after_updates": 40}, "axes": {"max_lag": [0, 1]}}
    spec = spec_from_sections(sections)
    assert spec.windows == 10 == spec.to_plain()["windows"]
    assert spec.fingerprint != spec_from_sections({**sections, "windows": 20}).fingerprint
    assert "windows" not in make_spec(BASE, {"max_lag": [0]}, 1).to_plain()


@pytest.mark.parametrize(
    ("base", "axes", "windows", "message"),
    [
        (
            BASE.replace(stop_after_updates=None),
            {"max_lag": [0]},
            10,
            "needs stop_after_updates in every cell",
        ),
        (BASE, {"stop_after_updates": ["none", 40]}, 10, "needs stop_after_updates in every cell"),
        (BASE, {"max_lag": [0]}, 0, "windows: must be"),
        (BASE, {"max_lag": [0]}, 2.5, "windows: must be"),
        (BASE.replace(stop_after_updates=10**9), {"max_lag": [0]}, 1, "must give at most 100,000 windows"),
    ],
)
def test_windows_that_cannot_be_are_refused(base, axes, windows, message):
    with pytest.raises(ConfigError, match=message):
        make_spec(base, axes, 1, windows=windows)


def test_steps_that_end_in_one_tick_go_to_windows_by_number():
    """Three workers, rollouts of half a second, steps of no time: three updates at 0.5 s, three at 1 s, …"""
    config = PipelineConfig(
        duration_seconds=3.0,
        rollout_workers=3,
        response_length=LengthLaw.fixed(100),
        decode_tokens_per_second=200.0,
        rollout_overhead_seconds=0.0,
        max_queue_tokens=None,
        batch_tokens=1,
        train_overhead_seconds=0.0,
        train_tokens_per_second=1e12,
        sync_seconds=0.0,
        max_policy_lag=9,
    )
    run = GeneralRun(config, batches=True)
    run.advance()
    found = window_values(run.rows("batches"), Windows(2, 4))

    assert found["window_seconds_per_update"].tolist() == [0.25, 0.25, 0.0, 0.25]
