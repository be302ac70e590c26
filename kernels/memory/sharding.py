"""A model state cut over ranks: ZeRO stages 0 to 3, hybrid shard groups, real shard sizes.

Stage 1 shards the optimizer state and the master copy, stage 2 the gradients too, stage 3 the weights too
(Rajbhandari et al. 2020, section 5; FSDP's full sharding is stage 3). A rank keeps the sum of its shares,
rounded up since a real shard is never a fraction of a byte.

What is not counted: the layer that stage 3 gathers for a moment (:func:`gathered_layer_bytes` gives it),
communication buckets, and state offloaded to the host (pass only what stays on the device).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import Integers, Numbers, choice, flag, listed
from ..errors import ConfigError
from ._exact import Exact, amount, check_divides, check_shapes, count
from .state import TERMS, ModelState, StateTerm

_FIRST_SHARDED_STAGE = {"optimizer": 1, "master": 1, "gradients": 2, "weights": 3}


@dataclass(frozen=True, eq=False)
class ShardedTerm:
    """One component of the state: what it is in all, over how many ranks it is cut, what a rank keeps.

    ``bytes_per_element`` lists the sizes of its elements; more than one where groups were added.
    """

    name: str
    total_bytes: Integers
    shards: Integers
    bytes_per_rank: Integers
    bytes_per_element: tuple[int | Fraction | NDArray[Any], ...]


@dataclass(frozen=True, eq=False)
class ShardedMemory:
    """Model state per rank, by component and in total."""

    world_size: Integers
    terms: Mapping[str, ShardedTerm]
    bytes_per_rank: Integers
    total_bytes: Integers
    padding_bytes: Integers

    @property
    def components(self) -> dict[str, Integers]:
        """Bytes on one rank by component."""
        return {name: term.bytes_per_rank for name, term in self.terms.items()}


def _stages(zero_stage: Any) -> Exact:
    stages = count("zero_stage", zero_stage)
    if stages.bound > 3:
        raise ConfigError(
            "zero_stage", "must be 0, 1, 2 or 3", zero_stage, "Stage 3 shards everything (FSDP)."
        )
    return stages


def _sharded_names(sharded: Iterable[str]) -> tuple[str, ...]:
    way_out = "Name the terms that are cut."
    names = (sharded,) if isinstance(sharded, str) else listed("sharded", sharded, way_out)
    rule = f"must name terms out of {', '.join(TERMS)}"
    return tuple(choice("sharded", name, TERMS, rule=rule, way_out=way_out) for name in names)


def _group_sizes(world: Exact, shard_group_size: Any) -> dict[str, Exact]:
    """Return the number of shards of each term that is sharded; groups must tile the world."""
    given = (
        shard_group_size if isinstance(shard_group_size, Mapping) else dict.fromkeys(TERMS, shard_group_size)
    )
    _sharded_names(given)
    groups = {}
    for name in TERMS:
        size = given.get(name)
        if size is None:
            groups[name] = world
            continue
        group = count("shard_group_size", size, minimum=1)
        check_shapes(world_size=world, shard_group_size=group)
        check_divides("shard_group_size", group, "world_size", world)
        groups[name] = group
    return groups


def _term_shard(term: StateTerm, shards: Exact, whole_elements: bool) -> Exact:
    if not whole_elements:
        return term.exact_bytes.ceil_divide(shards)
    return sum((elements.ceil_divide(shards) * each for elements, each in term.pieces), Exact(0)).ceil()


def _element_sizes(term: StateTerm) -> tuple[Any, ...]:
    """List the distinct bytes per element of the pieces that exist."""
    sizes: list[Any] = []
    for elements, each in term.pieces:
        size = each.value()
        if elements.bound and not any(np.array_equal(size, known) for known in sizes):
            sizes.append(size)
    return tuple(sizes)


def _shard_total(total: Any, world: Exact) -> ShardedMemory:
    whole = amount("state", total).ceil()
    check_shapes(state=whole, world_size=world)
    rank = whole.ceil_divide(world)
    return _assemble(world, {"state": (whole, world, rank, ())}, rank)


def _assemble(
    world: Exact, parts: Mapping[str, tuple[Exact, Exact, Exact, tuple[Any, ...]]], per_rank: Exact
) -> ShardedMemory:
    """Put the parts (total, shards, bytes on a rank, bytes per element) together."""
    terms = {
        name: ShardedTerm(
            name, whole.result(name), shards.result("shards"), rank.result("bytes_per_rank"), each
        )
        for name, (whole, shards, rank, each) in parts.items()
    }
    total = sum((whole for whole, _, _, _ in parts.values()), Exact(0))
    # Shards of one copy together hold at least the component; the rest is padding, once per copy.
    padding = sum((rank * shards - whole for whole, shards, rank, _ in parts.values()), Exact(0))
    return ShardedMemory(
        world.result("world_size"),
        terms,
        per_rank.result("bytes_per_rank"),
        total.result("total_bytes"),
        padding.result("padding_bytes"),
    )


def ideal_sharded_memory(
    state: ModelState | Numbers,
    world_size: Numbers,
    *,
    zero_stage: Numbers = 3,
    shard_group_size: Numbers | Mapping[str, Numbers | None] | None = None,
    sharded: Iterable[str] | None = None,
    whole_elements: bool = False,
) -> ShardedMemory:
    """Cut a model state over data-parallel ranks and give what one rank keeps.

    ``bytes_per_rank = ceil(sum over terms of term_bytes / shards)`` with 1 shard for a replicated term; the
    terms' own shares are each rounded up and may add up to three bytes more.

    Parameters
    ----------
    state : ModelState, int or array_like
        What :func:`~.memory.state.model_state_bytes` returns, or a plain number of bytes, all of it
        sharded.
    world_size : int or array_like
        Data-parallel ranks (divide by tensor and pipeline parallelism first; an expert layer has its own).
    zero_stage : int or array_like
        0 replicates everything; 1 shards optimizer state and master copy; 2 also gradients; 3 also weights.
    shard_group_size : int, array_like or mapping, optional
        Ranks in one shard group of hybrid sharding (HSDP, MiCS): shards lie within a group, and groups hold
        copies. A mapping names terms one by one, such as ``{"weights": 8}`` for ZeRO++'s secondary shards.
    sharded : iterable of str, optional
        Terms to shard in place of a stage: weights, gradients, optimizer, master.
    whole_elements : bool
        Shards hold whole elements, as a flat buffer padded to a multiple of the ranks does. By default they
        hold whole bytes, which is the paper's formula rounded up.

    Returns
    -------
    ShardedMemory
        ``bytes_per_rank``, ``terms`` (each with total, shards, bytes per rank and per element),
        ``total_bytes`` and ``padding_bytes`` (what the shards of one copy hold beyond the state).

    Raises
    ------
    ConfigError
        A world size below 1, a stage outside 0..3, a group that does not divide the world, a stage other than
        3 or named terms for a plain number of bytes.

    Notes
    -----
    DeepSpeed's own estimators count bf16 and fp32 gradients and print GiB as GB: ZeRO-2 is 2 P + 18 P / W
    there, which is the recipe ``adam_mixed_two_gradients`` at stage 2. Megatron-LM's 6 + 12 / DP bytes are
    the recipe ``adam_mixed_fp32_gradients`` at stage 1. We follow the paper; the recipe is the caller's.

    Examples
    --------
    >>> from lagsweep.kernels.memory.state import model_state_bytes
    >>> state = model_state_bytes(7_500_000_000)
    >>> [ideal_sharded_memory(state, 64, zero_stage=stage).bytes_per_rank for stage in range(4)]
    [120000000000, 31406250000, 16640625000, 1875000000]
    >>> ideal_sharded_memory(10, [1, 3]).bytes_per_rank
    array([10,  4])
    """
    world = count("world_size", world_size, minimum=1)
    whole_elements = flag("whole_elements", whole_elements)
    stages = _stages(zero_stage)
    if not isinstance(state, ModelState):
        if (
            sharded is not None
            or shard_group_size is not None
            or whole_elements
            or not np.all(np.asarray(stages.numerator) == 3)
        ):
            raise ConfigError(
                "state",
                "must be a model state when anything but the world size is chosen",
                state,
                "Build it with model_state_bytes, which knows the terms.",
            )
        return _shard_total(state, world)
    groups = _group_sizes(world, shard_group_size)
    weights = state.terms["weights"].exact_bytes
    shape = check_shapes(state=weights, world_size=world, zero_stage=stages, **groups)
    named = None if sharded is None else _sharded_names(sharded)
    parts, shares = {}, Exact(0)
    for name, term in state.terms.items():
        cut = stages.numerator >= _FIRST_SHARDED_STAGE[name] if named is None else name in named
        shards = groups[name].where(cut, 1).broadcast(shape)
        rank = _term_shard(term, shards, whole_elements)
        parts[name] = (term.exact_bytes.ceil().broadcast(shape), shards, rank, _element_sizes(term))
        # Every number of shards divides the world, which is the common denominator of all shares.
        shares = shares + term.exact_bytes * world.floor_divide(shards)
    if whole_elements:
        per_rank = sum((rank for _, _, rank, _ in parts.values()), Exact(0))
    else:
        per_rank = shares.ceil_divide(world)
    return _assemble(world, parts, per_rank)


def gathered_layer_bytes(
    largest_layer_parameters: Numbers, parameter_bytes: Numbers = 2, gradient_bytes: Numbers = 2
) -> Integers:
    """Return what a rank holds of the one layer that stage 3 has gathered: its weights and its gradients.

    Parameters
    ----------
    largest_layer_parameters : int or array_like
        Parameters of the largest unit gathered at once (often the embedding or the head).
    parameter_bytes, gradient_bytes : number or array_like
        Bytes per element; 4 together for bf16 (DeepSpeed's ``4 * largest``).

    Returns
    -------
    int or numpy.ndarray
        Bytes, rounded up once.

    Examples
    --------
    >>> gathered_layer_bytes(131_072_000)
    524288000
    """
    largest = count("largest_layer_parameters", largest_layer_parameters)
    weights = amount("parameter_bytes", parameter_bytes)
    gradients = amount("gradient_bytes", gradient_bytes)
    check_shapes(largest_layer_parameters=largest, parameter_bytes=weights, gradient_bytes=gradients)
    return (largest * (weights + gradients)).result("gathered_layer_bytes")
