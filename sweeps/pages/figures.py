"""The charts of a report: each with a name, a title, a caption, and a drawing, linked or for a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from ...kernels.intervals import mean_interval
from ..charts.along import axis_chart
from ..charts.difference import difference_chart
from ..charts.gists import along_gist, difference_gist, frontier_gist, lag_gist, shares_gist
from ..charts.lag import lag_chart
from ..charts.marks import Legend, Mark, told_apart
from ..charts.panels import HEATMAP_METRICS, Panel, heatmap_panels
from ..charts.plots import (
    chart_of,
    chart_of_all,
    lag_rows_of,
    marks_by_label,
    marks_in,
    rows_of,
    scenario_words,
    thinned,
    titled,
)
from ..charts.shares import WHERE, part_rows, share_colours, shares_chart
from ..charts.style import GREY, axis_value, field, plain_value
from ..results.cells import axis_names, cell_values, not_recorded
from ..results.frontier import THROUGHPUT, Frontier
from ..results.shares import baseline_shares, time_shares
from ..results.shown import shown_text
from ..results.words import METRICS, axis_words, metric_title, short_label
from .content import Content
from .engine_runs import engine_figures
from .page import Figure, on_page

MOST_AXES = 6
_SEQUENTIAL = -1  # the baseline's cell id in charts: no real cell has it


@dataclass(frozen=True)
class Heatmaps(Figure):
    """Heatmaps side by side, each for several metrics; in a file, all of the first metric in one drawing."""

    panels: tuple[Panel, ...] = ()

    @property
    def places(self) -> list[str]:
        """Name the elements, one a panel."""
        return [f"chart-{self.name}-{k}" for k in range(len(self.panels))]

    @property
    def alternatives(self) -> list[str]:
        """Say what each panel shows of the first metric."""
        return [f"{self.title}. {panel.gist(HEATMAP_METRICS[0])}" for panel in self.panels]

    def variants(self) -> list[dict[str, Any]]:
        """Draw each panel for each metric."""
        found: list[dict[str, Any]] = [{} for _ in self.panels]
        for metric in self.panels[0].domains:
            drawn = on_page(self.panels[0].chart(metric, legend=False, linked=True), "")
            # The panels differ in their title and rows alone; drawing each would take a tenth of a second.
            for panel, variants in zip(self.panels, found):
                spec = {**drawn, "data": {"values": panel.chart_rows(metric)}}
                spec["description"] = shown_text(f"{self.title}. {panel.gist(metric)}", None)
                if panel.title is not None:
                    spec["title"] = {**drawn["title"], "text": panel.title}
                variants[metric] = spec
        return found


@dataclass(frozen=True)
class Frontiers(Figure):
    """The frontiers of several scenarios, each a chart of its own; in a file, all in one drawing."""

    drawn: tuple[Callable[[], Any], ...] = ()
    gists: tuple[str, ...] = ()

    @property
    def places(self) -> list[str]:
        """Name the elements, one a scenario."""
        return [f"chart-{self.name}-{k}" for k in range(len(self.drawn))]

    @property
    def alternatives(self) -> list[str]:
        """Say what each scenario's chart shows."""
        return [f"{self.title}. {gist}" for gist in self.gists]

    def variants(self) -> list[dict[str, Any]]:
        """Draw each scenario."""
        return [{"": on_page(draw(), words)} for draw, words in zip(self.drawn, self.alternatives)]


def report_charts(content: Content) -> list[Figure]:
    """Make every chart that the sweep has something for."""
    return [
        *_frontier(content),
        *_surfaces(content),
        *_shares(content),
        *engine_figures(content),
        *_lags(content),
        *_differences(content),
    ]


def _frontier(content: Content) -> list[Figure]:
    found, always = content.found, [one.cell for one in content.shown]
    if found.frame.drop_nans([found.throughput, found.ess]).is_empty():
        return []
    shown = sum(thinned(part.frame, always=always).height for _, part in content.scenarios)
    left_out = sum(part.frame.height for _, part in content.scenarios) - shown
    large = "" if found.alone else " Large points are on the frontier, joined by the dashed line;"
    caption = (
        f"Up and right is better.{large} Bars are {content.confidence:.0%} intervals over seeds, often "
        "smaller than a point."
    ).replace("; Bars", "; bars")
    if left_out:
        caption += f" {left_out:,} of {found.frame.height:,} configurations are left out."
    marks = marks_in(found)
    title = "Throughput against effective sample size"

    def draw(linked: bool) -> alt.TopLevelMixin:
        return chart_of_all(found, always=always)

    if not found.scenarios:
        gist = frontier_gist(rows_of(found, marks, always), found.throughput, found.ess)
        return [
            Figure(
                "frontier",
                title,
                caption,
                lambda linked: chart_of(found, marks, always=always, linked=linked),
                gist=gist,
                marks=marks.legends(),
            )
        ]
    nobody = " and ".join(axis_words(name).title for name in found.scenario_axes)
    caption += f" Nobody chooses {nobody}: each chart is one scenario, on axes of its own."
    if len(content.scenarios) < len(found.scenarios):
        caption += f" {len(content.scenarios)} of {len(found.scenarios)} scenarios are drawn."

    def one(values: dict[str, Any], part: Frontier) -> Callable[[], Any]:
        return lambda: titled(chart_of(part, marks, always=always, linked=True), scenario_words(values))

    gists = tuple(
        f"{scenario_words(values)}: "
        + frontier_gist(rows_of(part, marks, always), found.throughput, found.ess)
        for values, part in content.scenarios
    )
    drawn = tuple(one(values, part) for values, part in content.scenarios)
    return [
        Frontiers(
            "frontier", title, caption, draw, gist=gists[0], marks=marks.legends(), drawn=drawn, gists=gists
        )
    ]


def _surfaces(content: Content) -> list[Figure]:
    """Draw the whole surface: heatmaps of a grid, or the metric along each axis of anything else."""
    axes = axis_names(content.ds)
    if not axes:
        return []
    if "point" in content.ds.dims or len(axes) == 1:
        return [_along(content, axis, joined=len(axes) == 1) for axis in axes[:MOST_AXES]]
    metrics = [name for name in HEATMAP_METRICS if name not in not_recorded(content.ds)]
    panels = heatmap_panels(content.ds, metrics, confidence=content.confidence)
    shown = [name for name in (panels[0].x, panels[0].y) if name is not None]
    caption = (
        f"{' by '.join(axis_words(name).title for name in shown)}; means over seeds, below them the half "
        f"width of the {content.confidence:.0%} interval."
    )
    if panels[0].where:
        caption += f" Shown {panels[0].where.lstrip('; ')}."

    def together(linked: bool) -> alt.TopLevelMixin:
        charts = [panel.chart(THROUGHPUT, legend=k == 0) for k, panel in enumerate(panels)]
        return alt.concat(*charts, columns=2, spacing=24)

    return [Heatmaps("heatmap", "The whole grid", caption, together, panels=tuple(panels))]


def _along(content: Content, axis: str, *, joined: bool) -> Figure:
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
                    field(axis): axis_value(row[axis]),
                    "value": plain_value(mean[place]),
                    "low": plain_value(mean[place] - half[place]),
                    "high": plain_value(mean[place] + half[place]),
                }
            )

    def draw(linked: bool) -> alt.TopLevelMixin:
        return axis_chart(
            rows, metric=THROUGHPUT, axis=axis, joined=joined, confidence=content.confidence, linked=linked
        )

    title = f"{metric_title(THROUGHPUT).capitalize()} along {axis_words(axis).title.partition(',')[0]}"
    caption = f"One point a configuration, with its {content.confidence:.0%} interval over seeds."
    return Figure(f"along-{axis}", title, caption, draw, gist=along_gist(rows, THROUGHPUT, axis))


def _shares(content: Content) -> list[Figure]:
    rows: dict[str, list[dict[str, Any]]] = {"trainer": [], "slots": [], "tokens": []}
    found = list(zip(content.shown, time_shares(content.ds, [one.place for one in content.shown])))
    bars = [(one.cell, one.label, shares) for one, shares in found]
    if content.found.baseline is not None:
        bars.append((_SEQUENTIAL, "sequential", baseline_shares(content.ds)))
    for cell, label, shares in bars:
        for group, parts in shares.items():
            rows[group] += part_rows(parts, cell, label)
    captions = {
        "trainer": "The trainer: training, or what it waits for.",
        "slots": "The rollout slots: busy with a rollout, or idle and why.",
        "tokens": "The tokens that were generated: trained, thrown away as too old, or left over at the end.",
    }
    return [
        shares_figure(f"where-{group}", group, parts, captions[group])
        for group, parts in rows.items()
        if parts
    ]


def shares_figure(name: str, group: str, rows: list[dict[str, Any]], caption: str) -> Figure:
    """Show where time or tokens go; the page writes the legend itself, since it fits any width."""

    def draw(linked: bool) -> alt.TopLevelMixin:
        return shares_chart(rows, group, linked=linked, legend=not linked)

    return Figure(name, WHERE[group], caption, draw, share_colours(rows), shares_gist(rows))


def _lags(content: Content) -> list[Figure]:
    places, labels = [one.place for one in content.looked_at], [one.label for one in content.looked_at]
    rows = lag_rows_of(content.whole, places, content.confidence, labels) if places else []
    if not rows:
        return []
    caption = (
        "Share of the trained rollouts by lag, for the choice and others worth a look; bars are "
        f"{content.confidence:.0%} intervals over seeds."
    )

    marks = marks_by_label(content.found, {row["label"]: row["cell"] for row in rows})
    return [lag_figure("lag", "How old the trained rollouts were", caption, rows, marks, content.confidence)]


def lag_figure(
    name: str,
    title: str,
    caption: str,
    rows: list[dict[str, Any]],
    marks: Mapping[str, Mark],
    confidence: float,
) -> Figure:
    """Show how old trained rollouts were; the page writes the legend."""

    def draw(linked: bool) -> alt.TopLevelMixin:
        return lag_chart(rows, marks, confidence=confidence, linked=linked)

    shown = told_apart({row["label"]: marks[row["label"]] for row in rows})
    return Figure(name, title, caption, draw, gist=lag_gist(rows), marks=[Legend("", shown)])


def _differences(content: Content) -> list[Figure]:
    if not content.differences:
        return []
    rows = [
        {
            "cell": one.shown.cell,
            "label": one.shown.label,
            "metric": METRICS[one.metric],
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

    marks = marks_by_label(content.found, {row["label"]: row["cell"] for row in rows})
    return [difference_figure(caption, rows, marks, content.reference, content.confidence)]


def difference_figure(
    caption: str,
    rows: list[dict[str, Any]],
    marks: Mapping[str, Mark],
    reference: str,
    confidence: float,
) -> Figure:
    """Show differences; the first metric's points are filled, the second's hollow."""

    def draw(linked: bool) -> alt.TopLevelMixin:
        return difference_chart(rows, marks, reference=reference, confidence=confidence, linked=linked)

    metrics = dict.fromkeys(row["metric"] for row in rows)
    filled = {metric: Mark(GREY, hollow=k > 0) for k, metric in enumerate(metrics)}
    return Figure(
        "differences",
        f"Differences from {reference}",
        caption,
        draw,
        gist=difference_gist(rows, reference),
        marks=[Legend("", filled)] if rows else (),
    )
