"""Every command that takes a cell of a store reads it in the same way."""

from __future__ import annotations

import json

import pytest
from oracle.small_sweeps import small_base

from lagsweep import LengthLaw, open_sweep
from lagsweep.sweeps.cli.main import SUBCOMMANDS, main, sub_command
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.writing import run_into_store

FLAGS = {"trace": "--cell", "verify": "--cell", "report": "--reference"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells") / "sweep"
    laws = [LengthLaw.uniform(20, 80), LengthLaw.fixed(50)]
    spec = make_spec(small_base(), {"max_lag": [1, 2], "response_length": laws}, 2)
    run_into_store(spec, folder)
    return folder


def _call(capsys, tmp_path, command, store, cell):
    more = {
        "trace": ["--output", str(tmp_path / "trace.json"), "--quiet"],
        "verify": ["--quiet"],
        "report": ["--output", str(tmp_path / "page.html"), "--no-images"],
    }
    with pytest.raises(SystemExit) as stop:
        main([command, str(store), FLAGS[command], cell, *more[command], "--json"])
    return stop.value.code, json.loads(capsys.readouterr().out)


def test_these_are_all_commands_that_take_a_cell():
    takes = {
        name: flag
        for name in SUBCOMMANDS
        for parameter in sub_command(name).params
        for flag in ("--cell", "--reference")
        if flag in parameter.opts
    }

    assert takes == FLAGS


@pytest.mark.parametrize("command", FLAGS)
@pytest.mark.parametrize(
    "cell",
    [
        "max-lag=2,response_length={label}",
        "max_lag=2, response-length={label}",
        "max_policy_lag=2,response_length=fixed:50",
        "{id}",
    ],
)
def test_a_cell_is_named_by_its_values_a_laws_label_or_its_id(command, cell, store, tmp_path, capsys):
    dataset = open_sweep(store)
    label = str(dataset["response_length"].values[1])
    text = cell.format(label=label, id=int(dataset["cell"].values[1, 1]))

    code, facts = _call(capsys, tmp_path, command, store, text)

    assert code == 0, facts
    assert "error" not in facts
    if command == "verify":
        assert facts["runs_checked"] == 2
    if command == "trace":
        assert facts["cell"] == int(dataset["cell"].values[1, 1])


@pytest.mark.parametrize("command", FLAGS)
@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        ("somewhere", "must be a cell's id or AXIS=VALUE,…"),
        ("max_lag=", "must read AXIS=VALUE,…"),
        ("max_lag=2,3", "must read AXIS=VALUE,…"),
        ("max_lug=2", "must name a field or queue_cap, max_lag, sync_cadence"),
    ],
)
def test_what_names_no_cell_is_refused_in_the_same_words(command, cell, rule, store, tmp_path, capsys):
    code, facts = _call(capsys, tmp_path, command, store, cell)

    assert code == 2
    finding = facts["error"]["findings"][0]
    assert (finding["field"], finding["rule"]) == (FLAGS[command], rule)
