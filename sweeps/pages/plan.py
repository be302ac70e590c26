"""A plan as one offline page: the best, the splits with their ranges, what to measure, what cannot be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...kernels._arguments import instance
from ..charts.ends import ends_chart
from ..charts.style import plain_value
from ..checks import text_of
from ..files import write_atomically
from ..plan.answered import Plan
from ..plan.checkpoints import checkpoints_said
from ..plan.rows import SIMULATED, PlanRow, frame_of
from ..plan.said import (
    assumptions,
    best_said,
    cells_said,
    effects_said,
    heading,
    nothing_said,
    reasons_said,
)
from ..plan.text import SPLITS_TITLE, effects_table, neighbours_table, splits_table
from ..plan.wording import rules_words, value
from .page import Figure, Table, checked_page, linked_page, page

NAME = ("--page", "plan.html")  # the option that names the page, and an example
_MOST_EFFECTS = 20
_MOST_CELLS = 200


def checked_plan_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
    """
    return checked_page(path, *NAME)


def write_plan_page(path: str | Path, plan: Plan, *, line: str = "") -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
        ``something.html``.
    plan : Plan
        What :func:`lagsweep.plan` returns.
    line : str
        The command that makes the page again.

    Raises
    ------
    ConfigError
        For a bad file name, or something else than a plan.
    """
    target = checked_plan_page(path)
    instance("plan", plan, Plan, "Give what lagsweep.plan returns.")
    line = text_of("line", line, "Give text.")
    title = heading(plan.question)
    saves = plan.checkpoints
    common: dict[str, Any] = {
        "heading": title,
        "reasons": reasons_said(plan),
        "inputs": _inputs(plan),
        "line": line,
    }
    if plan.best is None:
        content = page(
            "plan.html", "No plan · lagsweep", **common, figures={}, verdict=nothing_said(plan),
            splits=None, splits_title="", neighbours=None, effects=None, effects_said=[], cells=None,
            counted=[], notes=[],
        )  # fmt: skip
    else:
        content = linked_page(
            "plan.html",
            f"{plan.question.model.shape.name} on {plan.question.gpus} GPUs · lagsweep",
            _figures(plan),
            lambda _: {},
            **common,
            verdict=[*best_said(plan), *(checkpoints_said(plan.question, saves) if saves else [])],
            splits=_table(splits_table(plan), words=(1,)),
            splits_title=SPLITS_TITLE,
            neighbours=_table(neighbours_table(plan), words=(0,)) if plan.neighbours else None,
            effects=_table(effects_table(plan, _MOST_EFFECTS), words=(0,)) if plan.effects else None,
            effects_said=effects_said(plan) if plan.effects else [],
            cells=_cells(plan),
            counted=cells_said(plan),
            notes=assumptions(plan),
        )
    write_atomically(target, content)
    return target


def _table(found: tuple[Sequence[str], Sequence[Sequence[str]]], words: Sequence[int]) -> Table:
    header, rows = found
    return Table([(title, "text" if place in words else "") for place, title in enumerate(header)], rows)


def _inputs(plan: Plan) -> Table:
    """Return what was put in, with ranges and sources."""
    rows = [
        [
            one.words,
            value(one, one.value),
            f"{value(one, one.low)} to {value(one, one.high)}" if one.is_open else "fixed",
            one.source,
        ]
        for one in plan.question.inputs
    ]
    return Table([("input", "text"), ("value", ""), ("range", ""), ("from", "text whole")], rows)


def _cells(plan: Plan) -> Table:
    """Return every cell that was simulated, the best first."""
    frame = frame_of([row for row in plan.rows if row.status == SIMULATED], plan.question.gpus, None)
    rows = [
        [
            str(row["rollout_gpus"]),
            str(row["train_gpus"]),
            str(row["tensor_parallel"]),
            rules_words(row["rules"]),
            str(row["cap"]),
            str(row["cadence"]),
            f"{row['seconds_per_update']:,.1f}",
            f"{row['effective_tokens_per_second']:,.0f}",
            f"{row['mean_lag']:.2f}",
        ]
        for row in frame.head(_MOST_CELLS).iter_rows(named=True)
    ]
    header = ["roll out", "train", "tp", "rules", "cap", "every", "s/update", "effective tokens/s", "lag"]
    return Table([(title, "text" if title == "rules" else "") for title in header], rows)


def _figures(plan: Plan) -> list[Figure]:
    splits = [_split(row, plan) for row in plan.splits]
    caption = (
        "Seconds per update of the best setting of each split; bars go from the fast ends of all inputs to "
        "the slow ones. Grey triangles are bounds: such splits were not simulated."
    )
    figures = [
        Figure(
            "splits",
            "The best of each split",
            caption,
            lambda _: ends_chart(splits, title="seconds per update"),
        )
    ]
    if plan.effects and plan.best is not None and plan.best.result is not None:
        middle = plan.best.result.seconds_per_update
        effects = [
            _drawn(
                one.input.words,
                "other",
                None,
                min(one.low_seconds, one.high_seconds),
                max(one.low_seconds, one.high_seconds),
            )
            for one in plan.effects
        ]
        figures.append(
            Figure(
                "effects",
                "What each input leaves open",
                "Seconds per update of the best setting with one input at its ends, the others as they are.",
                lambda _: ends_chart(effects, title="seconds per update", middle=middle),
            )
        )
    return figures


def _split(row: PlanRow, plan: Plan) -> dict[str, Any]:
    cell = row.cell
    label = (
        "all take turns" if cell.is_colocated else f"{cell.rollout_gpus} roll out, {cell.train_gpus} train"
    )
    label += f", {rules_words(cell.rules)}" if not cell.is_colocated else ""
    figures = row.figures(plan.question.gpus, None)
    if row.status != SIMULATED:
        return _drawn(label, "bound", figures["bound_seconds_per_update"], None, None)
    low, high = figures["seconds_per_update_low"], figures["seconds_per_update_high"]
    return _drawn(label, "best" if row is plan.best else "other", figures["seconds_per_update"], low, high)


def _drawn(
    label: str, kind: str, middle: float | None, low: float | None, high: float | None
) -> dict[str, Any]:
    """Return a chart's row; an end that does not exist is left out."""
    known = None not in (low, high) and all(math.isfinite(end) for end in (low, high) if end is not None)
    ends = f"{low:,.0f} to {high:,.0f}" if known else "not known"
    shown = f"at least {middle:,.0f}" if kind == "bound" else ends
    if kind != "bound" and middle is not None:
        shown = f"{middle:,.0f} ({ends})"
    return {
        "label": label,
        "kind": kind,
        "value": None if middle is None else plain_value(middle),
        "low": plain_value(low) if known else None,
        "high": plain_value(high) if known else None,
        "shown": shown,
    }
