"""The axis ``system``: presets with knobs as values, beside one workload, in all that a sweep can do."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lagsweep import (
    ConfigError,
    LengthLaw,
    PipelineConfig,
    config_at,
    load_spec,
    open_sweep,
    preset_config,
    recommend,
    run_sweep,
    simulate_pipeline,
)
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.compare.rows import comparison_rows
from lagsweep.sweeps.compare.systems import compared_systems, comparison_spec, systems_of
from lagsweep.sweeps.presets.systems import checked_label, workload_config
from lagsweep.sweeps.spec.carried import spec_of
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.writing import spec_to_toml
from lagsweep.sweeps.store.verify import verify_store

SMALL = {
    "batch_groups": 2,
    "group_size": 2,
    "rollout_workers": 8,
    "response_length": LengthLaw.uniform(20, 80),
    "train_tokens_per_second": 200.0,
    "duration_seconds": 120.0,
}
LABELS = ["areal", "areal:max_head_offpolicyness=2", "tinker", "prime_rl"]


def base(**changes):
    return PipelineConfig(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def ds():
    return run_sweep(base(), {"system": LABELS}, seeds=4)


def command(capsys, *arguments):
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    streams = capsys.readouterr()
    return ended.value.code or 0, streams.out, streams.err


def test_every_cell_is_its_preset_beside_the_workload(ds):
    assert ds.system.values.tolist() == LABELS
    for label in LABELS:
        preset, _, knob = label.partition(":")
        knobs = {"max_head_offpolicyness": 2} if knob else {}
        alone = simulate_pipeline(preset_config(preset, **SMALL, **knobs, seed=3))
        for metric in ("trained_tokens", "mean_lag", "slots_busy_seconds"):
            assert ds[metric].sel(system=label, seed=3).item() == getattr(alone, metric)


def test_a_cell_can_be_run_again_from_the_dataset(ds):
    config = config_at(ds, {"system": "areal:max_head_offpolicyness=2"}, seed=1)

    assert config.preset[0] == "areal"
    assert config.limits[0].groups == 6
    assert simulate_pipeline(config).trained_tokens == ds.trained_tokens.sel(system=LABELS[1], seed=1)


def test_the_spec_survives_json_and_toml(ds, tmp_path):
    spec = spec_of(ds)
    (tmp_path / "again.toml").write_text(spec_to_toml(spec))
    again = load_spec(tmp_path / "again.toml")

    assert again.fingerprint == spec.fingerprint
    assert (again.cell_ids == spec.cell_ids).all()
    assert again.base.preset[0] == "workload"


def test_a_spec_file_needs_no_word_about_the_workload(tmp_path):
    text = (
        'seeds = 2\n[base]\nbatch_groups = 2\nduration_seconds = 60\n[axes]\nsystem = ["areal", "tinker"]\n'
    )
    (tmp_path / "two.toml").write_text(text)

    ds = load_spec(tmp_path / "two.toml").run()

    assert config_at(ds, {"system": "tinker"}).batch_groups == 2
    assert (ds.status == 1).all()


def test_knobs_in_another_order_are_the_same_system():
    one = "miles:max_weight_staleness=2+pause_generation_mode=in_place"
    other = "miles:pause_generation_mode=in_place, max-weight-staleness=2"
    spec = make_spec(base(), {"system": [one, "tinker"]}, 1)
    turned = make_spec(base(), {"system": [other, "tinker"]}, 1)

    assert (
        checked_label(other, "axes.system") == "miles:pause_generation_mode=in_place+max_weight_staleness=2"
    )
    assert (spec.cell_ids == turned.cell_ids).all()
    with pytest.raises(ConfigError, match=r"axes.system: must not repeat a value"):
        make_spec(base(), {"system": [one, other]}, 1)


def test_other_axes_combine_with_it():
    ds = run_sweep(base(), {"system": ["areal", "tinker"], "rollout_workers": [4, 8]}, seeds=2)

    assert dict(ds.sizes)["rollout_workers"] == 2
    assert config_at(ds, {"system": "areal", "rollout_workers": 4}).rollout_workers == 4


def test_a_knob_of_every_system_can_be_an_axis_and_one_of_another_is_refused():
    axes = {"system": ["areal"], "preset.max_head_offpolicyness": [1, 3]}
    ds = run_sweep(base(), axes, seeds=1)
    assert [config_at(ds, int(cell)).limits[0].groups for cell in ds.cell.values.ravel()] == [4, 8]

    with pytest.raises(ConfigError, match="is neither a field nor a knob of preset 'tinker'"):
        run_sweep(base(), {**axes, "system": ["areal", "tinker"]}, seeds=1)


def test_a_base_with_rules_of_its_own_is_refused():
    with pytest.raises(ConfigError, match=r"base.preset: excludes the axis system \(got 'areal'\)"):
        make_spec(preset_config("areal", **SMALL), {"system": ["tinker"]}, 1)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("arreal", "preset: must be a known preset (got 'arreal'). Did you mean 'areal'?"),
        ("areal:max_head_offpolicyness", "axes.system: must read PRESET:KNOB=VALUE"),
        ("areal:nonsense=2", "nonsense: is neither a field nor a knob of preset 'areal' (got 2)."),
        (3, "axes.system: must be a system's label (got 3). Write 'areal' or 'areal:KNOB=2'."),
    ],
)
def test_a_label_that_names_no_system_says_what_is_wrong(label, text):
    with pytest.raises(ConfigError) as caught:
        make_spec(base(), {"system": [label]}, 1)

    assert str(caught.value).startswith(text)


def test_settings_of_an_abort_are_for_the_systems_that_abort():
    spec = make_spec(
        workload_config(**SMALL, reprefill_tokens_per_second=50.0), {"system": ["areal", "tinker"]}, 1
    )
    plain = make_spec(base(), {"system": ["areal", "tinker"]}, 1)

    assert spec.config(0).reprefill_tokens_per_second == 50.0
    assert spec.config(1).reprefill_tokens_per_second is None
    assert not set(spec.cell_ids.tolist()) & set(plain.cell_ids.tolist())
    assert spec.fingerprint != plain.fingerprint


def test_it_is_stored_resumed_extended_and_verified(tmp_path, ds):
    run_sweep(base(), {"system": LABELS[:2]}, seeds=2, store=tmp_path / "sweep")
    run_sweep(base(), {"system": LABELS}, seeds=4, store=tmp_path / "sweep")

    stored = open_sweep(tmp_path / "sweep")
    assert stored.system.values.tolist() == LABELS
    for name in ("trained_tokens", "mean_lag", "lag_counts"):
        assert np.array_equal(stored[name].values, ds[name].values)
    assert verify_store(tmp_path / "sweep", everything=True).sound


def test_recommend_chooses_among_systems(ds):
    best = recommend(ds, maximize="trained_tokens_per_second", min_ess=0.0)

    fastest = ds.trained_tokens_per_second.mean("seed").idxmax("system").item()
    assert config_at(ds, best.cell).to_dict() == config_at(ds, {"system": fastest}).to_dict()
    assert "system" in str(best)


def test_a_comparison_is_such_a_sweep():
    systems = compared_systems(
        [("areal", {"max_head_offpolicyness": 2}), ("tinker", {})], {**SMALL, "warmup_seconds": 0.0}
    )
    spec = comparison_spec(systems, 3)

    assert list(spec.design.columns["system"][1]) == [
        "areal:max_head_offpolicyness=2",
        "tinker",
        "synchronous_colocated",
        "synchronous_colocated:training_scaling=0.2",
    ]
    for place, system in enumerate(systems):
        assert spec.config(place) == system.config


def test_rows_need_the_axis_system_alone(ds):
    assert [system.label for system in systems_of(ds)] == ["areal 1", "areal 2", "tinker", "prime_rl"]
    two = run_sweep(base(), {"system": ["areal", "tinker"], "rollout_workers": [4, 8]}, seeds=1)

    with pytest.raises(ConfigError, match="dataset: must be a sweep over the axis system alone"):
        comparison_rows(two)


def test_the_command_line_sweeps_systems(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fields = ["--batch-groups", "2", "--group-size", "2", "--duration-seconds", "100", "--seeds", "2", "-q"]
    miles = "miles:max_weight_staleness=2,pause_generation_mode=in_place"
    axis = f"system=areal:max_head_offpolicyness=2,{miles},tinker:stale_groups=requeue"

    code, out, _ = command(capsys, "run", "--axis", axis, *fields, "--store", "sweep")

    assert code == 0
    assert "areal:max_head_offpolicyness=2" in out
    assert open_sweep("sweep").system.size == 3
    label = "miles:max_weight_staleness=2+pause_generation_mode=in_place"
    code, out, err = command(
        capsys, "trace", "sweep", "--cell", f"system={label}", "--seed", "1", "-o", "run.json"
    )
    assert code == 0, err
    assert "bit for bit" in out


def test_a_comparison_can_be_kept_and_gone_on_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = [
        "compare",
        "areal",
        "tinker",
        "--batch-groups",
        "2",
        "--group-size",
        "2",
        "--rollout-workers",
        "8",
    ]
    line += ["--duration-seconds", "300", "--warmup-seconds", "10", "--law", "uniform:20:80", "--json", "-q"]
    _, in_memory, _ = command(capsys, *line, "--seeds", "4")
    command(capsys, *line, "--seeds", "2", "--store", "kept")

    code, stored, _ = command(capsys, *line, "--seeds", "4", "--store", "kept")

    assert code == 0
    assert json.loads(stored) == json.loads(in_memory)
    assert command(capsys, "verify", "kept")[0] == 0
    assert command(capsys, "show", "kept")[0] == 0
