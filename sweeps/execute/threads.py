"""Run units on this machine: in the calling thread, or on a pool of threads.

Units are cut into small blocks, about a twelfth of a second each and never more than a fraction of what is
left (but some milliseconds at least), so that all cores stay busy on skewed work and at the end. The kernels
release the GIL. How the work is cut changes no result: every run depends on its configuration and seed alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, nearest
from ..checks import WholeNumber, checked
from ..config.config import PipelineConfig
from ..runs.many import BatchResult, Cancelled
from ..runs.setups import Kept
from .progress import Progress
from .units import rectangles, tiles
from .work import UnitWork, run_block

BLOCK_SECONDS = 0.08
LEAST_SECONDS = 0.003  # shorter blocks cost more to set up and to file than they are worth
SHARES_LEFT = 8  # a block is at most this fraction of a thread's share of what is left
EXECUTORS = ("threads", "serial")
PROCESSES = "processes"  # of sweeps with rules of the user's own alone: the kernels release the GIL
_POLL_SECONDS = 0.2  # how often the main thread looks up, so that Ctrl-C is seen

UnitDone = Callable[[UnitWork], None]
RunBlock = Callable[..., BatchResult]


def default_threads() -> int:
    """Return how many threads may run at once: the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def checked_threads(threads: Any) -> int:
    """Check a number of threads; None means one for each CPU.

    Raises
    ------
    ConfigError
        If it is not a whole number from 1 to 1024.
    """
    if threads is None:
        return default_threads()
    rule = "must be a whole number from 1 to 1024"
    return checked(WholeNumber, "threads", threads, low=1, high=1024, rule=rule, way_out="Leave it out.")


def thread_count(executor: Any, threads: int | None) -> int | None:
    """Read the executor: a number of threads, 0 for the calling thread, None for a Dask client.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    count = checked_threads(threads)
    if isinstance(executor, str) and executor in (*EXECUTORS, PROCESSES):
        return 0 if executor == "serial" else count
    if hasattr(executor, "scheduler_info") and hasattr(executor, "submit"):
        return None
    hint = nearest(executor, EXECUTORS) if isinstance(executor, str) else ""
    raise ConfigError(
        "executor", "must be 'threads', 'serial' or a Dask client", executor, hint or "Leave it out."
    )


class _Block:
    """Some cells of a unit at some seeds."""

    __slots__ = ("cells", "configs", "seeds", "work")

    def __init__(
        self, work: UnitWork, cells: np.ndarray, configs: list[PipelineConfig], seeds: np.ndarray
    ) -> None:
        self.work, self.cells, self.configs, self.seeds = work, cells, configs, seeds


class _Feed:
    """Cut units into blocks, on demand and by what blocks have been taking; shared by the threads."""

    def __init__(self, works: Iterable[UnitWork], runs: int, threads: int, run_seconds: float) -> None:
        self._works = iter(works)
        self._left, self._threads = runs, threads
        self._run_seconds = run_seconds
        self._measured = False
        self._lock = threading.Lock()
        self._blocks: Iterator[_Block] = iter(())

    def next(self) -> _Block | None:
        with self._lock:
            while True:
                block = next(self._blocks, None)
                if block is not None:
                    self._left -= len(block.cells) * len(block.seeds)
                    return block
                work = next(self._works, None)
                if work is None:
                    return None
                self._blocks = self._cut(work)

    def _wanted(self) -> int:
        """How many runs the next block should have."""
        fair = self._left // (self._threads * SHARES_LEFT) if self._threads > 1 else self._left
        if self._measured:  # a guess may be far too low
            fair = max(fair, min(int(LEAST_SECONDS / self._run_seconds), self._left // self._threads))
        return max(1, min(int(BLOCK_SECONDS / self._run_seconds), fair))

    def _cut(self, work: UnitWork) -> Iterator[_Block]:
        for cells, seeds in rectangles(work.todo):
            first = 0
            while first < len(cells):
                cell_tile, _ = tiles(len(cells) - first, len(seeds), self._wanted())
                some = cells[first : first + cell_tile]
                first += cell_tile
                configs = work.configs(some)
                at = 0
                while at < len(seeds):
                    count = max(1, self._wanted() // len(some))
                    yield _Block(work, some, configs, seeds[at : at + count])
                    at += count

    def took(self, runs: int, seconds: float) -> None:
        """Learn from a block how long a run takes."""
        with self._lock:
            now = max(seconds / runs, 1e-7)
            self._run_seconds = 0.7 * self._run_seconds + 0.3 * now if self._measured else now
            self._measured = True


def run_units(
    works: Iterable[UnitWork],
    *,
    runs: int,
    threads: int,
    unit_done: UnitDone,
    progress: Progress,
    cancel: threading.Event,
    run_seconds: float = 1e-3,
    run: RunBlock = run_block,
) -> None:
    """Run units to their ends; `unit_done` is called with each, in whichever thread finished it.

    Parameters
    ----------
    works : iterable of UnitWork
        Made one by one, as they are needed.
    runs : int
        How many runs they hold.
    threads : int
        0: run in the calling thread.
    unit_done : callable
    progress : Progress
    cancel : threading.Event
        When set, what is under way stops within half a second and does not count. Set after the last block
        it changes nothing.
    run_seconds : float
        A first guess of one run's seconds.
    run : callable
        Runs one block, as :func:`.work.run_block`; in another process, where it says so.

    Raises
    ------
    Cancelled
        If `cancel` was set before the last block had begun, or while one was under way.
    """
    feed = _Feed(works, runs, max(1, threads), run_seconds)
    if threads == 0:
        _run_blocks(feed, unit_done, progress, cancel, run)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="lagsweep") as pool:
        futures = [pool.submit(_run_blocks, feed, unit_done, progress, cancel, run) for _ in range(threads)]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
                if any(future.exception() is not None for future in done):
                    cancel.set()
        except BaseException:
            cancel.set()  # the pool's exit waits for the threads, which see it soon
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error


def _run_blocks(
    feed: _Feed, unit_done: UnitDone, progress: Progress, cancel: threading.Event, run: RunBlock
) -> None:
    kept = Kept()
    while True:
        block = feed.next()
        if block is None:  # also where the wish to stop came after the last block: nothing is left to stop
            return
        if cancel.is_set():
            raise Cancelled("the sweep was asked to stop")
        told = 0

        def tell(runs: int) -> None:
            nonlocal told
            progress.advance(runs - told)
            told = runs

        work, count = block.work, len(block.cells) * len(block.seeds)
        began = time.perf_counter()
        seeds = work.seeds[block.seeds]
        result = run(block.configs, seeds, work.record, cancel, tell, work.part.custom, kept)
        seconds = time.perf_counter() - began
        progress.advance(count - told)
        progress.block(work.name, count, seconds)
        feed.took(count, seconds)
        if work.file(block.cells, block.seeds, result, seconds):
            unit_done(work)
