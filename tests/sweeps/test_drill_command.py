"""``lagsweep drill``: a table of at most 80 columns, JSON, and the exit code says if all was caught."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from lagsweep.sweeps.checkpoint import drill as drill_module
from lagsweep.sweeps.cli.drill_command import command

NAMES = ["weights only", "no generators", "cursor ahead", "buffer lost", "reseeded", "counter lost"]


def _run(*arguments):
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_the_table_fits_80_columns_and_names_every_resume():
    result = _run()
    lines = result.output.splitlines()

    assert result.return_value == 0
    assert max(map(len, lines)) <= 80
    for name in NAMES:
        assert any(line.startswith(name) and "caught" in line for line in lines)
    assert any(line.startswith("right") and "exact" in line for line in lines)
    assert "never trained" in result.output
    assert "trained twice" in result.output
    assert "\x1b" not in result.output


def test_a_narrow_terminal_gets_a_narrow_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")

    assert max(map(len, _run().output.splitlines())) <= 60


def test_json_holds_the_same_and_nothing_else():
    result = _run("--json", "--seed", "5", "--before", "3", "--after", "4")
    document = json.loads(result.output)

    assert result.return_value == 0
    assert (document["seed"], document["before"], document["after"]) == (5, 3, 4)
    assert document["exact_match"] is document["all_caught"] is True
    assert document["broken_match"] is False
    assert [row["resume"] for row in document["broken"]] == NAMES
    assert all(row["differs"] and row["effects"] for row in document["broken"])
    assert document["right"]["differs"] is False


@pytest.mark.parametrize("missed", ["a broken one", "the right one"])
def test_a_resume_that_is_not_told_apart_is_exit_code_1_and_named(monkeypatch, missed):
    real = drill_module.recovery_drill

    def blind(**arguments):
        drill = real(**arguments)
        if missed == "the right one":
            return dataclasses.replace(
                drill,
                exact_match=False,
                right=dataclasses.replace(drill.right, caught=True, caught_by=("queue",)),
            )
        return dataclasses.replace(
            drill, broken=(dataclasses.replace(drill.broken[0], caught=False), *drill.broken[1:])
        )

    monkeypatch.setattr(drill_module, "recovery_drill", blind)
    result = _run()

    assert result.return_value == 1
    expected = {
        "a broken one": "FAILED: not noticed: weights only.",
        "the right one": "FAILED: the right resume differs in queue.",
    }
    assert expected[missed] in result.output


@pytest.mark.parametrize("arguments", [["--before", "0"], ["--after", "x"], ["--seed", "-1"], ["extra"]])
def test_bad_arguments_are_usage_errors(arguments):
    result = CliRunner().invoke(command, arguments)

    assert result.exit_code == 2
