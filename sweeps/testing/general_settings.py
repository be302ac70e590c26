"""Plain settings of small runs with generation's options and the rules of real systems.

Settings are plain, as in :mod:`.core_settings`. There are more laws, ``("paired", ((tokens, seconds), …))``
and ``("grouped", ((tokens, …), …))``; laws in seconds are ``(seconds, …)``, each equally likely; limits are
``(count, done, groups)``.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from ..config.config import Limit, PipelineConfig
from ..laws.lengths import LengthLaw
from ..laws.seconds import SecondsLaw
from . import core_settings as core
from .core_settings import LAWS, Law, Pick, Plain, picker, pipeline_settings

PAIRED = ("paired", ((50, 0.0), (50, 1.0), (100, 0.5), (100, 2.0), (200, 0.25)))
GROUPED = ("grouped", ((100, 120, 140), (20,), (60, 60), (200, 50, 50, 50)))
ABORT_ONLY = ("resume_seconds", "reprefill_tokens_per_second")


def tokens_of(law: Law) -> list[int] | None:
    """Return every length of a trace law, else None."""
    if law[0] == "paired":
        return [tokens for tokens, _ in law[1]]
    if law[0] == "grouped":
        return [tokens for group in law[1] for tokens in group]
    return None


def counts_law(law: Law) -> Law:
    """Return a trace law as the table of its lengths, any other law as it is."""
    tokens = tokens_of(law)
    if tokens is None:
        return law
    low = min(tokens)
    return ("table", low, tuple(tokens.count(k) for k in range(low, max(tokens) + 1)))


@cache
def build_law(law: Law) -> LengthLaw:
    """Return the package's law."""
    if law[0] == "schedule":
        return LengthLaw.schedule([(first, build_law(part)) for first, part in law[1]])
    if law[0] == "paired":
        return LengthLaw.paired(*zip(*law[1]))
    if law[0] == "grouped":
        ids = [number for number, group in enumerate(law[1]) for _ in group]
        return LengthLaw.grouped([tokens for group in law[1] for tokens in group], ids)
    return core.build_law(law)


def to_config(settings: Plain) -> PipelineConfig:
    """Return the settings as a checked configuration."""
    plain = {**settings, "response_length": build_law(settings["response_length"])}
    if plain.get("environment_seconds") is not None:
        plain["environment_seconds"] = SecondsLaw.empirical(plain["environment_seconds"])
    if "limits" in plain:
        plain["limits"] = [Limit(count=c, done=d, groups=g) for c, d, g in plain["limits"]]
    return PipelineConfig(**core.with_drift_law(plain))


def engine_part(pick: Pick) -> Plain:
    """Draw the options of level 2, most of them off."""
    drawn: Plain = {"publication": pick("background", "drain", "pause", "abort", "abort")}
    if drawn["publication"] == "abort":
        drawn["resume_seconds"] = pick(0.0, 0.0, 0.25, 1.0)
        drawn["reprefill_tokens_per_second"] = pick(None, 100.0, 400.0)
    if pick(False, True):
        drawn["decode_slowdown_per_rollout"] = pick(0.1, 1.0, 0.037, 5.0)
    if pick(False, False, True):
        drawn["environment_seconds"] = pick((1.0,), (0.0, 0.5), (0.25, 0.25, 3.0))
    if pick(False, False, True):
        drawn["prompt_tokens"] = pick(10, 100)
    if pick(False, False, True):
        drawn["train_slowdown_when_generating"] = pick(0.2, 1.0, 3.0)
    if pick(False, False, True):
        drawn["drift_length_exponent"] = pick(0.5, 1.0, -0.5)
    drawn["publication_blocks_trainer"] = pick(False, False, True)
    return drawn


def limits_part(pick: Pick, batch: int | None) -> list[Law]:
    """Draw the admission ledger: none, one or two limits."""
    if batch is None:
        return [(pick("started", "finished"), "popped", pick(1, 2, 4, 8)) for _ in range(pick(0, 1, 1))]
    room = (batch, batch, 2 * batch, 3 * batch, batch + 1, max(1, batch // 2))
    return [
        (pick("started", "started", "finished"), pick("published", "popped", "trained"), pick(*room))
        for _ in range(pick(0, 1, 1, 1, 2))
    ]


@st.composite
def general_settings(draw: st.DrawFn, level_2: bool = True, level_3: bool = True) -> Plain:
    """Draw plain settings of one small run of levels 2 and 3."""
    pick = picker(draw)
    laws = (*LAWS, PAIRED) if level_2 else LAWS
    themes = ("free", "free", "stale", "publish", *(() if level_3 else ("sequential",)))
    settings: Plain = draw(pipeline_settings(themes=themes, laws=laws, describe=mean_and_longest))
    if level_2:
        settings |= engine_part(pick)
        if settings["response_length"][0] == "paired":
            settings.pop("environment_seconds", None)
    if level_3:
        settings |= draw(group_part(settings))
        if settings.get("publication") != "abort":
            settings = {name: value for name, value in settings.items() if name not in ABORT_ONLY}
    return settings


def system_part(pick: Pick) -> Plain:
    """Draw rules like those of a real system: they keep a run going where rules at random often stall it."""
    batch = pick(1, 2, 2, 3, 4)
    ahead = pick(1, 2, 2, 3)
    started_order = {"queue_order": "started", "stale_check": "never"}
    by_batch = {"admit": "batch", "publication_blocks_trainer": pick(True, True, False), **started_order}
    room = {"max_running_groups": pick(batch, batch + 1, 3 * batch)}
    rules = pick(
        {"limits": [("started", "published", batch)], "publication": "drain", **started_order},
        {"limits": [("started", "popped", ahead * batch)], "publication": "drain", **by_batch},
        {
            "limits": [("started", "popped", ahead * batch)],
            "publication": "pause",
            "one_batch_at_a_time": True,
            **by_batch,
        },
        {"limits": [("started", "published", ahead * batch)], "publication": "drain", **by_batch},
        {"stale_check": "dequeue", "cancel_in_flight": True, "queue_order": pick("fifo", "freshest")},
        {
            "limits": [("started", "published", ahead * batch)],
            "publication": "abort",
            "publication_blocks_trainer": True,
            "stale_check": "never",
            **room,
        },
        {
            "limits": [("started", "published", batch + pick(1, batch))],
            "queue_order": "started",
            "cancel_in_flight": True,
            "publication": "abort",
        },
        {
            "limits": [("started", "trained", ahead * batch)],
            "queue_order": "oldest_version",
            "stale_check": "dequeue",
            "publication": "abort",
        },
        {
            "limits": [("finished", "published", 2 * batch)],
            "stale_check": "dequeue",
            "cancel_in_flight": True,
            "publication": "pause",
            **room,
        },
        {"stale_check": "dequeue", "stale_action": "requeue", "redraw_on_requeue": pick(False, True), **room},
        {"queue_overflow": "drop_oldest", "max_queue_groups": ahead * batch, "stale_check": "never"},
        {"queue_order": "random", "stale_check": "dequeue", "publication": "drain"},
    )
    defaults: Plain = {"limits": [], "max_queue_tokens": None, "batch_tokens": None, "batch_groups": batch}
    return {**defaults, **rules, "prefetch_batches": pick(0, 0, 1)}


def mean_of(law: Law) -> float:
    """Return the mean length of any law."""
    return core.build_law(counts_law(law)).mean_tokens


@st.composite
def group_part(draw: st.DrawFn, settings: Plain) -> Plain:
    """Draw the options of level 3 that go with some settings."""
    pick = picker(draw)
    size = pick(1, 1, 2, 3)
    mean = max(1, round(mean_of(settings["response_length"])))
    step_seconds = settings["batch_tokens"] / settings["train_tokens_per_second"]
    drawn: Plain = {"group_size": size, "duration_seconds": settings["duration_seconds"] * size}
    if size > 1 and pick(False, False, True):
        if settings["response_length"][0] != "paired" and pick(False, True):
            drawn["response_length"] = GROUPED
        else:
            drawn["prompt_sigma"] = pick(0.3, 1.0)
    drawn |= system_part(pick) if pick(False, True) else rules_part(pick, settings["batch_tokens"] * size)
    batch = drawn["batch_groups"]
    step_tokens = drawn["batch_tokens"] or batch * size * mean
    if step_seconds > 1e-9:
        drawn["train_tokens_per_second"] = step_tokens / step_seconds
    updates = pick(1, 1, 1, 2, 3)
    drawn["updates_per_batch"] = updates if batch is None else min(batch, updates)
    if pick(False, False, False, True):
        drawn["filter_probability"] = pick(0.2, 0.5, 1.0)
    if drawn.pop("draw_cap", False):
        drawn["max_queue_tokens"] = step_tokens * pick(1, 2, 10)
        if pick(False, False, True) and "queue_overflow" not in drawn:
            law: Law = (settings | drawn)["response_length"]
            longest = size * longest_of(law)
            drawn |= {"admission": "reserve", "max_queue_tokens": longest * pick(1, 3) + pick(0, step_tokens)}
    return drawn


def rules_part(pick: Pick, batch_tokens: int) -> Plain:
    """Draw rules at random."""
    batch = pick(None, 1, 2, 2, 3, 4)
    orders = (
        "fifo",
        "oldest_version",
        "freshest",
        "random",
        *(() if batch is None else ("started", "started")),
    )
    drawn: Plain = {
        "batch_groups": batch,
        "batch_tokens": batch_tokens if batch is None else None,
        "limits": limits_part(pick, batch),
        "queue_order": pick(*orders),
        "max_queue_tokens": None,
        "draw_cap": pick(False, True),
        "prefetch_batches": pick(0, 0, 0, 1, 2),
        "max_running_groups": pick(None, None, None, 1, 2, 5, 0) if pick(False, True) else None,
        "stale_check": pick("update", "dequeue", "never"),
        "stale_action": pick("drop", "drop", "requeue"),
        "cancel_in_flight": pick(False, False, True),
    }
    if batch is not None:
        drawn["admit"] = pick("group", "group", "batch")
        drawn["one_batch_at_a_time"] = drawn["admit"] == "batch" and pick(False, True)
    if drawn["stale_check"] == "never" and not drawn["cancel_in_flight"]:
        drawn["stale_action"] = "drop"  # there is nothing to requeue: refused
    drawn["redraw_on_requeue"] = drawn["stale_action"] == "requeue" and pick(False, True)
    if pick(False, False, False, True):
        drawn |= {"queue_overflow": "drop_oldest", "max_queue_groups": pick(1, 2, 4, 8)}
    return drawn


def longest_of(law: Law) -> int:
    """Return the longest response of any law."""
    if law[0] == "schedule":
        return max(longest_of(part) for _, part in law[1])
    return core.build_law(counts_law(law)).maximum


def mean_and_longest(law: Law) -> tuple[float, int]:
    """Return the mean and the longest response of any law but one by version."""
    return mean_of(law), longest_of(law)
