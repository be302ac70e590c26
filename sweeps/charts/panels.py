"""Which cells of a grid go into which heatmap: two axes across each, one heatmap a value of a third."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import is_number
from ...kernels.errors import ConfigError, nearest
from ...kernels.intervals import mean_interval
from ..checks import mapping_of
from ..results.cells import axis_names, cell_coordinates, cell_values
from ..results.frontier import ESS, THROUGHPUT
from ..results.numbers import number
from ..results.words import axis_words, describe_settings
from .gists import heatmap_gist

if TYPE_CHECKING:
    import altair
    import xarray

MOST_PANELS = 6
MOST_TILES = 25  # along one axis
HEATMAP_METRICS = (THROUGHPUT, ESS, "effective_tokens_per_second")
_PREFERRED = ("max_lag", "queue_cap", "sync_cadence")


@dataclass(frozen=True)
class Panel:
    """One heatmap's cells.

    Attributes
    ----------
    rows : list of dict
        ``cell``, the axes, and ``<metric>`` and ``<metric>_half_width`` of each metric.
    x, y : str
        Axes; y may be None.
    title : str, optional
        The facet's value.
    where : str
        The values of the axes that are not shown, and how many values of an axis are left out.
    domains : dict
        Metric -> the colours' range, the same in all panels.
    """

    rows: list[dict[str, Any]]
    x: str
    y: str | None
    title: str | None
    where: str
    domains: dict[str, tuple[float, float]]
    confidence: float

    def chart(self, metric: str, *, legend: bool = True, linked: bool = False) -> altair.LayerChart:
        """Draw it."""
        from .heatmap import heatmap_chart

        return heatmap_chart(
            self.rows,
            metric=metric,
            x=self.x,
            y=self.y,
            domain=self.domains[metric],
            title=self.title,
            confidence=self.confidence,
            legend=legend,
            linked=linked,
        )

    def gist(self, metric: str) -> str:
        """Say what the heatmap of a metric shows."""
        return heatmap_gist(self.rows, metric, self.x, self.y, self.title)

    def chart_rows(self, metric: str) -> list[dict[str, Any]]:
        """Return the rows that the chart of a metric has."""
        from .heatmap import tile_rows

        return tile_rows(self.rows, metric, self.x, self.y)


def heatmap_panels(
    ds: xarray.Dataset,
    metrics: Sequence[str],
    *,
    x: str | None = None,
    y: str | None = None,
    facet: str | None = None,
    at: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> list[Panel]:
    """Cut a grid into heatmaps.

    Parameters
    ----------
    ds : xarray.Dataset
    metrics : sequence of str
        Read for every tile; the first decides which cell is best.
    x, y, facet : str, optional
        Axes; chosen when left out.
    at : mapping, optional
        Values of the other axes; the best cell's when left out.
    confidence : float

    Raises
    ------
    ConfigError
        For a design of points, or an unknown axis or value.
    """
    axes = axis_names(ds)
    if "point" in ds.dims or not axes:
        raise ConfigError(
            "dataset", "must be a grid", dict(ds.sizes), "Use plot_frontier for points, or xarray."
        )
    chosen = mapping_of("at", at, "Give a value of each axis that is not shown.")
    x, y, facet = _chosen(axes, x, y, facet, chosen)
    cells, columns = cell_coordinates(ds)
    figures = {metric: mean_interval(cell_values(ds, metric), confidence) for metric in metrics}
    kept, where = _slice(columns, [n for n in axes if n not in (x, y, facet)], chosen, figures[metrics[0]][0])
    kept &= _thinned(columns[x]) & (_thinned(columns[y]) if y is not None else True)
    values: list[Any] = _facets(columns[facet], kept) if facet is not None else [None]
    where += _left_out(columns, kept, (x, y), facet, len(values))
    domains = {metric: _domain(figures[metric][0][kept]) for metric in metrics}
    panels = []
    for value in values:
        places = np.flatnonzero(kept & (columns[facet] == value) if facet is not None else kept)
        rows = [_row(int(place), cells, columns, (x, y), figures) for place in places]
        title = None if facet is None else f"{axis_words(facet).phrase} {number(value.item())}"
        panels.append(Panel(rows, x, y, title, where, domains, confidence))
    return panels


def _row(
    place: int,
    cells: np.ndarray,
    columns: Mapping[str, np.ndarray],
    shown: tuple[str, str | None],
    figures: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, Any]:
    from .style import plain_value

    row: dict[str, Any] = {"cell": int(cells[place])}
    row |= {name: columns[name][place].item() for name in shown if name is not None}
    for metric, (mean, half) in figures.items():
        row[metric], row[f"{metric}_half_width"] = plain_value(mean[place]), plain_value(half[place])
    return row


def _chosen(
    axes: Sequence[str], x: str | None, y: str | None, facet: str | None, at: Mapping[str, Any]
) -> tuple[str, str | None, str | None]:
    """Choose the axes that are shown: those that are named, then others that do not stand at a value."""
    given = [name for name in (x, y, facet) if name is not None]
    for name in given:
        if not isinstance(name, str) or name not in axes:
            hint = nearest(name, axes) or f"Axes: {', '.join(axes)}."
            raise ConfigError("axis", "must be one of the sweep's", name, hint)
    if len(set(given)) < len(given):
        raise ConfigError("axis", "must be used once", given, "Give x, y and facet different axes.")
    free = [name for name in _PREFERRED if name in axes] + [name for name in axes if name not in _PREFERRED]
    free = [name for name in free if name not in given and name not in at]
    chosen: list[str | None] = []
    for wanted in (x, y, facet):
        chosen.append(wanted if wanted is not None else free.pop(0) if free else None)
    first, second, third = chosen
    if first is None:
        raise ConfigError("at", "must leave an axis to show", dict(at), "Leave one out.")
    return first, second, third


def _slice(
    columns: Mapping[str, np.ndarray], others: Sequence[str], at: Mapping[str, Any], mean: np.ndarray
) -> tuple[np.ndarray, str]:
    """Keep the cells with the given values of the axes that are not shown, the best cell's by default."""
    unknown = [name for name in at if name not in others]
    if unknown:
        hint = nearest(unknown[0], others) or f"Axes that are not shown: {', '.join(others) or 'none'}."
        hint = f"It is x, y or facet here: leave it out of one. {hint}" if unknown[0] in columns else hint
        raise ConfigError("at", "must name axes that are not shown", unknown[0], hint)
    best = int(np.nanargmax(mean)) if np.isfinite(mean).any() else 0
    settings = {name: at.get(name, columns[name][best].item()) for name in others}
    kept = np.ones(len(mean), bool)
    for name, value in settings.items():
        kept &= _at(columns[name], value)
        if not kept.any():
            raise ConfigError(
                f"at.{name}", "must be a value of the axis", value, "See ds.coords for its values."
            )
    return kept, f"at {describe_settings(settings)}" if settings else ""


def _at(column: np.ndarray, value: Any) -> np.ndarray:
    """Tell which cells stand at a value; of an axis that mixes numbers with none the values are labels."""
    if column.dtype.kind == "U" and (value is None or is_number(value)):
        same = [_number_of(label) == (math.inf if value is None else value) for label in column.tolist()]
        return np.array(same, bool)
    return np.asarray(column == (value if is_number(value) or isinstance(value, str) else np.nan))


def _number_of(label: str) -> float:
    """Return the number that a label stands for, NaN where it is a word."""
    if label == "none":
        return math.inf
    try:
        return float(label)
    except ValueError:
        return math.nan


def _thinned(column: np.ndarray) -> np.ndarray:
    """Keep so many values of an axis as tiles can be told apart, both ends among them."""
    values = list(dict.fromkeys(column.tolist()))
    if len(values) <= MOST_TILES:
        return np.ones(len(column), bool)
    places = np.unique(np.linspace(0, len(values) - 1, MOST_TILES).round().astype(int))
    return np.isin(column, np.array([values[place] for place in places]))


def _facets(column: np.ndarray, kept: np.ndarray) -> list[Any]:
    values = list(dict.fromkeys(column[kept].tolist()))
    places = np.unique(np.linspace(0, len(values) - 1, min(MOST_PANELS, len(values))).round().astype(int))
    return [np.array(values)[place] for place in places]


def _left_out(
    columns: Mapping[str, np.ndarray],
    kept: np.ndarray,
    shown: tuple[str, str | None],
    facet: str | None,
    facets: int,
) -> str:
    """Say of which axes some values are left out."""
    parts = []
    for name in (*shown, facet):
        if name is not None:
            total = len(set(columns[name].tolist()))
            count = facets if name == facet else len(set(columns[name][kept].tolist()))
            if count < total:
                parts.append(f"; {count} of {total} values of {name}")
    return "".join(parts)


def _domain(values: np.ndarray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
