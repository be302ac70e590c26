"""``lagsweep verify``: check a stored sweep, and do a sample of its runs again."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--sample", type=click.IntRange(min=0), default=200, show_default=True, help="How many runs to do again."
)
@click.option("--all", "everything", is_flag=True, help="Do every run again.")
@click.option("--cell", metavar="ID|NAME=VALUE,...", help="Do the runs of this cell again.")
@click.option("--threads", type=int, help="Threads; one for each CPU when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    store: Path,
    sample: int,
    everything: bool,
    cell: str | None,
    threads: int | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check a stored sweep: checksums, journal, coordinates, and a sample of runs again.

    Exit code 0: all is as it must be; 1: findings.
    """
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..store.verify import verify_store
    from .signals import stop_at_safe_point

    with stop_at_safe_point() as stop:
        try:
            report = verify_store(
                store,
                sample=sample,
                everything=everything,
                cell=read_cell(cell),
                threads=threads,
                progress=progress_for_terminal(quiet=quiet),
                cancel=stop.event,
            )
        except Cancelled:
            click.echo("stopped; nothing was changed", err=True)
            return stop.exit_code
    if as_json:
        facts = {
            "store": str(report.folder),
            "sound": report.sound,
            "complete": report.complete,
            "units": report.units,
            "units_done": report.units_done,
            "chunks": report.chunks,
            "runs_checked": report.runs_checked,
            "findings": [vars(finding) for finding in report.findings],
        }
        click.echo(json.dumps(facts))
    else:
        for finding in report.findings:
            click.echo(str(finding))
        state = "complete" if report.complete else "incomplete"
        verdict = "sound" if report.sound else f"{len(report.findings)} findings"
        click.echo(
            f"{verdict}: {state}, {report.units_done:,} of {report.units:,} units, "
            f"{report.chunks:,} chunks checked, {report.runs_checked:,} runs done again"
        )
    return 0 if report.sound else 1


def read_cell(text: str | None) -> int | dict[str, object] | None:
    """Read a cell from text: its id, or axis values as ``max_lag=2,sync_cadence=1``.

    Examples
    --------
    >>> read_cell("123"), read_cell("max_lag=2,admission=reserve")
    (123, {'max_lag': 2, 'admission': 'reserve'})
    """
    from ...kernels.errors import ConfigError
    from .config_flags import read_text

    if text is None:
        return None
    if text.strip().isdigit():
        return int(text)
    values: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError("--cell", "must be an id or NAME=VALUE,...", text, "Write max_lag=2.")
        values[name.strip()] = read_text(name.strip(), value, "--cell")
    return values
