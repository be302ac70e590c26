"""One HTML page about a sweep that opens without a network, and a PNG and an SVG of each of its charts.

Data are aggregated first, so a sweep of a million runs gives a page of about a megabyte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance
from ..charts.panels import HEATMAP_METRICS
from ..checks import confidence_of, flag_of, path_of, sweep_dataset, text_of
from ..execute.progress import Progress, checked_progress
from ..files import write_atomically
from ..json_text import json_document
from ..results.cells import not_recorded
from ..results.frontier import THROUGHPUT
from ..results.words import metric_title
from ..search.sensitivity import Sensitivity
from ..search.sensitivity_file import read_sensitivity
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
    sensitivity: Sensitivity | str | Path | None = None,
    progress: Progress | Callable[[int, int], Any] | bool | None = None,
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
    sensitivity : Sensitivity or path, optional
        What moves metrics most, as :func:`lagsweep.sensitivity` gives it or ``lagsweep sensitivity --json``
        writes it: a section of the page, with the settings in which its runs differ from the sweep's.
    progress : True or Progress, optional
        A bar on a terminal while values are read and charts are drawn.

    Returns
    -------
    Report

    Raises
    ------
    ConfigError
        For a bad file name, an unknown metric or cell, or bounds out of range.
    """
    return report_unless(
        ds,
        path,
        lambda files: None,
        store=store,
        maximize=maximize,
        min_ess=min_ess,
        max_lag=max_lag,
        reference=reference,
        confidence=confidence,
        images=images,
        sensitivity=sensitivity,
        progress=progress,
    )


def report_unless(
    ds: xarray.Dataset,
    path: str | Path,
    refuse: Callable[[list[Path]], Any],
    *,
    store: str | None,
    maximize: str | None,
    min_ess: float | None,
    max_lag: int | None,
    reference: int | Mapping[str, Any] | None,
    confidence: float,
    images: bool,
    sensitivity: Sensitivity | str | Path | None,
    progress: Progress | Callable[[int, int], Any] | bool | None,
) -> Report:
    """Write a report, unless a function refuses the files of its charts, before anything is drawn.

    Parameters
    ----------
    ds, path, store, maximize, min_ess, max_lag, reference, confidence, images, sensitivity, progress
        As in :func:`write_report`.
    refuse : callable
        Given the charts' files, which only a look at the sweep tells; raises if one is to be kept.

    Returns
    -------
    Report
    """
    from .cadence import failure_values
    from .figures import report_charts
    from .page import checked_page
    from .sensitivity import section_values, sensitivity_figures

    sweep_dataset(ds)
    told = checked_progress(progress)
    images = flag_of("images", images)
    if maximize is not None:
        text_of("maximize", maximize, "Name a metric.")
    target = checked_page(path, "output", "report.html")
    moved = (
        read_sensitivity(path_of("sensitivity", sensitivity))
        if isinstance(sensitivity, str | Path)
        else sensitivity
    )
    if moved is not None:
        instance("sensitivity", moved, Sensitivity, "Give what sensitivity returns, or its JSON file.")
    content = gather(
        ds,
        store=store,
        maximize=maximize,
        min_ess=min_ess,
        max_lag=max_lag,
        reference=reference,
        confidence=confidence_of(confidence),
        progress=told,
    )
    indices = [] if moved is None else sensitivity_figures(moved)
    failing = failure_values(content)
    figures = [*report_charts(content), *indices, *(failing["figures"] if failing else [])]
    written: tuple[Path, ...] = ()
    if images:
        refuse([file for figure in figures for file in _image_files(figure, target).values()])
        with told.steps("charts drawn", len(figures)) as step:
            written = tuple(_write_images(figures, target, step))
    sensitive = None if moved is None else section_values(moved, indices, content.spec)
    page = _page(content, figures, sensitive, failing)
    write_atomically(target, page)
    return Report(target, written, len(page))


def _write_images(figures: Sequence[Figure], page: Path, step: Callable[[], None]) -> list[Path]:
    """Write a PNG and an SVG of each chart into the folder beside the page."""
    from ..charts.images import file_images, specification

    _image_folder(page).mkdir(exist_ok=True)
    found = []
    for figure in figures:
        images = file_images(specification(figure.draw(False)))
        for kind, file in _image_files(figure, page).items():
            write_atomically(file, images[kind])
            found.append(file)
        step()
    return found


def _image_folder(page: Path) -> Path:
    return page.with_name(f"{page.stem}-charts")


def _image_files(figure: Figure, page: Path) -> dict[str, Path]:
    return {kind: _image_folder(page) / f"{figure.name}.{kind}" for kind in ("svg", "png")}


def _page(
    content: Content,
    figures: Sequence[Figure],
    moved: dict[str, Any] | None,
    failing: dict[str, Any] | None,
) -> bytes:
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
        moved=moved,
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
