"""An engine as a setting: given in specs, files, flags and axes, refused where it contradicts, in sweeps."""

from __future__ import annotations

import numpy as np
import pytest
from strategies.engine_configs import to_config

import lagsweep as ls
from lagsweep.sweeps.spec.cells import configs_of

ENGINE = ls.Engine(step_seconds=0.02, step_seconds_per_context_token=1e-7, kv_cache_tokens=4000)
SHORT = {"duration_seconds": 60.0, "rollout_workers": 8, "batch_tokens": 1000}
FILE = """
step_seconds = 0.02
max_running = 16
[fitted]
model = "some"
"""
SPEC = """
seeds = 2
[base]
duration_seconds = 60
engine = { file = "engine.toml", kv_cache_tokens = 5000 }
[axes]
engine.max_running = [2, "none"]
"engine.count" = [1, 2]
"""


@pytest.mark.parametrize(
    "name", ["decode_tokens_per_second", "decode_slowdown_per_rollout", "reprefill_tokens_per_second"]
)
def test_what_an_engine_replaces_is_refused_beside_it_unless_it_is_the_default(name):
    with pytest.raises(ls.ConfigError, match=f"{name}: has no effect beside an engine"):
        ls.PipelineConfig(engine=ENGINE, publication="abort", **{name: 77})
    default = ls.PipelineConfig.model_fields[name].default
    assert ls.PipelineConfig(engine=ENGINE, **{name: default}).engine == ENGINE


def test_a_cache_below_one_rollout_is_refused_in_a_configuration_and_excluded_as_a_cell():
    with pytest.raises(ls.ConfigError, match="must hold one rollout: at least 2148"):
        ls.PipelineConfig(engine=ls.Engine(step_seconds=0.02, kv_cache_tokens=2147), prompt_tokens=100)

    ds = ls.run_sweep(ls.PipelineConfig(engine=ENGINE, **SHORT), {"engine.kv_cache_tokens": [2000, 3000]}, 1)
    assert (ds["status"].values == 1).tolist() == [[False], [True]]
    assert ls.config_at(ds, int(ds.cell[1])).engine.kv_cache_tokens == 3000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"duration_seconds": 4.4e6}, "must be below 4398046"),
        ({"engine": {"step_seconds": 1e-12}, "duration_seconds": 1e6}, "is too short for a run"),
        ({"engine": {"step_seconds": 1.0, "step_seconds_per_context_token": 3e6}}, "a step could last"),
        ({"engine": 7}, "must be an engine"),
        ({"engine": {"steps": 7}}, "engine.steps"),
    ],
)
def test_engines_without_meaning_are_refused_with_the_reason(changes, words):
    with pytest.raises(ls.ConfigError, match=words):
        ls.PipelineConfig(**{"engine": ENGINE, **changes})


def test_a_configuration_with_an_engine_comes_back_from_plain_data():
    config = ls.PipelineConfig(engine=ENGINE, **SHORT)
    plain = config.to_dict()

    assert plain["engine"] == {
        "step_seconds": 0.02,
        "step_seconds_per_context_token": 1e-7,
        "kv_cache_tokens": 4000,
    }
    assert ls.PipelineConfig.from_dict(plain) == config
    assert "engine" not in ls.PipelineConfig().to_dict()


def test_a_spec_takes_an_engine_from_a_file_and_its_fields_as_axes(tmp_path):
    (tmp_path / "engine.toml").write_text(FILE)
    (tmp_path / "s.toml").write_text(SPEC)
    spec = ls.load_spec(tmp_path / "s.toml")
    found = configs_of(spec.base, spec.design, range(4))

    assert [(one.engine.max_running, one.engine.count) for one in found] == [
        (2, 1), (2, 2), (None, 1), (None, 2),
    ]  # fmt: skip
    assert {one.engine.kv_cache_tokens for one in found} == {5000}
    assert len(np.unique(spec.cell_ids)) == 4


def test_engine_against_none_is_an_axis_and_leaves_out_what_has_no_effect():
    base = ls.PipelineConfig(decode_tokens_per_second=40, **SHORT)
    ds = ls.run_sweep(base, {"engine": [None, ENGINE]}, 1)

    assert (ds["status"].values == 1).all()
    own = ls.config_at(ds, {"engine": "none"})
    assert own.decode_tokens_per_second == 40
    assert own.engine is None
    assert np.isnan(ds["mean_engine_running"].values[0, 0])
    assert ds["mean_engine_running"].values[1, 0] > 0


def test_results_without_engines_have_no_metric_of_them():
    run = ls.simulate_pipeline(ls.PipelineConfig(publication="pause", **SHORT))
    assert "decode_steps" not in run.metrics
    with pytest.raises(ls.ConfigError, match="rows by engine"):
        run.engines_frame()


def test_the_colocated_baseline_has_as_many_more_engines():
    engine = ls.Engine(count=4, step_seconds=0.02)
    found = ls.preset_config("synchronous_colocated", engine=engine, rollout_workers=8, rollout_share=0.25)
    assert found.engine.count == 16
    assert found.rollout_workers == 32
    assert ls.preset_config("areal", engine=engine).engine == engine


def test_causes_of_slot_time_still_sum_and_waiting_is_a_part_of_busy():
    tight = ls.Engine(step_seconds=0.02, kv_cache_tokens=2600, max_running=3)
    run = ls.simulate_pipeline(ls.PipelineConfig(engine=tight, **SHORT))

    assert sum(run.slot_ticks.values()) == 8 * 60_000_000
    assert 0 < run.slots_engine_queue_seconds < run.slots_busy_seconds
    assert run.engine_busy_seconds + run.engine_idle_seconds == pytest.approx(60)
    assert run.max_kv_cache_share <= 1


def test_bounds_of_engines_are_near_what_runs_reach():
    config = ls.PipelineConfig(
        engine=ENGINE.to_dict() | {"kv_cache_tokens": 20_000},
        rollout_workers=64, duration_seconds=2000, warmup_seconds=200, max_queue_tokens=None,
        train_tokens_per_second=1e6, train_overhead_seconds=0, max_policy_lag=100, batch_tokens=20_000,
    )  # fmt: skip
    bound = ls.phase_bounds(config)
    assert bound.generation_seconds == pytest.approx(
        ls.simulate_pipeline(config).seconds_per_update, rel=0.05
    )


def test_without_context_and_memory_an_engine_is_a_decode_slowdown_up_to_a_step():
    """One rollout at a time joins at a boundary: the same speed as a + b n in the work clock."""
    common = {
        "duration_seconds": 50.0, "rollout_workers": 1, "rollout_overhead_seconds": 0.0,
        "response_length": ("fixed", 100), "batch_tokens": 200, "max_queue_tokens": None,
        "train_tokens_per_second": 1e9, "train_overhead_seconds": 0.0, "max_policy_lag": 9,
    }  # fmt: skip
    steps = {"step_seconds": 0.008, "step_seconds_per_rollout": 0.002}
    with_engine = ls.simulate_pipeline(to_config({**common, "engine": steps}), rollouts=True)
    from strategies import general_configs

    plain = general_configs.to_config({**common, "decode_tokens_per_second": 100.0})
    without = ls.simulate_pipeline(plain, rollouts=True)
    ends = [[row.end for row in run.rollouts if row.end is not None] for run in (with_engine, without)]
    np.testing.assert_allclose(ends[0], ends[1], atol=0.01)
