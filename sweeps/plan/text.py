"""What ``lagsweep plan`` prints: the best setting, that of each split, its neighbours, what to measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..engines.text import digits
from ..results.numbers import missing
from ..results.text import grid, terminal_width, wrapped
from .checkpoints import checkpoints_said
from .inputs import Input
from .rows import BOUNDED, INFEASIBLE, REDUNDANT, SIMULATED, STALLED, PlanRow, reasons_of
from .screening import NEAR

if TYPE_CHECKING:
    from .plan import Plan
    from .question import Question

MOST_EFFECTS = 6
SPLITS_TITLE = "The best of each split (*: the best of all; ≥: only bounded)"
_MOST_ENDS = 3
_LIMIT = "skyrl:max_staleness_steps="
KINDS = {
    "engine_memory": "engines out of memory",
    "cache": "cache below the longest rollout",
    "trainer_memory": "trainer out of memory",
    "divide": "GPUs that do not divide",
    "node": "engines larger than a node",
    "lag_limit": "a batch larger than the lag limit",
    "cap": "a cap that stalls",
    "rules": "settings that contradict",
}


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
    if plan.neighbours:
        parts += ["", "One setting changed", grid(*neighbours_table(plan), left=[0], width=width)]
    if plan.effects:
        parts += ["", "What each open input does to the best, alone"]
        parts += [grid(*effects_table(plan), left=[0], width=width)]
        parts += [wrapped(said, width=width) for said in effects_said(plan)]
    parts += ["", *(wrapped(said, width=width) for said in cells_said(plan)), *_reasons(plan)]
    parts += ["", *(wrapped(said, width=width) for said in assumptions(plan))]
    return "\n".join(parts)


def heading(asked: Question) -> str:
    """Say in a sentence what was asked."""
    return (
        f"{asked.model.shape.name} on {asked.gpus} x {asked.accelerator.name}: {asked.prompts:,} prompts x "
        f"{asked.group_size} an update, prompts of {asked.prompt_tokens:,} tokens, answers by "
        f"{asked.law.name} (mean {asked.law.mean_tokens:,.0f}, at most {asked.max_tokens:,})."
    )


def nothing_said(plan: Plan) -> list[str]:
    """Say that nothing can be planned."""
    stalled = [row for row in plan.rows if row.status == STALLED]
    if stalled:
        return [f"No setting trains: all {len(stalled)} that were simulated stall."]
    return [f"No: none of the {len(plan.rows):,} settings is feasible."]


def best_said(plan: Plan) -> list[str]:
    """Say what the best setting is and what it does."""
    best, asked = plan.best, plan.question
    assert best is not None
    assert best.result is not None
    one, figures = best.result, best.figures(asked.gpus, asked.price)
    per_million = _ranged(figures, "gpu_hours_per_million")
    at = "" if asked.price is None else f" at {asked.price:g} an hour"
    cost = f", {_ranged(figures, 'cost_per_million')}{at}" if at else ""
    said = [
        f"Best: {setting(best)}.",
        f"{_ranged(figures, 'seconds_per_update')} s per update",
        f"{_ranged(figures, 'effective_tokens_per_second')} effective tokens/s",
        f"lag {one.mean_lag:.2f} (largest {one.largest_lag}), ESS {one.ess:.3f}",
        f"trainer waits {one.trainer_waits:.0%} of the time, rollout slots {one.rollouts_wait:.0%}",
        f"{per_million} GPU-hours per million effective tokens{cost}",
    ]
    if plan.rivals:
        less = 1 - plan.rivals[0].speed / best.speed
        said.append(f"next best split, {less:.1%} less effective tokens/s: {setting(plan.rivals[0])}")
    return said


def setting(row: PlanRow) -> str:
    """Name a cell in words."""
    cell = row.cell
    cards = "1 GPU" if cell.tensor_parallel == 1 else f"{cell.tensor_parallel} GPUs"
    engines = f"{cell.engines} engines of {cards}" if cell.engines > 1 else f"one engine of {cards}"
    every = "every update" if cell.cadence == 1 else f"every {cell.cadence} updates"
    where = (
        f"all {cell.train_gpus} GPUs take turns, {engines}"
        if cell.is_colocated
        else f"{cell.rollout_gpus} GPUs roll out ({engines}), {cell.train_gpus} train"
    )
    rules = "" if cell.is_colocated else f", {rules_words(cell.rules)}"
    return f"{where}{rules}, at most {cell.cap} rollouts an engine, weights {every}"


def rules_words(rules: str) -> str:
    """Name rules: a lag limit by its number, a system by its label.

    Examples
    --------
    >>> rules_words("skyrl:max_staleness_steps=2"), rules_words("areal")
    ('lag limit 2', 'areal')
    """
    return f"lag limit {rules.removeprefix(_LIMIT)}" if rules.startswith(_LIMIT) else str(rules)


def splits_table(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return the table of splits, the best marked: header and rows."""
    header = ["GPUs", "rules", "s/update", "range", "effective/s", "lag", "trainer waits", "slots wait"]
    header += ["GPU-h per M"] + (["cost per M"] if plan.question.price is not None else [])
    return [*header, "tp", "cap", "every"], [_split_line(row, plan) for row in plan.splits]


def _split_line(row: PlanRow, plan: Plan) -> list[str]:
    cell, asked = row.cell, plan.question
    figures = row.figures(asked.gpus, asked.price)
    gpus = "all" if cell.is_colocated else f"{cell.rollout_gpus}+{cell.train_gpus}"
    line = [f"{gpus}*" if row is plan.best else gpus, rules_words(cell.rules), *_seconds(row, figures)]
    line.append(_whole(figures["effective_tokens_per_second"]))
    result = row.result if row.status == SIMULATED else None
    line += ["-"] * 3 if result is None else [
        f"{result.mean_lag:.2f}", f"{result.trainer_waits:.0%}", f"{result.rollouts_wait:.0%}"
    ]  # fmt: skip
    line.append(_short(figures["gpu_hours_per_million"]))
    line += [_short(figures["cost_per_million"])] if asked.price is not None else []
    return [*line, str(cell.tensor_parallel), str(cell.cap), str(cell.cadence)]


def neighbours_table(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return the table of what differs from the best in one setting."""
    best = plan.best
    assert best is not None
    lines = []
    for row in (best, *plan.neighbours):
        figures = row.figures(plan.question.gpus, plan.question.price)
        change = "the best" if row is best else changed(best, row)
        lag = "-" if row.status != SIMULATED or row.result is None else f"{row.result.mean_lag:.2f}"
        lines.append([change, *_seconds(row, figures), lag, _whole(figures["effective_tokens_per_second"])])
    return ["changed", "s/update", "range", "lag", "effective/s"], lines


def changed(best: PlanRow, row: PlanRow) -> str:
    """Say which setting differs."""
    cell, other = row.cell, best.cell
    if cell.rules != other.rules:
        return rules_words(cell.rules)
    if cell.rollout_gpus != other.rollout_gpus:
        return f"{cell.rollout_gpus}+{cell.train_gpus} GPUs"
    if cell.tensor_parallel != other.tensor_parallel:
        return f"engines of {cell.tensor_parallel}"
    return f"cap {cell.cap}" if cell.cap != other.cap else f"weights every {cell.cadence}"


def effects_table(plan: Plan, most: int = MOST_EFFECTS) -> tuple[list[str], list[list[str]]]:
    """Return the table of inputs: their ranges, and seconds per update at their ends."""
    lines = [
        [
            one.input.words,
            f"{value(one.input, one.input.low)} to {value(one.input, one.input.high)}",
            f"{_whole(one.low_seconds)} to {_whole(one.high_seconds)}",
        ]
        for one in plan.effects[:most]
    ]
    return ["input", "range", "s/update"], lines


def value(one: Input, number: float) -> str:
    """Write a value of an input in its unit."""
    shown = digits(one.scale * number) if number >= 0 else f"-{digits(-one.scale * number)}"
    return f"{shown} {one.unit}".strip()


def effects_said(plan: Plan) -> list[str]:
    """Say what to measure first, and what would change the choice."""
    first = plan.effects[0]
    said = [
        f"Measure this first: {first.input.words}. It alone takes the answer from "
        f"{_whole(min(first.low_seconds, first.high_seconds))} to "
        f"{_whole(max(first.low_seconds, first.high_seconds))} s per update. {how_to_measure(first.input)}"
    ]
    return said + _changes(plan)


def how_to_measure(one: Input) -> str:
    """Say how to measure an input."""
    if one.name in ("model_flops_utilization", "update_overhead_seconds"):
        return f"Time updates of two sizes on your trainer, and give --input {one.name}=VALUE."
    if one.name == "turn_seconds":
        return "Time what a step has left beside its phases, and give --input turn_seconds=VALUE."
    if one.name == "publication_rate":
        return "Time a publication, and give --input publication_rate=BYTES_PER_SECOND."
    return "Fit an engine to a request log (lagsweep engine fit), and give --measured engine.toml."


def _changes(plan: Plan) -> list[str]:
    """Say at which ends of inputs another split is better."""
    ends = [
        (place, f"{one.input.words} {value(one.input, end)}")
        for one in plan.effects
        for place, end in ((one.better_low, one.input.low), (one.better_high, one.input.high))
        if place is not None
    ]
    said = []
    for place, rival in enumerate(plan.rivals):
        own = [words for which, words in ends if which == place]
        if own:
            more = f" and {len(own) - _MOST_ENDS} more" if len(own) > _MOST_ENDS else ""
            said.append(f"Another split is better at {'; '.join(own[:_MOST_ENDS])}{more}: {setting(rival)}.")
    return said


def cells_said(plan: Plan) -> list[str]:
    """Say how many cells there were and what was done with them."""
    counts = {
        status: sum(row.status == status for row in plan.rows)
        for status in (SIMULATED, STALLED, BOUNDED, REDUNDANT, INFEASIBLE)
    }
    feasible = counts[SIMULATED] + counts[STALLED] + counts[BOUNDED]
    seeds, first, last = 0, 0, 0
    if plan.spec is not None:
        seeds = len(plan.spec.seeds)
        first, last = plan.spec.windows or 0, plan.spec.base.stop_after_updates or 0
    said = [
        f"{len(plan.rows):,} settings: {feasible:,} feasible, of which {counts[SIMULATED]:,} simulated "
        f"({seeds} seeds, {last - first} updates after {first}) and {counts[BOUNDED]:,} only bounded; "
        f"{counts[INFEASIBLE]:,} infeasible, {counts[REDUNDANT]:,} much the same as one with a smaller cap."
    ]
    if counts[STALLED]:
        said.append(f"{counts[STALLED]:,} stalled when simulated.")
    if counts[BOUNDED]:
        better = plan.could_be_better
        less = "none of them can be faster" if not better else f"{better:,} of them might be faster"
        said.append(
            f"Bounded: what phases need at least is more than {NEAR:g} times the lowest of all, or came "
            f"after the most that are simulated; by their bounds {less} than the best."
        )
    return said


def assumptions(plan: Plan) -> list[str]:
    """Say what the figures rest on."""
    asked = plan.question
    engine = (
        "Engines by the card's data sheet"
        if asked.measured is None
        else f"Engine from {asked.measured.source}"
    )
    positions = asked.model.shape.max_positions
    longer = positions is not None and asked.longest_tokens > positions
    said = (
        [f"The longest rollout is beyond the {positions:,} positions of the model's config."]
        if longer
        else []
    )
    return [
        *said,
        f"{engine}; ranges: all inputs at their fast ends, and all at their slow ends. ESS and effective "
        f"tokens at drift_per_version = {asked.drift_per_version:g}, an assumption. Lengths are those of the "
        "law given: another law is another plan.",
    ]


def _reasons(plan: Plan) -> list[str]:
    return [wrapped(said, first="- ", indent="  ") for said in reasons_said(plan)]


def reasons_said(plan: Plan) -> list[str]:
    """Say what stands against infeasible cells: by kind, with the one that lacks least."""
    lines = []
    for one in reasons_of(plan.rows):
        cell = one["cell"]
        at = f"{cell['rollout_gpus']} to roll out, engines of {cell['tensor_parallel']}"
        at += f", {rules_words(cell['rules'])}" if one["kind"] in ("lag_limit", "cap", "rules") else ""
        lines.append(f"{KINDS[one['kind']]}: {one['cells']:,}. The least ({at}): {one['least']}.")
    return lines


def _seconds(row: PlanRow, figures: dict[str, Any]) -> list[str]:
    """Return seconds per update and their range; a bound where that is all there is."""
    if row.status == SIMULATED:
        ends = [figures["seconds_per_update_low"], figures["seconds_per_update_high"]]
        return [_whole(figures["seconds_per_update"]), _between(ends)]
    return [f"≥ {_whole(figures['bound_seconds_per_update'])}", "-"]


def _ranged(figures: dict[str, Any], name: str) -> str:
    write = _short if "million" in name else _whole
    low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
    middle = write(figures[name])
    return middle if low is None or high is None else f"{middle} ({_between([low, high], write)})"


def _between(ends: Sequence[Any], write: Any = None) -> str:
    low, high = (None if end is None else end for end in ends)
    if low is None or high is None:
        return "-"
    write = write or _whole
    return f"{write(low)} to {write(high)}"


def _whole(number: Any) -> str:
    """Write seconds and rates: whole ones from 100 on."""
    if missing(number):
        return "-"
    if math.isinf(number):
        return "does not fit"
    return f"{number:,.0f}" if number >= 100 else digits(float(number))


def _short(number: Any) -> str:
    if missing(number):
        return "-"
    return "does not fit" if math.isinf(number) else digits(float(number))
