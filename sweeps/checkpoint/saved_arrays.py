"""The arrays of a saved run before a kernel sees them: kinds, shapes, and what both loops keep alike.

A kernel checks nothing: a slot, a list or a position out of range would be read and written past the arrays,
and a tree or a list that is not closed would be walked for ever. So a run that comes from a file is held
against every rule of its state that the kernels rely on, and refused with the first that it breaks. The rules
of one loop stand in :mod:`.lean_arrays` and :mod:`.general_arrays`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...kernels.errors import CheckpointError
from ...kernels.pipeline.records import EVENT_NAMES, NEVER, OUTCOME_NAMES, TRAINER_CAUSES
from ..runs.run import REAL_PARTS, TABLES, Run

_WAY_OUT = "The file was not written by simulation_checkpoint."
LARGEST_COUNT = 2**52  # of rollouts, versions, groups: more than any run has
_MOST_RECORDS = 2**27  # of one array


def demand(holds: Any, field: str, rule: str, value: Any = "something else") -> None:
    """Refuse a saved run unless something holds of it.

    Raises
    ------
    CheckpointError
        With the field and the rule.
    """
    if not holds:
        raise CheckpointError(f"state.arrays.{field}", rule, value, _WAY_OUT)


def demand_within(field: str, values: Any, low: int | np.ndarray, high: int | np.ndarray) -> None:
    """Refuse whole numbers outside low … high, both included."""
    numbers = np.asarray(values)
    outside = (numbers < low) | (numbers > high)
    if outside.any():
        first = int(np.flatnonzero(outside)[0])
        limits = tuple(int(np.broadcast_to(limit, numbers.shape).reshape(-1)[first]) for limit in (low, high))
        demand(False, field, f"must be from {limits[0]} to {limits[1]}", int(numbers.reshape(-1)[first]))


def recorded_tables(arrays: Any) -> dict[str, bool]:
    """Tell which rows a saved run records, by the arrays that have some."""
    given = arrays if isinstance(arrays, Mapping) else {}
    return {table: np.size(given.get(name, ())) > 0 for table, name in TABLES.items()}


def check_shapes(run: Run, arrays: Any, growing: frozenset[str]) -> None:
    """Check names, types and shapes of saved arrays against those of a new run of the same configuration.

    Parameters
    ----------
    run : Run
        New.
    arrays : dict of ndarray
        As :meth:`.run.Run.arrays` gives them.
    growing : set of str
        Arrays whose first axis grows with the run.
    """
    demand(isinstance(arrays, Mapping), "", "must be arrays by name", type(arrays).__name__)
    expected = run.arrays()
    missing = sorted(set(expected) - set(arrays) - {"seed"})
    unknown = sorted(set(map(str, arrays)) - set(expected))
    demand(not missing and not unknown, "", "must be those of its loop", sorted([*missing, *unknown]))
    for name, array in arrays.items():
        model = expected[name]
        demand(isinstance(array, np.ndarray), name, "must be an array", type(array).__name__)
        demand(array.dtype == model.dtype, name, f"must be of type {model.dtype}", str(array.dtype))
        same = array.shape[1:] == model.shape[1:] if name in growing else array.shape == model.shape
        demand(array.ndim == model.ndim and same, name, f"must have the shape {model.shape}", array.shape)
        demand(len(array) <= _MOST_RECORDS if array.ndim else True, name, "must be of a size that a run has")
    for name, real in REAL_PARTS.items():
        if name in growing and real in growing and name in arrays:
            demand(len(arrays[real]) == len(arrays[name]), real, f"must be as long as {name}")
    for table, name in TABLES.items():
        recorded = bool(run.parameters[f"record_{table}"][0])
        demand(recorded == (len(arrays[name]) > 0), name, "must have rows if they are recorded")


def check_common(run: Run) -> None:
    """Check what both loops keep alike: flags, times, versions, counts and rows."""
    state, parameters = run.state, run.parameters[0]
    for name in state.dtype.names or ():
        if state.dtype[name].kind == "i":
            demand_within(f"state.{name}", state[name], -1, NEVER)
        else:
            demand(not np.isnan(state[name]), f"state.{name}", "must not be NaN")
    for name in ("begun", "ended"):
        demand_within(f"state.{name}", state[name], 0, 1)
    horizon = int(parameters.horizon)
    demand_within("state.now", state.now, 0, horizon)
    demand_within("state.last_update_time", state.last_update_time, 0, state.now)
    demand_within("state.version", state.version, 0, LARGEST_COUNT)
    demand_within("state.published", state.published, 0, state.version)
    if state.publication_time != NEVER:
        demand_within("state.publication_time", state.publication_time, state.now, 2 * 2**52)
        version = state.publication_version
        demand_within("state.publication_version", version, state.published, state.version)
    if state.waiting_version != -1:
        newest = max(int(state.published), int(state.publication_version))
        demand_within("state.waiting_version", state.waiting_version, newest, state.version)
    if state.training_time != NEVER:
        demand_within("state.training_time", state.training_time, state.now, 2 * 2**52)
    demand_within("state.idle", state.idle, 0, parameters.slots)
    for table in ("batch_rows", "timeline_rows"):
        demand_within(f"state.{table}", state[table], 0, len(getattr(run.held, table)))
    demand_within("state.events", state.events, 0, LARGEST_COUNT)


def check_tree(name: str, tree: np.ndarray) -> None:
    """Check that every node of a tournament tree holds the smaller of its two keys."""
    leaves = len(tree) // 2
    pairs = tree.reshape(leaves, 2).min(axis=1)
    demand(np.array_equal(tree[1:leaves], pairs[1:]), name, "must hold the smallest key at every node")


def idle_slots(stack: np.ndarray, slots: int) -> np.ndarray:
    """Return which slots the stack of idle ones holds, each once."""
    demand_within("idle_stack", stack, 0, slots - 1)
    idle = np.zeros(slots, bool)
    idle[stack] = True
    demand(idle.sum() == len(stack), "idle_stack", "must hold every idle slot once")
    return idle


def exact_sum(values: np.ndarray) -> int:
    """Add whole numbers that may not fit into 64 bits together."""
    return sum(values.tolist())


def check_rows(run: Run) -> None:
    """Check the recorded rows that name something by its place in a list."""
    held, state = run.held, run.state
    rollouts = state[run.ROLLOUT_COUNT]
    if run.parameters[0].record_rollouts:
        demand_within(f"state.{run.ROLLOUT_COUNT}", rollouts, 0, len(held.rollout_rows))
        outcomes = held.rollout_rows["outcome"][:rollouts]
        demand_within("rollout_rows.outcome", outcomes, 0, len(OUTCOME_NAMES) - 1)
    rows = held.timeline_rows[: state.timeline_rows]
    places = {"event": len(EVENT_NAMES), "trainer_cause": TRAINER_CAUSES}
    if hasattr(held, "slot_ticks"):
        places["idle_cause"] = len(held.slot_ticks)
    for name in set(places) & set(rows.dtype.names or ()):
        demand_within(f"timeline_rows.{name}", rows[name], 0, places[name] - 1)
