"""What stops decoding, and what lets it go on: one reason each, and decoding goes on when none is left.

A publication (styles `pause` and `abort`) stops decoding and the start of rollouts; a training step and an
evaluation that take the GPUs of generation stop decoding alone, so rollouts still start and then wait. While
decoding is stopped the work clock stands still; overhead and environment seconds go on.
"""

from __future__ import annotations

from .._jit import jit

# Reasons, as bits: each holds at most once.
STOPPED_BY_PUBLICATION, STOPPED_BY_TRAINING, STOPPED_BY_EVALUATION = 1, 2, 4


@jit(inline=True, counted=False)
def stop_decoding(state, reason):
    """Stop decoding for one more reason. The work clock stands at this tick."""
    state.stopped = state.stopped | reason


@jit(inline=True, counted=False)
def let_decoding_go(state, reason):
    """Take one reason away; decoding goes on from this tick when none is left."""
    state.stopped = state.stopped & ~reason


@jit(inline=True, counted=False)
def decoding_is_stopped(state):
    """Say whether anything stops decoding."""
    return state.stopped != 0


@jit(inline=True, counted=False)
def starts_are_stopped(state):
    """Say whether rollouts of admitted groups may not start either."""
    return state.stopped & STOPPED_BY_PUBLICATION != 0
