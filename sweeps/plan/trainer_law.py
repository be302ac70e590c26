"""A trainer from a data sheet: seconds of an update, memory by phase, seconds of a publication.

::

    update = c + tokens * (6 A + 6 * layers * heads * head size * length) * (1 + 0.38 f) / (GPUs * peak * MFU)

A are the parameters that a token meets without the input table, length the mean over tokens of the sequence
that a token belongs to (causal attention), f the forward passes beside the update (old and reference
log-probabilities): 0.38 of an update each (verl pull 7519), recompute and packing as in the runs that MFU was
read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...kernels.memory.parameters import parameter_count
from ...kernels.memory.shapes import ModelShape
from ..engines.accelerators import Accelerator
from ..laws.lengths import LengthLaw
from ..memory.ledger import LedgerSettings, build_ledger
from ..memory.models import ModelRecord

FORWARD_SHARE = 0.38
LOGITS_CHUNK_TOKENS = 1024
RECIPE = "adam_mixed"
_BYTES = 2  # of a published parameter


def mean_sequence(law: LengthLaw, prompt_tokens: int, window: int | None = None) -> float:
    """Return the length of the sequence that a trained token belongs to, on average over tokens.

    Examples
    --------
    >>> mean_sequence(LengthLaw.fixed(1000), 500)
    1500.0
    """
    share = np.diff(law.cdf, prepend=0.0)
    whole = prompt_tokens + law.minimum + np.arange(len(law.cdf), dtype=np.float64)
    seen = whole if window is None else np.minimum(whole, float(window))
    return float(np.dot(share, whole * seen) / np.dot(share, whole))


def flops_per_token(shape: ModelShape, law: LengthLaw, prompt_tokens: int) -> float:
    """Return the arithmetic of training one token, forward and backward, with its attention.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> shape = load_model("Llama-3.1-8B").shape
    >>> round(flops_per_token(shape, LengthLaw.fixed(8192), 0) / 1e9, 1)
    51.5
    """
    active = parameter_count(shape).active_without_embedding
    width = 6.0 * shape.num_heads * shape.head_dim
    full, sliding = shape.num_layers - shape.sliding_layers, shape.sliding_layers
    attention = full * mean_sequence(law, prompt_tokens)
    if sliding:
        attention += sliding * mean_sequence(law, prompt_tokens, shape.sliding_window)
    return 6.0 * active + width * attention


def train_tokens_per_second(
    shape: ModelShape,
    card: Accelerator,
    gpus: int,
    law: LengthLaw,
    prompt_tokens: int,
    *,
    share_of_peak: float,
    forward_passes: int,
) -> float:
    """Return the tokens that a trainer takes in a second, its fixed part apart; six digits.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.accelerators import load_accelerator
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> shape, card = load_model("Llama-3.1-8B").shape, load_accelerator("H100")
    >>> law, efficiency = LengthLaw.fixed(8192), {"share_of_peak": 0.36, "forward_passes": 0}
    >>> train_tokens_per_second(shape, card, 8, law, 0, **efficiency)
    55359.7
    """
    work = flops_per_token(shape, law, prompt_tokens) * (1.0 + FORWARD_SHARE * forward_passes)
    return float(f"{gpus * card.bf16_flops_per_second * share_of_peak / work:.6g}")


def publication_seconds(shape: ModelShape, bytes_per_second: float) -> float:
    """Return the seconds from the start of a publication to its end: all parameters in bf16, over a rate.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> publication_seconds(load_model("Llama-3.1-8B").shape, 5e9)
    3.2121
    """
    return float(f"{parameter_count(shape).total * _BYTES / bytes_per_second:.6g}")


@dataclass(frozen=True)
class TrainerMemory:
    """What training keeps on each GPU, by phase, and what it leaves to engines on the same GPUs.

    Attributes
    ----------
    phases : mapping
        Phase -> bytes on a GPU, of the phases in which training state lives.
    parts : mapping
        The parts of the largest of them, with bytes.
    missing_bytes : float
        What the largest phase lacks; 0 where it fits.
    resident_bytes : float
        What stays on a GPU while engines run on it: nothing, unless they are colocated.
    """

    phases: Mapping[str, float]
    parts: Mapping[str, float]
    missing_bytes: float
    resident_bytes: float


def trainer_memory(
    record: ModelRecord,
    card: Accelerator,
    *,
    gpus: int,
    rollout_gpus: int | None,
    tensor_parallel: int,
    longest_tokens: int,
    reference_model: bool = False,
) -> TrainerMemory:
    """Add up a trainer's memory by the ledger: ZeRO stage 3 over its GPUs, full recompute, logits by chunks.

    Parameters
    ----------
    record : ModelRecord
    card : Accelerator
    gpus : int
        Of the trainer.
    rollout_gpus : int, optional
        Of the engines; none: they share the trainer's GPUs and sleep while it works.
    tensor_parallel : int
    longest_tokens : int
        Prompt and answer of the longest sequence: one is a micro batch.
    reference_model : bool

    Examples
    --------
    >>> from lagsweep.sweeps.engines.accelerators import load_accelerator
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> found = trainer_memory(load_model("Qwen3-32B"), load_accelerator("H100"), gpus=4, rollout_gpus=4,
    ...                        tensor_parallel=4, longest_tokens=8192)
    >>> found.missing_bytes > 0, found.resident_bytes
    (True, 0.0)
    """
    settings = LedgerSettings(
        gpus=gpus,
        rollout_gpus=rollout_gpus,
        tensor_parallel=tensor_parallel,
        context_tokens=longest_tokens,
        sequences=1,
        recipe=RECIPE,
        zero_stage=3,
        recompute="full",
        logits_chunk_tokens=LOGITS_CHUNK_TOKENS,
        reference_model=reference_model,
        device_bytes=int(card.memory_bytes),
    )
    peak = build_ledger(record, settings).peak
    phases = {name: float(size) for name, size in peak.phase_totals.items()}
    # Engines have a sum of their own (their cache takes what is left); here it is the trainer that must fit.
    mine = {
        name: size
        for name, size in phases.items()
        if name == "training" or (name.startswith("publication") and name != "publication, receiving")
    }
    largest = max(mine, key=lambda name: mine[name])
    parts = {str(name): float(size) for name, size in peak.phase_components[largest].items()}
    engines = ("engine weights", "KV cache", "sampling logits")
    rollout = peak.phase_components["rollout"]
    resident = sum(float(size) for name, size in rollout.items() if name not in engines)
    return TrainerMemory(
        mine,
        parts,
        max(0.0, mine[largest] - card.memory_bytes),
        resident if rollout_gpus is None else 0.0,
    )
