"""A generator and a trainer as two processes: weights by file, a queue between them, and every way to die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from oracle.pair_bodies import Learner, Sampler

from lagsweep.errors import StoreError
from lagsweep.sweeps.real_model.channel import Channel, PeerGoneError
from lagsweep.sweeps.real_model.handover import KEPT, WeightFolder
from lagsweep.sweeps.real_model.loop import generate, train
from lagsweep.sweeps.real_model.pair import Job, run_pair

TESTS = Path(__file__).resolve().parents[1]
BODIES = "oracle.pair_bodies"
LONG = 120.0  # seconds that no test takes: a wait of this length is a hang


# Weights by file


def _text(version):
    return lambda path: path.write_text(str(version)) and None


def test_the_newest_weights_are_read_and_old_ones_go(tmp_path):
    weights = WeightFolder(tmp_path)
    assert weights.newest(Path.read_text) is None
    for version in range(6):
        weights.offer(version, _text(version))

    assert weights.newest(Path.read_text) == (5, "5")
    assert weights.newest(Path.read_text, above=5) is None
    assert weights.versions() == [3, 4, 5]
    assert len(list(tmp_path.iterdir())) == KEPT


def test_weights_that_cannot_be_written_leave_nothing(tmp_path):
    weights = WeightFolder(tmp_path)
    weights.offer(1, _text(1))

    def half(path):
        path.write_text("half of it")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        weights.offer(2, half)
    assert [path.name for path in tmp_path.iterdir()] == ["version-000000001.safetensors"]


def test_weights_replaced_while_they_are_chosen_are_passed_over(tmp_path):
    weights = WeightFolder(tmp_path)
    weights.offer(1, _text(1))

    def slow(path):
        if weights.versions() == [1]:
            for version in range(2, 5):
                weights.offer(version, _text(version))
        return path.read_text()

    assert weights.newest(slow) == (4, "4")


def test_weights_that_are_there_and_cannot_be_read_are_an_error(tmp_path):
    weights = WeightFolder(tmp_path)
    weights.offer(1, _text(1))

    with pytest.raises(FileNotFoundError):
        weights.newest(lambda path: path.with_suffix(".other").read_text())


# Messages


@pytest.fixture
def channels():
    both = [Channel(end.detach()) for end in socket.socketpair()]
    yield both
    for channel in both:
        channel.close()


def test_messages_keep_their_order_and_a_sender_never_waits(channels):
    one, other = channels
    large = {"tokens": list(range(50_000))}
    for number in range(20):  # far more than a socket holds
        one.send({"number": number, **large})

    assert [other.take()["number"] for _ in range(20)] == list(range(20))
    assert other.take(wait=False) is None


def test_what_was_sent_is_taken_before_the_end_is_seen(channels):
    one, other = channels
    one.send({"number": 1})
    one.close()

    assert other.take() == {"number": 1}
    with pytest.raises(PeerGoneError):
        other.take()
    with pytest.raises(PeerGoneError):
        other.take(wait=False)


def test_nobody_waits_for_ever(channels):
    _, other = channels

    with pytest.raises(PeerGoneError):
        other.take(seconds=0.05)


# The loop


def _loop(channels, folder, phases):
    """Run both sides in this process and return rows, sampler and learner."""
    one, other = channels
    sampler, learner = Sampler(), Learner()
    generator = threading.Thread(target=generate, args=(one, WeightFolder(folder), sampler))
    generator.start()
    rows = train(other, WeightFolder(folder), learner, phases)
    other.close()
    generator.join(LONG)
    assert not generator.is_alive()
    return rows, sampler, learner


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_nothing_is_older_than_what_may_be_ahead_and_nothing_is_lost(channels, tmp_path, ahead):
    rows, sampler, learner = _loop(channels, tmp_path, [{"ahead": ahead, "updates": 25}])

    assert len(rows) == learner.version == 25
    assert all(0 <= row["lag"] <= ahead for row in rows)
    assert learner.seen == [f"{number}-0" for number in range(25)], "oldest first, each once"
    assert all(version == weights for _, version, weights in sampler.log)
    assert len(sampler.log) <= 25 + 1 + ahead


def test_what_a_loop_had_ahead_is_not_trained_in_the_next_one(channels, tmp_path):
    rows, sampler, learner = _loop(
        channels, tmp_path, [{"ahead": 2, "updates": 6}, {"ahead": 0, "updates": 6}]
    )

    second = [row for row in rows if row["phase"] == 1]
    assert [row["lag"] for row in second] == [0] * 6
    assert learner.version == 12
    assert len(sampler.log) >= 12


def test_a_row_adds_up(channels, tmp_path):
    rows, _, _ = _loop(channels, tmp_path, [{"ahead": 0, "updates": 4}])

    for row in rows:
        parts = row["wait_seconds"] + row["training_seconds"] + row["publication_seconds"]
        assert row["step_seconds"] == pytest.approx(parts)
        assert (row["rollouts"], row["prompt_tokens"], row["cut"], row["loss"]) == (2, 2, 0, 1.0)
        assert row["response_tokens"] == 2 * row["longest_tokens"]


# Two processes


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    for name in ("work", "weights", "notes"):
        (tmp_path / name).mkdir()
    settings = {
        "weights": str(tmp_path / "weights"),
        "notes": str(tmp_path / "notes"),
        "phases": [{"ahead": 0, "updates": 5}, {"ahead": 1, "updates": 5}],
    }

    def make(generator="generator", trainer="trainer", seconds=LONG):
        bodies = {"generator": f"{BODIES}:{generator}", "trainer": f"{BODIES}:{trainer}"}
        return Job(bodies, settings, tmp_path / "work", seconds)

    return make


def _alive(pid):
    """Tell whether a process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _ids(notes):
    return [int(path.read_text()) for path in notes.iterdir() if path.suffix != ".tmp"]


def _until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_two_processes_give_the_rows_of_both_loops_and_end(job, tmp_path):
    rows = run_pair(job())

    assert [row["phase"] for row in rows] == [0] * 5 + [1] * 5
    assert [row["lag"] for row in rows[:5]] == [0] * 5
    assert all(row["lag"] <= 1 for row in rows[5:])
    assert len(_ids(tmp_path / "notes")) == 2
    assert not any(map(_alive, _ids(tmp_path / "notes")))


@pytest.mark.parametrize(
    ("sides", "dead", "other"),
    [
        ({"generator": "killed"}, "generator", "trainer"),
        ({"trainer": "killed"}, "trainer", "generator"),
        ({"generator": "killed", "trainer": "sleeps"}, "generator", "sleeps"),
        ({"generator": "sleeps", "trainer": "killed"}, "trainer", "sleeps"),
    ],
)
def test_when_one_side_is_killed_the_other_ends_and_the_first_is_named(job, tmp_path, sides, dead, other):
    with pytest.raises(StoreError) as caught:
        run_pair(job(**sides))

    assert f"the {dead}: must run until the trainer is done" in str(caught.value)
    assert "SIGKILL" in str(caught.value)
    assert any(path.name.startswith(other) for path in (tmp_path / "notes").iterdir())
    assert not any(map(_alive, _ids(tmp_path / "notes")))


@pytest.mark.parametrize("side", ["generator", "trainer"])
def test_a_side_that_fails_says_why(job, tmp_path, side):
    with pytest.raises(StoreError) as caught:
        run_pair(job(**{side: "fails"}))

    assert f"the {side}: " in str(caught.value)
    assert "no room for the weights" in str(caught.value)
    assert not any(map(_alive, _ids(tmp_path / "notes")))


def test_two_sides_that_go_on_for_ever_are_ended(job, tmp_path):
    with pytest.raises(StoreError) as caught:
        run_pair(job("waits", "waits", seconds=2.0))

    assert "must end within 2 s" in str(caught.value)
    assert not any(map(_alive, _ids(tmp_path / "notes")))


STARTER = """
import sys
from lagsweep.sweeps.real_model.pair import Job, run_pair
from lagsweep.sweeps.real_model.swept_folder import swept_folder

notes = sys.argv[1]
with swept_folder("lagsweep-real-model-") as whole:
    folder = whole / "loops"
    folder.mkdir()
    bodies = dict.fromkeys(("generator", "trainer"), "oracle.pair_bodies:sleeps")
    run_pair(Job(bodies, {"notes": notes}, folder, 600.0))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_when_the_starter_is_ended_both_sides_end_and_nothing_is_left(tmp_path, number):
    notes, temporary = tmp_path / "notes", tmp_path / "temporary"
    notes.mkdir()
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "TMPDIR": str(temporary)}
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(notes)], env=environment, stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    _until(lambda: len(_ids(notes)) == 2)
    starter.send_signal(number)
    starter.wait(LONG)

    _until(lambda: not any(map(_alive, _ids(notes))))
    _until(lambda: not list(temporary.iterdir()))
    assert starter.returncode != 0
