"""verl's one-step-off trainer: each of its two runs from its colocated run and what the other run shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fidelity_parts import (
    Calibrated,
    Ends,
    Family,
    Row,
    Verdict,
    capped_lognormal,
    engine_speeds,
    expected_longest,
    seconds_per_update,
)

from lagsweep.sweeps.presets.registry import preset_config

GROUPS, GROUP_SIZE = 64, 16
SIGMA = 0.9
STEPS = 60
SYNC_SECONDS = 0.3


def exponents(pairs: list[dict[str, Any]], without: str) -> list[float]:
    """Return by which power an update grows as its GPUs become fewer, of every published pair but one."""
    return [
        math.log(pair["update"][1] / pair["update"][0]) / math.log(pair["gpus"][0] / pair["gpus"][1])
        for pair in pairs
        if pair["id"] != without
    ]


def rest_of(run: dict[str, Any]) -> float:
    """Return the seconds of a one-step-off step that no phase names."""
    return run["step"] - run["wait"] - run["old_log_prob"] - run["update"]


def simulate(wanted: dict[str, Any], fetch: float, training: float, generation: float) -> float:
    """Simulate the wanted run with all rollouts of a batch at once."""
    rollouts = GROUPS * GROUP_SIZE
    law = capped_lognormal(SIGMA, rollouts, wanted["max_response_tokens"])
    # A batch starts and ends as one, so how its time divides into tail and work changes nothing.
    speed, slowdown = engine_speeds(
        expected_longest(law, rollouts), law.mean_tokens, rollouts, generation / 2, generation / 2
    )
    guess = 1.2 * max(generation, training + fetch)
    config = preset_config(
        "verl_one_step_off",
        batch_groups=GROUPS,
        group_size=GROUP_SIZE,
        rollout_workers=rollouts,
        response_length=law,
        decode_tokens_per_second=speed,
        decode_slowdown_per_rollout=slowdown,
        rollout_overhead_seconds=0.0,
        train_overhead_seconds=training,
        train_tokens_per_second=1e12,
        fetch_seconds=fetch,
        sync_seconds=SYNC_SECONDS,
        duration_seconds=STEPS * guess,
        warmup_seconds=5 * guess,
    )
    return seconds_per_update(config)


def by_division(part: dict[str, Any], known: dict[str, Any], wanted: dict[str, Any]) -> float:
    """Return the wanted generation on the few GPUs, if tail and work divide as the known run's two times say.

    The tail goes with the longest response, and the rest of the wanted run's colocated generation is work.
    """
    whole, few = part["gpus"], part["generation_gpus"]
    change = known["one_step_off"]["generation"] - known["colocated"]["generation"]
    tail = known["colocated"]["generation"] - change / (1 / few - 1 / whole) / whole
    tail *= wanted["max_response_tokens"] / known["max_response_tokens"]
    return tail + (wanted["colocated"]["generation"] - tail) * whole / few


def predict(
    part: dict[str, Any], pairs: list[dict[str, Any]], known: dict[str, Any], wanted: dict[str, Any]
) -> Ends:
    """Simulate the wanted run from its colocated run, the other run, and how other updates grew."""
    powers = exponents(pairs, f"one-step-off {wanted['id']}")
    own, other = wanted["colocated"], known["one_step_off"]
    fewer = part["gpus"] / part["training_gpus"]

    def step(power: float, generation: float) -> float:
        training = (own["old_log_prob"] + own["update"]) * fewer**power + rest_of(other)
        return simulate(wanted, other["wait"], training, generation)

    middle, generation = float(np.median(powers)), other["generation"]
    quarters = [float(np.quantile(powers, share)) for share in (0.25, 0.75)]
    return Ends(
        step(middle, generation),
        {
            "how training grows": (step(quarters[0], generation), step(quarters[1], generation)),
            "generation on 4 GPUs": (
                step(middle, generation),
                step(middle, by_division(part, known, wanted)),
            ),
        },
    )


def split(known: dict[str, Any], wanted: dict[str, Any]) -> float:
    """Simulate the wanted run with its own phases put in; fetch and rest are the other run's."""
    own, other = wanted["one_step_off"], known["one_step_off"]
    training = own["old_log_prob"] + own["update"] + rest_of(other)
    return simulate(wanted, other["wait"], training, own["generation"])


IDENTIFIED = {
    "FSDP2": "not fixed: its generation on 4 GPUs. Colocated and separate times of the other run give either "
    "that run's {low:.0f} s or, by tail and work, {high:.0f} s",
    "Megatron": "not fixed: how its training grows on 12 of 16 GPUs; published pairs have exponents from "
    "{least:.2f} to {most:.2f}",
}
WHY = {
    "FSDP2": "its generation took 458 s, less than either; it did not set the pace",
    "Megatron": "its training took no longer on 12 GPUs than on 16 (467 s against 463 s); the median "
    "exponent of the others lengthens it",
}


def rows_of(data: dict[str, Any], known: dict[str, Any], wanted: dict[str, Any]) -> tuple[list[Row], Verdict]:
    """Return the wanted run as a range and as a split, and the verdict beside its colocated run."""
    part, pairs = data["verl_one_step_off"], data["fewer_gpus"]["pairs"]
    ends = predict(part, pairs, known, wanted)
    powers = exponents(pairs, f"one-step-off {wanted['id']}")
    identified = IDENTIFIED[wanted["id"]].format(
        low=known["one_step_off"]["generation"],
        high=by_division(part, known, wanted),
        least=min(powers),
        most=max(powers),
    )
    measured = wanted["one_step_off"]["step"]
    sources = (f"{wanted['id']}, colocated", f"{known['id']}, both", "how other updates grew")
    rows = [
        Row(
            wanted["id"],
            "step",
            "s",
            ends.middle,
            measured,
            sources,
            ends.kind,
            ends.low,
            ends.high,
            identified,
            WHY[wanted["id"]],
        ),
        Row(
            f"{wanted['id']}, own phases",
            "step",
            "s",
            split(known, wanted),
            measured,
            (f"{known['id']}, both",),
            "split",
            identified="its own generation and training, the other run's fetch and rest",
        ),
    ]
    verdict = Verdict(
        f"{wanted['id']} beside its colocated run", wanted["colocated"]["step"], ends.low, ends.high, measured
    )
    return rows, verdict


def family(data: dict[str, Any]) -> Family:
    """Predict both runs, each from the other."""
    part, pairs = data["verl_one_step_off"], data["fewer_gpus"]["pairs"]
    fsdp, megatron = part["rows"]
    found = Family(
        "verl one-step-off",
        part["source"],
        part["setting"],
        "preset verl_one_step_off with a fetch; all rollouts of a batch at once",
        assumed=[
            "a wait that outlasts the generation is the fetch of a batch, as in verl fully_async",
            "lognormal lengths whose longest of a batch is the cap; a batch ends as one, so only its "
            "time matters",
            f"a publication of {SYNC_SECONDS:g} s",
            "how training grows: the middle half of what other published updates say, colocated and on the "
            "fewer GPUs of the run beside it",
        ],
    )
    for wanted, known in ((fsdp, megatron), (megatron, fsdp)):
        powers = exponents(pairs, f"one-step-off {wanted['id']}")
        other = known["one_step_off"]
        found.calibrated += [
            Calibrated(
                f"{wanted['id']}: exponent of training",
                float(np.median(powers)),
                "",
                "median of the other seven pairs",
            ),
            Calibrated(f"{wanted['id']}: fetch", other["wait"], "s", f"{known['id']}, wait"),
            Calibrated(f"{wanted['id']}: rest of a step", rest_of(other), "s", f"{known['id']}"),
            Calibrated(f"{wanted['id']}: generation on 4 GPUs", other["generation"], "s", f"{known['id']}"),
        ]
        rows, verdict = rows_of(data, known, wanted)
        found.rows += rows
        found.verdicts.append(verdict)
        found.left_out.append((f"{wanted['id']}, colocated step", "an input"))
    return found
