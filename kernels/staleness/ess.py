"""Effective sample size of importance weights, from weights or from log weights.

Kish's effective sample size is ``ESS = (sum w)**2 / sum w**2`` (L. Kish, Survey Sampling, 1965); divided by
the number of weights n it is the normalized ESS, between 1/n and 1. It does not change when all weights are
multiplied by one number, so the largest weight is divided out first (the largest log weight is subtracted
*before* anything is doubled): log weights of 1000, -1000 or 1e308 give the exact answer.

Conventions, the same for every function here:

- A weight of zero (log weight -inf) is legal and counts in n.
- No live weight at all (all zero): ESS 0, normalized ESS 0, status ``"all_zero"``.
- No weight (empty group): ESS 0, normalized ESS NaN (0/0), status ``"empty"``.
- NaN, plus infinity and negative weights are refused, never dropped. ``invalid="nan"`` gives NaN for such a
  group instead, with its status; :func:`ess_report` always does, so that one bad group hides no other.

The levels of rollouts (tokens, sequences, geometric means) are in :mod:`.staleness.ess_levels`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import (
    Floats,
    axis_of,
    broadcast,
    choice,
    flag,
    plain,
    real_numbers,
    whole_numbers,
    within_float64,
)
from .._jit import jit
from ..errors import ConfigError
from .ragged import Ragged, ragged

STATUSES = ("ok", "empty", "all_zero", "nan", "infinite", "negative")
_OK, _EMPTY, _ALL_ZERO, _NAN, _INFINITE, _NEGATIVE = range(6)


@dataclass(frozen=True)
class EssReport:
    """The effective sample size of each group, and what kind of answer it is.

    Attributes
    ----------
    ess : float or ndarray of float64
        Kish's effective sample size.
    normalized_ess : float or ndarray of float64
        The same divided by ``count``.
    count : int or ndarray of int64
        The number of weights in the group.
    status : str or ndarray of str
        ``"ok"``, ``"empty"``, ``"all_zero"``, ``"nan"``, ``"infinite"`` or ``"negative"``.
    """

    ess: Floats
    normalized_ess: Floats
    count: int | NDArray[np.int64]
    status: str | NDArray[np.str_]

    @property
    def ok(self) -> bool | NDArray[np.bool_]:
        """Whether the group had at least one live weight and no bad one."""
        return plain(np.asarray(self.status) == "ok")


@jit
def _group_ess_kernel(values, offsets, logarithmic, ess, normalized_ess, status):
    """Compute the ESS of every ragged group.

    values float64 (n,); offsets int64 (groups + 1,); logarithmic bool: values are log weights; outputs
    ess, normalized_ess float64 (groups,), status int8 (groups,).
    """
    for group in range(offsets.size - 1):
        start = offsets[group]
        stop = offsets[group + 1]
        peak = -np.inf
        nan = False
        negative = False
        for i in range(start, stop):
            # float(): plain arithmetic overflows silently to infinity, with and without the compiler.
            value = float(values[i])
            if value > peak:
                peak = value
            elif value != value:
                nan = True
            if value < 0.0:
                negative = True
        code = _OK
        if nan:
            code = _NAN
        elif negative and not logarithmic:
            code = _NEGATIVE
        elif peak == np.inf:
            code = _INFINITE
        elif stop == start:
            code = _EMPTY
        elif (logarithmic and peak == -np.inf) or (not logarithmic and peak == 0.0):
            code = _ALL_ZERO
        status[group] = code
        if code != _OK:
            ess[group] = np.nan if code >= _NAN else 0.0
            normalized_ess[group] = 0.0 if code == _ALL_ZERO else np.nan
            continue
        total = 0.0
        squares = 0.0
        exponent = 0 if logarithmic else math.frexp(peak)[1]
        for i in range(start, stop):
            # A power of two scales without rounding, so round weights give round answers.
            weight = np.exp(float(values[i]) - peak) if logarithmic else math.ldexp(values[i], -exponent)
            total += weight
            squares += weight * weight
        count = float(stop - start)
        # Exact arithmetic keeps 1 <= ESS <= n; rounding must not break it.
        ess[group] = min(max(total * total / squares, 1.0), count)
        normalized_ess[group] = ess[group] / count


def _one_of(weights: ArrayLike | None, log_weights: ArrayLike | None) -> tuple[str, ArrayLike]:
    """Take whichever of the two was given."""
    if weights is not None and log_weights is None:
        return "weights", weights
    if log_weights is not None and weights is None:
        return "log_weights", log_weights
    given = "neither" if weights is None else "both"
    rule, way_out = (
        "exactly one of weights and log_weights is needed",
        "Give log_weights where you have logs.",
    )
    raise ConfigError("weights", rule, given, way_out)


def report_groups(groups: Ragged, logarithmic: bool) -> EssReport:
    """Run the kernel over ragged groups and shape its outputs.

    Examples
    --------
    >>> report_groups(Ragged(np.array([1.0, 1.0]), np.array([0, 2]), ()), False).ess
    2.0
    """
    count = groups.offsets.size - 1
    ess, normalized = np.empty(count), np.empty(count)
    status = np.empty(count, dtype=np.int8)
    _group_ess_kernel(groups.flat, groups.offsets, logarithmic, ess, normalized, status)
    names = np.array(STATUSES)[status]
    return EssReport(
        *(plain(array.reshape(groups.shape)) for array in (ess, normalized, np.diff(groups.offsets), names))
    )


def ess_report(
    weights: ArrayLike | None = None,
    *,
    log_weights: ArrayLike | None = None,
    axis: int | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
) -> EssReport:
    """Compute the effective sample size of each group, with a status instead of an error for bad groups.

    Parameters
    ----------
    weights, log_weights : array_like
        Exactly one of the two.
    axis, mask, group_offsets
        As in :func:`effective_sample_size`.

    Returns
    -------
    EssReport
        ESS, normalized ESS, count and status, one per group.

    Raises
    ------
    ConfigError
        If shapes do not fit, or not exactly one kind of weight is given.

    Examples
    --------
    >>> report = ess_report(log_weights=[0.0, 0.0, float("nan"), -1000.0], group_offsets=[0, 2, 3, 4, 4])
    >>> report.ess, report.status.tolist()
    (array([ 2., nan,  1.,  0.]), ['ok', 'nan', 'ok', 'empty'])
    """
    name, values = _one_of(weights, log_weights)
    groups = ragged(name, values, axis=axis, mask=mask, group_offsets=group_offsets)
    return report_groups(groups, name == "log_weights")


def effective_sample_size(
    weights: ArrayLike | None = None,
    *,
    log_weights: ArrayLike | None = None,
    axis: int | None = None,
    mask: ArrayLike | None = None,
    group_offsets: ArrayLike | None = None,
    normalized: bool = False,
    invalid: str = "raise",
) -> Floats:
    """Compute Kish's effective sample size, ``(sum w)**2 / sum w**2``.

    Parameters
    ----------
    weights : array_like
        Importance weights, 0 or more, of any common scale.
    log_weights : array_like
        Their logarithms, instead; -inf is a weight of zero.
    axis : int, optional
        One result per group along this axis. None: all values are one group.
    mask : array_like of bool, optional
        Which values are active; the others do not count in n.
    group_offsets : array_like of int, optional
        For flat values: where each ragged group begins, and the end (see ``offsets_from_lengths``).
    normalized : bool
        Divide by the number of active values.
    invalid : {"raise", "nan"}
        What NaN, plus infinity or a negative weight does: an error, or NaN for that group.

    Returns
    -------
    float or ndarray of float64
        One number per group. All weights zero: 0. Empty: 0, or NaN when normalized.

    Raises
    ------
    ConfigError
        If a weight is NaN, plus infinity or negative (unless ``invalid="nan"``), or shapes do not fit.

    Notes
    -----
    Everything is summed in float64 whatever the input's dtype.

    Examples
    --------
    >>> effective_sample_size([1.0, 3.0])
    1.6
    >>> effective_sample_size(log_weights=[[1000.0, 1000.0], [-1000.0, -1000.0]], axis=1, normalized=True)
    array([1., 1.])
    """
    way_out = "Give 'nan' to get NaN for a bad group."
    choice("invalid", invalid, ("raise", "nan"), rule="must be 'raise' or 'nan'", way_out=way_out)
    normalized = flag("normalized", normalized)
    name, values = _one_of(weights, log_weights)
    groups = ragged(name, values, axis=axis, mask=mask, group_offsets=group_offsets)
    report = report_groups(groups, name == "log_weights")
    if invalid == "raise":
        _raise_for_bad_group(name, groups, np.atleast_1d(report.status).reshape(-1))
    return report.normalized_ess if normalized else report.ess


def _raise_for_bad_group(name: str, groups: Ragged, status: NDArray[np.str_]) -> None:
    """Raise for the first group with a bad weight; name the weight and where it stands."""
    bad = np.flatnonzero(np.isin(status, STATUSES[_NAN:]))
    if not bad.size:
        return
    start, stop = groups.offsets[bad[0]], groups.offsets[bad[0] + 1]
    values = groups.flat[start:stop]
    rule, wrong = {
        "nan": ("must not be NaN", np.isnan(values)),
        "infinite": ("must be finite, or -inf for a weight of zero", np.isposinf(values)),
        "negative": ("must be 0 or more", values < 0),
    }[str(status[bad[0]])]
    where = int(np.flatnonzero(wrong)[0])
    place = f"{name}[{where}]" if status.size == 1 else f"{name}, group {bad[0]}, value {where}"
    way_out = "Find its source, or give invalid='nan' or use ess_report to see which groups are bad."
    raise ConfigError(place, rule, float(values[where]), way_out)


@within_float64
def expected_normalized_ess(
    lag: ArrayLike, drift_per_version: ArrayLike, *, axis: int | None = None
) -> Floats:
    """Return the normalized ESS that rollouts of these lags have on average when there are many of them.

    Under the simulator's drift model a rollout of lag l has a lognormal weight of mean 1 with log
    standard deviation ``s = drift_per_version * sqrt(l)``, so ``E[w**2] = exp(s**2)`` and the expected
    value for a batch is ``1 / mean(exp(s**2))``. Unlike the observed ESS it is not
    flattered by a small batch.

    Parameters
    ----------
    lag : array_like of int
        Policy lag of each rollout, in versions, 0 or more.
    drift_per_version : array_like
        Standard deviation of a rollout's log weight at lag 1, 0 or more.
    axis : int, optional
        Batches lie along this axis of the broadcast arrays. None: everything is one batch.

    Returns
    -------
    float or ndarray of float64
        Between 0 and 1; NaN for a batch without rollouts.

    Raises
    ------
    ConfigError
        If a lag is negative or not whole, or a drift is negative or not finite.

    Examples
    --------
    >>> expected_normalized_ess([0, 0, 0], 0.2)
    1.0
    >>> round(expected_normalized_ess([1, 2], 1.0), 4)
    0.1979
    """
    lags = whole_numbers("lag", lag, minimum=0)
    drift = real_numbers("drift_per_version", drift_per_version, minimum=0)
    lags, drift = broadcast(lag=lags, drift_per_version=drift)
    variance = drift * drift * lags
    if axis is None:
        variance, axis = variance.reshape(-1), 0
    else:
        axis = axis_of(axis, variance.ndim)
    if variance.shape[axis] == 0:
        return plain(np.full(np.delete(variance.shape, axis), np.nan))
    # exp(variance) overflows from lag 8 at drift 10, so the largest is taken out first.
    peak = variance.max(axis=axis, keepdims=True)
    mean = np.exp(variance - peak).mean(axis=axis)
    return plain(np.exp(-peak.squeeze(axis)) / mean)
