"""What the lab leaves behind: CSV tables, charts as SVG and PNG, and one page that needs no script.

All but the measurements of a real model is a function of the profile and the library versions: the same
command writes the same bytes.
The page holds its charts as drawings whose text takes the page's colour, and is written last.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..charts.images import file_images, page_svg
from ..files import write_atomically
from ..lab.model import REAL_MODEL, Chart, Section
from ..lab.model import Table as LabTable
from .page import Table, page


def write_lab(folder: Path, profile_name: str, sections: Sequence[Section]) -> Path:
    """Write tables, charts and the page of a lab.

    Parameters
    ----------
    folder : Path
        Made if missing; files of the same names are replaced.
    profile_name : str
        For the page's title.
    sections : sequence of Section
        In order.

    Returns
    -------
    Path
        The page, ``index.html``.
    """
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / "plots").mkdir(exist_ok=True)
    for section in sections:
        for table in section.tables:
            write_atomically(folder / "tables" / f"{table.name}.csv", csv_text(table).encode("utf-8"))
        for chart in section.charts:
            for kind, image in file_images(chart.spec).items():
                write_atomically(folder / "plots" / f"{chart.name}.{kind}", image)
    target = folder / "index.html"
    write_atomically(target, lab_page(profile_name, sections))
    return target


def csv_text(table: LabTable) -> str:
    """Return a table's raw values as CSV: a heading line and one line per row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table.csv_columns(), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def lab_page(profile_name: str, sections: Sequence[Section]) -> bytes:
    """Put everything on one page without scripts, fonts or links to elsewhere."""
    return page(
        "lab.html",
        f"Lagsweep lab: {profile_name}",
        profile=profile_name,
        measured=profile_name == REAL_MODEL,
        sections=sections,
        tables={section.number: [_table(table) for table in section.tables] for section in sections},
        figures={section.number: [_figure(chart) for chart in section.charts] for section in sections},
    )


def _table(table: LabTable) -> Table:
    """Return a table as pages have it; long words take a card's whole width on a narrow screen."""
    texts = table.texts()
    header = []
    for column, cells in zip(table.columns, zip(*texts)):
        kind = "" if column.is_number(table.rows) else "text"
        header.append((column.heading, f"{kind} whole" if kind and max(map(len, cells)) > 30 else kind))
    return Table(header, texts, caption=table.title)


def _figure(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "caption": chart.description,
        "places": [f"chart-{chart.name}"],
        "alternatives": [chart.description],
        "legends": [],
        "drawn": Markup(page_svg(chart.spec, chart.name)),  # Vega escapes its texts
    }
