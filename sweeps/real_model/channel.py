"""Messages between a generator and a trainer: JSON over one stream, ended when either side ends.

Nothing that goes through is ever unpickled. A side that dies closes its end, so the other one sees it at once
and waits for nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any


class PeerGoneError(Exception):
    """The other process has ended."""


class Channel:
    """One end of the stream. A thread empties it, so that no sender ever waits for a busy receiver.

    Parameters
    ----------
    descriptor : int
        Of a connected socket; closed with the channel.
    """

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._waiting: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._gone = False
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        while True:
            try:
                message = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError, ValueError):
                message = None
            with self._changed:
                if message is None:
                    self._gone = True
                else:
                    self._waiting.append(message)
                self._changed.notify_all()
            if message is None:
                return

    def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises
        ------
        PeerGoneError
            If the other side has ended.
        """
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except OSError as error:
            raise PeerGoneError from error

    def take(self, *, wait: bool = True, seconds: float = 600.0) -> dict[str, Any] | None:
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

    def waiting(self) -> int:
        """Return how many messages have come and were not taken: the depth of the queue."""
        with self._changed:
            return len(self._waiting)

    def close(self) -> None:
        """Close this end; the other side sees it."""
        self._connection.close()
