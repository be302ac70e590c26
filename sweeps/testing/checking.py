"""A buffer checked against its rules over many histories, the failing one made as short as it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked
from .bound_histories import check_bounds
from .broken_rules import BufferRuleBroken
from .buffer_rules import BufferRules
from .machine import Buffer, BufferMachine
from .steps import MOST_STEPS, Item, Step, histories


def check_buffer(
    make_buffer: Callable[[], Buffer],
    rules: BufferRules,
    *,
    max_examples: int | None = None,
    max_steps: int | None = None,
    item_of: Callable[[Item], Any] | None = None,
    number_of: Callable[[Any], int] | None = None,
    carry: Callable[[Any], Any] | None = None,
) -> None:
    """Drive a buffer of your own through many histories, and hold every answer against its rules.

    Queue bound, lag bound, conservation (nothing lost, nothing twice, nothing made up), order, whole groups
    and exact resume are checked. First come histories that meet every declared bound: the buffer is filled to
    each capacity and one further, items grow as old as they may and one older. The others are Hypothesis's:
    those that failed are kept and come first in the next run, and settings of your profile hold.

    Parameters
    ----------
    make_buffer : callable
        Makes a new and empty buffer, with the methods ``put(item)``, ``take(n)``, ``publish(version)``,
        ``save()`` and ``restore(state)``. Version 0 is published at first.
    rules : BufferRules
        What the buffer promises.
    max_examples : int, optional
        Histories to draw; none: what your profile says, 100 by default.
    max_steps : int, optional
        Longest history that is drawn, and where above 1000 most steps to a bound; none: 30, or three times as
        many as fill the buffer or make an item too old, up to 120.
    item_of : callable, optional
        Makes what the buffer is given from an :class:`Item`; none: the item itself.
    number_of : callable, optional
        Tells the number of what the buffer gives back; none: its ``number``.
    carry : callable, optional
        What happens to a saved state on its way, such as a round trip through JSON.

    Raises
    ------
    BufferRuleBroken
        If a rule is broken: its text names the rule, what was expected and what came, and has the shortest
        history that was found.
    ConfigError
        If an argument makes no sense, the buffer lacks a method, or a declared bound is too large to be met.

    Examples
    --------
    >>> from collections import deque
    >>> class Fifo:
    ...     def __init__(self): self.items = deque()
    ...     def put(self, item): self.items.append(item)
    ...     def take(self, n): return [self.items.popleft() for _ in range(n) if self.items]
    ...     def publish(self, version): pass
    ...     def save(self): return list(self.items)
    ...     def restore(self, state): self.items = deque(state)
    >>> check_buffer(Fifo, BufferRules(takes="rest"))
    >>> try:
    ...     check_buffer(Fifo, BufferRules(takes="rest", capacity_items=2))
    ... except BufferRuleBroken as error:
    ...     print(error)
    rule broken: queue bound
      expected: item 2 is refused: it holds 2 of 2 items
      came:     accepted
    history, 3 steps:
      1  put(item 0: version 0)  -> accepted
      2  put(item 1: version 0)  -> accepted
      3  put(item 2: version 0)  -> accepted
    declared: BufferRules(capacity_items=2, takes='rest')
    """
    __tracebackhide__ = True  # pytest then shows the line of the user's test, and the message
    if not callable(make_buffer):
        raise ConfigError("make_buffer", "must be callable", make_buffer, "Give a class, or a function.")
    instance("rules", rules, BufferRules, "Give BufferRules(...).")
    parts = {"item_of": item_of, "number_of": number_of, "carry": carry}
    for name, value in parts.items():
        if value is not None and not callable(value):
            raise ConfigError(name, "must be callable", value, "Give a function, or leave it out.")
    count = settings().max_examples if max_examples is None else max_examples
    count = checked(WholeNumber, "max_examples", count, low=1, high=1_000_000)

    if max_steps is None:
        max_steps = min(max(30, 3 * max(rules.puts_to_fill, (rules.max_lag or 0) + 1)), 120)
    max_steps = checked(WholeNumber, "max_steps", max_steps, low=1, high=MOST_STEPS)

    def make_machine() -> BufferMachine:
        return BufferMachine(make_buffer, rules, item_of=item_of, number_of=number_of, carry=carry)

    @settings(
        max_examples=count,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given],
    )
    @given(histories(rules, max_steps=max_steps))
    def check(steps: list[Step]) -> None:
        make_machine().run(steps)

    try:
        check_bounds(make_machine, rules, max_steps)
        check()
    except BufferRuleBroken as error:
        # Without the frames of the search; the buffer's own exception stays the cause.
        raise error.again() from error.__cause__
