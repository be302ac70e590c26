"""Plain settings of small runs of the core, in which the interesting things happen.

Settings are a mapping with the field names of ``PipelineConfig`` and a law as a tuple, as ``("fixed", 100)``,
``("uniform", 16, 64)``, ``("table", minimum, counts)`` or ``("lognormal", median, sigma, minimum, maximum)``.
Durations are coarse on purpose: lengths, rates and horizons are round, so that events meet at one tick.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ..config.config import PipelineConfig
from ..laws.drift import DriftLaw
from ..laws.lengths import LengthLaw

Plain = dict[str, Any]
Law = tuple[Any, ...]


@cache
def build_law(spec: Law) -> LengthLaw:
    """Return the length law of a tuple."""
    kind, *numbers = spec
    if kind == "fixed":
        return LengthLaw.fixed(numbers[0])
    if kind == "uniform":
        return LengthLaw.uniform(*numbers)
    if kind == "table":
        minimum, counts = numbers
        return LengthLaw.empirical([minimum + i for i, n in enumerate(counts) for _ in range(n)])
    median, sigma, minimum, maximum = numbers
    return LengthLaw.lognormal(median=median, sigma=sigma, minimum=minimum, maximum=maximum)


def mean_and_longest(spec: Law) -> tuple[float, int]:
    """Return a law's mean and its longest response."""
    law = build_law(spec)
    return law.mean_tokens, law.maximum


def to_config(settings: Plain) -> PipelineConfig:
    """Return the settings as a checked configuration."""
    plain = {**settings, "response_length": build_law(settings["response_length"])}
    return PipelineConfig(**with_drift_law(plain))


def with_drift_law(settings: Plain) -> Plain:
    """Return settings with the law of a measured drift, given as pairs of lag and log ratios."""
    if settings.get("drift") is None:
        return settings
    lags, log_ratios = zip(*settings["drift"])
    law = DriftLaw.from_log_ratios(lags, log_ratios, level="token", beyond="last")
    return {**settings, "drift": law}


# Measured at every lag from 0; with lags between and none at 0; heavy, of very different counts.
DRIFTS = (
    ((0, (-0.01, 0.02, 0.0)), (1, (-0.3, 0.1, 0.2)), (2, (-1.0, 0.5, 0.5, 0.9))),
    ((1, (-0.2, 0.15)), (4, (-2.0, 0.5, 1.0, 1.2, 1.3))),
    ((0, (0.0,)), (3, (-30.0, -5.0, 0.0, 0.0, 0.0, 0.0, 9.0))),
)


@st.composite
def with_measured_drift(draw: st.DrawFn, settings: st.SearchStrategy[Plain]) -> Plain:
    """Draw settings whose drift is measured."""
    drawn = {**draw(settings), "drift": draw(st.sampled_from(DRIFTS))}
    return {name: value for name, value in drawn.items() if not name.startswith("drift_")}


def two_point(short: int, long: int, shorts: int, longs: int) -> Law:
    """Return a table law of two lengths with their counts."""
    return ("table", short, (shorts, *([0] * (long - short - 1)), longs))


LAWS: tuple[Law, ...] = (
    ("fixed", 100),
    ("fixed", 1),
    ("uniform", 16, 64),
    ("uniform", 1, 4),
    two_point(50, 100, 1, 1),
    two_point(25, 400, 9, 1),
    ("table", 100, (3, 0, 1)),
    ("lognormal", 60, 0.5, 10, 200),
    ("lognormal", 20, 1.5, 1, 500),
)


Pick = Callable[..., Any]


def picker(draw: st.DrawFn) -> Pick:
    """Return what draws one of the values it is given."""
    return lambda *values: draw(st.sampled_from(values))


THEMES = ("free", "free", "free", "stale", "publish", "starve", "stall", "sequential", "reserve", "instant")


@st.composite
def pipeline_settings(
    draw: st.DrawFn,
    themes: tuple[str, ...] = THEMES,
    laws: tuple[Law, ...] = LAWS,
    describe: Callable[[Law], tuple[float, int]] = mean_and_longest,
) -> Plain:
    """Draw plain settings of one small run of the core; `describe` gives a law's mean and maximum."""
    pick = picker(draw)
    theme = pick(*themes)
    law = pick(*laws)
    exact_mean, longest = describe(law)
    mean = max(1, round(exact_mean))
    workers = pick(1, 2, 2, 3, 4, 6)
    batch = max(1, round(mean * pick(0, 0.5, 1, 2, 2, 3, 5)))
    # One mean rollout lasts a round time, whatever the law.
    rollout_seconds = pick(0.5, 1.0, 1.0, 2.0)
    step_seconds = pick(0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
    settings: Plain = {
        "mode": "bounded_async",
        "seed": pick(0, 1, 2, 7, 2**63, 2**64 - 1)
        if draw(st.booleans())
        else draw(st.integers(0, 2**64 - 1)),
        "response_length": law,
        "rollout_workers": workers,
        "decode_tokens_per_second": mean / rollout_seconds,
        "rollout_overhead_seconds": pick(0.0, 0.0, 0.25, 0.5, 1.0, 0.3),
        "max_queue_tokens": max(1, round(batch * pick(1, 1, 1.5, 2, 4, 20))),
        "admission": "threshold",
        "batch_tokens": batch,
        "train_overhead_seconds": pick(0.0, 0.0, 0.25, 0.5, 1.0),
        "train_tokens_per_second": batch / step_seconds if step_seconds else 1e12,
        "max_policy_lag": pick(0, 1, 1, 2, 3),
        "sync_every_updates": pick(1, 1, 1, 1, 2, 3),
        "sync_seconds": pick(0.0, 0.5, 1.0, 0.75, 3.0),
        "drift_per_version": pick(0.0, 0.2, 0.5, 1.5, 10.0),
        "duration_seconds": pick(20.0, 8.0, 12.5, 40.0, 60.0, 27.3),
    }
    if theme == "stale":
        settings |= {
            "max_policy_lag": pick(0, 1),
            "max_queue_tokens": 20 * batch,
            "sync_seconds": pick(1.0, 2.5),
        }
    elif theme == "publish":
        settings |= {
            "sync_seconds": pick(2.0, 5.0),
            "max_policy_lag": pick(3, 5, 70),
            "train_tokens_per_second": 1e12,
            "train_overhead_seconds": pick(0.25, 0.5),
            "batch_tokens": max(1, mean // 2),
        }
    elif theme == "starve":
        lag = pick(0, 1)
        settings |= {"max_policy_lag": lag, "sync_every_updates": lag + pick(2, 3), "duration_seconds": 20.0}
        settings |= {"batch_tokens": mean, "max_queue_tokens": 4 * mean, "train_overhead_seconds": 0.25}
    elif theme == "stall":
        settings |= {"max_queue_tokens": max(1, batch // pick(2, 3)), "sync_seconds": pick(0.0, 0.5)}
    elif theme == "sequential":
        settings |= {"mode": "sequential", "admission": pick("threshold", "reserve")}
    elif theme == "reserve":
        settings |= {"admission": "reserve"}
        settings |= {
            "max_queue_tokens": longest * pick(1, 2, workers, workers + 2) + pick(0, batch, 2 * batch)
        }
    elif theme == "instant":
        # Rollouts of a few ticks, steps and publications of none or a few.
        settings |= {
            "decode_tokens_per_second": mean / pick(1e-9, 1e-6, 3e-6),
            "rollout_overhead_seconds": pick(0.0, 1e-6, 2e-6),
            "train_overhead_seconds": pick(0.0, 0.0, 1e-6, 4e-6),
            "train_tokens_per_second": 1e18,
            "sync_seconds": pick(0.0, 1e-6, 5e-6),
            "duration_seconds": pick(40e-6, 1e-6, 10e-6, 100e-6),
        }
    duration = settings["duration_seconds"]
    if draw(st.booleans()):
        # On the grid on which events fall, and now and then an arbitrary moment.
        warmup = (
            duration * pick(0.25, 0.5, 0.5, 0.75)
            if theme == "instant"
            else pick(1.0, 2.0, 2.5, 3.0, 0.123456)
        )
        if round(warmup * 1e6) < round(duration * 1e6) - 1:
            settings["warmup_seconds"] = warmup
    if pick(False, False, False, True):
        settings["stop_after_updates"] = pick(1, 2, 3, 5)
    return settings
