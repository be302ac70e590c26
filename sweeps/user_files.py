"""The one door to files and texts that users write: bytes in, plain data or our error out.

A byte order mark at the beginning is skipped, since every editor hides it. What is no UTF-8, is nested too
deeply, has a number of more digits than Python converts, or is larger than such a file can be, is refused
with the file's name. Readers of one format more go through here too, so that none can miss a case.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..kernels.errors import NO_VALUE, ConfigError

MOST_BYTES = 256 * 2**20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MEND_IT = "Mend that line."
_TOML_RULE = "must be valid TOML: {reason}"
_JSON_RULE = "must be JSON ({reason})"


def read_bytes(
    path: str | os.PathLike[str],
    field: str,
    *,
    rule: str = "must be a readable file: {reason}",
    most: int | None = MOST_BYTES,
) -> bytes:
    """Read a whole file of a user.

    Parameters
    ----------
    path : path
    field : str
        What the file is, for the message.
    rule : str
        What to say if it cannot be read.
    most : int, optional
        The most bytes that it may have; an endless device has more.

    Raises
    ------
    ConfigError
        If it cannot be read, or is too large.
    """
    try:
        with open(path, "rb") as stream:
            content = stream.read() if most is None else b"".join(_pieces(stream, most))
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(field, rule.replace("{reason}", reason), str(path), "Check the path.") from None
    if most is not None and len(content) > most:
        raise ConfigError(field, f"must be at most {most // 2**20} MiB", str(path), "Check the path.")
    return content


def refuse_pipe(path: Path, field: str, way_out: str = "Save it to a file, and name that.") -> None:
    """Refuse a pipe, as ``<(zcat FILE)`` or a FIFO, where a file is known by its name or read twice.

    Parameters
    ----------
    path : Path
    field : str
        What the file is, for the message.
    way_out : str

    Raises
    ------
    ConfigError
    """
    if path.is_fifo():
        raise ConfigError(field, "must be a file, not a pipe", str(path), way_out)


def _pieces(stream: BinaryIO, most: int) -> Iterator[bytes]:
    size = 0
    while size <= most and (piece := stream.read(2**20)):
        size += len(piece)
        yield piece


def decoded(content: bytes, field: str, value: Any = NO_VALUE) -> str:
    """Return UTF-8 as text, without a byte order mark.

    Raises
    ------
    ConfigError
        If it is not UTF-8.

    Examples
    --------
    >>> decoded(bytes.fromhex("efbbbf") + b"seeds = 3", "spec")
    'seeds = 3'
    """
    if content.startswith(_UTF_16):
        raise ConfigError(field, "must be UTF-8, not UTF-16", value, "Save it as UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        rule = f"must be UTF-8, byte {error.start} is not"
        raise ConfigError(field, rule, value, "Save it as UTF-8.") from None


def parse_toml(
    text: str,
    field: str,
    value: Any = NO_VALUE,
    way_out: str = _MEND_IT,
    rule: str = _TOML_RULE,
) -> Any:
    """Read TOML.

    Raises
    ------
    ConfigError
        If it is not TOML; `rule` says what is asked; ``{reason}`` in it or in `way_out` is the reader's.

    Examples
    --------
    >>> parse_toml("seeds = 3", "spec")
    {'seeds': 3}
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(field, *_rule_and_rest(error, rule, value, way_out)) from None


def parse_json(
    text: str,
    field: str,
    value: Any = NO_VALUE,
    way_out: str = _MEND_IT,
    rule: str = _JSON_RULE,
) -> Any:
    """Read one JSON document.

    Raises
    ------
    ConfigError
        If it is not JSON; `rule` says what is asked; ``{reason}`` in it or in `way_out` is the reader's.

    Examples
    --------
    >>> parse_json(5000 * "9", "model")
    Traceback (most recent call last):
        ...
    lagsweep.kernels.errors.ConfigError: model: must not hold integers of over 4300 digits. Shorten them.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(field, *_rule_and_rest(error, rule, value, way_out)) from None


def _rule_and_rest(error: Exception, rule: str, value: Any, way_out: str) -> tuple[str, Any, str]:
    """Word why a text cannot be read."""
    if isinstance(error, RecursionError):
        return "must not be nested this deeply", value, "Flatten it."
    if isinstance(error, tomllib.TOMLDecodeError | json.JSONDecodeError):
        return rule.replace("{reason}", str(error)), value, way_out.replace("{reason}", str(error))
    # What is left is Python's limit on converting integers.
    return "must not hold integers of over 4300 digits", value, "Shorten them."


def unpacked(content: bytes, field: str, value: Any = NO_VALUE) -> bytes:
    """Return what a gzip file holds, which may not be larger than such a file can be.

    Raises
    ------
    ConfigError
        If it is no gzip file, ends early or holds too much.

    Examples
    --------
    >>> import gzip
    >>> unpacked(gzip.compress(b"seeds = 3"), "spec")
    b'seeds = 3'
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            found = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        rule = f"must be a gzip file that is whole ({error})"
        raise ConfigError(field, rule, value, "Pack it again.") from None
    if len(found) > MOST_BYTES:
        rule = f"must hold at most {MOST_BYTES // 2**20} MiB when it is unpacked"
        raise ConfigError(field, rule, value, "Unpack it, or cut it.")
    return found


def table_errors() -> tuple[type[BaseException], ...]:
    """Return what reading a parquet or CSV file may raise; a damaged one makes polars panic as well."""
    import polars

    return polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError, UnicodeDecodeError


def exact_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that polars takes as a name: absolute, so that no scheme or ``~`` is seen in it.

    Give it with ``glob=False``, or ``[1]`` and ``*`` in a folder's name stand for other folders.
    """
    return Path(path).absolute()
