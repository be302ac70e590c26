"""Publications that stop decoding, where decoding has one speed: the ends of rollouts move, without a clock.

How long a transfer stops decoding is known when it begins, so the tick at which each decode goes on and ends
is known again: one pass over the slots for a publication, and nothing for a rollout but its start and end.
Where decoding slows down with concurrency, or stands still for a time that is not known beforehand, the work
clock of :mod:`.clock` does the same at a higher cost.

A slot that decodes holds the tick at which its present stretch begins (`mark`; later than now while it
waits), the one at which its decode ends (`target`), the ticks decoded before (`done`) and those that follow
(`tail`).
"""

from __future__ import annotations

import numpy as np

from .._jit import jit
from .clock import event_key, rebuild_tree, share_done
from .places import place
from .records import ABORT, TAIL, TIMED
from .ticks import ticks

ticks_of = jit(inline=True)(ticks)


@jit(inline=True, counted=False)
def book_stretch(state, worker, until):
    """Book what a slot has decoded since its mark, under the version that is published.

    Without a branch: whether a version is newer is as good as random here.
    """
    versions = state.published - worker.rest
    growth = until - worker.mark
    worker.done += growth
    worker.version_work += np.float64(versions) * np.float64(growth)


@jit(counted=False)
def _move_ends_kernel(parameters, state, arrays):
    """A transfer that stops decoding begins now: what decodes goes on after it, and ends later by as much.

    After an abort each rollout first prefills its tokens again. One that still does so from an abort before
    is not aborted again; it waits for the transfer if it is ready earlier. A decode that ends in this tick
    has ended.
    """
    slots = arrays.slots
    members = arrays.members
    tree = arrays.time_tree
    leaves = parameters.leaves
    size = parameters.group_size
    aborts = parameters.publication == ABORT
    rate = parameters.reprefill_rate
    now = state.now
    transfer_end = now + parameters.sync_ticks
    after_all = transfer_end + (ticks_of(parameters.resume_seconds) if aborts else np.int64(0))
    refills = aborts and rate > 0.0
    for slot in range(parameters.slots):
        worker = slots[place(slot)]
        if worker.phase != TIMED:
            continue
        mark = worker.mark
        target = worker.target
        if mark > now:
            goes_on = max(mark, transfer_end)
            rest = target - mark
        else:
            book_stretch(state, worker, min(now, target))
            member = worker.group * size + worker.member
            if target <= now:
                members[place(member)].end_version = state.published
                worker.phase = TAIL
                continue
            rest = target - now
            goes_on = after_all
            if refills:
                rollout = members[place(member)]
                tokens = share_done(rollout.tokens, worker.done, rollout.decode_ticks, np.int64(1))
                goes_on = transfer_end + ticks_of(parameters.resume_seconds + np.float64(tokens) / rate)
        worker.mark = goes_on
        worker.target = goes_on + rest
        tree[place(leaves + slot)] = event_key(parameters, goes_on + rest + worker.tail, slot)
    rebuild_tree(tree, leaves)
    state.cost += parameters.slots
