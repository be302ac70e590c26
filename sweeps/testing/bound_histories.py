"""Histories made for the declared bounds: each is met from below and from above, whatever a search draws.

Drawn histories seldom fill a buffer or let an item grow to exactly the largest lag, so the check does these
first, and it is an error where a declared bound was met by none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...kernels.errors import ConfigError, Finding
from .broken_rules import BufferRuleBroken
from .buffer_rules import BufferRules
from .machine import BufferMachine
from .steps import Publish, Put, Restore, Save, Step, Take

MOST_BOUND_STEPS = 1000  # to meet a bound, unless the check's longest history is longer
_MOST_TRIED = 6_000  # steps done to make a failing history shorter


def check_bounds(make_machine: Callable[[], BufferMachine], rules: BufferRules, max_steps: int = 30) -> None:
    """Do the histories that meet every declared bound.

    Parameters
    ----------
    make_machine : callable
        Makes a machine with a new buffer.
    rules : BufferRules
    max_steps : int
        Longest history of the check; a bound may take 1000 steps, or as many as these.

    Raises
    ------
    BufferRuleBroken
        If a rule is broken, with the history made shorter.
    ConfigError
        If a bound was not met: it is too large, or the other rules keep the buffer from it.

    Examples
    --------
    >>> from collections import deque
    >>> class Fifo:
    ...     def __init__(self): self.items = deque()
    ...     def put(self, item): return len(self.items) < 10**6 and self.items.append(item)
    ...     def take(self, n): return [self.items.popleft() for _ in range(n) if self.items]
    ...     def publish(self, version): pass
    >>> rules = BufferRules(capacity_items=10**6, takes="rest", saves=False)
    >>> check_bounds(lambda: BufferMachine(Fifo, rules), rules)
    Traceback (most recent call last):
        ...
    lagsweep.kernels.errors.ConfigError: capacity_items: must be met in a check, and no history of up to ...
    """
    most = max(max_steps, MOST_BOUND_STEPS)
    met: set[str] = set()
    for steps in sorted(bound_histories(rules, most), key=len):
        machine = make_machine()
        try:
            machine.run(steps)
        except BufferRuleBroken as error:
            raise _shortened(make_machine, steps, error) from None
        met |= machine.met
    sides = {
        "capacity_items": {"capacity_items"},
        "capacity_tokens": {"capacity_tokens"},
        "max_lag": {"max_lag", "max_lag + 1"},
    }
    rule = f"must be met in a check, and no history of up to {most} steps can"
    way_out = (
        "Build the buffer with a smaller bound for the test and declare that, raise max_steps, give "
        "item_tokens and take_sizes that fill and empty it, or leave out what another bound hides."
    )
    found = [
        Finding(name, rule, getattr(rules, name), way_out)
        for name, needed in sides.items()
        if getattr(rules, name) is not None and not needed <= met
    ]
    if found:
        raise ConfigError(*found)


def bound_histories(rules: BufferRules, most: int = MOST_BOUND_STEPS) -> Iterator[list[Step]]:
    """Yield histories that meet the bounds of some rules, as far as so many steps meet them.

    Parameters
    ----------
    rules : BufferRules
    most : int
        Largest number of steps to a bound; what follows there is a few steps more.

    Examples
    --------
    >>> next(bound_histories(BufferRules(capacity_items=2)))
    [Put(age=0, tokens=1, group=0), Put(age=0, tokens=1, group=0), Put(age=0, tokens=1, group=0), ...]
    """
    for fill in _fills(rules, most):
        yield from _around_full(rules, fill, most)
    if rules.max_lag is not None and rules.max_lag + 2 <= most:
        yield from _around_lag(rules, rules.max_lag)


def _fills(rules: BufferRules, most: int) -> Iterator[list[Put]]:
    """Yield puts that fill the buffer to each of its capacities, and of tokens to one less and one more."""
    low, high = rules.token_range
    count = rules.capacity_items
    if count is not None and count + 2 <= most:
        yield [Put(tokens=low)] * count
        if rules.group_size > 1:
            yield [Put(tokens=low, group=2)] * count  # some groups stay without their other members
    total = rules.capacity_tokens
    if total is None or total // high + 4 > most:
        return
    yield [Put(tokens=high)] * (total // high)
    for exact in (total - 1, total, total + 1):
        sizes = _parts(exact, low, high)
        if sizes:
            yield [Put(tokens=size) for size in sizes]


def _parts(total: int, low: int, high: int) -> list[int]:
    """Return the fewest sizes of a total, the largest first; none where none have that sum."""
    count = -(-total // high)
    if count * low > total:
        return []
    sizes, left = [], total
    for after in range(count - 1, -1, -1):
        sizes.append(min(high, left - after * low))
        left -= sizes[-1]
    return sizes


def _around_full(rules: BufferRules, fill: list[Put], most: int) -> Iterator[list[Step]]:
    low, high = rules.token_range
    more: list[Step] = [Put(tokens=low), Put(tokens=high)]
    yield [*fill, *more]
    again: list[Step] = []
    for size in sorted(set(rules.take_sizes)) * 2:
        # As much room as a take gave back, and one put more.
        again += [Take(size), *[Put(tokens=fill[0].tokens)] * min(size * rules.group_size + 1, len(fill) + 1)]
    yield [*fill, *more, *again]
    if rules.saves:
        half = len(fill) // 2
        yield [*fill, Save(), Restore(), *more, *again]
        yield [*fill[:half], Save(), Restore(), *fill[half:], *more]
        yield [*fill[:half], Save(), *fill[half:], *more, Restore(), *again]
    if rules.max_lag is not None and len(fill) + rules.max_lag + 2 <= most:
        # What is exactly as old as it may be still has its place.
        yield [*fill, *[Publish()] * rules.max_lag, *more]


def _around_lag(rules: BufferRules, lag: int) -> Iterator[list[Step]]:
    low, size = rules.token_range[0], rules.group_size
    count = min(rules.take_sizes) * size  # as many as a take needs
    puts: list[Step] = [Put(tokens=low)] * count
    oldest: list[Step] = [Publish()] * lag
    yield [*puts, *oldest]
    yield [*puts, *oldest, Publish()]
    for age in (lag, lag + 1):  # as old already when it comes
        yield [*oldest, Publish(), *[Put(age=age, tokens=low)] * count]
    # One of every age, the oldest of them too old.
    ages: list[Step] = []
    for _ in range(lag + 2):
        ages += [*[Put(tokens=low)] * size, Publish()]
    yield [*ages, *[Take(each) for each in sorted(set(rules.take_sizes))], *puts]
    if size > 1:  # the oldest member counts
        yield [*puts[:1], *oldest, *puts[1:]]
        yield [*puts[:1], Publish(), *puts[1:], *oldest]
    if rules.saves:
        yield [*puts, *oldest, Save(), Restore()]
        yield [*puts, *oldest, Save(), Restore(), Publish()]
        yield [*puts, Save(), *oldest, Restore(), Publish()]


def _shortened(
    make_machine: Callable[[], BufferMachine], steps: list[Step], error: BufferRuleBroken
) -> BufferRuleBroken:
    """Leave out steps, many and then few at once, as long as the same rule is found broken."""
    tried, piece = 0, len(steps) // 2
    while piece >= 1 and tried < _MOST_TRIED:
        first, before = 0, len(steps)
        while first < len(steps) and tried < _MOST_TRIED:
            fewer = steps[:first] + steps[first + piece :]
            tried += len(fewer)
            found = _broken_by(make_machine(), fewer)
            # No longer to read either: an earlier stop may hide in fewer steps.
            if found is not None and found.rule == error.rule and len(found.history) <= len(error.history):
                steps, error = fewer, found
            else:
                first += piece
        if piece > 1 or len(steps) == before:
            piece //= 2
    return error


def _broken_by(machine: BufferMachine, steps: list[Step]) -> BufferRuleBroken | None:
    try:
        machine.run(steps)
    except BufferRuleBroken as error:
        return error
    return None
