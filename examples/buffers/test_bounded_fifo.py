"""A queue between generator and trainer: bounded, first in first out, and what is too old never comes out."""

from __future__ import annotations

from asyncio import QueueEmpty, QueueFull
from collections import deque
from typing import Any

from lagsweep.testing import BufferRules, Item, check_buffer


class BoundedQueue:
    """Like ``asyncio.Queue`` with ``put_nowait`` and ``get_nowait``, and a filter at the head."""

    def __init__(self, maxsize: int, max_lag: int) -> None:
        self.maxsize, self.max_lag, self.version = maxsize, max_lag, 0
        self.items: deque[Item] = deque()

    def put(self, item: Item) -> None:
        """Take an item in."""
        if len(self.items) >= self.maxsize:
            raise QueueFull
        self.items.append(item)

    def take(self, n: int) -> list[Item]:
        """Return n items that are young enough; what is too old is dropped on the way."""
        self.items = deque(item for item in self.items if self.version - item.version <= self.max_lag)
        if len(self.items) < n:
            raise QueueEmpty
        return [self.items.popleft() for _ in range(n)]

    def publish(self, version: int) -> None:
        """Hear of new weights."""
        self.version = version

    def save(self) -> dict[str, Any]:
        """Return what a new queue needs to go on."""
        return {"version": self.version, "items": list(self.items)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.version, self.items = state["version"], deque(state["items"])


def test_the_queue_keeps_its_rules() -> None:
    rules = BufferRules(capacity_items=5, max_lag=2, drops_stale=True)

    check_buffer(lambda: BoundedQueue(maxsize=5, max_lag=2), rules)
