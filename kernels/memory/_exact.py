"""Exact non-negative amounts: one number or an array, never a silent overflow or a rounded product.

Byte sums go wrong in three ways: a product leaves int64 and wraps, a large whole number passes through
float64 and loses its last digits, half a byte per element (4-bit weights) is rounded at every step. An
:class:`Exact` holds whole numerators over one whole denominator and an upper bound of the numerators.
While the bound fits int64 the arithmetic is NumPy's; beyond it the same arithmetic runs on Python integers.
:meth:`Exact.result` rounds up, once, and gives a Python integer for scalars (of any size) or an int64 array,
refusing an array that does not fit.

Negative amounts do not exist here; a difference that may be negative is taken from two results.
"""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from .._arguments import LARGEST_RESULT, check_size, foreign_array, is_whole
from ..errors import ConfigError

INT64_MAX = 2**63 - 1
# A float is read as the simplest fraction that it can stand for, so that 0.1 means a tenth and not the binary
# number above it: rounding up would turn that difference into a whole byte.
_SIMPLEST_DENOMINATOR = 10**9
_MOST_DIGITS = 1000
_WRITTEN = f"must have at most {_MOST_DIGITS} digits"


def fraction_of(number: float) -> Fraction:
    """Read a finite float as the simplest fraction that rounds to it.

    Parameters
    ----------
    number : float
        A finite float.

    Returns
    -------
    Fraction
        One with a denominator up to 10**9 if that gives this very float, else the float's exact value.

    Examples
    --------
    >>> fraction_of(0.1), fraction_of(2.03125)
    (Fraction(1, 10), Fraction(65, 32))
    """
    exact = Fraction(number)
    simple = exact.limit_denominator(_SIMPLEST_DENOMINATOR)
    return simple if float(simple) == number else exact


def _scalar(field: str, value: Any) -> int | Fraction:
    """Turn one number of any kind into an exact one; bool, text, NaN and infinity are refused."""
    if isinstance(value, bool | np.bool_):
        raise ConfigError(field, "must be a number, not a truth value", value, "Give a number.")
    if is_whole(value):
        return _written(field, value, int(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ConfigError(field, "must be finite", value, "Give a finite number.")
        if value and abs(value.adjusted()) > _MOST_DIGITS:
            raise ConfigError(field, _WRITTEN, value, "Give a smaller number.")
        exact = Fraction(value)
    elif isinstance(value, numbers.Rational) and not isinstance(value, np.generic):
        exact = Fraction(value)
    elif isinstance(value, float | np.floating):
        if not math.isfinite(value):
            raise ConfigError(field, "must be finite", float(value), "Give a finite number.")
        exact = fraction_of(float(value))
    else:
        raise ConfigError(field, "must be a number or an array of numbers", value, "Give numbers.")
    _written(field, value, max(abs(exact.numerator), exact.denominator))
    return exact.numerator if exact.denominator == 1 else exact


def _written(field: str, value: Any, whole: int) -> int:
    """Refuse an integer so long that Python would take seconds to multiply it and refuse to write it."""
    if whole.bit_length() > 3 * _MOST_DIGITS:
        raise ConfigError(field, _WRITTEN, value, "Give a smaller number.")
    return whole


def _array(field: str, value: Any) -> np.ndarray:
    """Turn an array-like into an int64 array, or an object array of exact numbers where that is needed."""
    rule, way_out = "must be a rectangular array of numbers", "Give rows of equal length."
    if isinstance(value, list | tuple):
        # Through objects, element by element: np.array([True, 2]) or [2**64, 1] would hide what was given.
        array = foreign_array(field, value, dtype=object, rule=rule, way_out=way_out)
        if any(isinstance(item, list | tuple) for item in array.flat):
            raise ConfigError(field, rule, value, way_out)
    else:
        array = foreign_array(field, value)
    kind = array.dtype.kind
    if kind == "i" or (kind == "u" and (array.size == 0 or int(array.max()) <= INT64_MAX)):
        return array.astype(np.int64)
    if kind == "f":
        if not np.isfinite(array).all():
            raise ConfigError(field, "must be finite", array, "Remove NaN and infinity.")
        array = array.astype(np.float64) if array.dtype.itemsize < 8 else array
        if (array == np.floor(array)).all() and (np.abs(array) < 2.0**63).all():
            return array.astype(np.int64)
    elif kind not in "uO":
        raise ConfigError(field, "must be a number or an array of numbers", value, "Give numbers.")
    exact = np.empty(array.shape, dtype=object)
    exact.flat[:] = [_scalar(field, item) for item in array.flat]
    return exact


def read(field: str, value: Any) -> int | Fraction | np.ndarray:
    """Read numbers of any kind without rounding them; a zero-dimensional array is a scalar.

    Returns
    -------
    int, Fraction or numpy.ndarray
        A scalar, or an int64 array, or an object array of exact scalars. They may be negative.

    Raises
    ------
    ConfigError
        NaN, infinity, a truth value, or no number at all.
    """
    if value is None or isinstance(value, numbers.Number | np.bool_ | str | bytes):
        return _scalar(field, value)
    array = _array(field, value)
    return array if array.ndim else _scalar(field, array[()])


class Exact:
    """Non-negative fractions over one common denominator, as a scalar or an array.

    Parameters
    ----------
    numerator : int or numpy.ndarray
        A Python integer, an int64 array, or an object array of Python integers; none is negative.
    denominator : int
        At least 1.
    bound : int, optional
        No numerator is larger. Taken from the numerators when left out.
    """

    __slots__ = ("bound", "denominator", "numerator")

    def __init__(self, numerator: Any, denominator: int = 1, bound: int | None = None) -> None:
        self.numerator = numerator
        self.denominator = denominator
        self.bound = self.largest() if bound is None else bound

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the array's shape; the empty tuple for a scalar."""
        return self.numerator.shape if isinstance(self.numerator, np.ndarray) else ()

    def _paired(self, other: Any, bound: int) -> tuple[Any, Any]:
        """Return both numerators in a form whose result cannot wrap if it stays up to ``bound``."""
        left, right = self.numerator, other.numerator
        if max(bound, self.bound, other.bound) > INT64_MAX:
            left, right = (
                side.astype(object) if isinstance(side, np.ndarray) else side for side in (left, right)
            )
        return left, right

    def _over(self, denominator: int) -> Exact:
        """Write the same amount over a multiple of its denominator."""
        factor = denominator // self.denominator
        scaled = self if factor == 1 else Exact(self.numerator, 1, self.bound) * Exact(factor)
        return Exact(scaled.numerator, denominator, scaled.bound)

    def _aligned(self, other: Any) -> tuple[Exact, Exact]:
        other = as_exact(other)
        common = math.lcm(self.denominator, other.denominator)
        return self._over(common), other._over(common)

    def __add__(self, other: Any) -> Exact:
        left, right = self._aligned(other)
        bound = left.bound + right.bound
        one, two = left._paired(right, bound)
        return Exact(one + two, left.denominator, bound)

    def __sub__(self, other: Any) -> Exact:
        """Subtract what is known to be no larger."""
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        return Exact(one - two, left.denominator, left.bound)

    def __mul__(self, other: Any) -> Exact:
        other = as_exact(other)
        bound = self.bound * other.bound
        one, two = self._paired(other, bound)
        return Exact(one * two, self.denominator * other.denominator, bound)

    __radd__ = __add__
    __rmul__ = __mul__

    def floor_divide(self, other: Any) -> Exact:
        """Divide by a positive amount and round down."""
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        return Exact(one // two, 1, left.bound)

    def ceil_divide(self, other: Any) -> Exact:
        """Divide by a positive amount and round up."""
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        return Exact(-(-one // two), 1, left.bound)

    def ceil(self) -> Exact:
        """Round up to whole numbers."""
        return self if self.denominator == 1 else self.ceil_divide(1)

    def minimum(self, other: Any) -> Exact:
        """Take the smaller amount, element by element."""
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        smaller = np.minimum(one, two) if left.shape or right.shape else min(one, two)
        return Exact(smaller, left.denominator, min(left.bound, right.bound))

    def maximum(self, other: Any) -> Exact:
        """Take the larger amount, element by element."""
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        larger = np.maximum(one, two) if left.shape or right.shape else max(one, two)
        return Exact(larger, left.denominator, max(left.bound, right.bound))

    def where(self, condition: Any, other: Any) -> Exact:
        """Keep this amount where the condition holds, take the other one elsewhere."""
        if not isinstance(condition, np.ndarray):
            return self if condition else as_exact(other)
        left, right = self._aligned(other)
        one, two = left._paired(right, left.bound)
        return Exact(np.where(condition, one, two), left.denominator, max(left.bound, right.bound))

    def broadcast(self, shape: tuple[int, ...]) -> Exact:
        """Repeat the amount to a shape; the empty one leaves it as it is."""
        return self if self.shape == shape else self * Exact(np.ones(shape, dtype=np.int64))

    def total(self, axis: int = -1) -> Exact:
        """Add up along an axis; a scalar is its own total."""
        if not self.shape:
            return self
        bound = self.bound * self.shape[axis]
        values, _ = self._paired(Exact(0), bound)
        summed = values.sum(axis=axis)
        return Exact(summed if isinstance(summed, np.ndarray) else int(summed), self.denominator, bound)

    def largest(self) -> int:
        """Return the largest numerator that really occurs; 0 for an empty array."""
        if not self.shape:
            return self.numerator
        return int(self.numerator.max()) if self.numerator.size else 0

    def smallest(self) -> int:
        """Return the smallest numerator; 1 for an empty array, which breaks no lower limit."""
        if not self.shape:
            return self.numerator
        return int(self.numerator.min()) if self.numerator.size else 1

    def along_last(self) -> Exact:
        """Add a last axis of length 1, so that an array meets each member of a group."""
        if not self.shape:
            return self
        return Exact(self.numerator[..., np.newaxis], self.denominator, self.bound)

    def value(self) -> Any:
        """Return the unrounded amount for display: an int, a Fraction, or an array (floats if not whole)."""
        if self.denominator == 1:
            return self.numerator
        if self.shape:
            return self.numerator / self.denominator
        return Fraction(self.numerator, self.denominator)

    def result(self, field: str) -> Any:
        """Round up, once, and give a Python integer or an int64 array.

        Raises
        ------
        ConfigError
            An array has an element of 2**63 or more.
        """
        whole = self.ceil().numerator
        if not isinstance(whole, np.ndarray):
            return int(whole)
        if whole.dtype == object and whole.size and max(whole.flat) > INT64_MAX:
            raise ConfigError(
                field,
                "must stay below 2**63 in an array",
                max(whole.flat),
                "Pass Python integers one at a time, which have no limit, or smaller values.",
            )
        return np.array(whole, dtype=np.int64)


def as_exact(value: Any) -> Exact:
    """Wrap a whole number or a fraction that our own code supplies."""
    if isinstance(value, Exact):
        return value
    return Exact(value.numerator, value.denominator)


def amount(field: str, value: Any, minimum: int = 0) -> Exact:
    """Read a user's amount: of at least ``minimum``, whole or not, scalar or array.

    Parameters
    ----------
    field : str
        The argument's name, for the message.
    value : number or array_like
        Python and NumPy numbers, ``Fraction``, ``Decimal``, sequences and arrays of them.
    minimum : int
        0 or more.

    Returns
    -------
    Exact
        The amount, with nothing rounded.

    Raises
    ------
    ConfigError
        Too small, NaN, infinite, a truth value, or no number at all.
    """
    if isinstance(value, Exact):
        return value
    exact = read(field, value)
    if isinstance(exact, np.ndarray):
        lowest = exact.min() if exact.size else minimum
    else:
        lowest = exact
    if lowest < minimum:
        rule = f"must be at least {minimum}" if minimum else "must not be negative"
        raise ConfigError(field, rule, value, f"Give {minimum} or more.")
    if not isinstance(exact, np.ndarray) or exact.dtype != object:
        return as_exact(exact) if not isinstance(exact, np.ndarray) else Exact(exact)
    common = math.lcm(1, *(item.denominator for item in exact.flat))
    scaled = np.empty(exact.shape, dtype=object)
    scaled.flat[:] = [item.numerator * (common // item.denominator) for item in exact.flat]
    whole = Exact(scaled, common)
    return whole if whole.bound > INT64_MAX else Exact(scaled.astype(np.int64), common, whole.bound)


def count(field: str, value: Any, minimum: int = 0) -> Exact:
    """Read a user's whole number (``7e9`` is one), scalar or array, of at least ``minimum``.

    Raises
    ------
    ConfigError
        As :func:`amount`, and for a fraction.
    """
    exact = amount(field, value, minimum)
    if exact.denominator != 1:
        raise ConfigError(field, "must be a whole number", value, "Give whole numbers.")
    return exact


def one_count(field: str, value: Any, minimum: int = 0) -> int:
    """Read one whole number of a user, no array, of at least ``minimum``.

    Raises
    ------
    ConfigError
        As :func:`count`, and for an array.
    """
    whole = count(field, value, minimum)
    if whole.shape:
        raise ConfigError(field, "must be one number", value, "Give a single number, not an array.")
    return int(whole.numerator)


def check_shapes(**fields: Exact) -> tuple[int, ...]:
    """Check that the arguments broadcast; give the common shape.

    Raises
    ------
    ConfigError
        Two shapes do not fit together; the message names every argument that is an array.
    """
    shapes = {name: value.shape for name, value in fields.items() if value.shape}
    try:
        shape = np.broadcast_shapes(*shapes.values())
    except ValueError:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ConfigError(
            next(iter(shapes)),
            "must broadcast with the other arguments",
            shown,
            "Give arrays of equal or compatible shapes.",
        ) from None
    largest = max((math.prod(each) for each in shapes.values()), default=0)
    check_size(", ".join(shapes), shape, most=max(LARGEST_RESULT, largest))
    return shape


def check_divides(divisor_field: str, divisor: Exact, field: str, value: Exact) -> None:
    """Check that whole numbers divide others without a remainder.

    Raises
    ------
    ConfigError
        ``divisor`` does not divide ``value`` somewhere.
    """
    if (value - value.floor_divide(divisor) * divisor).largest():
        raise ConfigError(
            divisor_field, f"must divide {field}", divisor.numerator, f"{field} is {value.numerator}."
        )
