"""The guard of instruction counts: what fails, what is not compared, and what cannot be measured."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "speed"


@pytest.fixture(scope="module")
def guard():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("guard")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture
def stored(guard):
    counts = {"lean": 400.0, "general": 1_500.0, "preset": 2_400.0, "ess": 100.0}
    return guard.Counts("valgrind", "x86_64", "0.68.1", "0.50.0", counts)


def moved(counts, **factors):
    """Return counts of which some are so many times as large."""
    each = {name: value * factors.get(name, 1.0) for name, value in counts.instructions.items()}
    return dataclasses.replace(counts, instructions=each)


def test_counts_like_the_baseline_pass(guard, stored):
    verdict = guard.compared(moved(stored, lean=1.09, ess=0.95), [stored])

    assert verdict.exit_code == 0
    assert any("436.0, baseline 400.0 (+9.0%)" in line for line in verdict.lines)
    assert not any("FAILED" in line for line in verdict.lines)


def test_a_rise_of_over_a_tenth_fails_with_the_numbers(guard, stored):
    verdict = guard.compared(moved(stored, general=1.2), [stored])

    assert verdict.exit_code == 1
    assert any("1,800.0, baseline 1,500.0 (+20.0%)" in line for line in verdict.lines)
    failed = next(line for line in verdict.lines if line.startswith("FAILED"))
    assert "general loop" in failed
    assert "lean" not in failed


def test_a_fall_of_over_a_tenth_passes_and_asks_for_a_new_baseline(guard, stored):
    verdict = guard.compared(moved(stored, preset=0.5), [stored])

    assert verdict.exit_code == 0
    assert any(
        line.startswith("fewer by over 10%: slime") and "guard-baseline" in line for line in verdict.lines
    )


@pytest.mark.parametrize(
    "other", [{"numba": "0.70.0"}, {"llvmlite": "0.52.0"}, {"counter": "perf"}, {"machine": "aarch64"}]
)
def test_counts_of_other_versions_are_not_compared(guard, stored, other):
    verdict = guard.compared(dataclasses.replace(moved(stored, lean=3.0), **other), [stored])

    assert verdict.exit_code == 0
    assert verdict.lines[-1].startswith("not compared: the baseline is of valgrind on x86_64, numba 0.68.1")
    assert "make guard-baseline" in verdict.lines[-1]
    assert any("1,200.0" in line for line in verdict.lines)


def test_a_kernel_without_a_baseline_is_told_and_the_others_are_compared(guard, stored):
    older = dataclasses.replace(stored, instructions={"lean": 300.0})
    verdict = guard.compared(stored, [older])

    assert verdict.exit_code == 1
    assert sum("not compared: no baseline" in line for line in verdict.lines) == 3


def test_without_a_counter_nothing_is_measured_and_nothing_fails(guard, stored):
    assert guard.usable_counter(which=lambda name: None) is None
    verdict = guard.compared(None, [stored])

    assert verdict.exit_code == 0
    assert verdict.lines[0].startswith("not measured")


@pytest.mark.parametrize("count", ["<not supported>", "<not counted>"])
def test_a_counter_that_is_there_but_counts_nothing_is_not_used(guard, count, tmp_path, monkeypatch):
    script = tmp_path / "perf"
    script.write_text(f"#!/bin/sh\necho '{count};;instructions:u;0;100.00;;' >&2\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert guard.usable_counter(which=lambda name: str(script) if name == "perf" else None) is None


def test_both_counters_are_read(guard):
    perf, valgrind = guard.COUNTERS

    assert perf.read("1234567;;instructions:u;901234;100.00;;\n") == 1_234_567
    assert valgrind.read("==7== \n==7== I   refs:      4,132,790,350\n") == 4_132_790_350
    assert valgrind.read("==7== Memcheck\n") is None


def test_a_new_baseline_takes_the_place_of_the_one_it_can_be_compared_with(guard, stored):
    other = dataclasses.replace(stored, numba="0.70.0")
    newer = moved(stored, lean=2.0)
    text = guard.stored_with(newer, [stored, other])

    assert [guard.Counts(**one) for one in json.loads(text)] == [newer, other]


def test_the_stored_baseline_knows_every_kernel(guard):
    found = guard.baselines()

    assert found
    assert all(set(one.instructions) == set(guard.CALLS) == set(guard.NAMES) for one in found)
    assert all(value > 1 for one in found for value in one.instructions.values())
    assert guard.baselines(ROOT / "no such file") == []


def test_counted_processes_are_compiled_for_a_generic_processor_in_a_cache_of_their_own(
    guard, tmp_path, monkeypatch
):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    monkeypatch.setenv("LAGSWEEP_CACHE_DIR", "elsewhere")
    environment = guard.child_environment(tmp_path)

    assert environment["NUMBA_CPU_NAME"] == "generic"
    assert environment["LAGSWEEP_CACHE_DIR"] == str(tmp_path)
    assert "NUMBA_DISABLE_JIT" not in environment


def test_the_guarded_work_runs_and_says_how_much_it_is(guard):
    names = [f"{name}=2" for name in guard.CALLS]
    command = [sys.executable, str(FOLDER / "guarded_kernels.py"), *names]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    sizes = json.loads(outcome.stdout)

    assert set(sizes) == set(guard.CALLS)
    assert all(size > 1_000 for size in sizes.values())


def test_counts_are_the_difference_of_two_runs_over_the_events(guard, tmp_path, monkeypatch):
    """A counter that writes 1,000 and, for each call of a kernel, a million times its place."""
    script = tmp_path / "counter"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "calls = dict(one.split('=') for one in sys.argv if '=' in one)\n"
        "places = {'lean': 1_000_000, 'ess': 2_000_000}\n"
        "total = 1_000 + sum(places[name] * int(times) for name, times in calls.items())\n"
        "print('count', total, file=sys.stderr)\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(guard, "child_environment", lambda cache: dict(os.environ))
    counter = guard.Counter("made up", (str(script),), r"count (\d+)")
    counts = guard.count(counter, {"lean": 7, "ess": 3})
    command = [sys.executable, str(FOLDER / "guarded_kernels.py"), "lean=1", "ess=1"]
    sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert counts.instructions == {
        "lean": round(1_000_000 / sizes["lean"], 2),
        "ess": round(2_000_000 / sizes["ess"], 2),
    }


@pytest.mark.parametrize("text", ["", "[", "null", '[{"counter": "perf"}]'])
def test_a_damaged_baseline_is_told_by_its_name(guard, tmp_path, text):
    path = tmp_path / "instructions.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=r"instructions\.json: must hold the stored counts"):
        guard.baselines(path)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_baseline_that_is_no_count_is_refused(guard, tmp_path, value):
    path = tmp_path / "instructions.json"
    one = {"counter": "perf", "machine": "x", "numba": "1", "llvmlite": "2", "instructions": {"lean": value}}
    path.write_text(json.dumps([one]))
    with pytest.raises(SystemExit, match="must hold numbers above 0"):
        guard.baselines(path)


def test_a_kernel_that_is_no_longer_counted_is_told(guard):
    stored = [guard.Counts("perf", "x", "1", "2", {"lean": 500.0, "general": 900.0})]
    verdict = guard.compared(guard.Counts("perf", "x", "1", "2", {"lean": 500.0}), stored)
    assert verdict.exit_code == 0
    assert any("general loop" in line and "not counted" in line for line in verdict.lines)
