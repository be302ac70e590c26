"""A metric along one axis: points with intervals, joined where the other axes stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..results.words import axis_words, metric_title
from .links import inline, listening, picking, shade
from .style import BLUE, HEIGHT, WIDTH, field, interval_tooltips, label_tooltip


def axis_chart(
    rows: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    axis: str,
    joined: bool,
    confidence: float = 0.95,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw the metric of every cell over one axis.

    Parameters
    ----------
    rows : sequence of mappings
        ``cell``, ``label``, the axis's value (by :func:`.style.field`), ``value``, ``low``, ``high``.
    joined : bool
        Draw a line through the cells, for a sweep with this axis alone.
    linked : bool
        A click picks a cell, and the parameter that other charts set highlights cells.
    """
    values = [row[field(axis)] for row in rows]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    kind = "Q" if numeric else "N"
    x = alt.X(
        f"{field(axis)}:{kind}",
        title=axis_words(axis).title,
        scale=alt.Scale(zero=False, padding=10, nice=False) if numeric else alt.Scale(),
        sort=None if not numeric else alt.Undefined,
        axis=_ticks(values) if numeric else alt.Axis(labelAngle=0),
    )
    y = alt.Y("value:Q", title=metric_title(metric), scale=alt.Scale(zero=False))
    data = inline(rows)
    base = alt.Chart(data).encode(x, opacity=shade(linked))
    points = base.mark_point(filled=True, size=50, color=BLUE).encode(
        y,
        tooltip=[label_tooltip(), *interval_tooltips("value", metric, ",.4f", confidence)],
    )
    layers = [
        base.mark_rule(strokeWidth=1.5, color=BLUE).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        picking(points, linked),
    ]
    if joined:
        layers.insert(0, alt.Chart(data).mark_line(color=BLUE, strokeWidth=1.5).encode(x, y))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT - 80)
    return listening(chart, linked)


def _ticks(values: Sequence[Any]) -> alt.Axis:
    """Mark the axis's own values while they are few."""
    distinct = sorted(set(values))
    form = "~s" if distinct and distinct[-1] >= 10_000 else ",~f"
    if len(distinct) <= 10:
        return alt.Axis(values=distinct, format=form)
    return alt.Axis(tickCount=6, format=form)
