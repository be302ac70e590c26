"""Pareto-smoothed importance sampling: how heavy the tail of the weights is, as one number k-hat.

A generalized Pareto distribution is fitted to the largest weights (J. Zhang and M. Stephens, Technometrics
51, 2009) and its shape k-hat says how many moments the weights have: the estimate's error is finite below
about 0.7, and with n weights the bound is ``min(1 - 1 / log10(n), 0.7)`` (Vehtari, Simpson, Gelman, Yao and
Gabry, JMLR 25, 2024). The tail is replaced by the fitted quantiles to give smoothed weights.

Sign: this module takes **log weights** as they are, larger means heavier. Leave-one-out packages pass minus
the log likelihood instead; here nothing is negated.

Where other packages give a number that looks good, this one does not: a tail that a few weights hold alone
(one weight of e^1000) has k-hat infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import one_number
from ..errors import ConfigError
from .ess import effective_sample_size
from .ragged import float_values

_LEAST_TAIL = 5
_NEARLY_ALL = 0.9  # share of the weights that count: a few that stand out do no harm


@dataclass(frozen=True)
class ParetoReport:
    """The fitted tail of a set of importance weights.

    Attributes
    ----------
    khat : float
        The shape; infinity when fewer than five weights hold the whole tail, and with it the ESS.
    good_limit : float
        ``min(1 - 1 / log10(n), 0.7)``, the largest k-hat at which n weights are reliable.
    tail_count : int
        How many of the largest weights the fit used.
    ess, smoothed_ess : float
        Kish's effective sample size of the raw and of the smoothed weights.
    smoothed_log_weights : ndarray of float64
        Log weights with the tail smoothed and cut at the largest raw weight; the largest raw one is 0.
    """

    khat: float
    good_limit: float
    tail_count: int
    ess: float
    smoothed_ess: float
    smoothed_log_weights: NDArray[np.float64]

    @property
    def reliable(self) -> bool:
        """Whether k-hat is within the limit for this number of weights."""
        return self.khat <= self.good_limit


def _fit_generalized_pareto(exceedances: NDArray[np.float64]) -> tuple[float, float]:
    """Fit shape and scale to rising exceedances by Zhang and Stephens' averaged profile likelihood."""
    count = exceedances.size
    candidates = 30 + math.isqrt(count)
    quartile = exceedances[int(count / 4 + 0.5) - 1]
    steps = np.arange(1, candidates + 1) - 0.5
    thetas = (1 - np.sqrt(candidates / steps)) / (3 * quartile) + 1 / exceedances[-1]
    shapes = np.log1p(-thetas[:, None] * exceedances).mean(axis=1)
    profile = count * (np.log(-thetas / shapes) - shapes - 1)
    posterior = np.exp(profile - profile.max())
    theta = float((thetas * posterior).sum() / posterior.sum())
    shape = float(np.log1p(-theta * exceedances).mean())
    scale = -shape / theta
    # A weak prior at 0.5, worth ten observations, steadies short tails (Vehtari et al., appendix).
    return (count * shape + 5) / (count + 10), scale


def _pareto_quantiles(shape: float, scale: float, count: int) -> NDArray[np.float64]:
    """Return the quantiles at (i - 1/2) / count of the fitted distribution."""
    survival = np.log1p(-(np.arange(1, count + 1) - 0.5) / count)
    if abs(shape) < 1e-30:
        return -scale * survival
    return scale * np.expm1(-shape * survival) / shape


def pareto_khat(log_weights: ArrayLike, *, relative_efficiency: float = 1.0) -> ParetoReport:
    """Fit the tail of importance weights and smooth it.

    Parameters
    ----------
    log_weights : array_like
        Log weights (not minus log weights), finite or -inf, at least 25.
    relative_efficiency : float
        Effective over nominal number of draws, for correlated draws; 1 for independent ones.

    Returns
    -------
    ParetoReport

    Raises
    ------
    ConfigError
        If there are too few weights for a tail of five, a weight is NaN or plus infinity, or the tail's
        weights are all equal, or nearly (k-hat is undefined; the ESS says all there is).

    Notes
    -----
    The tail has ``ceil(min(n / 5, 3 * sqrt(n / relative_efficiency)))`` weights.

    Examples
    --------
    >>> import numpy as np
    >>> report = pareto_khat(-0.5 * np.log1p(-(np.arange(1000) + 0.5) / 1000))
    >>> round(report.khat, 2), round(report.good_limit, 2), report.reliable
    (0.5, 0.67, True)
    """
    values = float_values("log_weights", log_weights).reshape(-1)
    efficiency = one_number("relative_efficiency", relative_efficiency, above=0)
    ess = float(effective_sample_size(log_weights=values))  # refuses NaN and plus infinity
    count = values.size
    tail_count = math.ceil(min(count / 5, 3 * math.sqrt(count / efficiency))) if count else 0
    if tail_count < _LEAST_TAIL:
        rule = "must be at least 25 for a tail of five"
        raise ConfigError("log_weights", rule, count, "Pool more rollouts, or look at the ESS.")
    good_limit = min(1 - 1 / math.log10(count), 0.7)
    order = np.argsort(values, kind="stable")
    peak = values[order[-1]]
    if peak == -np.inf:
        raise ConfigError("log_weights", "must hold a weight above zero", -np.inf, "All weights are zero.")
    shifted = values - peak
    tail = order[count - tail_count :]
    if shifted[tail[0]] == 0:
        rule = "must differ in the tail: k-hat is undefined for equal weights"
        raise ConfigError("log_weights", rule, float(peak), f"The ESS, {ess:g}, says all there is.")
    # Weights below the smallest normal float beside the largest cannot be told from zero.
    cutoff = max(shifted[order[count - tail_count - 1]], math.log(np.finfo(np.float64).tiny))
    tail = tail[shifted[tail] > cutoff]
    if tail.size < _LEAST_TAIL and ess >= _NEARLY_ALL * count:
        rule = "must differ in more than four weights: k-hat is undefined for nearly equal weights"
        raise ConfigError("log_weights", rule, float(peak), f"The ESS, {ess:g}, says all there is.")
    if tail.size < _LEAST_TAIL:
        return ParetoReport(math.inf, good_limit, tail.size, ess, ess, shifted)
    threshold = math.exp(cutoff)
    shape, scale = _fit_generalized_pareto(np.exp(shifted[tail]) - threshold)
    smoothed = shifted.copy()
    if math.isfinite(shape):
        smoothed[tail] = np.minimum(np.log(_pareto_quantiles(shape, scale, tail.size) + threshold), 0)
    smoothed_ess = float(effective_sample_size(log_weights=smoothed))
    return ParetoReport(shape, good_limit, tail.size, ess, smoothed_ess, smoothed)
