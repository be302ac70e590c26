"""Indices of sensitivity: bars with intervals, the strongest setting first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline
from .style import BLUE, GREY, SKY, WIDTH, plain_value

ROW = 34
_SOBOL = (("S1", "alone (S1)", SKY), ("ST", "with interactions (ST)", BLUE))
_MORRIS = (("sigma", "how it depends on others (sigma)", SKY), ("mu_star", "mean effect (mu*)", BLUE))
INDEX_COLOURS = {
    "sobol": {words: colour for _, words, colour in _SOBOL},
    "morris": {words: colour for _, words, colour in _MORRIS},
}


def indices_chart(
    rows: Sequence[Mapping[str, Any]], *, method: str, metric: str, units: str, legend: bool = True
) -> alt.LayerChart | alt.FacetChart:
    """Draw the indices of one metric.

    Parameters
    ----------
    rows : sequence of mappings
        ``axis`` and the columns of the method.
    method : {"sobol", "morris"}
    metric, units : str
    legend : bool
        With legend and title; a page has its own.
    """
    sobol = method == "sobol"
    kinds = _SOBOL if sobol else _MORRIS
    data = [
        {
            "axis": row["axis"],
            "index": words,
            "value": plain_value(row[name]),
            "low": plain_value(row[name] - row.get(f"{name}_half_width", 0.0)),
            "high": plain_value(row[name] + row.get(f"{name}_half_width", 0.0)),
        }
        for row in rows
        for name, words, _ in kinds
    ]
    names = [row["axis"] for row in rows]
    words = [text for _, text, _ in kinds]
    title = "share of the variance" if sobol else f"change, {units}"
    base = alt.Chart(inline(data)).encode(
        alt.Y("axis:N", title=None, sort=names, axis=alt.Axis(labelLimit=200, ticks=False, domain=False)),
        alt.YOffset("index:N", sort=words),
        alt.Color(
            "index:N",
            title=None,
            sort=words,
            scale=alt.Scale(domain=words, range=[colour for *_, colour in kinds]),
            legend=alt.Legend(orient="top", columns=1, labelLimit=300) if legend else None,
        ),
    )
    bars = base.mark_bar(height={"band": 0.8}).encode(
        alt.X("value:Q", title=title),
        tooltip=[
            alt.Tooltip("axis:N", title="setting"),
            alt.Tooltip("index:N", title="index"),
            alt.Tooltip("value:Q", title="value", format=".3g"),
            alt.Tooltip("low:Q", title="from", format=".3g"),
            alt.Tooltip("high:Q", title="to", format=".3g"),
        ],
    )
    ends = base.mark_rule(strokeWidth=1.5).encode(alt.X("low:Q"), alt.X2("high:Q"), color=alt.value(GREY))
    chart = alt.layer(bars, ends).properties(width=WIDTH, height=ROW * len(names) + 10)
    # On a page the figure's own title names the metric.
    return chart.properties(title=f"What moves {metric.replace('_', ' ')}") if legend else chart
