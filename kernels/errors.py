"""The errors of Lagsweep, and the findings that they carry.

::

    LagsweepError
    ├── ConfigError      (also a ValueError)    a setting or an argument breaks a rule
    ├── ContractError    (also a ValueError)    a rollout record breaks the contract
    ├── StoreError       (also a RuntimeError)  a stored sweep cannot be created, read or resumed
    └── CheckpointError  (also a RuntimeError)  a checkpoint cannot be written, read or trusted

``raise ConfigError(field, rule, value, way_out)`` is the usual form; several findings go into one error as
``ConfigError(*findings)``. The text is made once, from the findings, a line for each:
``field: rule (got value). Way out.`` Who needs a part of it takes it from :attr:`LagsweepError.findings`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple, Self

_LONGEST_VALUE = 120
_LONGEST_PART = (
    2_000  # of a field, a rule or a way out: names may come from a file, and a file may hold anything
)
_MOST_NAMES = 12


class Words(str):
    """Words that a message shows as they are, without quotes, in the place of a value.

    Examples
    --------
    >>> Words("nothing")
    nothing
    """

    def __repr__(self) -> str:
        """Return the words."""
        return str(self)


class NoValue(Enum):
    """Stands for the value of a finding that has none to show: its text has no ``(got ...)``."""

    NO_VALUE = "no value"


NO_VALUE = NoValue.NO_VALUE


class Finding(NamedTuple):
    """One thing that is wrong: what it is about, the rule, the value that breaks it, and the way out.

    Attributes
    ----------
    field : str
        The setting, argument or file, with its place before it, such as ``base.batch_tokens``.
    rule : str
        What must hold; the whole text where there is no field.
    value : object
        What was given; ``NO_VALUE`` where nothing is to be shown.
    way_out : str
        What to do about it.

    Examples
    --------
    >>> print(Finding("batch_tokens", "must be at least 1", 0, "Give a positive token budget."))
    batch_tokens: must be at least 1 (got 0). Give a positive token budget.
    """

    field: str
    rule: str
    value: Any = NO_VALUE
    way_out: str = ""

    def __str__(self) -> str:
        """Write it as one line."""
        got = "" if self.value is NO_VALUE else f" (got {shown_value(self.value)})"
        field = f"{_cut(self.field, _LONGEST_PART)}: " if self.field else ""
        way_out = f". {_cut(self.way_out, _LONGEST_PART)}" if self.way_out else "." if got else ""
        # A text without parts may be a whole listing.
        rule = _cut(self.rule, _LONGEST_PART if self.field else 10 * _LONGEST_PART)
        return f"{field}{rule}{got}{way_out}"

    def within(self, place: str) -> Finding:
        """Put a place before the field: a section, a flag or a file.

        Examples
        --------
        >>> Finding("batch_tokens", "is required").within("base.").field
        'base.batch_tokens'
        """
        if not isinstance(place, str):
            raise ConfigError("place", "must be text", place, "Give what stands before the field.")
        return (
            self._replace(field=place + self.field) if self.field else self._replace(rule=place + self.rule)
        )


class LagsweepError(Exception):
    """Root of all errors that Lagsweep raises on purpose.

    Parameters
    ----------
    *parts : Finding or str or object
        A finding's four parts, or findings, or a text without parts.

    Attributes
    ----------
    findings : tuple of Finding
        What is wrong, as data; the error's text has a line for each.

    Examples
    --------
    >>> error = ConfigError("batch_tokens", "must be at least 1", 0, "Give a positive token budget.")
    >>> error.findings[0].field, error.findings[0].value
    ('batch_tokens', 0)
    """

    findings: tuple[Finding, ...]

    def __init__(self, *parts: Any) -> None:
        if len(parts) == len(Finding._fields) and not isinstance(parts[0], Finding):
            field, rule, value, way_out = parts
            parts = (Finding(_text(field), _text(rule), value, _text(way_out)),)
        findings = [part if isinstance(part, Finding) else Finding("", _text(part)) for part in parts]
        lines = {str(finding): finding for finding in findings}  # what is found twice is said once
        self.findings = tuple(lines.values())
        super().__init__("\n".join(lines))

    def within(self, place: str) -> Self:
        """Return the same error with a place before every field."""
        return type(self)(*(finding.within(place) for finding in self.findings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copy and pickle keep the findings; a value that cannot travel goes as text."""
        findings = tuple(finding._replace(value=_portable(finding.value)) for finding in self.findings)
        return type(self), self.args, {**self.__dict__, "findings": findings}


class ConfigError(LagsweepError, ValueError):
    """A setting or an argument breaks a rule; nothing was started or written."""


class ContractError(LagsweepError, ValueError):
    """A rollout record breaks the contract."""


class StoreError(LagsweepError, RuntimeError):
    """A stored sweep cannot be created, read, extended or resumed."""


class CheckpointError(LagsweepError, RuntimeError):
    """A checkpoint cannot be written, read or trusted."""


def shown_value(value: Any) -> str:
    """Write a value for a message, cut where it is long.

    Examples
    --------
    >>> shown_value("reserve"), len(shown_value("x" * 1000))
    ("'reserve'", 120)
    """
    try:
        shown = repr(value)
    except Exception:
        # A foreign object's repr may do anything, and Python refuses to write an integer of 5,000 digits.
        return f"a {type(value).__name__}"
    return _cut(shown, _LONGEST_VALUE)


def shown_names(names: Iterable[str]) -> str:
    """List names that a file holds for a message: the first twelve, each cut where it is long.

    Examples
    --------
    >>> shown_names(["step", "tokens"]), shown_names([])
    ("'step', 'tokens'", 'none')
    >>> shown_names(f"c{number}" for number in range(20))[-20:]
    "'c10', 'c11', 8 more"
    """
    names = list(names)
    shown = [shown_value(name) for name in names[:_MOST_NAMES]]
    more = [f"{len(names) - _MOST_NAMES:,} more"] if len(names) > _MOST_NAMES else []
    return ", ".join(shown + more) or "none"


def many(count: int, one: str, several: str = "") -> str:
    """Write a count with its word.

    Examples
    --------
    >>> many(1, "step"), many(3, "step"), many(2, "entry", "entries")
    ('1 step', '3 steps', '2 entries')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    try:
        return "" if part is None else str(part)
    except Exception:
        return shown_value(part)


def is_short(value: Any) -> bool:
    """Tell whether a message shows a value as a whole."""
    try:
        return len(repr(value)) <= _LONGEST_VALUE
    except Exception:
        return False


def _portable(value: Any) -> Any:
    if is_short(value):
        try:
            pickle.dumps(value)
            return value
        except Exception:
            pass  # of a foreign type, which may raise anything
    return Words(shown_value(value))


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is closest to a misspelt one, as a sentence; empty when none is close.

    Examples
    --------
    >>> nearest("max_policy_lagg", ["max_policy_lag", "seed"])
    "Did you mean 'max_policy_lag'?"
    >>> nearest("batch", ["seed", "batch_tokens"])
    "Did you mean 'batch_tokens'?"
    """
    if not isinstance(name, str):
        return ""
    names = [each for each in known if isinstance(each, str)]
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    close = close or [each for each in names if len(name) > 2 and each.startswith(f"{name}_")]
    return f"Did you mean {close[0]!r}?" if close else ""
