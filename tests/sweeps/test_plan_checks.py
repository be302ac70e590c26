"""The published checks of a plan: what the program makes is what stands there, and it holds."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORED = (ROOT / "results" / "published" / "plan-checks.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def programs():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        names = ("plan_checks", "plan_checks_text", "plan_splits")
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def found(programs):
    checks = programs[0]
    return {
        "sums": checks.sum_rows(),
        "runs": checks.run_rows(),
        "fixed_parts": checks.fixed_rows(),
        "stages": checks.stage_rows(),
        "cache": checks.cache_rows(),
        "experts": checks.expert_rows(),
        "splits": [],
    }


def test_all_but_the_splits_stands_as_the_program_prints_it(programs, found):
    made = programs[1].text(found)

    assert STORED.split("\n## Published splits of GPUs")[0].rstrip() == made.rstrip()


def test_parameters_and_cache_are_the_published_ones(found):
    for row in found["sums"]:
        assert row["published_parameters"] in (None, row["parameters"])
        assert row["cache_bytes"] == row["published_cache_bytes"]


def test_measured_runs_lie_inside_the_range_of_a_data_sheet(found):
    inside = [
        row["end_to_end_fast"] <= row["end_to_end_measured"] <= row["end_to_end_slow"]
        for row in found["runs"]
    ]
    per_token = [
        row["per_token_fast"] <= row["per_token_measured"] <= row["per_token_slow"] for row in found["runs"]
    ]

    assert inside == [True] * 4
    # The memory-bound run: a plan lets more rollouts run at once than did.
    assert per_token == [False, True, True, True]


def test_the_fixed_part_of_a_step_is_that_of_the_load_stages(found):
    for row in found["fixed_parts"]:
        assert row["fast"] <= row["fitted"] <= row["slow"]
        assert row["default"] == pytest.approx(row["fitted"], rel=0.10)


def test_at_55_microseconds_a_layer_the_law_gives_what_was_computed_elsewhere(programs):
    checks = programs[0]
    # Milliseconds at h = 55 us and 0.90 of the bandwidth, worked out beside the stages' fit.
    expected = {
        "llama-2-7b": 6.14,
        "llama-2-70b tp4": 15.79,
        "mixtral-8x7b tp2": 17.21,
        "codellama-34b tp2": 13.74,
    }
    for name, entry in checks.setup()["stage_models"].items():
        record = checks.model_of(entry, name)
        deployment = checks.deployment_of(record, "H100-SXM", tensor_parallel=entry["tensor_parallel"])
        values = checks.three_ends(record)["default"] | {"layer_seconds": 55e-6}
        step = checks.step_coefficients(deployment, values, 60, 500)["step_seconds"]
        assert 1e3 * step == pytest.approx(expected[name], abs=0.01)


def test_stages_outside_the_range_are_those_beyond_the_measured_all_reduces(programs, found):
    outside = [row for row in found["stages"] if not row["fast"] <= row["measured"] <= row["slow"]]

    assert len(found["stages"]) == 20
    assert len(outside) == 1
    assert outside[0]["message_bytes"] > programs[1].REDUCE_MEASURED_BYTES


def test_caches_are_off_by_what_the_table_of_logs_says(found):
    for row in found["cache"]:
        percent = 100 * (row["summed"] / row["logged"] - 1)
        assert percent == pytest.approx(row["expected_percent"], abs=0.75), row["log"]
    assert sum(row["inside"] for row in found["cache"]) == 12


def test_experts_read_are_the_expected_distinct_ones(found):
    assert len(found["experts"]) == 27
    for row in found["experts"]:
        assert row["read"] == pytest.approx(row["expected"], rel=1e-3)


def test_the_stored_splits_are_complete_and_say_what_they_hold(programs):
    text = STORED.split("\n## Published splits of GPUs")[1]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and "---" not in line][
        1:
    ]
    names = [pair.name for pair in programs[2].pairs()]
    planned = [float(row[5].split(" ")[0]) for row in rows]
    measured = [float(row[6].rstrip(" |")) for row in rows]

    assert [row[0].removeprefix("| ") for row in rows] == names
    assert measured == [round(pair.measured[0] / pair.measured[1], 2) for pair in programs[2].pairs()]
    direction = sum((one < 1) == (other < 1) for one, other in zip(planned, measured))
    assert f"name the faster side in {direction} of {len(rows)}" in " ".join(text.split())
    assert direction == len(rows)


def test_a_split_is_planned_as_the_page_says(programs):
    splits = programs[2]
    pair = next(one for one in splits.pairs() if one.name.startswith("marin"))
    row = splits.row_of(pair)
    shown = re.search(rf"^\| {re.escape(pair.name)} \|.*$", STORED, re.M).group(0)

    assert f"{row['planned']:.2f} ({row['low']:.2f} to {row['high']:.2f})" in shown
    assert row["verdict"] in shown
    assert row["happened"] == "faster by more than a tenth"


def test_verdicts_are_by_a_tenth_and_open_where_the_ends_differ(programs):
    verdict = programs[2].verdict

    assert verdict(0.5, 0.8) == "faster by more than a tenth"
    assert verdict(0.5, 0.95) == "faster; by how much is open"
    assert verdict(0.92, 0.99) == "faster by less than a tenth"
    assert verdict(0.8, 1.05) == "open"
    assert verdict(1.02, 1.3) == "slower; by how much is open"
