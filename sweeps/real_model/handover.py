"""Weights handed from a trainer to a generator as files: whole or not there, the newest one wins.

A file takes its name in one rename, so a reader never sees half of it. Nothing is flushed to the disk: what
is handed over need not outlive the two processes. The last three versions stay, since a reader may have
chosen one a moment ago.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ..files import TEMPORARY_SUFFIX

KEPT = 3
_NAME = re.compile(r"version-(\d{9})\.safetensors")
Read = TypeVar("Read")


@dataclass(frozen=True)
class WeightFolder:
    """A folder through which weights go from one writer to readers.

    Attributes
    ----------
    folder : Path
        Exists, and holds nothing else.
    """

    folder: Path

    def offer(self, version: int, write: Callable[[Path], None]) -> Path:
        """Make a version visible in one step.

        Parameters
        ----------
        version : int
            Above every version before.
        write : callable
            Writes the weights into the path that it gets.

        Returns
        -------
        Path
            The file. What `write` raises is passed on, and nothing is left.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name:
        ...     weights = WeightFolder(Path(name))
        ...     for version in range(5):
        ...         _ = weights.offer(version, lambda path: path.write_bytes(b"weights") and None)
        ...     weights.versions()
        [2, 3, 4]
        """
        target = self._path(version)
        temporary = self.folder / f".{target.name}{TEMPORARY_SUFFIX}"
        try:
            write(temporary)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise
        for old in self.versions()[:-KEPT]:
            with contextlib.suppress(FileNotFoundError):
                self._path(old).unlink()
        return target

    def versions(self) -> list[int]:
        """Return the versions that are there, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(one[1]) for one in found if one)

    def newest(self, read: Callable[[Path], Read], above: int = -1) -> tuple[int, Read] | None:
        """Read the newest version.

        Parameters
        ----------
        read : callable
            Reads the weights from the path that it gets.
        above : int
            What a reader has already.

        Returns
        -------
        version, what `read` gave; None if there is none above.
        """
        while True:
            versions = self.versions()
            if not versions or versions[-1] <= above:
                return None
            with contextlib.suppress(FileNotFoundError):  # replaced by newer ones since it was listed
                return versions[-1], read(self._path(versions[-1]))
            if versions == self.versions():  # not replaced: it cannot be read at all
                raise FileNotFoundError(str(self._path(versions[-1])))

    def _path(self, version: int) -> Path:
        return self.folder / f"version-{version:09}.safetensors"
