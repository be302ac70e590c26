"""``lagsweep sensitivity``: which settings move a metric most, over ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..json_text import json_document
from .config_flags import axes_from_flags, changes_from_flags, config_options, preset_from_flags
from .failures import Stopped
from .outputs import force_option, free_outputs, output_option
from .shared import INTERRUPTED_NOTE, executor_of, this_command
from .spec_arguments import ranges_from_argument

EPILOG = """
\b
Examples:
  lagsweep sensitivity aime-cap-lag-cadence --axis max_lag=1..8 --axis sync_seconds=1..12
  lagsweep sensitivity --preset areal --axis preset.max_head_offpolicyness=0..8 --method morris

Exit codes: 0 done, 2 usage, 3 the folder cannot be used, 130/143 interrupted.
"""


@click.command("sensitivity", epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("spec", required=False, metavar="[SPEC]")
@click.option(
    "--axis", multiple=True, metavar="NAME=RANGE", help="What varies: 0..8, 1000..64000/log, or values 1,2,4."
)
@click.option("--preset", metavar="NAME", help="Start from the rules of a real system (lagsweep presets).")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob of the preset.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="METRIC", help="Speed, throughput and ESS if none."
)
@click.option(
    "--method",
    default="sobol",
    show_default=True,
    metavar="sobol|morris",
    help="Shares of variance, or effects.",
)
@click.option(
    "--points", type=int, default=64, show_default=True, help="Base points of Sobol, trajectories of Morris."
)
@click.option("--seeds", type=int, default=4, show_default=True, help="Seeds of each point.")
@click.option("--where", multiple=True, metavar="RULE", help="What every point must fulfil.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--name", metavar="TEXT", help="Name of the result.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("results"), help="Where results lie."
)
@click.option("--store", type=click.Path(path_type=Path), help="The folder of this result.")
@output_option("--report", "page", help="Write an HTML page.")
@force_option
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads; default: one per CPU.")
@click.option("--dask", metavar="ADDRESS|local", help="Run on a Dask cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@config_options
def command(spec: str | None, page: Path | None, **options: Any) -> int:
    """Tell which settings move seconds per update, throughput or ESS most, over ranges.

    SPEC is a TOML file, or the name of a shipped example; its axes and --axis are the ranges. The runs lie in
    results/sensitivity-NAME-FINGERPRINT; the same command goes on where an interrupted one was.
    """
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..search.sensitivity import sensitivity
    from .signals import stop_at_safe_point

    if page is not None:
        from ..pages.sensitivity import checked_sensitivity_page

        checked_sensitivity_page(page)
    given = ranges_from_argument(
        spec,
        base_changes=changes_from_flags(options) | preset_from_flags(options["preset"], options["knobs"]),
        axis_changes=axes_from_flags(options["axis"]),
    )
    free_outputs()
    progress = progress_for_terminal(quiet=options["quiet"])
    with stop_at_safe_point() as stop:
        try:
            with executor_of("threads", options["dask"], options["threads"]) as executor:
                found = sensitivity(
                    given.base,
                    given.axes,
                    metrics=options["metrics"],
                    method=options["method"],
                    points=options["points"],
                    seeds=options["seeds"],
                    constraints=options["where"] or given.constraints,
                    confidence=options["confidence"],
                    store=options["store"],
                    results=options["results"],
                    name=options["name"] or given.name,
                    executor=executor,
                    threads=options["threads"],
                    progress=progress,
                    cancel=stop.event,
                )
        except Cancelled:
            raise Stopped(f"{INTERRUPTED_NOTE}\n  {this_command()}", stop.exit_code) from None
    if page is not None:
        from ..pages.sensitivity import write_sensitivity_page

        write_sensitivity_page(found, page, line=this_command())
        click.echo(f"page written to {page}", err=True)
    click.echo(json_document("sensitivity", found.to_dict()) if options["as_json"] else str(found))
    return 0
