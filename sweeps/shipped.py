"""The real laws that come with the package: names, data and where they are from."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from lagsweep.errors import ConfigError, message, nearest
from lagsweep.sweeps.trace_rows import TraceRows

_FOLDER = files("lagsweep.sweeps") / "shipped_laws"


@cache
def shipped_index() -> dict[str, dict[str, Any]]:
    """Describe every shipped law, by name: kind, rows, what it is, source and license.

    Examples
    --------
    >>> shipped_index()["azure-2023-conversation"]["license"]
    'CC-BY-4.0'
    """
    return json.loads((_FOLDER / "index.json").read_text(encoding="utf-8"))


@cache
def load_shipped(law_class: Any, name: str) -> Any:
    """Load one shipped law.

    Raises
    ------
    ConfigError
        If there is no law of that name.
    """
    index = shipped_index()
    if name not in index:
        way_out = nearest(str(name), index) or f"Shipped laws: {', '.join(index)}."
        raise ConfigError(message("name", "must be a shipped law", name, way_out))
    entry = index[name]
    text = (_FOLDER / f"{name}.csv").read_text(encoding="ascii").splitlines()[1:]
    columns = np.array([line.split(",") for line in text]).T
    labels = {"name": name, "source": source_text(entry), "spec": {"law": "shipped", "name": name}}
    tokens = columns[0].astype(np.int64)
    if entry["kind"] == "pairs":
        return law_class._from_rows(TraceRows.of_pairs(tokens, columns[1].astype(np.float64)), **labels)
    if entry["kind"] == "groups":
        return law_class._from_rows(TraceRows.of_groups(tokens, columns[1].tolist()), **labels)
    return law_class._counted(tokens, columns[1].astype(np.int64), **labels)


def source_text(entry: dict[str, Any]) -> str:
    """Write an entry of the index as the text of ``law.source``."""
    return f"{entry['about']} Source: {entry['source']}. License: {entry['license']}. {entry['attribution']}"
