"""A ring buffer bounded in tokens: a new rollout pushes the oldest ones out until it fits."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict
from typing import Any

from lagsweep.testing import BufferRules, Item, check_buffer


class TokenRing:
    """Keep the newest rollouts, as many as fit into so many tokens, as plain mappings."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.rows: deque[dict[str, Any]] = deque()
        self.tokens = 0

    def put(self, row: dict[str, Any]) -> bool:
        """Take a row in; the oldest go."""
        while self.rows and self.tokens + row["tokens"] > self.max_tokens:
            self.tokens -= self.rows.popleft()["tokens"]
        self.rows.append(row)
        self.tokens += row["tokens"]
        return True

    def take(self, n: int) -> list[dict[str, Any]]:
        """Return up to n rows, the oldest first."""
        taken = [self.rows.popleft() for _ in range(min(n, len(self.rows)))]
        self.tokens -= sum(row["tokens"] for row in taken)
        return taken

    def publish(self, version: int) -> None:
        """Nothing depends on the version."""

    def save(self) -> list[dict[str, Any]]:
        """Return every row."""
        return list(self.rows)

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Go on from what was saved."""
        self.rows = deque(state)
        self.tokens = sum(row["tokens"] for row in state)


def test_the_ring_keeps_its_rules_through_a_checkpoint_in_json() -> None:
    rules = BufferRules(
        capacity_tokens=10, overflow="drop_oldest", takes="rest", item_tokens=(1, 6), take_sizes=(1, 4)
    )

    def row_of(item: Item) -> dict[str, Any]:
        return {"id": item.number, **asdict(item)}

    check_buffer(
        lambda: TokenRing(max_tokens=10),
        rules,
        item_of=row_of,
        number_of=lambda row: int(row["id"]),
        carry=lambda state: json.loads(json.dumps(state)),
    )
