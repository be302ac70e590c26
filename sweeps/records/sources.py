"""Which files a command is to read: names, patterns, folders, and the standard input."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...kernels.errors import ConfigError
from ..checks import path_of

STDIN = "-"
_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst", ".parquet")


def record_files(names: Iterable[str]) -> list[str]:
    """Return the files that are meant, each once, in the order of the names.

    Parameters
    ----------
    names : iterable of str
        Files, folders (all record files in and under them, by name), patterns (only where no file has that
        name), or ``-``.

    Raises
    ------
    ConfigError
        If a folder or a pattern has no file of records.

    Examples
    --------
    >>> record_files(["-", "missing.jsonl"])
    ['-', 'missing.jsonl']
    """
    found: dict[str, None] = {}
    for name in names:
        for each in _files(name):
            found.setdefault(each)
    return list(found)


def _files(name: str) -> Iterator[str]:
    if name == STDIN:
        yield name
        return
    path = path_of("file", name)
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if _is_record_file(each))
        if not inside:
            rule = f"must hold files that end in {', '.join(_ENDINGS)}"
            raise ConfigError("file", rule, name, "Name the files.")
        yield from map(str, inside)
    elif not path.exists() and glob.has_magic(name):
        matched = sorted(each for each in glob.glob(name, recursive=True) if Path(each).is_file())
        if not matched:
            raise ConfigError("file", "must match a file that exists", name, "Look at it with ls.")
        yield from matched
    else:
        yield name


def _is_record_file(path: Path) -> bool:
    return path.name.lower().endswith(_ENDINGS) and not path.name.startswith(".") and path.is_file()
