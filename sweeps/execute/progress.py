"""What a long run says while it runs: a bar on a terminal, a plain line now and then elsewhere, or nothing.

Everything goes to stderr. :class:`Progress` itself is silent and is what other observers inherit from.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from ...kernels.errors import ConfigError, many

PLAIN_SECONDS = 10.0  # between plain lines
FIRST_PLAIN_SECONDS = 2.0


class Progress:
    """Say nothing; the base of every other kind. Called from several threads."""

    def begin(self, total: int, done: int = 0) -> None:
        """Learn how many runs there are, and how many were done before."""

    def advance(self, runs: int) -> None:
        """Learn that so many runs more are done."""

    def block(self, unit: str, runs: int, seconds: float) -> None:
        """Learn that the calling thread finished a block of a unit."""

    def note(self, text: str) -> None:
        """Pass on one line of talk."""

    def failure(self, text: str) -> None:
        """Pass on one failed run."""
        self.note(text)

    def kept(self, runs: int) -> None:
        """Learn how many runs in all are kept, where they end early: those of unfinished units are not."""

    def end(self) -> None:
        """Learn that no more will come."""

    @contextlib.contextmanager
    def steps(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Learn of work that is no run, while it lasts; gives what is called after each of its steps."""
        yield lambda: None


class Counting(Progress):
    """Keep count of what is done, and call a function with (done, total)."""

    def __init__(self, tell: Callable[[int, int], Any] | None = None) -> None:
        self.total = self.done = self.done_before = 0
        self.began = time.monotonic()
        self._tell = tell
        self._lock = threading.Lock()

    def begin(self, total: int, done: int = 0) -> None:
        """Start counting."""
        self.total, self.done, self.done_before = total, done, done
        self.began = time.monotonic()

    def advance(self, runs: int) -> None:
        """Count runs."""
        with self._lock:
            self.done += runs
        if runs:
            self.show()

    def kept(self, runs: int) -> None:
        """Count those alone."""
        with self._lock:
            self.done = runs

    def show(self) -> None:
        """Pass on the count."""
        if self._tell is not None:
            self._tell(self.done, self.total)

    def rate(self) -> float:
        """Return runs per second so far in this process."""
        return (self.done - self.done_before) / max(time.monotonic() - self.began, 1e-9)

    def line(self) -> str:
        """Say how far the runs are, how fast, and how long they will take."""
        rate = self.rate()
        left = (self.total - self.done) / rate if rate > 0 else float("inf")
        share = self.done / self.total if self.total else 1.0
        return (
            f"{self.done:,} of {self.total:,} runs ({share:.0%}), {rate:,.0f} runs/s, {duration(left)} left"
        )


class Plain(Counting):
    """Write a plain line now and then: for log files and pipes, no control characters."""

    def __init__(self, stream: TextIO | None = None, every_seconds: float = PLAIN_SECONDS) -> None:
        super().__init__()
        self._stream = stream
        self._every = every_seconds
        self._next = time.monotonic() + FIRST_PLAIN_SECONDS

    def begin(self, total: int, done: int = 0) -> None:
        """Start counting and say so."""
        super().begin(total, done)
        self._next = self.began + FIRST_PLAIN_SECONDS
        before = f", {done:,} done before" if done else ""
        self.note(f"{many(total, 'run')}{before}")

    def show(self) -> None:
        """Write a line if it is time."""
        now = time.monotonic()
        with self._lock:
            due = now >= self._next
            if due:
                self._next = now + self._every
        if due and self.done < self.total:
            self.note(self.line())

    def note(self, text: str) -> None:
        """Write one line."""
        _say(text, self._stream)

    def end(self) -> None:
        """Say what was done."""
        elapsed = time.monotonic() - self.began
        self.note(
            f"{self.done:,} of {self.total:,} runs done, {duration(elapsed)}, {self.rate():,.0f} runs/s"
        )


class Bar(Counting):
    """Draw a bar with rate and time left on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._task: Any = None

    def begin(self, total: int, done: int = 0) -> None:
        """Draw the bar."""
        super().begin(total, done)
        self._start("runs", total, done)

    def _start(self, what: str, total: int, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total, completed=done, rate="")
        self._bar.start()

    @contextlib.contextmanager
    def steps(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Draw a bar of these steps, and remove it without a word."""
        if self._bar is not None:  # that of the runs, of which these are a part
            yield lambda: None
            return
        self._start(what, total)
        bar: Any = self._bar
        task = self._task
        try:
            yield lambda: bar.advance(task)
        finally:
            self._bar = None
            bar.stop()

    def show(self) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, rate=f"{self.rate():,.0f}/s")

    def note(self, text: str) -> None:
        """Write one line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            _say(text)

    def end(self) -> None:
        """Remove the bar and say what was done."""
        if self._bar is None:
            return
        self._bar.stop()
        self._bar = None
        if not self.total:  # steps, and no runs
            return
        elapsed = time.monotonic() - self.began
        self.note(
            f"{self.done:,} of {self.total:,} runs done, {duration(elapsed)}, {self.rate():,.0f} runs/s"
        )


class UntilItFails(Progress):
    """Pass everything on to another observer, until that cannot be written: then it is switched off.

    A terminal that was closed, a full disk under a log, a closed file: the runs go on without a word more.

    Parameters
    ----------
    observer : Progress
    """

    def __init__(self, observer: Progress) -> None:
        self._observer = observer

    def begin(self, total: int, done: int = 0) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.begin(total, done)

    def advance(self, runs: int) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.advance(runs)

    def block(self, unit: str, runs: int, seconds: float) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.block(unit, runs, seconds)

    def note(self, text: str) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.note(text)

    def failure(self, text: str) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.failure(text)

    def kept(self, runs: int) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.kept(runs)

    def end(self) -> None:
        """Pass it on."""
        with self._switched_off():
            self._observer.end()

    @contextlib.contextmanager
    def steps(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Pass it on."""
        with contextlib.ExitStack() as stack:
            step: Callable[[], None] | None = None
            observer = self._observer
            with self._switched_off():
                step = stack.enter_context(self._observer.steps(what, total))

            def passed_on() -> None:
                if step is not None and self._observer is observer:
                    with self._switched_off():
                        step()

            try:
                yield passed_on
            finally:
                with self._switched_off():
                    stack.close()

    @contextlib.contextmanager
    def _switched_off(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) and "closed file" not in str(error):
                raise  # of the function itself
            failed, self._observer = self._observer, Progress()
            with contextlib.suppress(OSError, ValueError):
                failed.end()
            _say(f"progress: cannot be written ({error}); it is switched off, the runs go on")


def _say(text: str, stream: TextIO | None = None) -> None:
    """Write one line of talk; a full or vanished stderr must not end a run."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=stream or sys.stderr, flush=True)


def progress_for_terminal(*, quiet: bool = False) -> Progress:
    """Choose by what stderr is: a bar on a terminal, plain lines elsewhere, nothing when quiet."""
    if quiet:
        return Progress()
    return Bar() if sys.stderr is not None and sys.stderr.isatty() else Plain()


def checked_progress(progress: object) -> Progress:
    """Read the argument ``progress`` of a sweep: None, True, a function of (done, total), or an observer.

    Raises
    ------
    ConfigError
        If it is none of these.
    """

    if progress is None or progress is False:
        return Progress()
    if progress is True:
        return UntilItFails(progress_for_terminal())
    if isinstance(progress, Progress):
        return UntilItFails(progress)
    if callable(progress):
        return UntilItFails(Counting(progress))
    raise ConfigError(
        "progress", "must be a function of (done, total)", progress, "Give True, or a function."
    )


def duration(seconds: float) -> str:
    """Write a span of time for people.

    Examples
    --------
    >>> duration(5), duration(75), duration(7300)
    ('5 s', '1 min 15 s', '2 h 01 min')
    """
    if not seconds < 1e9:
        return "unknown time"
    whole = int(seconds + 0.5)
    if whole < 10 and seconds % 1 and seconds < 9.95:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
