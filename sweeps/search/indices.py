"""Sobol's and Morris's indices by SALib: the points of a design, and what their values say of each setting.

Sobol: of the variance that a metric has over the whole space, ``S1`` is the share that one setting alone
explains, ``ST`` the share that goes when that setting is known besides all others, interactions included
(I. M. Sobol, Mathematics and Computers in Simulation 55, 2001; A. Saltelli et al., Computer Physics
Communications 181, 2010). ``N (D + 2)`` points for D settings.

Morris: settings are changed one at a time along trajectories; ``mu_star`` is the mean of the absolute effects
over the whole range in the metric's own unit, ``sigma`` their spread: large beside mu_star where a setting's
effect depends on the others (M. D. Morris, Technometrics 33, 1991; F. Campolongo et al., Environmental
Modelling & Software 22, 2007). ``N (D + 1)`` points: the cheap look at many settings.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError
from .space import Point, Space

METHODS = ("sobol", "morris")
MORRIS_LEVELS = 4
COLUMNS = {
    "sobol": ("S1", "S1_half_width", "ST", "ST_half_width"),
    "morris": ("mu_star", "mu_star_half_width", "sigma", "mu"),
}
_SAME = 1e-12  # of values that differ by rounding alone


def _salib() -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports
            import SALib  # noqa: F401
    except ImportError:
        way_out = "pip install 'lagsweep[sensitivity]'."
        raise ConfigError("method", "needs the package SALib", "SALib", way_out) from None


def _problem(space: Space) -> dict[str, Any]:
    names = [axis.name for axis in space.axes]
    return {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}


def design_of(method: str, space: Space, count: int) -> np.ndarray:
    """Return the points of the design in the unit cube, repeated ones and all."""
    _salib()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method == "sobol":
            from SALib.sample import sobol

            power = 2 ** int(np.ceil(np.log2(count)))
            return np.asarray(
                sobol.sample(_problem(space), power, calc_second_order=False, seed=space.base.seed)
            )
        from SALib.sample import morris

        if len(space.axes) < 2:
            raise ConfigError("axes", "must be two or more for Morris", len(space.axes), "Name another.")
        return np.asarray(
            morris.sample(_problem(space), count, num_levels=MORRIS_LEVELS, seed=space.base.seed)
        )


def points_of(space: Space, unit: np.ndarray) -> tuple[list[Point], np.ndarray]:
    """Turn places into points, equal ones once; tell which point each place is.

    Raises
    ------
    ConfigError
        If a point contradicts itself or breaks a constraint.
    """
    columns = [axis.at(unit[:, place]) for place, axis in enumerate(space.axes)]
    rows = [dict(zip((axis.name for axis in space.axes), row)) for row in zip(*columns)]
    keys = [space.key(row) for row in rows]
    first: dict[Any, int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    fresh = [rows[place] for place in first.values()]
    if len(space.only_fresh(fresh)) < len(fresh):
        why = f": {space.reason.field} {space.reason.rule}" if space.reason is not None else ""
        raise ConfigError(
            "axes",
            f"must be ranges in which every point makes sense{why}",
            f"{space.refused:,} of {len(fresh):,} points do not",
            "Narrow the ranges, or leave the constraint out.",
        )
    numbers = {key: number for number, key in enumerate(first)}
    return fresh, np.array([numbers[key] for key in keys])


def indices_of(
    method: str, space: Space, unit: np.ndarray, values: np.ndarray, metric: str, sure: float, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each axis."""
    names = [axis.name for axis in space.axes]
    if not np.ptp(values) > _SAME * np.abs(values).max(initial=0.0):  # nothing moves it
        return [{"metric": metric, "axis": name, **dict.fromkeys(COLUMNS[method], 0.0)} for name in names]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if method == "sobol":
            from SALib.analyze import sobol

            found = sobol.analyze(
                _problem(space),
                values,
                calc_second_order=False,
                num_resamples=200,
                conf_level=sure,
                seed=seed,
            )
            columns = {"S1": "S1", "S1_half_width": "S1_conf", "ST": "ST", "ST_half_width": "ST_conf"}
        else:
            from SALib.analyze import morris

            found = morris.analyze(
                _problem(space), unit, values, num_levels=MORRIS_LEVELS, num_resamples=200, conf_level=sure,
                seed=seed,
            )  # fmt: skip
            columns = {
                "mu_star": "mu_star",
                "mu_star_half_width": "mu_star_conf",
                "sigma": "sigma",
                "mu": "mu",
            }
    return [
        {
            "metric": metric,
            "axis": name,
            **{ours: float(found[theirs][place]) for ours, theirs in columns.items()},
        }
        for place, name in enumerate(names)
    ]
