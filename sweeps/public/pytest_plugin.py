"""Fixtures for tests of pipelines of your own; pytest finds them where lagsweep is installed.

Nothing but these few lines is loaded until a test asks for a fixture. ``pytest -p no:lagsweep`` leaves them
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .sweeps.gate.history import Event


@pytest.fixture(scope="session")
def check_buffer() -> Callable[..., None]:
    """The function ``lagsweep.testing.check_buffer``: hold a buffer of your own against its rules."""
    from .sweeps.testing.checking import check_buffer

    return check_buffer


@pytest.fixture(scope="session")
def simulated_history() -> Callable[..., list[Event]]:
    """``simulated_history(preset, **fields)``: a simulated run as a trainer's calls, made once a session.

    The first argument is a preset's name, or a ``PipelineConfig`` and then alone.
    """
    from .sweeps.config.config import PipelineConfig
    from .sweeps.gate.history import simulated_history as simulate
    from .sweeps.presets.registry import preset_config

    kept: list[tuple[PipelineConfig, list[Event]]] = []

    def history(of: PipelineConfig | str, **fields: Any) -> list[Event]:
        config = preset_config(of, **fields) if isinstance(of, str) else of.replace(**fields)
        for known, events in kept:
            if known == config:
                return list(events)
        kept.append((config, simulate(config)))
        return list(kept[-1][1])

    return history


@pytest.fixture(scope="session")
def made_records() -> Callable[..., list[dict[str, Any]]]:
    """The function ``lagsweep.testing.made_records``: rollout records without a flaw, the same every time."""
    from .sweeps.testing.records import made_records

    return made_records
