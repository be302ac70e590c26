"""verl's fully asynchronous trainer: step and trainer's wait, from the phases of other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from fidelity_parts import (
    Calibrated,
    Family,
    Row,
    capped_lognormal,
    engine_speeds,
    expected_longest,
    means_over_seeds,
    spread_between_and_within,
)

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config

SHAPE = "aime-rl-1000-grouped"
RESUME_SECONDS = 1.0  # the client's sleep before it sends an interrupted request again
WINDOWS = 30


def generation_of_colocated(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Fit ``generation = tail + work / GPUs`` to the colocated rows; gives seconds and GPU seconds."""
    design = np.array([[1.0, 1.0 / row["gpus"]] for row in rows])
    tail, work = np.linalg.lstsq(design, np.array([row["generation"] for row in rows]), rcond=None)[0]
    return float(tail), float(work)


class Setup:
    """The side of the experiment that all rows share."""

    def __init__(self, part: dict[str, Any]) -> None:
        self.part = part
        self.rollouts = part["prompts"] * part["responses"]
        self.tail, self.work = generation_of_colocated(part["colocated"])
        self.between, self.within = spread_between_and_within(LengthLaw.shipped(SHAPE))
        maximum = part["max_response_tokens"]
        self.law = capped_lognormal(self.within, self.rollouts, maximum, prompt_sigma=self.between)
        # The longest and the mean of all lengths, between prompts and within.
        whole = capped_lognormal(float(np.hypot(self.between, self.within)), self.rollouts, maximum)
        self.longest, self.mean = expected_longest(whole, self.rollouts), whole.mean_tokens

    def predict(self, row: dict[str, Any], update_seconds: float) -> tuple[float, float]:
        """Simulate a row with so many seconds of updates per 512 prompts; gives step and share of wait."""
        part = self.part
        batch = part["mini_batch_prompts"] * row["require_batches"]
        steps = part["prompts"] // batch
        speed, slowdown = engine_speeds(
            self.longest, self.mean, self.rollouts, self.tail, self.work / row["gpus"]
        )
        in_flight = int(part["prompts"] * (1 + row["threshold"]) + 1) * part["responses"]
        guess = 1.5 * max(update_seconds, self.tail + self.work / row["gpus"])
        config = preset_config(
            "verl_fully_async",
            staleness_threshold=row["threshold"],
            trigger_parameter_sync_step=steps,
            require_batches=row["require_batches"],
            batch_groups=batch,
            group_size=part["responses"],
            rollout_workers=in_flight,
            response_length=self.law,
            prompt_sigma=self.between,
            decode_tokens_per_second=speed,
            decode_slowdown_per_rollout=slowdown,
            rollout_overhead_seconds=0.0,
            train_overhead_seconds=update_seconds / steps,
            train_tokens_per_second=1e12,
            sync_seconds=part["sync_seconds"],
            resume_seconds=RESUME_SECONDS,
            duration_seconds=WINDOWS * guess,
            warmup_seconds=WINDOWS / 10 * guess,
        )
        updates = steps * row["require_batches"]
        found = means_over_seeds(
            config,
            {
                "step": lambda run: run["seconds_per_update"] * updates,
                "wait": lambda run: run["trainer_batch_seconds"] + run["trainer_running_groups_seconds"],
                "whole": lambda run: run["seconds_per_update"] * run["updates"],
            },
        )
        return found["step"], found["wait"] / found["whole"]


def update_seconds(rows: dict[str, dict[str, Any]], row: dict[str, Any]) -> tuple[float, tuple[str, ...]]:
    """Return the updates' seconds for a row from other rows: on the same GPUs, or scaled by their number."""
    if row["id"] == "64:64, require_batches 2":
        many, few = rows["64:64, require_batches 1"], rows["64:64, require_batches 4"]
        each = (many["update"] - few["update"]) / (16 - 4)
        return few["update"] + each * (8 - 4), (many["id"], few["id"])
    source = {
        "64:64, s 0": "64:64, s 0.5",
        "32:32, s 0.5": "16:16, s 0.5",
        "16:16, s 0.5": "32:32, s 0.5",
    }.get(row["id"], "64:64, s 0")
    other = rows[source]
    return other["update"] * other["gpus"] / row["gpus"], (source,)


LARGE = (
    "the colocated run on 32 GPUs generated for 2.4 times as long as that on 64, which no division of work "
    "among GPUs explains (its engines share their memory with the trainer); here they do not"
)
UPDATES = "part of the wait: the updates of this row took longer than those of the row they are taken from"
WHY = {
    "64:64, s 0.3": UPDATES,
    "32:32, s 0.5": LARGE,
    "16:16, s 0.5": LARGE + "; and 16 GPUs lie outside the fitted range",
}


def family(data: dict[str, Any]) -> Family:
    """Predict every asynchronous row whose physical inputs other rows give."""
    part = data["verl_fully_async"]
    setup = Setup(part)
    rows = {row["id"]: row for row in part["asynchronous"]}
    colocated = tuple(row["id"] for row in part["colocated"])
    found = Family(
        "verl fully_async: one step is one publication, 512 prompts",
        part["source"],
        part["setting"],
        "preset verl_fully_async; every rollout of the budget runs at once on engines whose speed falls with "
        "their load",
        calibrated=[
            Calibrated(
                "longest rollout alone", setup.tail, "s", "least squares over " + ", ".join(colocated)
            ),
            Calibrated(
                "generation work", setup.work, "GPU s", "the same fit: generation = tail + work / GPUs"
            ),
        ],
        assumed=[
            f"the shape of lengths: log spread {setup.between:.2f} between prompts and {setup.within:.2f} "
            f"within one, as in the shipped law {SHAPE} (another model, another system); the cap is the "
            "longest of a batch",
            f"an interrupted request waits {RESUME_SECONDS:g} s and is not prefilled again",
            "engines enough for the whole budget (16 prompts for each)",
        ],
    )
    for row in part["asynchronous"]:
        if row["id"] in ("64:64, require_batches 1", "64:64, require_batches 4"):
            found.left_out.append((row["id"], "an input: the two ends that give the time of an update"))
            continue
        seconds, sources = update_seconds(rows, row)
        found.calibrated.append(
            Calibrated(f"updates of {row['id']}", seconds, "s per 512 prompts", " and ".join(sources))
        )
        step, wait = setup.predict(row, seconds)
        why, uses = WHY.get(row["id"], ""), (*colocated, *sources)
        found.rows.append(Row(row["id"], "step", "s", step, row["step"], uses, why))
        found.rows.append(Row(row["id"], "trainer's wait", "share", wait, row["wait"] / row["step"], uses))
    found.left_out += [
        (f"{row['id']}, step", "an input: its phases are where generation's time comes from")
        for row in part["colocated"]
    ]
    return found
