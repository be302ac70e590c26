"""The loop of two processes: what the generator and the trainer do, whatever samples and learns.

A group may start while ``started < updates + 1 + ahead``: AReaL's rule for batches of one group
(:func:`~lagsweep.kernels.staleness_capacity`). With nothing ahead the two take turns; with one group ahead
they overlap. Every update publishes its weights as a file, and the generator takes the newest before each
group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...kernels.admission_rules import staleness_capacity
from .channel import Channel, PeerGoneError
from .handover import WeightFolder

Group = dict[str, Any]


class Sampler(Protocol):
    """What generates."""

    def load(self, path: Path) -> None:
        """Take weights from a file."""

    def sample(self, number: int, version: int) -> Sequence[Mapping[str, Any]]:
        """Return the records of one group: of the prompt of that number, by that version."""


class Learner(Protocol):
    """What trains."""

    version: int

    def train(self, records: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
        """Take one optimizer step on a group, and return figures of it; the version goes up by 1."""

    def save(self, path: Path) -> None:
        """Write the weights that a sampler loads."""


def generate(channel: Channel, weights: WeightFolder, sampler: Sampler) -> None:
    """Generate groups as far ahead as the trainer's rule allows, until the trainer is gone.

    Parameters
    ----------
    channel : Channel
    weights : WeightFolder
    sampler : Sampler
    """
    version, number, started, updates = -1, 0, 0, 0
    phase: dict[str, Any] | None = None
    while True:
        may_start = phase is not None and _room(phase["ahead"], updates, started) > 0
        try:
            message = channel.take(wait=not may_start)
        except PeerGoneError:
            return  # the trainer is done, or dead: nobody wants more
        if message is not None:
            if message["kind"] == "phase":
                phase, started, updates = message, 0, 0
            else:
                updates += 1
            continue
        begun, used = time.monotonic(), time.process_time()
        newest = weights.newest(lambda path: sampler.load(path), above=version)
        version = version if newest is None else newest[0]
        loaded, used_to_load = time.monotonic(), time.process_time()
        records = sampler.sample(number, version)
        assert phase is not None
        group = {
            "phase": phase["phase"],
            "records": list(records),
            "version": version,
            "begun": begun,
            "loaded": loaded,
            "finished": time.monotonic(),
            "load_cpu_seconds": used_to_load - used,
            "sampling_cpu_seconds": time.process_time() - used_to_load,
        }
        number, started = number + 1, started + 1
        try:
            channel.send(group)
        except PeerGoneError:
            return


def _room(ahead: int, updates: int, started: int) -> int:
    """Return how many groups may start now."""
    return int(
        staleness_capacity(
            max_staleness=ahead,
            current_version=updates,
            consumer_batch_size=1,
            accepted=started,
            running=0,
            concurrency_limit=1,
        )
    )


def train(
    channel: Channel,
    weights: WeightFolder,
    learner: Learner,
    phases: Sequence[Mapping[str, Any]],
    clock: Callable[[], float] = time.monotonic,
) -> list[dict[str, Any]]:
    """Train one update after another in each phase, and write down what each took.

    Parameters
    ----------
    channel : Channel
    weights : WeightFolder
    learner : Learner
    phases : sequence of mapping
        ``ahead`` and ``updates`` of each.
    clock : callable

    Returns
    -------
    list of dict
        A row for each update: seconds of the step and its parts, those of CPU too (other work on the machine
        makes a part longer, its CPU seconds hardly), tokens, versions, the learner's figures.
    """
    rows = []
    weights.offer(learner.version, learner.save)
    for place, phase in enumerate(phases):
        channel.send({"kind": "phase", "phase": place, "ahead": phase["ahead"]})
        before = clock()
        for _ in range(phase["updates"]):
            group = _next_group(channel, place)
            taken, used = clock(), time.process_time()
            behind = learner.version - group["version"]
            figures = learner.train(group["records"])
            trained, used_to_train = clock(), time.process_time()
            weights.offer(learner.version, learner.save)
            channel.send({"kind": "published", "version": learner.version})
            published, used_to_publish = clock(), time.process_time()
            lengths = [len(record["response_tokens"]) for record in group["records"]]
            rows.append(
                {
                    "phase": place,
                    "ahead": phase["ahead"],
                    "lag": behind,
                    "step_seconds": published - before,
                    "wait_seconds": taken - before,
                    "training_seconds": trained - taken,
                    "publication_seconds": published - trained,
                    "load_seconds": group["loaded"] - group["begun"],
                    "sampling_seconds": group["finished"] - group["loaded"],
                    "training_cpu_seconds": used_to_train - used,
                    "publication_cpu_seconds": used_to_publish - used_to_train,
                    "load_cpu_seconds": group["load_cpu_seconds"],
                    "sampling_cpu_seconds": group["sampling_cpu_seconds"],
                    "rollouts": len(lengths),
                    "response_tokens": sum(lengths),
                    "longest_tokens": max(lengths),
                    "prompt_tokens": len(group["records"][0]["prompt_tokens"]),
                    "cut": sum(record["stop_reason"] == "length" for record in group["records"]),
                    **figures,
                }
            )
            before = published
    return rows


def _next_group(channel: Channel, phase: int) -> Group:
    """Take the oldest group of this phase; what the phase before had ahead is left."""
    while True:
        group = channel.take()
        assert group is not None
        if group["phase"] == phase:
            return group
