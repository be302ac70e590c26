"""The parts of a recommendation: alternatives, what a bound costs, how a scenario goes, what is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_REPORTS = 12  # scenarios that a text shows


@dataclass(frozen=True)
class Alternative:
    """Another setting beside the choice.

    Attributes
    ----------
    cell : int
        In the choice's scenario.
    settings : dict
    value, ess, lag : float
        Means over seeds.
    share, low, high : float
        Relative to the choice (paired by seed, averaged over scenarios): above 0 is better.
    identical : bool
        The very runs of the choice: at every seed every metric that both report is equal.
    equal : bool
        Equal to the choice in the objective and in ESS at every seed, but not its runs.
    seeds_needed : int, optional
        About how many seeds would tell the two apart.
    twins : int
        How many further settings have the very runs of this one.
    halted_runs : int
        How many of its runs, over all scenarios, stalled or trained nothing.
    runs : int
        How many runs of it were done, over all scenarios.
    """

    cell: int
    settings: dict[str, Any]
    value: float
    ess: float
    lag: float
    share: float
    low: float
    high: float
    identical: bool = False
    seeds_needed: int | None = None
    twins: int = 0
    halted_runs: int = 0
    equal: bool = False
    runs: int = 0


@dataclass(frozen=True)
class BoundReport:
    """What one constraint costs.

    Attributes
    ----------
    name, metric, limit
        The constraint.
    level : float
        The choice's value of that metric.
    binds : bool
        Whether a setting that breaks only this constraint is better, beyond doubt.
    first_step : Alternative, optional
        The better setting that needs the least relaxation, and `first_limit`, the limit that admits it.
    without : Alternative, optional
        The best setting if the constraint is dropped.
    keeps_others : bool
        When nothing is admissible: whether `first_step`, the setting nearest to this bound, keeps the others.
    """

    name: str
    metric: str
    limit: float
    level: float
    binds: bool
    first_limit: float | None = None
    first_step: Alternative | None = None
    without: Alternative | None = None
    keeps_others: bool = True


@dataclass(frozen=True)
class ScenarioReport:
    """How the choice fares in one scenario: `share`, `low`, `high` are its gain over the best one there."""

    scenario: dict[str, Any]
    cell: int
    value: float
    best: Alternative
    loss: float
    loss_low: float
    loss_high: float


def worst_scenarios(reports: Sequence[ScenarioReport]) -> tuple[list[ScenarioReport], int]:
    """Keep the scenarios in which the choice loses most, in their order, and count the others.

    A loss that is not known counts as large. A table of thousands is read by nobody.
    """
    if len(reports) <= MOST_REPORTS:
        return list(reports), 0
    losses = np.nan_to_num([report.loss for report in reports], nan=np.inf)
    kept = np.sort(np.argsort(-losses, kind="stable")[:MOST_REPORTS])
    return [reports[place] for place in kept.tolist()], len(reports) - MOST_REPORTS


@dataclass(frozen=True)
class Doubt:
    """One reason why the store cannot settle the question, and the command that would."""

    text: str
    command: str | None = None
