"""The rules that the state of a run of the general loop keeps at every stop; see :mod:`.saved_arrays`.

Its groups stand in lists that are chained through their records, so each list is walked once: it must come
to its end, hold the groups of its state and no other, and be as long as the state says.
"""

from __future__ import annotations

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.records import NEVER
from ...kernels.pipeline.stops import STOPPED_BY_EVALUATION, STOPPED_BY_PUBLICATION, STOPPED_BY_TRAINING
from ..runs.general import LARGEST_LIVE_ROLLOUTS, GeneralRun
from . import failure_arrays
from .engine_arrays import check_engines
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

GROWING = frozenset(
    {
        "groups",
        "group_factors",
        "members",
        "member_versions",
        "batch_rows",
        "batch_floats",
        "timeline_rows",
        "rollout_rows",
        *failure_arrays.GROWING,
    }
)


def check_general(run: GeneralRun) -> None:
    """Check the state of a restored run before its kernel goes on.

    Raises
    ------
    CheckpointError
        If it breaks a rule that the kernel relies on.
    """
    check_common(run)
    size, held = int(run.parameters[0].group_size), run.held
    demand(len(held.groups) >= 2, "groups", "must have room for a group", len(held.groups))
    demand(len(held.members) == size * len(held.groups), "members", "must be those of the groups")
    demand(len(held.members) <= 2 * LARGEST_LIVE_ROLLOUTS, "members", "must be as few as a run allows")
    _check_state(run)
    _check_publication(run)
    _check_training(run)
    _check_groups(run)
    _check_slots(run)
    _check_clocks(run)
    check_engines(run)
    demand(len(held.saved_groups) in (0, 2 * len(held.groups)), "saved_groups", "must be twice the groups")
    demand(len(held.saved_members) == size * len(held.saved_groups), "saved_members", "must be the groups'")
    failure_arrays.check_failures(run, _check_groups)


def _check_groups(run: GeneralRun) -> None:
    """Check groups, their lists and their members."""
    _check_fields_of_groups(run)
    _check_order_of_starts(run, _check_lists(run))
    _check_members(run)


def _check_state(run: GeneralRun) -> None:
    held, state, parameters = run.held, run.state, run.parameters[0]
    for name in ("settling", "training", "cap_closed"):
        demand_within(f"state.{name}", state[name], 0, 1)
    demand_within("state.event", state.event, 0, len(records.EVENT_NAMES) - 1)
    demand_within("state.freed", state.freed, -1, parameters.slots - 1)
    demand_within("state.channel", state.channel, 0, records.CHANNEL_TRANSFER)
    demand_within("state.idle_cause", state.idle_cause, 0, len(held.slot_ticks) - 1)
    demand_within("state.trainer_cause", state.trainer_cause, 0, len(held.trainer_ticks) - 1)
    demand_within("state.cost", state.cost, 0, NEVER // 2)
    counts = ["next_number", "next_group", "next_admission", "next_row", "started", "places"]
    counts += ["publications", "popped_batches", "popped_groups", "trained_batches", "in_flight_tokens"]
    for name in counts:
        demand_within(f"state.{name}", state[name], 0, LARGEST_COUNT)
    demand_within("state.needed", state.needed, 0, max(1, int(parameters.batch_groups)))
    demand_within("state.max_lag", state.max_lag, -1, state.version + parameters.updates_per_batch)
    check_rows(run)
    demand_within("histograms", held.histograms, 0, LARGEST_COUNT)


def _check_publication(run: GeneralRun) -> None:
    state, style = run.state, run.parameters[0].publication
    transfers = state.channel == records.CHANNEL_TRANSFER
    rule = "must be set during a transfer alone"
    demand(transfers == (state.publication_time != NEVER), "state.publication_time", rule)
    stops = STOPPED_BY_PUBLICATION if transfers and style >= records.PAUSE else 0
    stops |= _stops_by_trainer(run)
    demand(state.stopped == stops, "state.stopped", f"must be {stops}", int(state.stopped))
    if state.channel != records.CHANNEL_FREE:
        version = state.publication_version
        demand_within("state.publication_version", version, state.published, state.version)


def _steps(run: GeneralRun) -> bool:
    """Tell whether a step is under way: the batch in hand is no longer fetched."""
    return bool(run.state.training == 1 and run.state.fetch_time == NEVER)


def _stops_by_trainer(run: GeneralRun) -> int:
    """Return the reasons for which the trainer stops decoding."""
    state, parameters = run.state, run.parameters[0]
    blocks = bool(parameters.blocks_trainer or parameters.sequential)
    publishes = blocks and state.channel != records.CHANNEL_FREE and parameters.publication != records.DRAIN
    trains = parameters.training_stops == 1 and (_steps(run) or publishes)
    evaluates = parameters.evaluation_stops == 1 and state.evaluation_time != NEVER
    return STOPPED_BY_TRAINING * trains | STOPPED_BY_EVALUATION * bool(evaluates)


def _check_training(run: GeneralRun) -> None:
    state, parameters = run.state, run.parameters[0]
    timed = _steps(run) and parameters.slow_train_rate == records.FULL_RATE
    rule = "must be set while a step with a fixed end is under way"
    demand(timed == (state.training_time != NEVER), "state.training_time", rule)
    demand_within("state.rest_ticks", state.rest_ticks, 0, 2**62)
    demand_within("state.rest_parts", state.rest_parts, 0, records.FULL_RATE - 1)
    demand_within("state.training_version", state.training_version, 0, state.version)
    demand_within("state.training_publications", state.training_publications, 0, state.publications)
    booked = int(state.trainer_booked)
    demand_within("state.trainer_booked", booked, 0, parameters.horizon)
    demand_within("state.training_start", state.training_start, 0, max(int(state.now), booked))
    if state.fetch_time != NEVER:
        demand(state.training == 1, "state.fetch_time", "must be set for a batch in hand alone")
        demand_within("state.fetch_time", state.fetch_time, state.now, 2 * 2**52)
    if state.evaluation_time != NEVER:
        demand(state.training == 0, "state.evaluation_time", "must be set between steps alone")
        demand_within("state.evaluation_time", state.evaluation_time, state.now, 2 * 2**52)
    demand_within("state.evaluation_due", state.evaluation_due, 0, int(parameters.evaluation_every > 0))


def _check_fields_of_groups(run: GeneralRun) -> None:
    state, parameters, groups = run.state, run.parameters[0], run.held.groups
    size, trace = int(parameters.group_size), len(run._tables.trace_tokens)
    demand_within("groups.state", groups["state"], records.GROUP_UNUSED, records.GROUP_REQUEUED)
    demand(groups["state"][0] == records.GROUP_UNUSED, "groups.state", "must leave record 0 unused")
    for name in ("next", "previous", "rank_next", "rank_previous", "live_next", "live_previous"):
        demand_within(f"groups.{name}", groups[name], 0, len(groups) - 1)
    for name in ("in_front", "filtered"):
        demand_within(f"groups.{name}", groups[name], 0, 1)
    demand_within("groups.drawn", groups["drawn"], 0, size)
    demand_within("groups.first_row", groups["first_row"], 0, trace - 1)
    demand_within("groups.started", groups["started"], 0, size)
    demand_within("groups.finished", groups["finished"], 0, groups["started"])
    demand_within("groups.version", groups["version"], -1, state.published)
    for name, limit in (("number", state.next_group), ("admission", state.next_admission)):
        demand_within(f"groups.{name}", groups[name], 0, max(0, int(limit) - 1))
    factors = groups["factor"]
    demand((np.isfinite(factors) & (factors >= 0)).all(), "group_factors", "must be finite and at least 0")
    running = groups["state"] == records.GROUP_RUNNING
    whole = np.isin(groups["state"], (records.GROUP_QUEUED, records.GROUP_POPPED))
    demand((groups["finished"][whole] == size).all(), "groups.finished", f"must be {size} in a ready group")
    held = int((groups["finished"][running] == size).sum())
    demand(
        held == state.held and (held == 0 or parameters.holds == 1),
        "groups.finished",
        f"must be below {size} in one that runs and is not held",
    )
    popped = groups[groups["state"] == records.GROUP_POPPED]
    demand_within("groups.dequeue_version", popped["dequeue_version"], 0, state.version)
    demand_within("groups.fetched", popped["fetched"], 0, 2 * 2**52)
    demand_within("groups.dequeue_publications", popped["dequeue_publications"], 0, state.publications)


def _walk(
    run: GeneralRun, name: str, field: str, first: int, kinds: tuple[int, ...], in_all: int | None = None
) -> list[int]:
    """Follow a list of groups to its end; every group is of these states, and none comes twice.

    `in_all` says how many it holds; none: every group of these states.
    """
    following = run.held.groups[field].tolist()
    found: list[int] = []
    record = int(first)
    demand_within(f"state.{name}", record, 0, len(following) - 1)
    while record != 0 and len(found) < len(following):
        found.append(record)
        record = following[record]
    demand(record == 0, name, "must come to an end")
    states = run.held.groups["state"]
    demand(np.isin(states[found], kinds).all(), name, "must hold groups of its state alone")
    if in_all is None:
        in_all = int(np.isin(states[1:], kinds).sum())
    demand(len(found) == in_all, name, f"must hold {in_all} groups", len(found))
    return found


def _check_backwards(run: GeneralRun, name: str, field: str, found: list[int]) -> None:
    """Check that a list that is chained both ways is the same one backwards."""
    previous = run.held.groups[field]
    ring = [0, *found]
    demand(previous[ring].tolist() == [ring[-1], *ring[:-1]], name, "must be chained both ways alike")


def _check_lists(run: GeneralRun) -> list[int]:
    state, parameters, groups = run.state, run.parameters[0], run.held.groups
    tokens = groups["tokens"]
    free = _walk(run, "free_head", "next", state.free_head, (records.GROUP_UNUSED,))
    demand(state.free == len(free), "state.free", f"must be {len(free)}", int(state.free))
    again = _walk(run, "requeue_head", "next", state.requeue_head, (records.GROUP_REQUEUED,))
    demand(state.requeued == len(again), "state.requeued", f"must be {len(again)}", int(state.requeued))
    demand(state.requeue_tail == (again or [0])[-1], "state.requeue_tail", "must be the last of its list")
    queue = _walk(run, "queue", "next", groups["next"][0], (records.GROUP_QUEUED,))
    _check_backwards(run, "queue", "previous", queue)
    demand(state.queue_groups == len(queue), "state.queue_groups", f"must be {len(queue)}")
    total = exact_sum(tokens[queue])
    demand(state.queue_tokens == total, "state.queue_tokens", f"must be {total}", int(state.queue_tokens))
    if parameters.order in (records.OLDEST_VERSION, records.FRESHEST):
        ranked = _walk(run, "ranks", "rank_next", groups["rank_next"][0], (records.GROUP_QUEUED,))
        _check_backwards(run, "ranks", "rank_previous", ranked)
    live = _walk(
        run, "live", "live_next", groups["live_next"][0], (records.GROUP_RUNNING, records.GROUP_QUEUED)
    )
    _check_backwards(run, "live", "live_previous", live)
    held = _walk(run, "held_head", "next", state.held_head, (records.GROUP_RUNNING,), int(state.held))
    demand((groups["finished"][held] == parameters.group_size).all(), "held_head", "must hold ready groups")
    demand(state.held_tail == (held or [0])[-1], "state.held_tail", "must be the last of its list")
    running = len(live) - len(queue)
    demand(state.running == running, "state.running", f"must be {running}", int(state.running))
    _check_popped(run)
    return live


def _check_popped(run: GeneralRun) -> None:
    state, groups = run.state, run.held.groups
    popped = _walk(run, "popped_head", "next", state.popped_head, (records.GROUP_POPPED,))
    demand(state.popped_tail == (popped or [0])[-1], "state.popped_tail", "must be the last of its list")
    total = exact_sum(groups["tokens"][popped])
    demand(state.popped_tokens == total, "state.popped_tokens", f"must be {total}")
    batches = place = 0
    while place < len(popped):
        head = popped[place]
        count = int(groups["batch_groups"][head])
        demand_within("groups.batch_groups", count, 1, len(popped) - place)
        tokens = exact_sum(groups["tokens"][popped[place : place + count]])
        demand(groups["batch_tokens"][head] == tokens, "groups.batch_tokens", f"must be {tokens}")
        if place == 0 and _steps(run):
            in_training = groups[popped[:count]]
            for name in ("version", "publications"):
                newest = state[f"training_{name}"]
                demand_within(f"groups.dequeue_{name}", in_training[f"dequeue_{name}"], 0, newest)
        place += count
        batches += 1
    waiting = batches - int(state.training)
    demand(waiting >= 0 and state.prefetched == waiting, "state.prefetched", f"must be {waiting}")


def _check_order_of_starts(run: GeneralRun, live: list[int]) -> None:
    """Check which group's members start next, and the front of queued groups in the order of admission."""
    state, parameters, groups = run.state, run.parameters[0], run.held.groups
    size = int(parameters.group_size)
    started = groups["started"][live]
    starting = int(state.starting)
    demand(starting == 0 or starting in live, "state.starting", "must be a live group", starting)
    place = live.index(starting) if starting else len(live)
    demand((started[:place] == size).all(), "groups.started", "must be whole before the one that starts")
    demand((started[place + 1 :] == 0).all(), "groups.started", "must be 0 behind the one that starts")
    demand(
        starting == 0 or started[place] < size,
        "groups.started",
        f"must be below {size} in the one that starts",
    )
    demand_within("state.front", state.front, 0, len(groups) - 1)
    if parameters.order == records.STARTED:
        queued = groups["state"][live] == records.GROUP_QUEUED
        count = int(np.argmin(queued)) if not queued.all() else len(live)
        front = live[count] if count < len(live) else 0
        demand(state.front == front, "state.front", f"must be {front}", int(state.front))
        demand(state.front_count == count, "state.front_count", f"must be {count}", int(state.front_count))
        fronts = groups["in_front"][live]
        demand(
            fronts[:count].all() and not fronts[count:].any(), "groups.in_front", "must be 1 before the front"
        )


def _check_members(run: GeneralRun) -> None:
    state, parameters, groups = run.state, run.parameters[0], run.held.groups
    size = int(parameters.group_size)
    members = run.held.members.reshape(len(groups), size)
    kept = np.arange(size) < np.maximum(groups["started"], groups["drawn"])[:, None]
    dead = (groups["state"] == records.GROUP_UNUSED)[:, None]
    demand_within("members.number", members["number"][kept & ~dead], 0, state.next_number - 1)
    again = (groups["state"] == records.GROUP_REQUEUED)[:, None]
    begun = (np.arange(size) < groups["started"][:, None]) & ~dead & ~again
    of_group = np.broadcast_to(np.arange(len(groups))[:, None], begun.shape)[begun]
    mine = members[begun]
    demand_within("members.noise", mine["noise"], 0, 2**52 - 1)
    demand_within("members.tokens", mine["tokens"], parameters.law_minimum, parameters.law_maximum)
    demand_within("members.version", mine["version"], 0, state.published)
    demand_within("members.end_version", mine["end_version"], mine["version"], state.published)
    demand_within("members.trainer_version", mine["trainer_version"], mine["version"], state.version)
    demand_within("members.publications", mine["publications"], 0, state.publications)
    demand_within("members.start", mine["start"], 0, state.now)
    demand_within("members.decode_ticks", mine["decode_ticks"], 0, 2**52)
    demand(np.isfinite(mine["newer_versions"]).all(), "member_versions", "must be finite")
    if parameters.record_rollouts:
        demand_within("members.row", mine["row"], 0, state.next_row - 1)
    popped = groups["state"][of_group] == records.GROUP_POPPED
    taken = groups[of_group[popped]]
    demand_within("members.end_version", mine["end_version"][popped], 0, taken["dequeue_version"])
    demand_within("members.publications", mine["publications"][popped], 0, taken["dequeue_publications"])
    done = mine["slot"] == records.COMPLETED
    finished = np.bincount(of_group[done], minlength=len(groups))
    alive = ~dead[:, 0] & ~again[:, 0]
    demand((finished == groups["finished"])[alive].all(), "groups.finished", "must count completed members")
    tokens = np.zeros(len(groups), np.int64)
    np.add.at(tokens, of_group[done], mine["tokens"][done])
    demand((tokens == groups["tokens"])[alive].all(), "groups.tokens", "must be those of completed members")
    demand_within("members.slot", mine["slot"][~done], 0, parameters.slots - 1)


def _check_slots(run: GeneralRun) -> None:
    held, state, parameters = run.held, run.state, run.parameters[0]
    slots, size = held.slots, int(parameters.group_size)
    idle = idle_slots(slots["idle_stack"][: state.idle], int(parameters.slots))
    phases = slots["phase"]
    moving = [records.TAIL, records.DECODING, records.DUE, records.OFF_CLOCK]
    if run.config.engine is not None:
        moving = [records.TAIL, records.DUE, records.ON_ENGINE]
    timed = [records.TIMED, records.TAIL] if parameters.moves_ends else [records.TIMED]
    known = moving if parameters.virtual_clock else timed
    held_slots = np.flatnonzero(phases == records.HELD)
    waiting = held.groups[(held.groups["state"] == records.GROUP_RUNNING) & (held.groups["finished"] == size)]
    kept = sorted(waiting["held_slot"].tolist())
    demand(held_slots.tolist() == kept, "groups.held_slot", "must be the slots that held groups keep")
    demand(((phases == records.EMPTY) == idle).all(), "slots.phase", "must be empty in idle slots alone")
    busy = np.flatnonzero(~idle & (phases != records.HELD))
    demand(np.isin(phases[busy], known).all(), "slots.phase", "must be one of this run's clock")
    demand_within("slots.group", slots["group"][busy], 1, len(held.groups) - 1)
    demand_within("slots.member", slots["member"][busy], 0, size - 1)
    group, position = slots["group"][busy], slots["member"][busy]
    runs = held.groups["state"][group] == records.GROUP_RUNNING
    demand(runs.all(), "slots.group", "must be one that runs")
    begun = position < held.groups["started"][group]
    demand(begun.all(), "slots.member", "must be one that started")
    member = held.members[group * size + position]
    demand((member["slot"] == busy).all(), "members.slot", "must be the slot that holds it")
    in_flight = exact_sum(member["tokens"])
    demand(state.in_flight_tokens == in_flight, "state.in_flight_tokens", f"must be {in_flight}")
    live = held.groups[held.groups["state"] == records.GROUP_RUNNING]
    running = int((live["started"] - live["finished"]).sum())
    demand(running == len(busy), "slots.phase", f"must hold {running} rollouts", len(busy))


def _check_clocks(run: GeneralRun) -> None:
    held, state, parameters = run.held, run.state, run.parameters[0]
    slots, leaves, bits = held.slots, int(parameters.leaves), int(parameters.slot_bits)
    phases = slots["phase"]
    virtual = bool(parameters.virtual_clock)
    now = state.clock if virtual else state.now
    demand_within("state.clock", state.clock, state.now if virtual else 0, parameters.horizon)
    fastest = int(run._tables.work_rates.max())
    demand_within("state.work", state.work, 0, min(int(state.clock) * fastest, NEVER - 1))
    decoding = phases == records.DECODING
    demand(
        state.decoding == decoding.sum(), "state.decoding", f"must be {decoding.sum()}", int(state.decoding)
    )
    for name in ("time_tree", "work_tree"):
        check_tree(name, getattr(held, name))
        empty = (getattr(held, name)[leaves + len(slots) :] == NEVER).all()
        demand(empty, name, "must have no key without a slot")
    targets = held.work_tree[leaves : leaves + len(slots)]
    demand(
        (targets == np.where(decoding, slots["target"], NEVER)).all(), "work_tree", "must hold the targets"
    )
    demand_within("slots.target", slots["target"][decoding], 0, NEVER)
    marks = np.minimum(slots["target"], state.work)
    demand_within("slots.mark", slots["mark"][decoding], 0, marks[decoding])
    off = phases == records.OFF_CLOCK
    demand_within("slots.rest", slots["rest"][off], 1, NEVER)
    for name in ("done", "tail"):
        demand_within(f"slots.{name}", slots[name], 0, NEVER)
    demand(np.isfinite(slots["version_work"]).all(), "version_work", "must be finite")
    _check_due(run, int((decoding & (slots["target"] <= state.work)).sum()))
    keys = held.time_tree[leaves : leaves + len(slots)]
    scheduled = keys != NEVER
    if state.settling == 1 and state.freed >= 0:
        scheduled[state.freed] = False  # its leaf still holds the event that just happened
    own = np.flatnonzero(scheduled)
    demand(((keys[own] & (leaves - 1)) == own).all(), "time_tree", "must hold each slot's own key")
    demand_within("time_tree", keys[own] >> (bits + 1), now, parameters.horizon)
    ends = (keys[own] >> bits) & 1 == 1
    right = np.where(ends, np.isin(phases[own], (records.TIMED, records.TAIL)), off[own])
    demand(right.all(), "time_tree", "must hold slots that wait for a time alone")
    if parameters.moves_ends:
        _check_moved_ends(run, keys >> (bits + 1))


def _check_moved_ends(run: GeneralRun, ends: np.ndarray) -> None:
    """Check the stretches of decode that publications have moved; `ends` int64 by slot, in ticks."""
    held, parameters = run.held, run.parameters[0]
    slots = held.slots
    decoding = np.flatnonzero(slots["phase"] == records.TIMED)
    mark, target = slots["mark"][decoding], slots["target"][decoding]
    latest = 2**56  # the longest transfer and prefill, begun within the longest run
    demand_within("slots.mark", mark, 0, latest)
    demand_within("slots.target", target, mark, 2 * latest)
    demand_within("slots.done", slots["done"][decoding], 0, latest)
    demand_within("slots.tail", slots["tail"][decoding], 0, latest)
    member = slots["group"][decoding] * int(parameters.group_size) + slots["member"][decoding]
    left = held.members["decode_ticks"][member] - slots["done"][decoding]
    demand((target - mark == left).all(), "slots.target", "must leave what is not decoded yet")
    due = target + slots["tail"][decoding]
    scheduled = held.time_tree[int(parameters.leaves) + decoding] != NEVER
    demand((ends[decoding] == due)[scheduled].all(), "time_tree", "must hold the ends of rollouts")
    demand((due > parameters.horizon)[~scheduled].all(), "time_tree", "must hold every end within the run")


def _check_due(run: GeneralRun, to_come: int) -> None:
    """Check the ring of rollouts that end in this tick; `to_come` more will."""
    state, slots = run.state, run.held.slots
    due = slots["phase"] == records.DUE
    demand(state.due == due.sum(), "state.due", f"must be {due.sum()}", int(state.due))
    if state.due > 0:
        head, tail = int(state.due_head), int(state.due_tail)
        demand(0 <= head < tail <= len(slots) - to_come, "state.due_tail", "must stand behind the head", tail)
        listed = slots["due"][head:tail]
        demand_within("slots.due", listed, 0, len(slots) - 1)
        held = len(set(listed.tolist())) == len(listed) and due[listed].sum() == state.due
        demand(held, "slots.due", "must hold each rollout that ends in this tick once")
