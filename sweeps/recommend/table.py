"""The cells of a sweep laid out for a choice: settings × scenarios, with what the constraints say of each.

Scenarios are told apart as :mod:`..results.scenarios` says. A setting is judged in every scenario.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..results.cells import cell_coordinates, cell_values, halted_runs, not_recorded, recorded_values
from ..results.frontier import ESS
from ..results.scenarios import numbered, scenario_axes
from ..runs.status import DONE

if TYPE_CHECKING:
    import xarray

MAX_LAG = "max_lag_observed"


@dataclass(frozen=True)
class Bound:
    """One constraint: a metric that must not pass a limit.

    Parameters
    ----------
    name : {"min_ess", "max_lag", "min_goodput"}
    metric : str
    limit : float
    """

    name: str
    metric: str
    limit: float

    @property
    def is_lower(self) -> bool:
        """Whether the metric must be at least the limit."""
        return self.name.startswith("min_")

    def met(self, values: np.ndarray) -> np.ndarray:
        """Tell which values keep the bound (NaN does not)."""
        return values >= self.limit if self.is_lower else values <= self.limit


@dataclass(frozen=True)
class ChoiceTable:
    """Every cell's objective and constraints, and its place among settings and scenarios.

    Attributes
    ----------
    objective : ndarray of float64, shape (cells, seeds)
        As reported; `sense` is 1 to maximize it and -1 to minimize it.
    means, half_widths : ndarray of float64, shape (cells,)
        Of the objective over the seeds.
    bounds : tuple of Bound
    levels : dict
        Bound's name -> what is held against the limit, per cell: the mean ESS, the largest lag of any seed.
    level_half_widths : dict
        Bound's name -> its uncertainty; 0 for a largest value.
    ess, lag : ndarray of float64, shape (cells,)
        Means over the seeds.
    ess_by_seed : ndarray of float64, shape (cells, seeds)
        With the objective it tells which cells may have had the very same runs; -1 for none.
    places : ndarray of int64, shape (settings, scenarios)
        The cell's row; -1 where the design has no such cell.
    works : ndarray of bool, shape (cells,)
        Whether at least one run trained a batch and did not stall.
    halted : ndarray of int64, shape (cells,)
        How many runs that were done stalled or trained nothing.
    metric : str
        The objective's name.
    done : ndarray of int64, shape (cells,)
        How many runs were done.
    """

    cells: np.ndarray
    axes: dict[str, np.ndarray]
    setting_axes: tuple[str, ...]
    scenario_axes: tuple[str, ...]
    objective: np.ndarray
    sense: int
    means: np.ndarray
    half_widths: np.ndarray
    bounds: tuple[Bound, ...]
    levels: dict[str, np.ndarray]
    level_half_widths: dict[str, np.ndarray]
    ess: np.ndarray
    lag: np.ndarray
    ess_by_seed: np.ndarray
    places: np.ndarray
    works: np.ndarray
    halted: np.ndarray
    metric: str
    done: np.ndarray

    @cached_property
    def gain(self) -> np.ndarray:
        """The mean objective of every cell with its sign turned so that more is better; NaN where none."""
        return self.sense * self.means

    def admissible(self, leave_out: str | None = None) -> np.ndarray:
        """Tell which cells work, have an objective and keep every bound (one may be left out)."""
        kept = np.isfinite(self.means) & self.works
        for bound in self.bounds:
            if bound.name != leave_out:
                kept &= bound.met(self.levels[bound.name])
        return kept

    def undecided(self, bound: Bound) -> np.ndarray:
        """Tell for which cells the interval of the level holds the limit, so that more seeds may turn it."""
        level, half = self.levels[bound.name], self.level_half_widths[bound.name]
        return (np.abs(level - bound.limit) < half) & np.isfinite(self.means)

    def in_scenario(self, kept: np.ndarray) -> np.ndarray:
        """Return a mask of cells as (settings, scenarios)."""
        return np.where(self.places >= 0, kept[self.places], False)

    def seeds_of(self, setting: int) -> np.ndarray:
        """Tell how many seeds a setting's objective is of, in each scenario."""
        return np.asarray(np.sum(~np.isnan(self.objective[self.places[setting]]), axis=-1))

    def key_of(self, setting: int) -> bytes:
        """Return what is equal for settings that are equal in the objective and in ESS at every seed."""
        rows = self.places[setting]
        objective = np.where(np.isnan(self.objective[rows]), -np.inf, self.objective[rows] + 0.0)  # -0 is 0
        return objective.tobytes() + self.ess_by_seed[rows].tobytes()

    def settings_of(self, row: int) -> dict[str, Any]:
        """Return what a cell sets, scenario axes apart."""
        return {name: self.axes[name][row].item() for name in self.setting_axes}

    def scenario_of(self, row: int) -> dict[str, Any]:
        """Return a cell's scenario."""
        return {name: self.axes[name][row].item() for name in self.scenario_axes}


def choice_table(
    ds: xarray.Dataset,
    objective: str,
    sense: int,
    bounds: Sequence[Bound],
    scenarios: Sequence[str] | None,
    confidence: float,
) -> ChoiceTable:
    """Lay out a sweep for a choice.

    Raises
    ------
    ConfigError
        For an unknown metric or axis.
    """
    cells, axes = cell_coordinates(ds)
    nobody = scenario_axes(ds, scenarios)
    values = cell_values(ds, objective)
    halted = halted_runs(ds)
    updates = recorded_values(ds, "updates")
    # Without a count of updates, what has an objective has trained.
    trained = updates > 0 if "updates" not in not_recorded(ds) else ~np.isnan(values)
    working = trained & ~halted
    if sense < 0:  # what does nothing has the least of everything
        values = np.where(working, values, np.nan)
    means, half_widths = mean_interval(values, confidence)
    ess = recorded_values(ds, ESS)
    levels, level_halves = {}, {}
    for bound in bounds:
        level = cell_values(ds, bound.metric)
        if bound.is_lower:
            levels[bound.name], level_halves[bound.name] = mean_interval(level, confidence)
        else:
            levels[bound.name] = _largest(level)
            level_halves[bound.name] = np.zeros(len(level))
    setting_axes = tuple(name for name in axes if name not in nobody)
    return ChoiceTable(
        cells,
        axes,
        setting_axes,
        nobody,
        values,
        sense,
        means,
        half_widths,
        tuple(bounds),
        levels,
        level_halves,
        mean_interval(ess, confidence)[0],
        mean_interval(recorded_values(ds, "mean_lag"), confidence)[0],
        np.nan_to_num(ess, nan=-1.0),
        _places([axes[name] for name in setting_axes], [axes[name] for name in nobody], len(cells)),
        np.asarray(working.any(axis=-1)),
        np.asarray(halted.sum(axis=-1)),
        objective,
        np.sum(ds["status"].transpose(..., "seed").values == DONE, axis=-1).reshape(-1),
    )


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the largest of each row, NaN left out."""
    return np.where(
        np.isnan(values).all(axis=-1), np.nan, np.max(np.nan_to_num(values, nan=-np.inf), axis=-1)
    )


def _places(settings: list[np.ndarray], scenarios: list[np.ndarray], count: int) -> np.ndarray:
    """Tell which row holds each setting in each scenario; both in the order in which they come."""
    setting, scenario = numbered(settings, count), numbered(scenarios, count)
    places = np.full((setting.max(initial=-1) + 1, scenario.max(initial=-1) + 1), -1, np.int64)
    places[setting, scenario] = np.arange(count)
    return places
