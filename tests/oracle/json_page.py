"""docs/json.md read as a schema: which keys a document has, of which type, and what must be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
_KINDS = {
    "text": lambda value: isinstance(value, str),
    "true or false": lambda value: isinstance(value, bool),
    "whole number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "any object": lambda value: isinstance(value, dict),
    "any list": lambda value: isinstance(value, list),
    "any": lambda value: True,
}


class Row(NamedTuple):
    """One key of a document."""

    path: tuple[str, ...]
    kind: str
    nullable: bool
    optional: bool

    @property
    def is_pattern(self) -> bool:
        """Whether its last part stands for keys that depend on the data."""
        return self.path[-1].startswith("{")


def parts(path: str) -> tuple[str, ...]:
    """Split a path; the entries of a list are a part of their own.

    A name in braces may hold spaces and dots.
    """
    return tuple(re.findall(r"\{[^}]*\}|\[\]|[^.\[\]]+", path))


def schemas() -> dict[str, list[Row]]:
    """Return the rows of every document on the page."""
    found: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            rows = found.setdefault(line.removeprefix("## "), [])
        elif line.startswith("| `"):
            keys, kind, _ = (cell.strip() for cell in line.strip("|").split("|", 2))
            nullable = kind.endswith(" or null")
            kind = kind.removesuffix(" or null")
            assert kind in _KINDS, line
            for key, optional in re.findall(r"`([^`]+)`(\??)", keys):
                rows.append(Row(parts(key), kind, nullable, bool(optional)))
    return found


def faults(document: Any, rows: list[Row]) -> list[str]:
    """Say where a document is not as its rows say."""
    return list(_faults(document, (), [Row(("schema",), "text", False, False), *rows]))


def _faults(value: Any, at: tuple[str, ...], rows: list[Row]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _entry(item, (*at, "[]"), rows)
        return
    below = [row for row in rows if _holds(row.path, at) and len(row.path) == len(at) + 1]
    for row in below:
        if not row.is_pattern and not row.optional and row.path[-1] != "[]" and row.path[-1] not in value:
            yield f"{'.'.join(row.path)}: missing"
    for key, item in value.items():
        yield from _entry(item, (*at, key), rows)


def _entry(value: Any, at: tuple[str, ...], rows: list[Row]) -> Iterator[str]:
    """Check one value, found at a place, and what is inside it."""
    row = next((row for row in rows if row.path == at), None) or next(
        (row for row in rows if row.is_pattern and len(row.path) == len(at) and _holds(row.path, at[:-1])),
        None,
    )
    if row is None:
        if at[-1] == "[]" and any(_holds(other.path, at) for other in rows):  # entries that are objects
            row = Row(at, "object", False, False)
        else:
            yield f"{'.'.join(at)}: not on the page"
            return
    if value is None:
        if not row.nullable and row.kind != "any":
            yield f"{'.'.join(at)}: null"
        return
    if not _KINDS[row.kind](value):
        yield f"{'.'.join(at)}: {value!r} is no {row.kind}"
    elif row.kind in ("list", "object"):
        yield from _faults(value, at, rows)


def _holds(path: tuple[str, ...], at: tuple[str, ...]) -> bool:
    return len(path) > len(at) and path[: len(at)] == at
