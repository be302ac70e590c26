"""``lagsweep compact``: merge the small units of a finished store."""

from __future__ import annotations

from pathlib import Path

import click

from ...kernels.errors import many
from ..json_text import json_document
from .failures import Stopped
from .store_argument import store_argument


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@store_argument()
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
def command(store: Path, as_json: bool, quiet: bool) -> int:
    """Merge the small units of a finished store into fewer, larger ones; no value changes.

    STORE is the sweep's folder, or its name's beginning. A run does the same when it is done, so this is for
    stores of older versions. A store with few units stays as it is.
    """
    from ..execute.progress import progress_for_terminal
    from ..runs.many import Cancelled
    from ..store.merge import compact_store
    from .signals import stop_at_safe_point

    with stop_at_safe_point() as stop:
        try:
            before, after = compact_store(store, progress_for_terminal(quiet=quiet), stop.event)
        except Cancelled:
            raise Stopped("stopped; the store is as it was", stop.exit_code) from None
    if as_json:
        click.echo(json_document("compact", {"store": str(store), "units_before": before, "units": after}))
    else:
        click.echo(
            f"{store}: {many(before, 'unit')}, {after:,} now"
            if before != after
            else f"{store}: {many(after, 'unit')}, few enough"
        )
    return 0
