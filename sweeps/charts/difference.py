"""Differences against one reference, seed by seed: a point and its interval for each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline, listening, picking, shade
from .marks import Mark, by_label
from .style import GREY, WIDTH, interval_tooltips, label_tooltip

ROW = 26
FILLED = [1.0, 0.0]  # how much of a point is filled, by its metric


def difference_chart(
    rows: Sequence[Mapping[str, Any]],
    marks: Mapping[str, Mark],
    *,
    reference: str,
    confidence: float = 0.95,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw relative differences, those of the first metric filled, of the second hollow.

    Parameters
    ----------
    rows : sequence of mappings
        ``cell``, ``label``, ``metric``, ``share``, ``low``, ``high``; two metrics at most.
    marks : mapping of str to Mark
        The colour and shape of each label.
    reference : str
        What the differences are against, for the axis.
    linked : bool
        A click picks a cell, and the parameter that other charts set highlights cells; the page writes the
        legend.
    """
    labels = list(dict.fromkeys(row["label"] for row in rows))
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    data = inline(rows)
    rows_axis = alt.Axis(labelLimit=170, grid=True, ticks=False, domain=False)
    look = by_label({label: marks[label] for label in labels})
    look["color"].legend = look["shape"].legend = None
    base = alt.Chart(data).encode(
        alt.Y("label:N", title=None, sort=labels, axis=rows_axis),
        look["color"],
        alt.YOffset("metric:N", sort=metrics),
        opacity=shade(linked),
    )
    legend = alt.Legend(orient="top", columns=1, labelLimit=300, symbolFillColor=GREY, symbolStrokeColor=GREY)
    filled = alt.FillOpacity(
        "metric:N",
        title=None,
        sort=metrics,
        scale=alt.Scale(domain=metrics, range=FILLED[: len(metrics)]),
        legend=None if linked else legend,
    )
    x = alt.X("share:Q", title=f"difference from {reference}", axis=alt.Axis(format="+%", tickCount=5))
    points = base.mark_point(size=55, strokeWidth=1.5).encode(
        x,
        shape=look["shape"],
        fill=look["fill"],
        fillOpacity=filled,
        tooltip=[
            label_tooltip(),
            alt.Tooltip("metric:N", title="metric"),
            *interval_tooltips("share", "difference", "+.2%", confidence),
        ],
    )
    zero = alt.Chart(inline([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3])
    chart = alt.layer(
        zero.encode(alt.X("zero:Q")),
        base.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), alt.X2("high:Q")),
        picking(points, linked),
    ).properties(width=WIDTH, height=ROW * len(labels))
    return listening(chart, linked)
