"""``run.json``: which commands worked on a store, when, where, with which versions. No run reads it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .place import Place

RUN_NAME = "run.json"


def versions() -> dict[str, str]:
    """Return the versions that a result carries."""
    from ..results.dataset import library_versions

    return library_versions()


@contextlib.contextmanager
def note_run(place: Place, **facts: Any) -> Iterator[dict[str, Any]]:
    """Write down that a command works on the store, and how it ended."""
    try:
        runs = list(json.loads((place.folder / RUN_NAME).read_text())["runs"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        runs = []
    entry: dict[str, Any] = {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "folder": os.getcwd(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "versions": {**versions(), "zarr": version("zarr"), "polars": version("polars")},
        "began": _now(),
        "ended": None,
        "outcome": "under way, or killed",
        **facts,
    }
    runs.append(entry)

    def write() -> None:
        place.write(RUN_NAME, (json.dumps({"runs": runs}, indent=1) + "\n").encode())

    write()
    try:
        yield entry
        entry["outcome"] = "done"
    except BaseException as error:
        entry["outcome"] = f"stopped by {type(error).__name__}"
        raise
    finally:
        entry["ended"] = _now()
        with contextlib.suppress(OSError):  # a full disk must not hide what went wrong
            write()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
