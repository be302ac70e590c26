"""What to expect of a synchronous group's slowest member: the maximum of ``n`` independent draws of a law.

For a length table with distribution function ``F`` on the whole numbers ``minimum`` … ``maximum``::

    E[max] = minimum + sum over k in minimum … maximum - 1 of (1 - F(k)^n)

The busy share of a group is ``mean / max``, and **its expectation is not the ratio of the expectations**.
For smooth laws a group with a short maximum is usually a better balanced one, so ``E[mean / max]`` is larger
than ``E[mean] / E[max]``; with gaps, or a heap at the length limit, it can be smaller: neither bounds the
other. Conditioning on the maximum gives it exactly. With ``S(m) = E[X; X <= m]`` and
``A(m) = S(m) F(m)^(n-1)``, which is ``E[X_1; max <= m]``, summation by parts leaves positive terms only::

    E[mean / max] = A(maximum) / maximum + sum over m < maximum of A(m) (1 / m - 1 / (m + 1))

Both are exact for the table, up to rounding. The classical continuous laws stand beside them: closed forms
for the uniform and the exponential law, quadrature for the normal and the lognormal one (H. A. David,
H. N. Nagaraja, "Order Statistics", 2003, sections 2 and 3).

Members are independent here. Samples of one prompt are not: their lengths correlate, so a group of one
prompt's samples waits less than these figures say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, Integers, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..draws.length_table import check_table

_EULER_GAMMA = 0.57721566490153286061
_LARGEST_GROUP = 2**40

# Trapezoids of an analytic integrand that decays on both sides: the error falls like exp(-2 pi d / step),
# d being the distance of its singularities from the real axis (over 0.4 for groups up to 2**40).
_STEP = 1.0 / 64.0
_REACH = 40.0  # standard deviations on each side; the density there is 1e-348
_CHUNK = 512  # cells of the broadcast shape done at a time, to bound memory


def _per_group_size(sizes: NDArray[np.int64], compute: Callable[[int], float]) -> NDArray[np.float64]:
    """Evaluate once per distinct group size and spread the answers over the array."""
    distinct, where = np.unique(sizes, return_inverse=True)
    return np.array([compute(int(n)) for n in distinct])[where].reshape(sizes.shape)


def _power(cdf: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Raise a table to a large power without losing ``1 - F`` near 1; ``0 ** 0`` is 1."""
    if exponent == 0:
        return np.ones_like(cdf)
    with np.errstate(divide="ignore"):
        return np.exp(exponent * np.log(cdf))


@within_float64
def expected_maximum(minimum: int, cdf: ArrayLike, draws: ArrayLike) -> Floats:
    """Return the expected maximum of ``draws`` independent lengths of one law, exactly for its table.

    ``E[max] = minimum + sum(1 - F(k)**n)``, which needs no density and never subtracts large numbers.

    Parameters
    ----------
    minimum : int
        The length of the table's first entry, at least 1.
    cdf : array_like of float, shape (n,)
        Probability of at most ``minimum + i`` tokens; ends with 1.
    draws : array_like
        Number of draws, at least 1; broadcasts.

    Returns
    -------
    float or ndarray
        Tokens (or whatever the law counts).

    Raises
    ------
    ConfigError
        If the table is no distribution function or a count is not a positive whole number.

    Examples
    --------
    >>> fair_die = [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1]
    >>> round(expected_maximum(1, fair_die, 1), 12), round(expected_maximum(1, fair_die, 2), 12)
    (3.5, 4.472222222222)
    """
    table = check_table(minimum, cdf)
    sizes = whole_numbers("draws", draws, minimum=1, maximum=_LARGEST_GROUP)
    with np.errstate(divide="ignore"):
        logarithms = np.log(table[:-1])
    return plain(_per_group_size(sizes, lambda n: minimum - float(np.expm1(n * logarithms).sum())))


@dataclass(frozen=True)
class GroupUtilization:
    """What to expect of a synchronous group; numbers, or arrays over the group sizes.

    Attributes
    ----------
    workers : int or ndarray
        Members of the group, in the broadcast shape of the arguments.
    mean_seconds, expected_max_seconds : float or ndarray
        Expected duration of one member and of the whole group.
    utilization : float or ndarray
        ``E[mean / max]``: what an average over many groups' utilizations tends to.
    ratio_of_means : float or ndarray
        ``E[mean] / E[max]``: busy worker seconds over all worker seconds in the long run, which is what
        throughput depends on: it weighs each group by its duration.
    """

    workers: Integers
    mean_seconds: Floats
    expected_max_seconds: Floats
    utilization: Floats
    ratio_of_means: Floats


@within_float64
def group_utilization(
    minimum: int,
    cdf: ArrayLike,
    workers: ArrayLike,
    *,
    seconds_per_token: ArrayLike = 1.0,
    overhead_seconds: ArrayLike = 0.0,
) -> GroupUtilization:
    """Return the expected busy share of a group that waits for its slowest member, for any length law.

    A member takes ``overhead_seconds + seconds_per_token * length``. Both averages of the busy share are
    given, since they answer different questions and are often confused; see the module's text.

    Parameters
    ----------
    minimum, cdf
        The law's table, as for :func:`expected_maximum`.
    workers : array_like
        Members of the group, at least 1; broadcasts with the two times.
    seconds_per_token : array_like
        Seconds per token of one member, above 0. It cancels from the shares unless there is an overhead.
    overhead_seconds : array_like
        Seconds that every member takes whatever its length, at least 0.

    Returns
    -------
    GroupUtilization

    Raises
    ------
    ConfigError
        If the table is no distribution function, or a count or time is out of its range.

    Examples
    --------
    >>> coin = group_utilization(1, [0.5, 1.0], workers=2)     # lengths 1 or 2, equally likely
    >>> coin.utilization, round(coin.ratio_of_means, 6)        # (1 + 1 + 3/4 + 3/4) / 4, and 1.5 / 1.75
    (0.875, 0.857143)
    """
    table = check_table(minimum, cdf)
    sizes, scale, offset = broadcast(
        workers=whole_numbers("workers", workers, minimum=1, maximum=_LARGEST_GROUP),
        seconds_per_token=real_numbers("seconds_per_token", seconds_per_token, above=0),
        overhead_seconds=real_numbers("overhead_seconds", overhead_seconds, minimum=0),
    )
    lengths = minimum + np.arange(table.size, dtype=np.float64)
    partial_mean = np.cumsum(lengths * np.diff(table, prepend=0.0))  # E[length; length <= m]

    def busy_share(n: int, pace: float, fixed: float) -> float:
        seconds = fixed + pace * lengths
        drop = np.append(np.diff(seconds) / (seconds[:-1] * seconds[1:]), 1.0 / seconds[-1])
        partial = fixed * table + pace * partial_mean
        return float((partial * _power(table, n - 1) * drop).sum())

    cells = zip(sizes.flat, scale.flat, offset.flat)
    shares = np.array([busy_share(int(n), float(pace), float(fixed)) for n, pace, fixed in cells])
    mean = offset + scale * partial_mean[-1]
    longest = offset + scale * np.asarray(expected_maximum(minimum, table, sizes))
    return GroupUtilization(
        workers=plain(sizes),
        mean_seconds=plain(mean),
        expected_max_seconds=plain(longest),
        utilization=plain(np.minimum(shares, 1.0).reshape(sizes.shape)),
        ratio_of_means=plain(np.minimum(mean / longest, 1.0)),
    )


@within_float64
def expected_maximum_uniform(draws: ArrayLike, low: ArrayLike = 0.0, high: ArrayLike = 1.0) -> Floats:
    """Return the expected maximum of uniform draws: ``low + (high - low) n / (n + 1)``.

    Parameters
    ----------
    draws, low, high : array_like
        Number of draws, at least 1, and the interval; they broadcast. ``high`` must not lie below ``low``.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range.

    Examples
    --------
    >>> expected_maximum_uniform(3, 0.0, 100.0)
    75.0
    """
    n, start, end = broadcast(
        draws=whole_numbers("draws", draws, minimum=1, maximum=_LARGEST_GROUP),
        low=real_numbers("low", low),
        high=real_numbers("high", high),
    )
    width = real_numbers("high - low", end - start, minimum=0, way_out="Give the smaller end as low.")
    return plain(start + width * (n / (n + 1)))


@within_float64
def expected_maximum_exponential(draws: ArrayLike, mean: ArrayLike = 1.0) -> Floats:
    """Return the expected maximum of exponential draws: ``mean`` times the harmonic number of ``draws``.

    Parameters
    ----------
    draws, mean : array_like
        Number of draws, at least 1, and the mean of one draw, above 0; they broadcast.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range.

    Examples
    --------
    >>> expected_maximum_exponential(2, mean=10.0)
    15.0
    """
    from scipy.special import digamma

    n, average = broadcast(
        draws=whole_numbers("draws", draws, minimum=1, maximum=_LARGEST_GROUP),
        mean=real_numbers("mean", mean, above=0),
    )
    return plain(average * (digamma(n + 1.0) + _EULER_GAMMA))


def _normal_maximum_moment(draws: NDArray[np.int64], tilt: NDArray[np.float64]) -> NDArray[Any]:
    """Integrate ``g(z) n phi(z) Phi(z)^(n-1)`` with ``g = exp(tilt z)``; flat arrays of one length."""
    from scipy.special import log_ndtr

    grid = np.arange(-_REACH, _REACH + _STEP, _STEP)
    result = np.empty(draws.size)
    for first in range(0, draws.size, _CHUNK):
        n = draws[first : first + _CHUNK, np.newaxis].astype(np.float64)
        s = tilt[first : first + _CHUNK, np.newaxis]
        z = grid + s  # the tilted density is a normal one around s
        # exp(s z - z^2 / 2) = exp(s^2 / 2) exp(-(z - s)^2 / 2): the first factor is left to the caller
        weight = -0.5 * grid**2 + (n - 1.0) * log_ndtr(z) + np.log(n)
        result[first : first + _CHUNK] = np.exp(weight).sum(axis=1) * (_STEP / np.sqrt(2.0 * np.pi))
    return result


@within_float64
def expected_maximum_lognormal(draws: ArrayLike, sigma: ArrayLike, mu: ArrayLike = 0.0) -> Floats:
    """Return the expected maximum of lognormal draws, by quadrature good to about 1e-13.

    Divide by ``exp(mu + sigma**2 / 2)`` for the factor over the mean. Note that mean over expected maximum is
    the *ratio of the means*, not the mean utilization; see :func:`group_utilization`.

    Parameters
    ----------
    draws, sigma, mu : array_like
        Number of draws, at least 1; standard deviation (0 to 30) and mean of the logarithm. They broadcast.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range.

    Examples
    --------
    >>> round(expected_maximum_lognormal(64, sigma=0.5), 6)
    3.315357
    """
    n, s, m = broadcast(
        draws=whole_numbers("draws", draws, minimum=1, maximum=_LARGEST_GROUP),
        sigma=real_numbers(
            "sigma", sigma, minimum=0, maximum=30, way_out="Give 0 to 30; a wider law has no use."
        ),
        mu=real_numbers("mu", mu),
    )
    moment = _normal_maximum_moment(n.reshape(-1), s.reshape(-1)).reshape(n.shape)
    return plain(moment * np.exp(m + 0.5 * s**2))


@within_float64
def expected_maximum_normal(draws: ArrayLike, mean: ArrayLike = 0.0, deviation: ArrayLike = 1.0) -> Floats:
    """Return the expected maximum of normal draws, by quadrature good to about 1e-13.

    Parameters
    ----------
    draws, mean, deviation : array_like
        Number of draws, at least 1; mean and standard deviation (at least 0). They broadcast.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range.

    Examples
    --------
    >>> round(expected_maximum_normal(2), 6), round(expected_maximum_normal(8, mean=100.0, deviation=10.0), 2)
    (0.56419, 114.24)
    """
    from scipy.special import log_ndtr

    n, center, spread = broadcast(
        draws=whole_numbers("draws", draws, minimum=1, maximum=_LARGEST_GROUP),
        mean=real_numbers("mean", mean),
        deviation=real_numbers("deviation", deviation, minimum=0),
    )
    grid = np.arange(-_REACH, _REACH + _STEP, _STEP)

    def standard(size: int) -> float:
        if size == 1:
            return 0.0
        density = np.exp(np.log(size) - 0.5 * grid**2 + (size - 1.0) * log_ndtr(grid))
        return float((grid * density).sum() * (_STEP / np.sqrt(2.0 * np.pi)))

    return plain(center + spread * _per_group_size(n, standard))
