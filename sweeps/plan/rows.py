"""A plan's rows: one a cell, with what is known of it and how; the best of each split, and its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .carrying_out import Simulated
from .cells import Cell
from .question import Question
from .ranges import Span
from .screening import Bound

if TYPE_CHECKING:
    import polars

SIMULATED, BOUNDED, INFEASIBLE, REDUNDANT = "simulated", "bounded", "infeasible", "redundant"
STALLED = "stalled"
_HOUR = 3600.0


@dataclass(frozen=True)
class PlanRow:
    """A cell with what is known of it.

    Attributes
    ----------
    cell : Cell
    bound : Bound or None
        None where the cell is not feasible.
    result : Simulated or None
        None where it was not simulated.
    span : Span or None
        What the inputs leave open, of simulated cells.
    place : int or None
        Of its point in the plan's sweep.
    """

    cell: Cell
    bound: Bound | None = None
    result: Simulated | None = None
    span: Span | None = None
    place: int | None = None

    @property
    def status(self) -> str:
        """``simulated``, ``bounded``, ``stalled``, ``infeasible`` or ``redundant``."""
        if self.cell.reasons:
            same = all(one.kind == "same" for one in self.cell.reasons)
            return REDUNDANT if same else INFEASIBLE
        if self.result is None:
            return BOUNDED
        return STALLED if self.result.stalled else SIMULATED

    @property
    def speed(self) -> float:
        """Effective tokens per second; 0 where they were not simulated."""
        return self.result.effective_tokens_per_second if self.result and self.status == SIMULATED else 0.0

    def figures(self, gpus: int, price: float | None) -> dict[str, Any]:
        """Return the figures of a row by name; None where they are not known.

        Seconds and GPU-hours have ends ``_low`` (all inputs at the fast end) and ``_high``.
        """
        found: dict[str, Any] = dict.fromkeys(_FIGURES)
        if self.bound is not None:
            found["bound_seconds_per_update"] = self.bound.bound_seconds
            found["bound_by"] = self.bound.binding
        one, span = self.result, self.span
        if one is None or self.status != SIMULATED:
            return found
        effective = one.effective_tokens_per_second
        found |= {
            "seconds_per_update": one.seconds_per_update,
            "seconds_per_update_half_width": one.seconds_half_width,
            "effective_tokens_per_second": effective,
            "effective_tokens_per_second_half_width": one.effective_half_width,
            "trained_tokens_per_second": one.trained_tokens_per_second,
            "mean_lag": one.mean_lag,
            "largest_lag": one.largest_lag,
            "ess": one.ess,
            "trainer_waits": one.trainer_waits,
            "rollouts_wait": one.rollouts_wait,
            "gpu_hours_per_update": gpus * one.seconds_per_update / _HOUR,
            "gpu_hours_per_million": _hours(gpus, effective),
        }
        if span is not None:
            found |= {
                "seconds_per_update_low": one.seconds_per_update * span.fast,
                "seconds_per_update_high": one.seconds_per_update * span.slow,
                "effective_tokens_per_second_low": effective * span.slow_effective,
                "effective_tokens_per_second_high": effective * span.fast_effective,
                "gpu_hours_per_million_low": _hours(gpus, effective * span.fast_effective),
                "gpu_hours_per_million_high": _hours(gpus, effective * span.slow_effective),
                "range_from": span.source,
            }
        if price is not None:
            for end in ("", "_low", "_high"):
                hours = found[f"gpu_hours_per_million{end}"]
                found[f"cost_per_million{end}"] = None if hours is None else hours * price
        return found


_ENDS = ("", "_low", "_high")
_FIGURES = (
    "bound_seconds_per_update",
    "bound_by",
    *(f"seconds_per_update{end}" for end in ("", "_half_width", "_low", "_high")),
    *(f"effective_tokens_per_second{end}" for end in ("", "_half_width", "_low", "_high")),
    "trained_tokens_per_second",
    "mean_lag",
    "largest_lag",
    "ess",
    "trainer_waits",
    "rollouts_wait",
    "gpu_hours_per_update",
    *(f"gpu_hours_per_million{end}" for end in _ENDS),
    *(f"cost_per_million{end}" for end in _ENDS),
    "range_from",
)
_TEXTS = ("bound_by", "range_from")


def _hours(gpus: int, tokens_per_second: float) -> float:
    """Return GPU-hours for a million tokens."""
    return math.inf if not tokens_per_second else gpus / _HOUR * 1e6 / tokens_per_second


def ordered(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Sort rows: simulated ones by what they train, then by bound, then what cannot be."""
    rank = {SIMULATED: 0, STALLED: 1, BOUNDED: 2, REDUNDANT: 3, INFEASIBLE: 4}

    def key(row: PlanRow) -> tuple[float, float, float]:
        bound = math.inf if row.bound is None else row.bound.bound_seconds
        return rank[row.status], -row.speed, bound

    return sorted(rows, key=key)


def best_of_splits(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the best row of each split, colocated engines first; a bounded one where none was simulated."""
    found: dict[tuple[bool, int], PlanRow] = {}
    for row in ordered(rows):
        if row.cell.is_feasible:
            found.setdefault((not row.cell.is_colocated, row.cell.rollout_gpus), row)
    return [found[key] for key in sorted(found)]


def neighbours(rows: Sequence[PlanRow], best: PlanRow, question: Question) -> list[PlanRow]:
    """Return the feasible rows that differ from the best in one setting, by one place where it is ordered."""
    by_key = {row.cell.key: row for row in rows if row.cell.is_feasible}
    at = best.cell
    found = []
    orders: list[tuple[int, Sequence[Any]]] = [
        (0, question.rollout_gpus),
        (1, question.tensor_parallel),
        (3, question.caps),
        (4, question.cadences),
    ]
    for place, values in orders:
        here = list(values).index(at.key[place]) if at.key[place] in values else None
        if here is None:
            continue
        for other in (here - 1, here + 1):
            if 0 <= other < len(values):
                key = (*at.key[:place], values[other], *at.key[place + 1 :])
                found += [by_key[key]] if key in by_key else []
    for rules in question.systems:
        key = (*at.key[:2], rules, *at.key[3:])
        if rules != at.rules and key in by_key:
            found.append(by_key[key])
    return found


def reasons_of(rows: Sequence[PlanRow]) -> list[dict[str, Any]]:
    """Count what stands against cells: by kind, with the cell that lacks least.

    Returns
    -------
    list of dict
        ``kind``, ``cells``, ``least`` (the reason that lacks least) and ``cell`` (its settings).
    """
    found: dict[str, list[tuple[float, str, Cell]]] = {}
    for row in rows:
        if row.status == INFEASIBLE:
            for one in row.cell.reasons:
                if one.kind != "same":
                    found.setdefault(one.kind, []).append((one.amount, one.text, row.cell))
    return [
        {"kind": kind, "cells": len(all_of), "least": least[1], "cell": settings_of(least[2])}
        for kind, all_of in found.items()
        for least in [min(all_of, key=lambda one: one[0])]
    ]


def settings_of(cell: Cell) -> dict[str, Any]:
    """Return what a cell sets, by name."""
    return {
        "rollout_gpus": cell.rollout_gpus,
        "train_gpus": cell.train_gpus,
        "tensor_parallel": cell.tensor_parallel,
        "engines": cell.engines,
        "rules": str(cell.rules),
        "cap": cell.cap,
        "cadence": cell.cadence,
    }


def row_dict(row: PlanRow, gpus: int, price: float | None) -> dict[str, Any]:
    """Return a row as plain data."""
    first = row.cell.reasons[0] if row.cell.reasons else None
    return {
        **settings_of(row.cell),
        "status": row.status,
        **row.figures(gpus, price),
        "why": "; ".join(one.text for one in row.cell.reasons),
        "missing": None if first is None else first.amount,
        "missing_unit": None if first is None else first.unit,
    }


def frame_of(rows: Sequence[PlanRow], gpus: int, price: float | None) -> polars.DataFrame:
    """Return rows as a frame, the best first."""
    import polars as pl

    plain = [row_dict(row, gpus, price) for row in ordered(rows)]
    whole = ("rollout_gpus", "train_gpus", "tensor_parallel", "engines", "cap", "cadence", "largest_lag")
    texts = ("rules", "status", "why", "missing_unit", *_TEXTS)
    kinds: dict[str, Any] = {
        name: pl.Int64 if name in whole else pl.String if name in texts else pl.Float64 for name in plain[0]
    }
    return pl.DataFrame(plain, schema=kinds)
