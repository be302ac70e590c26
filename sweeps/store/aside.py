"""A store built aside, which takes the folder's name when it is whole: old or new at any moment, never half.

Extending and merging both end so. Where the system can, the two folders exchange their names in one step;
elsewhere a kill between two renames is finished, or taken back, by the next command.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ...kernels.errors import StoreError
from ..execute.plan import Part
from ..spec.spec import SweepSpec
from .lock import StoreLock, is_held
from .nearby import REPLACED
from .place import beside
from .run_record import RUN_NAME
from .store import SweepStore, fill_folder

_ASIDE = ".extending-"
_AT_FOLDER, _EXCHANGE = -100, 2  # of Linux's renameat2: names as the process sees them; exchange two


def replace_store(
    store: SweepStore,
    lock: StoreLock,
    spec: SweepSpec,
    parts: Sequence[Part],
    fill: Callable[[SweepStore], None],
) -> tuple[SweepStore, StoreLock]:
    """Put a store with these parts in the place of another, when `fill` has filled it.

    Parameters
    ----------
    store : SweepStore
        Its lock is held.
    lock : StoreLock
        That of `store`; released when the folder has changed hands.
    spec : SweepSpec
        Of the new store.
    parts : sequence of Part
    fill : callable
        Given the new store, puts into it what it is to hold.

    Returns
    -------
    SweepStore, StoreLock
        The new store under the old name, its lock held.
    """
    folder = store.folder
    building = folder.with_name(f"{folder.name}{_ASIDE}{secrets.token_hex(4)}")
    building.mkdir()
    new_lock = StoreLock(building)
    try:
        fill_folder(building, spec, parts)
        new = SweepStore(building, same_law=False)
        try:
            fill(new)
        finally:
            new.close()
        store.place.check()
        lock.check()
        store.close()
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(folder / RUN_NAME, building / RUN_NAME)
        replaced = building  # the name of the old one, when names are exchanged
        if not exchange(building, folder):
            replaced = folder.with_name(f"{folder.name}{REPLACED}{secrets.token_hex(4)}")
            _rename_both(folder, replaced, building)
    except BaseException:
        new_lock.release()
        if folder.exists():
            shutil.rmtree(building, ignore_errors=True)
        raise
    lock.release()
    new_lock.moved_to(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return SweepStore(folder, same_law=False), new_lock


def exchange(one: Path, other: Path) -> bool:
    """Let two folders have each other's name, in one step; tells whether the system can."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return False
    return call(_AT_FOLDER, os.fsencode(one), _AT_FOLDER, os.fsencode(other), _EXCHANGE) == 0


def flush(folder: Path) -> None:
    """Have the system write what is new to the disk, before what it replaces is removed."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if call(descriptor) != 0:
            raise OSError(ctypes.get_errno() or errno.EIO, "cannot be written to the disk", str(folder))
    finally:
        os.close(descriptor)


def _rename_both(folder: Path, replaced: Path, building: Path) -> None:
    os.rename(folder, replaced)
    try:
        os.rename(building, folder)
    except OSError:
        os.rename(replaced, folder)
        raise


def recover_swap(folder: Path) -> None:
    """Finish, or take back, what was killed while the folders changed names, and remove what it left.

    Raises
    ------
    StoreError
        If a living process is at it: the folder has no name for the moment.
    """
    found = [(path, is_held(path)) for path in (*beside(folder, REPLACED), *beside(folder, _ASIDE))]
    if not folder.exists() and any(held for _, held in found):
        raise StoreError(
            "store",
            "must not be in use, another process is extending it or merging its units",
            str(folder),
            "Give the command again when that is done.",
        )
    replaced = [path for path, held in found if not held and REPLACED in path.name[len(folder.name) :]]
    extending = [path for path, held in found if not held and path not in replaced]
    if not folder.exists() and replaced:
        # The old one moves away only when the new one is whole.
        source = extending.pop() if extending else replaced.pop()
        os.rename(source, folder)
    for leftover in (*replaced, *extending):
        shutil.rmtree(leftover, ignore_errors=True)
