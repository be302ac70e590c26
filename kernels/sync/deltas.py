"""Publishing only what changed: the bytes of a sparse update, and which updates a bfloat16 copy can see.

A small optimizer step moves most weights by less than half the distance to their bfloat16 neighbour, so the
published copy does not change there. Published runs report that about 99 % of the elements stay the same from
one step to the next, and a payload of about 6 bytes (position and value) per changed element.

Deltas are relative to the last published version: a receiver that missed one needs the full weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, choice, plain, real_numbers, whole_numbers, within_float64

_ENCODINGS = ("index", "bitmap")
_BFLOAT16_DIGITS = 8  # binary digits of the significand, the implicit one included
_SMALLEST_EXPONENT = -125  # of the smallest normal number, in frexp's counting: 0.5 * 2**-125


@within_float64
def delta_payload_bytes(
    parameters: ArrayLike,
    changed_fraction: ArrayLike,
    *,
    value_bytes: ArrayLike = 2,
    index_bytes: ArrayLike = 4,
    encoding: str = "index",
) -> Floats:
    """Return the expected bytes of an update that carries the changed elements only.

    ``parameters * changed_fraction * (index_bytes + value_bytes)``, or with a bitmap
    ``parameters / 8 + parameters * changed_fraction * value_bytes``, which is smaller as soon as more than
    ``1 / (8 * index_bytes)`` changed (3 % for 4-byte positions). The result is an expectation and not
    rounded to whole bytes. It is not capped at the full weights either, so that a sweep shows where a delta
    stops to pay: at ``value_bytes / (value_bytes + index_bytes)`` changed, a third for 2 and 4 bytes.

    Parameters
    ----------
    parameters : array_like
        Number of elements, at least 0.
    changed_fraction : array_like
        Share of the elements that differ from the last published version, 0 to 1.
    value_bytes, index_bytes : array_like
        Bytes of a value and of its position, above 0 and at least 0. The position needs 4 bytes up to 2**32
        elements per tensor; compressed positions take fewer, also on average (fractions are fine).
    encoding : {"index", "bitmap"}
        One position per changed element, or one bit per element.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> delta_payload_bytes(600_000_000, 0.01)
    36000000.0
    >>> delta_payload_bytes(600_000_000, 0.05, encoding="bitmap")
    135000000.0
    """
    way_out = f"Choose one of {', '.join(_ENCODINGS)}."
    choice("encoding", encoding, _ENCODINGS, rule="must name a known encoding", way_out=way_out)
    count, fraction, value, index = broadcast(
        parameters=whole_numbers("parameters", parameters, minimum=0),
        changed_fraction=real_numbers("changed_fraction", changed_fraction, minimum=0, maximum=1),
        value_bytes=real_numbers("value_bytes", value_bytes, above=0),
        index_bytes=real_numbers("index_bytes", index_bytes, minimum=0),
    )
    if encoding == "bitmap":
        return plain(count / 8 + count * fraction * value)
    return plain(count * fraction * (index + value))


def _to_bfloat16(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to the nearest bfloat16, ties to even, in one step from float64 (subnormal numbers too)."""
    exponent = np.maximum(np.frexp(numbers)[1], _SMALLEST_EXPONENT)
    spacing_exponent = exponent - _BFLOAT16_DIGITS
    return np.ldexp(np.rint(np.ldexp(numbers, -spacing_exponent)), spacing_exponent)


@within_float64
def bf16_update_visible(weight: ArrayLike, update: ArrayLike) -> bool | NDArray[np.bool_]:
    """Tell whether an update of a master weight changes its published bfloat16 copy.

    ``round(weight + update) != round(weight)``, rounding to the nearest bfloat16, ties to even. The rule of
    thumb is ``|update| >= |weight| / 256``; half the distance between neighbours lies between
    ``|weight| / 512`` and ``|weight| / 256``, and a master weight near the middle of two neighbours flips
    with less. We take the exact rounding since it is as cheap.

    Parameters
    ----------
    weight, update : array_like
        The master weight before the step and its change; they broadcast.

    Returns
    -------
    bool or ndarray of bool

    Raises
    ------
    ConfigError
        If an argument is not a finite number or shapes do not fit together.

    Examples
    --------
    >>> bf16_update_visible(1.0, [1 / 512, 1 / 128])
    array([False,  True])
    """
    before, change = broadcast(weight=real_numbers("weight", weight), update=real_numbers("update", update))
    return plain(_to_bfloat16(before + change) != _to_bfloat16(before))
