"""What would change: a sweep around a calibrated run, with the ranges that the data leave, in words.

Every cell is simulated with the fitted values, and once more with each of them at the ends of its interval;
what a setting saves is a ratio of two runs that share those values, so most of what is open drops out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked
from ..config.config import PipelineConfig
from ..sweep.run import run_sweep
from .axes_around import BY_RULES, KEPT, ONE_BATCH, SLOTS_FIELD, Axis, axes_around
from .calibration import Calibration
from .configuration import HORIZON_SECONDS, SLOTS, config_of
from .ranges import End, Span, span_of
from .sentences import WAITS, cause_of, sentence, what_if_text

if TYPE_CHECKING:
    import xarray

STEPS = 120
_MOST_RUNS = 2000


@dataclass(frozen=True)
class Change:
    """A cell around the run as it is.

    Attributes
    ----------
    settings : mapping of str to value
        By the axes as they were asked for.
    step : Span
        Seconds of a step.
    saved : Span
        The share of a step that it saves against the run as it is; below 0 where it costs. Where an axis
        changes what a step trains, the share of a trained token's seconds.
    wait_share : Span
        Of a step that the trainer waits for rollouts or fetches them.
    lag : Span
        Versions.
    ess : Span
        Expected normalized effective sample size.
    effective : Span
        Effective tokens a second: those trained, times the ESS.
    stalled : bool
    may_stall : bool
        Whether it stalls at an end of what the log leaves open.
    """

    settings: Mapping[str, Any]
    step: Span
    saved: Span
    wait_share: Span
    lag: Span
    ess: Span
    effective: Span
    stalled: bool
    may_stall: bool = False


@dataclass(frozen=True, repr=False)
class WhatIf:
    """A sweep around a calibrated run.

    Attributes
    ----------
    calibration : Calibration
    axes : tuple of Axis
    base : int
        The place of the run as it is among the changes.
    changes : tuple of Change
    dataset : xarray.Dataset
        The sweep at the fitted values.
    causes : tuple of str
        What the trainer waits for in the run as it is: several where the log does not tell which.
    """

    calibration: Calibration
    axes: tuple[Axis, ...]
    base: int
    changes: tuple[Change, ...]
    dataset: xarray.Dataset
    causes: tuple[str, ...] = ()

    @property
    def as_it_is(self) -> Change:
        """The run as it is."""
        return self.changes[self.base]

    @property
    def other_work(self) -> tuple[str, ...]:
        """The axes that change what a step trains: with one, savings are those of a trained token."""
        return tuple(axis.name for axis in self.axes if axis.changes_work)

    @property
    def sentence(self) -> str:
        """What would change, in words."""
        return sentence(self)

    def frame(self) -> polars.DataFrame:
        """Return a row a cell: settings, seconds of a step, what is saved and the rest, with ranges.

        ``saved_of`` says of what a share is saved: a step's seconds, or a trained token's.
        """
        rows = [
            {
                **{name: str(value) for name, value in one.settings.items()},
                **_ranged("step_seconds", one.step),
                **_ranged("saved", one.saved),
                **_ranged("wait_share", one.wait_share),
                **_ranged("lag", one.lag),
                **_ranged("ess", one.ess),
                **_ranged("effective_tokens_per_second", one.effective),
                "saved_of": "trained token" if self.other_work else "step",
                "stalled": one.stalled,
                "may_stall": one.may_stall,
                "as_it_is": place == self.base,
            }
            for place, one in enumerate(self.changes)
        ]
        return polars.DataFrame(rows)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, as ``lagsweep whatif --json`` prints it."""
        from .facts import what_if_facts

        return what_if_facts(self)

    def __repr__(self) -> str:
        return what_if_text(self)

    def __str__(self) -> str:
        return repr(self)


def what_if(
    calibration: Calibration, axes: Mapping[str, Any], *, seeds: int = 3, threads: int | None = None
) -> WhatIf:
    """Sweep around a calibrated run and say what would change.

    Parameters
    ----------
    calibration : Calibration
        As :func:`calibrate` gives.
    axes : mapping
        Fields, knobs (``preset.<knob>``), ``rollout_gpus``, ``trainer_gpus``, or ``max_lag``,
        ``queue_cap``, ``sync_cadence``, with values or a range, as for :func:`run_sweep`. The run's own
        value is added where it is missing.
    seeds : int
        Of the cells at the fitted values; the ends of intervals have one each.
    threads : int, optional

    Returns
    -------
    WhatIf

    Raises
    ------
    ConfigError
        For a bad axis, or more than 2,000 runs.
    """
    instance("calibration", calibration, Calibration, "Give what calibrate returns.")
    seeds = checked(WholeNumber, "seeds", seeds, low=1, high=100)
    found = axes_around(calibration.config, calibration.setup, calibration.gpus, axes)
    cells = math.prod(len(axis.values) for axis in found)
    runs = cells * (seeds + len(calibration.ends))
    if runs > _MOST_RUNS:
        rule = f"must make at most {_MOST_RUNS:,} runs, ends of intervals included"
        raise ConfigError("axes", rule, runs, "Give fewer values, or fewer axes.")
    own = _sweep(calibration, calibration.values, found, seeds, threads)
    at_ends = [
        (end, _sweep(calibration, end.values, found, 1, threads, slots=_slots_of(end)))
        for end in calibration.ends
        if end.about != SLOTS or not _sets_slots(found)
    ]
    if any(axis.one_batch for axis in found):
        kept = End(SLOTS, "rollouts at once (assumed)", "high", calibration.values)
        at_ends.append((kept, _sweep(calibration, kept.values, found, 1, threads, slots=KEPT)))
    if any(len(set(factors)) > 1 for axis in found for factors in axis.factors):
        for which, side in ((0, "low"), (2, "high")):
            end = End("trainer_gpus", "how training grows with GPUs", side, calibration.values)
            at_ends.append((end, _sweep(calibration, end.values, found, 1, threads, which)))
    return _told(calibration, found, own, at_ends)


def _slots_of(end: End) -> str:
    return ONE_BATCH if end.about == SLOTS else BY_RULES


def _sets_slots(axes: Sequence[Axis]) -> bool:
    """Whether an axis says how many rollouts run at once: then no assumption of it is tried."""
    return any(SLOTS_FIELD in (axis.column, *axis.along) and not axis.one_batch for axis in axes)


def _ranged(name: str, span: Span) -> dict[str, float]:
    return {name: span.value, f"{name}_low": span.low, f"{name}_high": span.high}


def _sweep(
    calibration: Calibration,
    values: Any,
    axes: Sequence[Axis],
    seeds: int,
    threads: int | None,
    which: int = 1,
    *,
    slots: str = BY_RULES,
) -> xarray.Dataset:
    setup, step = calibration.setup, calibration.estimates.step.value
    several = max(_updates(calibration, axes))
    more = {
        "duration_seconds": min(HORIZON_SECONDS, 20 * step * STEPS),
        "stop_after_updates": STEPS * several,
        "warmup_seconds": step * STEPS * 0.15,
    }
    config: PipelineConfig = config_of(setup, calibration.estimates, values, more=more)
    groups = [axis.group(config, which, slots) for axis in axes]
    return run_sweep(config, axes=groups, seeds=seeds, threads=threads)


def _told(
    calibration: Calibration,
    axes: Sequence[Axis],
    own: xarray.Dataset,
    at_ends: Sequence[tuple[End, xarray.Dataset]],
) -> WhatIf:
    shape = tuple(len(axis.values) for axis in axes)
    several = np.array(_updates(calibration, axes))
    base = int(np.ravel_multi_index([axis.own for axis in axes], shape))
    other = np.array([number != base for number in _work_of(axes, shape)])
    middle = _cells(own, shape, several)
    ends = [(end, _cells(told, shape, several)) for end, told in at_ends]

    def span(name: str, place: int) -> Span:
        return span_of(float(middle[name][place]), [(end, float(told[name][place])) for end, told in ends])

    def saved(told: Mapping[str, np.ndarray], place: int) -> float:
        # Cells whose steps train the same are told apart by their steps, free of the noise of lengths.
        work = told["tokens"][place] / told["tokens"][base] if other[place] else 1.0
        return float(1 - told["step"][place] / told["step"][base] / work)

    in_tokens = calibration.predictions["tokens_per_second"]

    changes = []
    for place in range(math.prod(shape)):
        settings = {
            axis.name: axis.values[number] for axis, number in zip(axes, np.unravel_index(place, shape))
        }
        changes.append(
            Change(
                settings=settings,
                step=span("step", place),
                saved=span_of(
                    saved(middle, place), [(end, saved(told, place)) for end, told in ends], least=-math.inf
                ),
                wait_share=span("wait_share", place).at_most(1.0),
                lag=span("lag", place),
                ess=span("ess", place).at_most(1.0),
                effective=_told_in_tokens(span("effective", place), in_tokens),
                stalled=bool(middle["stalled"][place]),
                may_stall=any(bool(told["stalled"][place]) for _, told in ends),
            )
        )
    unlogged = calibration.estimates.publication is None
    runs = (own, *(told for _, told in at_ends))
    causes = dict.fromkeys(cause_of(one, base, publications=unlogged) for one in runs)
    return WhatIf(calibration, tuple(axes), base, tuple(changes), own, tuple(one for one in causes if one))


def _told_in_tokens(span: Span, in_tokens: Span) -> Span:
    """Leave open what is in tokens, where the run's own tokens are: lengths or the batch are assumed."""
    return replace(in_tokens, value=span.value) if math.isinf(in_tokens.high) else span


def _updates(calibration: Calibration, axes: Sequence[Axis]) -> list[int]:
    """Return the updates of a step, by cell."""
    own = int(calibration.config.updates_per_batch)
    shape = tuple(len(axis.values) for axis in axes)
    cells = []
    for place in range(math.prod(shape)):
        numbers = np.unravel_index(place, shape)
        each = [axis.updates[number] for axis, number in zip(axes, numbers) if axis.updates]
        cells.append(next((one for one in each if one != own), own))
    return cells


def _work_of(axes: Sequence[Axis], shape: tuple[int, ...]) -> list[int]:
    """Return, by cell, the cell that has its settings on the axes that change what a step trains."""
    cells = []
    for place in range(math.prod(shape)):
        numbers = np.unravel_index(place, shape)
        kept = [number if axis.changes_work else axis.own for axis, number in zip(axes, numbers)]
        cells.append(int(np.ravel_multi_index(kept, shape)))
    return cells


def _cells(ds: xarray.Dataset, shape: Sequence[int], several: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is said of each cell, by name."""
    step = several * _mean(ds, "seconds_per_update", shape)
    idle = sum(_mean(ds, name, shape) for name in WAITS if name in ds)
    updates = _mean(ds, "updates", shape)
    tokens = several * _mean(ds, "trained_tokens", shape) / np.maximum(updates, 1)
    ess = _mean(ds, "mean_expected_normalized_ess", shape)
    return {
        "step": step,
        "tokens": tokens,
        "effective": tokens * ess / step,
        "wait_share": several * idle / np.maximum(updates, 1) / step,
        "lag": _mean(ds, "mean_rollout_lag", shape),
        "ess": ess,
        "stalled": ~(updates > 0) | (_mean(ds, "stalled", shape) > 0),
    }


def _mean(ds: xarray.Dataset, name: str, shape: Sequence[int]) -> np.ndarray:
    """Return a metric's mean over seeds for each cell, cells in the order of the axes."""
    values = ds[name].mean("seed").values.astype(np.float64)
    found: np.ndarray = values.reshape(math.prod(shape))
    return found
