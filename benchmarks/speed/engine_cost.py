"""Cost of engines: a preset with and without them, and time per rollout as responses grow."""

from __future__ import annotations

from statistics import median

from loops import general_run, run_general
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import Engine, LengthLaw, PipelineConfig, preset_config

PRESETS = ("areal", "verl_fully_async", "pipelinerl", "prime_rl")
LARGEST_RATIO, LARGEST_GROWTH = 2.5, 1.3  # what is promised
GROWTHS = (1, 8, 64)


def _preset(name: str, engine: Engine | None) -> PipelineConfig:
    speed = {} if engine else {"decode_tokens_per_second": 40.0, "decode_slowdown_per_rollout": 0.008}
    return preset_config(
        name,
        engine=engine,
        rollout_workers=256,
        batch_groups=16,
        group_size=8,
        response_length=LengthLaw.lognormal(median=2000, sigma=0.8, minimum=16, maximum=16_384),
        train_tokens_per_second=20_000.0,
        train_overhead_seconds=5.0,
        sync_seconds=3.0,
        duration_seconds=40_000.0,
        **speed,
    )


def _grown(factor: int) -> PipelineConfig:
    """Return a run with responses so many times as long and a cache in proportion: as many rollouts end."""
    law = LengthLaw.lognormal(median=300 * factor, sigma=0.6, minimum=16 * factor, maximum=2048 * factor)
    engine = Engine(
        step_seconds=0.012 / factor,
        step_seconds_per_context_token=8e-8 / factor**2,
        kv_cache_tokens=30_000 * factor,
    )
    return PipelineConfig(
        engine=engine,
        rollout_workers=64,
        response_length=law,
        batch_tokens=20_000 * factor,
        max_queue_tokens=60_000 * factor,
        train_tokens_per_second=4000.0 * factor,
        duration_seconds=10_000.0,
    )


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure presets with and without engines, and runs whose responses grow."""
    engine = Engine(count=4, step_seconds=0.012, step_seconds_per_context_token=2e-8, kv_cache_tokens=400_000)
    presets, growths = PRESETS[:1] if tiny else PRESETS, GROWTHS[:2] if tiny else GROWTHS
    configs = {f"{name}+": _preset(name, engine) for name in presets}
    configs |= {name: _preset(name, None) for name in presets}
    configs |= {f"x{factor}": _grown(factor) for factor in growths}
    if tiny:
        configs = {name: config.replace(duration_seconds=900.0) for name, config in configs.items()}
    runs = {name: general_run(config) for name, config in configs.items()}
    rollouts = {name: int(run_general(run).summary().generated_rollouts) for name, run in runs.items()}
    seconds = in_turn({name: lambda run=run: run_general(run) for name, run in runs.items()}, rounds)
    each = {name: scaled(samples, 1e9 / rollouts[name]) for name, samples in seconds.items()}
    with_and_without = {name: ratios(each, f"{name}+", name) for name in presets}
    growing = {factor: ratios(each, f"x{factor}", "x1") for factor in growths}
    found = Section("Inference engines")
    found.text += [
        "Presets at 256 slots with four engines and with a fixed speed of decoding; then one engine, "
        "responses so many times as long and its cache in proportion. Nanoseconds a rollout.",
        table(
            ["preset", "without engines", "with", "ratio"],
            [
                [name, ranged(each[name], 0), ranged(each[f"{name}+"], 0), ranged(over, 2)]
                for name, over in with_and_without.items()
            ],
        ),
        table(
            ["responses", "ns a rollout", "over × 1"],
            [
                [f"× {factor}", ranged(each[f"x{factor}"], 0), ranged(over, 2)]
                for factor, over in growing.items()
            ],
        ),
    ]
    worst, most = max(map(median, with_and_without.values())), max(map(median, growing.values()))
    found.at_most("a rollout with engines over one without", worst, LARGEST_RATIO)
    found.at_most("a rollout's time as its responses grow", most, LARGEST_GROWTH)
    return found
