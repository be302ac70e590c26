"""A metric over two axes as a heatmap: one tile a cell, with its mean and the half width of its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from ..results.numbers import short_number
from ..results.words import axis_words, metric_title
from .links import LIT, inline, listening, picking, shade
from .style import GREY, ON_DARK, ON_LIGHT, TILE_SCHEME, distinct, field

TILE, TILE_WIDTH = 40, 62
_GAPS = alt.Scale(paddingInner=0.012, paddingOuter=0)
MOST_LABELLED = 10  # tiles along an axis that still leave room for numbers


def number_format(metric: str, values: Sequence[float | None]) -> str:
    """Choose how a metric's numbers are written in tiles."""
    known = [abs(value) for value in values if value is not None]
    largest = max(known, default=0.0)
    if largest <= 1:
        return ".3f"
    return ",.0f" if largest >= 100 else ",.1f" if largest >= 10 else ".2f"


def tile_rows(rows: Sequence[Mapping[str, Any]], metric: str, x: str, y: str | None) -> list[dict[str, Any]]:
    """Return what the tiles of one metric need: the cell, its place, ``value`` and ``half``."""
    shown = [name for name in (x, y) if name is not None]
    half = f"{metric}_half_width"
    return [
        {
            "cell": row["cell"],
            **{field(name): row[name] for name in shown},
            "value": row[metric],
            "half": row[half],
        }
        for row in rows
    ]


def heatmap_chart(
    rows: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    x: str,
    y: str | None,
    domain: tuple[float, float],
    title: str | None = None,
    confidence: float = 0.95,
    legend: bool = True,
    linked: bool = False,
) -> alt.LayerChart:
    """Draw one heatmap.

    Parameters
    ----------
    rows : sequence of mappings
        ``cell``, the axes, ``<metric>`` and ``<metric>_half_width``.
    metric : str
    x, y : str
        The axes; y may be None for a single row of tiles.
    domain : (float, float)
        Of the colours; several heatmaps side by side share one.
    legend : bool
        Whether to show the colours' scale.
    linked : bool
        A click picks a cell, and the parameter that other charts set highlights cells.
    """
    low, high = domain
    columns = distinct([row[x] for row in rows])
    lines: list[Any] = distinct([row[y] for row in rows]) if y is not None else [None]
    form = number_format(metric, [low, high])
    shown = [name for name in (x, y) if name is not None]
    data = inline(tile_rows(rows, metric, x, y))
    title_x, axis_x = axis_words(x).title, _axis(columns, angle=0)
    encode: dict[str, Any] = {
        "x": alt.X(f"{field(x)}:O", title=title_x, sort=columns, axis=axis_x, scale=_GAPS)
    }
    if y is not None:
        name = axis_words(y).title
        name = name if len(lines) * TILE >= 110 else name.partition(",")[0]  # the unit has no room
        encode["y"] = alt.Y(f"{field(y)}:O", title=name, sort=lines[::-1], axis=_axis(lines), scale=_GAPS)
    tiles = (
        alt.Chart(data)
        .mark_rect()
        .encode(
            **encode,
            color=alt.Color(
                "value:Q",
                title=metric_title(metric),
                scale=alt.Scale(scheme=TILE_SCHEME, domain=[low, high]),
                legend=alt.Legend(format=form, orient="top", gradientLength=180) if legend else None,
            ),
            opacity=shade(linked, 1.0, 0.2),
            tooltip=[
                *(alt.Tooltip(f"{field(name)}:N", title=axis_words(name).title) for name in shown),
                alt.Tooltip("value:Q", title=metric, format=_finer(form)),
                alt.Tooltip("half:Q", title=f"± ({confidence:.0%})", format=_finer(form)),
            ],
        )
    )
    layers: list[alt.Chart] = [picking(tiles, linked)]
    if len(columns) <= MOST_LABELLED and len(lines) <= 2 * MOST_LABELLED:
        layers += _labels(data, encode, form, low, high, linked)
    chart = alt.layer(*layers).properties(
        width=alt.Step(TILE_WIDTH if len(columns) <= MOST_LABELLED else 14),
        height=(TILE if len(lines) <= 2 * MOST_LABELLED else 12) * len(lines),
    )
    if title is not None:
        chart = chart.properties(title=alt.TitleParams(title, anchor="start", fontSize=12))
    return listening(chart, linked)


def _labels(
    data: alt.Data, encode: dict[str, Any], form: str, low: float, high: float, linked: bool
) -> list[alt.Chart]:
    """Write mean and half width into each tile, dark on light colours and light on dark ones."""
    bright = f"datum.value > {low + 0.6 * (high - low)!r}"
    if linked:
        colour: Any = alt.when(f"!({LIT})").then(alt.value(GREY))
        colour = colour.when(bright).then(alt.value(ON_LIGHT)).otherwise(alt.value(ON_DARK))
    else:
        colour = alt.condition(bright, alt.value(ON_LIGHT), alt.value(ON_DARK))
    base = alt.Chart(data).transform_filter("isValid(datum.value)").encode(**encode, color=colour)
    means = base.mark_text(dy=-5, fontSize=11).encode(text=alt.Text("value:Q", format=form))
    halves = (
        base.transform_filter("isValid(datum.half)")
        .transform_calculate(text=f"'±' + format(datum.half, '{_finer(form)}')")
        .mark_text(dy=8, fontSize=9)
        .encode(text="text:N")
    )
    return [means, halves]


def _finer(form: str) -> str:
    return {",.0f": ",.1f", ",.1f": ",.2f", ".2f": ".3f", ".3f": ".4f"}[form]


def _axis(values: Sequence[Any], angle: int | None = None) -> alt.Axis:
    """Write large values short; of many values only some."""
    options: dict[str, Any] = {"labelLimit": 90, "ticks": False, "domain": False}
    if values and all(isinstance(value, int | float) for value in values):
        texts = {value: short_number(value) for value in values}
        if any(text != str(value) for value, text in texts.items()):
            options["labelExpr"] = (
                "{" + ", ".join(f"'{value}': '{text}'" for value, text in texts.items()) + "}[datum.label]"
                " || datum.label"
            )
        if angle is not None:
            options["labelAngle"] = angle
    if len(values) > 20:
        options["values"] = list(values)[:: -(-len(values) // 12)]
    return alt.Axis(**options)
