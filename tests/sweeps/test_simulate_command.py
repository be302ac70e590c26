"""``lagsweep simulate`` and ``completion``: one run from flags, in 80 columns, as JSON, and as tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import polars
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from lagsweep import LengthLaw, PipelineConfig, simulate_pipeline
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.completion_command import command as completion
from lagsweep.sweeps.cli.main import SUBCOMMANDS
from lagsweep.sweeps.cli.simulate_command import command

FLAGS = [
    "--law", "fixed:100", "--rollout-workers", "2", "--decode-tokens-per-second", "100",
    "--rollout-overhead-seconds", "0", "--batch-tokens", "200", "--max-queue-tokens", "300",
    "--train-tokens-per-second", "200", "--sync-seconds", "0.5", "--max-policy-lag", "1",
    "--duration-seconds", "8",
]  # fmt: skip
CONFIG = PipelineConfig(
    response_length=LengthLaw.fixed(100), rollout_workers=2, decode_tokens_per_second=100,
    rollout_overhead_seconds=0, batch_tokens=200, max_queue_tokens=300, train_tokens_per_second=200,
    sync_seconds=0.5, max_policy_lag=1, duration_seconds=8,
)  # fmt: skip


def _run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_every_metric_of_the_worked_run_is_in_the_table():
    outcome = _run(*FLAGS)
    lines = {
        line.split()[0]: line.split()[1] for line in outcome.stdout.splitlines() if len(line.split()) > 1
    }

    assert outcome.return_value == 0
    assert lines["updates"] == "3"
    assert lines["generated_tokens"] == "1,400"
    assert lines["discarded_rollouts"] == "4"
    assert lines["max_queue_tokens_observed"] == "400"
    assert lines["backpressure_seconds"] == "1.0000"
    assert lines["idle_slot_seconds"] == "2.0000"
    assert lines["mean_queue_tokens"] == "125.0"
    assert lines["syncs"] == "2"
    known = set(simulate_pipeline(CONFIG).metrics) - {"stalled"}
    assert known <= lines.keys()


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--mode", "sequential"],
        ["--max-queue-tokens", "100", "--batch-tokens", "300"],
        ["--duration-seconds", "1e6", "--train-tokens-per-second", "1e7", "--stop-after-updates", "30000"],
        ["--publication", "pause", "--decode-slowdown-per-rollout", "0.1"],
        ["--group-size", "2", "--batch-tokens", "none", "--batch-groups", "2"],
    ],
    ids=["plain", "sequential", "stalled", "large", "engine", "groups"],
)
def test_the_table_fits_80_columns_and_has_no_control_codes(more):
    outcome = _run(*FLAGS, *more)

    assert outcome.exception is None
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    assert "\x1b" not in outcome.stdout
    assert "\r" not in outcome.stdout


def test_a_run_that_stalls_or_trains_nothing_says_so():
    text = " ".join(_run(*FLAGS, "--max-queue-tokens", "100", "--batch-tokens", "300").stdout.split())

    assert "Stalled, last progress at 1 s: max_queue_tokens (100) closes admission" in text
    assert "No update completed in the measured time, so there is nothing to average." in text
    assert "trained_tokens_per_second 0.0000 tokens/s" in text


def test_what_the_model_leaves_out_is_said_where_it_matters():
    assert "The lag limit is enforced by discarding only." in _run(*FLAGS).stdout
    sequential = " ".join(_run(*FLAGS, "--mode", "sequential").stdout.split())
    assert "sequential is a disaggregated baseline: GPUs wait, they do not change sides." in sequential
    assert "discarding only" not in sequential


def test_json_is_the_result_and_holds_no_nan():
    facts = json.loads(_run(*FLAGS, "--max-queue-tokens", "100", "--batch-tokens", "300", "--json").stdout)
    result = simulate_pipeline(CONFIG.replace(max_queue_tokens=100, batch_tokens=300))

    assert PipelineConfig.from_dict(facts["config"]) == result.config
    assert facts["metrics"]["seconds_per_update"] is None
    assert facts["metrics"]["generated_tokens"] == result.generated_tokens
    assert facts["lag_counts"] == result.lag_counts.tolist()


def test_the_engine_reports_its_causes_in_json():
    facts = json.loads(_run(*FLAGS, "--publication", "pause", "--json").stdout)

    assert sum(facts["slot_seconds_by_cause"].values()) == pytest.approx(2 * 8)
    assert sum(facts["trainer_seconds_by_cause"].values()) == pytest.approx(8)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_tables_are_written_as_asked(tmp_path, suffix):
    files = {name: tmp_path / f"{name}.{suffix}" for name in ("batches", "timeline", "rollouts")}
    outcome = _run(*FLAGS, *(word for name, file in files.items() for word in (f"--{name}", file)))
    result = simulate_pipeline(CONFIG, rollouts=True)
    read = polars.read_parquet if suffix == "parquet" else polars.read_csv

    assert outcome.exception is None
    assert {name: str(file) for name, file in files.items()} == {
        line.partition(": ")[0]: line.partition(": ")[2]
        for line in outcome.stderr.splitlines()
        if ": " in line
    }
    for name, file in files.items():
        assert_frame_equal(read(file), getattr(result, f"{name}_frame")(), check_dtypes=suffix == "parquet")


def test_a_parquet_table_carries_its_configuration(tmp_path):
    _run(*FLAGS, "--batches", tmp_path / "b.parquet", "--quiet")
    metadata = polars.read_parquet_metadata(tmp_path / "b.parquet")

    assert PipelineConfig.from_dict(json.loads(metadata["config"])) == CONFIG


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--batch-tokens", "0"], "--batch-tokens: must be at least 1 (got 0)."),
        (["--batch-tokens", "many"], "--batch-tokens: must be a whole number"),
        (["--sync-seconds", "nan"], "--sync-seconds: must be"),
        (["--law", "fixd:3"], "--response-length: must be a law (got 'fixd:3'). Short forms: "),
        (["--mode", "async"], "--mode: must be "),
        (["--preset", "verl_fully_asink"], "preset: must be "),
        (["--batches", "b.txt"], "--batches: must end in .parquet or .csv (got 'b.txt'). "),
        (
            ["--batches", "nowhere/b.csv"],
            "--batches: must lie in a folder that exists (got 'nowhere/b.csv'). ",
        ),
        (["--admission", "reserve", "--max-queue-tokens", "9"], "max_queue_tokens: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_named_before_anything_is_written(tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    outcome = _run(*arguments)

    assert isinstance(outcome.exception, ConfigError)
    assert str(outcome.exception).startswith(text)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_flag_names_the_nearest_and_ends_with_code_2():
    outcome = _lagsweep("simulate", "--max-policy-lagg", "3")

    assert outcome.returncode == 2
    assert "No such option" in outcome.stderr
    assert "--max-policy-lag" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_preset_is_the_start_and_flags_change_it():
    facts = json.loads(_run("--preset", "prime_rl", "--duration-seconds", "60", "--json").stdout)

    assert facts["config"]["duration_seconds"] == 60
    assert facts["config"]["cancel_in_flight"] is True


def _lagsweep(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from lagsweep.sweeps.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


# Completion ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell):
    outcome = CliRunner().invoke(completion, [shell], standalone_mode=False)

    assert outcome.return_value == 0
    assert outcome.stdout.startswith("# ")
    assert f"_LAGSWEEP_COMPLETE={shell}_complete" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lagsweep sim", {"simulate"}),
        ("lagsweep ", set(SUBCOMMANDS)),
        ("lagsweep simulate --max-q", {"--max-queue-tokens", "--max-queue-groups"}),
        ("lagsweep completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_words_are_completed(words, expected):
    outcome = _lagsweep(
        _LAGSWEEP_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
    )

    assert {line.partition(",")[2] for line in outcome.stdout.splitlines()} == expected


def test_the_bash_script_is_one_that_bash_takes():
    script = CliRunner().invoke(completion, ["bash"], standalone_mode=False).stdout

    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
