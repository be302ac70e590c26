"""What moves metrics, as one offline page: a chart and a table for each metric, and how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance
from ..charts.gists import indices_gist
from ..charts.indices import INDEX_COLOURS, indices_chart
from ..checks import text_of
from ..files import write_atomically
from ..results.words import METRICS, metric_title
from ..search.sensitivity import Sensitivity
from ..search.sensitivity_file import differing_settings
from ..search.sensitivity_text import headline, noise_text, range_text, reading, table_of, width_text
from .figures import Figure
from .page import Table, checked_page, linked_page

if TYPE_CHECKING:
    from ..spec.spec import SweepSpec

NAME = ("--report", "sensitivity.html")
TITLE = "What moves it most"


def checked_sensitivity_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
    """
    return checked_page(path, *NAME)


def write_sensitivity_page(found: Sensitivity, path: str | Path, *, line: str = "") -> Path:
    """Write the page.

    Parameters
    ----------
    found : Sensitivity
    path : path
        ``something.html``.
    line : str
        The command that makes the page again.

    Raises
    ------
    ConfigError
        For a bad file name.
    """
    instance("found", found, Sensitivity, "Give what sensitivity returns.")
    target = checked_page(path, *NAME)
    line = text_of("line", line, "Give text.")
    figures = sensitivity_figures(found)
    title = TITLE
    content = linked_page(
        "sensitivity.html",
        f"{title} · lagsweep",
        figures,
        lambda _: {},
        heading=title,
        line=line,
        **sensitivity_values(found, figures),
    )
    write_atomically(target, content)
    return target


def sensitivity_figures(found: Sensitivity) -> list[Figure]:
    """Return a chart for each metric."""
    return [_figure(found, metric) for metric in found.means]


def sensitivity_values(found: Sensitivity, figures: Sequence[Figure]) -> dict[str, Any]:
    """Return what a page shows of a sensitivity beside its figures, one for each metric."""
    return {
        "said": f"{found.points:,} points over {len(found.ranges)} ranges, {found.seeds} seeds each.",
        "metrics": [
            {
                "title": _title(metric),
                "headline": headline(found, metric),
                "noise": noise_text(found, metric),
                "figure": figure,
                "table": _table(*table_of(found, metric)),
            }
            for metric, figure in zip(found.means, figures)
        ],
        "reading": reading(found.method),
        "width": width_text(found),
        "ranges": _table(
            ["setting", "range"], [[name, range_text(given)] for name, given in found.ranges.items()]
        ),
    }


def section_values(found: Sensitivity, figures: Sequence[Figure], spec: SweepSpec) -> dict[str, Any]:
    """Return what a section of a sweep's page shows: the figures, and which runs they are from."""
    values = sensitivity_values(found, figures)
    differing = differing_settings(found, spec)
    where = f" They are kept in {found.folder}." if found.folder is not None else ""
    rules = f" Every point keeps {', '.join(found.constraints)}." if found.constraints else ""
    said = [f"From runs of their own, not from this store's: {values['said']}{where}{rules}"]
    if differing is None:
        said.append("The document does not say their other settings.")
    else:
        said.append(
            f"Their other settings are {'not ' if differing else ''}this sweep's{':' if differing else '.'}"
        )
    named = [f"{one.field} {one.rule}" for one in differing or ()]
    return {**values, "title": TITLE, "said": said, "differing": named}


def _title(metric: str) -> str:
    return metric_title(metric) if metric in METRICS else metric.replace("_", " ")


def _figure(found: Sensitivity, metric: str) -> Figure:
    rows = list(found.frame.filter(found.frame["metric"] == metric).iter_rows(named=True))
    sure = f"{found.confidence:.0%}"
    caption = f"The strongest setting first; lines are {sure} intervals by bootstrap over the points."
    return Figure(
        f"indices-{metric}",
        _title(metric),
        caption,
        lambda linked: indices_chart(
            rows, method=found.method, metric=metric, units=found.units[metric], legend=not linked
        ),
        INDEX_COLOURS[found.method],
        indices_gist(rows, found.method, metric),
    )


def _table(header: list[str], rows: list[list[str]]) -> Table:
    kinds = ["text whole" if place == 0 else "" for place in range(len(header))]
    return Table(list(zip(header, kinds)), rows)
