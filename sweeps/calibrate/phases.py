"""What each phase of a step takes: a fixed part and a part for each token, both at least 0.

A phase whose part for each token may as well be 0 keeps its fixed part alone: padded batches take the same
time whatever is in them, and a rate that only seems to be there predicts other lengths wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars

from .fits import Fit, above_zero, block_draws, ends, inliers

# Columns of a step log that the trainer spends one after the other, with plain words for them.
TRAINER_PHASES = {
    "training_seconds": "training",
    "log_probability_seconds": "log-probabilities",
    "reference_seconds": "reference",
    "value_seconds": "values",
    "critic_seconds": "critic",
    "preparation_seconds": "preparation",
}
WORDS = {
    **TRAINER_PHASES,
    "generation_seconds": "generation",
    "publication_seconds": "publication",
    "wait_seconds": "wait",
    "evaluation_seconds": "evaluation",
    "checkpoint_seconds": "checkpoint",
    "step_seconds": "step",
}
REST = "rest of the step"
FEWEST = 8
_SMALLEST_REST = 5e-4  # of a step: what is less is rounding
_SPREAD_OF_TOKENS = 0.005  # below that, relative, tokens cannot tell a rate


@dataclass(frozen=True)
class PhaseFit:
    """Seconds of one phase: ``fixed + per_token * tokens``.

    Attributes
    ----------
    column, words : str
    fixed : Fit
        Seconds of a step.
    per_token : Fit or None
        Seconds for each token; None where the data do not show one.
    mean : Fit
        Mean seconds, whatever the tokens.
    samples : ndarray of float64, shape (draws, 2)
        Fixed part and part for each token of every bootstrap sample.
    """

    column: str
    words: str
    fixed: Fit
    per_token: Fit | None
    mean: Fit
    samples: np.ndarray

    def seconds(self, tokens: np.ndarray | float) -> np.ndarray | float:
        """Predict the phase of steps with so many tokens."""
        return self.fixed.value + (self.per_token.value if self.per_token else 0.0) * tokens

    def interval(self, tokens: float) -> tuple[float, float]:
        """Return the ends of the mean seconds of steps with so many tokens."""
        rate = np.where(self.samples[:, 1] > 0, self.samples[:, 1] * np.nan_to_num(tokens), 0.0)
        return ends(self.samples[:, 0] + rate, rows=self.mean.rows)

    @property
    def fits(self) -> list[Fit]:
        """The numbers that were fitted."""
        return [self.fixed, *([self.per_token] if self.per_token else [])]


def column(frame: polars.DataFrame, name: str) -> np.ndarray:
    """Return a column as float64, NaN where there is nothing (everywhere if the frame lacks it).

    Examples
    --------
    >>> column(polars.DataFrame({"lag_mean": [1, None]}), "lag_mean").tolist()
    [1.0, nan]
    >>> column(polars.DataFrame({"lag_mean": [1]}), "lag_max").tolist()
    [nan]
    """
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    return frame[name].cast(polars.Float64, strict=False).fill_null(np.nan).to_numpy().astype(np.float64)


def tokens_of(frame: polars.DataFrame) -> np.ndarray:
    """Return the tokens of each step: as logged, or rollouts times mean response and prompt.

    Examples
    --------
    >>> frame = polars.DataFrame({"rollouts": [4], "response_tokens_mean": [10.0]})
    >>> tokens_of(frame).tolist()
    [40.0]
    """
    logged = column(frame, "trained_tokens")
    rollouts = column(frame, "rollouts")
    each = column(frame, "response_tokens_mean") + np.nan_to_num(column(frame, "prompt_tokens_mean"))
    # Without rollouts the tokens of one stand for those of a batch that has always as many.
    made = each * np.where(np.isfinite(rollouts), rollouts, 1.0)
    return np.where(np.isfinite(logged), logged, made)


def fit_phase(
    name: str, words: str, seconds: np.ndarray, tokens: np.ndarray, *, seed: int = 0
) -> PhaseFit | None:
    """Fit one phase to its seconds and the tokens of each step.

    Slopes come from the rows without outliers; the fixed part then meets the mean of all rows, since means
    are what is predicted.

    Parameters
    ----------
    name, words : str
    seconds, tokens : ndarray of float64, shape (steps,)
    seed : int

    Returns
    -------
    PhaseFit or None
        None where fewer than 8 steps hold the phase.

    Examples
    --------
    >>> tokens = np.linspace(1000.0, 2000.0, 40)
    >>> found = fit_phase("training_seconds", "training", 3.0 + 0.002 * tokens, tokens)
    >>> round(found.fixed.value, 6), round(found.per_token.value, 6)
    (3.0, 0.002)
    """
    known = np.isfinite(seconds)
    if known.sum() < FEWEST:
        return None
    seconds, tokens = seconds[known], tokens[known]
    rows = len(seconds)
    draws = block_draws(rows, seed=seed)
    means = seconds[draws].mean(axis=1)
    average = float(seconds.mean())
    mean = Fit(words, average, *ends(means, rows=rows), "s a step", rows, "mean over the steps")
    alone = replace(mean, name=f"{words}: fixed", how="mean: no part for each token shows")
    told = np.isfinite(tokens)
    if told.sum() < FEWEST or tokens[told].std() <= _SPREAD_OF_TOKENS * tokens[told].mean():
        return PhaseFit(name, words, alone, None, mean, np.column_stack([means, 0 * means]))
    tokens = np.where(told, tokens, tokens[told].mean())
    design = np.column_stack([np.ones(rows), tokens])
    kept = inliers(design, seconds) & told
    free = _slopes(tokens, seconds, kept, draws)
    low, high = ends(free, rows=rows)
    if not low > 0:
        return PhaseFit(name, words, alone, None, mean, np.column_stack([means, 0 * means]))
    slope = float(above_zero(design[None, kept], seconds[None, kept])[0, 1])
    slope = min(slope, average / float(tokens.mean()))
    per_token = Fit(
        f"{words}: for each token", slope, min(low, slope), max(high, slope), "s", int(kept.sum()),
        "least squares over the steps, both parts at least 0",
    )  # fmt: skip
    drawn = tokens[draws].mean(axis=1)
    rates = np.clip(free, 0.0, means / drawn)
    fixed = means - rates * drawn
    value = max(0.0, average - slope * float(tokens.mean()))
    low, high = ends(fixed, rows=rows)
    first = Fit(
        f"{words}: fixed", value, max(0.0, min(low, value)), max(high, value), "s a step", rows,
        "what the part for each token leaves of the mean",
    )  # fmt: skip
    return PhaseFit(name, words, first, per_token, mean, np.column_stack([fixed, rates]))


def _slopes(tokens: np.ndarray, seconds: np.ndarray, kept: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the slope of each bootstrap sample, of any sign, over its rows that are no outliers."""
    weight = kept[draws].astype(np.float64)
    x, y = tokens[draws], seconds[draws]
    total = np.maximum(weight.sum(axis=1, keepdims=True), 1.0)
    x = x - (weight * x).sum(axis=1, keepdims=True) / total
    y = y - (weight * y).sum(axis=1, keepdims=True) / total
    square = (weight * x * x).sum(axis=1)
    found: np.ndarray = np.divide(
        (weight * x * y).sum(axis=1), square, out=np.zeros(len(square)), where=square > 0
    )
    return found


def fit_phases(
    frame: polars.DataFrame, holds: Mapping[str, bool | None] | None = None, *, seed: int = 0
) -> list[PhaseFit]:
    """Fit every phase of the trainer that a step log holds, and what its step has besides.

    Parameters
    ----------
    frame : polars.DataFrame
        A row a step, with the canonical columns of a step log.
    holds : mapping
        Whether ``step_seconds`` holds evaluation, checkpoint, publication, as :func:`read_step_log` tells.
    seed : int

    Returns
    -------
    list of PhaseFit
    """
    tokens = tokens_of(frame)
    found = []
    for place, (name, words) in enumerate(TRAINER_PHASES.items()):
        fit = fit_phase(name, words, column(frame, name), tokens, seed=seed + place)
        if fit is not None and fit.mean.value > 0:
            found.append(fit)
    rest = rest_of_step(frame, holds)
    if rest is not None:
        fit = fit_phase("rest_seconds", REST, rest, tokens, seed=seed + len(TRAINER_PHASES))
        if fit is not None and fit.mean.value > _SMALLEST_REST * np.nanmean(column(frame, "step_seconds")):
            found.append(fit)
    return found


def rest_of_step(
    frame: polars.DataFrame, holds: Mapping[str, bool | None] | None = None
) -> np.ndarray | None:
    """Return what a step holds beside all that is logged of it, at least 0; None without a step's time."""
    step = column(frame, "step_seconds")
    if not np.isfinite(step).any():
        return None
    rest = step - np.nansum([column(frame, name) for name in inside(frame, holds or {})], axis=0)
    return np.where(np.isfinite(rest), np.maximum(rest, 0.0), np.nan)


def inside(frame: polars.DataFrame, holds: Mapping[str, bool | None]) -> list[str]:
    """Name the logged parts of a step that lie inside its total.

    Evaluations and checkpoints count as part of a step where the log's reader says so.
    """
    parts = [*TRAINER_PHASES, "wait_seconds"]
    if not np.isfinite(column(frame, "wait_seconds")).any():
        parts.append("generation_seconds")
    if holds.get("publication_seconds") is not False:
        parts.append("publication_seconds")
    parts += [name for name in ("evaluation_seconds", "checkpoint_seconds") if holds.get(name)]
    return [name for name in parts if np.isfinite(column(frame, name)).any()]
