"""Everything that touches the world: configurations, files, stores, processes, terminals and pages.

Names that a user of the course's notebook imports are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LAZY: dict[str, str] = {
    "PipelineConfig": "lagsweep.sweeps.config.config",
    "simulate_pipeline": "lagsweep.sweeps.runs.simulate",
    "result_row": "lagsweep.sweeps.runs.simulate",
    "make_checkpoint": "lagsweep.sweeps.checkpoint.checkpoint",
    "checkpoint_as_dict": "lagsweep.sweeps.checkpoint.checkpoint",
    "recovery_drill": "lagsweep.sweeps.checkpoint.drill",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562) and keep it."""
    try:
        module_name = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'lagsweep.sweeps' has no attribute {name!r}") from None
    value = getattr(import_module(module_name), name)
    globals()[name] = value
    return value
