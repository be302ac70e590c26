"""How long publishing new weights takes, how long it stops generation, and how stale it lets rollouts become.

Units: a bandwidth is in **decimal gigabytes per second** (1e9 bytes), as networks and NCCL's tests count; a
link sold in gigabits per second is :func:`gigabits_to_gigabytes_per_second` first (400 Gb/s are 50 GB/s),
and GiB/s would be 7 % more. The basic form is
``setup + calls * seconds_per_call + bytes / (bandwidth * efficiency)``. How the bytes reach many receivers
is in :mod:`.sync.collectives`, sparse payloads are in :mod:`.sync.deltas`, and how
often to publish is in :mod:`.sync.schedule`.

Three times are told apart because published figures mix them: the *transfer* (bytes on the wire), the *end to
end* time of a publication (with gathering, conversion and installing), and the *pause* in which generation
stands still, the only one that costs rollouts.

A transfer at line rate is a lower bound, not a forecast: gathering shards, converting layouts and calling
once per tensor usually take longer than the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._arguments import Floats, Integers, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..memory.units import BYTES_PER_GB

_LINK = "Give the link's rate in decimal GB/s; a rate in Gb/s is divided by 8."
_EFFICIENCY = "Give the achieved share of the link's rate, above 0 and at most 1."


@within_float64
def gigabits_to_gigabytes_per_second(gigabits_per_second: ArrayLike) -> Floats:
    """Convert a line rate as sold (bits) into the unit of this package (bytes): divide by 8.

    Parameters
    ----------
    gigabits_per_second : array_like
        Line rate in 1e9 bits per second, above 0.

    Returns
    -------
    float or ndarray
        1e9 bytes per second.

    Raises
    ------
    ConfigError
        If the rate is not positive and finite.

    Examples
    --------
    >>> gigabits_to_gigabytes_per_second(400)
    50.0
    """
    way_out = "Give the link's rate in Gb/s."
    return plain(real_numbers("gigabits_per_second", gigabits_per_second, above=0, way_out=way_out) / 8.0)


@dataclass(frozen=True)
class TransferReport:
    """Where a transfer's time goes; numbers, or arrays of one shape.

    Attributes
    ----------
    total_seconds : float or ndarray
        ``setup + calls + wire``.
    setup_seconds, call_seconds, wire_seconds : float or ndarray
        The three parts.
    lower_bound_seconds : float or ndarray
        The payload at the full line rate and nothing else: no implementation goes below it.
    times_lower_bound : float or ndarray
        ``total / lower bound``; infinite for an empty payload that still costs time, 1 for no cost at all.
    effective_gigabytes_per_second : float or ndarray
        Payload over total time, the figure to hold against a measured one.
    """

    total_seconds: Floats
    setup_seconds: Floats
    call_seconds: Floats
    wire_seconds: Floats
    lower_bound_seconds: Floats
    times_lower_bound: Floats
    effective_gigabytes_per_second: Floats


@within_float64
def transfer_report(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    *,
    setup_seconds: ArrayLike = 0.0,
    efficiency: ArrayLike = 1.0,
    calls: ArrayLike = 0,
    seconds_per_call: ArrayLike = 0.0,
) -> TransferReport:
    """Split the time of one point-to-point transfer into its parts, with the lower bound beside it.

    ``total = setup + calls * seconds_per_call + payload / (1e9 * gigabytes_per_second * efficiency)``.
    With 200 calls of 0.6 s, 25 GB over a 400 Gb/s link take 120.5 s instead of 0.5 s: one call per tensor is
    the usual reason for a publication that is far above its bound, and buckets the usual cure.

    Parameters
    ----------
    payload_bytes : array_like
        Bytes to send, at least 0.
    gigabytes_per_second : array_like
        Line rate in 1e9 bytes per second, above 0.
    setup_seconds : array_like
        Fixed time per publication, at least 0.
    efficiency : array_like
        Share of the line rate that is reached, above 0 and at most 1.
    calls : array_like
        Number of calls (tensors, or buckets: :func:`bucket_count`), at least 0.
    seconds_per_call : array_like
        Fixed time of each call, at least 0.

    Returns
    -------
    TransferReport

    Raises
    ------
    ConfigError
        If an argument is out of its range, is NaN or a bool, or shapes do not fit together.

    Examples
    --------
    >>> report = transfer_report(25e9, gigabits_to_gigabytes_per_second(400), calls=200, seconds_per_call=0.6)
    >>> report.total_seconds, report.lower_bound_seconds
    (120.5, 0.5)
    """
    payload, line, share, setup, count, per_call = broadcast(
        payload_bytes=real_numbers("payload_bytes", payload_bytes, minimum=0),
        gigabytes_per_second=real_numbers(
            "gigabytes_per_second", gigabytes_per_second, above=0, way_out=_LINK
        ),
        efficiency=real_numbers("efficiency", efficiency, above=0, maximum=1, way_out=_EFFICIENCY),
        setup_seconds=real_numbers("setup_seconds", setup_seconds, minimum=0),
        calls=whole_numbers("calls", calls, minimum=0),
        seconds_per_call=real_numbers("seconds_per_call", seconds_per_call, minimum=0),
    )
    line = line * BYTES_PER_GB
    wire, bound, called = payload / (line * share), payload / line, count * per_call
    total = setup + called + wire
    unbounded = np.where(total > 0, np.inf, 1.0)
    with np.errstate(over="ignore"):  # a vanishing payload: infinitely often the bound is the answer
        times_bound = np.divide(total, bound, out=unbounded, where=bound > 0)
    effective = np.divide(payload, total, out=np.zeros(total.shape), where=total > 0)
    return TransferReport(
        total_seconds=plain(total),
        setup_seconds=plain(setup),
        call_seconds=plain(called),
        wire_seconds=plain(wire),
        lower_bound_seconds=plain(bound),
        times_lower_bound=plain(times_bound),
        effective_gigabytes_per_second=plain(effective / BYTES_PER_GB),
    )


@within_float64
def synchronization_transfer_time(
    payload_bytes: ArrayLike,
    gigabytes_per_second: ArrayLike,
    *,
    setup_seconds: ArrayLike = 0.0,
    efficiency: ArrayLike = 1.0,
    calls: ArrayLike = 0,
    seconds_per_call: ArrayLike = 0.0,
) -> Floats:
    """Return the seconds of one transfer: setup, calls, and bytes over the bandwidth that is reached.

    ``setup + calls * seconds_per_call + payload / (1e9 * gigabytes_per_second * efficiency)``. The bandwidth
    is in decimal GB/s (1e9 bytes per second), the unit of network data sheets and of NCCL's tests; we take it
    so that a data sheet's number can be typed in. Read as GiB/s, 14 GB at 25 and 80 % would take 0.80 s
    instead of 0.85 s.

    Parameters
    ----------
    payload_bytes, gigabytes_per_second, setup_seconds, efficiency, calls, seconds_per_call : array_like
        As for :func:`transfer_report`, which also gives the parts and the lower bound.

    Returns
    -------
    float or ndarray
        Seconds.

    Raises
    ------
    ConfigError
        As for :func:`transfer_report`.

    Examples
    --------
    >>> round(synchronization_transfer_time(14_000_000_000, 25.0, setup_seconds=0.15, efficiency=0.8), 12)
    0.85
    >>> synchronization_transfer_time([0, 50e9], 25.0)
    array([0., 2.])
    """
    return transfer_report(
        payload_bytes,
        gigabytes_per_second,
        setup_seconds=setup_seconds,
        efficiency=efficiency,
        calls=calls,
        seconds_per_call=seconds_per_call,
    ).total_seconds


@within_float64
def bucket_count(payload_bytes: ArrayLike, bucket_bytes: ArrayLike) -> Integers:
    """Return the number of calls when tensors are packed into buckets: ``ceil(payload / bucket)``.

    A lower bound when tensors may not be split across buckets.

    Parameters
    ----------
    payload_bytes : array_like
        Bytes to send, at least 0.
    bucket_bytes : array_like
        Bytes of a bucket, at least 1.

    Returns
    -------
    int or ndarray of int64

    Raises
    ------
    ConfigError
        If an argument is out of its range.

    Examples
    --------
    >>> bucket_count(145 * 10**9, 2 * 2**30)
    68
    """
    payload, bucket = broadcast(
        payload_bytes=real_numbers("payload_bytes", payload_bytes, minimum=0, maximum=2**53),
        bucket_bytes=real_numbers("bucket_bytes", bucket_bytes, minimum=1),
    )
    return plain(np.ceil(payload / bucket).astype(np.int64))


@dataclass(frozen=True)
class PublicationReport:
    """One publication of weights, as the trainer and as the generators see it.

    Attributes
    ----------
    end_to_end_seconds : float or ndarray
        From the decision to publish until the new version is served.
    pause_seconds : float or ndarray
        Of which generation stands still.
    background_seconds : float or ndarray
        The rest: work that runs while tokens are still generated.
    pause_fraction : float, ndarray or None
        Share of the time that generation loses, when ``period_seconds`` was given.
    """

    end_to_end_seconds: Floats
    pause_seconds: Floats
    background_seconds: Floats
    pause_fraction: Floats | None


@within_float64
def publication_report(
    transfer_seconds: ArrayLike,
    *,
    prepare_seconds: ArrayLike = 0.0,
    drain_seconds: ArrayLike = 0.0,
    install_seconds: ArrayLike = 0.0,
    background_fraction: ArrayLike = 0.0,
    period_seconds: ArrayLike | None = None,
) -> PublicationReport:
    """Tell the pause of the generators apart from the transfer and from the whole publication.

    ``end to end = prepare + drain + transfer + install`` and
    ``pause = drain + (1 - background_fraction) * transfer + install``. A blocking broadcast pauses for the
    whole transfer (fraction 0); one that stages the weights beside the served ones pauses only to install
    them (fraction 1).

    Parameters
    ----------
    transfer_seconds : array_like
        Time on the wire, at least 0.
    prepare_seconds : array_like
        Gathering, converting or differencing on the trainer while generators go on.
    drain_seconds, install_seconds : array_like
        Stopping or draining the engines; loading, cache flush and resuming. Both inside the pause.
    background_fraction : array_like
        Share of the transfer during which generators go on, 0 to 1.
    period_seconds : array_like, optional
        Time from one publication to the next, above 0. Where a publication takes longer, the next one waits
        for it, and the share is of that longer time.

    Returns
    -------
    PublicationReport

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> upload = publication_report(8.0, install_seconds=1.0, background_fraction=1.0, period_seconds=20.0)
    >>> upload.end_to_end_seconds, upload.pause_seconds, upload.pause_fraction
    (9.0, 1.0, 0.05)
    """
    transfer, prepare, drain, install, share, period = broadcast(
        transfer_seconds=real_numbers("transfer_seconds", transfer_seconds, minimum=0),
        prepare_seconds=real_numbers("prepare_seconds", prepare_seconds, minimum=0),
        drain_seconds=real_numbers("drain_seconds", drain_seconds, minimum=0),
        install_seconds=real_numbers("install_seconds", install_seconds, minimum=0),
        background_fraction=real_numbers("background_fraction", background_fraction, minimum=0, maximum=1),
        period_seconds=real_numbers(
            "period_seconds", 1.0 if period_seconds is None else period_seconds, above=0
        ),
    )
    background = prepare + share * transfer
    pause = drain + (1.0 - share) * transfer + install
    total = background + pause
    lost = None if period_seconds is None else plain(pause / np.maximum(period, total))
    return PublicationReport(
        end_to_end_seconds=plain(total),
        pause_seconds=plain(pause),
        background_seconds=plain(background),
        pause_fraction=lost,
    )
