"""Plain data and its JSON text: what every ``--json`` prints.

JSON has no NaN and no infinity: they become null. Numbers and arrays of NumPy become plain ones. Anything
else that JSON does not know is written as its text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

# What commands print under --json, each with its version, which rises when a key goes or changes its meaning;
# docs/json.md says what is in them.
DOCUMENTS = {
    "sweep": 1,
    "dry-run": 1,
    "simulate": 1,
    "verify": 1,
    "report": 1,
    "recommend": 1,
    "compare": 1,
    "plan": 1,
    "trace": 1,
    "calibrate": 1,
    "whatif": 1,
    "engine-fit": 1,
    "engine-samples": 1,
    "engine-show": 1,
    "engine-cards": 1,
    "ledger": 1,
    "ledger-drift": 1,
    "drift-law": 1,
    "ledger-models": 1,
    "ledger-kv": 1,
    "ledger-sync": 1,
    "ledger-checkpoint": 1,
    "validate": 1,
    "drill": 1,
    "drill-losses": 1,
    "presets": 1,
    "preset": 1,
    "lab": 1,
    "search": 1,
    "sensitivity": 1,
    "compact": 1,
    "parts": 1,
    "error": 1,
}


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Write one JSON document.

    Examples
    --------
    >>> json_text({"ess": float("nan"), "lags": (0, 1)})
    '{"ess": null, "lags": [0, 1]}'
    """
    return json.dumps(plain_data(value), indent=indent, allow_nan=False)


def json_document(kind: str, content: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Write the document that a command prints: what it is and which version of it comes first.

    Examples
    --------
    >>> json_document("report", {"bytes": 7})
    '{"schema": "lagsweep/report/1", "bytes": 7}'
    """
    return json_text({"schema": schema_name(kind), **content}, indent=indent)


def document_pieces(kind: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Write a document as :func:`json_document` does, letter for letter, a piece at a time.

    A value of `content` that is an iterator is a list of which nobody holds all: it gives lists of items that
    are plain already, with no number that is not finite.

    Examples
    --------
    >>> "".join(document_pieces("report", {"bytes": 7, "cells": iter([[{"cell": 1}], [{"cell": 2}]])}))
    '{"schema": "lagsweep/report/1", "bytes": 7, "cells": [{"cell": 1}, {"cell": 2}]}'
    """
    yield f'{{"schema": {json.dumps(schema_name(kind))}'
    for key, value in content.items():
        yield f", {json.dumps(key)}: "
        if not isinstance(value, Iterator):
            yield json_text(value)
            continue
        before = "["
        for items in value:
            yield before + json.dumps(items, allow_nan=False)[1:-1]
            before = ", "
        yield "]" if before == ", " else "[]"
    yield "}"


def schema_name(kind: str) -> str:
    """Return the name by which a document says what it is."""
    return f"lagsweep/{kind}/{DOCUMENTS[kind]}"


def plain_data(value: Any) -> Any:
    """Return a value as JSON has it, with all that is inside it.

    Examples
    --------
    >>> import numpy as np
    >>> plain_data([np.int64(3), np.float32(0.5), np.array([1.0, np.inf])])
    [3, 0.5, [1.0, None]]
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item) for item in value]
    return plain_data(value.tolist()) if hasattr(value, "tolist") else str(value)


def _key(key: Any) -> Any:
    return key if key is None or isinstance(key, str | int | float) else str(key)
