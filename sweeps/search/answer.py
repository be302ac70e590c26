"""From the stages to the answer: the choice with its figures, the table of candidates, and what to doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from ...kernels.intervals import mean_interval
from ..results.words import describe_settings
from ..runs.diagnosis import too_short_for_an_update
from ..spec.axes import label
from .question import Question
from .result import SearchResult
from .selecting import Judged
from .space import Point, Space
from .stages import Stages, Tried, why_stalled


def answer(
    space: Space,
    stages: Stages,
    asked: dict[str, Any],
    tried: Sequence[Tried],
    kept: Sequence[Tried],
    twins: Mapping[int, int],
    judged: Judged | None,
) -> SearchResult:
    """Put together what a search gives."""
    question = stages.question
    best = judged.best if judged is not None else None
    value = half = float("nan")
    if judged is not None and best is not None:
        mean, width = mean_interval(judged.values[0][best], asked["confidence"])
        value, half = float(mean), float(width)
    settings = {} if best is None else kept[best].point
    return SearchResult(
        objectives=tuple(
            (metric, "maximize" if sense > 0 else "minimize", question.unit(metric))
            for metric, sense in question.objectives
        ),
        bounds=tuple((bound.name, bound.metric, bound.limit) for bound in question.bounds),
        settings=dict(settings),
        value=value,
        low=value - half,
        high=value + half,
        decided=judged is not None and judged.decided,
        confidence=asked["confidence"],
        indifference=asked["indifference"],
        candidates=candidate_frame(question, kept, twins, judged, asked),
        runs=dict(stages.spent),
        tried=len(tried),
        admissible=sum(one.admissible for one in tried),
        refused=space.refused,
        points=space.size,
        equal_runs=judged.most_values * len(kept) if judged is not None else 0,
        doubts=_doubts(space, stages, tried, kept, judged),
        folder=stages.folder,
        config=None if best is None else stages.config(settings),
    )


def _doubts(
    space: Space,
    stages: Stages,
    tried: Sequence[Tried],
    kept: Sequence[Tried],
    judged: Judged | None,
) -> tuple[str, ...]:
    found = []
    question = stages.question
    if judged is None:
        nearest = min(tried, key=lambda one: one.shortfall)
        found.append(
            f"no setting that was tried trains in every run"
            f"{' and keeps the bounds' if question.bounds else ''}; "
            f"the nearest is {describe_settings(nearest.point)}"
        )
        config = stages.config(nearest.point)
        short = too_short_for_an_update(config)
        why = f"the run is too short there: {short}" if short else why_stalled(config, [config.seed])
        found += [why] if why else []
    if space.refused and space.reason is not None:
        found.append(
            f"{space.refused:,} points were not tried since they contradict themselves or break a "
            f"constraint; the first: {space.reason.field} {space.reason.rule}"
        )
    if judged is not None and judged.best is not None:
        found += [
            f"the choice has {name} = {kept[judged.best].point[name]}, an end of its range: look beyond it"
            for name in _at_ends(space, kept[judged.best].point)
        ]
        for bound in question.bounds:
            if bound.name == "max_lag" and judged.largest_lag[judged.best] > bound.limit:
                found.append(
                    f"in some later run of the choice a rollout of lag "
                    f"{judged.largest_lag[judged.best]:g} was trained, above the limit {bound.limit:g}"
                )
            if bound.name == "min_ess" and judged.ess[judged.best] < bound.limit:
                found.append(
                    f"over all its fresh seeds the choice has an ESS of {judged.ess[judged.best]:.4f}, just "
                    f"below the limit {bound.limit:g}"
                )
    stalled = [] if judged is None else sorted({*np.flatnonzero(judged.stalled).tolist(), *judged.halted})
    if judged is not None and stalled:
        first = kept[stalled[0]]
        why = why_stalled(
            stages.config(first.point), range(judged.first_seed, judged.first_seed + judged.looks)
        )
        found.append(
            f"{len(stalled):,} candidates are left out since a run of theirs stalled or trained nothing, as "
            f"{describe_settings(first.point)}{f': {why}' if why else ''}"
        )
    return tuple(found)


def _at_ends(space: Space, point: Point) -> list[str]:
    """Name the axes of numbers of which the choice has the smallest or the largest value."""
    ends = []
    for axis in space.axes:
        if not axis.ordered or (axis.values is not None and len(axis.values) < 3):
            continue
        extremes = axis.values if axis.values is not None else (axis.given["from"], axis.given["to"])
        if point[axis.name] in (min(extremes), max(extremes)):
            ends.append(axis.name)
    return ends


def candidate_frame(
    question: Question,
    kept: Sequence[Tried],
    twins: Mapping[int, int],
    judged: Judged | None,
    asked: Mapping[str, Any],
) -> pl.DataFrame:
    """Lay out the candidates, best first: those that were not left out, then by how long they stayed."""
    rows = []
    margin = np.nan
    if judged is not None and judged.best is not None:  # the least gain that is no worse in practice
        best = question.objectives[0][1] * float(np.nanmean(judged.values[0][judged.best]))
        margin = best - asked["indifference"] * abs(best)
    for place, one in enumerate(kept if judged is not None else ()):
        assert judged is not None
        row: dict[str, Any] = {f"axis.{name}": label(value) for name, value in one.point.items()}
        row["twins"] = twins.get(place, 0)
        for number, (metric, sense) in enumerate(question.objectives):
            mean, half = mean_interval(judged.values[number][place], asked["confidence"])
            row[f"{metric}_explored"] = sense * one.gains[number]
            row[metric], row[f"{metric}_half_width"] = float(mean), float(half)
        row |= {
            "ess": float(judged.ess[place]),
            "lag": float(judged.lag[place]),
            "largest_lag": float(judged.largest_lag[place]),
            "seconds_per_update": float(judged.seconds[place]),
            "seeds": int(judged.seeds[place]),
            "verdict": _verdict(place, judged, question.objectives[0][1], margin),
        }
        rows.append(row)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if not rows:
        return frame.with_columns(pl.Series("verdict", [], dtype=pl.String))
    metric, sense = question.objectives[0]
    order = {"chosen": 0, "leads": 0, "kept": 1, "near": 2, "left out": 3, "breaks a bound": 4, "stalls": 4}
    return (
        frame.with_columns(
            pl.col("verdict").replace_strict(order, return_dtype=pl.Int64).alias("_order"),
            (pl.col(metric) * -sense).alias("_gain"),
            pl.when(pl.col("verdict") == "left out").then(-pl.col("seeds")).otherwise(0).alias("_stay"),
        )
        .sort("_order", "_stay", "_gain", maintain_order=True)
        .drop("_order", "_gain", "_stay")
    )


def _verdict(place: int, judged: Judged, sense: int, margin: float) -> str:
    """Say in a word what became of a candidate."""
    if place == judged.best:
        return "chosen" if judged.decided else "leads"
    if judged.stalled[place] or place in judged.halted:
        return "stalls"
    if not judged.kept[place]:
        return "breaks a bound"
    if judged.left_out_after[place] < 0:
        return "kept"
    return "near" if sense * float(np.nanmean(judged.values[0][place])) >= margin else "left out"
