"""The last stage of a search: the candidates run with fresh seeds until one is the best, or none is left out.

With one objective Kim and Nelson's procedure decides (:mod:`...kernels.selection`). With two there is no
best one: every candidate gets the same runs, and those are left out that another one beats in both, all
comparisons together at the asked confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.intervals import mean_interval
from ...kernels.selection.kim_nelson import FIRST_VALUES, select_best
from ..results.cells import cell_values
from .space import Point
from .stages import Stages, admitted

if TYPE_CHECKING:
    import xarray

MOST_FRONTIER_SEEDS = 400


@dataclass
class Judged:
    """What fresh seeds said of the candidates.

    Attributes
    ----------
    values : list of ndarray, shape (candidates, seeds)
        One for each objective, as reported; NaN where a candidate was not run.
    ess, lag, seconds : ndarray of float64, shape (candidates,)
        Means over each candidate's fresh seeds.
    kept : ndarray of bool, shape (candidates,)
        Whether a candidate kept the bounds in the first fresh runs, and none of them stalled.
    stalled : ndarray of int64, shape (candidates,)
        How many of the first fresh runs stalled or trained nothing.
    first_seed : int
        Of the fresh runs.
    left_out_after : ndarray of int64, shape (candidates,)
        After how many values it was left out as not the best; -1 for one that was not.
    best : int or None
    decided : bool
    most_values : int
        After how many values of each the selection would have ended at the latest.
    halted : list of int
        Candidates that stalled or trained nothing in a later run.
    """

    values: list[np.ndarray]
    ess: np.ndarray
    lag: np.ndarray
    largest_lag: np.ndarray
    seconds: np.ndarray
    kept: np.ndarray
    left_out_after: np.ndarray
    stalled: np.ndarray
    first_seed: int
    best: int | None = None
    decided: bool = False
    most_values: int = 0
    halted: list[int] = field(default_factory=list)

    @property
    def looks(self) -> int:
        """How many fresh seeds the candidate with the most was run with."""
        return int(self.values[0].shape[1])

    @property
    def seeds(self) -> np.ndarray:
        """How many fresh seeds each candidate was run with."""
        return np.asarray((~np.isnan(self.values[0])).sum(axis=1))


class _Collected:
    """Values of the candidates, filled stage by stage."""

    def __init__(self, stages: Stages, points: Sequence[Point], first_seed: int) -> None:
        self.stages, self.points, self.first_seed = stages, points, first_seed
        self.values = [np.empty((len(points), 0)) for _ in stages.question.objectives]
        self.others = {name: np.empty((len(points), 0)) for name in _BESIDE}
        self.rounds = 0

    @property
    def count(self) -> int:
        return int(self.values[0].shape[1])

    def more(self, rows: np.ndarray, seeds: int, prefix: str) -> xarray.Dataset:
        """Run some candidates with the next seeds."""
        self.rounds += 1
        first = self.first_seed + self.count
        points = [self.points[row] for row in rows]
        ds = self.stages.run(f"{prefix}-{self.rounds:02d}", points, range(first, first + seeds))
        for place, table in enumerate(self.stages.tables(ds)):
            self.values[place] = self._widened(self.values[place], rows, table.objective)
        for name in self.others:
            self.others[name] = self._widened(self.others[name], rows, cell_values(ds, name))
        return ds

    def _widened(self, old: np.ndarray, rows: np.ndarray, new: np.ndarray) -> np.ndarray:
        block = np.full((len(self.points), new.shape[1]), np.nan)
        block[rows] = new
        return np.concatenate([old, block], axis=1)

    def judged(self, kept: np.ndarray, stalled: np.ndarray) -> Judged:
        means = {name: mean_interval(values)[0] for name, values in self.others.items()}
        largest = np.nan_to_num(self.others["max_lag_observed"], nan=-1.0).max(axis=1, initial=-1.0)
        return Judged(
            self.values,
            means["mean_expected_normalized_ess"],
            means["mean_lag"],
            largest,
            means["seconds_per_update"],
            kept,
            np.full(len(self.points), -1, np.int64),
            stalled,
            self.first_seed,
        )


_BESIDE = ("mean_expected_normalized_ess", "mean_lag", "max_lag_observed", "seconds_per_update")


def select_one(
    stages: Stages,
    points: Sequence[Point],
    *,
    budget: int,
    indifference: float,
    confidence: float,
    first_seed: int,
) -> Judged:
    """Run candidates with fresh seeds until the best is known or the budget is spent.

    Parameters
    ----------
    stages : Stages
    points : sequence of points
        The candidates, best first by what is known.
    budget : int
        Runs, at most; the first look at every candidate is always made.
    indifference : float
        In the unit of the objective.
    confidence : float
    first_seed : int
    """
    sense = stages.question.objectives[0][1]
    got = _Collected(stages, points, first_seed)
    everyone = np.arange(len(points))
    tables = stages.tables(got.more(everyone, FIRST_VALUES, "select"))
    kept, _ = admitted(tables)
    judged = got.judged(kept, tables[0].halted)
    spent, left = len(points) * FIRST_VALUES, np.flatnonzero(kept)
    halted: list[int] = []
    gone = np.full(len(points), -1, np.int64)
    while len(left):
        found = select_best(sense * got.values[0][left], indifference, confidence)
        went = found.left_out_after >= 0
        gone[left[went]] = found.left_out_after[went]
        judged.best, judged.decided = int(left[found.best]), found.decided
        judged.most_values = max(judged.most_values, found.most_values)
        inside = left[~went]
        seeds = min(max(FIRST_VALUES, got.count // 2), found.most_values - got.count)
        seeds = min(seeds, (budget - spent) // max(len(inside), 1))
        if found.decided or seeds < 1:
            break
        got.more(inside, seeds, "select")
        spent += seeds * len(inside)
        stopped = np.isnan(got.values[0][inside]).any(axis=1)
        halted += [int(row) for row in inside[stopped]]
        left = inside[~stopped] if stopped.any() else left
        if stopped.any():
            judged.best, judged.decided = None, False
    whole = got.judged(kept, tables[0].halted)
    whole.best, whole.decided, whole.most_values = judged.best, judged.decided, judged.most_values
    whole.left_out_after, whole.halted = gone, halted
    return whole


def weigh_two(
    stages: Stages, points: Sequence[Point], *, budget: int, confidence: float, first_seed: int
) -> Judged:
    """Run every candidate with the same fresh seeds, and leave out what another one beats in both.

    ``left_out_after`` says which are left out: all that are beaten beyond doubt; Bonferroni's rule shares the
    error among all pairs and both objectives.
    """
    got = _Collected(stages, points, first_seed)
    seeds = min(max(FIRST_VALUES, budget // len(points)), MOST_FRONTIER_SEEDS)
    tables = stages.tables(got.more(np.arange(len(points)), seeds, "select"))
    kept, _ = admitted(tables)
    judged = got.judged(kept, tables[0].halted)
    senses = [sense for _, sense in stages.question.objectives]
    rows = np.flatnonzero(kept)
    level = 1 - (1 - confidence) / max(1, len(rows) * (len(rows) - 1))
    for row in rows:
        beaten = np.ones(len(rows), bool)
        for sense, values in zip(senses, got.values):
            mean, half = mean_interval(sense * (values[rows] - values[row]), level)
            beaten &= np.nan_to_num(mean - half, nan=-1.0) > 0
        if beaten.any():
            judged.left_out_after[row] = seeds
    judged.decided = bool(len(rows))
    return judged
