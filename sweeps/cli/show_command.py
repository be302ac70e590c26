"""``lagsweep show``: the table of a stored result."""

from __future__ import annotations

from pathlib import Path

import click

from .shared import print_result


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every cell as JSON.")
def command(store: Path, as_json: bool) -> int:
    """Print the table of a stored sweep: throughput against ESS, with intervals.

    STORE is the sweep's folder. A sweep that is not finished is shown as far as it is.
    """
    from ..store.store import open_sweep

    return print_result(open_sweep(store), store, as_json=as_json)
