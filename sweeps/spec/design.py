"""Designs: the cells of a sweep. A full grid keeps its axes as dimensions, anything else is a list of points.

A design is built from groups; the columns of a group go together (zipped), the groups are crossed. When
every group has a single column the design is a grid, and the dimensions are the axes; otherwise the crossed
groups are written out as one dimension ``point`` with the axis values as coordinates. Explicit points,
Latin hypercube and Sobol points are groups with several columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, Finding, nearest
from ..checks import WholeNumber, checked
from .axes import (
    checked_axis,
    coordinate,
    expand,
    field_of_axis,
    identity,
    is_whole,
    shown,
)

POINT = "point"
MOST_CELLS = 100_000_000
MOST_POINTS = 10_000_000
SAMPLING_METHODS = ("latin_hypercube", "sobol")


@dataclass(frozen=True)
class Design:
    """The cells of a sweep.

    Parameters
    ----------
    dims : tuple of str
        The axes of a grid, or ``("point",)``; empty for a single cell.
    shape : tuple of int
        How many cells lie along each dimension.
    columns : dict
        Axis -> (position of its dimension, values along it).
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    columns: Mapping[str, tuple[int, tuple[Any, ...]]]

    @property
    def is_grid(self) -> bool:
        """Whether the dimensions are the axes."""
        return self.dims != (POINT,)

    @property
    def size(self) -> int:
        """The number of cells, excluded ones too."""
        return math.prod(self.shape)

    @property
    def fields(self) -> dict[str, str]:
        """Axis -> the configuration field that it sets."""
        return {name: field_of_axis(name) for name in self.columns}

    def indices(self, cell: int) -> tuple[int, ...]:
        """Return a cell's position along each dimension."""
        return tuple(int(index) for index in np.unravel_index(cell, self.shape)) if self.dims else ()

    def settings(self, cell: int) -> dict[str, Any]:
        """Return the fields that a cell sets, with their values."""
        at = self.indices(cell)
        return {field_of_axis(name): values[at[dim]] for name, (dim, values) in self.columns.items()}

    def settings_of(self, cells: Sequence[int] | np.ndarray) -> Iterator[dict[str, Any]]:
        """Return the fields that each of some cells sets, with their values, one cell after another.

        Examples
        --------
        >>> design = design_from_groups([{"max_lag": [1, 2]}, {"sync_cadence": [1, 2, 3]}])
        >>> list(design.settings_of([0, 5])) == [design.settings(0), design.settings(5)]
        True
        """
        places = np.asarray(cells, np.int64)
        at = [along.tolist() for along in np.unravel_index(places, self.shape)] if self.dims else []
        columns = [(field_of_axis(name), values, at[dim]) for name, (dim, values) in self.columns.items()]
        for place in range(len(places)):
            yield {field: values[along[place]] for field, values, along in columns}

    def broadcast(self, dim: int, along: np.ndarray) -> np.ndarray:
        """Return an array along one dimension the shape that broadcasts over the cells."""
        return along.reshape([-1 if position == dim else 1 for position in range(len(self.dims))])

    def coordinates(self) -> dict[str, tuple[str, np.ndarray]]:
        """Return each axis as (dimension, coordinate values)."""
        return {name: (self.dims[dim], coordinate(values)) for name, (dim, values) in self.columns.items()}

    def groups(self) -> list[dict[str, tuple[Any, ...]]]:
        """Return the columns as groups again: what :func:`design_from_groups` takes."""
        if self.is_grid:
            return [{name: values} for name, (_, values) in self.columns.items()]
        return [{name: values for name, (_, values) in self.columns.items()}]


def design_from_groups(groups: Sequence[Mapping[str, Sequence[Any]]], where: str = "axes") -> Design:
    """Cross groups of zipped columns into a design; every value is checked.

    Parameters
    ----------
    groups : sequence of mappings
        Axis -> values or range; the columns of one group have equal lengths.
    where : str
        What to call the place in an error.

    Raises
    ------
    ConfigError
        For unknown axes, bad, missing or repeated values, unequal lengths, repeated axes or points.

    Examples
    --------
    >>> design_from_groups([{"max_lag": [1, 2]}, {"sync_cadence": [1, 2, 3]}]).shape
    (2, 3)
    >>> design_from_groups([{"max_lag": [1, 2], "sync_cadence": [1, 2]}]).dims
    ('point',)
    """
    checked = _checked_groups([group for group in groups if group], where)
    lengths = [len(next(iter(group.values()))) for group in checked]
    if math.prod(lengths) > MOST_CELLS:
        raise ConfigError(
            where, f"must give at most {MOST_CELLS} cells", math.prod(lengths), "Use fewer values."
        )
    if all(len(group) == 1 for group in checked):
        names = [name for group in checked for name in group]
        columns = {name: (dim, group[name]) for dim, (name, group) in enumerate(zip(names, checked))}
        return Design(tuple(names), tuple(lengths), columns)
    index = np.indices(lengths).reshape(len(lengths), -1)
    columns = {
        name: (0, tuple(values[row] for row in index[position]))
        for position, group in enumerate(checked)
        for name, values in group.items()
    }
    _refuse_repeated_points(columns, where)
    return Design((POINT,), (math.prod(lengths),), columns)


def _checked_groups(groups: Sequence[Mapping[str, Any]], where: str) -> list[dict[str, tuple[Any, ...]]]:
    findings: list[Finding] = []
    fields: dict[str, str] = {}
    checked: list[dict[str, tuple[Any, ...]]] = []
    for group in groups:
        columns: dict[str, tuple[Any, ...]] = {}
        for name, given in group.items():
            try:
                field = field_of_axis(name, where)
                if field in fields:
                    raise ConfigError(
                        f"{where}.{name}",
                        f"sets the field of axis {fields[field]!r} again",
                        name,
                        "Drop one.",
                    )
                fields[field] = name
                columns[name] = checked_axis(
                    name, expand(name, given, where), where, distinct=len(group) == 1
                )
            except ConfigError as error:
                findings += error.findings
        if len({len(values) for values in columns.values()}) > 1:
            lengths = {name: len(values) for name, values in columns.items()}
            findings.append(
                Finding(where, "zipped axes must have equally many values", lengths, "Even them out.")
            )
        checked.append(columns)
    if findings:
        raise ConfigError(*findings)
    return checked


def _refuse_repeated_points(columns: Mapping[str, tuple[int, tuple[Any, ...]]], where: str) -> None:
    seen: set[tuple[str, ...]] = set()
    rows = zip(*([identity(value) for value in values] for _, values in columns.values()))
    for number, row in enumerate(rows):
        if row in seen:
            point = {name: shown(values[number]) for name, (_, values) in columns.items()}
            raise ConfigError(where, f"must not repeat a point (point {number})", point, "Give it once.")
        seen.add(row)


def sampled_group(
    ranges: Mapping[str, Any], *, method: str, points: int, seed: int = 0, where: str = "axes"
) -> dict[str, list[Any]]:
    """Draw points from ranges: a group of zipped columns.

    Parameters
    ----------
    ranges : mapping
        Axis -> ``{"from": a, "to": b, "scale": "linear" or "log"}``, or a list to choose from.
    method : {"latin_hypercube", "sobol"}
        From ``scipy.stats.qmc``; Sobol points are scrambled, best in powers of two.
    points : int
        How many to draw; equal ones (after rounding whole fields) are kept once.
    seed : int
        Of the design, apart from the seeds of the runs.

    Raises
    ------
    ConfigError
        For an unknown method or a range that makes no sense.

    Examples
    --------
    >>> group = sampled_group({"max_lag": {"from": 0, "to": 9}}, method="sobol", points=4)
    >>> len(group["max_lag"])
    4
    """
    from scipy.stats import qmc

    if method not in SAMPLING_METHODS:
        hint = nearest(str(method), SAMPLING_METHODS) or "Choose one of them."
        raise ConfigError("sample.method", f"must be one of {', '.join(SAMPLING_METHODS)}", method, hint)
    rule = "must be a whole number"
    points = checked(
        WholeNumber,
        "sample.points",
        points,
        low=1,
        high=MOST_POINTS,
        rule=f"{rule} up to {MOST_POINTS}",
        way_out="Give points = 64.",
    )
    seed = checked(WholeNumber, "sample.seed", seed, low=0, rule=rule, way_out="Give seed = 64.")
    if not ranges:
        raise ConfigError(where, "must have ranges to sample", {}, "Give an [axes] section.")
    if method == "sobol":
        engine: Any = qmc.Sobol(d=len(ranges), scramble=True, rng=np.random.default_rng(seed))
        # A power of two keeps the sequence balanced (and SciPy quiet); the first of them are used.
        unit = engine.random_base2(math.ceil(math.log2(points)))[:points]
    else:
        unit = qmc.LatinHypercube(d=len(ranges), rng=np.random.default_rng(seed)).random(points)
    columns = {
        name: scaled_values(name, given, unit[:, k], where) for k, (name, given) in enumerate(ranges.items())
    }
    rows = list({tuple(map(identity, row)): row for row in zip(*columns.values())}.values())
    return {name: [row[k] for row in rows] for k, name in enumerate(columns)}


def scaled_values(name: str, given: Any, unit: np.ndarray, where: str = "axes") -> list[Any]:
    """Return the values of an axis at places between 0 and 1 of its range, or of its list.

    Examples
    --------
    >>> scaled_values("max_lag", {"from": 0, "to": 9}, np.array([0.0, 0.55, 1.0]))
    [0, 5, 9]
    """
    field = field_of_axis(name, where)
    if not isinstance(given, Mapping):
        values = checked_axis(name, expand(name, given, where), where, distinct=False)
        return [values[min(int(u * len(values)), len(values) - 1)] for u in unit]
    # expand() says what is wrong with the ends; two values are enough for that.
    expand(name, {**given, "count": 2}, where)
    low, high = given["from"], given["to"]
    whole = is_whole(field)
    if given.get("scale") == "log":
        numbers = np.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
    elif whole:
        # Every whole number of the range gets the same share.
        return [int(min(low + math.floor(u * (high - low + 1)), high)) for u in unit]
    else:
        numbers = low + unit * (high - low)
    return [round(number) if whole else float(number) for number in numbers]
