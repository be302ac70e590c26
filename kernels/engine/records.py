"""What inference engines keep: coefficients, engines and requests as records of whole numbers.

An engine's clock counts in u = 2**-20 ticks (a tick is a microsecond), so that a step's length is a whole
number. A *request* is what an engine decodes: in a pipeline the rollout of a slot. Lists of requests are
linked by their numbers, -1 where there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

UNITS_BITS = 20  # an engine's clock counts 2**-20 ticks
NEVER = 2**63 - 1
NO_LIMIT = 2**62  # of tokens or of running requests

# --- values of fields --------------------------------------------------------------------------------
LEAST_LOADED, ROUND_ROBIN, BY_GROUP = range(3)
ROUTINGS = ("least_loaded", "round_robin", "group")
OUTSIDE, WAITING, DECODING, DECODED = range(4)  # a request's phase


def _record(*whole: str) -> np.dtype:
    return np.dtype((np.record, np.dtype([(name, np.int64) for name in whole], align=True)))


COEFFICIENTS = _record(
    "step",  # u: fixed part of a step
    "rollout",  # u for each request in a step
    "context",  # u for each token of context read in a step
    "prefill",  # u for each token prefilled
    "cache_tokens",  # that one engine holds; NO_LIMIT: none
    "max_running",  # requests that one engine decodes at once; NO_LIMIT: none
    "routing",
)

ENGINE = _record(
    "clock",  # u: the boundary up to which everything is accounted
    "standing",  # 1: no step is under way
    "running",
    "context",  # tokens: the sum of the running requests' contexts
    "prefilling",  # tokens prefilled in the step that begins at the clock
    "repeating",  # of these, what was prefilled before
    "steps",  # done since the start
    "change_steps",  # steps from the clock to the next boundary at which something changes
    "change_clock",  # u: its clock value; NEVER: none up to the horizon
    "look",  # 1: the next boundary looks at the queue, whatever else happens
    "waiting",
    "queue_first",
    "queue_last",
    "first",  # running requests, in the order of their admission
    "last",
    "soonest",  # root of the heap of running requests by the step that ends them; -1: none runs
    "assigned",  # requests routed here whose decode has not ended
    # sums over the steps that are counted
    "counted_steps",
    "decoded_tokens",
    "prefilled_tokens",
    "reprefilled_tokens",
    "preemptions",
    "busy_units",  # u
    "running_sum",  # of the running requests over the steps
    "context_sum",
    "max_cache",  # largest context with the tokens of a step
)

REQUEST = _record(
    "engine",
    "phase",
    "prompt_tokens",
    "tokens",  # to decode
    "decoded",  # while it does not run: tokens that it has
    "last_step",  # while it runs: the engine's step that gives its last token
    "next",  # in a queue, or among the running ones
    "previous",
    "child",  # in the heap
    "sibling",
    "parent",  # or the sibling before it
    "admitted_clock",  # u: first admission; -1: none yet
    "first_clock",  # u: end of its first step
    "end_clock",  # u: end of its last step
    "admissions",
    "preemptions",
)


class Engines(NamedTuple):
    """The engines of one deployment and the requests on them."""

    coefficients: np.ndarray  # COEFFICIENTS[1]
    engines: np.ndarray  # ENGINE[E]
    requests: np.ndarray  # REQUEST[n]


def new_engines(coefficients: np.ndarray, count: int, requests: int) -> Engines:
    """Make engines that stand still at time 0, and room for requests.

    Examples
    --------
    >>> int(new_engines(np.zeros(1, COEFFICIENTS), 2, 8).engines[1].queue_first)
    -1
    """
    engines, rooms = np.zeros(count, ENGINE), np.zeros(requests, REQUEST)
    engines["standing"] = 1
    engines["change_clock"] = NEVER
    for name in ("queue_first", "queue_last", "first", "last", "soonest"):
        engines[name] = -1
    for name in ("next", "previous", "child", "sibling", "parent", "admitted_clock"):
        rooms[name] = -1
    return Engines(coefficients, engines, rooms)
