"""Every command's ``--json`` is the document that docs/json.md describes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest
from oracle.every_command import CALLS, call_of, commands, prepare, run
from oracle.json_page import Row, faults, parts, schemas

from lagsweep.sweeps.json_text import DOCUMENTS, json_document, schema_name

DATA = Path(__file__).resolve().parents[1] / "data"
STORED = ["--duration-seconds", "120", "--axis", "max_lag=0,1", "--seeds", "2"]
CHEAP = ["--duration-seconds", "60", "--warmup-seconds", "0"]
FAILING = ["--duration-seconds", "600", "--restart-seconds", "20", "--checkpoint-seconds", "2"]
# What the plain calls do not show.
MORE = {
    "run: dry": (["run", "--dry-run", *STORED], "dry-run"),
    "run: drift": (
        ["run", "--store", "{folder}/drift", *STORED, "--axis", "drift_per_version=0.1,0.3", "-q"],
        "sweep",
    ),
    "run: failed and left out": (
        ["run", "--store", "{folder}/left", *STORED, "--where", "max_lag > 0", "--no-baseline", "-q"],
        "sweep",
    ),
    "show: drift": (["show", "{folder}/drift"], "sweep"),
    "recommend: bounds": (["recommend", "{store}", "--min-ess", "0.5", "--max-lag", "1"], "recommend"),
    "recommend: drift": (["recommend", "{folder}/drift", "--max-lag", "0"], "recommend"),
    "recommend: none": (["recommend", "{store}", "--min-ess", "1"], "recommend"),
    "simulate: stalled": (
        ["simulate", *CHEAP, "--max-queue-tokens", "100", "--batch-tokens", "90000"],
        "simulate",
    ),
    "simulate: pauses": (["simulate", *CHEAP, "--publication", "pause"], "simulate"),
    "verify: repair": (["verify", "{store}", "--repair"], "verify"),
    "verify: damaged": (["verify", "{folder}/damaged"], "verify"),
    "trace: simulated": (["trace", *CHEAP, "--batches", "{folder}/b.csv", "-o", "{folder}/t.json"], "trace"),
    "engine fit: samples": (
        ["engine", "fit", "--samples", "{folder}/samples.csv", "--kv-cache-tokens", "41408",
         "-o", "{folder}/sampled.toml"],
        "engine-samples",
    ),
    "run: a task": (
        ["run", "--store", "{folder}/tasked", *STORED, "--task", "1/2", "-q"],
        "parts",
    ),
    "ledger kv: pool": (
        ["ledger", "kv", "--layers", "20,12", "--kv-heads", "8", "--head-dim", "128",
         "--pool", "8GiB"],
        "ledger-kv",
    ),
    "ledger drift: records": (["ledger", "drift", "--records", "{folder}/measured.jsonl"], "drift-law"),
    "run: measured drift": (
        ["run", "--store", "{folder}/measured", *STORED, "--drift",
         "from_records:{folder}/measured.jsonl:token", "-q"],
        "sweep",
    ),
    "recommend: measured drift": (["recommend", "{folder}/measured"], "recommend"),
    "ledger: LoRA": (["ledger", "--model", "Llama-3.1-8B", "--lora-rank", "32", "--gpus", "8"], "ledger"),
    "validate: bad": (["validate", "{folder}/bad.jsonl"], "validate"),
    "plan: nothing": (
        [*("plan", "--model", "DeepSeek-V3", "--accelerator", "H100", "--gpus", "8", "--prompts", "2"),
         *("--group-size", "2", "--law", "fixed:50", "--prompt-tokens", "10", "--max-tokens", "100"),
         "-q", "--results", "{folder}"],
        "plan",
    ),
    "run: failures": (
        ["run", "--store", "{folder}/fails", *FAILING, "--axis", "checkpoint_every_updates=2,8",
         "--axis", "trainer_mtbf_seconds=100,none", "--seeds", "2", "-q"],
        "sweep",
    ),
    "compare: failures": (
        ["compare", "areal", "tinker", "--seeds", "1", "-q", "--trainer-mtbf-seconds", "100",
         "--batch-groups", "4", "--group-size", "2", *CHEAP],
        "compare",
    ),
    "simulate: failures": (
        ["simulate", *FAILING, "--trainer-mtbf-seconds", "100", "--checkpoint-every-updates", "4"],
        "simulate",
    ),
    "drill: losses": (["drill", "--config", "{folder}/fails.toml", "--seeds", "2"], "drill-losses"),
    "plan: failures": (
        ["plan", "--model", "Qwen3-0.6B", "--accelerator", "H100", "--gpus", "8", "--prompts", "2",
         "--group-size", "2", "--law", "fixed:50", "--prompt-tokens", "10", "--max-tokens", "100",
         "--rollout-gpus", "4", "--tensor-parallel", "2", "--systems", "synchronous", "--caps", "8",
         "--trainer-mtbf-hours", "5", "--storage-gb-per-second", "1", "--seeds", "1", "-q",
         "--store", "{folder}/planned-fails"],
        "plan",
    ),
    "presets: all": (["presets"], "presets"),
    "presets: none": (["presets", "miles"], "preset"),
    "error: usage": (["simulate", "--nothing"], "error"),
    "error: field": (["simulate", "--batch-tokens", "0"], "error"),
    "error: store": (["show", "{folder}/nowhere"], "error"),
}  # fmt: skip
PLAIN = {
    "run": "sweep", "simulate": "simulate", "show": "sweep", "verify": "verify", "report": "report",
    "recommend": "recommend", "plan": "plan",
    "compare": "compare", "trace": "trace", "engine fit": "engine-fit",
    "engine show": "engine-show", "engine cards": "engine-cards", "ledger": "ledger",
    "ledger models": "ledger-models", "ledger kv": "ledger-kv", "ledger sync": "ledger-sync",
    "ledger checkpoint": "ledger-checkpoint",
    "ledger drift": "ledger-drift", "validate": "validate", "drill": "drill", "presets": "preset",
    "calibrate": "calibrate", "whatif": "whatif",
    "lab": "lab", "search": "search", "sensitivity": "sensitivity", "compact": "compact", "merge": "sweep",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = prepare(tmp_path_factory.mktemp("json"))
    shutil.copy(DATA / "engines" / "vllm_samples.csv", folder / "samples.csv")
    (folder / "fails.toml").write_text("[base]\nduration_seconds = 600\ntrainer_mtbf_seconds = 100\n")
    shutil.copy(DATA / "rollouts" / "real_rollouts_smollm2.jsonl", folder / "measured.jsonl")
    (folder / "bad.jsonl").write_text('{"response_ids": [1, 2], "logprobs": [-0.5]}\nnot json\n')
    assert run(["run", "--store", str(folder / "damaged"), *STORED, "-q"]).code == 0
    chunk = max((folder / "damaged" / "cells.zarr").glob("*/c/**/*"), key=lambda path: path.is_file())
    chunk.write_bytes(b"\x00" * 9)
    return folder


def document(call, folder, monkeypatch):
    monkeypatch.chdir(folder)
    answer = run([text.format(folder=folder, store=folder / "store") for text in [*call, "--json"]])
    return json.loads(answer.out)


def test_every_command_that_takes_json_is_checked_here():
    takes = {
        name
        for name, command in commands().items()
        if any("--json" in param.opts for param in command.params if isinstance(param, click.Option))
    }

    assert takes == set(PLAIN)
    assert set(PLAIN) <= set(CALLS)


def test_the_page_describes_every_document_and_no_other():
    assert set(schemas()) == {schema_name(kind) for kind in DOCUMENTS}
    assert {*PLAIN.values(), *(kind for _, kind in MORE.values())} == set(DOCUMENTS)


@pytest.mark.parametrize("name", PLAIN)
def test_a_command_prints_what_the_page_says(folder, monkeypatch, name):
    found = document(call_of(name, folder), folder, monkeypatch)

    assert found["schema"] == schema_name(PLAIN[name]) == next(iter(found.values()))
    assert faults(found, schemas()[found["schema"]]) == []


@pytest.mark.parametrize("name", MORE)
def test_other_states_print_it_too(folder, monkeypatch, name):
    call, kind = MORE[name]
    if name in ("show: drift", "recommend: drift") and not (folder / "drift").exists():
        document(MORE["run: drift"][0], folder, monkeypatch)
    if name == "recommend: measured drift" and not (folder / "measured").exists():
        document(MORE["run: measured drift"][0], folder, monkeypatch)
    found = document(call, folder, monkeypatch)

    assert found["schema"] == schema_name(kind), found
    assert faults(found, schemas()[found["schema"]]) == []


def test_the_check_finds_what_is_missing_new_or_of_another_type():
    rows = [
        Row(parts("a"), "number", True, False),
        Row(parts("b[].name"), "text", False, False),
        Row(parts("b"), "list", False, False),
        Row(parts("c.{metric}"), "number", False, False),
        Row(parts("c"), "object", False, True),
    ]

    assert faults({"schema": "x", "a": None, "b": [{"name": "y"}], "c": {"lag": 1}}, rows) == []
    assert faults({"schema": "x", "a": "1", "b": []}, rows) == ["a: '1' is no number"]
    assert faults({"schema": "x", "a": 1, "b": [{}], "z": 2}, rows) == [
        "b.[].name: missing",
        "z: not on the page",
    ]
    assert faults({"schema": "x", "b": [], "c": {"lag": None}}, rows) == ["a: missing", "c.lag: null"]


def test_a_document_says_first_what_it_is():
    assert json.loads(json_document("report", {"bytes": 7})) == {"schema": "lagsweep/report/1", "bytes": 7}
    with pytest.raises(KeyError):
        json_document("reprot", {})
