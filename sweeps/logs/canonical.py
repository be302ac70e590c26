"""The columns that a step log is turned into: names, units and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...kernels.errors import ConfigError, nearest

SECOND_UNITS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nanoseconds": 1e-9, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0,
}  # fmt: skip
SHARE_UNITS = {"share": 1.0, "1": 1.0, "%": 0.01, "percent": 0.01}
COUNT_UNITS = {"1": 1.0, "k": 1e3, "m": 1e6}


@dataclass(frozen=True)
class Canonical:
    """One column of a step log's frame: its unit and what it holds."""

    name: str
    unit: str
    words: str

    @property
    def is_time(self) -> bool:
        """Tell whether it is in seconds."""
        return self.unit == "s"

    @property
    def units(self) -> dict[str, float]:
        """Return the units that a column may come in, and the factor of each."""
        if self.is_time:
            return SECOND_UNITS
        return SHARE_UNITS if self.unit == "share" else COUNT_UNITS


_COLUMNS = (
    Canonical("step_seconds", "s", "the whole step"),
    Canonical("wait_seconds", "s", "the trainer waits for rollouts"),
    Canonical("generation_seconds", "s", "generation of a step that holds it, or of the rollouts' own side"),
    Canonical("training_seconds", "s", "the policy's update"),
    Canonical("log_probability_seconds", "s", "log-probabilities of the old policy"),
    Canonical("reference_seconds", "s", "log-probabilities of the reference"),
    Canonical("value_seconds", "s", "the critic's values"),
    Canonical("critic_seconds", "s", "the critic's update"),
    Canonical("preparation_seconds", "s", "batches, rewards and advantages made ready"),
    Canonical("publication_seconds", "s", "new weights on their way to the engines"),
    Canonical("evaluation_seconds", "s", "an evaluation"),
    Canonical("checkpoint_seconds", "s", "a checkpoint"),
    Canonical("rollouts", "rollouts", "rollouts trained in the step"),
    Canonical("trained_tokens", "tokens", "tokens trained in the step, prompts too where they are counted"),
    Canonical("response_tokens_mean", "tokens", "mean length of responses"),
    Canonical("response_tokens_max", "tokens", "longest response"),
    Canonical("prompt_tokens_mean", "tokens", "mean length of prompts"),
    Canonical("lag_mean", "versions", "mean lag of what is trained"),
    Canonical("lag_max", "versions", "largest lag of what is trained"),
    Canonical("dropped_rollouts", "rollouts", "rollouts dropped as too old"),
    Canonical("clipped_fraction", "share", "responses cut at the limit"),
)
COLUMNS: Mapping[str, Canonical] = {one.name: one for one in _COLUMNS}
PLACES = ("run", "segment", "step")
SECONDS = tuple(one.name for one in _COLUMNS if one.is_time)
# What a whole step is made of where its phases follow each other.
NOW_AND_THEN = ("evaluation_seconds", "checkpoint_seconds")
PHASES = tuple(name for name in SECONDS if name not in ("step_seconds", *NOW_AND_THEN))
MAY_BE_NEGATIVE = ("lag_mean", "lag_max")


def unit_factor(name: str, unit: str) -> float:
    """Return what a column in some unit is multiplied with.

    Raises
    ------
    ConfigError
        For a unit that the column cannot have.

    Examples
    --------
    >>> unit_factor("wait_seconds", "ms"), unit_factor("clipped_fraction", "%")
    (0.001, 0.01)
    """
    known = COLUMNS[name].units
    if unit.lower() not in known:
        way_out = nearest(unit, known) or "Choose one."
        raise ConfigError(f"unit of {name}", f"must be one of {', '.join(known)}", unit, way_out)
    return known[unit.lower()]
