"""A failed command says why: a sentence on stderr and, with ``--json``, the same as data on stdout."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest

from lagsweep.errors import CheckpointError, ConfigError, ContractError, Finding, StoreError
from lagsweep.sweeps.cli.failures import Stopped, failure_of, wants_json
from lagsweep.sweeps.cli.main import SUBCOMMANDS, main, root, sub_command
from lagsweep.sweeps.execute.dask import UnitsLost
from lagsweep.sweeps.json_text import json_text, plain_data

PLANNED = [
    *("--model", "Qwen3-0.6B", "--accelerator", "H100", "--gpus", "8", "--prompts", "2", "--group-size", "2"),
    *("--prompt-tokens", "10", "--max-tokens", "100"),
]
FAILING = [
    (["simulate", "--batch-tokens", "0"], "ConfigError", 2, "--batch-tokens"),
    (["simulate", "--law", "nothing:3"], "ConfigError", 2, "--response-length"),
    (["run", "nowhere.toml"], "ConfigError", 2, "SPEC"),
    (["run", "--axis", "max_lag=1,1"], "ConfigError", 2, "axes.max_lag"),
    (["show", "nowhere"], "StoreError", 3, "store"),
    (["verify", "nowhere"], "StoreError", 3, "store"),
    (["compact", "nowhere"], "StoreError", 3, "store"),
    (["merge", "nowhere"], "StoreError", 3, "merge"),
    (["report", "nowhere"], "StoreError", 3, "store"),
    (["recommend", "nowhere"], "StoreError", 3, "store"),
    (["sensitivity", "--axis", "max_lag=0,1", "--points", "1"], "ConfigError", 2, "points"),
    (["search", "--axis", "max_lag=0,1", "--budget", "3"], "ConfigError", 2, "budget_runs"),
    (["trace", "nowhere", "--cell", "1"], "StoreError", 3, "store"),
    (["trace", "--cell", "1"], "ConfigError", 2, "--cell"),
    (["calibrate", "nowhere.csv"], "ConfigError", 2, "path"),
    (["whatif", "nowhere.csv", "--axis", "max_lag=1,2"], "ConfigError", 2, "path"),
    (["plan", *PLANNED], "ConfigError", 2, "--law"),
    (["plan", *PLANNED, "--law", "fixed:9", "--rollout-gpus", "x"], "ConfigError", 2, "--rollout-gpus"),
    (["compare", "areal:nothing=1"], "ConfigError", 2, "nothing"),
    (["validate", "nowhere.jsonl"], "ConfigError", 2, "file"),
    (["presets", "nothing"], "ConfigError", 2, "preset"),
    (["ledger", "--model", "nothing"], "ConfigError", 2, "model"),
    (["ledger", "kv", "--nothing"], "UsageError", 2, "--nothing"),
    (["drill", "--before", "0"], "UsageError", 2, "--before"),
    (["lab", "--profile", "nothing"], "UsageError", 2, "--profile"),
    (["run", "--nothing"], "UsageError", 2, "--nothing"),
    (["show"], "UsageError", 2, "STORE"),
    (["nothing"], "UsageError", 2, "command"),
    (["completion"], "UsageError", 2, "--json"),
]


def _fails(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return stop.value.code, out, err


@pytest.mark.parametrize(("arguments", "kind", "code", "field"), FAILING, ids=lambda part: str(part)[:40])
def test_a_failure_is_one_json_document_where_json_was_asked_for(arguments, kind, code, field, capsys):
    plain_code, nothing, sentence = _fails(capsys, *arguments)
    json_code, document, same_sentence = _fails(capsys, *arguments, "--json")

    assert (plain_code, nothing) == (json_code, "") or field == "--json"
    assert same_sentence == sentence or field == "--json"
    error = json.loads(document)["error"]
    assert list(error) == ["kind", "exit_code", "message", "findings"]
    assert (error["kind"], error["exit_code"], json_code) == (kind, code, code)
    assert error["message"] in same_sentence
    assert all(list(finding) == ["field", "rule", "value", "way_out"] for finding in error["findings"])
    assert error["findings"][0]["field"].endswith(field)


def test_every_command_that_prints_json_is_tried():
    def has_json(command):
        return any("--json" in parameter.opts for parameter in command.params)

    names = {name for name in SUBCOMMANDS if has_json(sub_command(name))}

    assert names <= {arguments[0] for arguments, *_ in FAILING}


def test_several_findings_are_a_list(tmp_path, capsys):
    (tmp_path / "bad.toml").write_text("[base]\nbatch_tokens = 0\nmax_policy_lagg = 2\n[axes]\nmax_lag=[1]\n")

    _, out, err = _fails(capsys, "run", str(tmp_path / "bad.toml"), "--json")

    findings = json.loads(out)["error"]["findings"]
    assert len(findings) == 2
    assert [finding["value"] for finding in findings] == [0, 2]
    for finding in findings:
        assert f"{finding['field']}: {finding['rule']} (got {finding['value']}). {finding['way_out']}" in err


class Odd:
    def __repr__(self):
        return "odd"

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), None),
        (np.float32("inf"), None),
        (np.int64(3), 3),
        (np.True_, True),
        (np.array([1.0, np.nan]), [1.0, None]),
        ({"a": (1, float("nan"))}, {"a": [1, None]}),
        ("x" * 500, "'" + "x" * 116 + "..."),
        (list(range(100)), str(list(range(100)))[:117] + "..."),
        (10**5000, "a int"),
        (10**30, 10**30),
        (Odd(), "odd"),
        (None, None),
    ],
    ids=lambda value: str(type(value)),
)
def test_any_value_is_written_as_json_has_it(value, shown):
    failure = failure_of(ConfigError("a", "must be b", value, "Go."))

    assert json.loads(json_text(failure.document()))["error"]["findings"][0]["value"] == shown


def test_a_finding_without_a_value_has_null():
    failure = failure_of(StoreError("the store is gone"))

    assert failure.document()["error"]["findings"] == [
        {"field": "", "rule": "the store is gone", "value": None, "way_out": ""}
    ]


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (ConfigError("a"), "ConfigError", 2),
        (ContractError("a"), "ContractError", 1),
        (StoreError("a"), "StoreError", 3),
        (CheckpointError("a"), "CheckpointError", 3),
        (UnitsLost("a"), "UnitsLost", 1),
        (FileNotFoundError(2, "No such file", "x"), "OSError", 2),
        (MemoryError(), "MemoryError", 3),
        (RecursionError(), "RecursionError", 2),
        (RuntimeError("Zstd decompression failed"), "StoreError", 3),
        (KeyboardInterrupt(), "Stopped", 130),
        (click.exceptions.Abort(), "Stopped", 130),
        (Stopped("stopped; nothing was changed", 143), "Stopped", 143),
        (click.UsageError("no"), "UsageError", 2),
    ],
    ids=lambda part: type(part).__name__,
)
def test_every_kind_of_failure_has_its_exit_code_on_the_line_and_in_the_document(
    error, kind, code, monkeypatch, capsys
):
    def fail(**_):
        raise error

    monkeypatch.setattr(root, "main", fail)
    returned, out, err = _fails(capsys, "show", "--json")

    document = json.loads(out)["error"]
    assert (returned, document["exit_code"], document["kind"]) == (code, code, kind)
    assert document["message"] in err or isinstance(error, click.exceptions.Abort)


def test_a_defect_keeps_its_traceback(monkeypatch):
    def fail(**_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(root, "main", fail)

    with pytest.raises(ZeroDivisionError):
        main(["show", "--json"])


def test_what_follows_two_dashes_is_no_flag():
    assert wants_json(["run", "--json", "--", "x"])
    assert not wants_json(["run", "--", "--json"])
    assert not wants_json(["run", "--jsonl"])


def test_plain_data_keeps_what_json_knows_and_its_order():
    data = {"b": 1, "a": [None, True, "x", 0.1, 2**70], 3: {}}

    assert plain_data(data) == data
    assert json_text(data, indent=1) == json.dumps(data, indent=1)
    assert json_text(Finding("a", "b", 1, "c")) == '["a", "b", 1, "c"]'


def test_the_example_of_the_docs_is_what_the_command_prints(capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "report-and-recommend.md").read_text()

    _, out, err = _fails(capsys, "simulate", "--batch-tokens", "0", "--json")

    assert f"$ lagsweep simulate --batch-tokens 0 --json\n{out}{err}```" in page
