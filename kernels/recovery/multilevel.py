"""Checkpoints on several levels of storage: cheap ones often, sturdy ones seldom.

Level ``l`` costs ``C_l`` more seconds on top of the levels below it and repairs failures that come every
``M_l`` seconds on average; a failure of a level is repaired from the last checkpoint of that level or a
higher one. To first order each level pays for its saves and for the work that its failures undo,

    overhead = sum over levels of (C_l / W_l + W_l / (2 M_l)),

which is least at ``W_l = sqrt(2 C_l M_l)``, Young's rule level by level, with the overhead
``sum of sqrt(2 C_l / M_l)`` (A. Benoit, A. Cavelan, V. Le Fèvre, Y. Robert, H. Sun, IEEE Transactions on
Computers 66 (2017) 1212-1226). That is a lower bound, for a checkpoint of a level contains the ones below, so
real intervals are whole multiples of each other; a nested pattern close to the bound stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arguments import Floats, broadcast, plain, real_numbers, within_float64
from ..errors import ConfigError

_MOST_LEVELS = 8


@dataclass(frozen=True)
class MultilevelCheckpoints:
    """Intervals of every level; the last axis of the arrays is the level, cheapest first.

    Attributes
    ----------
    interval_seconds : ndarray
        Best interval of each level by itself.
    level_overhead : ndarray
        Overhead of each level at that interval, per second of work.
    minimum_overhead : float or ndarray
        Their sum: no nested pattern has less, to first order.
    pattern_multiples : ndarray of int64
        A nested pattern: every how many checkpoints level ``l`` is saved. The first is 1, and each divides
        the next.
    pattern_interval_seconds : float or ndarray
        Work between two checkpoints of the pattern.
    pattern_overhead : float or ndarray
        Overhead of the pattern.
    """

    interval_seconds: NDArray[np.float64]
    level_overhead: NDArray[np.float64]
    minimum_overhead: Floats
    pattern_multiples: NDArray[np.int64]
    pattern_interval_seconds: Floats
    pattern_overhead: Floats


def _nested_pattern(
    costs: NDArray[np.float64], means: NDArray[np.float64]
) -> tuple[NDArray[np.int64], float, float]:
    """Round the ratios of neighbouring intervals up or down, all ways, and keep the best pattern.

    With multiples ``m`` the overhead is ``(sum C / m) / W + W / 2 (sum m / M)``, least at the W used here.
    """
    ideal = np.sqrt(2.0 * costs * means)
    ratios = np.maximum(ideal[1:] / ideal[:-1], 1.0)
    choices = [sorted({int(np.floor(ratio)), int(np.ceil(ratio))}) for ratio in ratios]
    best: tuple[NDArray[np.int64], float, float] | None = None
    for steps in product(*choices):
        multiples = np.cumprod(np.array([1, *steps], dtype=np.int64))
        saving, losing = float((costs / multiples).sum()), float((multiples / means).sum())
        overhead = float(np.sqrt(2.0 * saving * losing))
        if best is None or overhead < best[2]:
            best = multiples, float(np.sqrt(2.0 * saving / losing)), overhead
    assert best is not None  # there is at least one choice per level
    return best


@within_float64
def multilevel_checkpoints(checkpoint_seconds: ArrayLike, mtbf_seconds: ArrayLike) -> MultilevelCheckpoints:
    """Return the best interval of each level of storage, the least overhead, and a nested pattern near it.

    Parameters
    ----------
    checkpoint_seconds : array_like, shape (..., levels)
        Seconds that a save of each level adds, above 0, cheapest level first.
    mtbf_seconds : array_like, shape (..., levels)
        Mean seconds between the failures that need exactly this level, above 0.

    Returns
    -------
    MultilevelCheckpoints

    Raises
    ------
    ConfigError
        If there is no level or more than 8, an argument is out of its range, or shapes do not fit.

    Examples
    --------
    >>> levels = multilevel_checkpoints([2.0, 50.0], [10_000.0, 160_000.0])
    >>> levels.interval_seconds, levels.minimum_overhead
    (array([ 200., 4000.]), 0.045)
    >>> levels.pattern_multiples, round(levels.pattern_overhead, 12)
    (array([ 1, 20]), 0.045)
    """
    costs, means = broadcast(
        checkpoint_seconds=real_numbers("checkpoint_seconds", checkpoint_seconds, above=0),
        mtbf_seconds=real_numbers("mtbf_seconds", mtbf_seconds, above=0),
    )
    if costs.ndim == 0 or not 1 <= costs.shape[-1] <= _MOST_LEVELS:
        way_out = "Give one value per level on the last axis."
        rule = f"must hold 1 to {_MOST_LEVELS} levels"
        raise ConfigError("checkpoint_seconds", rule, costs.shape, way_out)
    levels, leading = costs.shape[-1], costs.shape[:-1]
    overhead = np.sqrt(2.0 * costs / means)
    rows = [_nested_pattern(c, m) for c, m in zip(costs.reshape(-1, levels), means.reshape(-1, levels))]
    multiples = np.array([row[0] for row in rows], dtype=np.int64).reshape(costs.shape)
    return MultilevelCheckpoints(
        interval_seconds=np.sqrt(2.0 * costs * means),
        level_overhead=overhead,
        minimum_overhead=plain(overhead.sum(axis=-1)),
        pattern_multiples=multiples,
        pattern_interval_seconds=plain(np.array([row[1] for row in rows]).reshape(leading)),
        pattern_overhead=plain(np.array([row[2] for row in rows]).reshape(leading)),
    )
