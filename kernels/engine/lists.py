"""Lists of requests: an engine's queue, its running requests by admission, and a heap by their last step.

The heap is a pairing heap with links in the records (Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap",
Algorithmica 1, 1986): a request that is preempted leaves it from wherever it stands.
"""

from __future__ import annotations

import numpy as np

from .._jit import jit


@jit(inline=True, counted=False)
def _unlink(requests, number):
    """Join a request's neighbours in a list; the list's ends are the caller's."""
    request = requests[number]
    if request.previous >= 0:
        requests[request.previous].next = request.next
    if request.next >= 0:
        requests[request.next].previous = request.previous
    request.next = -1
    request.previous = -1


@jit(counted=False)
def append_waiting(engine, requests, number):
    """Put a request at the end of an engine's queue."""
    request = requests[number]
    request.next = -1
    request.previous = engine.queue_last
    if engine.queue_last >= 0:
        requests[engine.queue_last].next = number
    else:
        engine.queue_first = number
    engine.queue_last = number
    engine.waiting += 1


@jit(counted=False)
def put_first(engine, requests, number):
    """Put a request at the front of an engine's queue."""
    request = requests[number]
    request.previous = -1
    request.next = engine.queue_first
    if engine.queue_first >= 0:
        requests[engine.queue_first].previous = number
    else:
        engine.queue_last = number
    engine.queue_first = number
    engine.waiting += 1


@jit(counted=False)
def remove_waiting(engine, requests, number):
    """Take a request out of an engine's queue."""
    if engine.queue_first == number:
        engine.queue_first = requests[number].next
    if engine.queue_last == number:
        engine.queue_last = requests[number].previous
    _unlink(requests, number)
    engine.waiting -= 1


@jit(counted=False)
def append_running(engine, requests, number):
    """Put a request behind the running ones: it was admitted last."""
    request = requests[number]
    request.next = -1
    request.previous = engine.last
    if engine.last >= 0:
        requests[engine.last].next = number
    else:
        engine.first = number
    engine.last = number
    engine.running += 1
    engine.soonest = _meld(requests, engine.soonest, number)


@jit(counted=False)
def remove_running(engine, requests, number):
    """Take a request out of the running ones."""
    if engine.first == number:
        engine.first = requests[number].next
    if engine.last == number:
        engine.last = requests[number].previous
    _unlink(requests, number)
    engine.running -= 1
    rest = _melded_children(requests, number)
    if engine.soonest == number:
        engine.soonest = rest
    else:
        _cut(requests, number)
        engine.soonest = _meld(requests, engine.soonest, rest)


@jit(counted=False)
def _meld(requests, left, right):
    """Make one heap of two, given by their roots; gives its root."""
    if left < 0:
        return right
    if right < 0:
        return left
    if requests[right].last_step < requests[left].last_step:
        left, right = right, left
    first = requests[left].child
    requests[right].sibling = first
    requests[right].parent = left
    if first >= 0:
        requests[first].parent = right
    requests[left].child = right
    return left


@jit(counted=False)
def _cut(requests, number):
    """Take a request that is no root out of its parent's children."""
    request = requests[number]
    before = request.parent
    if requests[before].child == number:
        requests[before].child = request.sibling
    else:
        requests[before].sibling = request.sibling
    if request.sibling >= 0:
        requests[request.sibling].parent = before
    request.sibling = request.parent = -1


@jit(counted=False)
def _melded_children(requests, number):
    """Make one heap of a request's children, in pairs from the left, then from the right."""
    child = requests[number].child
    requests[number].child = -1
    pairs = np.int64(-1)
    while child >= 0:
        other = requests[child].sibling
        requests[child].sibling = requests[child].parent = -1
        after = pairs
        if other >= 0:
            following = requests[other].sibling
            requests[other].sibling = requests[other].parent = -1
            root = _meld(requests, child, other)
        else:
            following = other
            root = child
        requests[root].sibling = after  # a stack of pairs
        pairs = root
        child = following
    root = child
    while pairs >= 0:
        after = requests[pairs].sibling
        requests[pairs].sibling = -1
        root = _meld(requests, root, pairs)
        pairs = after
    return root
