"""How far the tasks of a job array are, as lines or as JSON."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ...kernels.errors import many
from ..json_text import json_document
from .shared import program


def print_parts(store: Path, *, as_json: bool, only: str = "") -> int:
    """Print the state of every part of a store, or of one; 1 if runs of it failed, else 0."""
    from ..store.tasks import task_states

    states = [state for state in task_states(store) if only in ("", state["part"])]
    way_out = shlex.join([program(), "merge", str(store)])
    if as_json:
        click.echo(json_document("parts", {"store": str(store), "parts": states}))
    else:
        for state in states:
            units = "" if state["units"] is None else f", {state['units_done']:,} of {state['units']:,} units"
            failed = f", {many(state['failed'], 'run')} failed" if state["failed"] else ""
            click.echo(f"part {state['part']}: {state['state']}{units}{failed}")
    click.echo(f"when all parts are finished: {way_out}", err=True)
    return 1 if any(state["failed"] for state in states) else 0
