"""``lagsweep lab``: the ten sections in order, as tables here and as files in a folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...kernels.errors import ConfigError
from ..json_text import json_document
from ..real_model.workloads import SMOLLM2
from .outputs import force_option, free_files
from .signals import ended_by_sigterm

if TYPE_CHECKING:
    from ..lab.model import Section


@click.command(name="lab")
@click.option(
    "--profile",
    type=click.Choice(["smoke", "full", "real-model"]),
    default="smoke",
    show_default=True,
    help="smoke takes seconds; full simulates longer and more seeds; real-model measures a model, too.",
)
@click.option(
    "--model",
    metavar="MODEL",
    help="Of real-model: smollm2 (the default), tiny-qwen3, or OWNER/NAME@COMMIT of the Hugging Face hub.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the page, plots and tables, which are replaced; results/lab-PROFILE when left out.",
)
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(profile: str, model: str | None, output: Path | None, as_json: bool) -> None:
    """Run the ten sections of the lab, end to end.

    Memory, overlap, sequential and asynchronous loops, queue, staleness, records, weight synchronization,
    checkpoints, a real model. Tables are shown here; plots, CSV tables and one offline page go into the
    output folder.
    """
    from ..lab.lab import lab_profile, run_lab
    from ..lab.model import REAL_MODEL

    chosen = lab_profile(profile)
    if model is not None and profile != REAL_MODEL:
        rule = f"is for the profile {REAL_MODEL} alone"
        raise ConfigError("model", rule, model, f"Give --profile {REAL_MODEL}, or leave it out.")
    from ..pages.lab import write_lab

    started = time.perf_counter()
    folder = output or Path("results") / f"lab-{profile}"
    free_files([folder / "index.html"], "--output")
    sections: list[Section] = []
    with ended_by_sigterm():
        for section in run_lab(chosen, model=model or SMOLLM2, tell=_told):
            sections.append(section)
            if as_json:
                click.echo(f"section {section.number} of 10: {section.title}", err=True)
            else:
                _print_section(section)
    page = write_lab(folder, profile, sections)
    if as_json:
        click.echo(json_document("lab", _document(profile, folder, sections), indent=1))
    else:
        click.echo(f"\nPage, plots and tables: {page}")
    click.echo(f"{len(sections)} sections in {time.perf_counter() - started:.1f} s", err=True)


def _told(part: str) -> None:
    click.echo(f"a real model: {part} ...", err=True)


def _print_section(section: Section) -> None:
    from ..results.text import grid, terminal_width, wrapped

    width = terminal_width()
    click.echo(f"\n{section.number}. {section.title}")
    for paragraph in section.paragraphs:
        click.echo(wrapped(paragraph, width=width))
    for table in section.tables:
        words = [place for place, column in enumerate(table.columns) if not column.is_number(table.rows)]
        headings = [column.heading for column in table.columns]
        click.echo(f"\n{wrapped(table.title, width=width)}")
        click.echo(grid(headings, table.texts(), left=words, width=width))


def _document(profile: str, folder: Path, sections: list[Section]) -> dict[str, object]:
    return {
        "profile": profile,
        "folder": str(folder),
        "sections": [
            {
                "number": section.number,
                "title": section.title,
                "tables": {table.name: table.rows for table in section.tables},
                "plots": [chart.name for chart in section.charts],
            }
            for section in sections
        ],
    }
