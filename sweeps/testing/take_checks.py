"""Whether what came out of a buffer is what its rules let out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from .broken_rules import broken
from .buffer_model import BufferModel, Unit
from .steps import Item


class TakeChecks:
    """The rules of a take, each broken by name.

    Parameters
    ----------
    model : BufferModel
    history : list of str
        What happened so far.
    empty : callable
        Takes all that is left of the buffer and returns the numbers, to tell what is lost from what is late.
    """

    def __init__(self, model: BufferModel, history: list[str], empty: Callable[[], Iterable[int]]) -> None:
        self.model, self.rules, self.history, self._empty = model, model.rules, history, empty

    def check(self, count: int, numbers: list[int]) -> list[Unit]:
        """Return the units that came out as the answer of a take.

        Raises
        ------
        BufferRuleBroken
            If a rule is broken.
        """
        self._are_known(numbers)
        units = self._units_of(numbers)
        fresh = self.model.fresh()
        by_version = self.rules.order in ("oldest_version", "freshest")
        for unit, expected in zip(units, fresh):
            in_order = unit.version == expected.version if by_version else unit is expected
            if self.rules.order != "any" and not in_order:
                self._break_order(expected, unit)
        least = {"whole": count if len(fresh) >= count else 0, "rest": min(count, len(fresh)), "any": 0}
        most = {**least, "any": min(count, len(fresh))}[self.rules.takes]
        if len(units) < least[self.rules.takes]:
            out = {unit.group for unit in units}
            self.is_lost(next(unit for unit in fresh if unit.group not in out))
        if not least[self.rules.takes] <= len(units) <= most:
            what = "groups" if self.rules.group_size > 1 else "items"
            expected_count = f"{most} {what}: {len(fresh)} may come out"
            self.fail("size of a take", f"take({count}) gives {expected_count}", f"{len(units)} {what}")
        self.model.take(units, short=len(units) < count)
        return units

    def _are_known(self, numbers: list[int]) -> None:
        seen: set[int] = set()
        for number in numbers:
            gone = self.model.gone.get(number)
            if number not in self.model.items:
                self.fail("conservation", "only items that were put in come out", f"item {number}")
            if number in seen or gone == "taken":
                self.fail("conservation", f"item {number} comes out once", "it came out twice")
            if gone == "evicted":
                self.fail("queue bound", f"item {number} was dropped by a full buffer", "it came out")
            item = self.model.items[number]
            most, lag = self.rules.max_lag, self.model.version - item.version
            if most is not None and lag > most:
                expected = f"lag at most {most} at version {self.model.version}"
                self.fail("lag bound", expected, f"item {number} of version {item.version}, lag {lag}")
            seen.add(number)

    def _units_of(self, numbers: list[int]) -> list[Unit]:
        """Return the units that came out; each must be complete, and its members together."""
        ready = {unit.group: unit for unit in self.model.ready}
        size = self.rules.group_size
        found = []
        for first in range(0, len(numbers), size):
            members = numbers[first : first + size]
            group = self.model.items[members[0]].group
            unit = ready.get(group)
            whole = unit is not None and sorted(members) == sorted(item.number for item in unit.items)
            if unit is None or not whole:
                self.fail(
                    "whole groups", f"the {size} members of group {group} come out together", named(members)
                )
            if self.model.is_stale(unit):
                lag = self.model.version - unit.version
                expected = f"lag at most {self.rules.max_lag} of the oldest member"
                self.fail("lag bound", expected, f"group {group} with lag {lag}")
            found.append(unit)
        return found

    def _break_order(self, expected: Unit, came: Unit) -> NoReturn:
        self.is_lost(expected)
        if self.rules.order in ("oldest_version", "freshest"):
            said = f"{name_of(came)} of version {came.version}"
            self.fail("order", f"version {expected.version} next", said)
        self.fail("order", f"{name_of(expected)} next", name_of(came))

    def is_lost(self, unit: Unit) -> None:
        """Name a unit that never comes out lost; come back where it comes, or where none can tell."""
        if self.rules.takes == "any" or min(self.rules.take_sizes) > 1:
            return
        if {item.number for item in unit.items}.isdisjoint(self._empty()):
            self.history.append(f"take(1) until nothing comes  -> never {name_of(unit)}")
            self.nothing_is_lost([unit])

    def nothing_is_lost(self, left: list[Unit]) -> None:
        """Hold it against the rules that some units never came out.

        Raises
        ------
        BufferRuleBroken
            If there are any.
        """
        if not left:
            return
        unit, most = left[0], self.rules.max_lag
        lag = f", whose lag {self.model.version - unit.version} is at most {most}"
        expected = f"{name_of(unit)} comes out" + ("" if most is None else lag)
        self.fail("conservation", expected, f"{name_of(unit)} was put in and is lost")

    def fail(self, rule: str, expected: str, came: str) -> NoReturn:
        """Raise the error of a rule.

        Raises
        ------
        BufferRuleBroken
            Always.
        """
        raise broken(rule, expected, came, self.history, str(self.rules))


def name_of(unit: Unit) -> str:
    """Return what a message calls a unit."""
    return f"item {unit.items[0].number}" if len(unit.items) == 1 else f"group {unit.group}"


def named(numbers: Iterable[int]) -> str:
    """Return what a message calls some items."""
    return ", ".join(f"item {number}" for number in numbers)


def level(model: BufferModel) -> str:
    """Say how full a buffer is; a range where stale items may be held or gone."""
    must, may = model.levels()
    rules, parts = model.rules, []
    if rules.capacity_items is not None:
        parts.append(f"{_range(len(must), len(must + may))} of {rules.capacity_items} items")
    if rules.capacity_tokens is not None:
        low, high = (sum(item.tokens for item in held) for held in (must, must + may))
        parts.append(f"{_range(low, high)} of {rules.capacity_tokens} tokens")
    return f"it holds {' and '.join(parts) or 'any number of items'}"


def described(item: Item, model: BufferModel) -> str:
    """Say what is put in, as far as the rules look at it."""
    parts = [f"version {item.version}"]
    if model.rules.capacity_tokens is not None:
        parts.append(f"{item.tokens} token{'s' * (item.tokens != 1)}")
    if model.rules.group_size > 1:
        parts.append(f"group {item.group}")
    return f"item {item.number}: {', '.join(parts)}"


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"
