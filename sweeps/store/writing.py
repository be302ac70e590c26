"""Run a sweep into a store: make it or go on with it, write unit after unit, and mark it complete."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import StoreError
from ..execute.compiling import compile_first
from ..execute.plan import CELLS, Part, guessed_run_seconds, total_runs
from ..execute.processes import block_runner
from ..execute.progress import Progress
from ..execute.rounds import run_rounds
from ..execute.threads import run_units
from ..execute.unit_arrays import Failure
from ..execute.units import unit_name
from ..execute.work import Todo, UnitWork, runs_of, tell_failures
from ..results.cells import not_recorded_note
from ..runs.status import DONE, FAILED
from ..spec.spec import SweepSpec
from ..spec.stopping import Rule, parse_rule
from .cluster import run_stored_on_cluster
from .lock import StoreLock
from .merge import is_merged, merge_units
from .place import faults_of_the_machine, refuse_links
from .recorded import unrecorded_names
from .resume import drop_kept, keep_old, make_ready, refuse_older
from .run_record import note_run, versions
from .store import SweepStore, create_store, open_sweep
from .tasks import Task, refuse_for_task, task_folder, task_unit_runs
from .units import known_as, make_work, write_work

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
    rerun: bool = False,
    task: Task | None = None,
) -> xarray.Dataset:
    """Run a sweep into a folder, or go on with the one that is there.

    Parameters
    ----------
    spec : SweepSpec
    folder : Path
        Made if missing. If it holds a smaller sweep with the same settings, that is extended.
    executor, threads, progress, cancel
        As :func:`.execute.sweep.run_spec`.
    unit_runs : int, optional
        Runs of a unit, about; for a new store only.
    retry_failed : bool
        Run failed runs again.
    fail_fast : bool
        Stop at the first unit with a failed run.
    rerun : bool
        Undo everything that is stored, whatever its version, and run it again.
    task : Task, optional
        Run its share alone, into a store of its own beside `folder`.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    StoreError
        If the store cannot be made, resumed, extended or written, is in use, or is moved meanwhile.
    Cancelled
        If `cancel` was set before everything was done; what was finished is kept.
    """
    from ..execute.threads import thread_count

    progress = progress or Progress()
    if task is not None:
        refuse_for_task(spec, folder, task)
        folder, unit_runs = task_folder(folder, task), unit_runs or task_unit_runs(spec, task)
    with block_runner(executor, thread_count(executor, threads), spec.custom):
        pass  # what does not fit is refused before anything is written
    with faults_of_the_machine(folder):
        compile_first(spec.base, progress)
        store, lock = open_or_create(spec, folder, unit_runs=unit_runs, progress=progress, rerun=rerun)
        run = None
        try:
            run = StoredRun(
                store,
                lock,
                executor=executor,
                threads=threads,
                progress=progress,
                cancel=cancel or threading.Event(),
                retry_failed=retry_failed,
                fail_fast=fail_fast,
                task=task,
            )
            run.run()
        finally:
            store, lock = (store, lock) if run is None else (run.store, run.lock)
            store.close()
            lock.release()
    return open_sweep(folder)


def open_or_create(
    spec: SweepSpec, folder: Path, *, unit_runs: int | None, progress: Progress, rerun: bool = False
) -> tuple[SweepStore, StoreLock]:
    """Open the store of a sweep, extend it where the spec asks for more, or make it; its lock is held."""
    from .aside import recover_swap
    from .extend import extend_store

    if folder.is_symlink():  # a link to a store stays one: it is the target that is extended
        folder = folder.resolve()
    recover_swap(folder)
    if not folder.exists():
        return create_store(folder, spec, unit_runs)
    if not folder.is_dir() or not any(folder.iterdir()):
        raise StoreError("store", "must be a stored sweep or not exist", str(folder), "Name another path.")
    lock = StoreLock(folder)
    try:
        if lock.took_over:
            progress.note(f"store: a lock left by {lock.took_over} was stale and is taken over")
        refuse_links(folder)
        store = SweepStore(folder, same_law=not rerun)
        if not rerun:
            refuse_older(store)
        if rerun or store.spec.fingerprint != spec.fingerprint:
            return extend_store(store, spec, lock, unit_runs=unit_runs, progress=progress, rerun=rerun)
    except BaseException:
        lock.release()
        raise
    return store, lock


class StoredRun:
    """One run of the command on a store whose lock is held."""

    def __init__(
        self,
        store: SweepStore,
        lock: StoreLock,
        *,
        executor: Any,
        threads: int | None,
        progress: Progress,
        cancel: threading.Event,
        retry_failed: bool = False,
        fail_fast: bool = False,
        task: Task | None = None,
    ) -> None:
        self.store, self.lock, self.executor, self.threads = store, lock, executor, threads
        self.progress, self.cancel = progress, cancel
        self.retry_failed, self.fail_fast, self.task = retry_failed, fail_fast, task

    def run(self) -> None:
        """Do what is missing, then mark the store complete; a task does its share and marks nothing."""
        store = self.store
        self.check_place()
        make_ready(store, self.progress)
        self._note_versions()
        todo = self._todo()
        if todo or not store.complete:  # else it stays as it is, also where a newer version cuts coarser
            self._complete(todo)
            if self.task is None:
                self.store, self.lock = merge_units(store, self.lock, self.progress, self.cancel)

    def _complete(self, todo: Todo) -> None:
        store = self.store
        self._note_unrecorded()
        with note_run(store.place, units=len(todo)):
            store.reopen()
            if todo or store.spec.until is not None:
                self._run_units(todo)
            self.check_place()
            drop_kept(store)
            if self.task is None and is_merged(store):  # else what is merged is the complete store
                store.finish()

    def check_place(self) -> None:
        """Make sure that the path is still the folder whose lock is held."""
        self.store.place.check()
        self.lock.check()

    def _note_versions(self) -> None:
        for name, now in versions().items():
            then = self.store.attributes.get(name)
            if then is not None and then != now:
                self.progress.note(
                    f"store: was made with {name.replace('_version', '')} {then}, this is {now}"
                )

    def _note_unrecorded(self) -> None:
        if missing := unrecorded_names(self.store.parts):
            self.progress.note(
                f"store: {not_recorded_note(missing)}, nor for what is added; --rerun records it"
            )

    def _todo(self) -> Todo:
        """Return the units with runs still to do, and which."""
        found: Todo = []
        rounds_decide = self.store.spec.until is not None
        units = self.store.units() if self.task is None else self.task.units(self.store)
        for part, unit in units:
            record = self.store.journal.units(part.name).get(unit_name(unit))
            todo = ~self.store.done_mask(part, unit)
            if rounds_decide and part.name == CELLS:
                todo[:] = False
            if self.retry_failed and record is not None and record.get("failed"):
                todo |= self.store.read_status(part, unit) == FAILED
            if todo.any():
                found.append((part, unit, todo))
        return found

    def _run_units(self, todo: Todo) -> None:
        missing = runs_of(todo)
        total = total_runs(self.store.parts)
        if self.task is not None:
            total = missing + sum(self._runs_done(part.name) for part in self.store.parts)
        until = self.store.spec.until
        if until is not None:
            missing += self.store.part(CELLS).runs - self._runs_done(CELLS)
        self.progress.begin(total, total - missing)
        try:
            self.execute(todo)
            if until is not None:
                self._run_rounds(parse_rule(until))
        except BaseException:
            self.progress.kept(self._runs_kept())
            raise
        finally:
            self.progress.end()

    def _runs_done(self, part: str) -> int:
        return sum(int(record["runs"]) for _, record in self.store.done_units(self.store.part(part)))

    def _runs_kept(self) -> int:
        """Count the runs that the journal calls done: what the same command begins with."""
        store, rounds_decide = self.store, self.store.spec.until is not None
        units = store.units() if self.task is None else self.task.units(store)
        done = [
            (part, unit, store.done_mask(part, unit))
            for part, unit in units
            if not (rounds_decide and part.name == CELLS)  # of such a unit some cells alone were run
        ]
        return runs_of(done) + (self._runs_done(CELLS) if rounds_decide else 0)

    def _run_rounds(self, rule: Rule) -> None:
        """Add seeds round by round, only to the cells that need more."""
        store, part = self.store, self.store.part(CELLS)

        def run(open_cells: np.ndarray, first: int, last: int) -> None:
            todo: Todo = []
            for unit in part.layout.units():
                start, stop = part.layout.box(unit)[-1]
                record = store.journal.units(CELLS).get(unit_name(unit), {"rewriting": True})
                if first <= start < last and record.get("rewriting"):
                    mask = np.repeat(open_cells[part.layout.cells(unit)][:, None], stop - start, axis=1)
                    if mask.any():
                        todo.append((part, unit, mask))
            self.execute(todo)

        def read(metric: str, seeds: int) -> np.ndarray:
            box = (*((0, size) for size in part.layout.shape[:-1]), (0, seeds))
            values = store.read(part, metric, box).astype(np.float64)
            status = store.read(part, "status", box)
            return np.where(status == DONE, values, np.nan).reshape(-1, seeds)

        run_rounds(rule, part, run, read, self.progress)

    def execute(self, todo: Todo) -> None:
        """Run units on the executor; each is written and journaled as it completes."""
        from ..execute.threads import thread_count

        self._announce_rewrites(todo)
        count = thread_count(self.executor, self.threads)
        if count is None and self.store.spec.custom is None:
            run_stored_on_cluster(
                self.store,
                todo,
                self.executor,
                self.accept,
                holder=self.lock.holder,
                progress=self.progress,
                cancel=self.cancel,
            )
            return
        spec = self.store.spec
        with block_runner(self.executor, count, spec.custom) as run:
            run_units(
                self._works(todo),
                runs=runs_of(todo),
                threads=count or 0,
                unit_done=self._unit_done,
                progress=self.progress,
                cancel=self.cancel,
                run_seconds=guessed_run_seconds(spec.base, spec.design),
                run=run,
            )

    def _announce_rewrites(self, todo: Todo) -> None:
        """Say in the journal which units that are done, wholly or in part, will be written again.

        Between two of their arrays the files are not those that the journal tells of. A unit that grows keeps
        what is done in it, since old and new files agree on that. A unit with runs to do again counts as
        undone until it is written. Its old files are kept until the end: readers go on with them, and a
        resume puts them back.
        """
        for part, unit, mask in todo:
            record = self.store.journal.units(part.name).get(unit_name(unit))
            if record is None:
                continue
            self.check_place()
            keep_old(self.store, part, unit, record)
            if record.get("rewriting"):
                continue
            grows = not (mask & self.store.done_mask(part, unit)).any()
            kept = {name: record[name] for name in ("boxes",) if name in record} if grows else {"boxes": []}
            self.store.journal.append({**record, **kept, "rewriting": True})

    def _works(self, todo: Todo) -> Iterator[UnitWork]:
        """Make the work of units, one by one."""
        for part, unit, mask in todo:
            work = make_work(self.store, part, unit, mask, known=known_as(self.store, part, unit))
            if work.runs:
                yield work
            else:  # every cell of it is excluded
                self._unit_done(work)

    def _unit_done(self, work: UnitWork) -> None:
        """Write a unit, then its line in the journal."""
        self.check_place()
        record = write_work(self.store, work, known=known_as(self.store, work.part, work.unit))
        self.accept(work.part, work.unit, record, work.arrays.failures)

    def accept(
        self,
        part: Part,
        unit: tuple[int, ...],
        record: dict[str, Any],
        failures: dict[tuple[int, int], Failure],
    ) -> None:
        """Write a unit's line in the journal and tell its failures."""
        self.check_place()
        self.store.journal.append(record)
        tell_failures(part, unit, failures, self.progress)
        if self.fail_fast and failures:
            self.cancel.set()
            raise StopAtFailure
