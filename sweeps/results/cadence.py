"""How often to save: goodput and effective tokens/s along the checkpoint cadence, a curve per failure rate.

Beside the best cadence that the runs have stand the three rules of :mod:`...kernels.recovery.interval`, each
an interval of work turned into updates by the mean seconds of a step. The rules know a trainer that always
has data; where it waits, a full queue hides a part of what they count (:func:`least_loss`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.intervals import mean_interval
from ...kernels.recovery.cost import expected_overhead_fraction
from ...kernels.recovery.interval import optimal_checkpoint_interval
from ..spec.carried import spec_of
from .cells import GOODPUT, axis_names, cell_coordinates, cell_values, has_failures, recorded_values
from .frontier import THROUGHPUT

if TYPE_CHECKING:
    import xarray

    from ..config.config import PipelineConfig

CADENCE = "checkpoint_every_updates"
RATE = "trainer_mtbf_seconds"
SCOPE = "checkpoint_scope"
EFFECTIVE = "effective_tokens_per_second"
NEEDED = (EFFECTIVE, GOODPUT, "lost_updates", "lost_tokens", "repeated_prompts")
RULES = ("young", "daly_higher", "exact")
_OWN = (CADENCE, RATE, SCOPE)


def default_objective(options: frozenset[str]) -> str:
    """Name what is maximized where nobody says it: with failures, the effective tokens/s that survive them.

    Examples
    --------
    >>> default_objective(frozenset()), default_objective(frozenset({"failures"}))
    ('trained_tokens_per_second', 'effective_tokens_per_second')
    """
    return EFFECTIVE if "failures" in options else THROUGHPUT


@dataclass(frozen=True)
class CadenceCurve:
    """What one failure rate, with one scope of checkpoints, makes of each cadence.

    Attributes
    ----------
    mtbf_seconds : float or None
        None where the trainer does not fail.
    scope : {"full", "weights_only"}
    checkpoint_seconds, restart_seconds : float
    rows, cells : ndarray of int64, shape (cadences,)
        Places of the cells, and their ids.
    cadences : ndarray of int64, shape (cadences,)
        Updates between two checkpoints, rising.
    effective, goodput : ndarray of float64, shape (cadences,)
        Means over the seeds; `effective_half`, `goodput_half` are the half widths of their intervals.
    by_seed : ndarray of float64, shape (cadences, seeds)
        Effective tokens/s.
    step_seconds : float
        Mean wall time from one step's end to the next, without checkpoints and restarts, at the best cadence.
    best : int
        Place of the cadence with the most effective tokens/s.
    alike : tuple of int
        Cadences whose effective tokens/s cannot be told from those of the best one, paired by seed.
    rules : dict
        Rule -> its interval in updates; empty where there is no failure or a checkpoint is free.
    """

    mtbf_seconds: float | None
    scope: str
    checkpoint_seconds: float
    restart_seconds: float
    rows: np.ndarray
    cells: np.ndarray
    cadences: np.ndarray
    effective: np.ndarray
    effective_half: np.ndarray
    goodput: np.ndarray
    goodput_half: np.ndarray
    by_seed: np.ndarray
    step_seconds: float
    best: int
    alike: tuple[int, ...]
    rules: Mapping[str, float]

    @property
    def label(self) -> str:
        """Name it in few words."""
        return f"{rate_words(self.mtbf_seconds)}, {self.scope.replace('_', ' ')}"


@dataclass(frozen=True)
class CadenceCurves:
    """All curves of a sweep.

    Attributes
    ----------
    curves : tuple of CadenceCurve
        The most frequent failures first.
    at : dict
        Where the other axes stand: at the values of the cell with the most effective tokens/s.
    """

    curves: tuple[CadenceCurve, ...]
    at: dict[str, Any]


def rate_words(mtbf_seconds: float | None) -> str:
    """Say how often the trainer fails.

    Examples
    --------
    >>> rate_words(11_135.0), rate_words(900.0), rate_words(None)
    ('a failure every 3.09 h', 'a failure every 15 min', 'no failures')
    """
    if mtbf_seconds is None:
        return "no failures"
    if mtbf_seconds < 3600:
        return f"a failure every {mtbf_seconds / 60:.3g} min"
    return f"a failure every {mtbf_seconds / 3600:,.3g} h"


def cadence_curves(ds: xarray.Dataset, confidence: float = 0.95) -> CadenceCurves | None:
    """Cut a sweep into curves along the cadence.

    Parameters
    ----------
    ds : xarray.Dataset
    confidence : float
        Of intervals, and of all that is told apart on one curve.

    Returns
    -------
    CadenceCurves or None
        None where there is nothing to draw: no failures, or fewer than two cadences on every curve.
    """
    if not has_failures(ds) or "point" in ds.dims or CADENCE not in axis_names(ds):
        return None
    spec = spec_of(ds)
    cells, columns = cell_coordinates(ds)
    values = {name: cell_values(ds, name) for name in (EFFECTIVE, GOODPUT)}
    means = mean_interval(values[EFFECTIVE], confidence)[0]
    if not np.isfinite(means).any():
        return None
    best = int(np.nanargmax(means))
    at = {name: columns[name][best].item() for name in columns if name not in _OWN}
    kept = np.isfinite(means)
    for name, value in at.items():
        kept &= columns[name] == value
    groups: dict[tuple[float, str], list[tuple[int, int]]] = {}
    for row in np.flatnonzero(kept).tolist():
        config = spec.config(row)
        if config.checkpoint_every_updates is not None:
            rate = math.inf if config.trainer_mtbf_seconds is None else config.trainer_mtbf_seconds
            own = groups.setdefault((rate, config.checkpoint_scope), [])
            own.append((config.checkpoint_every_updates, row))
    steps = _step_seconds(ds)
    curves = [
        _curve(spec.config(own[0][1]), sorted(own), cells, values, steps, confidence)
        for _, own in sorted(groups.items())
        if len(own) > 1
    ]
    return CadenceCurves(tuple(curves), at) if curves else None


def _curve(
    config: PipelineConfig,
    own: Sequence[tuple[int, int]],
    cells: np.ndarray,
    values: Mapping[str, np.ndarray],
    steps: np.ndarray,
    confidence: float,
) -> CadenceCurve:
    rows = np.array([row for _, row in own])
    by_seed = values[EFFECTIVE][rows]
    effective, effective_half = mean_interval(by_seed, confidence)
    goodput, goodput_half = mean_interval(values[GOODPUT][rows], confidence)
    best = int(np.argmax(effective))
    apart = 1 - (1 - confidence) / max(1, len(rows) - 1)
    mean, half = mean_interval(by_seed - by_seed[best], apart)
    alike = [int(cadence) for (cadence, _), same in zip(own, np.abs(mean) <= half) if same]
    cadence = int(own[best][0])
    return CadenceCurve(
        mtbf_seconds=config.trainer_mtbf_seconds,
        scope=config.checkpoint_scope,
        checkpoint_seconds=config.checkpoint_seconds,
        restart_seconds=config.restart_seconds,
        rows=rows,
        cells=cells[rows],
        cadences=np.array([every for every, _ in own]),
        effective=effective,
        effective_half=effective_half,
        goodput=goodput,
        goodput_half=goodput_half,
        by_seed=by_seed,
        step_seconds=float(steps[rows[best]]),
        best=best,
        alike=tuple(sorted({*alike, cadence})),
        rules=rules_in_updates(config, float(steps[rows[best]])),
    )


def _step_seconds(ds: xarray.Dataset) -> np.ndarray:
    """Return the mean wall time of a step without checkpoints and restarts, float64 (cells,)."""
    updates = recorded_values(ds, "updates")
    still = recorded_values(ds, "trainer_checkpoint_seconds") + recorded_values(ds, "trainer_restart_seconds")
    measured = recorded_values(ds, "seconds_per_update") * updates
    step = np.divide(measured - still, updates, out=np.full(updates.shape, np.nan), where=updates > 0)
    return mean_interval(step)[0]


def rules_in_updates(config: PipelineConfig, step_seconds: float) -> dict[str, float]:
    """Return the interval of each rule in updates; none where they say nothing.

    Parameters
    ----------
    config : PipelineConfig
    step_seconds : float
        Wall time of a step, without checkpoints.
    """
    mtbf, seconds = config.trainer_mtbf_seconds, config.checkpoint_seconds
    if mtbf is None or not seconds or not step_seconds > 0:
        return {}
    return {
        rule: float(optimal_checkpoint_interval(seconds, mtbf, method=rule)) / step_seconds for rule in RULES
    }


def least_loss(curve: CadenceCurve, step_seconds: float) -> float:
    """Return what failures and checkpoints cost at the best cadence where the trainer never waits for data.

    Parameters
    ----------
    curve : CadenceCurve
    step_seconds : float
        Of a run without failures and checkpoints.

    Returns
    -------
    float
        Share of the time: ``1 - 1 / (1 + overhead)``, by :func:`lagsweep.kernels.expected_overhead_fraction`.
    """
    overhead = expected_overhead_fraction(
        float(curve.cadences[curve.best]) * step_seconds,
        curve.checkpoint_seconds,
        math.inf if curve.mtbf_seconds is None else curve.mtbf_seconds,
        restart_seconds=curve.restart_seconds,
    )
    return 1 - 1 / (1 + float(overhead))
