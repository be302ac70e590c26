"""Base classes of rules, lengths and metrics of your own; see the page on custom rules."""

from __future__ import annotations

from .sweeps.custom.custom import Custom
from .sweeps.custom.rules import (
    AdmissionRule,
    AdmissionState,
    LengthProcess,
    RolloutStart,
    RunMetric,
    uniforms,
)

__all__ = [
    "AdmissionRule",
    "AdmissionState",
    "Custom",
    "LengthProcess",
    "RolloutStart",
    "RunMetric",
    "uniforms",
]
