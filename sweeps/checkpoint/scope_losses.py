"""What a failure of the trainer costs with each scope of checkpoints: runs of a configuration at many seeds.

The same seeds fail at the same moments with both scopes, so that what sets them apart is paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.intervals import mean_interval
from ..config.config import PipelineConfig
from ..runs.diagnosis import phase_bounds, too_short_for_an_update
from ..runs.simulate import simulate_pipeline

SCOPES: tuple[Literal["full", "weights_only"], ...] = ("full", "weights_only")
LOST = ("lost_updates", "lost_tokens", "repeated_prompts")
FAILURES_OF_A_RUN = 8  # where no failure rate or no horizon is given
UPDATES = 10  # … and no cadence
_MOST_ROLLOUTS = 1_000_000  # of a run whose horizon is chosen here
_LONGEST_SECONDS = 5e5  # … with a decode slowdown, which allows no longer one
Interval = tuple[float, float]


@dataclass(frozen=True)
class ScopeLoss:
    """What failures cost with one scope.

    Attributes
    ----------
    scope : {"full", "weights_only"}
    failures : int
        In all runs.
    per_failure : mapping
        ``lost_updates``, ``lost_tokens`` and ``repeated_prompts`` for each failure: mean over the runs in
        which the trainer failed, and the half width of its interval.
    trained_tokens_per_second, goodput_fraction : (mean, half_width)
    against_full : (mean, half_width)
        Trained tokens/s over those of full checkpoints, less 1, paired by seed.
    """

    scope: str
    failures: int
    per_failure: Mapping[str, Interval]
    trained_tokens_per_second: Interval
    goodput_fraction: Interval
    against_full: Interval


def failing(
    config: PipelineConfig,
    trainer_mtbf_seconds: float | None = None,
    checkpoint_every_updates: int | None = None,
    **others: Any,
) -> tuple[PipelineConfig, tuple[str, ...]]:
    """Return a configuration that fails and saves, and the names of what had to be assumed.

    Parameters
    ----------
    config : PipelineConfig
    trainer_mtbf_seconds, checkpoint_every_updates : float and int, optional
        In the place of the configuration's own; where neither is there, so that a run has some eight
        failures, and every ten updates.
    **others
        ``duration_seconds``, ``restart_seconds`` and ``checkpoint_seconds``, likewise. A horizon that is said
        nowhere has some eight failures and many updates.

    Examples
    --------
    >>> config, assumed = failing(PipelineConfig(), 3600)
    >>> config.duration_seconds, assumed
    (28800.0, ('checkpoint_every_updates', 'duration_seconds'))
    """
    mtbf = trainer_mtbf_seconds or config.trainer_mtbf_seconds
    every = checkpoint_every_updates or config.checkpoint_every_updates
    said = {*others, *config.model_fields_set}
    duration = others.pop("duration_seconds", config.duration_seconds)
    if "duration_seconds" not in said:
        duration = config.warmup_seconds + _horizon(config, mtbf or 0.0)
    found = config.replace(
        trainer_mtbf_seconds=mtbf or (duration - config.warmup_seconds) / FAILURES_OF_A_RUN,
        checkpoint_every_updates=every or UPDATES,
        duration_seconds=duration,
        **others,
    )
    assumed = {
        "trainer_mtbf_seconds": mtbf is None,
        "checkpoint_every_updates": every is None,
        "duration_seconds": "duration_seconds" not in said,
    }
    return found, tuple(name for name, chosen in assumed.items() if chosen)


def _horizon(config: PipelineConfig, mtbf: float) -> float:
    """Choose how long a run is measured: some failures, a few checkpoints between them, and not for hours."""
    bounds = phase_bounds(config)
    made = bounds.generation_seconds if math.isfinite(bounds.generation_seconds) else 0.0
    between = max(mtbf, 2 * UPDATES * (made + bounds.training_seconds))
    rollout = max(config.rollout_overhead_seconds + config.lone_decode_seconds, 1e-6)
    most = _MOST_ROLLOUTS * rollout / config.rollout_workers
    if config.decode_slowdown_per_rollout > 0:
        most = min(most, _LONGEST_SECONDS)
    return float(f"{min(FAILURES_OF_A_RUN * between, most):.6g}")


def scope_losses(config: PipelineConfig, seeds: int, confidence: float = 0.95) -> tuple[ScopeLoss, ...]:
    """Run a configuration with each scope.

    Parameters
    ----------
    config : PipelineConfig
        With failures of the trainer and checkpoints: :func:`failing`.
    seeds : int
        From 0 on.
    confidence : float

    Returns
    -------
    tuple of ScopeLoss
        Full first.

    Raises
    ------
    ConfigError
        Where the trainer did not fail in any run, or nothing was trained.

    Examples
    --------
    >>> config = PipelineConfig(duration_seconds=600, restart_seconds=20, trainer_mtbf_seconds=150)
    >>> full, weights_only = scope_losses(failing(config)[0], 3)
    >>> full.failures == weights_only.failures, full.against_full[0]
    (True, 0.0)
    """
    runs = {scope: _runs(config.replace(checkpoint_scope=scope), seeds) for scope in SCOPES}
    if not runs["full"]["failures"].any():
        rule = "must let the trainer fail in some run"
        way_out = "Give a shorter --trainer-mtbf-seconds, a longer --duration-seconds or more --seeds."
        raise ConfigError("trainer_mtbf_seconds", rule, config.trainer_mtbf_seconds, way_out)
    whole = runs["full"]["trained_tokens_per_second"]
    if not whole.any():
        raise ConfigError(*_why_nothing_is_trained(config))
    return tuple(_loss(scope, own, whole, confidence) for scope, own in runs.items())


def _why_nothing_is_trained(config: PipelineConfig) -> tuple[str, str, Any, str]:
    short = too_short_for_an_update(config)
    if short:
        rule = f"must be long enough to train: {short}"
        return "duration_seconds", rule, config.duration_seconds, "Give a longer --duration-seconds."
    way_out = "Give a longer --trainer-mtbf-seconds, or a smaller --checkpoint-every-updates."
    rule = "must let the trainer finish updates between failures, and keep them"
    return "trainer_mtbf_seconds", rule, config.trainer_mtbf_seconds, way_out


def _runs(config: PipelineConfig, seeds: int) -> dict[str, np.ndarray]:
    """Return metrics by name, each float64 (seeds,), with the failures that came in the measured time."""
    names = (*LOST, "trained_tokens_per_second", "goodput_fraction")
    rows: dict[str, list[float]] = {name: [] for name in ("failures", *names)}
    for seed in range(seeds):
        result = simulate_pipeline(config.replace(seed=seed))
        for name in names:
            rows[name].append(float(result.metrics[name]))
        timeline = result._columns["timeline"]  # as rows, those of a long run would take a gigabyte
        came = timeline["time"][timeline["event"] == "failure"]
        rows["failures"].append(int((came >= config.warmup_seconds).sum()))
    return {name: np.array(values) for name, values in rows.items()}


def _loss(scope: str, runs: Mapping[str, np.ndarray], whole: np.ndarray, confidence: float) -> ScopeLoss:
    failures = runs["failures"]
    nothing = np.full(len(failures), np.nan)

    def over(part: np.ndarray, by: np.ndarray) -> np.ndarray:
        divided: np.ndarray = np.divide(part, by, out=nothing.copy(), where=by > 0)
        return divided

    speed = runs["trained_tokens_per_second"]
    return ScopeLoss(
        scope=scope,
        failures=int(failures.sum()),
        per_failure={name: _interval(over(runs[name], failures), confidence) for name in LOST},
        trained_tokens_per_second=_interval(speed, confidence),
        goodput_fraction=_interval(runs["goodput_fraction"], confidence),
        against_full=_interval(over(speed - whole, whole), confidence),
    )


def _interval(values: np.ndarray, confidence: float) -> Interval:
    mean, half = mean_interval(values, confidence)
    return float(mean), float(half)


def loss_facts(one: ScopeLoss) -> dict[str, Any]:
    """Return what one scope costs as plain data for JSON."""
    figures = {
        **{f"{name}_per_failure": value for name, value in one.per_failure.items()},
        "trained_tokens_per_second": one.trained_tokens_per_second,
        "goodput_fraction": one.goodput_fraction,
        "against_full": one.against_full,
    }
    found: dict[str, Any] = {"scope": one.scope, "failures": one.failures}
    for name, (mean, half) in figures.items():
        found[name], found[f"{name}_half_width"] = mean, half
    return found
