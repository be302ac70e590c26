"""How the same weights reach many receivers: textbook costs of ``S`` bytes over links of rate ``B``.

====================  ========================================  =================================
one sender, n copies  ``n S / B``                               :func:`fan_out_seconds`
binomial tree         ``ceil(log2(n + 1)) S / B``               :func:`binomial_tree_seconds`
pipelined chain       ``(n + k - 1) S / (k B)``, to ``S / B``   :func:`pipelined_chain_seconds`
ring all-reduce       ``2 (n - 1) / n S / B``                   :func:`ring_all_reduce_seconds`
====================  ========================================  =================================

``n`` counts receivers, the sender not included; bandwidths are in decimal GB/s and one-directional. A step
may cost a fixed ``seconds_per_step`` beside its bytes (the alpha-beta model: R. Thakur, R. Rabenseifner,
W. Gropp, International Journal of High Performance Computing Applications 19 (2005) 49-66; bus bandwidths as
in nccl-tests, doc/PERFORMANCE.md). Shards sent by many to many are in
:mod:`.sync.shards`.

Not modelled: contention in the switches, and senders that must first gather what they send.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, Integers, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..errors import ConfigError
from ..memory.units import BYTES_PER_GB

_LINK = "Give the link's rate in decimal GB/s; a rate in Gb/s is divided by 8."


def _payload(payload_bytes: ArrayLike) -> NDArray[np.float64]:
    return real_numbers("payload_bytes", payload_bytes, minimum=0)


def _rate(gigabytes_per_second: ArrayLike, name: str = "gigabytes_per_second") -> NDArray[np.float64]:
    return BYTES_PER_GB * real_numbers(name, gigabytes_per_second, above=0, way_out=_LINK)


def _count(name: str, value: ArrayLike) -> NDArray[np.int64]:
    return whole_numbers(name, value, minimum=1)


def _step(seconds_per_step: ArrayLike) -> NDArray[np.float64]:
    return real_numbers("seconds_per_step", seconds_per_step, minimum=0)


@within_float64
def fan_out_seconds(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    receivers: ArrayLike,
    *,
    seconds_per_step: ArrayLike = 0.0,
) -> Floats:
    """Return the time for one sender to send a copy to each receiver: ``n (S / B + step)``.

    Parameters
    ----------
    payload_bytes : array_like
        Bytes of one copy, at least 0.
    gigabytes_per_second : array_like
        Rate of the sender's link in decimal GB/s, above 0.
    receivers : array_like
        Number of receivers, at least 1.
    seconds_per_step : array_like
        Fixed cost of each copy, at least 0.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> fan_out_seconds(61e9, 50.0, receivers=8)
    9.76
    """
    size, rate, n, step = broadcast(
        payload_bytes=_payload(payload_bytes),
        gigabytes_per_second=_rate(gigabytes_per_second),
        receivers=_count("receivers", receivers),
        seconds_per_step=_step(seconds_per_step),
    )
    return plain(n * (size / rate + step))


@within_float64
def binomial_tree_seconds(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    receivers: ArrayLike,
    *,
    seconds_per_step: ArrayLike = 0.0,
) -> Floats:
    """Return the time of a broadcast by a binomial tree: ``ceil(log2(n + 1)) (S / B + step)``.

    Messages are sent whole; every member that has it passes it on, so the owners double with each round.

    Parameters
    ----------
    payload_bytes, gigabytes_per_second, receivers, seconds_per_step : array_like
        As for :func:`fan_out_seconds`; all members have links of the same rate.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> binomial_tree_seconds(61e9, 50.0, receivers=8)
    4.88
    """
    size, rate, n, step = broadcast(
        payload_bytes=_payload(payload_bytes),
        gigabytes_per_second=_rate(gigabytes_per_second),
        receivers=_count("receivers", receivers),
        seconds_per_step=_step(seconds_per_step),
    )
    rounds = np.frexp(n.astype(np.float64))[1]  # ceil(log2(n + 1)), in integers: no rounding at powers of 2
    return plain(rounds * (size / rate + step))


@within_float64
def pipelined_chain_seconds(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    receivers: ArrayLike,
    *,
    chunks: ArrayLike | None = None,
    seconds_per_step: ArrayLike = 0.0,
) -> Floats:
    """Return the time of a broadcast along a chain in chunks: ``(n + k - 1) (S / (k B) + step)``.

    NCCL's broadcast is of this kind. More chunks shorten it towards ``S / B``, however many receivers there
    are, until the fixed cost of a step takes over: :func:`best_chain_chunks`.

    Parameters
    ----------
    payload_bytes, gigabytes_per_second, receivers, seconds_per_step : array_like
        As for :func:`fan_out_seconds`; all links have the same rate.
    chunks : array_like, optional
        Number of chunks k, at least 1. None is the limit of many chunks, ``S / B``, which needs steps
        without a fixed cost.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range, shapes do not fit, or ``chunks`` is None with a fixed step cost.

    Examples
    --------
    >>> pipelined_chain_seconds(61e9, 50.0, receivers=8, chunks=1)
    9.76
    >>> pipelined_chain_seconds(61e9, 25.0, receivers=4)
    2.44
    """
    step = _step(seconds_per_step)
    if chunks is None and np.any(step > 0):
        way_out = "Give the number of chunks, for example best_chain_chunks(...)."
        raise ConfigError("chunks", "must be given when a step has a fixed cost", None, way_out)
    size, rate, n, k, step = broadcast(
        payload_bytes=_payload(payload_bytes),
        gigabytes_per_second=_rate(gigabytes_per_second),
        receivers=_count("receivers", receivers),
        chunks=_count("chunks", 1 if chunks is None else chunks),
        seconds_per_step=step,
    )
    if chunks is None:
        return plain(size / rate)
    return plain((n + k - 1) * (size / (k * rate) + step))


@within_float64
def best_chain_chunks(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    receivers: ArrayLike,
    seconds_per_step: ArrayLike,
) -> Integers:
    """Return the number of chunks that makes :func:`pipelined_chain_seconds` shortest.

    The real optimum is ``sqrt((n - 1) S / (B step))``; the better of the whole numbers beside it is taken.

    Parameters
    ----------
    payload_bytes, gigabytes_per_second, receivers : array_like
        As for :func:`fan_out_seconds`.
    seconds_per_step : array_like
        Fixed cost of a step, above 0: without one, more chunks are always better.

    Returns
    -------
    int or ndarray of int64
        At least 1.

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> best_chain_chunks(100e9, 50.0, receivers=9, seconds_per_step=1e-3)
    126
    """
    size, rate, n, step = broadcast(
        payload_bytes=_payload(payload_bytes),
        gigabytes_per_second=_rate(gigabytes_per_second),
        receivers=_count("receivers", receivers),
        seconds_per_step=real_numbers("seconds_per_step", seconds_per_step, above=0),
    )
    ideal = np.floor(np.sqrt((n - 1) * size / (rate * step)))
    low = np.clip(ideal, 1, 2**53)
    high = low + 1

    def cost(k: NDArray[np.float64]) -> NDArray[np.float64]:
        return (n + k - 1) * (size / (k * rate) + step)

    return plain(np.where(cost(high) < cost(low), high, low).astype(np.int64))


@within_float64
def ring_all_reduce_seconds(
    payload_bytes: ArrayLike, gigabytes_per_second: ArrayLike, ranks: ArrayLike
) -> Floats:
    """Return the time of a ring all-reduce: ``2 (n - 1) / n`` payloads over one link.

    This is nccl-tests' definition of the bus bandwidth of an all-reduce, solved for the time.

    Parameters
    ----------
    payload_bytes, gigabytes_per_second : array_like
        As for :func:`fan_out_seconds`.
    ranks : array_like
        Members of the ring, at least 1 (one member has nothing to exchange: 0 s).

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> ring_all_reduce_seconds(61e9, 50.0, ranks=8)
    2.135
    """
    size, rate, n = broadcast(
        payload_bytes=_payload(payload_bytes),
        gigabytes_per_second=_rate(gigabytes_per_second),
        ranks=_count("ranks", ranks),
    )
    return plain(2 * (n - 1) / n * (size / rate))
