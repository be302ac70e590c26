"""What a trainer waits for and how long publications take: fetch, publication, evaluation, interference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars

from .fits import Fit, block_draws, ends, mean_fit
from .phases import column, tokens_of

_READY = 0.2  # the share of steps at one shortest wait from which on it is the fetch
_ALIKE = 0.01  # waits within a hundredth of each other are the same
_NO_TIME = 0.02  # seconds: a wait of no more is none
_NOTHING = 0.005  # of a step: neither is a shorter one
_APART = 3.0  # times as much as waits, lengths must vary where waits are not for generation
_GRAINS = (0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between two looks
_ON_GRID = 0.97  # of the mean phase of waits, where all on the grid have 1
FEWEST = 8


@dataclass(frozen=True)
class Recurring:
    """Something that happens every so many steps.

    Attributes
    ----------
    every : int
        Steps from one to the next.
    seconds : Fit
        What it takes when it happens.
    """

    every: int
    seconds: Fit


def fit_fetch(frame: polars.DataFrame, *, seed: int = 0) -> Fit | None:
    """Fit the fetch: the wait of steps whose batch was ready when the step before ended.

    Such steps wait equally long, whatever their lengths. If a fifth of the steps share the shortest wait, and
    their batches differ in length while their waits do not, or the waits of the others are spread, it is the
    fetch. If not, every step may have waited for generation too: then the fetch is anything from nothing up
    to the shortest wait, both readings explain the log, and no figure is made up.

    Parameters
    ----------
    frame : polars.DataFrame
        With ``wait_seconds``; ``response_tokens_mean`` and ``response_tokens_max`` tell whether waits go
        along with lengths.
    seed : int

    Returns
    -------
    Fit or None
        None where no waits were logged.

    Examples
    --------
    >>> some = fit_fetch(polars.DataFrame({"wait_seconds": 20 * [2.0] + [6 + 0.13 * k for k in range(20)]}))
    >>> some.value, some.rows, some.open
    (2.0, 20, False)
    >>> fit_fetch(polars.DataFrame({"wait_seconds": 40 * [9.0]})).open
    True
    """
    waits = column(frame, "wait_seconds")
    known = np.isfinite(waits)
    waits = waits[known]
    if len(waits) < FEWEST:
        return None
    floor = float(np.percentile(waits, 2))
    # Waits that are polled once a second say no more than a second.
    grain = grain_of(waits)
    same = np.abs(waits - floor) <= max(_ALIKE * floor, 0.51 * grain, _NO_TIME)
    name, unit = "fetch", "s a step"
    if same.mean() >= _READY and _is_ready(frame.filter(polars.Series(known)), same, grain):
        own = waits[same]
        low, high = ends(own[block_draws(len(own), seed=seed)].mean(axis=1), rows=len(own))
        how = "wait of the steps whose batch was ready"
        return Fit(
            name, float(own.mean()), max(0.0, low - grain / 2), high + grain / 2, unit, int(same.sum()), how
        )
    how = "every step waits, perhaps for generation: the fetch is at most the shortest wait"
    return Fit(name, 0.0, 0.0, float(waits.min()) + grain / 2, unit, len(waits), how, open=True)


def _is_ready(frame: polars.DataFrame, same: np.ndarray, grain: float) -> bool:
    """Tell whether steps that wait equally long had their batch ready: not if all may wait for generation.

    Generation takes as long as the longest response or as all of them, so it varies as they do; and as the
    waits of the other steps do, where these are many.
    """
    every = column(frame, "wait_seconds")
    waits, others = every[same], every[~same]
    steps = column(frame, "step_seconds")
    step = float(np.nanmean(steps)) if np.isfinite(steps).any() else 0.0
    if not is_material(float(waits.mean()), step):
        return True
    spreads = []
    for name in ("response_tokens_mean", "response_tokens_max"):
        lengths = column(frame, name)[same]
        lengths = lengths[np.isfinite(lengths)]
        if len(lengths) >= FEWEST and lengths.mean() > 0:
            spreads.append(float(lengths.std() / lengths.mean()))
    enough = [min(spreads)] if spreads else []
    if len(others) >= max(FEWEST, _READY * len(every)):
        low, high = np.percentile(others, (20, 80))
        enough.append(float(high - low) / 2 / float(waits.mean()))
    spread = max(float(waits.std()), grain / math.sqrt(12)) / float(waits.mean())
    return max(enough, default=0.0) >= _APART * max(spread, 1e-6)


def is_material(seconds: float, step: float) -> bool:
    """Whether seconds are worth a word beside those of a step.

    Examples
    --------
    >>> is_material(0.01, 60.0), is_material(0.2, 60.0), is_material(9.0, 60.0)
    (False, False, True)
    """
    return seconds > max(_NO_TIME, _NOTHING * step)


def grain_of(waits: np.ndarray) -> float:
    """Return the seconds from one look to the next of waits that are polled; 0 where none shows.

    Polled waits lie on a grid. Whole seconds are one where nine in ten are within a hundredth of them; any
    other is seen by the mean of the waits as phases around a circle of that length (Rayleigh).

    Examples
    --------
    >>> grain_of(np.array([1.001, 2.002, 3.0, 1.0])), grain_of(np.array([0.4, 1.7, 2.2]))
    (1.0, 0.0)
    >>> grain_of(np.array(4 * [52.2, 54.21, 56.19, 58.2]))
    2.0
    """
    some = waits[waits > 0.5]
    whole = np.abs(some - np.round(some)) < 0.01
    found = 1.0 if len(some) and whole.mean() >= 0.9 else 0.0
    for grain in _GRAINS:
        # A grid needs some of its lines: equal waits lie on every one.
        if len(some) < FEWEST or np.ptp(some) < 1.5 * grain:
            continue
        if abs(np.exp(2j * np.pi * some / grain).mean()) >= _ON_GRID:
            found = max(found, grain)
    return found


def fit_recurring(frame: polars.DataFrame, name: str, words: str, *, seed: int = 0) -> Recurring | None:
    """Fit what happens every so many steps: publications, evaluations, checkpoints.

    Parameters
    ----------
    frame : polars.DataFrame
    name : str
        The column with its seconds, null or 0 where it did not happen.
    words : str
    seed : int

    Returns
    -------
    Recurring or None
        None where it never happened.

    Examples
    --------
    >>> frame = polars.DataFrame({"evaluation_seconds": 5 * [None, 30.0]})
    >>> found = fit_recurring(frame, "evaluation_seconds", "evaluation")
    >>> found.every, found.seconds.value
    (2, 30.0)
    """
    spent = np.nan_to_num(column(frame, name))
    places = np.flatnonzero(spent > 0)
    if not len(places):
        return None
    every = max(1, round(float(np.median(np.diff(places))))) if len(places) > 1 else len(frame)
    return Recurring(
        every, mean_fit(words, spent[places], "s each", "mean of the steps that have one", seed=seed)
    )


def fit_interference(frame: polars.DataFrame, *, seed: int = 0) -> Fit | None:
    """Fit how much slower training is while rollouts are generated, from steps with and without.

    Parameters
    ----------
    frame : polars.DataFrame
        With ``generation_seconds`` (in which something was generated), ``step_seconds`` and
        ``training_seconds``.
    seed : int

    Returns
    -------
    Fit or None
        The relative slowdown; None where there are fewer than 8 steps of either kind.
    """
    generation, step = column(frame, "generation_seconds"), column(frame, "step_seconds")
    training, tokens = column(frame, "training_seconds"), tokens_of(frame)
    share = generation / step
    known = np.isfinite(share) & np.isfinite(training)
    per = training / np.where(np.isfinite(tokens) & (tokens > 0), tokens, 1.0)
    with_it, without = known & (share >= 0.95), known & (share <= 0.05)
    if min(with_it.sum(), without.sum()) < FEWEST:
        return None
    slow, fast = per[with_it], per[without]
    ratio = slow[block_draws(len(slow), seed=seed)].mean(axis=1) / fast[
        block_draws(len(fast), seed=seed)
    ].mean(axis=1)
    low, high = ends(ratio - 1, rows=min(len(slow), len(fast)))
    how = "training of steps with generation over that of steps without"
    value = max(0.0, float(slow.mean() / fast.mean() - 1))
    return Fit(
        "slowdown of training by generation",
        value,
        max(0.0, low),
        max(0.0, high),
        "1",
        len(slow) + len(fast),
        how,
    )
