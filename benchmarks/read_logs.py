"""Read every real log of the shared folder: rows, what was found, steps fitted beside those that are listed.

``make read-logs`` writes the published page. The logs are not shipped, since most state no license; without
the folder the script says so and ends with 2. What is listed of each engine's log was fitted by who collected
them: least squares of relative error, dropping what is more than three median deviations off.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import lagsweep as ls
from lagsweep.sweeps.logs.engine_windows import windows_of
from lagsweep.sweeps.logs.steps_robustly import robust_line

RANKS = "sglang_ascend_deepseek-r1_w4a8_dp16.csv"
ROOT = Path(__file__).resolve().parents[1]
ALLOWED = 1.2  # times the listed median error of a step's length
# Of each engine's log: the file, what to read of it, and what is listed: coefficients in ms, us and us, and
# the median error in percent; or why it is listed as not to be fitted.
ENGINE_LOGS: list[tuple[str, str, dict[str, Any], tuple[str, float] | str]] = [
    ("A100-40 x 2 over two nodes, 7B", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "1"}},
     ("37.7, 451, 0.0470", 2.7)),
    ("A100-80 x 2, 7B", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "2"}},
     ("10.9, 128, 0.0172", 2.2)),
    ("A100-80, 7B", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "5"}}, ("11.8, 63, 0.0301", 2.2)),
    ("A100-80 x 2, 32B", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "6"}}, ("31.0, 179, 0.189", 5.5)),
    ("Qwen3-Coder-30B, long context", "vllm_qwen3-coder-30b-a3b_long_context.csv",
     {"kv_cache_tokens": 151_216}, ("a + b 7.55, c 0.0609", 0.10)),
    ("32B w8a8 TP4", "sglang_ascend_qwen3-32b_w8a8_tp4.csv", {}, ("25.7, 167, 0.0649", 0.31)),
    ("30B-A3B w8a8 TP2", "sglang_ascend_qwen3-30b-a3b_w8a8_tp2.csv", {}, ("a + 156 b 53.4, c 0.0545", 0.36)),
    ("Next-80B TP4", "sglang_ascend_qwen3-next-80b-a3b_w8a8_tp4.csv", {}, ("a + 80 b 39.3, c 0.0210", 0.71)),
    ("32B bf16 TP8, one request at 4k", "sglang_ascend_qwen3-32b_bf16_tp8.csv", {},
     ("a + b 16.9, c 0.36", 1.2)),
    ("32B bf16 TP8, one request at 18k", "sglang_ascend_qwen3-32b_bf16_8p_18k.csv", {},
     ("a + b 13.0, c 0.50", 1.7)),
    ("DeepSeek-R1, 16 ranks", "sglang_ascend_deepseek-r1_w4a8_dp16.csv", {}, ("102, -853, 0.247", 0.39)),
    ("DGX Spark, DFLASH", "sglang_dgxspark_int4_spec.csv", {}, ("109, 22690, 12.5", 4.8)),
    ("A100-80, 7B, small cache", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "4"}},
     "too few, preempting"),
    ("H100, 30B-A3B, without prompts", "vllm_h100_qwen3-30b-a3b_bf16.csv", {"kv_cache_tokens": 94_784},
     "1 to 3 requests only"),
    ("DGX Spark, Qwen3.8-27B with MTP", "vllm_dgxspark_qwen38-int4.csv", {}, "not usable"),
    ("A100-80 x 2, 7B, 256 at once", "vllm_a100_qwen2_tests1-6.csv", {"where": {"test": "3"}}, "not listed"),
]  # fmt: skip
QUIET = ("meaning", "file")  # findings that say what a column holds, not what is odd about a log


def step_logs(data: Path) -> list[list[Path]]:
    """List the step logs, the two sides of one run together as well."""
    engines = {name for _, name, _, _ in ENGINE_LOGS}
    files = [path for folder in ("runs", "logs") for path in sorted((data / folder).glob("*.csv"))]
    found = [[path] for path in files if path.name not in engines]
    sides = [path for path in files if path.name.startswith("prime_rl")]
    return [*found, sides]


def step_row(paths: list[Path]) -> dict[str, Any]:
    log = ls.read_step_log(paths)
    odd = [one for one in log.findings if one.kind not in QUIET]
    return {
        "log": " + ".join(path.stem for path in paths),
        "framework": " + ".join(log.frameworks),
        "kept": len(log),
        "left_out": len(log.left_out),
        "runs": log.frame["run"].n_unique(),
        "segments": log.frame.select("run", "segment").n_unique(),
        "columns": len(log.columns),
        "step_seconds": log.frame["step_seconds"].median(),
        "found": [f"{one.about}: {one.words} ({one.done})" for one in odd],
    }


def engine_row(
    title: str, path: Path, options: dict[str, Any], listed: tuple[str, float] | str
) -> dict[str, Any]:
    fit = ls.fit_engine_samples(ls.read_engine_log(path, **options))
    row = {"log": title, "samples": len(fit.log), "usable": fit.samples, "kept": fit.kept, "listed": listed}
    if fit.refusals:
        return {**row, "refused": fit.refused, "met": isinstance(listed, str)}
    return {
        **row,
        "coefficients": {one.name: [one.value, one.low, one.high] for one in fit.coefficients},
        "constant_running": fit.constant_running,
        "median_error": fit.median_error,
        "met": not isinstance(listed, str) and 100 * fit.median_error <= ALLOWED * listed[1],
    }


def own_load_error(path: Path) -> float:
    """Fit a log of several ranks with each rank's own load, and return the median error."""
    log = ls.read_engine_log(path)
    windows = windows_of(log)
    own = log.frame[windows.rows.tolist()]
    columns = np.column_stack([np.ones(len(windows)), own["running"], own["cache_tokens"]])
    return float(np.median(np.abs(robust_line(columns, windows.step_seconds).errors)))


def parts(row: dict[str, Any]) -> str:
    """Write a fit's coefficients with their intervals, in ms, µs and µs."""
    scales = {"step_seconds": 1e3, "step_seconds_per_rollout": 1e6, "step_seconds_per_context_token": 1e6}
    found = []
    for name, scale in scales.items():
        if name not in row["coefficients"]:
            continue
        value, low, high = (f"{scale * one:.3g}" for one in row["coefficients"][name])
        sign = ""
        if name == "step_seconds" and row["constant_running"] is not None:
            number = row["constant_running"]
            sign = "a + b " if number == 1 else f"a + {number:g} b "
        found.append(f"{sign}{value} ({low} to {high})")
    return ", ".join(found)


def page(steps: list[dict[str, Any]], engines: list[dict[str, Any]], own: float) -> str:
    fitted = [row for row in engines if "refused" not in row]
    refused = [row for row in engines if "refused" in row]
    lines = [
        "# Real logs, read as they are",
        "",
        "Made by `make read-logs` (`benchmarks/read_logs.py`) from public logs that are not shipped.",
        "",
        "## Steps",
        "",
        "Rows are those kept and those left out, each of the latter with its reason in `left_out`.",
        "",
        "| log | read as | steps kept | left out | runs, segments | columns read | median step, s |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in steps:
        seconds = "-" if row["step_seconds"] is None else f"{row['step_seconds']:.2f}"
        lines.append(
            f"| {row['log']} | {row['framework']} | {row['kept']:,} | {row['left_out']} | {row['runs']}, "
            f"{row['segments']} | {row['columns']} | {seconds} |"
        )
    lines += ["", "What was found in each:"]
    for row in steps:
        lines += ["", f"**{row['log']}**", "", *(f"- {words}" for words in row["found"] or ["nothing odd"])]
    lines += [
        "",
        "## Engines",
        "",
        *textwrap.wrap(
            "A step is a + b x running + c x tokens of cache, in ms, µs and µs, with 95 % intervals. "
            "*Usable* are samples of decoding alone with the same requests as in the sample before, "
            "*kept* those not dropped as far off. Errors are the median of the step's relative error over "
            "all usable ones. *Listed* is what was fitted by who collected the logs, without the bound "
            f"that no coefficient is below 0. Asked: at most {ALLOWED} times the listed error. Of several "
            "ranks the step is as long as the fullest rank's: with a rank's own requests and cache in its "
            f"place half of all samples are within {100 * own:.2f} %.",
            118,
        ),
        "",
        "| log | samples | usable | kept | a, b, c | error | listed: a, b, c | error | met |",
        "| --- | ---: | ---: | ---: | --- | ---: | --- | ---: | --- |",
    ]
    for row in fitted:
        told, error = row["listed"] if not isinstance(row["listed"], str) else (row["listed"], float("nan"))
        lines.append(
            f"| {row['log']} | {row['samples']:,} | {row['usable']:,} | {row['kept']:,} | {parts(row)} | "
            f"{100 * row['median_error']:.2f} % | {told} | {error:.2f} % | {'yes' if row['met'] else 'no'} |"
        )
    lines += ["", "| refused | samples | usable | reason | listed as |", "| --- | ---: | ---: | --- | --- |"]
    for row in refused:
        lines.append(
            f"| {row['log']} | {row['samples']} | {row['usable']} | {row['refused']} | {row['listed']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="the shared folder")
    options.add_argument("--output", type=Path, help="write the page here, print nothing")
    options.add_argument("--json", action="store_true", help="print one JSON document")
    given = options.parse_args()
    data = given.shared / "data"
    if not (data / "logs").is_dir():
        print(f"There is no folder {data / 'logs'}: name the shared folder with --shared.", file=sys.stderr)
        return 2
    steps = [step_row(paths) for paths in step_logs(data)]
    engines = [
        engine_row(title, data / "logs" / name, how, listed) for title, name, how, listed in ENGINE_LOGS
    ]
    own = own_load_error(data / "logs" / RANKS)
    if given.json:
        print(json.dumps({"steps": steps, "engines": engines, "own_load_error": own}, indent=1))
    elif given.output:
        given.output.write_text(page(steps, engines, own), encoding="utf-8")
    else:
        print(page(steps, engines, own), end="")
    return 0 if all(row["met"] for row in engines) else 1


if __name__ == "__main__":
    sys.exit(main())
