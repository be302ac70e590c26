"""The time that batches of unequal length take through two stages with a finite buffer between them.

Training of a batch starts when the batch is there and the trainer is free. The rollouts of batch ``i`` start
when the rollout stage is free and batch ``i - b - 1`` has left the buffer, that is, its training started::

    rollout_start[i] = max(rollout_end[i-1], train_start[i-b-1])
    train_start[i]   = max(rollout_end[i],   train_end[i-1])

So a buffer of ``b`` holds finished batches that wait; the batch being produced and the one being trained
are outside it, and a batch finished into a full buffer waits in the producer's hands (a flow shop with
blocking: S. T. McCormick et al., Operations Research 37 (1989) 925-935). A system that reserves a place
before it starts producing is this one with ``b - 1``. ``b = 0`` still overlaps: one batch is made while one
is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, plain, real_numbers, whole_numbers, within_float64
from .._jit import jit
from ..errors import ConfigError


@jit
def _makespan_kernel(rollout, train, buffer, rollout_start, rollout_end, train_start, train_end):
    """Run the recurrence row by row.

    ``rollout``, ``train``: float64 (rows, batches), seconds. ``buffer``: int64 (rows,). The four outputs:
    float64 (rows, batches), seconds since the start.
    """
    rows, batches = rollout.shape
    for row in range(rows):
        places = buffer[row]
        producer_free = 0.0
        trainer_free = 0.0
        for i in range(batches):
            begin = producer_free
            blocker = i - places - 1
            if blocker >= 0 and train_start[row, blocker] > begin:
                begin = train_start[row, blocker]
            producer_free = begin + rollout[row, i]
            rollout_start[row, i] = begin
            rollout_end[row, i] = producer_free
            begin = producer_free if producer_free > trainer_free else trainer_free
            trainer_free = begin + train[row, i]
            train_start[row, i] = begin
            train_end[row, i] = trainer_free


@dataclass(frozen=True)
class PipelineMakespan:
    """When each batch passed each stage; totals are numbers, or arrays over the leading axes.

    Attributes
    ----------
    sequential_total, pipeline_total, speedup : float or ndarray
        Seconds one after the other, seconds overlapped, and their ratio (1 where nothing takes time).
    rollout_starts, rollout_completions, train_starts, train_completions : ndarray
        Seconds since the start, the last axis being the batch.
    rollout_blocked_seconds : float or ndarray
        Time in which the rollout stage stood still because the buffer was full.
    train_idle_seconds : float or ndarray
        Time in which the trainer waited for a batch, the wait for the first one included.
    """

    sequential_total: Floats
    pipeline_total: Floats
    speedup: Floats
    rollout_starts: NDArray[np.float64]
    rollout_completions: NDArray[np.float64]
    train_starts: NDArray[np.float64]
    train_completions: NDArray[np.float64]
    rollout_blocked_seconds: Floats
    train_idle_seconds: Floats


def _shaped(
    rollout_seconds: ArrayLike, train_seconds: ArrayLike, buffer: ArrayLike | None
) -> tuple[Any, ...]:
    """Check, broadcast, and give (rollout, train) of one shape and the buffer over the leading axes."""
    rollout = real_numbers("rollout_seconds", rollout_seconds, minimum=0)
    train = real_numbers("train_seconds", train_seconds, minimum=0)
    way_out = "Give the seconds of each batch, the last axis being the batches."
    for name, array in (("rollout_seconds", rollout), ("train_seconds", train)):
        if array.ndim == 0 or array.shape[-1] == 0:
            raise ConfigError(name, "must hold at least one batch", array.tolist(), way_out)
    unbounded = max(rollout.shape[-1], train.shape[-1])
    places = whole_numbers(
        "buffer",
        unbounded if buffer is None else buffer,
        minimum=0,
        way_out="Give a number of finished batches, or None for an unbounded buffer.",
    )
    rollout, train, places = broadcast(
        rollout_seconds=rollout, train_seconds=train, buffer=places[..., np.newaxis]
    )
    return rollout, train, places[..., 0]


@within_float64
def pipeline_makespan(
    rollout_seconds: ArrayLike, train_seconds: ArrayLike, buffer: ArrayLike | None = None
) -> PipelineMakespan:
    """Schedule batches of unequal length through two stages with room for ``buffer`` finished batches.

    The recurrence stands in the module's text, with the two conventions about the buffer and which we take.
    For identical batches the total is :func:`lagsweep.kernels.pipeline_report`'s, whatever the buffer.

    Parameters
    ----------
    rollout_seconds, train_seconds : array_like
        Seconds per batch, at least 0; the last axis is the batches, leading axes broadcast.
    buffer : array_like, optional
        Places for finished batches, at least 0; broadcast against the leading axes. None: no bound.

    Returns
    -------
    PipelineMakespan
        Totals, the schedule, and how long each stage waited.

    Raises
    ------
    ConfigError
        If there is no batch, a time is negative or not finite, or shapes do not fit together.

    Examples
    --------
    >>> schedule = pipeline_makespan([10, 10, 10, 10, 10], [60, 60, 60, 60, 60], buffer=1)
    >>> schedule.pipeline_total
    310.0
    >>> schedule.rollout_completions
    array([ 10.,  20.,  30.,  80., 140.])
    """
    rollout, train, places = _shaped(rollout_seconds, train_seconds, buffer)
    shape, batches = rollout.shape, rollout.shape[-1]
    # Copies: broadcast views are read-only, which would be another signature of the kernel.
    flat_rollout = np.array(rollout, order="C").reshape(-1, batches)
    flat_train = np.array(train, order="C").reshape(-1, batches)
    flat_places = np.array(places, order="C").reshape(-1)
    starts, ends, train_starts, train_ends = (np.empty_like(flat_rollout) for _ in range(4))
    _makespan_kernel(flat_rollout, flat_train, flat_places, starts, ends, train_starts, train_ends)

    sequential = (flat_rollout + flat_train).sum(axis=-1)
    total = train_ends[:, -1]
    speedup = np.divide(sequential, total, out=np.ones_like(total), where=total > 0)
    blocked = starts[:, 0] + (starts[:, 1:] - ends[:, :-1]).sum(axis=-1)
    idle = train_starts[:, 0] + (train_starts[:, 1:] - train_ends[:, :-1]).sum(axis=-1)

    def leading(array: NDArray[np.float64]) -> Any:
        return plain(array.reshape(shape[:-1]))

    return PipelineMakespan(
        sequential_total=leading(sequential),
        pipeline_total=leading(total),
        speedup=leading(speedup),
        rollout_starts=starts.reshape(shape),
        rollout_completions=ends.reshape(shape),
        train_starts=train_starts.reshape(shape),
        train_completions=train_ends.reshape(shape),
        rollout_blocked_seconds=leading(blocked),
        train_idle_seconds=leading(idle),
    )
