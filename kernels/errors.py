"""The errors of Lagsweep.

::

    LagsweepError
    ├── ConfigError      (also a ValueError)    a setting or an argument breaks a rule
    ├── ContractError    (also a ValueError)    a rollout record breaks the contract
    ├── StoreError       (also a RuntimeError)  a stored sweep cannot be created, read or resumed
    └── CheckpointError  (also a RuntimeError)  a checkpoint cannot be written, read or trusted

Every message reads ``field: rule (got value). Way out.``; :func:`message` builds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class LagsweepError(Exception):
    """Root of all errors that Lagsweep raises on purpose."""


class ConfigError(LagsweepError, ValueError):
    """A setting or an argument breaks a rule; nothing was started or written."""


class ContractError(LagsweepError, ValueError):
    """A rollout record breaks the contract."""


class StoreError(LagsweepError, RuntimeError):
    """A stored sweep cannot be created, read, extended or resumed."""


class CheckpointError(LagsweepError, RuntimeError):
    """A checkpoint cannot be written, read or trusted."""


def message(field: str, rule: str, value: Any, way_out: str) -> str:
    """Build an error text: field, rule, value and way out, in that order.

    Examples
    --------
    >>> message("batch_tokens", "must be at least 1", 0, "Give a positive token budget.")
    'batch_tokens: must be at least 1 (got 0). Give a positive token budget.'
    """
    shown = repr(value)
    if len(shown) > 120:
        shown = shown[:117] + "..."
    return f"{field}: {rule} (got {shown}). {way_out}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is closest to a misspelt one, as a sentence; empty when none is close.

    Examples
    --------
    >>> nearest("max_policy_lagg", ["max_policy_lag", "seed"])
    "Did you mean 'max_policy_lag'?"
    """
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""
