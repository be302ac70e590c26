"""Which settings of a configuration a gate goes by, and which it refuses.

A gate decides what may start, what is taken and what is too old. It does not know time: speeds, lengths and
engines stay with the trainer that calls it, and are ignored.
"""

from __future__ import annotations

from typing import Any

from ...kernels.errors import ConfigError, Finding
from ..config.config import PipelineConfig

# The settings that a gate obeys, in the order in which a saved gate names them.
RULES = (
    "rollout_workers",
    "group_size",
    "batch_tokens",
    "batch_groups",
    "updates_per_batch",
    "prefetch_batches",
    "limits",
    "max_queue_tokens",
    "admission",
    "max_running_groups",
    "admit",
    "one_batch_at_a_time",
    "queue_order",
    "queue_overflow",
    "max_queue_groups",
    "max_policy_lag",
    "stale_check",
    "stale_action",
    "redraw_on_requeue",
    "cancel_in_flight",
    "sync_every_updates",
    "publication",
    "publication_blocks_trainer",
)


def checked_rules(config: PipelineConfig) -> dict[str, Any]:
    """Return the rules of a configuration as plain data.

    Raises
    ------
    ConfigError
        If it has a rule that no gate can keep.

    Examples
    --------
    >>> rules = checked_rules(PipelineConfig(rollout_workers=4))
    >>> rules["rollout_workers"], rules["longest_tokens"]
    (4, None)
    """
    found = _refused(config)
    if found:
        raise ConfigError(*found)
    plain = config.to_dict(full=True)
    rules = {name: plain[name] for name in RULES}
    # Room is reserved by the longest response; the queue's order at random goes by the seed.
    reserves = config.admission == "reserve"
    rules["longest_tokens"] = int(config.response_length.maximum) if reserves else None
    rules["seed"] = int(config.seed) if config.queue_order == "random" else None
    return rules


def _refused(config: PipelineConfig) -> list[Finding]:
    found = []
    if config.mode == "sequential":
        found.append(
            Finding(
                "mode",
                "must be 'bounded_async' for a gate: 'sequential' goes by lengths that nobody knows yet",
                config.mode,
                "Use the preset synchronous, which starts one batch and waits for it.",
            )
        )
    if config.evaluation_every_updates is not None and config.evaluation_seconds > 0:
        found.append(
            Finding(
                "evaluation_every_updates",
                "must be left out for a gate, which knows no evaluations",
                config.evaluation_every_updates,
                "Leave it out, and call pop() when the evaluation has ended.",
            )
        )
    return found
