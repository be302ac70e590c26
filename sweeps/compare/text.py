"""A comparison of systems as text: tables of at most 80 columns, and what they assume."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from .rows import LAG_COLUMNS

WIDTH = 80
Rows = Sequence[Mapping[str, Any]]


def number(value: float | None, form: str) -> str:
    """Write a number, or a dash where there is none."""
    return "-" if value is None or math.isnan(value) else format(value, form)


def mean_text(row: Mapping[str, Any], name: str, form: str) -> str:
    """Write a mean with its half width."""
    text = number(row[name], form)
    half = row[f"{name}_half_width"]
    return f"{text} ±{number(half, form)}" if text != "-" and not math.isnan(half) else text


def difference_text(row: Mapping[str, Any], name: str, form: str = "", *, relative: bool = False) -> str:
    """Write a paired difference with its half width, relative to the other system where asked."""
    value, half = row[f"{name}_difference"], row[f"{name}_difference_half_width"]
    if relative:
        base = row[name] - value
        value, half = (value / base, half / base) if base else (math.nan, math.nan)
        form = ".0%" if half >= 0.1 or abs(value) >= 10 else ".1%"  # no digits that mean nothing
    text = number(value, f"+{form}")
    return f"{text} ±{number(half, form)}" if text != "-" and not math.isnan(half) else text


def _grid(title: str, header: list[str], lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[k]) for line in [header, *lines]) for k in range(len(header))]

    def written(line: list[str]) -> str:
        first = line[0].ljust(widths[0])
        return "  ".join([first, *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]).rstrip()

    return [title, written(header), "  ".join("─" * width for width in widths), *map(written, lines), ""]


def _speed(rows: Rows) -> list[str]:
    return _grid(
        "Speed",
        ["", "s/update", "tokens/s", "effective/s", "ESS"],
        [
            [
                row["label"],
                mean_text(row, "seconds_per_update", ".1f"),
                mean_text(row, "trained_tokens_per_second", ".0f"),
                mean_text(row, "effective_tokens_per_second", ".0f"),
                mean_text(row, "mean_expected_normalized_ess", ".3f"),
            ]
            for row in rows
        ],
    )


def _paired(rows: Rows) -> list[str]:
    others = [row for row in rows if row["label"] != row["against"]]
    return _grid(
        f"Against {rows[0]['against']}, seed by seed",
        ["", "s/update", "tokens/s", "ESS", "mean lag"],
        [
            [
                row["label"],
                difference_text(row, "seconds_per_update", relative=True),
                difference_text(row, "trained_tokens_per_second", relative=True),
                difference_text(row, "mean_expected_normalized_ess", ".3f"),
                difference_text(row, "mean_rollout_lag", ".2f"),
            ]
            for row in others
        ],
    )


def _lag(rows: Rows) -> list[str]:
    lines = []
    for row in rows:
        shares = [
            number(sum(row["lag_shares"][first : last + 1]), ".0%") if row["lag_shares"] else "-"
            for _, first, last in LAG_COLUMNS
        ]
        bound = "none" if row["lag_bound"] is None else f"{row['lag_bound']} {row['bound_kind']}"
        largest = str(row["lag_largest"]) if row["lag_shares"] else "-"
        means = [number(row[name], ".2f") for name in ("mean_rollout_lag", "mean_rollout_lag_publications")]
        lines.append([row["label"], *means, *shares, largest, bound])
    header = ["", "mean", "publ.", *(name for name, _, _ in LAG_COLUMNS), "max", "bound"]
    return _grid("Lag of trained rollouts, in versions (publ.: its mean in publications)", header, lines)


def _shares(rows: Rows, title: str, columns: dict[str, str]) -> list[str]:
    """Write shares of time; a column in which no system has anything is left out."""
    shown = {
        head: name
        for head, name in columns.items()
        if head in ("train", "busy") or any(row[name] >= 0.0005 for row in rows)
    }
    lines = [[row["label"], *(number(row[name], ".1%") for name in shown.values())] for row in rows]
    return _grid(title, ["", *shown], lines)


def _time(rows: Rows) -> list[str]:
    trainer = {
        "train": "trainer_busy",
        "publication": "trainer_waits_publication",
        "running groups": "trainer_waits_running",
        "batch not full": "trainer_waits_batch",
    }
    slots = {
        "busy": "slots_busy",
        "publication": "slots_idle_publication",
        "max running": "slots_idle_max_running",
        "one batch": "slots_idle_one_batch",
        "token cap": "slots_idle_token_cap",
        "budget": "slots_idle_limits",
    }
    return [
        *_shares(rows, "The trainer's time: at work, then what it waits for", trainer),
        *_shares(rows, "The slots' time: busy, then what keeps idle ones closed", slots),
    ]


def _work(rows: Rows) -> list[str]:
    lines = [
        [
            row["label"],
            mean_text(row, "wasted_share", ".1%"),
            mean_text(row, "length_bias_law", ".3f"),
            number(row["rollouts_per_batch"], ".0f"),
        ]
        for row in rows
    ]
    return _grid("Work", ["", "waste", "length bias", "rollouts/batch"], lines)


def workload_text(workload: Mapping[str, Any]) -> str:
    """Name a workload in one sentence.

    Parameters
    ----------
    workload : mapping
        Fields of the configuration that all systems have in common.
    """
    from ..laws.lengths import LengthLaw

    law = workload["response_length"]
    law = law if isinstance(law, LengthLaw) else LengthLaw.from_dict(law)
    slowdown = workload["decode_slowdown_per_rollout"]
    parts = [
        f"{workload['rollout_workers']} slots of {workload['decode_tokens_per_second']:g} tokens/s"
        + (f" (slowdown {slowdown:g})" if slowdown else ""),
        f"lengths {law.name}",
        f"batches of {workload['batch_groups']} × {workload['group_size']}",
        f"a step of {workload['train_overhead_seconds']:g} s + tokens / "
        f"{workload['train_tokens_per_second']:g}",
        f"publications of {workload['sync_seconds']:g} s",
        f"{workload['duration_seconds']:g} s of which {workload['warmup_seconds']:g} s warm-up",
    ]
    return f"Workload: {', '.join(parts)}."


def comparison_text(rows: Rows, workload: str, drift_per_version: float, confidence: float = 0.95) -> str:
    """Write the rows of :func:`.compare.rows.comparison_rows` for people."""
    tables = [*_speed(rows), *_paired(rows), *_lag(rows), *_time(rows), *_work(rows)]
    return "\n".join([*_legend(rows), *tables, *_wrapped(rows, workload, drift_per_version, confidence)])


def notes(rows: Rows, workload: str, drift_per_version: float, confidence: float) -> list[str]:
    """Say what the tables mean and assume, a paragraph each."""
    return [
        workload,
        f"±: half width of the {confidence:.0%} Student interval over {rows[0]['seeds']} seeds. ESS is the "
        f"expected normalized ESS of a batch at an assumed drift_per_version of {drift_per_version:g}; "
        "effective tokens are tokens times it.",
        "Waste: decoded tokens dropped for age, evicted or cancelled. Length bias: mean length trained / the "
        "law's mean.",
        *_warnings(rows),
    ]


def _wrapped(rows: Rows, workload: str, drift: float, confidence: float) -> list[str]:
    left_out = "A column of time in which no system has anything is left out."
    texts = notes(rows, workload, drift, confidence)
    texts[2] = f"{texts[2]} {left_out}"
    return [line for text in texts for line in textwrap.wrap(text, WIDTH)]


def _legend(rows: Rows) -> list[str]:
    """Say which knobs were set, before the tables that need it."""
    lines = [
        line
        for row in rows
        if row["knobs"]
        for line in textwrap.wrap(
            f"{row['label']}: {knobs_text(row['knobs'])}",
            WIDTH,
            subsequent_indent="  ",
        )
    ]
    return [*lines, ""] if lines else []


def knobs_text(knobs: Mapping[str, Any]) -> str:
    """Write what was set for a system."""
    return ", ".join(
        f"{name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in knobs.items()
    )


def _warnings(rows: Rows) -> list[str]:
    found = []
    for row in rows:
        if row["stalled_runs"]:
            found.append(f"{row['label']}: {row['stalled_runs']} of {row['seeds']} runs stalled.")
        elif row["runs_without_update"]:
            found.append(
                f"{row['label']}: {row['runs_without_update']} of {row['seeds']} runs had no update."
            )
        if row["lag_bound"] is not None and row["lag_largest"] > row["lag_bound"]:
            found.append(
                f"{row['label']}: a straggler passed the {row['bound_kind']} bound of {row['lag_bound']}."
            )
    return found
