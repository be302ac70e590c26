"""Every command before odd terminals and pipes: what they lack never ends a command, nor changes its code."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from oracle.every_command import (
    CALLS,
    call_of,
    commands,
    interrupts_ignored,
    prepare,
    run,
    run_unread,
    streams,
)

from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.cli.streams import NEAR_CHARACTERS
from lagsweep.sweeps.execute.progress import Plain
from lagsweep.sweeps.results.text import grid

LAGSWEEP = Path(sys.executable).with_name("lagsweep")
FOLDER = "a[1] b*"  # every file of every command lies in it
NAMES = sorted(CALLS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("terminals") / FOLDER)


def test_every_command_has_a_call_here():
    assert set(commands()) == set(CALLS)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_writes_on_a_narrow_latin_1_terminal_with_interrupts_ignored(name, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with interrupts_ignored():
        answer = run(call_of(name, folder), "latin-1")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    assert answer.code == 0, answer.err.decode("latin-1")
    assert b"Traceback" not in answer.err
    answer.out.decode("latin-1")


TABLED = [name for name in NAMES if name not in ("completion", "lab", "report")]


def prose(text, folder):
    """Return the lines that are neither a command to paste nor about a path or an address."""
    return [
        line for line in text.splitlines() if not any(s in line for s in ("lagsweep ", "://", str(folder)))
    ]


@pytest.mark.parametrize("columns", [60, 200])
@pytest.mark.parametrize("name", TABLED)
def test_every_table_of_a_command_fits_the_terminal(name, columns, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = run(call_of(name, folder))

    assert answer.code == 0, answer.err.decode()
    assert [line for line in prose((answer.out + answer.err).decode(), folder) if len(line) > columns] == []


@pytest.fixture(scope="module")
def wide_store(folder):
    """A sweep over four axes of long names, whose rows need more than 80 columns."""
    axes = ["max_lag=0,1", "queue_cap=7000,150000", "train_tokens_per_second=350,700", "sync_cadence=1,2"]
    flags = [part for axis in axes for part in ("--axis", axis)]
    flags += ["--duration-seconds", "120", "--seeds", "2", "--quiet"]
    answer = run(["run", "--store", str(folder / "wide"), *flags])
    assert answer.code == 0, answer.err
    return folder / "wide"


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("command", ["show", "recommend"])
def test_settings_are_columns_where_they_fit_and_numbered_lines_elsewhere(
    command, columns, wide_store, folder, monkeypatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = run([command, str(wide_store)]).out.decode()

    assert [line for line in prose(text, folder) if len(line) > columns] == []
    if command == "show":
        assert ("\n1: " in text) == (columns < 200)
        assert text.count("ESS") > 1  # its column too


@pytest.mark.parametrize("columns", [60, 70, 80])
def test_a_run_of_the_general_loop_fits_too_and_says_when_bars_are_left_out(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    rules = ["--group-size", "2", "--batch-groups", "4", "--batch-tokens", "none", "--publication", "pause"]
    text = run(["simulate", "--duration-seconds", "100", *rules]).out.decode()

    assert max(map(len, text.splitlines())) <= columns
    assert ("Bars of shares are left out" in text) == (columns == 60)
    assert text.count("█") > 3


def test_a_table_folds_words_first_and_then_leaves_out_the_last_columns_saying_so():
    header, row = ["what", "first", "second", "third"], ["some words", "1,000,000", "2,000,000", "3,000,000"]

    assert (
        grid(header, [row], left=[0], width=43).splitlines()[2]
        == "some words  1,000,000  2,000,000  3,000,000"
    )
    folded = grid(header, [row], left=[0], width=40).splitlines()
    assert folded[2:] == ["some     1,000,000  2,000,000  3,000,000", "words"]
    less = grid(header, [row], left=[0], width=30).splitlines()
    assert less[2:] == ["some      1,000,000  2,000,000", "words", "Left out at this width: third."]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("lab", "report")])
@pytest.mark.parametrize("encoding", ["cp1252", "cp437"])
def test_a_command_writes_on_a_wide_terminal_of_another_code_page(name, encoding, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    answer = run(call_of(name, folder), encoding)

    assert answer.code == 0, answer.err.decode(encoding)
    lines = answer.out.decode(encoding).splitlines()
    assert all(len(line) <= 200 for line in lines if "lagsweep " not in line)  # a command is never broken


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lab"])
def test_a_command_whose_readers_have_gone_ends_as_it_would_have(name, folder):
    assert run_unread(call_of(name, folder)) == 0


def test_findings_keep_their_exit_code_when_nobody_reads_them(folder, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}\n")

    assert run_unread(["validate", str(tmp_path / "bad.jsonl")]) == 1
    assert run_unread(["show", str(tmp_path / "nowhere")]) == 3
    assert run_unread(["simulate", "--batch-tokens", "0", "--json"]) == 2


def test_what_an_encoding_lacks_is_replaced_by_what_looks_like_it():
    assert "lag ≤ 2 ───█ ±1 漢".encode("latin-1", NEAR_CHARACTERS) == b"lag <= 2 ---# \xb11 ?"
    assert "0…1 × →".encode("ascii", NEAR_CHARACTERS) == b"0...1 x ->"
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("utf-8", NEAR_CHARACTERS)


def test_a_text_stream_without_bytes_below_it_is_left_alone(folder):
    text = io.StringIO()
    with streams(text, text):
        with pytest.raises(SystemExit) as stop:
            main(["presets"])
    assert stop.value.code == 0
    assert "areal" in text.getvalue()


class _Full(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        raise OSError(28, "No space left on device")


def test_a_full_stderr_does_not_end_a_run(tmp_path):
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    full = io.TextIOWrapper(io.BufferedWriter(_Full()), "utf-8", write_through=True)
    arguments = ["run", "--store", str(tmp_path / "s"), "--duration-seconds", "60", "--seeds", "1"]

    with streams(out, full), pytest.raises(SystemExit) as stop:
        main([*arguments, "--axis", "max_lag=0,1"])
    assert stop.value.code == 0
    assert b"lag" in out.buffer.getvalue()


def test_progress_said_to_nobody_does_not_end_a_run_in_python():
    Plain(io.TextIOWrapper(_Full(), "utf-8", write_through=True)).note("said to nobody")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_an_error():
    with open("/dev/full", "w") as full:
        for more in ([], ["--json"]):
            answer = subprocess.run(
                [LAGSWEEP, "presets", *more], stdout=full, stderr=subprocess.PIPE, text=True
            )
            assert answer.returncode == 2
            assert answer.stderr.startswith("error: output: cannot be used: No space left on device.")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    "line",
    [
        "PYTHONIOENCODING=latin-1 lagsweep presets > /dev/null",
        "lagsweep presets | head -1",
        "lagsweep presets --json | true",
        "lagsweep --help | true",
        "lagsweep presets >&- 2>&- <&-",
        "(trap '' INT; lagsweep presets > /dev/null)",
    ],
)
def test_real_processes_end_quietly(line):
    path = f"{LAGSWEEP.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    answer = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True)

    assert (answer.returncode, answer.stderr) == (0, "")
