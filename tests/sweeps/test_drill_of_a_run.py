"""``lagsweep drill`` of a run: how long it lasts where nobody says it, and ways out that the command has."""

from __future__ import annotations

import re

import pytest
from oracle.every_command import run

import lagsweep as ls
from lagsweep.sweeps.checkpoint.scope_losses import failing
from lagsweep.sweeps.cli.drill_command import EPILOG, command
from lagsweep.sweeps.runs.diagnosis import phase_bounds

ONE = ["drill", "--preset", "areal", "--seeds", "1"]


@pytest.mark.parametrize("mtbf", [None, 40.0, 11_135.0])
@pytest.mark.parametrize("preset", ["areal", "synchronous_colocated", None])
def test_a_run_without_a_duration_gets_one_with_failures_and_many_updates(preset, mtbf):
    base = ls.PipelineConfig(warmup_seconds=100) if preset is None else ls.preset_config(preset)
    config, assumed = failing(base, mtbf)
    bounds = phase_bounds(base)
    measured = config.duration_seconds - config.warmup_seconds

    assert "duration_seconds" in assumed
    assert measured >= 0.999 * 8 * config.trainer_mtbf_seconds
    assert measured >= 100 * (bounds.generation_seconds + bounds.training_seconds)
    assert config.trainer_mtbf_seconds == (measured / 8 if mtbf is None else mtbf)


def test_a_chosen_duration_ends_and_a_given_one_stays():
    slowed = ls.preset_config("areal", decode_slowdown_per_rollout=0.01)
    assert failing(slowed, 1e12)[0].duration_seconds <= 5e5
    assert failing(ls.preset_config("areal"), 1e12)[0].duration_seconds < 1e7

    config, assumed = failing(ls.preset_config("areal"), duration_seconds=777.0, restart_seconds=5.0)
    assert (config.duration_seconds, config.restart_seconds) == (777.0, 5.0)
    assert "duration_seconds" not in assumed
    said = ls.preset_config("areal", duration_seconds=900)
    assert failing(said, 100.0)[0].duration_seconds == 900


def test_the_examples_of_the_help_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.toml").write_text("[base]\nduration_seconds = 1200\n")
    calls = [line.split()[1:] for line in EPILOG.splitlines() if line.strip().startswith("lagsweep")]

    assert ["drill", "--preset", "areal", "--trainer-mtbf-seconds", "11135"] in calls
    for call in calls:
        answer = run(call)
        assert answer.code == 0, answer.err
        if "--preset" in call:
            text = " ".join(answer.out.decode().split())
            assert "8 runs of 89,080 s with each scope" in text
            assert "the run does not say it: checkpoint_every_updates, duration_seconds." in text


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        ("must be long enough to train: a batch takes", ["--duration-seconds", "60"]),
        ("must let the trainer finish updates between failures", ["--trainer-mtbf-seconds", "5"]),
        (
            "must let the trainer fail in some run",
            ["--trainer-mtbf-seconds", "1e7", "--duration-seconds", "2000"],
        ),
    ],
)
def test_every_way_out_is_a_flag_of_the_command(rule, more):
    answer = run([*ONE, *more])
    text = answer.err.decode()
    named = set(re.findall(r"--[a-z-]+", text))

    assert answer.code == 2
    assert rule in text
    assert named
    assert named <= {flag for option in command.params for flag in option.opts}


def test_flags_take_the_place_of_what_a_preset_has():
    answer = run(
        [*ONE, "--duration-seconds", "20000", "--restart-seconds", "30", "--checkpoint-seconds", "4"]
    )
    text = " ".join(answer.out.decode().split())

    assert answer.code == 0, answer.err
    assert "restarts in 30 s; a checkpoint of 4 s every 10 updates; 1 run of 20,000 s with each scope" in text
    alone = run(["drill", "--restart-seconds", "0"])
    assert alone.code == 2
    assert b"--restart-seconds: needs a run" in alone.err
