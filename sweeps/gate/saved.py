"""A gate as plain data, for a checkpoint, and back: the very same gate or an error.

Groups are written once, by their admission; every list of groups is a list of these numbers.
"""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from dataclasses import asdict
from typing import Any, NoReturn

from ...kernels._arguments import is_whole
from ...kernels.errors import CheckpointError
from ..json_text import json_text
from .group import HELD, POPPED, QUEUED, REQUEUED, RUNNING, Group
from .ledger import DRAINING, FREE, TRANSFER, Ledger

FORM = 1
_NUMBERS = (
    "version", "published", "publications", "publishes", "waits", "next_rollout", "next_sample", "next_group",
    "next_admission", "started", "running", "places", "queued_tokens", "popped_batches", "popped_groups",
    "trained_batches",
)  # fmt: skip
_LISTS = ("live", "queue", "held", "requeued", "starting")
_WAY_OUT = "Give what save() returned, unchanged."


def as_plain(ledger: Ledger) -> dict[str, Any]:
    """Return everything that a gate needs to go on, as data that JSON can hold."""
    places = [group for name in _LISTS for group in _groups(getattr(ledger, name))]
    every = {group.admission: group for group in places}
    every |= {group.admission: group for batch in ledger.popped for group in batch}
    return {
        "form": FORM,
        "rules": deepcopy(ledger.rules),
        "channel": ledger.channel,
        "in_hand": ledger.in_hand,
        **{name: getattr(ledger, name) for name in _NUMBERS},
        **{name: [group.admission for group in _groups(getattr(ledger, name))] for name in _LISTS},
        "popped": [[group.admission for group in batch] for batch in ledger.popped],
        "in_flight": [
            [number, group.admission, member] for number, (group, member) in ledger.in_flight.items()
        ],
        "cancelled": sorted(ledger.cancelled),
        "groups": [asdict(group) for group in every.values()],
    }


def _groups(place: Any) -> list[Group]:
    return list(place.values() if isinstance(place, dict) else place)


def from_plain(rules: dict[str, Any], saved: Any) -> Ledger:
    """Return the ledger that was saved.

    Raises
    ------
    CheckpointError
        If it is no saved gate, one of other rules, or its parts contradict each other.
    """
    if not isinstance(saved, dict) or saved.get("form") != FORM:
        _refuse("form", f"must be {FORM}, that of a saved gate", saved)
    _same_rules(rules, saved.get("rules"))
    ledger = Ledger(rules)
    try:
        _fill(ledger, saved)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        _refuse("", f"must hold every part of a gate: {error!r}", saved)
    _check(ledger)
    return ledger


def _same_rules(rules: dict[str, Any], saved: Any) -> None:
    if not isinstance(saved, dict):
        _refuse("rules", "must be those of a gate", saved)
    for name, value in rules.items():
        if json_text(saved.get(name)) != json_text(value):
            raise CheckpointError(
                f"state.rules.{name}",
                f"must be the gate's own, {value!r}",
                saved.get(name),
                "Restore it into a gate of the configuration that it was saved with.",
            )


def _fill(ledger: Ledger, saved: dict[str, Any]) -> None:
    for name in _NUMBERS:
        if not is_whole(saved[name]) or saved[name] < -1:
            _refuse(name, "must be a whole number", saved[name])
        setattr(ledger, name, int(saved[name]))
    if saved["channel"] not in (FREE, DRAINING, TRANSFER) or not isinstance(saved["in_hand"], bool):
        _refuse("channel", "must be none, draining or transfer, beside a flag in_hand", saved["channel"])
    ledger.channel, ledger.in_hand = saved["channel"], saved["in_hand"]
    groups = {plain["admission"]: _group(plain) for plain in saved["groups"]}
    for name in ("live", "queue", "held"):
        setattr(ledger, name, {admission: groups[admission] for admission in saved[name]})
    ledger.requeued = deque(groups[admission] for admission in saved["requeued"])
    ledger.starting = deque(groups[admission] for admission in saved["starting"])
    ledger.popped = deque([groups[admission] for admission in batch] for batch in saved["popped"])
    ledger.in_flight = {
        int(number): (groups[place], int(member)) for number, place, member in saved["in_flight"]
    }
    ledger.cancelled = {int(number) for number in saved["cancelled"]}


def _group(plain: dict[str, Any]) -> Group:
    group = Group(**plain)
    group.samples, group.rollouts, group.versions = (
        [int(value) for value in values] for values in (group.samples, group.rollouts, group.versions)
    )
    numbers = (group.number, group.version, group.tokens, group.finished, group.dequeue_version)
    if not all(is_whole(value) for value in (*numbers, group.admission)):
        _refuse("groups", "must hold whole numbers", plain)
    return group


def _check(ledger: Ledger) -> None:
    """Hold the lists against the counts: what was cut or edited does not fit together."""
    size = ledger.rules["group_size"]
    running = [group for group in ledger.live.values() if group.status in (RUNNING, HELD)]
    kept = {
        "queue": (ledger.queue.values(), QUEUED),
        "held": (ledger.held.values(), HELD),
        "requeued": (ledger.requeued, REQUEUED),
        "popped": ([group for batch in ledger.popped for group in batch], POPPED),
    }
    of_flight = sum(len(group.rollouts) - group.finished for group in running)
    trained = ledger.popped_batches - len(ledger.popped)
    agree = {
        "running": ledger.running == len(running),
        "queued_tokens": ledger.queued_tokens == sum(group.tokens for group in ledger.queue.values()),
        "trained_batches": ledger.trained_batches == trained and ledger.in_hand <= bool(ledger.popped),
        "in_flight": len(ledger.in_flight) == of_flight and ledger.idle >= 0,
        "version": ledger.version == trained * ledger.rules["updates_per_batch"] >= ledger.published,
        "starting": list(ledger.starting) == [group for group in running if len(group.rollouts) < size],
        "publishes": (ledger.channel == FREE) == (ledger.publishes < 0),
        "groups": len(ledger.live) == len(running) + len(ledger.queue),
        **{name: all(group.status == status for group in groups) for name, (groups, status) in kept.items()},
    }
    for name, fits in agree.items():
        if not fits:
            _refuse(name, "must fit the other parts of the state", "other values")


def _refuse(part: str, rule: str, value: Any) -> NoReturn:
    raise CheckpointError(f"state.{part}" if part else "state", rule, value, _WAY_OUT)
