"""What every table of an ESS says of where it comes from: an assumed drift, or one that was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..config.config import PipelineConfig
    from ..spec.spec import SweepSpec

ASSUMED = "an assumption, not a measurement"
AXIS = "the axis's value"


def drift_words(config: PipelineConfig) -> str:
    """Say what the ESS of a configuration rests on: ``drift_per_version = 0.2``, or the records of a law.

    Examples
    --------
    >>> from lagsweep import DriftLaw, PipelineConfig
    >>> drift_words(PipelineConfig())
    'drift_per_version = 0.2'
    >>> law = DriftLaw.from_log_ratios([0], [[0.1, -0.1]], level="token", beyond="last", name="mine")
    >>> drift_words(PipelineConfig(drift=law))
    'the drift of mine, measured at lag 0 (lags beyond 0: as 0)'
    """
    if config.drift is None:
        return f"drift_per_version = {config.drift_per_version:g}"
    return f"the drift of {config.drift.words}"


def drift_words_of(spec: SweepSpec) -> str:
    """Say what the ESS of a sweep rests on, an axis's values or the base's."""
    axis = {field: spec.design.columns[name][1] for name, field in spec.design.fields.items()}
    if "drift" in axis:
        laws = [law for law in axis["drift"] if law is not None]
        measured = "; ".join(law.words for law in laws)
        said = f"the axis's drift: {measured}" if laws else "drift = none"
        if len(laws) == len(axis["drift"]):
            return said
        assumed = AXIS if "drift_per_version" in axis else f"{spec.base.drift_per_version:g}"
        return f"{said}; none: drift_per_version = {assumed}"
    if spec.base.drift is None and "drift_per_version" in axis:
        return f"drift_per_version = {AXIS}"
    return drift_words(spec.base)


def is_measured(spec: SweepSpec) -> bool:
    """Tell whether the drift of every cell was measured."""
    swept = [spec.design.columns[name][1] for name, field in spec.design.fields.items() if field == "drift"]
    return all(law is not None for law in (swept[0] if swept else (spec.base.drift,)))


def with_standing(words: str, measured: bool) -> str:
    """Add to what an ESS rests on that it was assumed, or what a measurement of it is worth.

    Examples
    --------
    >>> with_standing("drift_per_version = 0.2", measured=False)
    'drift_per_version = 0.2, an assumption, not a measurement'
    """
    if not measured:
        return f"{words}, {ASSUMED}"
    return f"{words}; few records know too little of the tail, so such an ESS is rather too high"


def standing_of(spec: SweepSpec) -> str:
    """Say what the ESS of a sweep rests on, and what that is worth."""
    return with_standing(drift_words_of(spec), is_measured(spec))


def drift_facts(spec: SweepSpec) -> dict[str, Any]:
    """Return the drift of a sweep for JSON: a number, and the laws where it was measured."""
    swept = [spec.design.columns[name][1] for name, field in spec.design.fields.items() if field == "drift"]
    laws = [law for law in (swept[0] if swept else (spec.base.drift,)) if law is not None]
    found: dict[str, Any] = {"drift_per_version": None if is_measured(spec) else spec.base.drift_per_version}
    if laws:
        found["drift"] = [
            {
                "name": law.name, "level": law.level, "lags": law.lags.tolist(), "beyond": law.beyond,
                "digest": law.digest,
                "normalized_ess": [law.normalized_ess(lag) for lag in law.lags.tolist()],
            }
            for law in laws
        ]  # fmt: skip
    return found
