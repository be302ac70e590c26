"""How far predicted times are from measured ones: single requests, means and tails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """Errors over some requests, as shares: 0.02 is 2 %.

    Attributes
    ----------
    requests : int
    per_token_median : float
        Median over requests of |predicted / measured - 1| of the time of a token after the first.
    per_token_mean, per_token_90, per_token_99 : float
        Of the mean and of two percentiles of that time: predicted / measured - 1.
    end_to_end_median, end_to_end_mean : float
        The same of the time from arrival to the last token.
    first_token_mean : float
        Of the time to the first token.
    """

    requests: int
    per_token_median: float = float("nan")
    per_token_mean: float = float("nan")
    per_token_90: float = float("nan")
    per_token_99: float = float("nan")
    end_to_end_median: float = float("nan")
    end_to_end_mean: float = float("nan")
    first_token_mean: float = float("nan")

    def as_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return asdict(self)


def agreement(
    predicted: Mapping[str, np.ndarray], measured: Mapping[str, np.ndarray], chosen: np.ndarray
) -> Agreement:
    """Compare what was measured of some requests with what was predicted.

    Parameters
    ----------
    predicted, measured : mapping of str to ndarray
        Seconds, by ``per_token``, ``end_to_end``, ``first_token``.
    chosen : ndarray of bool

    Examples
    --------
    >>> times = {"per_token": np.array([0.02, 0.03])}
    >>> late = {"per_token": np.array([0.022, 0.033])}
    >>> round(agreement(late, times, np.array([True, True])).per_token_median, 3)
    0.1
    """
    found: dict[str, float] = {}
    for name in ("per_token", "end_to_end", "first_token"):
        if name not in measured:
            continue
        told, seen = predicted[name][chosen], measured[name][chosen]
        known = np.isfinite(told) & np.isfinite(seen) & (seen > 0)
        told, seen = told[known], seen[known]
        if not len(seen):
            continue
        found[f"{name}_mean"] = float(told.mean() / seen.mean() - 1)
        if name != "first_token":
            found[f"{name}_median"] = float(np.median(np.abs(told / seen - 1)))
        if name == "per_token":
            for percent in (90, 99):
                ends = np.percentile(told, percent) / np.percentile(seen, percent) - 1
                found[f"per_token_{percent}"] = float(ends)
    return Agreement(int(chosen.sum()), **found)
