"""``lagsweep show``: the table of a stored result."""

from __future__ import annotations

from pathlib import Path

import click

from ...kernels.errors import ConfigError
from .parts_table import print_parts
from .shared import print_result
from .store_argument import store_argument


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@store_argument()
@click.option("--json", "as_json", is_flag=True, help="Print every cell as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print every cell with all metrics as CSV.")
def command(store: Path, as_json: bool, as_csv: bool) -> int:
    """Print the table of a stored sweep: throughput against ESS, with intervals.

    STORE is the sweep's folder, or its name's beginning.
    A sweep that is not finished is shown as far as it is; of tasks that are not joined, how far each is.
    """
    from ..store.folder_content import content_of_folder
    from ..store.store import open_sweep

    if as_csv and as_json:
        raise ConfigError("--csv", "cannot be given with --json", None, "Give one of them.")
    if not store.exists():
        from ..store.tasks import task_folders

        if task_folders(store):
            return print_parts(store, as_json=as_json)
    if as_csv:
        from ..results.cell_table import cells_frame, csv_pieces

        for piece in csv_pieces(cells_frame(open_sweep(store))):
            click.echo(piece, nl=False)
        return 0
    return print_result(open_sweep(store), store, as_json=as_json, content=content_of_folder(store))
