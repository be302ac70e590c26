"""One run in full detail: every batch, every event, every rollout, and every metric as an attribute.

:func:`simulate_pipeline` runs to the end. :func:`start_run`, :func:`advance_run` and :func:`finish_run` stop
anywhere, save the state as plain arrays, and go on bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance
from ..checks import RealNumber, checked, flag_of
from ..config.config import PipelineConfig
from .result import PipelineResult

if TYPE_CHECKING:
    from .run import Run


def simulate_pipeline(config: PipelineConfig, *, rollouts: bool = False) -> PipelineResult:
    """Simulate one run in full detail.

    Parameters
    ----------
    config : PipelineConfig
    rollouts : bool
        Also keep one row per rollout.

    Returns
    -------
    PipelineResult

    Examples
    --------
    >>> from lagsweep.sweeps.laws.lengths import LengthLaw
    >>> config = PipelineConfig(response_length=LengthLaw.fixed(100), rollout_workers=2,
    ...                         decode_tokens_per_second=100, rollout_overhead_seconds=0,
    ...                         batch_tokens=200, max_queue_tokens=300, train_tokens_per_second=200,
    ...                         sync_seconds=0.5, max_policy_lag=1, duration_seconds=8)
    >>> result = simulate_pipeline(config)
    >>> result.updates, result.discarded_rollouts, result.backpressure_seconds
    (3, 4, 1.0)
    """
    run = start_run(config, rollouts=rollouts)
    advance_run(run)
    return finish_run(run)


def start_run(config: PipelineConfig, *, rollouts: bool = False) -> Run:
    """Put a run of any level at time 0; it can stop anywhere, be saved, and go on.

    Examples
    --------
    >>> run = start_run(PipelineConfig(publication="pause", duration_seconds=30))
    >>> advance_run(run, until_seconds=10), advance_run(run)
    (False, True)
    >>> finish_run(run).updates
    2
    """
    instance("config", config, PipelineConfig, "Build one, as PipelineConfig(max_policy_lag=4).")
    rollouts = flag_of("rollouts", rollouts)
    from .general import GeneralRun
    from .lean import LeanRun

    loop = LeanRun if config.is_level_1 else GeneralRun
    return loop(config, batches=True, timeline=True, rollouts=rollouts)


def advance_run(run: Run, until_seconds: float | None = None) -> bool:
    """Let every event up to a time happen (none: up to the end) and nothing else.

    Returns
    -------
    bool
        Whether the run has come to its end.
    """
    from .run import Run

    instance("run", run, Run, "Give what start_run returns.")
    if until_seconds is not None:
        until_seconds = checked(RealNumber, "until_seconds", until_seconds, low=0)
    return run.advance(until_seconds)


def finish_run(run: Run) -> PipelineResult:
    """Close a run that was advanced to its end and give what it reports."""
    from .run import Run

    return instance("run", run, Run, "Give what start_run returns.").result()


def result_row(result: PipelineResult) -> dict[str, Any]:
    """Return a result as one flat row: the settings that matter most, then every metric.

    Examples
    --------
    >>> row = result_row(simulate_pipeline(PipelineConfig(duration_seconds=10)))
    >>> row["mode"], row["updates"] >= 0
    ('bounded_async', True)
    """
    config = instance("result", result, PipelineResult, "Give what simulate_pipeline returns.").config
    shown = ("mode", "seed", "max_queue_tokens", "max_policy_lag", "sync_every_updates")
    return {name: getattr(config, name) for name in shown} | dict(result.metrics)
