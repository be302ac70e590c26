"""Seeds of a sweep: a number, a list, or text from the command line; and their shortest plain form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ...kernels._arguments import listed
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked

MOST_SEEDS = 50_000_000


def read_seeds(seeds: Any, first: int = 0) -> tuple[int, ...]:
    """Write out the seeds of a sweep.

    Parameters
    ----------
    seeds : int, iterable of int, or mapping with ``first`` and ``count``
        A number n means `first` … `first` + n - 1.
    first : int
        The base configuration's seed.

    Raises
    ------
    ConfigError
        If there is none, one is repeated, or one does not fit 64 bits.

    Examples
    --------
    >>> read_seeds(3, 7), read_seeds([5, 2])
    ((7, 8, 9), (5, 2))
    """
    if isinstance(seeds, dict) and set(seeds) == {"first", "count"}:
        first, seeds = _whole(seeds["first"]), seeds["count"]
    if isinstance(seeds, bool | str | bytes | dict):
        raise ConfigError("seeds", "must be a number or a list of seeds", seeds, "Give seeds = 100.")
    if isinstance(seeds, Iterable):
        values = tuple(_whole(seed) for seed in listed("seeds", seeds, "Give seeds = 100, or a list."))
        if not values:
            raise ConfigError("seeds", "must have at least one seed", list(values), "Give seeds = 100.")
        if len(set(values)) < len(values):
            repeated = next(seed for seed, count in Counter(values).items() if count > 1)
            raise ConfigError("seeds", "must not repeat a seed", repeated, "Give each seed once.")
        return values
    count = _whole(seeds)
    if not 1 <= count <= MOST_SEEDS:
        raise ConfigError("seeds", f"must be from 1 to {MOST_SEEDS}", count, "Give seeds = 100.")
    if first + count > 2**64:
        raise ConfigError("seeds", "must stay below 2**64", first + count - 1, "Start lower.")
    return tuple(range(first, first + count))


def _whole(value: Any) -> int:
    way_out = "Give seeds = 100, or a list."
    seed = checked(WholeNumber, "seeds", value, rule="must be whole numbers", way_out=way_out)
    if not 0 <= seed < 2**64:
        raise ConfigError("seeds", "must be from 0 to 2**64 - 1", seed, "Choose another seed.")
    return seed


def seeds_to_plain(seeds: Sequence[int]) -> Any:
    """Return seeds in their shortest plain form: ``{first, count}`` for a run of numbers, else the list.

    Examples
    --------
    >>> seeds_to_plain((7, 8, 9)), seeds_to_plain((5, 2))
    ({'first': 7, 'count': 3}, [5, 2])
    """
    first = seeds[0]
    if all(seed == first + index for index, seed in enumerate(seeds)):
        return {"first": int(first), "count": len(seeds)}
    return [int(seed) for seed in seeds]


def seeds_from_text(text: str) -> Any:
    """Read ``100``, ``0,5,9`` or ``100..149`` (both ends belong).

    Raises
    ------
    ConfigError
        If it is none of these.

    Examples
    --------
    >>> seeds_from_text("100"), seeds_from_text("0,5,9"), seeds_from_text("3..5")
    (100, [0, 5, 9], [3, 4, 5])
    """
    try:
        if ".." in text:
            low, high = (int(part.replace("_", "")) for part in text.split(".."))
            return list(range(low, high + 1))
        if "," in text:
            return [int(part.replace("_", "")) for part in text.split(",") if part.strip()]
        return int(text.replace("_", ""))
    except ValueError:
        raise ConfigError(
            "seeds", "must be a number, a list or a range", text, "Write 100, 0,5,9 or 100..149."
        ) from None
