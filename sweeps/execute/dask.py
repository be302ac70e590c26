"""Run units on a Dask cluster, a bounded window of them at a time, whatever a unit's work is.

A unit owns whole chunks and gives the same bytes wherever it is done, so a worker that dies loses nothing:
Dask runs its unit again. Only a bounded window of units is in Dask's hands at a time, since its scheduler
takes about a millisecond for each. Here is also the work of a sweep that is kept in memory; that of a stored
one is the store's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, LagsweepError, StoreError
from ..runs.many import Cancelled
from ..runs.status import EXCLUDED
from ..spec.carried import spec_from_text
from ..spec.spec import SweepSpec
from .dask_workers import Workers
from .plan import Part, plan_parts
from .progress import Progress
from .threads import default_threads, run_units
from .unit_arrays import UnitArrays, empty_arrays
from .units import unit_name
from .work import UnitWork, recording

WINDOW_PER_WORKER = 4
ALLOWED_FAILURES = 10  # every unit assigned to a dying worker is suspect, not only the running one
_POLL_SECONDS = 0.5
_ANSWER_POLL_SECONDS = 0.1  # while nothing can be sent
_WORKERS_SECONDS = 2.0  # how often the number of workers is looked at
LOST_SECONDS = 6.0  # without its scheduler, until a run ends; with the notice of it, under ten
# What distributed raises, or puts into futures, when the scheduler is gone; by name, as it is an extra.
_SIGNS_OF_LOSS = frozenset(
    (
        "CancelledError",
        "FutureCancelledError",
        "FuturesCancelledError",
        "CommClosedError",
        "ClosedClientError",
    )
)
_GO_ON = "Give the same command again, on a cluster that answers; what is finished is kept."

Submit = Callable[[Any], "tuple[Any, str, Any] | None"]
Accept = Callable[[Any, Any], None]


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
            client = Client(address, timeout=f"{LOST_SECONDS}s")
        except OSError as error:
            raise ConfigError(
                "--dask", f"must be a scheduler that answers: {error}", address, "Check address and port."
            ) from None
        yield stack.enter_context(client)


def run_on_cluster(
    client: Any,
    function: Callable[..., Any],
    submit: Submit,
    accept: Accept,
    progress: Progress,
    cancel: threading.Event,
) -> None:
    """Run units on a cluster; what each gives is accepted as it comes, in the calling process.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        What a unit calls; workers are asked whether they can load it before they are given any.
    submit : callable
        Given the client, hands it the next unit and gives (future, name of the unit, item); None at the end.
    accept : callable
        Given the item and what the future gave.
    progress : Progress
    cancel : threading.Event

    Raises
    ------
    UnitsLost
        If a unit killed its workers again and again.
    StoreError
        If the scheduler is gone, or a worker has not the packages of the units.
    """
    lost: list[str] = []
    for (name, item), result in windowed(client, submit, cancel, Workers(client, function, progress)):
        if not isinstance(result, BaseException):
            accept(item, result)
        elif type(result).__name__ == "KilledWorker":
            lost.append(name)
            progress.failure(f"lost: unit {name} killed every worker that took it")
        elif isinstance(_first_cause(result), ImportError):
            rule = f"must have workers with the same packages, {_first_cause(result)}"
            raise StoreError("dask", rule, name, "Install the same lagsweep on all of them.") from result
        elif type(result).__name__ in _SIGNS_OF_LOSS:
            raise _lost_scheduler(client) from result
        else:
            raise result
    if lost:
        raise UnitsLost(
            "dask", "units killed their workers; the others are done", lost, "Give the same command again."
        )


def _first_cause(error: BaseException) -> BaseException:
    """What an error came from: distributed wraps what a graph's arrival raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _lost_scheduler(client: Any) -> StoreError:
    address = getattr(getattr(client, "scheduler", None), "address", "")
    return StoreError("dask", "must keep its scheduler, which does not answer any more", address, _GO_ON)


@contextlib.contextmanager
def _told_of_loss(client: Any) -> Iterator[None]:
    """Word what distributed raises when its scheduler is gone."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ in _SIGNS_OF_LOSS or (isinstance(error, OSError) and _is_lost(client)):
            raise _lost_scheduler(client) from error
        raise


def _is_lost(client: Any) -> bool:
    return getattr(client, "status", "running") != "running"


def fill_on_cluster(
    spec: SweepSpec,
    results: list[tuple[Part, UnitArrays]],
    client: Any,
    *,
    progress: Progress,
    cancel: threading.Event,
) -> None:
    """Run a sweep on a cluster and bring the values back into its parts' arrays.

    Raises
    ------
    UnitsLost
        If a unit killed its workers again and again.
    """
    waiting = iter([(part, arrays, unit) for part, arrays in results for unit in part.layout.units()])
    plain = spec.to_json()

    def submit(client: Any) -> Any:
        item = next(waiting, None)
        if item is None:
            return None
        part, _, unit = item
        future = client.submit(unit_in_memory, plain, part.name, unit, pure=False)
        return future, f"{part.prefix}{unit_name(unit)}", item

    def accept(item: Any, result: UnitArrays) -> None:
        part, arrays, unit = item
        start, stop = part.layout.box(unit)[-1]
        _place(arrays, result, part.layout.cells(unit), np.arange(start, stop))
        progress.advance(int((result.status != EXCLUDED).sum()))

    run_on_cluster(client, unit_in_memory, submit, accept, progress, cancel)


def windowed(
    client: Any, submit: Submit, cancel: threading.Event, workers: Workers | None = None
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Keep a bounded window of futures at work; gives (item, result or exception) as they come.

    Where `workers` is given, nothing is sent until those that are there have answered.
    """
    from distributed import wait

    under_way: dict[Any, tuple[Any, ...]] = {}
    more, window, asked, seen = True, 0, 0.0, time.monotonic()
    try:
        while more or under_way:
            if not _is_lost(client):
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST_SECONDS:
                raise _lost_scheduler(client)
            if workers is not None:
                workers.look()
            with _told_of_loss(client):
                if window == 0 or time.monotonic() - asked > _WORKERS_SECONDS:  # asks the scheduler each time
                    window = WINDOW_PER_WORKER * _count(client, workers, len(under_way))
                    asked = time.monotonic()
                while more and len(under_way) < window:
                    submitted = submit(client)
                    if submitted is None:
                        more = False
                    else:
                        under_way[submitted[0]] = submitted[1:]
                if not (more or under_way):
                    return
                if cancel.is_set():
                    raise Cancelled("the sweep was asked to stop")
                if under_way:
                    with contextlib.suppress(TimeoutError):
                        wait(list(under_way), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")
                else:
                    cancel.wait(_ANSWER_POLL_SECONDS)
            for future in [future for future in under_way if future.done()]:
                item = under_way.pop(future)
                with _told_of_loss(client):
                    error = future.exception()
                    result = error if error is not None else future.result()
                yield item, result
                future.release()
    finally:
        if workers is not None:
            workers.close()
        if not _is_lost(client):
            for future in under_way:
                future.cancel()


def _count(client: Any, workers: Workers | None, sent: int) -> int:
    """Count the workers that may be given units; where nobody asks them, one at least is hoped for."""
    return max(1, len(client.scheduler_info()["workers"])) if workers is None else workers.count(sent)


def run_here(work: UnitWork) -> None:
    """Run a unit to its end in the calling thread."""
    if work.runs:
        run_units(
            [work],
            runs=work.runs,
            threads=0,
            unit_done=lambda _: None,
            progress=Progress(),
            cancel=threading.Event(),
        )


def _place(whole: UnitArrays, unit: UnitArrays, cells: np.ndarray, seeds: np.ndarray) -> None:
    whole.put(cells, seeds, unit.metrics, unit.lag_counts, unit.status)
    for (cell, seed), failure in unit.failures.items():
        whole.failures[int(cells[cell]), int(seeds[seed])] = failure
    for table, parts in unit.tables.items():
        for columns in parts:
            placed = {"config": cells[columns["config"]], "seed_index": seeds[columns["seed_index"]]}
            whole.tables.setdefault(table, []).append(columns | placed)


def unit_in_memory(plain: str, part_name: str, unit: tuple[int, ...]) -> Any:
    """Do one unit on a worker and give its arrays."""
    spec = spec_from_text(plain)
    part = next(part for part in plan_parts(spec) if part.name == part_name)
    start, stop = part.layout.box(unit)[-1]
    cells = len(part.layout.cells(unit))
    arrays = empty_arrays(part, cells, stop - start)
    work = UnitWork(part, tuple(unit), arrays, np.ones((cells, stop - start), bool), recording(spec, part))
    run_here(work)
    return work.arrays
