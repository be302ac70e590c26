"""Columns of a user's file by what they mean: found by name, with the unit that the name or the user says.

A time whose unit nothing says is asked for, and one that its name calls seconds but that no engine could
have taken is refused: milliseconds read as seconds give an engine a thousand times too slow, and a fit that
looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...kernels.errors import ConfigError, Finding, nearest, shown_names
from ..checks import mapping_of, text_of
from ..laws.files import Columns

UNITS: dict[str, float] = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
_SHORT = {
    "s": "seconds", "sec": "seconds", "secs": "seconds", "second": "seconds", "ms": "milliseconds",
    "msec": "milliseconds", "millisecond": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
} | {name: name for name in UNITS}  # fmt: skip


@dataclass(frozen=True)
class Role:
    """What a column can be: its names in logs, and whether it is a time."""

    name: str
    words: str
    names: tuple[str, ...]
    is_time: bool = True


ARRIVAL = Role(
    "arrival", "when a request came",
    ("arrival", "arrival_time", "arrived", "arrived_at", "start", "start_time", "timestamp", "request_time",
     "submit_time", "sent"),
)  # fmt: skip
PROMPT = Role(
    "prompt", "tokens of its prompt",
    ("prompt", "prompt_tokens", "input_tokens", "input_len", "input_length", "prompt_len", "prompt_length",
     "num_prompt_tokens", "context_tokens", "isl"),
    is_time=False,
)  # fmt: skip
OUTPUT = Role(
    "output", "tokens of its answer",
    ("output", "output_tokens", "output_len", "output_length", "generated_tokens", "generation_tokens",
     "num_output_tokens", "num_generation_tokens", "response_tokens", "response_length",
     "completion_tokens", "osl"),
    is_time=False,
)  # fmt: skip
END_TO_END = Role(
    "end_to_end", "from its arrival to its last token",
    ("end_to_end", "e2e", "e2el", "e2e_latency", "latency", "request_latency", "total_time", "duration"),
)  # fmt: skip
FIRST_TOKEN = Role(
    "first_token", "from its arrival to its first token", ("first_token", "ttft", "time_to_first_token")
)
DECODE = Role("decode", "from its first token to its last", ("decode", "decode_time", "decode_latency"))
PER_TOKEN = Role(
    "per_token", "time of a token after the first",
    ("per_token", "tpot", "time_per_token", "time_per_output_token", "mean_itl"),
)  # fmt: skip
QUEUE_WAIT = Role(
    "queue_wait", "from its arrival until it runs", ("queue_wait", "queue", "queue_time", "waiting_time")
)
RUNNING = Role(
    "running", "rollouts that run at once",
    ("running", "concurrency", "num_running", "running_requests", "num_requests_running", "batch_size"),
    is_time=False,
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A column that was found: its name in the file, and the unit of a time with who says so."""

    column: str
    unit: str = ""
    said_by: str = ""

    def __str__(self) -> str:
        """Write it as tables show it."""
        return f"{self.column!r}, {self.unit} by its {self.said_by}" if self.unit else repr(self.column)


def unit_of(name: str) -> tuple[str, str]:
    """Split a column's name into what it is and the unit that it says, if any.

    Examples
    --------
    >>> unit_of("ttft_ms"), unit_of("Arrival Time"), unit_of("ms_per_token")
    (('ttft', 'milliseconds'), ('arrival_time', ''), ('per_token', 'milliseconds'))
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    first, _, rest = plain.partition("_")
    before, _, last = plain.rpartition("_")
    if before and last in _SHORT:
        return before, _SHORT[last]
    if rest and first in _SHORT:
        return rest, _SHORT[first]
    return plain, ""


def chosen(
    roles: Iterable[Role], present: Sequence[str], given: Mapping[str, str]
) -> tuple[dict[str, str], list[Finding]]:
    """Find the column of each role: the given one, or the only one whose name is one of the role's.

    Returns
    -------
    (dict, list of Finding)
        Role -> column, for those that are there, and what is wrong.
    """
    found: dict[str, str] = {}
    findings = []
    for role in roles:
        if role.name in given:
            column = given[role.name]
            if column not in present:
                way_out = nearest(column, present) or f"It has {shown_names(present)}."
                findings.append(
                    Finding(f"--column {role.name}", "must be a column of the file", column, way_out)
                )
                continue
            found[role.name] = column
            continue
        fitting = [column for column in present if unit_of(column)[0] in role.names]
        if len(fitting) > 1:
            rule = f"several columns can be it ({role.words}): {', '.join(map(repr, fitting))}"
            way_out = f"Say which: --column {role.name}={fitting[0]}."
            findings.append(Finding(f"column of {role.name}", rule, way_out=way_out))
        elif fitting:
            found[role.name] = fitting[0]
    return found, findings


def missing(roles: Iterable[Role], found: Mapping[str, str], present: Sequence[str]) -> list[Finding]:
    """Word which roles have no column."""
    return [
        Finding(
            f"column of {role.name}",
            f"is required ({role.words}); the file has {shown_names(present)}",
            way_out=f"Name it: --column {role.name}=NAME.",
        )
        for role in roles
        if role.name not in found
    ]


def units(
    roles: Iterable[Role], found: Mapping[str, str], given: Mapping[str, str]
) -> tuple[dict[str, Found], list[Finding]]:
    """Say the unit of each column that is a time: the given one, or the one in its name.

    `given` maps roles, or ``all``, to units.
    """
    result: dict[str, Found] = {}
    findings = []
    for role in roles:
        column = found.get(role.name)
        if column is None:
            continue
        if not role.is_time:
            result[role.name] = Found(column)
            continue
        said = given.get(role.name, given.get("all", ""))
        by_name = unit_of(column)[1]
        if said or by_name:
            result[role.name] = Found(column, said or by_name, "flag" if said else "name")
        else:
            rule = f"column {column!r} must have a unit, and its name says none"
            way_out = f"Say it: --unit {role.name}=seconds, or milliseconds, or --unit for all at once."
            findings.append(Finding(f"unit of {role.name}", rule, way_out=way_out))
    return result, findings


def checked_names(field: str, given: Mapping[str, str] | None, roles: Iterable[Role]) -> dict[str, str]:
    """Check what the user said of roles: role -> column."""
    known = [role.name for role in roles]
    found = mapping_of(field, given, f"Give a mapping of {', '.join(known)}.")
    for name, value in found.items():
        text_of(f"{field} {name}", value, "Give a column's name.")
        if name not in known:
            rule = f"must be one of {', '.join(known)}"
            raise ConfigError(field, rule, name, nearest(name, known))
    return found


def checked_units(
    given: Mapping[str, str] | str | None, roles: Iterable[Role], field: str = "unit"
) -> dict[str, str]:
    """Check what the user said of units: one for all times, or role -> unit."""
    known = [role.name for role in roles if role.is_time]
    way_out = f"Give a unit ({', '.join(UNITS)}), or one for each of {', '.join(known)}."
    found = {"all": given} if isinstance(given, str) else mapping_of(field, given, way_out)
    for name, value in found.items():
        if name not in ("all", *known):
            raise ConfigError(field, f"must be one of {', '.join(known)}", name, nearest(name, known))
        if not isinstance(value, str) or value.lower() not in _SHORT:
            raise ConfigError(f"{field} {name}", f"must be one of {', '.join(UNITS)}", value, "Choose one.")
    return {name: _SHORT[value.lower()] for name, value in found.items()}


def numbers(
    columns: Columns, found: Mapping[str, Found], roles: Iterable[Role], findings: list[Finding]
) -> dict[str, np.ndarray]:
    """Read the columns that were found: lengths as int64, times in seconds; add what is wrong to a list."""
    values = {}
    for role in roles:
        if role.name not in found:
            continue
        one = found[role.name]
        read: Callable[[str], np.ndarray] = columns.seconds if role.is_time else columns.lengths
        read = columns.seconds if role is RUNNING else read  # means of running rollouts have fractions
        try:
            values[role.name] = read(one.column) * (UNITS[one.unit] if role.is_time else 1)
        except ConfigError as error:
            findings += error.findings
    return values


class Table:
    """A user's file, some columns of which are roles.

    Parameters
    ----------
    path : path
    roles : sequence of Role
        Those that may be there.
    required : sequence of Role
        Those that must.
    columns, where : mapping
        Role -> column, where the user names it; column -> text of the rows to keep.
    unit : str or mapping
        Of all times, or role -> unit.

    Raises
    ------
    ConfigError
        With every finding about names and units.
    """

    def __init__(
        self,
        path: str | Path,
        roles: Sequence[Role],
        required: Sequence[Role],
        *,
        columns: Mapping[str, str] | None = None,
        unit: Mapping[str, str] | str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> None:
        given = checked_names("column", columns, roles)
        said = checked_units(unit, roles)
        wanted = mapping_of("where", where, "Give column names and the text of the rows to keep.")
        wanted = {name: text_of(f"where {name}", text, "Give it as text.") for name, text in wanted.items()}
        self.roles = roles
        self.found: dict[str, Found] = {}

        def choose(present: Sequence[str]) -> list[str]:
            by_role, findings = chosen(roles, present, given)
            ambiguous = {finding.field.rpartition(" ")[2] for finding in findings}
            needed = [role for role in required if role.name not in ambiguous]
            findings += missing(needed, by_role, present)
            self.found, more = units(roles, by_role, said)
            if findings or more:
                raise ConfigError(*findings, *more)
            return [*by_role.values(), *wanted]

        self.columns = Columns(path, choose)
        if wanted:
            self.columns.keep(wanted)

    def numbers(self, findings: list[Finding]) -> dict[str, np.ndarray]:
        """Read the roles' columns."""
        return numbers(self.columns, self.found, self.roles, findings)
