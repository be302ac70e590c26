"""How much work two well-known systems admit at a given staleness: their own rules, for comparison.

Both are budgets on the whole system. Neither bounds the lag of a single sample: one slow rollout may be
overtaken by any number of updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import Integers, broadcast, plain, real_numbers, whole_numbers, within_float64

_LARGEST = 2**31 - 1


@within_float64
def staleness_capacity(
    *,
    max_staleness: ArrayLike,
    current_version: ArrayLike,
    consumer_batch_size: ArrayLike,
    accepted: ArrayLike,
    running: ArrayLike,
    concurrency_limit: ArrayLike,
) -> Integers:
    """Return how many rollouts AReaL 1.0.4 may start now: the smaller of two rooms.

    ``min(concurrency_limit - running, (max_staleness + version + 1) * batch - (accepted + running))``.
    SkyRL 0.4.0 has the same rule with a step that counts from 1; we take AReaL's count from 0, which is that
    of our trainer version. A negative result (the limit was lowered) is returned as it is.

    Parameters
    ----------
    max_staleness, current_version : array_like
        Versions that a sample may be behind, and the trainer's version; at least 0.
    consumer_batch_size : array_like
        Samples per update, at least 1.
    accepted, running : array_like
        Samples finished and accepted since the start, and samples in flight; at least 0.
    concurrency_limit : array_like
        Most samples in flight, at least 1.

    Returns
    -------
    int or ndarray of int64

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> staleness_capacity(max_staleness=4, current_version=10, consumer_batch_size=8,
    ...                    accepted=100, running=10, concurrency_limit=64)
    10
    """
    behind, version, batch, done, busy, most = broadcast(
        max_staleness=whole_numbers("max_staleness", max_staleness, minimum=0, maximum=_LARGEST // 2),
        current_version=whole_numbers("current_version", current_version, minimum=0, maximum=_LARGEST // 2),
        consumer_batch_size=whole_numbers(
            "consumer_batch_size", consumer_batch_size, minimum=1, maximum=_LARGEST
        ),
        accepted=whole_numbers("accepted", accepted, minimum=0),
        running=whole_numbers("running", running, minimum=0),
        concurrency_limit=whole_numbers("concurrency_limit", concurrency_limit, minimum=1),
    )
    return plain(np.minimum(most - busy, staleness_room(behind, version, batch, done, busy)))


def staleness_room(max_staleness: Any, version: Any, batch: Any, accepted: Any, running: Any) -> Any:
    """Return the room under the lag limit alone, from numbers that nobody checks: a drill breaks them."""
    return (max_staleness + version + 1) * batch - (accepted + running)


@within_float64
def staleness_budget(
    *,
    updates_per_sync: ArrayLike,
    batches_per_update: ArrayLike,
    batch_size: ArrayLike,
    staleness_threshold: ArrayLike,
) -> Integers:
    """Return how many samples verl 0.9.1 (fully async) admits between two publications.

    ``int(batch_size * batches_per_update * (staleness_threshold + 1) * updates_per_sync)``, in this order:
    what is trained in between plus a share that may be left over. A fraction of a sample is dropped there.

    Parameters
    ----------
    updates_per_sync, batches_per_update, batch_size : array_like
        verl's ``trigger_parameter_sync_step``, ``require_batches`` and ``ppo_mini_batch_size``; at least 1.
    staleness_threshold : array_like
        Share of samples that may be stale, at least 0.

    Returns
    -------
    int or ndarray of int64

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> staleness_budget(updates_per_sync=4, batches_per_update=4, batch_size=32, staleness_threshold=0.5)
    768
    """
    limit = 2**17  # three of them and the share stay below 2**53, where float64 is still exact
    updates, batches, size, share = broadcast(
        updates_per_sync=whole_numbers("updates_per_sync", updates_per_sync, minimum=1, maximum=limit),
        batches_per_update=whole_numbers("batches_per_update", batches_per_update, minimum=1, maximum=limit),
        batch_size=whole_numbers("batch_size", batch_size, minimum=1, maximum=limit),
        staleness_threshold=real_numbers("staleness_threshold", staleness_threshold, minimum=0, maximum=1000),
    )
    # In verl's own order: with a share such as 0.15 another order of the products gives another whole number.
    return plain(np.floor((size * batches) * (share + 1.0) * updates).astype(np.int64))
