"""Which workers of a Dask cluster can take a unit: each is asked before units are sent.

A worker that cannot load what a unit is made of (no lagsweep, or another one) ends when a unit arrives, and
sends nothing back: its units would wait for ever. So each worker that is there is first given two tasks that
need nothing but Python: to import the unit's function, and to tell its version of lagsweep. What they raise
comes back. A worker that joins later may have a unit waiting for it before anybody looks, so a plugin stays
with the scheduler: a worker that joins runs it ahead of anything that it is sent, and tells what it lacks.
"""

from __future__ import annotations

import contextlib
import pkgutil
import secrets
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

from ...kernels.errors import StoreError
from .progress import Progress

ANSWER_SECONDS = 6.0  # a worker that has not answered by then is busy: units are sent all the same
NOTED_SECONDS = 3.0  # without any worker, until that is said
_PACKAGE = "lagsweep"
_FIRST = 1_000  # priority: before units that wait
_ALONE = (
    "dask: the cluster has no worker; what is left waits for one. "
    "A worker that ends when it is given work has not this lagsweep"
)
_OTHER = "lagsweep {theirs} there is not {ours} here"
_HOLD_SECONDS = 2.0  # that a worker which cannot take units waits for the run to end
_WAY_OUT = "Install the same lagsweep on all of them and start them again; then the same command goes on."


class Workers:
    """The workers of a cluster, as far as they were asked.

    Parameters
    ----------
    client : distributed.Client
    function : callable
        Of the units; every worker must be able to load it.
    progress : Progress
        Told when there is no worker to wait for.
    """

    def __init__(self, client: Any, function: Callable[..., Any], progress: Progress) -> None:
        self._client, self._progress = client, progress
        self._function = f"{function.__module__}:{function.__qualname__}"
        self._asked: dict[str, tuple[float, list[Any]]] = {}
        self._fit: set[str] = set()
        self._alone_since: float | None = None
        self._name = f"{_PACKAGE}-{secrets.token_hex(8)}"  # of the plugin, and of what it tells
        self._told: list[dict[str, Any]] = []
        client.subscribe_topic(self._name, lambda event: self._told.append(event[1]))
        check = _check_of_joining(self._name, self._function, metadata.version(_PACKAGE))
        self._soon(lambda: client.register_plugin(check, name=self._name))

    @staticmethod
    def _soon(act: Callable[[], Any]) -> None:
        """Do what waits for every worker; one that does not answer is waited for so long and no longer."""

        def quietly() -> None:
            with contextlib.suppress(Exception):  # of a scheduler that is gone: that is told elsewhere
                act()

        thread = threading.Thread(target=quietly, name="lagsweep-dask", daemon=True)
        thread.start()
        thread.join(ANSWER_SECONDS)

    def look(self) -> None:
        """Look at what workers told that have joined.

        Raises
        ------
        StoreError
            If one cannot load the units, or is of another version.
        """
        for told in self._told:
            raise _unfit(str(told["address"]), str(told["what"]))

    def count(self, sent: int) -> int:
        """Look at the workers there are; tells how many may be given units, 0 while answers are awaited.

        Parameters
        ----------
        sent : int
            How many units are in the cluster's hands.

        Raises
        ------
        StoreError
            If a worker cannot load the units, or is of another version; also if none is left and the last
            went before it had answered, as a worker does that one of the waiting units reaches first.
        """
        there = set(self._client.scheduler_info()["workers"])
        self._fit &= there
        for address in there - self._fit - self._asked.keys():
            self._asked[address] = (time.monotonic(), self._ask(address))
        gone = [address for address in self._asked if address not in there]
        awaited = False
        for address, (since, answers) in list(self._asked.items()):
            if all(answer.done() for answer in answers) and address in there:
                self._judge(address, answers)
                self._fit.add(address)
                self._forget(address)
            elif address in there:
                awaited |= time.monotonic() - since < ANSWER_SECONDS
        for address in gone:
            self._forget(address)
        if gone and sent and not self._fit:
            raise _unfit(", ".join(gone), "and the last one ended when a unit reached it")
        for address in gone:
            self._progress.note(f"dask: worker {address} ended before it told whether it can load the units")
        self._say_if_alone(there)
        return 0 if awaited else len(there)

    def close(self) -> None:
        """Take back what was not answered, and the plugin."""
        for address in list(self._asked):
            self._forget(address)
        self._soon(lambda: self._client.unregister_worker_plugin(self._name))
        with contextlib.suppress(Exception):
            self._client.unsubscribe_topic(self._name)

    def _ask(self, address: str) -> list[Any]:
        options = {"workers": [address], "priority": _FIRST, "pure": False}
        return [
            self._client.submit(pkgutil.resolve_name, self._function, **options),
            self._client.submit(metadata.version, _PACKAGE, **options),
        ]

    def _judge(self, address: str, answers: list[Any]) -> None:
        loading, telling = answers
        error = loading.exception() or telling.exception()
        if isinstance(error, ImportError | AttributeError):  # a package's missing metadata are the former
            raise _unfit(address, str(error)) from error
        if error is not None:
            raise error
        theirs, ours = telling.result(), metadata.version(_PACKAGE)
        if theirs != ours:
            raise _unfit(address, _OTHER.format(theirs=theirs, ours=ours))

    def _forget(self, address: str) -> None:
        for answer in self._asked.pop(address)[1]:
            with contextlib.suppress(Exception):  # of a scheduler that is gone
                answer.cancel() if not answer.done() else answer.release()

    def _say_if_alone(self, there: set[str]) -> None:
        if there:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > NOTED_SECONDS:
            self._progress.note(_ALONE)
            self._alone_since = float("inf")  # said once


def _check_of_joining(topic: str, function: str, ours: str) -> Any:
    """Make the plugin of a worker that joins; its class has no name in a module, so that it is sent whole.

    Parameters
    ----------
    topic : str
        Under which it tells what the worker lacks.
    function : str
        What the worker must be able to load, as ``module:name``.
    ours : str
        The version that it must have.
    """
    from distributed import WorkerPlugin

    package, other, wait_seconds = _PACKAGE, _OTHER, _HOLD_SECONDS

    class Check(WorkerPlugin):
        async def setup(self, worker: Any) -> None:
            """Check the worker; no unit is read from the scheduler before this ends."""
            import asyncio
            import pkgutil
            from importlib import metadata

            try:
                pkgutil.resolve_name(function)
                theirs = metadata.version(package)
                what = "" if theirs == ours else other.format(theirs=theirs, ours=ours)
            except (ImportError, AttributeError) as error:
                what = str(error)
            if what:
                worker.log_event(topic, {"address": worker.address, "what": what})
                await asyncio.sleep(wait_seconds)  # it may end when it reads a unit: first it is heard

    return Check()


def _unfit(address: str, what: str) -> StoreError:
    return StoreError("dask", f"must have workers with the same packages, {what}", address, _WAY_OUT)
