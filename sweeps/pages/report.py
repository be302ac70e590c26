"""One HTML page about a sweep that opens without a network, and a PNG and an SVG of each of its charts.

The page holds everything: data, charts (Vega-Lite specifications and the Vega libraries, from vl-convert),
styles. It fetches nothing, and says so in a content security policy. Data are aggregated first, so a sweep
of a million runs gives a page of about a megabyte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import ConfigError
from ..charts.panels import HEATMAP_METRICS
from ..charts.style import BLUE
from ..json_text import json_text
from ..results.frontier import THROUGHPUT
from .html import Tables, paragraph, section, text
from .page import framed

if TYPE_CHECKING:
    import xarray

    from .content import Content
    from .figures import ReportChart

_METRIC_NAMES = {
    "trained_tokens_per_second": "trained tokens per second",
    "mean_expected_normalized_ess": "expected normalized ESS",
    "effective_tokens_per_second": "effective tokens per second",
}
_ON_PAPER = {"background": "#ffffff", "view": {"stroke": None}}


@dataclass(frozen=True)
class Report:
    """Where a report was written."""

    page: Path
    images: tuple[Path, ...]
    bytes: int


def write_report(
    ds: xarray.Dataset,
    path: str | Path,
    *,
    store: str | None = None,
    maximize: str = THROUGHPUT,
    min_ess: float | None = None,
    max_lag: int | None = None,
    reference: int | Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    images: bool = True,
) -> Report:
    """Write a report.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` or :func:`lagsweep.open_sweep` gives.
    path : path
        ``something.html``; images go into the folder ``something-charts`` beside it.
    store : str, optional
        The sweep's folder, for the commands on the page.
    maximize, min_ess, max_lag
        Of the verdict, as :func:`lagsweep.recommend`.
    reference : int or mapping, optional
        The cell that others are compared with: an id or axis values. The sequential baseline, or the choice,
        when left out.
    confidence : float
        Of every interval.
    images : bool
        Also write a PNG and an SVG of each chart.

    Returns
    -------
    Report

    Raises
    ------
    ConfigError
        For a bad file name, an unknown metric or cell, or bounds out of range.
    """
    from ..files import write_atomically
    from ..frame_files import checked_folder
    from .content import gather
    from .figures import report_charts

    target = Path(path)
    if target.suffix != ".html":
        raise ConfigError("output", "must end in .html", str(target), "Name it report.html.")
    checked_folder(target, "output")
    content = gather(
        ds,
        store=store,
        maximize=maximize,
        min_ess=min_ess,
        max_lag=max_lag,
        reference=reference,
        confidence=confidence,
    )
    charts = report_charts(content)
    written = tuple(write_images(charts, target)) if images else ()
    page = page_html(content, charts).encode("utf-8")
    write_atomically(target, page)
    return Report(target, written, len(page))


def write_images(charts: list[ReportChart], page: Path) -> list[Path]:
    """Write a PNG and an SVG of each chart into the folder beside the page."""
    import vl_convert

    from ..files import write_atomically

    folder = page.with_name(f"{page.stem}-charts")
    folder.mkdir(exist_ok=True)
    found = []
    for chart in charts:
        spec = _specification(chart.draw, False)
        spec["config"] = {**spec.get("config", {}), **_ON_PAPER}
        drawn = _with_own_ids(vl_convert.vegalite_to_svg(spec))
        svg, png = folder / f"{chart.name}.svg", folder / f"{chart.name}.png"
        write_atomically(svg, drawn.encode("utf-8"))
        write_atomically(png, vl_convert.svg_to_png(drawn, scale=2))
        found += [svg, png]
    return found


def _with_own_ids(svg: str) -> str:
    """Number an image's clip paths and gradients from 0; they are counted through the process otherwise."""
    names: dict[str, str] = {}

    def own(found: re.Match[str]) -> str:
        kind = found[2].rstrip("0123456789")
        return found[1] + names.setdefault(found[2], f"{kind}{len(names)}")

    return re.sub(r'(id="|url\(#)((?:clip|gradient)_?\d+)', own, svg)


def page_html(content: Content, charts: list[ReportChart]) -> str:
    """Put the page together."""
    from . import sections as parts

    tables = Tables()
    specs = [entry for chart in charts for entry in _entries(chart, tables)]
    data = {
        "metric": THROUGHPUT,
        "scales": {name: scale for chart in charts for name, scale in _scales(chart).items()},
        "charts": specs,
        "tables": tables.tables,
        "labels": parts.cell_labels(content, tables.cells()),
    }
    by_name = {chart.name: chart for chart in charts}
    body = [
        parts.header(content),
        parts.verdict(content),
        parts.frontier_table(content),
        *_figures(by_name),
        parts.failures(content),
        parts.provenance(content),
        parts.commands(content),
    ]
    return framed(f"{content.spec.name} · lagsweep report", body, data)


def _entries(chart: ReportChart, tables: Tables) -> list[dict[str, Any]]:
    """Give a chart's specifications as the page's script takes them."""
    if not chart.panels:
        return [{"id": f"chart-{chart.name}", "variants": {"": _on_page(chart.draw, tables)}}]
    entries: list[dict[str, Any]] = [
        {"id": f"chart-{chart.name}-{k}", "variants": {}} for k in range(len(chart.panels))
    ]
    for metric in HEATMAP_METRICS:
        drawn = _on_page(partial(_first_panel, chart, metric), None)
        # The panels differ in their title and rows alone; drawing each would take a tenth of a second.
        for panel, entry in zip(chart.panels, entries):
            spec = {**drawn, "data": {"values": panel.chart_rows(metric)}}
            if panel.title is not None:
                spec["title"] = {**drawn["title"], "text": panel.title}
            entry["variants"][metric] = tables.pack(spec)
    return entries


def _first_panel(chart: ReportChart, metric: str, linked: bool) -> Any:
    return chart.panels[0].chart(metric, legend=False, linked=linked)


def _specification(draw: Callable[[bool], Any], linked: bool) -> dict[str, Any]:
    """Draw a chart; Altair checks every value of every row unless told not to, which takes seconds."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        found: dict[str, Any] = _with_own_names(draw(linked).to_dict(validate=False), {})
    return found


def _with_own_names(spec: Any, names: dict[str, str]) -> Any:
    """Number a chart's views from 1: Altair draws their names at random, and no two pages would agree."""
    if isinstance(spec, dict):
        return {key: value if key == "data" else _with_own_names(value, names) for key, value in spec.items()}
    if isinstance(spec, list):
        return [_with_own_names(value, names) for value in spec]
    if isinstance(spec, str) and re.fullmatch(r"view_[0-9a-f_]+", spec):
        return names.setdefault(spec, f"view_{len(names) + 1}")
    return spec


def _on_page(draw: Callable[[bool], Any], tables: Tables | None) -> Any:
    """Draw a chart as wide as its place; its rows go into the tables, if there are any."""
    spec = _specification(draw, True)
    spec.pop("config", None)
    spec["width"] = "container"
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec if tables is None else tables.pack(spec)


def _scales(chart: ReportChart) -> dict[str, list[str]]:
    """Write the ends of the colours' scale of each metric."""
    if not chart.panels:
        return {}
    return {
        metric: [_scale_end(metric, end) for end in domain]
        for metric, domain in chart.panels[0].domains.items()
    }


def _scale_end(metric: str, value: float) -> str:
    return f"{value:.3f}" if metric.endswith("ess") else f"{value:,.0f}"


def _figures(charts: Mapping[str, ReportChart]) -> list[str]:
    """Arrange the figures in sections, small ones side by side."""
    found = []
    if "frontier" in charts:
        hint = (
            "The charts are linked. Drag a box over points with the mouse, or click or tap a point, tile or "
            "bar (with shift to add one): the same configurations light up everywhere. Esc clears."
        )
        found.append(
            section("Throughput against freshness", paragraph(hint, "dim"), _figure(charts["frontier"]))
        )
    along = [chart for name, chart in charts.items() if name.startswith("along-")]
    if "heatmap" in charts:
        found.append(section("The whole grid", _heatmaps(charts["heatmap"])))
    elif along:
        found.append(section("Along each axis", f'<div class="pair">{"".join(map(_figure, along))}</div>'))
    where = [chart for name, chart in charts.items() if name.startswith("where-")]
    if where:
        found.append(
            section("Where time and tokens go", f'<div class="pair">{"".join(map(_figure, where))}</div>')
        )
    rest = [charts[name] for name in ("lag", "differences") if name in charts]
    found += [section(chart.title, _figure(chart, titled=False)) for chart in rest]
    return found


def _figure(chart: ReportChart, titled: bool = True) -> str:
    title = f"<h3>{text(chart.title)}</h3>" if titled else ""
    caption = text(chart.caption)
    place = f'<div class="chart" id="chart-{text(chart.name)}" role="img" aria-label="{caption}"></div>'
    if chart.colours:
        keys = "".join(
            f'<span><i style="background:{_page_colour(colour)}"></i>{text(name)}</span>'
            for name, colour in chart.colours.items()
        )
        place = f'<div class="legend">{keys}</div>{place}'
    return f"<figure>{title}<figcaption>{caption}</figcaption>{place}</figure>"


def _page_colour(colour: str) -> str:
    """Give a colour as the page has it: its blue is lighter on dark paper."""
    return "var(--blue)" if colour == BLUE else text(colour)


def _heatmaps(chart: ReportChart) -> str:
    options = "".join(
        f'<option value="{text(name)}">{text(_METRIC_NAMES.get(name, name))}</option>'
        for name in HEATMAP_METRICS
    )
    label = text(chart.caption)
    panels = "".join(
        f'<div class="chart" id="chart-{text(chart.name)}-{k}" role="img" aria-label="{label}"></div>'
        for k in range(len(chart.panels))
    )
    return (
        f'<p><label>Shown: <select id="metric">{options}</select></label> '
        '<span class="scale"><span id="scale-low"></span><i></i><span id="scale-high"></span></span></p>'
        f'<figure><figcaption>{text(chart.caption)}</figcaption><div class="panels">{panels}</div></figure>'
    )


def report_facts(report: Report) -> str:
    """Give what was written as one line of JSON."""
    return json_text(
        {"page": str(report.page), "bytes": report.bytes, "images": [str(path) for path in report.images]}
    )
