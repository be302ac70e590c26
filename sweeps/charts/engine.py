"""An engine over time: what runs and waits, the cache, preemptions; and predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from .links import inline
from .style import BLUE, GREEN, GREY, HEIGHT, ORANGE, VERMILLION, WIDTH, plain_value

MOST_STEPS = 600
RUNNING, WAITING = "running", "waiting"
LEVEL_COLOURS = {RUNNING: BLUE, WAITING: VERMILLION}
SET_COLOURS = {"fitted on": GREY, "held out": BLUE}
SAMPLE_COLOURS = {"fitted on": BLUE, "far off, dropped": VERMILLION}
REQUEST_WORDS = {"preemptions": "preempted in the model"}


def thinned_levels(seconds: np.ndarray, levels: Mapping[str, np.ndarray], end: float) -> list[dict[str, Any]]:
    """Return levels over time, of many changes the highest in each of :data:`MOST_STEPS` spans of time.

    Parameters
    ----------
    seconds : ndarray
        When something changed, rising; levels hold from there to the next change.
    levels : mapping of str to ndarray
    end : float
        Of the time axis.

    Examples
    --------
    >>> thinned_levels(np.array([0.0, 2.0]), {"running": np.array([1, 0])}, 4.0)
    [{'seconds': 0.0, 'running': 1}, {'seconds': 2.0, 'running': 0}, {'seconds': 4.0, 'running': 0}]
    """
    places = np.arange(len(seconds))
    spans = places if len(places) <= MOST_STEPS else (seconds / end * MOST_STEPS).astype(np.int64)
    _, first = np.unique(spans, return_index=True)
    if not len(first):
        return []
    highest = {name: np.maximum.reduceat(values, first) for name, values in levels.items()}
    rows = [
        {
            "seconds": plain_value(seconds[place]),
            **{name: values[k].item() for name, values in highest.items()},
        }
        for k, place in enumerate(first)
    ]
    if rows[-1]["seconds"] < end:
        rows.append({**rows[-1], "seconds": plain_value(end)})
    return rows


def load_chart(
    rows: Sequence[Mapping[str, Any]], *, max_running: int | None, end: float
) -> alt.LayerChart | alt.FacetChart:
    """Draw the rollouts that run and those that wait."""
    base = alt.Chart(inline(rows)).encode(_time(end))
    lines = [
        base.mark_line(interpolate="step-after", color=colour, strokeWidth=1.5, strokeDash=dash).encode(
            alt.Y(f"{name}:Q", title="rollouts")
        )
        for (name, colour), dash in zip(LEVEL_COLOURS.items(), ([1, 0], [4, 2]))
    ]
    return alt.layer(*lines, *_rule(max_running, "most at once")).properties(width=WIDTH, height=180)


def cache_chart(
    rows: Sequence[Mapping[str, Any]], *, kv_cache_tokens: int | None, end: float
) -> alt.LayerChart | alt.FacetChart:
    """Draw the tokens of context in the cache, with a line at what it holds."""
    area = (
        alt.Chart(inline(rows))
        .mark_area(
            interpolate="step-after", color=GREEN, opacity=0.4, line={"color": GREEN, "strokeWidth": 1}
        )
        .encode(
            _time(end),
            alt.Y("kv_tokens:Q", title="tokens of context", axis=alt.Axis(format="~s")),
        )
    )
    return alt.layer(area, *_rule(kv_cache_tokens, "full")).properties(width=WIDTH, height=160)


def preemption_chart(rows: Sequence[Mapping[str, Any]], *, end: float) -> alt.Chart:
    """Draw how many rollouts have lost their cache so far."""
    return (
        alt.Chart(inline(rows))
        .mark_line(interpolate="step-after", color=ORANGE, strokeWidth=2)
        .encode(
            _time(end),
            alt.Y("preemptions:Q", title="preemptions so far", axis=alt.Axis(tickMinStep=1)),
        )
        .properties(width=WIDTH, height=120)
    )


def match_chart(
    rows: Sequence[Mapping[str, Any]],
    title: str,
    *,
    colours: Mapping[str, str] = SET_COLOURS,
    also: Mapping[str, str] = REQUEST_WORDS,
) -> alt.LayerChart | alt.FacetChart:
    """Draw what was predicted of each row against what was measured; the line is a perfect match.

    Parameters
    ----------
    rows : sequence of mapping
        With ``measured``, ``predicted``, ``request`` (the row's number), ``set`` and what `also` names.
    title : str
        What was measured, with its unit.
    colours : mapping of str to str
        The sets and their colours.
    also : mapping of str to str
        More numbers of a row for its tooltip, and their words.
    """
    values = [float(row[side]) for row in rows for side in ("measured", "predicted")]
    ends = [min(values), max(values)]
    scale = alt.Scale(domain=ends, nice=True, zero=False)
    line = (
        alt.Chart(inline([{"measured": end, "predicted": end} for end in ends]))
        .mark_line(color=GREY, strokeDash=[5, 3])
        .encode(alt.X("measured:Q", scale=scale), alt.Y("predicted:Q", scale=scale))
    )
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=22, opacity=0.65)
        .encode(
            alt.X("measured:Q", title=f"measured {title}", scale=scale),
            alt.Y("predicted:Q", title=f"predicted {title}", scale=scale),
            alt.Color("set:N", scale=_sets(colours), legend=None),
            tooltip=[
                alt.Tooltip("request:Q", title="row"),
                alt.Tooltip("measured:Q", format=",.2f"),
                alt.Tooltip("predicted:Q", format=",.2f"),
                *(alt.Tooltip(f"{name}:Q", title=words) for name, words in also.items()),
            ],
        )
    )
    return alt.layer(line, points).properties(width=WIDTH, height=HEIGHT)


def _sets(colours: Mapping[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def _time(end: float) -> alt.X:
    axis = alt.Axis(labelOverlap="parity", labelSeparation=8)
    return alt.X("seconds:Q", title="time, s", scale=alt.Scale(domain=[0, end], nice=False), axis=axis)


def _rule(level: int | None, text: str) -> list[alt.Chart]:
    """Draw a limit as a line with its name, if there is one."""
    if level is None:
        return []
    line = alt.Chart(inline([{"level": level, "text": text}])).encode(alt.Y("level:Q"))
    name = line.mark_text(align="right", baseline="bottom", dx=-4, dy=-2, color=GREY, fontSize=11)
    return [
        line.mark_rule(color=GREY, strokeDash=[5, 3]),
        name.encode(x=alt.value("width"), text="text:N"),
    ]
