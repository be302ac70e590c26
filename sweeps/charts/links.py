"""What charts are made of beside marks: their rows, and how charts on one page point at each other.

One chart picks cells, all of them light up the same cells. A linked chart has the parameter ``highlight``,
a list of cell ids that the page sets in every chart at once; where the list is empty nothing is faded. A
chart to click in has the selection ``picked``, one to draw a box in has ``brush``; the page reads them and
works out the ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import altair as alt

from .style import FADED

HIGHLIGHT, PICKED, BRUSH = "highlight", "picked", "brush"
LIT = f"length({HIGHLIGHT}) == 0 || indexof({HIGHLIGHT}, datum.cell) >= 0"

# A finger scrolls the page; only a mouse draws a box.
_BY_MOUSE = "[mousedown, window:mouseup] > window:mousemove!"


class _Rows:
    """Rows that Altair hands on as they are; it would copy a plain list value by value, again and again."""

    _schema: ClassVar[dict[str, str]] = {"type": "array"}

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = list(rows)

    def to_dict(self) -> list[Mapping[str, Any]]:
        """Return the rows."""
        return self._rows


def inline(rows: Sequence[Mapping[str, Any]]) -> alt.Data:
    """Return rows of plain values as a chart's data."""
    return alt.Data(values=_Rows(rows))


def shade(linked: bool, bright: float = 0.95, faded: float = FADED) -> Any:
    """Return the opacity of a mark: bright where its cell is highlighted, or nothing is."""
    if not linked:
        return alt.value(bright)
    return alt.condition(LIT, alt.value(bright), alt.value(faded))


def picking(chart: alt.Chart, linked: bool) -> alt.Chart:
    """Let a click on a mark pick its cell; a double click picks nothing."""
    if not linked:
        return chart
    return chart.add_params(
        alt.selection_point(
            name=PICKED, fields=["cell"], on="click", clear="dblclick", toggle="event.shiftKey"
        )
    )


def brushing(chart: alt.Chart, linked: bool) -> alt.Chart:
    """Let the mouse draw a box over points."""
    if not linked:
        return chart
    return chart.add_params(
        alt.selection_interval(
            name=BRUSH, encodings=["x", "y"], on=_BY_MOUSE, translate=_BY_MOUSE, zoom=False
        )
    )


def listening(chart: Any, linked: bool) -> Any:
    """Add the list of highlighted cells to a finished chart."""
    return chart.add_params(alt.param(name=HIGHLIGHT, value=[])) if linked else chart
