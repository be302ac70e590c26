"""Call public functions with odd values, and tell an answer from an error of ours and from a raw one."""

from __future__ import annotations

import contextlib
import io
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lagsweep.errors import LagsweepError

from .public_calls import Call, shown

LONGEST_SECONDS = 10.0


class Hang(BaseException):
    """A call took longer than any call with small arguments may."""


@dataclass(frozen=True)
class Outcome:
    """What a call came to: ``answer``, ``refused`` (one of our errors), ``raw`` or ``hang``."""

    name: str
    replaced: str
    kind: str
    seconds: float
    text: str = ""
    where: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether users would call it a bug."""
        return self.kind in ("raw", "hang")


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def odd_call(
    name: str, function: Callable[..., Any], call: Call, replaced: Mapping[int | str, Any]
) -> Outcome:
    """Make one call; nothing is raised, whatever it comes to."""
    start = time.perf_counter()
    kind, text, where = "answer", "", ""
    try:
        with (
            _alarm(LONGEST_SECONDS),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            call.make(function, replaced)
    except LagsweepError as error:
        kind, text = "refused", str(error)
    except Hang:
        kind = "hang"
    except BaseException as error:
        kind, text = "raw", f"{type(error).__name__}: {str(error)[:200]}"
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "strategies" not in frame.filename
        ]
        where = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames[:-5:-1])
    values = ", ".join(f"{place}={shown(value)}" for place, value in replaced.items())
    return Outcome(name, values, kind, time.perf_counter() - start, text, where)
