"""The stages of a search: points run as sweeps of their own, in a folder or in memory, and what they said."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..execute.options import Executor, Observer
from ..recommend.table import ChoiceTable, choice_table
from ..runs.diagnosis import explain_stall
from ..runs.simulate import simulate_pipeline
from ..spec.design import design_from_groups
from ..spec.make import make_spec
from ..spec.spec import SweepSpec
from ..sweep.run import run_spec
from .question import Question
from .space import Point

if TYPE_CHECKING:
    import xarray

CONFIDENCE = 0.95  # of the intervals in tables of single stages


@dataclass(frozen=True)
class Tried:
    """A point and what few runs of it said.

    Attributes
    ----------
    point : dict
    gains : tuple of float
        Mean of each objective, its sign turned so that more is better; NaN where there is none.
    admissible : bool
        Whether it keeps the bounds, no run of it stalled, and all trained.
    shortfall : float
        How far it is from being admissible, 0 where it is.
    runs : bytes
        What its runs gave; points that are equal in the objectives and in ESS at every seed have the same.
    """

    point: Point
    gains: tuple[float, ...]
    admissible: bool
    shortfall: float
    runs: bytes


@dataclass
class Stages:
    """Where and how the stages of one search are run.

    Attributes
    ----------
    base : PipelineConfig
    question : Question
    folder : Path, optional
        Each stage is a store in it; None keeps nothing.
    spent : dict
        Stage -> runs.
    """

    base: PipelineConfig
    question: Question
    folder: Path | None = None
    executor: Executor = "threads"
    threads: int | None = None
    progress: Observer | None = None
    cancel: threading.Event | None = None
    spent: dict[str, int] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """How many runs the stages took."""
        return sum(self.spent.values())

    def run(self, stage: str, points: Sequence[Point], seeds: Sequence[int]) -> xarray.Dataset:
        """Run points at some seeds: a sweep of points, resumed where it was interrupted."""
        columns = {name: [point[name] for point in points] for name in points[0]}
        # One axis alone makes a grid; its values are the points.
        spec = make_spec(self.base, [columns], seeds, name=stage)
        self.spent[stage] = len(points) * len(seeds)
        return run_spec(
            spec,
            store=None if self.folder is None else self.folder / stage,
            executor=self.executor,
            threads=self.threads,
            progress=self.progress,
            cancel=self.cancel,
        )

    def config(self, point: Point) -> PipelineConfig:
        """Build the configuration of a point."""
        columns = {name: [value] for name, value in point.items()}
        # Unlike a sweep, one point may leave some of the base without an effect.
        return SweepSpec(base=self.base, design=design_from_groups([columns]), seeds=(0,)).config(0)

    def tables(self, ds: xarray.Dataset) -> list[ChoiceTable]:
        """Lay a stage out for a choice, once for each objective."""
        return [
            choice_table(ds, metric, sense, self.question.bounds, (), CONFIDENCE)
            for metric, sense in self.question.objectives
        ]

    def try_points(self, stage: str, points: Sequence[Point], seeds: Sequence[int]) -> list[Tried]:
        """Run points and say of each what its runs said."""
        if not points:
            return []
        tables = self.tables(self.run(stage, points, seeds))
        admissible, shortfall = admitted(tables)
        return [
            Tried(
                point,
                tuple(float(table.gain[row]) for table in tables),
                bool(admissible[row]),
                float(shortfall[row]),
                b"".join(table.objective[row].tobytes() for table in tables)
                + tables[0].ess_by_seed[row].tobytes(),
            )
            for row, point in enumerate(points)
        ]


def admitted(tables: Sequence[ChoiceTable]) -> tuple[np.ndarray, np.ndarray]:
    """Tell which rows are admissible, and how far the others are from it.

    Returns
    -------
    admissible : ndarray of bool
        No run stalled, all trained, and every bound is kept.
    shortfall : ndarray of float64
        The share of runs that stalled or trained nothing, plus what bounds are missed by, relative to them.
    """
    first = tables[0]
    kept = np.all([table.admissible() for table in tables], axis=0) & (first.halted == 0)
    missing = first.halted / first.objective.shape[1]
    for bound in first.bounds:
        level = np.nan_to_num(first.levels[bound.name], nan=0.0 if bound.is_lower else np.inf)
        gap = (bound.limit - level) if bound.is_lower else (level - bound.limit)
        missing = missing + np.maximum(0.0, gap) / max(abs(bound.limit), 1.0)
    missing = np.where(kept, 0.0, np.maximum(missing, 1e-12))
    return kept, missing


def best_first(tried: Sequence[Tried]) -> list[Tried]:
    """Order points by one objective: the admissible ones by gain, then the others by what they miss."""
    return sorted(
        tried,
        key=lambda one: (not one.admissible, one.shortfall, -np.nan_to_num(one.gains[0], nan=-np.inf)),
    )


def undominated(tried: Sequence[Tried]) -> list[Tried]:
    """Return the admissible points that no other beats in both objectives, best in the first one first."""
    found: list[Tried] = []
    best = -np.inf
    for one in sorted(tried, key=lambda one: (-one.gains[0], -one.gains[1])):
        if one.admissible and one.gains[1] > best:
            found.append(one)
            best = one.gains[1]
    return found


def distinct(tried: Sequence[Tried]) -> tuple[list[Tried], dict[int, int]]:
    """Leave out points that are equal to an earlier one in what is asked, and tell how many each stands for.

    Equal means: in the objectives and in ESS, at every seed. The other metrics may differ.
    """
    places: dict[bytes, int] = {}
    kept: list[Tried] = []
    twins: dict[int, int] = {}
    for one in tried:
        if one.runs in places:
            twins[places[one.runs]] = twins.get(places[one.runs], 0) + 1
        else:
            places[one.runs] = len(kept)
            kept.append(one)
    return kept, twins


def refuse_nothing_to_choose(points: Sequence[Point], reason: Any, refused: int) -> None:
    """Refuse a search in which no point makes sense.

    Raises
    ------
    ConfigError
    """
    if not points:
        words = f": {reason.field} {reason.rule}" if reason is not None else ""
        raise ConfigError(
            "axes",
            f"must leave at least one point to try; all {refused:,} drawn are refused{words}",
            refused,
            "Loosen the constraints, or change the ranges.",
        )


def why_stalled(config: PipelineConfig, seeds: Sequence[int]) -> str:
    """Say why a run of some seeds stalled or starved: the first of them that did; empty where none did."""
    for seed in seeds:
        one = config.replace(seed=int(seed))
        words = explain_stall(one, simulate_pipeline(one))
        if words:
            return words
    return ""
