"""What a run reports: the measured sums of a state, closed at the end of the run.

Closing changes nothing in the state, so a run can be summarised at any stop and still go on.
Orders of the output rows: :data:`.pipeline.metrics.INTEGER_METRICS` and ``FLOAT_METRICS``.
"""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from .lean_layout import (
    F_EFFECTIVE_TOKENS,
    F_ESS_MIN,
    F_ESS_SUM,
    F_EXPECTED_ESS_SUM,
    F_LAG_SUM,
    F_QUEUE_TOKEN_TICKS,
    NEVER,
    P_HORIZON,
    P_SEQUENTIAL,
    P_SLOTS,
    P_WARMUP,
    S_BACKPRESSURE_TICKS,
    S_DISCARDED_ROLLOUTS,
    S_DISCARDED_TOKENS,
    S_ENDED,
    S_GENERATED_ROLLOUTS,
    S_GENERATED_TOKENS,
    S_IDLE,
    S_IDLE_SLOT_TICKS,
    S_IN_FLIGHT,
    S_LAST_UPDATE_TIME,
    S_MAX_LAG,
    S_MAX_QUEUE,
    S_NOW,
    S_PUBLICATION_TIME,
    S_QUEUE_TOKENS,
    S_SYNCS,
    S_TRAINED_ROLLOUTS,
    S_TRAINED_TOKENS,
    S_TRAINER_WAIT_TICKS,
    S_TRAINING_TIME,
    S_TRAINING_TOKENS,
    S_UPDATES,
    S_VERSION,
)


@jit(inline=True)
def _ratio(top, bottom):
    """Divide, NaN where there is nothing to average."""
    return top / bottom if bottom > 0.0 else math.nan


@jit
def _summarize_kernel(params, state, sums, integers, floats):
    """Write the integer and float metrics of a run that has reached its end.

    params int64[P_COUNT], state int64[S_COUNT], sums float64[F_COUNT]; integers int64[14] and floats
    float64[14] are filled, in the order of the metric tables.
    """
    end = state[S_NOW] if state[S_ENDED] == 1 else params[P_HORIZON]
    # The last stretch, from the last event to the end, inside the measured span.
    tail_ticks = max(np.int64(0), end - max(state[S_NOW], params[P_WARMUP]))
    measured_ticks = max(np.int64(0), end - params[P_WARMUP])
    measured_seconds = measured_ticks / 1e6
    queue_tokens = state[S_QUEUE_TOKENS]
    idle = state[S_IDLE]
    trainer_is_idle = state[S_TRAINING_TIME] == NEVER
    queue_token_ticks = sums[F_QUEUE_TOKEN_TICKS] + np.float64(queue_tokens) * np.float64(tail_ticks)
    idle_slot_ticks = state[S_IDLE_SLOT_TICKS] + idle * tail_ticks
    backpressure_ticks = state[S_BACKPRESSURE_TICKS]
    if idle > 0 and params[P_SEQUENTIAL] == 0:
        backpressure_ticks += tail_ticks
    wait_ticks = state[S_TRAINER_WAIT_TICKS] + (tail_ticks if trainer_is_idle else np.int64(0))
    slot_ticks = params[P_SLOTS] * measured_ticks
    updates = state[S_UPDATES]

    integers[0] = updates
    integers[1] = state[S_TRAINED_TOKENS]
    integers[2] = state[S_TRAINED_ROLLOUTS]
    integers[3] = state[S_GENERATED_TOKENS]
    integers[4] = state[S_GENERATED_ROLLOUTS]
    integers[5] = state[S_DISCARDED_TOKENS]
    integers[6] = state[S_DISCARDED_ROLLOUTS]
    integers[7] = state[S_SYNCS]
    integers[8] = state[S_MAX_QUEUE] if state[S_MAX_QUEUE] >= 0 else queue_tokens
    integers[9] = state[S_MAX_LAG]
    integers[10] = state[S_VERSION]
    integers[11] = queue_tokens
    integers[12] = state[S_TRAINING_TOKENS] if not trainer_is_idle else 0
    integers[13] = (
        1 if state[S_IN_FLIGHT] == 0 and trainer_is_idle and state[S_PUBLICATION_TIME] == NEVER else 0
    )

    floats[0] = _ratio(np.float64(state[S_TRAINED_TOKENS]), measured_seconds)
    floats[1] = _ratio(sums[F_EFFECTIVE_TOKENS], measured_seconds)
    floats[2] = backpressure_ticks / 1e6
    floats[3] = idle_slot_ticks / 1e6
    floats[4] = _ratio(queue_token_ticks, np.float64(measured_ticks))
    floats[5] = _ratio(sums[F_LAG_SUM], np.float64(updates))
    floats[6] = _ratio(sums[F_ESS_SUM], np.float64(updates))
    floats[7] = sums[F_ESS_MIN] if updates > 0 else math.nan
    floats[8] = _ratio(sums[F_EXPECTED_ESS_SUM], np.float64(updates))
    floats[9] = measured_seconds / updates if updates > 0 else math.nan
    floats[10] = wait_ticks / 1e6
    floats[11] = _ratio(np.float64(measured_ticks - wait_ticks), np.float64(measured_ticks))
    floats[12] = _ratio(np.float64(slot_ticks - idle_slot_ticks), np.float64(slot_ticks))
    floats[13] = (end - state[S_LAST_UPDATE_TIME]) / 1e6
