"""From a model and GPUs to settings: screen every split and rule, simulate those near the best, say the rest.

What the inputs do not fix is a range: every figure comes with the ends that the efficiencies of engines and
trainers leave, and with the input that moves it most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import WholeNumber, checked, path_of
from ..engines.accelerators import Accelerator
from ..execute.options import Executor, Observer
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw
from ..spec.spec import SweepSpec
from ..store.store import store_folder
from .answered import Plan
from .candidates import Candidates
from .carrying_out import SEEDS, Runner, horizon_of, sweep_of
from .networks import Network
from .question import DRIFT_PER_VERSION, Question, ask
from .ranges import effects_of, spans_of
from .rows import (
    PlanRow,
    best_of_splits,
    neighbours,
    ordered,
)
from .screening import bound_of, near_best

if TYPE_CHECKING:
    import xarray


MOST_SIMULATED = 120
_MOST_RIVALS = 2


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
    drift_per_version: float = DRIFT_PER_VERSION,
    drift: DriftLaw | Mapping[str, Any] | None = None,
    price: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    measured: str | Path | None = None,
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
    drift : DriftLaw, optional
        What lag costs, measured from rollout records, in place of `drift_per_version`.
    price : float, optional
        Of a GPU-hour.
    inputs : mapping, optional
        Measured inputs in the place of defaults: name -> number, or pair of ends.
    measured : path, optional
        An engine that was measured, as ``lagsweep engine fit`` writes it.
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
        drift=drift, price=price, inputs=inputs, measured=measured,
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
