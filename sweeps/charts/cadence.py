"""A metric along the checkpoint cadence: a line for each failure rate and scope, its best, the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from ..results.cadence import CadenceCurve
from ..results.cells import GOODPUT
from ..results.words import metric_title
from .links import inline, listening, picking, shade
from .marks import DASHES, Mark, by_label
from .style import CATEGORIES, HEIGHT, SHAPES, WIDTH, interval_tooltips, label_tooltip, plain_value

_SCOPES = ("full", "weights_only")


def cadence_marks(curves: Sequence[CadenceCurve]) -> dict[str, Mark]:
    """Give each curve a look: the failure rate its colour, the scope its shape and dash."""
    rates = list(dict.fromkeys(curve.mtbf_seconds for curve in curves))
    found = {}
    for curve in curves:
        colour, scope = rates.index(curve.mtbf_seconds), _SCOPES.index(curve.scope)
        dash = tuple(DASHES[scope])
        found[curve.label] = Mark(CATEGORIES[colour % len(CATEGORIES)], SHAPES[scope], dash)
    return found


def cadence_rows(curves: Sequence[CadenceCurve], metric: str) -> list[dict[str, Any]]:
    """Return a row for each cell: its curve, cadence, mean with interval, and whether it is the best one."""
    rows = []
    for curve in curves:
        goodput = metric == GOODPUT
        means, halves = (
            (curve.goodput, curve.goodput_half) if goodput else (curve.effective, curve.effective_half)
        )
        best = int(np.nanargmax(means))
        for place, (mean, half) in enumerate(zip(means, np.nan_to_num(halves))):
            if np.isfinite(mean):
                rows.append(
                    {
                        "cell": int(curve.cells[place]),
                        "label": curve.label,
                        "every": int(curve.cadences[place]),
                        "value": plain_value(mean),
                        "low": plain_value(mean - half),
                        "high": plain_value(mean + half),
                        "best": place == best,
                    }
                )
    return rows


def optimum_rows(curves: Sequence[CadenceCurve]) -> list[dict[str, Any]]:
    """Return where the exact optimum of each failure rate stands, in updates: that of its first curve."""
    found: dict[float, dict[str, Any]] = {}
    for curve in curves:
        if curve.mtbf_seconds is not None and "exact" in curve.rules:
            row = {"label": curve.label, "every": plain_value(curve.rules["exact"])}
            found.setdefault(curve.mtbf_seconds, row)
    return list(found.values())


def cadence_chart(
    rows: Sequence[Mapping[str, Any]],
    optima: Sequence[Mapping[str, Any]],
    marks: Mapping[str, Mark],
    *,
    metric: str,
    confidence: float = 0.95,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw the curves.

    Parameters
    ----------
    rows, optima : sequence of mappings
        As :func:`cadence_rows` and :func:`optimum_rows` give them.
    marks : mapping of str to Mark
    metric : str
    linked : bool
        Clicks pick cells; the page writes the legend.
    """
    cadences = sorted({row["every"] for row in rows})
    x = alt.X(
        "every:Q",
        title="a checkpoint every … updates",
        scale=alt.Scale(type="log", base=2, domain=[cadences[0] / 1.15, cadences[-1] * 1.15], nice=False),
        axis=alt.Axis(values=cadences, format="d", grid=False, labelOverlap=True),
    )
    form = ".0%" if metric == GOODPUT else ",~f"
    title = "goodput, share of the time with data" if metric == GOODPUT else metric_title(metric)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(format=form))
    look = by_label(marks, dashes=True)
    legend = None if linked else alt.Legend(orient="top", columns=1, labelLimit=320)
    for name in ("color", "shape", "strokeDash"):
        look[name].legend = legend
    base = alt.Chart(inline(rows)).encode(x, color=look["color"], opacity=shade(linked))
    inside = [row for row in optima if cadences[0] <= row["every"] <= cadences[-1]]
    precise = ".4f" if metric == GOODPUT else ",.1f"
    points = base.mark_point(filled=True).encode(
        y,
        fill=look["fill"],
        shape=look["shape"],
        size=alt.condition("datum.best", alt.value(150), alt.value(40)),
        tooltip=[
            label_tooltip(),
            alt.Tooltip("every:Q", title="checkpoint every"),
            *interval_tooltips("value", metric_title(metric), precise, confidence),
        ],
    )
    layers = [
        alt.Chart(inline(inside))
        .mark_rule(strokeWidth=1.2, strokeDash=[2, 3])
        .encode(x, color=look["color"], tooltip=[alt.Tooltip("every:Q", title="optimum", format=".1f")]),
        base.mark_line(strokeWidth=1.5).encode(y, strokeDash=look["strokeDash"]),
        base.mark_rule(strokeWidth=1.5).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        picking(points, linked),
    ]
    if not inside:
        layers = layers[1:]
    return listening(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT - 40), linked)


def cadence_gist(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Say where each curve is highest, and its ends."""
    parts = []
    for label in dict.fromkeys(row["label"] for row in rows):
        own = [row for row in rows if row["label"] == label]
        best = next(row for row in own if row["best"])
        ends = f"{own[0]['value']:,.4g} at {own[0]['every']}, {own[-1]['value']:,.4g} at {own[-1]['every']}"
        parts.append(f"{label}: most at {best['every']}, {best['value']:,.4g} ({ends})")
    return f"{metric_title(metric)}. " + "; ".join(parts) + "."
