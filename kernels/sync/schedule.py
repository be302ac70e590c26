"""Publishing every K updates: how many publications a run makes, and the lag of what is trained between them.

Two conventions are in use and differ by exactly one update. With versions counted in updates and a
publication after every K-th one:

- **before the update**: the lag of the batch about to be trained, when rollouts are as fresh as the cadence
  allows: 0, 1, …, K - 1. This is the package's policy lag (trainer version minus behaviour version, taken
  when the batch is formed), so ``mean_lag`` and ``max_lag`` mean this one.
- **after the update**: how far the published weights are behind the trainer once the update is done and
  before it is published: 1, 2, …, K. It is given beside it under its own name.

Both are lower bounds for a real pipeline: queued and unfinished rollouts add to them (the simulator's job).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, Integers, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..errors import ConfigError

_LARGEST = 2**31 - 1  # keeps every product below in int64


@dataclass(frozen=True)
class SynchronizationSchedule:
    """What a cadence means for a run; numbers, or arrays of one shape.

    Attributes
    ----------
    sync_every, updates : int or ndarray
        The cadence K and the number of updates.
    synchronization_count : int or ndarray
        Publications in the run.
    mean_lag, max_lag : float and int, or ndarray
        Lag before the update, in updates: 0 to K - 1.
    mean_lag_after_update, max_lag_after_update : float and int, or ndarray
        Lag after the update and before its publication: 1 to K.
    unpublished_updates : int or ndarray
        Updates at the end of the run that no generator ever saw.
    total_pause_seconds : float or ndarray
        ``synchronization_count * pause_seconds``.
    """

    sync_every: Integers
    updates: Integers
    synchronization_count: Integers
    mean_lag: Floats
    max_lag: Integers
    mean_lag_after_update: Floats
    max_lag_after_update: Integers
    unpublished_updates: Integers
    total_pause_seconds: Floats

    def lags(self) -> NDArray[np.int64]:
        """List the lag before each update, for a schedule of numbers.

        Returns
        -------
        ndarray of int64, shape (updates,)

        Raises
        ------
        ConfigError
            If this schedule holds arrays.

        Examples
        --------
        >>> synchronization_schedule(sync_every=4, updates=10).lags().tolist()
        [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
        """
        if np.ndim(self.sync_every) != 0:
            way_out = "Ask one schedule at a time."
            raise ConfigError("sync_every", "must be one number", self.sync_every, way_out)
        return np.arange(int(self.updates), dtype=np.int64) % self.sync_every


@within_float64
def synchronization_schedule(
    sync_every: ArrayLike,
    updates: ArrayLike,
    *,
    publish_last: bool = False,
    pause_seconds: ArrayLike = 0.0,
) -> SynchronizationSchedule:
    """Count publications and lags when weights are published after every ``sync_every``-th update.

    Parameters
    ----------
    sync_every : array_like
        Cadence K, at least 1.
    updates : array_like
        Updates of the run, at least 0. Without any update there is no lag: means and maxima are 0.
    publish_last : bool
        Also publish after the last update when K does not divide ``updates``. Off by default: the simulator
        and the systems it follows publish at multiples of K only, and the weights that a run starts with
        are not counted as a publication.
    pause_seconds : array_like
        Seconds that generation stands still per publication, at least 0.

    Returns
    -------
    SynchronizationSchedule

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> schedule = synchronization_schedule(sync_every=4, updates=16)
    >>> schedule.synchronization_count, schedule.mean_lag, schedule.max_lag
    (4, 1.5, 3)
    >>> synchronization_schedule(sync_every=[1, 2, 4, 8], updates=16).mean_lag_after_update
    array([1. , 1.5, 2.5, 4.5])
    """
    if not isinstance(publish_last, bool | np.bool_):
        raise ConfigError("publish_last", "must be a bool", publish_last, "Give True or False.")
    every, count, pause = broadcast(
        sync_every=whole_numbers("sync_every", sync_every, minimum=1, maximum=_LARGEST),
        updates=whole_numbers("updates", updates, minimum=0, maximum=_LARGEST),
        pause_seconds=real_numbers("pause_seconds", pause_seconds, minimum=0),
    )
    full, rest = count // every, count % every
    lag_sum = full * (every * (every - 1) // 2) + rest * (rest - 1) // 2
    mean = np.divide(lag_sum, count, out=np.zeros(count.shape), where=count > 0)
    trained = (count > 0).astype(np.int64)
    largest = np.maximum(np.minimum(every, count) - 1, 0)
    published = full + ((rest > 0).astype(np.int64) if publish_last else 0)
    return SynchronizationSchedule(
        sync_every=plain(every),
        updates=plain(count),
        synchronization_count=plain(published),
        mean_lag=plain(mean),
        max_lag=plain(largest),
        mean_lag_after_update=plain(mean + trained),
        max_lag_after_update=plain(largest + trained),
        unpublished_updates=plain(np.zeros_like(rest) if publish_last else rest),
        total_pause_seconds=plain(published * pause),
    )
