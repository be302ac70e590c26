"""``lagsweep ledger models``: the shipped model shapes, their parameters and sources."""

from __future__ import annotations

import click

from ...json_text import json_document


@click.command(name="models")
@click.option("--sources", is_flag=True, help="Name the sources of every shape and total.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(sources: bool, as_json: bool) -> None:
    """List the shipped model shapes with their sources.

    A total is "published" when a source outside this package states it, and "computed" when only the shape
    gives it.
    """
    from ...memory.models import model_rows

    rows = model_rows()
    if as_json:
        click.echo(json_document("ledger-models", {"models": rows}, indent=1))
        return
    from .print import print_table, say

    headings = ("Model", "Parameters", "Active", "Total is", "Layers", "KV heads")
    table = [
        (
            row["model"],
            f"{row['parameters']:,}",
            f"{row['active_parameters'] / 1e9:.2f} B",
            row["parameters_label"],
            str(row["layers"]),
            str(row["kv_heads"]),
        )
        for row in rows
    ]
    print_table(headings, table)
    if sources:
        for row in rows:
            say("", row["model"])
            for source in row["sources"]:
                say(f"  shape: {source}")
            say(f"  total: {row['parameters_source'] or 'computed from the shape'}")
