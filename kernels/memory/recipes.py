"""Bytes per parameter of the usual ways to train, and optimizer state that depends on tensor sizes.

:data:`RECIPES` names sets of bytes per parameter for :func:`~.memory.state.model_state_bytes`.
8-bit optimizers and 4-bit bases have block scales (:func:`block_scaled_bytes` takes blocks as full,
:func:`blockwise_8bit_state_bytes` goes tensor by tensor), and Adafactor keeps row and column sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from .._arguments import choice, flag, listed
from ..errors import ConfigError
from ._exact import one_count


@dataclass(frozen=True)
class Recipe:
    """Bytes per parameter of one way to train; frozen weights are as the trainable ones unless given."""

    parameter_bytes: int | Fraction
    gradient_bytes: int | Fraction
    optimizer_state_bytes: int | Fraction
    master_parameter_bytes: int | Fraction
    note: str
    frozen_parameter_bytes: int | Fraction | None = None

    @property
    def bytes_per_parameter(self) -> Fraction:
        """Bytes per trainable parameter."""
        parts = (
            self.parameter_bytes,
            self.gradient_bytes,
            self.optimizer_state_bytes,
            self.master_parameter_bytes,
        )
        return sum((Fraction(part) for part in parts), Fraction(0))


def block_scaled_bytes(
    bits: int, block_elements: int, scale_bits: int, second_block_elements: int | None = None
) -> Fraction:
    """Return the bytes per element of a block format: the element and its share of the block's scale.

    Parameters
    ----------
    bits : int
        Bits of one element.
    block_elements : int
        Elements that share one scale.
    scale_bits : int
        Bits of a scale.
    second_block_elements : int, optional
        Scales that share one fp32 scale of their own (double quantisation).

    Returns
    -------
    Fraction
        Exact bytes per element, blocks taken as full.

    Examples
    --------
    QLoRA's base, 4.127 bits per parameter (Dettmers et al. 2023, section 3), and MXFP4, 4.25 bits:

    >>> float(block_scaled_bytes(4, 64, 8, 256) * 8), float(block_scaled_bytes(4, 32, 8) * 8)
    (4.126953125, 4.25)
    """
    bits = one_count("bits", bits, minimum=1)
    block_elements = one_count("block_elements", block_elements, minimum=1)
    scale_bits = one_count("scale_bits", scale_bits, minimum=1)
    share = Fraction(scale_bits, block_elements)
    if second_block_elements is not None:
        second_block_elements = one_count("second_block_elements", second_block_elements, minimum=1)
        share += Fraction(32, block_elements * second_block_elements)
    return (bits + share) / 8


NF4_BYTES = block_scaled_bytes(4, 64, 8, 256)
MXFP4_BYTES = block_scaled_bytes(4, 32, 8)
# bitsandbytes keeps two 8-bit states with one fp32 absmax per block of 256 each (2048 in older releases).
ADAM_8BIT_STATE_BYTES = 2 * block_scaled_bytes(8, 256, 32)

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "adam_mixed": Recipe(2, 2, 8, 4, "bf16 weights and gradients, fp32 moments and master copy"),
        "adam_mixed_fp32_gradients": Recipe(2, 4, 8, 4, "as adam_mixed with fp32 gradients (Megatron-LM)"),
        "adam_mixed_two_gradients": Recipe(2, 6, 8, 4, "bf16 and fp32 gradients at once (DeepSpeed)"),
        "adam_no_master": Recipe(2, 2, 8, 0, "bf16 weights updated in place, fp32 moments"),
        "adam_fp32": Recipe(4, 4, 8, 0, "everything fp32"),
        "adam_bf16": Recipe(2, 2, 4, 0, "everything bf16"),
        "adam_8bit": Recipe(2, 2, ADAM_8BIT_STATE_BYTES, 4, "two 8-bit moments, fp32 scales per 256"),
        "muon": Recipe(2, 2, 4, 4, "one fp32 momentum, for matrices; add an Adam state for the rest"),
        "sgd_momentum": Recipe(2, 2, 4, 4, "one fp32 momentum"),
        "adafactor": Recipe(2, 2, 0, 4, "factored second moment: give optimizer_extra_bytes"),
        "qlora": Recipe(2, 2, 8, 4, "adam_mixed adapters over a base of 4.127 bits", NF4_BYTES),
        "frozen": Recipe(2, 0, 0, 0, "bf16 weights alone: inference or a reference model"),
    }
)


def recipe_named(name: str | None) -> Recipe:
    """Look a recipe up by its name; ``adam_mixed`` for None."""
    if name is None:
        return RECIPES["adam_mixed"]
    return RECIPES[choice("recipe", name, tuple(RECIPES), way_out="Choose one.")]


def _tensors(tensors: Iterable[tuple[Sequence[int], int]]) -> list[tuple[tuple[int, ...], int]]:
    checked = []
    rule, way_out = "must be pairs of (shape, copies)", "Write ((4096, 1024), 32)."
    for pair in listed("tensors", tensors, "List pairs of (shape, copies)."):
        parts = listed("tensors", pair, way_out, rule=rule)
        if len(parts) != 2 or isinstance(parts[0], str | bytes) or not isinstance(parts[0], Iterable):
            raise ConfigError("tensors", rule, pair, way_out)
        whole = tuple(one_count("tensors", side) for side in listed("tensors", parts[0], way_out))
        checked.append((whole, one_count("tensors", parts[1])))
    return checked


def blockwise_8bit_state_bytes(
    tensors: Iterable[tuple[Sequence[int], int]],
    *,
    block_elements: int = 256,
    states: int = 2,
    smallest_quantized_elements: int = 4096,
) -> int:
    """Add up the state of a block-wise 8-bit optimizer over a model's tensors.

    A tensor of n elements keeps ``states * (n + 4 * ceil(n / block))`` bytes; one with fewer elements than
    ``smallest_quantized_elements`` keeps fp32 states, ``states * 4 * n`` (bitsandbytes; its blocks were 2048
    in older releases and are 256 in newer ones).

    Parameters
    ----------
    tensors : iterable of (shape, copies)
        For instance :func:`~.memory.shapes.tensor_shapes` of a model.
    block_elements, states, smallest_quantized_elements : int
        Elements per scale; 2 states for Adam, 1 for Lion; the smallest tensor that is quantised.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> blockwise_8bit_state_bytes([((4096, 256), 1), ((256,), 1)])
    2131968
    """
    block = one_count("block_elements", block_elements, minimum=1)
    kinds = one_count("states", states, minimum=1)
    smallest = one_count("smallest_quantized_elements", smallest_quantized_elements)
    total = 0
    for shape, copies in _tensors(tensors):
        elements = math.prod(shape)
        total += (
            copies * kinds * (4 * elements if elements < smallest else elements + 4 * -(-elements // block))
        )
    return total


def adafactor_state_bytes(
    tensors: Iterable[tuple[Sequence[int], int]], *, element_bytes: int = 4, momentum: bool = False
) -> int:
    """Add up Adafactor's state: row and column sums for matrices, a full second moment for vectors.

    The last two axes are factored: a tensor (..., r, c) keeps ``... * (r + c)`` elements (Shazeer and Stern
    2018; shapes as in the transformers implementation).

    Parameters
    ----------
    tensors : iterable of (shape, copies)
        The trainable tensors.
    element_bytes : int
        Bytes of a kept element.
    momentum : bool
        Also a full first moment.

    Returns
    -------
    int
        Bytes, for ``model_state_bytes(..., recipe="adafactor", optimizer_extra_bytes=...)``.

    Examples
    --------
    >>> adafactor_state_bytes([((4096, 1024), 1), ((4096,), 2)])
    53248
    """
    each = one_count("element_bytes", element_bytes, minimum=1)
    momentum = flag("momentum", momentum)
    total = 0
    for shape, copies in _tensors(tensors):
        elements = math.prod(shape)
        kept = math.prod(shape[:-2]) * (shape[-2] + shape[-1]) if len(shape) >= 2 else elements
        total += copies * (kept + (elements if momentum else 0))
    return total * each
