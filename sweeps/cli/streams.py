"""The one door to stdout and stderr: what a terminal, a pipe or a log file lacks never ends a command.

- A character that the stream's encoding does not have is written as a near one (``<=``, ``#``), or as ``?``.
- When the reader of stdout has gone (``| head``), the rest is dropped and the command ends with its own code.
- stderr is talk: what cannot be written there, for a full disk or a reader that has gone, is dropped.
- A stream that was closed before the start is the null device, so that no file of a store gets its number.

A full disk under stdout is an error like any other file's: results went missing.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_NEAR = {
    "─": "-", "█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "#", "▍": "-", "▎": "-", "▏": " ", "·": ".",
    "≤": "<=", "≥": ">=", "±": "+-", "×": "x", "…": "...", "–": "-", "—": "-", "→": "->", "’": "'",
}  # fmt: skip
NEAR_CHARACTERS = "lagsweep.near"


def _near(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding lacks by what looks like it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_NEAR.get(letter, "?") for letter in missing), error.end


codecs.register_error(NEAR_CHARACTERS, _near)


class _Steadfast(io.BufferedIOBase):
    """A binary stream whose reader may go away, and that may drop whatever cannot be written."""

    def __init__(self, stream: Any, *, may_fail: bool) -> None:
        self._stream = stream
        self._may_fail = may_fail
        self._gone = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def isatty(self) -> bool:
        return bool(self._stream.isatty())

    def write(self, data: Any) -> int:
        with self._kept_going():
            if not self._gone:
                self._stream.write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        with self._kept_going():
            if not self._gone and not self.closed:
                self._stream.flush()

    @contextlib.contextmanager
    def _kept_going(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._gone = True
            # What the stream still holds would be written once more when Python ends, and end it with 120.
            with contextlib.suppress(OSError, ValueError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
        except (OSError, ValueError):  # ValueError: the stream was closed
            if not self._may_fail:
                raise


def _steadfast(stream: TextIO, *, may_fail: bool) -> TextIO:
    binary = getattr(stream, "buffer", None)
    if binary is None:  # a stream of text only, as tests and notebooks put in place
        return stream
    stream.flush()
    steadfast: Any = _Steadfast(binary, may_fail=may_fail)
    return io.TextIOWrapper(
        steadfast,
        encoding=stream.encoding,
        errors=NEAR_CHARACTERS,
        newline="",
        line_buffering=bool(getattr(stream, "line_buffering", True)),
    )


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Put the door before stdout and stderr for the while of a command."""
    before = sys.stdin, sys.stdout, sys.stderr
    with contextlib.ExitStack() as opened:
        # The null device takes the lowest free number, which is the closed stream's own.
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, opened.enter_context(open(os.devnull, mode)))
        sys.stdout = _steadfast(sys.stdout, may_fail=False)
        sys.stderr = _steadfast(sys.stderr, may_fail=True)
        try:
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):
                    stream.flush()
            sys.stdin, sys.stdout, sys.stderr = before
