"""marin's staleness sweep: what overlap can give at best, from the synchronous run alone."""

from __future__ import annotations

from typing import Any

from fidelity_parts import Calibrated, Family, Row, means_over_seeds

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config


def predict(updates: int, phase_seconds: float, copy_seconds: float) -> float:
    """Simulate so many updates of two phases that overlap, with a copy that holds both up."""
    config = preset_config(
        "skyrl",
        max_staleness_steps=1,
        batch_groups=4,
        group_size=1,
        rollout_workers=4,
        num_parallel_generation_workers=4,
        response_length=LengthLaw.fixed(1000),
        decode_tokens_per_second=1000 / phase_seconds,
        rollout_overhead_seconds=0.0,
        train_overhead_seconds=phase_seconds,
        train_tokens_per_second=1e12,
        sync_seconds=copy_seconds,
        stop_after_updates=updates,
        duration_seconds=1e6,
    )
    measures = {"total": lambda run: run["seconds_per_update"] * run["updates"]}
    return means_over_seeds(config, measures, seeds=1)["total"]


def family(data: dict[str, Any]) -> Family:
    """Predict staleness 1 from staleness 0."""
    part = data["marin"]
    synchronous, ahead = part["rows"]
    updates = part["updates"]
    phases = (synchronous["total"] - synchronous["weight_copies"]) / updates
    copy = synchronous["weight_copies"] / updates
    found = Family(
        "A staleness sweep (marin)",
        part["source"],
        part["setting"],
        "preset skyrl with staleness 1; the copy of the weights holds up both sides",
        calibrated=[
            Calibrated(
                "generation and training together", phases, "s per update", "staleness 0: total less copies"
            ),
            Calibrated("copy of the weights", copy, "s per update", "staleness 0"),
        ],
        assumed=["generation and training take equally long: it is not stated, and nothing overlaps better"],
    )
    found.rows.append(
        Row(
            "staleness 1",
            "100 updates",
            "s",
            predict(updates, phases / 2, copy),
            ahead["total"],
            ("staleness 0",),
            "the phases of the run are not equal, and lengths vary",
            "at least",
        )
    )
    found.left_out.append(("staleness 0", "an input"))
    return found
