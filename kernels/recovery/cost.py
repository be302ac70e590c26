"""What an interval between checkpoints costs: expected run time, overhead and availability.

The model is Daly's (FGCS 22 (2006) 303-312): failures are exponential with mean ``M`` and may strike at any
moment, while working, saving or restarting. A segment of ``t`` seconds of work and ``d`` of saving then takes
``M exp(R / M) (exp((t + d) / M) - 1)`` seconds on average, so that the run time per second of work is

    M exp(R / M) (exp((t + d) / M) - 1) / t

The availability model of A. Saxena et al. (arXiv 2410.18124) is first order in the failures: of each period
``P = t + d`` the share ``t / P`` is work, and each failure costs a restart and half a period.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, plain, real_numbers, within_float64
from ..errors import ConfigError


def _checked(
    interval_seconds: ArrayLike,
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    restart_seconds: ArrayLike,
) -> tuple[NDArray[np.float64], ...]:
    """Check and broadcast; an endless interval needs a machine that never fails."""
    t, d, m, r = broadcast(
        interval_seconds=real_numbers("interval_seconds", interval_seconds, above=0, infinity=True),
        checkpoint_seconds=real_numbers("checkpoint_seconds", checkpoint_seconds, minimum=0),
        mtbf_seconds=real_numbers("mtbf_seconds", mtbf_seconds, above=0, infinity=True),
        restart_seconds=real_numbers("restart_seconds", restart_seconds, minimum=0),
    )
    if np.any(np.isinf(t) & ~np.isinf(m)):
        rule = "must be finite where mtbf_seconds is"
        raise ConfigError("interval_seconds", rule, np.inf, "Save now and then if the job can fail.")
    return t, d, m, r


@within_float64
def expected_overhead_fraction(
    interval_seconds: ArrayLike,
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    *,
    restart_seconds: ArrayLike = 0.0,
) -> Floats:
    """Return the extra seconds per second of useful work, exactly for exponential failures.

    ``M exp(R / M) (exp((t + d) / M) - 1) / t - 1``; without failures ``d / t``. Infinity means that the run
    is not expected to end in any time that a float64 can hold.

    Parameters
    ----------
    interval_seconds : array_like
        Work between two checkpoints, above 0; infinite only where nothing fails.
    checkpoint_seconds : array_like
        Seconds of a save, at least 0.
    mtbf_seconds : array_like
        Mean seconds between failures, above 0; infinity allowed.
    restart_seconds : array_like
        Seconds of a restart, at least 0; failures may strike here too.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> round(expected_overhead_fraction(3600.0, 180.0, 36_000.0), 6)
    0.107106
    """
    t, d, m, r = _checked(interval_seconds, checkpoint_seconds, mtbf_seconds, restart_seconds)
    fails = ~np.isinf(m)
    mean, work = np.where(fails, m, 1.0), np.where(fails, t, 1.0)
    with np.errstate(over="ignore"):
        per_work = np.exp(r / mean) * (np.expm1((work + d) / mean) / (work / mean))
    return plain(np.where(fails, per_work - 1.0, d / t))


@within_float64
def expected_run_seconds(
    work_seconds: ArrayLike,
    interval_seconds: ArrayLike,
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    *,
    restart_seconds: ArrayLike = 0.0,
) -> Floats:
    """Return the expected run time of a job with so much useful work: ``work * (1 + overhead)``.

    The number of segments is ``work / interval`` and need not be whole (Daly's form); each one ends with a
    save, the last one too.

    Parameters
    ----------
    work_seconds : array_like
        Useful work, at least 0: the run time of a machine that never fails and never saves.
    interval_seconds, checkpoint_seconds, mtbf_seconds, restart_seconds : array_like
        As for :func:`expected_overhead_fraction`.

    Returns
    -------
    float or ndarray
        Seconds.

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> round(expected_run_seconds(36_000.0, 3600.0, 180.0, 36_000.0), 2)
    39855.82
    """
    overhead = np.asarray(
        expected_overhead_fraction(
            interval_seconds, checkpoint_seconds, mtbf_seconds, restart_seconds=restart_seconds
        )
    )
    work, overhead = broadcast(
        work_seconds=real_numbers("work_seconds", work_seconds, minimum=0), interval_seconds=overhead
    )
    # Nothing to do takes no time, whatever the overhead (0 * infinity).
    return plain(np.multiply(work, 1.0 + overhead, out=np.zeros(work.shape), where=work > 0))


@within_float64
def checkpoint_availability(
    interval_seconds: ArrayLike,
    checkpoint_seconds: ArrayLike,
    mtbf_seconds: ArrayLike,
    *,
    restart_seconds: ArrayLike = 0.0,
) -> Floats:
    """Return the share of the elapsed time that is useful work, first order in the failures.

    ``t / P * M / (M + R + P / 2)`` with the period ``P = t + d``: what ``method="availability"`` maximises.

    Parameters
    ----------
    interval_seconds, checkpoint_seconds, mtbf_seconds, restart_seconds : array_like
        As for :func:`expected_overhead_fraction`.

    Returns
    -------
    float or ndarray
        From 0 to 1.

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> round(checkpoint_availability(3600.0, 180.0, 36_000.0, restart_seconds=300.0), 4)
    0.8978
    """
    t, d, m, r = _checked(interval_seconds, checkpoint_seconds, mtbf_seconds, restart_seconds)
    endless, fails = np.isinf(t), ~np.isinf(m)
    period = np.where(endless, 1.0, t + d)
    useful = np.where(endless, 1.0, t / period)
    mean = np.where(fails, m, 1.0)
    return plain(useful * np.where(fails, mean / (mean + r + 0.5 * period), 1.0))
