"""The door for the kernels' arguments: numbers, arrays, flags and choices in, or an error with their name.

One place decides what counts as a number here: Python and NumPy integers and floats, fractions, and nested
sequences or arrays of them. Bools, strings, complex numbers, times, masked values, NaN and (unless a formula
has a limit there) infinity are refused, with the argument's own name in the message. What is asked for in
memory has a limit too, checked before it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import (
    Any,
    ParamSpec,
    Protocol,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeGuard,
    TypeVar,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import ConfigError, Words, nearest, shown_value

# What broadcasting, or one number such as a width, may make of small arguments: 1 GiB of float64.
LARGEST_RESULT = 2**27
_MOST_DIMENSIONS = 32  # NumPy holds 64, but broadcasts and walks through 32 only

Given = ParamSpec("Given")
Made = TypeVar("Made")

Floats = float | NDArray[np.float64]
Integers = int | NDArray[np.int64]


def is_number(value: Any) -> TypeGuard[float]:
    """Tell whether something is one real number: of Python or NumPy, a fraction too, never a truth value.

    Examples
    --------
    >>> [is_number(value) for value in (3, np.float32(0.5), True, np.True_, "3", None)]
    [True, True, False, False, False, False]
    """
    # NumPy registers its integers, times among them, and floats with these classes, and its bool with none.
    # The type comes first because a check of rollout records asks this of every token.
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool | np.timedelta64))


def is_whole(value: Any) -> TypeGuard[int]:
    """Tell whether something is one whole number by its type: not a float, not a truth value.

    Examples
    --------
    >>> [is_whole(value) for value in (3, np.uint8(3), 3.0, True, "3")]
    [True, True, False, False, False]
    """
    return type(value) is int or (
        isinstance(value, Integral) and not isinstance(value, bool | np.timedelta64)
    )


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


def foreign_array(
    name: str, value: Any, dtype: Any = None, *, rule: str = "", way_out: str = ""
) -> NDArray[Any]:
    """Let NumPy make an array of anything; what it or the value itself raises becomes our error.

    Examples
    --------
    >>> foreign_array("mask", [1, 0])
    array([1, 0])
    """
    if np.ma.is_masked(value):
        fill = "Fill what is masked, or give the values and the mask as two arguments where both are taken."
        raise ConfigError(name, "must not hold masked values", value, fill)
    way_out = way_out or "Give a number, or an array of numbers."
    try:
        array = np.asarray(value, dtype=dtype)
    except ValueError:
        raise ConfigError(name, rule or "must be rectangular", value, way_out) from None
    except Exception:  # a foreign value's own code may raise anything, and so may what it is nested in
        raise ConfigError(name, rule or "must be a number", value, way_out) from None
    if array.ndim > _MOST_DIMENSIONS:
        raise ConfigError(name, f"must have at most {_MOST_DIMENSIONS} dimensions", array.ndim, way_out)
    return array


def raw_array(name: str, value: Any) -> NDArray[Any]:
    """Turn the argument into a numeric array; a bool hidden in a list counts as a bool.

    Examples
    --------
    >>> raw_array("lag", [1, 2])
    array([1, 2])
    """
    way_out = "Give a number, or an array of numbers."
    if isinstance(value, list | tuple) or not hasattr(value, "dtype"):
        boxed = foreign_array(name, value, dtype=object)
        for item in boxed.flat:
            if not is_number(item):
                raise ConfigError(name, "must be a number", value, way_out)
        if boxed.size and all(isinstance(item, Integral) for item in boxed.flat):
            try:
                return boxed.astype(np.int64)
            except OverflowError:
                pass
        return _as_float64(name, boxed)
    array = foreign_array(name, value)
    if array.dtype.kind not in "iuf":
        raise ConfigError(name, "must be a number", value, way_out)
    if array.dtype.kind == "f" and array.dtype != np.float64:
        # A narrow float would be compared with bounds that it cannot hold.
        return _as_float64(name, array)
    return array


def _as_float64(name: str, array: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to float64; a finite number beyond it is refused, not made infinite."""
    try:
        with np.errstate(over="raise"):
            return array.astype(np.float64)
    except (OverflowError, FloatingPointError):
        rule = "must stay below 1.8e308, the end of float64"
        raise ConfigError(name, rule, array, "Give a smaller number.") from None


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
    numbers = raw_array(name, value).astype(np.float64)
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
    numbers = raw_array(name, value)
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
        If the shapes do not fit together, or would make far more values than there are in the arguments.

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
    check_size(
        ", ".join(arguments), shape, most=max(LARGEST_RESULT, *(array.size for array in arguments.values()))
    )
    return tuple(np.broadcast_to(array, shape) for array in arguments.values())


def fit_together(*shapes: tuple[int, ...], into: tuple[int, ...] | None = None) -> bool:
    """Tell whether shapes broadcast, and (with ``into``) make no other shape than that.

    Examples
    --------
    >>> fit_together((3, 1), (2,)), fit_together((3, 1), (2,), into=(3, 1))
    (True, False)
    """
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return into is None or shape == into


def paired(**arguments: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Broadcast what belongs to the same rows and tokens; a row's value never meets a token's by chance.

    Values of one shape, and a scalar or a row of tokens beside a batch, are paired as NumPy does. Refused is
    what NumPy would multiply out, one value per row against one per token, and a flat array as long as a
    square batch is wide, which may stand for its rows as well as for its tokens.

    Raises
    ------
    ConfigError
        If the shapes do not fit together, or it is not plain which axis a flat array lies along.

    Examples
    --------
    >>> [a.shape for a in paired(log_ratio=np.ones((2, 3)), keep=np.ones((2, 1)))]
    [(2, 3), (2, 3)]
    """
    together = broadcast(**arguments)
    shape = together[0].shape if together else ()
    shapes = {name: array.shape for name, array in arguments.items() if array.ndim}
    flat = {each[0] for each in shapes.values() if len(each) == 1}
    multiplied = shape not in shapes.values() and len({len(each) for each in shapes.values()}) > 1
    square = any(len(each) > 1 and each[-1] == each[-2] > 1 and each[-1] in flat for each in shapes.values())
    if multiplied or square:
        rule = "must not pair a value per row with a value per token"
        way_out = "Name the axis: x[:, None] is one value per row, x[None, :] one per token."
        raise ConfigError(", ".join(shapes), rule, shapes, way_out)
    return together


def check_size(name: str, shape: Sequence[int], most: int = LARGEST_RESULT) -> None:
    """Refuse a shape whose values would not fit into memory, before the memory is asked for.

    Raises
    ------
    ConfigError
        If there would be more than ``most`` values.

    Examples
    --------
    >>> check_size("width", (2, 3))
    """
    size = math.prod(int(length) for length in shape)
    if size > most:
        rule = f"must not ask for more than {most} values at once"
        raise ConfigError(name, rule, size, "Do it in parts.")


def one_number(name: str, value: Any, **bounds: Any) -> float:
    """Check one real number: what :func:`real_numbers` takes, but no array.

    Raises
    ------
    ConfigError
        If it is an array, or as :func:`real_numbers`.

    Examples
    --------
    >>> one_number("confidence", np.float32(0.5))
    0.5
    """
    return float(_one(name, value, real_numbers(name, value, **bounds)))


def one_whole(name: str, value: Any, **bounds: Any) -> int:
    """Check one whole number: what :func:`whole_numbers` takes, but no array.

    Raises
    ------
    ConfigError
        If it is an array, or as :func:`whole_numbers`.

    Examples
    --------
    >>> one_whole("width", 8.0, minimum=0)
    8
    """
    return int(_one(name, value, whole_numbers(name, value, **bounds)))


def _one(name: str, value: Any, numbers: NDArray[Any]) -> Any:
    if numbers.ndim:
        raise ConfigError(name, "must be one number", value, "Give a single number.")
    return numbers


def flag(name: str, value: Any) -> bool:
    """Check a flag: True or False and nothing that only counts as one, such as a text.

    Raises
    ------
    ConfigError
        If it is anything else.

    Examples
    --------
    >>> flag("normalized", np.True_)
    True
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ConfigError(name, "must be True or False", value, "Give a truth value.")


def choice(name: str, value: Any, options: Sequence[str], *, rule: str = "", way_out: str = "") -> str:
    """Check that a text is one of several; a near miss is named.

    Raises
    ------
    ConfigError
        If it is another text, or none.

    Examples
    --------
    >>> choice("level", "token", ["token", "sequence"])
    'token'
    """
    if isinstance(value, str) and value in options:
        return str(value)
    near = nearest(value, options) if isinstance(value, str) else ""
    raise ConfigError(name, rule or f"must be one of {', '.join(options)}", value, near or way_out)


def instance(name: str, value: Any, kind: type, way_out: str) -> Any:
    """Check that an argument is an object of a class of ours.

    Raises
    ------
    ConfigError
        If it is something else.

    Examples
    --------
    >>> instance("error", ConfigError("x"), ConfigError, "Give an error.")
    ConfigError('x')
    """
    if isinstance(value, kind):
        return value
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    raise ConfigError(name, f"must be {article} {kind.__name__}", value, way_out)


def listed(name: str, value: Any, way_out: str, *, rule: str = "must be a list") -> tuple[Any, ...]:
    """Take what an iterable of things gives; a text is not one.

    Raises
    ------
    ConfigError
        If it cannot be iterated over.

    Examples
    --------
    >>> listed("sizes", [2, 4], "List the sizes.")
    (2, 4)
    """
    try:
        if not isinstance(value, str | bytes):
            return tuple(value)
    except Exception:
        pass
    raise ConfigError(name, rule, value, way_out)


def axis_of(value: Any, dimensions: int) -> int:
    """Check an axis of an array with so many dimensions.

    Raises
    ------
    ConfigError
        If it is no whole number, or the array has no such axis.

    Examples
    --------
    >>> axis_of(-1, 2)
    -1
    """
    if not is_whole(value) or not -dimensions <= value < dimensions:
        rule = f"must be an axis of an array of {dimensions} dimensions"
        raise ConfigError("axis", rule, value, "Give None to take everything as one group.")
    return int(value)


def within_float64(formula: Callable[Given, Made]) -> Callable[Given, Made]:
    """Make a formula refuse arguments whose sums or products leave float64, instead of answering NaN.

    Examples
    --------
    >>> @within_float64
    ... def area(width, height):
    ...     return np.float64(width) * height
    >>> try:
    ...     area(1e308, 10)
    ... except ConfigError as error:
    ...     print(error.findings[0].rule, error.findings[0].value, sep="; ")
    must keep the result below 1.8e308, the end of float64; width=1e+308, height=10
    """

    @wraps(formula)
    def checked(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                return formula(*args, **kwargs)
        except (FloatingPointError, OverflowError):
            rule = "must keep the result below 1.8e308, the end of float64"
            given = signature(formula).bind(*args, **kwargs).arguments
            # An array's repr has lines of its own; a message is one.
            shown = (f"{name}={' '.join(shown_value(value).split())}" for name, value in given.items())
            way_out = "Give values nearer to 1, in other units if need be."
            raise ConfigError(", ".join(given), rule, Words(", ".join(shown)), way_out) from None

    return checked


def plain(array: Any) -> Any:
    """Return a Python number for a zero-dimensional result, the array itself otherwise.

    Examples
    --------
    >>> plain(np.float64(3.0)), plain(np.array([1, 2]))
    (3.0, array([1, 2]))
    """
    array = np.asarray(array)
    return array.item() if array.ndim == 0 else array
