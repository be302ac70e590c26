"""How often the best setting of a plan saves, where its trainer fails: the exact optimum, and its goodput.

The seconds of a checkpoint are measured, or what training keeps of a model over the rate of the storage:
parameters, moments and master copy by the ledger's recipe, gradients left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...kernels.errors import NO_VALUE, ConfigError
from ...kernels.memory.parameters import parameter_count
from ...kernels.memory.recipes import recipe_named
from ...kernels.memory.shapes import ModelShape
from ...kernels.recovery.cost import expected_overhead_fraction
from ...kernels.recovery.interval import optimal_checkpoint_interval
from ..checks import RealNumber, checked
from .trainer_law import RECIPE

if TYPE_CHECKING:
    from .question import Question

RESTART_SECONDS = 300.0
_LONGEST = 1e9


@dataclass(frozen=True)
class TrainerFailures:
    """What a plan is told of its trainer's failures.

    Attributes
    ----------
    mtbf_seconds, restart_seconds, checkpoint_seconds : float
    checkpoint_bytes : float or None
        None where the seconds were given.
    """

    mtbf_seconds: float
    restart_seconds: float
    checkpoint_seconds: float
    checkpoint_bytes: float | None = None


@dataclass(frozen=True)
class PlanCheckpoints:
    """How often to save at the best setting.

    Attributes
    ----------
    every_updates : int
        The whole number with the least overhead, next to the exact optimum.
    young_seconds, exact_seconds : float
        Intervals of work between two checkpoints.
    goodput_fraction : float
        Useful time over all, for a trainer that never waits for data.
    effective_tokens_per_second : float
        Of the best setting, times the goodput.
    """

    every_updates: int
    young_seconds: float
    exact_seconds: float
    goodput_fraction: float
    effective_tokens_per_second: float


def checkpoint_bytes(shape: ModelShape) -> float:
    """Return the bytes of a training checkpoint: all that stays between two steps, gradients left out.

    Examples
    --------
    >>> from lagsweep.sweeps.memory.models import load_model
    >>> round(checkpoint_bytes(load_model("Llama-3.1-8B").shape) / 1e9, 1)
    112.4
    """
    recipe = recipe_named(RECIPE)
    kept = recipe.parameter_bytes + recipe.optimizer_state_bytes + recipe.master_parameter_bytes
    return float(parameter_count(shape).total * kept)


def checked_failures(
    shape: ModelShape,
    trainer_mtbf_seconds: float | None,
    restart_seconds: float | None,
    checkpoint_seconds: float | None,
    storage_bytes_per_second: float | None,
) -> TrainerFailures | None:
    """Check what is said of failures; None where the trainer does not fail.

    Raises
    ------
    ConfigError
        For a number out of range, a cost without failures, or failures without the seconds of a checkpoint.
    """
    given = {
        "trainer_mtbf_seconds": trainer_mtbf_seconds,
        "restart_seconds": restart_seconds,
        "checkpoint_seconds": checkpoint_seconds,
        "storage_bytes_per_second": storage_bytes_per_second,
    }
    for name, value in given.items():
        if value is not None:
            low = {"low": 0} if name == "restart_seconds" else {"low": 1e-6}
            checked(RealNumber, name, value, high=1e18, **low)
            if trainer_mtbf_seconds is None:
                raise ConfigError(
                    name, "needs trainer_mtbf_seconds", value, "Say how often the trainer fails, too."
                )
    if trainer_mtbf_seconds is None:
        return None
    restart = RESTART_SECONDS if restart_seconds is None else restart_seconds
    if (checkpoint_seconds is None) == (storage_bytes_per_second is None):
        rule = "must be given, or the storage's rate, and not both"
        said: Any = NO_VALUE if checkpoint_seconds is None else checkpoint_seconds
        raise ConfigError("checkpoint_seconds", rule, said, "A measured one is best.")
    if checkpoint_seconds is not None:
        return TrainerFailures(float(trainer_mtbf_seconds), float(restart), float(checkpoint_seconds))
    assert storage_bytes_per_second is not None
    size = checkpoint_bytes(shape)
    seconds = float(f"{size / storage_bytes_per_second:.6g}")
    return TrainerFailures(float(trainer_mtbf_seconds), float(restart), seconds, size)


def checkpoints_of(failures: TrainerFailures, step_seconds: float, effective: float) -> PlanCheckpoints:
    """Choose how many updates lie between two checkpoints.

    Parameters
    ----------
    failures : TrainerFailures
    step_seconds, effective : float
        Seconds per update and effective tokens/s of the setting without failures.

    Examples
    --------
    >>> found = checkpoints_of(TrainerFailures(36_000.0, 300.0, 180.0), 200.0, 1000.0)
    >>> found.every_updates, round(found.goodput_fraction, 3)
    (17, 0.896)
    """
    costs = failures.checkpoint_seconds, failures.mtbf_seconds
    exact = float(optimal_checkpoint_interval(*costs, method="exact"))

    def overhead(every: int) -> float:
        found = expected_overhead_fraction(
            every * step_seconds, *costs, restart_seconds=failures.restart_seconds
        )
        return float(found)

    below = max(1, int(min(exact / step_seconds, _LONGEST)))
    every = min((below, below + 1), key=overhead)
    goodput = 1 / (1 + overhead(every))
    young = float(optimal_checkpoint_interval(*costs))
    return PlanCheckpoints(every, young, exact, goodput, goodput * effective)


def checkpoints_said(question: Question, found: PlanCheckpoints) -> list[str]:
    """Say how often to save, and what that rests on."""
    failures = question.failures
    assert failures is not None
    size = failures.checkpoint_bytes
    source = "as given" if size is None else f"{size / 1e9:,.0f} GB by the ledger over the storage's rate"
    plural = "update" if found.every_updates == 1 else f"{found.every_updates} updates"
    return [
        f"Checkpoints: every {plural}, goodput {found.goodput_fraction:.1%}, "
        f"{found.effective_tokens_per_second:,.0f} effective tokens/s survive. A failure every "
        f"{failures.mtbf_seconds / 3600:,.3g} h, a restart of {failures.restart_seconds:,.4g} s, a "
        f"checkpoint of {failures.checkpoint_seconds:,.4g} s ({source}); the exact optimum is "
        f"{found.exact_seconds:,.0f} s of work, Young's rule {found.young_seconds:,.0f} s. It takes a "
        "trainer that never waits; all other figures of this plan are without failures."
    ]


def checkpoint_facts(question: Question, found: PlanCheckpoints) -> dict[str, Any]:
    """Return it as plain data for JSON."""
    assert question.failures is not None
    given = {f"trainer_{name}" if name == "mtbf_seconds" else name: value
             for name, value in asdict(question.failures).items()}  # fmt: skip
    return {**given, **asdict(found)}
