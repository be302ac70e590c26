"""All that was fitted of a run in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars

from .fits import Fit, mean_fit
from .generation import GenerationFit, fit_generation
from .lengths import LengthFit, fit_lengths
from .phases import PhaseFit, column, fit_phases, inside, rest_of_step, tokens_of
from .setup import Setup
from .waits import Recurring, fit_fetch, fit_interference, fit_recurring


@dataclass(frozen=True)
class Estimates:
    """What was fitted of a run.

    Attributes
    ----------
    phases : list of PhaseFit
    generation : GenerationFit or None
        Of a run whose phases take turns.
    lengths : LengthFit or None
    fetch, interference : Fit or None
    publication, evaluation, checkpoint : Recurring or None
    idle : Fit
        Seconds of a step that are neither training nor publication.
    step : Fit
        Mean seconds of a step.
    lag, drops : Fit
        Mean lag in versions and dropped rollouts of a step; NaN where they are not logged.
    spread : float
        Of the log of the seconds of training around the fit.
    steps : int
    """

    phases: list[PhaseFit]
    generation: GenerationFit | None
    lengths: LengthFit | None
    fetch: Fit | None
    interference: Fit | None
    publication: Recurring | None
    evaluation: Recurring | None
    idle: Fit
    step: Fit
    lag: Fit
    drops: Fit
    spread: float
    steps: int
    tokens: float = field(default=math.nan)
    checkpoint: Recurring | None = None

    @property
    def fits(self) -> list[Fit]:
        """Every number that was fitted."""
        found = [one for phase in self.phases for one in phase.fits]
        found += self.generation.fits if self.generation else []
        found.append(self.idle)
        found += [one for one in (self.fetch, self.interference) if one]
        found += [one.seconds for one in (self.publication, self.evaluation) if one]
        return found + (self.lengths.fits if self.lengths else [])


def step_seconds(frame: polars.DataFrame) -> np.ndarray:
    """Return the seconds of each step: as logged, or the sum of its parts."""
    logged = column(frame, "step_seconds")
    if np.isfinite(logged).any():
        return logged
    names = [
        "generation_seconds", "wait_seconds", "training_seconds", "log_probability_seconds",
        "reference_seconds", "value_seconds", "critic_seconds", "preparation_seconds", "publication_seconds",
    ]  # fmt: skip
    parts = np.array([column(frame, name) for name in names])
    found: np.ndarray = np.where(np.isfinite(parts).any(axis=0), np.nansum(parts, axis=0), np.nan)
    return found


def estimate(frame: polars.DataFrame, setup: Setup, *, seed: int = 0) -> Estimates:
    """Fit everything that a step log tells of a run.

    Parameters
    ----------
    frame : polars.DataFrame
        A row a step, with the canonical columns.
    setup : Setup
    seed : int
        Of the bootstrap.
    """
    step = step_seconds(frame)
    phases = fit_phases(frame, setup.holds, seed=seed)
    tokens = tokens_of(frame)
    trained = trained_seconds(frame, phases, setup.holds)
    publication = fit_recurring(frame, "publication_seconds", "publication", seed=seed)
    idle = step - trained
    for name in ("publication_seconds", "evaluation_seconds", "checkpoint_seconds"):
        if name in inside(frame, setup.holds):
            idle = idle - np.nan_to_num(column(frame, name))
    idle = np.maximum(idle, 0.0)
    evaluation = fit_recurring(frame, "evaluation_seconds", "evaluation", seed=seed)
    over = "mean over the steps"
    how = "mean of the step less training and publication"
    return Estimates(
        phases=phases,
        generation=fit_generation(frame, seed=seed),
        lengths=fit_lengths(frame, group_size=setup.group_size, seed=seed),
        fetch=None if setup.in_turn else fit_fetch(frame, seed=seed),
        interference=None if setup.in_turn else fit_interference(frame, seed=seed),
        publication=publication,
        evaluation=evaluation,
        idle=mean_fit("idle: waits of the trainer", idle, "s a step", how, seed=seed),
        step=mean_fit("step", step, "s", over, seed=seed),
        lag=mean_fit("lag", column(frame, "lag_mean"), "versions", over, seed=seed),
        drops=mean_fit("drops", column(frame, "dropped_rollouts"), "rollouts a step", over, seed=seed),
        spread=_spread_around(trained, phases, tokens),
        steps=len(frame),
        tokens=float(np.nanmean(tokens)) if np.isfinite(tokens).any() else math.nan,
        checkpoint=fit_recurring(frame, "checkpoint_seconds", "checkpoint", seed=seed),
    )


def trained_seconds(
    frame: polars.DataFrame, phases: Sequence[PhaseFit], holds: Mapping[str, bool | None]
) -> np.ndarray:
    """Return the seconds of each step that the fitted phases took, what is left of a step included."""
    total = np.zeros(len(frame))
    for phase in phases:
        own = rest_of_step(frame, holds) if phase.column == "rest_seconds" else column(frame, phase.column)
        assert own is not None
        total = total + np.where(np.isfinite(own), own, phase.fixed.value)
    return total


def _spread_around(trained: np.ndarray, phases: Sequence[PhaseFit], tokens: np.ndarray) -> float:
    """Return the spread of the log of training around its fit; 0 where it is below a hundredth."""
    told = np.sum(
        [np.broadcast_to(one.seconds(np.nan_to_num(tokens)), tokens.shape) for one in phases], axis=0
    )
    if not phases or not (told > 0).all():
        return 0.0
    off = np.log(np.maximum(trained, 1e-9) / told)
    spread = float(np.percentile(np.abs(off - np.median(off)), 68.3))
    return spread if spread >= 0.01 else 0.0
