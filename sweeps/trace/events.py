"""The events of a run's trace, in Google's Trace Event Format.

Simulated microseconds are the trace's microseconds. Processes: the *trainer* with a track of steps and one of
publications; the *slots*, a track each, whose slices are rollouts named by their behaviour version; the
*queue* with counters (tokens, rollouts in flight, lag) and discards as instants; each inference engine
(:mod:`.engine_tracks`). Checkpoints, restarts and lost steps are slices among the steps; failures are
instants, the trainer's there and a worker's on the track of the rollout that it lost. An arrow leads from
each trained rollout to its step. Slices on one track never overlap, as Perfetto demands; every arrow has an
id of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.engine_history import engine_history
from .engine_tracks import engine_events, engine_names
from .losses import interrupted_spans
from .tracks import Tracks, microseconds

if TYPE_CHECKING:
    from ..runs.result import PipelineResult

TRAINER, SLOTS, QUEUE = 1, 2, 3
STEPS, PUBLICATIONS, DISCARDS = 1, 2, 1
_WAITS = ("fetch", "evaluation", "checkpoint", "restart")  # of the trainer, shown as slices
_KEPT = ("running", "queued", "in_training", "trained")
_NOT_SHOWN = ("number", "start", "end", "truncated", "group_ready")
_OPTIONS = {"fetch", "evaluation", "failures"}  # whose causes say when the trainer is busy
_NEXT_TO_NOTHING = 0.5  # an arrow leaves just before its slice ends, so that it belongs to that slice


def trace_events(
    result: PipelineResult, tracks: Tracks, window: tuple[float, float] = (-np.inf, np.inf)
) -> Iterator[dict[str, Any]]:
    """Return every event of a run's trace, metadata first.

    Parameters
    ----------
    result : PipelineResult
        Recorded with its rollouts.
    tracks : Tracks
    window : (float, float)
        In microseconds; what lies outside is left out.
    """
    engine = result.config.engine
    yield from _names(int(tracks.slot.max(initial=-1)) + 1, 0 if engine is None else engine.count)
    yield from _steps(result, tracks, window)
    yield from _publications(tracks, window)
    yield from _rollouts(result, tracks, window)
    yield from _discards(result, tracks, window)
    yield from _counters(result, window)
    if engine is not None:
        yield from engine_events(engine_history(result), engine, window)
    warmup = result.config.warmup_seconds * 1e6
    if warmup and window[0] <= warmup <= window[1]:
        yield {"name": "warm-up ends", "ph": "i", "s": "g", "ts": warmup, "pid": TRAINER, "tid": STEPS}


def _names(slots: int, engines: int) -> Iterator[dict[str, Any]]:
    own = list(engine_names(engines))
    processes = ((TRAINER, "trainer"), (SLOTS, "rollout slots"), (QUEUE, "queue"))
    for pid, name in (*processes, *((pid, name) for pid, name, _ in own)):
        yield _metadata("process_name", pid, 0, name=name)
        yield _metadata("process_sort_index", pid, 0, sort_index=pid)
    for pid, tid, name in (
        (TRAINER, STEPS, "training steps"),
        (TRAINER, PUBLICATIONS, "publications"),
        (QUEUE, DISCARDS, "discards"),
        *((SLOTS, slot + 1, f"slot {slot}") for slot in range(slots)),
        *((pid, tid, name) for pid, _, threads in own for tid, name in threads),
    ):
        yield _metadata("thread_name", pid, tid, name=name)
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}


def _slice(
    name: str, category: str, pid: int, tid: int, start: int, end: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name, "cat": category, "ph": "X", "ts": start, "dur": end - start,
        "pid": pid, "tid": tid, "args": args,
    }  # fmt: skip


def _instant(name: str, at: int, pid: int, tid: int) -> dict[str, Any]:
    """Mark a failure."""
    return {"name": name, "cat": "failure", "ph": "i", "s": "t", "ts": at, "pid": pid, "tid": tid}


def _steps(result: PipelineResult, tracks: Tracks, window: tuple[float, float]) -> Iterator[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in result._columns["batches"].items()}
    names = ("tokens", "rollouts", "mean_lag", "max_lag", "normalized_ess", "expected_normalized_ess")
    for k, (start, end) in enumerate(zip(tracks.step_start.tolist(), tracks.step_end.tolist())):
        if end >= window[0] and start <= window[1]:
            args = {name: columns[name][k] for name in names}
            if "lost" in columns and columns["lost"][k]:
                args["outcome"] = "lost in a failure"
            yield _slice(f"update {columns['update'][k]}", "training", TRAINER, STEPS, start, end, args)
    yield from _between_steps(result, tracks, window)
    unfinished = unfinished_step(result, tracks)
    if unfinished is not None and tracks.end_of_run >= window[0] and unfinished <= window[1]:
        args = {"tokens": int(result.in_training_tokens), "outcome": "unfinished when the run ends"}
        yield _slice("unfinished update", "training", TRAINER, STEPS, unfinished, tracks.end_of_run, args)


def _between_steps(
    result: PipelineResult, tracks: Tracks, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    """Show fetches, evaluations, checkpoints and restarts beside the steps, where a run has some.

    Two of them with a step of no length between are one span of the trainer, and two slices.
    """
    if not _OPTIONS & result.config.options_in_use:
        return
    steps = np.unique(tracks.step_start)
    spans = trainer_spans(result)
    for start, end in interrupted_spans(spans, tracks.step_end, tracks.losses):
        if end >= window[0] and start <= window[1]:
            yield _slice("lost step", "failure", TRAINER, STEPS, start, end, {})
    for at in tracks.losses.failures.tolist():
        if window[0] <= at <= window[1]:
            yield _instant("failure", at, TRAINER, STEPS)
    for cause, start, end in spans:
        if cause not in _WAITS:
            continue
        inside = steps[(steps > start) & (steps < end)].tolist()
        for begin, stop in pairwise([start, *inside, end]):
            if stop > begin and stop >= window[0] and begin <= window[1]:
                yield _slice(cause, cause, TRAINER, STEPS, begin, stop, {})


def trainer_spans(result: PipelineResult) -> list[tuple[str, int, int]]:
    """Return what bound the trainer as (cause, start, end), neighbours of one cause joined."""
    from ..runs.diagnosis import constraint_intervals

    found: list[tuple[str, int, int]] = []
    columns = ("trainer_bound_by", "start_ticks", "end_ticks")
    for cause, start, end in constraint_intervals(result).select(columns).iter_rows():
        if found and found[-1][0] == cause:
            found[-1] = (cause, found[-1][1], end)
        else:
            found.append((cause, start, end))
    return found


def unfinished_step(result: PipelineResult, tracks: Tracks) -> int | None:
    """Tell when the step that is under way at the end began; None if there is none.

    The trainer starts as soon as it is idle and the last of the batch's rollouts is there. (For options of
    levels 2 and 3 that make it wait longer this is the earliest moment.)
    """
    training = result._columns["rollouts"]["outcome"] == "in_training"
    if not training.any():
        return None
    idle_since = int(tracks.step_end[-1]) if len(tracks.step_end) else 0
    if _OPTIONS & result.config.options_in_use:
        cause, began, _ = trainer_spans(result)[-1]
        return max(idle_since, began) if cause == "busy" else None
    return max(idle_since, int(tracks.end[training].max()))


def _publications(tracks: Tracks, window: tuple[float, float]) -> Iterator[dict[str, Any]]:
    for published, start, end in tracks.publications:
        stop = tracks.end_of_run if end is None else end
        if stop >= window[0] and start <= window[1]:
            args: dict[str, Any] = {"version": published}
            if end is None:
                args["outcome"] = "under way when the run ends"
            name = f"publish v{published}"
            yield _slice(name, "publication", TRAINER, PUBLICATIONS, start, stop, args)
    for version, start, stop in tracks.lost_publications:
        if stop > start and stop >= window[0] and start <= window[1]:
            args = {"version": version, "outcome": "lost in a failure"}
            yield _slice(f"lost: publish v{version}", "failure", TRAINER, PUBLICATIONS, start, stop, args)


def _rollouts(
    result: PipelineResult, tracks: Tracks, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in result._columns["rollouts"].items()}
    shown = [name for name in columns if name not in _NOT_SHOWN]
    batch = batch_of_rollouts(result)
    for k, (start, end, slot) in enumerate(
        zip(tracks.start.tolist(), tracks.end.tolist(), tracks.slot.tolist())
    ):
        if end < window[0] or start > window[1]:
            continue
        args: dict[str, Any] = {"rollout": columns["number"][k]}
        args |= {name: columns[name][k] for name in shown if columns[name][k] is not None}
        if columns["truncated"][k]:
            args["truncated"] = True
        outcome = columns["outcome"][k]
        name = f"v{columns['behaviour_version'][k]}" + ("" if outcome in _KEPT else f" {outcome}")
        yield _slice(name, f"rollout,{outcome}", SLOTS, slot + 1, start, end, args)
        if k in tracks.losses.by_worker:
            yield _instant("worker failure", end, SLOTS, slot + 1)
        if batch is not None and batch[k] >= 0:
            yield from _arrow(k, tracks, slot + 1, start, end, int(batch[k]), window)


def _arrow(
    number: int, tracks: Tracks, tid: int, start: int, end: int, step: int, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    """Lead from a rollout to the step that trained it, if both are shown."""
    step_start, step_end = int(tracks.step_start[step]), int(tracks.step_end[step])
    if step_end < window[0] or step_start > window[1]:
        return
    common = {"name": "trained in", "cat": "batch", "id": number}
    leaves = max(float(start), end - _NEXT_TO_NOTHING)
    arrives = step_start + (_NEXT_TO_NOTHING if step_end > step_start else 0.0)
    yield {**common, "ph": "s", "ts": leaves, "pid": SLOTS, "tid": tid}
    yield {**common, "ph": "f", "bp": "e", "ts": arrives, "pid": TRAINER, "tid": STEPS}


def batch_of_rollouts(result: PipelineResult) -> np.ndarray | None:
    """Tell in which completed step each rollout was trained (its index; -1 if in none).

    A rollout of behaviour version v that was trained at lag l was trained at version v + l, which names its
    step. None if that does not give the batches' own counts.
    """
    columns, batches = result._columns["rollouts"], result._columns["batches"]
    trained = columns["outcome"] == "trained"
    lags = np.array([-1 if lag is None else lag for lag in columns["lag"].tolist()], np.int64)
    versions = np.asarray(columns["behaviour_version"], np.int64) + lags
    batch = np.where(trained, versions // result.config.updates_per_batch, -1)
    kept = ~batches["lost"] if "lost" in batches else np.ones(len(batches["update"]), bool)
    count = len(kept)
    if (batch >= kept.sum()).any():
        return None
    batch[trained] = np.flatnonzero(kept)[batch[trained]]
    counts = np.bincount(batch[batch >= 0], minlength=count)
    if not kept.all():
        counts = np.where(kept, counts, batches["rollouts"])
    return batch if np.array_equal(counts, batches["rollouts"]) else None


def _discards(
    result: PipelineResult, tracks: Tracks, window: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    columns = result._columns["rollouts"]
    outcomes = columns["outcome"].tolist()
    for k in np.flatnonzero(~np.isin(columns["outcome"], _KEPT)).tolist():
        at = discard_time(result, tracks, k)
        if window[0] <= at <= window[1]:
            yield {
                "name": outcomes[k], "cat": "discard", "ph": "i", "s": "t", "ts": at, "pid": QUEUE,
                "tid": DISCARDS,
                "args": {
                    "rollout": int(columns["number"][k]),
                    "tokens": int(columns["tokens"][k]),
                    "behaviour_version": int(columns["behaviour_version"][k]),
                },
            }  # fmt: skip


def discard_time(result: PipelineResult, tracks: Tracks, rollout: int) -> int:
    """Tell when a rollout was discarded: on arrival, or at the update that made it too old.

    With other stale checks than at updates, the moment it was done stands for it.
    """
    config, end = result.config, int(tracks.end[rollout])
    if result._columns["rollouts"]["outcome"][rollout] == "lost":
        struck = None if rollout in tracks.losses.ends else tracks.losses.next_failure(end)
        return end if struck is None else struck
    if config.stale_check != "update":
        return end
    first = int(result._columns["rollouts"]["behaviour_version"][rollout]) + config.max_policy_lag + 1
    update = -(-first // config.updates_per_batch)
    return max(end, int(tracks.step_end[update - 1])) if update <= len(tracks.step_end) else end


def _counters(result: PipelineResult, window: tuple[float, float]) -> Iterator[dict[str, Any]]:
    timeline = result._columns["timeline"]
    time = microseconds(timeline["time"])
    # Of several changes in one microsecond the last one stands.
    settled = np.flatnonzero(np.append(time[1:] != time[:-1], True))
    for name, unit, values in (
        ("queue tokens", "tokens", timeline["queue_tokens"]),
        ("rollouts in flight", "rollouts", timeline["in_flight"]),
        ("lag of new rollouts", "versions", timeline["version"] - timeline["published"]),
        *((("held slots", "slots", timeline["held_slots"]),) if "held_slots" in timeline else ()),
    ):
        levels = values[settled]
        changed = np.append(True, levels[1:] != levels[:-1])
        for row in settled[changed].tolist():
            if window[0] <= time[row] <= window[1]:
                yield _counter(name, int(time[row]), {unit: int(values[row])})
    batches = result._columns["batches"]
    for at, lag in zip(microseconds(batches["start"]).tolist(), batches["mean_lag"].tolist()):
        if window[0] <= at <= window[1]:
            yield _counter("mean lag of the batch", at, {"versions": lag})


def _counter(name: str, at: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": at, "pid": QUEUE, "tid": 0, "args": args}
