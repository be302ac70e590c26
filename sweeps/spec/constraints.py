"""Constraints between axes: plain comparisons over field names that exclude cells of a design.

A constraint is one line, as ``queue_cap >= 2 * batch_tokens`` or ``max_lag + 1 >= sync_cadence``: numbers,
text, names of axes and fields, ``+ - * / // % **``, comparisons, ``and``, ``or``, ``not``, ``min``,
``max``. It is read with Python's parser and evaluated over whole axes at once; nothing else is ever
executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, nearest

_LONGEST_TEXT = 10_000
_MOST_BITS = 1024  # of a whole number on the way to a comparison; a float ends there too

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLS: dict[str, Callable[[Any, Any], Any]] = {"min": np.minimum, "max": np.maximum}


def kept_cells(constraint: str, columns: Mapping[str, Any], known: Mapping[str, Any]) -> np.ndarray:
    """Evaluate a constraint over all cells.

    Parameters
    ----------
    constraint : str
        The comparison that a cell must fulfil.
    columns : mapping
        Name of an axis -> its values, as arrays that broadcast to the cells.
    known : mapping
        Every other name -> its one value.

    Returns
    -------
    ndarray of bool
        True where the cell is kept; broadcasts to the cells.

    Raises
    ------
    ConfigError
        If the text is not such a comparison, or names something unknown.

    Examples
    --------
    >>> lags = {"max_lag": np.array([0, 1, 2])}
    >>> kept_cells("max_lag + 1 >= sync_cadence", lags, {"sync_cadence": 2}).tolist()
    [False, True, True]
    """
    if len(constraint) > _LONGEST_TEXT:
        raise _refusal(constraint, f"must have at most {_LONGEST_TEXT:,} letters")
    try:
        tree = ast.parse(constraint.strip(), mode="eval")
        with np.errstate(all="ignore"):
            kept = _value(tree.body, columns, known, constraint)
    except (SyntaxError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise _refusal(constraint, "must be a comparison") from None
    except (RecursionError, MemoryError):  # what Python's parser raises too, at a depth of its own
        raise _refusal(constraint, "must not be nested this deeply", "Write it with fewer signs.") from None
    kept = np.asarray(kept)
    if kept.dtype != np.bool_:
        raise _refusal(constraint, "must be true or false for each cell")
    return kept


def _refusal(
    constraint: str, rule: str, way_out: str = "Write it as 'queue_cap >= 2 * batch_tokens'."
) -> ConfigError:
    return ConfigError("constraints", rule, constraint, way_out)


def _value(node: ast.AST, columns: Mapping[str, Any], known: Mapping[str, Any], text: str) -> Any:
    recurse = lambda child: _value(child, columns, known, text)  # noqa: E731
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.Name(id=name):
            return _named(name, columns, known, text)
        case ast.BinOp() if type(node.op) in _BINARY:
            combine = partial(_bounded, type(node.op), recurse(node.left), recurse(node.right))
            return _applied(combine, text)
        case ast.UnaryOp(op=ast.USub()):
            return _applied(lambda: -recurse(node.operand), text)
        case ast.UnaryOp(op=ast.Not()):
            return np.logical_not(recurse(node.operand))
        case ast.BoolOp(op=op):
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return reduce(join, [recurse(part) for part in node.values])
        case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
            sides = [recurse(part) for part in (node.left, *node.comparators)]
            parts = [
                _applied(partial(_COMPARE[type(op)], a, b), text)
                for op, a, b in zip(node.ops, sides, sides[1:])
            ]
            return reduce(np.logical_and, parts)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_], keywords=[]) if name in _CALLS:
            return _applied(lambda: reduce(_CALLS[name], [recurse(part) for part in node.args]), text)
    raise _refusal(text, "may use names, numbers, arithmetic, comparisons, and, or, not, min, max only")


def _bounded(kind: type[ast.operator], left: Any, right: Any) -> Any:
    """Calculate with two values whose result stays of a size that is had at once, and exact.

    Python's whole numbers grow without a bound, those of an array wrap around at 64 bits without a word.
    """
    if not all(isinstance(side, int) or np.asarray(side).dtype.kind in "biuf" for side in (left, right)):
        raise TypeError("only numbers are calculated with")
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if kind is ast.Pow:
            bits = max(0, bits - 1) * abs(right)
        if max(bits, right.bit_length()) > _MOST_BITS:
            raise OverflowError(f"a number has more than {_MOST_BITS} bits")
    result = _BINARY[kind](left, right)
    if np.asarray(result).dtype.kind in "iu" and not isinstance(result, int):
        nearly = _BINARY[kind](np.asarray(left, float), np.asarray(right, float))
        if np.any(np.abs(nearly) >= 2.0**63):
            raise OverflowError("a number has more than 64 bits")
    return result


def _applied(compute: Callable[[], Any], text: str) -> Any:
    try:
        return compute()
    except ConfigError:
        raise
    except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise _refusal(text, f"cannot be evaluated: {error}") from None


def _named(name: str, columns: Mapping[str, Any], known: Mapping[str, Any], text: str) -> Any:
    if name in columns:
        return columns[name]
    if name in known:
        value = known[name]
        return np.nan if value is None else value
    hint = nearest(name, [*columns, *known])
    raise _refusal(text, f"names something unknown, {name!r}", hint or "Use names of axes and fields.")
