"""One run at a time on a store: a lock that dies with its process.

The lock is an advisory lock of the operating system on the file ``lock``, which the system takes back when
the process ends, however it ends. The file's content says who holds it, for the message. A file left by a
killed run holds no lock and is taken over. Where another machine wrote it and the file system shares no
locks between machines, its time of change, renewed every few seconds while the run lives, tells a living
holder from a dead one.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError

LOCK_NAME = "lock"
BEAT_SECONDS = 10.0
STALE_SECONDS = 60.0


class StoreLock:
    """Hold the lock of a store's folder until :meth:`release`.

    Parameters
    ----------
    folder : Path
        The store; must exist.

    Attributes
    ----------
    took_over : str
        Who left the lock behind, empty if nobody did.

    Raises
    ------
    StoreError
        If another run holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self.took_over = ""
        self._file: Any = open(self.path, "a+b", buffering=0)  # noqa: SIM115  (kept open while it is held)
        holder, age = self._holder()
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise self._refusal(holder) from None
        if holder and holder.get("host") != socket.gethostname() and age < STALE_SECONDS:
            self._file.close()
            raise self._refusal(holder)
        if holder:
            self.took_over = f"process {holder.get('pid')} on {holder.get('host')}"
        self._write(
            {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        )
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, name="lagsweep-lock", daemon=True)
        self._beat.start()

    def _refusal(self, holder: dict[str, Any]) -> StoreError:
        who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
        return StoreError(
            "store",
            f"must not be in use, {who} is running on it",
            str(self.path.parent),
            f"Wait for it or stop it. If it is dead, this clears by itself within {STALE_SECONDS:.0f} s.",
        )

    def _holder(self) -> tuple[dict[str, Any], float]:
        content = self.path.read_bytes()
        age = time.time() - self.path.stat().st_mtime
        try:
            holder = json.loads(content) if content.strip() else {}
        except ValueError:
            holder = {}
        return (holder if isinstance(holder, dict) else {}), age

    def _write(self, content: dict[str, Any]) -> None:
        self._file.truncate(0)
        self._file.write(json.dumps(content).encode() if content else b"")

    def _keep_alive(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                os.utime(self._file.fileno())
            except (OSError, ValueError):  # closed, or the folder was removed: nothing is left to keep
                return

    def release(self) -> None:
        """Return the lock back."""
        if self._file.closed:
            return
        self._stop.set()
        self._beat.join()
        self._write({})
        self._file.close()

    def __enter__(self) -> StoreLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_held(folder: Path) -> bool:
    """Tell whether some process holds the lock of a folder."""
    path = folder / LOCK_NAME
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    except FileNotFoundError:
        pass
    return False
