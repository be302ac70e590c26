"""``lagsweep engine cards``: the shipped accelerators."""

from __future__ import annotations

import click

from ...json_text import json_document


@click.command(name="cards")
@click.option("--sources", is_flag=True, help="Name the source of every card, and what to mind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(sources: bool, as_json: bool) -> None:
    """List the shipped accelerators with their sources.

    Figures are the vendors', of one card and without sparsity; memory is what a process sees.
    """
    from dataclasses import asdict

    from ...engines.accelerators import shipped_accelerators
    from ...results.text import grid, terminal_width, wrapped

    cards = list(shipped_accelerators().values())
    if as_json:
        click.echo(json_document("engine-cards", {"cards": [asdict(card) for card in cards]}, indent=1))
        return
    header = ["accelerator", "GiB", "TB/s", "bf16 TFLOP/s", "link"]
    rows = [
        [
            card.name,
            f"{card.memory_bytes / 2**30:.2f}",
            f"{card.memory_bytes_per_second / 1e12:.3f}",
            f"{card.bf16_flops_per_second / 1e12:,.0f}",
            card.link,
        ]
        for card in cards
    ]
    click.echo(grid(header, rows, left=[0, 4], width=terminal_width()))
    if sources:
        for card in cards:
            click.echo("")
            click.echo(wrapped(f"{card.name}: {card.source}. {card.note}", indent="  ", first=""))
