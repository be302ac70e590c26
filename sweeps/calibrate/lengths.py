"""The law of the response length from a step log: mean, spread, spread between prompts, and its drift.

A step log holds the mean and the longest of a batch. Both together fix a lognormal law that is cut at the
engine's limit; how much the means of batches differ says how alike the responses of one prompt are. Where
lengths drift, the steps are cut into segments, each with a mean of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import polars

from ..laws.lengths import LengthLaw
from .fits import DRAWS, Fit, block_draws, ends, mean_fit
from .longest import longest_over_mean
from .phases import column

SIGMAS = np.linspace(0.05, 1.6, 32)
USUAL = (0.3, 0.6, 1.1)  # spread of the log of lengths in logs of reasoning, where a log does not tell it
FEWEST = 10  # steps of a segment
_JUMP = 0.1  # a drift smaller than a tenth of the mean is none
_MOST_SEGMENTS = 12
_TOGETHER = 6  # steps of a block, at most


@dataclass(frozen=True)
class LengthFit:
    """The law of a run's lengths.

    Attributes
    ----------
    mean : Fit
        Tokens of a response, over all steps of the fit.
    sigma : Fit
        Standard deviation of the log of lengths within a prompt and between prompts together.
    between_prompts : Fit
        The part between prompts.
    maximum : int
        The engine's limit, or several times the longest seen where none shows.
    segments : tuple of (int, float)
        First step of each segment, counted from 0, and its mean; one segment if nothing drifts.
    is_limit : bool
        Whether the log shows the maximum as a limit.
    """

    mean: Fit
    sigma: Fit
    between_prompts: Fit
    maximum: int
    segments: tuple[tuple[int, float], ...]
    is_limit: bool = True

    @property
    def fits(self) -> list[Fit]:
        """The numbers that were fitted."""
        return [self.mean, self.sigma, self.between_prompts]

    def law(self, mean: float, sigma: float, between_prompts: float) -> LengthLaw:
        """Return the law of one prompt's responses whose mean is given.

        Lengths of a prompt spread less than all lengths: the part between prompts is put on top by the run.
        """
        return lognormal_of(mean, math.sqrt(max(sigma**2 - between_prompts**2, 0.02**2)), self.maximum)


def lognormal_of(mean: float, sigma: float, maximum: int) -> LengthLaw:
    """Return the lognormal law, cut at a maximum, that has a mean.

    Examples
    --------
    >>> round(lognormal_of(300.0, 0.6, 512).mean_tokens)
    300
    """
    if mean >= 0.995 * maximum:
        return LengthLaw.fixed(maximum)
    if mean < 2 or sigma < 0.03:
        return LengthLaw.fixed(max(1, round(mean)))
    median = _median_of(mean, sigma, maximum)
    return LengthLaw.lognormal(
        median=float(f"{median:.6g}"), sigma=float(f"{sigma:.4g}"), minimum=1, maximum=maximum
    )


@lru_cache(maxsize=4096)
def _median_of(mean: float, sigma: float, maximum: int) -> float:
    """Find the median of the law with a mean, by halving."""
    low, high = math.log(mean) - sigma**2, math.log(maximum) + 4 * sigma
    for _ in range(60):
        middle = (low + high) / 2
        if _cut_mean(math.exp(middle), sigma, maximum) < mean:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _cut_mean(median: float, sigma: float, maximum: int) -> float:
    """Return the mean of a lognormal cut at a maximum: its part below, and the maximum for the rest."""
    from scipy.special import ndtr

    place = (math.log(maximum) - math.log(median)) / sigma
    below = median * math.exp(sigma**2 / 2) * ndtr(place - sigma)
    return float(below + maximum * (1 - ndtr(place)))


def fit_lengths(frame: polars.DataFrame, *, group_size: int = 1, seed: int = 0) -> LengthFit | None:
    """Fit the law of lengths to a step log.

    Parameters
    ----------
    frame : polars.DataFrame
        With ``response_tokens_mean``; with ``response_tokens_max``, ``clipped_fraction`` and ``rollouts``
        the spread shows too.
    group_size : int
        Rollouts of a prompt.
    seed : int

    Returns
    -------
    LengthFit or None
        None where the log has no lengths.
    """
    means = column(frame, "response_tokens_mean")
    if not np.isfinite(means).any():
        return None
    longest, rollouts = column(frame, "response_tokens_max"), column(frame, "rollouts")
    mean = mean_fit("response tokens: mean", means, "tokens", "mean over the steps", seed=seed)
    cap, is_limit = _limit(longest, means, column(frame, "clipped_fraction"))
    count = float(np.nanmean(rollouts)) if np.isfinite(rollouts).any() else math.nan
    clipped, segments = column(frame, "clipped_fraction"), segments_of(means)
    # A spread is that of lengths which do not drift: of the last segment, if it is long enough.
    last = segments[-1][0] if len(means) - segments[-1][0] >= 3 * FEWEST else 0
    sigma = _spread(means[last:], longest[last:], clipped[last:], count, cap, is_limit, seed)
    prompts = _between_prompts(means[last:], sigma, count, group_size, seed)
    return LengthFit(mean, sigma, prompts, cap, segments, is_limit)


def _limit(longest: np.ndarray, means: np.ndarray, clipped: np.ndarray) -> tuple[int, bool]:
    """Return the engine's limit: a longest response that comes again and again, or room above the longest."""
    known = longest[np.isfinite(longest)]
    if not len(known):
        return math.ceil(8 * float(np.nanmax(means))), False
    top = float(known.max())
    cut = bool((np.nan_to_num(clipped) > 0).any()) or (
        (known >= top).mean() >= 0.05 and (known >= top).sum() >= 3
    )
    return (round(top), True) if cut else (math.ceil(4 * top), False)


def _spread(
    means: np.ndarray,
    longest: np.ndarray,
    clipped: np.ndarray,
    count: float,
    cap: int,
    is_limit: bool,
    seed: int,
) -> Fit:
    """Fit sigma to the longest response of a step over its mean, or to the share that is cut."""
    name, unit = "spread of lengths (sigma)", "of the log"
    cut = np.isfinite(clipped)
    if is_limit and cut.sum() >= FEWEST and 0.003 < np.nanmean(clipped) < 0.9:
        return _solved(name, unit, means[cut], clipped[cut], cap, "cut", seed)
    if math.isfinite(count) and count > 1:
        own, most, together = _blocks(means, longest, _TOGETHER)
        below = (most < cap).mean() if is_limit and len(most) else 1.0
        if len(most) >= FEWEST and below > 0.2:
            blocks = _solved(name, unit, own, most / own, cap, count * together, seed)
            # Single steps tell more, unless batches of what ended together hold short ones or long ones.
            own, most, _ = _blocks(means, longest, 1)
            steps = _solved(name, unit, own, most / own, cap, count, seed)
            return steps if blocks.low <= steps.value <= blocks.high else blocks
    low, value, high = USUAL
    how = "the log does not tell it; the range of published runs"
    return Fit(name, value, low, high, unit, 0, how, open=True)


def _blocks(means: np.ndarray, longest: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return means and longest of blocks of at most so many steps, and how many steps a block has."""
    known = np.isfinite(means) & np.isfinite(longest)
    means, longest = means[known], longest[known]
    together = int(np.clip(len(means) // (2 * FEWEST), 1, most))
    count = len(means) // together * together
    shape = (-1, together)
    return means[:count].reshape(shape).mean(axis=1), longest[:count].reshape(shape).max(axis=1), together


def _solved(
    name: str, unit: str, means: np.ndarray, seen: np.ndarray, cap: int, count: float | str, seed: int
) -> Fit:
    """Find the sigma whose law shows what was seen beside the mean."""
    mean = min(float(means.mean()), 0.99 * cap)
    expected = []
    for sigma in SIGMAS:
        median = _median_of(mean, float(sigma), cap)
        if isinstance(count, str):
            expected.append(_share_cut(median, float(sigma), cap))
        else:
            expected.append(longest_over_mean(median, float(sigma), cap, count))
    rising = np.maximum.accumulate(np.array(expected) + 1e-12 * np.arange(len(expected)))
    draws = np.random.default_rng(seed).integers(0, len(seen), size=(DRAWS, len(seen)))
    found = np.interp(seen[draws].mean(axis=1), rising, SIGMAS)
    value = float(np.interp(seen.mean(), rising, SIGMAS))
    how = (
        "the share that the limit cuts"
        if isinstance(count, str)
        else "the longest response of a step over its mean"
    )
    return Fit(name, value, *ends(found), unit, len(seen), how)


def _share_cut(median: float, sigma: float, cap: int) -> float:
    from scipy.special import ndtr

    return float(1 - ndtr((math.log(cap) - math.log(median)) / sigma))


def _between_prompts(means: np.ndarray, sigma: Fit, count: float, group_size: int, seed: int) -> Fit:
    """Fit the spread between prompts to how much the means of neighbouring steps differ.

    The variance of a mean over n rollouts in groups of G is ``s**2 / n * (1 + (G - 1) * rho)``.
    """
    name, unit = "spread between prompts (sigma)", "of the log"
    known = means[np.isfinite(means)]
    if group_size < 2 or not math.isfinite(count) or len(known) < 2 * FEWEST or sigma.open:
        how = "not told apart from the rest" if group_size > 1 else "no groups"
        high = 0.7 * sigma.high if group_size > 1 else 0.0
        return Fit(name, 0.0, 0.0, high, unit, 0, how, open=group_size > 1)
    blocks = len(known) // _TOGETHER
    if blocks < FEWEST:
        return Fit(name, 0.0, 0.0, 0.7 * sigma.value, unit, 0, "too few steps", open=True)
    each = known[: blocks * _TOGETHER].reshape(blocks, _TOGETHER).mean(axis=1)
    change = _TOGETHER * np.diff(each / each.mean()) ** 2 / 2
    relative = math.expm1(sigma.value**2)
    draws = change[block_draws(len(change), seed=seed)].mean(axis=1)

    def between(variance: np.ndarray | float) -> np.ndarray:
        rho = (np.asarray(variance) * count / relative - 1) / (group_size - 1)
        return np.sqrt(np.log1p(np.clip(rho, 0.0, 0.95) * relative))

    value = float(between(float(change.mean())))
    how = "at most how much neighbouring steps differ; lengths by prompt tell more"
    return Fit(name, value, 0.0, max(value, ends(between(draws))[1]), unit, len(change), how, open=True)


def segments_of(values: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Cut steps into segments of equal means where a mean drifts (binary segmentation).

    A cut is made where it lowers the squares by more than the noise of neighbours explains, and the means
    on both sides differ by a tenth or more (Scott and Knott, Biometrics 30, 1974).

    Parameters
    ----------
    values : ndarray of float64, shape (steps,)
        NaN are passed over.

    Returns
    -------
    tuple of (int, float)
        First step of each segment, and its mean.

    Examples
    --------
    >>> segments_of(np.array(20 * [100.0] + 20 * [200.0]))
    ((0, 100.0), (20, 200.0))
    """
    places = np.flatnonzero(np.isfinite(values))
    known = values[places]
    noise = float(np.median(np.diff(known) ** 2) / 0.91) if len(known) > 1 else 0.0
    cuts = [0]
    queue = [(0, len(known))]
    while queue and len(cuts) < _MOST_SEGMENTS:
        first, last = max(queue, key=lambda span: span[1] - span[0])
        queue.remove((first, last))
        cut = _cut(known[first:last], noise)
        if cut:
            cuts.append(first + cut)
            queue += [(first, first + cut), (first + cut, last)]
    bounds = [*sorted(cuts), len(known)]
    return tuple(
        (int(places[low]) if low else 0, float(known[low:high].mean()))
        for low, high in pairwise(bounds)
        if high > low
    )


def _cut(values: np.ndarray, noise: float) -> int:
    """Return where to cut a stretch, or 0."""
    count = len(values)
    if count < 2 * FEWEST:
        return 0
    total = np.cumsum(values)
    left = np.arange(FEWEST, count - FEWEST + 1)
    before = total[left - 1] / left
    after = (total[-1] - total[left - 1]) / (count - left)
    gain = left * (count - left) / count * (before - after) ** 2
    best = int(gain.argmax())
    enough = (
        gain[best] > 3 * noise * math.log(count) and abs(before[best] - after[best]) > _JUMP * values.mean()
    )
    return int(left[best]) if enough else 0


def scaled_to(fit: LengthFit, mean: float) -> LengthFit:
    """Return the same law with one segment of another mean."""
    return replace(fit, mean=replace(fit.mean, value=mean), segments=((0, mean),))
