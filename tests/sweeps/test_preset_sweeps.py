"""A sweep that starts from a preset, and sweeps its knobs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from oracle.small_sweeps import tree

from lagsweep import (
    ConfigError,
    DriftLaw,
    Engine,
    LengthLaw,
    SecondsLaw,
    StoreError,
    all_presets,
    config_at,
    load_spec,
    run_sweep,
)
from lagsweep.sweeps.presets.registry import changed_beside_rules, preset_config
from lagsweep.sweeps.spec.carried import spec_of
from lagsweep.sweeps.spec.reading import spec_from_sections

SPEC = """
name = "knobs"
seeds = 3
[base]
preset = "areal"
batch_groups = 4
group_size = 2
rollout_workers = 16
train_tokens_per_second = 900
duration_seconds = 120
[axes]
preset.max_head_offpolicyness = [0, 2]
sync_seconds = [0.5, 4.0]
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "knobs.toml"
    path.write_text(SPEC)
    return load_spec(path)


def _preset(**changes):
    given = {"batch_groups": 4, "group_size": 2, "rollout_workers": 16, "train_tokens_per_second": 900}
    return preset_config("areal", **given, **{"duration_seconds": 120, **changes})


def test_every_cell_is_the_preset_with_its_knobs(spec):
    assert spec.config(0) == _preset(max_head_offpolicyness=0, sync_seconds=0.5)
    assert spec.config(3) == _preset(max_head_offpolicyness=2, sync_seconds=4.0)
    assert [spec.config(cell).limits[0].groups for cell in range(4)] == [4, 4, 12, 12]


def test_the_rules_follow_a_swept_field_of_the_workload():
    ds = run_sweep(_preset(max_head_offpolicyness=1), {"batch_groups": [2, 4]}, seeds=2, progress=False)
    limits = [config_at(ds, {"batch_groups": count}, seed=0).limits[0].groups for count in (2, 4)]

    assert limits == [4, 8]


def test_a_dataset_gives_back_the_runs_of_its_cells(spec):
    ds = spec.run(progress=False)
    again = run_sweep(
        _preset(max_head_offpolicyness=2), {"sync_seconds": [0.5, 4.0]}, seeds=3, progress=False
    )

    assert ds.sizes["preset.max_head_offpolicyness"] == 2
    np.testing.assert_array_equal(
        ds["trained_tokens"].sel({"preset.max_head_offpolicyness": 2}), again["trained_tokens"]
    )
    config = config_at(ds, {"preset.max_head_offpolicyness": 2, "sync_seconds": 4.0}, seed=1)
    assert config == spec.config(3, seed=1)
    assert int(ds["max_lag_observed"].sel({"preset.max_head_offpolicyness": 0}).max()) == 0


def test_the_plain_form_comes_back_the_same(spec):
    again = spec_from_sections(json.loads(spec.to_json()))

    assert again.fingerprint == spec.fingerprint
    assert again.config(3) == spec.config(3)
    assert np.array_equal(again.cell_ids, spec.cell_ids)
    assert len(set(spec.cell_ids.ravel().tolist())) == 4


def test_another_preset_is_another_sweep(spec, tmp_path):
    path = tmp_path / "other.toml"
    path.write_text(SPEC.replace("areal", "skyrl").replace("max_head_offpolicyness", "max_staleness_steps"))

    assert load_spec(path).fingerprint != spec.fingerprint


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("preset.max_head_offpolicyness", "preset.max_head_ofpolicy", "Did you mean 'preset.max_head_offpol"),
        ('"areal"', '"areall"', "Did you mean 'areal'?"),
        ("[0, 2]", "[0, -2]", "max_head_offpolicyness: must be at least 0 (got -2)"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, text):
    path = tmp_path / "wrong.toml"
    path.write_text(SPEC.replace(old, new))

    with pytest.raises(ConfigError) as caught:
        load_spec(path)

    assert text in str(caught.value)


def test_the_command_takes_a_preset_and_its_knobs(tmp_path):
    outcome = subprocess.run(
        [
            *(sys.executable, "-m", "lagsweep.sweeps.cli", "run", "--preset", "areal", "--batch-groups", "2"),
            *("--knob", "max_head_offpolicyness=1", "--axis", "sync_seconds=1,2", "--seeds", "2"),
            *("--duration-seconds", "60", "--rollout-workers", "16", "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)
    (folder,) = (tmp_path / "results").iterdir()
    assert load_spec(folder / "spec.toml").base.limits[0].groups == 4


def test_a_result_of_one_run_keeps_its_spec(spec):
    assert spec_of(spec.run(progress=False)).base.preset[0] == "areal"


def test_a_store_does_not_grow_by_an_axis_over_a_knob(tmp_path):
    """Its cells' ids do not count the base's knobs, and would not stay."""
    run_sweep(_preset(), {"batch_groups": [2, 4]}, seeds=1, store=tmp_path / "sweep")
    before = tree(tmp_path / "sweep")

    axes = {"batch_groups": [2, 4], "preset.max_head_offpolicyness": [1]}
    with pytest.raises(StoreError, match=r"axes.preset.max_head_offpolicyness: not in the store"):
        run_sweep(_preset(), axes, seeds=1, store=tmp_path / "sweep")

    assert tree(tmp_path / "sweep") == before


# Values of fields off their defaults; presets whose rules read or set a field are asked anew.
OTHER_VALUES = {
    "duration_seconds": 77.0,
    "stop_after_updates": 9,
    "decode_tokens_per_second": 33.0,
    "rollout_overhead_seconds": 0.25,
    "response_length": LengthLaw.uniform(3, 90),
    "train_overhead_seconds": 0.0,
    "sync_every_updates": 2,
    "sync_seconds": 4.5,
    "drift_per_version": 0.4,
    "warmup_seconds": 10.0,
    "environment_seconds": SecondsLaw.fixed(2.0),
    "prompt_tokens": 40,
    "publication": "drain",
    "publication_blocks_trainer": True,
    "train_slowdown_when_generating": 0.5,
    "fetch_seconds": 1.5,
    "prompt_sigma": 0.3,
    "filter_probability": 0.2,
    "prefetch_batches": 3,
    "max_running_groups": 6,
    "trainer_mtbf_seconds": 50.0,
    "resume_seconds": 0.5,
    "queue_order": "freshest",
    "max_queue_tokens": 9000,
    "batch_groups": 5,
    "engine": Engine(step_seconds=0.02),
}


def replaced(base, changes):
    try:
        return base.replace(**changes)
    except ConfigError:
        return None


@pytest.mark.parametrize("name", all_presets())
def test_cells_beside_a_presets_rules_are_what_the_preset_gives(name):
    base = preset_config(name, batch_groups=4, group_size=2, rollout_workers=8)
    pairs = itertools.pairwise(OTHER_VALUES)
    quickly = 0
    for names in [(), *((one,) for one in OTHER_VALUES), *pairs]:
        changes = {field: OTHER_VALUES[field] for field in names}
        made = changed_beside_rules(base, changes)
        if made is None:
            continue
        quickly += 1
        asked = replaced(base, changes)
        assert asked is not None, changes
        assert made == asked
        assert {key: type(value) for key, value in vars(made).items()} == {
            key: type(value) for key, value in vars(asked).items()
        }
        assert made.model_fields_set == asked.model_fields_set
        assert made.preset == asked.preset
        assert made.lag_bound_of_preset == asked.lag_bound_of_preset
        assert made.replace(group_size=4) == asked.replace(group_size=4)
    assert quickly > 15
    for field in ("batch_groups", "engine", "max_queue_tokens"):
        assert changed_beside_rules(base, {field: OTHER_VALUES[field]}) is None


def test_a_preset_with_a_measured_drift_is_asked_for_each_cell():
    base = preset_config(
        "areal", drift=DriftLaw.from_log_ratios([0, 1], [[0.0, 0.1]] * 2, "sequence", beyond="last")
    )
    assert changed_beside_rules(base, {"sync_seconds": 2.0}) is None
