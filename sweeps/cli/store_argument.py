"""Which store a command is about: its folder, its name or how that begins, or what a shell's pattern gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ...kernels.errors import ConfigError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def store_argument(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Give a command the argument STORE: one folder, or None where it may be left out."""
    return click.argument(
        "store",
        nargs=-1,
        required=required,
        metavar="STORE" if required else "[STORE]",
        type=click.Path(path_type=Path),
        callback=lambda context, parameter, paths: the_store(paths),
    )


def the_store(paths: Sequence[Path]) -> Path | None:
    """Find the one store that is meant; what is not there is left to the reader's error.

    Parameters
    ----------
    paths : sequence of Path
        One path, or all that a shell's pattern matched: what is no store (a report, a chart) is skipped. A
        path that does not exist is the name of a store or its beginning, in its folder or in ``results``.

    Raises
    ------
    ConfigError
        If several stores match; all are named.
    """
    if not paths:
        return None
    from ..store.nearby import is_store, stores_called

    if len(paths) > 1:
        stores = [path for path in paths if is_store(path)]
        return _only(stores, " ".join(map(str, paths))) or paths[0]
    (path,) = paths
    if path.exists() or not path.name or _has_parts(path):
        return path
    return _only(stores_called(path), str(path)) or path


def _has_parts(path: Path) -> bool:
    from ..store.tasks import task_folders

    return bool(task_folders(path))


def _only(stores: Sequence[Path], given: str) -> Path | None:
    if len(stores) > 1:
        from ..store.nearby import some_named

        way_out = f"{len(stores)} stores match: {some_named(stores)}. Name one."
        raise ConfigError("STORE", "must be one store", given, way_out)
    return stores[0] if stores else None
