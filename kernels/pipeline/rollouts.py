"""One rollout of the general loop: what it draws, how it starts in a slot, how it ends.

The loop and the stretches between its other events (:mod:`.stretch`) share these, so both do the same.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .draws import _draw_member_kernel, draw_again, draw_place, noise_bits
from .moving import book_stretch
from .places import place
from .records import COMPLETED, EMPTY, NO_ENVIRONMENT, TAIL, TIMED
from .shifting import shifted_key, shifted_work
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)


# Parameters that are 0 in a run which draws nothing but lengths, of one law, and noise.
MORE_DRAWS = ("trace_groups", "environment", "prompt_sigma", "filter", "segments")


@jit(inline=True, counted=False)
def draws_are_plain(parameters):
    """Say whether a rollout draws nothing but its length, under one law, and its noise."""
    return (
        parameters.trace_groups == 0
        and parameters.environment == NO_ENVIRONMENT
        and parameters.prompt_sigma == 0.0
        and parameters.filter == 0.0
        and parameters.segments == 0
    )


@jit(inline=True, counted=False)
def draw_member(
    parameters, seed, tables, draws, groups, record, position, number, is_fresh, published, plain
):
    """Draw tokens, environment ticks and noise (int64) of a group's member."""
    environment = np.int64(0)
    if plain:
        where = draw_place(parameters, seed, number, is_fresh, tables, draws)
        if where >= 0:
            noise = noise_bits(draws.words[0, place(where)])
            tokens = draws.tokens[place(where)]
        else:
            tokens, noise = draw_again(parameters.law_minimum, seed, number, tables.cdf, tables.guide)
    else:
        tokens, environment, noise = _draw_member_kernel(
            parameters, seed, number, is_fresh, tables, draws, groups, record, position, published
        )
    return tokens, environment, noise


@jit(inline=True, counted=False)
def start_rollout(parameters, state, slots, rollout, record, position, tokens, noise):
    """Let a member start now in the slot freed last: its record and the slot's, but not when it ends.

    Returns the slot, and the ticks of its overhead and of its nominal decode.
    """
    total = max(
        np.int64(1), ticks_of(parameters.rollout_overhead + np.float64(tokens) / parameters.decode_rate)
    )
    overhead = min(total, parameters.overhead_ticks)
    decode_ticks = total - overhead
    state.idle -= 1
    slot = slots[place(state.idle)].idle_stack
    worker = slots[place(slot)]
    state.in_flight_tokens += tokens
    worker.group = record
    worker.member = position
    worker.done = 0
    worker.version_work = 0.0
    published = state.published
    rollout.noise = noise
    rollout.tokens = tokens
    rollout.version = published
    rollout.trainer_version = state.version
    rollout.publications = state.publications
    rollout.start = state.now
    rollout.end_version = published
    rollout.slot = slot
    rollout.decode_ticks = decode_ticks
    rollout.newer_versions = 0.0
    return slot, overhead, decode_ticks


@jit(inline=True, counted=False)
def timed_end(parameters, state, shift, slots, slot, decode_ticks, tail, moves_ends, virtual):
    """Return the event key of a rollout that ends after its decode and `tail` more ticks."""
    worker = slots[place(slot)]
    worker.phase = TAIL if virtual else TIMED
    now = state.now
    if moves_ends:  # what a publication needs to know
        worker.mark = shift.book if shift.on == 1 else now
        worker.rest = state.published
        worker.target = now + decode_ticks - shift.ticks
        worker.tail = tail
    return shifted_key(parameters, shift, now + decode_ticks + tail, slot)


@jit(inline=True, counted=False)
def end_rollout(state, shift, slots, groups, members, size, slot, moves_ends, measured):
    """Let the rollout of a slot be complete and the slot idle.

    Returns the places of its group and of its member, and how many members of the group have finished.
    """
    worker = slots[place(slot)]
    record = worker.group
    member = record * size + worker.member
    rollout = members[place(member)]
    group = groups[place(record)]
    tokens = rollout.tokens
    state.in_flight_tokens -= tokens
    rollout.slot = COMPLETED
    done = worker.done
    work = worker.version_work
    if moves_ends and worker.phase == TIMED:  # no publication has come after its decode
        if shift.on == 1:
            done = rollout.decode_ticks
            work = shifted_work(state, shift, worker)
        else:
            book_stretch(state, worker, worker.target)
            done = worker.done
            work = worker.version_work
        rollout.end_version = state.published
    if done > 0:  # else it is 0, as at the start
        rollout.newer_versions = work / np.float64(done)
    worker.phase = EMPTY
    slots[place(state.idle)].idle_stack = slot
    state.idle += 1
    group.tokens += tokens
    finished = group.finished + 1
    group.finished = finished
    if measured:
        state.generated_tokens += tokens
        state.generated_rollouts += 1
    return record, member, finished
