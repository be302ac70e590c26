"""What the experiments share: rows, calibrated numbers, means over a few runs, an engine's speeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.runs.many import general_batch

SEEDS = 2


@dataclass(frozen=True)
class Row:
    """One predicted number beside its measurement.

    Attributes
    ----------
    name, quantity, unit : str
    predicted, measured : float
    uses : tuple of str
        The rows whose measurements went into the prediction; never this one.
    why : str
        Where the model is off: the reason as far as it is known.
    note : str
        Something to stand beside the numbers.
    bound : str
        ``"at least"`` where the prediction is the best that any arrangement could reach.
    """

    name: str
    quantity: str
    unit: str
    predicted: float
    measured: float
    uses: tuple[str, ...] = ()
    why: str = ""
    bound: str = ""
    note: str = ""

    @property
    def is_share(self) -> bool:
        """Whether it is a share of something, whose error counts in points."""
        return self.unit == "share"

    @property
    def error(self) -> float:
        """Predicted over measured, less 1; of a share the difference."""
        return self.predicted - self.measured if self.is_share else self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Calibrated:
    """A physical input that was taken from measurements, and from which rows."""

    name: str
    value: float
    unit: str
    source: str


@dataclass
class Family:
    """One published experiment."""

    title: str
    source: str
    setting: str
    model: str
    rows: list[Row] = field(default_factory=list)
    calibrated: list[Calibrated] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def means_over_seeds(
    config: PipelineConfig, measures: dict[str, Callable[[dict[str, Any]], float]], seeds: int = SEEDS
) -> dict[str, float]:
    """Average what each measure makes of a run's metrics over seeds 0, 1, …"""
    metrics = general_batch([config], np.arange(seeds, dtype=np.uint64)).metrics
    runs = [{name: values[0, seed] for name, values in metrics.items()} for seed in range(seeds)]
    return {name: float(np.mean([measure(run) for run in runs])) for name, measure in measures.items()}


def seconds_per_update(config: PipelineConfig) -> float:
    """Average the seconds per update over seeds."""
    return means_over_seeds(config, {"step": lambda run: run["seconds_per_update"]})["step"]


def expected_longest(law: LengthLaw, rollouts: int) -> float:
    """Return the mean of the longest of so many rollouts, in tokens."""
    return float(law.maximum - np.sum(law.cdf[:-1] ** rollouts))


def engine_speeds(
    tail_tokens: float, mean_tokens: float, rollouts: int, tail_seconds: float, work_seconds: float
) -> tuple[float, float]:
    """Return the speed of a rollout alone, and the slowdown by each other one.

    A batch that starts at once takes ``longest / speed + slowdown * all tokens / speed``: the time of its
    longest rollout alone, and the work of all of them, which more GPUs divide.
    """
    speed = tail_tokens / tail_seconds
    return speed, work_seconds * speed / (rollouts * mean_tokens)


def capped_lognormal(sigma: float, rollouts: int, maximum: int, *, prompt_sigma: float = 0.0) -> LengthLaw:
    """Return a lognormal law whose longest of so many rollouts just reaches the cap.

    With a spread between prompts it is the law of one prompt, to be multiplied by the prompt's factor of
    mean 1.
    """
    total = float(np.hypot(sigma, prompt_sigma))
    longest = total * float(ndtri(1.0 - 1.0 / rollouts)) - prompt_sigma**2 / 2
    return LengthLaw.lognormal(
        median=maximum / float(np.exp(longest)), sigma=sigma, minimum=1, maximum=maximum
    )


def spread_between_and_within(law: LengthLaw) -> tuple[float, float]:
    """Split the spread of log lengths of a law with groups into that between prompts and that within one."""
    starts, tokens = law.group_starts, np.log(np.asarray(law.group_tokens, float))
    groups: Sequence[np.ndarray] = [tokens[a:b] for a, b in itertools.pairwise(starts)]
    within = float(np.mean([group.var(ddof=1) for group in groups]))
    noise = float(np.mean([group.var(ddof=1) / len(group) for group in groups]))
    between = float(np.var([group.mean() for group in groups], ddof=1)) - noise
    return between**0.5, within**0.5
