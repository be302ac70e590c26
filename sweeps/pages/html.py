"""HTML in small pieces: every text that comes from outside is escaped here and nowhere else."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..charts.style import plain_value


def text(value: Any) -> str:
    """Escape a text for an element or an attribute.

    Examples
    --------
    >>> text('<b>"law" & co</b>')
    '&lt;b&gt;&quot;law&quot; &amp; co&lt;/b&gt;'
    """
    return html.escape(str(value), quote=True)


def paragraph(sentence: str, kind: str = "") -> str:
    """Give a paragraph of plain text."""
    return f"<p{_class(kind)}>{text(sentence)}</p>"


def bullets(items: Sequence[str]) -> str:
    """Give a list of ready pieces."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""


def command(line: str) -> str:
    """Give something to paste into a shell or a file."""
    return f"<pre>{text(line)}</pre>"


def section(title: str, *pieces: str) -> str:
    """Give a section with a heading, of ready pieces."""
    return f"<section><h2>{text(title)}</h2>{''.join(pieces)}</section>"


def table(
    header: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    *,
    marks: Sequence[Mapping[str, str]] = (),
) -> str:
    """Give a table that becomes a list of cards on a narrow screen.

    Parameters
    ----------
    header : sequence of (title, class)
        The class is ``text``, ``whole`` (takes the width of a card) or empty for numbers.
    rows : sequence of sequences of str
        Plain texts.
    marks : sequence of mappings, optional
        Attributes of each row.
    """
    head = "".join(f"<th{_class(kind)}>{text(title)}</th>" for title, kind in header)
    body = []
    for place, row in enumerate(rows):
        attributes = "".join(
            f' {name}="{text(value)}"' for name, value in (marks[place] if marks else {}).items()
        )
        cells = "".join(
            f'<td{_class(kind)} data-head="{text(title)}">{text(cell)}</td>'
            for (title, kind), cell in zip(header, row)
        )
        body.append(f"<tr{attributes}>{cells}</tr>")
    return f'<table class="wide"><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'


def embedded_json(value: Any) -> str:
    """Give data for a script element: no text in it can end the element.

    Examples
    --------
    >>> embedded_json({"name": "</script><b>"})
    '{"name":"\\\\u003c/script>\\\\u003cb>"}'
    """
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return plain.replace("<", "\\u003c")


def embedded_script(source: str) -> str:
    """Give a script's source for a script element: a literal end tag in it would end the element."""
    return (
        source.replace("</script", "<\\/script").replace("</SCRIPT", "<\\/SCRIPT").replace("<!--", "<\\!--")
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


class Tables:
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
        """Give the ids of all cells in the tables."""
        return {
            int(cell)
            for table in self.tables
            if "cell" in table["fields"]
            for cell in table["columns"][table["fields"].index("cell")]
        }
