"""The table of published weight synchronisation times: complete, never below its bound, and as stored."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from oracle.formula_cases import DATA, cases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location(
        "weight_sync_table", ROOT / "benchmarks" / "weight_sync_table.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(table):
    return table.report(table.load())


def test_every_collected_measurement_is_in_the_table(table):
    collected = json.loads((DATA / "weight_sync_times.json").read_text())
    shown = [[row[column] for column in collected["columns"]] for row in table.load()["rows"]]

    assert len(collected["rows"]) == 27
    assert all(row in shown for row in collected["rows"])


@pytest.mark.parametrize("case", cases("sync", "published_sync_measurement"), ids=lambda case: case["id"])
def test_every_stored_measurement_is_in_the_table(case, found):
    expected = case["expected"]
    seconds = expected.get("total_sync_s", expected.get("broadcast_s"))
    (row,) = [row for row in found["bounds"] if row["measured_seconds"] == seconds]

    if "implied_payload_GB_per_s" in expected:
        assert row["reached_gigabytes_per_second"] == pytest.approx(
            expected["implied_payload_GB_per_s"], rel=1e-3
        )


def test_no_measurement_beats_its_bound(found):
    ratios = [row["times_bound"] for row in found["bounds"] if "times_bound" in row]

    assert len(ratios) == found["summary"]["rows_with_a_bound"] == 33
    assert min(ratios) > 1


def test_a_row_without_a_bound_says_why(found):
    assert all(row["note"] for row in found["bounds"] if row["bound_seconds"] is None)


def test_forecasts_within_one_layout_are_off_by_less_than_two_fifths(found):
    for row in found["forecasts"]:
        layouts = {entry.split(" (", 1)[1] for entry in [*row["from"], row["to"]]}
        if len(layouts) == 1 and row["measured_seconds"] > 1:
            assert abs(row["error"]) < 0.4, row


def test_seconds_per_call_explain_the_bucket_sizes(found):
    (row,) = [row for row in found["forecasts"] if row["kind"] == "calls"]

    assert abs(row["error"]) < 0.06


def test_sparse_payloads_have_the_predicted_size(found):
    *exact, bounded = found["deltas"]

    assert all(abs(row["error"]) < 0.07 for row in exact)
    assert bounded["predicted_bytes"] > bounded["measured_bytes"]


def test_the_stored_table_is_what_the_program_prints(table, found):
    assert (ROOT / "results" / "published" / "weight-sync.md").read_text() == table.text(found)


def test_the_program_prints_text_or_one_json_document(table, found, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["weight_sync_table.py", "--json"])
    table.main()
    document = json.loads(capsys.readouterr().out)
    monkeypatch.setattr("sys.argv", ["weight_sync_table.py"])
    table.main()

    assert document["command"] == "python benchmarks/weight_sync_table.py --json"
    assert document["summary"] == found["summary"]
    assert capsys.readouterr().out == table.text(found)
