"""Requests as logs and benchmarks have them: arrivals, prompts, answers, and what was measured of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...kernels.errors import ConfigError, Finding
from ..checks import flag_of
from .columns import (
    ARRIVAL,
    DECODE,
    END_TO_END,
    FIRST_TOKEN,
    OUTPUT,
    PER_TOKEN,
    PROMPT,
    QUEUE_WAIT,
    Found,
    Table,
)

ROLES = (ARRIVAL, PROMPT, OUTPUT, END_TO_END, FIRST_TOKEN, DECODE, PER_TOKEN, QUEUE_WAIT)
MEASURED = (END_TO_END, FIRST_TOKEN, DECODE, PER_TOKEN, QUEUE_WAIT)
# A token of a large model over a slow network takes less, one of a small model on a fast card more.
_TOKEN_SECONDS = (5e-5, 3.0)


@dataclass(frozen=True)
class Requests:
    """Requests, in the order of the file.

    Attributes
    ----------
    prompt_tokens, output_tokens : ndarray of int64
    arrival_seconds : ndarray of float64, optional
        From the first one on; None if all came at once.
    measured : mapping of str to ndarray of float64
        Seconds: ``end_to_end``, ``first_token``, ``per_token``, ``queue_wait``, as far as they are known.
    source : str
        The file.
    columns : mapping of str to Found
        What was read as what.
    notes : tuple of str
        What a reader should know of them.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    arrival_seconds: np.ndarray | None = None
    measured: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""
    columns: Mapping[str, Found] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.prompt_tokens)


def read_requests(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    unit: Mapping[str, str] | str | None = None,
    where: Mapping[str, str] | None = None,
    all_at_once: bool = False,
) -> Requests:
    """Read a request log.

    Parameters
    ----------
    path : path
        CSV, JSON lines or parquet, plain or with .gz.
    columns : mapping, optional
        What columns are, where their names do not say it: ``arrival``, ``prompt``, ``output``,
        ``end_to_end``, ``first_token``, ``decode``, ``per_token``, ``queue_wait``.
    unit : str or mapping, optional
        Of all times, or of some: ``seconds``, ``milliseconds``, ``microseconds``, ``nanoseconds``. Needed
        where a column's name does not say it.
    where : mapping, optional
        Keep the rows in which a column holds this text.
    all_at_once : bool
        All requests came together; there is no column of arrivals.

    Returns
    -------
    Requests

    Raises
    ------
    ConfigError
        With every finding: columns that are missing or could be several, units that nothing says, cells
        that are no numbers, times that no engine takes.
    """
    all_at_once = flag_of("all_at_once", all_at_once)
    roles = tuple(role for role in ROLES if not (all_at_once and role is ARRIVAL))
    required = tuple(role for role in (ARRIVAL, PROMPT, OUTPUT) if role in roles)
    table = Table(path, roles, required, columns=columns, unit=unit, where=where)
    findings: list[Finding] = []
    values = table.numbers(findings)
    if findings:
        raise ConfigError(*findings)
    measured = _completed(values)
    findings = _implausible(values, table.found)
    if findings:
        raise ConfigError(*findings)
    arrival = values.get("arrival")
    notes: tuple[str, ...] = ()
    if arrival is not None:
        notes = _notes_on(arrival)
        arrival = arrival - arrival.min()
    return Requests(values["prompt"], values["output"], arrival, measured, str(path), table.found, notes)


def _completed(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Work out of what was measured the four times that a comparison needs, as far as they follow."""
    end, first, decode, each = (
        values.get(role.name) for role in (END_TO_END, FIRST_TOKEN, DECODE, PER_TOKEN)
    )
    steps = np.maximum(values["output"] - 1, 1)
    if decode is None and end is not None and first is not None:
        decode = end - first
    if decode is None and each is not None:
        decode = each * (values["output"] - 1)
    if each is None and decode is not None:
        each = np.where(values["output"] > 1, decode / steps, np.nan)
    if first is None and end is not None and decode is not None:
        first = end - decode
    if end is None and first is not None and decode is not None:
        end = first + decode
    known = {"end_to_end": end, "first_token": first, "per_token": each}
    known["queue_wait"] = values.get("queue_wait")
    return {name: value for name, value in known.items() if value is not None}


def _implausible(values: Mapping[str, np.ndarray], found: Mapping[str, Found]) -> list[Finding]:
    """Find times whose unit cannot be what the column's name says; what a flag says is believed."""
    findings = []
    tokens = np.maximum(values["output"], 1)
    for role, count in ((END_TO_END, tokens), (DECODE, tokens), (PER_TOKEN, np.ones(len(tokens)))):
        if role.name not in values or found[role.name].said_by != "name":
            continue
        typical = float(np.median(values[role.name] / count))
        if not _TOKEN_SECONDS[0] <= typical <= _TOKEN_SECONDS[1]:
            rule = f"column {found[role.name].column!r} would be {typical:,.3g} s a token, as no engine takes"
            findings.append(_finding(role.name, rule))
    end, first = values.get("end_to_end"), values.get("first_token")
    if end is not None and first is not None and not findings and (first > end * 1.001).any():
        row = int(np.argmax(first > end * 1.001)) + 1
        rule = f"must not be after the last token, as in row {row}: {found['first_token']}"
        findings.append(_finding("first_token", rule))
    findings += _too_sparse(values, found)
    return findings


def _too_sparse(values: Mapping[str, np.ndarray], found: Mapping[str, Found]) -> list[Finding]:
    """Find arrivals a thousand times too far apart: nobody else is there, and yet requests wait."""
    end, arrival = values.get("end_to_end"), values.get("arrival")
    wait = values.get("queue_wait", values.get("first_token"))
    if end is None or arrival is None or wait is None or found["arrival"].said_by != "name" or len(end) < 10:
        return []
    span = float(np.ptp(arrival))
    at_once = end.sum() / span if span else np.inf
    if at_once >= 0.5 or float(np.median(wait)) < 0.5:
        return []
    rule = (
        f"column {found['arrival'].column!r} would leave {at_once:.2g} requests at once, and yet they wait "
        f"{float(np.median(wait)):.3g} s for their first token"
    )
    return [_finding("arrival", rule)]


def _finding(role: str, rule: str) -> Finding:
    way_out = f"If so, say --unit {role}=milliseconds; if it is right, --unit {role}=seconds."
    return Finding(f"unit of {role}", f"{rule}: it looks like another unit", way_out=way_out)


def _notes_on(arrival: np.ndarray) -> tuple[str, ...]:
    span = float(np.ptp(arrival))
    back = int((np.diff(arrival) < -span / 2).sum()) if span else 0
    if not back:
        return ()
    return (
        f"arrivals go back to the beginning {back} times: if the file holds several runs, pick one with "
        "--where COLUMN=TEXT",
    )
