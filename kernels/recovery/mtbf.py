"""The mean time between failures, from what was really observed, with its uncertainty.

Only failures count. A job that ended because its allocation ran out did not fail: its hours belong to the run
time, its end does not belong to the failures, and counting it makes every recommended interval too short.

With ``f`` failures in ``T`` seconds and a constant rate, ``T / f`` is the estimate and chi-square quantiles
give the exact interval, ``2 T / chi2`` with ``2 f + 2`` and ``2 f`` degrees of freedom (F. Garwood,
Biometrika 28 (1936) 437-442). Intervals between checkpoints go with the square root, so half the relative
uncertainty reaches them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._arguments import Floats, broadcast, one_number, plain, real_numbers, whole_numbers, within_float64
from ..errors import ConfigError

_WAY_OUT = "Give run_seconds and failures, or failures_per_second alone."


@dataclass(frozen=True)
class MtbfEstimate:
    """A mean time between failures and what it rests on; numbers, or arrays of one shape.

    Attributes
    ----------
    mtbf_seconds : float or ndarray
        The estimate; infinite when nothing failed.
    lower_seconds, upper_seconds : float or ndarray
        Confidence interval; both are the estimate itself when a rate was given. Without failures the lower
        end is the only information there is.
    confidence : float
        Of the interval.
    source : str
        ``"run time and failures"`` or ``"failure rate"``: which of the two inputs was used.
    """

    mtbf_seconds: Floats
    lower_seconds: Floats
    upper_seconds: Floats
    confidence: float
    source: str


@within_float64
def mtbf_estimate(
    *,
    run_seconds: ArrayLike | None = None,
    failures: ArrayLike | None = None,
    failures_per_second: ArrayLike | None = None,
    confidence: float = 0.95,
) -> MtbfEstimate:
    """Estimate the mean time between failures from a run time and its failures, or from a rate.

    Parameters
    ----------
    run_seconds : array_like, optional
        All time the job ran, over all its runs, above 0. Several values are several jobs, each with
        an estimate.
    failures : array_like, optional
        Unplanned ends only, at least 0: not the runs that reached their time limit or were stopped. Beside
        several run times there must be a count for each.
    failures_per_second : array_like, optional
        A known rate instead, above 0.
    confidence : float
        Of the interval, above 0 and below 1.

    Returns
    -------
    MtbfEstimate

    Raises
    ------
    ConfigError
        If not exactly one of the two inputs is given, one count of failures stands beside several run times,
        or an argument is out of its range.

    Examples
    --------
    >>> four_runs = mtbf_estimate(run_seconds=4 * 12 * 3600, failures=1)    # three reached the time limit
    >>> four_runs.mtbf_seconds / 3600, four_runs.source
    (48.0, 'run time and failures')
    """
    level = one_number("confidence", confidence, above=0)
    if level >= 1:
        raise ConfigError("confidence", "must be below 1", confidence, "Give a share such as 0.95.")
    if failures_per_second is not None:
        if run_seconds is not None or failures is not None:
            rule = "must not stand beside run_seconds or failures"
            raise ConfigError("failures_per_second", rule, failures_per_second, _WAY_OUT)
        mean = plain(1.0 / real_numbers("failures_per_second", failures_per_second, above=0))
        return MtbfEstimate(mean, mean, mean, level, "failure rate")
    for name, value in (("run_seconds", run_seconds), ("failures", failures)):
        if value is None:
            raise ConfigError(name, "must be given", None, _WAY_OUT)
    from scipy.special import chdtri

    time = real_numbers("run_seconds", run_seconds, above=0)  # type: ignore[arg-type]
    count = whole_numbers("failures", failures, minimum=0)  # type: ignore[arg-type]
    if count.size == 1 < time.size:
        # Broadcasting would count the same failures once for every run.
        rule = f"must be a count for each of the {time.size} run times"
        way_out = "Give sum(run_seconds) for one estimate over all runs, or the failures of each run."
        raise ConfigError("failures", rule, failures, way_out)
    time, count = broadcast(run_seconds=time, failures=count)
    some = count > 0
    tail = (1.0 - level) / 2.0
    endless = np.full(time.shape, np.inf)
    degrees = np.maximum(2.0 * count, 1.0)
    upper = np.divide(2.0 * time, chdtri(degrees, 1.0 - tail), out=endless.copy(), where=some)
    return MtbfEstimate(
        mtbf_seconds=plain(np.divide(time, count, out=endless.copy(), where=some)),
        lower_seconds=plain(2.0 * time / chdtri(2.0 * count + 2.0, tail)),
        upper_seconds=plain(upper),
        confidence=level,
        source="run time and failures",
    )


@within_float64
def scale_mtbf_seconds(mtbf_seconds: ArrayLike, *, measured_devices: ArrayLike, devices: ArrayLike) -> Floats:
    """Carry a mean time between failures to a job of another size: ``M * measured / devices``.

    Devices fail independently and one failure stops the job, so rates add.

    Parameters
    ----------
    mtbf_seconds : array_like
        Measured on ``measured_devices``, above 0; infinity allowed.
    measured_devices, devices : array_like
        Sizes of the measured and of the planned job, at least 1.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> scale_mtbf_seconds(10_000.0, measured_devices=16_384, devices=1024)
    160000.0
    """
    mean, measured, planned = broadcast(
        mtbf_seconds=real_numbers("mtbf_seconds", mtbf_seconds, above=0, infinity=True),
        measured_devices=whole_numbers("measured_devices", measured_devices, minimum=1),
        devices=whole_numbers("devices", devices, minimum=1),
    )
    return plain(mean * (measured / planned))
