"""From a model and a card to an engine's coefficients: what a step must read and compute, and at which share
of the card's figures it does.

::

    a = layers * h + weights / (bandwidth * e_w)          b = s * 2 A / (T * peak)   (and all-reduces)
    c = cache bytes a token / (T * bandwidth * e_k)        p = 2 A / (T * peak * e_p)

A are the parameters that a token meets without the input table, T the tensor-parallel ranks, weights those
that one rank reads in a step. A rollout's arithmetic overlaps with the reading of weights, so s, the share
of it that shows, lies between 0 and what arithmetic alone would take; below the ridge of a card measured
steps show none of it. The efficiencies e_w, e_k, e_p, the time h of a layer and s are the parameters of a
fit: their priors are what 20 load stages and four request logs of vLLM gave (`docs/engines.md`).

Not described: pipeline stages, speculative decoding, an imbalance of experts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ...kernels.memory.kv_layers import hybrid_kv_cache_bytes
from ...kernels.memory.parameter_ranks import parameters_on_rank
from ...kernels.memory.parameters import parameter_count
from ...kernels.memory.shapes import ModelShape, model_kv_layers
from ..checks import WholeNumber, checked, flag_of, text_of
from ..memory.models import ModelRecord, load_model
from ..memory.parts import ENGINE_FORMATS
from .accelerators import Accelerator, load_accelerator

CACHE_FORMATS: dict[str, float] = {"bf16": 2, "fp8": 1}
_PCIE_CALL_SECONDS = 20e-6  # one small all-reduce over PCIe; over NVLink it is inside h
_LONG = 2**20  # tokens beyond every window: what one more costs is what full layers keep
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Prior:
    """What is known of a parameter before a measurement: the middle, and the range of nine cases in ten.

    A share that may be zero (`low` is 0) is half a normal distribution, every other the logarithm of one.
    """

    name: str
    words: str
    middle: float
    low: float
    high: float
    unit: str = ""

    @property
    def is_share(self) -> bool:
        """Tell whether zero is allowed."""
        return self.low == 0

    @property
    def centre(self) -> float:
        """Return the middle on the scale of the fit."""
        return 0.0 if self.is_share else math.log(self.middle)

    @property
    def spread(self) -> float:
        """Return the standard deviation on the scale of the fit."""
        return self.high / _NORMAL_90 if self.is_share else math.log(self.high / self.low) / (2 * _NORMAL_90)

    def value(self, place: float) -> float:
        """Return the parameter at a place of the fit's scale."""
        return max(0.0, place) if self.is_share else math.exp(place)


def priors_of(shape: ModelShape) -> tuple[Prior, ...]:
    """Return the priors of a model's engine, in the order of the fit's parameters.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> [prior.middle for prior in priors_of(load_model("Qwen3-8B").shape)]
    [6e-05, 0.9, 0.6, 0.5, 0.0]
    """
    layer, prefill = ((60e-6, 45e-6, 100e-6), (0.5, 0.3, 0.8))
    if shape.experts is not None:
        layer, prefill = ((110e-6, 60e-6, 160e-6), (0.2, 0.1, 0.4))
    return (
        Prior("layer_seconds", "a layer's own time", *layer, "s"),
        Prior("weight_efficiency", "bandwidth used, weights", 0.9, 0.85, 0.95),
        Prior("cache_efficiency", "bandwidth used, cache", 0.6, 0.3, 0.9),
        Prior("prefill_efficiency", "arithmetic used, prefill", *prefill),
        Prior("rollout_share", "rollout's work that shows", 0.0, 0.0, 1.0),
    )


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What runs where: a model on cards.

    Attributes
    ----------
    model : ModelRecord
    accelerator : Accelerator
    tensor_parallel : int
        Cards of one engine.
    engines : int
    expert_parallel : bool
        The experts are spread over the engines too, each with all its other weights.
    engine_format, cache_format : str
        How weights and cache are stored.
    """

    model: ModelRecord
    accelerator: Accelerator
    tensor_parallel: int = 1
    engines: int = 1
    expert_parallel: bool = False
    engine_format: str = "bf16"
    cache_format: str = "bf16"
    _parts: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check what the parts say of each other."""
        for name in ("tensor_parallel", "engines"):
            object.__setattr__(self, name, checked(WholeNumber, name, getattr(self, name), low=1, high=4096))
        flag_of("expert_parallel", self.expert_parallel)
        for name, table in (("engine_format", ENGINE_FORMATS), ("cache_format", CACHE_FORMATS)):
            given = getattr(self, name)
            if not isinstance(given, str) or given not in table:
                way_out = nearest(given, table) or "Choose one."
                raise ConfigError(name, f"must be one of {', '.join(table)}", given, way_out)
        if self.expert_parallel and self.shape.experts is None:
            raise ConfigError("expert_parallel", "needs a mixture of experts", True, "Leave it out.")
        spread = self.engines if self.expert_parallel else 1
        tensor_parallel = self.tensor_parallel
        (parts,) = parameters_on_rank(
            self.shape, tensor_parallel=tensor_parallel, expert_parallel=spread
        ).parts
        self._parts.update(parts)

    @property
    def shape(self) -> ModelShape:
        """The model's shape."""
        return self.model.shape

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights that lie on one rank."""
        return float(sum(self._part_bytes(part) for part in self._parts))

    def _part_bytes(self, part: str) -> Fraction:
        return Fraction(self._parts[part]) * ENGINE_FORMATS[self.engine_format].get(part, 2)

    def bytes_read(self, rollouts: float) -> float:
        """Return the bytes of weights that one rank reads in a step with so many rollouts.

        The input table is looked up, not read; of the experts only those are read that a token is sent to:
        E (1 - (1 - k / E)^n) of E with even routing.
        """
        lookup = Fraction(0) if self.shape.tied_embeddings else self._part_bytes("embedding")
        read = float(sum(self._part_bytes(part) for part in self._parts) - lookup)
        experts = self.shape.experts
        if experts is None:
            return read
        sent = rollouts * (self.engines if self.expert_parallel else 1)
        unread = (1 - experts.experts_per_token / experts.num_experts) ** max(1.0, sent)
        return read - float(self._part_bytes("experts")) * unread

    @property
    def cache_bytes_per_token(self) -> float:
        """Bytes that one more token of a long context takes on one rank: windows are full by then."""
        layers = model_kv_layers(self.shape)
        sizes = {"element_bytes": CACHE_FORMATS[self.cache_format], "tensor_parallel": self.tensor_parallel}
        longer, long = (
            int(hybrid_kv_cache_bytes(layers, 1, tokens, **sizes))  # type: ignore[arg-type]
            for tokens in (_LONG + 1, _LONG)
        )
        return float(longer - long)

    def cache_bytes_at(self, tokens: float) -> float:
        """Return the bytes of a token in a context of so many on one rank: fewer beyond a window.

        Examples
        --------
        >>> one = deployment_of("gpt-oss-20b", "H100")
        >>> one.cache_bytes_at(100), one.cache_bytes_at(12_800) < 25_000
        (49152.0, True)
        """
        layers = model_kv_layers(self.shape)
        sizes = {"element_bytes": CACHE_FORMATS[self.cache_format], "tensor_parallel": self.tensor_parallel}
        whole = max(1, round(tokens))
        return float(hybrid_kv_cache_bytes(layers, 1, whole, **sizes)) / whole  # type: ignore[arg-type]

    @property
    def flops_per_token(self) -> float:
        """Arithmetic of one token on one rank."""
        return 2.0 * parameter_count(self.shape).active_without_embedding / self.tensor_parallel

    @property
    def peak(self) -> float:
        """The card's arithmetic per second in the weights' format."""
        card = self.accelerator
        fp8 = card.fp8_flops_per_second if self.engine_format == "fp8" else None
        return fp8 or card.bf16_flops_per_second

    @property
    def ridge_rollouts(self) -> float:
        """The number of rollouts from which a step's arithmetic takes longer than reading the weights."""
        reading = self.bytes_read(math.inf) / self.accelerator.memory_bytes_per_second
        return reading / (self.flops_per_token / self.peak)

    def all_reduce_seconds(self) -> tuple[float, float]:
        """Return what all-reduces over a slow link add to a step, and to it for each rollout.

        Two a layer; over NVLink small ones are part of a layer's fixed time.
        """
        card, calls = self.accelerator, 2 * self.shape.num_layers
        if self.tensor_parallel == 1 or card.has_fast_links or not card.link_bytes_per_second:
            return 0.0, 0.0
        return calls * _PCIE_CALL_SECONDS, calls * 2 * self.shape.hidden_size / card.link_bytes_per_second

    def coefficients(self, parameters: Any, rollouts: float) -> dict[str, float]:
        """Return an engine's coefficients at some efficiencies, as plain floats.

        Parameters
        ----------
        parameters : sequence of float
            In the order of :func:`priors_of`.
        rollouts : float
            For a mixture of experts: the number whose experts are read.

        Returns
        -------
        dict
            ``step_seconds``, ``step_seconds_per_rollout``, ``step_seconds_per_context_token`` and
            ``prefill_seconds_per_token``.
        """
        layer, weights, cache, prefill, share = parameters
        bandwidth = self.accelerator.memory_bytes_per_second
        arithmetic = self.flops_per_token / self.peak
        fixed, each = self.all_reduce_seconds()
        return {
            "step_seconds": self.shape.num_layers * layer
            + fixed
            + self.bytes_read(rollouts) / (bandwidth * weights),
            "step_seconds_per_rollout": share * (arithmetic + each),
            "step_seconds_per_context_token": self.cache_bytes_per_token / (bandwidth * cache),
            "prefill_seconds_per_token": arithmetic / prefill,
        }


def deployment_of(
    model: str | Path | ModelRecord, accelerator: str | Path | Accelerator, **options: Any
) -> Deployment:
    """Build a deployment from names.

    Raises
    ------
    ConfigError
        For a model or card that is not known, and options that do not fit.

    Examples
    --------
    >>> deployment_of("Llama-3.1-8B", "H100").cache_bytes_per_token
    131072.0
    """
    if not isinstance(model, ModelRecord):
        model = load_model(_name("model", model, "Name a shipped model, or a path to a config.json."))
    if not isinstance(accelerator, Accelerator):
        way_out = "Name a shipped card, or a JSON file with your own row."
        accelerator = load_accelerator(_name("accelerator", accelerator, way_out))
    return Deployment(model=model, accelerator=accelerator, **options)


def _name(field: str, value: Any, way_out: str) -> str | Path:
    """Check that something is a text or a path."""
    return value if isinstance(value, Path) else text_of(field, value, way_out)
