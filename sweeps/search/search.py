"""Search for the best setting: explore by few runs, look around the best, then select with a guarantee.

1. Points spread over the ranges by a Latin hypercube are run with a few seeds; in a space smaller than the
   budget every point is.
2. Three rounds of points near the best so far (with two objectives: near the frontier), nearer each time.
3. The best of all, at most 50, are run with fresh seeds until one of them is the best with the asked
   probability (:mod:`.selecting`).

Every stage is a sweep of its own, so a search that was interrupted goes on by the same call; the points of a
stage follow from the stages before it and from nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError
from ..checks import (
    RealNumber,
    WholeNumber,
    checked,
    confidence_of,
    mapping_of,
    path_of,
    text_of,
    texts_of,
)
from ..config.config import PipelineConfig
from ..execute.options import Executor, Observer
from ..execute.progress import checked_progress
from .answer import answer
from .folder import begun, folder_of, identity_of
from .question import question_of
from .result import SearchResult
from .samplers import Sampler, sampler_of
from .selecting import Judged, select_one, weigh_two
from .space import Point, Space, space_of
from .stages import Stages, Tried, best_first, distinct, refuse_nothing_to_choose, undominated

EXPLORE_SHARE = 0.5  # of the budget; the rest is for the selection
ROUNDS = (0.15, 0.08, 0.04)  # how far the points of each round lie from the best, as shares of the ranges
PARENTS = 10
MOST_CANDIDATES = 50
LEAST_RUNS = 200
PILOT_POINTS = 8


def search(
    base: PipelineConfig,
    axes: Mapping[str, Any],
    *,
    maximize: str | Sequence[str] = (),
    minimize: str | Sequence[str] = (),
    min_ess: float | None = None,
    max_lag: int | None = None,
    min_goodput: float | None = None,
    constraints: Sequence[str] = (),
    budget_runs: int = 20_000,
    budget_seconds: float | None = None,
    indifference: float = 0.01,
    confidence: float = 0.95,
    explore_seeds: int = 4,
    candidates: int = MOST_CANDIDATES,
    sampler: str = "around",
    store: str | Path | None = None,
    results: str | Path | None = None,
    name: str = "sweep",
    executor: Executor = "threads",
    threads: int | None = None,
    progress: Observer | None = None,
    cancel: threading.Event | None = None,
) -> SearchResult:
    """Find the best setting among ranges.

    Parameters
    ----------
    base : PipelineConfig
        What no axis changes.
    axes : mapping
        Axis -> values to choose from, or a range: ``{"from": 1, "to": 9}``; ``"scale": "log"`` goes by
        ratios.
    maximize, minimize : str or sequence of str
        One metric or two in all; ``trained_tokens_per_second`` is maximized when none is given, with
        failures ``effective_tokens_per_second``.
    min_ess : float, optional
        Least mean of ``mean_expected_normalized_ess``, 0…1.
    max_lag : int, optional
        Largest ``max_lag_observed`` of any seed.
    min_goodput : float, optional
        Least mean of ``goodput_fraction``, 0…1, with failures.
    constraints : sequence of str
        A point that breaks one is not tried, as ``"queue_cap >= batch_tokens"``.
    budget_runs : int
        Runs in all, about; the first look at every candidate is always made.
    budget_seconds : float, optional
        Instead: as many runs as take so long, by the speed of the first ones.
    indifference : float
        Share of the best mean; smaller differences are not worth telling.
    confidence : float
        Probability that the choice is the best of the candidates.
    explore_seeds : int
        Seeds of a point before it is a candidate.
    candidates : int
        At most so many take part in the selection, 2…50.
    sampler : {"around", "optuna:tpe", "optuna:random", "optuna:nsgaii"}
        Where the points of the three rounds come from; the latter need the package optuna.
    store : path, optional
        A folder that keeps the stages; the same call goes on where an interrupted one was.
    results : path, optional
        Where such a folder is made, named by `name` and by what is asked, when `store` is left out.
    name : str
    executor, threads, progress, cancel
        As :func:`lagsweep.run_sweep`.

    Returns
    -------
    SearchResult

    Raises
    ------
    ConfigError
        For anything wrong in the arguments, or when no point makes sense.
    StoreError
        If the folder holds another search, or cannot be written.

    Examples
    --------
    >>> found = search(
    ...     PipelineConfig(duration_seconds=120),
    ...     {"max_lag": {"from": 0, "to": 3}, "sync_cadence": [1, 2]},
    ...     maximize="trained_tokens_per_second",
    ...     budget_runs=600,
    ... )
    >>> found.tried, len(found.settings)
    (8, 2)
    """
    if not isinstance(base, PipelineConfig):
        raise ConfigError("base", "must be a PipelineConfig", base, "Build one, as PipelineConfig().")
    draw = sampler_of(text_of("sampler", sampler, "Give 'around'."))
    text_of("name", name, "Give a word.")
    space = space_of(
        base,
        mapping_of("axes", axes, "Write {'max_lag': [0, 1, 2]}."),
        texts_of("constraints", constraints, "Write ['queue_cap >= batch_tokens']."),
    )
    question = question_of(space, maximize, minimize, min_ess, max_lag, min_goodput)
    asked = {
        "indifference": checked(
            RealNumber, "indifference", indifference, low=1e-9, high=1.0,
            rule="must be a share above 0 and up to 1", way_out="Give 0.01.",
        ),
        "confidence": confidence_of(confidence),
        "explore_seeds": _whole("explore_seeds", explore_seeds, 2, 10_000),
        "candidates": _whole("candidates", candidates, 2, MOST_CANDIDATES),
    }  # fmt: skip
    runs = _whole("budget_runs", budget_runs, LEAST_RUNS, 10**9)
    if budget_seconds is not None:
        rule = "must be a number of seconds, from 1 to a year"
        checked(
            RealNumber, "budget_seconds", budget_seconds, low=1.0, high=3.2e7, rule=rule, way_out="Give 60."
        )
    observer = checked_progress(progress)
    facts = identity_of(space, question, asked, runs, budget_seconds, sampler)
    folder = None if store is None else path_of("store", store)
    if folder is None and results is not None:
        folder = folder_of(facts, name, path_of("results", results))
    stages = Stages(base, question, folder, executor, threads, observer, cancel)
    known = {} if folder is None else begun(folder, facts)
    if budget_seconds is not None:
        runs = known.get("budget_runs") or _runs_in(budget_seconds, space, stages, asked["explore_seeds"])
        if folder is not None:
            begun(folder, facts, budget_runs=runs)
    return _searched(space, stages, asked, runs, draw)


def _searched(space: Space, stages: Stages, asked: dict[str, Any], runs: int, draw: Sampler) -> SearchResult:
    first = stages.base.seed
    seeds = range(first, first + asked["explore_seeds"])
    tried = _explore(space, stages, seeds, runs, draw)
    two = len(stages.question.objectives) == 2
    ordered = undominated(tried) if two else [one for one in best_first(tried) if one.admissible]
    kept, twins = distinct(ordered)
    left = max(runs - stages.runs, 0)
    most = min(asked["candidates"], max(2, left // (2 * 20)))
    if two and len(kept) > most:  # evenly along the frontier
        places = np.unique(np.linspace(0, len(kept) - 1, most).round().astype(int))
        kept, twins = [kept[place] for place in places], {}
    kept = kept[:most]
    fresh = {"budget": left, "confidence": asked["confidence"], "first_seed": first + asked["explore_seeds"]}
    points = [one.point for one in kept]
    judged: Judged | None = None
    if points and two:
        judged = weigh_two(stages, points, **fresh)
    elif points:
        scale = abs(kept[0].gains[0])
        if scale == 0:
            metric = stages.question.objectives[0][0]
            rule = "must not be 0 at the best point, since the indifference is a share of it"
            raise ConfigError("objective", rule, metric, "Choose another metric.")
        judged = select_one(stages, points, indifference=asked["indifference"] * scale, **fresh)
    return answer(space, stages, asked, tried, kept, twins, judged)


def _explore(space: Space, stages: Stages, seeds: range, runs: int, draw: Sampler) -> list[Tried]:
    """Try points over the whole, then near the best."""
    count = max(int(EXPLORE_SHARE * runs / len(seeds)), 2)
    if space.size <= count:
        points = space.everything()
        refuse_nothing_to_choose(points, space.reason, space.refused)
        return stages.try_points("explore", points, seeds)
    points = space.spread(max(count // 2, 2), seed=stages.base.seed)
    refuse_nothing_to_choose(points, space.reason, space.refused)
    tried = stages.try_points("explore", points, seeds)
    share = max((count - len(points)) // len(ROUNDS), 1)
    for number, reach in enumerate(ROUNDS, start=1):
        more = draw(space, _parents(tried, stages), tried, share, reach, stages.base.seed + number)
        tried += stages.try_points(f"near-{number}", more, seeds)
    return tried


def _parents(tried: Sequence[Tried], stages: Stages) -> list[Point]:
    """Return the points to look around: the frontier, or the best, or those that nearly keep the bounds."""
    if len(stages.question.objectives) == 2:
        found = undominated(tried)
        if found:
            return [one.point for one in found]
    kept, _ = distinct(best_first(tried))
    return [one.point for one in kept[:PARENTS]]


def _runs_in(seconds: float, space: Space, stages: Stages, seeds: int) -> int:
    """Tell how many runs take so many seconds, by running a few points first; they are not kept."""
    pilot = replace(stages, folder=None, progress=None, spent={})
    probe = replace(space, _seen=set())
    points = probe.spread(PILOT_POINTS, seed=stages.base.seed)
    refuse_nothing_to_choose(points, probe.reason, probe.refused)
    first = stages.base.seed
    pilot.run("pilot", points[:1], [first])  # kernels compiled
    began = time.monotonic()
    pilot.run("pilot", points, range(first, first + seeds))
    each = (time.monotonic() - began) / (len(points) * seeds)
    return int(min(max(LEAST_RUNS, seconds / max(each, 1e-7)), 10**9))


def _whole(name: str, value: Any, low: int, high: int) -> int:
    rule = f"must be a whole number from {low:,} to {high:,}"
    found: int = checked(WholeNumber, name, value, low=low, high=high, rule=rule, way_out=f"Give {low:,}.")
    return found
