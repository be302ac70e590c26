"""How often to save: Young's, Daly's and the exact optimum, and what a chosen interval costs.

One word, one meaning: an **interval** is the useful work between two checkpoints, without the ``d`` seconds
of saving; a **period** is interval plus saving. The timer starts when a save has ended, so saves never
overlap, even where saving takes longer than the interval. With ``d`` the seconds of a checkpoint, ``M`` the
mean time between failures and ``R`` the seconds of a restart:

====================  =====================================================================
``young``             ``sqrt(2 d M)`` (J. W. Young, CACM 17 (1974) 530-531)
``daly_first``        ``sqrt(2 d (M + R)) - d`` (J. T. Daly, FGCS 22 (2006) 303-312)
``daly_higher``       ``sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d`` for ``d < 2 M``, else ``M``
``exact``             ``M x`` with ``-log(1 - x) - x = d / M``
``availability``      ``sqrt(2 (M + R) d + d^2)`` (A. Saxena et al., arXiv 2410.18124), as an interval
====================  =====================================================================

The exact optimum minimises the expected run time under exponential failures that may also strike while
saving and restarting (:func:`lagsweep.kernels.expected_overhead_fraction`); ``R`` drops out. It is usually
written with Lambert's W, ``M (1 + W(-exp(-1 - d / M)))``, but that argument lies next to the branch point,
where a floating-point W is wrong by 10 % at ``d / M = 1e-15``. Here the equation is solved in
``p = sqrt(2 d / M)``: by its power series ``x = p - p^2/3 + p^3/36 + ...`` for small ``p`` (Daly's higher
order is its first three terms) and by Newton's method elsewhere. The cost is flat around the optimum: up to
``d / M = 0.1`` Young's rule costs less than half a percent of the run time.

Not modelled: failures that come in bursts, saves that run beside the work, and levels of storage
(:mod:`.recovery.multilevel`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, choice, plain, real_numbers, within_float64
from ..errors import ConfigError
from .cost import expected_overhead_fraction

_NEWTON_STEPS = 8
_SERIES_BELOW = 0.5  # the series' radius of convergence is sqrt(4 pi) = 3.54, so 24 terms leave 1e-20 here
_SERIES_TERMS = 24


def _series_coefficients(terms: int) -> NDArray[np.float64]:
    """Coefficients a[n] of x(p): put the series into ``x x' = p (1 - x)`` and compare powers of p."""
    a = np.zeros(terms + 1)
    a[1] = 1.0
    for n in range(2, terms + 1):
        known = sum((n + 1 - i) * a[i] * a[n + 1 - i] for i in range(2, n))
        a[n] = (-a[n - 1] - known) / (n + 1)
    return a


_SERIES = np.polynomial.Polynomial(_series_coefficients(_SERIES_TERMS))


def _exact_fraction(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve ``-log(1 - x) - x = ratio`` for x in [0, 1], to a few ulp for every ratio from 0 to infinity."""
    p = np.sqrt(2.0 * ratio)
    small = p < _SERIES_BELOW
    x = 1.0 - np.exp(-1.0 - np.where(small, 1.0, ratio))  # below the root, which Newton approaches from above
    for _ in range(_NEWTON_STEPS):
        decay = np.exp(-np.where(small, 1.0, ratio) - x)
        x = x - (x - 1.0 + decay) / (1.0 - decay)
    return np.where(small, _SERIES(np.where(small, p, 0.0)), np.minimum(x, 1.0))


def _young(d: NDArray[np.float64], m: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(2.0 * d * m)


def _daly_first(
    d: NDArray[np.float64], m: NDArray[np.float64], r: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.maximum(np.sqrt(2.0 * d * (m + r)) - d, 0.0)


def _daly_higher(
    d: NDArray[np.float64], m: NDArray[np.float64], r: NDArray[np.float64]
) -> NDArray[np.float64]:
    half = np.minimum(d / (2.0 * m), 1.0)
    return np.where(d < 2.0 * m, np.sqrt(2.0 * d * m) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - d, m)


def _exact(d: NDArray[np.float64], m: NDArray[np.float64], r: NDArray[np.float64]) -> NDArray[np.float64]:
    return m * _exact_fraction(d / m)


def _availability(
    d: NDArray[np.float64], m: NDArray[np.float64], r: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.sqrt(2.0 * (m + r) * d + d * d)


_RULES = {
    "young": _young,
    "daly_first": _daly_first,
    "daly_higher": _daly_higher,
    "exact": _exact,
    "availability": _availability,
}
METHODS = tuple(_RULES)


@within_float64
def optimal_checkpoint_interval(
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    *,
    method: str = "young",
    restart_seconds: ArrayLike = 0.0,
) -> Floats:
    """Return the best interval between checkpoints: the seconds of useful work, without the saving.

    Young's rule is the default because it is the one people know and costs next to nothing as long as saving
    is short against the time between failures; ``method="exact"`` is as cheap and right for any ratio. For
    ``"availability"`` the published formula gives the full *period*; here, as everywhere, the interval is
    returned, which is ``checkpoint_seconds`` less. Where ``daly_first`` has no positive value
    (``d >= 2 (M + R)``) it gives 0.

    Two limits are answers and not errors, so that a sweep may touch them: a free checkpoint gives 0 (save
    all the time), a machine that never fails gives infinity (never save). Both at once is an error.

    Parameters
    ----------
    checkpoint_seconds : array_like
        Seconds during which a save stops the work, at least 0.
    mtbf_seconds : array_like
        Mean seconds between failures of the whole job, above 0, infinity allowed: :func:`mtbf_estimate`.
    method : {"young", "daly_first", "daly_higher", "exact", "availability"}
        The rule; see the module's table.
    restart_seconds : array_like
        Seconds from a failure to the moment when work goes on, at least 0. It enters ``"daly_first"`` and
        ``"availability"`` only.

    Returns
    -------
    float or ndarray
        Seconds of work between two checkpoints.

    Raises
    ------
    ConfigError
        If an argument is out of its range, the method is unknown, or shapes do not fit together.

    Examples
    --------
    >>> optimal_checkpoint_interval(180.0, 36_000.0)
    3600.0
    >>> round(optimal_checkpoint_interval(180.0, 36_000.0, method="exact"), 4)
    3481.0134
    """
    way_out = f"Choose one of {', '.join(METHODS)}."
    choice("method", method, METHODS, rule="must name a known rule", way_out=way_out)
    d, m, r = broadcast(
        checkpoint_seconds=real_numbers("checkpoint_seconds", checkpoint_seconds, minimum=0),
        mtbf_seconds=real_numbers("mtbf_seconds", mtbf_seconds, above=0, infinity=True),
        restart_seconds=real_numbers("restart_seconds", restart_seconds, minimum=0),
    )
    never_fails = np.isinf(m)
    if np.any(never_fails & (d == 0)):
        rule = "must be positive where mtbf_seconds is infinite"
        way_out = "Without failures and without cost every interval is as good."
        raise ConfigError("checkpoint_seconds", rule, 0.0, way_out)
    finite = np.where(never_fails, 1.0, m)
    return plain(np.where(never_fails, np.inf, _RULES[method](d, finite, r)))


@dataclass(frozen=True)
class CheckpointCadence:
    """What saving every ``interval_seconds`` of work costs; numbers, or arrays of one shape.

    Attributes
    ----------
    interval_seconds, period_seconds : float or ndarray
        Work between two checkpoints, and the same with the save.
    checkpoint_fraction : float or ndarray
        First order: ``d / interval``, seconds of saving per second of work.
    expected_rework_fraction : float or ndarray
        First order: ``interval / (2 M)``; on average half an interval is lost per failure.
    restart_fraction : float or ndarray
        First order: ``R / M``.
    total_overhead : float or ndarray
        Their sum: extra seconds per second of work.
    exact_overhead : float or ndarray
        The same without the first-order approximation, for exponential failures.
    useful_fraction : float or ndarray
        ``interval / period``: the share of useful work while nothing fails.
    checkpoints_per_failure : float or ndarray
        ``M / period``.
    """

    interval_seconds: Floats
    period_seconds: Floats
    checkpoint_fraction: Floats
    expected_rework_fraction: Floats
    restart_fraction: Floats
    total_overhead: Floats
    exact_overhead: Floats
    useful_fraction: Floats
    checkpoints_per_failure: Floats


@within_float64
def checkpoint_cadence(
    interval_seconds: ArrayLike,
    *,
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    restart_seconds: ArrayLike = 0.0,
) -> CheckpointCadence:
    """Return the overheads of a chosen interval, to first order and exactly.

    Overheads are per second of useful work, ``d / interval + interval / (2 M) + R / M``: this is the form
    that Young's rule minimises, and at its optimum the first two terms are equal. Shares of the elapsed time
    (``d / period``) are the other custom; ``1 - useful_fraction`` is that one. A rework of half a *period* is
    a second-order change and is in ``exact_overhead``.

    Parameters
    ----------
    interval_seconds : array_like
        Work between two checkpoints, above 0; infinite (never save) only where nothing fails.
    checkpoint_seconds, mtbf_seconds, restart_seconds : array_like
        As for :func:`optimal_checkpoint_interval`.

    Returns
    -------
    CheckpointCadence

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> cadence = checkpoint_cadence(3600.0, checkpoint_seconds=180.0, mtbf_seconds=36_000.0)
    >>> cadence.checkpoint_fraction, cadence.expected_rework_fraction, cadence.total_overhead
    (0.05, 0.05, 0.1)
    >>> round(cadence.exact_overhead, 6), cadence.period_seconds
    (0.107106, 3780.0)
    """
    t, d, m, r = broadcast(
        interval_seconds=real_numbers("interval_seconds", interval_seconds, above=0, infinity=True),
        checkpoint_seconds=real_numbers("checkpoint_seconds", checkpoint_seconds, minimum=0),
        mtbf_seconds=real_numbers("mtbf_seconds", mtbf_seconds, above=0, infinity=True),
        restart_seconds=real_numbers("restart_seconds", restart_seconds, minimum=0),
    )
    exact = np.asarray(expected_overhead_fraction(t, d, m, restart_seconds=r))  # also checks t against m
    endless = np.isinf(t)
    period = t + d
    saving, restarting = d / t, r / m
    rework = np.divide(t, 2.0 * m, out=np.zeros(t.shape), where=~np.isinf(m))
    useful = np.divide(t, period, out=np.ones(t.shape), where=~endless)
    per_failure = np.divide(m, period, out=np.zeros(t.shape), where=~endless)
    return CheckpointCadence(
        interval_seconds=plain(t),
        period_seconds=plain(period),
        checkpoint_fraction=plain(saving),
        expected_rework_fraction=plain(rework),
        restart_fraction=plain(restarting),
        total_overhead=plain(saving + rework + restarting),
        exact_overhead=plain(exact),
        useful_fraction=plain(useful),
        checkpoints_per_failure=plain(per_failure),
    )
