"""The page on speed at its smallest size: every section has its rows, and what must be equal is.

No time is looked at. The page runs in a process of its own: one of the simulators beside which it measures
compiles only where it was imported before any other kernel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import lagsweep as ls

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "speed"
RANGED = r"[\d,.]+ \([\d,.]+…[\d,.]+\)"
PEERS = ("SimPy", "salabim", "ciw", "cimba")


@pytest.fixture(scope="module")
def page():
    command = [sys.executable, str(FOLDER / "page.py"), "--tiny", "--rounds", "2"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def rows(page, heading):
    """Return the tables' rows of a section, as lists of cells."""
    (section,) = [part for part in page.split("\n## ")[1:] if part.startswith(heading)]
    lines = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_the_page_says_what_it_was_measured_on(page):
    head = page.split("\n## ")[0]

    assert re.search(
        r"Measured on .+ \(\w+\), \d+ cores, Python [\d.]+, lagsweep .+, numba .+, llvmlite .+", head
    )
    assert re.search(r"Load of the machine before [\d.]+, after [\d.]+", head)
    assert re.search(r"\d+ of \d+ aims are met", head)


@pytest.mark.slow
def test_every_section_has_its_rows(page):
    loops = {row[0]: row for row in rows(page, "The loops")}
    presets = {row[0]: row for row in rows(page, "Presets")}
    sweeps = [row[0] for row in rows(page, "Runs a second")]
    growing = [row[-1] for row in rows(page, "What the time of an event depends on") if row[-1] != "so"]
    memory = dict(rows(page, "Memory of a sweep")[1:])
    started = {row[0]: row for row in rows(page, "The first result")}
    masks = rows(page, "Masks")

    assert all(re.fullmatch(RANGED, cell) for slots in ("8", "64") for cell in loops[slots][1:])
    assert set(ls.all_presets()) < set(presets)
    assert all(re.fullmatch(RANGED, cell) for name in ls.all_presets() for cell in presets[name][1:])
    assert sweeps[1:] == ["short, alike", "short, 1 to 9", "long, alike", "long, 1 to 9"]
    assert len(growing) == 11
    assert all(re.match("flat|grows|falls|uneven", said) for said in growing)
    assert int(memory["of which lag counts"]) == 65 * 8
    assert int(memory["held"]) < int(memory["dataset"])
    assert started["a run of level 1"][1] != ""
    assert [row[0] for row in masks if "ns a" in row[0]] == [
        "masks, ns a token",
        "ESS of groups, ns a weight",
        "contract, ns a token",
    ]


@pytest.mark.slow
def test_a_simulator_is_measured_or_said_to_be_missing(page):
    told = {row[0].split()[0].lower(): row for row in rows(page, "The M/M/1 queue")[1:]}

    assert set(told) == {"lagsweep", *(name.lower() for name in PEERS)}
    for name in PEERS:
        row = told[name.lower()]
        if find_spec(name.lower()) is None:
            assert row[2:] == ["not installed"] * 4
        else:
            assert re.fullmatch(RANGED, row[2])
            assert 0 < float(row[-1]) < 20


@pytest.mark.slow
def test_what_must_agree_does(page):
    assert "- met: SimPy trains as many tokens" in page
    assert "- met: every mean lies within four standard errors of theory" in page


def test_the_pipeline_that_is_a_queue_keeps_its_customers_for_as_long_as_theory_says(speed):
    queue = speed("queue_peers")
    customers, mean = queue.ours_in_detail(40_000)

    assert abs(customers - 40_000) < 4 * 40_000**0.5
    assert abs(mean - 5.0) < 4 * queue.standard_error(40_000)
    assert 0.2 < 4 * queue.standard_error(40_000) < 1


def test_an_unknown_section_is_refused_with_the_known_ones():
    command = [sys.executable, str(FOLDER / "page.py"), "--only", "lops"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)

    assert outcome.returncode == 1
    assert "no section lops" in outcome.stderr
    assert "loops" in outcome.stderr


@pytest.mark.parametrize(
    ("found", "met", "broken"), [(1.0, True, False), (1.19, False, False), (1.3, False, True)]
)
def test_an_aim_is_met_missed_or_broken(speed, found, met, broken):
    section = speed("measuring").Section("One")
    section.at_most("times", found, 1.1)
    (promise,) = section.promises

    assert (promise.met, promise.broken) == (met, broken)
    assert ("**missed**" in section.markdown()) is not met


def test_every_form_is_run_once_a_round_and_rounds_begin_with_another(speed):
    called = []
    forms = {name: lambda name=name: called.append(name) for name in "abc"}
    seconds = speed("measuring").in_turn(forms, 3)

    assert called == list("abcbcacab")
    assert {name: len(samples) for name, samples in seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_growth_is_named_from_the_medians(speed):
    growth = speed("measuring").growth

    assert growth([1, 64], [30.0, 33.0]).startswith("flat")
    assert growth([1, 64], [30.0, 90.0]) == "grows 3.00 times over 64 times the size"
    assert growth([1, 64], [90.0, 30.0]) == "falls to 0.33 times over 64 times the size"
    assert growth([1, 8, 64], [30.0, 60.0, 31.0]).startswith("uneven")
