"""What may be given on how a sweep is run: the types of ``executor``, ``progress`` and their companions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from .progress import Progress


class DaskClient(Protocol):
    """The part of ``distributed.Client`` that a sweep uses."""

    def scheduler_info(self, *arguments: Any, **options: Any) -> Any:
        """Return what the scheduler knows of its workers."""
        ...

    def submit(self, *arguments: Any, **options: Any) -> Any:
        """Hand a call to the workers and return its future."""
        ...


Executor: TypeAlias = Literal["threads", "serial", "processes"] | DaskClient
Observer: TypeAlias = Progress | Callable[[int, int], object] | bool


class RunOptions(TypedDict, total=False):
    """The options of :func:`lagsweep.run_spec`."""

    store: str | Path | None
    executor: Executor
    threads: int | None
    progress: Observer | None
    cancel: threading.Event | None
