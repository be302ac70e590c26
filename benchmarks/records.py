"""Time and memory of `lagsweep validate` on large files, beside polars scanning them with the same schema.

Two files are made and removed: lines of about 150 bytes without token lists, and lines with them; of each,
one in a thousand is bad. Every figure is that of a process of its own, its start included: CPU seconds of all
threads, and the peak of resident memory, as the kernel counts them. The record shapes of other systems have
a table of their own: which are screened as columns, and what it costs where each record is looked at singly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

COLUMNS = "sample_id,prompt_id,policy_version,reward,stop_reason,decoding"
SCAN = """
import json, sys
import polars as pl
types = {"text": pl.String, "whole": pl.Int64, "number": pl.Float64, "ids": pl.List(pl.Int64)}
types |= {"numbers": pl.List(pl.Float64), "decoding": pl.Struct({"temperature": pl.Float64})}
types |= {"texts": pl.List(pl.String), "versions": pl.Struct({"min_global_steps": pl.Int64})}
schema = {name: types[kind] for name, kind in json.loads(sys.argv[2]).items()}
lazy = pl.scan_ndjson(sys.argv[1], schema=schema)
print(lazy.select(pl.all().null_count()).collect(engine="streaming").row(0))
"""
SHORT = {"sample_id": "text", "prompt_id": "whole", "policy_version": "whole", "reward": "number"}
SHORT |= {"stop_reason": "text", "decoding": "decoding"}
LONG = SHORT | {"prompt_tokens": "ids", "response_tokens": "ids", "behavior_logprobs": "numbers"}
LONG |= {"verifier_version": "text"}
# Of each shape its names, with the parts of a rollout that stand under them.
SHAPES: dict[str, dict[str, tuple[str, str]]] = {
    "verl": {"uid": ("text", "id"), "prompt_ids": ("ids", "prompt"), "response_ids": ("ids", "response"),
             "response_mask": ("ids", "ones"), "response_logprobs": ("numbers", "logprobs"),
             "reward_score": ("number", "reward"), "extra_fields": ("versions", "versions")},
    "trl": {"prompt_ids": ("ids", "prompt"), "completion_ids": ("ids", "response"),
            "sampling_per_token_logps": ("numbers", "logprobs")},
    "areal": {"input_tokens": ("ids", "prompt"), "output_tokens": ("ids", "response"),
              "output_logprobs": ("numbers", "logprobs"), "output_versions": ("ids", "stamps"),
              "stop_reason": ("text", "stop"), "reward": ("number", "reward")},
    "slime": {"index": ("whole", "number"), "group_index": ("whole", "group"), "tokens": ("ids", "both"),
              "response_length": ("whole", "length"), "loss_mask": ("ids", "ones"),
              "rollout_log_probs": ("numbers", "logprobs"), "weight_versions": ("texts", "calls"),
              "reward": ("number", "reward"), "status": ("text", "status")},
    "openrlhf": {"index": ("whole", "number"), "sequences": ("ids", "both"), "action_mask": ("ids", "ones"),
                 "rollout_log_probs": ("numbers", "logprobs"), "rewards": ("number", "reward")},
    "nemo_rl": {"token_ids": ("ids", "both"), "token_loss_mask": ("ids", "mask"),
                "generation_logprobs": ("numbers", "padded"), "rewards": ("number", "reward")},
    "prime_rl": {"token_ids": ("ids", "both"), "mask": ("ids", "mask"), "logprobs": ("numbers", "padded")},
    "skyrl": {"prompt_token_ids": ("ids", "prompt"), "response_ids": ("ids", "response"),
              "rollout_logprobs": ("numbers", "logprobs"), "loss_masks": ("ids", "ones"),
              "rewards": ("number", "reward"), "stop_reasons": ("text", "stop")},
}  # fmt: skip


class Cost(NamedTuple):
    """What a process took."""

    cpu_seconds: float
    peak_mib: float
    output: str


def cost_of(arguments: list[str]) -> Cost:
    """Run a process to its end."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{arguments[:4]} ended with {process.returncode}: {text[-500:]}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def write_short(path: Path, lines: int) -> None:
    """Write lines without token lists; every thousandth has a version below 0."""
    rng = np.random.default_rng(7)
    with path.open("wb") as stream:
        for start in range(0, lines, 250_000):
            number = np.arange(start, min(start + 250_000, lines))
            frame = pl.DataFrame(
                {
                    "sample_id": pl.Series(number).cast(pl.String),
                    "prompt_id": number // 8,
                    "policy_version": np.where(number % 1000 == 999, -1, number // 4096),
                    "reward": rng.random(number.size).round(4),
                    "stop_reason": rng.choice(["eos", "length"], number.size),
                }
            )
            decoding = pl.struct(temperature=pl.lit(1.0)).alias("decoding")
            frame.with_columns("run12-s" + pl.col("sample_id"), decoding).write_ndjson(stream)


def write_long(path: Path, lines: int, tokens: int = 120) -> None:
    """Write lines with token lists; every thousandth has one log-probability too few."""
    rng = np.random.default_rng(7)
    with path.open("w", encoding="ascii") as stream:
        for number in range(lines):
            size = int(rng.integers(tokens // 2, tokens * 3 // 2))
            record = {
                "sample_id": f"run12-s{number}",
                "prompt_id": number // 8,
                "policy_version": number // 4096,
                "prompt_tokens": rng.integers(0, 150_000, 40).tolist(),
                "response_tokens": rng.integers(0, 150_000, size).tolist(),
                "behavior_logprobs": (-rng.exponential(1.0, size)).round(5).tolist()[number % 1000 == 999 :],
                "reward": float(rng.integers(0, 2)),
                "stop_reason": "eos",
                "decoding": {"temperature": 1.0},
                "verifier_version": "v4",
            }
            stream.write(json.dumps(record) + "\n")


def write_shape(path: Path, shape: str, lines: int, tokens: int = 120) -> None:
    """Write lines under the names of a system; every thousandth has one log-probability too few."""
    rng = np.random.default_rng(7)
    with path.open("w", encoding="ascii") as stream:
        for number in range(lines):
            size = int(rng.integers(tokens // 2, tokens * 3 // 2))
            prompt, response = (rng.integers(0, 150_000, count).tolist() for count in (40, size))
            logprobs = (-rng.exponential(1.0, size) - 1e-4).round(5).tolist()[number % 1000 == 999 :]
            parts = {
                "id": f"run12-s{number}", "number": number, "group": number // 8, "length": size,
                "prompt": prompt, "response": response, "both": prompt + response, "logprobs": logprobs,
                "padded": [0.0] * 40 + logprobs, "ones": [1] * size, "mask": [0] * 40 + [1] * size,
                "stamps": [number // 4096] * size, "calls": [str(number // 4096)], "stop": "stop",
                "status": "completed", "versions": {"min_global_steps": number // 4096},
                "reward": float(rng.integers(0, 2)),
            }  # fmt: skip
            record = {name: parts[part] for name, (_, part) in SHAPES[shape].items()}
            stream.write(json.dumps(record) + "\n")


def measured(name: str, path: Path, kinds: dict[str, str], flags: list[str], rounds: int) -> list[str]:
    """Return the rows of one file: the least CPU time of some rounds taken in turn, and the largest peak."""
    program = [sys.executable, "-c", "from lagsweep.sweeps.cli import main; main()", "validate"]
    validate = [*program, "--json", str(path), *flags]
    scan = [sys.executable, "-c", SCAN, str(path), json.dumps(kinds)]
    calls = {"scan by polars": scan, "validate": validate}
    if "--shape" not in flags:
        calls["validate --statistics"] = [*validate, "--statistics"]
    costs: dict[str, list[Cost]] = {call: [] for call in calls}
    for _ in range(rounds):
        for call, arguments in calls.items():
            costs[call].append(cost_of(arguments))
    found: dict[str, Any] = json.loads(costs["validate"][0].output)["files"][0]
    lines, megabytes = found["lines"], path.stat().st_size / 1e6
    plain = min(cost.cpu_seconds for cost in costs["scan by polars"])
    rows = []
    for call, each in costs.items():
        seconds = min(cost.cpu_seconds for cost in each)
        peak = max(cost.peak_mib for cost in each)
        cells = (f"{lines:,}", f"{megabytes:,.0f}", call, f"{seconds:.1f}", f"{seconds / plain:.2f}")
        rows.append(f"| {name} | {' | '.join(cells)} | {peak:,.0f} |")
    expected = lines // 1000
    if found["bad_records"] != expected:
        raise RuntimeError(f"{found['bad_records']} bad records where there are {expected}")
    return rows


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", type=int, default=10_000_000)
    parser.add_argument("--long", type=int, default=200_000)
    parser.add_argument("--shape-lines", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows, load = [], os.getloadavg()[0]
    columns = ",".join(f"{name}={name}" for name in COLUMNS.split(","))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        write_short(path, options.short)
        rows += measured("no token lists", path, SHORT, ["--columns", columns], options.rounds)
        write_long(path, options.long)
        rows += measured("token lists", path, LONG, [], options.rounds)
        shapes = []
        for shape, names in SHAPES.items():
            write_shape(path, shape, options.shape_lines)
            kinds = {name: kind for name, (kind, _) in names.items()}
            shapes += measured(shape, path, kinds, ["--shape", shape], options.rounds)
    text = "\n".join(
        [
            "# Records at scale",
            "",
            f"`make records-at-scale`: the least of {options.rounds} rounds taken in turn on "
            f"{os.cpu_count()} cores, Python {platform.python_version()}, polars {pl.__version__}. CPU "
            "seconds of all threads, and the peak of resident memory, of whole processes. One record in a "
            "thousand is bad, and every one is found. The scan reads all columns with the same explicit "
            f"types and counts nulls, streaming. Load of the machine: {load:.1f} before and "
            f"{os.getloadavg()[0]:.1f} after; other work makes single figures uncertain.",
            "",
            "| lines | number | MB | what | CPU seconds | to the scan | peak MiB |",
            "|---|---:|---:|---|---:|---:|---:|",
            *rows,
            "",
            "The aims were at most twice the scan's CPU time, and memory below 1,024 MiB.",
            "",
            "## Records under the names of other systems",
            "",
            "Lists of 40 and about 120 tokens; files are small, so the start of a process counts: about a "
            "second of CPU, of a scan less. slime, OpenRLHF, NeMo RL and prime-rl hold prompt and response "
            "in one list, which is cut in each record by itself.",
            "",
            "| shape | lines | MB | what | CPU seconds | to the scan | peak MiB |",
            "|---|---:|---:|---|---:|---:|---:|",
            *shapes,
        ]
    )
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
