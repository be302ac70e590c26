"""One run at a time on a store: a lock that dies with its process.

The lock is an advisory lock of the operating system on the file ``lock``, which the system takes back when
the process ends, however it ends. The file's content says who holds it, for the message. A file left by a
killed run holds no lock and is taken over. Where another machine wrote it and the file system shares no
locks between machines, its time of change, renewed every few seconds while the run lives, tells a living
holder from a dead one; a time in the future is set to now, so that it grows old if nobody renews it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ...kernels.errors import StoreError
from .place import identity_of

try:
    import fcntl
except ModuleNotFoundError:
    raise StoreError(
        "store",
        "needs a POSIX system's file locks",
        sys.platform,
        "Use Linux, macOS or WSL.",
    ) from None

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
        self._file = _opened(self.path)
        try:
            holder, age = self._holder()
        except StoreError:
            self._file.close()
            raise
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise self._refusal(holder) from None
        if holder and holder.get("host") != socket.gethostname() and age < STALE_SECONDS:
            if age < 0:
                # A clock ahead of ours, or one that was: a living holder renews the time within seconds, of a
                # dead one it now grows old.
                os.utime(self._file.fileno())
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
        content, about = self.holder, os.fstat(self._file.fileno())
        try:
            holder = json.loads(content) if content.strip() else {}
        except (ValueError, RecursionError):
            holder = None
        if not isinstance(holder, dict) and about.st_nlink > 1:
            # A second name of some file elsewhere, whose content is not ours to overwrite.
            raise _not_a_lock(self.path)
        return (holder if isinstance(holder, dict) else {}), time.time() - about.st_mtime

    def _write(self, content: dict[str, Any]) -> None:
        self._file.truncate(0)
        self._file.write(json.dumps(content).encode() if content else b"")

    def _keep_alive(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            try:
                os.utime(self._file.fileno())
            except (OSError, ValueError):  # closed, or the folder was removed: nothing is left to keep
                return

    def moved_to(self, folder: Path) -> None:
        """Follow the folder to its new name."""
        self.path = folder / LOCK_NAME

    @property
    def holder(self) -> bytes:
        """What the file says of the holder."""
        return os.pread(self._file.fileno(), 4096, 0)

    def check(self) -> None:
        """Refuse to go on when the folder's lock is not this one any more.

        Raises
        ------
        StoreError
        """
        mine = os.fstat(self._file.fileno())
        if identity_of(self.path) != (mine.st_dev, mine.st_ino):
            raise StoreError(
                "store",
                "must stay where it is while a run works on it; it was moved, removed or begun anew",
                str(self.path.parent),
                "Nothing was written elsewhere. Give the command again with the place it has now.",
            )

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


def _opened(path: Path) -> Any:
    """Open a lock's file, which must be a file: no link is followed, and no pipe is waited for."""
    try:
        descriptor = os.open(
            path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666
        )
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _not_a_lock(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_lock(path)
    return os.fdopen(descriptor, "r+b", buffering=0)


def _not_a_lock(path: Path) -> StoreError:
    rule = "must be a file of its own, not a link, a folder or a pipe"
    return StoreError(LOCK_NAME, rule, str(path), "Remove it; the next run makes another.")


def is_held(folder: Path) -> bool:
    """Tell whether some process holds the lock of a folder."""
    path = folder / LOCK_NAME
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
    except FileNotFoundError:
        pass
    return False
