"""Cost of engines: a preset with and without them, and time per rollout as responses grow.

Prints tables in Markdown, or writes them (``--output``). Runs are taken in turn, round by round, and the
smallest time of each counts; figures depend on the machine, ratios much less.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from lagsweep import Engine, LengthLaw, PipelineConfig, preset_config
from lagsweep.sweeps.runs.general import GeneralRun

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


def nanoseconds_per_rollout(configs: dict[str, PipelineConfig], rounds: int) -> dict[str, float]:
    """Run configurations in turn; give the smallest time of each over the rollouts that it completes."""
    found = dict.fromkeys(configs, float("inf"))
    for _ in range(rounds):
        for name, config in configs.items():
            run = GeneralRun(config)
            started = time.perf_counter()
            run.advance()
            seconds = time.perf_counter() - started
            rollouts = int(run.summary().generated_rollouts)
            found[name] = min(found[name], seconds * 1e9 / rollouts)
    return found


def tables(rounds: int) -> tuple[str, bool]:
    """Return the tables, and whether both promises hold."""
    engine = Engine(count=4, step_seconds=0.012, step_seconds_per_context_token=2e-8, kv_cache_tokens=400_000)
    configs = {f"{name}+": _preset(name, engine) for name in PRESETS}
    configs |= {name: _preset(name, None) for name in PRESETS}
    configs |= {f"x{factor}": _grown(factor) for factor in GROWTHS}
    nanoseconds_per_rollout({name: one.replace(duration_seconds=500.0) for name, one in configs.items()}, 1)
    found = nanoseconds_per_rollout(configs, rounds)
    kept = True
    lines = ["| preset | without engines, ns a rollout | with | ratio |", "| --- | ---: | ---: | ---: |"]
    for name in PRESETS:
        ratio = found[f"{name}+"] / found[name]
        kept &= ratio <= LARGEST_RATIO
        lines.append(f"| {name} | {found[name]:.0f} | {found[f'{name}+']:.0f} | {ratio:.2f} |")
    lines += ["", "| responses | ns a rollout | over × 1 |", "| --- | ---: | ---: |"]
    for factor in GROWTHS:
        growth = found[f"x{factor}"] / found["x1"]
        kept &= growth <= LARGEST_GROWTH
        lines.append(f"| × {factor} | {found[f'x{factor}']:.0f} | {growth:.2f} |")
    return "\n".join(lines) + "\n", kept


def main() -> int:
    """Print or write the tables; exit code 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="write Markdown here")
    arguments = parser.parse_args()
    text, kept = tables(arguments.rounds)
    if arguments.output:
        head = "# Cost of engines\n\nMade by `python benchmarks/engine_cost.py`; at most 2.5 and 1.3.\n\n"
        arguments.output.write_text(head + text, encoding="utf-8")
    print(text)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
