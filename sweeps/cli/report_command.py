"""``lagsweep report``: a stored sweep as one offline HTML page, with its charts as files beside it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from .outputs import force_option, free_files, free_outputs, note_output, output_option
from .store_argument import store_argument


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="The page opens without a network. Exit codes: 0 done, 2 usage, 3 the store cannot be read.",
)
@store_argument()
@output_option("--output", "-o", help="The page; STORE-report.html beside the store if left out.")
@force_option
@click.option("--maximize", metavar="METRIC", help="What the verdict is about; as recommend if left out.")
@click.option("--min-ess", type=float, help="Bound of the verdict; 0.9 if neither bound is given.")
@click.option("--max-lag", type=int, help="Bound of the verdict: largest lag of any trained rollout.")
@click.option("--reference", metavar="ID|AXIS=VALUE,…", help="Compare with this cell, not with the baseline.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of every interval.")
@click.option(
    "--sensitivity",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `lagsweep sensitivity --json` printed: a section of the page.",
)
@click.option("--images/--no-images", default=True, help="A PNG and an SVG of each chart beside the page.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(
    store: Path,
    output: Path | None,
    maximize: str | None,
    min_ess: float | None,
    max_lag: int | None,
    reference: str | None,
    confidence: float,
    sensitivity: Path | None,
    images: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Write one offline HTML page about a stored sweep.

    STORE is the sweep's folder, or its name's beginning.
    The verdict comes first; an unfinished sweep is reported as far as it is.
    """
    from ..pages.report import report_facts, report_unless
    from ..store.store import open_sweep
    from .cell_arguments import read_cell

    dataset = open_sweep(store)
    compared = None if reference is None else read_cell(reference, "--reference")
    page = output or note_output(beside(store), "--output")
    free_outputs()
    report = report_unless(
        dataset,
        page,
        partial(free_files, flag="--output"),
        store=str(store),
        maximize=maximize,
        min_ess=0.9 if min_ess is None and max_lag is None else min_ess,
        max_lag=max_lag,
        reference=compared,
        confidence=confidence,
        images=images,
        sensitivity=sensitivity,
        progress=not quiet,
    )
    if as_json:
        click.echo(report_facts(report))
    else:
        click.echo(f"{report.page} ({report.bytes / 1e6:.2f} MB)")
        if report.images:
            click.echo(f"{len(report.images)} images: {report.images[0].parent}")
    if not dataset.attrs["complete"]:
        click.echo("incomplete: the report shows what is done so far; the page says so", err=True)
    return 0


def beside(store: Path) -> Path:
    """Name the page beside the store's folder, which is replaced as a whole when the store is extended."""
    folder = store.resolve()
    if folder.name == "cells.zarr":
        folder = folder.parent
    page = folder.with_name(f"{folder.name}-report.html")
    return store.parent / page.name if store.name == folder.name else page  # as the store was named
