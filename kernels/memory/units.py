"""Bytes for people: read ``80GB`` and ``80GiB`` apart, print ``16.00 GiB``.

GB is 10**9 bytes and GiB is 2**30 (IEC 80000-13). Tools that print one and compute the other are a steady
source of wrong fits, so every text made here carries its unit, and every text read here must carry one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import overload

import numpy as np
from numpy.typing import NDArray

from .._arguments import Numbers, flag
from ..errors import ConfigError
from ._exact import read

BYTES_PER_GIB = 2**30
BYTES_PER_GB = 10**9

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB")
_UNIT_BYTES = {
    **{unit: 1024**power for power, unit in enumerate(_BINARY_UNITS)},
    **{unit: 1000**power for power, unit in enumerate(_DECIMAL_UNITS)},
    "KB": 1000,
}
_SIZE = re.compile(r"\s*(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[A-Za-z]*)\s*")


def _hundredths(number: Fraction | int, unit_bytes: int) -> int:
    """Round to hundredths of a unit, a half up, in whole numbers: exact at any size."""
    return int((200 * Fraction(number) + unit_bytes) // (2 * unit_bytes))


def _one_text(number: Fraction | int, units: tuple[str, ...], step: int) -> str:
    if number < 0:
        return f"-{_one_text(-number, units, step)}"
    last = len(units) - 1
    power = 0
    # The unit is chosen after rounding: 1048575 is 1.00 MiB and never 1024.00 KiB.
    while power < last and _hundredths(number, step**power) >= 100 * step:
        power += 1
    if power == 0 and number == int(number):
        return f"{int(number)} B"
    whole, rest = divmod(_hundredths(number, step**power), 100)
    return f"{whole}.{rest:02d} {units[power]}"


@overload
def human_bytes(number: float | Fraction | Decimal | np.integer, *, decimal: bool = False) -> str: ...
@overload
def human_bytes(number: Numbers, *, decimal: bool = False) -> str | NDArray[np.str_]: ...
def human_bytes(number: Numbers, *, decimal: bool = False) -> str | NDArray[np.str_]:
    """Write a number of bytes with the largest unit that leaves at least 1 before the point.

    Two digits follow the point, a half is rounded away from zero, and the unit is chosen after rounding, so
    1048575 bytes are ``1.00 MiB`` and not ``1024.00 KiB``. Whole bytes below one KiB carry no point. A
    negative number (room that is missing) keeps its sign; fractions of a byte are shown.

    Parameters
    ----------
    number : number or array_like
        Bytes.
    decimal : bool
        Units of 1000 (kB, MB, GB) in place of the binary ones of 1024 (KiB, MiB, GiB; IEC 80000-13).

    Returns
    -------
    str or numpy.ndarray of str
        The text, or an array of texts for an array.

    Raises
    ------
    ConfigError
        NaN, infinity, a truth value or no number.

    Examples
    --------
    >>> human_bytes(16 * BYTES_PER_GIB), human_bytes(84_000_000_000, decimal=True), human_bytes(1023)
    ('16.00 GiB', '84.00 GB', '1023 B')
    """
    units, step = (_DECIMAL_UNITS, 1000) if flag("decimal", decimal) else (_BINARY_UNITS, 1024)
    values = read("number", number)
    if not isinstance(values, np.ndarray):
        return _one_text(values, units, step)
    texts = [_one_text(value, units, step) for value in values.ravel().tolist()]
    return np.array(texts, dtype=str).reshape(values.shape)


def parse_bytes(text: str, *, field: str = "size") -> int:
    """Read a size with its unit: ``80GB`` is 80 * 10**9 bytes, ``80GiB`` is 80 * 2**30.

    Parameters
    ----------
    text : str
        A number and one of B, kB (or KB), MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB. Underscores
        between digits are ignored; a comma is refused, for it separates decimals in some places.
    field : str
        The name for the message.

    Returns
    -------
    int
        Bytes, a fraction of a byte rounded up.

    Raises
    ------
    ConfigError
        No unit, or one that could mean two things: ``80G`` is not guessed, and ``Gb`` is bits.

    Examples
    --------
    >>> parse_bytes("80GB"), parse_bytes("80 GiB")
    (80000000000, 85899345920)
    """
    if not isinstance(field, str):
        raise ConfigError("field", "must be text", field, "Name what is read.")
    found = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found["unit"] not in _UNIT_BYTES:
        raise ConfigError(
            field,
            "must be a number with a unit that has one meaning",
            text,
            "Write 80GB for 80 * 10**9 bytes or 80GiB for 80 * 2**30; G and Gb are not guessed.",
        )
    size = Fraction(found["number"].replace("_", "")) * _UNIT_BYTES[found["unit"]]
    return -(-size.numerator // size.denominator)
