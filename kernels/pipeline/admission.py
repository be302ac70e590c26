"""Who may be admitted: one ledger of limits, beside the token cap and the gates on running groups.

`closed_gate` names the first gate that closes the next admission, in the order in which idle slot time is
booked.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .records import (
    BACKGROUND,
    CHANNEL_FREE,
    DONE_POPPED,
    DONE_PUBLISHED,
    NEVER,
    SLOTS_FIRST_LIMIT,
    SLOTS_MAX_RUNNING,
    SLOTS_ONE_BATCH,
    SLOTS_PUBLICATION,
    SLOTS_SEQUENTIAL,
    SLOTS_TOKEN_CAP,
)


@jit(inline=True, counted=False)
def next_admission(parameters, state):
    """Say how many groups are admitted next, at once: a whole batch, or one."""
    if parameters.admit_batch == 1 and state.places == 0:
        return parameters.batch_groups
    return np.int64(1)


@jit(inline=True, counted=False)
def cap_closes(parameters, state, needed):
    """Say whether the token cap closes the admission of `needed` groups."""
    if parameters.cap_is_open == 1 or parameters.sequential == 1:
        return False
    if parameters.reserve == 1:
        reserved = parameters.law_maximum * parameters.group_size * (state.running + needed)
        return state.queue_tokens + reserved > parameters.queue_cap
    return state.queue_tokens >= parameters.queue_cap


@jit(inline=True, counted=False)
def room_of(parameters, state, limits, limit):
    """Return how many groups a limit still lets in: ``B * done + groups - count``."""
    done = limits[limit].done
    if parameters.batch_groups == 0:
        allowed = state.popped_groups
    elif done == DONE_PUBLISHED:
        batches = state.published
        if parameters.updates_per_batch > 1:  # a division costs as much as all other rules
            batches = batches // parameters.updates_per_batch
        allowed = parameters.batch_groups * batches
    elif done == DONE_POPPED:
        allowed = parameters.batch_groups * state.popped_batches
    else:
        allowed = parameters.batch_groups * state.trained_batches
    count = state.started
    if limits[limit].finished == 1:
        count -= state.running
    return allowed + limits[limit].groups - count


@jit(inline=True, counted=False)
def closed_gate(parameters, state, limits):
    """Return the cause (C_…) that closes the next admission, or -1. limits int64[n].columns."""
    if parameters.publication != BACKGROUND and state.channel != CHANNEL_FREE:
        return np.int64(SLOTS_PUBLICATION)
    if parameters.sequential == 1:
        evaluates = parameters.evaluation_stops == 1 and state.evaluation_time != NEVER
        is_open = (
            state.training == 0
            and state.channel == CHANNEL_FREE
            and not evaluates
            and state.queue_tokens + state.in_flight_tokens < parameters.batch_tokens
        )
        return np.int64(-1) if is_open else np.int64(SLOTS_SEQUENTIAL)
    needed = next_admission(parameters, state)
    if parameters.max_running >= 0 and state.running + needed > parameters.max_running:
        return np.int64(SLOTS_MAX_RUNNING)
    if parameters.one_batch == 1 and state.places == 0 and state.running > 0:
        return np.int64(SLOTS_ONE_BATCH)
    if cap_closes(parameters, state, needed):
        return np.int64(SLOTS_TOKEN_CAP)
    least = np.int64(needed)
    cause = np.int64(-1)
    for limit in range(limits.shape[0]):
        room = room_of(parameters, state, limits, limit)
        if room < least:
            least = room
            cause = np.int64(SLOTS_FIRST_LIMIT + limit)
    return cause


@jit(inline=True, counted=False)
def counts_starts(parameters, state):
    """Say whether what starts now is measured: after the warm-up; without one, time 0 counts too."""
    return state.now > parameters.warmup or parameters.warmup == 0


@jit(inline=True, counted=False)
def note_cap(parameters, state):
    """Note at the end of a settle whether the token cap holds slots back."""
    state.cap_closed = 0
    if state.idle > 0 and cap_closes(parameters, state, next_admission(parameters, state)):
        state.cap_closed = 1
