"""What several commands share: the executor that the flags name, and how to go on after a stop."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import Any

INTERRUPTED_NOTE = "stopped; what is finished is kept. To go on:"


def executor_of(
    executor: str, dask: str | None, threads: int | None
) -> contextlib.AbstractContextManager[Any]:
    """Give the executor that the flags name; a Dask cluster is connected, or started, for the while."""
    if dask is None:
        return contextlib.nullcontext(executor)
    from ..execute.dask import connect

    return connect(dask, threads)


def this_command() -> str:
    """Give the command line that was typed, to be given again."""
    return shlex.join(["lagsweep", *sys.argv[1:]])
