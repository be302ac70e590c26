"""The trainer from batch to batch: a batch is fetched, its step begins, an evaluation takes its time.

A step begins when its batch is fetched and the trainer is free. An evaluation follows a step, after a
publication that blocks the trainer. Both may stop decoding, where one set of GPUs takes turns.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..draws.philox import normal_from_word, rollout_words
from .records import (
    CHANNEL_FREE,
    DRAIN,
    EVENT_CHECKPOINT,
    EVENT_RESTART,
    FULL_RATE,
    NEVER,
    TRAINER_BUSY,
)
from .stops import STOPPED_BY_EVALUATION, STOPPED_BY_TRAINING, let_decoding_go, stop_decoding
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)


@jit(inline=True, counted=False)
def channel_blocks(parameters, state):
    """Say whether the publication under way keeps the trainer from its next step."""
    blocks = parameters.blocks_trainer == 1 or parameters.sequential == 1
    return blocks and state.channel != CHANNEL_FREE


@jit(counted=False)
def _begin_step_kernel(parameters, state, seed, groups, time):
    """Begin the step of the batch in hand at a tick."""
    head = state.popped_head
    rollouts = groups[head].batch_groups * parameters.group_size
    tokens = groups[head].batch_tokens + parameters.prompt_tokens * rollouts
    seconds = parameters.train_overhead + np.float64(tokens) / parameters.train_rate
    spread = parameters.train_spread
    if spread > 0.0:
        # The n-th step of a seed sees the same normal in every configuration.
        _w0, w1, _w2, _w3 = rollout_words(seed, np.uint64(3), state.trained_batches)
        seconds = seconds * math.exp(spread * normal_from_word(w1) - spread * spread / 2)
    length = ticks_of(seconds)
    state.fetch_time = NEVER
    state.training_start = time
    state.training_version = state.version
    state.training_publications = state.publications
    if parameters.slow_train_rate == FULL_RATE:
        state.training_time = time + length
    else:
        state.rest_ticks = length
        state.rest_parts = 0
    if parameters.training_stops == 1:
        stop_decoding(state, STOPPED_BY_TRAINING)


@jit(inline=True, counted=False)
def take_in_hand(parameters, state, seed, groups):
    """Let the trainer take the oldest batch popped: its step begins now, or once it is fetched."""
    state.prefetched -= 1
    state.training = 1
    fetched = groups[state.popped_head].fetched
    if fetched > state.now:
        state.fetch_time = fetched
    else:
        _begin_step_kernel(parameters, state, seed, groups, state.now)


@jit(counted=False)
def _fetch_ends_kernel(parameters, state, seed, arrays, time):
    """Begin the step whose batch is fetched at a tick, before the events of that tick; it is no event."""
    begun = max(max(state.now, parameters.warmup), state.trainer_booked)
    if time > begun:
        arrays.trainer_ticks[state.trainer_cause] += time - begun
    state.trainer_booked = time
    state.trainer_cause = TRAINER_BUSY
    _begin_step_kernel(parameters, state, seed, arrays.groups, time)


@jit(inline=True, counted=False)
def owes_evaluation(parameters, state):
    """Note, when a step has ended, whether an evaluation follows it."""
    every = parameters.evaluation_every
    if every > 0 and parameters.evaluation_ticks > 0:
        before = state.version - parameters.updates_per_batch
        if state.version // every > before // every:
            state.evaluation_due = 1


@jit(inline=True, counted=False)
def checkpoint_is_due(parameters, state):
    """Say, when a step has ended, whether a checkpoint follows it."""
    every = parameters.checkpoint_every
    if every == 0:
        return False
    return state.version // every > (state.version - parameters.updates_per_batch) // every


@jit(inline=True, counted=False)
def note_kept(failures, tokens, groups):
    """Note what a step that has ended trained, until a failure takes it back."""
    failures.kept_tokens += tokens
    failures.kept_groups += groups


@jit(inline=True, counted=False)
def end_checkpoint(failures, trainer_ticks):
    """The checkpoint is whole and holds from now on; no step has run since it began."""
    failures.checkpoint_time = NEVER
    failures.saved = 1 - failures.saved
    failures.busy_mark = trainer_ticks[TRAINER_BUSY]


@jit(inline=True, counted=False)
def end_wait(failures, trainer_ticks):
    """End the checkpoint or the restart for which the trainer stood still; gives its event."""
    failures.wait_time = NEVER
    event = np.int64(EVENT_RESTART)
    if failures.checkpoint_time != NEVER:
        end_checkpoint(failures, trainer_ticks)
        event = np.int64(EVENT_CHECKPOINT)
    failures.restart_time = NEVER
    return event


@jit(counted=False)
def _after_publication_kernel(parameters, state, saving):
    """Go on where the channel lets the trainer: an evaluation begins, a stop by training ends.

    saving bool: a checkpoint is being written, which comes before an evaluation. A drain needs decoding, so
    it ends the stop; nothing is in flight when its transfer begins.
    """
    blocked = channel_blocks(parameters, state)
    if state.training == 0 and not (blocked and parameters.publication != DRAIN):
        let_decoding_go(state, STOPPED_BY_TRAINING)
    if state.evaluation_due == 1 and not blocked and not saving:
        state.evaluation_due = 0
        state.evaluation_time = state.now + parameters.evaluation_ticks
        if parameters.evaluation_stops == 1:
            stop_decoding(state, STOPPED_BY_EVALUATION)


@jit(inline=True, counted=False)
def end_evaluation(state):
    """End the evaluation under way."""
    state.evaluation_time = NEVER
    let_decoding_go(state, STOPPED_BY_EVALUATION)
