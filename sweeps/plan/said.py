"""What a plan says in sentences: the best, what lies beyond it, what to measure, what the figures rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .inputs import Input
from .rows import BOUNDED, INFEASIBLE, REDUNDANT, SIMULATED, STALLED, reasons_of
from .screening import FEWEST, NEAR
from .wording import LIMIT, ranged, rules_words, setting, value, whole

if TYPE_CHECKING:
    from .answered import Plan
    from .question import Question

_MOST_ENDS = 3
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


def heading(asked: Question) -> str:
    """Say in a sentence what was asked."""
    return (
        f"{asked.model.shape.name} on {asked.gpus} x {asked.accelerator.name}: {asked.prompts:,} prompts x "
        f"{asked.group_size} an update, prompts of {asked.prompt_tokens:,} tokens, answers by "
        f"{asked.law_asked.name} ({_lengths(asked)})."
    )


def _lengths(asked: Question) -> str:
    """Say how long answers are, and what the longest that engines allow cuts off their law."""
    mean = f"mean {asked.law.mean_tokens:,.0f}"
    if asked.law_asked.maximum <= asked.max_tokens:
        return f"{mean}, at most {asked.max_tokens:,}"
    part = "less than 1%" if asked.cut_share < 0.01 else f"{asked.cut_share:.0%}"
    whole = f"{asked.law_asked.mean_tokens:,.0f}"
    return f"{mean}; {part} of them are cut at --max-tokens {asked.max_tokens:,}, uncut the mean is {whole}"


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
    per_million = ranged(figures, "gpu_hours_per_million")
    at = "" if asked.price is None else f" at {asked.price:g} an hour"
    cost = f", {ranged(figures, 'cost_per_million')}{at}" if at else ""
    said = [
        f"Best: {setting(best)}.",
        f"{ranged(figures, 'seconds_per_update')} s per update",
        f"{ranged(figures, 'effective_tokens_per_second')} effective tokens/s",
        f"lag {one.mean_lag:.2f} (largest {one.largest_lag}), ESS {one.ess:.3f}",
        f"trainer waits {one.trainer_waits:.0%} of the time, rollout slots {one.rollouts_wait:.0%}",
        f"{per_million} GPU-hours per million effective tokens{cost}",
    ]
    said += at_ends(plan)
    if plan.rivals:
        less = 1 - plan.rivals[0].speed / best.speed
        said.append(f"next best split, {less:.1%} less effective tokens/s: {setting(plan.rivals[0])}")
    return said


def at_ends(plan: Plan) -> list[str]:
    """Say which settings of the best are the largest or smallest that were tried: beyond may be better."""
    best, asked = plan.best, plan.question
    assert best is not None
    cell = best.cell
    limits = sorted(int(one.removeprefix(LIMIT)) for one in asked.systems if one.startswith(LIMIT))
    # Nothing lies beyond one GPU, a node, or every update: such ends are none of the list.
    node = asked.gpus_per_node
    axes: list[tuple[str, str, int, tuple[int, ...], int, int | None]] = [
        ("cap", "--caps", cell.cap, asked.caps, 1, None),
        ("engines of", "--tensor-parallel", cell.tensor_parallel, asked.tensor_parallel, 1, node),
        ("weights every", "--cadence", cell.cadence, asked.cadences, 1, None),
    ]
    if not cell.is_colocated:
        axes.append(
            ("rollout GPUs", "--rollout-gpus", cell.rollout_gpus, asked.rollout_gpus, 1, asked.gpus - 1)
        )
    if cell.rules.startswith(LIMIT):
        own = int(cell.rules.removeprefix(LIMIT))
        axes.append(("lag limit", "--max-lag", own, tuple(limits), 0, None))
    said = []
    for words, flag, own, tried, least, most in axes:
        if len(tried) < 2:  # the one that was asked for
            continue
        if own == max(tried) and own != most:
            said.append(f"{words} {own} is the largest tried ({flag})")
        elif own == min(tried) and own != least:
            said.append(f"{words} {own} is the smallest tried ({flag})")
    return [f"at an end of what was tried, and beyond it may be better: {'; '.join(said)}"] if said else []


def lags_said(plan: Plan) -> list[str]:
    """Explain what a lag limit bounds, where a table shows one."""
    shown = [row for row in (*plan.splits, *plan.neighbours) if row.cell.rules.startswith(LIMIT)]
    if not shown:
        return []
    beyond = [
        row.result.largest_lag - int(row.cell.rules.removeprefix(LIMIT))
        for row in shown
        if row.result is not None and row.status == SIMULATED
    ]
    more = " (here single rollouts do)" if max(beyond, default=0) > 0 else ""
    return [
        "Lag limit L: L batches may start ahead of the weights that engines have. It bounds what starts, not "
        f"what is trained: a slow rollout may be trained at a lag above L{more} and is not dropped."
    ]


def effects_said(plan: Plan) -> list[str]:
    """Say what to measure first, and what would change the choice."""
    first = plan.effects[0]
    said = [
        f"Measure this first: {first.input.words}. It alone takes the answer from "
        f"{whole(min(first.low_seconds, first.high_seconds))} to "
        f"{whole(max(first.low_seconds, first.high_seconds))} s per update. {how_to_measure(first.input)}"
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
            "Bounded: what phases need at least is not among the lowest. Simulated are those up to "
            f"{NEAR:g} times the lowest of all (at most --most-simulated), and where these are fewer than "
            f"{FEWEST} the next ones up to {FEWEST}; by their bounds {less} than the best."
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
        *lags_said(plan),
        f"{engine}; ranges: all inputs at their fast ends, and all at their slow ends. ESS and effective "
        f"tokens at {_rests_on(asked)}. Lengths are those of the law given: another law is another plan.",
    ]


def _rests_on(asked: Question) -> str:
    if asked.drift is None:
        return f"drift_per_version = {asked.drift_per_version:g}, an assumption"
    return f"the drift of {asked.drift.words}"


def reasons_said(plan: Plan) -> list[str]:
    """Say what stands against infeasible cells: by kind, with the one that lacks least."""
    lines = []
    for one in reasons_of(plan.rows):
        cell = one["cell"]
        at = f"{cell['rollout_gpus']} to roll out, engines of {cell['tensor_parallel']}"
        at += f", {rules_words(cell['rules'])}" if one["kind"] in ("lag_limit", "cap", "rules") else ""
        lines.append(f"{KINDS[one['kind']]}: {one['cells']:,}. The least ({at}): {one['least']}.")
    return lines
