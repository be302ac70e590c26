"""What inference engines report: sums over the steps that end in the measured span, and levels at a tick."""

from __future__ import annotations

import math

import numpy as np

from .._jit import jit
from ..engine.records import NO_LIMIT, UNITS_BITS
from ..engine.steps import steps_past
from .fleet import _close_engines_kernel

_UNITS_PER_SECOND = 1e6 * 2.0**UNITS_BITS


@jit
def _share(top, bottom):
    return top / bottom if bottom > 0.0 else math.nan


@jit
def engine_metrics_kernel(parameters, coefficients, engines, end, metrics):
    """Write the metrics of engines, which are closed at the end of the run: give a copy.

    parameters PARAMETERS[1], coefficients COEFFICIENTS[1], engines ENGINE[n]; end int64 in ticks; metrics
    GENERAL_REPORT[1] is filled.
    """
    _close_engines_kernel(parameters, coefficients, engines, end)
    metrics = metrics[0]
    cache_tokens = coefficients[0].cache_tokens
    steps, decoded, prefilled, repeated, preemptions = (
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(0),
    )
    largest = np.int64(0)
    busy, running, context, waiting = 0.0, 0.0, 0.0, 0.0
    for place in range(engines.shape[0]):
        engine = engines[place]
        steps += engine.counted_steps
        decoded += engine.decoded_tokens
        prefilled += engine.prefilled_tokens
        repeated += engine.reprefilled_tokens
        preemptions += engine.preemptions
        largest = max(largest, engine.max_cache)
        busy += np.float64(engine.busy_units) / _UNITS_PER_SECOND
        running += np.float64(engine.running_sum)
        context += np.float64(engine.context_sum)
        waiting += engine.waiting_ticks
    engine_ticks = np.float64(engines.shape[0] * max(np.int64(0), end - parameters[0].warmup))
    metrics.decode_steps = steps
    metrics.decoded_tokens = decoded
    metrics.prefilled_tokens = prefilled
    metrics.reprefilled_tokens = repeated
    metrics.preemptions = preemptions
    metrics.engine_busy_seconds = busy
    metrics.engine_idle_seconds = engine_ticks / 1e6 - busy
    metrics.mean_engine_running = _share(running, np.float64(steps))
    metrics.mean_engine_context_tokens = _share(context, np.float64(steps))
    metrics.mean_engine_waiting = _share(waiting, engine_ticks)
    metrics.mean_kv_cache_share = math.nan
    metrics.max_kv_cache_share = math.nan
    if cache_tokens < NO_LIMIT and steps > 0:
        cache = np.float64(cache_tokens)
        metrics.mean_kv_cache_share = (running + context) / np.float64(steps) / cache
        metrics.max_kv_cache_share = np.float64(largest) / cache
    metrics.engine_tokens_per_second = _share(np.float64(decoded), busy)
    metrics.slots_engine_queue_seconds = waiting / 1e6


@jit
def engine_levels_kernel(coefficients, engines, tick, levels):
    """Write what runs, waits and is cached on each engine after a tick up to which nothing changes.

    coefficients COEFFICIENTS[1], engines ENGINE[n]; tick int64; levels int64[n, 3] is filled.
    """
    for place in range(engines.shape[0]):
        engine = engines[place]
        levels[place, 0] = engine.running
        levels[place, 1] = engine.waiting
        levels[place, 2] = engine.context
        if engine.standing == 0:
            steps = steps_past(coefficients[0], engine, tick << UNITS_BITS) - 1
            levels[place, 2] += engine.running * steps
