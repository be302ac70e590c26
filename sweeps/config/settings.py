"""The keyword arguments of configurations and presets, with every type that each accepts.

A field of :class:`lagsweep.PipelineConfig` *is* an ``int`` or a tuple of limits; what may be *given* is
wider: NumPy's numbers, whole floats, plain data for laws and limits. Type checkers and editors read this
list and show its lines; at run time the configuration checks each value itself. Tests keep names, types and
lines equal to the model's and to the presets' knobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, TypedDict

import numpy as np

if TYPE_CHECKING:
    from ..laws.drift import DriftLaw
    from ..laws.lengths import LengthLaw
    from ..laws.seconds import SecondsLaw
    from .config import Limit
    from .engine import Engine

Whole: TypeAlias = SupportsIndex | float  # a float that is whole, as 1e6
Real: TypeAlias = SupportsFloat | SupportsIndex
Flag: TypeAlias = bool | np.bool_
Limits: TypeAlias = "Limit | dict[str, Any] | Sequence[Limit | dict[str, Any] | Sequence[Any]]"


class Settings(TypedDict, total=False):
    """The fields of a configuration."""

    mode: Literal["bounded_async", "sequential"]
    """overlap the phases, or never"""
    duration_seconds: Real
    """simulated horizon"""
    stop_after_updates: Whole | None
    """end with this update, if it comes first"""
    seed: Whole
    """seed of all draws"""
    rollout_workers: Whole
    """rollout slots"""
    decode_tokens_per_second: Real
    """decode speed of one slot"""
    rollout_overhead_seconds: Real
    """prefill, tools, reward: added to each rollout"""
    response_length: LengthLaw | dict[str, Any]
    """law of the response length in tokens"""
    max_queue_tokens: Whole | None
    """queue cap in tokens; none: no cap"""
    admission: Literal["threshold", "reserve"]
    """how the cap closes admission"""
    batch_tokens: Whole | None
    """tokens that a training batch reaches"""
    train_overhead_seconds: Real
    """fixed part of a training step"""
    train_tokens_per_second: Real
    """training speed"""
    max_policy_lag: Whole
    """largest lag, in versions, that may be trained"""
    sync_every_updates: Whole
    """publish every so many updates"""
    sync_seconds: Real
    """from the start of a publication to its visibility"""
    drift_per_version: Real
    """std of a rollout's log importance weight at lag 1"""
    drift: DriftLaw | dict[str, Any] | None
    """drift measured from rollout records, in place of drift_per_version"""
    warmup_seconds: Real
    """metrics leave out what ends up to it"""
    decode_slowdown_per_rollout: Real
    """slowdown g of decoding per other rollout"""
    environment_seconds: SecondsLaw | dict[str, Any] | None
    """law of tool and verifier seconds, slot occupied"""
    prompt_tokens: Whole
    """prompt tokens that a training step counts too"""
    publication: Literal["background", "drain", "pause", "abort"]
    """what a publication does to generation"""
    resume_seconds: Real
    """fixed delay of an aborted rollout before it goes on"""
    reprefill_tokens_per_second: Real | None
    """re-prefill speed after an abort"""
    publication_blocks_trainer: Flag
    """the trainer waits until a publication ends"""
    train_slowdown_when_generating: Real
    """slowdown f of training during decoding"""
    drift_length_exponent: Real
    """how drift grows with length"""
    generation_while_training: Flag
    """decoding goes on while a step is under way"""
    fetch_seconds: Real
    """from a batch's pop to the earliest start of its step"""
    evaluation_every_updates: Whole | None
    """evaluate every so many updates"""
    evaluation_seconds: Real
    """an evaluation, in which no step is taken"""
    evaluation_stops_generation: Flag
    """an evaluation stops decoding"""
    train_spread: Real
    """spread of step times, as the std of their log"""
    engine: Engine | dict[str, Any] | None
    """inference engines that decode in steps; none: one speed"""
    group_size: Whole
    """rollouts per prompt"""
    prompt_sigma: Real
    """spread of lengths between prompts"""
    filter_probability: Real
    """chance that a ready group has no learning signal"""
    updates_per_batch: Whole
    """updates per batch"""
    batch_groups: Whole | None
    """groups per batch, in place of batch_tokens"""
    prefetch_batches: Whole
    """further batches popped while training"""
    limits: Limits
    """the admission ledger"""
    max_running_groups: Whole | None
    """most groups running at once"""
    admit: Literal["group", "batch"]
    """admit groups one by one or by the batch"""
    one_batch_at_a_time: Flag
    """admit no new batch while anything is running"""
    queue_order: Literal["fifo", "started", "oldest_version", "freshest", "random"]
    """which groups the trainer takes"""
    queue_overflow: Literal["block", "drop_oldest", "hold"]
    """what a full queue does"""
    max_queue_groups: Whole | None
    """queue cap in groups, for drop_oldest"""
    stale_check: Literal["update", "dequeue", "never"]
    """when lag is tested"""
    stale_action: Literal["drop", "requeue"]
    """what happens to stale work"""
    redraw_on_requeue: Flag
    """requeued work draws anew"""
    cancel_in_flight: Flag
    """cancel running groups that are too old"""


class PresetSettings(Settings, total=False):
    """The fields of a configuration and the knobs of all presets; each preset takes its own."""

    async_data_buffer_capacity_factor: Real
    async_generation_ratio: Real
    async_queue_size: Whole
    async_steps: Whole
    async_unused_samples_handler: Literal["drop", "retry"]
    chunk: Whole
    concurrency: Whole | None
    concurrent_samples_per_replica: Whole
    engines: Whole | None
    fully_async_queue_factor: Whole
    gradient_accumulation_steps: Whole
    in_flight_weight_updates: bool
    inflight_updates: bool
    llm_max_rollouts: Whole
    max_concurrent_rollouts: Whole | None
    max_head_offpolicyness: Whole
    max_inflight: Whole
    max_inflight_prompts: Whole
    max_inflight_tasks: Whole
    max_lag: Whole | None
    max_lookahead_versions: Whole
    max_off_policy_steps: Whole
    max_off_policy_strategy: Literal["drop", "wait"]
    max_off_policy_threshold: Whole
    max_policy_age: Whole
    max_staleness: Whole
    max_staleness_steps: Whole
    max_staleness_versions: Whole
    max_steps_off_policy: Whole
    max_trajectory_age_steps: Whole
    max_weight_staleness: Whole | None
    num_iterations: Whole
    num_parallel_generation_workers: Whole | None
    num_warmup_batches: Whole
    parameter_sync_step: Whole
    partial_rollout: bool
    partial_rollout_enable: bool
    pause_generation_mode: Literal["retract", "in_place"]
    pop_old_data: bool
    queue_maxsize: Whole
    raw_queue: Whole
    recompute_kv_cache_after_weight_updates: bool
    replicas: Whole | None
    require_batches: Whole
    ring_buffer: Whole
    rollout_share: Real
    rollout_submission_granularity: Literal["sample", "group"]
    sample_freshest_first: bool
    sampling_steps_ahead: Whole | None
    stale_groups: Literal["pace", "requeue"]
    staleness_threshold: Real
    steps_per_generation: Whole | None
    trainer_mode: Literal["separate_async", "colocate_async"]
    training_scaling: Real
    trigger_parameter_sync_step: Whole
    update_weights_interval: Whole
    vllm_mode: Literal["colocate", "server"]
    weight_sync_steps: Whole


class SpecSettings(PresetSettings, total=False):
    """The fields that the base of a sweep's file may have."""

    preset: str
