"""The steps that were not fitted on: predicted, and held against what was measured.

The lengths of those steps are given, since a law of lengths is what a run is fed with and no prediction of
this; all else is from the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars

from .configuration import Values
from .estimates import Estimates, step_seconds
from .fits import mean_fit
from .generation import batch_tokens
from .lengths import segments_of
from .phases import REST, column, rest_of_step, tokens_of
from .ranges import PREDICTED, End, Span, predictions
from .setup import Setup

# Columns that the simulated run is held against, by the name of the prediction.
STEP = "step"
MEASURED = {"step_seconds": STEP, "wait_seconds": "wait", "lag": "lag", "drops": "dropped rollouts"}


@dataclass(frozen=True)
class HeldRow:
    """One quantity of the held steps.

    Attributes
    ----------
    name : str
    unit : str
    measured, measured_low, measured_high : float
        Its mean over the held steps, and the interval of that mean.
    predicted, low, high : float
    identified : bool
        Whether the data fix the prediction: its range is at most a tenth of it wide.
    by : str
        What leaves it open most.
    source : str
        ``fit`` for a phase, ``simulation`` for what the simulated run gives.
    """

    name: str
    unit: str
    measured: float
    measured_low: float
    measured_high: float
    predicted: float
    low: float
    high: float
    identified: bool
    by: str
    source: str

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; NaN where nothing was measured or it is 0."""
        return self.predicted / self.measured - 1 if self.measured else math.nan

    @property
    def beyond(self) -> float:
        """How far the measured mean lies beyond the predicted range; 0 where their intervals touch."""
        if self.measured_high < self.low:
            return self.low - self.measured
        if self.measured_low > self.high:
            return self.measured - self.high
        return 0.0

    @property
    def outside(self) -> float:
        """How far the measured mean itself lies beyond the predicted range; 0 within."""
        return max(0.0, self.low - self.measured, self.measured - self.high)

    def as_dict(self) -> dict[str, object]:
        """Return it as plain data."""
        names = ("name", "unit", "measured", "measured_low", "measured_high", "predicted", "low", "high")
        return {
            **{name: getattr(self, name) for name in names},
            "error": self.error,
            "identified": self.identified,
            "by": self.by,
            "source": self.source,
        }


_MISSED = 0.05  # of what was measured, beyond the predicted range: what judges of real logs allow too
_OF_A_STEP = 0.01  # of a step's seconds: a phase that misses by less does not count
_OF_A_BATCH = 0.01  # of the rollouts of a batch
_OF_A_VERSION = 0.05


def missed(rows: Sequence[HeldRow], found: Estimates, setup: Setup) -> tuple[HeldRow, ...]:
    """Return the held quantities that a model does not meet.

    Such a quantity lies beyond its predicted range by a twentieth of itself, with all of the interval of its
    mean, and by so much that it counts: a hundredth of a step, of the rollouts of a batch, or a twentieth of
    a version. Of the step the mean alone decides: an evaluation now and then makes its interval wide, and all
    that is asked of a run is in seconds of its steps.

    Parameters
    ----------
    rows : sequence of HeldRow
    found : Estimates
        Whose step says what counts.
    setup : Setup
        Whose batch does.
    """
    counts = {"versions": _OF_A_VERSION, "a step": _OF_A_BATCH * setup.rollouts}
    least = _OF_A_STEP * found.step.value
    return tuple(
        one
        for one in rows
        if (one.outside if one.name == STEP else one.beyond)
        > max(_MISSED * one.measured, counts.get(one.unit, least))
    )


def backtest(
    setup: Setup,
    found: Estimates,
    values: Values,
    ends: Sequence[End],
    held: polars.DataFrame,
    *,
    seed: int = 0,
) -> list[HeldRow]:
    """Predict the held steps.

    Parameters
    ----------
    setup : Setup
    found : Estimates
    values : Values
    ends : sequence of End
    held : polars.DataFrame
        Steps that were not fitted on.
    seed : int

    Returns
    -------
    list of HeldRow
        The step and what the simulated run says of it first, then each phase.
    """
    return [*_simulated(setup, found, values, ends, held, seed), *_phases(setup, found, held, seed)]


def _simulated(
    setup: Setup, found: Estimates, values: Values, ends: Sequence[End], held: polars.DataFrame, seed: int
) -> list[HeldRow]:
    lengths = column(held, "response_tokens_mean")
    means = (
        segments_of(lengths) if np.isfinite(lengths).any() and "response_length" not in setup.given else ()
    )
    told = predictions(setup, found, values, ends, means, len(held), seed=seed)
    measured = {
        "step_seconds": step_seconds(held),
        "wait_seconds": column(held, "generation_seconds" if setup.in_turn else "wait_seconds"),
        "lag": column(held, "lag_mean"),
        "drops": column(held, "dropped_rollouts"),
    }
    rows = []
    for name, words in MEASURED.items():
        if not np.isfinite(measured[name]).any():
            continue
        words = "wait: generation" if name == "wait_seconds" and setup.in_turn else words
        span = told[name]
        if name == "step_seconds":
            span = span.less(publication_beside(setup, values))
        rows.append(_test(words, PREDICTED[name][1], measured[name], span, "simulation", seed))
    return rows


def whole_log(
    setup: Setup, found: Estimates, values: Values, told: Span, steps: polars.DataFrame, *, seed: int = 0
) -> HeldRow:
    """Hold the run as it is against the steps of its log: all of them that have its lengths.

    Parameters
    ----------
    setup : Setup
    found : Estimates
        Whose lengths say from which step on the log has those of the configuration.
    values : Values
    told : Span
        Seconds of a step of the run as it is.
    steps : polars.DataFrame
        Fitted and held.
    seed : int
    """
    segments = found.lengths.segments if found.lengths and "response_length" not in setup.given else ()
    seconds = step_seconds(steps)[segments[-1][0] if segments else 0 :]
    span = told.less(publication_beside(setup, values))
    return _test(STEP, PREDICTED["step_seconds"][1], seconds, span, "simulation", seed)


def publication_beside(setup: Setup, values: Values) -> float:
    """Return what a step's seconds in the log lack of the time from step to step: a publication after it."""
    config = setup.config()
    beside = setup.holds.get("publication_seconds") is False and config.publication_blocks_trainer
    return values.sync_seconds * config.updates_per_batch / config.sync_every_updates if beside else 0.0


def _phases(setup: Setup, found: Estimates, held: polars.DataFrame, seed: int) -> list[HeldRow]:
    tokens, rows = tokens_of(held), []
    if found.generation is not None:
        told = found.generation.seconds(*batch_tokens(held))
        seconds = column(held, "generation_seconds")
        known = np.isfinite(seconds) & np.isfinite(told)
        if known.any():
            value, fit = float(told[known].mean()), found.generation.mean
            low, high = value + fit.low - fit.value, value + fit.high - fit.value
            span = Span(value, max(0.0, low), high, "few steps")
            rows.append(_test("generation", "s a step", seconds[known], span, "fit", seed))
    for phase in found.phases:
        rest = rest_of_step(held, setup.holds) if phase.words == REST else column(held, phase.column)
        if rest is None:
            continue
        told = np.broadcast_to(phase.seconds(tokens), rest.shape)
        known = np.isfinite(rest) & np.isfinite(told)
        if known.any():
            each = float(np.nanmean(tokens)) if np.isfinite(tokens).any() else 0.0
            span = Span(float(told[known].mean()), *phase.interval(each), "few steps")
            rows.append(_test(phase.words, "s a step", rest[known], span, "fit", seed))
    return rows


def _test(name: str, unit: str, measured: np.ndarray, span: Span, source: str, seed: int) -> HeldRow:
    own = mean_fit(name, measured, unit, "", seed=seed)
    return HeldRow(
        name,
        unit,
        own.value,
        own.low,
        own.high,
        span.value,
        span.low,
        span.high,
        span.identified,
        span.by,
        source,
    )
