"""What a buffer of some rules must hold: a plain model beside the real one.

What is stale may be gone already or not yet, so the model knows two levels: what must be held, and what may
be held besides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .buffer_rules import BufferRules
from .steps import Item


@dataclass
class Unit:
    """A group, or a single item: what comes out as a whole."""

    group: int
    items: list[Item] = field(default_factory=list)

    @property
    def version(self) -> int:
        """The oldest of its items."""
        return min(item.version for item in self.items)


class BufferModel:
    """Items from put to take, by the rules.

    Parameters
    ----------
    rules : BufferRules
    """

    def __init__(self, rules: BufferRules) -> None:
        self.rules = rules
        self.version = 0
        self.ready: list[Unit] = []  # in the order in which they became complete
        self.partial: dict[int, Unit] = {}
        self.gone: dict[int, str] = {}  # item -> taken, evicted, stale
        self.items: dict[int, Item] = {}  # accepted

    def is_stale(self, unit: Unit) -> bool:
        """Tell whether a unit is too old to come out."""
        return self.rules.max_lag is not None and self.version - unit.version > self.rules.max_lag

    def levels(self) -> tuple[list[Item], list[Item]]:
        """Return the items that must be held, and the stale ones that may be held besides."""
        units = (*self.ready, *self.partial.values())
        if self.rules.max_lag is None:  # asked at every put, of large buffers too
            return [item for unit in units for item in unit.items], []
        must: list[Item] = []
        may: list[Item] = []
        for unit in units:
            (may if self.is_stale(unit) else must).extend(unit.items)
        return must, may

    def _fits(self, held: list[Item], item: Item) -> bool:
        return not self._bounds_met(held, item)

    def _bounds_met(self, held: list[Item], item: Item) -> list[str]:
        rules, met = self.rules, []
        if rules.capacity_items is not None and len(held) + 1 > rules.capacity_items:
            met.append("capacity_items")
        if rules.capacity_tokens is not None:
            tokens = sum(one.tokens for one in held)
            fits = tokens < rules.capacity_tokens
            if not rules.token_overshoot:
                fits = tokens + item.tokens <= rules.capacity_tokens
            if not fits:
                met.append("capacity_tokens")
        return met

    def capacities_met(self, item: Item) -> list[str]:
        """Name the capacities that leave no room for an item, whatever of the stale is gone."""
        return [] if self._is_stale_with(item) else self._bounds_met(self.levels()[0], item)

    def lags_met(self, came: list[Unit]) -> list[str]:
        """Say whether something came out at the largest lag, and whether what is one older waits."""
        if self.rules.max_lag is None:
            return []
        edge = self.version - self.rules.max_lag
        met = ["max_lag"] if any(unit.version == edge for unit in came) else []
        return met + ["max_lag + 1"] * any(unit.version == edge - 1 for unit in self.ready)

    def may_accept(self, item: Item) -> bool:
        """Tell whether the buffer may take an item in."""
        if self.rules.overflow == "drop_oldest" or self._is_stale_with(item):
            return True  # what is too old may be dropped in the same moment
        return self._fits(self.levels()[0], item)

    def _is_stale_with(self, item: Item) -> bool:
        partial = self.partial.get(item.group)
        return self.is_stale(Unit(item.group, [*(partial.items if partial else ()), item]))

    def may_refuse(self, item: Item) -> bool:
        """Tell whether the buffer may refuse an item: it is full, or the item too old to come out."""
        if self._is_stale_with(item):
            return True
        must, may = self.levels()
        return self.rules.overflow == "refuse" and not self._fits(must + may, item)

    def put(self, item: Item) -> None:
        """Take an item in; a full buffer that drops its oldest does so."""
        self.items[item.number] = item
        while self.rules.overflow == "drop_oldest" and self.ready and not self._fits(self.levels()[0], item):
            for one in self.ready.pop(0).items:
                self.gone[one.number] = "evicted"
        unit = self.partial.setdefault(item.group, Unit(item.group))
        unit.items.append(item)
        if len(unit.items) == self.rules.group_size:
            self.ready.append(self.partial.pop(item.group))

    def fresh(self) -> list[Unit]:
        """Return what may come out, in the order in which it must."""
        units = [unit for unit in self.ready if not self.is_stale(unit)]
        match self.rules.order:
            case "lifo":
                return units[::-1]
            case "oldest_version":
                return sorted(units, key=lambda unit: unit.version)
            case "freshest":
                return sorted(units, key=lambda unit: -unit.version)
        return units

    def take(self, units: list[Unit], *, short: bool) -> None:
        """Let units come out; stale ones that must have been met on the way are gone."""
        taken = {unit.group for unit in units}
        last = max((place for place, unit in enumerate(self.ready) if unit.group in taken), default=-1)
        # A take that found too little has looked at everything; one in order at all before its last.
        looked_at_all = short and self.rules.takes == "rest"
        passed = last if self.rules.order == "fifo" else -1
        kept = []
        for place, unit in enumerate(self.ready):
            if unit.group in taken:
                self._let_go(unit, "taken")
            elif self.is_stale(unit) and (looked_at_all or place < passed):
                self._let_go(unit, "stale")
            else:
                kept.append(unit)
        self.ready = kept

    def _let_go(self, unit: Unit, why: str) -> None:
        for item in unit.items:
            self.gone[item.number] = why
