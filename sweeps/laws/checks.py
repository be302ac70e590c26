"""Check what laws are made of: single numbers, and rows of lengths or seconds with the place of a bad one.

Every check raises ConfigError and names the row, so that one bad line in a file of a million is found at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...kernels._arguments import foreign_array, is_number, one_number
from ...kernels._arguments import one_whole as whole_of
from ...kernels.draws.length_table import LARGEST_TABLE
from ...kernels.errors import ConfigError

WHOLE_RULE = "must be a whole number of at least 1"
SECONDS_RULE = "must be a finite number of at least 0"


def one_real(name: str, value: Any, **bounds: Any) -> float:
    """Check one real number and give it as float."""
    return one_number(name, value, **bounds)


def one_whole(name: str, value: Any, minimum: int = 1, maximum: int = LARGEST_TABLE) -> int:
    """Check one whole number and give it as int."""
    return whole_of(name, value, minimum=minimum, maximum=maximum)


def token_range(minimum: Any, maximum: Any) -> tuple[int, int]:
    """Check the ends of a law in tokens."""
    low = one_whole("minimum", minimum)
    high = one_whole("maximum", maximum)
    if high < low:
        raise ConfigError("maximum", f"must be at least the minimum, {low}", high, "Swap the two.")
    return low, high


def raw_numbers(values: Any, place: Callable[[int], str], field: str, rule: str, way_out: str) -> np.ndarray:
    """Turn a flat sequence into float64, refusing bools, strings and what is no number, with the place.

    Parameters
    ----------
    values : sequence or ndarray
        What the user gave.
    place : callable
        Names the place of row i (from 0), for the message.
    field : str
        What an error about the whole sequence is about.
    rule, way_out : str
        Parts of the message about one value.
    """
    if isinstance(values, np.ndarray) or hasattr(values, "to_numpy"):
        array = foreign_array(field, values)
        if array.dtype.kind in "iuf" and array.ndim == 1:
            return array.astype(np.float64)
        values = array.tolist() if array.ndim else None
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ConfigError(field, "must be a row of numbers", values, "Give a list or an array.")
    for i, value in enumerate(values):
        if not is_number(value):
            raise ConfigError(place(i), rule, value, way_out)
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # a Python integer beyond the largest float
        i = next(i for i, value in enumerate(values) if abs(value) > 2**1000)
        raise ConfigError(place(i), rule, values[i], way_out) from None


def _refuse_first(bad: np.ndarray, numbers: np.ndarray, place: Callable[[int], str], *texts: str) -> None:
    """Raise for the first bad row, if any."""
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        value = float(numbers[i])
        shown = int(value) if value.is_integer() else value
        raise ConfigError(place(i), texts[0], shown, texts[1])


def whole_lengths(numbers: np.ndarray, place: Callable[[int], str], way_out: str) -> np.ndarray:
    """Check that all numbers are lengths (whole, 1 … 2**24) and give them as int64."""
    with np.errstate(invalid="ignore"):
        bad = ~(np.isfinite(numbers) & (numbers >= 1.0) & (np.floor(numbers) == numbers))
    _refuse_first(bad, numbers, place, WHOLE_RULE, way_out)
    _refuse_first(numbers > LARGEST_TABLE, numbers, place, f"must be at most {LARGEST_TABLE}", way_out)
    return numbers.astype(np.int64)


def valid_seconds(numbers: np.ndarray, place: Callable[[int], str], way_out: str) -> np.ndarray:
    """Check that all numbers are durations in seconds: finite and not negative."""
    _refuse_first(~(np.isfinite(numbers) & (numbers >= 0.0)), numbers, place, SECONDS_RULE, way_out)
    return numbers + 0.0  # no negative zero


def lengths_from(field: str, values: Any) -> np.ndarray:
    """Check lengths that were given as a sequence; ``field`` names the argument."""
    way_out = "Positions count from 0."
    numbers = raw_numbers(values, lambda i: f"{field}, position {i}", field, WHOLE_RULE, way_out)
    if numbers.size == 0:
        raise ConfigError(field, "must have at least one value", 0, "Give the lengths that were seen.")
    return whole_lengths(numbers, lambda i: f"{field}, position {i}", way_out)


def seconds_from(field: str, values: Any) -> np.ndarray:
    """Check durations that were given as a sequence; ``field`` names the argument."""
    way_out = "Positions count from 0."
    numbers = raw_numbers(values, lambda i: f"{field}, position {i}", field, SECONDS_RULE, way_out)
    if numbers.size == 0:
        raise ConfigError(field, "must have at least one value", 0, "Give the seconds that were seen.")
    return valid_seconds(numbers, lambda i: f"{field}, position {i}", way_out)
