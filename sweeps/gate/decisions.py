"""What a gate answers: one small record for each of its calls.

An answer that lets something happen is true, one that refuses is false, so ``if gate.start():`` reads as it
says. Groups and rollouts are named by their numbers; lags are in versions.
"""

from __future__ import annotations

from typing import NamedTuple


class Start(NamedTuple):
    """Whether the next rollout may start, and as what.

    Attributes
    ----------
    rollout : int
        Its number, in the order of starts; ``finish`` takes it. -1: refused.
    group, member : int
        The group (of one prompt) that it belongs to, and its place there, from 0. A group that runs again
        because it was too old keeps its number.
    sample : int
        Number of the draw: a member that runs again has the one it had.
    version : int
        The published version that it must be generated with.
    bound_by : str
        What refuses it, by the names of the metrics of idle slots; "" if nothing does.
    """

    rollout: int = -1
    group: int = -1
    member: int = -1
    sample: int = -1
    version: int = -1
    bound_by: str = ""

    def __bool__(self) -> bool:
        return self.rollout >= 0


class Finish(NamedTuple):
    """What became of a rollout that finished.

    Attributes
    ----------
    outcome : {"waiting", "queued", "held", "discarded", "filtered", "cancelled"}
        ``waiting``: other members of its group are not done; ``held``: the group is ready and a full queue
        does not take it yet; ``discarded``: the group is too old; ``cancelled``: it was cancelled before.
    group : int
    evicted : tuple of int
        Groups that a full queue dropped for this one.
    """

    outcome: str
    group: int
    evicted: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.outcome in ("waiting", "queued", "held")


class TakenGroup(NamedTuple):
    """One group of a batch.

    Attributes
    ----------
    group : int
    rollouts : tuple of int
        Its members, in their order.
    version : int
        The oldest version that a member started with.
    lag : int
        The trainer's version now less that one.
    tokens : int
    """

    group: int
    rollouts: tuple[int, ...]
    version: int
    lag: int
    tokens: int


class Pop(NamedTuple):
    """A batch that was taken from the queue, or why there is none.

    Attributes
    ----------
    groups : tuple of TakenGroup
        In the order taken; empty: refused.
    discarded : tuple of int
        Groups that were dropped as too old meanwhile.
    bound_by : {"", "busy", "publication", "running_groups", "batch", "closed"}
        What refuses it: a batch in hand, a publication that blocks the trainer, a running group for which
        the order waits, too little in the queue, or a gate that was closed.
    """

    groups: tuple[TakenGroup, ...] = ()
    discarded: tuple[int, ...] = ()
    bound_by: str = ""

    def __bool__(self) -> bool:
        return bool(self.groups)


class Trained(NamedTuple):
    """What a completed training step brings about.

    Attributes
    ----------
    version : int
        The trainer's version now.
    lags : tuple of int
        Lag of each rollout of the batch, in the order taken, in the update that trained it.
    discarded : tuple of int
        Groups that were dropped as too old.
    cancelled : tuple of int
        Rollouts in flight that are too old already: stop them.
    publication : {"none", "draining", "transfer"}
        ``transfer``: copy ``publishes`` to the engines and call ``publish``; ``draining``: first wait until
        no group runs.
    publishes : int
        The version under way; -1: none.
    """

    version: int
    lags: tuple[int, ...] = ()
    discarded: tuple[int, ...] = ()
    cancelled: tuple[int, ...] = ()
    publication: str = "none"
    publishes: int = -1


class Published(NamedTuple):
    """What is visible to rollouts after a publication.

    Attributes
    ----------
    version : int
        The version that rollouts start with from now on.
    publication : {"none", "draining", "transfer"}
    publishes : int
        A newer version that waited and is under way now; -1: none.
    """

    version: int
    publication: str = "none"
    publishes: int = -1


class GateCounts(NamedTuple):
    """Where a gate stands.

    Attributes
    ----------
    version, published : int
    publication : {"none", "draining", "transfer"}
    publications : int
        Completed.
    started_groups : int
        Admitted and not dropped: running, queued, taken, or trained.
    running_groups, held_groups, queued_groups, queued_tokens : int
    groups_to_repeat : int
        Too old, and waiting to run again.
    in_flight_rollouts, idle_slots : int
    popped_batches, popped_groups, trained_batches : int
    """

    version: int
    published: int
    publication: str
    publications: int
    started_groups: int
    running_groups: int
    held_groups: int
    queued_groups: int
    queued_tokens: int
    groups_to_repeat: int
    in_flight_rollouts: int
    idle_slots: int
    popped_batches: int
    popped_groups: int
    trained_batches: int
