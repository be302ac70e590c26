"""The predictions of published figures: stored as printed, complete, and never made from the row itself."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "fidelity"


@pytest.fixture(scope="module")
def program():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("run")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def data(program):
    return program.load()


@pytest.fixture(scope="module")
def found(program, data):
    return {family.title.split(" (")[0].split(":")[0]: family for family in program.families(data)}


def test_the_stored_page_is_what_the_program_prints(program, found):
    stored = (ROOT / "results" / "published" / "fidelity.md").read_text()

    assert stored == program.text(list(found.values()))
    assert stored.splitlines()[2].startswith("Made by `python benchmarks/fidelity/run.py`")


def test_the_summary_in_the_documentation_is_the_current_one():
    page = (ROOT / "docs" / "fidelity.md").read_text()
    stored = (ROOT / "results" / "published" / "fidelity.md").read_text()
    table = [line for line in stored.split("\n## ")[0].splitlines() if line.startswith("|")]

    assert len(table) == 8
    assert "\n".join(table) in page


def test_every_published_row_is_predicted_or_listed_with_the_reason(data, found):
    staleness, fully, one_off, nemo, marin, areal = found.values()
    counts = [
        (staleness, len(data["applied_compute"]["rows"]), 0),
        # A step and a wait for each predicted row.
        (fully, 14, 5),
        (one_off, 2, 2),
        (nemo, 4, 4),
        (marin, 1, 1),
        (areal, 0, 6),
    ]

    assert all(len(family.rows) == rows and len(family.left_out) == left for family, rows, left in counts)
    asynchronous = {row["id"] for row in data["verl_fully_async"]["asynchronous"]}
    covered = {row.name for row in fully.rows} | {name for name, _ in fully.left_out}
    assert asynchronous <= covered
    assert all(reason for family in found.values() for _, reason in family.left_out)


def test_no_row_is_among_the_rows_that_it_is_predicted_from(found):
    for family in found.values():
        for row in family.rows:
            assert row.name not in row.uses
            assert row.predicted > 0
        if family.calibrated:
            assert all(row.uses for row in family.rows)


def test_what_a_row_measured_does_not_enter_its_prediction(program, data, found):
    # Its own measurements are changed at random; the prediction must not move.
    changed = copy.deepcopy(data)
    (own,) = [row for row in changed["verl_fully_async"]["asynchronous"] if row["id"] == "64:64, s 0"]
    own |= {"step": 1.0, "wait": 2.0, "update": 3.0}
    module = program.verl_fully_async
    rows = {row["id"]: row for row in changed["verl_fully_async"]["asynchronous"]}
    step, wait = module.Setup(changed["verl_fully_async"]).predict(own, module.update_seconds(rows, own)[0])
    by_quantity = {row.quantity: row for row in found["verl fully_async"].rows if row.name == "64:64, s 0"}
    assert step == by_quantity["step"].predicted
    assert wait == by_quantity["trainer's wait"].predicted

    first = {**data["applied_compute"]["rows"][0], "mean_staleness": 99.0}
    assert program.applied_compute.predict(first) == found["Staleness against concurrency"].rows[0].predicted

    part = copy.deepcopy(data["verl_one_step_off"])
    fsdp, megatron = part["rows"]
    fsdp["one_step_off"] = dict.fromkeys(fsdp["one_step_off"], 1.0)
    step, _, _ = program.verl_one_step_off.predict(part, megatron, fsdp)
    assert step == found["verl one-step-off"].rows[0].predicted


def test_the_staleness_rows_are_within_a_tenth_without_any_calibration(found):
    family = found["Staleness against concurrency"]

    assert not family.calibrated
    assert all(abs(row.error) < 0.10 for row in family.rows)


def test_the_rows_on_128_gpus_are_within_a_tenth_or_so(found):
    steps = [
        row
        for row in found["verl fully_async"].rows
        if row.quantity == "step" and row.name.startswith("64:64")
    ]

    assert len(steps) == 5
    assert all(abs(row.error) < 0.12 for row in steps)


def test_what_is_off_by_more_than_a_tenth_says_why(found):
    for family in found.values():
        for row in family.rows:
            if abs(row.error) > 0.1 and not row.is_share:
                assert row.why, row.name


def test_the_division_of_a_colocated_generation_is_the_least_squares_line(program, data):
    rows = data["verl_fully_async"]["colocated"]
    tail, work = program.verl_fully_async.generation_of_colocated(rows)
    misses = [tail + work / row["gpus"] - row["generation"] for row in rows]

    # The misses of a least squares line are orthogonal to both of its columns.
    assert sum(misses) == pytest.approx(0, abs=1e-9)
    assert sum(miss / row["gpus"] for miss, row in zip(misses, rows)) == pytest.approx(0, abs=1e-9)


def test_the_program_prints_one_json_document(program, found, capsys, monkeypatch):
    monkeypatch.setattr(program, "families", lambda data: list(found.values()))
    monkeypatch.setattr("sys.argv", ["run.py", "--json"])
    program.main()
    document = json.loads(capsys.readouterr().out)

    assert document["command"] == "python benchmarks/fidelity/run.py --json"
    assert [family["title"] for family in document["families"]] == [family.title for family in found.values()]
    assert document["families"][1]["rows"][0]["uses"] == [
        "colocated 32",
        "colocated 64",
        "colocated 128",
        "64:64, s 0.5",
    ]
