"""The mistake that this check is for: a lag limit that is off by one, found and told with its history."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from lagsweep.testing import BufferRuleBroken, BufferRules, Item, check_buffer


class OffByOneQueue:
    """Promises lags up to 2, and compares with the version before the one that is published."""

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.version = 0

    def put(self, item: Item) -> bool:
        """Take an item in."""
        if len(self.items) == 8:
            return False
        self.items.append(item)
        return True

    def take(self, n: int) -> list[Item] | None:
        """Return n items that are young enough, as it believes."""
        self.items = deque(item for item in self.items if (self.version - 1) - item.version <= 2)
        return [self.items.popleft() for _ in range(n)] if len(self.items) >= n else None

    def publish(self, version: int) -> None:
        """Hear of new weights."""
        self.version = version

    def save(self) -> tuple[int, list[Item]]:
        """Return what a new queue needs to go on."""
        return self.version, list(self.items)

    def restore(self, state: tuple[int, list[Item]]) -> None:
        """Go on from what was saved."""
        self.version, self.items = state[0], deque(state[1])


def test_the_mistake_is_found_and_named_with_a_short_history() -> None:
    rules: Any = BufferRules(capacity_items=8, max_lag=2, drops_stale=True)

    with pytest.raises(BufferRuleBroken) as caught:
        check_buffer(OffByOneQueue, rules, max_examples=500)

    error = caught.value
    assert error.rule == "lag bound"
    assert error.expected.startswith("lag at most 2 at version ")
    assert error.came.endswith("lag 3")
    assert len(error.history) <= 5  # a put, two or three publications, a take
    assert error.history[-1].startswith("take(1)  -> [item ")
