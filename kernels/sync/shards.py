"""Weights sent shard by shard: many senders and many receivers at once, and one copy per node.

Where every trainer rank sends what it holds to the ranks that need it, nobody waits for a single link: the
transfer ends when the busiest sender or receiver is done, ``T = max(bytes / bandwidth)`` over all of them. It
cannot be shorter, and letting every pair send at the constant rate ``bytes / T`` reaches it, if the network
between them is no bottleneck.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, plain, real_numbers, whole_numbers, within_float64
from ..errors import ConfigError
from ..memory.units import BYTES_PER_GB

_LINK = "Give the link's rate in decimal GB/s; a rate in Gb/s is divided by 8."


def _rate(name: str, gigabytes_per_second: ArrayLike) -> NDArray[np.float64]:
    return BYTES_PER_GB * real_numbers(name, gigabytes_per_second, above=0, way_out=_LINK)


@within_float64
def sharded_point_to_point_seconds(
    payload_bytes: ArrayLike,
    *,
    senders: ArrayLike,
    receivers: ArrayLike,
    sender_gigabytes_per_second: ArrayLike,
    receiver_gigabytes_per_second: ArrayLike,
    copies: ArrayLike = 1,
) -> Floats:
    """Return the time of an evenly sharded transfer: the slower of the senders' and the receivers' side.

    Each sender sends ``copies * S / senders`` bytes and each receiver takes ``copies * S / receivers``.

    Parameters
    ----------
    payload_bytes : array_like
        Bytes of one full copy of the weights, at least 0.
    senders, receivers : array_like
        Ranks on each side, at least 1.
    sender_gigabytes_per_second, receiver_gigabytes_per_second : array_like
        Link of each rank in decimal GB/s, above 0.
    copies : array_like
        Full copies that the receivers hold together, at least 1: their number divided by the ranks that
        share one copy (tensor and expert parallelism).

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> sharded_point_to_point_seconds(
    ...     800e9, senders=64, receivers=32, copies=4,
    ...     sender_gigabytes_per_second=50.0, receiver_gigabytes_per_second=50.0)
    2.0
    """
    size, out_ranks, in_ranks, out_rate, in_rate, count = broadcast(
        payload_bytes=real_numbers("payload_bytes", payload_bytes, minimum=0),
        senders=whole_numbers("senders", senders, minimum=1),
        receivers=whole_numbers("receivers", receivers, minimum=1),
        sender_gigabytes_per_second=_rate("sender_gigabytes_per_second", sender_gigabytes_per_second),
        receiver_gigabytes_per_second=_rate("receiver_gigabytes_per_second", receiver_gigabytes_per_second),
        copies=whole_numbers("copies", copies, minimum=1),
    )
    total = count * size
    return plain(np.maximum(total / out_ranks / out_rate, total / in_ranks / in_rate))


@within_float64
def point_to_point_seconds(
    bytes_by_pair: ArrayLike,
    *,
    sender_gigabytes_per_second: ArrayLike,
    receiver_gigabytes_per_second: ArrayLike,
) -> Floats:
    """Return the time of any many-to-many transfer: the busiest sender or receiver decides.

    ``max(max_i sum_j bytes[i, j] / sender_rate[i], max_j sum_i bytes[i, j] / receiver_rate[j])``. A table by
    pairs, and not two lists of totals, so that what is sent is what is received.

    Parameters
    ----------
    bytes_by_pair : array_like, shape (..., senders, receivers)
        Bytes that each sender sends to each receiver, at least 0.
    sender_gigabytes_per_second : array_like, shape (..., senders) or scalar
        Link of each sender in decimal GB/s, above 0.
    receiver_gigabytes_per_second : array_like, shape (..., receivers) or scalar
        Link of each receiver in decimal GB/s, above 0.

    Returns
    -------
    float or ndarray
        A number for one table, an array over the leading axes for many.

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> shards = [[10e9, 0], [20e9, 40e9]]
    >>> point_to_point_seconds(
    ...     shards, sender_gigabytes_per_second=10.0, receiver_gigabytes_per_second=[10.0, 20.0])
    6.0
    """
    pairs = real_numbers("bytes_by_pair", bytes_by_pair, minimum=0)
    if pairs.ndim < 2 or 0 in pairs.shape[-2:]:
        way_out = "Give one row per sender and one column per receiver."
        raise ConfigError("bytes_by_pair", "must be a table of at least 1 by 1", pairs.shape, way_out)
    sent, out_rate = broadcast(
        bytes_sent=pairs.sum(axis=-1),
        sender_gigabytes_per_second=_rate("sender_gigabytes_per_second", sender_gigabytes_per_second),
    )
    received, in_rate = broadcast(
        bytes_received=pairs.sum(axis=-2),
        receiver_gigabytes_per_second=_rate("receiver_gigabytes_per_second", receiver_gigabytes_per_second),
    )
    slowest_sender, slowest_receiver = broadcast(
        sender_gigabytes_per_second=np.max(sent / out_rate, axis=-1),
        receiver_gigabytes_per_second=np.max(received / in_rate, axis=-1),
    )
    return plain(np.maximum(slowest_sender, slowest_receiver))


@within_float64
def node_fan_out_seconds(
    payload_bytes: ArrayLike,
    *,
    links_per_node: ArrayLike,
    link_gigabytes_per_second: ArrayLike,
    inner_gigabytes_per_second: ArrayLike,
    staged: bool = True,
) -> Floats:
    """Return the time when each node takes one copy over all its links and spreads it inside.

    ``S / (links * B) + S / B_inner`` when the node first takes the whole copy, and the larger of the two when
    chunks are passed on as they come. Nodes pass the copy along a chain, so their number does not matter.
    One sending link is the usual cap: four instead of one are worth up to a factor 4.

    Parameters
    ----------
    payload_bytes : array_like
        Bytes of one copy, at least 0.
    links_per_node : array_like
        Network links that carry the copy in parallel, at least 1.
    link_gigabytes_per_second, inner_gigabytes_per_second : array_like
        One network link, and the inner link (NVLink), in decimal GB/s, above 0.
    staged : bool
        Whether the copy is complete on the node before it is spread.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ConfigError
        If an argument is out of its range or shapes do not fit together.

    Examples
    --------
    >>> node_fan_out_seconds(
    ...     60e9, links_per_node=4, link_gigabytes_per_second=25.0, inner_gigabytes_per_second=300.0)
    0.8
    """
    if not isinstance(staged, bool | np.bool_):
        raise ConfigError("staged", "must be a bool", staged, "Give True or False.")
    size, links, outer, inner = broadcast(
        payload_bytes=real_numbers("payload_bytes", payload_bytes, minimum=0),
        links_per_node=whole_numbers("links_per_node", links_per_node, minimum=1),
        link_gigabytes_per_second=_rate("link_gigabytes_per_second", link_gigabytes_per_second),
        inner_gigabytes_per_second=_rate("inner_gigabytes_per_second", inner_gigabytes_per_second),
    )
    network, inside = size / (links * outer), size / inner
    return plain(network + inside if staged else np.maximum(network, inside))
