"""Which cells are worth a simulation: seconds per update that each phase needs at least.

:func:`~.runs.diagnosis.phase_bounds` knows slots, engines and the trainer. Beside it count here what the
rules of a cell rule out: a publication stops the side that waits for it, and where no rollout of a window may
start before the window's weights, generation and training do not overlap and the longest rollout is waited
for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..config.config import PipelineConfig
from ..runs.diagnosis import phase_bounds

NEAR = 1.3  # times the best bound: what is simulated
FEWEST = 110  # that are simulated, where so many are feasible: some of them may stall


@dataclass(frozen=True)
class Bound:
    """Seconds per update that a cell needs at least, on average.

    Attributes
    ----------
    generation_seconds, training_seconds : float
        Of each side by itself, with the publications that stop it.
    bound_seconds : float
        The larger one, or the sum where they cannot overlap.
    """

    generation_seconds: float
    training_seconds: float
    bound_seconds: float

    @property
    def binding(self) -> str:
        """Which side it is; both where they take turns."""
        if self.bound_seconds > max(self.generation_seconds, self.training_seconds):
            return "both in turn"
        return "generation" if self.generation_seconds >= self.training_seconds else "training"


def bound_of(config: PipelineConfig) -> Bound:
    """Bound a configuration's seconds per update from below.

    Examples
    --------
    >>> from lagsweep.sweeps.presets.systems import workload_config
    >>> work = workload_config(batch_groups=4, group_size=2, train_overhead_seconds=10, sync_seconds=5,
    ...                        rollout_workers=8)
    >>> names = ("synchronous", "verl_one_step_off")
    >>> in_turn, ahead = (bound_of(work.replace(system=name)) for name in names)
    >>> in_turn.binding, ahead.binding, in_turn.bound_seconds > ahead.bound_seconds
    ('both in turn', 'training', True)
    """
    # Taking turns is counted below: here each side is by itself.
    phases = phase_bounds(config.model_copy(update={"generation_while_training": True}))
    each = config.sync_seconds / config.sync_every_updates
    training = phases.training_seconds + (each if config.publication_blocks_trainer else 0.0)
    work, stops = phases.generation_seconds, each if config.publication != "background" else 0.0
    turns = not config.generation_while_training
    if turns and not _in_turn(config):
        whole = work + phases.training_seconds + each
        return Bound(work + stops, training, whole)
    if not _in_turn(config):
        generation = work + stops
        return Bound(generation, training, max(generation, training))
    window = config.sync_every_updates
    work = max(work, _longest_alone(config, window) / window)
    # The last batch of a window is trained when nothing more may start.
    whole = work + phases.training_seconds / window + each
    return Bound(work + stops, training, max(whole, training))


def near_best(bounds: Sequence[Bound], most: int, near: float = NEAR, *, fewest: int = FEWEST) -> np.ndarray:
    """Return the places of the cells to simulate, the lowest bound first.

    Parameters
    ----------
    bounds : sequence of Bound
    most : int
        No more than these.
    near : float
        Up to so many times the lowest bound.
    fewest : int
        Where fewer are as near, the next ones up to so many: a bound is not the seconds themselves.

    Examples
    --------
    >>> some = [Bound(0, 0, seconds) for seconds in (10.0, 20.0, 12.0, 9.5)]
    >>> near_best(some, most=10, fewest=1).tolist(), near_best(some, most=10).tolist()
    ([3, 0, 2], [3, 0, 2, 1])
    """
    seconds = np.array([one.bound_seconds for one in bounds])
    order = np.argsort(seconds, kind="stable")
    close = int((seconds <= near * seconds.min()).sum())
    return order[: min(most, max(close, fewest))]


def _in_turn(config: PipelineConfig) -> bool:
    """Tell whether a window's rollouts may start only with its weights, so that nothing overlaps its end."""
    window = -(-config.sync_every_updates // config.updates_per_batch) * (config.batch_groups or 1)
    return any(
        one.count == "started" and one.done == "published" and one.groups <= window for one in config.limits
    )


def _longest_alone(config: PipelineConfig, window: int) -> float:
    """Return the seconds of the longest of a window's rollouts, if it never shared its engine."""
    engine = config.engine
    if engine is None:
        return 0.0
    rollouts = window * (config.batch_groups or 1) * config.group_size
    # The median of the longest of so many.
    longest = float(np.asarray(config.response_length.quantile(0.5 ** (1.0 / rollouts))))
    context = engine.step_seconds_per_context_token * (config.prompt_tokens + longest / 2)
    return longest * (engine.step_seconds + engine.step_seconds_per_rollout + context)
