"""What a trainer waits for and how long publications take: fetch, publication, evaluation, interference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars

from .fits import Fit, block_draws, ends, mean_fit
from .phases import column, tokens_of

_READY = 0.2  # the share of steps at one shortest wait from which on it is the fetch
_ALIKE = 0.05  # waits within a twentieth of each other are the same
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

    Such steps wait equally long. If a fifth of the steps share the shortest wait, it is the fetch; if not,
    every step waited for generation too, and the fetch is anything up to the shortest wait.

    Parameters
    ----------
    frame : polars.DataFrame
        With ``wait_seconds``.
    seed : int

    Returns
    -------
    Fit or None
        None where no waits were logged.

    Examples
    --------
    >>> frame = polars.DataFrame({"wait_seconds": 20 * [2.0] + 20 * [9.0]})
    >>> fit_fetch(frame).value, fit_fetch(frame).rows
    (2.0, 20)
    """
    waits = column(frame, "wait_seconds")
    waits = waits[np.isfinite(waits)]
    if len(waits) < FEWEST:
        return None
    floor = float(np.percentile(waits, 2))
    # Waits that are polled once a second say no more than a second.
    grain = grain_of(waits)
    same = np.abs(waits - floor) <= max(_ALIKE * floor, 0.51 * grain, 0.02)
    name, unit = "fetch", "s a step"
    if same.mean() >= _READY:
        own = waits[same]
        low, high = ends(own[block_draws(len(own), seed=seed)].mean(axis=1), rows=len(own))
        how = "wait of the steps whose batch was ready"
        return Fit(
            name, float(own.mean()), max(0.0, low - grain / 2), high + grain / 2, unit, int(same.sum()), how
        )
    how = "every step waits for generation too: at most the shortest wait"
    return Fit(name, 0.0, 0.0, float(waits.min()), unit, len(waits), how, open=True)


def grain_of(waits: np.ndarray) -> float:
    """Return the grain of waits: 1 where nine in ten are within a hundredth of whole seconds, else 0.

    Examples
    --------
    >>> grain_of(np.array([1.001, 2.002, 3.0, 1.0])), grain_of(np.array([0.4, 1.7, 2.2]))
    (1.0, 0.0)
    """
    some = waits[waits > 0.5]
    whole = np.abs(some - np.round(some)) < 0.01
    return 1.0 if len(some) and whole.mean() >= 0.9 else 0.0


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
