"""What failures did to a run, retold from its tables: when they struck, and what was lost at them.

A rollout that was lost in flight has no end of its own: it ends at the failure of the trainer that lost it,
or where the same rollout starts again because its worker failed, whichever comes first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.pipeline.ticks import TICKS_PER_SECOND

if TYPE_CHECKING:
    from ..runs.result import PipelineResult


@dataclass(frozen=True)
class Losses:
    """The failures of a run, in microseconds.

    Attributes
    ----------
    failures : ndarray of int64
        Of the trainer.
    ends : dict of int
        Row of a rollout that was lost in flight -> when.
    by_worker : frozenset of int
        Of these rows, those whose worker failed.
    """

    failures: np.ndarray
    ends: dict[int, int]
    by_worker: frozenset[int]

    def next_failure(self, time: int) -> int | None:
        """Return the first failure of the trainer at a time or after it; None if there is none."""
        place = int(np.searchsorted(self.failures, time))
        return int(self.failures[place]) if place < len(self.failures) else None


NO_LOSSES = Losses(np.zeros(0, np.int64), {}, frozenset())


def losses_of(result: PipelineResult) -> Losses:
    """Find out when each rollout in flight was lost.

    Parameters
    ----------
    result : PipelineResult
        Recorded with its rollouts.
    """
    if "failures" not in result.config.options_in_use:
        return NO_LOSSES
    timeline, rollouts = result._columns["timeline"], result._columns["rollouts"]
    events = timeline["event"]
    failures = _ticks(timeline["time"][events == "failure"])
    starts, numbers = _ticks(rollouts["start"]), rollouts["number"].tolist()
    ends: dict[int, int] = {}
    by_worker = set()
    start_after: dict[int, int] = {}  # of a number: when it starts again
    without_end = np.array([end is None for end in rollouts["end"].tolist()], bool)
    lost = (rollouts["outcome"] == "lost") & without_end
    for row in range(len(numbers) - 1, -1, -1):
        if lost[row]:
            place = int(np.searchsorted(failures, starts[row], "right"))
            at = int(failures[place]) if place < len(failures) else None
            again = start_after.get(numbers[row])
            if again is not None and (at is None or again < at):
                by_worker.add(row)
                at = again
            if at is not None:
                ends[row] = at
        start_after[numbers[row]] = int(starts[row])
    return Losses(failures, ends, frozenset(by_worker))


def interrupted_spans(
    spans: list[tuple[str, int, int]], step_ends: np.ndarray, losses: Losses
) -> Iterator[tuple[int, int]]:
    """Return the steps that a failure of the trainer interrupted, as (start, end).

    Parameters
    ----------
    spans : list of (cause, start, end)
        What bound the trainer.
    step_ends : ndarray of int64
        Of the steps that were completed, in order.
    losses : Losses
    """
    busy = [(start, end) for cause, start, end in spans if cause == "busy"]
    firsts = [start for start, _ in busy]
    before = 0
    for failure in losses.failures.tolist():
        place = bisect_left(firsts, failure) - 1  # the last one that began before it
        if place >= 0 and failure <= busy[place][1]:
            ended = int(np.searchsorted(step_ends, failure, "right"))
            start = max(busy[place][0], before, int(step_ends[ended - 1]) if ended else 0)
            if start < failure:
                yield start, failure
        before = failure


def _ticks(seconds: np.ndarray) -> np.ndarray:
    return np.round(np.asarray(seconds, np.float64) * TICKS_PER_SECOND).astype(np.int64)
