"""Open a file or a stream of records, packed or not, and cut it into pieces of whole lines.

gzip and zstandard are unpacked as they are read, so that no more than a piece is held, whatever a file
unpacks to. The first bytes say what a file is, not its name.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from ...kernels.errors import NO_VALUE, ConfigError

GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_TO_SKIP = tuple(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))  # RFC 8878, 3.1.2
FIRST_PIECE_BYTES = 2**20
PIECE_BYTES = 8 * 2**20
_LOOK_BYTES = 2**16


class _Joined(io.RawIOBase):
    """Bytes that were read already, and then the rest of their stream."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._beginning[: len(buffer)] or self._rest.read(len(buffer))
        self._beginning = self._beginning[len(part) :]
        buffer[: len(part)] = part
        return len(part)


class _Zstandard(io.RawIOBase):
    """Unpacks frames one after the other, and tells when the last one is not whole.

    Raises
    ------
    ConfigError
        If no package for it is installed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            rule = "needs the package zstandard for a file that is packed with it"
            way_out = "pip install 'lagsweep[zstd]', or: zstd -dc FILE | lagsweep validate -"
            raise ConfigError("file", rule, NO_VALUE, way_out) from None
        self._begin = zstandard.ZstdDecompressor().decompressobj
        self._stream, self._frame, self._rest, self._ready = stream, self._begin(), b"", b""
        self._begun = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            # Four bytes can stand for a block of 128 KiB: this much input unpacks to 32 MiB at most.
            packed = self._rest or self._stream.read(1024)
            self._rest = b""
            if not packed:
                if self._begun:
                    raise EOFError("it ends inside a frame")
                return 0
            self._begun = True
            self._ready = self._frame.decompress(packed)
            if self._frame.eof:
                self._rest, self._frame, self._begun = self._frame.unused_data, self._begin(), False
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def unpacked_stream(stream: BinaryIO) -> BinaryIO:
    """Return a stream of what is inside: the stream itself, or one that unpacks it.

    Parameters
    ----------
    stream : binary file
        At its beginning.

    Raises
    ------
    ConfigError
        If it is packed with zstandard, and no package for that is installed.

    Examples
    --------
    >>> import gzip
    >>> unpacked_stream(io.BytesIO(gzip.compress(b"{}"))).read()
    b'{}'
    """
    if callable(getattr(stream, "peek", None)):
        beginning = stream.peek(4)[:4]  # type: ignore[attr-defined]
        joined: Any = stream
    else:
        beginning = stream.read(4)
        joined = io.BufferedReader(_Joined(beginning, stream), 2**16)
    # zstd's own programs put a frame to skip first, where a file can be sought in or was packed in parallel.
    zstandard = beginning.startswith(ZSTANDARD) or beginning[:4] in _TO_SKIP
    packed = beginning.startswith(GZIP) or zstandard
    if beginning.startswith(GZIP):
        joined = io.BufferedReader(gzip.GzipFile(fileobj=joined), 2**16)
    elif zstandard:
        joined = io.BufferedReader(_Zstandard(joined), 2**16)
    return _Checked(joined, packed=packed)  # type: ignore[return-value]


def _packing_errors() -> tuple[type[Exception], ...]:
    """Return what a packed file that is cut or damaged may raise."""
    errors: tuple[type[Exception], ...] = (gzip.BadGzipFile, EOFError, zlib.error)
    try:
        import zstandard
    except ImportError:
        return errors
    return (*errors, zstandard.ZstdError)


class _Checked:
    """A stream whose reading fails with our error."""

    def __init__(self, stream: BinaryIO, *, packed: bool) -> None:
        self._stream = stream
        # What is packed can be sought in too, by unpacking it again from its beginning.
        self._can_look = not packed and stream.seekable()

    def _call(self, method: str, size: int) -> bytes:
        try:
            found: bytes = getattr(self._stream, method)(size)
            return found
        except OSError as error:
            if isinstance(error, gzip.BadGzipFile):
                raise self._damaged(error) from None
            rule = f"must be readable ({error.strerror or error})"
            raise ConfigError("file", rule, NO_VALUE, "Look at the disk.") from None
        except _packing_errors() as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> ConfigError:
        return ConfigError(
            "file", f"must be a packed file that is whole ({error})", NO_VALUE, "Pack it again."
        )

    def read(self, size: int = -1) -> bytes:
        """Read up to so many bytes."""
        return self._call("read", size)

    def readline(self, size: int = -1) -> bytes:
        """Read up to a line feed, or so many bytes."""
        return self._call("readline", size)

    def whole_lines(self, size: int) -> int:
        """Say how many of the next so many bytes are whole lines, and take none; 0 if that is unknown."""
        if not self._can_look:
            return 0
        look = min(size, _LOOK_BYTES)
        try:
            here = self._stream.tell()
            self._stream.seek(here + size - look)
            seen = self._stream.read(look)
            self._stream.seek(here)
        except OSError as error:
            rule = f"must be readable ({error.strerror or error})"
            raise ConfigError("file", rule, NO_VALUE, "Look at the disk.") from None
        last = seen.rfind(b"\n")
        return size - look + last + 1 if last >= 0 and len(seen) == look else 0


class Piece(NamedTuple):
    """Whole lines, and perhaps the beginning of one that is too long and was passed over."""

    content: bytes
    too_long: bytes
    last: bool


def _filled(stream: BinaryIO, size: int) -> bytes:
    """Read so many bytes, fewer only at the end."""
    parts, missing = [], size
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def pieces(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """Cut a stream into pieces of whole lines: a small one first, which is all that most files are.

    Parameters
    ----------
    stream : binary file
    limit : int
        A line of more bytes, its line feed aside, is passed over where it does not fit a piece.

    Yields
    ------
    Piece

    Examples
    --------
    >>> [piece.content for piece in pieces(io.BytesIO(b"{}\\n{}"), 100)]
    [b'{}\\n{}']
    """
    size = FIRST_PIECE_BYTES
    whole_lines = getattr(stream, "whole_lines", lambda size: 0)
    while True:
        # Where it can be told before, a piece is read as it will be: else its last line is put to it, a copy.
        size = whole_lines(size) or size
        content = _filled(stream, size)
        if len(content) < size:
            yield Piece(content, b"", True)
            return
        size = PIECE_BYTES
        if content.endswith(b"\n"):
            yield Piece(content, b"", False)
            continue
        start = content.rfind(b"\n") + 1
        rest = stream.readline(max(limit + 1 - (len(content) - start), 0) + 1)
        length = len(content) - start + len(rest) - rest.endswith(b"\n")
        if length <= limit:
            yield Piece(content + rest, b"", not rest)
            continue
        beginning = (content[start : start + 100] + rest[:100])[:100]
        while rest and not rest.endswith(b"\n"):
            rest = stream.readline(2**20)
        yield Piece(content[:start], beginning, False)
