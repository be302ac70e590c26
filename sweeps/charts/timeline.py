"""One run over time: the queue against its cap, the lag of each batch, and what the trainer was doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from .links import inline
from .style import BLUE, GREEN, GREY, VERMILLION, WIDTH

MOST_STEPS = 4000


def timeline_chart(
    levels: Sequence[Mapping[str, Any]],
    batches: Sequence[Mapping[str, Any]],
    *,
    cap: int | None,
    batch_tokens: int | None,
    warmup_seconds: float,
    end_seconds: float,
) -> alt.VConcatChart:
    """Draw one run.

    Parameters
    ----------
    levels : sequence of mappings
        ``time``, ``tokens`` and ``tokens_high``: the queue after each event, or the span of several.
    batches : sequence of mappings
        ``start``, ``end``, ``mean_lag``, ``max_lag``, ``ess``, ``update``.
    cap, batch_tokens : int, optional
        Drawn as lines.
    """
    time = alt.Scale(domain=[0, end_seconds], nice=False)
    shade = _warmup(warmup_seconds, time)
    data = inline(batches)
    return alt.vconcat(
        _queue(levels, cap, batch_tokens, time, shade),
        _lags(data, time, shade),
        _steps(data, time),
        spacing=6,
    )


_NO_TITLE = alt.Axis(labels=False, ticks=False, title=None)
_TOOLTIP = [
    alt.Tooltip("update:Q", title="update"),
    alt.Tooltip("end:Q", title="ended, s", format=",.1f"),
    alt.Tooltip("mean_lag:Q", title="mean lag", format=".2f"),
    alt.Tooltip("max_lag:Q", title="largest lag"),
    alt.Tooltip("ess:Q", title="expected ESS", format=".4f"),
]


def _queue(
    levels: Sequence[Mapping[str, Any]],
    cap: int | None,
    batch_tokens: int | None,
    time: alt.Scale,
    shade: list[alt.Chart],
) -> alt.LayerChart | alt.FacetChart:
    """Draw the queue's level, with the cap and a batch's tokens as lines."""
    queue = (
        alt.Chart(inline(levels))
        .mark_area(interpolate="step-after", color=BLUE, opacity=0.45, line={"color": BLUE, "strokeWidth": 1})
        .encode(
            alt.X("time:Q", scale=time, axis=_NO_TITLE),
            alt.Y("tokens_high:Q", title="queue, tokens", axis=alt.Axis(format="~s")),
        )
    )
    marks = [
        {"level": level, "text": text}
        for level, text in ((cap, "cap"), (batch_tokens, "batch"))
        if level is not None
    ]
    lines = alt.Chart(inline(marks)).encode(alt.Y("level:Q"))
    names = lines.mark_text(align="left", dx=4, color=GREY, fontSize=11)
    return alt.layer(
        queue,
        lines.mark_rule(color=GREY, strokeDash=[5, 3]),
        names.encode(x=alt.value("width"), text="text:N"),
        *shade,
    ).properties(width=WIDTH, height=130)


def _lags(data: alt.Data, time: alt.Scale, shade: list[alt.Chart]) -> alt.LayerChart | alt.FacetChart:
    """Draw each batch's mean lag, with a line up to its largest."""
    lag = alt.Chart(data).encode(alt.X("end:Q", scale=time, axis=_NO_TITLE), tooltip=_TOOLTIP)
    spans = lag.mark_rule(color=VERMILLION, opacity=0.5).encode(
        alt.Y("mean_lag:Q", title="lag of a batch", axis=alt.Axis(tickMinStep=1)), alt.Y2("max_lag:Q")
    )
    points = lag.mark_point(filled=True, color=VERMILLION, size=28).encode(alt.Y("mean_lag:Q"))
    return alt.layer(spans, points, *shade).properties(width=WIDTH, height=100)


def _steps(data: alt.Data, time: alt.Scale) -> alt.Chart:
    """Draw when the trainer trained."""
    return (
        alt.Chart(data)
        .mark_bar(color=GREEN, height=14)
        .encode(
            alt.X("start:Q", title="simulated time, s", scale=time),
            alt.X2("end:Q"),
            alt.Y("what:N", title=None, axis=alt.Axis(ticks=False, domain=False)),
            tooltip=_TOOLTIP,
        )
        .transform_calculate(what="'training'")
        .properties(width=WIDTH, height=24)
    )


def _warmup(seconds: float, time: alt.Scale) -> list[alt.Chart]:
    if not seconds:
        return []
    data = inline([{"from": 0, "to": seconds}])
    shade = alt.Chart(data).mark_rect(color=GREY, opacity=0.15)
    return [shade.encode(alt.X("from:Q", scale=time), alt.X2("to:Q"))]
