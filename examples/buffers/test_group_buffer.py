"""A replay buffer of groups: samples of one prompt come in one by one and go out together."""

from __future__ import annotations

import copy
from typing import Any

from lagsweep.testing import BufferRules, Item, check_buffer


class GroupBuffer:
    """Collect the samples of each prompt until its group is complete; serve the oldest version first."""

    def __init__(self, group_size: int, max_lag: int, max_samples: int) -> None:
        self.group_size, self.max_lag, self.max_samples = group_size, max_lag, max_samples
        self.version = 0
        self.groups: dict[int, list[Item]] = {}

    def put(self, item: Item) -> bool:
        """Take a sample in, unless the buffer is full of what is still young enough."""
        self._evict_stale()
        if sum(map(len, self.groups.values())) >= self.max_samples:
            return False
        self.groups.setdefault(item.group, []).append(item)
        return True

    def take(self, n: int) -> list[list[Item]] | None:
        """Return n complete groups, or None when there are fewer."""
        self._evict_stale()
        ready = [group for group in self.groups.values() if len(group) == self.group_size]
        if len(ready) < n:
            return None
        chosen = sorted(ready, key=self._version_of)[:n]
        for group in chosen:
            del self.groups[group[0].group]
        return chosen

    def publish(self, version: int) -> None:
        """Hear of new weights."""
        self.version = version

    def save(self) -> dict[str, Any]:
        """Return what a new buffer needs to go on."""
        return {"version": self.version, "groups": copy.deepcopy(self.groups)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.version, self.groups = state["version"], copy.deepcopy(state["groups"])

    def _version_of(self, group: list[Item]) -> int:
        return min(item.version for item in group)

    def _evict_stale(self) -> None:
        kept = self.version - self.max_lag
        self.groups = {name: group for name, group in self.groups.items() if self._version_of(group) >= kept}


def test_the_buffer_keeps_its_rules() -> None:
    rules = BufferRules(
        group_size=3,
        capacity_items=12,
        max_lag=1,
        drops_stale=True,
        order="oldest_version",
        take_sizes=(1, 2),
    )

    check_buffer(lambda: GroupBuffer(group_size=3, max_lag=1, max_samples=12), rules)
