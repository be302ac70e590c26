"""Check single values: annotated types, and Lagsweep's words for what pydantic finds.

pydantic checks types and ranges and collects every finding; the wording is ours, so that a message reads the
same wherever it comes from (Python, TOML, a command-line flag). What counts as a number is decided here once
for configurations, specs, presets and arguments; arrays are checked in :mod:`lagsweep.kernels._arguments`.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from ..kernels._arguments import listed
from ..kernels.errors import NO_VALUE, ConfigError, Finding, nearest

NOT_A_FIELD = "is not a known field"


def _refuse(rule: str, way_out: str) -> NoReturn:
    raise PydanticCustomError("lagsweep", "{rule}", {"rule": rule, "way_out": way_out})


def _counted(value: Any) -> int:
    """Accept whole numbers of whole types (NumPy's too), never bool, never text."""
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except Exception:
            pass
    _refuse("must be a whole number", "Give a whole number.")


def _whole(value: Any) -> int:
    """Accept whole numbers of any kind, a float without a fraction too."""
    whole_float = isinstance(value, float | np.floating) and float(value).is_integer()
    return int(value) if whole_float else _counted(value)


def _real(value: Any) -> float:
    """Accept finite real numbers of any kind (NumPy's too), never bool, never text."""
    if isinstance(value, bool | np.bool_ | str | bytes | np.complexfloating | np.ma.MaskedArray):
        _refuse("must be a number", "Give a number.")
    try:
        number = float(value)
    except Exception:  # a foreign value's own code may raise anything
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


def flag_of(field: str, value: Any) -> bool:
    """Check a flag: true or false, and nothing that only counts as one.

    Raises
    ------
    ConfigError
        If it is anything else.

    Examples
    --------
    >>> flag_of("masks", np.True_)
    True
    """
    made: bool = checked(Flag, field, value)
    return made


def text_of(field: str, value: Any, way_out: str) -> str:
    """Check a text.

    Raises
    ------
    ConfigError
        If it is something else.

    Examples
    --------
    >>> text_of("metric", "updates", "Name a metric.")
    'updates'
    """
    if isinstance(value, str):
        return value
    raise ConfigError(field, "must be text", value, way_out)


def texts_of(field: str, value: Any, way_out: str) -> tuple[str, ...]:
    """Check a list of texts; one text alone is a list of one.

    Raises
    ------
    ConfigError
        If it is no list, or something in it is no text.

    Examples
    --------
    >>> texts_of("tables", ["batches"], "Name tables."), texts_of("tables", "batches", "Name tables.")
    (('batches',), ('batches',))
    """
    found = (value,) if isinstance(value, str) else listed(field, value, way_out)
    return tuple(text_of(field, each, way_out) for each in found)


def mapping_of(field: str, value: Any, way_out: str) -> dict[str, Any]:
    """Check a mapping of names to values; None is an empty one.

    Raises
    ------
    ConfigError
        If it is no mapping, or a name is no text.

    Examples
    --------
    >>> mapping_of("fields", {"seed": 1}, "Give field names."), mapping_of("fields", None, "")
    ({'seed': 1}, {})
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(field, "must map names to values", value, way_out)
    return dict(value)


def path_of(field: str, value: Any) -> Path:
    """Check a path: a text or a path object that the system can hold.

    Raises
    ------
    ConfigError
        If it is something else, or no system has such a path.

    Examples
    --------
    >>> path_of("path", "results/x").name
    'x'
    """
    way_out = "Give the path of a file or folder."
    try:
        path = Path(value)
        path.exists()
        if "\0" in str(path):
            raise ValueError("a zero byte in it")
    except TypeError:
        raise ConfigError(field, "must be a path", value, way_out) from None
    except (OSError, ValueError) as error:  # too long, a zero byte, no encoding
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(field, f"must be a path that can be used: {why}", value, way_out) from None
    return path


def confidence_of(value: Any) -> float:
    """Check a confidence: between 0 and 1, and neither of them.

    Raises
    ------
    ConfigError
        If it is something else.

    Examples
    --------
    >>> confidence_of(0.95)
    0.95
    """
    rule, way_out = "must be between 0 and 1", "Give 0.95."
    share: float = checked(RealNumber, "confidence", value, low=0, high=1, rule=rule, way_out=way_out)
    if share in (0, 1):
        raise ConfigError("confidence", rule, value, way_out)
    return share


def sweep_dataset(ds: Any) -> Any:
    """Check that something is the dataset of a sweep, without loading xarray for it.

    Raises
    ------
    ConfigError
        If it is something else, or its seconds were read as time differences, as xarray does by itself.
    """
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(ds, xarray.Dataset) and "status" in ds:
        spans = [name for name, variable in ds.data_vars.items() if variable.dtype.kind == "m"]
        if spans:
            rule = "must have its seconds as numbers"
            raise ConfigError(spans[0], rule, "time differences", "Open it with decode_timedelta=False.")
        return ds
    way_out = "Give what run_sweep or open_sweep returns."
    raise ConfigError("dataset", "must be the dataset of a sweep", ds, way_out)


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
    return nearest(value, options) or "Choose one of them."


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
