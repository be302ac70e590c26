"""The lab's sections that simulate: two kinds of loops, the queue's level, lag and effective sample size.

One seed is shown in detail and many seeds stand behind each mean, since one run of two minutes says little.
All loops of a seed see the same response lengths, so differences are taken seed by seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...kernels.intervals import mean_interval
from ..config.config import PipelineConfig
from ..results.frontier import ESS, THROUGHPUT, Frontier, frontier
from ..runs.many import BatchResult, simulate_batch
from ..runs.result import PipelineResult
from ..runs.simulate import simulate_pipeline
from ..spec.make import make_spec
from ..sweep.run import run_spec
from . import charts
from .model import Column, Profile, Section, Table

CAP = 7000
SHOWN_SEEDS = 8
SEQUENTIAL = "sequential"
EACH = "async, each update"
THIRD = "async, every third"
SWEPT_LAGS, SWEPT_CADENCES, SWEPT_CAPS = (0, 1, 2, 4, 8), (1, 2, 4), (3500, 14_000)


@dataclass(frozen=True)
class Loops:
    """The three loops: their settings, one run each in detail, some runs' batches, all seeds in sums."""

    configs: dict[str, PipelineConfig]
    details: dict[str, PipelineResult]
    batches: dict[str, dict[str, np.ndarray]]
    many: BatchResult

    def mean(self, name: str, metric: str) -> tuple[float, float]:
        """Mean over seeds of a loop's metric, and the half width of its 95 % interval."""
        values = self.many.metrics[metric][list(self.configs).index(name)].astype(np.float64)
        mean, half = mean_interval(values)
        return float(mean), float(half)


def run_loops(profile: Profile) -> Loops:
    """Run the three loops at the profile's length: in detail at its first seed, in sums at all seeds."""
    shared: dict[str, Any] = {"duration_seconds": profile.duration_seconds, "seed": profile.first_seed}
    bounded: dict[str, Any] = {**shared, "mode": "bounded_async", "max_queue_tokens": CAP}
    configs = {
        SEQUENTIAL: PipelineConfig(mode="sequential", **shared),
        EACH: PipelineConfig(**bounded, max_policy_lag=2, sync_every_updates=1),
        THIRD: PipelineConfig(**bounded, max_policy_lag=6, sync_every_updates=3),
    }
    details = {name: simulate_pipeline(config) for name, config in configs.items()}
    batches = {name: _batches_of(config) for name, config in configs.items()}
    seeds = np.arange(profile.first_seed, profile.first_seed + profile.seeds, dtype=np.uint64)
    return Loops(configs, details, batches, simulate_batch(list(configs.values()), seeds))


def _batches_of(config: PipelineConfig) -> dict[str, np.ndarray]:
    """Lag and effective sample size of every batch of a few seeds' runs."""
    runs = [simulate_pipeline(config.replace(seed=config.seed + offset)) for offset in range(SHOWN_SEEDS)]
    return {
        name: np.array([getattr(batch, name) for run in runs for batch in run.batches])
        for name in ("mean_lag", "normalized_ess")
    }


def loops_section(profile: Profile, loops: Loops) -> Section:
    """Section 4: what each loop trains in the same time."""
    rows = []
    base = loops.many.metrics["trained_tokens_per_second"][0]
    for place, name in enumerate(loops.configs):
        row: dict[str, Any] = {"loop": name}
        for key, metric in (
            ("updates", "updates"),
            ("tokens", "trained_tokens_per_second"),
            ("effective", "effective_tokens_per_second"),
        ):
            row[key], row[f"{key}_half"] = loops.mean(name, metric)
        gains = loops.many.metrics["trained_tokens_per_second"][place] - base
        mean, half = mean_interval(gains)
        row["gain"], row["gain_half"] = (float(mean), float(half)) if place else (None, None)
        rows.append(row)
    return Section(
        4,
        "A sequential and two bounded asynchronous loops",
        (
            "8 slots at 50 tokens/s, lognormal responses, batches of 2,500 tokens, "
            f"{profile.duration_seconds:.0f} simulated seconds; means over {profile.seeds} seeds with 95% "
            "intervals. The gain over the sequential loop is taken seed by seed.",
            "Effective tokens weigh each trained token by the batch's expected effective sample size (drift "
            f"{loops.configs[EACH].drift_per_version:g} per version). The sequential loop here is a "
            "disaggregated one, so the gain is that of overlap on the same two groups of machines.",
        ),
        (
            Table(
                "loops",
                "Three loops",
                (
                    Column("loop", "loop"),
                    Column("updates", "updates", ".2f", "updates_half"),
                    Column("tokens", "tokens/s", ",.1f", "tokens_half"),
                    Column("effective", "effective/s", ",.1f", "effective_half"),
                    Column("gain", "gain/s", ",.1f", "gain_half"),
                ),
                rows,
            ),
        ),
    )


def queue_section(profile: Profile, loops: Loops) -> Section:
    """Section 5: the queue's level over time, and what the cap does to the slots."""
    rows = []
    for name, detail in loops.details.items():
        row: dict[str, Any] = {"loop": name, "deepest_here": detail.max_queue_tokens_observed}
        for key, metric in (
            ("deepest", "max_queue_tokens_observed"),
            ("backpressure", "backpressure_seconds"),
            ("idle", "idle_slot_seconds"),
            ("discarded", "discarded_rollouts"),
        ):
            row[key], row[f"{key}_half"] = loops.mean(name, metric)
        rows.append(row)
    levels = [
        {"loop": name, "time": event.time, "tokens": event.queue_tokens}
        for name, detail in loops.details.items()
        if detail.config.mode == "bounded_async"
        for event in detail.timeline
    ]
    return Section(
        5,
        "Queue depth and backpressure",
        (
            f"At {CAP:,} queued tokens no new rollout starts. Those in flight still land, so the level goes "
            "over the cap for a while; by less than one longest response for each slot.",
            "Backpressure is the time in which a slot idles because of the cap. It is not waste in itself: "
            "it is the trainer's pace reaching the slots.",
        ),
        (
            Table(
                "queue",
                f"The queue, over {profile.seeds} seeds",
                (
                    Column("loop", "loop"),
                    Column("deepest", "deepest, tokens", ",.0f", "deepest_half"),
                    Column("backpressure", "backpressure, s", ".1f", "backpressure_half"),
                    Column("discarded", "discarded", ".2f", "discarded_half"),
                ),
                rows,
            ),
        ),
        (charts.queue_chart(levels, CAP, profile.duration_seconds),),
    )


def staleness_section(profile: Profile, loops: Loops) -> Section:
    """Section 6: lag against effective sample size, batch by batch, and over a small sweep."""
    points = [
        {"loop": name, "lag": float(lag), "ess": float(size)}
        for name, batches in loops.batches.items()
        for lag, size in zip(batches["mean_lag"], batches["normalized_ess"])
        if name != SEQUENTIAL
    ]
    swept = _sweep(profile, loops)
    return Section(
        6,
        "Staleness and weight concentration",
        (
            f"Every batch of {SHOWN_SEEDS} runs: the older its rollouts, the more unequal their importance "
            "weights may be. A batch has about eight rollouts, so its own figure scatters; the expected one, "
            "over all seeds, does not.",
            f"The sweep crosses lag limit, cadence and queue cap ({profile.sweep_seeds} seeds of "
            f"{profile.sweep_duration_seconds:,.0f} s each; a cadence above the limit + 1 would starve and "
            "is left out). That more overlap costs freshness is a property of this model, not a law.",
        ),
        (_staleness_table(loops), _sweep_table(swept)),
        (charts.lag_chart(points, loops.configs[EACH].drift_per_version), charts.sweep_chart(swept)),
    )


def _staleness_table(loops: Loops) -> Table:
    rows = []
    for name, batches in loops.batches.items():
        lags, ess = batches["mean_lag"], batches["normalized_ess"]
        expected, half = loops.mean(name, "mean_expected_normalized_ess")
        rows.append(
            {
                "loop": name,
                "updates": len(lags),
                "mean_lag": float(lags.mean()),
                "p95_lag": float(np.quantile(lags, 0.95)),
                "min_ess": float(ess.min()),
                "mean_ess": float(ess.mean()),
                "expected": expected,
                "expected_half": half,
            }
        )
    columns = (
        Column("loop", "loop"),
        Column("updates", "updates"),
        Column("mean_lag", "lag", ".2f"),
        Column("p95_lag", "95%", ".2f"),
        Column("mean_ess", "ESS", ".3f"),
        Column("min_ess", "lowest", ".3f"),
        Column("expected", "expected", ".3f", "expected_half"),
    )
    return Table("staleness", "Lag and normalized effective sample size", columns, rows)


def _sweep_table(swept: Frontier) -> Table:
    names = {"tokens": THROUGHPUT, "tokens_half": f"{THROUGHPUT}_half_width", "ess": ESS}
    names |= {"ess_half": f"{ESS}_half_width", "lag": "mean_lag", "rollouts": "rollouts_per_batch"}
    names |= {name: name for name in swept.axes}
    rows = [{key: row[name] for key, name in names.items()} for row in swept.on_frontier().to_dicts()]
    columns = (
        Column("max_lag", "lag limit"),
        Column("sync_cadence", "cadence"),
        Column("queue_cap", "cap", ","),
        Column("tokens", "tokens/s", ",.1f", "tokens_half"),
        Column("ess", "expected ESS", ".4f", "ess_half"),
        Column("lag", "lag", ".2f"),
        Column("rollouts", "rollouts", ".1f"),
    )
    title = "The sweep's best points: nothing else has both more tokens/s and more ESS"
    return Table("sweep", title, columns, rows)


def _sweep(profile: Profile, loops: Loops) -> Frontier:
    """Cross lag limit, cadence and cap, but for what would starve."""
    axes = {"max_lag": SWEPT_LAGS, "sync_cadence": SWEPT_CADENCES, "queue_cap": SWEPT_CAPS}
    base = loops.configs[EACH].replace(duration_seconds=profile.sweep_duration_seconds)
    seeds = range(profile.first_seed, profile.first_seed + profile.sweep_seeds)
    spec = make_spec(base, axes, seeds, constraints=["sync_cadence <= max_lag + 1"])
    found = frontier(run_spec(spec))
    return replace(found, frame=found.frame.filter(found.frame["runs"] > 0))
