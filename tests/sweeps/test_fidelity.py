"""The predictions of published figures: stored as printed, complete, and never made from the row itself."""

from __future__ import annotations

import copy
import importlib
import json
import math
import statistics
import sys
from pathlib import Path

import pytest
from scipy.stats import norm

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

    assert len(table) == 9
    assert "\n".join(table) in page


def test_every_published_row_is_predicted_or_listed_with_the_reason(data, found):
    staleness, fully, one_off, nemo, marin, vime, areal = found.values()
    counts = [
        (staleness, len(data["applied_compute"]["rows"]), 0),
        # A step and a wait for each of four rows, and four windows of three of them.
        (fully, 20, 8),
        (one_off, 4, 2),
        (nemo, 8, 8),
        (marin, 4, 5),
        (vime, 3, 2),
        (areal, 0, 6),
    ]

    assert [(len(family.rows), len(family.left_out)) for family, _, _ in counts] == [
        (rows, left) for _, rows, left in counts
    ]
    asynchronous = {row["id"] for row in data["verl_fully_async"]["asynchronous"]}
    covered = {row.name for row in fully.rows} | {name for name, _ in fully.left_out}
    assert asynchronous <= covered
    assert all(reason for family in found.values() for _, reason in family.left_out)
    assert all(row.identified for family in found.values() for row in family.rows)


def test_no_row_is_among_the_rows_that_it_is_predicted_from(found):
    for family in found.values():
        for row in family.rows:
            assert row.name not in row.uses
            assert row.predicted is None or row.predicted > 0
        if family.calibrated:
            assert all(row.uses for row in family.rows)


def test_changing_the_measurements_of_every_predicted_row_moves_no_prediction_of_verl(program, data, found):
    changed = copy.deepcopy(data)
    part = changed["verl_fully_async"]
    fitted = (*program.verl_fully_async.FITTED, program.verl_fully_async.MANY, program.verl_fully_async.FEW)
    for row in part["asynchronous"]:
        if row["id"] not in fitted:
            row |= {"step": 1.0, "wait": 2.0, "update": 3.0, "total_minutes": [7, 9, 30, 31]}
    rows = program.verl_fully_async.family(changed).rows

    before = found["verl fully_async"].rows
    assert [(row.name, row.kind) for row in rows] == [(row.name, row.kind) for row in before]
    assert [(row.predicted, row.low, row.high) for row in rows] == [
        (row.predicted, row.low, row.high) for row in before
    ]
    assert {row.measured for row in rows} != {row.measured for row in before}


def test_what_a_row_of_another_source_measured_does_not_enter_its_prediction(program, data, found):
    first = {**data["applied_compute"]["rows"][0], "mean_staleness": 99.0}
    assert program.applied_compute.predict(first) == found["Staleness against concurrency"].rows[0].predicted

    changed = copy.deepcopy(data)
    for row in changed["marin"]["rows"][2:]:
        row |= {"total": 1.0, "weight_copies": 2.0}
    changed["nemo_rl"]["rows"] = [
        row | {"step": 1.0} if row["policy"] == "1-off" else row for row in changed["nemo_rl"]["rows"]
    ]
    for row in changed["vime"]["rows"]:
        row["asynchronous"] = 1.0
    for module, name in (
        (program.marin, "A staleness sweep"),
        (program.nemo_rl, "NeMo RL"),
        (program.vime, "vime"),
    ):
        rows = module.family(changed).rows
        assert [(row.predicted, row.low, row.high) for row in rows] == [
            (row.predicted, row.low, row.high) for row in found[name].rows
        ]


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_one_step_off_run_is_predicted_without_its_own_separate_run(program, data, found, wanted):
    part, pairs = copy.deepcopy(data["verl_one_step_off"]), copy.deepcopy(data["fewer_gpus"]["pairs"])
    run, known = part["rows"][wanted], part["rows"][1 - wanted]
    run["one_step_off"] = dict.fromkeys(run["one_step_off"], 1.0)
    for pair in pairs:
        if pair["id"] == f"one-step-off {run['id']}":
            pair["update"] = [1.0, 900.0]

    ends = program.verl_one_step_off.predict(part, pairs, known, run)
    (row,) = [row for row in found["verl one-step-off"].rows if row.name == run["id"]]
    assert (ends.middle, ends.low, ends.high) == (row.predicted, row.low, row.high)


def test_only_predictions_and_splits_have_an_error_and_only_predictions_enter_the_medians(program, found):
    rows = [row for family in found.values() for row in family.rows]
    assert {row.kind for row in rows} == {"prediction", "split", "range", "bound"}
    for row in rows:
        assert (row.error is None) == (row.kind in ("range", "bound"))
        assert (row.holds is None) == (row.error is not None)
        if row.kind == "range":
            assert row.low <= row.predicted <= row.high
            assert row.identified.startswith("not fixed: ")
        if row.kind == "bound":
            assert row.low is not None
            assert row.high is None

    line = program.summary([found["verl one-step-off"]])[0]
    assert line["predictions"] == 0
    assert line["median_absolute_error"] is None
    assert line["splits"] == 2


def test_an_input_that_moves_a_row_by_more_than_a_tenth_makes_it_a_range(program):
    parts = sys.modules["fidelity_parts"]
    fixed = parts.Ends(100.0, {"fetch": (97.0, 104.0), "work": (95.0, 105.0)})
    left_open = parts.Ends(100.0, {"fetch": (97.0, 104.0), "work": (94.0, 105.0)})

    assert (fixed.kind, fixed.low, fixed.high) == ("prediction", 95.0, 105.0)
    assert (left_open.kind, left_open.open_inputs) == ("range", ["work"])


def test_a_verdict_is_open_where_the_inputs_leave_both(program):
    parts = sys.modules["fidelity_parts"]
    assert parts.Verdict("row", 100.0, 60.0, 90.0, 70.0).predicted == "yes"
    assert parts.Verdict("row", 100.0, 60.0, 110.0, 70.0).predicted == "open"
    assert parts.Verdict("row", 100.0, 105.0, 110.0, 120.0).predicted == "no"
    assert parts.Verdict("row", 100.0, 105.0, 110.0, 120.0).observed == "no"


def test_whether_asynchronous_wins_is_right_wherever_the_inputs_fix_it(found):
    verdicts = [verdict for family in found.values() for verdict in family.verdicts]
    fixed = [verdict for verdict in verdicts if verdict.predicted != "open"]

    assert len(verdicts) == 16
    assert len(fixed) == 10
    assert all(verdict.predicted == verdict.observed for verdict in fixed)


def test_the_staleness_rows_are_within_a_tenth_without_any_calibration(found):
    family = found["Staleness against concurrency"]

    assert not family.calibrated
    assert all(abs(row.error) < 0.10 for row in family.rows)


def steps_of(found, title, *, window):
    rows = [row for row in found[title].rows if row.quantity == "step"]
    return {row.name: row for row in rows if ("steps" in row.name) == window}


def test_verls_whole_rows_are_within_five_percent(found):
    rows = steps_of(found, "verl fully_async", window=False)

    assert set(rows) == {"64:64, s 0.1", "64:64, s 0.3", "16:16, s 0.5", "64:64, require_batches 2"}
    assert all(row.kind == "prediction" and abs(row.error) < 0.05 for row in rows.values())


def test_verls_windows_are_within_eight_percent_where_lengths_are_alike_and_open_later(found):
    rows = steps_of(found, "verl fully_async", window=True)
    predictions = [row for row in rows.values() if row.kind == "prediction"]

    assert len(rows) == 12
    assert len(predictions) == 4
    assert all(abs(row.error) < 0.08 for row in predictions)
    assert statistics.median(abs(row.error) for row in predictions) < 0.04
    late = [row for name, row in rows.items() if "steps 201" in name or "steps 301" in name]
    assert all(row.kind == "range" and "lengths have grown" in row.identified for row in late)


def test_one_step_off_is_a_range_around_the_measurement_and_its_splits_are_within_five_percent(found):
    rows = found["verl one-step-off"].rows

    assert [row.kind for row in rows] == ["range", "split", "range", "split"]
    assert all(row.holds for row in rows if row.kind == "range")
    assert all(abs(row.error) < 0.05 for row in rows if row.kind == "split")


def test_marins_staleness_two_is_within_eight_percent_and_three_and_four_are_ranges_that_hold(found):
    two, three, four, mean = found["A staleness sweep"].rows

    assert all(abs(row.error) < 0.08 for row in (two, mean))
    for row in (three, four):
        assert row.kind == "range"
        assert row.holds
        assert "groups that outlast the allowance" in row.identified
    # Dropped, they make 4 faster than 3, as it was measured; trained, 64 workers make the two alike.
    assert four.low < 0.96 * three.low
    assert four.high == three.high


def test_colocated_32_grew_and_the_first_tenth_is_not_most_of_the_gain(found):
    text = " ".join(found["verl fully_async"].off)

    assert "494 s a step in its first window, 1,142 s in its last" in text
    assert "44% and 31%" in text


def test_what_is_off_by_more_than_a_tenth_says_why(found):
    for family in found.values():
        for row in family.rows:
            if row.error is not None and abs(row.error) > 0.1 and not row.is_share:
                assert row.why, row.name


def test_a_division_is_the_least_squares_line(program):
    points = [(32, 220.0), (64, 150.0), (128, 149.0)]
    fixed, divided = sys.modules["fidelity_parts"].division(points)
    misses = [fixed + divided / gpus - seconds for gpus, seconds in points]

    # The misses of a least squares line are orthogonal to both of its columns.
    assert sum(misses) == pytest.approx(0, abs=1e-9)
    assert sum(miss / gpus for miss, (gpus, _) in zip(misses, points)) == pytest.approx(0, abs=1e-9)


def test_a_cap_and_the_share_at_it_fix_the_lengths(program):
    marin = program.marin
    mean = marin.capped_mean(800.0, 0.8, 2048)
    share = float(norm.sf((math.log(2048) - math.log(800.0)) / 0.8))
    capped = {
        "max_response_tokens": 2048,
        "share_at_cap": share,
        "responses": 1000,
        "response_tokens": 1000 * mean,
    }

    assert marin.lengths_of(capped) == pytest.approx((800.0, 0.8), rel=1e-6)


def test_the_program_prints_one_json_document(program, found, capsys, monkeypatch):
    monkeypatch.setattr(program, "families", lambda data: list(found.values()))
    monkeypatch.setattr("sys.argv", ["run.py", "--json"])
    program.main()
    document = json.loads(capsys.readouterr().out)

    assert document["command"] == "python benchmarks/fidelity/run.py --json"
    assert [family["title"] for family in document["families"]] == [family.title for family in found.values()]
    first = document["families"][1]
    assert first["rows"][0]["uses"] == [
        "64:64, s 0",
        "64:64, s 0.5",
        "32:32, s 0.5",
        "colocated 32",
        "colocated 64",
        "colocated 128",
    ]
    assert first["asynchronous_beats_synchronous"][0]["predicted"] == "yes"
