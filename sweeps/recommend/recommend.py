"""The best configuration of a sweep under constraints, what cannot be told apart from it, and why it wins.

The choice is the admissible setting with the best mean over seeds. A setting is admissible when it trains
(not every run stalls or does nothing), its mean expected normalized ESS is at least ``min_ess`` and no seed
trained a rollout older than ``max_lag``. Where an objective is minimized, runs that stalled or trained no
batch have no value: what does nothing has the least of everything. Over scenario axes (the length law, for
one) a setting must be admissible in every scenario, and the one whose worst loss against the scenario's own
best is smallest is chosen (minimax regret; Savage, JASA 46, 1951).

What cannot be told apart is found by paired differences seed by seed, each at the level that Bonferroni's
rule gives for all comparisons together: with the confidence named, the truly best setting is the choice or
among those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ...kernels.intervals import mean_interval
from ..checks import RealNumber, WholeNumber, checked, confidence_of, path_of, sweep_dataset, text_of
from ..json_text import plain_data
from ..results.cadence import default_objective
from ..results.cells import GOODPUT, alone, has_failures, read_once, recorded_values
from ..results.drift_words import drift_words_of, is_measured, standing_of
from ..results.frontier import ESS, THROUGHPUT
from ..results.shares import time_shares
from ..spec.carried import spec_of
from .compare import (
    Comparison,
    bound_report,
    candidates_of,
    choose,
    nearest_to,
    scenario_reports,
    ties_of,
)
from .doubts import doubts_about, law_hint
from .parts import Alternative, BoundReport, Doubt, ScenarioReport
from .table import MAX_LAG, Bound, ChoiceTable, choice_table
from .text import recommendation_text

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Recommendation:
    """A choice with its uncertainty; ``print`` it.

    Attributes
    ----------
    cell : int or None
        The id of the chosen cell, for :func:`lagsweep.config_at`; None when no cell is admissible.
    settings : dict
        The axis values of the choice.
    value, low, high : float
        The objective's mean over seeds and its Student interval.
    figures : dict
        Means of what stands beside it: ESS, lag, seconds per update, rollouts per batch.
    ties : tuple of Alternative
        Settings that cannot be told apart from the choice, best first; of very many only some.
    identical, different : int
        How many settings have the very runs of the choice, and how many others cannot be told from it.
    equal : int
        How many of those others are equal to it in the objective and in ESS at every seed.
    seeds, seeds_done : int
        Of the sweep, and those at which the choice has a value (of several scenarios in the first).
    bounds : tuple of BoundReport
    limits : dict
        Where time goes at the choice, as shares.
    scenarios : tuple of ScenarioReport
        One for each value of the scenario axes; empty when there are none.
    doubts : tuple of Doubt
        Empty when the store settles the question.
    custom : str
        Which rules of the user's own the runs have.
    """

    objective: str
    units: str
    maximize: bool
    confidence: float
    seeds: int
    comparisons: int
    admissible: int
    settings_total: int
    drift: str
    ess_basis: str
    cell: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    figures: dict[str, float] = field(default_factory=dict)
    ties: tuple[Alternative, ...] = ()
    identical: int = 0
    different: int = 0
    bounds: tuple[BoundReport, ...] = ()
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    scenarios: tuple[ScenarioReport, ...] = ()
    scenario_axes: tuple[str, ...] = ()
    law_hint: Doubt | None = None
    doubts: tuple[Doubt, ...] = ()
    custom: str = ""
    equal: int = 0
    seeds_done: int = 0

    @property
    def settled(self) -> bool:
        """Whether the store answers the question: there is a choice and nothing speaks against it."""
        return self.cell is not None and not self.doubts

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON (None for NaN)."""
        found = plain_data(asdict(self)) | {"settled": self.settled}
        return found if self.custom else {name: value for name, value in found.items() if name != "custom"}

    def __str__(self) -> str:

        return recommendation_text(self)


def recommend(
    ds: xarray.Dataset,
    *,
    maximize: str | None = None,
    minimize: str | None = None,
    min_ess: float | None = None,
    max_lag: int | None = None,
    min_goodput: float | None = None,
    scenarios: Sequence[str] | None = None,
    confidence: float = 0.95,
    store: str | Path | None = None,
) -> Recommendation:
    """Choose the best configuration of a sweep under constraints.

    Parameters
    ----------
    ds : xarray.Dataset
        As :func:`lagsweep.run_sweep` or :func:`lagsweep.open_sweep` gives.
    maximize, minimize : str
        The metric; ``trained_tokens_per_second`` is maximized when neither is given, with failures
        ``effective_tokens_per_second``, which leave out what is lost.
    min_ess : float, optional
        Least mean of ``mean_expected_normalized_ess``, 0…1.
    max_lag : int, optional
        Largest ``max_lag_observed`` of any seed.
    min_goodput : float, optional
        Least mean of ``goodput_fraction``, 0…1, of a sweep with failures.
    scenarios : sequence of str, optional
        Axes that nobody chooses; ``response_length``, ``environment_seconds``, ``drift_per_version``,
        ``drift`` and the failure rates (``trainer_mtbf_seconds``, ``worker_mtbf_seconds``) where they are
        axes, when left out.
    confidence : float
        Of the choice's own interval, and of all comparisons together.
    store : path, optional
        Named in the commands that would settle what is open.

    Returns
    -------
    Recommendation

    Raises
    ------
    ConfigError
        For an unknown metric or axis, or a bound out of range.

    Examples
    --------
    >>> from lagsweep import PipelineConfig, run_sweep
    >>> ds = run_sweep(PipelineConfig(duration_seconds=300), {"max_lag": [0, 1, 2]}, seeds=5)
    >>> recommend(ds, min_ess=0.5, max_lag=1).settings
    {'max_lag': 1}
    """
    return recommend_from(
        ds,
        ds,
        maximize=maximize,
        minimize=minimize,
        min_ess=min_ess,
        max_lag=max_lag,
        min_goodput=min_goodput,
        scenarios=scenarios,
        confidence=confidence,
        store=store,
    )


def recommend_from(
    ds: xarray.Dataset,
    runs: xarray.Dataset,
    *,
    maximize: str | None = None,
    minimize: str | None = None,
    min_ess: float | None = None,
    max_lag: int | None = None,
    min_goodput: float | None = None,
    scenarios: Sequence[str] | None = None,
    confidence: float = 0.95,
    store: str | Path | None = None,
) -> Recommendation:
    """Choose as :func:`recommend` from a part of a sweep's variables; `runs` has all of them."""
    checked = confidence_of(confidence)
    sweep_dataset(ds)
    objective, sense = _objective(ds, maximize, minimize)
    if store is not None:
        path_of("store", store)
    bounds = bounds_of(min_ess, max_lag, min_goodput)
    read_once(ds, dict.fromkeys(("status", "updates", "stalled", objective, ESS)))
    table = choice_table(ds, objective, sense, bounds, scenarios, checked)

    candidates = candidates_of(table, table.admissible())
    comparisons = max(1, (len(candidates) - 1) * table.places.shape[1])
    common = {
        "objective": objective,
        "units": str(ds[objective].attrs.get("units", "")),
        "maximize": sense > 0,
        "confidence": checked,
        "seeds": int(ds.sizes["seed"]),
        "comparisons": comparisons,
        "admissible": len(candidates),
        "settings_total": int(table.places.shape[0]),
        "drift": _drift(ds),
        "ess_basis": standing_of(spec_of(ds)),
        "scenario_axes": table.scenario_axes,
        "custom": str(ds.attrs.get("custom", "")),
    }
    if not len(candidates):
        reports = tuple(nearest_to(table, bound) for bound in bounds)
        return Recommendation(
            **common, bounds=reports, doubts=doubts_about(ds, table, None, (), reports, checked, store)
        )
    choice = choose(table, candidates)
    comparison = Comparison(table, choice, 1 - (1 - checked) / comparisons)
    ties = ties_of(comparison, candidates, runs)
    reports = tuple(bound_report(comparison, bound, candidates) for bound in bounds)
    return Recommendation(
        **common,
        **_described(ds, table, int(table.places[choice][0]), checked),
        ties=ties.described,
        identical=ties.identical,
        equal=ties.equal,
        different=ties.different,
        bounds=reports,
        scenarios=scenario_reports(comparison, candidates) if table.scenario_axes else (),
        law_hint=law_hint(ds, table, store),
        seeds_done=int(table.seeds_of(choice)[0]),
        doubts=doubts_about(ds, table, comparison, ties.described, reports, checked, store),
    )


def _described(ds: xarray.Dataset, table: ChoiceTable, row: int, confidence: float) -> dict[str, Any]:
    """Return what the choice is and what it does."""
    mean, half = float(table.means[row]), float(table.half_widths[row])
    return {
        "cell": int(table.cells[row]),
        "settings": {name: values[row].item() for name, values in table.axes.items()},
        "value": mean,
        "low": mean - half,
        "high": mean + half,
        "figures": _figures(ds, row, confidence),
        "limits": _limits(ds, row),
    }


def _objective(ds: xarray.Dataset, maximize: str | None, minimize: str | None) -> tuple[str, int]:
    if maximize is not None and minimize is not None:
        raise ConfigError("maximize", "excludes minimize", (maximize, minimize), "Give one of them.")
    for name, metric in (("maximize", maximize), ("minimize", minimize)):
        if metric is not None:
            text_of(name, metric, "Name a metric.")
    if minimize is not None:
        return minimize, -1
    return maximize or default_objective(spec_of(ds).options_in_use), 1


def _share(value: Any, name: str) -> float:
    rule = "must be between 0 and 1"
    share: float = checked(RealNumber, name, value, low=0, high=1, rule=rule, way_out="Give 0.9.")
    return share


def bounds_of(
    min_ess: float | None, max_lag: int | None, min_goodput: float | None = None
) -> tuple[Bound, ...]:
    """Check the bounds of a choice.

    Raises
    ------
    ConfigError
        For a bound out of range.
    """
    found = []
    if min_ess is not None:
        found.append(Bound("min_ess", ESS, _share(min_ess, "min_ess")))
    if max_lag is not None:
        rule = "must be a whole number from 0"
        largest = checked(WholeNumber, "max_lag", max_lag, low=0, high=2**63, rule=rule, way_out="Give 2.")
        found.append(Bound("max_lag", MAX_LAG, float(largest)))
    if min_goodput is not None:
        found.append(Bound("min_goodput", GOODPUT, _share(min_goodput, "min_goodput")))
    return tuple(found)


def _figures(ds: xarray.Dataset, row: int, confidence: float) -> dict[str, float]:
    """Average what stands beside the objective."""

    figures: dict[str, float] = {}
    always = (THROUGHPUT, "effective_tokens_per_second", ESS, "mean_lag", "seconds_per_update")
    names = (*always, GOODPUT) if has_failures(ds) else always
    beside = (*names, MAX_LAG, "updates", "trained_rollouts")
    one = alone(ds, row)
    values = {name: recorded_values(one, name)[0] for name in beside}
    for name in names:
        mean, half = mean_interval(values[name], confidence)
        figures[name], figures[f"{name}_half_width"] = float(mean), float(half)
    lags = values[MAX_LAG][~np.isnan(values[MAX_LAG])]
    figures[MAX_LAG] = float(lags.max()) if len(lags) else math.nan
    updates = float(np.nansum(values["updates"]))
    figures["rollouts_per_batch"] = (
        float(np.nansum(values["trained_rollouts"])) / updates if updates else math.nan
    )
    return figures


def _limits(ds: xarray.Dataset, row: int) -> dict[str, dict[str, float]]:

    return time_shares(ds, [row])[0]


def _drift(ds: xarray.Dataset) -> str:

    spec = spec_of(ds)
    if is_measured(spec):
        return drift_words_of(spec)
    if "drift_per_version" in spec.design.fields.values():
        return "the axis's value"
    return f"{spec.base.drift_per_version:g}"
