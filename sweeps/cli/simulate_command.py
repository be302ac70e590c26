"""``lagsweep simulate``: one run from flags, its table, and its long tables as files."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import click

from ..json_text import json_document
from .config_flags import config_options
from .option_groups import GroupedCommand, Themes
from .outputs import force_option, free_outputs, output_option
from .shared import config_from_options, tell_compiling

TABLES = ("batches", "timeline", "rollouts")


class _SimulateCommand(GroupedCommand):
    themes: ClassVar[Themes] = {
        "Where rules come from": ("preset", "knobs"),
        "Tables": ("batches", "timeline", "rollouts", "force"),
        "Output": ("as_json", "quiet", "help"),
    }


@click.command(
    cls=_SimulateCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Tables are written as parquet or CSV, by the file's suffix.",
)
@click.option("--preset", metavar="NAME", help="Start from the rules of a real system (lagsweep presets).")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="Set a knob of the preset.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@output_option("--batches", help="Write a row per update.")
@output_option("--timeline", help="Write a row per event.")
@output_option("--rollouts", help="Write a row per rollout.")
@force_option
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr.")
@config_options
def command(**options: Any) -> int:
    """Simulate one run and print what it reports.

    Every setting is a flag; what is left out has its default. Exit code 1: the run stalled or starved.
    """
    from ..frame_files import checked_table_path, write_frame

    config = config_from_options(options)
    files = {
        name: checked_table_path(options[name], f"--{name}") for name in TABLES if options[name] is not None
    }
    free_outputs()
    tell_compiling(config, options["quiet"])
    from ..results.run_text import run_facts, run_text
    from ..runs.diagnosis import PROGRESSING, progress_status
    from ..runs.simulate import simulate_pipeline

    result = simulate_pipeline(config, rollouts="rollouts" in files)
    for name, path in files.items():
        write_frame(getattr(result, f"{name}_frame")(), path, config=json.dumps(config.to_dict()))
        if not options["quiet"]:
            click.echo(f"{name}: {path}", err=True)
    click.echo(json_document("simulate", run_facts(result)) if options["as_json"] else run_text(result))
    return int(progress_status(config, result) != PROGRESSING)
