"""A flag beside an axis that sets the same in every cell is refused by name; one that is needed stays."""

from __future__ import annotations

import json

import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.sweeps.config.config import AXIS_FIELDS
from lagsweep.sweeps.config.engine import Engine
from lagsweep.sweeps.presets.registry import all_presets
from lagsweep.sweeps.spec.changes import made_with

FIELDS = [name for name in ls.PipelineConfig.model_fields if name != "seed"]
KNOBS = sorted({knob.name for preset in all_presets().values() for knob in preset.knobs})
# A change of the base, and the axis that sets the same: every field, alias, knob and field of an engine.
PAIRS = [
    *((name, name) for name in FIELDS),
    *((field, alias) for alias, field in AXIS_FIELDS.items()),
    *((name, f"preset.{name}") for name in KNOBS),
    *((f"engine.{name}", f"engine.{name}") for name in Engine.model_fields),
    *((f"engine.{name}", "engine") for name in Engine.model_fields),
]
ENGINE = ["--engine-step-seconds", "0.02", "--engine-max-running", "4"]
AREAL = ["--preset", "areal", "--knob", "max_head_offpolicyness=4"]
REFUSED = [
    (["--max-policy-lag", "7", "--axis", "max_lag=1,2"], "--max-policy-lag", "max_lag"),
    (["--max-policy-lag", "7", "--axis", "max_policy_lag=1,2"], "--max-policy-lag", "max_policy_lag"),
    (["--max-queue-tokens", "7", "--axis", "queue_cap=4000,5000"], "--max-queue-tokens", "queue_cap"),
    (["--sync-every-updates", "3", "--axis", "sync_cadence=1..2"], "--sync-every-updates", "sync_cadence"),
    (["--law", "fixed:50", "--axis", "response_length=fixed:60,fixed:70"], "--response-length",
     "response_length"),
    ([*AREAL, "--axis", "preset.max_head_offpolicyness=1,2"], "--knob max_head_offpolicyness",
     "preset.max_head_offpolicyness"),
    ([*ENGINE, "--axis", "engine.max_running=2,3"], "--engine-max-running", "engine.max_running"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "axis"), PAIRS)
def test_every_field_alias_and_knob_is_looked_at(change, axis):
    with pytest.raises(ls.ConfigError) as caught:
        made_with(lambda changes: [axis], {change: 1}, list)
    assert [(one.field, one.value) for one in caught.value.findings] == [(change, 1)]
    assert f"beside the axis {axis}" in str(caught.value)


@pytest.mark.parametrize("command", ["run", "search", "sensitivity"])
@pytest.mark.parametrize(("flags", "flag", "axis"), REFUSED, ids=[flag for _, flag, _ in REFUSED])
def test_the_flag_the_axis_and_the_way_out_are_named(tmp_path, monkeypatch, command, flags, flag, axis):
    monkeypatch.chdir(tmp_path)
    answer = run([command, *flags])
    text = answer.err.decode()

    assert answer.code == 2
    assert f"{flag}: has no effect in any cell beside the axis {axis} (got " in text
    assert "Leave out one of the two, or give the axis this value alone." in text
    assert list(tmp_path.iterdir()) == []


def test_several_are_named_at_once_and_an_axis_of_the_file_counts(tmp_path):
    spec = tmp_path / "s.toml"
    spec.write_text(
        "seeds = 1\n[base]\nduration_seconds = 60\n[axes]\nmax_lag = [1, 2]\nqueue_cap = [9000]\n"
    )
    answer = run(["run", str(spec), "--max-policy-lag", "7", "--max-queue-tokens", "8000"])

    assert answer.code == 2
    assert b"--max-policy-lag: has no effect" in answer.err
    assert b"--max-queue-tokens: has no effect" in answer.err
    with pytest.raises(
        ls.ConfigError, match="max_policy_lag: has no effect in any cell beside the axis max_lag"
    ):
        ls.load_spec(spec, max_policy_lag=7)
    alone = run(["run", str(spec), "--axis", "max_lag=7", "--dry-run", "--json"])
    assert json.loads(alone.out)["cells"] == 1


def test_a_value_of_the_file_gives_way_to_a_flags_axis(tmp_path):
    spec = tmp_path / "s.toml"
    spec.write_text("seeds = 1\n[base]\nduration_seconds = 60\nmax_policy_lag = 7\n")
    answer = run(["run", str(spec), "--axis", "max_lag=1,2", "--dry-run", "--json"])

    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["cells"] == 2


@pytest.mark.parametrize(
    "flags",
    [
        ["--engine-step-seconds", "0.02", "--axis", "engine.step_seconds=0.01,0.02"],
        [
            *("--preset", "skyrl", "--knob", "num_parallel_generation_workers=100"),
            *("--knob", "max_staleness_steps=8", "--axis", "preset.max_staleness_steps=6,8"),
        ],
    ],
    ids=["an engine needs a step", "a base that holds"],
)
def test_a_flag_that_the_base_cannot_do_without_stays(flags):
    answer = run(["run", *flags, "--seeds", "1", "--dry-run", "--json"])

    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["cells"] == 2
