"""What is there already is not replaced unasked, by any command; all that is missing is named at once."""

from __future__ import annotations

import json

import click
import pytest
from oracle.every_command import ENGINE, REQUESTS
from oracle.small_sweeps import small_base
from strategies.logged_runs import EXAMPLE

from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.main import SUBCOMMANDS, main, sub_command
from lagsweep.sweeps.cli.outputs import free_files
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.writing import run_into_store

SHORT = ["simulate", "--duration-seconds", "200", "--quiet"]
PLAN = [
    "plan", "--model", "Qwen3-8B", "--accelerator", "H100", "--gpus", "8", "--prompts", "4",
    "--group-size", "4", "--law", "fixed:100", "--prompt-tokens", "100", "--max-tokens", "1000", "--quiet",
]  # fmt: skip
KNOWN = ["--preset", "areal", "--batch-groups", "32", "--group-size", "8", "--rollout-workers", "512"]
FIT = ["engine", "fit", "requests.csv", "--model", "Llama-3.1-8B", "--accelerator", "H100"]
# A call that writes, the option, the file.
CALLS = {
    "simulate": ([*SHORT, "--batches"], "--batches", "rows.csv"),
    "trace": (["trace", "--duration-seconds", "200", "-o"], "--output", "run.json"),
    "calibrate": (["calibrate", str(EXAMPLE), *KNOWN, "-o"], "--output", "run.toml"),
    "engine fit": ([*FIT, "-o"], "--output", "engine.toml"),
    "engine show": (["engine", "show", "given.toml", "requests.csv", "--times"], "--times", "times.csv"),
    "plan": ([*PLAN, "--table"], "--table", "cells.csv"),
    "compare": (["compare", "areal", "--report"], "--report", "page.html"),
    "sensitivity": (["sensitivity", "--axis", "max_lag=0..4", "--report"], "--report", "page.html"),
    "whatif": (["whatif", str(EXAMPLE), "--axis", "max_lag=1", "--page"], "--page", "page.html"),
    "report": (["report", "store", "-o"], "--output", "page.html"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs") / "store"
    run_into_store(make_spec(small_base(), {"max_lag": [1, 2]}, 1), folder)
    return folder


@pytest.fixture(autouse=True)
def _in_a_folder_with_inputs(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.toml").write_text(ENGINE)
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / "store").symlink_to(store)


def run(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def writers():
    """Return every option that names a file to write, by its command."""
    found = {}
    for name in SUBCOMMANDS:
        command = sub_command(name)
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        for part, one in parts.items():
            context = click.Context(one)
            for option in one.get_params(context):
                words = option.help or "" if isinstance(option, click.Option) else ""
                if isinstance(option.type, click.Path) and ("rite" in words or option.name == "output"):
                    found.setdefault(f"{name} {part}".strip(), set()).add(option)
    return found


def test_every_command_that_writes_a_file_is_tried_here_and_has_a_way_out():
    for name, options in writers().items():
        if name == "lab":  # writes a folder; its page is checked below
            continue
        assert name in CALLS, name
        assert all(option.callback is not None for option in options), name


@pytest.mark.parametrize("name", CALLS)
def test_a_file_that_is_there_is_not_replaced(name, tmp_path, capsys):
    call, flag, file = CALLS[name]
    (tmp_path / file).write_text("mine")
    code, _, err = run([*call, file], capsys)
    assert code == 2
    assert f"{flag}: must not be there yet: nothing is replaced unasked (got '{file}')" in err
    assert f"Give --force to replace it, or {flag} with another name." in err
    assert (tmp_path / file).read_text() == "mine"


def test_with_force_it_is_and_a_default_name_is_held_to_the_same_rule(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("mine")
    assert run([*SHORT, "--batches", "rows.csv", "--force"], capsys)[0] == 0
    assert (tmp_path / "rows.csv").read_text() != "mine"
    trace = ["trace", "--duration-seconds", "200", "--quiet"]
    assert run(trace, capsys)[0] == 0
    (file,) = tmp_path.glob("trace-*-seed-0.json.gz")
    code, _, err = run(trace, capsys)
    assert code == 2
    assert f"--output: must not be there yet: nothing is replaced unasked (got '{file.name}')" in err


# Calls whose input is wrong while a file is in the way, and what is said of the input.
WRONG = {
    "simulate": ([*SHORT, "--batch-tokens", "0", "--batches"], "--batch-tokens: must be at least 1"),
    "trace": (
        ["trace", "store", "--cell", "max_lag=9", "-o"],
        "cell.max_lag: no cell has this value (got 9)",
    ),
    "calibrate": (["calibrate", "no.csv", "-o"], "path: must be a readable file"),
    "engine fit": (["engine", "fit", "no.csv", *FIT[3:], "-o"], "path: must name a file that exists"),
    "engine show": (["engine", "show", "no.toml", "requests.csv", "--times"], "engine: must be a readable"),
    "plan": ([*PLAN, "--tensor-parallel", "x", "--table"], "--tensor-parallel: must be whole numbers"),
    "compare": (["compare", "nonesuch", "--report"], "preset: must be a known preset"),
    "sensitivity": (["sensitivity", "--axis", "max_lagg=0..4", "--report"], "--axis"),
    "whatif": (["whatif", "no.csv", "--axis", "max_lag=1", "--page"], "path: must be a readable file"),
    "report": (["report", "no-store", "-o"], "store: must be the folder of a stored sweep"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_wrong_with_an_input_is_said_before_a_file_that_is_in_the_way(name, tmp_path, capsys):
    (call, text), file = WRONG[name], CALLS[name][2]
    (tmp_path / file).write_text("mine")
    code, _, err = run([*call, file], capsys)
    assert code in (2, 3)
    assert text in err
    assert "nothing is replaced unasked" not in err
    assert (tmp_path / file).read_text() == "mine"


def test_two_inputs_give_files_of_two_names(tmp_path, capsys):
    assert run(["calibrate", str(EXAMPLE), *KNOWN, "--quiet"], capsys)[0] == 0
    assert (tmp_path / f"{EXAMPLE.name.removesuffix('.csv')}-calibrated.toml").is_file()
    for seed in ("0", "1"):
        assert run(["trace", "--duration-seconds", "200", "--seed", seed, "--quiet"], capsys)[0] == 0
    assert run(["trace", "store", "--cell", "max_lag=1", "--quiet"], capsys)[0] == 0
    assert len(list(tmp_path.glob("trace-*.json.gz"))) == 3


def test_a_page_of_ours_is_drawn_anew_and_another_is_not(tmp_path):
    with click.Context(click.Command("any")):
        own, other = tmp_path / "own.html", tmp_path / "other.html"
        own.write_text('<!doctype html>\n<meta charset="utf-8">\n<meta name="generator" content="lagsweep">')
        other.write_text("<!doctype html>")
        free_files([own, tmp_path / "new.html"], "--page")
        with pytest.raises(ConfigError, match="must not be there yet"):
            free_files([own, other], "--page")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_charts_as_they_were_drawn_are_drawn_anew_and_one_that_was_changed_is_kept(kind, tmp_path, capsys):
    call = ["report", "store", "-o", "page.html", "--quiet"]
    assert run(call, capsys)[0] == 0
    (tmp_path / "page-charts" / f"mine.{kind}").write_text("mine")
    assert run(call, capsys)[0] == 0
    page = (tmp_path / "page.html").read_bytes()
    (tmp_path / "page.html").unlink()
    chart = tmp_path / "page-charts" / f"along-max_lag.{kind}"
    drawn = chart.read_bytes()
    middle, kept = len(drawn) // 2, f"page-charts/{chart.name}"
    noted = drawn[:middle] + b"note" + drawn[middle:]
    for mine in (b"notes", b"", drawn[:-1], drawn + b"\n", drawn[middle:], noted):
        chart.write_bytes(mine)
        code, _, err = run(call, capsys)
        assert code == 2
        assert f"--output: must not be there yet: nothing is replaced unasked (got '{kept}')" in err
        assert err.count("must not be there yet") == 1
        assert chart.read_bytes() == mine
        assert not (tmp_path / "page.html").exists()
    assert run([*call, "--no-images"], capsys)[0] == 0
    assert run([*call, "--force"], capsys)[0] == 0
    assert (chart.read_bytes(), (tmp_path / "page.html").read_bytes()) == (drawn, page)
    assert (tmp_path / "page-charts" / f"mine.{kind}").read_text() == "mine"


@pytest.mark.parametrize("again", [[], ["--force"]])
def test_two_options_that_name_one_file_are_refused(again, tmp_path, capsys):
    (tmp_path / "here").symlink_to(".")
    for other in ("rows.csv", "here/rows.csv", str(tmp_path / "rows.csv")):
        code, _, err = run([*SHORT, "--batches", "rows.csv", "--rollouts", other, *again], capsys)
        assert code == 2
        assert "--rollouts: must not be the file of --batches (got " in err
        assert not (tmp_path / "rows.csv").exists()
    calibrate = ["calibrate", str(EXAMPLE), *KNOWN, "-o", "run.html", "--page", "run.html", *again]
    code, _, err = run(calibrate, capsys)
    assert code == 2
    assert "--page: must not be the file of --output (got 'run.html')" in err


def test_a_lab_does_not_replace_a_page_of_somebody_else(tmp_path, capsys):
    (tmp_path / "index.html").write_text("mine")
    code, _, err = run(["lab", "--output", "."], capsys)
    assert code == 2
    assert "must not be there yet" in err


def test_all_that_is_missing_is_named_in_one_error(capsys):
    code, out, err = run(["plan", "--model", "Qwen3-8B", "--gpus=8", "--json"], capsys)
    named = [one["field"] for one in json.loads(out)["error"]["findings"]]
    assert code == 2
    assert named == ["--accelerator", "--prompts", "--group-size", "--law", "--prompt-tokens", "--max-tokens"]
    assert all(f"{flag}: is required" in err for flag in named)
    code, out, _ = run(["engine", "fit", "no.csv", "--json"], capsys)
    assert [one["field"] for one in json.loads(out)["error"]["findings"]] == ["--model", "--accelerator"]
    code, _, err = run(["whatif", str(EXAMPLE)], capsys)
    assert code == 2
    assert "--axis" in err


def test_an_input_is_suggested_by_its_name_or_its_words(capsys):
    for typed, meant in (("model_flop_utilization", "model_flops_utilization"),
                         ("mfu", "model_flops_utilization"),
                         ("bandwidth used, cache", "cache_efficiency")):  # fmt: skip
        code, _, err = run([*PLAN, "--input", f"{typed}=0.4"], capsys)
        assert code == 2
        assert f"Did you mean '{meant}'?" in err
