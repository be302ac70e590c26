"""NeMo RL's 1-off policy from two synchronous runs of the same model on different numbers of GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_parts import Calibrated, Family, Row, engine_speeds, expected_longest, seconds_per_update
from scipy.optimize import brentq
from scipy.special import ndtri

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config

GROUPS, GROUP_SIZE = 32, 16
ROLLOUTS = GROUPS * GROUP_SIZE
STEPS = 80


def law_of(row: dict[str, Any]) -> LengthLaw:
    """Return the lognormal law with the stated mean whose longest of a batch is the stated cap."""
    normal = float(ndtri(1.0 - 1.0 / ROLLOUTS))
    ratio = row["max_tokens"] / row["mean_tokens"]
    sigma = brentq(lambda s: np.exp(s * normal - s * s / 2) - ratio, 1e-3, 2.0)
    median = row["mean_tokens"] / np.exp(sigma * sigma / 2)
    return LengthLaw.lognormal(
        median=float(median), sigma=round(sigma, 4), minimum=1, maximum=row["max_tokens"]
    )


def fixed_and_divided(small: dict[str, Any], large: dict[str, Any]) -> tuple[float, float]:
    """Split the step of two synchronous runs into seconds that GPUs do not divide, and GPU seconds."""
    divided = (small["step"] - large["step"]) / (1 / small["gpus"] - 1 / large["gpus"])
    return large["step"] - divided / large["gpus"], divided


def predict(row: dict[str, Any], fixed: float, divided: float) -> float:
    """Simulate 1-off with half of the GPUs on each side, at the division of work that suits them best."""
    half = row["gpus"] / 2
    # Equal phases: fixed + generation / half = training / half, and the two make up the divided work.
    training = (divided + fixed * half) / 2
    law = law_of(row)
    speed, slowdown = engine_speeds(
        expected_longest(law, ROLLOUTS), law.mean_tokens, ROLLOUTS, fixed, (divided - training) / half
    )
    config = preset_config(
        "nemo_rl_legacy",
        batch_groups=GROUPS,
        group_size=GROUP_SIZE,
        rollout_workers=ROLLOUTS,
        response_length=law,
        decode_tokens_per_second=speed,
        decode_slowdown_per_rollout=slowdown,
        rollout_overhead_seconds=0.0,
        train_overhead_seconds=training / half,
        train_tokens_per_second=1e12,
        sync_seconds=0.0,
        duration_seconds=STEPS * 2 * fixed + STEPS * divided / half,
        warmup_seconds=5 * fixed,
    )
    return seconds_per_update(config)


WHY = {
    (
        "DeepSeek-V3",
        "0.6",
    ): "release 0.6 is faster than 0.4 at equal GPUs (1-off: 64.1 s for 77.9 s), and one of "
    "the two synchronous runs is of 0.4",
    ("Qwen3-235B", "0.6"): "the same, and a synchronous step holds phases that 1-off leaves out of its path",
}


def family(data: dict[str, Any]) -> Family:
    """Predict the 1-off rows of models that have synchronous runs on two numbers of GPUs."""
    part = data["nemo_rl"]
    found = Family(
        "NeMo RL: synchronous and 1-off",
        part["source"],
        part["setting"],
        "preset nemo_rl_legacy with age 1",
        assumed=[
            "half of the GPUs on either side, and work divided between them as suits best: neither is "
            "stated, so a prediction is the least that this model allows",
            "lognormal lengths with the stated mean whose longest of 512 is the stated cap",
            "publications take no time of their own",
        ],
    )
    for model in ("DeepSeek-V3", "Qwen3-235B"):
        runs = {(row["release"], row["policy"]): row for row in part["rows"] if row["id"] == model}
        small, large = runs["0.4", "synchronous"], runs["0.6", "synchronous"]
        fixed, divided = fixed_and_divided(small, large)
        sources = (f"{model} 0.4 synchronous, {small['gpus']} GPUs", f"0.6 synchronous, {large['gpus']} GPUs")
        found.calibrated += [
            Calibrated(f"{model}: time that GPUs do not divide", fixed, "s", " and ".join(sources)),
            Calibrated(f"{model}: time that they do", divided, "GPU s", " and ".join(sources)),
        ]
        for release in ("0.6", "0.4"):
            row = runs[release, "1-off"]
            name = f"{model} {release} 1-off, {row['gpus']} GPUs"
            why = WHY.get((model, release), "")
            found.rows.append(
                Row(name, "step", "s", predict(row, fixed, divided), row["step"], sources, why, "at least")
            )
        found.left_out += [(f"{model} synchronous, both", "inputs")]
    missing = "one number of GPUs only: nothing tells what GPUs divide from what they do not"
    found.left_out += [(f"Qwen3-30B-A3B {policy}", missing) for policy in ("synchronous", "1-off")]
    return found
