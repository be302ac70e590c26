"""What steps take, in closed form: j steps without a change, the next change, the first boundary later.

A step with n running requests whose contexts sum to S, of which x tokens are prefilled in it, takes
``a + b n + c S + p x``. While nothing changes S grows by n a step, so j steps take
``j (a + b n + c S) + p x + c n j (j - 1) / 2``. Everything is whole numbers of u, exact in int64: no sum is
made past the horizon, which is at most 2**62 u, but for one step more.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .records import NEVER, NO_LIMIT

_LATEST = 2.0**62 * (1.0 + 1e-9)  # the largest horizon, and room for a float's rounding


@jit(inline=True, counted=False)
def step_units(coefficients, engine):
    """Return a + b n + c S: what the step from the clock takes, but for prefill."""
    return coefficients.step + coefficients.rollout * engine.running + coefficients.context * engine.context


@jit(inline=True, counted=False)
def units_of(coefficients, engine, steps):
    """Return how long so many steps from the clock take; the caller knows that they end by the horizon."""
    return (
        steps * step_units(coefficients, engine)
        + coefficients.prefill * engine.prefilling
        + coefficients.context * engine.running * (steps * (steps - 1) // 2)
    )


@jit(inline=True, counted=False)
def clock_after(coefficients, engine, steps, horizon):
    """Return the clock value after so many steps; NEVER past the horizon (u)."""
    count = np.float64(steps)
    about = (
        np.float64(engine.clock)
        + count * np.float64(step_units(coefficients, engine))
        + np.float64(coefficients.prefill * engine.prefilling)
        + 0.5 * np.float64(coefficients.context) * np.float64(engine.running) * count * (count - 1.0)
    )
    if about > _LATEST:
        return np.int64(NEVER)
    clock = engine.clock + units_of(coefficients, engine, steps)
    return clock if clock <= horizon else np.int64(NEVER)


@jit(counted=False)
def steps_past(coefficients, engine, value):
    """Return the number of steps, at least 1, to the first boundary later than a clock value (u)."""
    left = value - engine.clock - coefficients.prefill * engine.prefilling
    if left < 0:
        return np.int64(1)
    each = step_units(coefficients, engine)
    growth = coefficients.context * engine.running
    if growth == 0:
        return left // each + 1
    # The root of each j + growth j (j - 1) / 2 = left, in a form without cancellation; then exactly.
    linear = np.float64(each) - 0.5 * np.float64(growth)
    root = np.sqrt(linear * linear + 2.0 * np.float64(growth) * np.float64(left))
    steps = max(np.int64(1), np.int64(2.0 * np.float64(left) / (linear + root)))
    while steps > 1 and engine.clock + units_of(coefficients, engine, steps - 1) > value:
        steps -= 1
    while engine.clock + units_of(coefficients, engine, steps) <= value:
        steps += 1
    return steps


@jit(counted=False)
def take_steps(coefficients, engine, steps, counted):
    """Bring an engine forward by so many steps without a change; `counted`: they are in the sums."""
    if steps == 0:
        return
    taken = units_of(coefficients, engine, steps)
    grown = engine.running * steps
    if counted:
        engine.counted_steps += steps
        engine.decoded_tokens += grown - engine.cancelled
        engine.prefilled_tokens += engine.prefilling
        engine.reprefilled_tokens += engine.repeating
        engine.busy_units += taken
        engine.running_sum += grown
        engine.context_sum += steps * engine.context + engine.running * (steps * (steps - 1) // 2)
        engine.max_cache = max(engine.max_cache, engine.context + grown)
    engine.clock += taken
    engine.context += grown
    engine.steps += steps
    engine.prefilling = 0
    engine.repeating = 0
    if engine.change_steps > 0:
        engine.change_steps -= steps


@jit(counted=False)
def next_change(coefficients, engine, requests, horizon):
    """Find the next boundary with a change: a completion, memory that runs out, a look at the queue."""
    after = np.int64(NEVER)  # an abort: the head is not admitted before
    if engine.waiting > 0 and requests[engine.queue_first].admissible_clock > engine.clock:
        after = requests[engine.queue_first].admissible_clock
    if engine.running == 0:
        engine.standing = 1
        engine.change_steps = 0
        engine.change_clock = after if after <= horizon else np.int64(NEVER)
        return
    engine.standing = 0
    steps = requests[engine.soonest].last_step - engine.steps
    if coefficients.cache_tokens < NO_LIMIT:
        # The first boundary at which S + n > K for the step after it.
        steps = min(steps, (coefficients.cache_tokens - engine.context) // engine.running)
    if engine.look == 1:
        steps = min(steps, np.int64(1))
    if after <= horizon:
        steps = min(steps, steps_past(coefficients, engine, after - 1))
    engine.change_steps = steps
    engine.change_clock = clock_after(coefficients, engine, steps, horizon)
