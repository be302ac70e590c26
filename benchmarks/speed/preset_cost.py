"""What each preset costs beside level 1 at as many slots: an event, and a rollout."""

from __future__ import annotations

import statistics
import time

from loops import anew, general_run, keeping_up, lean_run
from measuring import Section, in_turn, ranged, ratios, scaled, table

from lagsweep import LengthLaw, PipelineConfig, all_presets, preset_config
from lagsweep.sweeps.runs.general import GeneralRun
from lagsweep.sweeps.runs.lean import LeanRun

SLOTS = 256
AIM, AIM_GENERAL = 1.8, 1.5  # times level 1, processor time a rollout
BASE, GENERAL = "level 1", "level 1 by the general loop"
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
    seconds, kept = 1_500.0 if tiny else 12_000.0, 1 << 17
    core = keeping_up(SLOTS, 4_000 if tiny else 80_000, _LAW)
    configs = {GENERAL: core} | {name: preset(name, seconds) for name in all_presets()}
    runs: dict[str, LeanRun | GeneralRun] = {BASE: lean_run(core, kept)}
    runs |= {name: general_run(config, kept) for name, config in configs.items()}
    alone = runs | {name: general_run(config) for name, config in configs.items()}
    events, rollouts, forms = {}, {}, {}
    for name, run in runs.items():
        anew(run)
        events[name], rollouts[name] = int(run.state.events), int(run.summary().generated_rollouts)
        forms[name] = lambda run=run: anew(run)
        forms[f"{name}, drawing"] = lambda run=alone[name]: anew(run, drawing=True)
    taken = in_turn(forms, rounds, time.process_time)
    by_event = {name: scaled(taken[name], 1e9 / events[name]) for name in runs}
    by_rollout = {
        name: scaled(samples, 1e9 / rollouts[name.removesuffix(", drawing")])
        for name, samples in taken.items()
    }
    over = {name: ratios(by_rollout, name, BASE) for name in runs}
    drawing = {name: ratios(by_rollout, f"{name}, drawing", f"{BASE}, drawing") for name in runs}
    order = sorted(runs, key=lambda name: statistics.median(drawing[name]))
    found = Section("Presets beside level 1")
    found.text += [
        f"Every preset with its system's defaults at {SLOTS} slots, 16 groups of 8 a batch, and level 1 (the "
        "lean loop, the trainer keeping up) at as many slots with the same law of lengths. Processor time. "
        "Draws are made beforehand, as in a sweep where the configurations of a seed share them; in the last "
        "two columns every run draws its own, as in a sweep of one configuration. Aborted and cancelled "
        "rollouts are in the time, not in the count.",
        table(
            [
                "preset",
                "ns an event",
                "ns a rollout",
                "/ level 1",
                "ns a rollout, drawing",
                "/ level 1, drawing",
            ],
            [
                [
                    name,
                    ranged(by_event[name]),
                    ranged(by_rollout[name]),
                    ranged(over[name], 2),
                    ranged(by_rollout[f"{name}, drawing"]),
                    ranged(drawing[name], 2),
                ]
                for name in order
            ],
        ),
    ]
    for told, found_ratios in (("draws shared", over), ("drawing its own", drawing)):
        medians = {
            name: statistics.median(found_ratios[name]) for name in runs if name not in (BASE, GENERAL)
        }
        worst = max(medians, key=lambda name: medians[name])
        found.at_most(f"times level 1, {told}, the dearest preset ({worst})", medians[worst], AIM)
    for told, found_ratios in (("draws shared", over), ("drawing its own", drawing)):
        found.at_most(
            f"general loop over level 1, {told}", statistics.median(found_ratios[GENERAL]), AIM_GENERAL
        )
    return found
