"""Requests on engines: :func:`simulate_engine`, by the kernels that a pipeline's engines run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import instance, real_numbers, whole_numbers
from ...kernels.engine.records import DECODED, UNITS_BITS, Engines, new_engines
from ...kernels.engine.replay import (
    GROW_TIMELINE,
    REPLAY,
    TIMELINE,
    _replay_requests_kernel,
)
from ...kernels.errors import ConfigError
from ...kernels.pipeline.ticks import ticks
from ..config.engine import UNITS_PER_SECOND, Engine, coefficients_of, step_too_long

if TYPE_CHECKING:
    import polars

LAST_TICK = 2**42


@dataclass(frozen=True, eq=False, kw_only=True)
class EngineResult:
    """What became of requests on engines; times are clock values, not rounded to ticks.

    Attributes
    ----------
    engine : Engine
    totals : dict
        Sums over all engines: ``decode_steps``, ``decoded_tokens``, ``prefilled_tokens``,
        ``reprefilled_tokens`` (of these, after preemptions), ``preemptions``; ``engine_busy_seconds``,
        ``mean_engine_running`` and ``mean_engine_context_tokens`` (means over steps),
        ``mean_kv_cache_share`` and ``max_kv_cache_share`` (None without a limit),
        ``engine_tokens_per_second``, ``seconds`` (the last end).
    """

    engine: Engine
    totals: dict[str, float | int | None]
    _arrivals: np.ndarray = field(repr=False)
    _requests: np.ndarray = field(repr=False)
    _rows: np.ndarray = field(repr=False)

    def requests_frame(self) -> polars.DataFrame:
        """Return one row a request, in the order given.

        Returns
        -------
        polars.DataFrame
            ``request``, ``engine``, ``queue_wait_seconds`` (to the first admission), ``first_token_seconds``,
            ``seconds_per_token`` ((end to end - first token) / (tokens - 1); null for one token),
            ``end_to_end_seconds``, ``preemptions``.
        """
        import polars as pl

        found = self._requests
        arrived = self._arrivals << UNITS_BITS
        since = {
            name: (found[name] - arrived) / UNITS_PER_SECOND for name in ("admitted_clock", "first_clock")
        }
        whole = (found["end_clock"] - arrived) / UNITS_PER_SECOND
        later = found["tokens"] - 1
        decoding = (found["end_clock"] - found["first_clock"]) / UNITS_PER_SECOND
        each = np.divide(decoding, later, out=np.full(len(found), np.nan), where=later > 0)
        return pl.DataFrame(
            {
                "request": np.arange(len(found)),
                "engine": found["engine"],
                "queue_wait_seconds": since["admitted_clock"],
                "first_token_seconds": since["first_clock"],
                "seconds_per_token": pl.Series(each).fill_nan(None),
                "end_to_end_seconds": whole,
                "preemptions": found["preemptions"],
            }
        )

    def timeline_frame(self) -> polars.DataFrame:
        """Return a row at each change: ``seconds``, ``engine``, ``running``, ``waiting``, ``kv_tokens``."""
        import polars as pl

        rows = self._rows
        return pl.DataFrame(
            {
                "seconds": rows["clock"] / UNITS_PER_SECOND,
                **{name: rows[name] for name in ("engine", "running", "waiting", "kv_tokens")},
            }
        )


def simulate_engine(
    engine: Engine,
    prompt_tokens: int | Sequence[int] | np.ndarray,
    output_tokens: int | Sequence[int] | np.ndarray,
    arrival_seconds: float | Sequence[float] | np.ndarray | None = None,
) -> EngineResult:
    """Simulate requests to one deployment of engines, step by step in closed form.

    Parameters
    ----------
    engine : Engine
        ``count`` equal engines; routing ``"group"`` needs a pipeline and is refused.
    prompt_tokens : array_like of int, shape (n,)
        At least 0; one number for all is allowed.
    output_tokens : array_like of int, shape (n,)
        Tokens that each request decodes, at least 1.
    arrival_seconds : array_like of float, shape (n,), optional
        When each request arrives, rounded to microseconds; all at 0 if left out. Those of one tick are taken
        in the order given.

    Returns
    -------
    EngineResult

    Raises
    ------
    ConfigError
        If an argument is no such array, a request does not fit the cache (its row is named), or a step or the
        whole leaves the clock's range.

    Notes
    -----
    A step with n running requests whose contexts sum to S, of which x tokens are prefilled in it, takes
    ``step + n * per_rollout + S * per_context_token + x * prefill``; memory, preemption (the one admitted
    last) and admission (first come, first served) happen between steps. A prompt is prefilled in one step;
    prefixes are not shared.

    Examples
    --------
    One request: prefill and first token in 0.01 s + 100 x 1e-4 s, then 0.01 s a token.

    >>> engine = Engine(step_seconds=0.01, prefill_seconds_per_token=1e-4)
    >>> frame = simulate_engine(engine, [100], [11]).requests_frame()
    >>> round(frame["first_token_seconds"][0], 6), round(frame["end_to_end_seconds"][0], 6)
    (0.02, 0.12)
    """
    instance("engine", engine, Engine, "Build one, as Engine(step_seconds=0.012).")
    if engine.routing == "group":
        way_out = "Choose 'least_loaded' or 'round_robin'."
        raise ConfigError("engine.routing", "needs a pipeline's groups", "group", way_out)
    prompts, outputs, arrivals = _requests_of(prompt_tokens, output_tokens, arrival_seconds)
    _check_fit(engine, prompts, outputs)
    engines = new_engines(coefficients_of(engine), engine.count, len(prompts))
    engines.requests["prompt_tokens"] = prompts
    engines.requests["tokens"] = outputs
    rows = _run(engines, arrivals)
    if (engines.requests["phase"] != DECODED).any():
        late = int(np.flatnonzero(engines.requests["phase"] != DECODED)[0])
        rule = f"must end within {LAST_TICK / 1e6:,.0f} s"
        raise ConfigError(f"output_tokens, position {late}", rule, int(outputs[late]), "Give seconds.")
    return EngineResult(
        engine=engine,
        totals=_totals(engine, engines),
        _arrivals=arrivals,
        _requests=engines.requests,
        _rows=rows,
    )


def _requests_of(prompts: Any, outputs: Any, arrivals: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check the requests and give them as int64 of one length; arrivals in ticks."""
    largest = 2**31
    columns = {
        "prompt_tokens": np.atleast_1d(whole_numbers("prompt_tokens", prompts, minimum=0, maximum=largest)),
        "output_tokens": np.atleast_1d(whole_numbers("output_tokens", outputs, minimum=1, maximum=largest)),
    }
    seconds = np.zeros(1) if arrivals is None else real_numbers("arrival_seconds", arrivals, minimum=0)
    columns["arrival_seconds"] = np.atleast_1d(seconds)
    count = max(len(column) for column in columns.values())
    for name, column in columns.items():
        if column.ndim != 1 or len(column) not in (1, count) or count == 0:
            rule = f"must be one row of {count} values" if count else "must have at least one request"
            raise ConfigError(name, rule, list(column.shape), "Give one value a request.")
    whole = [np.broadcast_to(column, (count,)) for column in columns.values()]
    at = np.array([ticks(second) for second in whole[2]], dtype=np.int64)
    if (at >= LAST_TICK).any():
        late = int(np.argmax(at >= LAST_TICK))
        rule = f"must be below {LAST_TICK / 1e6:,.0f} s"
        way_out = "Give seconds since the first request."
        raise ConfigError(f"arrival_seconds, position {late}", rule, float(whole[2][late]), way_out)
    return whole[0].astype(np.int64), whole[1].astype(np.int64), at


def _check_fit(engine: Engine, prompts: np.ndarray, outputs: np.ndarray) -> None:
    """Refuse a request that the cache never holds, and steps beyond the clock's range."""
    contexts = prompts + outputs
    if engine.kv_cache_tokens is not None and (contexts > engine.kv_cache_tokens).any():
        row = int(np.argmax(contexts > engine.kv_cache_tokens))
        raise ConfigError(
            f"output_tokens, position {row}",
            f"must fit engine.kv_cache_tokens, {engine.kv_cache_tokens:,}, with its prompt",
            f"{prompts[row]:,} + {outputs[row]:,}",
            "Positions count from 0. Enlarge the cache, or leave the request out.",
        )
    problem = step_too_long(engine, len(prompts), int(contexts.max()))
    if problem is not None:
        raise ConfigError(problem)


def _run(engines: Engines, arrivals: np.ndarray) -> np.ndarray:
    """Run the kernel to the end; gives the timeline's rows."""
    order = np.argsort(arrivals, kind="stable").astype(np.int64)
    replay, touched = np.zeros(1, REPLAY), np.zeros(len(engines.engines), np.int64)
    rows = np.zeros(4 * len(arrivals) + 2 * len(engines.engines), TIMELINE)
    at = arrivals[order]
    while _replay_requests_kernel(*engines, order, at, replay, rows, touched) == GROW_TIMELINE:
        rows = np.concatenate([rows, np.zeros(len(rows), TIMELINE)])
    return rows[: replay[0].rows]


def _totals(engine: Engine, engines: Engines) -> dict[str, float | int | None]:
    found = engines.engines
    sums = {name: int(found[name].sum()) for name in ("counted_steps", "running_sum", "context_sum")}
    steps = max(sums["counted_steps"], 1)
    busy = float((found["busy_units"] / UNITS_PER_SECOND).sum())
    decoded = int(found["decoded_tokens"].sum())
    cache = engine.kv_cache_tokens
    return {
        "decode_steps": sums["counted_steps"],
        **{
            name: int(found[name].sum())
            for name in ("decoded_tokens", "prefilled_tokens", "reprefilled_tokens", "preemptions")
        },
        "engine_busy_seconds": busy,
        "mean_engine_running": sums["running_sum"] / steps,
        "mean_engine_context_tokens": sums["context_sum"] / steps,
        "mean_kv_cache_share": cache and (sums["context_sum"] + sums["running_sum"]) / steps / cache,
        "max_kv_cache_share": cache and int(found["max_cache"].max()) / cache,
        "engine_tokens_per_second": decoded / busy if busy else float("nan"),
        "seconds": float(engines.requests["end_clock"].max() / UNITS_PER_SECOND),
    }
