"""Check single values: annotated types, and Lagsweep's words for what pydantic finds.

pydantic checks types and ranges and collects every finding; the wording is ours, so that a message reads the
same wherever it comes from (Python, TOML, a command-line flag). What counts as a number is decided here once
for configurations, specs, presets and arguments; arrays are checked in :mod:`lagsweep.kernels._arguments`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, NoReturn

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from ..kernels.errors import NO_VALUE, ConfigError, Finding, nearest

NOT_A_FIELD = "is not a known field"


def _refuse(rule: str, way_out: str) -> NoReturn:
    raise PydanticCustomError("lagsweep", "{rule}", {"rule": rule, "way_out": way_out})


def _counted(value: Any) -> int:
    """Accept whole numbers of whole types (NumPy's too), never bool, never text."""
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except TypeError:
            pass
    _refuse("must be a whole number", "Give a whole number.")


def _whole(value: Any) -> int:
    """Accept whole numbers of any kind, a float without a fraction too."""
    whole_float = isinstance(value, float | np.floating) and float(value).is_integer()
    return int(value) if whole_float else _counted(value)


def _real(value: Any) -> float:
    """Accept finite real numbers of any kind (NumPy's too), never bool, never text."""
    if isinstance(value, bool | np.bool_ | str | bytes | np.complexfloating):
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
    if isinstance(value, bool | np.bool_):
        return bool(value)
    _refuse("must be true or false", "Give true or false.")


WholeNumber = Annotated[int, BeforeValidator(_whole)]
Counted = Annotated[int, BeforeValidator(_counted)]  # where a float is a sign of something gone wrong
RealNumber = Annotated[float, BeforeValidator(_real)]
Flag = Annotated[bool, BeforeValidator(_flag)]
# int64 arithmetic in the kernels: products of tokens and slots must stay below 2**63.
TokenCount = Annotated[WholeNumber, Field(ge=1, le=2**52)]


def checked(
    kind: Any,
    field: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    rule: str = "",
    way_out: str = "",
) -> Any:
    """Check one argument and give it in its own type.

    Parameters
    ----------
    kind : type
        An annotated type, such as ``WholeNumber``.
    field : str
        The argument's name, for the message.
    value : object
        What the user gave.
    low, high : float, optional
        The smallest and the largest value that is allowed.
    rule, way_out : str
        What to say in place of the words for the bound or type that is broken.

    Raises
    ------
    ConfigError
        If the value is of another type or out of bounds.

    Examples
    --------
    >>> checked(WholeNumber, "threads", 4.0, low=1)
    4
    >>> checked(WholeNumber, "threads", 0, low=1)
    Traceback (most recent call last):
        ...
    lagsweep.kernels.errors.ConfigError: threads: must be at least 1 (got 0). Give 1 or more.
    """
    try:
        return _adapter(kind, low, high).validate_python(value)
    except ValidationError as error:
        found = findings_of(error, ())[0]
    raise ConfigError(field, rule or found.rule, value, way_out or found.way_out)


@cache
def _adapter(kind: Any, low: float | None, high: float | None) -> TypeAdapter[Any]:
    return TypeAdapter(kind if low is None and high is None else Annotated[kind, Field(ge=low, le=high)])


def _rule_and_way_out(finding: Mapping[str, Any], known: Iterable[str]) -> tuple[str, str]:
    """Word one pydantic finding."""
    kind, context = finding["type"], finding.get("ctx", {})
    match kind:
        case "lagsweep":
            return context["rule"], context["way_out"]
        case "extra_forbidden":
            hint = nearest(str(finding["loc"][-1]), known)
            return NOT_A_FIELD, hint or f"Known fields: {', '.join(sorted(known))}."
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
    """Raise a ConfigError with what pydantic found.

    Raises
    ------
    ConfigError
        Always.
    """
    raise ConfigError(*(finding.within(prefix) for finding in findings_of(error, known)))


def findings_of(error: ValidationError, known: Iterable[str]) -> list[Finding]:
    """Word what pydantic found; ``known`` are the names of the fields."""
    known = list(known)
    findings: list[Finding] = []
    for found in error.errors(include_url=False):
        worded = found.get("ctx", {}).get("error")
        if isinstance(worded, ConfigError):  # by the law's own checks
            findings += worded.findings
            continue
        field = ".".join(str(part) for part in found["loc"] if not str(part).startswith("function"))
        rule, way_out = _rule_and_way_out({**found}, known)
        value = NO_VALUE if found["type"] == "missing" else found["input"]
        findings.append(Finding(field, rule, value, way_out))
    return findings
