"""``lagsweep run``, ``show`` and ``verify``: flags, files, exit codes, signals, what goes where."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xarray as xr
from oracle.small_sweeps import tree

import lagsweep as ls
from lagsweep.errors import ConfigError
from lagsweep.sweeps.cli.config_flags import axes_from_flags, changes_from_flags, read_text
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.execute import progress as progress_module
from lagsweep.sweeps.execute import work as unit_work
from lagsweep.sweeps.execute.plan import plan_parts, total_runs
from lagsweep.sweeps.execute.progress import Bar, Plain, Progress, duration
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.store.store import SweepStore, open_sweep, store_folder
from lagsweep.sweeps.sweep.run import load_spec, run_spec

SPEC = """
name = "small"
seeds = 10
constraints = ["max_lag + 1 >= sync_cadence"]
[base]
rollout_workers = 3
duration_seconds = 30.0
batch_tokens = 150
max_queue_tokens = 400
train_tokens_per_second = 100.0
train_overhead_seconds = 0.5
sync_seconds = 0.5
response_length = { law = "uniform", minimum = 20, maximum = 80 }
[axes]
max_lag = [0, 1, 3]
sync_cadence = [1, 2]
"""
LAGSWEEP = str(Path(sys.executable).with_name("lagsweep"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SPEC)
    return tmp_path


def run(*arguments):
    """Return the exit code of a command given in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def stored(here):
    return next((here / "results").glob("small-*"))


# From a file ----------------------------------------------------------------------------------------------


def test_one_command_runs_a_spec_and_prints_the_table(here, capsys):
    assert run("run", "small.toml") == 0

    out, err = capsys.readouterr()
    assert "seq." in out
    assert "drift_per_version = 0.2" in out
    assert "60 runs" in err
    assert "runs/s" in err
    folder = stored(here)
    assert folder.name == f"small-{load_spec('small.toml').fingerprint[:8]}"
    xr.testing.assert_identical(open_sweep(folder).load(), run_spec(load_spec("small.toml")))


def test_show_prints_the_same_table(here, capsys):
    run("run", "small.toml")
    table = capsys.readouterr().out

    assert run("show", str(stored(here))) == 0
    assert capsys.readouterr().out == table


def test_the_same_command_again_runs_nothing(here, capsys):
    run("run", "small.toml")
    before = tree(stored(here))
    capsys.readouterr()

    assert run("run", "small.toml") == 0
    assert "runs/s" not in capsys.readouterr().err
    assert tree(stored(here)) == before


def test_json_is_the_only_thing_on_stdout(here, capsys):
    assert run("run", "small.toml", "--json", "--quiet") == 0

    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert err == ""
    assert facts["complete"] is True
    assert facts["runs"] == {"not_run": 0, "done": 50, "failed": 0, "excluded": 10}
    assert facts["baseline"]["trained_tokens_per_second"] > 0
    assert len(facts["cells"]) == 6
    ids = set(open_sweep(stored(here)).cell.values.reshape(-1).tolist())
    assert {row["cell"] for row in facts["cells"]} == ids
    assert run("show", str(stored(here).relative_to(here)), "--json") == 0
    assert json.loads(capsys.readouterr().out) == facts


def test_flags_take_the_place_of_what_the_file_says(here, capsys):
    code = run(
        *("run", "small.toml", "--batch-tokens", "120", "--axis", "max_policy_lag=2..3", "--seeds", "5,7"),
        *("--where", "max_lag > 2", "--name", "other", "--no-baseline", "--store", "place", "-q"),
    )

    ds = open_sweep(here / "place")
    assert code == 0
    assert ds.max_lag.values.tolist() == [2, 3]
    assert ds.seed.values.tolist() == [5, 7]
    assert "baseline_updates" not in ds
    assert (ds.status.sel(max_lag=2) == 3).all()
    assert ls.config_at(ds, {"max_lag": 3, "sync_cadence": 1}).batch_tokens == 120


def test_flags_alone_are_enough(here):
    code = run(
        *("run", "--axis", "max-lag=0,2", "--law", "fixed:40", "--duration-seconds", "20", "--seeds", "2"),
        *("--executor", "serial", "-q"),
    )

    ds = open_sweep(next((here / "results").glob("sweep-*")))
    assert code == 0
    assert ds.status.shape == (2, 2)
    assert ls.config_at(ds, {"max_lag": 0}).response_length == LengthLaw.fixed(40)


def test_neither_file_nor_flags_is_refused(here, capsys):
    assert run("run") == 2
    assert "SPEC: must be given unless flags say what to run" in capsys.readouterr().err


def test_tables_masks_and_units_are_options(here):
    assert (
        run("run", "small.toml", "--tables", "batches,rollouts", "--masks", "--runs-per-unit", "12", "-q")
        == 0
    )

    assert sorted(path.name for path in (stored(here) / "tables").iterdir()) == [
        "batches",
        "masks",
        "rollouts",
    ]
    assert SweepStore(stored(here)).part("cells").layout.count == 5


def test_more_seeds_extend_a_named_store(here, capsys):
    run("run", "small.toml", "--store", "place", "-q")

    assert run("run", "small.toml", "--store", "place", "--seeds", "12") == 0

    assert "store: extended by 2 seeds (10..11)" in capsys.readouterr().err
    assert open_sweep(here / "place").sizes["seed"] == 12


def test_a_changed_spec_on_a_named_store_is_refused_with_the_difference(here, capsys):
    run("run", "small.toml", "--store", "place", "-q")

    assert run("run", "small.toml", "--store", "place", "--batch-tokens", "99") == 3
    assert "base.batch_tokens: 150 in the store, 99 asked" in capsys.readouterr().err


def test_until_says_what_it_saved(here, capsys):
    assert run("run", "small.toml", "--seeds", "200", "--until", "trained_tokens_per_second within 2%") == 0

    err = capsys.readouterr().err
    assert re.search(r"until: [\d,]+ runs in place of [\d,]+ at equal seeds, \d+% saved", err)


# The shipped example --------------------------------------------------------------------------------------


def test_the_shipped_example_is_of_a_size_that_means_something():
    file = resources.files("lagsweep.sweeps") / "examples" / "aime-cap-lag-cadence.toml"
    with resources.as_file(file) as path:
        spec = load_spec(path)
    base, law = spec.base, spec.base.response_length

    assert list(spec.design.dims) == ["queue_cap", "max_lag", "sync_cadence"]
    assert len(spec.seeds) == 1000
    assert law == LengthLaw.shipped("aime-rl-1000")
    assert spec.baseline
    assert base.rollout_workers >= 64
    assert base.batch_tokens / law.mean_tokens >= 64
    caps = [cap / base.batch_tokens for cap in spec.design.columns["queue_cap"][1]]
    assert (min(caps), max(caps)) == (1, 3)
    batch_seconds = base.train_overhead_seconds + base.batch_tokens / base.train_tokens_per_second
    assert base.warmup_seconds >= 2 * batch_seconds
    # Every cell says something: none starves by its cadence, and the four caps are four different runs.
    assert spec.excluded.sum() == 4
    assert total_runs(plan_parts(spec)) == 45_000


@pytest.mark.parametrize("name", ["aime-cap-lag-cadence", "examples/aime-cap-lag-cadence.toml"])
def test_a_shipped_example_runs_by_name(here, capsys, name):
    assert run("run", name, "--seeds", "1", "--duration-seconds", "700", "-q") == 0
    assert "aime-cap-lag-cadence" in next((here / "results").iterdir()).name


def test_a_misspelt_example_is_named(here, capsys):
    assert run("run", "aime-cap-lag-cadense") == 2
    assert "Did you mean 'aime-cap-lag-cadence'?" in capsys.readouterr().err


# Wrong input: exit code 2, nothing written ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--axis", "max_lagg=1"],
            "--axis: must name a field or queue_cap, max_lag, sync_cadence (got 'max_lagg').",
        ),
        (["--axis", "max_lagg=1"], "(got 'max_lagg'). Did you mean 'max_lag'?"),
        (
            ["--axis", "staleness=1"],
            "A preset's knob is preset.<knob>: preset.max_staleness (as trl_async has), ",
        ),
        (["--axis", "max_stalenes=1"], "Did you mean 'preset.max_staleness'?"),
        (["--axis", "foo=1"], "A preset's knob is preset.<knob>, whole presets are the axis system."),
        (["--axis", "max_lag"], "--axis: must read NAME=VALUES"),
        (["--axis", "max_lag="], "axes.max_lag: must have at least one value"),
        (["--axis", "max_lag=1,1"], "axes.max_lag: must not repeat a value"),
        (["--axis", "batch_tokens=64,128,0"], "axes.batch_tokens: must be at least 1 (got 0)."),
        (["--axis", "max_lag=1", "--axis", "max-lag=2"], "--axis: must name an axis once"),
        (["--axis", "max_lag=4..1"], "axes.max_lag.to: must be at least from"),
        (["--max-policy-lag", "4x"], "--max-policy-lag: must be a whole number (got '4x')."),
        (["--drift-per-version", "nan"], "--drift-per-version: must be finite"),
        (["--batch-tokens", "-5"], "--batch-tokens: must be at least 1"),
        (["--admission", "reserv"], "--admission: must be one of"),
        (["--law", "lognromal:3"], "--response-length: must be a law"),
        (["--law", "{law="], "--response-length: must be a TOML table or list"),
        (["--seeds", "many"], "seeds: must be a number, a list or a range"),
        (["--where", "max_lagg > 1"], "constraints: names something unknown, 'max_lagg'"),
        (["--tables", "batch"], "tables: must be among"),
        (["--until", "updates"], "until: must read"),
        (["--threads", "0"], "threads: must be a whole number from 1"),
        (["--max-lagg", "3"], "No such option"),
        (["--executor", "thread"], "Invalid value for '--executor'"),
        (["--name", "a/b"], "name: must be usable as a folder's name"),
    ],
)
def test_bad_flags_are_usage_errors(here, capsys, arguments, says):
    assert run("run", "small.toml", *arguments) == 2

    assert says in capsys.readouterr().err
    assert not (here / "results").exists()


def test_a_bad_file_names_file_section_and_key(here, capsys):
    (here / "bad.toml").write_text("[base]\nmax_lagg = 4\n")

    assert run("run", "bad.toml") == 2

    err = capsys.readouterr().err
    assert "bad.toml: base.max_lagg: is not a known field (got 4)." in err
    assert "max_lag" in err


def test_showing_what_is_no_store_says_so(here, capsys):
    assert run("show", "absent") == 3
    assert "store: must be the folder of a stored sweep (got 'absent')" in capsys.readouterr().err


# Failures: exit code 1 ------------------------------------------------------------------------------------


def fail(monkeypatch, everywhere=False):
    real = unit_work.simulate_batch

    def sometimes(configs, seeds, **options):
        if everywhere or (any(config.max_policy_lag == 1 for config in configs) and 4 in seeds):
            raise FloatingPointError("injected")
        return real(configs, seeds, **options)

    monkeypatch.setattr(unit_work, "simulate_batch", sometimes)


def test_failed_runs_are_told_as_they_happen_and_at_the_end(here, capsys, monkeypatch):
    fail(monkeypatch)

    assert run("run", "small.toml") == 1

    out, err = capsys.readouterr()
    lines = err.splitlines()
    told = [line for line in lines if line.startswith("failed: max_lag=1")]
    assert told == [
        "failed: max_lag=1 sync_cadence=1 seed=4: FloatingPointError: injected",
        "failed: max_lag=1 sync_cadence=2 seed=4: FloatingPointError: injected",
    ]
    assert lines.index(told[0]) < lines.index("failed: 2 runs")
    assert len([line for line in lines if line.startswith("  cell ")]) == 2
    assert "seq." in out
    assert run("show", str(stored(here))) == 1

    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert run("run", "small.toml", "-q") == 1
    assert run("run", "small.toml", "-q", "--retry-failed") == 0


def test_all_failed_is_not_success(here, monkeypatch):
    fail(monkeypatch, everywhere=True)

    assert run("run", "small.toml", "-q") == 1


def test_fail_fast_stops_and_says_how_to_go_on(here, capsys, monkeypatch):
    fail(monkeypatch)

    assert run("run", "small.toml", "--fail-fast", "--runs-per-unit", "12") == 1

    assert "a run failed; what is finished is kept. To go on:\n  lagsweep" in capsys.readouterr().err
    assert not SweepStore(stored(here)).complete


# Dry run --------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_and_writes_nothing(here, capsys):
    assert run("run", "small.toml", "--dry-run") == 0

    out = capsys.readouterr().out
    assert "cells      6, 1 excluded (max_lag 3, sync_cadence 2)" in out
    assert "runs       60 at 10 seeds, 10 of them the baseline" in out
    assert "make the store and run everything (60 runs left, 0 done)" in out
    assert sorted(path.name for path in here.iterdir()) == ["small.toml"]


def test_a_dry_run_tells_what_a_resume_would_do(here, capsys):
    run("run", "small.toml", "-q", "--runs-per-unit", "12")
    journal = stored(here) / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    plans = {}
    for count in (3, 6, 7, 8):
        journal.write_bytes(b"".join(lines[:count]))
        capsys.readouterr()
        assert run("run", "small.toml", "--dry-run", "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        plans[count] = (facts["plan"], facts["runs_left"] > 0)
    more = ("run", "small.toml", "--store", str(stored(here)), "--seeds", "30", "--dry-run")
    capsys.readouterr()
    assert run(*more) == 0

    assert plans == {
        3: ("go on where it was", True),
        6: ("go on where it was", True),
        7: ("mark the store complete", False),
        8: ("nothing: the store is complete", False),
    }
    assert "extend the store by 20 seeds (10..29)" in capsys.readouterr().out


def test_a_dry_run_of_a_refused_change_is_refused_too(here, capsys):
    run("run", "small.toml", "-q", "--store", "place")

    assert run("run", "small.toml", "--store", "place", "--batch-tokens", "9", "--dry-run") == 3
    assert "base.batch_tokens: 150 in the store, 9 asked" in capsys.readouterr().err


# Signals --------------------------------------------------------------------------------------------------


class SignalAt(Progress):
    """Send this process a signal when so many runs are done."""

    def __init__(self, number, after):
        self.number, self.after, self.runs = number, after, 0

    def advance(self, runs):
        before, self.runs = self.runs, self.runs + runs
        if before < self.after <= self.runs:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("executor", ["threads", "serial"])
def test_signals_end_at_a_safe_point_and_the_same_command_goes_on(
    here, capsys, monkeypatch, number, code, executor
):
    arguments = (
        "run",
        "small.toml",
        "--seeds",
        "100",
        "--runs-per-unit",
        "60",
        "--no-baseline",
        "--executor",
        executor,
    )
    run(*arguments, "--store", "undisturbed", "-q")
    for after in (1, 130, 250, 370):
        store = f"place-{after}"
        with monkeypatch.context() as patch:
            patch.setattr(
                progress_module, "progress_for_terminal", lambda after=after, **_: SignalAt(number, after)
            )
            capsys.readouterr()
            assert run(*arguments, "--store", store) == code
        err = capsys.readouterr().err
        assert "stopped; what is finished is kept. To go on:\n  lagsweep" in err
        assert open_sweep(here / store).attrs["complete"] == 0
        assert run("show", store) == 0
        assert re.search(
            r"incomplete: (1 run is|[\d,]+ runs are) missing; the run's command goes on",
            capsys.readouterr().err,
        )
        assert run(*arguments, "--store", store, "-q") == 0
        assert tree(here / store) == tree(here / "undisturbed")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


LONG = ("--seeds", "20000", "--duration-seconds", "300", "--runs-per-unit", "2000", "--threads", "1")


@pytest.mark.slow
@pytest.mark.jit_only
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_real_command_stops_on_signals(here, number, code):
    process = subprocess.Popen(
        [LAGSWEEP, "run", "small.toml", *LONG],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in iter(process.stderr.readline, ""):
        if line.endswith(" runs\n"):
            break
    process.send_signal(number)
    out, err = process.communicate(timeout=120)

    assert process.returncode == code
    assert out == ""
    assert f"To go on:\n  {shlex.quote(str(LAGSWEEP))} run small.toml --seeds 20000" in err
    assert open_sweep(stored(here)).attrs["complete"] == 0


# Progress -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.jit_only
def test_the_real_command_writes_plain_lines_into_log_files_and_says_that_it_compiles(here, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    answer = subprocess.run(
        [LAGSWEEP, "run", "small.toml"],
        cwd=here,
        capture_output=True,
        env={**os.environ, "LAGSWEEP_CACHE_DIR": str(cache)},
        timeout=300,
        check=True,
    )
    again = subprocess.run(
        [LAGSWEEP, "run", "small.toml", "--store", "again"],
        cwd=here,
        capture_output=True,
        env={**os.environ, "LAGSWEEP_CACHE_DIR": str(cache)},
        timeout=300,
        check=True,
    )

    for text in (answer.stdout, answer.stderr):
        assert b"\r" not in text
        assert b"\x1b" not in text
    lines = answer.stderr.decode().splitlines()
    compiling = lines.index("compiling the kernels; this happens once and takes ten seconds to a minute")
    assert re.fullmatch(r"compiled in .*\d.* s", lines[compiling + 1])
    assert any(re.match(r"60 of 60 runs done, .*runs/s", line) for line in lines)
    assert b"compil" not in again.stderr


def test_plain_progress_has_rate_and_time_left(capsys):
    plain = Plain(every_seconds=0)
    plain.begin(1000, 100)
    plain._next = 0
    plain.began -= 10
    plain.advance(300)
    plain.end()

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1,000 runs, 100 done before"
    assert re.fullmatch(r"400 of 1,000 runs \(40%\), 30 runs/s, 20 s left", lines[1])
    assert re.fullmatch(r"400 of 1,000 runs done, 10 s, 30 runs/s", lines[2])


def test_the_bar_counts_and_passes_notes_on(capsys):
    bar = Bar()
    bar.begin(10)
    bar.advance(4)
    bar.note("a note")
    bar.end()

    err = capsys.readouterr().err
    assert "a note" in err
    assert "4 of 10 runs done" in err


def test_steps_are_a_bar_on_a_terminal_and_nothing_elsewhere(capsys, monkeypatch):
    bar, drawn = Bar(), []
    real = Bar._start
    monkeypatch.setattr(
        Bar, "_start", lambda bar, what, *given: (drawn.append(what), real(bar, what, *given))
    )
    with bar.steps("charts drawn", 3) as step:
        step()
        step()
        assert bar._bar.tasks[0].completed == 2
        with bar.steps("parts of it", 2) as inner:
            inner()
        assert bar._bar.tasks[0].completed == 2
    bar.note("after")
    capsys.readouterr()
    for silent in (Progress(), Plain(), progress_module.UntilItFails(Plain())):
        with silent.steps("charts drawn", 3) as step:
            step()

    assert drawn == ["charts drawn"]
    assert bar._bar is None
    assert capsys.readouterr() == ("", "")


def test_steps_that_cannot_be_written_are_switched_off_and_their_work_goes_on(capsys):
    class Lost(Progress):
        @contextlib.contextmanager
        def steps(self, what, total):
            def step():
                raise OSError(5, "Input/output error")

            yield step

    done = 0
    with progress_module.UntilItFails(Lost()).steps("charts drawn", 3) as step:
        for _ in range(3):
            step()
            done += 1

    assert done == 3
    assert capsys.readouterr().err.count("progress: cannot be written") == 1


def test_silence_on_request_and_a_bar_on_terminals_only(monkeypatch):
    assert type(progress_module.progress_for_terminal(quiet=True)) is Progress
    assert type(progress_module.progress_for_terminal()) is Plain
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert type(progress_module.progress_for_terminal()) is Bar


def test_spans_of_time_are_for_people():
    spans = {0.25: "0.2 s", 9.4: "9.4 s", 59.4: "59 s", 61: "1 min 01 s", 7300: "2 h 01 min"}

    assert {seconds: duration(seconds) for seconds in spans} == spans
    assert duration(float("inf")) == "unknown time"


# Flags as text --------------------------------------------------------------------------------------------


def test_every_field_of_a_pipeline_is_a_flag(capsys):
    assert run("run", "--help") == 0
    text = capsys.readouterr().out

    for field in PipelineConfig.model_fields:
        assert f"--{field.replace('_', '-')}" in text


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("batch_tokens", "120_000", 120_000),
        ("batch_tokens", "none", None),
        ("max_queue_tokens", "none", None),
        ("drift_per_version", "0.5", 0.5),
        ("duration_seconds", "1e3", 1000.0),
        ("cancel_in_flight", "true", True),
        ("publication", "abort", "abort"),
        ("response_length", "shipped:aime-rl-1000", LengthLaw.shipped("aime-rl-1000")),
        ("response_length", "lognormal:300:0.6:16:2048", LengthLaw.lognormal(300, 0.6, 16, 2048)),
        ("response_length", '{law="uniform", minimum=1, maximum=9}', LengthLaw.uniform(1, 9)),
        ("environment_seconds", "none", None),
        ("limits", '[{count="started", done="popped", groups=8}]', (ls.Limit("started", "popped", 8),)),
    ],
)
def test_values_are_read_from_text(field, text, value):
    assert changes_from_flags({f"config_{field}": text}) == {field: value}


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("max_lag=0,1,2,4", {"max_lag": [0, 1, 2, 4]}),
        ("max-lag=3", {"max_lag": [3]}),
        ("sync_cadence=1..4", {"sync_cadence": {"from": 1, "to": 4}}),
        ("drift_per_version=0.1..0.5/5", {"drift_per_version": {"from": 0.1, "to": 0.5, "count": 5}}),
        (
            "queue_cap=1000..64000/4/log",
            {"queue_cap": {"from": 1000, "to": 64000, "count": 4, "scale": "log"}},
        ),
        ("admission=threshold,reserve", {"admission": ["threshold", "reserve"]}),
        ("response_length=fixed:5,fixed:9", {"response_length": [{"law": "fixed", "n": n} for n in (5, 9)]}),
    ],
)
def test_axes_are_read_from_text(text, axis):
    assert axes_from_flags((text,)) == axis


def test_a_law_in_short_form_says_which_forms_there_are():
    with pytest.raises(ConfigError, match="lognormal:median:sigma:minimum:maximum"):
        read_text("response_length", "gamma:2", "--law")


# verify ---------------------------------------------------------------------------------------------------


def test_verify_says_sound_or_what_it_found(here, capsys):
    run("run", "small.toml", "-q", "--runs-per-unit", "12")
    folder = stored(here)
    capsys.readouterr()

    assert run("verify", str(folder), "--all", "-q") == 0
    assert (
        capsys.readouterr().out == "sound: complete, 6 of 6 units, 179 chunks checked, 60 runs done again\n"
    )
    assert run("verify", str(folder), "--cell", "max_lag=3,sync_cadence=2", "--json", "-q") == 0
    assert json.loads(capsys.readouterr().out)["runs_checked"] == 10

    chunk = folder / "cells.zarr/updates/c/0/0/1"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert run("verify", str(folder), "-q") == 1
    out = capsys.readouterr().out
    assert out.startswith("chunk: updates unit 0.0.1: cannot be read")
    assert out.rstrip().splitlines()[-1].startswith("1 finding: complete")


def test_a_running_store_is_refused_to_a_second_command(here, capsys):
    from lagsweep.sweeps.store.store import create_store

    spec = load_spec("small.toml")
    store, lock = create_store(store_folder(spec, Path("results")), spec, 12)

    assert run("run", "small.toml") == 3

    assert f"store: must not be in use, process {os.getpid()}" in capsys.readouterr().err
    store.close()
    lock.release()


def test_the_spec_in_the_folder_runs_again_to_the_same_sweep(here):
    run("run", "small.toml", "-q")
    text = (stored(here) / "spec.toml").read_text()

    assert tomllib.loads(text)["name"] == "small"
    assert run("run", str(stored(here) / "spec.toml"), "--store", "again", "-q") == 0
    assert tree(here / "again") == tree(stored(here))


def test_every_cell_of_the_shipped_example_trains_and_caps_tell_apart(here):
    file = resources.files("lagsweep.sweeps") / "examples" / "aime-cap-lag-cadence.toml"
    with resources.as_file(file) as path:
        spec = load_spec(path).replace(seeds=(0, 1))
    frame = ls.cells_frame(spec.run(progress=False), ["updates", "mean_lag"]).filter(pl.col("runs") > 0)

    assert frame.height == 44
    assert frame["updates"].min() >= 20
    free = frame.filter(pl.col("max_lag") == 8, pl.col("sync_cadence") == 1).sort("queue_cap")
    assert (np.diff(free["mean_lag"].to_numpy()) > 0.2).all()


@pytest.mark.parametrize(
    ("called", "printed"),
    [(".venv/bin/lagsweep", ".venv/bin/lagsweep"), ("lagsweep", "lagsweep"), ("-c", "lagsweep")],
)
def test_what_is_printed_to_paste_calls_the_program_as_it_was_called(here, monkeypatch, called, printed):
    from lagsweep.sweeps.cli.shared import this_command

    monkeypatch.setattr("sys.argv", [called, "report", "a b"])
    assert this_command() == f"{printed} report 'a b'"


def test_a_program_on_the_path_is_printed_by_its_name(here, monkeypatch):
    from lagsweep.sweeps.cli.shared import program

    (here / "lagsweep").write_text("#!/bin/sh\n")
    (here / "lagsweep").chmod(0o755)
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setattr("sys.argv", [str(here / "lagsweep")])
    assert program() == "lagsweep"
    monkeypatch.setattr("sys.argv", [str(here / "other" / "lagsweep")])
    assert program() == str(here / "other" / "lagsweep")


def test_a_long_or_large_run_names_time_and_size_before_it_starts(tmp_path, monkeypatch, capsys):
    from lagsweep.sweeps.sweep import dry_run

    arguments = [
        "run",
        "--duration-seconds",
        "300",
        "--seeds",
        "3",
        "--axis",
        "max_lag=1,2",
        "--threads",
        "2",
    ]
    assert run(*arguments, "--store", str(tmp_path / "short")) == 0
    assert "before compression" not in capsys.readouterr().err

    monkeypatch.setattr(dry_run, "LARGE_BYTES", 1000)
    assert run(*arguments, "--store", str(tmp_path / "large")) == 0
    told = capsys.readouterr().err.splitlines()
    named = next(place for place, line in enumerate(told) if "before compression" in line)
    assert re.fullmatch(r"about \S+ s on 2 threads, [\d.]+ kB before compression", told[named])
    assert told[named + 1] == "9 runs"
    # Nothing is left to do, so nothing is named; nor where nothing is to be said.
    assert run(*arguments, "--store", str(tmp_path / "large")) == 0
    assert run(*arguments, "--store", str(tmp_path / "quiet"), "--quiet") == 0
    assert "before compression" not in capsys.readouterr().err


def test_a_run_that_a_guess_calls_long_is_measured(tmp_path, monkeypatch, capsys):
    from lagsweep.sweeps.sweep import dry_run

    monkeypatch.setattr(dry_run, "guessed_run_seconds", lambda base, design: 1e6)
    assert run("run", "--duration-seconds", "60", "--seeds", "1", "--store", str(tmp_path / "s")) == 0
    assert "before compression" not in capsys.readouterr().err
    monkeypatch.setattr(dry_run, "calibrate", lambda part: (100.0, 1))
    arguments = ["run", "--duration-seconds", "60", "--seeds", "1", "--threads", "1"]
    assert run(*arguments, "--store", str(tmp_path / "t")) == 0
    assert "about 3 min 20 s on 1 thread," in capsys.readouterr().err
