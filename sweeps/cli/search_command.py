"""``lagsweep search``: the best setting among ranges, by few runs and with a stated probability."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...kernels.errors import ConfigError
from ..json_text import json_document
from .config_flags import axes_from_flags, changes_from_flags, config_options, preset_from_flags
from .failures import Stopped
from .shared import INTERRUPTED_NOTE, executor_of, this_command
from .spec_arguments import ranges_from_argument

EPILOG = """
\b
Examples:
  lagsweep search aime-cap-lag-cadence --min-ess 0.9
  lagsweep search --preset areal --axis preset.max_head_offpolicyness=0..16
  lagsweep search pipeline.toml --axis queue_cap=120000..500000/log --budget 60s

Exit codes: 0 there is a choice with the asked probability, 1 nothing keeps the bounds or the budget ended
before, 2 usage, 3 the folder cannot be used, 130/143 interrupted.
"""


@click.command("search", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec", required=False, metavar="[SPEC]")
@click.option(
    "--axis",
    multiple=True,
    metavar="NAME=RANGE",
    help="What to choose: 0..8, 1000..64000/log, or values 1,2,4.",
)
@click.option("--preset", metavar="NAME", help="Start from the rules of a real system (lagsweep presets).")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob of the preset.")
@click.option(
    "--where",
    multiple=True,
    metavar="RULE",
    help="Try only points that fulfil it: 'queue_cap >= batch_tokens'.",
)
@click.option(
    "--maximize",
    multiple=True,
    metavar="METRIC",
    help="trained_tokens_per_second if none is given; with failures the effective ones.",
)
@click.option("--minimize", multiple=True, metavar="METRIC", help="Two objectives in all give a frontier.")
@click.option("--min-ess", type=float, help="Least mean expected normalized ESS, 0 to 1.")
@click.option("--max-lag", type=int, help="Largest lag of any trained rollout, in versions.")
@click.option("--min-goodput", type=float, help="Least mean goodput with failures, 0 to 1.")
@click.option(
    "--budget", default="20000", show_default=True, metavar="RUNS|SECONDSs", help="Runs, or seconds as 60s."
)
@click.option(
    "--indifference", type=float, default=0.01, show_default=True, help="Share of the best not worth telling."
)
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="That the choice is the best candidate."
)
@click.option("--explore-seeds", type=int, default=4, show_default=True, help="Seeds of a point at first.")
@click.option("--candidates", type=int, default=50, show_default=True, help="At most so many to select from.")
@click.option(
    "--sampler", default="around", show_default=True, metavar="NAME",
    help="Later points: around the best, or optuna:tpe, optuna:nsgaii, optuna:random.",
)  # fmt: skip
@click.option("--name", metavar="TEXT", help="Name of the result.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("results"), help="Where results lie."
)
@click.option("--store", type=click.Path(path_type=Path), help="The folder of this search.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads; default: one per CPU.")
@click.option("--dask", metavar="ADDRESS|local", help="Run on a Dask cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@config_options
def command(spec: str | None, **options: Any) -> int:
    """Find the best setting among ranges, with few runs and a stated probability.

    SPEC is a TOML file, or the name of a shipped example; its axes are what there is to choose, and flags
    take the place of what it says. The stages lie in results/search-NAME-FINGERPRINT, each an ordinary
    stored sweep; the same command goes on where an interrupted one was.
    """
    given = ranges_from_argument(
        spec,
        base_changes=changes_from_flags(options) | preset_from_flags(options["preset"], options["knobs"]),
        axis_changes=axes_from_flags(options["axis"]),
    )
    constraints = list(options["where"]) or given.constraints
    return _run(given.base, given.axes, constraints, options["name"] or given.name, options)


def _run(base: Any, axes: dict[str, Any], constraints: Any, name: str, options: dict[str, Any]) -> int:
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..search.search import search
    from .signals import stop_at_safe_point

    progress = progress_for_terminal(quiet=options["quiet"])
    runs, seconds = _budget(options["budget"])
    with stop_at_safe_point() as stop:
        try:
            with executor_of("threads", options["dask"], options["threads"]) as executor:
                result = search(
                    base,
                    axes,
                    maximize=options["maximize"],
                    minimize=options["minimize"],
                    min_ess=options["min_ess"],
                    max_lag=options["max_lag"],
                    min_goodput=options["min_goodput"],
                    constraints=constraints,
                    budget_runs=runs,
                    budget_seconds=seconds,
                    indifference=options["indifference"],
                    confidence=options["confidence"],
                    explore_seeds=options["explore_seeds"],
                    candidates=options["candidates"],
                    sampler=options["sampler"],
                    store=options["store"],
                    results=options["results"],
                    name=name,
                    executor=executor,
                    threads=options["threads"],
                    progress=progress,
                    cancel=stop.event,
                )
        except Cancelled:
            raise Stopped(f"{INTERRUPTED_NOTE}\n  {this_command()}", stop.exit_code) from None
    click.echo(json_document("search", result.to_dict()) if options["as_json"] else str(result))
    return 0 if result.decided else 1


def _budget(text: str) -> tuple[int, float | None]:
    """Read ``20000`` as runs, ``60s`` as seconds."""
    digits = text.strip().replace(",", "").replace("_", "")
    try:
        if digits.endswith("s"):
            return 20_000, float(digits[:-1])
        return int(digits), None
    except ValueError:
        way_out = "Write --budget 20000, or --budget 60s."
        raise ConfigError("--budget", "must be a number of runs, or seconds as 60s", text, way_out) from None
