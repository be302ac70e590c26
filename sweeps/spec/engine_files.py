"""Engines in specs and flags: a table of fields, a file that has them, or both, where the fields win."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError
from ..user_files import decoded, parse_toml, read_bytes

FITTED = "fitted"  # a section that says where an engine is from; it is not read


def engine_table(path: str | Path) -> dict[str, Any]:
    """Read an engine's fields from a TOML file; what stands under [fitted] is not read.

    Raises
    ------
    ConfigError
        If it cannot be read or is not TOML.
    """
    content = decoded(read_bytes(path, "engine"), "engine", str(path))
    table = parse_toml(content, "engine", str(path))
    table.pop(FITTED, None)
    return table


def engine_fields(value: Any, folder: Path | None) -> Any:
    """Read a value of the setting `engine`: ``{file = "engine.toml", max_running = 64}`` becomes its fields.

    Parameters
    ----------
    value : object
        As a spec has it; anything but such a table is given back.
    folder : path, optional
        Where a relative path starts.
    """
    if not isinstance(value, Mapping):
        return value
    fields = {name: None if given == "none" else given for name, given in value.items()}
    if "file" not in fields:
        return fields
    path = fields.pop("file")
    if not isinstance(path, str):
        raise ConfigError("engine.file", "must be a path", path, 'Write { file = "engine.toml" }.')
    return engine_table((folder or Path()) / path) | fields


def with_engine_fields(settings: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put fields of an engine that were given one by one, as ``engine.max_running``, into the engine.

    Parameters
    ----------
    settings : dict
        Fields of a configuration; its engine is a table or none.
    changes : mapping
        Fields of the configuration and of its engine, which win.

    Examples
    --------
    >>> with_engine_fields({"engine": {"step_seconds": 0.01}}, {"engine.max_running": 8})
    {'engine': {'step_seconds': 0.01, 'max_running': 8}}
    """
    own = {name: value for name, value in changes.items() if name.startswith("engine.")}
    found = {**settings, **{name: value for name, value in changes.items() if name not in own}}
    if own:
        engine = found.get("engine") or {}
        given = dict(engine) if isinstance(engine, Mapping) else engine.to_dict()
        found["engine"] = given | {name.removeprefix("engine."): value for name, value in own.items()}
    return found
