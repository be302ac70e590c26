"""One cell of a plan: the settings chosen, and each reason against it with its amount."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .question import COLOCATED


@dataclass(frozen=True)
class Reason:
    """Why a cell cannot be, and by how much.

    Attributes
    ----------
    kind : str
        engine_memory, cache, trainer_memory, divide, node, lag_limit, cap, same or rules.
    text : str
    amount : float
        How much is missing, in its unit.
    unit : str
    """

    kind: str
    text: str
    amount: float
    unit: str


@dataclass(frozen=True)
class Cell:
    """One setting of everything that a plan chooses.

    Attributes
    ----------
    rollout_gpus, train_gpus, tensor_parallel, engines : int
    rules : str
        ``colocated`` or a system's label.
    cap : int
        Most rollouts that an engine decodes at once.
    cadence : int
        Updates between publications.
    reasons : tuple of Reason
        Empty where the cell is feasible.
    point : mapping
        The values of the sweep's axes; empty where it is not.
    """

    rollout_gpus: int
    train_gpus: int
    tensor_parallel: int
    engines: int
    rules: str
    cap: int
    cadence: int
    reasons: tuple[Reason, ...] = ()
    point: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_feasible(self) -> bool:
        """Whether nothing stands against it."""
        return not self.reasons

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from the other cells of its plan."""
        return self.rollout_gpus, self.tensor_parallel, self.rules, self.cap, self.cadence

    @property
    def is_colocated(self) -> bool:
        """Whether engines and trainer share all GPUs."""
        return self.rules == COLOCATED
