"""What each preset costs beside level 1 at as many slots: an event, and a rollout."""

from __future__ import annotations

import statistics
import time

from loops import general_run, keeping_up, lean_cells, run_cells, run_general
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import LengthLaw, PipelineConfig, all_presets, preset_config

SLOTS = 256
AIM = 1.8  # times level 1, processor time a rollout
_LAW = LengthLaw.lognormal(median=2_000, sigma=0.8, minimum=16, maximum=16_384)


def preset(name: str, seconds: float) -> PipelineConfig:
    """Return a preset with its system's defaults beside one workload."""
    return preset_config(
        name,
        rollout_workers=SLOTS,
        batch_groups=16,
        group_size=8,
        response_length=_LAW,
        train_tokens_per_second=20_000.0,
        train_overhead_seconds=5.0,
        sync_seconds=3.0,
        duration_seconds=seconds,
    )


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure every preset and level 1 in turn, in processor time."""
    seconds = 1_500.0 if tiny else 12_000.0
    cells = lean_cells([keeping_up(SLOTS, 4_000 if tiny else 80_000, _LAW)])
    metrics = run_cells(cells)
    events, rollouts = {"level 1": int(cells.events)}, {"level 1": int(metrics["generated_rollouts"][0])}
    forms = {"level 1": lambda: run_cells(cells)}
    for name in all_presets():
        run = general_run(preset(name, seconds), 1 << 17)
        summary = run_general(run).summary()
        events[name], rollouts[name] = int(run.state.events), int(summary.generated_rollouts)
        forms[name] = lambda run=run: run_general(run)
    taken = in_turn(forms, rounds, time.process_time)
    by_event = {name: scaled(samples, 1e9 / events[name]) for name, samples in taken.items()}
    by_rollout = {name: scaled(samples, 1e9 / rollouts[name]) for name, samples in taken.items()}
    over = {name: ratios(by_rollout, name, "level 1") for name in forms}
    order = sorted(forms, key=lambda name: statistics.median(over[name]))
    found = Section("Presets beside level 1")
    found.text += [
        f"Every preset with its system's defaults at {SLOTS} slots, 16 groups of 8 a batch, and level 1 (the lean "
        "loop, the trainer keeping up) at as many slots with the same law of lengths. Processor time, draws made "
        "beforehand; aborted and cancelled rollouts are part of the time, not of the count of rollouts.",
        table(
            ["preset", "events a rollout", "ns an event", "ns a rollout", "a rollout / level 1"],
            [
                [
                    name,
                    f"{events[name] / rollouts[name]:.2f}",
                    ranged(by_event[name]),
                    ranged(by_rollout[name]),
                    ranged(over[name], 2),
                ]
                for name in order
            ],
        ),
    ]
    worst = order[-1]
    found.at_most(f"times level 1, the dearest ({worst})", statistics.median(over[worst]), AIM)
    return found
