"""An engine from a fit to samples, and its file: per token of a rollout where a step gives several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import NO_VALUE, ConfigError
from ..config.engine import Engine
from ..json_text import plain_data
from ..spec.writing import toml_value

if TYPE_CHECKING:
    from .engine_samples_fit import EngineSamplesFit

_FIELDS = ("step_seconds", "step_seconds_per_rollout", "step_seconds_per_context_token")
_HEAD = """\
# An inference engine, fitted by `lagsweep engine fit --samples`. Use it as `engine = {{ file = "{name}" }}`
# in a spec, or as `--engine {name}`. What stands under [fitted] says where it is from and is not read.
"""


def sampled_engine(fit: EngineSamplesFit) -> Engine:
    """Build the engine that a fit tells; prefill is not told by samples of decoding alone, and costs nothing.

    With speculation a step gives several tokens: coefficients are divided by the middle of the accepted
    lengths, so that a rollout decodes as fast. Ranks that step together are as many engines.

    Raises
    ------
    ConfigError
        If the fit was refused.
    """
    if fit.refusals:
        rule = f"must be a fit ({fit.refused})"
        raise ConfigError("fit", rule, NO_VALUE, "Give samples that tell the length of a step.")
    accepted = fit.windows.accepted_tokens
    fields = {
        one.name: float(f"{one.value / accepted:.6g}") for one in fit.coefficients if one.name in _FIELDS
    }
    return Engine(count=fit.windows.ranks, kv_cache_tokens=fit.log.pool_tokens, **fields)


def sampled_engine_toml(fit: EngineSamplesFit, name: str = "engine.toml") -> str:
    """Write the engine of a fit as TOML; `name` is what the file will be called.

    Raises
    ------
    ConfigError
        If the fit was refused.
    """
    engine = sampled_engine(fit)
    fields: dict[str, Any] = {"count": engine.count} if engine.count != 1 else {}
    fields |= {key: getattr(engine, key) for key in _FIELDS if getattr(engine, key) or key == "step_seconds"}
    if engine.kv_cache_tokens is not None:
        fields["kv_cache_tokens"] = engine.kv_cache_tokens
    about = {
        "samples": Path(fit.log.source).name,
        "engine": fit.log.engine,
        "samples_fitted": fit.kept,
        "median_error": float(f"{fit.median_error:.4g}"),
        "accepted_tokens": fit.windows.accepted_tokens,
        "columns": dict(fit.log.columns),
    }
    if fit.constant_running is not None:
        about["constant_running"] = fit.constant_running
    ends = {one.name: {"value": one.value, "low": one.low, "high": one.high} for one in fit.coefficients}
    said = [*fit.notes, "prefill is not in these samples: prefill_seconds_per_token is left at 0"]
    lines = [_HEAD.format(name=name), *_entries(fields), "", "[fitted]", *_entries(plain_data(about))]
    lines += ["", "# Of a step, in seconds.", "[fitted.intervals]", *_entries(_short(ends))]
    return "\n".join([*lines, "", "[fitted.notes]", f"said = {toml_value(said)}"]) + "\n"


def _entries(entries: dict[str, Any]) -> list[str]:
    return [f"{key} = {toml_value(value)}" for key, value in entries.items()]


def _short(ends: dict[str, dict[str, float]]) -> dict[str, Any]:
    return {name: {key: float(f"{value:.4g}") for key, value in one.items()} for name, one in ends.items()}
