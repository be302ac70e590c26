"""A store's folder held open: what is written goes into that folder, whatever its path names meanwhile.

A folder can be moved, removed or begun anew while a run works on it. Names are therefore looked up from the
open folder and not from its path, and :meth:`Place.check` tells, before a unit and before its line in the
journal, whether the path is still this folder (device and inode). Links inside a store are never followed
by a write: a store that holds some is refused before anything is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import weakref
from collections.abc import Iterator
from pathlib import Path

from ...kernels.errors import StoreError

UNFINISHED = ".partial"  # as Zarr calls a chunk that is being written

KEPT = "kept"  # the old files of units that are being written again, as links
MISSING = "is missing, but the journal says done"
CHANGED = "is not the one that the journal tells of (changed, or swapped)"

Identity = tuple[int, int]


def identity_of(folder: Path) -> Identity | None:
    """Return device and inode of what a path names; None if it names nothing."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Place:
    """A folder, open to be written into.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self.close = weakref.finalize(self, os.close, self._descriptor)

    def check(self) -> None:
        """Refuse to go on when the path does not name this folder any more.

        Raises
        ------
        StoreError
        """
        mine = os.fstat(self._descriptor)
        if identity_of(self.folder) != (mine.st_dev, mine.st_ino):
            raise StoreError(
                "store",
                "must stay where it is while a run works on it; it was moved, removed or begun anew",
                str(self.folder),
                "Nothing was written elsewhere. Give the command again with the place it has now.",
            )

    def write(self, name: str, content: bytes) -> None:
        """Put a file in place in one step; its folders are made.

        Raises
        ------
        OSError
            With the file's name; no unfinished file is left.
        """
        temporary = f"{name}.{secrets.token_hex(8)}{UNFINISHED}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            try:
                descriptor = os.open(temporary, flags, 0o666, dir_fd=self._descriptor)
            except FileNotFoundError:
                self.make_folder(os.path.dirname(name))
                descriptor = os.open(temporary, flags, 0o666, dir_fd=self._descriptor)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                self._rename(temporary, name)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.remove(temporary)
                raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.folder / name)) from error

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it, inside the place."""
        pieces = Path(name).parts
        for count in range(1, len(pieces) + 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(*pieces[:count]), dir_fd=self._descriptor)

    def _rename(self, old: str, new: str) -> None:
        try:
            os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except IsADirectoryError:  # an empty folder has taken the file's name
            os.rmdir(new, dir_fd=self._descriptor)
            os.replace(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def restore(self, old: str, new: str) -> None:
        """Return a file another name, in place of whatever has that name."""
        self.make_folder(os.path.dirname(new))
        self._rename(old, new)

    def keep(self, name: str, other: str) -> None:
        """Return a file a second name, by a link, or by a copy where the file system has no links."""
        self.make_folder(os.path.dirname(other))
        self.remove(other)
        try:
            os.link(name, other, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except FileNotFoundError:
            raise
        except OSError:
            self.write(other, (self.folder / name).read_bytes())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def append_to(self, name: str) -> int:
        """Open a file to be appended to; gives its descriptor."""
        return os.open(
            name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=self._descriptor
        )


@contextlib.contextmanager
def faults_of_the_machine(folder: Path) -> Iterator[None]:
    """Say what disk or memory do not do as an error of the store; what is finished is kept."""
    try:
        yield
    except MemoryError as error:
        way_out = "Give the same command with fewer --threads, or where there is more; it goes on."
        raise StoreError("store", "cannot grow: out of memory", str(folder), way_out) from error
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError):
            raise  # of a cluster
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        rule = f"cannot {'grow' if full else 'be used'}: {os.strerror(error.errno)}"
        file = str(error.filename) if error.filename and not full else str(folder)
        way_out = "Free some space and give the same command; it goes on."
        raise StoreError(
            "store", rule, file, way_out if full else "When that is mended, the same command goes on."
        ) from error


def beside(folder: Path, mark: str) -> list[Path]:
    """List the folders beside a store whose names are the store's, a mark, and something random."""
    if not folder.parent.is_dir():
        return []
    return sorted(path for path in folder.parent.iterdir() if path.name.startswith(f"{folder.name}{mark}"))


def files_inside(folder: Path) -> Iterator[Path]:
    """Return every file in a folder and below, and every link; links are not followed."""
    for where, folders, names in os.walk(folder):
        for name in names:
            yield Path(where, name)
        for name in folders:
            if os.path.islink(os.path.join(where, name)):
                yield Path(where, name)


def refuse_links(folder: Path) -> None:
    """Refuse a store with links in it: a write through one would change a file that lies elsewhere.

    Raises
    ------
    StoreError
    """
    for path in files_inside(folder):
        if path.is_symlink():
            raise StoreError(
                str(path.relative_to(folder)),
                "must not be a link, since a run would write through it",
                str(folder),
                "Put what it points to in its place.",
            )


def refusal(folder: Path, file: str, what: str, opened_as: Identity | None = None) -> StoreError:
    """Make the error about a file that does not hold, or whose store was changed since it was opened."""
    if opened_as is not None and identity_of(folder) != opened_as:
        return StoreError(
            file,
            f"{what}; the store was extended, moved or begun anew since it was opened",
            str(folder),
            "Open it again.",
        )
    return StoreError(
        file,
        what,
        str(folder),
        "Open it again if a run has gone on with it meanwhile. If not, `lagsweep verify STORE --repair` "
        "undoes what does not hold, and the run's command does it again.",
    )
