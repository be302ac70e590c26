"""More values where the frontier bends: a grid is finished, looked at, and extended between neighbours on it.

Between two neighbours on the frontier of throughput against ESS that are one step apart on an axis of
numbers, the value in the middle is a candidate. It counts by how sharply the frontier bends at its ends (the
area of the triangle with the next neighbour, both metrics scaled to their range on the frontier) and by how
far apart the two are. A value becomes a value of the whole axis, so the result stays a grid, and every cell
keeps its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...kernels.errors import ConfigError
from ..results.frontier import frontier
from ..spec.axes import is_whole, label
from ..spec.carried import spec_of
from ..spec.make import make_spec
from ..spec.spec import SweepSpec

if TYPE_CHECKING:
    import xarray

AT_ONCE = 2  # values that are added before the frontier is looked at again
_RATIO = 4.0  # of neighbours, from which on the middle is that of their ratio


class Proposal(NamedTuple):
    """A value to add to an axis.

    Parameters
    ----------
    weight : float
        How much the frontier bends there.
    axis : str
    value : int or float
    between : tuple
        The two values that it lies between.
    """

    weight: float
    axis: str
    value: Any
    between: tuple[Any, Any]

    def __str__(self) -> str:
        low, high = (label(value) for value in self.between)
        return (
            f"{self.axis} = {label(self.value)} is added, between {low} and {high}, where the frontier bends"
        )


def proposals(ds: xarray.Dataset) -> list[Proposal]:
    """List the values that would show more of the frontier, the most telling first.

    Parameters
    ----------
    ds : xarray.Dataset
        A finished sweep over a grid.

    Raises
    ------
    ConfigError
        If the sweep is one of points.
    """
    spec = spec_of(ds)
    if not spec.design.is_grid:
        way_out = "Write its values under [axes], or search instead."
        raise ConfigError("refine", "needs a grid of axes", "points", way_out)
    whole = frontier(ds)
    frame = whole.frame.filter(whole.frame["on_frontier"])
    cells = {int(cell): place for place, cell in enumerate(spec.cell_ids.reshape(-1))}
    places = [spec.design.indices(cells[int(cell)]) for cell in frame["cell"]]
    found: dict[tuple[str, Any], Proposal] = {}
    for first, weight in _bends(frame[whole.throughput].to_numpy(), frame[whole.ess].to_numpy()):
        for dim, name in enumerate(spec.design.dims):
            values = spec.design.columns[name][1]
            ends = sorted_numbers([values[places[first][dim]], values[places[first + 1][dim]]])
            if len(ends) < 2 or not _are_neighbours(ends, sorted_numbers(values)):
                continue
            value = _between(spec.design.fields[name], *ends)
            if value is None or value in values:
                continue
            known = found.get((name, value))
            if known is None or known.weight < weight:
                found[name, value] = Proposal(weight, name, value, (ends[0], ends[1]))
    return sorted(found.values(), key=lambda one: (-one.weight, one.axis, one.value))


def _bends(throughput: np.ndarray, ess: np.ndarray) -> list[tuple[int, float]]:
    """Weigh each piece of the frontier: its number, and its length times the bends at its ends."""
    points = np.column_stack([throughput, ess])
    span = np.ptp(points, axis=0) if len(points) else np.ones(2)
    points = points / np.where(span > 0, span, 1.0)
    steps = np.diff(points, axis=0)
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    bend = np.zeros(len(points))
    if len(points) > 2:
        bend[1:-1] = np.abs(steps[:-1, 0] * steps[1:, 1] - steps[:-1, 1] * steps[1:, 0]) / 2
    return [
        (place, float(length * (1e-3 + bend[place] + bend[place + 1])))
        for place, length in enumerate(lengths)
    ]


def sorted_numbers(values: Sequence[Any]) -> list[Any]:
    """Return the numbers among the values of an axis, each once, smallest first.

    Examples
    --------
    >>> sorted_numbers([4, None, True, "drain", 0.5, 4])
    [0.5, 4]
    """
    return sorted(
        {value for value in values if isinstance(value, int | float) and not isinstance(value, bool)}
    )


def _are_neighbours(ends: Sequence[Any], numbers: Sequence[Any]) -> bool:
    """Tell whether no number of an axis lies between two others: values that were added stand at its end."""
    return numbers.index(ends[1]) - numbers.index(ends[0]) == 1


def _between(field: str, low: Any, high: Any) -> Any:
    """Return the value in the middle of two numbers, None where there is none."""
    middle = math.sqrt(low * high) if low > 0 and high / low >= _RATIO else (low + high) / 2
    if is_whole(field) or (isinstance(low, int) and isinstance(high, int)):
        whole = round(middle)
        return whole if low < whole < high else None
    short = float(f"{middle:.4g}")
    return short if low < short < high else middle


def run_refined(
    spec: SweepSpec,
    most: int,
    begin: Callable[[SweepSpec], xarray.Dataset],
    grow: Callable[[SweepSpec], xarray.Dataset],
    tell: Callable[[str], Any],
) -> xarray.Dataset:
    """Run a grid, then add up to so many values of its axes where the frontier bends.

    What an earlier call added counts, so that the same call goes on where an interrupted one was and adds
    nothing more when it is done.

    Parameters
    ----------
    spec : SweepSpec
    most : int
        Values to add in all.
    begin, grow : callable
        Run a spec into the sweep's store: at first, and when it is larger.
    tell : callable
        Takes a line of talk.
    """
    ds = begin(spec)
    while (room := most - _added(spec, ds)) > 0:
        chosen: list[Proposal] = []
        grown = spec_of(ds)
        for one in proposals(ds):
            if len(chosen) == min(room, AT_ONCE):
                break
            bigger = _with_value(grown, one)
            if bigger is not None:
                grown = bigger
                chosen.append(one)
        if not chosen:
            tell("refine: no value of an axis lies between neighbours on the frontier")
            break
        for one in chosen:
            tell(f"refine: {one}")
        ds = grow(grown)
    return ds


def _added(spec: SweepSpec, ds: xarray.Dataset) -> int:
    """Count the values of axes that a store has beyond those asked."""
    stored = spec_of(ds).design
    return sum(stored.shape) - sum(spec.design.shape) if stored.is_grid else 0


def _with_value(spec: SweepSpec, one: Proposal) -> SweepSpec | None:
    """Return the sweep with one value more; None where cells with it contradict themselves."""
    axes = {name: list(values) for name, (_, values) in spec.design.columns.items()}
    axes[one.axis].append(one.value)
    try:
        made = make_spec(
            spec.base,
            axes,
            spec.seeds,
            constraints=spec.constraints,
            name=spec.name,
            baseline=spec.baseline,
            masks=spec.masks,
            tables=spec.tables,
            until=spec.until,
            windows=spec.windows,
            custom=spec.custom,
        )
    except ConfigError:
        return None
    return made.replace(runner=spec.runner)
