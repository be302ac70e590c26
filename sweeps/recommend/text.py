"""A recommendation as text that fits the terminal, of 80 columns at most but for its tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..results.cells import GOODPUT
from ..results.numbers import digits_for, fixed, missing, percent_interval, seeds_words, with_half_width
from ..results.text import grid_with_settings, terminal_width, wrapped
from ..results.words import CAUSES, describe_settings
from .parts import worst_scenarios

if TYPE_CHECKING:
    from .parts import Alternative, BoundReport
    from .recommend import Recommendation

MOST_TIES = 8


def recommendation_text(result: Recommendation) -> str:
    """Write the choice, what ties with it, what binds, how robust it is, and what is still open."""
    blocks = [_headline(result)]
    if result.cell is not None:
        blocks += [_choice(result), _ties(result)]
    blocks += [_bounds(result), _limits(result), _scenarios(result), _doubts(result), _assumptions(result)]
    return "\n\n".join(block for block in blocks if block)


def question(result: Recommendation) -> str:
    """Say what was asked."""
    verb = "Largest" if result.maximize else "Smallest"
    conditions = [
        f"{bound.metric} {'≥' if bound.name.startswith('min_') else '≤'} {bound.limit:g}"
        for bound in result.bounds
    ]
    return f"{verb} {result.objective}" + (f" with {' and '.join(conditions)}" if conditions else "")


def _headline(result: Recommendation) -> str:
    of = f"{result.admissible:,} of {result.settings_total:,} settings are admissible"
    if result.cell is None:
        return wrapped(f"{question(result)}: this store has no answer; {of}.")
    verdict = "settled" if result.settled else "the best so far, not settled"
    return wrapped(f"{question(result)}: {verdict}; {of}.")


def _choice(result: Recommendation) -> str:
    half = (result.high - result.low) / 2
    digits = digits_for([result.value], [half])
    own_axes = {k: v for k, v in result.settings.items() if k not in result.scenario_axes}
    scenario = {k: v for k, v in result.settings.items() if k in result.scenario_axes}
    lines = [f"Choice: {describe_settings(own_axes)}", f"  cell {result.cell}"]
    counted = seeds_words([result.seeds_done], result.seeds)
    if missing(half):
        interval = f"{'one seed' if result.seeds == 1 else counted}, no interval"
    else:
        interval = f"{result.confidence:.0%} interval over {counted}"
    if scenario:
        lines.append(f"  its figures at {describe_settings(scenario)}:")
    lines.append(
        f"  {result.objective} {with_half_width(result.value, half, digits)} {result.units} ({interval})"
    )
    f = result.figures
    steps = f"{fixed(f['seconds_per_update'], 1)} s per update"
    if GOODPUT in f:
        steps = (
            f"goodput {with_half_width(f[GOODPUT], f[f'{GOODPUT}_half_width'], 3)}, {steps}, lost ones too"
        )
    ess = "mean_expected_normalized_ess"
    lines.append(
        wrapped(
            f"ESS {with_half_width(f[ess], f[f'{ess}_half_width'], 4)}, mean lag {fixed(f['mean_lag'], 2)}, "
            f"largest lag {fixed(f['max_lag_observed'], 0)}, "
            f"{steps}, "
            f"{fixed(f['rollouts_per_batch'], 1)} rollouts per batch",
            "  ",
        )
    )
    return "\n".join(wrapped(line, "  ", "") if len(line) > terminal_width() else line for line in lines)


def _ties(result: Recommendation) -> str:
    rule = f"paired by seed, {result.confidence:.0%} for all {result.comparisons:,} comparisons together"
    if result.admissible == 1:
        return "It is the only admissible setting."
    if result.seeds_done < 2:
        return ""
    if not result.ties:
        return wrapped(f"Every other admissible setting is worse ({rule}).")
    at = "every seed" if result.seeds_done == result.seeds else "every seed that is done"
    identical = [tie for tie in result.ties if tie.identical]
    equal = [tie for tie in result.ties if tie.equal]
    different = [tie for tie in result.ties if not tie.identical and not tie.equal][:MOST_TIES]
    blocks = []
    if identical:
        blocks.append(wrapped(f"The same run at {at}: {_named(identical, result.identical)}."))
    if equal:
        which = f"Equal in {result.objective} and ESS at {at}, not in all metrics"
        blocks.append(wrapped(f"{which}: {_named(equal, result.equal)}."))
    if different:
        own = [name for name in result.settings if name not in result.scenario_axes]
        rows = [_tie_row(tie, own) for tie in different]
        header = ["against the choice", "ESS", "lag", "same"]
        if any(tie.halted_runs for tie in different):
            header.append("halted")
            for (_, cells), tie in zip(rows, different):
                cells.append(f"{tie.halted_runs} of {tie.runs}" if tie.halted_runs else "")
        blocks.append(
            wrapped(f"Cannot be told apart from it ({rule}):") + "\n" + grid_with_settings(own, header, rows)
        )
        rest = result.different - result.equal - sum(1 + tie.twins for tie in different)
        if rest:
            blocks.append(f"and {rest:,} more.")
    return "\n".join(blocks)


def _named(ties: Sequence[Alternative], count: int) -> str:
    """Name the first of so many settings."""
    names = "; ".join(describe_settings(tie.settings) for tie in ties[:MOST_TIES])
    rest = count - min(len(ties), MOST_TIES)
    return f"{names}; and {rest:,} more" if rest else names


def _tie_row(tie: Alternative, axes: list[str]) -> tuple[list[Any], list[str]]:
    return (
        [tie.settings[name] for name in axes],
        [
            percent_interval(tie.share, tie.low, tie.high),
            fixed(tie.ess, 4),
            fixed(tie.lag, 2),
            f"+{tie.twins}" if tie.twins else "",
        ],
    )


def _bounds(result: Recommendation) -> str:
    if not result.bounds:
        return ""
    lines = ["What the bounds cost"]
    for bound in result.bounds:
        lines.append(wrapped(bound_sentence(bound, result.cell is None), "    ", "  "))
    return "\n".join(lines)


def bound_sentence(bound: BoundReport, nothing_admissible: bool) -> str:
    """Say what a bound costs, or how near anything comes to it."""
    name = f"{bound.name} = {bound.limit:g}"
    if nothing_admissible:
        if bound.first_step is None:
            return f"{name}: no setting has a value of {bound.metric}."
        others = "" if bound.keeps_others else ", which breaks another bound too,"
        return (
            f"{name}: the nearest setting{others or ','} {describe_settings(bound.first_step.settings)}, has "
            f"{_level(bound, bound.first_limit)} (cell {bound.first_step.cell})."
        )
    if not bound.binds:
        return f"{name} does not bind; the choice has {_level(bound, bound.level)}."
    assert bound.first_step is not None
    assert bound.without is not None
    text = (
        f"{name} binds. At {_limit(bound, bound.first_limit)}: {_gain(bound.first_step)} by "
        f"{describe_settings(bound.first_step.settings)}."
    )
    if bound.without.cell != bound.first_step.cell:
        text += f" Without it: {_gain(bound.without)} by {describe_settings(bound.without.settings)}."
    else:
        text += " No more without it."
    return text


def _gain(step: Alternative) -> str:
    return percent_interval(step.share, step.low, step.high)


def _level(bound: BoundReport, value: float | None) -> str:
    if missing(value) or value is None:
        return "none"
    words = {"min_ess": f"ESS {value:.4f}", "min_goodput": f"goodput {value:.4f}"}
    return words.get(bound.name, f"a largest lag of {value:g}")


def _limit(bound: BoundReport, value: float | None) -> str:
    if value is None or missing(value):
        return "-"
    if bound.name == "max_lag":
        return f"{bound.name} = {value:g}"
    return f"{bound.name} = {math.floor(value * 1e4) / 1e4:g}"


def _limits(result: Recommendation) -> str:
    if not result.limits:
        return ""
    lines = ["Where time goes at the choice"]
    for part, shares in result.limits.items():
        shown = [
            f"{name} {share:.1%}"
            for name, share in sorted(shares.items(), key=lambda item: -item[1])
            if share >= 0.0005
        ]
        lines.append(wrapped(f"{part}: {', '.join(shown) or 'nothing ran'}", "    ", "  "))
    lines += [f"  {part}: not recorded" for part in CAUSES if part not in result.limits]
    return "\n".join(lines)


def _scenarios(result: Recommendation) -> str:
    if not result.scenarios:
        return ""
    axes = list(result.scenario_axes)
    rows = []
    shown, rest = worst_scenarios(result.scenarios)
    for report in shown:
        best = "the choice" if report.best.identical else describe_settings(report.best.settings)
        if missing(report.loss_low):
            verdict = f"{report.loss:.1%}"
        elif report.best.identical:
            verdict = "0"
        else:
            verdict = percent_interval(report.loss, report.loss_low, report.loss_high)
        rows.append(([report.scenario[name] for name in axes], [verdict, best]))
    text = (
        f"{', '.join(axes)} is nobody's choice: the setting is chosen whose largest loss against each "
        "value's own best is smallest."
    )
    table = grid_with_settings(axes, ["loss", "best there"], rows)
    more = f"\nand {rest:,} more, none with a larger loss (--json: all of them)." if rest else ""
    return wrapped(text) + "\n" + table + more


def _doubts(result: Recommendation) -> str:
    if not result.doubts:
        return ""
    lines = ["What this store cannot settle"]
    for doubt in result.doubts:
        lines.append(wrapped(doubt.text, "    ", "  - "))
        if doubt.command:
            lines.append(f"      {doubt.command}")
    return "\n".join(lines)


def _assumptions(result: Recommendation) -> str:
    lines = [wrapped(f"ESS is the expected normalized ESS at {result.ess_basis}.")]
    if result.custom:
        lines.append(wrapped(f"The runs have rules of your own: {result.custom}."))
    if result.law_hint is not None and result.cell is not None:
        lines.append(wrapped(result.law_hint.text))
        if result.law_hint.command:
            lines.append(f"  {result.law_hint.command}")
    return "\n".join(lines)
