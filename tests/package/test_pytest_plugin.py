"""The fixtures, in an environment of its own with the wheel: pytest finds them, and loads nothing for it."""

from __future__ import annotations

import subprocess

import pytest

TESTS = """
import lagsweep as ls
from lagsweep.testing import BufferRules


class Fifo:
    def __init__(self):
        self.items = []

    def put(self, item):
        self.items.append(item)

    def take(self, n):
        return [self.items.pop(LAST) for _ in range(min(n, len(self.items)))]

    def publish(self, version):
        pass

    def save(self):
        return list(self.items)

    def restore(self, state):
        self.items = list(state)


def test_buffer(check_buffer):
    check_buffer(Fifo, BufferRules(takes="rest"))


def test_records(made_records):
    assert ls.kernels.batch_contract_errors(made_records(12)) == []


def test_history(simulated_history):
    fields = {"duration_seconds": 30.0, "batch_groups": 2, "group_size": 1, "rollout_workers": 2}
    history = simulated_history("areal", **fields)
    gate = ls.RolloutGate(ls.preset_config("areal", **fields))
    assert [getattr(gate, event.call)(**event.arguments) for event in history] == [e.answer for e in history]
    assert simulated_history("areal", **fields) == history
"""
LIGHT = """
import sys


def test_nothing_is_loaded_for_the_plugin():
    assert "lagsweep.pytest_plugin" in sys.modules
    heavy = ("numba", "xarray", "polars", "hypothesis", "lagsweep.sweeps")
    assert [name for name in heavy if name in sys.modules] == []
"""


def run(elsewhere, folder, text, *flags):
    (folder / "test_theirs.py").write_text(text)
    # What else the environment offers to pytest, Hypothesis's plugin among it, stays away.
    command = [elsewhere / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.slow
def test_the_fixtures_work_where_the_wheel_is_installed(elsewhere, tmp_path):
    outcome = run(elsewhere, tmp_path, TESTS.replace("LAST", "0"))

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.slow
def test_a_broken_buffer_is_shown_by_its_message_alone(elsewhere, tmp_path):
    outcome = run(elsewhere, tmp_path, TESTS.replace("LAST", "-1"), "-k", "buffer")

    assert outcome.returncode == 1
    assert "rule broken: order\n" in outcome.stdout.replace("E             ", "").replace("E           ", "")
    assert "def check_buffer(" not in outcome.stdout
    assert len(outcome.stdout.splitlines()) < 50, outcome.stdout


@pytest.mark.slow
def test_pytest_starts_without_loading_anything_of_it(elsewhere, tmp_path):
    outcome = run(elsewhere, tmp_path, LIGHT, "-p", "no:hypothesispytest")

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
