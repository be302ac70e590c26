"""Blocks of runs in processes of their own, for rules of the user's own: Python holds one lock a process.

A worker is a fresh interpreter that is handed the rules once, pickled, and then configurations and seeds. How
the work is cut changes no result: each run works on a copy of the rules.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, LagsweepError
from ..config.config import PipelineConfig
from ..custom.custom import Custom, CustomIdentity, remember
from ..runs.many import BatchResult, Cancelled, Record
from ..runs.setups import Kept
from .threads import EXECUTORS, PROCESSES, RunBlock
from .work import custom_cells, run_block

_POLL_SECONDS = 0.2
_IN_A_MODULE = "Put its class into a module of its own and import it from there, or leave out executor."


@contextlib.contextmanager
def block_runner(executor: Any, processes: int | None, custom: CustomIdentity | None) -> Iterator[RunBlock]:
    """Return what runs a block: in the calling thread, or in one of some processes.

    Parameters
    ----------
    executor : str or Dask client
    processes : int, optional
        How many, with ``executor="processes"``.
    custom : CustomIdentity, optional

    Raises
    ------
    ConfigError
        If the executor does not fit, or the rules' code is missing or cannot be handed to a process.
    """
    if custom is None:
        if executor == PROCESSES:
            rule = "must be 'threads', 'serial' or a Dask client: only rules of your own need processes"
            raise ConfigError("executor", rule, executor, "Leave it out.")
        yield run_block
        return
    if not isinstance(executor, str):
        rule = f"must be one of {', '.join((*EXECUTORS, PROCESSES))} with rules of your own"
        raise ConfigError("executor", rule, executor, "Its workers do not have them.")
    custom_cells(custom)  # the code is here, or it is said now
    if executor != PROCESSES:
        yield run_block
        return
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(_pickled(custom.code()),),
    ) as pool:
        try:
            yield _runner(pool)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _pickled(custom: Custom) -> bytes:
    """Pickle the rules, and say which of them cannot be found again by another process."""
    for part, rule in custom.parts():
        function = getattr(rule, "py_func", rule)
        module = getattr(function, "__module__", type(rule).__module__)
        if module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            rule_text = "must be importable by other processes, which a session's own classes are not"
            raise ConfigError(part, rule_text, type(rule).__qualname__, _IN_A_MODULE)
        try:
            pickle.dumps(rule)
        except Exception as error:  # whatever pickling raises
            rule_text = f"must be picklable to run in processes: {error}"
            raise ConfigError(part, rule_text, type(rule).__qualname__, _IN_A_MODULE) from None
    return pickle.dumps(custom)


def _begin_worker(rules: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    remember(pickle.loads(rules))


def _runner(pool: ProcessPoolExecutor) -> RunBlock:
    def run(
        configs: Sequence[PipelineConfig],
        seeds: np.ndarray,
        record: Record,
        cancel: threading.Event | None,
        on_progress: Callable[[int], None] | None = None,
        custom: CustomIdentity | None = None,
        kept: Kept | None = None,  # of this thread, which runs nothing itself
    ) -> BatchResult:
        try:
            future = pool.submit(run_block, list(configs), seeds, record, None, None, custom)
            while True:
                try:
                    return future.result(timeout=_POLL_SECONDS)
                except StillRunning:
                    if cancel is not None and cancel.is_set():
                        raise Cancelled("the sweep was asked to stop") from None
        except BrokenProcessPool as error:
            raise LagsweepError(
                "executor: the worker processes ended before their work. A script that uses processes must "
                "begin its work under if __name__ == '__main__':, and its rules must be importable."
            ) from error

    return run
