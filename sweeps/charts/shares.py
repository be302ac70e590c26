"""Where time, tokens or memory go: one stacked bar a row, in one colour for each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline, listening, picking, shade
from .style import COLOUR_OF_CAUSE, WIDTH, label_tooltip, plain_value

ROW = 22
WHERE = {
    "trainer": "Where the trainer's time goes",
    "slots": "Where the slots' time goes",
    "tokens": "Where the tokens go",
}
TITLES = {
    "trainer": "of the trainer's time",
    "slots": "of the slots' time",
    "tokens": "of the tokens",
}


def part_rows(shares: Mapping[str, float], cell: int, label: str) -> list[dict[str, Any]]:
    """Turn one bar's parts into rows; parts of nothing are left out."""
    return [
        {"cell": cell, "label": label, "what": what, "place": place, "share": plain_value(share)}
        for place, (what, share) in enumerate(shares.items())
        if share > 0
    ]


def share_colours(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the colour of each cause that occurs."""
    used = {row["what"] for row in rows}
    return {name: colour for name, colour in COLOUR_OF_CAUSE.items() if name in used}


def shares_chart(
    rows: Sequence[Mapping[str, Any]], group: str, *, linked: bool = False, legend: bool = True
) -> alt.Chart:
    """Draw one group of shares, a bar a cell.

    Parameters
    ----------
    rows : sequence of mappings
        As :func:`part_rows` gives of causes.
    group : {"trainer", "slots", "tokens"}
    linked : bool
        A click picks a cell, and the parameter that other charts set highlights cells.
    legend : bool
        Without it :func:`share_colours` says what the colours mean.
    """
    x = alt.X("share:Q", title=TITLES[group], axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    tip = alt.Tooltip("share:Q", title="share", format=".1%")
    return stacked_bars(rows, share_colours(rows), x, tip, linked=linked, legend=legend)


def stacked_bars(
    rows: Sequence[Mapping[str, Any]],
    colours: Mapping[str, str],
    x: alt.X,
    tip: alt.Tooltip,
    *,
    linked: bool = False,
    legend: bool = True,
) -> alt.Chart:
    """Draw a bar a label, its parts one after another.

    Parameters
    ----------
    rows : sequence of mappings
        As :func:`part_rows` gives.
    colours : mapping
        Of the parts, in the legend's order.
    x, tip
        What the lengths are.
    """
    labels, parts = list(dict.fromkeys(row["label"] for row in rows)), list(colours)
    rows_axis = alt.Axis(labelLimit=170, ticks=False, domain=False)
    chart = (
        alt.Chart(inline(rows))
        .mark_bar(height=ROW - 7)
        .encode(
            x,
            alt.Y("label:N", title=None, sort=labels, axis=rows_axis),
            alt.Color(
                "what:N",
                title=None,
                sort=parts,
                scale=alt.Scale(domain=parts, range=list(colours.values())),
                legend=alt.Legend(orient="top", columns=2, labelLimit=200) if legend else None,
            ),
            alt.Order("place:Q"),
            opacity=shade(linked, 1.0, 0.2),
            tooltip=[label_tooltip(), alt.Tooltip("what:N", title="what"), tip],
        )
        .properties(width=WIDTH, height=ROW * len(labels))
    )
    return listening(picking(chart, linked), linked)
