"""The engine commands' answers as data, and the text of ``show``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.text import grid, terminal_width, wrapped
from .agreement import Agreement, agreement
from .engine_files import engine_fields, provenance
from .over_time import most_at_once
from .text import error_rows, sentences, time_rows

if TYPE_CHECKING:
    from ..config.engine import Engine
    from ..runs.engines import EngineResult
    from .engine_fit import EngineFit
    from .requests import Requests


def fit_facts(fit: EngineFit) -> dict[str, Any]:
    """Return a fit as plain data."""
    return {
        "engine": engine_fields(fit),
        "fitted": provenance(fit),
        "parameters": [one.as_dict() for one in fit.parameters],
        "coefficients": [one.as_dict() for one in fit.coefficients],
        "errors": {
            "fitted": fit.fitted.as_dict(),
            "held": fit.held.as_dict() if fit.held else None,
        },
        "notes": list(fit.notes),
    }


def matched(requests: Requests, times: Mapping[str, np.ndarray]) -> Agreement | None:
    """Compare with what was measured, if anything was."""
    if not {"per_token", "end_to_end"} & set(requests.measured):
        return None
    return agreement(times, requests.measured, np.ones(len(requests), dtype=bool))


def show_facts(
    engine: Engine, requests: Requests, result: EngineResult, times: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return requests on an engine as plain data."""
    found = matched(requests, times)
    most = most_at_once(result)
    return {
        "engine": engine.model_dump(),
        "requests": len(requests),
        "columns": {name: str(one) for name, one in requests.columns.items()},
        "totals": dict(result.totals),
        "most": dict(zip(("running", "waiting", "kv_tokens"), most)),
        "seconds": {name: _quantiles(values) for name, values in times.items() if np.isfinite(values).any()},
        "errors": None if found is None else found.as_dict(),
        "notes": list(requests.notes),
    }


def _quantiles(values: np.ndarray) -> dict[str, float]:
    known = values[np.isfinite(values)]
    names = ("median", "percentile_90", "percentile_99")
    return {"mean": float(known.mean()), **dict(zip(names, np.percentile(known, (50, 90, 99)).tolist()))}


def shown_text_of(
    engine: Engine,
    requests: Requests,
    result: EngineResult,
    times: Mapping[str, np.ndarray],
    written: Sequence[str],
) -> str:
    """Return what ``lagsweep engine show`` prints."""
    width = terminal_width()
    running, waiting, context = most_at_once(result)
    read = "; ".join(f"{name} {found}" for name, found in requests.columns.items())
    parts = [wrapped(f"{len(requests):,} requests: {read}.", width=width), ""]
    header, rows = time_rows(result.requests_frame(), requests.measured)
    parts += [grid(header, rows, left=[0], width=width), ""]
    found = matched(requests, times)
    if found is not None:
        parts += [grid(*error_rows({"requests": found}), left=[0], width=width), ""]
    parts += [wrapped(one, width=width) for one in sentences(result.totals, running, waiting, float(context))]
    if engine.kv_cache_tokens is not None:
        share = context / engine.kv_cache_tokens
        parts.append(wrapped(f"That is {share:.0%} of the cache that an engine has.", width=width))
    parts += [wrapped(note, first="- ", indent="  ", width=width) for note in requests.notes]
    if written:
        parts.append(f"written: {', '.join(written)}")
    return "\n".join(parts)
