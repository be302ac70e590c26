"""A spec made ready to run: its parts, each a block of cells × seeds with a layout of units.

The part ``cells`` is the sweep itself. The part ``baseline`` is the sequential pipeline with the same work,
hardware and seeds: it varies only along the axes that matter to it, so beside a grid of queue cap, lag and
cadence it is one cell. Its variables carry the prefix ``baseline_``, and so they broadcast against the
sweep's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...kernels.pipeline.metrics import LAG_BINS, METRICS, WINDOW_METRICS, WINDOW_NAMES, Metric
from ..config.config import PipelineConfig
from ..custom.custom import CustomIdentity
from ..runs.windows import NO_WINDOWS, Windows
from ..spec.cells import configs_of, unchecked_config
from ..spec.design import Design
from ..spec.identity import cell_ids
from ..spec.spec import SweepSpec
from ..spec.stopping import FIRST_LOOK, reported_metrics
from ..spec.windows import windows_of
from .units import EVENT_SECONDS, MOST_UNIT_RUNS, Layout, choose_chunks, default_unit_runs

CELLS = "cells"
BASELINE = "baseline"
BASELINE_PREFIX = "baseline_"
UNIT_ROWS = 4_000_000  # rows of a unit's tables, at most about
# What the sequential loop never looks at; its cadence is 1, so that every lag is 0.
_NOT_OF_BASELINE = (
    "mode", "seed", "max_queue_tokens", "admission", "max_policy_lag", "sync_every_updates",
    "drift_per_version",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Cells × seeds that are run and kept in the same way.

    Parameters
    ----------
    name : str
        ``cells`` or ``baseline``.
    base : PipelineConfig
    design : Design
    seeds : ndarray of uint64
    excluded : ndarray of bool
        In the design's shape.
    metrics : tuple of Metric
    prefix : str
        In front of every variable's name.
    layout : Layout
    keep_lag_counts : bool
    windows : Windows
    custom : CustomIdentity, optional
        Which rules and metrics of the user's own its runs have.
    unrecorded : frozenset of str
        Metrics that are not kept: a store from before they were has none for what is added to it either.
    """

    name: str
    base: PipelineConfig
    design: Design
    seeds: np.ndarray
    excluded: np.ndarray
    metrics: tuple[Metric, ...]
    prefix: str
    layout: Layout
    keep_lag_counts: bool
    windows: Windows = NO_WINDOWS
    custom: CustomIdentity | None = None
    unrecorded: frozenset[str] = frozenset()

    @property
    def variables(self) -> tuple[Metric, ...]:
        """The metrics that are kept, and those of windows where it has some."""
        all_of_them = (*self.metrics, *(WINDOW_METRICS if self.windows.count else ()))
        return tuple(metric for metric in all_of_them if metric.name not in self.unrecorded)

    def tail_of(self, variable: str) -> tuple[int, ...]:
        """Return the sizes of a variable's dimensions after the seeds: lags, or windows."""
        name = variable.removeprefix(self.prefix)
        if name == "lag_counts":
            return (LAG_BINS,)
        return (self.windows.count,) if name in WINDOW_NAMES else ()

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions of its variables."""
        return (*self.design.dims, "seed")

    @cached_property
    def cell_ids(self) -> np.ndarray:
        """The id of every cell (int64, in the design's shape)."""
        return cell_ids(self.base, self.design)

    @cached_property
    def runs(self) -> int:
        """How many runs it has, excluded cells apart."""
        return int((~self.excluded).sum()) * len(self.seeds)

    def configs(self, cells: Sequence[int] | np.ndarray) -> list[PipelineConfig]:
        """Build the configurations of some cells; units side by side have the same, which are kept."""
        wanted = np.asarray(cells, np.int64).tobytes()
        kept, configs = self._last
        if kept != wanted:
            configs = configs_of(self.base, self.design, cells)
            self._last[:] = [wanted, configs]
        return list(configs)

    @cached_property
    def _last(self) -> list[Any]:
        """The cells whose configurations were built last, and these."""
        return [b"", []]

    def with_chunks(self, chunks: Sequence[int]) -> Part:
        """Return the same part cut into other units."""
        return replace(self, layout=Layout(self.layout.shape, tuple(chunks)))

    def without(self, metrics: Iterable[str]) -> Part:
        """Return the same part that keeps no values of some metrics."""
        return replace(self, unrecorded=frozenset(metrics))


def plan_parts(spec: SweepSpec, unit_runs: int | None = None) -> list[Part]:
    """Make the parts of a sweep.

    Parameters
    ----------
    spec : SweepSpec
    unit_runs : int, optional
        Runs of a unit, about; chosen from the configuration when left out.
    """
    wanted = unit_runs or wanted_unit_runs(spec)
    parts = [_part(CELLS, spec, spec.base, spec.design, reported_metrics(spec), wanted)]
    baseline = baseline_design(spec)
    if spec.baseline and baseline is not None:
        parts.append(_part(BASELINE, spec, *baseline, METRICS, wanted))
    return parts


def _part(
    name: str,
    spec: SweepSpec,
    base: PipelineConfig,
    design: Design,
    metrics: tuple[Metric, ...],
    unit_runs: int,
) -> Part:
    is_baseline = name == BASELINE
    seeds = len(spec.seeds)
    chunks = choose_chunks(design.shape, seeds, unit_runs)
    if spec.until is not None and not is_baseline:
        # Units end at the looks, so that a round runs whole units.
        look = min(FIRST_LOOK, seeds)
        chunks = (*choose_chunks(design.shape, 1, max(1, unit_runs // look))[:-1], look)
    return Part(
        name=name,
        base=base,
        design=design,
        seeds=np.array(spec.seeds, dtype=np.uint64),
        excluded=np.zeros(design.shape, bool) if is_baseline else spec.excluded,
        metrics=metrics,
        prefix=BASELINE_PREFIX if is_baseline else "",
        layout=Layout((*design.shape, seeds), chunks),
        keep_lag_counts=not is_baseline,
        windows=NO_WINDOWS if is_baseline else windows_of(spec),
        custom=spec.custom.without_metrics if spec.custom and is_baseline else spec.custom,
    )


def baseline_design(spec: SweepSpec) -> tuple[PipelineConfig, Design] | None:
    """Return the sequential baseline of a sweep: its base and the cells along the axes that matter to it.

    None where it has no meaning: options of levels 2 and 3, or a sweep that is about the mode itself.
    """
    fields = spec.design.fields
    if not spec.is_level_1 or "mode" in fields.values() or spec.base.mode == "sequential":
        return None
    columns = {
        name: column for name, column in spec.design.columns.items() if fields[name] not in _NOT_OF_BASELINE
    }
    used = sorted({dim for dim, _ in columns.values()})
    design = Design(
        tuple(spec.design.dims[dim] for dim in used),
        tuple(spec.design.shape[dim] for dim in used),
        {name: (used.index(dim), values) for name, (dim, values) in columns.items()},
    )
    # A drift per version that waits for cells without a measured drift has no effect beside one.
    base = spec.base if spec.base.drift is None else unchecked_config(spec.base, {})
    return base.replace(mode="sequential", sync_every_updates=1), design


def guessed_rollouts(base: PipelineConfig, design: Design) -> float:
    """Guess how many rollouts one run has, from the settings alone: the cut is the same everywhere."""
    corner = design.settings(design.size - 1) if design.size else {}
    config = unchecked_config(base, corner)
    seconds = max(config.rollout_overhead_seconds + config.lone_decode_seconds, 1e-6)
    return config.rollout_workers * config.duration_seconds / seconds


def guessed_run_seconds(base: PipelineConfig, design: Design) -> float:
    """Guess one run's seconds on one core, from the settings alone."""
    return max(1e-5, guessed_rollouts(base, design) * EVENT_SECONDS)


def wanted_unit_runs(spec: SweepSpec) -> int:
    """Choose how many runs a unit has: about two seconds of work, and rows that fit well into memory."""
    return min(default_unit_runs(guessed_run_seconds(spec.base, spec.design)), most_unit_runs(spec))


def most_unit_runs(spec: SweepSpec) -> int:
    """Tell how many runs a unit may have, that its values and its rows fit well into memory."""
    if not (spec.tables or spec.masks):
        return MOST_UNIT_RUNS
    # A run has about two events a rollout; batches have fewer rows, but then there is room.
    rows = max(1.0, 2 * guessed_rollouts(spec.base, spec.design))
    return min(MOST_UNIT_RUNS, max(1, int(UNIT_ROWS / rows)))


def total_runs(parts: Sequence[Part]) -> int:
    """Count the runs of all parts."""
    return sum(part.runs for part in parts)


def bytes_in_memory(parts: Sequence[Part]) -> int:
    """Tell how many bytes the variables of all parts take, uncompressed."""
    return sum(
        math.prod(part.layout.shape)
        * (
            8 * sum(math.prod(part.tail_of(metric.name)) for metric in part.variables)
            + 1
            + (8 * LAG_BINS) * part.keep_lag_counts
        )
        for part in parts
    )
