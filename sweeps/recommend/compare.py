"""Settings of a sweep held against each other: which is chosen, what ties with it, what each bound costs.

Differences are taken seed by seed and relative to the choice's mean, so that scenarios can be averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..results.same_runs import split_by_runs
from .parts import Alternative, BoundReport, ScenarioReport
from .table import Bound, ChoiceTable

if TYPE_CHECKING:
    import xarray


def candidates_of(table: ChoiceTable, kept: np.ndarray) -> np.ndarray:
    """Number the settings that are admissible in every scenario."""
    return np.flatnonzero(table.in_scenario(kept).all(axis=1))


def _regrets(table: ChoiceTable, settings: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return each setting's relative loss against the best admissible one of each scenario."""
    gain = np.where(table.in_scenario(kept), table.gain[table.places], -np.inf)
    best = gain.max(axis=0)
    scale = np.where(best == 0, 1.0, np.abs(best))
    return (best - gain[settings]) / scale


def choose(table: ChoiceTable, candidates: np.ndarray) -> int:
    """Return the candidate with the smallest worst loss over the scenarios; with one, the best mean.

    Losses within a thousandth of the smallest count as equal to it, and of equals the fresher is taken.
    """
    regrets = _regrets(table, candidates, table.admissible())
    rows = table.places[candidates]
    ess = np.nan_to_num(table.ess[rows], nan=-1.0).mean(axis=1)
    lag = np.nan_to_num(table.lag[rows], nan=np.inf).mean(axis=1)
    worst = regrets.max(axis=1)
    far = worst > worst.min() + PRACTICALLY_EQUAL
    # Equal but for what nobody would run seeds for: the fresher one, then the first in the sweep's order.
    order = np.lexsort((candidates, lag, regrets.mean(axis=1), worst, -ess.round(6), far))
    return int(candidates[order[0]])


PRACTICALLY_EQUAL = 0.001  # a difference that no one would run more seeds for
MOST_SEEDS = 10_000_000  # more would not be run
MOST_DESCRIBED = 100  # of thousands of ties nobody reads all


class Comparison:
    """Settings against the choice, seed by seed, relative to the choice's mean in each scenario."""

    def __init__(self, table: ChoiceTable, choice: int, confidence: float) -> None:
        self.table, self.choice, self.confidence = table, choice, confidence
        rows = table.places[choice]
        means = table.means[rows]
        self._scale = np.where(means == 0, 1.0, np.abs(means))

    def shares(self, settings: np.ndarray) -> np.ndarray:
        """Return each setting's relative gain per scenario and seed: (settings, scenarios, seeds)."""
        table = self.table
        own = table.objective[table.places[self.choice]]
        other = table.objective[table.places[settings]]
        return table.sense * (other - own) / self._scale[:, None]

    def interval(self, settings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean over scenarios and seeds, and its half width at the comparisons' own level."""
        return mean_interval(self.shares(settings).mean(axis=1), self.confidence)

    def alternative(self, setting: int, **more: Any) -> Alternative:
        """Describe one setting beside the choice."""
        mean, half = self.interval(np.array([setting]))
        table = self.table
        row = int(table.places[setting][0])
        return Alternative(
            cell=int(table.cells[row]),
            settings=table.settings_of(row),
            value=float(table.means[row]),
            ess=float(table.ess[row]),
            lag=float(table.lag[row]),
            share=float(mean[0]),
            low=float(mean[0] - half[0]),
            high=float(mean[0] + half[0]),
            halted_runs=int(table.halted[table.places[setting]].sum()),
            runs=int(table.done[table.places[setting]].sum()),
            **more,
        )

    def seeds_needed(self, setting: int) -> int | None:
        """Tell about how many seeds would tell a setting from the choice; None where that cannot be told."""
        from scipy.special import stdtrit

        series = self.shares(np.array([setting])).mean(axis=1)[0]
        series = series[~np.isnan(series)]
        if len(series) < 2 or not series.any():
            return None
        mean, spread = abs(float(series.mean())), float(series.std(ddof=1))
        if mean == 0 or spread == 0:
            return None
        level, ratio = 0.5 + self.confidence / 2, spread / mean
        counts = np.unique(np.geomspace(2, MOST_SEEDS, 400).round())
        enough = stdtrit(counts - 1, level) * ratio <= np.sqrt(counts)
        return max(int(counts[np.argmax(enough)]), len(series) + 1) if enough.any() else MOST_SEEDS


@dataclass(frozen=True)
class Ties:
    """What cannot be told from the choice.

    Attributes
    ----------
    described : tuple of Alternative
        The first of them, best first.
    identical, equal : int
        How many settings have the very runs of the choice, and how many others are equal to it in the
        objective and in ESS at every seed.
    different : int
        How many cannot be told from it and have other runs, the equal ones among them.
    """

    described: tuple[Alternative, ...] = ()
    identical: int = 0
    equal: int = 0
    different: int = 0


def ties_of(comparison: Comparison, candidates: np.ndarray, runs: xarray.Dataset) -> Ties:
    """Find the candidates that cannot be told from the choice in any scenario.

    Parameters
    ----------
    comparison : Comparison
    candidates : ndarray of int64
        Settings.
    runs : xarray.Dataset
        The sweep with all its metrics, which tell equal runs from equal figures.
    """
    table, choice = comparison.table, comparison.choice
    others = candidates[candidates != choice]
    if not len(others) or table.seeds_of(choice).max() < 2:
        return Ties()  # one seed tells nothing apart, and listing everything helps nobody
    mean, half = mean_interval(comparison.shares(others), comparison.confidence)
    resolved = (mean - half > 0) | (mean + half < 0)  # NaN half widths resolve nothing
    tied = np.flatnonzero(~resolved.any(axis=1))
    tied = others[tied[np.argsort(-mean.mean(axis=1)[tied], kind="stable")]].tolist()
    groups: dict[bytes, list[int]] = {table.key_of(choice): [choice]}
    for setting in tied:
        groups.setdefault(table.key_of(setting), []).append(setting)
    alike, *rest = groups.values()
    # Settings with the very same runs as one another (a cap that is never reached) are told once.
    order = {setting: place for place, setting in enumerate([choice, *tied])}
    parts = split_by_runs(runs, [alike, *rest[:MOST_DESCRIBED]], table.places)
    (_, *same), *parts = sorted(parts, key=lambda part: order[part[0]])
    found = [comparison.alternative(setting, identical=True) for setting in same[:MOST_DESCRIBED]]
    as_good = set(alike)
    for first, *twins in parts[:MOST_DESCRIBED]:
        equal = first in as_good
        needed = None if equal else comparison.seeds_needed(first)
        found.append(comparison.alternative(first, seeds_needed=needed, twins=len(twins), equal=equal))
    found.sort(key=lambda tie: -tie.share)
    return Ties(tuple(found), len(same), len(alike) - 1 - len(same), len(tied) - len(same))


def bound_report(comparison: Comparison, bound: Bound, candidates: np.ndarray) -> BoundReport:
    """Say what settings that break one bound alone would gain, and from which limit on."""
    table = comparison.table
    level = _worst(table, bound, np.array([comparison.choice]))[0]
    wider = candidates_of(table, table.admissible(leave_out=bound.name))
    wider = wider[~np.isin(wider, candidates)]
    if not len(wider):
        return BoundReport(bound.name, bound.metric, bound.limit, float(level), binds=False)
    mean, half = comparison.interval(wider)
    better = (mean > 0) & ~(mean - half <= 0)
    if not better.any():
        return BoundReport(bound.name, bound.metric, bound.limit, float(level), binds=False)
    wider, mean, half = wider[better], mean[better], half[better]
    levels = _worst(table, bound, wider)
    # The least relaxation first, and of equal ones the largest gain.
    first = int(np.lexsort((-mean, -levels if bound.is_lower else levels))[0])
    return BoundReport(
        bound.name,
        bound.metric,
        bound.limit,
        float(level),
        binds=True,
        first_limit=float(levels[first]),
        first_step=comparison.alternative(int(wider[first])),
        without=comparison.alternative(int(wider[int(np.argmax(mean))])),
    )


def _worst(table: ChoiceTable, bound: Bound, settings: np.ndarray) -> np.ndarray:
    """Return each setting's level of a bound in the scenario where it is worst."""
    levels = table.levels[bound.name][table.places[settings]]
    return levels.min(axis=1) if bound.is_lower else levels.max(axis=1)


def nearest_to(table: ChoiceTable, bound: Bound) -> BoundReport:
    """Say, when nothing is admissible, which setting comes nearest to one bound.

    Among those that keep the other bounds if there are any, else among all.
    """
    others = candidates_of(table, table.admissible(leave_out=bound.name))
    keeps_others = bool(len(others))
    if not keeps_others:
        others = candidates_of(table, np.isfinite(table.means) & table.works)
    levels = _worst(table, bound, others) if len(others) else np.empty(0)
    usable = np.isfinite(levels)
    others, levels = others[usable], levels[usable]
    if not len(others):
        return BoundReport(bound.name, bound.metric, bound.limit, math.nan, binds=True)
    nearest = int(np.argmax(levels) if bound.is_lower else np.argmin(levels))
    return BoundReport(
        bound.name,
        bound.metric,
        bound.limit,
        float(levels[nearest]),
        binds=True,
        first_limit=float(levels[nearest]),
        first_step=Comparison(table, int(others[nearest]), 0.95).alternative(int(others[nearest])),
        keeps_others=keeps_others,
    )


def scenario_reports(comparison: Comparison, candidates: np.ndarray) -> tuple[ScenarioReport, ...]:
    """Compare the choice with the best admissible setting of each scenario."""
    table = comparison.table
    kept = table.in_scenario(table.admissible())
    found = []
    for scenario, row in enumerate(table.places[comparison.choice]):
        allowed = np.flatnonzero(kept[:, scenario])
        best = int(allowed[np.argmax(table.gain[table.places[allowed, scenario]])])
        best_row = int(table.places[best, scenario])
        scale = abs(float(table.means[best_row])) or 1.0
        loss = table.sense * (table.objective[best_row] - table.objective[row]) / scale
        mean, half = mean_interval(loss, comparison.confidence)
        found.append(
            ScenarioReport(
                table.scenario_of(int(row)),
                int(table.cells[row]),
                float(table.means[row]),
                Alternative(
                    int(table.cells[best_row]),
                    table.settings_of(best_row),
                    float(table.means[best_row]),
                    float(table.ess[best_row]),
                    float(table.lag[best_row]),
                    0.0,
                    0.0,
                    0.0,
                    identical=best == comparison.choice,
                ),
                float(mean),
                float(mean - half),
                float(mean + half),
            )
        )
    return tuple(found)
