"""A fitted engine: parameters and coefficients with intervals, how well it matches, what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import text_of
from ..config.engine import Engine
from ..runs.engines import EngineResult
from .agreement import Agreement
from .estimate import Estimate, Optimum, interval
from .roofline import Deployment

if TYPE_CHECKING:
    from .requests import Requests
    from .stages import Stages

_COEFFICIENTS = {
    "step_seconds": ("fixed part of a step", "s"),
    "step_seconds_per_rollout": ("for each rollout in it", "s"),
    "step_seconds_per_context_token": ("for each token of context", "s"),
    "prefill_seconds_per_token": ("for each token prefilled", "s"),
}


@dataclass(frozen=True)
class EngineFit:
    """An engine that was fitted, and how well.

    Attributes
    ----------
    engine : Engine
    deployment : Deployment
        The model on its cards.
    parameters, coefficients : tuple of Estimate
        What was fitted, and the engine's coefficients that follow.
    fitted, held : Agreement
        Errors on the requests that the loss saw, and on the others; None where none was held.
    optimum : Optimum
    requests : Requests or Stages
    fitted_requests : ndarray of bool
    result : EngineResult, optional
        All requests on the fitted engine; None for a fit to load stages.
    given : mapping
        What was not fitted, and who said it.
    notes : tuple of str
        What the data do not tell, and what to mind.
    """

    engine: Engine
    deployment: Deployment
    parameters: tuple[Estimate, ...]
    coefficients: tuple[Estimate, ...]
    fitted: Agreement
    held: Agreement | None
    optimum: Optimum
    requests: Requests | Stages
    fitted_requests: np.ndarray
    result: EngineResult | None
    given: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write what was fitted, its errors and its doubts, in 80 columns."""
        from .text import fit_text

        return fit_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        from .report import fit_facts

        return fit_facts(self)

    def to_toml(self, name: str = "engine.toml") -> str:
        """Write the engine and what it was fitted on as TOML; `name` is what the file will be called."""
        from .engine_files import engine_toml

        return engine_toml(self, text_of("name", name, "Give a file's name."))


def coefficients_of(best: Optimum, deployment: Deployment, running: float) -> tuple[Estimate, ...]:
    """Return the engine's coefficients with the intervals that the parameters leave them."""
    at = deployment.coefficients(best.parameters(), running)
    drawn = [deployment.coefficients(one, running) for one in best.draws]
    found = []
    for name, (words, unit) in _COEFFICIENTS.items():
        value = float(at[name])
        ends = interval(np.array([one[name] for one in drawn]), value)
        found.append(Estimate(name, words, unit, value, *ends))
    return tuple(found)
