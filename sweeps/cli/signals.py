"""Ctrl-C and SIGTERM end a run at a safe point: what is finished is kept, the exit code says which."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from .failures import Stopped


@dataclass
class Stop:
    """What was asked from outside.

    Attributes
    ----------
    event : threading.Event
        Set at the first signal.
    signal : int
        Which one it was; 0 if none came.
    """

    event: threading.Event = field(default_factory=threading.Event)
    signal: int = 0

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM, by the shells' custom."""
        return 128 + self.signal


@contextlib.contextmanager
def stop_at_safe_point() -> Iterator[Stop]:
    """Turn the first Ctrl-C or SIGTERM into an event; a second Ctrl-C interrupts at once."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = stop.signal or number
        stop.event.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[int, Any] = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into an error that ends a command with 143 and lets it put away what it holds."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped", 128 + number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
