"""Which columns of which framework mean what: maps kept as data, found by the names in a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from ...kernels.errors import ConfigError, nearest
from .canonical import COLUMNS, PLACES

_FILE = files("lagsweep.sweeps.logs") / "column_maps" / "frameworks.toml"
KINDS = ("sum", "minus", "product", "quotient", "change")


@dataclass(frozen=True)
class Source:
    """How a column is made from a file's own: one of them, or several joined.

    Attributes
    ----------
    kind : str
        ``column``, ``sum``, ``minus``, ``product``, ``quotient`` or ``change``.
    names : tuple of str
        Names in the file; ``*`` stands for any text.
    """

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        """Write it as tables show it."""
        first, *rest = self.names
        match self.kind:
            case "column":
                return first
            case "minus":
                return " - ".join(self.names)
            case "quotient":
                bottom = " + ".join(rest)
                return f"{first} / ({bottom})" if len(rest) > 1 else f"{first} / {bottom}"
            case "change":
                return f"growth of {first}"
        return (" + " if self.kind == "sum" else " * ").join(self.names)


@dataclass(frozen=True)
class Framework:
    """What a framework's log looks like.

    Attributes
    ----------
    name, title, origin : str
    family, side : str
        Logs of one family and two sides are of one run.
    marks : tuple of str
        Patterns, one of which is there.
    columns : mapping of str to tuple of Source
        The ways to make each column, the first that works counts.
    notes, unused : mapping of str to str
        What to know of a column that is read; names that mislead, and why they are not read.
    inside, beside : tuple of str
        Columns that the whole step holds, and those that run beside it, as the framework's code says.
    """

    name: str
    title: str
    origin: str
    family: str
    side: str
    marks: tuple[str, ...]
    columns: Mapping[str, tuple[Source, ...]]
    notes: Mapping[str, str]
    unused: Mapping[str, str]
    inside: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Return every name or pattern that it may read."""
        return {name for ways in self.columns.values() for one in ways for name in one.names}


@cache
def shipped_frameworks() -> dict[str, Framework]:
    """Load the shipped maps, by name.

    Examples
    --------
    >>> str(shipped_frameworks()["verl"].columns["training_seconds"][0])
    'timing_s/update_actor'
    """
    tables = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {name: _framework(name, table, tables) for name, table in tables.items()}


def _framework(name: str, table: Mapping[str, Any], tables: Mapping[str, Any]) -> Framework:
    base = tables[table["like"]] if "like" in table else {}
    parts = {key: {**base.get(key, {}), **table.get(key, {})} for key in ("columns", "notes", "unused")}
    columns = {key: ways for key, given in parts["columns"].items() if (ways := _ways(given))}
    if name == "lagsweep":
        columns = {key: (Source("column", (key,)),) for key in (*PLACES, *COLUMNS)}
    return Framework(
        name=name,
        title=table["title"],
        origin=table.get("source", ""),
        family=table.get("family", name),
        side=table.get("side", ""),
        marks=tuple(table["marks"]),
        columns=columns,
        notes={key: words for key, words in parts["notes"].items() if key in columns},
        unused=parts["unused"],
        inside=tuple(table.get("inside", ())),
        beside=tuple(table.get("beside", ())),
    )


def _ways(given: Any) -> tuple[Source, ...]:
    """Read what stands behind a column in a map."""
    if given == "":
        return ()
    found = []
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, str):
            found.append(Source("column", (one,)))
        else:
            ((kind, names),) = one.items()
            found.append(Source(kind, (names,) if isinstance(names, str) else tuple(names)))
    return tuple(found)


def matching(pattern: str, present: Sequence[str]) -> list[str]:
    """Return the columns that a name or a pattern stands for.

    Examples
    --------
    >>> matching("timeperf/*", ["step", "timeperf/rollout"])
    ['timeperf/rollout']
    """
    if "*" not in pattern:
        return [pattern] if pattern in present else []
    return [name for name in present if fnmatchcase(name, pattern)]


def recognized(present: Sequence[str]) -> Framework | None:
    """Find the framework that a file's columns are of, None where none fits.

    Of those that have a mark there, the one that can read most columns; of equals the one with more marks.

    Examples
    --------
    >>> recognized(["step", "timing_s/gen", "timing_s/step", "fully_async/trainer/idle_ratio"]).name
    'verl_fully_async'
    >>> recognized(["step", "timing_s/gen", "timing_s/step"]).name
    'verl'
    """
    best: tuple[tuple[int, int], Framework] | None = None
    for one in shipped_frameworks().values():
        marks = sum(bool(matching(mark, present)) for mark in one.marks)
        if not marks:
            continue
        wanted = one.names() | set(one.marks)
        read = sum(bool(matching(name, present)) for name in wanted)
        if best is None or (read, marks) > best[0]:
            best = (read, marks), one
    return best[1] if best else None


def framework_named(name: Any) -> Framework:
    """Return a shipped map by its name.

    Raises
    ------
    ConfigError
        For a name that is not known.

    Examples
    --------
    >>> framework_named("trl").title
    'TRL'
    """
    known = shipped_frameworks()
    plain = name.lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else name
    if isinstance(plain, str) and plain in known:
        return known[plain]
    way_out = nearest(plain, known) or "Leave it out to have it found by the columns' names."
    raise ConfigError("framework", f"must be one of {', '.join(known)}", name, way_out)
