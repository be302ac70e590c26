"""Which stores lie near a path: those that it names, or begins to name, and those that may be meant by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from .place import beside
from .proof import ZARR_NAME

RESULTS = Path("results")  # where `lagsweep run` puts stores
REPLACED = ".replaced-"
_UNDER_WAY = (".extending-", REPLACED, ".building-", ".joining-")
_MOST_NAMED = 5
_DIGITS = re.compile("-[0-9a-f]{8}$")  # of the fingerprint, behind the name


def is_store(path: Path) -> bool:
    """Tell whether a folder looks like a store: an extension or a merge under way leaves others beside it."""
    return (path / ZARR_NAME).is_dir() and not any(mark in path.name for mark in _UNDER_WAY)


def stores_called(path: Path) -> list[Path]:
    """List the stores that a path's last part may name, in its folder: exactly, or else by its beginning.

    A store's folder is its name and eight digits. Those of a name alone may lie here or in ``results``.

    Examples
    --------
    >>> stores_called(Path("no-such-store"))
    []
    """
    found = [store for store in _stores_in(_folders(path)) if store.name.startswith(path.name)]
    whole = [store for store in found if store.name == path.name]
    named = [store for store in found if _DIGITS.sub("", store.name) == path.name]
    return whole or named or found


def some_named(stores: Sequence[Path]) -> str:
    """Name the first few of some stores.

    Examples
    --------
    >>> some_named([Path("results/a"), Path("results/b")])
    'results/a, results/b'
    """
    return ", ".join(map(str, stores[:_MOST_NAMED])) + (", …" if len(stores) > _MOST_NAMED else "")


def way_to_a_store(path: Path) -> str:
    """Say what to do about a path that is no store: the stores that may be meant, where there are some."""
    if not path.exists() and beside(path, REPLACED):
        return "An extension or a merge of it was killed; the run's command or `lagsweep compact` goes on."
    inside = _stores_in([path])
    found = inside or (stores_called(path) if path.name else [])
    if not found and path.name:
        # The digits behind a name are not what anybody types.
        near = {store.name.rpartition("-")[0] or store.name: store for store in _stores_in(_folders(path))}
        near |= {store.name: store for store in near.values()}
        found = [near[name] for name in get_close_matches(path.name, near, n=1)]
    if len(found) == 1:
        return f"Did you mean {str(found[0])!r}?"
    if found:
        return f"Stores {'in it' if inside else 'that begin so'}: {some_named(found)}."
    return "Check the path, or run the sweep."


def _folders(path: Path) -> list[Path]:
    return [path.parent] if path.parent != Path() else [Path(), RESULTS]


def _stores_in(folders: Sequence[Path]) -> list[Path]:
    found = []
    for folder in folders:
        try:
            inside = sorted(folder.iterdir())
        except OSError:
            continue
        found += [path for path in inside if is_store(path)]
    return found
