"""Drift from what trainers log: an effective sample size, a KL estimate, a clip ratio; tokens and sequences.

All of it rests on one assumption: the log importance ratio is normal, with a variance that grows by the same
amount each version. With variance ``s**2`` and ratios of mean 1 (so the mean log ratio is ``-s**2 / 2``):

=====================================  =============================================================
normalized ESS of many                 ``exp(-s**2)``, since ``E[r**2] = exp(s**2)``
KL(behaviour || trainer), k1           ``E[-log r] = s**2 / 2``
the same, k3                           ``E[r - log r - 1] = s**2 / 2``
share of ratios outside 1 - e … 1 + e  ``Phi(l / s + s / 2) + Phi(-h / s - s / 2)``, l and h their logarithms
=====================================  =============================================================

and ``s = drift * sqrt(lag)``. The first line is Kong's rule for lognormal weights (Kong, Liu, Wong, JASA 89,
1994); k1 and k3 are J. Schulman's names (2020). A sequence's log ratio is the sum over its tokens: with n of
variance ``s**2`` and correlation ``c`` between any two, its variance is ``s**2 * n * (1 + (n - 1) * c)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import broadcast, plain, real_numbers, within_float64

Floats = float | NDArray[np.float64]
MOST_SHARE = 0.9999  # of what must be below 1
_STEPS = 100  # halvings, more than a float64 has digits


@within_float64
def drift_from_ess(
    normalized_ess: ArrayLike, lag: ArrayLike = 1.0, *, ess_at_lag_0: ArrayLike = 1.0
) -> Floats:
    """Return the drift per version that a logged normalized ESS stands for.

    It is ``sqrt(-log(ESS / ESS_0) / lag)``.
    The drift is of the level at which the ESS was taken: that of tokens from a token ESS, that of sequences
    from a sequence ESS.

    Parameters
    ----------
    normalized_ess : array_like
        Above 0, at most 1.
    lag : array_like
        Versions between behaviour and trainer, above 0.
    ess_at_lag_0 : array_like
        What the same log shows without lag: engine and trainer differ in numbers even then. At least
        `normalized_ess`, at most 1.

    Returns
    -------
    float or ndarray of float64
        Standard deviation of the log ratio at lag 1.

    Raises
    ------
    ConfigError
        For a value out of range.

    Examples
    --------
    >>> round(drift_from_ess(0.9704, ess_at_lag_0=0.9964), 3)
    0.163
    >>> drift_from_ess([1.0, 0.96], lag=2).round(3).tolist()
    [0.0, 0.143]
    """
    ess = real_numbers("normalized_ess", normalized_ess, above=0, maximum=1)
    versions = real_numbers("lag", lag, above=0)
    without = real_numbers("ess_at_lag_0", ess_at_lag_0, above=0, maximum=1)
    ess, versions, without = broadcast(normalized_ess=ess, lag=versions, ess_at_lag_0=without)
    ratio = np.minimum(ess / without, 1.0)
    return plain(np.sqrt(np.abs(np.log(ratio)) / versions))


@within_float64
def drift_from_kl(kl: ArrayLike, lag: ArrayLike = 1.0) -> Floats:
    """Return the drift per version that a logged KL (k1 or k3) stands for: ``sqrt(2 * KL / lag)``.

    Parameters
    ----------
    kl : array_like
        Mean per token (or per sequence) of ``behaviour - trainer`` log probabilities, or of k3; 0 or more.
    lag : array_like
        Versions between behaviour and trainer, above 0.

    Raises
    ------
    ConfigError
        For a value out of range.

    Examples
    --------
    >>> round(drift_from_kl(0.0141), 3)
    0.168
    """
    mean = real_numbers("kl", kl, minimum=0)
    versions = real_numbers("lag", lag, above=0)
    mean, versions = broadcast(kl=mean, lag=versions)
    return plain(np.sqrt(2 * mean / versions))


@within_float64
def drift_from_clip_fraction(fraction: ArrayLike, clip_range: ArrayLike, lag: ArrayLike = 1.0) -> Floats:
    """Return the drift per version at which so large a share of ratios leaves ``1 - e ... 1 + e``.

    Parameters
    ----------
    fraction : array_like
        Share of ratios outside, from 0 to 0.9999. PPO's logged clip fraction counts only those on which the
        clip acts (by the advantage's sign), about half of it.
    clip_range : array_like
        e, above 0, at most 0.9999.
    lag : array_like
        Versions between behaviour and trainer, above 0.

    Raises
    ------
    ConfigError
        For a value out of range.

    Examples
    --------
    >>> round(drift_from_clip_fraction(0.25, 0.2), 3)
    0.176
    >>> drift_from_clip_fraction([0.0, 0.5], 0.2).round(3).tolist()
    [0.0, 0.3]
    """
    share = real_numbers("fraction", fraction, minimum=0, maximum=MOST_SHARE)
    width = real_numbers("clip_range", clip_range, above=0, maximum=MOST_SHARE)
    versions = real_numbers("lag", lag, above=0)
    share, width, versions = broadcast(fraction=share, clip_range=width, lag=versions)
    low, high = np.zeros(share.shape), np.full(share.shape, 1e3)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        outside = _share_outside(middle, width)
        low, high = np.where(outside < share, middle, low), np.where(outside < share, high, middle)
    return plain(np.where(share > 0, high, 0.0) / np.sqrt(versions))


def _share_outside(spread: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of lognormal ratios of mean 1 outside ``1 - width ... 1 + width``."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        below = (np.log1p(-width) + spread * spread / 2) / spread
        above = (np.log1p(width) + spread * spread / 2) / spread
    return np.asarray(ndtr(below) + ndtr(-above), np.float64)


@within_float64
def sequence_drift(token_drift: ArrayLike, tokens: ArrayLike, correlation: ArrayLike = 0.0) -> Floats:
    """Return the drift of a sequence's log ratio, the sum over its tokens, from the drift of one token.

    ``token_drift * sqrt(n * (1 + (n - 1) * correlation))``: times ``sqrt(n)`` where tokens move on their own,
    times n where they move together. Divided by n it is the drift of the geometric mean.

    Parameters
    ----------
    token_drift : array_like
        Standard deviation of a token's log ratio at lag 1, 0 or more.
    tokens : array_like
        Tokens of a sequence, 1 or more.
    correlation : array_like
        Between the log ratios of two tokens of a sequence, 0 to 1.

    Raises
    ------
    ConfigError
        For a value out of range.

    Examples
    --------
    >>> sequence_drift(0.1, 100, [0.0, 0.01, 1.0]).round(3).tolist()
    [1.0, 1.411, 10.0]
    """
    drift = real_numbers("token_drift", token_drift, minimum=0)
    count = real_numbers("tokens", tokens, minimum=1)
    shared = real_numbers("correlation", correlation, minimum=0, maximum=1)
    drift, count, shared = broadcast(token_drift=drift, tokens=count, correlation=shared)
    return plain(drift * np.sqrt(count * (1 + (count - 1) * shared)))
