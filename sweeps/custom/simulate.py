"""One run with rules of the user's own, in full detail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...kernels._arguments import instance
from ..checks import flag_of
from ..config.config import PipelineConfig
from .custom import Custom, CustomIdentity
from .rules import AdmissionRule, LengthProcess, RunMetric

if TYPE_CHECKING:
    from ..runs.result import PipelineResult


def simulate_custom(
    config: PipelineConfig,
    admission: AdmissionRule | Callable[..., Any] | None = None,
    length: LengthProcess | Callable[..., Any] | None = None,
    metrics: Sequence[RunMetric] = (),
    *,
    rollouts: bool = False,
) -> PipelineResult:
    """Simulate one run in which rules of the user's own decide.

    With nothing custom the result equals :func:`lagsweep.simulate_pipeline`'s, and has all metrics of
    groups and rules besides.

    Parameters
    ----------
    config : PipelineConfig
        Of any level, with any option.
    admission : AdmissionRule or function, optional
        Asked beside the limits and caps of the configuration.
    length : LengthProcess or function, optional
        Gives the tokens of each rollout in place of the law.
    metrics : sequence of RunMetric
        Computed at the end, each an attribute of the result.
    rollouts : bool
        Also keep one row per rollout.

    Returns
    -------
    PipelineResult

    Raises
    ------
    ConfigError
        If a rule is not what it must be, or gives what it must not.

    Examples
    --------
    >>> config = PipelineConfig(max_queue_tokens=None, duration_seconds=60)
    >>> run = simulate_custom(config, admission=lambda state: state.queued_tokens < 5000)
    >>> run.updates == simulate_custom(config.replace(max_queue_tokens=5000)).updates
    True
    """
    instance("config", config, PipelineConfig, "Build one, as PipelineConfig(max_policy_lag=4).")
    rollouts = flag_of("rollouts", rollouts)
    return _simulate(Custom(admission, length, metrics), config, rollouts)  # type: ignore[arg-type]


def simulate_known(
    custom: CustomIdentity, config: PipelineConfig, *, rollouts: bool = False
) -> PipelineResult:
    """Simulate one run with the rules that a spec names, if they were given in this process.

    Raises
    ------
    ConfigError
        If they were not.
    """
    return _simulate(custom.code(), config, rollouts)


def _simulate(custom: Custom, config: PipelineConfig, rollouts: bool) -> PipelineResult:
    from .run import CustomRun

    read = any("rollouts" in metric.tables for metric in custom.metrics)
    run = CustomRun(config, custom, batches=True, timeline=True, rollouts=rollouts or read)
    run.advance()
    return run.result()
