"""Every finding as a row of a table: JSON lines or parquet, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...kernels.contract.findings import ContractFinding
from ...kernels.errors import ConfigError, nearest
from ..frame_files import checked_folder
from .sources import STDIN

if TYPE_CHECKING:
    from .check import LineFinding

SUFFIXES = (".parquet", ".jsonl")
_COLUMNS = ("file", "line", "record_id", "code", "severity", "path", "occurrences", "message")


def checked_findings_path(path: Path, flag: str, sources: Iterable[str], *, overwrite: bool) -> Path:
    """Refuse a file of unknown kind, in a folder that is not there, or that must be kept.

    Parameters
    ----------
    path : Path
        Where findings are to go.
    flag : str
        The option, for messages.
    sources : iterable of str
        What is read.
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    ConfigError
    """
    if path.suffix not in SUFFIXES:
        way_out = nearest(path.suffix, SUFFIXES) or "Name it FILE.parquet or FILE.jsonl."
        raise ConfigError(flag, "must end in .parquet or .jsonl", str(path), way_out)
    return refuse_kept_file(checked_folder(path, flag), flag, sources, overwrite=overwrite)


def refuse_kept_file(path: Path, flag: str, sources: Iterable[str], *, overwrite: bool) -> Path:
    """Refuse a file that is one of those read, or that is there already and may not be replaced.

    Parameters
    ----------
    path : Path
        A file that is to be written.
    flag, sources, overwrite
        As in :func:`checked_findings_path`.

    Raises
    ------
    ConfigError
    """
    if path.exists():
        if any(_is_read(path, source) for source in sources):
            raise ConfigError(flag, "must not be a file that is read", str(path), "Name another file.")
        if not overwrite:
            raise ConfigError(flag, "must not be there already", str(path), "Name another, or --overwrite.")
    return path


def same_file(one: Path, other: Path) -> bool:
    """Tell whether two paths lead to one file, there or not: by other spellings, or by links.

    Examples
    --------
    >>> same_file(Path("found.jsonl"), Path("./runs/../found.jsonl"))
    True
    """
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_read(path: Path, source: str) -> bool:
    if source != STDIN:
        return same_file(path, Path(source))
    # The shell may have opened it: lagsweep validate - < FILE.
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a stdin that is no file of the system
        return os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
    return False


@contextlib.contextmanager
def replaced_file(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a hidden file beside a path, which takes the path's name when all of it is on the disk.

    Whatever happens inside, no half of it is left, and an old file stays until the new one is whole.

    Parameters
    ----------
    path : Path
    mode : str
        As of ``open``.
    """
    from ..files import TEMPORARY_SUFFIX, sync_folder

    descriptor, name = tempfile.mkstemp(TEMPORARY_SUFFIX, f".{path.name}.", path.parent)
    try:
        with os.fdopen(descriptor, mode) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    sync_folder(path.parent)


def finding_row(file: str, item: LineFinding) -> dict[str, Any]:
    """Return a finding as the row of a table; ids are texts there, whatever they are in the record."""
    found: ContractFinding = item.finding
    record_id = None if item.record_id is None else str(item.record_id)
    values = (found.code, found.severity, found.path, found.occurrences, str(found))
    return dict(zip(_COLUMNS, (file, item.line, record_id, *values)))


class FindingsFile:
    """Takes findings one by one; none is held on to.

    Parameters
    ----------
    stream : text file
        JSON lines are written to it.
    """

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream
        self.file = ""

    def add(self, item: LineFinding) -> None:
        """Write a finding of the file that :attr:`file` names."""
        row = finding_row(self.file, item)
        # A lone surrogate in an id is escaped, as all that is not ASCII.
        self._stream.write(json.dumps(row).encode("ascii") + b"\n")


@contextlib.contextmanager
def findings_file(path: Path) -> Iterator[FindingsFile]:
    """Open the table that is to hold all findings; it is there when the block has ended without an error.

    Parameters
    ----------
    path : Path
        ``.jsonl`` or ``.parquet``.
    """
    if path.suffix == ".jsonl":
        with replaced_file(path) as stream:
            yield FindingsFile(stream)
        return
    import polars as pl

    types: dict[str, Any] = dict.fromkeys(_COLUMNS, pl.String) | {"line": pl.Int64, "occurrences": pl.Int64}
    with tempfile.TemporaryFile(dir=path.parent) as rows, replaced_file(path) as stream:
        yield FindingsFile(rows)
        rows.seek(0)
        # By the piece, as the findings may be as many as the records.
        frames = iter(lambda: rows.readlines(8 * 2**20), [])
        parts = [_frame(lines, types) for lines in frames]
        pl.concat(parts or [pl.DataFrame(schema=types)]).write_parquet(stream)


def _frame(lines: list[bytes], types: dict[str, Any]) -> Any:
    import polars as pl

    rows = [json.loads(line) for line in lines]
    for row in rows:
        for name in ("record_id", "message", "path", "file"):
            if row[name] is not None:
                row[name] = row[name].encode("utf-8", "backslashreplace").decode()
    return pl.DataFrame(rows, schema=types)
