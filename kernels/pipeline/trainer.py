"""The trainer of the general loop: when it has enough, what it waits for, what it takes."""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import philox_rounds, uniform_from_word
from .groups import is_ranked, leave_live, leave_queue
from .places import place
from .records import (
    CHANNEL_FREE,
    FIFO,
    GROUP_POPPED,
    IN_TRAINING,
    NEVER,
    RANDOM,
    STARTED,
    TRAINER_BATCH,
    TRAINER_BUSY,
    TRAINER_EVALUATION,
    TRAINER_FETCH,
    TRAINER_PUBLICATION,
    TRAINER_RUNNING_GROUPS,
)


@jit(inline=True, counted=False)
def holds_enough(parameters, state):
    """Say whether the queue holds a batch by number or by tokens, whatever the order says."""
    if parameters.batch_groups > 0:
        return state.queue_groups >= parameters.batch_groups
    return state.queue_tokens >= parameters.batch_tokens


@jit(inline=True, counted=False)
def finds_enough(parameters, state):
    """Say whether a batch can be taken now."""
    enough = holds_enough(parameters, state)
    if parameters.order == STARTED:
        enough = state.front_count >= parameters.batch_groups
    if parameters.sequential == 1:
        idle = state.idle == parameters.slots and state.channel == CHANNEL_FREE
        enough = enough and idle
    return enough


@jit(inline=True, counted=False)
def note_trainer(parameters, state):
    """Note at the end of a settle what the trainer does or waits for, where nothing has failed."""
    if state.training == 1:
        cause = TRAINER_BUSY if state.fetch_time == NEVER else TRAINER_FETCH
    elif state.evaluation_time != NEVER:
        cause = TRAINER_EVALUATION
    elif state.channel != CHANNEL_FREE and (parameters.blocks_trainer == 1 or parameters.sequential == 1):
        cause = TRAINER_PUBLICATION
    elif holds_enough(parameters, state):
        cause = TRAINER_RUNNING_GROUPS
    else:
        cause = TRAINER_BATCH
    state.trainer_cause = cause


@jit(counted=False)
def _take_batch_kernel(parameters, state, seed, groups, members, picks, rollout_rows):
    """Take one batch from the queue and append it to the popped ones."""
    size = parameters.group_size
    order = parameters.order
    length = state.queue_groups
    state.cost += length if order == RANDOM else 0
    if order == RANDOM:
        record = groups[0].next
        for index in range(length):
            picks[index] = record
            record = groups[record].next
    batch = np.uint64(state.popped_batches + 1)
    version = state.version
    publications = state.publications
    # In the order of arrival a batch is the beginning of the queue, chained as it stands.
    following = groups[0].next
    head = np.int64(0)
    last = np.int64(0)
    count = np.int64(0)
    tokens = np.int64(0)
    w0, w1, w2, w3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    while count < length:
        if parameters.batch_groups > 0:
            if count == parameters.batch_groups:
                break
        elif parameters.sequential == 0 and tokens >= parameters.batch_tokens:
            break
        if order == RANDOM:
            # Fisher-Yates in a copy: up to four picks share one block of the batch.
            lane = count & 3
            if lane == 0:
                zero = np.uint64(0)
                block = np.uint64(count >> 2)
                w0, w1, w2, w3 = philox_rounds(seed, np.uint64(1), batch, block, zero, zero)
            word = w0 if lane == 0 else (w1 if lane == 1 else (w2 if lane == 2 else w3))
            left = length - count
            chosen = count + np.int64(math.floor(uniform_from_word(word) * np.float64(left)))
            record = picks[chosen]
            picks[chosen] = picks[count]
        elif order == STARTED:
            record = groups[0].live_next
        elif is_ranked(parameters):
            record = groups[0].rank_next
        else:
            record = following
        group = groups[place(record)]
        if order == FIFO:
            following = group.next
        else:
            leave_queue(parameters, state, groups, record)
            if count > 0:
                groups[place(last)].next = record
        leave_live(parameters, state, groups, record)
        group.state = GROUP_POPPED
        group.dequeue_version = version
        group.dequeue_publications = publications
        if count == 0:
            head = record
        last = record
        count += 1
        tokens += group.tokens
        if parameters.record_rollouts == 1:
            for member in range(record * size, (record + 1) * size):
                rollout_rows[members[member].row].outcome = IN_TRAINING
    if order == FIFO:
        groups[0].next = following
        groups[following].previous = 0
        state.queue_tokens -= tokens
        state.queue_groups -= count
    groups[last].next = 0
    if state.popped_head == 0:
        state.popped_head = head
    else:
        groups[state.popped_tail].next = head
    state.popped_tail = last
    groups[head].batch_groups = count
    groups[head].batch_tokens = tokens
    groups[head].fetched = state.now + parameters.fetch_ticks
    state.popped_tokens += tokens
    state.popped_batches += 1
    state.popped_groups += count
    state.prefetched += 1
    state.cost += count
