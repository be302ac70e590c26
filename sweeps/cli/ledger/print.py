"""The ledger as plain text of at most 80 columns, or of a narrower terminal's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ....kernels._arguments import Integers
from ....kernels.memory.units import BYTES_PER_GB, BYTES_PER_GIB, human_bytes
from ...results.text import folded, grid, terminal_width

if TYPE_CHECKING:
    from ...memory.ledger import Ledger


def say(*lines: str) -> None:
    """Print sentences, as wide as the terminal."""
    for line in lines:
        click.echo("\n".join(folded(line, terminal_width())))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its first column left and the others right."""
    click.echo(grid(headings, rows, left=[0], width=terminal_width()))


def both_units(size: int) -> str:
    """Write a size in GiB and in GB, each labelled."""
    return f"{size / BYTES_PER_GIB:.2f} GiB ({size / BYTES_PER_GB:.2f} GB)"


def _heading(ledger: Ledger) -> list[str]:
    from ....kernels.memory.parameters import parameter_count

    record, settings = ledger.record, ledger.settings
    shape = record.shape
    counted = parameter_count(shape)
    active = f", {counted.active:,} active" if counted.active != counted.total else ""
    where = "on the same GPUs" if settings.colocated else f"on {settings.rollout_gpus} GPUs of their own"
    return [
        f"{shape.name}: {counted.total:,} parameters ({record.parameters_label}){active}.",
        f"Training on {settings.gpus} GPUs: {settings.recipe}, ZeRO-{settings.zero_stage}, "
        f"{settings.training_tokens:,} tokens per GPU.",
        f"{settings.engines} engines {where}, {settings.tensor_parallel} GPU(s) each: "
        f"{settings.sequences} sequences of {settings.context_tokens:,} tokens.",
    ]


def _rows(ledger: Ledger) -> list[tuple[str, str, str, str]]:
    peak = ledger.peak
    room = ledger.settings.device_bytes - ledger.settings.reserve_bytes

    def row(name: str, size: Integers) -> tuple[str, str, str, str]:
        return name, f"{size / BYTES_PER_GIB:.2f}", f"{size / BYTES_PER_GB:.2f}", f"{100 * size / room:.1f} %"

    rows = []
    for name, total in peak.phase_totals.items():
        verdict = "fits" if total <= room else "DOES NOT FIT"
        rows.append(row(f"{name}: {verdict}", total))
        parts = peak.phase_components[name]
        rows.extend(row(f"  {part}", size) for part, size in parts.items())
    return rows


def _fits(ledger: Ledger) -> list[str]:
    peak, settings = ledger.peak, ledger.settings
    headroom = int(peak.headroom_bytes or 0)
    lack = headroom < 0
    left = f"{human_bytes(abs(headroom))} {'missing' if lack else 'left'}"
    limit = ledger.record.shape.max_positions
    beyond = limit is not None and ledger.longest_context_tokens > limit
    positions = f" (the config allows {limit:,})" if beyond else ""
    return [
        f"Largest phase: {peak.phase}, {left}; its largest part is {peak.dominant_component}.",
        f"Most sequences of {settings.context_tokens:,} tokens that fit: {ledger.most_sequences:,}.",
        f"Longest context for {settings.sequences} sequences: "
        f"{ledger.longest_context_tokens:,} tokens{positions}.",
    ]


def print_ledger(ledger: Ledger) -> None:
    """Print the phase table, what fits, and what is left out."""
    settings = ledger.settings
    reserve = f", of which {both_units(settings.reserve_bytes)} reserved" if settings.reserve_bytes else ""
    say(*_heading(ledger), f"One GPU: {both_units(settings.device_bytes)}{reserve}.", "")
    print_table(("Per GPU", "GiB", "GB", "of GPU"), _rows(ledger))
    say("", *_fits(ledger), *ledger.notes, "Left out:", *(f"  - {item}" for item in ledger.left_out))
