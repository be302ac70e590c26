"""Write a file so that a reader sees the old content or the new one, never a part of it.

The content goes to a hidden file beside the target, is flushed to the disk (``fsync``), and takes the
target's name in one rename; then the folder is flushed too, since a rename lives in the folder and not in
the file. A process killed at any moment leaves the old file whole, and at most a hidden file whose name
ends in ``.tmp``. Without the flushes the same holds for a killed process but not for a power cut.

This is for POSIX file systems. A network file system that does not honour ``fsync`` cannot be helped here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from io import BufferedReader
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file's content in one step and make it survive a power cut.

    Parameters
    ----------
    path : path
        The file to create or replace; its folder must exist.
    content : bytes
        The whole new content.

    Raises
    ------
    OSError
        If the folder is missing or not writable, or the disk is full; the old file is then untouched and
        no temporary file is left.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "note.txt", b"whole")
    ...     [item.name for item in Path(folder).iterdir()]
    ['note.txt']
    """
    target = Path(path)
    temporary = target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    # os.open, not tempfile: the file then gets the permissions that an ordinary new file gets.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading; a pipe, a device or a folder is refused without waiting for it.

    Parameters
    ----------
    path : path
        A file that somebody else may have put there; a link is followed.

    Raises
    ------
    OSError
        If it cannot be opened, or is no regular file.
    """
    # Without O_NONBLOCK the open of a pipe waits until somebody writes into it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def sync_file(path: str | os.PathLike[str]) -> None:
    """Flush a file that somebody else wrote to the disk.

    Parameters
    ----------
    path : path
        An existing file.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush a folder, so that the names in it survive a power cut; does nothing where folders have no fsync.

    Parameters
    ----------
    path : path
        An existing folder.
    """
    if os.name == "nt":
        return
    sync_file(path)
