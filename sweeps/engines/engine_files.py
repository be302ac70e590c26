"""Engines as files: ``ENGINE.toml`` with the engine's fields and, below them, what was fitted on what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..json_text import plain_data
from ..spec.writing import toml_value
from .estimate import Estimate

if TYPE_CHECKING:
    from .engine_fit import EngineFit

_HEAD = """\
# An inference engine, fitted by `lagsweep engine fit`. Use it as `engine = {{ file = "{name}" }}` in a spec,
# or as `--engine {name}`. What stands under [fitted] says where it is from and is not read.
"""


def engine_fields(fit: EngineFit) -> dict[str, Any]:
    """Return the fields of a fitted engine that are not their default, as plain numbers of six digits."""
    engine = fit.engine
    fields: dict[str, Any] = {"count": engine.count} if engine.count != 1 else {}
    for one in fit.coefficients:
        fields[one.name] = float(f"{getattr(engine, one.name):.6g}")
    for name in ("kv_cache_tokens", "max_running"):
        if getattr(engine, name) is not None:
            fields[name] = int(getattr(engine, name))
    if engine.count > 1:
        fields["routing"] = engine.routing
    return fields


def provenance(fit: EngineFit) -> dict[str, Any]:
    """Return what an engine was fitted on, as plain data."""
    deployment, requests = fit.deployment, fit.requests
    about = {
        "model": deployment.shape.name,
        "accelerator": deployment.accelerator.name,
        "tensor_parallel": deployment.tensor_parallel,
        "engines": deployment.engines,
        "expert_parallel": deployment.expert_parallel,
        "engine_format": deployment.engine_format,
        "cache_format": deployment.cache_format,
        "requests": Path(requests.source).name,
        "columns": {name: str(found) for name, found in requests.columns.items()},
        "rows": len(requests),
        "rows_fitted": fit.fitted.requests,
        "limits": dict(fit.given),
    }
    found: dict[str, Any] = plain_data(about)
    return found


def engine_toml(fit: EngineFit, name: str = "engine.toml") -> str:
    """Write a fitted engine as TOML.

    Parameters
    ----------
    fit : EngineFit
    name : str
        What the file will be called.
    """
    held = fit.held.as_dict() if fit.held else {}
    sections: dict[str, Mapping[str, Any]] = {
        "fitted": provenance(fit),
        "fitted.intervals": {one.name: _ends(one) for one in fit.coefficients},
        "fitted.parameters": {one.name: {**_ends(one), "told_by": one.told_by} for one in fit.parameters},
        "fitted.errors_on_held_rows": {key: _short(value) for key, value in held.items() if value == value},
    }
    lines = [_HEAD.format(name=name), *_entries(engine_fields(fit))]
    for title, entries in sections.items():
        if entries:
            lines += ["", f"[{title}]", *_entries(entries)]
    lines += ["", "[fitted.notes]", f"said = {toml_value(list(fit.notes))}"]
    return "\n".join(lines) + "\n"


def _entries(entries: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in entries.items()]


def _ends(one: Estimate) -> dict[str, float]:
    return {"value": _short(one.value), "low": _short(one.low), "high": _short(one.high)}


def _short(value: float) -> float:
    return float(f"{value:.4g}")
