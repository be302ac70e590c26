"""A calibrated run: its steps with what was predicted of the held ones, and phases over their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .engine import SET_COLOURS
from .links import inline
from .style import GREY, HEIGHT, VERMILLION, WIDTH

PREDICTED = "predicted"
STEP_COLOURS = {**SET_COLOURS, PREDICTED: VERMILLION}


def steps_chart(
    rows: Sequence[Mapping[str, Any]], predicted: Mapping[str, float], title: str
) -> alt.LayerChart | alt.FacetChart:
    """Draw a quantity by step, fitted and held, with the prediction of the held ones as a line and its range.

    Parameters
    ----------
    rows : sequence of mapping
        ``step``, ``value``, ``set`` (``fitted on`` or ``held out``).
    predicted : mapping
        ``first``, ``last`` (steps), ``value``, ``low``, ``high``; empty where nothing is held.
    title : str
        Of the vertical axis.
    """
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=14, opacity=0.6)
        .encode(
            alt.X("step:Q", title="step", scale=alt.Scale(nice=False)),
            alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            alt.Color("set:N", scale=_sets(), legend=None),
            alt.Shape("set:N", scale=_shapes(), legend=None),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("value:Q", title=title, format=",.3~f"), "set:N"],
        )
    )  # fmt: skip
    if not predicted:
        return alt.layer(points).properties(width=WIDTH, height=200)
    own = alt.Chart(inline([dict(predicted)]))
    band = own.mark_rect(color=VERMILLION, opacity=0.18).encode(
        alt.X("first:Q"), alt.X2("last:Q"), alt.Y("low:Q"), alt.Y2("high:Q")
    )
    line = own.mark_rule(color=VERMILLION, strokeWidth=2).encode(
        alt.X("first:Q"), alt.X2("last:Q"), alt.Y("value:Q")
    )
    return alt.layer(band, points, line).properties(width=WIDTH, height=200)


def phase_chart(
    rows: Sequence[Mapping[str, Any]], line: Sequence[Mapping[str, float]], title: str
) -> alt.LayerChart | alt.FacetChart:
    """Draw the seconds of a phase over the tokens of its steps, with what was fitted.

    Parameters
    ----------
    rows : sequence of mapping
        ``tokens``, ``seconds``, ``set``.
    line : sequence of mapping
        Two points of ``tokens`` and ``seconds``.
    title : str
        Of the vertical axis.
    """
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=14, opacity=0.6)
        .encode(
            alt.X("tokens:Q", title="tokens of the step", scale=alt.Scale(zero=False, nice=False)),
            alt.Y("seconds:Q", title=title, scale=alt.Scale(zero=False)),
            alt.Color("set:N", scale=_sets(), legend=None),
            tooltip=[alt.Tooltip("tokens:Q", format=","), alt.Tooltip("seconds:Q", format=",.3~f"), "set:N"],
        )
    )  # fmt: skip
    fitted = (
        alt.Chart(inline(line))
        .mark_line(color=VERMILLION, strokeWidth=2)
        .encode(alt.X("tokens:Q"), alt.Y("seconds:Q"))
    )
    return alt.layer(points, fitted).properties(width=WIDTH, height=HEIGHT * 0.75)


def lengths_chart(
    rows: Sequence[Mapping[str, Any]], segments: Sequence[Mapping[str, float]]
) -> alt.LayerChart | alt.FacetChart:
    """Draw the mean response of each step, with the means of the segments that it was cut into.

    Parameters
    ----------
    rows : sequence of mapping
        ``step``, ``value``, ``set``.
    segments : sequence of mapping
        ``first``, ``last``, ``mean``.
    """
    points = (
        alt.Chart(inline(rows))
        .mark_point(filled=True, size=12, opacity=0.5)
        .encode(
            alt.X("step:Q", title="step", scale=alt.Scale(nice=False)),
            alt.Y("value:Q", title="mean response, tokens", scale=alt.Scale(zero=False)),
            alt.Color("set:N", scale=_sets(), legend=None),
            tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("value:Q", title="tokens", format=",.1f"), "set:N"],
        )
    )  # fmt: skip
    lines = (
        alt.Chart(inline(segments))
        .mark_rule(color=GREY, strokeWidth=2)
        .encode(alt.X("first:Q"), alt.X2("last:Q"), alt.Y("mean:Q"))
    )
    return alt.layer(points, lines).properties(width=WIDTH, height=180)


def _sets() -> alt.Scale:
    return alt.Scale(domain=list(SET_COLOURS), range=list(SET_COLOURS.values()))


def _shapes() -> alt.Scale:
    return alt.Scale(domain=list(SET_COLOURS), range=["circle", "square"])
