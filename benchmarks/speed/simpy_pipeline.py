"""The level 1 pipeline as a lean SimPy script: callbacks on timeouts, no processes, no monitors.

It follows the same rules on the same rollouts (threshold admission, bounded_async), so its counts can be
compared; simultaneous rollouts may land in another order, so only nearly.
"""

from __future__ import annotations

import math
from collections import deque

import simpy


def run(config, lengths, normals):
    """Run one configuration on drawn lengths and normals; give (events, counts by name)."""
    env = simpy.Environment()
    schedule = env.schedule
    new_event = simpy.Event
    horizon = int(config.duration_seconds * 1e6)
    slots, cap, budget = config.rollout_workers, config.max_queue_tokens, config.batch_tokens
    overhead, rate = config.rollout_overhead_seconds, config.decode_tokens_per_second
    train_overhead, train_rate = config.train_overhead_seconds, config.train_tokens_per_second
    max_lag, every, drift = config.max_policy_lag, config.sync_every_updates, config.drift_per_version
    sync = int(config.sync_seconds * 1e6)
    queue: deque[tuple[int, int, int]] = deque()
    version = published = carried = level = started = events = 0
    waiting = None
    idle = slots
    training = publishing = False
    trained = discarded = updates = 0
    ess_sum = 0.0
    exp, sqrt, floor = math.exp, math.sqrt, math.floor
    batch_tokens_now = 0

    def at(delay, callback, value=None):
        event = new_event(env)
        event._ok = True
        event._value = value
        event.callbacks.append(callback)
        schedule(event, delay=delay)

    def settle():
        nonlocal training, level, idle, started, ess_sum, batch_tokens_now
        if not training and level >= budget:
            taken, weights = 0, []
            while taken < budget:
                tokens, behaviour, number = queue.popleft()
                taken += tokens
                lag = version - behaviour
                if lag:
                    spread = drift * sqrt(lag)
                    weights.append(spread * normals[number] - spread * spread / 2)
                else:
                    weights.append(0.0)
            largest = max(weights)
            values = [exp(w - largest) for w in weights]
            total = sum(values)
            ess_sum += total * total / (len(values) * sum(v * v for v in values))
            level -= taken
            batch_tokens_now = taken
            training = True
            at(floor((train_overhead + taken / train_rate) * 1e6 + 0.5), trained_one)
        while idle and level < cap:
            tokens = lengths[started]
            at(
                max(1, floor((overhead + tokens / rate) * 1e6 + 0.5)),
                landed,
                (tokens, published, started),
            )
            started += 1
            idle -= 1

    def landed(event):
        nonlocal idle, level, events, discarded
        events += 1
        idle += 1
        tokens, behaviour, number = event._value
        if version - behaviour > max_lag:
            discarded += 1
        else:
            queue.append((tokens, behaviour, number))
            level += tokens
        settle()

    def trained_one(_event):
        nonlocal version, training, updates, publishing, carried, waiting, published, level
        nonlocal discarded, events, trained
        events += 1
        version += 1
        updates += 1
        trained += batch_tokens_now
        training = False
        if version % every == 0:
            if publishing:
                waiting = version
            else:
                publishing = True
                carried = version
                at(sync, visible)
        oldest = version - max_lag
        kept = [item for item in queue if item[1] >= oldest]
        if len(kept) < len(queue):
            discarded += len(queue) - len(kept)
            queue.clear()
            queue.extend(kept)
            level = sum(item[0] for item in kept)
        settle()

    def visible(_event):
        nonlocal published, publishing, carried, waiting, events
        events += 1
        published = carried
        if waiting is None:
            publishing = False
        else:
            carried, waiting = waiting, None
            at(sync, visible)
        settle()

    settle()
    env.run(until=horizon)
    counts = {"updates": updates, "trained_tokens": trained, "discarded_rollouts": discarded}
    return events, counts, ess_sum / max(updates, 1)
