"""Run units on a Dask cluster: workers write their own units into the shared folder, receipts come back.

A unit owns whole chunks and gives the same bytes wherever it is done, so a worker that dies loses nothing:
Dask runs its unit again. Only a bounded window of units is in Dask's hands at a time, since its scheduler
takes about a millisecond for each. The journal is written by the process that started the run, after the
receipt.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError, LagsweepError, StoreError
from ..runs.many import Cancelled
from .progress import Progress
from .threads import default_threads, run_units
from .work import Failure

if TYPE_CHECKING:
    import threading

    import xarray

    from ..spec.spec import SweepSpec
    from ..store.store import SweepStore
    from ..store.writing import StoredRun

WINDOW_PER_WORKER = 4
ALLOWED_FAILURES = 10  # every unit assigned to a dying worker is suspect, not only the running one
_POLL_SECONDS = 0.5
_WORKERS_SECONDS = 2.0  # how often the number of workers is looked at


class UnitsLost(LagsweepError):
    """Some units killed every worker that took them; all others are done and kept."""


@contextlib.contextmanager
def connect(address: str, workers: int | None = None) -> Iterator[Any]:
    """Connect to a cluster by the scheduler's address, or start one on this machine (``local``).

    Raises
    ------
    ConfigError
        If Dask is not installed, or nothing answers at the address.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise ConfigError(
            "--dask", "needs the package distributed", address, "Install it: pip install 'lagsweep[dask]'."
        ) from None
    # Numba reads the number of threads when it is imported: it must be in the environment before that.
    settings = {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
        "distributed.nanny.pre-spawn-environ.NUMBA_NUM_THREADS": 1,
    }
    with dask.config.set(settings), contextlib.ExitStack() as stack:
        if address == "local":
            cluster = LocalCluster(
                n_workers=workers or default_threads(), threads_per_worker=1, dashboard_address=None
            )
            address = stack.enter_context(cluster)
        try:
            client = Client(address, timeout="20s")
        except OSError as error:
            raise ConfigError(
                "--dask", f"must be a scheduler that answers: {error}", address, "Check address and port."
            ) from None
        yield stack.enter_context(client)


def run_on_cluster(run: StoredRun, todo: list[tuple[Any, tuple[int, ...], np.ndarray]]) -> None:
    """Run units of a store on a cluster; each is journaled as its receipt comes.

    Raises
    ------
    UnitsLost
        If a unit killed its workers again and again.
    StoreError
        If the workers do not see the store's folder, or run another version.
    """
    from ..store.stored_units import is_known
    from ..store.writing import runs_of

    store = run.store
    cut = tuple(part.layout.chunks for part in store.parts)
    waiting = iter(todo)
    lost: list[str] = []

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
            is_known(store, part, unit),
            cut,
        )
        return client.submit(unit_on_worker, *arguments, pure=False), part, unit, mask

    for (part, unit, mask), result in _windowed(run.executor, submit, run.cancel):
        name = f"{part.prefix}{'.'.join(map(str, unit))}"
        if isinstance(result, BaseException):
            if type(result).__name__ != "KilledWorker":
                raise result
            lost.append(name)
            run.progress.failure(f"lost: unit {name} killed every worker that took it")
            continue
        runs = runs_of([(part, unit, mask)])
        run.progress.advance(runs)
        run.progress.block(name, runs, result["record"]["seconds"])
        run.accept(part, unit, result["record"], result["failures"])
    if lost:
        raise UnitsLost(
            "dask", "units killed their workers; the others are done", lost, "Give the same command again."
        )


def _windowed(client: Any, submit: Any, cancel: threading.Event) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Keep a bounded window of futures at work; gives (item, result or exception) as they come."""
    from distributed import wait

    under_way: dict[Any, tuple[Any, ...]] = {}
    more, window, asked = True, 0, 0.0
    try:
        while more or under_way:
            if time.monotonic() - asked > _WORKERS_SECONDS:  # a question to the scheduler each time
                window = WINDOW_PER_WORKER * max(1, len(client.scheduler_info()["workers"]))
                asked = time.monotonic()
            while more and len(under_way) < window:
                submitted = submit(client)
                more = submitted is not None
                if more:
                    under_way[submitted[0]] = submitted[1:]
            if not under_way:
                return
            with contextlib.suppress(TimeoutError):
                wait(list(under_way), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
            if cancel.is_set():
                raise Cancelled("the sweep was asked to stop")
            for future in [future for future in under_way if future.done()]:
                item = under_way.pop(future)
                error = future.exception()
                yield item, (error if error is not None else future.result())
                future.release()
    finally:
        for future in under_way:
            future.cancel()


def unit_on_worker(
    folder: str,
    fingerprint: str,
    part_name: str,
    unit: tuple[int, ...],
    packed: np.ndarray,
    shape: tuple[int, int],
    known: bool,
    cut: tuple[tuple[int, ...], ...],
) -> dict[str, Any]:
    """Do one unit on a worker and write it; gives the journal's record and the failures.

    Raises
    ------
    StoreError
        If the folder is not there, holds another sweep, or was made by other versions.
    """
    from ..store.stored_units import make_work, write_work

    store = _store_on_worker(folder, fingerprint, cut)
    mask = np.unpackbits(packed, count=shape[0] * shape[1]).astype(bool).reshape(shape)
    work = make_work(store, store.part(part_name), tuple(unit), mask, known=known)
    _run_here(work)
    return {"record": write_work(store, work, known=known), "failures": dict(work.arrays.failures)}


def _run_here(work: Any) -> None:
    import threading

    if work.runs:
        run_units(
            [work],
            runs=work.runs,
            threads=0,
            unit_done=lambda _: None,
            progress=Progress(),
            cancel=threading.Event(),
        )


@lru_cache(maxsize=4)
def _store_on_worker(folder: str, fingerprint: str, cut: tuple[tuple[int, ...], ...]) -> SweepStore:
    """Open a store once per worker; `cut` tells a folder that was made anew with other units."""
    from ..store.run_record import versions
    from ..store.store import SweepStore

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


def run_in_memory(
    spec: SweepSpec, client: Any, *, progress: Progress, cancel: threading.Event
) -> xarray.Dataset:
    """Run a sweep on a cluster and bring the values back; for sweeps that fit into memory.

    Raises
    ------
    UnitsLost
        If a unit killed its workers again and again.
    """
    from ..results.dataset import build_dataset
    from ..store.masks import masks_of
    from .plan import plan_parts, total_runs
    from .sweep import new_arrays

    parts = plan_parts(spec)
    results = [(part, new_arrays(part)) for part in parts]
    waiting = iter([(part, arrays, unit) for part, arrays in results for unit in part.layout.units()])
    plain = spec.to_json()

    def submit(client: Any) -> Any:
        item = next(waiting, None)
        if item is None:
            return None
        part, arrays, unit = item
        return client.submit(unit_in_memory, plain, part.name, unit, pure=False), part, arrays, unit

    progress.begin(total_runs(parts))
    try:
        for (part, arrays, unit), result in _windowed(client, submit, cancel):
            if isinstance(result, BaseException):
                raise result
            cells = part.layout.cells(unit)
            start, stop = part.layout.box(unit)[-1]
            _place(arrays, result, cells, np.arange(start, stop))
            progress.advance(int((result.status != 3).sum()))
    finally:
        progress.end()
    masks = masks_of(results[0][1], parts[0].layout.shape) if spec.masks else None
    return build_dataset(spec, results, masks)


def _place(whole: Any, unit: Any, cells: np.ndarray, seeds: np.ndarray) -> None:
    at = np.ix_(cells, seeds)
    for name, values in unit.metrics.items():
        whole.metrics[name][at] = values
    whole.status[at] = unit.status
    if whole.lag_counts is not None:
        whole.lag_counts[at] = unit.lag_counts
    for (cell, seed), failure in unit.failures.items():
        whole.failures[int(cells[cell]), int(seeds[seed])] = failure
    for table, parts in unit.tables.items():
        for columns in parts:
            placed = {"config": cells[columns["config"]], "seed_index": seeds[columns["seed_index"]]}
            whole.tables.setdefault(table, []).append(columns | placed)


def unit_in_memory(plain: str, part_name: str, unit: tuple[int, ...]) -> Any:
    """Do one unit on a worker and give its arrays."""
    import json

    from ..spec.spec import spec_from_plain
    from ..store.stored_units import recording
    from .plan import plan_parts
    from .work import UnitWork, empty_arrays

    spec = spec_from_plain(json.loads(plain))
    part = next(part for part in plan_parts(spec) if part.name == part_name)
    start, stop = part.layout.box(unit)[-1]
    cells = len(part.layout.cells(unit))
    arrays = empty_arrays(part.metrics, cells, stop - start, lag_counts=part.keep_lag_counts)
    work = UnitWork(part, tuple(unit), arrays, np.ones((cells, stop - start), bool), recording(spec, part))
    _run_here(work)
    return work.arrays


__all__ = [
    "Failure",
    "UnitsLost",
    "connect",
    "run_in_memory",
    "run_on_cluster",
    "unit_in_memory",
    "unit_on_worker",
]
