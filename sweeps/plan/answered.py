"""A plan: every cell with what is known of it, the best, and what would be worth measuring; as data too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...kernels.errors import ConfigError
from ..config.config import PipelineConfig
from ..json_text import plain_data
from ..spec.make import make_spec
from ..spec.spec import SweepSpec
from ..sweep.run import run_spec
from .carrying_out import SEEDS
from .question import Question
from .ranges import Effect
from .rows import BOUNDED, PlanRow, frame_of, reasons_of, row_dict, settings_of

if TYPE_CHECKING:
    import polars
    import xarray

    from ..execute.options import RunOptions


@dataclass(frozen=True)
class Plan:
    """An answer; ``print`` it.

    Attributes
    ----------
    question : Question
    rows : tuple of PlanRow
        Every cell, the best first.
    best : PlanRow or None
        The most effective tokens per second; None where nothing is feasible.
    splits, neighbours : tuple of PlanRow
        The best of each split, and what differs from the best in one setting.
    effects : tuple of Effect
        Each input alone, at the best; what moves it most comes first.
    rivals : tuple of PlanRow
        The cells that inputs were also moved for.
    spec : SweepSpec or None
    dataset : xarray.Dataset or None
        The sweep of what was simulated.
    folder : Path or None
        The store that keeps it.
    """

    question: Question
    rows: tuple[PlanRow, ...]
    best: PlanRow | None = None
    splits: tuple[PlanRow, ...] = ()
    neighbours: tuple[PlanRow, ...] = ()
    effects: tuple[Effect, ...] = ()
    rivals: tuple[PlanRow, ...] = ()
    spec: SweepSpec | None = field(default=None, repr=False)
    dataset: xarray.Dataset | None = field(default=None, repr=False)
    folder: Path | None = None

    @property
    def table(self) -> polars.DataFrame:
        """Every cell with its figures, their ranges, or what stands against it; the best first."""
        return frame_of(self.rows, self.question.gpus, self.question.price)

    @property
    def config(self) -> PipelineConfig:
        """The configuration of the best cell, for :func:`lagsweep.simulate_pipeline` and sweeps.

        Raises
        ------
        ConfigError
            Where no cell is feasible.
        """
        if self.best is None or self.spec is None or self.best.place is None:
            raise ConfigError(
                "plan", "has no feasible cell", len(self.rows), "Its text says what is missing."
            )
        return self.spec.config(self.best.place)

    @property
    def measure_first(self) -> Effect | None:
        """The input that moves the answer most; None where no input has a range."""
        return self.effects[0] if self.effects else None

    @property
    def could_be_better(self) -> int:
        """How many cells were only bounded, by less seconds than the best takes."""
        if self.best is None or self.best.result is None:
            return 0
        limit = self.best.result.seconds_per_update
        return sum(
            row.status == BOUNDED and row.bound is not None and row.bound.bound_seconds < limit
            for row in self.rows
        )

    @property
    def said(self) -> list[str]:
        """What the plan says in words: the best, what may be better beyond, what the figures rest on."""
        from .said import assumptions, best_said, nothing_said

        return [*best_said(self), *assumptions(self)] if self.best is not None else nothing_said(self)

    def sweep(
        self, axes: Mapping[str, Any], seeds: int | Iterable[int] = SEEDS, **options: Unpack[RunOptions]
    ) -> xarray.Dataset:
        """Sweep around the best cell; further options are those of :func:`lagsweep.run_spec`.

        Raises
        ------
        ConfigError
            As :func:`lagsweep.run_sweep`; where no cell is feasible.
        """
        return run_spec(make_spec(self.config, axes, seeds), **options)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON (None for NaN and for what has no end)."""
        gpus, price = self.question.gpus, self.question.price
        rows = {
            name: [row_dict(row, gpus, price) for row in part]
            for name, part in (("splits", self.splits), ("neighbours", self.neighbours), ("cells", self.rows))
        }
        found: dict[str, Any] = plain_data(
            {
                "asked": _asked(self.question),
                "best": None if self.best is None else row_dict(self.best, gpus, price),
                "could_be_better": self.could_be_better,
                "said": self.said,
                "inputs": [_effect_dict(one, self.rivals) for one in self.effects],
                "infeasible": reasons_of(self.rows),
                **rows,
            }
        )
        return found

    def __str__(self) -> str:
        from .text import plan_text

        return plan_text(self)

    def __repr__(self) -> str:
        return str(self)


def _asked(question: Question) -> dict[str, Any]:
    return {
        "model": question.model.shape.name,
        "accelerator": question.accelerator.name,
        "network": question.network.name,
        "gpus": question.gpus,
        "prompts": question.prompts,
        "group_size": question.group_size,
        "law": question.law_asked.name,
        "cut_share": question.cut_share,
        "mean_tokens": question.law.mean_tokens,
        "prompt_tokens": question.prompt_tokens,
        "max_tokens": question.max_tokens,
        "drift_per_version": question.drift_per_version if question.drift is None else None,
        **({} if question.drift is None else {"drift": question.drift.to_dict()}),
        "price": question.price,
        "measured": None if question.measured is None else question.measured.source,
        "inputs": [
            {
                name: getattr(one, name)
                for name in ("name", "words", "value", "low", "high", "faster", "unit", "scale", "source")
            }
            for one in question.inputs
        ],
    }


def _effect_dict(one: Effect, rivals: tuple[PlanRow, ...]) -> dict[str, Any]:
    return {
        "name": one.input.name,
        "words": one.input.words,
        "low": one.input.low,
        "high": one.input.high,
        "seconds_per_update_at_low": one.low_seconds,
        "seconds_per_update_at_high": one.high_seconds,
        "better_at_low": None if one.better_low is None else settings_of(rivals[one.better_low].cell),
        "better_at_high": None if one.better_high is None else settings_of(rivals[one.better_high].cell),
    }
