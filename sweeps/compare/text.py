"""A comparison of systems as text: tables that fit the terminal, and what they assume."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..config.config import PipelineConfig, as_engine
from ..laws.lengths import LengthLaw
from ..results.cells import GOODPUT
from ..results.drift_words import drift_words
from ..results.numbers import all_equal, formatted, with_interval
from ..results.text import grid, terminal_width, wrapped
from ..results.words import CAUSES
from .rows import LAG_COLUMNS, SLOT_SHARES, SPEEDS, TRAINER_SHARES

SPEED_HEADER = ("s/update", "tokens/s", "effective/s", "ESS")
_PLAIN = ",.6g"  # a setting: thousands apart, no digits that it does not have
Rows = Sequence[Mapping[str, Any]]


def mean_text(row: Mapping[str, Any], name: str, form: str) -> str:
    """Write a mean with its half width; of seeds that are all equal without one."""
    return with_interval(row[name], row[f"{name}_half_width"], form)


def difference_text(row: Mapping[str, Any], name: str, form: str = "", *, relative: bool = False) -> str:
    """Write a paired difference with its half width, relative to the other system where asked."""
    value, half = row[f"{name}_difference"], row[f"{name}_difference_half_width"]
    if relative:
        base = row[name] - value
        value, half = (value / base, half / base) if base else (math.nan, math.nan)
        form = ".0%" if half >= 0.1 or abs(value) >= 10 else ".1%"  # no digits that mean nothing
    return with_interval(value, half, form, "+")


def _table(title: str, header: list[str], lines: list[list[str]]) -> list[str]:
    return [wrapped(title), grid(header, lines, left=[0]), ""]


def speed_lines(rows: Rows) -> list[list[str]]:
    """Write each system's s/update, tokens/s, effective tokens/s and ESS; goodput where anything can fail."""
    return [
        [
            row["label"],
            mean_text(row, "seconds_per_update", ",.1f"),
            mean_text(row, "trained_tokens_per_second", ",.0f"),
            mean_text(row, "effective_tokens_per_second", ",.0f"),
            mean_text(row, "mean_expected_normalized_ess", ".3f"),
            *([mean_text(row, GOODPUT, ".3f")] if GOODPUT in row else []),
        ]
        for row in rows
    ]


def paired_lines(rows: Rows) -> list[list[str]]:
    """Write how s/update, tokens/s, ESS and mean lag differ from the reference, for the other systems."""
    return [
        [
            row["label"],
            difference_text(row, "seconds_per_update", relative=True),
            difference_text(row, "trained_tokens_per_second", relative=True),
            difference_text(row, "mean_expected_normalized_ess", ".3f"),
            difference_text(row, "mean_rollout_lag", ".2f"),
        ]
        for row in rows
        if row["label"] != row["against"]
    ]


def work_lines(rows: Rows) -> list[list[str]]:
    """Write each system's waste, length bias and rollouts per batch."""
    return [
        [
            row["label"],
            mean_text(row, "wasted_share", ".1%"),
            mean_text(row, "length_bias_law", ".3f"),
            formatted(row["rollouts_per_batch"], ",.0f"),
        ]
        for row in rows
    ]


def _lag(rows: Rows) -> list[str]:
    lines = []
    for row in rows:
        shares = [
            formatted(sum(row["lag_shares"][first : last + 1]), ".0%") if row["lag_shares"] else "-"
            for _, first, last in LAG_COLUMNS
        ]
        bound = "none" if row["lag_bound"] is None else f"{row['lag_bound']} {row['bound_kind']}"
        largest = str(row["lag_largest"]) if row["lag_shares"] else "-"
        means = [
            formatted(row[name], ".2f") for name in ("mean_rollout_lag", "mean_rollout_lag_publications")
        ]
        lines.append([row["label"], *means, *shares, largest, bound])
    header = ["", "mean", "publ.", *(name for name, _, _ in LAG_COLUMNS), "max", "bound"]
    return _table("Lag of trained rollouts, in versions (publ.: its mean in publications)", header, lines)


def _time(rows: Rows) -> list[str]:
    return [
        *_shares(rows, "The trainer's time: at work, then what it waits for", "trainer", TRAINER_SHARES),
        *_shares(rows, "The slots' time: busy, then what keeps idle ones closed", "slots", SLOT_SHARES),
    ]


def _shares(rows: Rows, title: str, group: str, shares: Mapping[str, str]) -> list[str]:
    """Write shares of time; a column in which no system has anything is left out."""
    first, *rest = shares
    shown = [first, *(name for name in rest if any(row.get(name, 0.0) >= 0.0005 for row in rows))]
    lines = [[row["label"], *(formatted(row[name], ".1%") for name in shown)] for row in rows]
    return _table(title, ["", *(CAUSES[group][shares[name]].heading for name in shown)], lines)


def workload_text(workload: Mapping[str, Any]) -> str:
    """Name a workload in one sentence.

    Parameters
    ----------
    workload : mapping
        Fields of the configuration that all systems have in common.
    """

    law = workload["response_length"]
    law = law if isinstance(law, LengthLaw) else LengthLaw.from_dict(law)
    engine = as_engine(workload.get("engine"))
    if engine is not None:
        speed = f"on {engine.count} engines" if engine.count > 1 else "on an engine"
    else:
        slowdown = workload["decode_slowdown_per_rollout"]
        speed = f"of {workload['decode_tokens_per_second']:{_PLAIN}} tokens/s"
        speed += f" (slowdown {slowdown:g})" if slowdown else ""
    parts = [
        f"{workload['rollout_workers']:,} slots {speed}",
        f"lengths {law.name}",
        f"batches of {workload['batch_groups']:,} × {workload['group_size']:,}",
        f"a step of {workload['train_overhead_seconds']:{_PLAIN}} s + tokens / "
        f"{workload['train_tokens_per_second']:{_PLAIN}}",
        f"publications of {workload['sync_seconds']:{_PLAIN}} s",
        f"{workload['duration_seconds']:{_PLAIN}} s of which {workload['warmup_seconds']:{_PLAIN}} s warm-up",
    ]
    return f"Workload: {', '.join(parts)}."


def comparison_text(rows: Rows, workload: str, drift: str, confidence: float = 0.95) -> str:
    """Write the rows of :func:`.compare.rows.comparison_rows` for people."""
    against = f"Against {rows[0]['against']}, seed by seed"
    tables = [
        *_table(
            "Speed", ["", *SPEED_HEADER, *(["goodput"] if GOODPUT in rows[0] else [])], speed_lines(rows)
        ),
        *_table(against, ["", "s/update", "tokens/s", "ESS", "mean lag"], paired_lines(rows)),
        *_lag(rows),
        *_time(rows),
        *_table("Work", ["", "waste", "length bias", "rollouts/batch"], work_lines(rows)),
    ]
    return "\n".join([*_legend(rows), *tables, *_wrapped(rows, workload, drift, confidence)])


def drift_of(config: PipelineConfig) -> str:
    """Say what the ESS of a comparison rests on."""
    if config.drift is None:
        return f"an assumed drift_per_version of {config.drift_per_version:g}"
    return drift_words(config)


def notes(rows: Rows, workload: str, drift: str, confidence: float) -> list[str]:
    """Say what the tables mean and rest on (`drift`, by :func:`drift_of`), a paragraph each."""
    return [
        workload,
        f"±: half width of the {confidence:.0%} Student interval over {rows[0]['seeds']:,} seeds"
        f"{_no_interval(rows)}. ESS is the expected normalized ESS of a batch at {drift}; "
        "effective tokens are tokens times it.",
        "Waste: decoded tokens dropped for age, evicted or cancelled. Length bias: mean length trained / the "
        "law's mean.",
        *_losses(rows),
        *_speedups(rows),
        *_warnings(rows),
    ]


def _no_interval(rows: Rows) -> str:
    """Say what a mean without a half width means, and why the seconds of an update may have none."""
    if rows[0]["seeds"] < 2:
        return ""
    even = [
        row["label"]
        for row in rows
        if all_equal(row["seconds_per_update"], row["seconds_per_update_half_width"])
    ]
    why = f" (s/update of {', '.join(even)}: all seeds have as many updates in the window)" if even else ""
    return f"; in columns of these, a figure without is equal in all seeds{why}"


def _losses(rows: Rows) -> list[str]:
    """Say what failures cost a run, and which figures see it."""
    if GOODPUT not in rows[0]:
        return []
    lost = "; ".join(
        f"{row['label']} {formatted(row['lost_updates'], ',.1f')} updates and "
        f"{formatted(row['lost_tokens'], ',.0f')} tokens"
        for row in rows
    )
    return [
        "Goodput: busy time of steps that were not lost, over the time with data. Tokens/s leave out what is "
        f"lost, s/update counts it. Lost in failures a run: {lost}."
    ]


def _speedups(rows: Rows) -> list[str]:
    """State speed-ups as ranges, since nobody knows how much faster more GPUs would train."""
    names = [f"{name}_speedup" for name in SPEEDS]
    said = [
        f"{row['label']} {_times(row[names[0]])} (effective {_times(row[names[1]])})"
        for row in rows
        if names[0] in row
    ]
    if not said:
        return []
    ends = "its training as fast as all GPUs in proportion (training_scaling 1), and to the power 0.2"
    return [f"Tokens/s over the colocated baseline, {ends}: {'; '.join(said)}."]


def _times(ends: Sequence[float]) -> str:
    return " to ".join(f"{formatted(end, '.2f')}×" for end in ends)


def _wrapped(rows: Rows, workload: str, drift: str, confidence: float) -> list[str]:
    left_out = "A column of time in which no system has anything is left out."
    texts = notes(rows, workload, drift, confidence)
    texts[2] = f"{texts[2]} {left_out}"
    return [line for text in texts for line in textwrap.wrap(text, terminal_width())]


def _legend(rows: Rows) -> list[str]:
    """Say which knobs were set, before the tables that need it."""
    lines = [
        line
        for row in rows
        if row["knobs"]
        for line in textwrap.wrap(
            f"{row['label']}: {knobs_text(row['knobs'])}",
            terminal_width(),
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
