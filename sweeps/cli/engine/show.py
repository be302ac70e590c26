"""``lagsweep engine show``: requests on a given engine, their times and what happened over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...json_text import json_document
from ..outputs import command_again, force_option, free_outputs, output_option
from .options import reading, reading_options


@click.command(name="show", epilog="Exit codes: 0 done, 2 usage.")
@click.argument("engine", type=click.Path(path_type=Path), metavar="ENGINE.toml")
@click.argument("requests", type=click.Path(path_type=Path), metavar="REQUESTS")
@click.option("--all-at-once", is_flag=True, help="There are no arrivals: all requests came together.")
@output_option("--page", help="Also write an offline page.")
@output_option("--times", help="Write a row per request.")
@output_option("--timeline", help="Write a row per change.")
@force_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@reading_options
def command(engine: Path, requests: Path, **options: Any) -> int:
    """Simulate REQUESTS on the engine of a file.

    REQUESTS is a log: CSV, JSON lines or parquet, plain or with .gz, a row a request, with its arrival and
    its tokens. Where it holds measured times, they stand beside the predicted ones. Tables are parquet or
    CSV, by their suffix.
    """
    from ...engines.report import show_facts, shown_text_of
    from ...engines.requests import read_requests
    from ...engines.simulation import load_engine, predicted
    from ...frame_files import checked_table_path, write_frame
    from ...pages.engine import checked_engine_page, write_engine_page
    from ...user_files import decoded, read_bytes

    page = None if options["page"] is None else checked_engine_page(options["page"])
    files = {
        name: checked_table_path(options[name], f"--{name}")
        for name in ("times", "timeline")
        if options[name] is not None
    }
    found = load_engine(engine)
    log = read_requests(requests, all_at_once=options["all_at_once"], **reading(options))
    free_outputs()
    result, times = predicted(found, log)
    frames = {"times": result.requests_frame, "timeline": result.timeline_frame}
    for name, path in files.items():
        write_frame(frames[name](), path)
    written = [str(path) for path in files.values()]
    if page is not None:
        toml = decoded(read_bytes(engine, "engine"), "engine", str(engine))
        write_engine_page(page, found, log, result, toml=toml, line=command_again())
        written.append(str(page))
    if options["as_json"]:
        click.echo(
            json_document("engine-show", {**show_facts(found, log, result, times), "written": written})
        )
    else:
        click.echo(shown_text_of(found, log, result, times, written))
    return 0
