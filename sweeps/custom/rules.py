"""What a user's own rule is: a class with one method, told what a run knows at that moment.

A rule may keep what it likes in itself. Each run works on a copy of its own, made before time 0, so results
do not depend on the order of runs or on the number of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...kernels._arguments import one_whole

if TYPE_CHECKING:
    from ..config.config import PipelineConfig
    from ..runs.result import PipelineResult

CUSTOM_STREAM = 16  # key word of the draws that are free for rules
TABLES = ("batches", "timeline", "rollouts")


class AdmissionState(NamedTuple):
    """What an admission rule is told: the run at the moment at which a group could start.

    Attributes
    ----------
    groups : int
        How many groups would be admitted at once: one, or a whole batch with ``admit = "batch"``.
    version, published : int
        The trainer's version, and the one that a rollout would start with.
    publications : int
        Completed so far.
    started_groups : int
        Admitted and not dropped: running, queued, taken by the trainer, or trained.
    running_groups, queued_groups, queued_tokens : int
    in_flight_rollouts, in_flight_tokens : int
    popped_batches, popped_groups, trained_batches : int
        Taken by the trainer, and trained, so far.
    seconds : float
        Simulated time.
    """

    groups: int
    version: int
    published: int
    publications: int
    started_groups: int
    running_groups: int
    queued_groups: int
    queued_tokens: int
    in_flight_rollouts: int
    in_flight_tokens: int
    popped_batches: int
    popped_groups: int
    trained_batches: int
    seconds: float


class RolloutStart(NamedTuple):
    """What a length process is told: one rollout that starts now.

    Attributes
    ----------
    number : int
        Of the rollout, in the order of starts; its draws depend on seed and number alone.
    group : int
        Of its prompt.
    member : int
        Its place in the group, from 0.
    law_tokens : int
        The length that the configuration's own law gives for these draws.
    version, published : int
        The trainer's version, and the one that it starts with.
    seconds : float
        Simulated time.
    uniform : float
        The draw in [0, 1) that the law reads: the same in every configuration of a seed.
    """

    number: int
    group: int
    member: int
    law_tokens: int
    version: int
    published: int
    seconds: float
    uniform: float


class _Rule:
    version: ClassVar[str | None] = None  # in place of the source's digest

    def begin(self, config: PipelineConfig, seed: int) -> None:
        """Prepare for one run, before time 0; nothing by default."""


class AdmissionRule(_Rule):
    """Say when a group may start, beside the settings of the configuration.

    It is asked at time 0 and after each event, while a slot is idle and every limit, cap and gate of the
    configuration is open; never with ``mode="sequential"``. Leave away the settings that it takes the place
    of: ``limits=()``, ``max_queue_tokens=None``. Set ``version`` to a text of yours, and a stored sweep goes
    by that instead of by the digest of the source.

    Examples
    --------
    >>> class QueuedBatches(AdmissionRule):
    ...     version = "1"
    ...     def __init__(self, groups):
    ...         self.groups = groups
    ...     def admits(self, state):
    ...         return state.running_groups + state.queued_groups < self.groups
    >>> from lagsweep import PipelineConfig, simulate_custom
    >>> config = PipelineConfig(max_queue_tokens=None, duration_seconds=60)
    >>> simulate_custom(config, admission=QueuedBatches(4)).rollout_utilization < 0.6
    True
    """

    def admits(self, state: AdmissionState) -> bool:
        """Say whether the next group may start."""
        raise NotImplementedError


class LengthProcess(_Rule):
    """Say how many tokens a rollout has, in place of the configuration's law.

    The law stays what bounds are read from: lengths must lie between 1 and its maximum. A group that runs
    again is asked again, with the same draws.

    Examples
    --------
    >>> class Growing(LengthProcess):
    ...     version = "1"
    ...     def tokens(self, rollout):
    ...         return min(2048, rollout.law_tokens + 10 * rollout.version)
    >>> from lagsweep import PipelineConfig, simulate_custom
    >>> run = simulate_custom(PipelineConfig(duration_seconds=60), length=Growing(), rollouts=True)
    >>> run.rollouts[0].behaviour_version
    0
    """

    def tokens(self, rollout: RolloutStart) -> int:
        """Return the tokens of a rollout."""
        raise NotImplementedError


class RunMetric(_Rule):
    """Compute one number from a finished run: its metrics, and the tables of its events.

    Attributes
    ----------
    name : str
        Of the variable in datasets.
    units, long_name : str
        What charts and pages say.
    tables : tuple of str
        Which of ``batches``, ``timeline`` and ``rollouts`` it reads; only these are recorded.

    Examples
    --------
    >>> class LongestStep(RunMetric):
    ...     name, units, long_name = "longest_step_seconds", "s", "longest training step"
    ...     version = "1"
    ...     def value(self, run):
    ...         return max((batch.end - batch.start for batch in run.batches), default=float("nan"))
    >>> from lagsweep import PipelineConfig, simulate_custom
    >>> run = simulate_custom(PipelineConfig(duration_seconds=60), metrics=[LongestStep()])
    >>> run.longest_step_seconds > 5
    True
    """

    name: str = ""
    units: str = "1"
    long_name: str = ""
    tables: tuple[str, ...] = ("batches", "timeline")

    def value(self, run: PipelineResult) -> float:
        """Return the number; NaN where there is nothing to tell."""
        raise NotImplementedError


def is_compiled(rule: Any) -> bool:
    """Tell whether a rule is a function of Numba, which is called without Python in between."""
    return hasattr(rule, "py_func") and hasattr(rule, "inspect_llvm")


def uniforms(seed: int, number: int, count: int = 1) -> list[float]:
    """Draw uniform numbers in [0, 1) that depend on a seed and a number alone, and on nothing of the run.

    Parameters
    ----------
    seed : int
        Of the run, as ``begin`` is told.
    number : int
        Of a rollout, or of anything else that is counted.
    count : int

    Examples
    --------
    >>> uniforms(0, 3, 2) == uniforms(0, 3, 2), uniforms(0, 3, 5)[:2] == uniforms(0, 3, 2)
    (True, True)
    """
    from ...kernels.draws.philox import exact_whole  # Numba: a light import loads none of it

    seed = exact_whole("seed", seed, 0, 2**64 - 1)
    number = one_whole("number", number, minimum=0, maximum=2**53)
    count = one_whole("count", count, minimum=1, maximum=2**20)
    key = np.array([seed, CUSTOM_STREAM], np.uint64)
    counter = np.array([0, number + 1, 0, 0], np.uint64)
    drawn = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(count)
    found: list[float] = drawn.tolist()
    return found
