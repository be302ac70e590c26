"""The rules that the engines of a saved run keep at every stop; see :mod:`.saved_arrays`.

Queue, running rollouts and heap of an engine are chained through the requests' records: each is walked once,
and together they hold every rollout that is on an engine, once.
"""

from __future__ import annotations

import numpy as np

from ...kernels.engine.records import DECODING, NEVER, UNITS_BITS, WAITING
from ...kernels.pipeline import records
from ..runs.general import GeneralRun
from .saved_arrays import LARGEST_COUNT, check_tree, demand, demand_within, exact_sum

_LATEST_CLOCK = 2**63 - 1
_COUNTS = (
    "running", "context", "prefilling", "repeating", "waiting", "assigned", "counted_steps", "decoded_tokens",
    "prefilled_tokens", "reprefilled_tokens", "preemptions", "cancelled", "cancelled_context",
)  # fmt: skip


def check_engines(run: GeneralRun) -> None:
    """Check the engines of a restored run before its kernel goes on.

    Raises
    ------
    CheckpointError
        If a rule that the kernel relies on is broken.
    """
    if run.config.engine is None:
        return
    held, state = run.held, run.state
    engines, requests = held.engines, held.requests
    slots = len(held.slots)
    on_engine = np.flatnonzero(held.slots["phase"] == records.ON_ENGINE)
    for name in ("next", "previous", "child", "sibling", "parent"):
        demand_within(f"requests.{name}", requests[name], -1, slots - 1)
    for name in ("queue_first", "queue_last", "first", "last", "soonest"):
        demand_within(f"engines.{name}", engines[name], -1, slots - 1)
    demand_within("requests.engine", requests["engine"], 0, len(engines) - 1)
    for name in _COUNTS:
        demand_within(f"engines.{name}", engines[name], 0, 2**62)
    for name in ("standing", "look", "aborts"):
        demand_within(f"engines.{name}", engines[name], 0, 1)
    demand(np.isfinite(engines["waiting_ticks"]).all(), "engine_sums", "must be finite")
    mine = requests[on_engine]
    demand_within("requests.tokens", mine["tokens"], 1, run.parameters[0].law_maximum)
    demand_within("requests.decoded", mine["decoded"], 0, mine["tokens"] - 1)
    prompts = mine["prompt_tokens"] == run.parameters[0].prompt_tokens
    demand(prompts.all(), "requests.prompt_tokens", "must be those of the configuration")
    demand(np.isin(mine["phase"], (WAITING, DECODING)).all(), "requests.phase", "must wait or decode")
    found: list[int] = []
    for place in range(len(engines)):
        found += _check_engine(run, place)
    demand(sorted(found) == on_engine.tolist(), "requests", "must be on one engine each, or on none")
    _check_calendar(run)
    demand_within("groups.engine", held.groups["engine"], 0, len(engines) - 1)
    demand_within("state.engines_stopped", state.engines_stopped, 0, 1)


def _walk(run: GeneralRun, first: int, last: int, name: str) -> list[int]:
    """Follow a list of requests to its end, chained both ways alike."""
    requests = run.held.requests
    found: list[int] = []
    before, number = -1, int(first)
    while number >= 0 and len(found) <= len(requests):
        demand(requests["previous"][number] == before, name, "must be chained both ways alike")
        found.append(number)
        before, number = number, int(requests["next"][number])
    demand(number < 0 and before == last, name, "must come to its end")
    return found


def _check_engine(run: GeneralRun, place: int) -> list[int]:
    engine, requests = run.held.engines[place], run.held.requests
    waiting = _walk(run, engine.queue_first, engine.queue_last, "engines.queue")
    running = _walk(run, engine.first, engine.last, "engines.running")
    demand((requests["phase"][waiting] == WAITING).all(), "engines.queue", "must hold what waits")
    demand((requests["phase"][running] == DECODING).all(), "engines.running", "must hold what decodes")
    both = waiting + running
    demand((requests["engine"][both] == place).all(), "requests.engine", f"must be {place}")
    demand(engine.waiting == len(waiting), "engines.waiting", f"must be {len(waiting)}", int(engine.waiting))
    count = len(running) + int(engine.cancelled)
    demand(engine.running == count, "engines.running", f"must be {count}", int(engine.running))
    demand(engine.assigned == len(both), "engines.assigned", f"must be {len(both)}", int(engine.assigned))
    left = requests["last_step"][running] - engine.steps
    demand_within("engines.steps", engine.steps, 0, 2**62)
    demand_within("requests.last_step", left, 1, requests["tokens"][running])
    decoded = requests["tokens"][running] - left
    context = exact_sum(requests["prompt_tokens"][running] + decoded) + int(engine.cancelled_context)
    demand(engine.context == context, "engines.context", f"must be {context}", int(engine.context))
    cache = int(run.held.coefficients["cache_tokens"][0])
    demand(context <= cache, "engines.context", f"must be at most {cache}", context)
    heap = _heap(run, int(engine.soonest))
    demand(sorted(heap) == sorted(running), "engines.soonest", "must be a heap of what decodes")
    horizon = int(run.parameters[0].horizon) << UNITS_BITS
    demand_within("engines.clock", engine.clock, 0, horizon)
    if engine.standing == 0:
        demand(count > 0, "engines.standing", "must be 1 where nothing runs", 0)
        demand_within("engines.change_steps", engine.change_steps, 1, LARGEST_COUNT)
        if running:
            demand_within("engines.change_steps", engine.change_steps, 1, int(left.min()))
        demand(engine.cancelled == 0 or engine.change_steps == 1, "engines.change_steps", "must be 1")
    else:
        demand(engine.cancelled == 0, "engines.cancelled", "must be 0 where no step is under way")
    return both


def _heap(run: GeneralRun, root: int) -> list[int]:
    """Return what a heap holds; children end no earlier than their parent, and links go both ways."""
    requests = run.held.requests
    found: list[int] = []
    open_nodes = [(root, -1)] if root >= 0 else []
    while open_nodes:
        number, before = open_nodes.pop()
        demand(len(found) < len(requests), "requests.child", "must come to an end")
        found.append(number)
        demand(requests["parent"][number] == before, "requests.parent", "must be the one before it")
        child, previous = int(requests["child"][number]), number
        while child >= 0:
            later = requests["last_step"][child] >= requests["last_step"][number]
            demand(later, "requests.last_step", "must not be before its parent's in the heap")
            open_nodes.append((child, previous))
            demand(len(open_nodes) <= len(requests), "requests.sibling", "must come to an end")
            previous, child = child, int(requests["sibling"][child])
    return found


def _check_calendar(run: GeneralRun) -> None:
    held, state, leaves = run.held, run.state, int(run.parameters[0].engine_leaves)
    engines, tree = held.engines, held.engine_tree
    if leaves > 1:
        check_tree("engine_tree", tree)
    keys = tree[leaves : leaves + len(engines)]
    demand((keys == engines["change_clock"]).all(), "engine_tree", "must hold the engines' next changes")
    demand((tree[leaves + len(engines) :] == NEVER).all(), "engine_tree", "must have no other key")
    first = int(engines["change_clock"].min())
    tick = NEVER if first == NEVER else ((first - 1) >> UNITS_BITS) + 1
    demand(state.engine_time == tick, "state.engine_time", f"must be {tick}", int(state.engine_time))
    stepping = int((engines["standing"] == 0).sum())
    demand(state.engines_in_step == stepping, "state.engines_in_step", f"must be {stepping}")
    if first != NEVER:
        demand_within("engines.change_clock", first, int(state.clock) << UNITS_BITS, _LATEST_CLOCK)
    if state.engines_due != NEVER:
        demand_within("state.engines_due", state.engines_due, state.now, state.clock)
