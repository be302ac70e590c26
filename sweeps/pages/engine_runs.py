"""Charts of a report about engines over time: one run of each of a few cells, run again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError
from ..charts.engine import (
    LEVEL_COLOURS,
    MOST_STEPS,
    cache_chart,
    load_chart,
    preemption_chart,
    thinned_levels,
)
from ..config.config import PipelineConfig
from ..custom.run import CustomRun
from ..results.cells import cell_values
from ..results.frontier import THROUGHPUT
from ..runs.engine_history import levels_at_moments
from ..runs.general import GeneralRun
from ..spec.spec import SweepSpec
from .content import Content, Shown
from .page import Figure

MOST_CELLS = 3  # the choice, and others worth a look
NAME = "engines-"  # what the names of these figures begin with


def engine_figures(content: Content) -> list[Figure]:
    """Draw what ran, waited and was cached over time in cells with engines; nothing where none has one.

    Of each cell the run is shown whose throughput is nearest to the mean over seeds.
    """
    runs = [(one.label, _representative(content, one)) for one in content.looked_at]
    with_engines = [(label, config) for label, config in runs if config.engine is not None][:MOST_CELLS]
    found: list[Figure] = []
    for number, (label, config) in enumerate(with_engines, start=1):
        try:
            rows = _rows(content.spec, config)
        except ConfigError:  # rules of the user's own that are not at hand
            return []
        found += _figures(f"{NAME}{number}", label, config, rows)
    return found


def _representative(content: Content, one: Shown) -> PipelineConfig:
    values = cell_values(content.ds, THROUGHPUT)[one.place]
    distance = np.abs(values - np.nanmean(values))
    seed = content.ds["seed"].values[int(np.nanargmin(distance))]
    return content.spec.config(one.place, int(seed))


def _rows(spec: SweepSpec, config: PipelineConfig) -> list[dict[str, Any]]:
    begin: Callable[..., GeneralRun] = partial(GeneralRun, config)
    if spec.custom is not None:
        begin = partial(CustomRun, config, spec.custom.code())
    levels = levels_at_moments(begin, MOST_STEPS)
    seconds = levels.pop("seconds")
    return thinned_levels(seconds, levels, float(seconds[-1]))


def _figures(name: str, label: str, config: PipelineConfig, rows: list[dict[str, Any]]) -> list[Figure]:
    engine = config.engine
    assert engine is not None
    end = float(rows[-1]["seconds"])
    several = f"all {engine.count} engines together" if engine.count > 1 else "one engine"
    whose = f"Seed {config.seed}, {several}, at {len(rows)} moments."
    most, cache = engine.max_running, engine.kv_cache_tokens
    found = [
        Figure(
            f"{name}-load", f"Running and waiting: {label}",
            f"Rollouts that engines decode, and those that wait for a place. {whose}",
            lambda _: load_chart(rows, max_running=most and most * engine.count, end=end), LEVEL_COLOURS,
        ),
        Figure(
            f"{name}-cache", f"Cache: {label}",
            "Tokens of context that engines hold"
            + ("" if cache is None else f", {cache * engine.count:,} when full") + f". {whose}",
            lambda _: cache_chart(rows, kv_cache_tokens=cache and cache * engine.count, end=end),
        ),
    ]  # fmt: skip
    if rows[-1]["preemptions"]:
        found.append(
            Figure(
                f"{name}-preemptions",
                f"Preemptions: {label}",
                f"Rollouts that lost their cache and prefilled again, so far. {whose}",
                lambda _: preemption_chart(rows, end=end),
            )
        )
    return found
