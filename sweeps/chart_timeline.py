"""One run over time: the queue against its cap, the lag of each batch, and what the trainer was doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from lagsweep.sweeps.chart_links import inline
from lagsweep.sweeps.chart_style import BLUE, GREEN, GREY, VERMILLION, WIDTH

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
    no_title = alt.Axis(labels=False, ticks=False, title=None)
    queue = (
        alt.Chart(inline(levels))
        .mark_area(interpolate="step-after", color=BLUE, opacity=0.45, line={"color": BLUE, "strokeWidth": 1})
        .encode(
            alt.X("time:Q", scale=time, axis=no_title),
            alt.Y("tokens_high:Q", title="queue, tokens", axis=alt.Axis(format="~s")),
        )
    )
    marks = [
        {"level": level, "text": text}
        for level, text in ((cap, "cap"), (batch_tokens, "batch"))
        if level is not None
    ]
    lines = alt.Chart(inline(marks)).encode(alt.Y("level:Q"))
    queue_panel = alt.layer(
        queue,
        lines.mark_rule(color=GREY, strokeDash=[5, 3]),
        lines.mark_text(align="left", dx=4, color=GREY, fontSize=11).encode(
            x=alt.value("width"), text="text:N"
        ),
        *_warmup(warmup_seconds, time),
    ).properties(width=WIDTH, height=130)
    data = inline(batches)
    at_end = alt.X("end:Q", scale=time, axis=no_title)
    tooltip = [
        alt.Tooltip("update:Q", title="update"),
        alt.Tooltip("end:Q", title="ended, s", format=",.1f"),
        alt.Tooltip("mean_lag:Q", title="mean lag", format=".2f"),
        alt.Tooltip("max_lag:Q", title="largest lag"),
        alt.Tooltip("ess:Q", title="expected ESS", format=".4f"),
    ]
    lag = alt.Chart(data).encode(at_end, tooltip=tooltip)
    lag_panel = alt.layer(
        lag.mark_rule(color=VERMILLION, opacity=0.5).encode(
            alt.Y("mean_lag:Q", title="lag of a batch", axis=alt.Axis(tickMinStep=1)),
            alt.Y2("max_lag:Q"),
        ),
        lag.mark_point(filled=True, color=VERMILLION, size=28).encode(alt.Y("mean_lag:Q")),
        *_warmup(warmup_seconds, time),
    ).properties(width=WIDTH, height=100)
    steps = (
        alt.Chart(data)
        .mark_bar(color=GREEN, height=14)
        .encode(
            alt.X("start:Q", title="simulated time, s", scale=time),
            alt.X2("end:Q"),
            alt.Y("what:N", title=None, axis=alt.Axis(ticks=False, domain=False)),
            tooltip=tooltip,
        )
        .transform_calculate(what="'training'")
        .properties(width=WIDTH, height=24)
    )
    return alt.vconcat(queue_panel, lag_panel, steps, spacing=6)


def _warmup(seconds: float, time: alt.Scale) -> list[alt.Chart]:
    if not seconds:
        return []
    data = inline([{"from": 0, "to": seconds}])
    shade = alt.Chart(data).mark_rect(color=GREY, opacity=0.15)
    return [shade.encode(alt.X("from:Q", scale=time), alt.X2("to:Q"))]
