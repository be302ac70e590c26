"""What axes, settings, metrics and causes are called: one wording for tables, charts, pages and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...kernels.pipeline.metrics import METRIC_BY_NAME
from .numbers import number, short_number

if TYPE_CHECKING:
    from ..laws.lengths import LengthLaw


class AxisWords(NamedTuple):
    """An axis as a title with its unit, in front of a value, and in few letters."""

    title: str
    phrase: str
    short: str


class Cause(NamedTuple):
    """A part of time or tokens in words, and as a column's heading among its like."""

    words: str
    heading: str


AXES = {
    "queue_cap": AxisWords("queue cap, tokens", "queue cap", "cap"),
    "max_lag": AxisWords("max lag, versions", "lag at most", "lag ≤"),
    "sync_cadence": AxisWords("sync cadence, updates", "sync every", "sync"),
}
# Fields in few letters, for labels; where the value says enough, none.
_SHORT_FIELDS = {
    "response_length": "",
    "system": "",
    "admission": "",
    "rollout_workers": "slots",
    "batch_tokens": "batch",
    "batch_groups": "batch",
    "train_tokens_per_second": "train/s",
    "decode_tokens_per_second": "decode/s",
    "train_overhead_seconds": "train s",
    "rollout_overhead_seconds": "rollout s",
    "sync_seconds": "sync s",
    "drift_per_version": "drift",
    "drift": "",
    "decode_slowdown_per_rollout": "slowdown",
    "environment_seconds": "env",
    "prompt_tokens": "prompt",
    "publication": "",
    "group_size": "group",
    "updates_per_batch": "updates",
    "prefetch_batches": "prefetch",
    "max_running_groups": "running",
    "queue_order": "",
    "stale_check": "stale",
}
# What is useful comes first. The names are metrics, but for the tokens left.
CAUSES = {
    "trainer": {
        "trainer_busy_seconds": Cause("training", "train"),
        "trainer_publication_seconds": Cause("waits for a publication", "publication"),
        "trainer_running_groups_seconds": Cause("waits for running groups", "running groups"),
        "trainer_batch_seconds": Cause("waits: batch not full", "batch not full"),
        "trainer_fetch_seconds": Cause("fetches its batch", "fetch"),
        "trainer_evaluation_seconds": Cause("evaluates", "evaluation"),
    },
    "slots": {
        "slots_busy_seconds": Cause("busy", "busy"),
        "slots_publication_seconds": Cause("idle: publication", "publication"),
        "slots_max_running_seconds": Cause("idle: most running groups", "max running"),
        "slots_one_batch_seconds": Cause("idle: one batch at a time", "one batch"),
        "slots_token_cap_seconds": Cause("idle: queue cap", "token cap"),
        "slots_sequential_seconds": Cause("idle: other phase", "other phase"),
        "slots_limits_seconds": Cause("idle: admission limits", "budget"),
        "slots_held_seconds": Cause("held: queue full", "held"),
    },
    "tokens": {
        "trained_tokens": Cause("trained", "trained"),
        "discarded_tokens": Cause("discarded as too old", "discarded"),
        "left": Cause("left at the end", "left"),
    },
}
# Metrics in a legend.
METRICS = {
    "trained_tokens_per_second": "trained tokens/s",
    "effective_tokens_per_second": "effective tokens/s",
}


def axis_words(name: str) -> AxisWords:
    """Name an axis; of a knob or an engine's field its last part.

    Examples
    --------
    >>> axis_words("queue_cap").title, axis_words("preset.max_staleness").phrase
    ('queue cap, tokens', 'max staleness')
    >>> axis_words("engine.max_running").short
    'engine max running'
    """
    plain = name.removeprefix("preset.").replace("engine.", "engine ").replace("_", " ")
    return AXES.get(name) or AxisWords(plain, plain, _SHORT_FIELDS.get(name, plain))


def axis_heading(name: str) -> str:
    """Name an axis above its column in a terminal: as it is typed, the three usual ones shorter.

    Examples
    --------
    >>> axis_heading("max_lag"), axis_heading("rollout_workers")
    ('lag≤', 'rollout_workers')
    """
    return AXES[name].short.replace(" ", "") if name in AXES else name


def metric_title(name: str) -> str:
    """Name a metric with its unit.

    Examples
    --------
    >>> metric_title("trained_tokens_per_second"), metric_title("mean_lag")
    ('trained tokens per second', 'lag, mean over batches of the batch mean, versions')
    """

    metric = METRIC_BY_NAME.get(name)
    if metric is None:
        return name.replace("_", " ")
    units = "" if metric.units in ("1", "tokens/s") else f", {metric.units}"
    return f"{metric.long_name}{units}"


def cut_note(law: LengthLaw) -> str | None:
    """Say which share of a law's responses its maximum cuts, where it is a twentieth or more.

    Examples
    --------
    >>> from lagsweep import LengthLaw
    >>> cut_note(LengthLaw.geometric(mean=9000, maximum=1000))
    '89% of the responses of geometric(9000) are cut at its maximum, 1,000 tokens'
    """
    share = law.truncated_share
    if share < 0.05:
        return None
    return f"{share:.0%} of the responses of {law.name} are cut at its maximum, {law.maximum:,} tokens"


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Name a configuration by its axes, as they are typed.

    Examples
    --------
    >>> describe_settings({"queue_cap": 240000, "max_lag": 2})
    'queue_cap=240,000 max_lag=2'
    """
    return " ".join(f"{name}={number(value)}" for name, value in settings.items()) or "the base"


def short_label(settings: Mapping[str, Any]) -> str:
    """Name a configuration in few letters.

    Examples
    --------
    >>> short_label({"queue_cap": 240000, "max_lag": 2, "sync_cadence": 1})
    'cap 240k, lag ≤ 2, sync 1'
    """
    return ", ".join(
        f"{axis_words(name).short} {short_number(value)}".strip() for name, value in settings.items()
    )
