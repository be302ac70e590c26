"""The lab's charts, as Vega-Lite specifications with their data inside.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; series also differ in shape or
dash. Axes carry units. Text takes its colour from where the chart stands (:mod:`.lab.files`).
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from .model import GIB, Chart

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
WIDTH, HEIGHT = 560, 260


def memory_chart(rows: list[dict[str, Any]], parts: tuple[str, ...]) -> Chart:
    """Stack the parts of the model's state."""
    values = [
        {"training": row["training"], "part": part, "gib": row[part], "place": place}
        for row in rows
        for place, part in enumerate(parts)
        if row[part] > 0
    ]
    order = [row["training"] for row in rows]
    layer = (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            alt.X("gib:Q", title="GiB"),
            alt.Y("training:N", title=None, sort=order, axis=alt.Axis(labelLimit=240)),
            alt.Color("part:N", title="part", sort=list(parts), scale=alt.Scale(range=COLOURS)),
            alt.Order("place:Q"),
        )
    )
    total = ", ".join(f"{row['training']} {row['total_gib']:.0f} GiB" for row in rows)
    return _finish("memory_state", "State of a 7B model", f"Stacked bars: {total}.", layer, height=150)


def phase_chart(phases: dict[str, dict[str, int]]) -> Chart:
    """Stack what is live in each phase."""
    names = list(dict.fromkeys(part for parts in phases.values() for part in parts))
    values = [
        {"phase": phase, "part": part, "gib": size / GIB, "place": place}
        for phase, parts in phases.items()
        for place, (part, size) in enumerate(parts.items())
    ]
    layer = (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            alt.X("gib:Q", title="live, GiB"),
            alt.Y("phase:N", title=None, sort=list(phases)),
            alt.Color("part:N", title="part", sort=names, scale=alt.Scale(range=[*COLOURS, "#999999"])),
            alt.Order("place:Q"),
        )
    )
    totals = ", ".join(f"{phase} {sum(parts.values()) / GIB:.0f} GiB" for phase, parts in phases.items())
    return _finish("overlap_phases", "Live memory by phase", f"Stacked bars: {totals}.", layer, height=120)


def queue_chart(levels: list[dict[str, Any]], cap: int, duration_seconds: float) -> Chart:
    """Draw the queue's level as steps, and the cap as a line."""
    loops = list(dict.fromkeys(level["loop"] for level in levels))
    steps = (
        alt.Chart(alt.Data(values=levels))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            alt.X("time:Q", title="simulated time, s", scale=alt.Scale(domain=[0, duration_seconds])),
            alt.Y("tokens:Q", title="queued, tokens"),
            alt.Color("loop:N", title="loop", sort=loops, scale=alt.Scale(range=COLOURS)),
            alt.StrokeDash("loop:N", sort=loops, legend=None),
        )
    )
    line = (
        alt.Chart(alt.Data(values=[{"cap": cap, "text": f"cap, {cap:,}"}]))
        .mark_rule(strokeDash=[2, 3], color="#888888", strokeWidth=2)
        .encode(alt.Y("cap:Q"))
    )
    deepest = max(level["tokens"] for level in levels)
    text = f"Queue level of two loops over time; the deepest is {deepest:,} tokens, the cap {cap:,}."
    return _finish("queue", "The queue over one run", text, steps + line)


def lag_chart(points: list[dict[str, Any]], drift_per_version: float) -> Chart:
    """Draw each batch: its mean lag and its effective sample size, and what one lag alone would give."""
    loops = list(dict.fromkeys(point["loop"] for point in points))
    lags = np.linspace(0.0, max(point["lag"] for point in points), 30)
    expected = [{"lag": float(lag), "ess": float(np.exp(-(drift_per_version**2) * lag))} for lag in lags]
    x = alt.X("lag:Q", title="mean lag of the batch, versions")
    y = alt.Y("ess:Q", title="normalized effective sample size", scale=alt.Scale(zero=False))
    batches = (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, opacity=0.6, size=35)
        .encode(
            x,
            y,
            alt.Color("loop:N", title="loop", sort=loops, scale=alt.Scale(range=COLOURS)),
            alt.Shape("loop:N", sort=loops, legend=None),
        )
    )
    curve = alt.Chart(alt.Data(values=expected)).mark_line(color="#888888", strokeDash=[4, 3]).encode(x, y)
    text = (
        f"{len(points)} batches of two loops: effective sample size scatters around a curve that falls as "
        "mean lag grows."
    )
    return _finish("staleness", "Lag and effective sample size, batch by batch", text, batches + curve)


def sweep_chart(rows: list[dict[str, Any]]) -> Chart:
    """Draw the sweep: throughput against effective sample size with intervals."""
    values = [
        {
            **row,
            "low": row["tokens"] - row["tokens_half"],
            "high": row["tokens"] + row["tokens_half"],
            "cap": f"{row['queue_cap']:,}",
        }
        for row in rows
    ]
    data = alt.Data(values=values)
    x = alt.X("ess:Q", title="expected normalized effective sample size", scale=alt.Scale(zero=False))
    lags = sorted({row["max_lag"] for row in rows})
    caps = [f"{cap:,}" for cap in sorted({row["queue_cap"] for row in rows})]
    colour = alt.Color("max_lag:O", title="lag limit", sort=lags, scale=alt.Scale(range=COLOURS))
    bars = alt.Chart(data).mark_rule().encode(x, alt.Y("low:Q", title=""), alt.Y2("high:Q"), colour)
    points = (
        alt.Chart(data)
        .mark_point(filled=True, size=55)
        .encode(
            x,
            alt.Y("tokens:Q", title="trained tokens/s", scale=alt.Scale(zero=False)),
            colour,
            alt.Shape("sync_cadence:O", title="cadence"),
            alt.Opacity("cap:N", title="queue cap", sort=caps, scale=alt.Scale(range=[1.0, 0.45])),
        )
    )
    text = (
        f"{len(rows)} configurations: trained tokens/s against expected effective sample size, 95% intervals."
    )
    return _finish("sweep", "Throughput against freshness", text, bars + points)


def cadence_chart(rows: list[dict[str, Any]]) -> Chart:
    """Draw what publishing less often saves and what it costs."""
    values = [
        {
            "text": f"every {row['sync_every']}",
            "lag": row["mean_lag"],
            "seconds": row["seconds_per_update"],
        }
        for row in rows
    ]
    points = alt.Chart(alt.Data(values=values)).encode(
        alt.X("seconds:Q", title="publication, s per update", scale=alt.Scale(domain=[0, 1])),
        alt.Y("lag:Q", title="mean lag, updates"),
    )
    line = points.mark_line(
        color=COLOURS[0], point=alt.OverlayMarkDef(filled=True, size=60, color=COLOURS[0])
    )
    labels = points.mark_text(align="left", dx=8, dy=-8, color="#888888").encode(text="text:N")
    text = (
        "Publishing every 1, 2, 4 and 8 updates: seconds per update fall by half each time, mean lag grows."
    )
    return _finish("sync_cadence", "Cadence: seconds against lag", text, line + labels)


def checkpoint_chart(intervals: np.ndarray, overheads: np.ndarray, rules: list[dict[str, Any]]) -> Chart:
    """Draw the exact overhead over the interval, and where the rules put it."""
    values = [
        {"interval": float(interval), "overhead": float(overhead)}
        for interval, overhead in zip(intervals, overheads)
    ]
    marks = [
        {"interval": rule["interval_seconds"], "overhead": rule["exact_overhead"], "rule": rule["rule"]}
        for rule in rules
        if rule["rule"] in ("Young, first order", "exact optimum")
    ]
    ends = alt.Scale(type="log", domain=[float(intervals[0]), float(intervals[-1])], nice=False)
    x = alt.X("interval:Q", title="work between two saves, s", scale=ends)
    y = alt.Y("overhead:Q", title="exact overhead", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False))
    curve = alt.Chart(alt.Data(values=values)).mark_line(color=COLOURS[0]).encode(x, y)
    points = (
        alt.Chart(alt.Data(values=marks))
        .mark_point(filled=True, size=80)
        .encode(
            x,
            y,
            alt.Color("rule:N", title="rule", scale=alt.Scale(range=COLOURS[1:3])),
            alt.Shape("rule:N", title="rule"),
        )
    )
    lowest = f"{overheads.min():.1%}"
    text = f"A curve that is flat around its lowest point of {lowest}; both rules stand on the flat part."
    return _finish("checkpoint_intervals", "The cost of saving too often or too seldom", text, curve + points)


def _finish(name: str, title: str, description: str, layer: Any, *, height: int = HEIGHT) -> Chart:
    """Give the layers one size and an axis style, and take the specification."""
    whole = layer.properties(width=WIDTH, height=height).configure_view(strokeOpacity=0)
    return Chart(name, title, description, whole.to_dict())
