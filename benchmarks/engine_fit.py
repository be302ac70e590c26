"""Fit engines to measured runs and predict what was held out; print one page, or one JSON document.

``make engine-fit`` writes the published page. Four runs of vLLM: all requests are simulated, the loss sees
every second one, and errors are on the others, beside what the source states for its own simulator. Twenty
load stages: each is predicted from the others of its model.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from lagsweep.sweeps.engines.agreement import Agreement, agreement
from lagsweep.sweeps.engines.engine_fit import EngineFit
from lagsweep.sweeps.engines.fit import fit_engine
from lagsweep.sweeps.engines.requests import read_requests
from lagsweep.sweeps.engines.roofline import Prior, deployment_of, priors_of
from lagsweep.sweeps.engines.simulation import predicted
from lagsweep.sweeps.engines.stages import each_left_out, read_stages
from lagsweep.sweeps.engines.text import coefficient_rows, parameter_rows
from lagsweep.sweeps.memory.hf_config import shape_from_config
from lagsweep.sweeps.memory.models import ModelRecord, load_model

DATA = Path(__file__).parents[1] / "tests" / "data" / "engines"
# In percent: what the held halves must meet, by field of an agreement; the second in a memory-bound run.
LIMITS = {
    "per_token_median": (2.5, 3.0),
    "per_token_mean": (3.0, 3.0),
    "per_token_90": (3.0, 3.0),
    "end_to_end_mean": (2.0, 2.0),
}
MOST_STAGE_MEDIAN = 2.0
TITLES = {
    "per_token_median": "median of single requests",
    "per_token_mean": "mean",
    "per_token_90": "90 %",
    "per_token_99": "99 %",
    "end_to_end_mean": "end to end: mean",
    "first_token_mean": "first token: mean",
}
PUBLISHED = {
    "per_token_mean": "TPOT Mean",
    "per_token_90": "TPOT P90",
    "per_token_99": "TPOT P99",
    "end_to_end_mean": "Latency Mean",
    "first_token_mean": "TTFT Mean",
}


def setup() -> dict[str, Any]:
    return json.loads((DATA / "setup.json").read_text(encoding="utf-8"))


def fitted(run: dict[str, Any], *, swapped: bool = False, context: bool = True) -> EngineFit:
    """Fit one run's engine on every second request; swapped: on the others."""
    requests = read_requests(DATA / "measured_requests.csv", where={"gpu": run["gpu"], "model": run["model"]})
    usual = priors_of(load_model(run["shape"]).shape)
    return fit_engine(
        requests,
        model=run["shape"],
        accelerator=run["gpu"],
        tensor_parallel=run["tensor_parallel_size"],
        engines=run["data_parallel_size"],
        expert_parallel=run["enable_expert_parallel"],
        # What the cache holds stands in one run's log only.
        kv_cache_tokens=run["num_kv_tokens"],
        max_running=run["max_num_seqs"],
        held_first=swapped,
        priors=usual if context else without_context(usual),
    )


def without_context(usual: tuple[Prior, ...]) -> tuple[Prior, ...]:
    """Return priors under which context costs nothing and rollouts may cost what they like."""
    free = {"cache_efficiency": (1e6, 0.99e6, 1.01e6), "rollout_share": (0.0, 0.0, 50.0)}
    return tuple(Prior(one.name, one.words, *free[one.name]) if one.name in free else one for one in usual)


def stage_errors() -> dict[str, list[float]]:
    """Predict each stage from the others of its model."""
    found = {}
    for name, entry in setup()["stage_models"].items():
        model = (
            load_model(entry["shape"])
            if "shape" in entry
            else ModelRecord(shape_from_config(entry["config"], name), ())
        )
        deployment = deployment_of(model, "H100-SXM", tensor_parallel=entry["tensor_parallel"])
        stages = read_stages(DATA / "decode_stages.csv", where={"model": name})
        found[name] = each_left_out(stages, deployment, priors_of(model.shape)).tolist()
    return found


def name_of(run: dict[str, Any]) -> str:
    cards = f"{run['tensor_parallel_size']} x " if run["tensor_parallel_size"] > 1 else ""
    engines = f", {run['data_parallel_size']} engines" if run["data_parallel_size"] > 1 else ""
    bound = ", memory-bound" if run["num_kv_tokens"] else ""
    return f"{run['model']}, {cards}{run['gpu']}{engines}{bound}"


def measure() -> dict[str, Any]:
    """Fit everything."""
    runs = []
    for run in setup()["runs"]:
        fit = fitted(run)
        everything = np.ones(len(fit.requests), dtype=bool)
        _, times = predicted(fit.engine, fit.requests)
        runs.append(
            {
                "run": run,
                "fit": fit,
                "held": fit.held,
                "other_half": fitted(run, swapped=True).held,
                "without_context": fitted(run, context=False).held,
                "all": agreement(times, fit.requests.measured, everything),
            }
        )
    return {"runs": runs, "stages": stage_errors()}


def met(run: dict[str, Any], held: Agreement) -> bool:
    """Tell whether the held half meets every limit."""
    bound = int(bool(run["num_kv_tokens"]))
    return all(abs(100 * getattr(held, name)) <= limits[bound] for name, limits in LIMITS.items())


def line(name: str, found: dict[str, float | None]) -> str:
    cells = []
    for field in TITLES:
        value = found.get(field)
        sign = "" if field.endswith("median") else "+"
        cells.append("-" if value is None or value != value else f"{value:{sign}.1f} %")
    return f"| {name} | {' | '.join(cells)} |"


def percent(found: Agreement) -> dict[str, float | None]:
    return {name: 100 * value for name, value in found.as_dict().items() if name != "requests"}


def text(found: dict[str, Any]) -> str:
    """Write the page."""
    header = ["", "time per token: " + next(iter(TITLES.values())), *list(TITLES.values())[1:]]
    lines = [
        "# Engines fitted to measured runs",
        "",
        "Made by `make engine-fit` (`benchmarks/engine_fit.py`).",
        "",
        "Four runs of 300 requests on vLLM 0.19. All requests are simulated; the fit sees the errors of",
        "every second one, and the table shows those of the others. *The other half* is fitted on the",
        "requests that are held out otherwise. *Without context* is a fit in which context costs nothing",
        "and rollouts may cost what they like. *Simulator of the source* is what the source states for its",
        "own simulator on all 300, with profiles measured on the same cards; above it our errors on all 300.",
        "",
        f"| {' | '.join(header)} |",
        f"|{' --- |' + ' ---: |' * len(TITLES)}",
    ]
    for one in found["runs"]:
        run = one["run"]
        states = {name: run["published_simulator_percent"].get(key) for name, key in PUBLISHED.items()}
        verdict = "" if met(run, one["held"]) else " (a limit is missed)"
        lines += [
            line(f"**{name_of(run)}**, held out{verdict}", percent(one["held"])),
            line("the other half held out", percent(one["other_half"])),
            line("without context, held out", percent(one["without_context"])),
            line("all 300", percent(one["all"])),
            line("simulator of the source, all 300", states),
        ]
    lines += ["", "Limits, in percent, of the held halves: " + limits_text(), "", "## What was fitted", ""]
    for one in found["runs"]:
        fit = one["fit"]
        lines += [f"### {name_of(one['run'])}", ""]
        for header, rows in (parameter_rows(fit), coefficient_rows(fit)):
            lines += [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
            lines += [f"| {' | '.join(row)} |" for row in rows]
            lines.append("")
        lines += [f"- {note}" for note in fit.notes]
        lines.append("")
    return "\n".join([*lines, *stage_lines(found["stages"])]).rstrip() + "\n"


def limits_text() -> str:
    parts = []
    for name, (usual, bound) in LIMITS.items():
        also = f" ({bound:g} in the memory-bound run)" if bound != usual else ""
        parts.append(f"{TITLES[name]} {usual:g}{also}")
    return "; ".join(parts) + "."


def stage_lines(stages: dict[str, list[float]]) -> list[str]:
    errors = [abs(100 * error) for each in stages.values() for error in each]
    return [
        "## Load stages, each left out in turn",
        "",
        "Milliseconds a token of vLLM on H100 at five loads each; each is predicted from the other four of",
        f"its model. Median error {np.median(errors):.1f} % (at most {MOST_STAGE_MEDIAN:g} % is asked), mean "
        f"{np.mean(errors):.1f} %, largest {max(errors):.1f} %.",
        "",
        "| model | errors of the five stages |",
        "| --- | --- |",
        *(f"| {name} | {', '.join(f'{100 * e:+.1f} %' for e in each)} |" for name, each in stages.items()),
    ]


def document(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "runs": [
            {
                "run": name_of(one["run"]),
                "met": met(one["run"], one["held"]),
                **{name: one[name].as_dict() for name in ("held", "other_half", "without_context", "all")},
            }
            for one in found["runs"]
        ],
        "stages": found["stages"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the page here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = measure()
    if arguments.json:
        print(json.dumps(document(found)))
    elif arguments.output:
        arguments.output.write_text(text(found), encoding="utf-8")
    else:
        print(text(found), end="")


if __name__ == "__main__":
    main()
