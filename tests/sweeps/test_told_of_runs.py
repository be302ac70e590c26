"""What a run says of itself: the threads of a dry run, and how many runs are kept when it is stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading

import pytest
from oracle.every_command import run

from lagsweep.sweeps.cli import signals as signals_module
from lagsweep.sweeps.execute import progress as progress_module
from lagsweep.sweeps.execute.progress import Plain, Progress, UntilItFails
from lagsweep.sweeps.store.store import SweepStore

SMALL = [
    *("--axis", "max_lag=0,1,3", "--duration-seconds", "60", "--rollout-workers", "3"),
    *("--seeds", "100", "--runs-per-unit", "60", "--no-baseline"),
]


@pytest.mark.parametrize(
    ("flags", "threads", "said"),
    [
        (["--threads", "1"], 1, "on 1 thread ("),
        (["--threads", "3"], 3, "on 3 threads ("),
        (["--executor", "serial"], 1, "on 1 thread ("),
        (["--executor", "serial", "--threads", "3"], 1, "on 1 thread ("),
    ],
)
def test_a_dry_run_reckons_with_the_threads_that_are_asked(flags, threads, said):
    facts = json.loads(run(["run", *SMALL, *flags, "--dry-run", "--json"]).out)

    assert facts["threads"] == threads
    assert facts["estimated_seconds"] == pytest.approx(
        facts["seconds_per_run"] * facts["runs_left"] / threads
    )
    assert said in run(["run", *SMALL, *flags, "--dry-run"]).out.decode()


def test_a_dry_run_refuses_threads_that_a_run_refuses():
    answer = run(["run", *SMALL, "--threads", "0", "--dry-run"])

    assert answer.code == 2
    assert b"threads: must be a whole number from 1 to 1024" in answer.err


class _StopAt(Plain):
    """Send this process a Ctrl-C when so many runs are done; no thread goes on before it has arrived."""

    def __init__(self, after, asked):
        super().__init__()
        self.after, self.asked, self.seen = after, asked, 0
        self.holding = threading.Lock()

    def advance(self, runs):
        super().advance(runs)
        with self.holding:
            before, self.seen = self.seen, self.seen + runs
            if before < self.after <= self.seen:
                os.kill(os.getpid(), signal.SIGINT)
                assert self.asked[-1].event.wait(60)  # the main thread may get to it late


def _stopped_after(after, call, monkeypatch):
    """Run a command and stop it after so many runs."""
    asked, stop_at_safe_point = [], signals_module.stop_at_safe_point

    @contextlib.contextmanager
    def kept_in_sight():
        with stop_at_safe_point() as stop:
            asked.append(stop)
            yield stop

    with monkeypatch.context() as patch:
        patch.setattr(signals_module, "stop_at_safe_point", kept_in_sight)
        patch.setattr(progress_module, "progress_for_terminal", lambda **_: _StopAt(after, asked))
        return run(call)


@pytest.mark.parametrize("more", [[], ["--until", "trained_tokens_per_second within 0.01%"]])
@pytest.mark.parametrize("executor", ["threads", "serial"])
def test_a_stopped_run_says_how_many_runs_are_kept(tmp_path, monkeypatch, executor, more):
    call = ["run", *SMALL, *more, "--executor", executor]
    for after in (1, 100, 230):
        store = ["--store", str(tmp_path / f"at-{after}")]
        stopped = _stopped_after(after, [*call, *store], monkeypatch)
        assert stopped.code == 130
        kept = int(re.search(r"(\d+) of 300 runs done", stopped.err.decode())[1])
        again = run([*call, *store])
        before = re.search(r"300 runs(?:, (\d+) done before)?\n", again.err.decode())
        assert again.code == 0
        assert int(before[1] or 0) == kept < 300


@pytest.mark.parametrize("more", [[], ["--until", "trained_tokens_per_second within 0.01%"]])
@pytest.mark.parametrize("executor", ["threads", "serial"])
def test_a_stop_after_the_last_run_finds_nothing_left_to_stop(tmp_path, monkeypatch, executor, more):
    call = ["run", *SMALL, *more, "--executor", executor, "--store", str(tmp_path / "s")]

    late = _stopped_after(300, call, monkeypatch)

    assert late.code == 0
    assert b"300 of 300 runs done" in late.err
    assert SweepStore(tmp_path / "s").complete


def test_what_is_kept_is_passed_on_and_counted(capsys):
    plain = Plain()
    passing = UntilItFails(plain)
    passing.begin(100, 10)
    passing.advance(30)
    passing.kept(25)
    passing.end()

    assert "25 of 100 runs done" in capsys.readouterr().err
    assert Progress().kept(3) is None
