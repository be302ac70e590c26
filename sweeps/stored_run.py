"""Run a sweep into a store: make it or go on with it, write unit after unit, and mark it complete."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lagsweep.errors import ConfigError, StoreError, message
from lagsweep.sweeps.batch import Cancelled, Record
from lagsweep.sweeps.executors import run_units
from lagsweep.sweeps.lock import StoreLock
from lagsweep.sweeps.plan import CELLS, Part, guessed_run_seconds
from lagsweep.sweeps.progress import Progress
from lagsweep.sweeps.run_record import note_run, versions
from lagsweep.sweeps.spec import SweepSpec
from lagsweep.sweeps.store import SweepStore, create_store, open_sweep
from lagsweep.sweeps.tables import read_unit_tables, remove_leftovers
from lagsweep.sweeps.unit_work import FAILED, UnitWork, empty_arrays

if TYPE_CHECKING:
    import xarray


class StopAtFailure(Exception):
    """A run failed and was asked to be the last (``--fail-fast``)."""


def run_into_store(
    spec: SweepSpec,
    folder: Path,
    *,
    executor: Any = "threads",
    threads: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    unit_runs: int | None = None,
    retry_failed: bool = False,
    fail_fast: bool = False,
) -> xarray.Dataset:
    """Run a sweep into a folder, or go on with the one that is there.

    Parameters
    ----------
    spec : SweepSpec
    folder : Path
        Made if missing. If it holds a smaller sweep with the same settings, that is extended.
    executor, threads, progress, cancel
        As :func:`lagsweep.sweeps.run.run_spec`.
    unit_runs : int, optional
        Runs of a unit, about; for a new store only.
    retry_failed : bool
        Run failed runs again.
    fail_fast : bool
        Stop at the first unit with a failed run.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    StoreError
        If the store cannot be made, resumed or extended, or is in use.
    Cancelled
        If `cancel` was set; what was finished is kept.
    """
    progress = progress or Progress()
    store, lock = open_or_create(spec, folder, unit_runs=unit_runs, progress=progress)
    with lock:
        try:
            StoredRun(
                store,
                executor=executor,
                threads=threads,
                progress=progress,
                cancel=cancel or threading.Event(),
                retry_failed=retry_failed,
                fail_fast=fail_fast,
            ).run()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            rule = f"cannot grow: {os.strerror(error.errno)}"
            raise StoreError(
                message("store", rule, str(folder), "Free some space and give the same command; it goes on.")
            ) from error
        finally:
            store.close()
    return open_sweep(folder)


def open_or_create(
    spec: SweepSpec, folder: Path, *, unit_runs: int | None, progress: Progress
) -> tuple[SweepStore, StoreLock]:
    """Open the store of a sweep, extend it where the spec asks for more, or make it; its lock is held."""
    from lagsweep.sweeps.extend import extend_store, recover_swap

    recover_swap(folder)
    if not folder.exists():
        return create_store(folder, spec, unit_runs)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise StoreError(
            message("store", "must be a stored sweep or not exist", str(folder), "Name another path.")
        )
    lock = StoreLock(folder)
    try:
        if lock.took_over:
            progress.note(f"store: a lock left by {lock.took_over} was stale and is taken over")
        store = SweepStore(folder)
        if store.spec.fingerprint != spec.fingerprint:
            return extend_store(store, spec, lock, unit_runs=unit_runs, progress=progress)
    except BaseException:
        lock.release()
        raise
    return store, lock


class StoredRun:
    """One run of the command on a store whose lock is held."""

    def __init__(
        self,
        store: SweepStore,
        *,
        executor: Any,
        threads: int | None,
        progress: Progress,
        cancel: threading.Event,
        retry_failed: bool = False,
        fail_fast: bool = False,
    ) -> None:
        self.store, self.executor, self.threads = store, executor, threads
        self.progress, self.cancel = progress, cancel
        self.retry_failed, self.fail_fast = retry_failed, fail_fast
        self.failed = 0

    def run(self) -> None:
        """Do what is missing, then mark the store complete."""
        store = self.store
        left_behind = store.files.sweep_leftovers() + remove_leftovers(store.folder)
        if left_behind:
            self.progress.note(f"store: removed {left_behind} unfinished files of a run that was killed")
        for number in store.journal.damaged:
            self.progress.note(f"journal: line {number} is damaged; its unit is run again")
        self._note_versions()
        todo = self._todo()
        if not todo and store.complete:
            return
        with note_run(store.folder, units=len(todo)):
            if todo:
                store.reopen()
                self._run_units(todo)
            if store.spec.until is not None:
                from lagsweep.sweeps.sequential_stopping import run_rounds

                run_rounds(self)
            store.finish()

    def _note_versions(self) -> None:
        for name, now in versions().items():
            then = self.store.attributes.get(name)
            if then is not None and then != now:
                self.progress.note(
                    f"store: was made with {name.replace('_version', '')} {then}, this is {now}"
                )

    def _todo(self) -> list[tuple[Part, tuple[int, ...], np.ndarray]]:
        """Give the units with runs still to do, and which."""
        found = []
        until = self.store.spec.until is not None
        for part, unit in self.store.units():
            if until and part.name == CELLS:
                continue  # its rounds decide
            todo = ~self.store.done_mask(part, unit)
            record = self.store.journal.units(part.name).get(_name(unit))
            if self.retry_failed and record is not None and record.get("failed"):
                todo |= self.store.read_unit(part, unit).status == FAILED
            if todo.any():
                found.append((part, unit, todo))
        return found

    def _run_units(self, todo: list[tuple[Part, tuple[int, ...], np.ndarray]]) -> None:
        missing = sum(int(mask.sum()) for _, _, mask in todo)
        total = sum(int(np.prod(part.layout.shape)) for part in self.store.parts)
        self.progress.begin(total, total - missing)
        try:
            self.execute(todo, missing)
        finally:
            self.progress.end()

    def execute(self, todo: list[tuple[Part, tuple[int, ...], np.ndarray]], runs: int) -> None:
        """Run units on the executor; each is written and journaled as it completes."""
        from lagsweep.sweeps.run import thread_count

        count = thread_count(self.executor, self.threads)
        if count is None:
            from lagsweep.sweeps.dask_executor import run_on_cluster

            run_on_cluster(self, todo)
            return
        run_units(
            self.works(todo),
            runs=runs,
            threads=count,
            unit_done=self.unit_done,
            progress=self.progress,
            cancel=self.cancel,
            run_seconds=guessed_run_seconds(self.store.spec.base, self.store.spec.design),
        )

    def works(self, todo: list[tuple[Part, tuple[int, ...], np.ndarray]]) -> Iterator[UnitWork]:
        """Make the work of units, one by one."""
        for part, unit, mask in todo:
            work = make_work(self.store, part, unit, mask)
            if work.runs:
                yield work
            else:  # every cell of it is excluded
                self.progress.advance(int(mask.sum()))
                self.unit_done(work)

    def unit_done(self, work: UnitWork) -> None:
        """Write a unit, then its line in the journal."""
        skipped = int((work.arrays.status == 3).sum())
        self.progress.advance(min(skipped, int(work.arrays.status.size) - work.runs))
        self.accept(work, write_work(self.store, work))

    def accept(self, work: UnitWork, record: dict[str, Any]) -> None:
        """Write a unit's line in the journal and tell its failures."""
        from lagsweep.sweeps.run import tell_failures

        self.store.journal.append(record)
        self.failed += len(work.arrays.failures)
        tell_failures(work, self.progress)
        if self.fail_fast and work.arrays.failures:
            self.cancel.set()
            raise StopAtFailure


def make_work(store: SweepStore, part: Part, unit: tuple[int, ...], todo: np.ndarray) -> UnitWork:
    """Make the work of a unit; what it holds already and is not to do again is read first."""
    spec = store.spec
    tables = spec.tables if part.name == CELLS else ()
    record = Record(
        batches="batches" in tables,
        timeline="timeline" in tables,
        rollouts="rollouts" in tables or (spec.masks and part.name == CELLS),
    )
    if todo.all():
        cells, seeds = todo.shape
        arrays = empty_arrays(part.metrics, cells, seeds, lag_counts=part.keep_lag_counts)
    else:
        arrays = store.read_unit(part, unit)
    return UnitWork(part, unit, arrays, todo, record)


def write_work(store: SweepStore, work: UnitWork) -> dict[str, Any]:
    """Write a unit's data and tables, with the rows of runs that were not done again; gives the record."""
    kept = None
    if not work.todo_asked.all():
        kept = {
            table: _rows_kept(frame, work)
            for table, frame in read_unit_tables(store.folder, work.name).items()
        }
    return store.write_unit(work, kept)


def _rows_kept(frame: Any, work: UnitWork) -> Any:
    import polars

    again = [
        (int(work.part.cell_ids.reshape(-1)[work.cells[cell]]), int(work.seeds[seed]))
        for cell, seed in np.argwhere(work.todo_asked)
    ]
    redone = polars.DataFrame(
        {
            "cell": np.array([cell for cell, _ in again], np.int64),
            "seed": np.array([seed for _, seed in again], np.uint64),
        }
    )
    return frame.join(redone, on=["cell", "seed"], how="anti", maintain_order="left")


def _name(unit: tuple[int, ...]) -> str:
    from lagsweep.sweeps.units import unit_name

    return unit_name(unit)


UnitDone = Callable[[UnitWork], None]
__all__ = ["Cancelled", "ConfigError", "StopAtFailure", "StoredRun", "open_or_create", "run_into_store"]
