"""One HTML page about a sweep that opens without a network, and a PNG and an SVG of each of its charts.

Data are aggregated first, so a sweep of a million runs gives a page of about a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..charts.panels import HEATMAP_METRICS
from ..checks import confidence_of, flag_of, sweep_dataset, text_of
from ..files import write_atomically
from ..json_text import json_document
from ..results.cells import not_recorded
from ..results.frontier import THROUGHPUT
from ..results.words import metric_title
from .content import gather

if TYPE_CHECKING:
    import xarray

    from .content import Content
    from .page import Figure


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
    maximize: str | None = None,
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
    from .cadence import failure_values
    from .figures import report_charts
    from .page import checked_page

    sweep_dataset(ds)
    images = flag_of("images", images)
    if maximize is not None:
        text_of("maximize", maximize, "Name a metric.")
    target = checked_page(path, "output", "report.html")
    content = gather(
        ds,
        store=store,
        maximize=maximize,
        min_ess=min_ess,
        max_lag=max_lag,
        reference=reference,
        confidence=confidence_of(confidence),
    )
    failing = failure_values(content)
    figures = [*report_charts(content), *(failing["figures"] if failing else [])]
    written = tuple(_write_images(figures, target)) if images else ()
    page = _page(content, figures, failing)
    write_atomically(target, page)
    return Report(target, written, len(page))


def _write_images(figures: Sequence[Figure], page: Path) -> list[Path]:
    """Write a PNG and an SVG of each chart into the folder beside the page."""
    from ..charts.images import file_images, specification

    folder = page.with_name(f"{page.stem}-charts")
    folder.mkdir(exist_ok=True)
    found = []
    for figure in figures:
        for kind, image in file_images(specification(figure.draw(False))).items():
            found.append(folder / f"{figure.name}.{kind}")
            write_atomically(found[-1], image)
    return found


def _page(content: Content, figures: Sequence[Figure], failing: dict[str, Any] | None) -> bytes:
    """Put the page together: small figures side by side, the others in sections of their own."""
    from .figures import Heatmaps
    from .page import linked_page
    from .sections import cell_labels, report_values

    heatmaps = [figure for figure in figures if isinstance(figure, Heatmaps)]
    small = {
        "Along each axis": "along-",
        "Where time and tokens go": "where-",
        "Engines over time": "engines-",
    }
    return linked_page(
        "report.html",
        f"{content.spec.name} · lagsweep report",
        figures,
        lambda cells: cell_labels(content, cells),
        metric=THROUGHPUT,
        scales={
            metric: [_scale_end(metric, end) for end in domain]
            for figure in heatmaps
            for metric, domain in figure.panels[0].domains.items()
        },
        metrics={
            metric: metric_title(metric)
            for metric in HEATMAP_METRICS
            if metric not in not_recorded(content.ds)
        },
        groups=[
            (title, [figure for figure in figures if figure.name.startswith(beginning)])
            for title, beginning in small.items()
        ],
        failing=failing,
        **report_values(content),
    )


def _scale_end(metric: str, value: float) -> str:
    return f"{value:.3f}" if metric.endswith("ess") else f"{value:,.0f}"


def report_facts(report: Report) -> str:
    """Return what was written as one line of JSON."""
    return json_document(
        "report",
        {"page": str(report.page), "bytes": report.bytes, "images": [str(path) for path in report.images]},
    )
