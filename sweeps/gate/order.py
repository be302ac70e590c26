"""In which order a trainer takes the groups of its queue."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from .group import QUEUED, Group


def oldest_are_ready(live: dict[int, Group], batch: int) -> bool:
    """Tell whether the oldest live groups, as many as a batch, are all queued."""
    oldest = list(islice(live.values(), batch))
    return len(oldest) == batch and all(group.status == QUEUED for group in oldest)


def in_order(
    rules: dict[str, Any], live: dict[int, Group], queue: dict[int, Group], batches: int
) -> Iterable[Group]:
    """Return the queued groups as the next batch takes them.

    Parameters
    ----------
    rules : dict
        Of the gate: its ``queue_order``, and the seed of one at random.
    live, queue : dict of int to Group
        In the order of admission, and in the order of arrival.
    batches : int
        Taken so far.
    """
    groups = list(queue.values())
    match rules["queue_order"]:
        case "started":
            return (group for group in live.values() if group.status == QUEUED)
        case "oldest_version":
            return sorted(groups, key=lambda group: group.version)
        case "freshest":
            return sorted(groups, key=lambda group: -group.version)
        case "random":
            return _shuffled(groups, int(rules["seed"]), batches + 1)
    return groups


def _shuffled(groups: list[Group], seed: int, batch: int) -> Iterable[Group]:
    """Draw without replacement (Fisher-Yates), from the Philox blocks of a batch: four draws share one."""
    words: list[int] = []
    for place in range(len(groups)):
        if place % 4 == 0:
            # NumPy counts up before it draws: this gives the block of (batch, place // 4).
            counter = np.array([batch - 1, place // 4, 0, 0], np.uint64)
            philox = np.random.Philox(key=np.array([seed, 1], np.uint64), counter=counter)
            words = [int(word) for word in philox.random_raw(4)]
        uniform = (words[place % 4] >> 11) * 2.0**-53
        chosen = place + int(uniform * (len(groups) - place))
        groups[place], groups[chosen] = groups[chosen], groups[place]
        yield groups[place]
