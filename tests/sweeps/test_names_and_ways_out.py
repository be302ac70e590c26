"""One rule for how a preset's name is written, a spec that is not there, and systems without POSIX locks."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import xarray
from click.testing import CliRunner

from lagsweep import PipelineConfig, all_presets, config_at, load_spec, preset_config, run_spec, run_sweep
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.compare_command import command as compare
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.cli.simulate_command import command as simulate
from lagsweep.sweeps.presets.registry import find_preset, preset_name
from lagsweep.sweeps.presets.systems import checked_label

HERE = Path(__file__).resolve().parents[2]
SMALL = {"batch_groups": 4, "group_size": 2, "duration_seconds": 60.0}
FLAGS = ["--batch-groups", "4", "--group-size", "2", "--duration-seconds", "60"]


def ran(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return stop.value.code, *capsys.readouterr()


# Names of presets ------------------------------------------------------------------------------------------


def test_every_preset_is_found_however_its_name_is_written():
    for name in all_presets():
        for written in (name, name.upper(), name.replace("_", "-"), f" {name.replace('_', ' ').title()} "):
            assert find_preset(written).name == name
    assert len({preset_name(name) for name in all_presets()}) == len(all_presets())


def test_a_configuration_is_the_same_however_its_preset_is_written(tmp_path):
    plain = preset_config("prime_rl", **SMALL)
    written = preset_config("Prime-RL", **SMALL)
    assert written == plain
    assert written.preset == plain.preset

    spec = tmp_path / "one.toml"
    lines = (
        "seeds = 2\n[base]\npreset = '{}'\nbatch_groups = 4\n[axes]\n'preset.max_off_policy_steps' = [1, 2]\n"
    )
    fingerprints = []
    for name in ("prime_rl", "prime-rl", "PRIME RL"):
        spec.write_text(lines.format(name))
        fingerprints.append(load_spec(spec).fingerprint)
    assert len(set(fingerprints)) == 1


def test_every_door_for_presets_takes_them(capsys, tmp_path):
    outputs = []
    for name in ("prime_rl", "prime-rl", "Prime-RL"):
        result = CliRunner().invoke(simulate, ["--preset", name, "--json", *FLAGS])
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    assert len(set(outputs)) == 1

    result = CliRunner().invoke(compare, ["prime-rl", "AReaL:max-head-offpolicyness=2", "-q", "--json",
                                          "--seeds", "1", "--warmup-seconds", "0", *FLAGS])  # fmt: skip
    assert result.exit_code == 0, result.output
    assert [row["preset"] for row in json.loads(result.output)["systems"]][:2] == ["prime_rl", "areal"]
    assert ran(capsys, "presets", "prime-rl") == ran(capsys, "presets", "prime_rl")

    base = PipelineConfig(**SMALL, rollout_workers=8)
    assert checked_label("AReaL:max-head-offpolicyness=2", "axes") == "areal:max_head_offpolicyness=2"
    spec = tmp_path / "two.toml"
    spec.write_text("seeds=1\nbaseline=false\n[base]\nbatch_groups=4\n[axes]\nsystem=['prime-rl','Tinker']\n")
    ds = run_spec(load_spec(spec))
    assert ds["system"].values.tolist() == ["prime_rl", "tinker"]
    at = config_at(ds, {"system": "prime-rl"}, seed=ds["seed"].values[0])
    assert at == config_at(ds, {"system": "prime_rl"}, seed=ds["seed"].values[0])
    assert base.preset is None


def test_several_presets_that_begin_alike_are_all_named():
    with pytest.raises(ConfigError, match="Did you mean one of verl_fully_async, verl_one_step_off, verl_v1"):
        find_preset("verl")
    with pytest.raises(ConfigError, match="Did you mean 'tinker'"):
        find_preset("Tinkr")


# A spec that is not there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mine.toml", "TOML files there: other.toml."),
        ("othr.toml", "Did you mean 'other.toml'?"),
        ("other", "Did you mean 'other.toml'?"),
        ("nowhere/mine.toml", "There is no folder nowhere."),
        ("empty/mine.toml", "Write it, or name an example. Shipped examples: aime-cap-lag-cadence"),
        ("aime-cap-lag-cadenc", "Did you mean 'aime-cap-lag-cadence'?"),
    ],
)
def test_a_spec_that_is_not_there_says_so_and_what_is(capsys, monkeypatch, tmp_path, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.toml").write_text("seeds = 2\n")
    code, _, error = ran(capsys, "run", given)

    assert code == 2
    assert said in error
    assert ("must be a file that is there" in error) == (given != "aime-cap-lag-cadenc")


# Baselines -------------------------------------------------------------------------------------------------


def test_a_sweep_in_python_has_the_baseline_that_the_command_runs():
    base = PipelineConfig(duration_seconds=120.0)
    plain = run_sweep(base, {"max_lag": [0, 1]}, seeds=2)
    beside = run_sweep(base, {"max_lag": [0, 1]}, seeds=2, baseline=True)

    assert "baseline_status" not in plain
    assert beside["baseline_trained_tokens_per_second"].dims == ("seed",)
    cells = [name for name in plain.data_vars if name in beside.data_vars]
    xarray.testing.assert_equal(plain[cells], beside[cells])
    with pytest.raises(ConfigError, match="baseline: must be true or false"):
        run_sweep(base, {"max_lag": [0, 1]}, seeds=2, baseline="yes")


# Systems without POSIX locks -------------------------------------------------------------------------------


def test_without_posix_locks_one_sentence_says_so_and_what_needs_no_store_works(tmp_path):
    hidden = "import sys; sys.modules['fcntl'] = None; from lagsweep.sweeps.cli.main import main; main()"

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-c", hidden, *arguments], capture_output=True, text=True, cwd=tmp_path
        )

    refused = command("run", "--axis", "max_lag=0,1", "--seeds", "1", "--duration-seconds", "60")
    assert refused.returncode == 3
    lines = [line for line in refused.stderr.splitlines() if line.startswith("error:")]
    assert lines == [
        "error: store: needs a POSIX system's file locks (got 'linux'). Use Linux, macOS or WSL."
    ]
    assert "Traceback" not in refused.stderr
    assert command("presets", "areal").returncode == 0


def test_the_package_says_that_it_is_for_posix():
    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]

    assert [one for one in project["classifiers"] if one.startswith("Operating System")] == [
        "Operating System :: POSIX"
    ]
    assert "On a POSIX system (Linux, macOS, WSL" in (HERE / "README.md").read_text("utf-8")
