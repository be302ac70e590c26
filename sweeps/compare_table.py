"""A comparison of systems as text: two tables of at most 80 columns, and what they assume."""

from __future__ import annotations

import math
from typing import Any

from lagsweep.sweeps.presets import all_presets


def _value(row: dict[str, Any], name: str, form: str, *, scale: float = 1.0, width: bool = False) -> str:
    value = row.get(name)
    if value is None or math.isnan(value):
        return "-"
    text = format(value * scale, form)
    half = row.get(f"{name}_half_width")
    return f"{text} ±{format(half * scale, form)}" if width and half is not None and half == half else text


def _grid(header: list[str], lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[k]) for line in [header, *lines]) for k in range(len(header))]

    def written(line: list[str]) -> str:
        first = line[0].ljust(widths[0])
        return "  ".join([first, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]).rstrip()

    return [written(header), "  ".join("─" * width for width in widths), *(written(line) for line in lines)]


def comparison_text(rows: list[dict[str, Any]], drift_per_version: float, confidence: float = 0.95) -> str:
    """Write the comparison of :func:`lagsweep.sweeps.compare.comparison_rows`."""
    speed = _grid(
        ["system", "s/update", "tokens/s", "vs first", "ESS", "train", "slots"],
        [
            [
                row["system"],
                _value(row, "seconds_per_update", ".2f", width=True),
                _value(row, "trained_tokens_per_second", ".0f", width=True),
                _against_first(row, rows[0]),
                _value(row, "mean_expected_normalized_ess", ".3f"),
                _value(row, "trainer_utilization", ".0%"),
                _value(row, "rollout_utilization", ".0%"),
            ]
            for row in rows
        ],
    )
    age = _grid(
        ["system", "lag: mean", "median", "99 %", "largest", "bound", "waste", "length bias"],
        [
            [
                row["system"],
                _value(row, "mean_lag", ".2f"),
                str(row["lag_median"]),
                str(row["lag_99"]),
                str(row["lag_largest"]),
                all_presets()[row["system"]].bound_kind if row["system"] in all_presets() else "-",
                _value(row, "wasted_share", ".1%"),
                _value(row, "length_bias_law", ".3f"),
            ]
            for row in rows
        ],
    )
    return "\n".join([*speed, "", *age, "", *_notes(rows, drift_per_version, confidence)])


def _against_first(row: dict[str, Any], first: dict[str, Any]) -> str:
    base = first.get("trained_tokens_per_second")
    if row is first or not base or math.isnan(base):
        return ""
    difference = row["trained_tokens_per_second_difference"] / base
    half = row["trained_tokens_per_second_difference_half_width"] / base
    if math.isnan(difference):
        return "-"
    return f"{difference:+.1%}" if math.isnan(half) else f"{difference:+.1%} ±{half:.1%}"


def _notes(rows: list[dict[str, Any]], drift: float, confidence: float) -> list[str]:
    notes = [
        f"±: half width of the {confidence:.0%} Student interval over {rows[0]['seeds']} seeds;",
        "differences are paired by seed. ESS: expected normalized ESS at an assumed",
        f"drift_per_version of {drift:g}. train, slots: share of time in use. Lags in versions.",
        "Waste: decoded tokens dropped for age, evicted or cancelled. Length bias:",
        "trained mean length / the law's mean.",
    ]
    for row in rows:
        if row["stalled_runs"]:
            notes.append(f"{row['system']}: {row['stalled_runs']} of {row['seeds']} runs stalled.")
        elif row["runs_without_update"]:
            notes.append(
                f"{row['system']}: {row['runs_without_update']} of {row['seeds']} runs had no update."
            )
    return notes
