"""A search as text: the choice, the statement and what it does not cover, the candidates, the runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..results.numbers import digits_for, fixed, missing, with_half_width
from ..results.text import grid_with_settings, wrapped
from ..results.words import describe_settings

if TYPE_CHECKING:
    from .result import SearchResult

MOST_ROWS = 12


def search_text(result: SearchResult) -> str:
    """Write a search's answer."""
    blocks = [_question(result), _choice(result), _statement(result), _table(result), _runs(result)]
    blocks += [wrapped(f"- {doubt}", "  ", "") for doubt in result.doubts]
    return "\n\n".join(block for block in blocks if block)


def _question(result: SearchResult) -> str:
    asked = " and ".join(
        f"{'largest' if sense == 'maximize' else 'smallest'} {metric}"
        for metric, sense, _ in result.objectives
    )
    limits = [
        f"{metric} {'≥' if name.startswith('min_') else '≤'} {limit:g}"
        for name, metric, limit in result.bounds
    ]
    conditions = f" with {' and '.join(limits)}" if limits else ""
    return wrapped(
        f"{asked[0].upper()}{asked[1:]}{conditions}: {result.tried:,} settings tried, "
        f"{result.admissible:,} of them admissible."
    )


def _choice(result: SearchResult) -> str:
    if not result.settings:
        return ""
    half = (result.high - result.low) / 2
    metric, _, units = result.objectives[0]
    digits = digits_for([result.value], [half])
    seeds = int(result.candidates["seeds"][0])
    return "\n".join(
        [
            wrapped(f"Choice: {describe_settings(result.settings)}", "  ", ""),
            wrapped(
                f"{metric} {with_half_width(result.value, half, digits)} {units} "
                f"({result.confidence:.0%} interval over {seeds:,} fresh seeds)",
                "  ",
            ),
        ]
    )


def _statement(result: SearchResult) -> str:
    """Say what is guaranteed, and what is not."""
    count = result.candidates.height
    if len(result.objectives) == 2:
        if not count:
            return ""
        return wrapped(
            f"Kept are the candidates that no other one beats in both objectives beyond doubt "
            f"({result.confidence:.0%} for all comparisons together). That does not cover settings that were "
            f"not among the {count:,} candidates."
        )
    if not result.settings:
        return ""
    if not result.decided:
        return wrapped(
            f"Not settled: the budget ended before one of the {count:,} candidates was the best with "
            f"probability {result.confidence:.0%}. The same command with a larger --budget settles it."
        )
    return wrapped(
        f"With probability {result.confidence:.0%} or more it is the best of {count:,} candidates, if the "
        f"best leads by {100 * result.indifference:g} % of its mean or more (paired runs with fresh seeds; "
        f"Kim and Nelson, 2001). That covers chance in the runs alone: not settings that were never tried or "
        f"never became candidates, and not whether the model fits your pipeline."
    )


def _table(result: SearchResult) -> str:
    frame = result.candidates.head(MOST_ROWS)
    if not frame.height:
        return ""
    axes = [name for name in frame.columns if name.startswith("axis.")]
    metrics = [metric for metric, _, _ in result.objectives]
    digits = {
        metric: digits_for(frame[metric].to_list(), frame[f"{metric}_half_width"].to_list())
        for metric in metrics
    }
    rows: list[tuple[list[Any], list[str]]] = [
        (
            [row[axis] for axis in axes],
            [
                *(
                    with_half_width(row[metric], row[f"{metric}_half_width"], digits[metric])
                    for metric in metrics
                ),
                fixed(row["ess"], 3),
                fixed(row["lag"], 2),
                f"{row['seeds']:,}",
                row["verdict"],
            ],
        )
        for row in frame.iter_rows(named=True)
    ]
    units = {metric: unit for metric, _, unit in result.objectives}
    header = [
        *(f"{metric.replace('_', ' ')}\n{units[metric]}" for metric in metrics),
        "ESS",
        "lag",
        "seeds",
        "verdict",
    ]
    text = grid_with_settings([axis.removeprefix("axis.") for axis in axes], header, rows)
    more = result.candidates.height - frame.height
    return text + (f"\nand {more:,} more candidates" if more else "")


def _runs(result: SearchResult) -> str:
    explored = sum(runs for stage, runs in result.runs.items() if not stage.startswith("select"))
    selected = result.total_runs - explored
    text = f"{result.total_runs:,} runs: {explored:,} to explore, {selected:,} with fresh seeds to select."
    if result.equal_runs > selected:
        text += (
            f" The same guarantee without leaving candidates out on the way would take {result.equal_runs:,}."
        )
    if not missing(result.points) and not math.isinf(result.points):
        text += f" The whole grid has {int(result.points):,} points."
    kept = "" if result.folder is None else f"\nKept in {result.folder}"
    return wrapped(text) + kept
