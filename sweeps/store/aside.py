"""A store built aside, which takes the folder's name when it is whole: old or new at any moment, never half.

Extending and merging both end so. A kill while the folders change names is finished, or taken back, by the
next command.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ..execute.plan import Part
from ..spec.spec import SweepSpec
from .lock import StoreLock, is_held
from .opening import REPLACED
from .place import beside
from .run_record import RUN_NAME
from .store import SweepStore, fill_folder

_ASIDE = ".extending-"


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
        replaced = folder.with_name(f"{folder.name}{REPLACED}{secrets.token_hex(4)}")
        os.rename(folder, replaced)
        os.rename(building, folder)
    except BaseException:
        new_lock.release()
        if folder.exists():
            shutil.rmtree(building, ignore_errors=True)
        raise
    lock.release()
    new_lock.moved_to(folder)
    shutil.rmtree(replaced, ignore_errors=True)
    return SweepStore(folder, same_law=False), new_lock


def recover_swap(folder: Path) -> None:
    """Finish, or take back, an extension that was killed while the folders changed names."""
    replaced = [path for path in beside(folder, REPLACED) if not is_held(path)]
    extending = [path for path in beside(folder, _ASIDE) if not is_held(path)]
    if not folder.exists() and replaced:
        # The old one moves away only when the new one is whole.
        source = extending.pop() if extending else replaced.pop()
        os.rename(source, folder)
    for leftover in (*replaced, *extending):
        shutil.rmtree(leftover, ignore_errors=True)
