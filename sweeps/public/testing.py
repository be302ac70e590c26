"""Tests of pipelines of your own: strategies, a check of buffers, made-up data; needs hypothesis."""

from __future__ import annotations

from .kernels.errors import ConfigError

try:
    import hypothesis as _hypothesis  # noqa: F401
except ImportError:  # pragma: no cover - of an installation without the extra
    raise ConfigError(
        "lagsweep.testing", "needs the package hypothesis", None, "pip install 'lagsweep[testing]'."
    ) from None

from .sweeps.gate.history import Event, simulated_history
from .sweeps.testing.broken_rules import RULE_NAMES, BufferRuleBroken
from .sweeps.testing.buffer_rules import BufferRules
from .sweeps.testing.checking import check_buffer
from .sweeps.testing.configurations import configurations, preset_configurations
from .sweeps.testing.machine import Buffer, BufferMachine
from .sweeps.testing.records import (
    arbitrary_records,
    damaged_records,
    good_record,
    json_values,
    made_records,
    rollout_records,
)
from .sweeps.testing.steps import Item, Publish, Put, Restore, Save, Step, Take, histories
from .sweeps.testing.weights import completions, importance_weights, log_ratios, token_masks

__all__ = [
    "RULE_NAMES",
    "Buffer",
    "BufferMachine",
    "BufferRuleBroken",
    "BufferRules",
    "Event",
    "Item",
    "Publish",
    "Put",
    "Restore",
    "Save",
    "Step",
    "Take",
    "arbitrary_records",
    "check_buffer",
    "completions",
    "configurations",
    "damaged_records",
    "good_record",
    "histories",
    "importance_weights",
    "json_values",
    "log_ratios",
    "made_records",
    "preset_configurations",
    "rollout_records",
    "simulated_history",
    "token_masks",
]
