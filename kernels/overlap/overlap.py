"""Two stages side by side: what overlapping rollouts with training saves, and what a slow worker costs.

The model: a batch needs its rollouts first and its training step after; each stage handles one batch at a
time. With identical batches, overlap turns ``n (R + T)`` into ``R + T + (n - 1) max(R, T)``. With unequal
ones the recurrence of a two-machine flow shop holds (S. M. Johnson, Naval Research Logistics Quarterly 1
(1954) 61-68), with a buffer of ``b`` finished batches between the stages.

A group that waits for its slowest member keeps ``mean / max`` of its workers busy.

Not modelled: token queues, lag limits and publications (that is what the simulator is for), contention
between the stages, and any change of either stage's speed by the overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, Integers, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..errors import ConfigError


@dataclass(frozen=True)
class PipelineReport:
    """What overlap saves for ``batches`` identical batches; numbers, or arrays of one shape.

    Attributes
    ----------
    sequential_total, pipeline_total : float or ndarray
        Seconds for all batches, one stage after the other and overlapped.
    speedup : float or ndarray
        ``sequential_total / pipeline_total``: 1 for one batch, never above 2.
    saved_seconds : float or ndarray
        The difference of the totals.
    period_seconds : float or ndarray
        Seconds from one batch to the next in the steady state: the slower stage.
    rollout_utilization, train_utilization : float or ndarray
        Share of ``pipeline_total`` in which each stage works.
    bottleneck : str or ndarray of str
        ``"rollout"``, ``"train"``, or ``"balanced"`` when both take equally long.
    """

    sequential_total: Floats
    pipeline_total: Floats
    speedup: Floats
    saved_seconds: Floats
    period_seconds: Floats
    rollout_utilization: Floats
    train_utilization: Floats
    bottleneck: str | NDArray[np.str_]


def _ratio_or_one(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide; where nothing takes time (0 / 0) nobody waits, which is a ratio of 1."""
    return np.divide(numerator, denominator, out=np.ones_like(denominator), where=denominator > 0)


@within_float64
def pipeline_report(
    rollout_seconds: ArrayLike, train_seconds: ArrayLike, batches: ArrayLike
) -> PipelineReport:
    """Compare a sequential loop with an ideal two-stage pipeline of identical batches.

    ``sequential = n (R + T)``, ``pipeline = R + T + (n - 1) max(R, T)``. The gain never exceeds 2: a larger
    published speed-up has other causes than overlap.

    Parameters
    ----------
    rollout_seconds, train_seconds : array_like
        Seconds of each stage per batch, at least 0. A stage of 0 seconds is the degenerate pipeline with
        nothing to overlap: both totals agree. Where both are 0 the speed-up and the utilizations are 1.
    batches : array_like
        Number of batches, at least 1.

    Returns
    -------
    PipelineReport
        Totals, gain, utilizations and bottleneck, in the broadcast shape of the arguments.

    Raises
    ------
    ConfigError
        If a time is negative or not finite, a count is not a positive whole number, or shapes do not fit.

    Examples
    --------
    >>> report = pipeline_report(rollout_seconds=60.0, train_seconds=20.0, batches=10)
    >>> report.sequential_total, report.pipeline_total, report.bottleneck
    (800.0, 620.0, 'rollout')
    >>> pipeline_report(60.0, [20.0, 60.0], 10).pipeline_total
    array([620., 660.])
    """
    rollout, train, count = broadcast(
        rollout_seconds=real_numbers("rollout_seconds", rollout_seconds, minimum=0),
        train_seconds=real_numbers("train_seconds", train_seconds, minimum=0),
        batches=whole_numbers("batches", batches, minimum=1),
    )
    slower, faster = np.maximum(rollout, train), np.minimum(rollout, train)
    sequential = count * (rollout + train)
    pipelined = count * slower + faster  # = R + T + (n - 1) max(R, T), exact where one stage takes 0 s
    bottleneck = np.where(rollout > train, "rollout", np.where(rollout < train, "train", "balanced"))
    return PipelineReport(
        sequential_total=plain(sequential),
        pipeline_total=plain(pipelined),
        speedup=plain(_ratio_or_one(sequential, pipelined)),
        saved_seconds=plain((count - 1) * faster),
        period_seconds=plain(slower),
        rollout_utilization=plain(_ratio_or_one(count * rollout, pipelined)),
        train_utilization=plain(_ratio_or_one(count * train, pipelined)),
        bottleneck=plain(bottleneck),
    )


@dataclass(frozen=True)
class StragglerReport:
    """What waiting for the slowest worker costs a synchronous group; numbers, or arrays over groups.

    Attributes
    ----------
    workers : int
        Size of a group.
    utilization : float or ndarray
        ``mean / max``: the busy share of the group's worker seconds.
    waiting_fraction : float or ndarray
        ``1 - utilization``.
    mean, max : float or ndarray
        Seconds of the average and of the slowest worker.
    slowest_worker : int or ndarray
        Position of the slowest worker, the first one in a tie.
    busy_worker_seconds, idle_worker_seconds, total_worker_seconds : float or ndarray
        Sum of the durations, its complement, and ``workers * max``.
    """

    workers: int
    utilization: Floats
    waiting_fraction: Floats
    mean: Floats
    max: Floats
    slowest_worker: Integers
    busy_worker_seconds: Floats
    idle_worker_seconds: Floats
    total_worker_seconds: Floats


@within_float64
def straggler_report(durations: ArrayLike) -> StragglerReport:
    """Measure how much of a synchronous group's time is spent waiting for its slowest member.

    ``utilization = mean(durations) / max(durations)``. This is the figure of one observed group; for what to
    expect from a length law see :func:`lagsweep.kernels.group_utilization`.

    Parameters
    ----------
    durations : array_like
        Seconds per worker, at least 0; the last axis is one group, leading axes are many groups. An empty
        group and a NaN are refused rather than reported as NaN: neither is a group that finished. A group
        in which nobody took any time has utilization 1 (nobody waits).

    Returns
    -------
    StragglerReport
        Numbers for one group, arrays over the leading axes for many.

    Raises
    ------
    ConfigError
        If a group is empty, or a duration is negative, NaN or infinite.

    Examples
    --------
    >>> report = straggler_report([3, 3, 4, 4, 5, 5, 6, 18])
    >>> round(report.utilization, 4), report.idle_worker_seconds, report.slowest_worker
    (0.3333, 96.0, 7)
    """
    seconds = real_numbers("durations", durations, minimum=0)
    if seconds.ndim == 0 or seconds.shape[-1] == 0:
        way_out = "Give the seconds of each worker, the last axis being one group."
        raise ConfigError("durations", "must hold at least one worker", durations, way_out)
    workers = seconds.shape[-1]
    busy, longest = seconds.sum(axis=-1), seconds.max(axis=-1)
    total = workers * longest
    utilization = np.minimum(_ratio_or_one(busy, np.asarray(total)), 1.0)  # the sum rounds, the share may not
    return StragglerReport(
        workers=workers,
        utilization=plain(utilization),
        waiting_fraction=plain(1.0 - utilization),
        mean=plain(busy / workers),
        max=plain(longest),
        slowest_worker=plain(seconds.argmax(axis=-1)),
        busy_worker_seconds=plain(busy),
        idle_worker_seconds=plain((longest[..., None] - seconds).sum(axis=-1)),
        total_worker_seconds=plain(total),
    )
