"""What the experiments share: rows of four kinds, calibrated numbers, means over runs, an engine's speeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from lagsweep.sweeps.config.config import PipelineConfig
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config
from lagsweep.sweeps.runs.many import general_batch

SEEDS = 2


WIDTH = 0.10  # what one input may move a prediction by, from end to end, before the row is a range


@dataclass(frozen=True)
class Row:
    """One published number beside what its inputs say of it.

    Attributes
    ----------
    name, quantity, unit : str
    measured : float
    kind : str
        ``"prediction"``: the inputs fix it. ``"split"``: with the row's own times of training put in.
        ``"bound"``: nothing could be less. ``"range"``: the inputs leave an interval. Only a prediction and a
        split have an error, only predictions enter a median.
    predicted : float, optional
        The number, of a range its middle; none where the inputs leave even that open.
    low, high : float, optional
        What the ends of the inputs leave.
    uses : tuple of str
        The rows whose measurements went into the prediction; never this one.
    identified : str
        What fixes the row, or what is missing.
    why : str
        Where the model is off: the reason as far as it is known.
    """

    name: str
    quantity: str
    unit: str
    predicted: float | None
    measured: float
    uses: tuple[str, ...] = ()
    kind: str = "prediction"
    low: float | None = None
    high: float | None = None
    identified: str = ""
    why: str = ""

    @property
    def is_share(self) -> bool:
        """Whether it is a share of something, whose error counts in points."""
        return self.unit == "share"

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1; of a share the difference; of a bound or a range none."""
        if self.kind in ("bound", "range") or self.predicted is None:
            return None
        return self.predicted - self.measured if self.is_share else self.predicted / self.measured - 1.0

    @property
    def holds(self) -> bool | None:
        """Whether the measurement lies inside the range or not below the bound; of other rows none."""
        if self.error is not None:
            return None
        above = self.low is None or self.measured >= self.low
        return above and (self.high is None or self.measured <= self.high)


@dataclass(frozen=True)
class Verdict:
    """Whether asynchronous beats synchronous, by what the inputs leave and by the measurement.

    Attributes
    ----------
    name : str
    synchronous : float
        The measured synchronous run on as many GPUs.
    low, high : float
        What the inputs leave of the asynchronous run.
    measured : float
        The asynchronous run.
    """

    name: str
    synchronous: float
    low: float
    high: float
    measured: float

    @property
    def predicted(self) -> str:
        """``"yes"``, ``"no"``, or ``"open"`` where the inputs leave both."""
        if self.high < self.synchronous:
            return "yes"
        return "no" if self.low > self.synchronous else "open"

    @property
    def observed(self) -> str:
        """What the two measurements say."""
        return "yes" if self.measured < self.synchronous else "no"


@dataclass(frozen=True)
class Ends:
    """A prediction in the middle of its inputs, and with each input in turn at its two ends."""

    middle: float
    by_input: dict[str, tuple[float, float]]

    @property
    def low(self) -> float:
        """The least of all."""
        return min([self.middle, *(min(pair) for pair in self.by_input.values())])

    @property
    def high(self) -> float:
        """The greatest of all."""
        return max([self.middle, *(max(pair) for pair in self.by_input.values())])

    @property
    def open_inputs(self) -> list[str]:
        """The inputs that alone move it by more than a tenth of its middle."""
        return [name for name, ends in self.by_input.items() if abs(ends[1] - ends[0]) > WIDTH * self.middle]

    @property
    def kind(self) -> str:
        """A prediction, or a range if some input leaves it open."""
        return "range" if self.open_inputs else "prediction"


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
    verdicts: list[Verdict] = field(default_factory=list)
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


def division(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit ``seconds = c + d / GPUs`` to pairs of GPUs and seconds by least squares; gives c and d."""
    gpus, seconds = np.array(points, float).T
    c, d = np.linalg.lstsq(np.stack([np.ones_like(gpus), 1.0 / gpus], axis=1), seconds, rcond=None)[0]
    return float(c), float(d)


def one_batch_ahead(generation: float, training: float) -> float:
    """Simulate rounds of two phases without a spread, generation one batch ahead; gives seconds a round."""
    config = preset_config(
        "nemo_rl_legacy",
        batch_groups=4,
        group_size=1,
        rollout_workers=4,
        response_length=LengthLaw.fixed(1000),
        decode_tokens_per_second=1000 / generation,
        rollout_overhead_seconds=0.0,
        train_overhead_seconds=training,
        train_tokens_per_second=1e12,
        sync_seconds=0.0,
        duration_seconds=40 * (generation + training),
        warmup_seconds=10 * (generation + training),
    )
    return seconds_per_update(config)


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
