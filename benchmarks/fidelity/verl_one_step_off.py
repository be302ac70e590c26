"""verl's one-step-off trainer: each of its two runs from the colocated run and the phases of the other."""

from __future__ import annotations

from typing import Any

from fidelity_parts import (
    Calibrated,
    Family,
    Row,
    capped_lognormal,
    engine_speeds,
    expected_longest,
    seconds_per_update,
)

from lagsweep.sweeps.presets.registry import preset_config

GROUPS, GROUP_SIZE = 64, 16
SIGMA = 0.9
STEPS = 60


def generation(part: dict[str, Any], known: dict[str, Any], wanted: dict[str, Any]) -> tuple[float, float]:
    """Split the wanted colocated generation into tail and work, by what the known run shows of its own.

    Two measurements of the known run give its two parts; the tail goes with the longest response, and the
    rest of the wanted run's colocated generation is work.
    """
    whole, few = part["gpus"], part["generation_gpus"]
    change = known["one_step_off"]["generation"] - known["colocated"]["generation"]
    work = change / (1 / few - 1 / whole)
    tail = known["colocated"]["generation"] - work / whole
    tail *= wanted["max_response_tokens"] / known["max_response_tokens"]
    return tail, (wanted["colocated"]["generation"] - tail) * whole


def predict(
    part: dict[str, Any], known: dict[str, Any], wanted: dict[str, Any]
) -> tuple[float, float, float]:
    """Simulate the wanted run; gives step, and tail and work of its generation."""
    rollouts = GROUPS * GROUP_SIZE
    law = capped_lognormal(SIGMA, rollouts, wanted["max_response_tokens"])
    tail, work = generation(part, known, wanted)
    speed, slowdown = engine_speeds(
        expected_longest(law, rollouts), law.mean_tokens, rollouts, tail, work / part["generation_gpus"]
    )
    own = wanted["colocated"]
    training = (own["old_log_prob"] + own["update"]) * part["gpus"] / part["training_gpus"]
    other = known["one_step_off"]
    rest = other["step"] - other["wait"] - other["old_log_prob"] - other["update"]
    config = preset_config(
        "verl_one_step_off",
        batch_groups=GROUPS,
        group_size=GROUP_SIZE,
        rollout_workers=rollouts,
        response_length=law,
        decode_tokens_per_second=speed,
        decode_slowdown_per_rollout=slowdown,
        rollout_overhead_seconds=0.0,
        train_overhead_seconds=training + rest,
        train_tokens_per_second=1e12,
        sync_seconds=0.3,
        duration_seconds=STEPS * 800.0,
        warmup_seconds=5 * 800.0,
    )
    return seconds_per_update(config), tail, work


WHY = {
    "FSDP2": "with a quarter of the GPUs its generation took 1.9 times as long, that of the Megatron run 3.1 "
    "times: one division into tail and work does not fit both",
    "Megatron": "its training took no longer on 12 GPUs than on 16 (467 s against 463 s), so it does not go "
    "with their number",
}


def family(data: dict[str, Any]) -> Family:
    """Predict both runs, each from the other."""
    part = data["verl_one_step_off"]
    fsdp, megatron = part["rows"]
    found = Family(
        "verl one-step-off",
        part["source"],
        part["setting"],
        "preset verl_one_step_off; all rollouts of a batch at once, training time divided by 12 of 16 GPUs",
        assumed=[
            "lognormal lengths whose longest of a batch is the cap (only the longest and the sum matter)",
            "a publication of 0.3 s",
        ],
    )
    for wanted, known in ((fsdp, megatron), (megatron, fsdp)):
        step, tail, work = predict(part, known, wanted)
        sources = (f"{wanted['id']}, colocated", f"{known['id']}, both")
        found.calibrated += [
            Calibrated(
                f"{wanted['id']}: longest rollout alone", tail, "s", f"{known['id']}, both, by the longest"
            ),
            Calibrated(f"{wanted['id']}: generation work", work, "GPU s", f"{wanted['id']}, colocated"),
        ]
        measured = wanted["one_step_off"]["step"]
        found.rows.append(Row(wanted["id"], "step", "s", step, measured, sources, WHY[wanted["id"]]))
        found.left_out.append((f"{wanted['id']}, colocated step", "an input"))
    return found
