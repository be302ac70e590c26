"""The memory ledger of one RL step: which components live on a GPU in each phase, and what fits.

Training is data parallel over ``gpus`` with ZeRO sharding. Inference engines of ``tensor_parallel`` GPUs each
run on the same GPUs (colocated) or on ``rollout_gpus`` of their own. Everything is per GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from ...kernels._arguments import Integers
from ...kernels.errors import ConfigError
from ...kernels.memory._exact import amount, count
from ...kernels.memory.activations import logits_peak_bytes
from ...kernels.memory.parameters import tensor_shapes
from ...kernels.memory.phases import PeakMemory, peak_memory
from ...kernels.memory.sharding import ShardedMemory, gathered_layer_bytes, ideal_sharded_memory
from .models import ModelRecord
from .parts import (
    engine_kv_bytes,
    engine_weight_bytes,
    largest_gathered_parameters,
    training_activations,
    training_state,
)

# Sampling keeps bf16 logits and an fp32 copy of them for one token of each sequence.
_DECODE_COPY_BYTES = (2, 4)
_SEARCH_LIMIT = 2**40

LEFT_OUT = (
    "CUDA context and the workspaces of libraries",
    "fragmentation, and what a caching allocator holds beyond live tensors",
    "communication buffers other than the publication bucket",
    "the engine's prefill activations and CUDA graphs",
    "padding: micro batches are taken as packed",
    "host memory, when training state is offloaded",
)


@dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """The run whose memory is asked for; sizes in bytes are per GPU."""

    gpus: int = 8
    rollout_gpus: int | None = None
    tensor_parallel: int = 1
    context_tokens: int = 8192
    sequences: int = 64
    shared_prompt_tokens: int = 0
    group_size: int = 1
    kv_element_bytes: Any = 2
    kv_scale_bytes: int = 0
    block_tokens: int = 16
    window_policy: str = "payload"
    engine_format: str = "bf16"
    recipe: str = "adam_mixed"
    lora_rank: int | None = None
    zero_stage: int = 3
    shard_group_size: int | None = None
    micro_batch_tokens: int | None = None
    recompute: str = "full"
    logits_chunk_tokens: int | None = None
    reference_model: bool = False
    critic: bool = False
    offload_training: bool = False
    engine_sleeps: bool = True
    bucket_bytes: int = 2**30
    device_bytes: int = 80 * 10**9
    reserve_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the numbers and how they fit together."""
        may_be_zero = (
            "shared_prompt_tokens",
            "kv_scale_bytes",
            "zero_stage",
            "bucket_bytes",
            "reserve_bytes",
        )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "int | None") and value is not None:
                least = 0 if field.name in may_be_zero else 1
                whole = count(field.name, value, least).result(field.name)
                object.__setattr__(self, field.name, whole)
        amount("kv_element_bytes", self.kv_element_bytes)
        on = "gpus" if self.rollout_gpus is None else "rollout_gpus"
        if self.engine_gpus % self.tensor_parallel:
            way_out = f"{on} is {self.engine_gpus}."
            rule = f"must divide {on}, so that engines tile the GPUs"
            raise ConfigError("tensor_parallel", rule, self.tensor_parallel, way_out)
        if self.shared_prompt_tokens > self.context_tokens:
            rule, way_out = "must not exceed context_tokens", "The prompt is part of the context."
            raise ConfigError("shared_prompt_tokens", rule, self.shared_prompt_tokens, way_out)
        if self.reserve_bytes >= self.device_bytes:
            rule, way_out = "must be below device_bytes", f"device_bytes is {self.device_bytes}."
            raise ConfigError("reserve_bytes", rule, self.reserve_bytes, way_out)

    @property
    def colocated(self) -> bool:
        """Say whether engines and training share their GPUs."""
        return self.rollout_gpus is None

    @property
    def engine_gpus(self) -> int:
        """GPUs that run engines."""
        return self.gpus if self.rollout_gpus is None else self.rollout_gpus

    @property
    def engines(self) -> int:
        """Inference engines."""
        return self.engine_gpus // self.tensor_parallel

    @property
    def sequences_per_engine(self) -> int:
        """Sequences on the fullest engine."""
        return -(-self.sequences // self.engines)

    @property
    def training_tokens(self) -> int:
        """Tokens of a micro batch on one GPU."""
        return self.context_tokens if self.micro_batch_tokens is None else self.micro_batch_tokens


@dataclass(frozen=True)
class Ledger:
    """Phases with their components, and what fits beside them."""

    record: ModelRecord
    settings: LedgerSettings
    peak: PeakMemory
    most_sequences: int
    longest_context_tokens: int
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = LEFT_OUT


def _kv(record: ModelRecord, settings: LedgerSettings, sequences: int, tokens: int) -> int:
    return engine_kv_bytes(
        record.shape,
        sequences,
        tokens,
        tensor_parallel=settings.tensor_parallel,
        element_bytes=settings.kv_element_bytes,
        scale_bytes=settings.kv_scale_bytes,
        block_tokens=settings.block_tokens,
        window_policy=settings.window_policy,
        shared_prompt_tokens=settings.shared_prompt_tokens,
        group_size=settings.group_size,
    )


def _sampling(record: ModelRecord, settings: LedgerSettings, sequences: int) -> int:
    return int(
        logits_peak_bytes(
            sequences,
            record.shape.vocabulary_size,
            copy_bytes=_DECODE_COPY_BYTES,
            tensor_parallel=settings.tensor_parallel,
        )
    )


def _shards(record: ModelRecord, settings: LedgerSettings) -> dict[str, ShardedMemory]:
    """Shard the state of the policy, and of the reference model and critic if there are any."""
    policy = training_state(record.shape, settings.recipe, settings.lora_rank)
    states = {"policy": policy}
    if settings.critic:
        states["critic"] = policy
    cut: dict[str, Any] = {"zero_stage": settings.zero_stage, "shard_group_size": settings.shard_group_size}
    shards = {name: ideal_sharded_memory(state, settings.gpus, **cut) for name, state in states.items()}
    if settings.reference_model:
        frozen = training_state(record.shape, "frozen")
        shards["reference"] = ideal_sharded_memory(frozen, settings.gpus, zero_stage=3)
    return shards


def _resident(shards: dict[str, ShardedMemory]) -> dict[str, Integers]:
    """List what training keeps between steps; gradients live only while it trains."""
    policy = shards["policy"].components
    parts = {
        "training weights": policy["weights"],
        "optimizer and master copy": policy["optimizer"] + policy["master"],
    }
    if "critic" in shards:
        critic = shards["critic"].components
        parts["critic, without gradients"] = sum(critic.values()) - critic["gradients"]
    if "reference" in shards:
        parts["reference model"] = shards["reference"].bytes_per_rank
    return parts


def _training_parts(
    record: ModelRecord, settings: LedgerSettings, shards: dict[str, ShardedMemory]
) -> dict[str, Integers]:
    parts = dict(_resident(shards))
    parts["gradients"] = shards["policy"].components["gradients"]
    if "critic" in shards:
        parts["critic's gradients"] = shards["critic"].components["gradients"]
    if settings.zero_stage == 3 and settings.gpus > 1:
        trained = settings.lora_rank is None
        largest = largest_gathered_parameters(record.shape)
        parts["one gathered layer"] = gathered_layer_bytes(largest, 2, 2 if trained else 0)
    active = training_activations(record.shape, settings.training_tokens, settings.recompute)
    parts[f"activations ({settings.recompute} recompute)"] = active.total_bytes
    parts["logits of the loss"] = logits_peak_bytes(
        settings.training_tokens,
        record.shape.vocabulary_size,
        chunk_tokens=settings.logits_chunk_tokens,
    )
    return parts


def _phases(record: ModelRecord, settings: LedgerSettings) -> dict[str, dict[str, Integers]]:
    """List the live components of each phase."""
    per_engine = settings.sequences_per_engine
    weights = engine_weight_bytes(record.shape, settings.tensor_parallel, settings.engine_format)
    cache = _kv(record, settings, per_engine, settings.context_tokens)
    engine: dict[str, Integers] = {"engine weights": weights, "KV cache": cache}
    shards = _shards(record, settings)
    resident = _resident(shards)
    training = _training_parts(record, settings, shards)
    rollout = {**engine, "sampling logits": _sampling(record, settings, per_engine)}
    # A tensor is not cut: one larger than the bucket travels alone, in a buffer of its own size.
    largest_tensor = max(math.prod(sides) for sides, _ in tensor_shapes(record.shape))
    bucket_bytes = max(settings.bucket_bytes, 2 * largest_tensor)
    bucket: dict[str, Integers] = {"bucket": bucket_bytes}
    sending = {"training weights": resident["training weights"]} if settings.offload_training else resident
    if settings.zero_stage == 3 and settings.gpus > 1:
        largest = largest_gathered_parameters(record.shape)
        bucket["one gathered layer"] = gathered_layer_bytes(largest, 2, 0)
    if not settings.colocated:
        return {
            "rollout": rollout,
            "training": training,
            "publication, receiving": {**engine, "bucket": bucket_bytes},
            "publication, sending": {**sending, **bucket},
        }
    kept = {} if settings.offload_training else resident
    awake = {} if settings.engine_sleeps else engine
    return {
        "rollout": {**rollout, **kept},
        "training": {**training, **awake},
        "publication": {"engine weights": weights, **sending, **bucket, **awake},
    }


def _largest(fits: Callable[[int], bool], limit: int = _SEARCH_LIMIT) -> int:
    """Find the largest number up to a limit that fits; fitting must not come back once it is lost."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _notes(record: ModelRecord, settings: LedgerSettings) -> tuple[str, ...]:
    notes = []
    limit = record.shape.max_positions
    if limit is not None and settings.context_tokens > limit:
        notes.append(f"The context is longer than the {limit} positions in the model's config.")
    if record.weights != "bf16" and settings.engine_format == "bf16":
        notes.append(f"The published checkpoint is {record.weights}; the engine is charged with bf16.")
    if record.shape.latent is not None and settings.tensor_parallel > 1:
        notes.append("Latent KV cache is repeated on every tensor-parallel rank.")
    if record.shape.sliding_layers:
        notes.append(
            f"{record.shape.sliding_layers} layers have a window of {record.shape.sliding_window} tokens; "
            f"their cache follows the policy {settings.window_policy!r}."
        )
    if settings.critic:
        notes.append("The critic is taken as a second model of the policy's shape and recipe.")
    return tuple(notes)


def build_ledger(record: ModelRecord, settings: LedgerSettings) -> Ledger:
    """Add up every phase of one RL step on one GPU and find what fits beside the rest.

    Parameters
    ----------
    record : ModelRecord
        What :func:`~.memory.models.load_model` returns.
    settings : LedgerSettings
        The run.

    Returns
    -------
    Ledger
        ``peak`` with phases, components and headroom; ``most_sequences`` of the full context over all engines
        and ``longest_context_tokens`` at the given number of sequences (0 when not even one fits).

    Raises
    ------
    ConfigError
        A parallel size that does not divide, an unknown recipe, format or policy.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> ledger = build_ledger(load_model("Qwen3-8B"), LedgerSettings(gpus=8, context_tokens=8192))
    >>> ledger.peak.phase, ledger.peak.fits
    ('rollout', True)
    """
    phases = _phases(record, settings)
    room = settings.device_bytes - settings.reserve_bytes
    peak = peak_memory(phases, device_bytes=room)
    rollout = phases["rollout"]
    fixed = peak.phase_totals["rollout"] - rollout["KV cache"] - rollout["sampling logits"]

    def fits(per_engine: int, tokens: int) -> bool:
        moving = _kv(record, settings, per_engine, tokens) + _sampling(record, settings, per_engine)
        return bool(fixed + moving <= room)

    most = _largest(lambda per_engine: fits(per_engine, settings.context_tokens))
    longest = _largest(lambda tokens: fits(settings.sequences_per_engine, tokens))
    return Ledger(record, settings, peak, most * settings.engines, longest, _notes(record, settings))
