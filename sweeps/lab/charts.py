"""The lab's charts: those of sweeps where there is one, and what only the lab draws, in the same style."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from ..charts.images import specification
from ..charts.links import inline
from ..charts.plots import chart_of
from ..charts.shares import part_rows, stacked_bars
from ..charts.style import BLUE, CATEGORIES, GREY, HEIGHT, SHAPES, WIDTH
from ..results.frontier import Frontier
from .model import GIB, Chart

PARTS = [*CATEGORIES, GREY]


def memory_chart(rows: list[dict[str, Any]], parts: tuple[str, ...]) -> Chart:
    """Stack the parts of the model's state."""
    bars = {row["training"]: {part: row[part] for part in parts} for row in rows}
    total = ", ".join(f"{row['training']} {row['total_gib']:.0f} GiB" for row in rows)
    return _stacked("memory_state", "State of a 7B model", f"Stacked bars: {total}.", bars)


def phase_chart(phases: dict[str, dict[str, int]]) -> Chart:
    """Stack what is live in each phase."""
    bars = {phase: {part: size / GIB for part, size in parts.items()} for phase, parts in phases.items()}
    total = ", ".join(f"{phase} {sum(parts.values()):.0f} GiB" for phase, parts in bars.items())
    return _stacked("overlap_phases", "Live memory by phase", f"Stacked bars: {total}.", bars)


def _stacked(name: str, title: str, description: str, bars: dict[str, dict[str, float]]) -> Chart:
    parts = dict.fromkeys(part for sizes in bars.values() for part in sizes)
    rows = [
        row for place, (label, sizes) in enumerate(bars.items()) for row in part_rows(sizes, place, label)
    ]
    x = alt.X("share:Q", title="GiB")
    tip = alt.Tooltip("share:Q", title="GiB", format=",.2f")
    return _finished(name, title, description, stacked_bars(rows, dict(zip(parts, PARTS)), x, tip))


def _of_loops(rows: list[dict[str, Any]]) -> tuple[alt.Color, list[str]]:
    loops = list(dict.fromkeys(row["loop"] for row in rows))
    scale = alt.Scale(domain=loops, range=CATEGORIES[: len(loops)])
    return alt.Color("loop:N", title=None, sort=loops, scale=scale), loops


def queue_chart(levels: list[dict[str, Any]], cap: int, duration_seconds: float) -> Chart:
    """Draw the queue's level as steps, and the cap as a line."""
    colour, loops = _of_loops(levels)
    steps = (
        alt.Chart(inline(levels))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            alt.X("time:Q", title="simulated time, s", scale=alt.Scale(domain=[0, duration_seconds])),
            alt.Y("tokens:Q", title="queue, tokens"),
            colour,
            alt.StrokeDash("loop:N", sort=loops, legend=None),
        )
    )
    line = alt.Chart(inline([{"cap": cap}])).mark_rule(strokeDash=[5, 3], color=GREY, strokeWidth=2)
    deepest = max(level["tokens"] for level in levels)
    text = f"Queue level of two loops over time; the deepest is {deepest:,} tokens, the cap {cap:,}."
    return _finished("queue", "The queue over one run", text, steps + line.encode(alt.Y("cap:Q")))


def lag_chart(points: list[dict[str, Any]], drift_per_version: float) -> Chart:
    """Draw each batch: its mean lag and its effective sample size, and what one lag alone would give."""
    colour, loops = _of_loops(points)
    lags = np.linspace(0.0, max(point["lag"] for point in points), 30)
    expected = [{"lag": float(lag), "ess": float(np.exp(-(drift_per_version**2) * lag))} for lag in lags]
    x = alt.X("lag:Q", title="mean lag of the batch, versions")
    y = alt.Y("ess:Q", title="normalized effective sample size", scale=alt.Scale(zero=False))
    shape = alt.Shape("loop:N", title=None, sort=loops, scale=alt.Scale(domain=loops, range=SHAPES[:2]))
    batches = alt.Chart(inline(points)).mark_point(filled=True, opacity=0.6, size=35)
    curve = alt.Chart(inline(expected)).mark_line(color=GREY, strokeDash=[4, 3]).encode(x, y)
    text = (
        f"{len(points)} batches of two loops: effective sample size scatters around a curve that falls as "
        "mean lag grows."
    )
    title = "Lag and effective sample size, batch by batch"
    return _finished("staleness", title, text, batches.encode(x, y, colour, shape) + curve)


def sweep_chart(swept: Frontier) -> Chart:
    """Draw the sweep: throughput against effective sample size with intervals."""
    text = (
        f"{swept.frame.height} configurations: trained tokens/s against expected effective sample size, 95% "
        "intervals. Large points are beaten by no other in both."
    )
    return _finished("sweep", "Throughput against freshness", text, chart_of(swept))


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
    points = alt.Chart(inline(values)).encode(
        alt.X("seconds:Q", title="publication, s per update", scale=alt.Scale(domain=[0, 1])),
        alt.Y("lag:Q", title="mean lag, updates"),
    )
    line = points.mark_line(color=BLUE, point=alt.OverlayMarkDef(filled=True, size=60, color=BLUE))
    labels = points.mark_text(align="left", dx=8, dy=-8, color=GREY).encode(text="text:N")
    text = (
        "Publishing every 1, 2, 4 and 8 updates: seconds per update fall by half each time, mean lag grows."
    )
    return _finished("sync_cadence", "Cadence: seconds against lag", text, line + labels)


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
    curve = alt.Chart(inline(values)).mark_line(color=BLUE).encode(x, y)
    points = alt.Chart(inline(marks)).mark_point(filled=True, size=80)
    colour = alt.Color("rule:N", title=None, scale=alt.Scale(range=CATEGORIES[1:3]))
    lowest = f"{overheads.min():.1%}"
    text = f"A curve that is flat around its lowest point of {lowest}; both rules stand on the flat part."
    title = "The cost of saving too often or too seldom"
    drawn = curve + points.encode(x, y, colour, alt.Shape("rule:N", title=None))
    return _finished("checkpoint_intervals", title, text, drawn)


def real_lag_chart(rows: list[dict[str, Any]]) -> Chart:
    """Draw what an old policy's rollouts are worth to later ones, by level."""
    levels = {"token": "tokens", "sequence": "sequences", "sequence_geometric": "geometric means"}
    values = [
        {"lag": row["lag"], "ess": row[name], "level": words}
        for row in rows
        for name, words in levels.items()
    ]
    names = list(levels.values())
    colour = alt.Color("level:N", title=None, sort=names, scale=alt.Scale(domain=names, range=CATEGORIES[:3]))
    shape = alt.Shape("level:N", title=None, sort=names, scale=alt.Scale(domain=names, range=SHAPES[:3]))
    x = alt.X("lag:Q", title="lag, versions", axis=alt.Axis(tickMinStep=1))
    y = alt.Y("ess:Q", title="normalized effective sample size", scale=alt.Scale(domain=[0, 1]))
    points = alt.Chart(inline(values)).encode(x, y, colour)
    last = rows[-1]
    text = (
        f"Measured at lags 0 to {last['lag']}: at the last one {last['token']:.2f} over tokens, "
        f"{last['sequence']:.2f} over sequences, {last['sequence_geometric']:.2f} over geometric means."
    )
    drawn = points.mark_line() + points.mark_point(filled=True, size=50).encode(shape)
    return _finished("real_lags", "A real model's rollouts as they grow old", text, drawn)


def prediction_chart(rows: list[dict[str, Any]]) -> Chart:
    """Draw a step of each loop as predicted, with its range, and as measured, with its interval."""
    kinds = ["predicted from the loop in turn", "measured"]
    values = []
    for row in rows:
        half = row["measured_half"]
        ends = (
            (row["predicted"], row["low"], row["high"]),
            (row["measured"], row["measured"] - half, row["measured"] + half),
        )
        for kind, (value, low, high) in zip(kinds, ends):
            values.append({"loop": row["loop"], "kind": kind, "value": value, "low": low, "high": high})
    loops = [row["loop"] for row in rows]
    colour = alt.Color("kind:N", title=None, sort=kinds, scale=alt.Scale(domain=kinds, range=CATEGORIES[:2]))
    shape = alt.Shape("kind:N", title=None, sort=kinds, scale=alt.Scale(domain=kinds, range=SHAPES[:2]))
    base = alt.Chart(inline(values)).encode(
        alt.Y("loop:N", title=None, sort=loops), alt.YOffset("kind:N", sort=kinds), colour
    )
    x = alt.X("low:Q", title="step, s", scale=alt.Scale(zero=True))
    ranges = base.mark_rule(strokeWidth=2).encode(x, alt.X2("high:Q"))
    points = base.mark_point(filled=True, size=70).encode(alt.X("value:Q", title="step, s"), shape)
    text = "Seconds of a step: " + "; ".join(
        f"{row['loop']} {row['predicted']:.3g} predicted, {row['measured']:.3g} measured" for row in rows
    )
    return _finished("real_prediction", "Prediction and measurement", f"{text}.", ranges + points)


def _finished(name: str, title: str, description: str, drawn: Any) -> Chart:
    """Return a chart its size, unless it has one, and take the specification."""
    if drawn.height is alt.Undefined:
        drawn = drawn.properties(width=WIDTH, height=HEIGHT - 60)
    return Chart(name, title, description, specification(drawn))
