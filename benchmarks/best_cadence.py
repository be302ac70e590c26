"""The best cadence of checkpoints: simulated against Young, Daly and the exact optimum, and where it differs.

First an ideal trainer, whose data are always ready: the rules of thumb hold there. Then pipelines in which
they do not: a queue that fills while the trainer restarts hides a part of the restart, and a checkpoint of
weights alone loses the queue. Prints tables in Markdown, or writes them (``--output``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.kernels.recovery.cost import expected_overhead_fraction
from lagsweep.kernels.recovery.interval import optimal_checkpoint_interval
from lagsweep.sweeps.runs.general import GeneralRun

# Known cases: seconds of a checkpoint, mean seconds between failures, seconds of a step, name.
CASES = (
    (180.0, 36_000.0, 120.0, "the example of `lagsweep ledger checkpoint`"),
    (300.0, 86_400.0, 300.0, "Daly 2006: 5 min, 24 h"),
    (300.0, 21_600.0, 180.0, "Daly 2006: 5 min, 6 h"),
    (300.0, 900.0, 30.0, "Daly 2006: 5 min, 15 min"),
)
RULES = ("young", "daly_first", "daly_higher", "exact")
SHARES = (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.2)  # cadences looked at, over the exact optimum
LARGEST_RATIO = 1.02  # what is promised of the exact optimum's cadence
SCOPES = ("full", "weights_only")


def ideal_overhead(
    checkpoint: float, mtbf: float, step: float, cadence: int, updates: int, seed: int
) -> float:
    """Simulate a trainer that never waits for data; give the extra time per second of work."""
    config = PipelineConfig(
        rollout_workers=1,
        response_length=LengthLaw.fixed(1),
        decode_tokens_per_second=1e9,
        rollout_overhead_seconds=0.0,
        max_queue_tokens=1,
        batch_tokens=1,
        train_overhead_seconds=step,
        train_tokens_per_second=1e9,
        max_policy_lag=10**6,
        sync_seconds=0.0,
        duration_seconds=2e9,
        stop_after_updates=updates,
        trainer_mtbf_seconds=mtbf,
        checkpoint_every_updates=cadence,
        checkpoint_seconds=checkpoint,
        seed=seed,
    )
    run = GeneralRun(config)
    run.advance()
    summary = run.summary()
    assert summary.final_version >= updates, "the horizon is too short"
    return float(summary.last_progress_seconds) / (updates * step) - 1.0


def ideal_table(failures: int, seeds: int) -> tuple[str, bool]:
    """Return the table of ideal trainers, and whether the promise holds."""
    lines = [
        "| checkpoint, mean time between failures | rule | interval | updates | simulated | expected |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    kept = True
    for case in CASES:
        rows, ratio = _ideal_rows(*case, failures, seeds)
        lines += rows
        kept = kept and ratio <= LARGEST_RATIO
    return "\n".join(lines), kept


def _ideal_rows(
    checkpoint: float, mtbf: float, step: float, name: str, failures: int, seeds: int
) -> tuple[list[str], float]:
    """Return the rows of one case, and the overhead at the exact optimum's cadence over the least one."""
    exact = float(optimal_checkpoint_interval(checkpoint, mtbf, method="exact"))
    least = float(expected_overhead_fraction(exact, checkpoint, mtbf))
    updates = int(failures * mtbf / step / (1.0 + least))
    found: dict[int, float] = {}

    def simulated(cadence: int) -> float:
        if cadence not in found:
            whole = updates // cadence * cadence
            runs = [ideal_overhead(checkpoint, mtbf, step, cadence, whole, seed) for seed in range(seeds)]
            found[cadence] = float(np.mean(runs))
        return found[cadence]

    for share in SHARES:
        simulated(max(1, round(share * exact / step)))
    rows = []
    for rule in RULES:
        interval = float(optimal_checkpoint_interval(checkpoint, mtbf, method=rule))
        cadence = max(1, round(interval / step))
        expected = float(expected_overhead_fraction(cadence * step, checkpoint, mtbf))
        figures = f"{interval:,.0f} s | {cadence} | {simulated(cadence):.4f} | {expected:.4f}"
        rows.append(f"| {name} | {rule} | {figures} |")
    best = min(found, key=lambda cadence: found[cadence])
    ratio = simulated(max(1, round(exact / step))) / found[best]
    told = f"{best * step:,.0f} s | {best} | {found[best]:.4f} | exact: {ratio:.4f} times it"
    rows.append(f"| {name} | least of {len(found)} | {told} |")
    return rows, ratio


# Slots, and a cap on the queue in tokens; a batch has about 2,700.
PIPELINES = {
    "generation binds, cap of 3 batches": {"rollout_workers": 5, "max_queue_tokens": 7_500},
    "generation binds, cap of 30 batches": {"rollout_workers": 5, "max_queue_tokens": 75_000},
    "balanced, cap of 3 batches": {"rollout_workers": 7, "max_queue_tokens": 7_500},
    "balanced, cap of 30 batches": {"rollout_workers": 7, "max_queue_tokens": 75_000},
    "training binds, cap of 3 batches": {"rollout_workers": 12, "max_queue_tokens": 7_500},
    "training binds, cap of 30 batches": {"rollout_workers": 12, "max_queue_tokens": 75_000},
}
# A step takes about 8 s; lag never discards anything, so that what is lost is lost in failures.
LOADED = {"train_tokens_per_second": 360.0, "max_policy_lag": 10**6, "drift_per_version": 0.0}
FAILING = {
    "trainer_mtbf_seconds": 1200.0,
    "restart_seconds": 180.0,
    "checkpoint_seconds": 10.0,
    "checkpoint_every_updates": 20,
}


def pipeline_means(seeds: int, duration: float, **fields: Any) -> dict[str, float]:
    """Return means over seeds of a pipeline's metrics."""
    runs = []
    for seed in range(seeds):
        run = GeneralRun(PipelineConfig(seed=seed, duration_seconds=duration, **LOADED, **fields))
        run.advance()
        runs.append(run.summary())
    names = runs[0].dtype.names
    return {name: float(np.mean([run[name] for run in runs])) for name in names}


def ideal_loss(without: dict[str, float], duration: float) -> float:
    """Return the share of time that failures cost a trainer alone, from its run without failures."""
    step = duration / without["updates"]
    interval = FAILING["checkpoint_every_updates"] * step
    mtbf, restart = FAILING["trainer_mtbf_seconds"], FAILING["restart_seconds"]
    overhead = float(expected_overhead_fraction(interval, FAILING["checkpoint_seconds"], mtbf))
    return 1.0 - 1.0 / ((1.0 + overhead) * (1.0 + restart / mtbf))


def pipeline_table(seeds: int, duration: float) -> str:
    """Return the table of pipelines in which the ideal sum does not hold."""
    lines = [
        "| pipeline | waits for data | tokens/s without failures | loss, `full` | loss, `weights_only` | "
        "ideal sum | lost tokens a failure, `full` | `weights_only` |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    failures = duration / (FAILING["trainer_mtbf_seconds"] + FAILING["restart_seconds"])
    for name, fields in PIPELINES.items():
        without = pipeline_means(seeds, duration, **fields)
        waits = (without["trainer_running_groups_seconds"] + without["trainer_batch_seconds"]) / duration
        cells = [name, f"{waits:.0%}", f"{without['trained_tokens_per_second']:.0f}"]
        found = [
            pipeline_means(seeds, duration, checkpoint_scope=scope, **fields, **FAILING) for scope in SCOPES
        ]
        for one in found:
            loss = 1.0 - one["trained_tokens_per_second"] / without["trained_tokens_per_second"]
            cells.append(f"{loss:.1%}")
        cells.append(f"{ideal_loss(without, duration):.1%}")
        cells += [f"{one['lost_tokens'] / failures:,.0f}" for one in found]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TEXT = """# The best cadence of checkpoints

Made by `python benchmarks/best_cadence.py --failures {failures} --seeds {seeds}`.

## A trainer whose data are always ready

Extra time per second of work, simulated and expected. The cadence of the exact optimum is within 2 % of the
least over all cadences looked at.

{ideal}

## Pipelines

A failure each {mtbf:.0f} s on average, {restart:.0f} s of restart, {checkpoint:.0f} s of checkpoint every
{every} updates. The loss is in trained tokens a second, against the same pipeline without failures. The ideal
sum knows the trainer alone: checkpoints, what is trained again, restarts. Where the trainer waits for data, a
queue that fills while it restarts is trained in the time in which it would have waited, as far as the cap
lets it fill. `weights_only` loses the queue at every failure, and what it held is generated again.

{pipelines}
"""


def main() -> int:
    """Print or write the tables; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=700, help="of one ideal run, about")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    ideal, kept = ideal_table(options.failures, options.seeds)
    text = TEXT.format(
        failures=options.failures,
        seeds=options.seeds,
        ideal=ideal,
        mtbf=FAILING["trainer_mtbf_seconds"],
        restart=FAILING["restart_seconds"],
        checkpoint=FAILING["checkpoint_seconds"],
        every=FAILING["checkpoint_every_updates"],
        pipelines=pipeline_table(4 * options.seeds, 60_000.0),
    )
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
