"""The steps of a history: what a producer, a trainer and a restart do to a buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

from ..checks import WholeNumber, checked
from .buffer_rules import BufferRules

MOST_STEPS = 10_000


@dataclass(frozen=True)
class Item:
    """What is put into a buffer.

    Attributes
    ----------
    number : int
        Its own, in the order of the puts that were tried.
    version : int
        The version that it was generated with.
    tokens : int
    group, member : int
        The group (of one prompt) that it belongs to, and its place there.
    """

    number: int
    version: int
    tokens: int = 1
    group: int = 0
    member: int = 0


class Put(NamedTuple):
    """Put an item of a version `age` behind the published one into the n-th of the groups begun."""

    age: int = 0
    tokens: int = 1
    group: int = 0


class Take(NamedTuple):
    """Take so many items, or complete groups."""

    size: int = 1


class Publish(NamedTuple):
    """Publish a version so many above the last."""

    versions: int = 1


class Save(NamedTuple):
    """Save the buffer."""


class Restore(NamedTuple):
    """Restore what was saved last into a new buffer, which from then on is asked beside the old one."""


Step = Put | Take | Publish | Save | Restore


def histories(rules: BufferRules | None = None, *, max_steps: int = 30) -> st.SearchStrategy[list[Step]]:
    """Return a strategy of pipeline histories: what happens to a buffer of such rules, step by step.

    Parameters
    ----------
    rules : BufferRules, optional
        Bound ages, tokens and sizes of takes; none: the defaults.
    max_steps : int
        Longest history.

    Returns
    -------
    SearchStrategy
        Of lists of Put, Take, Publish, Save and Restore. They shrink to few and simple steps.

    Raises
    ------
    ConfigError
        If the number of steps is none.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(histories(), lambda steps: any(isinstance(step, Take) for step in steps))
    [Take(size=1)]
    """
    rules = rules or BufferRules()
    max_steps = checked(WholeNumber, "max_steps", max_steps, low=1, high=MOST_STEPS)
    oldest = 2 if rules.max_lag is None else rules.max_lag + 1
    puts = st.builds(
        Put,
        st.integers(0, oldest),
        st.integers(*rules.token_range),
        st.integers(0, 2 if rules.group_size > 1 else 0),
    )
    takes = st.builds(Take, st.sampled_from(sorted(set(rules.take_sizes))))
    publications = st.builds(Publish, st.sampled_from([1, 1, 1, 2]))
    saved = [st.just(Save()), st.just(Restore())] if rules.saves else []
    # Puts are the most common, so that buffers fill.
    step = st.one_of(puts, takes, publications, puts, puts, *saved, takes)
    single = st.builds(_repeated, step, st.just(1))
    # Several of one kind at once, or large buffers stay empty and nothing grows old.
    most_puts = min(rules.puts_to_fill + 1, max_steps)
    runs = [st.builds(_repeated, puts, st.integers(1, most_puts))] if most_puts > 1 else []
    if rules.max_lag:
        most = min(rules.max_lag + 1, max_steps)
        runs.append(st.builds(_repeated, st.just(Publish()), st.integers(1, most)))
    parts = st.lists(st.one_of(single, single, single, *runs), min_size=1, max_size=max_steps)
    return parts.map(lambda lists: [step for part in lists for step in part][:max_steps])


def _repeated(step: Step, times: int) -> list[Step]:
    return [step] * times
