"""What training keeps per parameter: weights, gradients, optimizer state and the fp32 master copy.

The weights exist for all parameters P, the other three for the trainable ones T only::

    total = P * parameter_bytes + T * (gradient_bytes + optimizer_state_bytes + master_parameter_bytes)

Mixed-precision Adam is 2 + 2 + 8 + 4 = 16 bytes per parameter (Rajbhandari et al. 2020, "ZeRO", section 3.1,
K = 12), 18 with fp32 gradients; :mod:`.memory.recipes` names the usual sets of bytes, and
:mod:`.memory.sharding` cuts a state over ranks.

Not counted: activations (:mod:`.memory.activations`), the KV cache
(:mod:`.memory.kv_cache`), communication buffers, fragmentation and what the libraries keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._arguments import Integers, Numbers
from ..errors import ConfigError
from ._exact import Exact, amount, check_shapes, count
from .recipes import recipe_named

TERMS = ("weights", "gradients", "optimizer", "master")


@dataclass(frozen=True, eq=False)
class StateTerm:
    """One component: pieces of (elements, bytes per element), as exact amounts."""

    name: str
    pieces: tuple[tuple[Exact, Exact], ...]

    @property
    def total_bytes(self) -> Integers:
        """Bytes of this component, rounded up once."""
        return self.exact_bytes.result(self.name)

    @property
    def exact_bytes(self) -> Exact:
        """Bytes of this component, unrounded."""
        return sum((elements * each for elements, each in self.pieces), Exact(0))


@dataclass(frozen=True, eq=False)
class ModelState:
    """Model state in bytes: the four components and their total.

    Adding two states gives the state of both groups of parameters (a quantised base and its bf16 embeddings,
    matrices under Muon and the rest under Adam, a policy and its critic). ``total_bytes`` is rounded up once;
    with fractional bytes the components, each rounded up for itself, may add up to a few bytes more.
    """

    parameters: Integers
    trainable_parameters: Integers
    terms: Mapping[str, StateTerm]

    @property
    def weights_bytes(self) -> Integers:
        """Bytes of the weights that the forward pass uses."""
        return self.terms["weights"].total_bytes

    @property
    def gradients_bytes(self) -> Integers:
        """Bytes of the gradients."""
        return self.terms["gradients"].total_bytes

    @property
    def optimizer_bytes(self) -> Integers:
        """Bytes of the optimizer's moments and scales."""
        return self.terms["optimizer"].total_bytes

    @property
    def master_bytes(self) -> Integers:
        """Bytes of the fp32 master copy."""
        return self.terms["master"].total_bytes

    @property
    def components(self) -> dict[str, Integers]:
        """Bytes by component: weights, gradients, optimizer, master."""
        return {name: term.total_bytes for name, term in self.terms.items()}

    @property
    def total_bytes(self) -> Integers:
        """All bytes, rounded up once."""
        return sum((term.exact_bytes for term in self.terms.values()), Exact(0)).result("total_bytes")

    def __add__(self, other: ModelState) -> ModelState:
        if not isinstance(other, ModelState):
            return NotImplemented
        terms = {name: StateTerm(name, self.terms[name].pieces + other.terms[name].pieces) for name in TERMS}
        parameters = amount("parameters", self.parameters) + amount("parameters", other.parameters)
        trainable = amount("trainable_parameters", self.trainable_parameters) + amount(
            "trainable_parameters", other.trainable_parameters
        )
        return ModelState(parameters.result("parameters"), trainable.result("trainable_parameters"), terms)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}_bytes={value}" for name, value in self.components.items())
        return f"ModelState(total_bytes={self.total_bytes}, {shown})"


def _check_trainable(parameters: Exact, trainable: Exact) -> None:
    more = trainable.numerator > parameters.numerator
    if more.any() if hasattr(more, "any") else more:
        raise ConfigError(
            "trainable_parameters",
            "must not exceed parameters, which count the adapters too",
            trainable.numerator,
            f"Add the adapters to parameters ({parameters.numerator!r}).",
        )


def _check_extra(recipe: str | None, optimizer_extra_bytes: Any) -> None:
    if recipe == "adafactor" and optimizer_extra_bytes is None:
        raise ConfigError(
            "optimizer_extra_bytes",
            "is required with the recipe 'adafactor', whose state depends on tensor shapes",
            None,
            "Give adafactor_state_bytes(shapes).",
        )


def model_state_bytes(
    parameters: Numbers,
    trainable_parameters: Numbers | None = None,
    *,
    recipe: str | None = None,
    parameter_bytes: Numbers | None = None,
    gradient_bytes: Numbers | None = None,
    optimizer_state_bytes: Numbers | None = None,
    master_parameter_bytes: Numbers | None = None,
    frozen_parameter_bytes: Numbers | None = None,
    optimizer_extra_bytes: Numbers | None = None,
) -> ModelState:
    """Add up weights, gradients, optimizer state and master copy.

    ``total = P * parameter_bytes + T * (gradient_bytes + optimizer_state_bytes + master_parameter_bytes)``.

    Parameters
    ----------
    parameters : int or array_like
        All parameters P that lie in memory, adapters included. (The other reading, base parameters alone,
        would need a second count for the adapters' own weights; with this one the argument is what a model's
        ``num_parameters()`` says after the adapters were added.) 0 is allowed and costs nothing.
    trainable_parameters : int or array_like, optional
        Those with gradients, optimizer state and master copy; all when left out, none for inference.
    recipe : str, optional
        A name in :data:`~.memory.recipes.RECIPES`; ``adam_mixed`` (16 bytes) when left out. Bytes
        given below replace the recipe's, one by one.
    parameter_bytes, gradient_bytes : number or array_like, optional
        See below.
    optimizer_state_bytes, master_parameter_bytes : number or array_like, optional
        Bytes per element; fractions such as 0.5 are exact and rounded up once, in the sum.
    frozen_parameter_bytes : number or array_like, optional
        Bytes of a frozen weight where it differs from a trainable one (a quantised base).
    optimizer_extra_bytes : int or array_like, optional
        Optimizer bytes that are not per parameter: what ``adafactor_state_bytes`` finds, or (with
        ``optimizer_state_bytes=0``) ``blockwise_8bit_state_bytes``, both in :mod:`.memory.recipes`.

    Returns
    -------
    ModelState
        ``total_bytes``, ``weights_bytes``, ``gradients_bytes``, ``optimizer_bytes``, ``master_bytes``.

    Raises
    ------
    ConfigError
        Negative, NaN, bool or fractional counts, more trainable than all parameters, shapes that do not
        broadcast, an unknown recipe, ``adafactor`` without its extra bytes, an array sum of 2**63 or more.

    Notes
    -----
    An 8-bit optimizer is charged with its scales by the recipe ``adam_8bit`` (2.03125 bytes per parameter);
    ``optimizer_state_bytes=2`` leaves them out.

    Examples
    --------
    >>> model_state_bytes(7_000_000_000).total_bytes
    112000000000
    >>> model_state_bytes(7_070_000_000, trainable_parameters=70_000_000).total_bytes
    15120000000
    """
    base = recipe_named(recipe)
    _check_extra(recipe, optimizer_extra_bytes)
    given = {
        "parameter_bytes": parameter_bytes,
        "gradient_bytes": gradient_bytes,
        "optimizer_state_bytes": optimizer_state_bytes,
        "master_parameter_bytes": master_parameter_bytes,
        "frozen_parameter_bytes": frozen_parameter_bytes,
    }
    each = {field: getattr(base, field) if value is None else value for field, value in given.items()}
    if each["frozen_parameter_bytes"] is None:
        each["frozen_parameter_bytes"] = each["parameter_bytes"]
    sizes = {field: amount(field, value) for field, value in each.items()}
    total = count("parameters", parameters)
    trainable = total if trainable_parameters is None else count("trainable_parameters", trainable_parameters)
    extra = count("optimizer_extra_bytes", 0 if optimizer_extra_bytes is None else optimizer_extra_bytes)
    shape = check_shapes(
        parameters=total, trainable_parameters=trainable, optimizer_extra_bytes=extra, **sizes
    )
    _check_trainable(total, trainable)
    total, trainable, extra = (value.broadcast(shape) for value in (total, trainable, extra))
    pieces = {
        "weights": (
            (trainable, sizes["parameter_bytes"]),
            (total - trainable, sizes["frozen_parameter_bytes"]),
        ),
        "gradients": ((trainable, sizes["gradient_bytes"]),),
        "optimizer": ((trainable, sizes["optimizer_state_bytes"]), (extra, Exact(1))),
        "master": ((trainable, sizes["master_parameter_bytes"]),),
    }
    terms = {name: StateTerm(name, parts) for name, parts in pieces.items()}
    state = ModelState(total.result("parameters"), trainable.result("trainable_parameters"), terms)
    state.total_bytes  # refuse here what int64 cannot hold, not at the first look  # noqa: B018
    return state
