"""Settings of levels 2 and 3 that contradict one another are refused with reason; what stalls is legal."""

from __future__ import annotations

import pytest

from lagsweep.errors import ConfigError
from lagsweep.sweeps.config.config import Limit, PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.laws.seconds import SecondsLaw

BY_GROUPS = {"batch_tokens": None, "batch_groups": 4}
GROUPED = LengthLaw.grouped([100, 120, 60, 80], [0, 0, 1, 1])
PAIRED = LengthLaw.paired([100, 200], [1.0, 2.0])

REFUSED = {
    "a slowed clock of one word": (
        {"decode_slowdown_per_rollout": 0.1, "duration_seconds": 549755.813888},
        "duration_seconds: must be below 549755.813888 (2**39 ticks) with decode_slowdown_per_rollout "
        "(got 549755.813888). Shorten the run, or switch the slowdown off.",
    ),
    "seconds from two sources": (
        {"response_length": PAIRED, "environment_seconds": SecondsLaw.fixed(1.0)},
        "environment_seconds: must be none when response_length is a trace of (tokens, seconds) pairs",
    ),
    "re-prefill without abort": (
        {"reprefill_tokens_per_second": 100.0, "publication": "pause"},
        "reprefill_tokens_per_second: has an effect with publication 'abort' only (got 100.0). "
        "Set publication='abort' or leave it out.",
    ),
    "prompts beyond 64 bits": (
        {"prompt_tokens": 2**36},
        "prompt_tokens: must be below 2**36, so that a batch's tokens fit into 64 bits (got 68719476736).",
    ),
    "two sizes of a batch": (
        {"batch_groups": 4, "batch_tokens": 2500},
        "batch_tokens: must be none when batch_groups is given (got 2500). "
        "Set batch_tokens=None, or leave batch_groups out.",
    ),
    "no size of a batch": (
        {"batch_tokens": None},
        "batch_tokens: must be given unless batch_groups is (got None). Give one of the two.",
    ),
    "batches at once by tokens": (
        {"admit": "batch"},
        "admit: has an effect with batch_groups only (got 'batch'). Set batch_groups or leave it out.",
    ),
    "one batch at a time group by group": (
        {"one_batch_at_a_time": True, **BY_GROUPS},
        "one_batch_at_a_time: has an effect with admit 'batch' only (got True). "
        "Set admit='batch' or leave it out.",
    ),
    "the oldest B of no B": (
        {"queue_order": "started"},
        "queue_order: has an effect with batch_groups only (got 'started'). "
        "Set batch_groups or leave it out.",
    ),
    "whole batches of no B": (
        {"limits": [Limit("started", "popped", 3), Limit("started", "trained", 3)]},
        "limits.1.done: must be 'popped' when batches are counted in tokens (got 'trained'). "
        "Use done='popped', or batches by batch_groups.",
    ),
    "more updates than groups": (
        {"updates_per_batch": 5, **BY_GROUPS},
        "updates_per_batch: must be at most batch_groups, which is 4 (got 5). "
        "An update needs at least one group.",
    ),
    "prompts twice alike": (
        {"prompt_sigma": 0.5, "response_length": GROUPED, "group_size": 2},
        "prompt_sigma: must be 0 when response_length is a trace of groups, whose lengths are alike already "
        "(got 0.5). Drop one of the two.",
    ),
    "dropping without a size": (
        {"queue_overflow": "drop_oldest"},
        "max_queue_groups: belongs to queue_overflow 'drop_oldest' and 'hold' (got None). "
        "Give both or neither.",
    ),
    "a size without dropping": (
        {"max_queue_groups": 3},
        "max_queue_groups: belongs to queue_overflow 'drop_oldest' and 'hold' (got 3). Give both or neither.",
    ),
    "a reserve that reserves nothing": (
        {"queue_overflow": "drop_oldest", "max_queue_groups": 3, "admission": "reserve"},
        "admission: must be 'threshold' with queue_overflow 'drop_oldest': the cap then closes nothing "
        "(got 'reserve'). Leave it out, or let the queue block.",
    ),
    "a reserve beyond 64 bits": (
        {
            "admission": "reserve",
            "admit": "batch",
            "batch_tokens": None,
            "batch_groups": 2**31,
            "group_size": 2**20,
            "max_queue_tokens": 2**52,
        },
        "batch_groups: times group_size times the longest response must stay below 2**60 tokens "
        "(got 2147483648). Admit group by group, or cut the length law.",
    ),
    "nothing to requeue": (
        {"stale_action": "requeue", "stale_check": "never"},
        "stale_action: 'requeue' has nothing to requeue with stale_check 'never' and without "
        "cancel_in_flight (got 'requeue'). "
        "Choose stale_check 'update' or 'dequeue', or set cancel_in_flight.",
    ),
    "draws for no second run": (
        {"redraw_on_requeue": True},
        "redraw_on_requeue: has an effect with stale_action 'requeue' only (got True). "
        "Set stale_action='requeue' or leave it out.",
    ),
    "groups in sequential": (
        {"mode": "sequential", "group_size": 4},
        "group_size: must be left out with mode 'sequential', a baseline without groups and limits (got 4). "
        "Use mode 'bounded_async' with limits that make it synchronous.",
    ),
    "a limit on nothing": (
        {"limits": [{"count": "running", "groups": 3}]},
        "limits.count: must be one of 'started' or 'finished' (got 'running').",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_combination_without_meaning_is_refused_with_the_reason(name):
    settings, text = REFUSED[name]

    with pytest.raises(ConfigError) as error:
        PipelineConfig(**settings)

    assert any(line.startswith(text) for line in str(error.value).splitlines()), str(error.value)


LEGAL = {
    "no running group": {"max_running_groups": 0},
    "no room at all": {"limits": [Limit("started", "popped", 0)]},
    "a batch that may not run at once": {"admit": "batch", "max_running_groups": 3, **BY_GROUPS},
    "a queue below the batch": {"queue_overflow": "drop_oldest", "max_queue_groups": 1, **BY_GROUPS},
    "everything filtered": {"filter_probability": 1.0},
    "requeue of cancelled work": {
        "stale_action": "requeue",
        "stale_check": "never",
        "cancel_in_flight": True,
    },
    "the engine's physics in sequential": {
        "mode": "sequential",
        "decode_slowdown_per_rollout": 0.1,
        "environment_seconds": SecondsLaw.fixed(1.0),
        "prompt_tokens": 10,
        "publication": "abort",
        "resume_seconds": 1.0,
    },
    "a slowed trainer over a month": {"train_slowdown_when_generating": 0.2, "duration_seconds": 3e6},
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_merely_stalls_or_starves_is_legal(name):
    assert not PipelineConfig(**LEGAL[name]).is_level_1


def test_a_cap_below_the_batch_is_level_1():
    assert PipelineConfig(max_queue_tokens=1).is_level_1
