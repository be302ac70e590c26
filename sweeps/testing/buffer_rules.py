"""What a buffer promises: the declaration that a check goes by, itself checked for sense."""

from __future__ import annotations

import asyncio
import queue
from dataclasses import dataclass, fields
from typing import Any, Literal

from ...kernels.errors import ConfigError, Finding
from ..checks import WholeNumber, checked, flag_of

ORDERS = ("fifo", "lifo", "oldest_version", "freshest", "any")
TAKES = ("whole", "rest", "any")
OVERFLOWS = ("refuse", "drop_oldest")
_LARGEST = 2**31
_FEW_TOKENS = 4  # of an item where nothing asks for more
_MOST_TOKENS = 4096  # an item may be made into a list of as many


@dataclass(frozen=True, kw_only=True)
class BufferRules:
    """What a queue or buffer promises.

    Parameters
    ----------
    capacity_items : int, optional
        Most items at once, those of groups that are not complete among them; none: no such bound.
    capacity_tokens : int, optional
        Most tokens at once; none: no such bound.
    token_overshoot : bool
        An item is taken in while the tokens are below the capacity, so the last one may pass it; else only
        where it fits as a whole.
    overflow : {"refuse", "drop_oldest"}
        A full buffer refuses (``put`` returns False or raises), or drops what it has held for longest.
    max_lag : int, optional
        Largest lag that ``take`` may hand out: the published version less the item's, and for a group that
        of its oldest member; none: any.
    drops_stale : bool
        It drops what is older than that, at any moment from the publication to the take. Must be declared
        with ``max_lag``.
    order : {"fifo", "lifo", "oldest_version", "freshest", "any"}
        In which order items, or complete groups, come out.
    takes : {"whole", "rest", "any"}
        ``take(n)`` gives n or nothing; as many as there are up to n; or any number up to n.
    group_size : int
        Members of a group. With more than 1, ``take(n)`` gives n complete groups, as lists or one after
        another, and items are put one by one, in any order.
    item_tokens : (int, int), optional
        Smallest and largest tokens of an item; none: from 1 to an eighth of ``capacity_tokens`` (at least 4
        where they fit, at most 4096), more where few items must fill it.
    take_sizes : tuple of int
        The n that ``take`` is called with.
    saves : bool
        It can be saved and restored exactly.
    refusals : tuple of exception classes
        What ``put`` may raise in order to refuse.
    not_ready : tuple of exception classes
        What ``take`` may raise when it has not enough; None and an empty list say the same.

    Raises
    ------
    ConfigError
        If a value is of another kind or range, or two contradict each other; every finding is listed.

    Examples
    --------
    >>> BufferRules(capacity_items=8, max_lag=2, drops_stale=True).order
    'fifo'
    >>> BufferRules(max_lag=2)
    Traceback (most recent call last):
        ...
    lagsweep.kernels.errors.ConfigError: drops_stale: must be declared with max_lag: what grew too old ...
    """

    capacity_items: int | None = None
    capacity_tokens: int | None = None
    token_overshoot: bool = False
    overflow: Literal["refuse", "drop_oldest"] = "refuse"
    max_lag: int | None = None
    drops_stale: bool = False
    order: Literal["fifo", "lifo", "oldest_version", "freshest", "any"] = "fifo"
    takes: Literal["whole", "rest", "any"] = "whole"
    group_size: int = 1
    item_tokens: tuple[int, int] | None = None
    take_sizes: tuple[int, ...] = (1, 2, 3)
    saves: bool = True
    refusals: tuple[type[BaseException], ...] = (queue.Full, asyncio.QueueFull)
    not_ready: tuple[type[BaseException], ...] = (queue.Empty, asyncio.QueueEmpty)

    def __post_init__(self) -> None:
        found = [finding for name in (each.name for each in fields(self)) for finding in self._value(name)]
        if not found:
            found = _contradictions(self)
        if found:
            raise ConfigError(*found)

    def _value(self, name: str) -> list[Finding]:
        value = getattr(self, name)
        try:
            _check_value(name, value)
        except ConfigError as error:
            return list(error.findings)
        return []

    @property
    def token_range(self) -> tuple[int, int]:
        """Smallest and largest tokens of an item, as given or by the capacities."""
        if self.item_tokens is not None:
            return self.item_tokens
        if self.capacity_tokens is None:
            return 1, _FEW_TOKENS
        each = 0 if self.capacity_items is None else -(-(self.capacity_tokens + 1) // self.capacity_items)
        wanted = max(_FEW_TOKENS, -(-self.capacity_tokens // 8), each)
        return 1, min(wanted, self.capacity_tokens, _MOST_TOKENS)

    @property
    def puts_to_fill(self) -> int:
        """Puts that fill the buffer, of the largest items where tokens are bounded; 0: it has no bound."""
        puts = self.capacity_items or 0
        if self.capacity_tokens is not None:
            puts = max(puts, -(-self.capacity_tokens // self.token_range[1]))
        return puts

    def __str__(self) -> str:
        """Return what differs from the defaults, as it would be written."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        given = [f"{name}={value!r}" for name, value in plain.items() if value != _DEFAULTS[name]]
        return f"BufferRules({', '.join(given)})"


_DEFAULTS = {each.name: each.default for each in fields(BufferRules)}
_CHOICES = {"order": ORDERS, "takes": TAKES, "overflow": OVERFLOWS}
_SMALLEST = {"capacity_items": 1, "capacity_tokens": 1, "max_lag": 0, "group_size": 1}


def _check_value(name: str, value: Any) -> None:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ConfigError(
                name, f"must be one of {', '.join(_CHOICES[name])}", value, "Choose one of them."
            )
    elif name in _SMALLEST:
        if value is not None or name == "group_size":
            checked(WholeNumber, name, value, low=_SMALLEST[name], high=_LARGEST)
    elif name == "item_tokens" and value is None:
        return
    elif name in ("item_tokens", "take_sizes"):
        whole = isinstance(value, tuple) and value and all(type(one) is int and one >= 1 for one in value)
        if not whole or (name == "item_tokens" and (len(value) != 2 or value[0] > value[1])):
            shape = "(smallest, largest)" if name == "item_tokens" else "a tuple"
            raise ConfigError(name, f"must be {shape} of whole numbers from 1", value, "Give such as (1, 4).")
    elif name in ("refusals", "not_ready"):
        kinds = isinstance(value, tuple) and all(isinstance(one, type) for one in value)
        if not kinds or not all(issubclass(one, BaseException) for one in value):
            rule = "must be a tuple of exception classes"
            raise ConfigError(name, rule, value, "Give such as (queue.Full,).")
    else:
        flag_of(name, value)


def _contradictions(rules: BufferRules) -> list[Finding]:
    found = []
    if rules.max_lag is not None and not rules.drops_stale:
        rule = "must be declared with max_lag: what grew too old in the buffer can neither come out nor stay"
        found.append(Finding("drops_stale", rule, False, "Set drops_stale=True, or leave max_lag out."))
    if rules.drops_stale and rules.max_lag is None:
        rule = "needs max_lag: nothing is stale without it"
        found.append(Finding("drops_stale", rule, True, "Set max_lag, or leave it out."))
    bounded = rules.capacity_items is not None or rules.capacity_tokens is not None
    if rules.overflow == "drop_oldest":
        if not bounded:
            found.append(Finding("overflow", "needs a capacity", "drop_oldest", "Set capacity_items."))
        for name, value in (("max_lag", rules.max_lag), ("group_size", rules.group_size)):
            if value != _DEFAULTS[name]:
                rule = "cannot be checked beside overflow 'drop_oldest': the oldest item is not known then"
                found.append(Finding(name, rule, value, "Check the two rules by two declarations."))
    if rules.token_overshoot and rules.capacity_tokens is None:
        found.append(
            Finding("token_overshoot", "needs capacity_tokens", True, "Set capacity_tokens, or leave it out.")
        )
    largest = rules.token_range[1]
    if rules.capacity_tokens is not None and not rules.token_overshoot and largest > rules.capacity_tokens:
        rule = f"must have items that fit into capacity_tokens, which is {rules.capacity_tokens}"
        found.append(Finding("item_tokens", rule, rules.item_tokens, "Lower the largest item."))
    if rules.capacity_items is not None and rules.capacity_items < rules.group_size:
        rule = f"must hold one group, {rules.group_size} items"
        found.append(Finding("capacity_items", rule, rules.capacity_items, "Raise it."))
    return found
