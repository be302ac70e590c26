"""What the lab leaves behind: CSV tables, charts as SVG and PNG, and one page that needs no network.

Everything is a function of the profile and the library versions: the same command writes the same bytes.
The page holds its charts as inline SVG whose text takes the page's colour, so it reads in light and dark,
and is written last.
"""

from __future__ import annotations

import copy
import csv
import html
import io
import re
from pathlib import Path
from typing import Any

from ..files import write_atomically
from .model import Chart, Section, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --paper: #fcfcfb; --line: #d5d8dd; --dim: #5b6472; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --paper: #16181d; --line: #3a3f48; --dim: #a2aab6; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem 1rem 4rem; font: 16px/1.55 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .5rem; }
p { margin: .6rem 0; } .dim, figcaption, caption { color: var(--dim); }
nav ol { columns: 2 16rem; padding-left: 1.4rem; } a { color: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .3rem; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th.number, td.number { text-align: right; white-space: nowrap; }
figure { margin: 1.2rem 0; } figcaption { font-size: .9rem; }
figure svg { width: 100%; min-width: 30rem; max-width: 44rem; height: auto; }
"""
_PAGE_COLOURS = {"ink": "currentColor", "grid": "#8883", "background": "transparent"}
_FILE_COLOURS = {"ink": "#1d2129", "grid": "#e4e6ea", "background": "#ffffff"}


def write_lab(folder: Path, profile_name: str, sections: list[Section]) -> Path:
    """Write tables, charts and the page of a lab.

    Parameters
    ----------
    folder : Path
        Made if missing; files of the same names are replaced.
    profile_name : str
        For the page's title.
    sections : list of Section
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
            write_atomically(folder / "plots" / f"{chart.name}.svg", chart_svg(chart).encode("utf-8"))
            write_atomically(folder / "plots" / f"{chart.name}.png", chart_png(chart))
    page = folder / "index.html"
    write_atomically(page, page_html(profile_name, sections).encode("utf-8"))
    return page


def csv_text(table: Table) -> str:
    """Give a table's raw values as CSV.

    Parameters
    ----------
    table : Table
        The table.

    Returns
    -------
    str
        A heading line and one line per row.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, table.csv_columns(), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def chart_svg(chart: Chart, *, inline: bool = False) -> str:
    """Draw a chart as SVG.

    Parameters
    ----------
    chart : Chart
        The chart.
    inline : bool
        For a page: text in the page's colour, no background, and ids of its own.

    Returns
    -------
    str
        The SVG element.
    """
    import vl_convert

    svg = vl_convert.vegalite_to_svg(_coloured(chart.spec, _PAGE_COLOURS if inline else _FILE_COLOURS))
    if not inline:
        return svg
    # Clip paths are named clip0, clip1, … in every chart; on one page they must not share names.
    svg = re.sub(r'(id="|url\(#)(clip|gradient)', rf"\1{chart.name}-\2", svg)
    label = html.escape(chart.description, quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def chart_png(chart: Chart) -> bytes:
    """Draw a chart as PNG at twice its size, dark on white.

    Parameters
    ----------
    chart : Chart
        The chart.

    Returns
    -------
    bytes
        The image.
    """
    import vl_convert

    return vl_convert.vegalite_to_png(_coloured(chart.spec, _FILE_COLOURS), scale=2)


def page_html(profile_name: str, sections: list[Section]) -> str:
    """Put everything on one page without scripts, fonts or links to elsewhere.

    Parameters
    ----------
    profile_name : str
        For the title.
    sections : list of Section
        In order.

    Returns
    -------
    str
        The page.
    """
    contents = "".join(
        f'<li><a href="#section-{section.number}">{html.escape(section.title)}</a></li>'
        for section in sections
    )
    body = "".join(map(_section_html, sections))
    title = html.escape(profile_name)
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Lagsweep lab: {title}</title>\n<style>{_STYLE}</style>\n"
    )
    intro = (
        "<h1>Memory, queues, staleness and recovery</h1>\n"
        '<p class="dim">The lab in ten sections, by the command '
        f"<code>lagsweep lab --profile {title}</code>. "
        "All figures come from formulas and from simulated runs; none is a measurement of a training system."
        "</p>\n"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n'
        f"{intro}<nav><ol>{contents}</ol></nav>\n{body}</body>\n</html>\n"
    )


def _section_html(section: Section) -> str:
    parts = [
        f'<section id="section-{section.number}">\n<h2>{section.number}. {html.escape(section.title)}</h2>\n'
    ]
    parts += [f"<p>{html.escape(paragraph)}</p>\n" for paragraph in section.paragraphs]
    parts += [_table_html(table) for table in section.tables]
    for chart in section.charts:
        caption = f"<figcaption>{html.escape(chart.title)}</figcaption>"
        drawing = chart_svg(chart, inline=True)
        parts.append(f'<figure><div class="scroll">{drawing}</div>{caption}</figure>\n')
    return "".join([*parts, "</section>\n"])


def _table_html(table: Table) -> str:
    kinds = [' class="number"' if column.is_number(table.rows) else "" for column in table.columns]
    heading = "".join(
        f"<th{kind}>{html.escape(column.heading)}</th>" for kind, column in zip(kinds, table.columns)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{html.escape(text)}</td>" for kind, text in zip(kinds, texts))
        + "</tr>\n"
        for texts in table.texts()
    )
    return (
        f'<div class="scroll"><table><caption>{html.escape(table.title)}</caption>\n'
        f"<thead><tr>{heading}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )


def _coloured(spec: dict[str, Any], colours: dict[str, str]) -> dict[str, Any]:
    """Give a copy of a specification with colours of text, grid and background."""
    coloured = copy.deepcopy(spec)
    config = coloured.setdefault("config", {})
    ink, grid = colours["ink"], colours["grid"]
    config["background"] = colours["background"]
    config["font"] = "sans-serif"
    config["axis"] = {
        **config.get("axis", {}),
        "labelColor": ink,
        "titleColor": ink,
        "domainColor": ink,
        "tickColor": ink,
        "gridColor": grid,
        "titleFontWeight": "normal",
    }
    config["legend"] = {"labelColor": ink, "titleColor": ink, "titleFontWeight": "normal", "orient": "bottom"}
    return coloured
