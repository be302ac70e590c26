"""A value with the ends that open inputs leave: one line a row, for a plan's splits and for its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline
from .style import BLUE, GREY, ORANGE, WIDTH

ROW = 28
KINDS = ["best", "other", "bound"]


def ends_chart(
    rows: Sequence[Mapping[str, Any]], *, title: str, middle: float | None = None
) -> alt.LayerChart:
    """Draw values with their ends.

    Parameters
    ----------
    rows : sequence of mappings
        ``label``, ``kind`` (what tells points apart: "best", "other"), ``value`` (or none), ``low``, ``high``
        (or none), ``shown`` (the words of the tooltip).
    title : str
        Of the axis.
    middle : float, optional
        A line across all rows.
    """
    labels = [row["label"] for row in rows]
    data = inline(rows)
    axis = alt.Axis(labelLimit=210, grid=True, ticks=False, domain=False)
    base = alt.Chart(data).encode(
        alt.Y("label:N", title=None, sort=labels, axis=axis),
        tooltip=[alt.Tooltip("label:N", title=" "), alt.Tooltip("shown:N", title=title)],
    )
    colour = alt.Color("kind:N", legend=None, scale=alt.Scale(domain=KINDS, range=[ORANGE, BLUE, GREY]))
    scale = alt.Scale(zero=False, nice=True)
    layers: list[Any] = []
    if middle is not None:
        line = alt.Chart(inline([{"middle": middle}])).mark_rule(color=GREY, strokeDash=[3, 3])
        layers.append(line.encode(alt.X("middle:Q")))
    layers += [
        base.mark_rule(strokeWidth=4, opacity=0.45).encode(
            alt.X("low:Q", title=title, scale=scale), alt.X2("high:Q"), colour
        ),
        base.mark_point(filled=True, size=70).encode(
            alt.X("value:Q", title=title, scale=scale),
            colour,
            shape=alt.Shape(
                "kind:N",
                legend=None,
                scale=alt.Scale(domain=KINDS, range=["diamond", "circle", "triangle-right"]),
            ),
        ),
    ]
    found: alt.LayerChart = alt.layer(*layers).properties(width=WIDTH, height=ROW * len(labels))  # type: ignore[assignment]
    return found
