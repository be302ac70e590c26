"""Units of a stored sweep on a Dask cluster: workers write them into the shared folder, receipts come back.

The journal is written by the process that started the run, after the receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import StoreError
from ..execute.dask import run_here, run_on_cluster
from ..execute.plan import Part
from ..execute.progress import Progress
from ..execute.unit_arrays import Failure
from ..execute.units import unit_name
from ..execute.work import Todo, runs_of
from .lock import LOCK_NAME
from .run_record import versions
from .store import SweepStore
from .units import Known, known_as, make_work, write_work

if TYPE_CHECKING:
    import threading

AcceptUnit = Callable[[Part, tuple[int, ...], dict[str, Any], dict[tuple[int, int], Failure]], None]


def run_stored_on_cluster(
    store: SweepStore,
    todo: Todo,
    client: Any,
    accept: AcceptUnit,
    *,
    holder: bytes,
    progress: Progress,
    cancel: threading.Event,
) -> None:
    """Run units of a store on a cluster; each is journaled, by `accept`, as its receipt comes.

    Raises
    ------
    UnitsLost
        If a unit killed its workers again and again.
    StoreError
        If the workers do not see the store's folder, or run another version.
    """
    if not todo:
        return  # and no worker is waited for
    cut = tuple(part.layout.chunks for part in store.parts)
    waiting = iter(todo)

    def submit(client: Any) -> Any:
        item = next(waiting, None)
        if item is None:
            return None
        part, unit, mask = item
        arguments = (
            str(store.folder.resolve()),
            store.spec.fingerprint,
            part.name,
            unit,
            np.packbits(mask),
            mask.shape,
            known_as(store, part, unit),
            cut,
            holder,
        )
        future = client.submit(unit_on_worker, *arguments, pure=False)
        return future, f"{part.prefix}{unit_name(unit)}", item

    def receive(item: Any, result: dict[str, Any]) -> None:
        part, unit, _ = item
        runs = runs_of([item])
        progress.advance(runs)
        progress.block(f"{part.prefix}{unit_name(unit)}", runs, result["record"]["seconds"])
        accept(part, unit, result["record"], result["failures"])

    run_on_cluster(client, unit_on_worker, submit, receive, progress, cancel)


def unit_on_worker(
    folder: str,
    fingerprint: str,
    part_name: str,
    unit: tuple[int, ...],
    packed: np.ndarray,
    shape: tuple[int, int],
    known: Known,
    cut: tuple[tuple[int, ...], ...],
    holder: bytes,
) -> dict[str, Any]:
    """Do one unit on a worker and write it; gives the journal's record and the failures.

    Raises
    ------
    StoreError
        If the folder is not there, holds another sweep, was made by other versions, or is not the one whose
        lock the run holds.
    """
    store = _store_on_worker(folder, fingerprint, cut, holder)
    _check_holder(store, holder)
    mask = np.unpackbits(packed, count=shape[0] * shape[1]).astype(bool).reshape(shape)
    work = make_work(store, store.part(part_name), tuple(unit), mask, known=known)
    run_here(work)
    _check_holder(store, holder)
    return {"record": write_work(store, work, known=known), "failures": dict(work.arrays.failures)}


def _check_holder(store: SweepStore, holder: bytes) -> None:
    """Make sure that the folder, as this machine sees it, is the one whose lock the run holds."""
    store.place.check()
    try:
        found = (store.folder / LOCK_NAME).read_bytes()
    except OSError:
        found = b""
    if found != holder:
        raise StoreError(
            "store",
            "must be the folder that the run holds; it was moved, removed or begun anew",
            str(store.folder),
            "Give the command again, with --store and the place it has now.",
        )


@lru_cache(maxsize=4)
def _store_on_worker(
    folder: str, fingerprint: str, cut: tuple[tuple[int, ...], ...], holder: bytes = b""
) -> SweepStore:
    """Open a store once per worker and run; `cut` tells a folder that was made anew with other units."""
    store = SweepStore(Path(folder))
    if store.spec.fingerprint != fingerprint or cut != tuple(part.layout.chunks for part in store.parts):
        raise StoreError(
            "store", "must be the sweep that is run", folder, "Give the workers the same shared folder."
        )
    for name, now in versions().items():
        if store.attributes.get(name) != now and name != "python_version":
            raise StoreError(
                name, f"must be {store.attributes.get(name)}, as where the store was made", now, "Align them."
            )
    return store
