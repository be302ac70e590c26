"""What all charts share: colours that colour-blind readers can tell apart, titles with units, plain data.

Categories take the colours of Okabe and Ito and differ in shape or dash too; amounts take viridis, whose
lightness grows evenly. Charts name no text colour: the place where they stand gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..results.text import number

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F98",
)  # fmt: skip
CATEGORIES = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]
WIDTH, HEIGHT = 520, 320
FADED = 0.12
# Neither end of viridis shows as a small point on both light and dark; a dark page takes the other part.
POINT_SCHEME = {"name": "viridis", "extent": [0.0, 0.85]}

AXIS_TITLES = {
    "queue_cap": "queue cap, tokens",
    "max_lag": "max lag, versions",
    "sync_cadence": "sync cadence, updates",
}
# What fits a legend or a label.
SHORT_TITLES = {
    "queue_cap": "cap",
    "max_lag": "lag ≤",
    "sync_cadence": "sync",
    "response_length": "",
    "admission": "",
    "rollout_workers": "slots",
    "batch_tokens": "batch",
    "batch_groups": "batch",
    "train_tokens_per_second": "train/s",
    "decode_tokens_per_second": "decode/s",
    "train_overhead_seconds": "train s",
    "rollout_overhead_seconds": "rollout s",
    "sync_seconds": "sync s",
    "drift_per_version": "drift",
    "decode_slowdown_per_rollout": "slowdown",
    "environment_seconds": "env",
    "prompt_tokens": "prompt",
    "publication": "",
    "group_size": "group",
    "updates_per_batch": "updates",
    "prefetch_batches": "prefetch",
    "max_running_groups": "running",
    "queue_order": "",
    "stale_check": "stale",
}


def axis_title(name: str) -> str:
    """Name an axis with its unit.

    Examples
    --------
    >>> axis_title("queue_cap"), axis_title("train_tokens_per_second")
    ('queue cap, tokens', 'train tokens per second')
    """
    return AXIS_TITLES.get(name, name.replace("_", " "))


def metric_title(name: str) -> str:
    """Name a metric with its unit.

    Examples
    --------
    >>> metric_title("trained_tokens_per_second"), metric_title("mean_lag")
    ('trained tokens per second', 'lag, mean over batches of the batch mean, versions')
    """
    from ...kernels.pipeline.metrics import METRIC_BY_NAME

    metric = METRIC_BY_NAME.get(name)
    if metric is None:
        return name.replace("_", " ")
    units = "" if metric.units in ("1", "tokens/s") else f", {metric.units}"
    return f"{metric.long_name}{units}"


def short_label(settings: Mapping[str, Any]) -> str:
    """Name a configuration in few letters.

    Examples
    --------
    >>> short_label({"queue_cap": 240000, "max_lag": 2, "sync_cadence": 1})
    'cap 240k, lag ≤ 2, sync 1'
    """
    return ", ".join(
        f"{SHORT_TITLES.get(name, name.replace('_', ' '))} {short_number(value)}".strip()
        for name, value in settings.items()
    )


def short_number(value: Any) -> str:
    """Write a value in few letters.

    Examples
    --------
    >>> short_number(240000), short_number(1500), short_number(0.5), short_number("reserve")
    ('240k', '1500', '0.5', 'reserve')
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= 10_000:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:.4g}{letter}"
    return number(value)


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give rows as JSON has them: Python numbers, None for NaN."""
    return [{name: plain_value(value) for name, value in row.items()} for row in rows]


def plain_value(value: Any) -> Any:
    """Give a number as JSON has it, rounded to what a chart can show."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def ordinal_scale(alt: Any, values: Sequence[Any]) -> Any:
    """Choose colours for the values of an axis: categories while they are few, else viridis."""
    if len(values) <= len(CATEGORIES):
        return alt.Scale(domain=list(values), range=CATEGORIES[: len(values)])
    return alt.Scale(domain=list(values), scheme=POINT_SCHEME)
