"""Rules between the fields of a configuration: what contradicts itself is refused, with the reason.

A configuration that merely stalls or starves is legal: real systems have both, and the simulator reports
them. Refused is only what has no meaning.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...kernels.errors import Finding
from ...kernels.pipeline.ticks import ticks
from .drift_rules import drift_findings
from .engine import LARGEST_STEP, UNITS_PER_SECOND, step_too_long, units
from .help_text import level_of

if TYPE_CHECKING:
    from .config import PipelineConfig


class NoEffect(Finding):
    """A value that was given and that has no effect beside the others.

    In a single configuration it is refused; a sweep leaves it out of the cells in which it is one.
    """


# The fields that can be without an effect, so that most configurations need not be looked at.
_MAY_BE_IDLE = (
    "decode_tokens_per_second",
    "decode_slowdown_per_rollout",
    "reprefill_tokens_per_second",
    "resume_seconds",
    "evaluation_seconds",
    "evaluation_stops_generation",
    "admit",
    "queue_order",
    "max_queue_groups",
    "one_batch_at_a_time",
    "redraw_on_requeue",
    "restart_seconds",
    "checkpoint_seconds",
    "checkpoint_scope",
    "drift_per_version",
)


_of_idle = attrgetter(*_MAY_BE_IDLE)


@cache
def _idle_defaults(kind: type[PipelineConfig]) -> tuple[Any, ...]:
    """Return the defaults of those fields; looked up once, since a sweep asks for each of its cells."""
    return tuple(kind.model_fields[name].default for name in _MAY_BE_IDLE)


def without_effect(config: PipelineConfig) -> list[str]:
    """Name the fields off their default that have no effect beside the others."""
    if _of_idle(config) == _idle_defaults(type(config)):
        return []
    return [finding.field for finding in contradictions(config) if isinstance(finding, NoEffect)]


def contradictions(config: PipelineConfig) -> list[Finding]:
    """List every contradiction between fields; empty when there is none."""
    return [
        *_time(config),
        *_level_1(config),
        *_drift(config),
        *_level_2(config),
        *_batches(config),
        *_queue(config),
        *_stale_work(config),
        *_failures(config),
        *_sequential(config),
    ]


def _time(config: PipelineConfig) -> list[Finding]:
    found = []
    horizon = ticks(config.duration_seconds)
    if horizon < 1:
        found.append(
            Finding(
                "duration_seconds",
                "must be at least half a microsecond",
                config.duration_seconds,
                "Give a longer horizon.",
            )
        )
    elif ticks(config.warmup_seconds) >= horizon:
        found.append(
            Finding(
                "warmup_seconds",
                f"must be below duration_seconds, which is {config.duration_seconds:g}",
                config.warmup_seconds,
                "Shorten the warm-up or lengthen the run.",
            )
        )
    # The general loop's keys spend one more bit, on what comes first within a tick.
    slot_bits = max(1, (config.rollout_workers - 1).bit_length()) + 1
    if (horizon + 1) << slot_bits >= 2**63:
        found.append(
            Finding(
                "duration_seconds",
                f"must be below {2 ** (63 - slot_bits) / 1e6:.3g} with {config.rollout_workers} "
                "rollout_workers",
                config.duration_seconds,
                "Shorten the run: time and slot share one 64-bit key.",
            )
        )
    return found


def _level_1(config: PipelineConfig) -> list[Finding]:
    found: list[Finding] = []
    law = config.response_length
    if config.batch_tokens is None and config.batch_groups is None:
        found.append(
            Finding("batch_tokens", "must be given unless batch_groups is", None, "Give one of the two.")
        )
    if law.maximum * config.rollout_workers * config.group_size >= 2**60:
        found.append(
            Finding(
                "response_length",
                "maximum times rollout_workers must stay below 2**60 tokens",
                law.maximum,
                "Cut the law at a smaller maximum.",
            )
        )
    if config.admission == "reserve":
        found += _reserve(config)
    return found


def _drift(config: PipelineConfig) -> list[Finding]:
    if config.drift is None:
        return []
    found = drift_findings(config, config.drift)
    given, default = config.drift_per_version, type(config).model_fields["drift_per_version"].default
    if given != default:
        rule = "has an effect without drift only, which takes its place"
        found.append(NoEffect("drift_per_version", rule, given, "Leave out one of the two."))
    return found


def _reserve(config: PipelineConfig) -> list[Finding]:
    if config.max_queue_tokens is None:
        return [Finding("admission", "'reserve' needs a queue cap", "reserve", "Set max_queue_tokens.")]
    needed = config.response_length.maximum * config.group_size
    if config.mode == "bounded_async" and config.max_queue_tokens < needed:
        return [
            Finding(
                "max_queue_tokens",
                f"with admission 'reserve' must be at least {needed}, the longest response"
                + (" times group_size" if config.group_size > 1 else ""),
                config.max_queue_tokens,
                "Raise the cap, cut the length law, or use admission 'threshold'.",
            )
        ]
    return []


def _needs(config: PipelineConfig, name: str, what: str, setting: str) -> NoEffect:
    value: Any = getattr(config, name)
    return NoEffect(name, f"has an effect with {what} only", value, f"Set {setting} or leave it out.")


def _level_2(config: PipelineConfig) -> list[Finding]:
    found = []
    if config.decode_slowdown_per_rollout > 0 and ticks(config.duration_seconds) >= 2**39:
        found.append(
            Finding(
                "duration_seconds",
                "must be below 549755.813888 (2**39 ticks) with decode_slowdown_per_rollout",
                config.duration_seconds,
                "Shorten the run, or switch the slowdown off.",
            )
        )
    if config.environment_seconds is not None and config.response_length.brings_seconds:
        found.append(
            Finding(
                "environment_seconds",
                "must be none when response_length is a trace of (tokens, seconds) pairs",
                config.environment_seconds,
                "Drop one of the two.",
            )
        )
    if config.publication != "abort":
        for name in ("resume_seconds", "reprefill_tokens_per_second"):
            if getattr(config, name):
                found.append(_needs(config, name, "publication 'abort'", "publication='abort'"))
    found += _turns(config)
    found += _engine(config)
    if config.prompt_tokens >= 2**36:
        found.append(
            Finding(
                "prompt_tokens",
                "must be below 2**36, so that a batch's tokens fit into 64 bits",
                config.prompt_tokens,
                "Give the tokens of one prompt.",
            )
        )
    return found


def _turns(config: PipelineConfig) -> list[Finding]:
    """Rules of GPUs that take turns, and of evaluation."""
    found = []
    if not config.generation_while_training:
        found += [
            Finding(
                name,
                "must be left out with generation_while_training false: nothing is generated beside a step",
                getattr(config, name),
                "Drop one of the two.",
            )
            for name in ("prefetch_batches", "train_slowdown_when_generating")
            if getattr(config, name) > 0
        ]
    if config.evaluation_every_updates is None:
        for name in ("evaluation_seconds", "evaluation_stops_generation"):
            if getattr(config, name):
                found.append(_needs(config, name, "evaluation_every_updates", "evaluation_every_updates"))
    return found


# What an engine stands in the place of: steps say how fast it decodes and prefills.
REPLACED_BY_ENGINE = (
    "decode_tokens_per_second",
    "decode_slowdown_per_rollout",
    "reprefill_tokens_per_second",
)


def missing_cache_tokens(config: PipelineConfig) -> int:
    """Tell by how many tokens an engine's cache is too small for one rollout of the longest response."""
    engine = config.engine
    if engine is None or engine.kv_cache_tokens is None:
        return 0
    return max(0, config.prompt_tokens + config.response_length.maximum - engine.kv_cache_tokens)


def _engine(config: PipelineConfig) -> list[Finding]:
    """Rules of an engine: one rollout fits its cache, and no sum leaves the range of its clock."""
    engine = config.engine
    if engine is None:
        return []
    fields = type(config).model_fields
    found: list[Finding] = [
        NoEffect(
            name,
            "has no effect beside an engine, whose steps say how fast it decodes and prefills",
            getattr(config, name),
            "Drop one of the two.",
        )
        for name in REPLACED_BY_ENGINE
        if getattr(config, name) != fields[name].default
    ]
    longest = config.prompt_tokens + config.response_length.maximum
    missing = missing_cache_tokens(config)
    if missing:
        found.append(
            Finding(
                "engine.kv_cache_tokens",
                f"must hold one rollout: at least {longest}, prompt_tokens and the longest response, "
                f"{missing} more than it does",
                engine.kv_cache_tokens,
                "Raise it, or cut the length law.",
            )
        )
    horizon = ticks(config.duration_seconds)
    if horizon >= 2**42:
        found.append(
            Finding(
                "duration_seconds",
                "must be below 4398046.511104 (2**42 ticks) with an engine",
                config.duration_seconds,
                "Shorten the run.",
            )
        )
    too_long = step_too_long(engine, config.rollout_workers, longest)
    if too_long is not None:
        found.append(too_long)
        return found
    shortest = (units(engine.step_seconds) + units(engine.step_seconds_per_rollout)) / UNITS_PER_SECOND
    context = min(config.rollout_workers * longest, engine.kv_cache_tokens or LARGEST_STEP)
    if config.duration_seconds / shortest * context >= LARGEST_STEP:
        found.append(
            Finding(
                "engine.step_seconds",
                f"is too short for a run of {config.duration_seconds:g} s: "
                "the context summed over its steps must stay below 2**62 tokens",
                engine.step_seconds,
                "Give seconds, not microseconds, or shorten the run.",
            )
        )
    return found


def _batches(config: PipelineConfig) -> list[Finding]:
    """Rules of batches by count, and of what needs them."""
    found = []
    groups = config.batch_groups
    if groups is not None and config.batch_tokens is not None:
        found.append(
            Finding(
                "batch_tokens",
                "must be none when batch_groups is given",
                config.batch_tokens,
                "Set batch_tokens=None, or leave batch_groups out.",
            )
        )
    if groups is None:
        if config.admit == "batch":
            found.append(_needs(config, "admit", "batch_groups", "batch_groups"))
        if config.queue_order == "started":
            found.append(_needs(config, "queue_order", "batch_groups", "batch_groups"))
        found += [
            Finding(
                f"limits.{index}.done",
                "must be 'popped' when batches are counted in tokens",
                limit.done,
                "Use done='popped', or batches by batch_groups.",
            )
            for index, limit in enumerate(config.limits)
            if limit.done != "popped"
        ]
    elif config.updates_per_batch > groups:
        found.append(
            Finding(
                "updates_per_batch",
                f"must be at most batch_groups, which is {groups}",
                config.updates_per_batch,
                "An update needs at least one group.",
            )
        )
    if config.one_batch_at_a_time and config.admit != "batch":
        found.append(_needs(config, "one_batch_at_a_time", "admit 'batch'", "admit='batch'"))
    if config.prompt_sigma > 0 and config.group_size > 1 and config.response_length.group_starts is not None:
        found.append(
            Finding(
                "prompt_sigma",
                "must be 0 when response_length is a trace of groups, whose lengths are alike already",
                config.prompt_sigma,
                "Drop one of the two.",
            )
        )
    return found


_HOLD = "held groups would be promised room twice"


def _queue(config: PipelineConfig) -> list[Finding]:
    """Rules of a full queue."""
    found = []
    counted = config.queue_overflow != "block"
    if counted != (config.max_queue_groups is not None):
        found.append(
            (Finding if counted else NoEffect)(
                "max_queue_groups",
                "belongs to queue_overflow 'drop_oldest' and 'hold'",
                config.max_queue_groups,
                "Give both or neither.",
            )
        )
    if config.admission == "reserve":
        if counted:
            found.append(
                Finding(
                    "admission",
                    f"must be 'threshold' with queue_overflow {config.queue_overflow!r}: "
                    + ("the cap then closes nothing" if config.queue_overflow == "drop_oldest" else _HOLD),
                    "reserve",
                    "Leave it out, or let the queue block.",
                )
            )
        reserved = config.response_length.maximum * config.group_size * (config.batch_groups or 1)
        if config.admit == "batch" and reserved >= 2**60:
            found.append(
                Finding(
                    "batch_groups",
                    "times group_size times the longest response must stay below 2**60 tokens",
                    config.batch_groups,
                    "Admit group by group, or cut the length law.",
                )
            )
    return found


def _stale_work(config: PipelineConfig) -> list[Finding]:
    """Rules of what happens to work that is too old."""
    found = []
    requeues = config.stale_action == "requeue"
    if requeues and config.stale_check == "never" and not config.cancel_in_flight:
        found.append(
            Finding(
                "stale_action",
                "'requeue' has nothing to requeue with stale_check 'never' and without cancel_in_flight",
                "requeue",
                "Choose stale_check 'update' or 'dequeue', or set cancel_in_flight.",
            )
        )
    if config.redraw_on_requeue and not requeues:
        found.append(_needs(config, "redraw_on_requeue", "stale_action 'requeue'", "stale_action='requeue'"))
    return found


def _failures(config: PipelineConfig) -> list[Finding]:
    """Rules of failures and checkpoints: a cost or a scope needs the event that it belongs to."""
    found: list[Finding] = []
    fails, saves = config.trainer_mtbf_seconds is not None, config.checkpoint_every_updates is not None
    if not fails and config.restart_seconds > 0:
        found.append(_needs(config, "restart_seconds", "trainer_mtbf_seconds", "trainer_mtbf_seconds"))
    if not saves and config.checkpoint_seconds > 0:
        found.append(
            _needs(config, "checkpoint_seconds", "checkpoint_every_updates", "checkpoint_every_updates")
        )
    if config.checkpoint_scope != "full" and not (fails and saves):
        both = "trainer_mtbf_seconds and checkpoint_every_updates"
        found.append(_needs(config, "checkpoint_scope", both, both))
    return found


def _sequential(config: PipelineConfig) -> list[Finding]:
    """`sequential` is a baseline: the options of level 2 fit it, rules about overlap do not."""
    if config.mode != "sequential":
        return []
    fields = type(config).model_fields
    return [
        Finding(
            name,
            "must be left out with mode 'sequential', a baseline without groups and limits",
            getattr(config, name),
            "Use mode 'bounded_async' with limits that make it synchronous.",
        )
        for name, field in fields.items()
        if level_of(field) == 3 and getattr(config, name) != field.get_default(call_default_factory=True)
    ]
