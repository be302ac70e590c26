"""The rules that the state of a run of the lean loop keeps at every stop; see :mod:`.saved_arrays`."""

from __future__ import annotations

import numpy as np

from ...kernels.pipeline.records import NEVER
from ..runs.lean import LeanRun
from .saved_arrays import (
    LARGEST_COUNT,
    check_common,
    check_rows,
    check_tree,
    demand,
    demand_within,
    exact_sum,
    idle_slots,
)

GROWING = frozenset({"ring", "batch_rows", "batch_floats", "timeline_rows", "rollout_rows"})


def check_lean(run: LeanRun) -> None:
    """Check the state of a restored run before its kernel goes on.

    Raises
    ------
    CheckpointError
        If it breaks a rule that the kernel relies on.
    """
    check_common(run)
    held, state = run.held, run.state
    demand_within("state.next_rollout", state.next_rollout, 0, LARGEST_COUNT)
    check_rows(run)
    for name in ("lag_counts", "training_lags"):
        demand_within(name, getattr(held, name), 0, LARGEST_COUNT)
    demand_within("state.max_lag", state.max_lag, -1, state.version)
    _check_queue(run)
    _check_slots(run)


def _check_queue(run: LeanRun) -> None:
    held, state = run.held, run.state
    size = len(held.ring)
    demand(size >= 2 and size & (size - 1) == 0, "ring", "must have a power of two of places", size)
    first, head, tail = (int(state[name]) for name in ("ring_training", "ring_head", "ring_tail"))
    in_order = 0 <= first <= head <= tail <= first + size and tail < 2**62
    demand(in_order, "state.ring_head", "must stand between the other positions of the ring", head)
    positions = np.arange(first, tail) & (size - 1)
    _check_rollouts(run, "ring", held.ring[positions])
    queued = exact_sum(held.ring["tokens"][positions[head - first :]])
    demand(state.queue_tokens == queued, "state.queue_tokens", f"must be {queued}", int(state.queue_tokens))
    trains = state.training_time != NEVER
    taken = head - first
    demand(trains == (taken > 0), "state.training_time", "must be set while a batch is in training")
    if trains:
        rollouts = state.training_rollouts
        demand(rollouts == taken, "state.training_rollouts", f"must be {taken}", int(rollouts))
        demand_within("state.training_lag_max", state.training_lag_max, 0, state.version)


def _check_slots(run: LeanRun) -> None:
    held, state, parameters = run.held, run.state, run.parameters[0]
    slots, leaves, bits = int(parameters.slots), int(parameters.leaves), int(parameters.slot_bits)
    idle = idle_slots(held.idle_stack[: state.idle], slots)
    running = held.slots[~idle]
    demand(state.in_flight == len(running), "state.in_flight", f"must be {len(running)}")
    _check_rollouts(run, "slots", running)
    tokens = exact_sum(running["tokens"])
    demand(state.in_flight_tokens == tokens, "state.in_flight_tokens", f"must be {tokens}")
    check_tree("tree", held.tree)
    keys = held.tree[leaves:]
    scheduled = np.flatnonzero(keys != NEVER)
    demand((scheduled < slots).all() and not idle[scheduled].any(), "tree", "must hold running slots alone")
    demand(np.array_equal(keys[scheduled] & (leaves - 1), scheduled), "tree", "must hold each slot's own key")
    demand_within("tree", keys[scheduled] >> bits, state.now, parameters.horizon)


def _check_rollouts(run: LeanRun, name: str, rollouts: np.ndarray) -> None:
    state, parameters = run.state, run.parameters[0]
    demand_within(f"{name}.tokens", rollouts["tokens"], parameters.law_minimum, parameters.law_maximum)
    demand_within(f"{name}.version", rollouts["version"], 0, state.published)
    demand_within(f"{name}.number", rollouts["number"], 0, state.next_rollout - 1)
