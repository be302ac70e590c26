"""Where time and tokens go: one stacked bar a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline, listening, picking, shade
from .style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, WIDTH

ROW = 22

# What is useful first, in one colour everywhere; then the reasons for losing time.
_COLOURS = {
    "training": BLUE,
    "busy": BLUE,
    "trained": BLUE,
    "waits: batch not full": ORANGE,
    "waits for running groups": PURPLE,
    "waits for a publication": SKY,
    "idle: queue cap": ORANGE,
    "idle: other phase": GREY,
    "idle: publication": SKY,
    "idle: most running groups": PURPLE,
    "idle: one batch at a time": GREEN,
    "idle: admission limits": VERMILLION,
    "discarded as too old": VERMILLION,
    "left at the end": GREY,
}
TITLES = {
    "trainer": "of the trainer's time",
    "slots": "of the slots' time",
    "tokens": "of the tokens",
}


def share_rows(
    shares: Mapping[str, Mapping[str, float]], cell: int, label: str
) -> dict[str, list[dict[str, Any]]]:
    """Turn one cell's shares into rows by group (trainer, slots, tokens)."""
    from .style import plain_value

    return {
        group: [
            {"cell": cell, "label": label, "what": what, "place": place, "share": plain_value(share)}
            for place, (what, share) in enumerate(parts.items())
            if share == share and share > 0
        ]
        for group, parts in shares.items()
    }


def share_colours(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Give the colour of each part that occurs."""
    used = {row["what"] for row in rows}
    return {name: colour for name, colour in _COLOURS.items() if name in used}


def shares_chart(
    rows: Sequence[Mapping[str, Any]], group: str, *, linked: bool = False, legend: bool = True
) -> alt.Chart:
    """Draw one group of shares, a bar a cell.

    Parameters
    ----------
    rows : sequence of mappings
        As :func:`share_rows` gives for the group.
    group : {"trainer", "slots", "tokens"}
    linked : bool
        A click picks a cell, and the parameter that other charts set highlights cells.
    legend : bool
        Without it :func:`share_colours` says what the colours mean.
    """
    labels = list(dict.fromkeys(row["label"] for row in rows))
    colours = share_colours(rows)
    parts = list(colours)
    rows_axis = alt.Axis(labelLimit=170, ticks=False, domain=False)
    chart = (
        alt.Chart(inline(rows))
        .mark_bar(height=ROW - 7)
        .encode(
            alt.X("share:Q", title=TITLES[group], axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
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
            tooltip=[
                alt.Tooltip("label:N", title="configuration"),
                alt.Tooltip("what:N", title="what"),
                alt.Tooltip("share:Q", title="share", format=".1%"),
            ],
        )
        .properties(width=WIDTH, height=ROW * len(labels))
    )
    return listening(picking(chart, linked), linked)
