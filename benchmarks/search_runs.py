"""Runs that a search needs, against the full grid and against equal runs for every candidate.

On the shipped example the grid is run too, with many seeds, and the choices are compared. On two
presets with eight ranges the grid is only priced: five values of each, as many seeds as the first look takes.
Prints a table in Markdown, or writes it (``--output``).
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

from lagsweep import SearchResult, preset_config, recommend, run_spec, search
from lagsweep.sweeps.compare.systems import whole_workload
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.spec.reading import read_axes, read_base, read_sections

EXAMPLE = "aime-cap-lag-cadence"
QUESTION: dict[str, Any] = {"maximize": "effective_tokens_per_second", "min_ess": 0.9}
GRID_SEEDS = 1000
VALUES, SEEDS = 5, 20  # of the grids that are priced
SHARED: dict[str, Any] = {
    "rollout_workers": {"from": 64, "to": 384},
    "batch_groups": {"from": 8, "to": 48},
    "group_size": [4, 8, 16],
    "sync_seconds": {"from": 1.0, "to": 8.0},
    "fetch_seconds": {"from": 0.5, "to": 4.0},
}
RANGES: dict[str, dict[str, Any]] = {
    "areal": {
        "preset.max_head_offpolicyness": {"from": 0, "to": 8},
        "preset.max_concurrent_rollouts": {"from": 8, "to": 96},
        **SHARED,
        "evaluation_every_updates": {"from": 5, "to": 40},
    },
    "verl_fully_async": {
        "preset.staleness_threshold": {"from": 0.0, "to": 2.0},
        "preset.trigger_parameter_sync_step": {"from": 1, "to": 8},
        "preset.require_batches": {"from": 1, "to": 4},
        **SHARED,
    },
}
FIXED: dict[str, dict[str, Any]] = {
    "areal": {"evaluation_seconds": 20.0, "evaluation_every_updates": 10},
    "verl_fully_async": {},
}


def example() -> tuple[Any, dict[str, Any], list[str]]:
    """Return base, axes and constraints of the shipped example."""
    with resources.as_file(resources.files("lagsweep.sweeps") / "examples" / f"{EXAMPLE}.toml") as path:
        content = read_sections(path)
        return (
            read_base(dict(content["base"]), path.parent, {}),
            read_axes(content, path.parent, {}),
            content["constraints"],
        )


def settings_text(settings: dict[str, Any]) -> str:
    """Write settings in one cell of a table."""
    return ", ".join(f"{name.removeprefix('preset.')} {value}" for name, value in settings.items())


def on_the_example(budget: int) -> list[str]:
    """Search the example's grid and run it whole; return the lines of a table."""
    base, axes, constraints = example()
    found = search(base, axes, constraints=constraints, budget_runs=budget, **QUESTION)
    fresh = range(base.seed + 100_000, base.seed + 100_000 + GRID_SEEDS)  # seeds that the search never saw
    spec = make_spec(base, axes, fresh, constraints=constraints)
    ds = run_spec(spec)
    best = recommend(ds, **QUESTION)
    means = (
        ds[QUESTION["maximize"]].mean("seed").where(ds["mean_expected_normalized_ess"].mean("seed") >= 0.9)
    )
    top = {
        str(name): value.item()
        for name, value in means.isel(means.argmax(...)).coords.items()
        if name in axes
    }
    own = ds[QUESTION["maximize"]].sel(**found.settings).mean("seed").item()
    cells = int((~spec.excluded).sum())
    return [
        "| what | runs | choice | effective tokens/s over the grid's seeds |",
        "| --- | ---: | --- | ---: |",
        f"| full grid, {GRID_SEEDS:,} seeds: largest mean | {cells * GRID_SEEDS:,} | {settings_text(top)} | "
        f"{means.max().item():,.1f} |",
        f"| the same by `recommend`: the fresher of what lies within 0.1 % | {cells * GRID_SEEDS:,} | "
        f"{settings_text(best.settings)} | {best.value:,.1f} |",
        f"| equal runs for all candidates, same guarantee | "
        f"{found.equal_runs + explored(found):,} | the same as the search | |",
        f"| search | {found.total_runs:,} | {settings_text(found.settings)} | {own:,.1f} |",
        "",
        f"The search's choice is {'the same as' if found.settings == top else 'another than'} the grid's "
        f"largest; it is {100 * (1 - own / means.max().item()):.2f} % below it at an indifference of "
        f"{100 * found.indifference:g} %. {found.candidates.height} candidates, decided: {found.decided}.",
    ]


def explored(found: SearchResult) -> int:
    """Return the runs before the selection."""
    return sum(runs for stage, runs in found.runs.items() if not stage.startswith("select"))


def on_a_preset(name: str, budget: int) -> tuple[str, str]:
    """Search eight ranges of a preset; return a line of the table, and what was chosen."""
    base = preset_config(
        name, **whole_workload({"duration_seconds": 3000.0, "warmup_seconds": 600.0, **FIXED[name]})
    )
    search(base, RANGES[name], budget_runs=200, **QUESTION)  # kernels compiled
    began = time.perf_counter()
    found = search(base, RANGES[name], budget_runs=budget, **QUESTION)
    seconds = time.perf_counter() - began
    points = 1
    for given in RANGES[name].values():
        points *= len(given) if isinstance(given, list) else VALUES
    runs = points * SEEDS
    hours = runs * seconds / found.total_runs / 3600
    line = (
        f"| {name} | {points:,} × {SEEDS} = {runs:,} ({hours:,.0f} h) | "
        f"{explored(found) + found.equal_runs:,} | {found.total_runs:,} ({seconds:.0f} s) | "
        f"{found.candidates.height} | {'yes' if found.decided else 'no'} |"
    )
    chosen = (
        f"- {name}: {settings_text(found.settings)}; {found.value:,.0f} ± {found.value - found.low:,.0f} "
        f"effective tokens/s, ESS {found.candidates['ess'][0]:.3f}"
    )
    return line, chosen


def main() -> int:
    """Measure, print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    lines = [
        "# Runs that a search needs",
        "",
        "Made by `python benchmarks/search_runs.py`. The question is the largest effective tokens/s with an",
        "ESS of 0.9 or more; the guarantee 95 % at an indifference of 1 %.",
        "",
        f"## The shipped example, {EXAMPLE}",
        "",
        *on_the_example(arguments.budget),
        "",
        "## Eight ranges over knobs and fields",
        "",
        f"The grid is priced, not run: {VALUES} values of a range, {SEEDS} seeds, at the speed of the runs",
        "of the search on this machine.",
        "",
        "| preset | full grid, runs | equal runs for all candidates | search | candidates | decided |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    found = [on_a_preset(name, arguments.budget) for name in RANGES]
    lines += [line for line, _ in found] + ["", "Chosen:", "", *(chosen for _, chosen in found)]
    text = "\n".join(lines) + "\n"
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
