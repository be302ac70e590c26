"""Merge a finished store's many small units into fewer, larger ones; no value changes.

A unit is one chunk of every array, so a sweep of long runs, or one that was cut finely, ends as very many
small files. When all of it is done, units are merged: the store is built aside with a coarser cut and takes
the folder's name when it is whole and complete, so a kill at any moment leaves the old store, with all its
units, or the new one, and the same command goes on. The coarser cut follows from the spec and the cut of the
run alone, so its bytes do not depend on what happened on the way.
"""

from __future__ import annotations

import threading
from pathlib import Path

from ...kernels.errors import StoreError
from ..execute.progress import Progress
from ..results import dataset as results
from .aside import flush, recover_swap, replace_store
from .carry import carry_over
from .cut import merged_parts
from .dataset import settle
from .lock import StoreLock
from .packs import PACK
from .place import faults_of_the_machine, refuse_links
from .store import SweepStore

_SOON_RUN_AGAIN = 60.0  # seconds of work: no reason to wait for the disk before the old files go
_MAY_DIFFER = ("complete", "coordinates")  # of the attributes: what the new store says for itself


def is_merged(store: SweepStore) -> bool:
    """Tell whether a store is cut as a finished one is, and no unit of it is one file."""
    wanted = merged_parts(store.spec, store.parts)
    packed = (PACK in record for part in store.parts for _, record in store.done_units(part))
    return all(part.layout == own.layout for part, own in zip(wanted, store.parts)) and not any(packed)


def merge_units(
    store: SweepStore, lock: StoreLock, progress: Progress, cancel: threading.Event | None = None
) -> tuple[SweepStore, StoreLock]:
    """Merge the units of a store whose runs are all done; gives the store and the lock that are there then.

    Raises
    ------
    StoreError
        If a file of it is not the one that the journal tells of: nothing is merged then.
    Cancelled
        If `cancel` was set: nothing is merged then.
    """
    if is_merged(store):
        return store, lock
    parts = merged_parts(store.spec, store.parts)
    before, after = (sum(part.layout.count for part in cut) for cut in (store.parts, parts))

    def fill(merged: SweepStore) -> None:
        # Versions and revision are those of the runs, not of the program that merges their units.
        fresh = merged.files.root["attributes"]
        said = {name: fresh[name] for name in _MAY_DIFFER if name in fresh}
        merged.attributes = merged.files.root["attributes"] = {**store.attributes, **said}
        merged.journal.rewrite(merged.place, merged.living_lines())
        with progress.steps("units merged", after) as step:
            carry_over(store, merged, cancel, digest_all=True, step=step)
        merged.finish()
        if _seconds_of_work(merged) > _SOON_RUN_AGAIN:
            flush(merged.folder)

    merged = replace_store(store, lock, store.spec, parts, fill)
    if before != after:
        progress.note(f"store: merged {before:,} units into {after:,}")
    return merged


def _seconds_of_work(store: SweepStore) -> float:
    return sum(float(record["seconds"]) for part in store.parts for _, record in store.done_units(part))


def compact_store(
    folder: Path, progress: Progress | None = None, cancel: threading.Event | None = None
) -> tuple[int, int]:
    """Merge the units of a finished store; gives how many there were, and how many there are.

    Raises
    ------
    StoreError
        If there is no store, it is not finished, another run is on it, a file of it does not hold, or the
        machine lacks what it takes: then it stays as it was.
    Cancelled
        If `cancel` was set: it stays as it was.
    """
    path = folder.resolve() if folder.is_symlink() else folder
    with faults_of_the_machine(path):
        recover_swap(path)
        SweepStore(path, same_law=False)  # refused before a lock is written into a folder that is no store
        lock = StoreLock(path)
        store = None
        try:
            refuse_links(path)
            store = SweepStore(path, same_law=False)
            _check_finished(store)
            before = sum(part.layout.count for part in store.parts)
            store, lock = merge_units(store, lock, progress or Progress(), cancel)
            return before, sum(part.layout.count for part in store.parts)
        finally:
            if store is not None:
                store.close()
            lock.release()


def _check_finished(store: SweepStore) -> None:
    settle(store)
    schema = int(store.attributes.get("schema_version", 1))
    if schema < results.OLDEST_WRITTEN:
        rule = f"must be at least {results.OLDEST_WRITTEN} to merge the units of a store"
        raise StoreError("schema_version", rule, schema, "Leave it as it is; it can be read.")
    if not store.complete:
        raise StoreError(
            "store",
            "must be finished before its units are merged",
            str(store.folder),
            "Give the run's command again; it merges them when all is done.",
        )
