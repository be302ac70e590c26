"""Which store a command is about: its folder, the beginning of its name, or what a shell's pattern gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ...kernels.errors import ConfigError

_Command = TypeVar("_Command", bound=Callable[..., Any])

RESULTS = Path("results")  # where `lagsweep run` puts stores
_INSIDE = "cells.zarr"  # every store has it
_UNDER_WAY = (".extending-", ".replaced-", ".building-", ".joining-")


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
        path that does not exist is the beginning of a store's name, in its folder or in ``results``.

    Raises
    ------
    ConfigError
        If several stores match; all are named.
    """
    if not paths:
        return None
    if len(paths) > 1:
        stores = [path for path in paths if _is_store(path)]
        return _only(stores, " ".join(map(str, paths))) or paths[0]
    (path,) = paths
    if path.exists() or not path.name or _has_parts(path):
        return path
    folders = [path.parent] if path.parent != Path() else [Path(), RESULTS]
    return _only(_beginning_with(path.name, folders), str(path)) or path


def _is_store(path: Path) -> bool:
    # An extension, a replacement or a merge under way leaves folders beside a store for a while.
    return (path / _INSIDE).is_dir() and not any(mark in path.name for mark in _UNDER_WAY)


def _has_parts(path: Path) -> bool:
    from ..store.tasks import task_folders

    return bool(task_folders(path))


def _beginning_with(name: str, folders: Sequence[Path]) -> list[Path]:
    found = []
    for folder in folders:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        found += [path for path in inside if path.name.startswith(name) and _is_store(path)]
    return found


def _only(stores: Sequence[Path], given: str) -> Path | None:
    if len(stores) > 1:
        some = ", ".join(map(str, stores[:5])) + (", …" if len(stores) > 5 else "")
        raise ConfigError(
            "STORE", "must be one store", given, f"{len(stores)} stores match: {some}. Name one."
        )
    return stores[0] if stores else None
