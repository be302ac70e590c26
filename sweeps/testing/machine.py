"""A state machine that drives a buffer step by step and holds every answer against its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from ...kernels.errors import ConfigError
from .broken_rules import broken
from .buffer_model import BufferModel, Unit
from .buffer_rules import BufferRules
from .steps import Item, Publish, Put, Restore, Save, Step, Take
from .take_checks import TakeChecks, described, level, named

_METHODS = ("put", "take", "publish", "save", "restore")


class Buffer(Protocol):
    """What a buffer must be able to do; ``save`` and ``restore`` only where the rules say that it saves."""

    def put(self, item: Any, /) -> Any:
        """Take an item in; False or a declared exception: refused."""

    def take(self, n: int, /) -> Any:
        """Return up to n items, or groups; None, nothing or a declared exception: not ready."""

    def publish(self, version: int, /) -> Any:
        """Hear that a version is published."""


class BufferMachine:
    """A buffer and what it must hold, step by step.

    Parameters
    ----------
    make_buffer : callable
        Makes a new and empty buffer, with the methods ``put(item)``, ``take(n)``, ``publish(version)``,
        ``save()`` and ``restore(state)``. Version 0 is published at first.
    rules : BufferRules
    item_of : callable, optional
        Makes what the buffer is given from an :class:`Item`; none: the item itself.
    number_of : callable, optional
        Tells the number of what the buffer gives back; none: its ``number``.
    carry : callable, optional
        What happens to a saved state on its way, such as a round trip through JSON.

    Raises
    ------
    ConfigError
        If the buffer lacks a method.

    Examples
    --------
    >>> from collections import deque
    >>> class Fifo:
    ...     def __init__(self): self.items = deque()
    ...     def put(self, item): self.items.append(item)
    ...     def take(self, n): return [self.items.pop() for _ in range(n) if self.items]
    ...     def publish(self, version): pass
    >>> machine = BufferMachine(Fifo, BufferRules(takes="rest", saves=False))
    >>> machine.run([Put(), Put(), Take(1)])
    Traceback (most recent call last):
        ...
    lagsweep.sweeps.testing.broken_rules.BufferRuleBroken: rule broken: order
      expected: item 0 next
      came:     item 1
    history, 3 steps:
      1  put(item 0: version 0)  -> accepted
      2  put(item 1: version 0)  -> accepted
      3  take(1)  -> [item 1]
    declared: BufferRules(takes='rest', saves=False)
    """

    def __init__(
        self,
        make_buffer: Callable[[], Buffer],
        rules: BufferRules,
        *,
        item_of: Callable[[Item], Any] | None = None,
        number_of: Callable[[Any], int] | None = None,
        carry: Callable[[Any], Any] | None = None,
    ) -> None:
        self.rules = rules
        self.history: list[str] = []
        self.model = BufferModel(rules)
        self.met: set[str] = set()  # bounds at which the buffer had to say no, or just not yet
        self._make, self._item_of, self._number_of, self._carry = make_buffer, item_of, number_of, carry
        self._buffer: Any = make_buffer()
        self._restored: Any = None  # asked beside the other one, and must answer the same
        self._saved: list[Any] = []
        self._calls: list[tuple[str, Any, Any]] = []  # since the save: name, argument, answer
        self._tried = 0
        self._open: list[int] = []  # groups begun and not complete
        self._groups = 0
        self._checks = TakeChecks(self.model, self.history, self._empty)
        _check_methods(self._buffer, rules)

    def run(self, steps: Iterable[Step]) -> None:
        """Do every step, and then empty the buffer.

        Raises
        ------
        BufferRuleBroken
            At the first answer that breaks a rule.
        """
        for step in steps:
            self.step(step)
        self.drain()

    def step(self, step: Step) -> None:
        """Do one step.

        Raises
        ------
        BufferRuleBroken
            If the answer breaks a rule.
        """
        match step:
            case Put():
                self._put(step)
            case Take(size):
                self._take(size)
            case Publish(versions):
                self.model.version += versions
                self.history.append(f"publish({self.model.version})")
                self._ask("publish", self.model.version)
            case Save() if self.rules.saves:
                self._save()
            case Restore() if self.rules.saves and self._saved:
                self._restore()

    def drain(self) -> None:
        """Take all that is left: what was put in and not dropped by a rule must come out.

        Raises
        ------
        BufferRuleBroken
            If something is missing.
        """
        count = min(self.rules.take_sizes)
        empty = 0
        while empty <= len(self.model.levels()[1]):
            # Where a take may give fewer than there are, an empty one does not say that all is out.
            came = self._take(count)
            if not came and self.rules.takes != "any":
                break
            empty = 0 if came else empty + 1
        if self.rules.takes != "whole" or count == 1:
            self._checks.nothing_is_lost(self.model.fresh())

    # --- the steps ---------------------------------------------------------------------------------------

    def _put(self, step: Put) -> None:
        item = self._next_item(step)
        self.met.update(self.model.capacities_met(item))
        answer = self._ask("put", item if self._item_of is None else self._item_of(item), self.rules.refusals)
        accepted = answer is not _REFUSED and answer is not False
        self.history.append(f"put({described(item, self.model)})  -> {'accepted' if accepted else 'refused'}")
        if accepted and not self.model.may_accept(item):
            self._checks.fail(
                "queue bound", f"item {item.number} is refused: {level(self.model)}", "accepted"
            )
        if not accepted and not self.model.may_refuse(item):
            self._checks.fail(
                "queue bound", f"item {item.number} is accepted: {level(self.model)}", "refused"
            )
        if accepted:
            self.model.put(item)
            self._member_joined(item)

    def _next_item(self, step: Put) -> Item:
        version = max(0, self.model.version - step.age)
        number, self._tried = self._tried, self._tried + 1
        if self.rules.group_size == 1:
            return Item(number, version, step.tokens, number, 0)
        # A group with a stale member is no longer worked on.
        alive = [one for one in self._open if not self.model.is_stale(self.model.partial[one])]
        group = alive[step.group] if step.group < len(alive) else self._groups
        partial = self.model.partial.get(group)
        return Item(number, version, step.tokens, group, len(partial.items) if partial else 0)

    def _member_joined(self, item: Item) -> None:
        if item.member == 0:
            self._groups = max(self._groups, item.group + 1)
            self._open.append(item.group)
        if item.group not in self.model.partial and item.group in self._open:
            self._open.remove(item.group)

    def _take(self, count: int) -> list[Unit]:
        answer = self._ask("take", count, self.rules.not_ready)
        numbers = self._numbers(answer)
        self.history.append(f"take({count})  -> {self._plain('take', answer)}")
        self.met.update(self.model.lags_met([]))
        came = self._checks.check(count, numbers)
        self.met.update(self.model.lags_met(came))
        return came

    def _numbers(self, answer: Any) -> list[int]:
        """Return the numbers of what came out, groups one after another."""
        came = [] if answer is _REFUSED or answer is None else answer
        if self.rules.group_size > 1:
            parts = [one if isinstance(one, list | tuple) else [one] for one in came]
            came = [one for part in parts for one in part]
        return [self._number(one) for one in came]

    def _empty(self) -> set[int]:
        """Take all that is left, for the last word of a failed check."""
        found: set[int] = set()
        for _ in range(len(self.model.items) + 1):
            numbers = self._numbers(self._call(self._buffer, "take", 1))
            if not numbers:
                break
            found.update(numbers)
        return found

    def _save(self) -> None:
        source = self._buffer if self._restored is None else self._restored
        state = self._guarded("save", source.save)
        self._saved = [state if self._carry is None else self._carry(state)]
        self._calls = []
        self.history.append("save()")

    def _restore(self) -> None:
        self._buffer = self._buffer if self._restored is None else self._restored
        self._restored = self._make()
        self.history.append("restore(what was saved)")
        self._guarded("restore", lambda: self._restored.restore(self._saved[0]))
        for name, argument, expected in self._calls:
            # What happened since the save happens again, with the same answers.
            self._same(name, argument, expected, self._call(self._restored, name, argument))

    # --- what the buffer is asked ------------------------------------------------------------------------

    def _ask(self, name: str, argument: Any, refusals: tuple[type[BaseException], ...] = ()) -> Any:
        answer = self._call(self._buffer, name, argument, refusals)
        self._calls.append((name, argument, answer))
        if self._restored is not None:
            self._same(name, argument, answer, self._call(self._restored, name, argument, refusals))
        return answer

    def _call(
        self, buffer: Any, name: str, argument: Any, refusals: tuple[type[BaseException], ...] | None = None
    ) -> Any:
        if refusals is None:
            refusals = {"put": self.rules.refusals, "take": self.rules.not_ready}.get(name, ())
        try:
            answer = getattr(buffer, name)(argument)
        except refusals:
            return _REFUSED
        except Exception as error:
            self.history.append(f"{name}({argument})  -> {type(error).__name__}")
            self._surprised(name, error)
        return list(answer) if name == "take" and answer is not None else answer

    def _guarded(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self.history.append(f"{name}(...)  -> {type(error).__name__}")
            self._surprised(name, error)

    def _surprised(self, name: str, error: Exception) -> NoReturn:
        said = f"{type(error).__name__}: {error}"[:200]
        declared = {"put": "refusals", "take": "not_ready"}.get(name)
        allowed = f"answers, or raises one of the {declared}" if declared else "raises nothing"
        rule = "no other exception"
        raise broken(rule, f"{name} {allowed}", said, self.history, str(self.rules)) from error

    def _same(self, name: str, argument: Any, expected: Any, came: Any) -> None:
        if name == "publish" or self._plain(name, expected) == self._plain(name, came):
            return
        shown = argument if name == "take" else f"item {self._number(argument)}"
        before, after = (self._plain(name, one) for one in (expected, came))
        self._checks.fail(
            "exact resume", f"the restored buffer answers {name}({shown}) as the other does: {before}", after
        )

    def _plain(self, name: str, answer: Any) -> str:
        if name == "put":
            return "refused" if answer is _REFUSED or answer is False else "accepted"
        numbers = self._numbers(answer)
        return f"[{named(numbers)}]" if numbers else "nothing"

    # --- words -------------------------------------------------------------------------------------------

    def _number(self, item: Any) -> int:
        try:
            return int(item.number if self._number_of is None else self._number_of(item))
        except Exception as error:
            way_out = "Give back what was put in, or pass number_of."
            raise ConfigError("number_of", "must tell the number of an item", item, way_out) from error


_REFUSED = object()


def _check_methods(buffer: Any, rules: BufferRules) -> None:
    for name in _METHODS if rules.saves else _METHODS[:3]:
        if not callable(getattr(buffer, name, None)):
            way_out = (
                "Write it, or declare saves=False."
                if name in _METHODS[3:]
                else "Write a method of this name."
            )
            raise ConfigError(f"buffer.{name}", "must be a method", type(buffer).__name__, way_out)
