"""A simulated run fed to a gate: every answer must be the kernel's."""

from __future__ import annotations

import json
from collections import Counter

from lagsweep.sweeps.gate.gate import RolloutGate
from lagsweep.sweeps.gate.history import simulated_history


def replay(config, *, save_every=0):
    """Feed a run to a gate; return what was seen, or fail at the first answer that differs.

    What one event drops as too old may stand in another of its answers, so that is compared by the event.
    """
    gate, seen = RolloutGate(config), Counter()
    ours, theirs = [], []
    moment = None
    for number, event in enumerate(simulated_history(config)):
        if save_every and number % save_every == save_every - 1:
            state = json.loads(json.dumps(gate.save()))
            gate = RolloutGate(config)
            gate.restore(state)
            assert gate.save() == state
        if event.call in ("finish", "trained") or event.seconds != moment:
            assert sorted(ours) == sorted(theirs), event
            ours, theirs, moment = [], [], event.seconds
        answer = getattr(gate, event.call)(**event.arguments)
        theirs += dropped(event.answer)
        ours += dropped(answer)
        assert comparable(answer, event.answer) == comparable(event.answer, event.answer), event
        seen[event.call] += 1
        seen[f"{event.call}: {named(answer)}"] += 1
        seen["dropped"] += len(dropped(answer))
    assert sorted(ours) == sorted(theirs)
    assert gate.counts().publications == seen["publish"]
    return seen


def dropped(answer):
    if getattr(answer, "outcome", "") == "discarded":
        return [answer.group]
    return list(getattr(answer, "discarded", ()))


def comparable(answer, expected):
    """Leave out what is compared by the event, and what the kernel no longer knows."""
    parts = answer._asdict()
    parts.pop("discarded", None)
    if type(answer).__name__ == "Pop" and not expected.groups and not expected.bound_by:
        parts.pop("bound_by")
    if type(answer).__name__ == "Published" and expected.version < 0:
        return None
    return parts


def named(answer):
    return getattr(answer, "outcome", None) or getattr(answer, "bound_by", None) or "yes"
