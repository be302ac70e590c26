"""What a plan is made of, held against what others measured or published; one page, or one JSON document.

``make plan-checks`` writes the published page. Parameters and cache of models, engines from data sheets on
measured runs of vLLM, load stages, the cache's size in vLLM's logs, experts that a step reads, and splits of
GPUs that were published: which was faster, and by more or less than a tenth. Nothing is fitted here.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from engine_fit import DATA, name_of, setup
from plan_splits import split_rows

from lagsweep.sweeps.config.engine import Engine
from lagsweep.sweeps.engines.accelerators import Accelerator, load_accelerator
from lagsweep.sweeps.engines.cache_tokens import GIB, cache_tokens
from lagsweep.sweeps.engines.requests import read_requests
from lagsweep.sweeps.engines.roofline import Deployment, deployment_of
from lagsweep.sweeps.engines.simulation import predicted
from lagsweep.sweeps.memory.hf_config import shape_from_config
from lagsweep.sweeps.memory.models import ModelRecord, load_model, shipped_models
from lagsweep.sweeps.plan.engine_law import bytes_read, engine_from, step_coefficients
from lagsweep.sweeps.plan.inputs import engine_inputs
from lagsweep.sweeps.plan.ranges import at_ends

CHECKS = Path(__file__).parent / "data" / "plan_checks.json"
MEASURES = {"per_token": "time per token", "end_to_end": "end to end"}


def checks() -> dict[str, Any]:
    return json.loads(CHECKS.read_text(encoding="utf-8"))


def model_of(entry: dict[str, Any], name: str) -> ModelRecord:
    """Return a shipped model, or one from the numbers of its config."""
    if "shape" in entry:
        return load_model(entry["shape"])
    return ModelRecord(shape_from_config(entry["config"], name), ())


def three_ends(record: ModelRecord) -> dict[str, dict[str, float]]:
    """Return an engine's inputs at their defaults, and all at their fast and slow ends."""
    inputs = engine_inputs(record.shape)
    fast, slow = at_ends(inputs)
    return {"default": {one.name: one.value for one in inputs}, "fast": fast, "slow": slow}


def sum_rows() -> list[dict[str, Any]]:
    """Compare parameters and cache bytes a token with what is published of each model."""
    found = []
    for name, published in checks()["models"].items():
        record = load_model(name)
        count = sum(deployment_parts(record).values())
        # Short of every window: what a source states as bytes a token.
        cache = Deployment(model=record, accelerator=load_accelerator("H100")).cache_bytes_at(64)
        found.append(
            {
                "model": name,
                "parameters": count,
                "published_parameters": record.published_parameters,
                "cache_bytes": int(cache),
                "published_cache_bytes": published["cache_bytes"],
            }
        )
    assert len(found) == len(shipped_models())
    return found


def deployment_parts(record: ModelRecord) -> dict[str, int]:
    from lagsweep.kernels import parameter_count

    return parameter_count(record.shape).parts


def run_rows() -> list[dict[str, Any]]:
    """Simulate the measured runs on engines from data sheets: defaults, and both ends of all inputs."""
    found = []
    for run in setup()["runs"]:
        requests = read_requests(
            DATA / "measured_requests.csv", where={"gpu": run["gpu"], "model": run["model"]}
        )
        deployment = deployment_of(
            run["shape"],
            run["gpu"],
            tensor_parallel=run["tensor_parallel_size"],
            engines=run["data_parallel_size"],
            expert_parallel=run["enable_expert_parallel"],
        )
        row: dict[str, Any] = {"run": name_of(run)}
        for end, values in three_ends(deployment.model).items():
            times = predicted(engine_at(deployment, values, run), requests)[1]
            for name in MEASURES:
                row[f"{name}_{end}"] = float(np.nanmean(times[name]))
                row[f"{name}_measured"] = float(np.nanmean(requests.measured[name]))
        found.append(row)
    return found


def engine_at(deployment: Deployment, values: dict[str, float], run: dict[str, Any]) -> Engine:
    """Return a run's engine as a plan has it: nothing is taken from its log."""
    summed = cache_tokens(deployment, max_running=run["max_num_seqs"])
    left = summed.left_bytes + values["cache_memory"] * summed.doubt_bytes
    held = int(left / summed.bytes_per_token)
    running = run["max_num_seqs"] / 2  # of requests that come at ten a second; it decides about experts
    return engine_from(
        step_coefficients(deployment, values, running, 500),
        count=deployment.engines,
        kv_cache_tokens=held,
        max_running=run["max_num_seqs"],
    )


def stage_rows() -> list[dict[str, Any]]:
    """Compare load stages on H100 with the law: a step at their concurrency and mean context."""
    with (DATA / "decode_stages.csv").open(encoding="utf-8") as file:
        stages = list(csv.DictReader(file))
    found = []
    for name, entry in setup()["stage_models"].items():
        record = model_of(entry, name)
        deployment = deployment_of(record, "H100-SXM", tensor_parallel=entry["tensor_parallel"])
        ends = three_ends(record)
        for stage in stages:
            if stage["model"] != name:
                continue
            running = float(stage["concurrency"])
            context = running * (int(stage["prompt_tokens"]) + int(stage["output_tokens"]) / 2)
            row: dict[str, Any] = {
                "model": name,
                "running": running,
                "measured": float(stage["ms_per_token"]),
                "message_bytes": 2 * running * record.shape.hidden_size,
            }
            for end, values in ends.items():
                parts = step_coefficients(deployment, values, running, context / running)
                step = parts["step_seconds"] + running * parts["step_seconds_per_rollout"]
                row[end] = 1e3 * (step + context * parts["step_seconds_per_context_token"])
            found.append(row)
    return found


def fixed_rows() -> list[dict[str, Any]]:
    """Compare the fixed part of a step, fitted to the stages by others, with the law."""
    found = []
    for name, entry in setup()["stage_models"].items():
        record = model_of(entry, name)
        deployment = deployment_of(record, "H100-SXM", tensor_parallel=entry["tensor_parallel"])
        fitted = checks()["fixed_parts_ms"][name]
        row = {"model": name, "fitted": fitted}
        for end, values in three_ends(record).items():
            # Those stages' 22 to 108 rollouts read all experts.
            row[end] = 1e3 * step_coefficients(deployment, values, 50, 500)["step_seconds"]
        found.append(row)
    return found


def cache_rows() -> list[dict[str, Any]]:
    """Compare the sum of vLLM's memory with what its logs print, by the parts of each release."""
    found = []
    for entry in checks()["cache_logs"]:
        record = model_of(entry, entry["model"])
        card = load_accelerator("H100") if "visible_gib" in entry else load_accelerator(entry["card"])
        if "visible_gib" in entry:
            own = {"name": entry["card"], "memory_bytes": entry["visible_gib"] * GIB}
            own |= {} if entry.get("nvlink", True) else {"link": "PCIe 4 x16"}
            card = Accelerator(**{**_fields(card), **own})
        deployment = Deployment(
            model=record,
            accelerator=card,
            tensor_parallel=entry["ranks"],
            engine_format=entry.get("engine_format", "bf16"),
            cache_format=entry.get("cache_format", "bf16"),
        )
        summed = cache_tokens(
            deployment,
            max_running=entry.get("max_running"),
            utilization=entry["utilization"],
            reserved_bytes=_older_parts(entry, record),
        )
        each = summed.bytes_per_token
        tokens = entry.get("tokens") or entry["cache_gib"] * GIB / each
        ends = [(summed.left_bytes + sign * summed.doubt_bytes) / each for sign in (-1, 1)]
        found.append(
            {
                "log": f"{entry['model']}, vLLM {entry['release']}, {entry['ranks']} x {entry['card']}",
                "logged": int(tokens),
                "summed": summed.tokens,
                "inside": bool(ends[0] <= tokens <= ends[1]),
                "expected_percent": entry["expected_percent"],
            }
        )
    return found


def _older_parts(entry: dict[str, Any], record: ModelRecord) -> float:
    """Return what an older release took more (or less) than the sum's parts, which are of 0.18 and later."""
    if entry["release"] not in checks()["older_releases"]:
        return 0.0
    parts = checks()["older_releases"][entry["release"]]
    more = (parts["sampler_bytes"] - 15) * parts["sequences"] * record.shape.vocabulary_size
    other = parts["other_gib"]["1" if entry["ranks"] == 1 else "2"]
    now = 0.25 if entry["ranks"] == 1 else (2.1 if entry.get("nvlink", True) else 0.55)
    return more + (other - now) * GIB


def _fields(card: Accelerator) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(card), "aliases": ()}


def expert_rows() -> list[dict[str, Any]]:
    """Compare the bytes that a step reads of mixtures of experts with the table of expected values."""
    found = []
    for name, expected in checks()["expert_gigabytes"].items():
        deployment = deployment_of(name, "H100-SXM")
        for rollouts, gigabytes in zip(checks()["expert_rollouts"], expected):
            read = bytes_read(deployment, rollouts) / 1e9
            found.append({"model": name, "rollouts": rollouts, "expected": gigabytes, "read": read})
    return found


def measure() -> dict[str, list[dict[str, Any]]]:
    """Make every check."""
    return {
        "sums": sum_rows(),
        "runs": run_rows(),
        "fixed_parts": fixed_rows(),
        "stages": stage_rows(),
        "cache": cache_rows(),
        "experts": expert_rows(),
        "splits": split_rows(),
    }


def main() -> None:
    from plan_checks_text import text

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the page here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = measure()
    if arguments.json:
        print(json.dumps(found))
    elif arguments.output:
        arguments.output.write_text(text(found), encoding="utf-8")
    else:
        print(text(found), end="")


if __name__ == "__main__":
    main()
