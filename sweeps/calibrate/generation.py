"""What a generation takes: the longest rollout alone, and work that all rollouts share.

All rollouts in flight share one speed, so a generation of many at once takes
``overhead + longest / v + g / v * (all tokens - longest)``: exactly what ``decode_tokens_per_second`` v and
``decode_slowdown_per_rollout`` g say. What a log cannot tell apart is stated as a range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars

from .fits import Fit, above_zero, block_draws, ends, inliers
from .phases import column

FEWEST = 8
MOST_SHARED = 0.9  # of a rollout's time among many that more engines would take away: a reading of real ones
_NO_SPREAD = 0.01


@dataclass(frozen=True)
class GenerationFit:
    """Seconds of a generation: ``alone + work_per_token * (all tokens - longest)``.

    Attributes
    ----------
    alone : Fit
        Seconds of the longest rollout by itself, what comes before and after it included.
    work_per_token : Fit
        Seconds for each token of the others.
    longest, all_tokens : float
        Mean tokens of the longest rollout and of a whole batch.
    per_longest : float
        Seconds of `alone` for each token of the longest rollout; NaN where the log does not tell.
    mean : Fit
        Mean seconds of a generation.
    """

    alone: Fit
    work_per_token: Fit
    longest: float
    all_tokens: float
    per_longest: float
    mean: Fit

    @property
    def fits(self) -> list[Fit]:
        """The numbers that were fitted."""
        return [self.alone, self.work_per_token]

    @property
    def overhead(self) -> float:
        """The part of the longest rollout's seconds that its tokens do not take; 0 if not told."""
        if math.isnan(self.per_longest) or not self.alone.value > 0:
            return 0.0
        return float(np.clip(1 - self.per_longest * self.longest / self.alone.value, 0.0, 0.98))

    @property
    def shared(self) -> tuple[float, float, float]:
        """Value and ends of the share of a generation that is work which all rollouts share."""
        work = max(self.all_tokens - np.nan_to_num(self.longest), 0.0)
        whole = self.mean.value

        def share(one: float) -> float:
            return float(np.clip(one * work / whole, 0.0, 0.98))

        fit = self.work_per_token
        return share(fit.value), share(fit.low), share(fit.high)

    def seconds(self, longest: np.ndarray, all_tokens: np.ndarray) -> np.ndarray:
        """Predict generations from their longest response and all their tokens."""
        longest = np.nan_to_num(np.where(np.isfinite(longest), longest, self.longest))
        alone = self.alone.value + np.nan_to_num(self.per_longest) * (longest - np.nan_to_num(self.longest))
        found: np.ndarray = alone + self.work_per_token.value * (all_tokens - longest)
        return found


def fit_generation(frame: polars.DataFrame, *, seed: int = 0) -> GenerationFit | None:
    """Fit generations of a run whose phases take turns.

    Parameters
    ----------
    frame : polars.DataFrame
        With ``generation_seconds``; ``response_tokens_mean``, ``response_tokens_max`` and ``rollouts``
        tell work from the longest rollout.
    seed : int

    Returns
    -------
    GenerationFit or None
        None where fewer than 8 steps have a generation.
    """
    seconds = column(frame, "generation_seconds")
    if np.isfinite(seconds).sum() < FEWEST:
        return None
    longest, all_tokens = batch_tokens(frame)
    known = np.isfinite(seconds)
    seconds, longest, all_tokens = seconds[known], longest[known], all_tokens[known]
    rows, average = len(seconds), float(seconds.mean())
    draws = block_draws(rows, seed=seed)
    mean = Fit(
        "generation",
        average,
        *ends(seconds[draws].mean(axis=1), rows=rows),
        "s a step",
        rows,
        "mean over the steps",
    )
    told = np.isfinite(all_tokens)
    if told.sum() < FEWEST or all_tokens[told].std() < _NO_SPREAD * all_tokens[told].mean():
        return _open(mean, _mean(longest), _mean(all_tokens))
    all_tokens = np.where(told, all_tokens, all_tokens[told].mean())
    longest = np.where(np.isfinite(longest) | ~np.isfinite(longest).any(), longest, _mean(longest))
    has_longest = bool(np.isfinite(longest).all()) and longest.std() >= _NO_SPREAD * longest.mean()
    alone = longest if np.isfinite(longest).all() else np.zeros(rows)
    columns = [np.ones(rows), all_tokens - alone, *([longest] if has_longest else [])]
    design = np.column_stack(columns)
    kept = inliers(design, seconds)
    found = above_zero(design[None, kept], seconds[None, kept])[0]
    chosen = np.where(kept[draws][..., None], design[draws], 0.0)
    samples = above_zero(chosen, np.where(kept[draws], seconds[draws], 0.0))
    work = Fit(
        "generation: shared work for each token", float(found[1]),
        *_around(found[1], samples[:, 1], rows), "s", int(kept.sum()),
        "least squares over the steps, all parts at least 0",
    )  # fmt: skip
    per_longest = float(found[2]) if has_longest else math.nan
    others = (all_tokens - alone)[draws].mean(axis=1)
    lone = np.maximum(seconds[draws].mean(axis=1) - samples[:, 1] * others, 0.0)
    value = max(0.0, average - float(found[1]) * float((all_tokens - alone).mean()))
    first = Fit(
        "generation: the longest rollout alone", value, *_around(value, lone, rows), "s a step", rows,
        "what the shared work leaves of the mean",
    )  # fmt: skip
    return GenerationFit(first, work, _mean(longest), float(all_tokens.mean()), per_longest, mean)


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _around(value: float, samples: np.ndarray, rows: int) -> tuple[float, float]:
    low, high = ends(samples, rows=rows)
    return max(0.0, min(low, float(value))), max(high, float(value))


def _open(mean: Fit, longest: float, all_tokens: float) -> GenerationFit:
    """Return the range that is left where every batch has the same tokens: no shared work to nearly all."""
    how = "every batch is alike: nothing tells shared work from the longest rollout"
    work = max(np.nan_to_num(all_tokens) - np.nan_to_num(longest), 0.0)
    most = MOST_SHARED * mean.value / work if work > 0 else 0.0
    alone = Fit(
        "generation: the longest rollout alone", mean.value, (1 - MOST_SHARED) * mean.low, mean.high,
        mean.unit, mean.rows, how, open=True,
    )  # fmt: skip
    shared = Fit("generation: shared work for each token", 0.0, 0.0, most, "s", mean.rows, how, open=True)
    return GenerationFit(alone, shared, float(longest), float(all_tokens), math.nan, mean)


def batch_tokens(frame: polars.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the longest response and all response tokens of each step.

    Without rollouts the mean response stands for the batch, which always has as many.
    """
    rollouts = column(frame, "rollouts")
    each = column(frame, "response_tokens_mean") * np.where(np.isfinite(rollouts), rollouts, 1.0)
    longest = column(frame, "response_tokens_max")
    return np.where(np.isfinite(rollouts), longest, np.nan), each
