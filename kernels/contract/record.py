"""One rollout record under the rules: what it is compared with, how fields are read, how findings are made.

Values are read as they come from JSON, parquet or memory: lists, tuples or one-dimensional NumPy arrays,
Python or NumPy numbers. Nothing is converted, padded or cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arguments import is_whole
from ..errors import Words, nearest
from .findings import ContractFinding, make_finding
from .record_schema import OPTIONAL, REQUIRED, RecordSchema
from .schemas import better_schema


@dataclass(frozen=True)
class ContractLimits:
    """What the rules compare a record with; None leaves a rule out. See ``rollout_contract_errors``."""

    eos_token_ids: frozenset[int] | None = None
    vocabulary_size: int | None = None
    max_context_tokens: int | None = None
    published_version: int | None = None
    trainer_version: int | None = None
    max_policy_lag: int | None = None
    encode: Callable[[str], Any] | None = None


def all_whole(values: list[Any]) -> bool:
    """Say whether every value is a whole number, at the speed of built-ins for plain ids.

    Examples
    --------
    >>> all_whole([31, 15, 2]), all_whole([31, None])
    (True, False)
    """
    return set(map(type, values)) <= {int} or all(map(is_whole, values))


def is_finite(value: Any) -> bool:
    """Say whether a number is finite and fits a float.

    Examples
    --------
    >>> is_finite(1.0), is_finite(float("nan")), is_finite(10**400)
    (True, False, False)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def flat_list(value: Any) -> list[Any] | None:
    """Read a flat list of plain values from a list, tuple or one-dimensional array; None for anything else.

    Examples
    --------
    >>> flat_list(np.array([1, 2])), flat_list("12")
    ([1, 2], None)
    """
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 else None
    if not isinstance(value, list | tuple):
        return None
    if any(issubclass(kind, np.generic) for kind in set(map(type, value))):
        return [item.item() if isinstance(item, np.generic) else item for item in value]
    return list(value) if isinstance(value, tuple) else value


def is_blank(value: Any) -> bool:
    """Say whether an optional remark such as ``error`` is empty.

    Examples
    --------
    >>> is_blank(None), is_blank(""), is_blank({"type": "AgentError"})
    (True, True, False)
    """
    return value is None or (isinstance(value, str | int | float | list | tuple | Mapping) and not value)


class RecordCheck:
    """One record under the rules: reads fields by our names, reports by the system's."""

    def __init__(self, record: Mapping[str, Any], schema: RecordSchema, limits: ContractLimits) -> None:
        self.record = record
        self.schema = schema
        self.limits = limits
        self.values = schema.read(record)
        self.findings: list[ContractFinding] = []

    def add(
        self,
        code: str,
        name: str,
        rule: str,
        value: Any,
        way_out: str,
        *,
        inner: str = "",
        occurrences: int = 1,
    ) -> None:
        """Report a broken rule at a field, or at an index or name inside it."""
        path = self.schema.label(name) + inner
        self.findings.append(make_finding(code, path, rule, value, way_out, occurrences=occurrences))

    def get(self, name: str) -> Any:
        """Return a field's value; None where it is missing."""
        return self.values.get(name)

    def required(self, name: str) -> bool:
        """Say whether a field is there, reporting a required one that is not."""
        if name in self.values:
            return True
        if name in self.schema.required:
            way_out = self._where_it_may_be(name) or "Record it where the rollout is made."
            self.add("missing_field", name, "is required", Words("nothing"), way_out)
        return False

    def _where_it_may_be(self, name: str) -> str:
        """Say where a missing field lies: under another system's name, or misspelt; "" if neither."""
        known = {*REQUIRED, *OPTIONAL, *self.schema.fields.values()}
        other = better_schema(self.schema, self.record)
        if other is not None:
            label = other.fields.get(name) if other.fields else name
            if label in self.record:
                return f"It is {label!r} in schema {other.name!r}; check with that schema."
            # What has a meaning there is no misspelling of ours.
            known |= set(other.fields.values())
        others = [key for key in self.record if isinstance(key, str) and key not in known]
        return nearest(self.schema.label(name), others)

    def add_all(
        self, code: str, name: str, rule: str, values: list[Any], bad: list[int], way_out: str
    ) -> None:
        """Report every bad value of a list as one finding that shows the first."""
        if bad:
            more = "" if len(bad) == 1 else f", as {len(bad)} values are not"
            first = bad[0]
            self.add(
                code, name, rule + more, values[first], way_out, inner=f"[{first}]", occurrences=len(bad)
            )


def check_lag(check: RecordCheck, name: str, version: int) -> None:
    """Compare a version with the published one and with the lag limit.

    Examples
    --------
    >>> from lagsweep.kernels.contract.schemas import schema_named
    >>> limits = ContractLimits(trainer_version=10, max_policy_lag=2)
    >>> check = RecordCheck({}, schema_named("lagsweep"), limits)
    >>> check_lag(check, "policy_version", 8), check.findings
    (None, [])
    """
    limits = check.limits
    newest = limits.published_version if limits.published_version is not None else limits.trainer_version
    if newest is None:
        return
    if version > newest:
        kind = "published" if limits.published_version is not None else "trainer's"
        way_out = "Count the version up only after the weights were applied."
        check.add(
            "version_unpublished", name, f"must not exceed the {kind} version {newest}", version, way_out
        )
        return
    trainer = limits.trainer_version if limits.trainer_version is not None else newest
    if limits.max_policy_lag is not None and trainer - version > limits.max_policy_lag:
        oldest = trainer - limits.max_policy_lag
        rule = f"must be at least {oldest}, for a lag of {limits.max_policy_lag} or less"
        way_out = f"Its lag is {trainer - version}; drop it, or raise the limit."
        check.add("lag_over_limit", name, rule, version, way_out)
