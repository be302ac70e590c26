"""Who may be admitted: one ledger of limits, beside the token cap and the gates on running groups.

`closed_gate` names the first gate that closes the next admission, in the order in which idle slot time is
booked.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .state import (
    BACKGROUND,
    C_FIRST_LIMIT,
    C_MAX_RUNNING,
    C_ONE_BATCH,
    C_PUBLICATION,
    C_SEQUENTIAL,
    C_TOKEN_CAP,
    CHANNEL_FREE,
    DONE_POPPED,
    DONE_PUBLISHED,
    LIMIT_DONE,
    LIMIT_FINISHED,
    LIMIT_GROUPS,
    P_ADMIT_BATCH,
    P_BATCH_GROUPS,
    P_BATCH_TOKENS,
    P_CAP_IS_OPEN,
    P_GROUP_SIZE,
    P_LAW_MAXIMUM,
    P_MAX_RUNNING,
    P_ONE_BATCH,
    P_PUBLICATION,
    P_QUEUE_CAP,
    P_RESERVE,
    P_SEQUENTIAL,
    P_UPDATES_PER_BATCH,
    S_CHANNEL,
    S_IN_FLIGHT_TOKENS,
    S_PLACES,
    S_POPPED_BATCHES,
    S_POPPED_GROUPS,
    S_PUBLISHED,
    S_QUEUE_TOKENS,
    S_RUNNING,
    S_STARTED,
    S_TRAINED_BATCHES,
    S_TRAINING,
)


@jit(inline=True, counted=False)
def next_admission(params, state):
    """Say how many groups are admitted next, at once: a whole batch, or one."""
    if params[P_ADMIT_BATCH] == 1 and state[S_PLACES] == 0:
        return params[P_BATCH_GROUPS]
    return np.int64(1)


@jit(inline=True, counted=False)
def cap_closes(params, state, needed):
    """Say whether the token cap closes the admission of `needed` groups."""
    if params[P_CAP_IS_OPEN] == 1 or params[P_SEQUENTIAL] == 1:
        return False
    if params[P_RESERVE] == 1:
        reserved = params[P_LAW_MAXIMUM] * params[P_GROUP_SIZE] * (state[S_RUNNING] + needed)
        return state[S_QUEUE_TOKENS] + reserved > params[P_QUEUE_CAP]
    return state[S_QUEUE_TOKENS] >= params[P_QUEUE_CAP]


@jit(inline=True, counted=False)
def room_of(params, state, limits, limit):
    """Give how many groups a limit still lets in: ``B * done + groups - count``."""
    done = limits[limit, LIMIT_DONE]
    if params[P_BATCH_GROUPS] == 0:
        allowed = state[S_POPPED_GROUPS]
    elif done == DONE_PUBLISHED:
        allowed = params[P_BATCH_GROUPS] * (state[S_PUBLISHED] // params[P_UPDATES_PER_BATCH])
    elif done == DONE_POPPED:
        allowed = params[P_BATCH_GROUPS] * state[S_POPPED_BATCHES]
    else:
        allowed = params[P_BATCH_GROUPS] * state[S_TRAINED_BATCHES]
    count = state[S_STARTED]
    if limits[limit, LIMIT_FINISHED] == 1:
        count -= state[S_RUNNING]
    return allowed + limits[limit, LIMIT_GROUPS] - count


@jit(counted=False)
def _closed_gate_kernel(params, state, limits):
    """Give the cause (C_…) that closes the next admission, or -1. limits int64[n, LIMIT_COLUMNS]."""
    if params[P_SEQUENTIAL] == 1:
        is_open = (
            state[S_TRAINING] == 0
            and state[S_CHANNEL] == CHANNEL_FREE
            and state[S_QUEUE_TOKENS] + state[S_IN_FLIGHT_TOKENS] < params[P_BATCH_TOKENS]
        )
        return np.int64(-1) if is_open else np.int64(C_SEQUENTIAL)
    if params[P_PUBLICATION] != BACKGROUND and state[S_CHANNEL] != CHANNEL_FREE:
        return np.int64(C_PUBLICATION)
    needed = next_admission(params, state)
    if params[P_MAX_RUNNING] >= 0 and state[S_RUNNING] + needed > params[P_MAX_RUNNING]:
        return np.int64(C_MAX_RUNNING)
    if params[P_ONE_BATCH] == 1 and state[S_PLACES] == 0 and state[S_RUNNING] > 0:
        return np.int64(C_ONE_BATCH)
    if cap_closes(params, state, needed):
        return np.int64(C_TOKEN_CAP)
    least = np.int64(needed)
    cause = np.int64(-1)
    for limit in range(limits.shape[0]):
        room = room_of(params, state, limits, limit)
        if room < least:
            least = room
            cause = np.int64(C_FIRST_LIMIT + limit)
    return cause
