"""The rules that failures and checkpoints of a saved run keep at every stop; see :mod:`.saved_arrays`.

A simulated checkpoint that holds a queue is a run's groups as they stood, so it obeys the rules of the lists
of groups as the run itself does.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.records import NEVER
from ..runs.general import GeneralRun
from .saved_arrays import LARGEST_COUNT, check_tree, demand, demand_within

GROWING = ("saved_groups", "saved_group_factors", "saved_members", "saved_member_versions")
_LATEST = 2**53  # a failure may lie beyond every horizon
_COUNTS = ("count", "kept_tokens", "kept_groups", "lost_updates", "lost_tokens", "repeated_groups")


def check_failures(run: GeneralRun, check_groups: Callable[[GeneralRun], None]) -> None:
    """Check what failures and checkpoints keep in a restored run before its kernel goes on.

    Parameters
    ----------
    run : GeneralRun
    check_groups : callable
        Holds the groups of a run against the rules of their lists.

    Raises
    ------
    CheckpointError
        If a rule that the kernel relies on is broken.
    """
    if not run.config.has_failures:
        return
    state, parameters, failures = run.state, run.parameters[0], run.held.failures[0]
    fails, now = bool(parameters.trainer_fails), int(state.now)
    demand((failures.failure_time != NEVER) == fails, "failures", "must be to come where the trainer fails")
    for name, possible in (
        ("failure_time", fails),
        ("restart_time", fails),
        ("checkpoint_time", parameters.checkpoint_every > 0),
    ):
        time = failures[name]
        if time != NEVER:
            demand(possible, f"failures.{name}", "must not be set in this configuration", int(time))
            demand_within(f"failures.{name}", time, now, _LATEST)
    workers = run.held.worker_tree[1] if len(run.held.worker_tree) else NEVER
    strike, wait = failures.strike_time, failures.wait_time
    demand(strike == min(failures.failure_time, workers), "failures.strike_time", "must be the next failure")
    first = min(failures.restart_time, failures.checkpoint_time)
    demand(wait == first, "failures.wait_time", "must be the end of a checkpoint or restart")
    demand(NEVER in (failures.restart_time, failures.checkpoint_time), "failures", "must wait for one alone")
    idle = state.training == 0 and state.evaluation_time == NEVER
    demand(idle or wait == NEVER, "failures", "must let the trainer stand still in a checkpoint or restart")
    for name in _COUNTS:
        demand_within(f"failures.{name}", failures[name], 0, LARGEST_COUNT)
    demand_within("failures.saved", failures.saved, 0, 1)
    demand_within("failures.again", failures.again, 0, 0)
    demand_within("failures.again_member", failures.again_member, 0, parameters.group_size - 1)
    busy = int(run.held.trainer_ticks[records.TRAINER_BUSY])
    demand_within("failures.busy_mark", failures.busy_mark, 0, busy)
    demand_within("failures.lost_busy_ticks", failures.lost_busy_ticks, 0, busy)
    _check_workers(run)
    if fails:
        _check_saved(run, check_groups)


def _check_workers(run: GeneralRun) -> None:
    tree, counts = run.held.worker_tree, run.held.worker_counts
    if not len(counts):
        return
    leaves = len(tree) // 2
    check_tree("worker_tree", tree)
    demand((tree[leaves + len(counts) :] == NEVER).all(), "worker_tree", "must have no key without a slot")
    times = tree[1:]
    demand_within("worker_tree", times[times != NEVER], run.state.now, run.parameters[0].horizon)
    demand_within("worker_counts", counts, 0, LARGEST_COUNT)


def _check_saved(run: GeneralRun, check_groups: Callable[[GeneralRun], None]) -> None:
    """Check the checkpoints that a failure may go back to: the last one, and the one being written."""
    held, failures = run.held, run.held.failures[0]
    for name in ("saved_tokens", "saved_trained"):
        demand_within(name, getattr(held, name), 0, LARGEST_COUNT)
    demand_within("saved_histograms", held.saved_histograms, 0, LARGEST_COUNT)
    for name, kind in held.saved_state.dtype.fields.items():
        if kind[0].kind == "f":
            demand(not np.isnan(held.saved_state[name]).any(), f"saved_state.{name}", "must not be NaN")
    whole = int(failures.saved)
    places = [whole] if failures.checkpoint_time == NEVER else [whole, 1 - whole]
    for place in places:
        saved = held.saved_state[place]
        demand_within("saved_state.version", saved.version, 0, run.state.version)
        for name in ("trained_batches", "trained_tokens", "trained_rollouts", "trained_groups", "places"):
            demand_within(f"saved_state.{name}", saved[name], 0, LARGEST_COUNT)
        for name in ("next_number", "next_group", "next_admission", "next_row", "publications"):
            demand_within(f"saved_state.{name}", saved[name], 0, run.state[name])
        if saved.version > 0 and len(held.saved_groups):
            check_groups(_as_it_stood(run, place))


def _as_it_stood(run: GeneralRun, place: int) -> GeneralRun:
    """Return what is checked of a run's groups, as it was when a checkpoint began."""
    held, state = run.held, run.held.saved_state[place]
    groups, members = len(held.groups), len(held.members)
    saved = held.saved_groups[place * groups : (place + 1) * groups]
    # Records that the run has been given since hold nothing, and are in no list of the checkpoint's: a
    # failure that goes back to it chains what is unused anew.
    unused = int((saved["state"][1:] == records.GROUP_UNUSED).sum())
    added = min(max(0, unused - int(state.free)), groups - 1)
    if added > 0 and not saved[-added:].view(np.int64).any():
        groups -= added
    part = SimpleNamespace(
        groups=saved[:groups],
        members=held.saved_members[place * members :][: groups * run.config.group_size],
    )
    view = SimpleNamespace(
        held=part,
        state=state,
        parameters=run.parameters,
        config=run.config,
        _tables=run._tables,
    )
    return view  # type: ignore[return-value]
