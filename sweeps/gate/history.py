"""What a simulated run did, as the calls that a trainer would make of a gate, and the kernel's answers.

The compiled loop is let go on event by event; what changed in its records tells which rollout finished, what
the trainer took, what was dropped and what started. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError
from ...kernels.pipeline import records as at
from ...kernels.pipeline.metrics import SLOT_CONSTRAINTS, TRAINER_CONSTRAINTS
from ..checks import WholeNumber, checked
from ..config.config import PipelineConfig
from ..runs.general import GeneralRun
from .decisions import Finish, Pop, Published, Start, TakenGroup, Trained
from .rules import checked_rules

CHANNELS = ("none", "draining", "transfer")
MOST_EVENTS = 100_000


class Event(NamedTuple):
    """One call of a trainer, as a simulated run made it.

    Attributes
    ----------
    seconds : float
        Simulated time.
    call : {"start", "finish", "pop", "trained", "publish"}
    arguments : dict
        Of the call.
    answer : Start or Finish or Pop or Trained or Published
        What the kernel decided. What a settle dropped as too old stands in its first answer that can tell.
    """

    seconds: float
    call: str
    arguments: dict[str, Any]
    answer: Start | Finish | Pop | Trained | Published


@dataclass(frozen=True)
class _Before:
    """What must be known of the moment before an event."""

    state: np.record
    outcomes: np.ndarray
    ends: np.ndarray
    in_training: tuple[int, ...]  # rollouts of the oldest batch taken

    @classmethod
    def of(cls, run: GeneralRun) -> _Before:
        rows = run.rows("rollouts")
        assert rows is not None
        oldest = next(_popped(run), ())
        in_training = tuple(rollout for group in oldest for rollout in group.rollouts)
        return cls(run.held.state.copy()[0], rows["outcome"].copy(), rows["end"].copy(), in_training)


def simulated_history(config: PipelineConfig, *, max_events: int = MOST_EVENTS) -> list[Event]:
    """Simulate a run and return it as the calls that a trainer makes of a :class:`RolloutGate`.

    Parameters
    ----------
    config : PipelineConfig
        Of any rules that a gate covers.
    max_events : int
        Refuse a run of more events of the pipeline.

    Returns
    -------
    list of Event
        In the order in which they happened; after each event one refused start and one refused batch.

    Raises
    ------
    ConfigError
        If a gate does not cover the configuration's rules, or the run has too many events.

    Examples
    --------
    >>> config = PipelineConfig(duration_seconds=20, rollout_workers=2)
    >>> history = simulated_history(config)
    >>> [event.call for event in history[:3]], history[1].answer.version
    (['pop', 'start', 'start'], 0)
    """
    instance("config", config, PipelineConfig, "Build one, as PipelineConfig(rollout_workers=4).")
    max_events = checked(WholeNumber, "max_events", max_events, low=1, high=2**31)
    checked_rules(config)
    run = GeneralRun(config, rollouts=True)
    found: list[Event] = []
    until = -1  # first the settle at time 0, which costs nothing, then event by event
    while True:
        before = _Before.of(run)
        done = run.step(until, budget=1)
        found += _events(run, before)
        if int(run.state.events) > max_events:
            rule = f"must be at least the events of this run, more than {max_events}"
            raise ConfigError("max_events", rule, max_events, "Shorten duration_seconds, or raise it.")
        if done and until == at.NEVER:
            return found
        # A settle that came back for more room is ended before the next event.
        until = int(run.state.now) - 1 if run.state.settling else at.NEVER


def _events(run: GeneralRun, before: _Before) -> Iterator[Event]:
    rows, state = run.rows("rollouts"), run.state
    assert rows is not None
    seconds = int(state.now) / 1e6
    began = bool(state.begun) > bool(before.state.begun)
    happened = int(state.events) > int(before.state.events)
    known = len(before.outcomes)
    changed = np.flatnonzero(rows["outcome"][:known] != before.outcomes)
    dropped = [k for k in changed.tolist() if rows["outcome"][k] == at.DISCARDED]
    discarded = tuple(dict.fromkeys(int(rows["group"][k]) for k in dropped))
    if happened:
        for event in _heads(run, before, rows, changed, discarded, seconds):
            discarded = () if getattr(event.answer, "discarded", ()) else discarded
            if isinstance(event.answer, Finish) and event.answer.outcome == "discarded":
                discarded = tuple(group for group in discarded if group != event.answer.group)
            yield event
    if happened or began:
        yield from _pops(run, before, discarded, seconds)
    for row in range(known, len(rows)):
        one = rows[row]
        start = Start(row, int(one.group), int(one.member), int(one.number), int(one.version))
        yield Event(seconds, "start", {}, start)
    if (happened or began or state.settling != before.state.settling) and not state.settling:
        # The loop asks as long as a slot is idle; then nothing more may start.
        yield Event(seconds, "start", {}, Start(bound_by=_slot_cause(run)))


def _heads(
    run: GeneralRun,
    before: _Before,
    rows: np.ndarray,
    changed: np.ndarray,
    discarded: tuple[int, ...],
    seconds: float,
) -> Iterator[Event]:
    """Tell of the event itself, and of publications that take no time."""
    state = run.state
    published = int(state.publications) - int(before.state.publications)
    if state.event == at.EVENT_ROLLOUT:
        known = len(before.ends)
        (row,) = np.flatnonzero(rows["end"][:known] != before.ends).tolist()
        outcome = int(rows["outcome"][row])
        arguments = {"rollout": row, "tokens": int(rows["tokens"][row]), "filtered": outcome == at.FILTERED}
        yield Event(seconds, "finish", arguments, _finish(run, before, rows, changed, row))
    elif state.event == at.EVENT_UPDATE:
        yield Event(seconds, "trained", {}, _trained(run, before, rows, changed, discarded))
    yield from (
        Event(seconds, "publish", {}, _published(run, number == published))
        for number in range(1, published + 1)
    )


def _finish(run: GeneralRun, before: _Before, rows: np.ndarray, changed: np.ndarray, row: int) -> Finish:
    outcome, group = int(rows["outcome"][row]), int(rows["group"][row])
    evicted = [int(rows["group"][k]) for k in changed.tolist() if rows["outcome"][k] == at.EVICTED]
    full = before.state.queue_groups >= (run.config.max_queue_groups or 0)
    if outcome == at.FILTERED:
        word = "filtered"
    elif rows["ready"][row] < 0:
        word = "waiting"
    elif run.config.queue_overflow == "hold" and full:
        word = "held"
    elif outcome == at.DISCARDED and run.config.stale_check == "update":
        word = "discarded"
    else:
        word = "queued"
    return Finish(word, group, tuple(dict.fromkeys(evicted)))


def _trained(
    run: GeneralRun, before: _Before, rows: np.ndarray, changed: np.ndarray, discarded: tuple[int, ...]
) -> Trained:
    state = run.state
    at_once = discarded if run.config.stale_check == "update" else ()
    new = changed.tolist()
    # A cancelled rollout that had not ended was in flight: the others of its group had.
    cancelled = [k for k in new if rows["outcome"][k] == at.CANCELLED and before.ends[k] < 0]
    return Trained(
        int(state.version),
        tuple(int(rows["lag"][k]) for k in before.in_training),
        at_once,
        tuple(cancelled),
        *_after_step(run, before),
    )


def _after_step(run: GeneralRun, before: _Before) -> tuple[str, int]:
    """Tell of the channel after a step; publications that took no time are told as calls of their own."""
    if run.state.publications == before.state.publications:
        return _channel(run)
    under_way = before.state.channel != at.CHANNEL_FREE
    return CHANNELS[at.CHANNEL_TRANSFER], int(
        (before if under_way else run).state["publication_version" if under_way else "published"]
    )


def _published(run: GeneralRun, last: bool) -> Published:
    # Of several publications in one tick only the last one is still to be seen.
    return Published(int(run.state.published) if last else -1, *_channel(run))


def _channel(run: GeneralRun) -> tuple[str, int]:
    channel = int(run.state.channel)
    return CHANNELS[channel], int(run.state.publication_version) if channel != at.CHANNEL_FREE else -1


def _pops(run: GeneralRun, before: _Before, discarded: tuple[int, ...], seconds: float) -> Iterator[Event]:
    new = int(run.state.popped_batches) - int(before.state.popped_batches)
    batches = list(_popped(run))
    answers = [Pop(batch) for batch in batches[len(batches) - new :]]
    answers.append(Pop((), (), _trainer_cause(run)))
    answers[0] = answers[0]._replace(discarded=discarded)
    yield from (Event(seconds, "pop", {}, answer) for answer in answers)


def _popped(run: GeneralRun) -> Iterator[tuple[TakenGroup, ...]]:
    """Return the batches that are taken and not trained."""
    groups, members, size = run.held.groups, run.held.members, run.config.group_size
    record = int(run.state.popped_head)
    while record:
        batch = []
        for _ in range(int(groups[record].batch_groups)):
            one = groups[record]
            rollouts = tuple(int(members[k].row) for k in range(record * size, (record + 1) * size))
            lag = int(one.dequeue_version) - int(one.version)
            batch.append(TakenGroup(int(one.number), rollouts, int(one.version), lag, int(one.tokens)))
            record = int(one.next)
        yield tuple(batch)


def _slot_cause(run: GeneralRun) -> str:
    state = run.state
    if state.idle == 0:
        return "busy"
    cause = int(state.idle_cause)
    limit = cause - at.SLOTS_FIRST_LIMIT
    return SLOT_CONSTRAINTS[cause] if limit < 0 else f"limits.{limit}"


def _trainer_cause(run: GeneralRun) -> str:
    state = run.state
    beside = state.training and state.prefetched < run.config.prefetch_batches
    if state.settling or beside:
        # The loop says it at the end of a settle, and beside a step not which of the two is missing.
        return ""
    return "busy" if state.training else TRAINER_CONSTRAINTS[int(state.trainer_cause)]
