"""What a report says, before it becomes a page: the cells it shows, their figures, sentences and tables.

Everything is aggregated here; a million runs become some dozens of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..execute.progress import Progress
from ..recommend.recommend import Recommendation, recommend_from
from ..results.cadence import NEEDED
from ..results.cells import cell_coordinates, cell_values, find_cell, not_recorded
from ..results.frontier import ESS, THROUGHPUT, Frontier, baseline_values, frontier
from ..results.frontier_table import MOST_SCENARIOS, distinct, wished_for, worth_a_look
from ..results.words import short_label
from ..spec.carried import spec_of

if TYPE_CHECKING:
    import xarray

    from ..spec.spec import SweepSpec

MOST_SHOWN = 12
EFFECTIVE = "effective_tokens_per_second"
_ALWAYS = (
    "updates", "trained_rollouts", "trained_tokens", "generated_tokens", "discarded_tokens", "stalled",
    "max_lag_observed", THROUGHPUT, EFFECTIVE, ESS, "mean_lag", "seconds_per_update", "trainer_utilization",
    "rollout_utilization", "backpressure_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """One cell that the report names.

    Attributes
    ----------
    place : int
        Its row in the order of the cells.
    cell : int
    number : int
        From 1, fastest first.
    label : str
        Short, and unlike every other.
    row : mapping
        Of the frontier's frame.
    """

    place: int
    cell: int
    number: int
    label: str
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One cell against the reference in one metric, relative to the reference's mean."""

    shown: Shown
    metric: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Content:
    """Everything that a report is made from.

    Attributes
    ----------
    ds : xarray.Dataset
        What is needed of the sweep, in memory.
    whole : xarray.Dataset
        The sweep itself.
    shown : tuple of Shown
        The frontier and the choice.
    looked_at : tuple of Shown
        At most six of them, for the lag distributions.
    reference : str
        What the differences are against.
    differences : tuple of Difference
    status : dict
        How many runs are not run, done, failed, excluded.
    scenarios : tuple of (values, Frontier)
        The scenarios that are shown, each with its frontier; one without values where there is one only.
    """

    ds: xarray.Dataset
    whole: xarray.Dataset
    spec: SweepSpec
    found: Frontier
    best: Recommendation
    shown: tuple[Shown, ...]
    looked_at: tuple[Shown, ...]
    reference: str
    differences: tuple[Difference, ...]
    status: dict[str, int]
    confidence: float
    store: str | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
    scenarios: tuple[tuple[dict[str, Any], Frontier], ...] = ()


def gather(
    ds: xarray.Dataset,
    *,
    store: str | None = None,
    maximize: str | None = None,
    min_ess: float | None = None,
    max_lag: int | None = None,
    reference: int | Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Content:
    """Work out what a report says.

    Parameters
    ----------
    ds : xarray.Dataset
    store : str, optional
        The sweep's folder, for the commands.
    maximize, min_ess, max_lag
        As :func:`lagsweep.recommend`; of the verdict.
    reference : int or mapping, optional
        The cell that others are compared with; the sequential baseline or else the choice when left out.
    confidence : float
    progress : Progress, optional
        Told of each variable that is read.
    """

    needed = _loaded(ds, maximize, progress or Progress())
    found = frontier(needed, confidence=confidence)
    best = recommend_from(
        needed,
        ds,
        maximize=maximize,
        min_ess=min_ess,
        max_lag=max_lag,
        confidence=confidence,
        store=store,
    )
    scenarios = tuple(_spread(found.parts(), MOST_SCENARIOS))
    shown = _shown(needed, found, best, [part for _, part in scenarios])
    chosen = next((one for one in shown if one.cell == best.cell), None)
    name, differences = _differences(needed, shown, chosen, reference, confidence)
    return Content(
        ds=needed,
        whole=ds,
        spec=spec_of(ds),
        found=found,
        best=best,
        shown=shown,
        looked_at=_looked_at(found, [part for _, part in scenarios], shown, chosen),
        reference=name,
        differences=differences,
        status=_counts(needed),
        confidence=confidence,
        store=store,
        scenarios=scenarios,
    )


def _loaded(ds: xarray.Dataset, maximize: str | None, progress: Progress) -> xarray.Dataset:
    """Read the variables that a report needs, and no others, once."""
    causes = [
        name
        for name in ds.data_vars
        if str(name).startswith(("slots_", "trainer_")) and "_seconds" in str(name)
    ]
    names = dict.fromkeys((*_ALWAYS, *NEEDED, *([maximize] if maximize else []), "status", *causes))
    present = [name for name in names if name in ds.data_vars]
    baseline = [f"baseline_{name}" for name in names if f"baseline_{name}" in ds.data_vars]
    reason = ["reason"] if "reason" in ds.data_vars else []
    loaded = ds[[*present, *baseline, *reason]]
    with progress.steps("variables read", len(loaded.variables)) as step:
        for variable in loaded.variables.values():
            variable.load()
            step()
    loaded.encoding = ds.encoding
    return loaded


def _shown(
    ds: xarray.Dataset, found: Frontier, best: Recommendation, parts: Sequence[Frontier]
) -> tuple[Shown, ...]:
    """Choose what the page names: of each scenario its frontier and what is worth a look; the choice."""
    ties = [tie.cell for tie in best.ties if not tie.identical][:3]
    rows = [row for part in parts for row in _of_scenario(part, best, ties, max(4, MOST_SHOWN // len(parts)))]
    cells, _ = cell_coordinates(ds)
    places = {int(cell): place for place, cell in enumerate(cells)}
    labels = _labels([{name: row[name] for name in found.axes} for row in rows])
    return tuple(
        Shown(places[row["cell"]], row["cell"], number, label, row)
        for number, (row, label) in enumerate(zip(rows, labels), start=1)
    )


def _of_scenario(
    found: Frontier, best: Recommendation, ties: Sequence[int], most: int
) -> list[dict[str, Any]]:
    frontier_cells = distinct(found, found.on_frontier())
    rows: list[dict[str, Any]] = _spread(frontier_cells.to_dicts(), most)
    known = {row["cell"] for row in rows}
    wanted = [*(row["cell"] for _, row in worth_a_look(found)), *ties]
    wanted += [best.cell] if best.cell is not None else []
    more = [cell for cell in dict.fromkeys(wanted) if cell not in known]
    if more:
        frame = found.frame
        extra = frame.filter(frame["cell"].is_in(more)).to_dicts()
        choice = [row for row in extra if row["cell"] == best.cell]
        rows = _different(found, [*choice, *rows, *extra])
    return sorted(rows, key=lambda row: -row[found.throughput])


def _different(found: Frontier, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first of rows with the same figures."""
    names = (found.throughput, found.ess, "mean_lag", "seconds_per_update")
    return list({tuple(row[name] for name in names): row for row in reversed(rows)}.values())[::-1]


def _spread(rows: Sequence[Any], most: int) -> list[Any]:
    """Keep so many rows, evenly along the frontier, both ends among them."""
    if len(rows) <= most:
        return list(rows)
    if most < 2:
        return [rows[place] for place in range(len(rows) // 2, len(rows) // 2 + most)]
    places = np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))
    return [rows[place] for place in places]


def _labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name cells by the axes in which they differ, with a number in front when names get long."""
    differing = [
        name for name in (settings[0] if settings else {}) if len({str(s[name]) for s in settings}) > 1
    ]
    labels = [short_label({name: one[name] for name in differing}) or "the base" for one in settings]
    if max((len(label) for label in labels), default=0) > 30 or len(set(labels)) < len(labels):
        labels = [f"#{number} {label}" for number, label in enumerate(labels, start=1)]
    return labels


def _looked_at(
    found: Frontier, parts: Sequence[Frontier], shown: Sequence[Shown], chosen: Shown | None
) -> tuple[Shown, ...]:
    cells = dict.fromkeys(
        [*([chosen.cell] if chosen is not None else []), *(row["cell"] for _, row in wished_for(parts))]
    )
    by_cell = {one.cell: one for one in shown}
    picked = _other_runs(found, [by_cell[cell] for cell in cells if cell in by_cell])
    others = [one for one in shown if one not in picked and one.row["on_frontier"]]
    others = _other_runs(found, [*picked, *others])[len(picked) :]
    return tuple([*picked, *_spread(others, max(0, 5 - len(picked)))][:6])


def _other_runs(found: Frontier, cells: Sequence[Shown]) -> list[Shown]:
    """Keep the first of cells whose runs are the same: the drift, for one, changes no run."""
    figures = (found.throughput, "mean_lag", "seconds_per_update")
    return list({tuple(one.row[name] for name in figures): one for one in reversed(cells)}.values())[::-1]


def _differences(
    ds: xarray.Dataset,
    shown: Sequence[Shown],
    chosen: Shown | None,
    reference: int | Mapping[str, Any] | None,
    confidence: float,
) -> tuple[str, tuple[Difference, ...]]:
    """Compare every shown cell with one reference, seed by seed, in plain and effective throughput."""
    places = [one.place for one in shown]
    if not places:
        return "", ()
    name, own = _reference(ds, shown, chosen, reference)
    differences = []
    for metric in (THROUGHPUT, EFFECTIVE):
        if metric in not_recorded(ds):
            continue
        values = cell_values(ds, metric)
        side = values[[own]] if own is not None else baseline_values(ds, metric, places)
        if side is None:  # the baseline has no such metric
            continue
        other = np.broadcast_to(side, (len(places), values.shape[-1]))
        scale = np.abs(mean_interval(other, confidence)[0])
        scale = np.where(scale > 0, scale, np.nan)
        mean, half = mean_interval((values[places] - other) / scale[:, None], confidence)
        differences += [
            Difference(one, metric, float(mean[k]), float(mean[k] - half[k]), float(mean[k] + half[k]))
            for k, one in enumerate(shown)
            if np.isfinite(mean[k]) and one.place != own
        ]
    return name, tuple(differences)


def _reference(
    ds: xarray.Dataset,
    shown: Sequence[Shown],
    chosen: Shown | None,
    reference: int | Mapping[str, Any] | None,
) -> tuple[str, int | None]:
    """Say what cells are compared with: a name, and its place (None for the sequential baseline)."""
    if reference is not None:
        own = find_cell(ds, reference)
        cells, axes = cell_coordinates(ds)
        label = short_label({axis: values[own].item() for axis, values in axes.items()})
        return label or f"cell {cells[own]}", own
    if "baseline_status" in ds:
        return "the sequential baseline", None
    if chosen is not None:
        return "the choice", chosen.place
    return "the fastest", shown[0].place


def _counts(ds: xarray.Dataset) -> dict[str, int]:
    status = ds["status"].values
    names = ("not run", "done", "failed", "excluded")
    return {name: int((status == code).sum()) for code, name in enumerate(names)}
