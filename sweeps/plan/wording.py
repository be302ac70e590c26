"""How a plan's settings and figures are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..engines.text import digits
from ..results.numbers import missing
from .inputs import Input
from .rows import PlanRow

LIMIT = "skyrl:max_staleness_steps="


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
    return f"lag limit {rules.removeprefix(LIMIT)}" if rules.startswith(LIMIT) else str(rules)


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


def value(one: Input, number: float) -> str:
    """Write a value of an input in its unit."""
    shown = digits(one.scale * number) if number >= 0 else f"-{digits(-one.scale * number)}"
    return f"{shown} {one.unit}".strip()


def ranged(figures: dict[str, Any], name: str) -> str:
    """Write a figure with the ends that the inputs leave, if it has any."""
    write = short if "million" in name else whole
    low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
    middle = write(figures[name])
    return middle if low is None or high is None else f"{middle} ({between([low, high], write)})"


def between(ends: Sequence[Any], write: Any = None) -> str:
    """Write two ends; a dash where one is not known."""
    low, high = (None if end is None else end for end in ends)
    if low is None or high is None:
        return "-"
    write = write or whole
    return f"{write(low)} to {write(high)}"


def whole(number: Any) -> str:
    """Write seconds and rates: whole ones from 100 on."""
    if missing(number):
        return "-"
    if math.isinf(number):
        return "does not fit"
    return f"{number:,.0f}" if number >= 100 else digits(float(number))


def short(number: Any) -> str:
    """Write a cost with three digits."""
    if missing(number):
        return "-"
    return "does not fit" if math.isinf(number) else digits(float(number))
