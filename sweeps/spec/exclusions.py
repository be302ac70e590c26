"""Which cells of a sweep are left out, and why: a constraint of the user's, or a cache below one rollout."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.errors import ConfigError
from ..config.rules import missing_cache_tokens
from .axes import ENGINE_PREFIX
from .cells import unchecked_config

if TYPE_CHECKING:
    from .spec import SweepSpec

_CACHE = f"{ENGINE_PREFIX}kv_cache_tokens"
MOST_REASONS = 5


def missing_tokens(spec: SweepSpec) -> np.ndarray:
    """Tell by how many tokens each cell's cache is too small for one rollout (int64, the design's shape).

    Only where an axis sets the cache or what must fit it: a base that does not fit is refused as it is.
    """
    found = np.zeros(spec.design.shape, np.int64)
    fields = set(spec.design.fields.values())
    if not fields & {"engine", _CACHE} and not (
        spec.base.engine and fields & {"prompt_tokens", "response_length"}
    ):
        return found
    flat = found.reshape(-1)
    for cell in range(spec.design.size):
        flat[cell] = _missing_in(spec, cell)
    return found


def _missing_in(spec: SweepSpec, cell: int) -> int:
    settings = spec.design.settings(cell)
    try:
        return missing_cache_tokens(unchecked_config(spec.base, settings))
    except ConfigError as error:  # a preset checks the whole
        given = [finding.value for finding in error.findings if finding.field == _CACHE]
    if not given:
        return 0
    try:
        unlimited = unchecked_config(spec.base, {**settings, _CACHE: None})
    except ConfigError:
        return 0
    return unlimited.prompt_tokens + unlimited.response_length.maximum - int(given[0])


def exclusion_reasons(spec: SweepSpec, *, constraints: bool = True) -> list[str]:
    """Say why cells are left out, each reason with the number of its cells; empty where none is.

    Parameters
    ----------
    spec : SweepSpec
    constraints : bool
        Also name the constraints, which the user wrote.

    Examples
    --------
    >>> import lagsweep as ls
    >>> base = ls.PipelineConfig(engine=ls.Engine(step_seconds=0.01, kv_cache_tokens=9000))
    >>> from lagsweep.sweeps.spec.make import make_spec
    >>> for text in exclusion_reasons(make_spec(base, {"engine.kv_cache_tokens": [1000, 4000]}, 1)):
    ...     print(text)
    1 cell: engine.kv_cache_tokens is 1,048 tokens short of one rollout (prompt and longest response)
    """
    missing = spec.missing_cache_tokens
    counts = Counter(missing[missing > 0].tolist())
    found = [
        f"{_cells(count)}: {_CACHE} is {tokens:,} tokens short of one rollout (prompt and longest response)"
        for tokens, count in sorted(counts.items())
    ]
    if len(found) > MOST_REASONS:
        rest = sum(count for _, count in sorted(counts.items())[MOST_REASONS - 1 :])
        least = sorted(counts)[MOST_REASONS - 1]
        found = [
            *found[: MOST_REASONS - 1],
            f"{_cells(rest)}: {_CACHE} is {least:,} tokens or more short of it",
        ]
    broken = int((spec.excluded & (missing == 0)).sum())
    if broken and constraints:
        rules = ", ".join(spec.constraints)
        found.append(f"{_cells(broken)} {'break' if broken > 1 else 'breaks'} a constraint: {rules}")
    return found


def _cells(count: int) -> str:
    return f"{count:,} cell" + ("s" if count > 1 else "")
