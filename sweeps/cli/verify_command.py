"""``lagsweep verify``: check a stored sweep, and do a sample of its runs again."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ...kernels.errors import many
from ..json_text import json_document
from .cell_arguments import read_cell
from .custom_argument import custom_option, read_custom
from .failures import Stopped
from .shared import program
from .store_argument import store_argument


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@store_argument()
@click.option(
    "--sample", type=click.IntRange(min=0), default=200, show_default=True, help="How many runs to do again."
)
@click.option("--all", "everything", is_flag=True, help="Do every run again.")
@click.option("--cell", metavar="ID|AXIS=VALUE,…", help="Do the runs of this cell again.")
@custom_option
@click.option(
    "--repair",
    is_flag=True,
    help="Undo what does not hold, so that the run's command does it again.",
)
@click.option("--threads", type=int, help="Threads; one for each CPU when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    store: Path,
    sample: int,
    everything: bool,
    cell: str | None,
    custom: str | None,
    repair: bool,
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check a stored sweep: checksums, journal, coordinates, and a sample of runs again.

    Exit code 0: all is as it must be, or is repaired; 1: findings.
    """
    from ..execute.progress import progress_for_terminal
    from ..results.text import wrapped
    from ..runs.many import Cancelled
    from ..store.repair import repair_store
    from ..store.verify import verify_store
    from .signals import stop_at_safe_point

    with stop_at_safe_point() as stop:
        try:
            report = (repair_store if repair else verify_store)(
                store,
                sample=sample,
                everything=everything,
                cell=None if cell is None else read_cell(cell),
                threads=threads,
                custom=read_custom(custom),
                progress=progress_for_terminal(quiet=quiet),
                cancel=stop.event,
            )
        except Cancelled:
            raise Stopped("stopped; nothing was changed", stop.exit_code) from None
    if as_json:
        facts = {
            "store": str(report.folder),
            "sound": report.sound,
            "complete": report.complete,
            "units": report.units,
            "units_done": report.units_done,
            "chunks": report.chunks,
            "runs_checked": report.runs_checked,
            "content": report.content,
            "findings": [vars(finding) for finding in report.findings],
            **({"repairs": report.repairs} if repair else {}),
        }
        click.echo(json_document("verify", facts))
    else:
        for finding in report.findings:
            click.echo(str(finding))
        for repaired in report.repairs:
            click.echo(f"repaired: {repaired}")
        state = "complete" if report.complete else "incomplete"
        verdict = "sound" if report.sound else many(len(report.findings), "finding")
        click.echo(
            wrapped(
                f"{verdict}: {state}, {report.units_done:,} of {many(report.units, 'unit')}, "
                f"{many(report.chunks, 'chunk')} checked, {many(report.runs_checked, 'run')} done again"
            )
        )
    for note in (*report.notes, *([f"content {report.content}"] if report.content else [])):
        click.echo(f"note: {note}", err=True)
    if report.findings and not repair:
        way_out = shlex.join([program(), "verify", str(store), "--repair"])
        click.echo(f"to mend it: {way_out}, then the run's command", err=True)
    return 1 if report.left else 0
