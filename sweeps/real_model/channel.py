"""Messages between a generator and a trainer: lines of JSON over one stream, ended when either side ends.

Nothing that goes through is ever unpickled. A side that dies closes its end, so the other one sees it at once
and waits for nothing.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from typing import Any


class PeerGoneError(Exception):
    """The other process has ended."""


class Channel:
    """One end of the stream. A thread empties it, so that no sender ever waits for a busy receiver.

    Parameters
    ----------
    descriptor : int
        Of a connected socket, which the channel takes over.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._waiting: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._gone = False
        self._reader = threading.Thread(target=self._receive, daemon=True)
        self._reader.start()

    def _receive(self) -> None:
        # A line that a death cut short is no message.
        with contextlib.suppress(OSError, ValueError), self._socket.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                with self._changed:
                    self._waiting.append(message)
                    self._changed.notify_all()
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises
        ------
        PeerGoneError
            If the other side has ended.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise PeerGoneError from error

    def take(self, *, wait: bool = True, seconds: float = 1800.0) -> dict[str, Any] | None:
        """Take the oldest message that has come.

        Parameters
        ----------
        wait : bool
            Wait for one; else None is returned where none is there.
        seconds : float
            How long to wait at most.

        Raises
        ------
        PeerGoneError
            If none is left and none will come, or the time is over.
        """
        end = time.monotonic() + seconds
        with self._changed:
            while not self._waiting:
                if self._gone:
                    raise PeerGoneError
                if not wait:
                    return None
                left = end - time.monotonic()
                if left <= 0:
                    raise PeerGoneError
                self._changed.wait(left)
            return self._waiting.popleft()

    def close(self) -> None:
        """End the stream; the other side sees it, after what was sent before."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()
