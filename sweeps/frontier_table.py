"""The frontier as text that fits a terminal: sequential baseline first, then the frontier, then what is near.

Every figure carries its interval or its unit; the drift that the ESS assumes is named, and lag and rollouts
per batch stand beside it, since a small batch flatters an ESS.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lagsweep.sweeps.analysis import Frontier

_SHORT = {"queue_cap": "cap", "max_lag": "lag≤", "sync_cadence": "sync", "seed": "seed"}


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    if isinstance(value, int | float):
        return f"{int(value):,}" if abs(value) >= 10_000 else f"{int(value)}"
    return str(value)


def _with_half_width(row: dict[str, Any], metric: str, digits: int) -> str:
    mean, half = row[metric], row[f"{metric}_half_width"]
    if mean is None or math.isnan(mean):
        return "-"
    if half is None or math.isnan(half):
        return f"{mean:,.{digits}f}"
    return f"{mean:,.{digits}f} ±{half:.{digits}f}"


def _digits(values: list[float], half_widths: list[float]) -> int:
    """Show as many decimals as the intervals bear: one digit of the smallest half width, 4 at most."""
    halves = [half for half in half_widths if half and not math.isnan(half)]
    if not halves:
        return 1 if max((abs(v) for v in values if v and not math.isnan(v)), default=0) < 1000 else 0
    return min(4, max(0, -math.floor(math.log10(min(halves)))))


def frontier_text(result: Frontier, *, rows: int = 12) -> str:
    """Write the frontier as a table of at most 80 columns, with the assumptions below it."""
    frontier = result.on_frontier().to_dicts()
    shown = frontier[:rows]
    everything = [*shown, *([result.baseline] if result.baseline else [])]
    digits = {
        metric: _digits(
            [row[metric] for row in everything], [row[f"{metric}_half_width"] for row in everything]
        )
        for metric in (result.throughput, result.ess)
    }
    header = [
        *(_SHORT.get(name, name) for name in result.axes),
        "tokens/s",
        "ESS",
        "s/update",
        "lag",
        "roll./batch",
    ]
    lines = []
    if result.baseline is not None:
        labels = ["seq.", *("" for _ in result.axes[1:])]
        lines.append([*labels, *_figures(result.baseline, result, digits)])
    for row in shown:
        axes = [_number(row[name]) for name in result.axes]
        lines.append([*axes, *_figures(row, result, digits)])
    return "\n".join([_grid(header, lines), *_notes(result, len(frontier), len(shown))])


def _figures(row: dict[str, Any], result: Frontier, digits: dict[str, int]) -> list[str]:
    return [
        _with_half_width(row, result.throughput, digits[result.throughput]),
        _with_half_width(row, result.ess, digits[result.ess]),
        "-" if _missing(row["seconds_per_update"]) else f"{row['seconds_per_update']:.1f}",
        "-" if _missing(row["mean_lag"]) else f"{row['mean_lag']:.2f}",
        "-" if _missing(row["rollouts_per_batch"]) else f"{row['rollouts_per_batch']:.1f}",
    ]


def _missing(value: Any) -> bool:
    return value is None or math.isnan(value)


def _grid(header: list[str], lines: list[list[str]]) -> str:
    widths = [max(len(line[k]) for line in [header, *lines]) for k in range(len(header))]
    rule = "  ".join("─" * width for width in widths)
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in [header, *lines]]
    return "\n".join([text[0], rule, *text[1:]])


def _notes(result: Frontier, on_frontier: int, shown: int) -> list[str]:
    cells = result.frame.height
    notes = [
        "",
        f"{on_frontier} of {cells} configurations are on the frontier of {result.throughput} and",
        f"{result.ess}: no other has more of both.",
        f"±: half width of the {result.confidence:.0%} Student interval over {result.seeds} seeds. ESS: expected",
        f"normalized ESS at drift_per_version = {result.drift_per_version:g}, an assumption, not a measurement.",
        "The lag limit is enforced by discarding only.",
    ]
    if shown < on_frontier:
        notes.insert(2, f"The fastest {shown} of them are shown.")
    if result.baseline is not None:
        notes.append("seq.: sequential baseline, disaggregated (its GPUs wait, they do not change sides).")
    return notes
