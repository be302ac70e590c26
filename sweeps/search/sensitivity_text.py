"""What moves metrics, as text: a table for each metric, and what the figures mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..results.numbers import missing, number
from ..results.text import bar, grid, wrapped
from ..results.words import axis_heading
from ..spec.axes import label

if TYPE_CHECKING:
    from .sensitivity import Sensitivity

STRENGTH = {"sobol": "ST", "morris": "mu_star"}  # by which settings are ordered
WIDE = 0.1


def sensitivity_text(found: Sensitivity) -> str:
    """Write the tables of all metrics, and one sentence on how to read them."""
    blocks = [_metric(found, metric) for metric in found.means]
    blocks += [wrapped(reading(found.method)), wrapped(width_text(found)), _runs(found)]
    return "\n\n".join(block for block in blocks if block)


def headline(found: Sensitivity, metric: str) -> str:
    """Say in a sentence what moves a metric most."""
    if found.spreads[metric] <= 1e-12 * abs(found.means[metric]):
        return f"Nothing in these ranges moves {metric}: it is {number(found.means[metric])} everywhere."
    rows = found.frame.filter(found.frame["metric"] == metric)
    unit = "" if found.units[metric] == "1" else f" {found.units[metric]}"
    spread = f"{found.means[metric]:.4g} ±{found.spreads[metric]:.2g}{unit} (mean and spread over the points)"
    first = rows.row(0, named=True)
    if found.method == "sobol":
        share = f"{min(first['ST'], 1.0):.0%} ±{100 * first['ST_half_width']:.0f} of its variance"
        moves = f"{first['axis']} moves it most ({share}, with interactions)"
    else:
        moves = f"{first['axis']} moves it most ({first['mu_star']:.3g}{unit} over its range)"
    return f"{metric}: {spread}; {moves}."


def reading(method: str) -> str:
    """Say how to read the indices."""
    if method == "sobol":
        return (
            "S1: the share of the variance that a setting explains alone. ST: the share in which it has a "
            "part, together with others too; a setting with ST near 0 can be left as it is."
        )
    return (
        "mu*: the mean change of the metric over a setting's range, others held, sign left out; a setting "
        "with mu* near 0 can be left as it is. sigma: how much that depends on the others; well below mu* it "
        "hardly does."
    )


def noise_text(found: Sensitivity, metric: str) -> str:
    """Say what the seeds add."""
    share = found.noise[metric]
    if missing(share):
        return "One seed a point: what chance adds is not known."
    return f"Chance adds {share:.1%} of the variance at {found.seeds} seeds a point."


def table_of(found: Sensitivity, metric: str) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of a metric's indices, without bars."""
    rows = found.frame.filter(found.frame["metric"] == metric).iter_rows(named=True)
    if found.method == "sobol":
        return ["setting", "S1", "ST"], [
            [
                row["axis"],
                f"{row['S1']:.2f} ±{row['S1_half_width']:.2f}",
                f"{row['ST']:.2f} ±{row['ST_half_width']:.2f}",
            ]
            for row in rows
        ]
    return ["setting", "mu*", "sigma"], [
        [row["axis"], f"{row['mu_star']:.3g} ±{row['mu_star_half_width']:.2g}", f"{row['sigma']:.3g}"]
        for row in rows
    ]


def range_text(given: Any) -> str:
    """Write a range or a list of values in a few words.

    Examples
    --------
    >>> range_text({"from": 1, "to": 9, "scale": "log"}), range_text([1, 2, 4])
    ('1 to 9, by ratios', '1, 2, 4')
    """
    if isinstance(given, Mapping):
        scale = ", by ratios" if given.get("scale") == "log" else ""
        return f"{number(given['from'])} to {number(given['to'])}{scale}"
    return ", ".join(label(value) for value in given)


def _metric(found: Sensitivity, metric: str) -> str:
    header, lines = table_of(found, metric)
    strengths = found.frame.filter(found.frame["metric"] == metric)[STRENGTH[found.method]].to_list()
    largest = 1.0 if found.method == "sobol" else max(strengths) or 1.0
    barred = [
        [axis_heading(line[0]), *line[1:], bar(strength / largest)]
        for line, strength in zip(lines, strengths)
    ]
    return "\n".join(
        [
            wrapped(headline(found, metric), "  ", ""),
            grid([*header, ""], barred, left=[0, len(header)]),
            noise_text(found, metric),
        ]
    )


def width_text(found: Sensitivity) -> str:
    """Say that intervals are wide, where the strongest index of a metric has a half width above a tenth."""
    if found.method != "sobol" or found.frame["ST_half_width"].max() <= WIDE:  # type: ignore[operator]
        return ""
    return f"Intervals are wide: --points {4 * found.base_points} would about halve them."


def _runs(found: Sensitivity) -> str:
    text = f"{found.points:,} points × {found.seeds} seeds = {found.runs:,} runs."
    return text if found.folder is None else f"{text}\nKept in {found.folder}"
