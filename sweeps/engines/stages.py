"""Engines fitted to load stages: how many rollouts ran at once, how long they were, what a token took.

A row is one stage of a load test or one window of an engine's log, in a steady state: the time of a token is
the mean step, a + b n + c n (prompt + output / 2). Prefill is not told apart from the cache: where rollouts
come and go at the same rate, both grow with n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, Finding
from ..checks import WholeNumber, checked
from .agreement import Agreement
from .columns import OUTPUT, PER_TOKEN, PROMPT, RUNNING, Found, Table
from .doubts import doubts
from .engine_fit import EngineFit, coefficients_of
from .estimate import Optimum, optimum
from .roofline import Deployment, Prior
from .simulation import Engine

ROLES = (RUNNING, PROMPT, OUTPUT, PER_TOKEN)
FEWEST = 3


@dataclass(frozen=True)
class Stages:
    """Load stages: rollouts at once, tokens of their context at half time, seconds of a token."""

    running: np.ndarray
    context_tokens: np.ndarray
    seconds_per_token: np.ndarray
    source: str = ""
    columns: Mapping[str, Found] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.running)

    def without(self, place: int) -> Stages:
        """Leave one out, by its place from 0."""
        place = checked(WholeNumber, "place", place, low=0, high=len(self) - 1)
        kept = np.arange(len(self)) != place
        parts = (self.running[kept], self.context_tokens[kept], self.seconds_per_token[kept])
        return Stages(*parts, self.source, self.columns, self.notes)


def read_stages(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    unit: Mapping[str, str] | str | None = None,
    where: Mapping[str, str] | None = None,
) -> Stages:
    """Read load stages from CSV, JSON lines or parquet.

    Parameters
    ----------
    path, columns, unit, where
        As :func:`read_requests`; the columns are ``running``, ``prompt``, ``output`` and ``per_token``.

    Raises
    ------
    ConfigError
        With every finding.
    """
    table = Table(path, ROLES, ROLES, columns=columns, unit=unit, where=where)
    findings: list[Finding] = []
    values = table.numbers(findings)
    if findings:
        raise ConfigError(*findings)
    context = values["prompt"] + values["output"] / 2
    return Stages(values["running"], context, values["per_token"], str(path), table.found)


def step_seconds(coefficients: Mapping[str, float], running: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return the length of a step with so many rollouts of such a context."""
    each = coefficients["step_seconds_per_rollout"]
    token = coefficients["step_seconds_per_context_token"]
    return coefficients["step_seconds"] + running * (each + token * context)


def fitted_stages(stages: Stages, deployment: Deployment, priors: tuple[Prior, ...]) -> Optimum:
    """Find the most likely parameters for some stages."""
    if len(stages) < FEWEST:
        way_out = "Measure at more loads, far apart."
        raise ConfigError("stages", f"must be at least {FEWEST}", len(stages), way_out)
    typical = float(np.median(stages.running))

    def residuals(parameters: np.ndarray) -> np.ndarray:
        told = step_seconds(
            deployment.coefficients(parameters, typical), stages.running, stages.context_tokens
        )
        return np.log(told / stages.seconds_per_token)

    return optimum(priors, residuals, rough=False, weight=float(len(stages)))


def fit_stages(
    stages: Stages,
    deployment: Deployment,
    priors: tuple[Prior, ...],
    limits: Mapping[str, Any],
    given: Mapping[str, str],
) -> EngineFit:
    """Fit an engine to load stages; what is shown as held out is each stage on a fit to the others.

    Parameters
    ----------
    stages : Stages
        As :func:`read_stages` gives.
    deployment : Deployment
    priors : tuple of Prior
    limits, given : mapping
        What bounds the engine, and who said so.

    Raises
    ------
    ConfigError
        For fewer than three stages.
    """
    best = fitted_stages(stages, deployment, priors)
    typical = float(np.median(stages.running))
    engine = Engine(count=deployment.engines, **limits, **deployment.coefficients(best.parameters(), typical))
    made = EngineFit(
        engine,
        deployment,
        best.estimates(),
        coefficients_of(best, deployment, typical),
        as_agreement(stage_errors(stages, deployment, best)),
        as_agreement(each_left_out(stages, deployment, priors)),
        best,
        stages,
        np.ones(len(stages), dtype=bool),
        None,
        given,
    )
    return replace(made, notes=doubts(made))


def stage_errors(stages: Stages, deployment: Deployment, best: Optimum) -> np.ndarray:
    """Return predicted / measured - 1 of each stage."""
    at = deployment.coefficients(best.parameters(), float(np.median(stages.running)))
    return step_seconds(at, stages.running, stages.context_tokens) / stages.seconds_per_token - 1


def each_left_out(stages: Stages, deployment: Deployment, priors: tuple[Prior, ...]) -> np.ndarray:
    """Return the error of each stage on an engine fitted to all the others."""
    found = []
    for place in range(len(stages)):
        best = fitted_stages(stages.without(place), deployment, priors)
        found.append(float(stage_errors(stages, deployment, best)[place]))
    return np.array(found)


def as_agreement(errors: np.ndarray) -> Agreement:
    """Sum errors of stages up."""
    return Agreement(len(errors), float(np.median(np.abs(errors))), float(errors.mean()))
