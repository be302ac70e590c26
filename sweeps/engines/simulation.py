"""Requests on an engine, by the same kernels as a pipeline's."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..config.engine import Engine
from ..runs.engines import EngineResult, simulate_engine
from ..spec.engine_files import engine_table
from .requests import Requests


def predicted(engine: Engine, requests: Requests) -> tuple[EngineResult, dict[str, np.ndarray]]:
    """Simulate requests on an engine, and give the times that a log has."""
    result = simulate_engine(engine, requests.prompt_tokens, requests.output_tokens, requests.arrival_seconds)
    frame = result.requests_frame()
    names = {
        "per_token": "seconds_per_token",
        "end_to_end": "end_to_end_seconds",
        "first_token": "first_token_seconds",
        "queue_wait": "queue_wait_seconds",
    }
    return result, {name: frame[column].to_numpy().astype(np.float64) for name, column in names.items()}


def load_engine(path: str | Path) -> Engine:
    """Read an engine from a TOML file; what stands under [fitted] is not read.

    Raises
    ------
    ConfigError
        With every finding.
    """
    return Engine(**engine_table(path))
