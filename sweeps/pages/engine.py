"""An engine with requests on it as one offline page: how it was fitted, how well, and what went on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import ConfigError
from ..charts.engine import (
    LEVEL_COLOURS,
    SET_COLOURS,
    cache_chart,
    load_chart,
    match_chart,
    preemption_chart,
    thinned_levels,
)
from ..charts.gists import levels_gist, match_gist
from ..charts.style import plain_value
from ..checks import text_of
from ..config.engine import Engine
from ..engines.engine_fit import EngineFit
from ..engines.over_time import most_at_once, over_time
from ..engines.requests import Requests
from ..engines.text import (
    agreements,
    coefficient_rows,
    error_rows,
    heading,
    limits,
    parameter_rows,
    sentences,
    time_rows,
)
from ..files import write_atomically
from ..runs.engines import EngineResult
from .figures import Figure
from .page import Table, checked_page, linked_page

NAME = ("--page", "engine.html")  # the option that names the page, and an example
MOST_ENGINES = 4
_MOST_POINTS = 3000


def checked_engine_page(path: str | Path) -> Path:
    """Refuse a page's name before any work is done.

    Raises
    ------
    ConfigError
    """
    return checked_page(path, *NAME)


def write_engine_page(
    path: str | Path,
    engine: Engine,
    requests: Requests,
    result: EngineResult,
    *,
    fit: EngineFit | None = None,
    toml: str = "",
    line: str = "",
) -> Path:
    """Write the page.

    Parameters
    ----------
    path : path
        ``something.html``.
    engine : Engine
    requests : Requests
    result : EngineResult
        The requests on the engine.
    fit : EngineFit, optional
        How the engine was fitted.
    toml : str
        The engine as a file.
    line : str
        The command that makes the page again.

    Raises
    ------
    ConfigError
        For a bad file name.
    """
    target = checked_page(path, *NAME)
    instance("engine", engine, Engine, "Build one, as Engine(step_seconds=0.012).")
    instance("requests", requests, Requests, "Give what read_requests returns.")
    instance("result", result, EngineResult, "Give what simulate_engine returns for these requests.")
    if fit is not None:
        instance("fit", fit, EngineFit, "Give what fit_engine returns.")
    if len(result.requests_frame()) != len(requests):
        rule = f"must be of these {len(requests):,} requests"
        raise ConfigError("result", rule, len(result.requests_frame()), "Simulate them.")
    toml, line = (text_of(name, text, "Give text.") for name, text in (("toml", toml), ("line", line)))
    title = heading(fit) if fit else f"{len(requests):,} requests of {Path(requests.source).name}"
    parts = _over_time(engine, requests, result)
    figures = [*parts["figures"], *_matches(requests, result, fit)]
    content = linked_page(
        "engine.html",
        f"{title} · lagsweep",
        figures,
        lambda _: {},
        heading=title,
        said=[("", one) for one in parts["said"]],
        limits=[f"{name}: {words}" for name, words in limits(fit)] if fit else [],
        notes=list(fit.notes if fit else requests.notes),
        times=_table(time_rows(result.requests_frame(), requests.measured)),
        errors=_table(error_rows(agreements(fit))) if fit else None,
        parameters=_table(parameter_rows(fit), words=(0, 5)) if fit else None,
        coefficients=_table(coefficient_rows(fit)) if fit else None,
        groups=parts["groups"],
        matches=[one for one in figures if one.name.startswith("match")],
        columns=[f"{name}: {found}" for name, found in requests.columns.items()],
        toml=toml,
        line=line,
    )
    write_atomically(target, content)
    return target


def _table(found: tuple[list[str], list[list[str]]], words: tuple[int, ...] = (0,)) -> Table:
    header, rows = found
    kinds = ["text whole" if k == 0 else "text" if k in words else "" for k in range(len(header))]
    return Table(list(zip(header, kinds)), rows)


def _over_time(engine: Engine, requests: Requests, result: EngineResult) -> dict[str, Any]:
    """Draw each of a few engines."""
    figures: list[Figure] = []
    groups, said = [], []
    for number in range(min(engine.count, MOST_ENGINES)):
        seen = over_time(result, requests.arrival_seconds, number)
        rows = thinned_levels(seen.seconds, seen.levels, seen.end)
        name = f"-{number}" if engine.count > 1 else ""
        own = [_load(name, rows, engine, seen.end), _cache(name, rows, engine, seen.end)]
        if seen.most("preemptions"):
            own.append(_preemptions(name, rows, seen.end))
        figures += own
        title = f"Engine {number} over time" if engine.count > 1 else "Over time"
        groups.append({"title": title, "figures": own})
    if engine.count > MOST_ENGINES:
        said.append(f"The first {MOST_ENGINES} of {engine.count} engines are drawn.")
    said = [*sentences(result.totals, *most_at_once(result)), *said]
    return {"figures": figures, "groups": groups, "said": said}


def _load(name: str, rows: list[dict[str, Any]], engine: Engine, end: float) -> Figure:
    caption = "Rollouts that the engine decodes, and those that wait for a place on it."
    return Figure(
        f"load{name}", "Running and waiting", caption,
        lambda _: load_chart(rows, max_running=engine.max_running, end=end), LEVEL_COLOURS,
        levels_gist(rows, {"running": "rollouts run", "waiting": "wait"}, end),
    )  # fmt: skip


def _cache(name: str, rows: list[dict[str, Any]], engine: Engine, end: float) -> Figure:
    caption = "Tokens of context that the engine holds, prompts and answers so far."
    full = "" if engine.kv_cache_tokens is None else f", of the {engine.kv_cache_tokens:,} that fit"
    if engine.kv_cache_tokens is not None:
        caption += f" It is full at {engine.kv_cache_tokens:,}; then the last to come loses its place."
    return Figure(
        f"cache{name}", "Cache", caption,
        lambda _: cache_chart(rows, kv_cache_tokens=engine.kv_cache_tokens, end=end),
        gist=levels_gist(rows, {"kv_tokens": "tokens of context are held"}, end, full),
    )  # fmt: skip


def _preemptions(name: str, rows: list[dict[str, Any]], end: float) -> Figure:
    caption = "Rollouts that lost their cache since the next step would not have fitted; they prefill again."
    return Figure(
        f"preemptions{name}", "Preemptions", caption, lambda _: preemption_chart(rows, end=end),
        gist=levels_gist(rows, {"preemptions": "preemptions"}, end),
    )  # fmt: skip


def _matches(requests: Requests, result: EngineResult, fit: EngineFit | None) -> list[Figure]:
    """Draw predicted against measured times, where there are any."""
    frame = result.requests_frame()
    sides = {
        "per_token": ("seconds_per_token", 1e3, "time per token, ms"),
        "end_to_end": ("end_to_end_seconds", 1.0, "end to end, s"),
    }
    found = []
    for name, (column, scale, words) in sides.items():
        if name not in requests.measured:
            continue
        rows = _points(requests.measured[name], frame[column].to_numpy(), frame, scale, fit)
        if not rows:
            continue
        caption = "One point a request; on the dashed line prediction and measurement are equal."
        found.append(_match(f"match-{name}", words, caption, rows, fit is not None))
    return found


def _match(name: str, words: str, caption: str, rows: list[dict[str, Any]], two: bool) -> Figure:
    title = f"Predicted against measured: {words.partition(',')[0]}"
    colours = SET_COLOURS if two else {}
    return Figure(name, title, caption, lambda _: match_chart(rows, words), colours, match_gist(rows, words))


def _points(
    measured: np.ndarray, predicted: np.ndarray, frame: Any, scale: float, fit: EngineFit | None
) -> list[dict[str, Any]]:
    """Return the points of a chart, evenly thinned where there are very many."""
    known = np.flatnonzero(np.isfinite(measured) & np.isfinite(predicted))
    preempted = frame["preemptions"].to_numpy()
    stride = max(1, -(-len(known) // _MOST_POINTS))
    return [
        {
            "request": int(place) + 1,
            "measured": plain_value(float(measured[place]) * scale),
            "predicted": plain_value(float(predicted[place]) * scale),
            "preemptions": int(preempted[place]),
            "set": "fitted on" if fit is not None and fit.fitted_requests[place] else "held out",
        }
        for place in known[::stride]
    ]


def page_facts(path: Path) -> Mapping[str, Any]:
    """Return what was written."""
    return {"page": str(path), "bytes": path.stat().st_size}
