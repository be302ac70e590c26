"""The charts of a report: each with a name, a title, a caption, and a drawing, linked or for a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np

from ..charts.along import axis_chart
from ..charts.difference import difference_chart
from ..charts.frontier import frontier_chart, frontier_rows
from ..charts.lag import lag_chart
from ..charts.panels import HEATMAP_METRICS, Panel, heatmap_panels
from ..charts.plots import lag_rows_of, thinned
from ..charts.shares import share_colours, share_rows, shares_chart
from ..charts.style import axis_title, metric_title, plain_value, short_label
from ..results.cells import axis_names, cell_values, mean_interval
from ..results.frontier import THROUGHPUT
from ..results.shares import baseline_shares, time_shares
from .content import EFFECTIVE, Content

MOST_AXES = 6
_SEQUENTIAL = -1  # the baseline's cell id in charts: no real cell has it


@dataclass(frozen=True)
class ReportChart:
    """One figure of a report.

    Attributes
    ----------
    name : str
        Of its files and its element.
    title, caption : str
        The caption says in words what the chart shows.
    draw : callable
        Gives the chart's specification; the argument says whether it is linked to the page's others.
    panels : tuple of Panel
        On the page, these side by side instead, each for several metrics.
    colours : mapping
        What stands for what, where the page writes the legend itself.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], alt.TopLevelMixin]
    panels: tuple[Panel, ...] = ()
    colours: Mapping[str, str] = field(default_factory=dict)


def report_charts(content: Content) -> list[ReportChart]:
    """Make every chart that the sweep has something for."""
    return [
        *_frontier(content),
        *_surfaces(content),
        *_shares(content),
        *_lags(content),
        *_differences(content),
    ]


def _frontier(content: Content) -> list[ReportChart]:
    found = content.found
    frame = thinned(found.frame, always=[one.cell for one in content.shown])
    rows = frontier_rows(frame.to_dicts(), found.throughput, found.ess, found.axes)
    if not rows:
        return []
    left_out = found.frame.height - frame.height
    caption = (
        "Up and right is better. Large points are on the frontier, joined by the dashed line; bars are "
        f"{content.confidence:.0%} intervals over seeds, often smaller than a point."
    )
    if left_out:
        caption += f" {left_out:,} of {found.frame.height:,} configurations are left out."

    def draw(linked: bool) -> alt.TopLevelMixin:
        return frontier_chart(
            rows,
            throughput=found.throughput,
            ess=found.ess,
            axes=found.axes,
            baseline=found.baseline,
            confidence=content.confidence,
            linked=linked,
        )

    return [ReportChart("frontier", "Throughput against effective sample size", caption, draw)]


def _surfaces(content: Content) -> list[ReportChart]:
    """Draw the whole surface: heatmaps of a grid, or the metric along each axis of anything else."""
    axes = axis_names(content.ds)
    if not axes:
        return []
    if "point" in content.ds.dims or len(axes) == 1:
        return [_along(content, axis, joined=len(axes) == 1) for axis in axes[:MOST_AXES]]
    panels = heatmap_panels(content.ds, HEATMAP_METRICS, confidence=content.confidence)
    shown = [name for name in (panels[0].x, panels[0].y) if name is not None]
    caption = (
        f"{' by '.join(axis_title(name) for name in shown)}; means over seeds, below them the half width of "
        f"the {content.confidence:.0%} interval."
    )
    if panels[0].where:
        caption += f" Shown {panels[0].where.lstrip('; ')}."

    def together(linked: bool) -> alt.TopLevelMixin:
        charts = [panel.chart(THROUGHPUT, legend=k == 0) for k, panel in enumerate(panels)]
        return alt.concat(*charts, columns=2, spacing=24)

    return [
        ReportChart(
            "heatmap",
            "The whole grid",
            caption,
            together,
            tuple(panels),
        )
    ]


def _along(content: Content, axis: str, *, joined: bool) -> ReportChart:
    ds, found = content.ds, content.found
    mean, half = mean_interval(cell_values(ds, THROUGHPUT), content.confidence)
    half = np.nan_to_num(half)
    places = {int(cell): place for place, cell in enumerate(ds["cell"].values.reshape(-1))}
    rows = []
    frame = thinned(found.frame, always=[one.cell for one in content.shown])
    for row in frame.iter_rows(named=True):
        place = places[row["cell"]]
        if np.isfinite(mean[place]):
            rows.append(
                {
                    "cell": row["cell"],
                    "label": short_label({name: row[name] for name in found.axes}),
                    axis: plain_value(row[axis]),
                    "value": plain_value(mean[place]),
                    "low": plain_value(mean[place] - half[place]),
                    "high": plain_value(mean[place] + half[place]),
                }
            )

    def draw(linked: bool) -> alt.TopLevelMixin:
        return axis_chart(
            rows,
            metric=THROUGHPUT,
            axis=axis,
            joined=joined,
            confidence=content.confidence,
            linked=linked,
        )

    title = f"{metric_title(THROUGHPUT).capitalize()} along {axis}"
    caption = f"One point a configuration, with its {content.confidence:.0%} interval over seeds."
    return ReportChart(f"along-{axis}", title, caption, draw)


def _shares(content: Content) -> list[ReportChart]:
    rows: dict[str, list[dict[str, Any]]] = {"trainer": [], "slots": [], "tokens": []}
    found = list(zip(content.shown, time_shares(content.ds, [one.place for one in content.shown])))
    for one, shares in found:
        for group, parts in share_rows(shares, one.cell, one.label).items():
            rows[group] += parts
    if content.found.baseline is not None:
        parts_of = share_rows(baseline_shares(content.ds), _SEQUENTIAL, "sequential")
        for group, parts in parts_of.items():
            rows[group] += parts
    captions = {
        "trainer": "The trainer: training, or what it waits for.",
        "slots": "The rollout slots: busy with a rollout, or idle and why.",
        "tokens": "The tokens that were generated: trained, thrown away as too old, or left over at the end.",
    }
    titles = {"trainer": "Where the trainer's time goes", "slots": "Where the slots' time goes",
              "tokens": "Where the tokens go"}  # fmt: skip
    return [
        ReportChart(
            f"where-{group}",
            titles[group],
            captions[group],
            _share_drawer(rows[group], group),
            colours=share_colours(rows[group]),
        )
        for group in rows
        if rows[group]
    ]


def _share_drawer(rows: list[dict[str, Any]], group: str) -> Callable[[bool], alt.TopLevelMixin]:
    return lambda linked: shares_chart(rows, group, linked=linked, legend=not linked)


def _lags(content: Content) -> list[ReportChart]:
    places, labels = [one.place for one in content.looked_at], [one.label for one in content.looked_at]
    rows = lag_rows_of(content.whole, places, content.confidence, labels) if places else []
    if not rows:
        return []
    caption = (
        "Share of the trained rollouts by lag, for the choice and others worth a look; bars are "
        f"{content.confidence:.0%} intervals over seeds."
    )

    def draw(linked: bool) -> alt.TopLevelMixin:
        return lag_chart(rows, confidence=content.confidence, linked=linked)

    return [ReportChart("lag", "How old the trained rollouts were", caption, draw)]


def _differences(content: Content) -> list[ReportChart]:
    if not content.differences:
        return []
    names = {THROUGHPUT: "trained tokens/s", EFFECTIVE: "effective tokens/s"}
    rows = [
        {
            "cell": one.shown.cell,
            "label": one.shown.label,
            "metric": names[one.metric],
            "share": plain_value(one.share),
            "low": plain_value(one.low if np.isfinite(one.low) else one.share),
            "high": plain_value(one.high if np.isfinite(one.high) else one.share),
        }
        for one in content.differences
    ]
    caption = (
        f"Against {content.reference}, seed by seed (every configuration of a seed sees the same rollouts), "
        f"with {content.confidence:.0%} intervals of the mean."
    )

    def draw(linked: bool) -> alt.TopLevelMixin:
        return difference_chart(
            rows, reference=content.reference, confidence=content.confidence, linked=linked
        )

    return [ReportChart("differences", f"Differences from {content.reference}", caption, draw)]
