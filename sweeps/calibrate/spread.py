"""How lengths spread within prompts and between them, from single responses with their prompts.

Logs of lengths are taken as normal within a prompt, around a mean of its own: a one-way analysis of variance
with random effects (Searle, Casella and McCulloch, "Variance Components", 1992, chapter 3). Intervals are
from drawing whole prompts again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ...kernels._arguments import real_numbers
from ...kernels.errors import ConfigError
from .fits import DRAWS, Fit, ends, mean_fit
from .lengths import LengthFit, segments_of

if TYPE_CHECKING:
    from ..logs.lengths import LengthRecords

FEWEST_PROMPTS = 8


def spread_of_groups(values: ArrayLike, groups: ArrayLike, *, seed: int = 0) -> tuple[Fit, Fit]:
    """Fit the spread of the log of some amounts within groups, and between them.

    Parameters
    ----------
    values : array-like of float64, shape (responses,)
        Above 0: tokens, or seconds.
    groups : array-like of int64, shape (responses,)
        Which group each belongs to.
    seed : int
        Of the bootstrap over groups.

    Returns
    -------
    within, between : Fit
        Standard deviations of the log. With mean squares MSB and MSW and n0 the adjusted group size,
        ``within = sqrt(MSW)`` and ``between = sqrt(max(0, (MSB - MSW) / n0))``.

    Raises
    ------
    ConfigError
        For values that are not above 0, or fewer than 8 groups with two or more.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> means = np.repeat(draw.normal(5.0, 0.5, 400), 8)
    >>> within, between = spread_of_groups(np.exp(means + draw.normal(0.0, 0.2, 3200)), np.arange(3200) // 8)
    >>> round(within.value, 1), round(between.value, 1)
    (0.2, 0.5)
    """
    amounts = real_numbers("values", values)
    if amounts.ndim != 1 or not len(amounts) or not (amounts > 0).all():
        raise ConfigError("values", "must be amounts above 0", values, "Leave out those that are not.")
    logs = np.log(amounts)
    _, place, counts = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if place.shape != logs.shape:
        raise ConfigError("groups", f"must have {len(logs)} values, as values", len(place), "Give one each.")
    if (counts > 1).sum() < FEWEST_PROMPTS:
        rule = f"must hold at least {FEWEST_PROMPTS} groups of two or more"
        raise ConfigError("groups", rule, int((counts > 1).sum()), "Give more responses.")
    sums = np.bincount(place, logs)
    inside = np.bincount(place, (logs - (sums / counts)[place]) ** 2)
    told = _parts(counts[None], sums[None], inside[None])[0]
    drawn = np.random.default_rng(seed).integers(0, len(counts), size=(DRAWS, len(counts)))
    samples = _parts(counts[drawn], sums[drawn], inside[drawn])
    how = "analysis of variance of the logs of responses by prompt"
    names = ("spread within prompts (sigma)", "spread between prompts (sigma)")
    within, between = (
        Fit(name, float(told[k]), *ends(samples[:, k]), "of the log", len(logs), how)
        for k, name in enumerate(names)
    )
    return within, between


def _parts(counts: np.ndarray, sums: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return both standard deviations of each sample of groups, shape (samples, 2)."""
    groups, total = counts.shape[1], counts.sum(axis=1)
    mean = sums.sum(axis=1) / total
    outside = (counts * (sums / counts - mean[:, None]) ** 2).sum(axis=1)
    squares = inside.sum(axis=1) / np.maximum(total - groups, 1)
    size = (total - (counts**2).sum(axis=1) / total) / (groups - 1)
    between = np.maximum((outside / (groups - 1) - squares) / size, 0.0)
    return np.sqrt(np.column_stack([squares, between]))


def with_lengths(fit: LengthFit | None, records: LengthRecords, *, seed: int = 0) -> LengthFit:
    """Return the law of lengths with what single responses tell: its spread, that between prompts, its limit.

    Parameters
    ----------
    fit : LengthFit or None
        What the step log told: its means, by step, are kept.
    records : LengthRecords
        As :func:`read_lengths` gives.
    seed : int
    """
    tokens = records.frame["response_tokens"].to_numpy().astype(np.float64)
    cut = records.frame["truncated"].fill_null(False).to_numpy()
    top = int(tokens.max())
    is_limit = bool(cut.any()) or (tokens >= top).mean() >= 0.01
    maximum = top if is_limit else max(top, fit.maximum if fit else 4 * top)
    logs = np.log(tokens)
    how = "the logs of all responses"
    whole = float(logs.std(ddof=1)) if len(tokens) > 1 else 0.0
    drawn = np.random.default_rng(seed).integers(0, len(logs), size=(DRAWS, len(logs)))
    sigma = Fit(
        "spread of lengths (sigma)", whole, *ends(logs[drawn].std(axis=1)), "of the log", len(logs), how
    )
    between = Fit("spread between prompts (sigma)", 0.0, 0.0, 0.0, "of the log", 0, "no prompts given")
    prompts = records.frame["prompt"]
    if prompts.null_count() == 0 and (prompts.value_counts()["count"] > 1).sum() >= FEWEST_PROMPTS:
        _, between = spread_of_groups(tokens, prompts.to_numpy(), seed=seed)
    elif fit is not None:
        between = fit.between_prompts
    if fit is None:
        mean = mean_fit("response tokens: mean", tokens, "tokens", "mean over the responses", seed=seed)
        return LengthFit(mean, sigma, between, maximum, _segments(records, tokens), is_limit)
    return replace(
        fit, sigma=sigma, between_prompts=between, maximum=maximum, is_limit=is_limit or fit.is_limit
    )


def _segments(records: LengthRecords, tokens: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Cut the steps that responses name into segments of equal means."""
    steps = records.frame["step"]
    if steps.null_count():
        return ((0, float(tokens.mean())),)
    numbers, place, counts = np.unique(steps.to_numpy(), return_inverse=True, return_counts=True)
    found = segments_of(np.bincount(place, tokens) / counts)
    return tuple((int(numbers[first] - numbers[0]), mean) for first, mean in found)
