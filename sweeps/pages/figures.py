"""The charts of a report: each with a name, a title, a caption, and a drawing, linked or for a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from ...kernels.intervals import mean_interval
from ..charts.along import axis_chart
from ..charts.difference import difference_chart
from ..charts.lag import lag_chart
from ..charts.panels import HEATMAP_METRICS, Panel, heatmap_panels
from ..charts.plots import chart_of, lag_rows_of, thinned
from ..charts.shares import WHERE, part_rows, share_colours, shares_chart
from ..charts.style import field, plain_value
from ..results.cells import axis_names, cell_values, not_recorded
from ..results.frontier import THROUGHPUT
from ..results.shares import baseline_shares, time_shares
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

    def variants(self) -> list[dict[str, Any]]:
        """Draw each panel for each metric."""
        found: list[dict[str, Any]] = [{} for _ in self.panels]
        for metric in self.panels[0].domains:
            drawn = on_page(self.panels[0].chart(metric, legend=False, linked=True))
            # The panels differ in their title and rows alone; drawing each would take a tenth of a second.
            for panel, variants in zip(self.panels, found):
                spec = {**drawn, "data": {"values": panel.chart_rows(metric)}}
                if panel.title is not None:
                    spec["title"] = {**drawn["title"], "text": panel.title}
                variants[metric] = spec
        return found


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
    left_out = found.frame.height - thinned(found.frame, always=always).height
    caption = (
        "Up and right is better. Large points are on the frontier, joined by the dashed line; bars are "
        f"{content.confidence:.0%} intervals over seeds, often smaller than a point."
    )
    if left_out:
        caption += f" {left_out:,} of {found.frame.height:,} configurations are left out."

    def draw(linked: bool) -> alt.TopLevelMixin:
        return chart_of(found, always=always, linked=linked)

    return [Figure("frontier", "Throughput against effective sample size", caption, draw)]


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
                    field(axis): plain_value(row[axis]),
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
    return Figure(f"along-{axis}", title, caption, draw)


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

    return Figure(name, WHERE[group], caption, draw, share_colours(rows))


def _lags(content: Content) -> list[Figure]:
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

    return [Figure("lag", "How old the trained rollouts were", caption, draw)]


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

    def draw(linked: bool) -> alt.TopLevelMixin:
        return difference_chart(
            rows, reference=content.reference, confidence=content.confidence, linked=linked
        )

    return [Figure("differences", f"Differences from {content.reference}", caption, draw)]
