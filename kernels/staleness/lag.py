"""Policy lag: how many versions a rollout is behind, counted, summarised and bounded.

``lag = trainer version - behaviour version``, in optimizer updates; a rollout is kept exactly when
``lag <= max_policy_lag``, so a limit of 0 means "the same version only". A rollout that spans several
versions has one lag per token; the sequence rule goes by its oldest token, the token rule masks the old
tokens alone (:func:`sequence_lag`, :func:`within_lag`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Integers, broadcast, check_size, paired, plain, real_numbers, whole_numbers
from .._jit import jit
from ..errors import ConfigError
from .ragged import Ragged, boolean_mask, ragged

LAG_BINS = 65  # 0 ... 63, and "64 or more"


@dataclass(frozen=True)
class LagSummary:
    """Least, mean and greatest lag of real rollouts, and how many there were; NaN and -1 when none."""

    minimum: int
    mean: float
    maximum: int
    count: int


def policy_lag(trainer_version: ArrayLike, behaviour_version: ArrayLike) -> Integers:
    """Return the lag, ``trainer_version - behaviour_version``.

    Parameters
    ----------
    trainer_version, behaviour_version : array_like of int
        Optimizer updates, 0 or more; they broadcast.

    Returns
    -------
    int or ndarray of int64
        Versions behind, 0 or more.

    Raises
    ------
    ConfigError
        If a behaviour version is newer than the trainer's.

    Examples
    --------
    >>> policy_lag(10, [7, 9, 10])
    array([3, 1, 0])
    """
    trainer = whole_numbers("trainer_version", trainer_version, minimum=0)
    behaviour = whole_numbers("behaviour_version", behaviour_version, minimum=0)
    trainer, behaviour = paired(trainer_version=trainer, behaviour_version=behaviour)
    newer = behaviour > trainer
    if newer.any():
        rule = f"must not be newer than the trainer's version {int(trainer[newer].flat[0])}"
        way_out = "A version was counted up before its weights were there, or the two are swapped."
        raise ConfigError("behaviour_version", rule, int(behaviour[newer].flat[0]), way_out)
    return plain(trainer - behaviour)


def within_lag(
    trainer_version: ArrayLike, behaviour_version: ArrayLike, max_policy_lag: ArrayLike
) -> bool | NDArray[np.bool_]:
    """Say which rollouts, or which tokens, a lag limit keeps: exactly those with ``lag <= max_policy_lag``.

    Parameters
    ----------
    trainer_version, behaviour_version : array_like of int
        As in :func:`policy_lag`. Versions per token give the mask of the token rule.
    max_policy_lag : array_like of int
        The limit, 0 or more.

    Returns
    -------
    bool or ndarray of bool

    Raises
    ------
    ConfigError
        If a version or the limit is negative, or a behaviour version is newer than the trainer's.

    Examples
    --------
    >>> within_lag(10, [7, 8, 9, 10], 2)
    array([False,  True,  True,  True])
    """
    limit = whole_numbers("max_policy_lag", max_policy_lag, minimum=0)
    lag, limit = paired(lag=np.asarray(policy_lag(trainer_version, behaviour_version)), max_policy_lag=limit)
    return plain(lag <= limit)


def sequence_lag(
    trainer_version: ArrayLike, token_versions: ArrayLike, *, mask: ArrayLike | None = None
) -> Integers:
    """Return a rollout's lag by its oldest token.

    Parameters
    ----------
    trainer_version : array_like of int
        One version, or one per rollout.
    token_versions : array_like of int
        The version that sampled each token; tokens along the last axis.
    mask : array_like of bool, optional
        Real tokens; padding does not count.

    Returns
    -------
    int or ndarray of int64
        The largest lag of each rollout's tokens; -1 for a rollout without tokens.

    Raises
    ------
    ConfigError
        If a token's version is newer than the trainer's.

    Examples
    --------
    >>> sequence_lag(6, [3, 3, 4, 5])
    3
    """
    trainer = whole_numbers("trainer_version", trainer_version, minimum=0)
    # Systems mark prompt tokens with -1, so what the mask leaves out is not judged.
    tokens = np.atleast_1d(whole_numbers("token_versions", token_versions, minimum=-(2**53)))
    real = np.ones(tokens.shape, dtype=bool) if mask is None else boolean_mask("mask", mask)
    tokens, real, trainer = broadcast(token_versions=tokens, mask=real, trainer_version=trainer[..., None])
    lag = np.asarray(policy_lag(trainer, np.where(real, tokens, trainer)))
    return plain(np.max(np.where(real, lag, -1), axis=-1, initial=-1))


def lag_summary(
    trainer_version: ArrayLike, behaviour_version: ArrayLike, *, mask: ArrayLike | None = None
) -> LagSummary:
    """Summarise the lag of the real rollouts of a batch.

    Parameters
    ----------
    trainer_version, behaviour_version : array_like of int
        As in :func:`policy_lag`.
    mask : array_like of bool, optional
        Real rollouts; filler rows, which some trainers stamp with the newest version, do not count.

    Returns
    -------
    LagSummary
        Minimum, mean, maximum and count.

    Raises
    ------
    ConfigError
        If a behaviour version is newer than the trainer's, or the mask does not fit.

    Examples
    --------
    >>> lag_summary(10, [7, 9, 10, 10], mask=[1, 1, 0, 0])
    LagSummary(minimum=1, mean=2.0, maximum=3, count=2)
    """
    lag = _lags(policy_lag(trainer_version, behaviour_version), None, mask, None).flat
    if not lag.size:
        return LagSummary(minimum=-1, mean=float("nan"), maximum=-1, count=0)
    return LagSummary(int(lag.min()), float(lag.mean()), int(lag.max()), lag.size)


def _lags(
    lag: ArrayLike, axis: int | None, mask: ArrayLike | None, group_offsets: ArrayLike | None
) -> Ragged:
    """Read whole, non-negative lags as ragged groups."""
    return ragged(
        "lag", whole_numbers("lag", lag, minimum=0), axis=axis, mask=mask, group_offsets=group_offsets
    )


@jit
def _lag_counts_kernel(lags, offsets, edges, counts):
    """Count the lags of every ragged group into bins.

    lags int64 (n,); offsets int64 (groups + 1,); edges int64 (bins,), rising, the least lag of each bin;
    output counts int64 (groups, bins), zeroed. Returns the first lag below all bins, or -1.
    """
    last = edges.size - 1
    # The usual edges 0, 1, 2, ... need no search.
    unit = edges[0] == 0 and edges[last] == last
    below = -1
    for group in range(offsets.size - 1):
        for i in range(offsets[group], offsets[group + 1]):
            lag = lags[i]
            if unit:
                counts[group, min(lag, last)] += 1
                continue
            low = 0
            high = edges.size
            while low < high:
                middle = (low + high) // 2
                if edges[middle] <= lag:
                    low = middle + 1
                else:
                    high = middle
            if low == 0:
                below = lag
            else:
                counts[group, low - 1] += 1
    return below


def lag_counts(
    lag: ArrayLike,
    *,
    edges: ArrayLike | None = None,
    axis: int | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Count rollouts by lag.

    Parameters
    ----------
    lag : array_like of int
        Lags in versions, 0 or more.
    edges : array_like of int, optional
        The least lag of each bin, rising; the last bin is open. Without it: 0, 1, ..., 63 and "64 or more".
    axis : int, optional
        One row of counts per group along this axis. None: everything is one group.
    mask : array_like of bool, optional
        Real rollouts.
    group_offsets : array_like of int, optional
        For flat lags: where each ragged group begins, and the end.

    Returns
    -------
    ndarray of int64
        Counts, with the bins along the last axis.

    Raises
    ------
    ConfigError
        If a lag is negative, not whole, or below the first edge, or the edges do not rise.

    Examples
    --------
    >>> lag_counts([0, 1, 1, 200])[:3], lag_counts([0, 1, 1, 200])[-1]
    (array([1, 2, 0]), np.int64(1))
    >>> lag_counts([0, 1, 1, 200], edges=[0, 1, 4])
    array([1, 2, 1])
    """
    groups = _lags(lag, axis, mask, group_offsets)
    if edges is None:
        bins = np.arange(LAG_BINS, dtype=np.int64)
    else:
        bins = np.ascontiguousarray(whole_numbers("edges", edges, minimum=0))
        check_size("edges", (groups.offsets.size - 1, bins.size))
        if bins.ndim != 1 or not bins.size or (np.diff(bins) <= 0).any():
            way_out = "Give the least lag of each bin, such as [0, 1, 2, 4, 8]."
            raise ConfigError("edges", "must be one rising row of lags", edges, way_out)
    counts = np.zeros((groups.offsets.size - 1, bins.size), dtype=np.int64)
    below = _lag_counts_kernel(groups.flat.astype(np.int64), groups.offsets, bins, counts)
    if below >= 0:
        rule = f"must be at least the first edge, {int(bins[0])}"
        raise ConfigError("lag", rule, int(below), "Begin the edges at 0.")
    return counts.reshape(*groups.shape, bins.size)


@jit
def _quantile_kernel(values, weights, offsets, quantiles, result):
    """Pick weighted quantiles of every ragged group.

    values, weights int64 (n,), values rising within a group; offsets int64 (groups + 1,); quantiles
    float64 (q,); output result int64 (groups, q).
    """
    for group in range(offsets.size - 1):
        start = offsets[group]
        stop = offsets[group + 1]
        total = 0
        for i in range(start, stop):
            total += weights[i]
        for k in range(quantiles.size):
            result[group, k] = -1
            # The guard keeps 0.07 * 100 = 7.000000000000001 from asking for an eighth rollout.
            needed = quantiles[k] * total - total * 2.0**-50
            seen = 0
            for i in range(start, stop):
                seen += weights[i]
                if seen > 0 and seen >= needed:
                    result[group, k] = values[i]
                    break


def _quantile_levels(quantiles: ArrayLike) -> NDArray[np.float64]:
    return real_numbers("quantiles", quantiles, minimum=0, maximum=1)


def lag_quantiles(
    lag: ArrayLike,
    quantiles: ArrayLike,
    *,
    axis: int | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> Integers:
    """Return quantiles of the lag: the least lag that at least a fraction q of the rollouts do not exceed.

    Parameters
    ----------
    lag : array_like of int
        Lags in versions, 0 or more.
    quantiles : array_like
        Fractions between 0 (the least lag) and 1 (the greatest).
    axis, mask, group_offsets
        As in :func:`lag_counts`.

    Returns
    -------
    int or ndarray of int64
        Whole lags that occur, quantiles along the last axis; -1 for a group without rollouts.

    Raises
    ------
    ConfigError
        If a lag is negative or not whole, or a fraction lies outside 0 to 1.

    Examples
    --------
    >>> lag_quantiles([0, 0, 1, 7], [0.5, 0.75, 1.0])
    array([0, 1, 7])
    """
    levels = _quantile_levels(quantiles)
    groups = _lags(lag, axis, mask, group_offsets)
    group_of = np.repeat(np.arange(groups.offsets.size - 1), np.diff(groups.offsets))
    flat = groups.flat.astype(np.int64)
    rising = flat[np.lexsort((flat, group_of))]
    result = np.empty((groups.offsets.size - 1, levels.size), dtype=np.int64)
    _quantile_kernel(rising, np.ones_like(rising), groups.offsets, levels.reshape(-1), result)
    return plain(result.reshape(groups.shape + levels.shape))


def lag_quantiles_from_counts(
    counts: ArrayLike, quantiles: ArrayLike, *, edges: ArrayLike | None = None
) -> Integers:
    """Return the same quantiles from counts by lag, as a sweep stores them.

    Parameters
    ----------
    counts : array_like of int
        Counts with the bins along the last axis, as :func:`lag_counts` gives them.
    quantiles : array_like
        Fractions between 0 and 1.
    edges : array_like of int, optional
        The least lag of each bin. Without it: 0, 1, 2, ....

    Returns
    -------
    int or ndarray of int64
        The least lag of the bin that holds the quantile (64 from the last bin means "64 or more"), with the
        quantiles along the last axis; -1 where nothing was counted.

    Raises
    ------
    ConfigError
        If a count is negative, a fraction lies outside 0 to 1, or the edges do not fit.

    Examples
    --------
    >>> lag_quantiles_from_counts([2, 1, 0, 1], [0.5, 0.75, 1.0])
    array([0, 1, 3])
    """
    levels = _quantile_levels(quantiles)
    table = whole_numbers("counts", counts, minimum=0)
    table = np.atleast_1d(table)
    bins = table.shape[-1]
    least = np.arange(bins) if edges is None else whole_numbers("edges", edges, minimum=0)
    if least.shape != (bins,):
        raise ConfigError("edges", f"must name all {bins} bins", edges, "Give one edge per bin.")
    groups = table.size // bins if bins else 0
    offsets = np.arange(groups + 1, dtype=np.int64) * bins
    result = np.empty((groups, levels.size), dtype=np.int64)
    values = np.tile(least.astype(np.int64), groups)
    weights = np.ascontiguousarray(table.reshape(-1))
    _quantile_kernel(values, weights, offsets, levels.reshape(-1), result)
    return plain(result.reshape(table.shape[:-1] + levels.shape))
