"""What a data sheet leaves open: each input of a plan with its default, its range and where that is from.

The ranges are what measured engines and trainers span (`docs/planning.md`). An input that was measured takes
the place of its default, and its range shrinks to what is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...kernels.errors import ConfigError, nearest
from ...kernels.memory.shapes import ModelShape
from ..checks import RealNumber, checked, mapping_of
from ..engines.accelerators import Accelerator
from ..engines.roofline import priors_of
from .networks import Network

LOW, HIGH = "low", "high"
_FITS = "fits of 20 load stages and four request logs of vLLM"
_BLACKWELL = ("B200", "GB200", "B300", "RTX 5090", "RTX PRO 6000 Blackwell")
_SHARES = (
    "weight_efficiency",
    "cache_efficiency",
    "rollout_efficiency",
    "prefill_efficiency",
    "model_flops_utilization",
)


@dataclass(frozen=True, kw_only=True)
class Input:
    """One number that a plan needs and a data sheet does not fix.

    Attributes
    ----------
    name, words : str
    value, low, high : float
        The default and the range.
    faster : {"low", "high"}
        At which end a run is faster.
    unit, source : str
    scale : float
        What to multiply it with to read it in its unit.
    """

    name: str
    words: str
    value: float
    low: float
    high: float
    faster: str = HIGH
    unit: str = ""
    scale: float = 1.0
    source: str = ""

    @property
    def fast(self) -> float:
        """The end at which a run is faster."""
        return self.high if self.faster == HIGH else self.low

    @property
    def slow(self) -> float:
        """The end at which a run is slower."""
        return self.low if self.faster == HIGH else self.high

    @property
    def is_open(self) -> bool:
        """Whether it has a range at all."""
        return self.low < self.high


def engine_inputs(shape: ModelShape) -> list[Input]:
    """Return what a data sheet leaves open of an engine.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> [one.name for one in engine_inputs(load_model("Qwen3-8B").shape)][:3]
    ['layer_seconds', 'weight_efficiency', 'cache_efficiency']
    """
    layer, weights, cache, prefill, _ = priors_of(shape)
    found = [
        Input(
            name="layer_seconds", words=layer.words, value=layer.middle, low=layer.low, high=layer.high,
            faster=LOW, unit="µs", scale=1e6, source=_FITS,
        ),
        *(
            Input(
                name=one.name, words=one.words, value=one.middle, low=one.low, high=one.high, source=_FITS
            )
            for one in (weights, cache, prefill)
        ),
        Input(
            name="rollout_efficiency", words="arithmetic used, decoding", value=0.70, low=0.50, high=0.85,
            source=_FITS,
        ),
        Input(
            name="cache_memory", words="memory beside the cache", value=0.0, low=-1.0, high=1.0,
            unit="× doubt", source="vLLM's own sum in 13 logs: 0.4 GiB either way, 1 GiB with several ranks",
        ),
    ]  # fmt: skip
    if shape.experts is not None:
        found.append(
            Input(
                name="distinct_experts", words="distinct experts, of even routing's", value=1.0, low=0.8,
                high=1.0, faster=LOW, source="uneven routing reads fewer; not measured",
            )
        )  # fmt: skip
    return found


def trainer_inputs(shape: ModelShape, card: Accelerator, network: Network) -> list[Input]:
    """Return what a data sheet leaves open of a trainer and of publications.

    Examples
    --------
    >>> from lagsweep.sweeps.engines.accelerators import load_accelerator
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> from lagsweep.sweeps.plan.networks import load_network
    >>> shape, network = load_model("Qwen3-8B").shape, load_network("one-node")
    >>> found = trainer_inputs(shape, load_accelerator("H100"), network)
    >>> [(one.name, one.value) for one in found][:2]
    [('model_flops_utilization', 0.33), ('update_overhead_seconds', 6.0)]
    """
    share = (0.33, 0.15, 0.45) if shape.experts is None else (0.22, 0.08, 0.33)
    # Kernels for these cards in bf16 were younger when the runs were measured.
    part = 0.8 if card.name in _BLACKWELL else 1.0
    middle, low, high = (part * one for one in share)
    slower = 0.5 if shape.experts is not None else 1.0
    rates = [slower * one for one in (network.bytes_per_second, network.low, network.high)]
    return [
        Input(
            name="model_flops_utilization", words="trainer's share of the peak (MFU)", value=middle, low=low,
            high=high, source="published training and RL runs on H100, H200, B200",
        ),
        Input(
            name="update_overhead_seconds", words="fixed part of an optimizer step", value=6.0, low=2.0,
            high=20.0, faster=LOW, unit="s",
            source="published RL updates of few tokens; 6 is the ends' geometric mean",
        ),
        Input(
            name="publication_rate", words="weights published", value=rates[0], low=rates[1], high=rates[2],
            unit="GB/s", scale=1e-9, source=f"network {network.name}: {network.source}",
        ),
    ]  # fmt: skip


def colocated_inputs() -> list[Input]:
    """Return what nobody's data sheet says of GPUs that take turns.

    Examples
    --------
    >>> [(one.name, one.value) for one in colocated_inputs()]
    [('turn_seconds', 11.0)]
    """
    return [
        Input(
            name="turn_seconds", words="switch between phases, colocated", value=11.0, low=4.0, high=55.0,
            faster=LOW, unit="s",
            source="left of a step beside its phases: 11, 11, 54 and 55 s (verl's tables of colocated runs)",
        )
    ]  # fmt: skip


def given_inputs(usual: list[Input], given: Any) -> list[Input]:
    """Put what a user has measured in the place of defaults.

    Parameters
    ----------
    usual : list of Input
    given : mapping
        Name -> a number, or a pair of ends. Of ends the middle is the default where it lies between them.

    Raises
    ------
    ConfigError
        For a name that is no input, or what is no number or pair of rising numbers.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> usual = engine_inputs(load_model("Qwen3-8B").shape)
    >>> found = given_inputs(usual, {"weight_efficiency": 0.88, "cache_efficiency": (0.7, 0.8)})
    >>> [(one.value, one.low, one.high) for one in found[1:3]]
    [(0.88, 0.88, 0.88), (0.75, 0.7, 0.8)]
    """
    chosen: Mapping[str, Any] = mapping_of("inputs", given, "Write {'model_flops_utilization': 0.4}.")
    names = [one.name for one in usual]
    for name in chosen:
        if name not in names:
            way_out = nearest(name, names) or _by_words(name, usual) or f"Inputs here: {', '.join(names)}."
            raise ConfigError(f"inputs.{name}", "must be an input of the plan", chosen[name], way_out)
    return [_given(one, chosen[one.name]) if one.name in chosen else one for one in usual]


def _by_words(name: str, usual: list[Input]) -> str:
    """Find the input that is called so in the tables: by its words, or a part of them."""
    words = name.replace("_", " ").strip().lower()
    meant = [one.name for one in usual if len(words) > 2 and words in one.words.lower()]
    return nearest(meant[0], meant) if meant else ""


def _given(one: Input, value: Any) -> Input:
    field = f"inputs.{one.name}"
    ends = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(ends) != 2:
        raise ConfigError(field, "must be a number, or two ends", value, "Write 0.4 or [0.3, 0.45].")
    most = 1.0 if one.name in _SHARES else None
    low, high = (checked(RealNumber, field, end, high=most) for end in ends)
    if one.name != "cache_memory" and low <= 0:
        raise ConfigError(field, "must be above 0", value, f"The usual range is {one.low:g} to {one.high:g}.")
    if low > high:
        raise ConfigError(field, "must have the smaller end first", value, "Swap them.")
    middle = one.value if low < one.value < high else (low + high) / 2
    return replace(one, value=middle, low=low, high=high, source="given")
