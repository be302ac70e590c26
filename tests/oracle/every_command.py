"""Every command of the command line with a short call, and a way to run it before odd streams.

The commands are found by walking the group; one that has no call here fails the tests that use them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from lagsweep.sweeps.cli.main import SUBCOMMANDS, main, sub_command
from lagsweep.testing import good_record

BASE = ["--duration-seconds", "120"]
STORED = [*BASE, "--axis", "max_lag=0,1", "--seeds", "2", "--quiet"]
SMALL = ["--batch-groups", "4", "--group-size", "2", "--duration-seconds", "60", "--warmup-seconds", "0"]
CALLS: dict[str, list[str]] = {
    "run": ["--store", "{folder}/made", *STORED],
    "simulate": ["--rollouts", "{folder}/rollouts.parquet", "--force", *BASE],
    "show": ["{store}"],
    "merge": ["{store}", "--store", "{folder}/merged-{fresh}"],
    "compact": ["{store}"],
    "verify": ["{store}", "--sample", "2"],
    "report": ["{store}", "--no-images", "-o", "{folder}/page.html"],
    "recommend": ["{store}"],
    "plan": [
        *("--model", "Qwen3-0.6B", "--accelerator", "H100", "--gpus", "8", "--prompts", "2"),
        *("--group-size", "2", "--law", "fixed:50", "--prompt-tokens", "10", "--max-tokens", "100"),
        *("--rollout-gpus", "4", "--tensor-parallel", "2", "--systems", "synchronous", "--caps", "8"),
        *("--seeds", "1", "-q", "--store", "{folder}/planned", "--page", "{folder}/plan.html"),
    ],
    "search": ["--results", "{folder}", *BASE, "--axis", "max_lag=0..2", "--budget", "200", "--quiet"],
    "sensitivity": [
        "--results",
        "{folder}",
        *BASE,
        "--axis",
        "max_lag=1..3",
        "--points",
        "4",
        "--seeds",
        "2",
        "--quiet",
        "--report",
        "{folder}/sensitivity.html",
    ],
    "compare": ["areal", "tinker", "--seeds", "1", "--report", "{folder}/compared.html", "-q", *SMALL],
    "trace": ["{store}", "--cell", "max_lag=1", "-o", "{folder}/trace.json", "--force"],
    "engine": ["--help"],
    "engine fit": [
        "{folder}/requests.csv",
        "--model",
        "Llama-3.1-8B",
        "--accelerator",
        "H100",
        "-o",
        "{folder}/engine.toml",
        "--page",
        "{folder}/engine.html",
        "--force",
    ],
    "engine show": [
        "{folder}/given.toml",
        "{folder}/requests.csv",
        "--times",
        "{folder}/times.csv",
        "--force",
    ],
    "engine cards": ["--sources"],
    "calibrate": [
        "{log}",
        "--group-size",
        "8",
        "-o",
        "{folder}/calibrated.toml",
        "--page",
        "{folder}/c.html",
        "--force",
    ],
    "whatif": ["{log}", "--axis", "rollout_workers=256,512", "--group-size", "8", "--seeds", "1"],
    "ledger": ["--model", "{folder}/config.json"],
    "ledger models": [],
    "ledger kv": ["--layers", "32", "--kv-heads", "8", "--head-dim", "128"],
    "ledger sync": ["--model", "{folder}/config.json", "--gigabytes-per-second", "50"],
    "ledger checkpoint": ["--checkpoint-seconds", "60", "--mtbf-seconds", "3600"],
    "ledger drift": ["--token-ess", "0.97", "--tokens", "1000"],
    "validate": ["{folder}/records.jsonl"],
    "drill": ["--before", "2", "--after", "2"],
    "presets": ["areal"],
    "lab": ["--output", "{folder}/lab"],
    "completion": ["bash"],
}
LOG = Path(__file__).parents[1] / "data" / "calibrate" / "verl_fully_async.csv"
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
}  # fmt: skip


ENGINE = "step_seconds = 0.01\nkv_cache_tokens = 400\nmax_running = 4\n"
REQUESTS = "\n".join(
    ["arrival_s,prompt_tokens,output_tokens,e2e_s,ttft_s"]
    + [f"{k / 10},{50 + k},{20 + k % 7},{0.6 + k / 100},{0.02 + k / 200}" for k in range(24)]
)


def commands() -> dict[str, click.Command]:
    """Return every command by its words, those of groups that do something by themselves too."""
    found = {}
    for name in SUBCOMMANDS:
        command = sub_command(name)
        found[name] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            found |= {
                f"{name} {own}": command.get_command(context, own) for own in command.list_commands(context)
            }
    return found


def prepare(folder: Path) -> Path:
    """Put what the calls read into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "given.toml").write_text(ENGINE)
    (folder / "requests.csv").write_text(REQUESTS)
    lines = [json.dumps(good_record())]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")
    answer = run(["run", "--store", str(folder / "store"), *STORED])
    assert answer.code == 0, answer.err
    return folder


def call_of(name: str, folder: Path) -> list[str]:
    """Return a command's call, its files in a folder."""
    fresh = secrets.token_hex(4)  # nothing is joined into a store that is there
    places = {"folder": folder, "store": folder / "store", "log": LOG, "fresh": fresh}
    texts = [text.format(**places) for text in CALLS[name]]
    return [*name.split(), *texts]


class Answer(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


@contextlib.contextmanager
def streams(stdout: io.TextIOWrapper, stderr: io.TextIOWrapper) -> Iterator[None]:
    """Put two streams in the place of the process's own."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = stdout, stderr
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def run(arguments: list[str], encoding: str = "utf-8") -> Answer:
    """Run a command in this process, before streams of an encoding."""
    out, err = io.BytesIO(), io.BytesIO()
    texts = [io.TextIOWrapper(stream, encoding, "strict", write_through=True) for stream in (out, err)]
    with streams(*texts):
        code = _code(arguments)
    written = Answer(code, out.getvalue(), err.getvalue())
    for text in texts:
        text.detach()
    return written


def run_unread(arguments: list[str], *, stderr_too: bool = True) -> int:
    """Run a command whose readers have gone before it writes."""
    pipes = []
    for _ in range(2):
        reader, writer = os.pipe()
        os.close(reader)
        pipes.append(open(writer, "wb", buffering=0))  # noqa: SIM115
    texts = [io.TextIOWrapper(pipe, "utf-8", write_through=True) for pipe in pipes]
    if not stderr_too:
        texts[1] = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with streams(*texts):
        code = _code(arguments)
    for pipe in pipes:
        pipe.close()
    return code


def _code(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
    raise AssertionError("main always exits")


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore SIGINT, as a shell does for what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
