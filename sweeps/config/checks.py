"""Turn pydantic's findings into Lagsweep's error text: field, rule, value, way out.

pydantic checks types and ranges and collects every finding; the wording is ours, so that a message reads the
same wherever it comes from (Python, TOML, a command-line flag).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from ...kernels.errors import ConfigError, message, nearest

_BOOLS = ("bool_", "bool")  # NumPy's, by its name before and since NumPy 2


def _refuse(rule: str, way_out: str) -> NoReturn:
    raise PydanticCustomError("lagsweep", "{rule}", {"rule": rule, "way_out": way_out})


def _whole(value: Any) -> int:
    """Accept whole numbers of any kind (NumPy's too), never bool, never text."""
    if isinstance(value, bool) or type(value).__name__ in _BOOLS or isinstance(value, str):
        _refuse("must be a whole number", "Give a whole number.")
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    _refuse("must be a whole number", "Give a whole number.")


def _real(value: Any) -> float:
    """Accept finite real numbers of any kind (NumPy's too), never bool, never text."""
    if isinstance(value, bool) or type(value).__name__ in _BOOLS or isinstance(value, str | bytes):
        _refuse("must be a number", "Give a number.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        _refuse("must be a number", "Give a number.")
    if not math.isfinite(number):
        _refuse("must be finite", "Give a finite number.")
    return number


def _flag(value: Any) -> bool:
    """Accept True and False only."""
    if isinstance(value, bool) or type(value).__name__ in _BOOLS:
        return bool(value)
    _refuse("must be true or false", "Give true or false.")


WholeNumber = Annotated[int, BeforeValidator(_whole)]
RealNumber = Annotated[float, BeforeValidator(_real)]
Flag = Annotated[bool, BeforeValidator(_flag)]
# int64 arithmetic in the kernels: products of tokens and slots must stay below 2**63.
TokenCount = Annotated[WholeNumber, Field(ge=1, le=2**52)]


def _rule_and_way_out(finding: dict[str, Any], known: Iterable[str]) -> tuple[str, str]:
    """Word one pydantic finding."""
    kind, context = finding["type"], finding.get("ctx", {})
    match kind:
        case "lagsweep":
            return context["rule"], context["way_out"]
        case "extra_forbidden":
            hint = nearest(str(finding["loc"][-1]), known)
            return "is not a known field", hint or f"Known fields: {', '.join(sorted(known))}."
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}", f"Give {context['ge']:g} or more."
        case "greater_than":
            return f"must be above {context['gt']:g}", f"Give a number above {context['gt']:g}."
        case "less_than_equal":
            limit = context["le"]
            shown = f"{limit:g}" if limit < 1e6 else f"2**{math.log2(limit):g}"
            return f"must be at most {shown}", f"Give {shown} or less."
        case "less_than":
            limit = context["lt"]
            shown = f"{limit:g}" if limit < 1e6 else f"2**{math.log2(limit):g}"
            return f"must be below {shown}", f"Give a number below {shown}."
        case "literal_error":
            return f"must be one of {context['expected']}", nearest_literal(
                finding["input"], context["expected"]
            )
        case "missing":
            return "is required", "Give it a value."
    return finding["msg"][:1].lower() + finding["msg"][1:], "Give a value of the right kind."


def nearest_literal(value: Any, expected: str) -> str:
    """Name the nearest of pydantic's quoted options, or ask for one of them."""
    options = [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]
    return nearest(str(value), options) or "Choose one of them."


def raise_config_error(error: ValidationError, known: Iterable[str], prefix: str = "") -> NoReturn:
    """Raise a ConfigError with one line per finding.

    Raises
    ------
    ConfigError
        Always.
    """
    known = list(known)
    lines = []
    for finding in error.errors(include_url=False):
        if isinstance(finding.get("ctx", {}).get("error"), ConfigError):
            lines.append(prefix + str(finding["ctx"]["error"]))  # worded already, by the law's own checks
            continue
        field = prefix + ".".join(
            str(part) for part in finding["loc"] if not str(part).startswith("function")
        )
        rule, way_out = _rule_and_way_out({**finding}, known)
        value = {} if finding["type"] == "missing" else finding["input"]
        lines.append(message(field, rule, value, way_out) if value != {} else f"{field}: {rule}. {way_out}")
    raise ConfigError("\n".join(dict.fromkeys(lines)))
