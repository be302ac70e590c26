"""The frame of an offline page of linked charts: styles, data, scripts, a policy that forbids any request.

What a page shows is its body (ready HTML) and its charts; this module puts them into one file that holds
everything it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from .html import Tables, embedded_json, embedded_script, text

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"
)
_PICKED = (
    '\n<div id="picked" hidden role="status"><span></span>'
    '<button id="clear" type="button">clear</button></div>\n'
)


@dataclass(frozen=True)
class Figure:
    """One chart of a page.

    Attributes
    ----------
    name, title, caption : str
        The caption says in words what the chart shows; it is what a screen reader reads.
    draw : callable
        Gives the Altair chart; the argument says whether it is linked to the page's others.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], Any]

    def html(self) -> str:
        """Give the place of the chart, with its title and caption."""
        caption = text(self.caption)
        place = f'<div class="chart" id="chart-{text(self.name)}" role="img" aria-label="{caption}"></div>'
        return f"<figure><h3>{text(self.title)}</h3><figcaption>{caption}</figcaption>{place}</figure>"


def page_html(title: str, body: Sequence[str], figures: Sequence[Figure], labels: Mapping[int, str]) -> str:
    """Put a page together.

    Parameters
    ----------
    title : str
    body : sequence of str
        Ready pieces of HTML, the figures' places among them.
    figures : sequence of Figure
    labels : mapping of int to str
        What a cell is called when it is picked.
    """
    tables = Tables()
    charts = [
        {"id": f"chart-{figure.name}", "variants": {"": _on_page(figure, tables)}} for figure in figures
    ]
    data = {
        "metric": "",
        "scales": {},
        "charts": charts,
        "tables": tables.tables,
        "labels": {str(cell): label for cell, label in labels.items()},
    }
    return framed(title, body, data)


def framed(title: str, body: Sequence[str], data: Mapping[str, Any]) -> str:
    """Put styles, the body, the charts' data and the scripts into one document.

    Parameters
    ----------
    title : str
    body : sequence of str
        Ready pieces of HTML.
    data : mapping
        What the page's script reads: charts, tables, labels, the metric shown first, scales.
    """
    import vl_convert

    assets = files("lagsweep.sweeps.pages") / "report_assets"
    script = (assets / "report.js").read_text(encoding="utf-8")
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub asks for a snippet
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{text(title)}</title>\n",
            f"<style>\n{(assets / 'report.css').read_text(encoding='utf-8')}</style>\n</head>\n<body>\n",
            "\n".join(body),
            _PICKED,
            f'<script type="application/json" id="content">{embedded_json(data)}</script>\n',
            f"<script>{embedded_script(bundle)}</script>\n",
            f"<script>{embedded_script(script)}</script>\n",
            "</body>\n</html>\n",
        ]
    )


def _on_page(figure: Figure, tables: Tables) -> Any:
    """Draw a chart as wide as its place; its rows go into the page's tables."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # Altair's own check of every value takes seconds
        spec = figure.draw(True).to_dict(validate=False)
    spec.pop("config", None)
    spec["width"] = "container"
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return tables.pack(spec)
