"""``lagsweep whatif``: what other settings would have changed in a run, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import click

from ..json_text import json_document
from .calibrate_options import (
    KNOWN_NOTE,
    LOG_THEMES,
    calibrate_options,
    calibrated,
    checked_calibration_page,
)
from .config_flags import axes_from_flags
from .option_groups import GroupedCommand, Themes
from .outputs import force_option, output_option
from .shared import this_command


class _WhatIfCommand(GroupedCommand):
    field_note: ClassVar[str] = KNOWN_NOTE
    themes: ClassVar[Themes] = {
        "What would change": ("axis", "seeds"),
        **LOG_THEMES,
        "Output": ("page", "force", "as_json", "threads", "quiet", "help"),
    }


@click.command(
    cls=_WhatIfCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 usage: a log that cannot be used, a setting that cannot be.",
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG...")
@click.option(
    "--axis", multiple=True, required=True, metavar="NAME=VALUES",
    help="What would change: max_lag=1,2,4, a field or preset.<knob>; repeatable.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each cell.")
@click.option("--threads", type=int, help="Threads; one for each CPU when left out.")
@output_option("--page", help="Also write an offline page.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr.")
@calibrate_options
def command(logs: tuple[Path, ...], **options: Any) -> int:
    """Calibrate on a run's log, sweep around the run as it is, and say what would change.

    LOG is read as by ``lagsweep calibrate``. ``max_lag`` is the lag that the system's own knob allows. Every
    cell is run at the ends of what the log leaves open too; what a setting saves is the range of these.
    """
    from ..calibrate.gpus import AXES
    from ..calibrate.what_if import what_if

    axes = axes_from_flags(options["axis"], also=AXES)
    page = checked_calibration_page(options["page"])
    found = what_if(calibrated(logs, options), axes, seeds=options["seeds"], threads=options["threads"])
    written = []
    if page is not None:
        from ..pages.calibration import write_calibration_page

        write_calibration_page(page, found.calibration, changed=found, line=this_command())
        written.append(str(page))
    if options["as_json"]:
        click.echo(json_document("whatif", {**found.as_dict(), "written": written}))
    else:
        click.echo(f"{found}\n\nwritten: {written[0]}" if written else str(found))
    return 0
