"""From a model and GPUs to settings: screen every split and rule, simulate those near the best, say the rest.

What the inputs do not fix is a range: every figure comes with the ends that the efficiencies of engines and
trainers leave, and with the input that moves it most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked, path_of
from ..config.config import PipelineConfig
from ..engines.accelerators import Accelerator
from ..execute.options import Executor, Observer
from ..json_text import plain_data
from ..laws.lengths import LengthLaw
from ..spec.make import make_spec
from ..spec.spec import SweepSpec
from ..store.store import store_folder
from ..sweep.run import run_spec
from .candidates import Candidates
from .carrying_out import SEEDS, Runner, horizon_of, sweep_of
from .checkpoints import PlanCheckpoints, checkpoint_facts, checkpoints_of
from .networks import Network
from .question import Question, ask
from .ranges import Effect, effects_of, spans_of
from .rows import (
    BOUNDED,
    PlanRow,
    best_of_splits,
    frame_of,
    neighbours,
    ordered,
    reasons_of,
    row_dict,
    settings_of,
)
from .screening import bound_of, near_best

if TYPE_CHECKING:
    import polars
    import xarray

    from ..execute.options import RunOptions

MOST_SIMULATED = 120
_MOST_RIVALS = 2


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
    def checkpoints(self) -> PlanCheckpoints | None:
        """How often the best cell saves; None where the trainer does not fail, or nothing is feasible."""
        failures = self.question.failures
        if failures is None or self.best is None or self.best.result is None:
            return None
        one = self.best.result
        return checkpoints_of(failures, one.seconds_per_update, one.effective_tokens_per_second)

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
        gpus, price, saves = self.question.gpus, self.question.price, self.checkpoints
        rows = {
            name: [row_dict(row, gpus, price) for row in part]
            for name, part in (("splits", self.splits), ("neighbours", self.neighbours), ("cells", self.rows))
        }
        found: dict[str, Any] = plain_data(
            {
                "asked": _asked(self.question),
                "best": None if self.best is None else row_dict(self.best, gpus, price),
                "could_be_better": self.could_be_better,
                "inputs": [_effect_dict(one, self.rivals) for one in self.effects],
                "infeasible": reasons_of(self.rows),
                **({"checkpoints": checkpoint_facts(self.question, saves)} if saves else {}),
                **rows,
            }
        )
        return found

    def __str__(self) -> str:
        from .text import plan_text

        return plan_text(self)

    def __repr__(self) -> str:
        return str(self)


def plan(
    model: str | Path,
    accelerator: str | Path | Accelerator,
    gpus: int,
    prompts: int,
    group_size: int,
    law: LengthLaw | Mapping[str, Any] | None = None,
    *,
    prompt_tokens: int,
    max_tokens: int,
    rollout_gpus: Iterable[int] | None = None,
    tensor_parallel: Iterable[int] | None = None,
    systems: Iterable[str] | None = None,
    max_lags: Iterable[int] | None = None,
    caps: Iterable[int] | None = None,
    cadences: Iterable[int] | None = None,
    network: str | Path | Network | None = None,
    gpus_per_node: int = 8,
    forward_passes: int = 1,
    optimizer_steps: int = 1,
    reference_model: bool = False,
    engine_format: str = "bf16",
    cache_format: str = "bf16",
    utilization: float = 0.9,
    drift_per_version: float = 0.2,
    price: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    measured: str | Path | None = None,
    trainer_mtbf_seconds: float | None = None,
    restart_seconds: float | None = None,
    checkpoint_seconds: float | None = None,
    storage_bytes_per_second: float | None = None,
    seeds: int = SEEDS,
    most_simulated: int = MOST_SIMULATED,
    store: str | Path | None = None,
    executor: Executor = "threads",
    threads: int | None = None,
    progress: Observer | None = None,
    cancel: threading.Event | None = None,
) -> Plan:
    """Plan a run: which GPUs roll out, how large engines are, which rules, caps and cadence.

    Parameters
    ----------
    model : str or path
        A shipped model, or a path to a ``config.json``.
    accelerator : str, path or Accelerator
        A shipped card, a JSON or TOML file with a row of your own, or the row itself.
    gpus, prompts, group_size : int
        All GPUs; prompts of an update, and answers to each.
    law : LengthLaw
        Of the answers' lengths.
    prompt_tokens, max_tokens : int
        Of a prompt, and of the longest answer.
    rollout_gpus, tensor_parallel, systems, max_lags, caps, cadences : list, optional
        What to choose among: GPUs for engines, GPUs of one engine, rules (``colocated`` or a system's label),
        lag limits, most rollouts of an engine, updates between publications.
    network : str, path or Network, optional
        How weights reach engines: ``across-nodes``, ``one-node``, or a file with a row of your own.
    gpus_per_node : int
    forward_passes : int
        Beside the update: 1 for old log-probabilities; a reference model adds its own.
    optimizer_steps : int
        Of an update (mini-batches); each costs the fixed part of an update.
    reference_model : bool
    engine_format, cache_format : str
        How engines store weights (``bf16``, ``fp8``) and cache.
    utilization : float
        Share of a card's memory that an engine may take.
    drift_per_version : float
        The spread of importance weights at lag 1: an assumption, which decides what lag costs.
    price : float, optional
        Of a GPU-hour.
    inputs : mapping, optional
        Measured inputs in the place of defaults: name -> number, or pair of ends.
    measured : path, optional
        An engine that was measured, as ``lagsweep engine fit`` writes it.
    trainer_mtbf_seconds : float, optional
        Mean time between failures of the trainer: the answer then says how often to save.
    restart_seconds : float, optional
        From a failure until the trainer works again; 300 when left out.
    checkpoint_seconds, storage_bytes_per_second : float, optional
        Of a checkpoint; or the rate at which all ranks together write one, of the size that the ledger says.
    seeds : int
        Of each simulated cell.
    most_simulated : int
        Cells; those with the lowest bounds.
    store, executor, threads, progress, cancel
        As :func:`lagsweep.run_sweep`.

    Returns
    -------
    Plan

    Raises
    ------
    ConfigError
        For anything wrong in the question.

    Examples
    --------
    >>> found = plan("Qwen3-8B", "H100", 8, 4, 4, LengthLaw.fixed(500), prompt_tokens=100, max_tokens=1000,
    ...              rollout_gpus=[4, 6], tensor_parallel=[1, 16], systems=["verl_one_step_off"], caps=[16])
    >>> found.best.cell.rollout_gpus, found.measure_first.input.words
    (4, 'fixed part of an optimizer step')
    """
    asked = ask(
        model=model, accelerator=accelerator, gpus=gpus, prompts=prompts, group_size=group_size, law=law,
        prompt_tokens=prompt_tokens, max_tokens=max_tokens, rollout_gpus=rollout_gpus,
        tensor_parallel=tensor_parallel, systems=systems, max_lags=max_lags, caps=caps, cadences=cadences,
        network=network, gpus_per_node=gpus_per_node, forward_passes=forward_passes,
        optimizer_steps=optimizer_steps, reference_model=reference_model, engine_format=engine_format,
        cache_format=cache_format, utilization=utilization, drift_per_version=drift_per_version,
        price=price, inputs=inputs, measured=measured, trainer_mtbf_seconds=trainer_mtbf_seconds,
        restart_seconds=restart_seconds, checkpoint_seconds=checkpoint_seconds,
        storage_bytes_per_second=storage_bytes_per_second,
    )  # fmt: skip
    return answer(
        asked,
        seeds=checked(WholeNumber, "seeds", seeds, low=1, high=1000),
        most_simulated=checked(WholeNumber, "most_simulated", most_simulated, low=1, high=100_000),
        store=None if store is None else path_of("store", store),
        executor=executor,
        threads=threads,
        progress=progress,
        cancel=cancel,
    )


def answer(
    question: Question,
    *,
    seeds: int = SEEDS,
    most_simulated: int = MOST_SIMULATED,
    store: Path | None = None,
    results: Path | None = None,
    executor: Executor = "threads",
    threads: int | None = None,
    progress: Observer | None = None,
    cancel: threading.Event | None = None,
) -> Plan:
    """Answer a checked question; as :func:`plan`, with `results` for a store named by its content."""
    candidates = Candidates(question)
    rows = [
        PlanRow(cell, bound_of(candidates.config(cell.point)) if cell.is_feasible else None)
        for cell in candidates.cells()
    ]
    feasible = [place for place, row in enumerate(rows) if row.bound is not None]
    if not feasible:
        return Plan(question, tuple(ordered(rows)))
    bounds = [bound for row in rows if (bound := row.bound) is not None]
    chosen = [feasible[one] for one in near_best(bounds, most_simulated)]
    horizon = horizon_of(
        min(bound.bound_seconds for bound in bounds), (rows[place].cell.cadence for place in chosen)
    )
    spec = sweep_of(
        candidates.workload(), horizon, [rows[place].cell.point for place in chosen], seeds, _name(question)
    )
    runner = Runner(candidates.workload(), horizon, executor, threads, progress, cancel)
    folder = store_folder(spec, results) if store is None and results is not None else store
    ds, found = runner.run(spec, folder)
    for place, (where, result) in enumerate(zip(chosen, found)):
        rows[where] = PlanRow(rows[where].cell, rows[where].bound, result, None, place)
    runner.progress = None  # what follows is short
    return replace(_with_ranges(question, candidates, rows, runner, spec, ds), folder=folder)


def _with_ranges(
    question: Question,
    candidates: Candidates,
    rows: list[PlanRow],
    runner: Runner,
    spec: SweepSpec,
    ds: xarray.Dataset,
) -> Plan:
    """Find the best, what its inputs leave open, and what stands beside it."""
    best = ordered(rows)[0]
    if not best.speed:  # everything stalled
        return Plan(question, tuple(ordered(rows)), spec=spec, dataset=ds)
    beside = {
        row.cell.key for row in (best, *best_of_splits(rows), *neighbours(rows, best, question)) if row.speed
    }
    places = [place for place, row in enumerate(rows) if row.speed]
    cells = [rows[place].cell for place in places]
    spans = spans_of(candidates, cells, [cell.key in beside for cell in cells], runner)
    for place, span in zip(places, spans):
        row = rows[place]
        rows[place] = PlanRow(row.cell, row.bound, row.result, span, row.place)
    done = ordered(rows)
    best, splits = done[0], best_of_splits(rows)
    rivals = sorted((row for row in splits if row.speed and row is not best), key=lambda row: -row.speed)
    rivals = rivals[:_MOST_RIVALS]
    effects = effects_of(candidates, best.cell, [row.cell for row in rivals], runner)[1]
    return Plan(
        question,
        tuple(done),
        best,
        tuple(splits),
        tuple(neighbours(rows, best, question)),
        tuple(effects),
        tuple(rivals),
        spec,
        ds,
    )


def _name(question: Question) -> str:
    """Return a name for the sweep that a folder can have."""
    words = f"plan-{question.model.shape.name}-{question.accelerator.name}-{question.gpus}"
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in words)


def _asked(question: Question) -> dict[str, Any]:
    return {
        "model": question.model.shape.name,
        "accelerator": question.accelerator.name,
        "network": question.network.name,
        "gpus": question.gpus,
        "prompts": question.prompts,
        "group_size": question.group_size,
        "law": question.law.name,
        "mean_tokens": question.law.mean_tokens,
        "prompt_tokens": question.prompt_tokens,
        "max_tokens": question.max_tokens,
        "drift_per_version": question.drift_per_version,
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
