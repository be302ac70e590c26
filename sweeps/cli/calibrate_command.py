"""``lagsweep calibrate``: a run's log in, a configuration out, tried on steps that it was not fitted on."""

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
from .option_groups import GroupedCommand, Themes
from .outputs import command_again, force_option, named_after, output_option


class _CalibrateCommand(GroupedCommand):
    field_note: ClassVar[str] = KNOWN_NOTE
    themes: ClassVar[Themes] = {
        **LOG_THEMES,
        "Output": ("output", "page", "force", "as_json", "quiet", "help"),
    }


@click.command(
    cls=_CalibrateCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 usage: a log that cannot be used, a setting that cannot be.",
)
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LOG...")
@output_option("--output", "-o", help="The configuration; LOG-calibrated.toml if left out.")
@output_option("--page", help="Also write an offline page.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr.")
@calibrate_options
def command(logs: tuple[Path, ...], **options: Any) -> int:
    """Fit a configuration to the step log of a run and write it to a file.

    LOG is what the trainer wrote: CSV, JSON lines, parquet, a history export, a console log; several files
    are parts or sides of one run. Phases, publication, fetch and lengths are fitted to the first steps, the
    speed of generation is the one at which a simulated run waits as long, and the last steps are predicted.
    What the log does not tell is given by flags, or assumed and named.
    """
    from ..calibrate.text import calibration_text
    from ..files import write_atomically
    from ..frame_files import checked_folder

    target = checked_folder(options["output"] or named_after(logs[0], "-calibrated.toml"), "--output")
    page = checked_calibration_page(options["page"])
    found = calibrated(logs, options)
    write_atomically(target, found.to_toml(target.name).encode("utf-8"))
    written = [str(target)]
    if page is not None:
        from ..pages.calibration import write_calibration_page

        write_calibration_page(page, found, toml=found.to_toml(target.name), line=command_again())
        written.append(str(page))
    if options["as_json"]:
        click.echo(json_document("calibrate", {**found.as_dict(), "written": written}))
    else:
        click.echo(f"{calibration_text(found)}\n\nwritten: {', '.join(written)}")
    return 0
