"""What a run's tables say between the lines: which slot ran which rollout, when weights were under way.

A level 1 run is retold from its timeline: each row says what happened and how many rollouts are in flight
afterwards, so the rollouts that started are known, and the slot freed last is used first. A run of the
general loop is laid onto free tracks instead, the lowest one first.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.pipeline.ticks import ticks
from .losses import NO_LOSSES, Losses, losses_of

if TYPE_CHECKING:
    from ..runs.result import PipelineResult


_NEVER = 2**62


@dataclass(frozen=True)
class Tracks:
    """A run's tables as whole microseconds.

    Attributes
    ----------
    start, end, slot : ndarray of int64
        Per rollout; `end` is the run's end for what still runs.
    step_start, step_end : ndarray of int64
        Per completed update.
    publications : list of (version, start, end)
        Completed ones; ``end`` is None for one that is still under way.
    end_of_run : int
    exact_slots : bool
        False where tracks stand for slots.
    losses : Losses
        Failures, and what was in flight then.
    lost_publications : list of (version, start, end)
        Those that a failure of the trainer ended.
    """

    start: np.ndarray
    end: np.ndarray
    slot: np.ndarray
    step_start: np.ndarray
    step_end: np.ndarray
    publications: list[tuple[int, int, int | None]]
    end_of_run: int
    exact_slots: bool
    losses: Losses = NO_LOSSES
    lost_publications: list[tuple[int, int, int]] = field(default_factory=list)


def tracks_of(result: PipelineResult) -> Tracks:
    """Retell a run that was recorded with its rollouts.

    Parameters
    ----------
    result : PipelineResult
    """
    config = result.config
    columns = {name: np.array(values) for name, values in result._columns["rollouts"].items()}
    batches = result._columns["batches"]
    step_end = microseconds(batches["end"])
    horizon = ticks(config.duration_seconds)
    stopped = config.stop_after_updates is not None and result.final_version >= config.stop_after_updates
    end_of_run = int(step_end[-1]) if stopped and len(step_end) else horizon
    start = microseconds(columns["start"])
    ended = np.array([value is not None for value in columns["end"]], bool)
    end = np.full(len(start), end_of_run, np.int64)
    end[ended] = microseconds(columns["end"][ended].astype(np.float64))
    losses = losses_of(result)
    for row, at in losses.ends.items():
        end[row] = at
    publications, lost_publications = publications_of(result, end_of_run)
    exact = config.is_level_1
    slot = slots_by_timeline(result, np.where(ended, end, _NEVER)) if exact else free_tracks(start, end)
    return Tracks(
        start,
        end,
        slot,
        microseconds(batches["start"]),
        step_end,
        publications,
        end_of_run,
        exact,
        losses,
        lost_publications,
    )


def microseconds(seconds: np.ndarray) -> np.ndarray:
    """Turn seconds of the simulation back into its whole microseconds.

    Examples
    --------
    >>> microseconds(np.array([0.1, 2.000001])).tolist()
    [100000, 2000001]
    """
    return np.round(np.asarray(seconds, np.float64) * 1e6).astype(np.int64)


def slots_by_timeline(result: PipelineResult, end: np.ndarray) -> np.ndarray:
    """Tell which slot each rollout of a level 1 run had; `end` is far away for what still runs."""
    timeline = result._columns["timeline"]
    in_flight = timeline["in_flight"]
    completed = timeline["event"] == "rollout"
    starts = np.diff(in_flight, prepend=0) + completed
    idle = list(range(result.config.rollout_workers))[::-1]  # the top is used first
    running: list[tuple[int, int]] = []
    slot = np.zeros(len(end), np.int64)
    number = 0
    for row, count in enumerate(starts.tolist()):
        if completed[row]:
            _, freed = heapq.heappop(running)
            idle.append(freed)
        for _ in range(count):
            slot[number] = idle.pop()
            # Slots that complete in the same microsecond are served in the order of their numbers.
            heapq.heappush(running, (int(end[number]), int(slot[number])))
            number += 1
    return slot


def free_tracks(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Lay intervals onto tracks so that none overlap on one; the lowest free track is used.

    Examples
    --------
    >>> free_tracks(np.array([0, 1, 5]), np.array([4, 9, 6])).tolist()
    [0, 1, 0]
    """
    track = np.zeros(len(start), np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    used = 0
    for index in np.lexsort((np.arange(len(start)), start)).tolist():
        while busy and busy[0][0] <= start[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            track[index] = heapq.heappop(free)
        else:
            track[index], used = used, used + 1
        heapq.heappush(busy, (int(end[index]), int(track[index])))
    return track


def publications_of(
    result: PipelineResult, end_of_run: int
) -> tuple[list[tuple[int, int, int | None]], list[tuple[int, int, int]]]:
    """Tell when each publication was under way, from what the timeline says was published; and lost ones.

    One starts at its update, or when the one before it completes; a newer waiting version replaces an older.
    A start that waits for running groups to drain counts from when it was asked for.
    """
    timeline, every = result._columns["timeline"], result.config.sync_every_updates
    time, version, published = (
        microseconds(timeline["time"]),
        timeline["version"],
        timeline["published"],
    )
    found: list[tuple[int, int, int | None]] = []
    lost: list[tuple[int, int, int]] = []
    fails = timeline["event"] == "failure"
    under_way: tuple[int, int] | None = None
    waiting: int | None = None
    last_version = last_published = 0
    changes = np.diff(version, prepend=0) | np.diff(published, prepend=0) | fails
    for row in np.flatnonzero(changes).tolist():
        at = int(time[row])
        if fails[row]:  # the trainer goes back, and so do the slots, without a publication
            if under_way is not None:
                lost.append((*under_way, at))
            under_way, waiting = None, None
            last_version, last_published = int(version[row]), int(published[row])
            continue
        if version[row] != last_version:
            if version[row] // every > last_version // every:
                newest = int(version[row])
                if under_way is None:
                    under_way = (newest, at)
                else:
                    waiting = newest
            last_version = int(version[row])
        if published[row] != last_published:
            last_published = int(published[row])
            began = under_way[1] if under_way is not None else at
            found.append((last_published, began, at))
            under_way = (waiting, at) if waiting is not None and waiting != last_published else None
            waiting = None
    if under_way is not None and under_way[1] <= end_of_run:
        found.append((under_way[0], under_way[1], None))
    return found, lost
