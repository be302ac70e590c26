"""Check and broadcast the arguments of the closed formulas: numbers or arrays in, float64 or int64 out.

One place decides what counts as a number here: Python and NumPy integers and floats, fractions, and nested
sequences or arrays of them. Bools, strings, complex numbers, NaN and (unless a formula has a limit there)
infinity are refused, with the argument's own name in the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ConfigError

Floats = float | NDArray[np.float64]
Integers = int | NDArray[np.int64]


def is_number(value: Any) -> TypeGuard[float]:
    """Tell whether something is one real number: of Python or NumPy, a fraction too, never a truth value.

    Examples
    --------
    >>> [is_number(value) for value in (3, np.float32(0.5), True, np.True_, "3", None)]
    [True, True, False, False, False, False]
    """
    # NumPy registers its integers and floats with these classes, and its bool with none. The type comes first
    # because a check of rollout records asks this of every token.
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))


def is_whole(value: Any) -> TypeGuard[int]:
    """Tell whether something is one whole number by its type: not a float, not a truth value.

    Examples
    --------
    >>> [is_whole(value) for value in (3, np.uint8(3), 3.0, True, "3")]
    [True, True, False, False, False]
    """
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


class HasArray(Protocol):
    """Anything that NumPy can make an array of: its own arrays, and those of xarray, polars and others."""

    def __array__(self) -> NDArray[Any]:
        """Return the values."""
        ...


_Row: TypeAlias = Sequence[SupportsFloat]
# What a user may give where numbers or arrays of them are read exactly; text and None are not among them.
Numbers: TypeAlias = (
    SupportsFloat | SupportsIndex | HasArray | _Row | Sequence[_Row] | Sequence[Sequence[_Row]]
)


def _raw_array(name: str, value: Any) -> NDArray[Any]:
    """Turn the argument into a numeric array; a bool hidden in a list counts as a bool."""
    way_out = "Give a number, or an array of numbers."
    if isinstance(value, list | tuple) or not hasattr(value, "dtype"):
        try:
            boxed = np.array(value, dtype=object)
        except ValueError:
            raise ConfigError(name, "must be rectangular", value, way_out) from None
        for item in boxed.flat:
            if not is_number(item):
                raise ConfigError(name, "must be a number", value, way_out)
        if boxed.size and all(isinstance(item, Integral) for item in boxed.flat):
            try:
                return boxed.astype(np.int64)
            except OverflowError:
                return boxed.astype(np.float64)
        return boxed.astype(np.float64)
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise ConfigError(name, "must be a number", value, way_out)
    return array


def _refuse(name: str, rule: str, value: Any, bad: NDArray[np.bool_], way_out: str) -> None:
    """Raise for the first value that breaks the rule; say which value, not the whole array."""
    if bad.any():
        first = np.asarray(value)[bad].flat[0] if bad.ndim else np.asarray(value)[()]
        shown = first.item() if hasattr(first, "item") else first
        raise ConfigError(name, rule, shown, way_out)


def real_numbers(
    name: str,
    value: ArrayLike,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    infinity: bool = False,
    way_out: str | None = None,
) -> NDArray[np.float64]:
    """Check one real argument.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        What the user gave.
    minimum, above, maximum : float, optional
        Closed lower bound, open lower bound, closed upper bound.
    infinity : bool
        Whether plus infinity is a legal value (a limit of the formula).
    way_out : str, optional
        The last sentence of the message; one that fits the rule when left out.

    Returns
    -------
    ndarray of float64
        Of the argument's own shape, zero-dimensional for a scalar.

    Raises
    ------
    ConfigError
        If the argument is no number, is NaN, or lies outside the bounds.

    Examples
    --------
    >>> real_numbers("checkpoint_seconds", [1, 2.5], minimum=0)
    array([1. , 2.5])
    """
    numbers = _raw_array(name, value).astype(np.float64)
    finite = "Give a finite number."
    _refuse(name, "must not be NaN", numbers, np.isnan(numbers), finite)
    if not infinity:
        _refuse(name, "must be finite", numbers, np.isinf(numbers), finite)
    way_out = way_out or "Give a number in that range."
    if minimum is not None:
        _refuse(name, f"must be at least {minimum:g}", numbers, numbers < minimum, way_out)
    if above is not None:
        _refuse(name, f"must be greater than {above:g}", numbers, numbers <= above, way_out)
    if maximum is not None:
        _refuse(name, f"must be at most {maximum:g}", numbers, numbers > maximum, way_out)
    return numbers


def whole_numbers(
    name: str,
    value: ArrayLike,
    *,
    minimum: int,
    maximum: int = 2**53,
    way_out: str | None = None,
) -> NDArray[np.int64]:
    """Check one whole argument; a float without a fraction (``8.0``) counts as whole.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        What the user gave.
    minimum, maximum : int
        Closed bounds; the upper one keeps every product inside int64.
    way_out : str, optional
        The last sentence of the message; one that fits the rule when left out.

    Returns
    -------
    ndarray of int64
        Of the argument's own shape, zero-dimensional for a scalar.

    Raises
    ------
    ConfigError
        If the argument is no whole number or lies outside the bounds.

    Examples
    --------
    >>> whole_numbers("workers", 8, minimum=1)
    array(8)
    """
    numbers = _raw_array(name, value)
    if numbers.dtype.kind == "f":
        whole = way_out or "Give a whole number."
        _refuse(name, "must not be NaN", numbers, np.isnan(numbers), whole)
        _refuse(name, "must be a whole number", numbers, np.floor(numbers) != numbers, whole)
    way_out = way_out or "Give a whole number in that range."
    _refuse(name, f"must be at least {minimum}", numbers, numbers < minimum, way_out)
    _refuse(name, f"must be at most {maximum}", numbers, numbers > maximum, way_out)
    return numbers.astype(np.int64)


def broadcast(**arguments: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Broadcast checked arguments against each other.

    Parameters
    ----------
    **arguments : ndarray
        Arrays by name.

    Returns
    -------
    tuple of ndarray
        Read-only views of one shape, in the given order.

    Raises
    ------
    ConfigError
        If the shapes do not fit together.

    Examples
    --------
    >>> [a.shape for a in broadcast(workers=np.ones((3, 1)), batches=np.ones(4))]
    [(3, 4), (3, 4)]
    """
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arguments.values()))
    except ValueError:
        shapes = {name: array.shape for name, array in arguments.items()}
        raise ConfigError(
            ", ".join(arguments),
            "shapes must fit together",
            shapes,
            "Add axes of length 1 where they differ.",
        ) from None
    return tuple(np.broadcast_to(array, shape) for array in arguments.values())


def plain(array: Any) -> Any:
    """Return a Python number for a zero-dimensional result, the array itself otherwise.

    Examples
    --------
    >>> plain(np.float64(3.0)), plain(np.array([1, 2]))
    (3.0, array([1, 2]))
    """
    array = np.asarray(array)
    return array.item() if array.ndim == 0 else array
