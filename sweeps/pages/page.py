"""The one builder of pages: figures, tables, what a page's script reads, templates that escape every text.

A page holds everything it needs in one file (styles, data, Vega) and forbids itself any request. What comes
from outside is escaped by Jinja's autoescape, and inside a script element by :func:`embedded_json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import ConfigError
from ..charts.images import specification
from ..charts.marks import SHAPE_PATHS, Legend, Mark
from ..charts.style import BY_VARIABLES, ON_DARK_PAGES, on_dark, plain_value
from ..checks import path_of
from ..frame_files import checked_folder
from ..results.shown import shown_text

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup


_MADE_HERE = b'<meta name="generator" content="lagsweep">'  # as base.html has it


@dataclass(frozen=True)
class Figure:
    """One chart of a page.

    Attributes
    ----------
    name : str
        Of its files and its element.
    title, caption : str
        The caption says in words what the chart shows; it is what a screen reader reads.
    draw : callable
        Gives the Altair chart; the argument says whether it is linked to the page's others.
    colours : mapping
        What stands for what, where the page writes the legend itself.
    gist : str
        What it shows, with its figures: its text alternative; the caption where there is none.
    marks : sequence of Legend
        Colours with shapes, for the page's legend.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], Any]
    colours: Mapping[str, str] = field(default_factory=dict)
    gist: str = ""
    marks: Sequence[Legend] = ()

    @property
    def legends(self) -> list[Legend]:
        """Return every legend that the page writes beside it."""
        own = [Legend("", {name: Mark(colour, "square") for name, colour in self.colours.items()})]
        return [*(own if self.colours else []), *self.marks]

    @property
    def alternatives(self) -> list[str]:
        """Return what stands for the drawing in each place, for those who cannot see it."""
        return [f"{self.title}. {self.gist or self.caption}"]

    @property
    def places(self) -> list[str]:
        """Name the elements that it is drawn into."""
        return [f"chart-{self.name}"]

    def variants(self) -> list[dict[str, Any]]:
        """Return the specifications for each place, by the metric that the reader chooses ("": any)."""
        return [{"": on_page(self.draw(True), words)} for words in self.alternatives]


def on_page(chart: Any, words: str) -> dict[str, Any]:
    """Take the specification of a chart that is as wide as its place, with what stands for it in words."""
    fit = {"type": "fit-x", "contains": "padding"}
    shown = shown_text(words, None)
    return {**specification(chart), "width": "container", "autosize": fit, "description": shown}


@dataclass(frozen=True)
class Table:
    """A table that becomes a list of cards on a narrow screen.

    Attributes
    ----------
    header : sequence of (title, kind)
        The kind is ``text``, ``whole`` (takes the width of a card), both, or empty for numbers.
    rows : sequence of sequences of str
    cells : sequence of int, optional
        The cell or system that each row is about; it lights up in the charts with them.
    best : int, optional
        The cell whose row stands out.
    caption : str
    """

    header: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    cells: Sequence[int | None] = ()
    best: int | None = None
    caption: str = ""


def linked_page(
    template: str,
    title: str,
    figures: Sequence[Figure],
    labels: Callable[[set[int]], Mapping[int, str]],
    *,
    metric: str = "",
    scales: Mapping[str, Sequence[str]] | None = None,
    **values: Any,
) -> bytes:
    """Put a page of linked charts together.

    Parameters
    ----------
    template : str
        Its name in ``templates/``.
    title : str
    figures : sequence of Figure
    labels : callable
        Gives what cells are called when they are picked.
    metric : str
        The one shown first, where the reader can choose.
    scales : mapping
        Ends of the colours' scale of each metric.
    values
        What the template shows.
    """
    import vl_convert

    rows = Rows()
    charts = [
        {"id": place, "variants": {name: rows.pack(spec) for name, spec in variants.items()}}
        for figure in figures
        for place, variants in zip(figure.places, figure.variants())
    ]
    data = {
        "metric": metric,
        "scales": scales or {},
        "charts": charts,
        "tables": rows.tables,
        "labels": {str(cell): shown_text(label) for cell, label in labels(rows.cells()).items()},
        "look": BY_VARIABLES,
        "on_dark": ON_DARK_PAGES,
    }
    bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub asks for a snippet
    scripts = [embedded_script(source) for source in (bundle, _asset("report.js"))]
    by_name = {figure.name: figure for figure in figures}
    return page(template, title, figures=by_name, data=embedded_json(data), scripts=scripts, **values)


def page(template: str, title: str, **values: Any) -> bytes:
    """Fill a template."""
    from markupsafe import Markup

    style = Markup(_asset("report.css"))  # our own file
    found = {"data": None, "scripts": (), "title": shown_text(title), "style": style, **values}
    return _templates().get_template(template).render(found).encode("utf-8")


@cache
def _templates() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _read(f"templates/{name}")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Whole sentences are not cut; the names in them are, where they are put in.
        finalize=lambda value: shown_text(value, None, lines=True) if type(value) is str else value,
    )
    found.filters["on_dark"] = on_dark
    found.filters["shape_path"] = lambda shape: SHAPE_PATHS[shape]
    return found


def _asset(name: str) -> str:
    return _read(f"report_assets/{name}")


def _read(path: str) -> str:
    return (files("lagsweep.sweeps.pages") / path).read_text(encoding="utf-8")


def embedded_json(value: Any) -> Markup:
    """Return data for a script element: no text in it can end the element.

    Examples
    --------
    >>> print(embedded_json({"name": "</script><b>"}))
    {"name":"\\u003c/script>\\u003cb>"}
    """
    from markupsafe import Markup

    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Markup(plain.replace("<", "\\u003c"))


def embedded_script(source: str) -> Markup:
    """Return a script's source for a script element: a literal end tag in it would end the element."""
    from markupsafe import Markup

    for end, harmless in (("</script", "<\\/script"), ("</SCRIPT", "<\\/SCRIPT"), ("<!--", "<\\!--")):
        source = source.replace(end, harmless)
    return Markup(source)


def is_own_page(path: Path) -> bool:
    """Whether a file is a page that was made here: then nobody has written into it.

    Parameters
    ----------
    path : Path
        Of a file that is there.
    """
    try:
        with path.open("rb") as file:
            return _MADE_HERE in file.read(512)
    except OSError:
        return False


def checked_page(path: str | Path, option: str, example: str) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
        If it does not end in .html, or its folder does not exist.
    """

    target = path_of(option, path)
    if target.suffix != ".html":
        raise ConfigError(option, "must end in .html", str(target), f"Name it {example}.")
    return checked_folder(target, option)


class Rows:
    """Rows that several charts use, kept once and by columns."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self._known: dict[str, int] = {}

    def pack(self, spec: Any) -> Any:
        """Take the rows out of a chart's specification; a number stands for them."""
        if isinstance(spec, dict):
            return {
                name: self._data(value) if name == "data" else self.pack(value)
                for name, value in spec.items()
            }
        if isinstance(spec, list):
            return [self.pack(value) for value in spec]
        return spec

    def _data(self, data: Any) -> Any:
        rows = data.get("values") if isinstance(data, dict) else None
        if not isinstance(rows, list) or not rows or any(row.keys() != rows[0].keys() for row in rows):
            return data
        fields = list(rows[0])
        packed = {
            "fields": fields,
            "columns": [[plain_value(row[name]) for row in rows] for name in fields],
        }
        key = json.dumps(packed)
        if key not in self._known:
            self._known[key] = len(self.tables)
            self.tables.append(packed)
        return {"table": self._known[key]}

    def cells(self) -> set[int]:
        """Return the ids of all cells in the tables."""
        return {
            int(cell)
            for table in self.tables
            if "cell" in table["fields"]
            for cell in table["columns"][table["fields"].index("cell")]
        }
