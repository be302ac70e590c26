"""Throughput against effective sample size: every cell with its intervals, the frontier, the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..results.words import axis_words, metric_title, short_label
from .links import brushing, inline, listening, picking, shade
from .marks import Marks
from .style import (
    BLUE,
    GREY,
    HEIGHT,
    WIDTH,
    field,
    interval_tooltips,
    plain_value,
)

# No setting looks like the baseline.
_STAR = "M-1,0L1,0M0,-1L0,1M-.7,-.7L.7,.7M-.7,.7L.7,-.7"


def frontier_rows(
    rows: Sequence[Mapping[str, Any]], throughput: str, ess: str, axes: Sequence[str], marks: Marks
) -> list[dict[str, Any]]:
    """Return the rows of a frontier as the chart takes them; cells without a value are left out.

    Parameters
    ----------
    rows : sequence of mappings
        Of ``Frontier.frame``.
    throughput, ess : str
        The two metrics.
    axes : sequence of str
    marks : Marks
        Which knows the axes whose values are words.
    """
    found = []
    for row in rows:
        x, y = plain_value(row[ess]), plain_value(row[throughput])
        if x is None or y is None:
            continue
        dx = plain_value(row[f"{ess}_half_width"]) or 0.0
        dy = plain_value(row[f"{throughput}_half_width"]) or 0.0
        found.append(
            {
                "cell": plain_value(row["cell"]),
                "label": short_label({name: row[name] for name in axes}),
                "x": x, "x_low": x - dx, "x_high": x + dx,
                "y": y, "y_low": y - dy, "y_high": y + dy,
                "lag": plain_value(row["mean_lag"]),
                "update": plain_value(row["seconds_per_update"]),
                "batch": plain_value(row["rollouts_per_batch"]),
                "on_frontier": bool(row["on_frontier"]),
                **{field(name): marks.value(name, row[name]) for name in axes},
            }
        )  # fmt: skip
    return found


def frontier_chart(
    rows: Sequence[Mapping[str, Any]],
    *,
    throughput: str,
    ess: str,
    axes: Sequence[str],
    marks: Marks,
    joined: bool = True,
    baseline: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw the frontier.

    Parameters
    ----------
    rows : sequence of mappings
        As :func:`frontier_rows` gives.
    marks : Marks
        Colours and shapes of the cells.
    joined : bool
        Draw the line through the frontier.
    baseline : mapping, optional
        The sequential baseline's means, by metric.
    confidence : float
        Of the intervals, for the tooltips.
    linked : bool
        Add a brush, and the parameter that other charts set to highlight cells; the page writes the legend.
    """
    data = inline(rows)
    x = alt.X(
        "x:Q",
        title=metric_title(ess),
        axis=alt.Axis(tickCount=7),
        scale=alt.Scale(zero=False, padding=12, nice=False),
    )
    y = alt.Y("y:Q", title=metric_title(throughput), scale=alt.Scale(zero=False, padding=12))
    look = marks.encodings(legend=not linked)
    colour = {name: channel for name, channel in look.items() if name == "color"}
    line = (
        alt.Chart(data)
        .transform_filter("datum.on_frontier")
        .mark_line(color=GREY, strokeWidth=1.5, strokeDash=[4, 3], interpolate="linear")
        .encode(x, y, alt.Order("x:Q"))
    )
    faded = shade(linked, 0.7)
    bars = (
        alt.Chart(data).mark_rule(strokeWidth=1.2, color=BLUE).encode(x, alt.Y("y_low:Q"), alt.Y2("y_high:Q"))
    )
    spans = (
        alt.Chart(data).mark_rule(strokeWidth=1.2, color=BLUE).encode(y, alt.X("x_low:Q"), alt.X2("x_high:Q"))
    )
    points = alt.Chart(data).mark_point(filled=True, stroke=None, color=BLUE)
    encodings: dict[str, Any] = {
        "opacity": shade(linked),
        "size": alt.condition("datum.on_frontier", alt.value(90), alt.value(38)),
        "tooltip": _tooltips(axes, throughput, ess, confidence),
    }
    bars, spans = bars.encode(**colour), spans.encode(**colour)
    points = points.encode(x, y, **encodings, **look)
    points = picking(brushing(points, linked), linked)
    layers = [*([line] if joined else []), bars.encode(opacity=faded), spans.encode(opacity=faded), points]
    layers += _baseline_layers(baseline, throughput, ess, x, y)
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return listening(chart, linked)


def _tooltips(axes: Sequence[str], throughput: str, ess: str, confidence: float) -> list[alt.Tooltip]:
    return [
        *(alt.Tooltip(f"{field(name)}:N", title=axis_words(name).title) for name in axes),
        *interval_tooltips("y", throughput, ",.1f", confidence, ("y_low", "y_high")),
        *interval_tooltips("x", ess, ".4f", confidence, ("x_low", "x_high")),
        alt.Tooltip("lag:Q", title="mean lag", format=".2f"),
        alt.Tooltip("update:Q", title="s per update", format=",.1f"),
        alt.Tooltip("batch:Q", title="rollouts per batch", format=",.1f"),
    ]


def _baseline_layers(
    baseline: Mapping[str, Any] | None, throughput: str, ess: str, x: alt.X, y: alt.Y
) -> list[alt.Chart]:
    if baseline is None or plain_value(baseline[throughput]) is None or plain_value(baseline[ess]) is None:
        return []
    value = {"x": plain_value(baseline[ess]), "y": plain_value(baseline[throughput]), "text": "sequential"}
    data = inline([value])
    mark = alt.Chart(data).mark_point(shape=_STAR, size=260, strokeWidth=1.8, opacity=1, color=GREY)
    text = alt.Chart(data).mark_text(align="right", dx=-10, fontSize=11, color=GREY)
    return [mark.encode(x, y), text.encode(x, y, alt.Text("text:N"))]
