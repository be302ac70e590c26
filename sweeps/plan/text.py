"""What ``lagsweep plan`` prints: the best setting, that of each split, its neighbours, what to measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..results.text import grid, terminal_width, wrapped
from .checkpoints import checkpoints_said
from .rows import SIMULATED, PlanRow
from .said import assumptions, best_said, cells_said, effects_said, heading, nothing_said, reasons_said
from .wording import between, changed, rules_words, short, value, whole

if TYPE_CHECKING:
    from .answered import Plan

MOST_EFFECTS = 6
SPLITS_TITLE = "The best of each split (*: the best of all; ≥: only bounded)"
SPLITS_NOTE = (
    "tp: GPUs of an engine; cap: rollouts at once on it; every: updates from one publication to the next; "
    "lag: in updates. Tokens are effective ones: those trained, times the ESS."
)
EFFECTIVE = "eff. tokens/s"


def plan_text(plan: Plan) -> str:
    """Return the whole answer."""
    width = terminal_width()
    parts = [wrapped(heading(plan.question), width=width), ""]
    if plan.best is None:
        parts += [wrapped(said, width=width) for said in nothing_said(plan)]
        return "\n".join([*parts, *_reasons(plan)])
    first, *lines = best_said(plan)
    parts += [wrapped(first, width=width), *(wrapped(said, "    ", "  ", width=width) for said in lines)]
    saves = plan.checkpoints
    if saves is not None:
        parts += ["", *(wrapped(said, width=width) for said in checkpoints_said(plan.question, saves))]
    parts += ["", SPLITS_TITLE, grid(*splits_table(plan), left=[0, 1], width=width)]
    parts += [wrapped(SPLITS_NOTE, width=width)]
    if plan.neighbours:
        parts += ["", "One setting changed", grid(*neighbours_table(plan), left=[0], width=width)]
    if plan.effects:
        parts += ["", "What each open input does to the best, alone"]
        parts += [grid(*effects_table(plan), left=[0], width=width)]
        parts += [wrapped(said, width=width) for said in effects_said(plan)]
    parts += ["", *(wrapped(said, width=width) for said in cells_said(plan)), *_reasons(plan)]
    parts += ["", *(wrapped(said, width=width) for said in assumptions(plan))]
    return "\n".join(parts)


def splits_table(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return the table of splits, the best marked: header and rows."""
    # The settings come first: what a narrow terminal has no room for is left out from the end.
    header = ["GPUs", "rules", "tp", "cap", "every", "s per update", "range", EFFECTIVE, "lag"]
    header += ["GPU-h per M tokens"] + (["cost per M tokens"] if plan.question.price is not None else [])
    return [*header, "trainer waits", "slots wait"], [_split_line(row, plan) for row in plan.splits]


def _split_line(row: PlanRow, plan: Plan) -> list[str]:
    cell, asked = row.cell, plan.question
    figures = row.figures(asked.gpus, asked.price)
    gpus = "all" if cell.is_colocated else f"{cell.rollout_gpus}+{cell.train_gpus}"
    line = [f"{gpus}*" if row is plan.best else gpus, rules_words(cell.rules)]
    seconds, ends = _seconds(row, figures)
    # A range is one word here: a table of many columns would cut it.
    line += [str(cell.tensor_parallel), str(cell.cap), str(cell.cadence), seconds, ends.replace(" to ", "–")]
    line.append(whole(figures["effective_tokens_per_second"]))
    result = row.result if row.status == SIMULATED else None
    line.append("-" if result is None else f"{result.mean_lag:.2f}")
    line.append(short(figures["gpu_hours_per_million"]))
    line += [short(figures["cost_per_million"])] if asked.price is not None else []
    return [
        *line,
        *(["-"] * 2 if result is None else [f"{result.trainer_waits:.0%}", f"{result.rollouts_wait:.0%}"]),
    ]


def neighbours_table(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return the table of what differs from the best in one setting."""
    best = plan.best
    assert best is not None
    lines = []
    for row in (best, *plan.neighbours):
        figures = row.figures(plan.question.gpus, plan.question.price)
        change = "the best" if row is best else changed(best, row)
        lag = "-" if row.status != SIMULATED or row.result is None else f"{row.result.mean_lag:.2f}"
        lines.append([change, *_seconds(row, figures), lag, whole(figures["effective_tokens_per_second"])])
    return ["changed", "s/update", "range", "lag", EFFECTIVE], lines


def effects_table(plan: Plan, most: int = MOST_EFFECTS) -> tuple[list[str], list[list[str]]]:
    """Return the table of inputs: their ranges, and seconds per update at their ends."""
    lines = [
        [
            one.input.words,
            f"{value(one.input, one.input.low)} to {value(one.input, one.input.high)}",
            f"{whole(one.low_seconds)} to {whole(one.high_seconds)}",
        ]
        for one in plan.effects[:most]
    ]
    return ["input", "range", "s/update"], lines


def _reasons(plan: Plan) -> list[str]:
    return [wrapped(said, first="- ", indent="  ") for said in reasons_said(plan)]


def _seconds(row: PlanRow, figures: dict[str, Any]) -> list[str]:
    """Return seconds per update and their range; a bound where that is all there is."""
    if row.status == SIMULATED:
        ends = [figures["seconds_per_update_low"], figures["seconds_per_update_high"]]
        return [whole(figures["seconds_per_update"]), between(ends)]
    return [f"≥{whole(figures['bound_seconds_per_update'])}", "-"]
