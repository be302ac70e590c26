"""Questions of the general loop: what it tells of itself where a user's own rule decides.

The loop comes back in the middle of a settle, as it does for more room, and goes on with the answer. A draw
depends on its numbers alone, so it is simply made again.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from ..draws.philox import rollout_words, uniform_from_word


@jit(counted=False)
def _ask_admission_kernel(parameters, state, arrays, needed):
    """Fill in what a rule of admission is told: ADMISSION_STATE, of which `needed` groups would start."""
    told = arrays.admission_state[0]
    told.groups = needed
    told.version = state.version
    told.published = state.published
    told.publications = state.publications
    told.started_groups = state.started
    told.running_groups = state.running
    told.queued_groups = state.queue_groups
    told.queued_tokens = state.queue_tokens
    told.in_flight_rollouts = parameters.slots - state.idle - state.held
    told.in_flight_tokens = state.in_flight_tokens
    told.popped_batches = state.popped_batches
    told.popped_groups = state.popped_groups
    told.trained_batches = state.trained_batches
    told.seconds = state.now / 1e6


@jit(counted=False)
def _ask_length_kernel(state, seed, arrays, record, position, number, tokens):
    """Fill in what a process of lengths is told: ROLLOUT_START, with the length that the law gives."""
    told = arrays.rollout_start[0]
    told.number = number
    told.group = arrays.groups[record].number
    told.member = position
    told.law_tokens = tokens
    told.version = state.version
    told.published = state.published
    told.seconds = state.now / 1e6
    w0, _w1, _w2, _w3 = rollout_words(seed, np.uint64(0), number)
    told.uniform = uniform_from_word(w0)
