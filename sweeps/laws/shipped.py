"""The real laws that come with the package: names, data and where they are from."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, nearest

_FOLDER = files("lagsweep.sweeps.laws") / "shipped_laws"


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
def shipped_data(name: str) -> tuple[str, np.ndarray, list[str]]:
    """Read one shipped law.

    Returns
    -------
    (str, ndarray of int64, list of str)
        Its kind (``"counts"``, ``"pairs"`` or ``"groups"``), the tokens, and the other column as text.

    Raises
    ------
    ConfigError
        If there is no law of that name.
    """
    index = shipped_index()
    if not isinstance(name, str) or name not in index:
        way_out = nearest(name, index) or f"Shipped laws: {', '.join(index)}."
        raise ConfigError("name", "must be a shipped law", name, way_out)
    lines = (_FOLDER / f"{name}.csv").read_text(encoding="ascii").splitlines()[1:]
    cells = [line.split(",") for line in lines]
    return index[name]["kind"], np.array([int(row[0]) for row in cells]), [row[1] for row in cells]


def source_text(name: str) -> str:
    """Write an entry of the index as the text of ``law.source``."""
    entry = shipped_index()[name]
    return f"{entry['about']} Source: {entry['source']}. License: {entry['license']}. {entry['attribution']}"
