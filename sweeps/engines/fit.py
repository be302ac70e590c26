"""An engine fitted to measurements: efficiencies under priors, the loss on some requests, errors on others.

All requests are simulated, since they share the engine; the loss sees only the fitted ones. What one run
cannot tell is said: the number of running rollouts and their context move together in most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels._arguments import choice, listed
from ...kernels.errors import ConfigError
from ..checks import WholeNumber, checked, flag_of
from ..config.engine import Engine
from ..memory.models import ModelRecord
from .accelerators import Accelerator
from .agreement import agreement
from .cache_tokens import limits_of
from .doubts import doubts
from .engine_fit import EngineFit, coefficients_of
from .estimate import optimum
from .requests import Requests
from .roofline import Deployment, Prior, deployment_of, priors_of
from .simulation import predicted
from .stages import Stages, fit_stages

FEWEST = 20
MOST = 3000
ROUTINGS = ("least_loaded", "round_robin")


def fit_engine(
    measured: Requests | Stages,
    *,
    model: str | Path | ModelRecord,
    accelerator: str | Path | Accelerator,
    tensor_parallel: int = 1,
    engines: int = 1,
    expert_parallel: bool = False,
    engine_format: str = "bf16",
    cache_format: str = "bf16",
    kv_cache_tokens: int | str | None = None,
    max_running: int | None = None,
    routing: str = "least_loaded",
    held_every: int = 2,
    held_first: bool = False,
    priors: Sequence[Prior] | None = None,
) -> EngineFit:
    """Fit an engine to a request log, or to load stages.

    Parameters
    ----------
    measured : Requests or Stages
        As :func:`read_requests` gives, with ``end_to_end`` or ``per_token`` measured; or :func:`read_stages`.
    model : str or path
        A shipped model, or a path to a ``config.json``.
    accelerator : str, path or Accelerator
        A shipped card, a JSON file with a row of your own, or the row itself.
    tensor_parallel, engines : int
        Cards of one engine, and engines that share the requests.
    expert_parallel : bool
        The experts are spread over the engines.
    engine_format, cache_format : str
        How weights (``bf16``, ``fp8``, ``mxfp4-experts``) and cache (``bf16``, ``fp8``) are stored.
    kv_cache_tokens : int or "none", optional
        What one engine holds, as it printed when it started; worked out from the card's memory when left
        out, and no limit for "none".
    max_running : int, optional
        The engine's limit of sequences.
    routing : {"least_loaded", "round_robin"}
        Of several engines.
    held_every : int
        Every so-manieth request is held out; 0 holds none.
    held_first : bool
        Hold out the first of each so many, not the last.
    priors : sequence of Prior, optional
        In place of those of the model's kind.

    Returns
    -------
    EngineFit

    Raises
    ------
    ConfigError
        For too few requests, nothing measured, or a deployment that cannot be.
    """
    deployment = deployment_of(
        model,
        accelerator,
        tensor_parallel=tensor_parallel,
        engines=engines,
        expert_parallel=expert_parallel,
        engine_format=engine_format,
        cache_format=cache_format,
    )
    known = _checked_priors(priors, priors_of(deployment.shape))
    limits, given = limits_of(deployment, kv_cache_tokens, max_running)
    routing = choice("routing", routing, ROUTINGS)
    if isinstance(measured, Stages):
        return fit_stages(measured, deployment, known, limits, given)
    if not isinstance(measured, Requests):
        way_out = "Give what read_requests or read_stages returns."
        raise ConfigError("measured", "must be requests or stages", measured, way_out)
    requests = _first(_with_measurements(measured))
    chosen = _chosen(len(requests), held_every, held_first)
    running = _running(requests, deployment, limits["max_running"])
    rest = {"count": deployment.engines, "routing": routing, **limits}

    def engine_at(parameters: np.ndarray) -> Engine:
        return Engine(**rest, **deployment.coefficients(parameters.tolist(), running))

    def residuals(parameters: np.ndarray) -> np.ndarray:
        return _residuals(engine_at(parameters), requests, chosen)

    best = optimum(known, residuals, rough=True)
    engine = engine_at(best.parameters())
    result, told = predicted(engine, requests)
    made = EngineFit(
        engine,
        deployment,
        best.estimates(),
        coefficients_of(best, deployment, running),
        agreement(told, requests.measured, chosen),
        None if chosen.all() else agreement(told, requests.measured, ~chosen),
        best,
        requests,
        chosen,
        result,
        given,
    )
    return replace(made, notes=(*requests.notes, *doubts(made)))


def _residuals(engine: Engine, requests: Requests, chosen: np.ndarray) -> np.ndarray:
    """Return logarithms of predicted over measured of the chosen requests, NaN where there is none."""
    told = predicted(engine, requests)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.array(
            [
                np.log(told[name] / requests.measured[name])[chosen]
                for name in ("per_token", "end_to_end")
                if name in requests.measured
            ]
        )
    return np.where(np.isfinite(found), found, np.nan)


def _checked_priors(given: Sequence[Prior] | None, usual: tuple[Prior, ...]) -> tuple[Prior, ...]:
    if given is None:
        return usual
    way_out = "Take those of priors_of and replace some."
    found = listed("priors", given, way_out)
    names = [one.name for one in usual]
    if not all(isinstance(one, Prior) for one in found) or [one.name for one in found] != names:
        raise ConfigError("priors", f"must be of {', '.join(names)}, in this order", given, way_out)
    return found


def _with_measurements(requests: Requests) -> Requests:
    """Refuse what cannot be fitted to."""
    if not {"end_to_end", "per_token"} & set(requests.measured):
        rule = "must hold what was measured: end to end, or the time of a token"
        way_out = "Name the column: --column end_to_end=NAME or --column per_token=NAME."
        raise ConfigError("requests", rule, requests.source, way_out)
    if len(requests) < FEWEST:
        way_out = "A minute of a busy engine has enough."
        raise ConfigError("requests", f"must be at least {FEWEST}", len(requests), way_out)
    return requests


def _first(requests: Requests) -> Requests:
    """Keep the first of many requests: what is fitted does not change with more, only the time it takes."""
    if len(requests) <= MOST:
        return requests
    arrival = requests.arrival_seconds
    kept = np.arange(len(requests)) if arrival is None else np.argsort(arrival, kind="stable")
    kept = np.sort(kept[:MOST])
    note = f"fitted to the first {MOST:,} of {len(requests):,} requests"
    return replace(
        requests,
        prompt_tokens=requests.prompt_tokens[kept],
        output_tokens=requests.output_tokens[kept],
        arrival_seconds=None if arrival is None else arrival[kept],
        measured={name: value[kept] for name, value in requests.measured.items()},
        notes=(*requests.notes, note),
    )


def _chosen(count: int, held_every: Any, held_first: Any) -> np.ndarray:
    """Return which requests the loss sees."""
    every = checked(WholeNumber, "held_every", held_every, low=0)
    chosen = np.ones(count, dtype=bool)
    first = flag_of("held_first", held_first)
    if every:
        chosen[(0 if first else every - 1) :: every] = False
    if chosen.sum() < FEWEST // 2:
        raise ConfigError("held_every", "must leave requests to fit", held_every, "Give 2, or 0 for none.")
    return chosen


def _running(requests: Requests, deployment: Deployment, max_running: int | None) -> float:
    """Return how many rollouts an engine ran at once, roughly: for the experts that a step reads."""
    arrival, end = requests.arrival_seconds, requests.measured.get("end_to_end")
    busy = requests.measured.get("per_token")
    if busy is not None:
        work = np.nansum(busy * (requests.output_tokens - 1))
    else:
        work = np.nansum(end) if end is not None else 0.0
    last = end if end is not None else np.zeros(len(requests))
    span = float(np.nanmax((0.0 if arrival is None else arrival) + last)) if len(last) else 0.0
    found = work / span / deployment.engines if span else float(max_running or 64)
    return float(np.clip(found, 1.0, max_running or np.inf))
