"""verl's fully asynchronous runs as the simulator sees them: one setup, calibrated on three rows.

Calibrated on the asynchronous rows ``64:64, s 0``, ``64:64, s 0.5`` and ``32:32, s 0.5``: the fetch of a
window (what the two that wait for nothing else wait), the rest of a step that no phase names, the update as
``c + d / GPUs``, and the time of the longest rollout alone, from the row that waits for its whole generation.
The work of a generation, which its GPUs share, comes from the colocated runs, at lengths that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from fidelity_parts import (
    capped_lognormal,
    division,
    engine_speeds,
    expected_longest,
    means_over_seeds,
    spread_between_and_within,
)
from scipy.optimize import brentq

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config

SHAPE = "aime-rl-1000-grouped"
RESUME_SECONDS = 1.0  # the client's sleep before it sends an interrupted request again
WINDOWS = 20
SHOWS = 0.001  # of a step: what counts as a difference
ON_POLICY, AHEAD, HALF = "64:64, s 0", "64:64, s 0.5", "32:32, s 0.5"
FITTED = (ON_POLICY, AHEAD, HALF)


@dataclass(frozen=True)
class Physics:
    """What a run is predicted from.

    Attributes
    ----------
    fetch, rest : float
        Seconds that a window of 512 prompts takes to fetch, and seconds of it that no phase names.
    update : tuple of float
        c and d of ``c + d / GPUs``, seconds of updates per window.
    tail, work : float
        The longest rollout alone in seconds, and the work of all in GPU seconds.
    """

    fetch: float
    rest: float
    update: tuple[float, float]
    tail: float
    work: float

    def longer(self, factor: float) -> Physics:
        """With lengths that are so many times as long; a fetch and the rest stay."""
        c, d = self.update
        return replace(
            self,
            update=(c * factor, d * factor),
            tail=self.tail * factor,
            work=self.work * factor,
        )

    def updates_on(self, gpus: int) -> float:
        """Return the seconds of updates per window on so many GPUs."""
        return self.update[0] + self.update[1] / gpus


class Setup:
    """The side of the experiment that all rows share."""

    def __init__(self, part: dict[str, Any]) -> None:
        self.part = part
        self.rollouts = part["prompts"] * part["responses"]
        self.between, self.within = spread_between_and_within(LengthLaw.shipped(SHAPE))
        maximum = part["max_response_tokens"]
        self.law = capped_lognormal(self.within, self.rollouts, maximum, prompt_sigma=self.between)
        # The longest and the mean of all lengths, between prompts and within.
        whole = capped_lognormal(float(np.hypot(self.between, self.within)), self.rollouts, maximum)
        self.longest, self.mean = expected_longest(whole, self.rollouts), whole.mean_tokens

    def predict(
        self, row: dict[str, Any], physics: Physics, updates: float | None = None
    ) -> tuple[float, float]:
        """Simulate a row; gives seconds of a window, and the trainer's wait in it."""
        part = self.part
        batch = part["mini_batch_prompts"] * row["require_batches"]
        steps = part["prompts"] // batch
        shared = physics.work / row["gpus"]
        speed, slowdown = engine_speeds(self.longest, self.mean, self.rollouts, physics.tail, shared)
        updates = physics.updates_on(row["gpus"]) if updates is None else updates
        guess = 1.5 * max(updates, physics.tail + shared)
        config = preset_config(
            "verl_fully_async",
            staleness_threshold=row["threshold"],
            trigger_parameter_sync_step=steps,
            require_batches=row["require_batches"],
            batch_groups=batch,
            group_size=part["responses"],
            rollout_workers=int(part["prompts"] * (1 + row["threshold"]) + 1) * part["responses"],
            response_length=self.law,
            prompt_sigma=self.between,
            decode_tokens_per_second=speed,
            decode_slowdown_per_rollout=slowdown,
            rollout_overhead_seconds=0.0,
            train_overhead_seconds=(updates + physics.rest - part["sync_seconds"]) / steps,
            train_tokens_per_second=1e12,
            fetch_seconds=physics.fetch / steps,
            sync_seconds=part["sync_seconds"],
            resume_seconds=RESUME_SECONDS,
            duration_seconds=WINDOWS * guess,
            warmup_seconds=WINDOWS / 10 * guess,
        )
        found = means_over_seeds(
            config,
            {
                "step": lambda run: run["seconds_per_update"] * steps * row["require_batches"],
                "wait": lambda run: (
                    run["trainer_batch_seconds"]
                    + run["trainer_running_groups_seconds"]
                    + run["trainer_fetch_seconds"]
                ),
                "whole": lambda run: run["seconds_per_update"] * run["updates"],
            },
        )
        return found["step"], found["step"] * found["wait"] / found["whole"]

    def with_tail(self, row: dict[str, Any], physics: Physics, seconds: float) -> Physics:
        """Return the physics whose tail makes the row take so many seconds."""

        def miss(tail: float) -> float:
            return self.predict(row, replace(physics, tail=tail))[0] - seconds

        # A second of tail is about a second of the window, so a few corrections by the miss are enough.
        tried = [(physics.tail, miss(physics.tail))]
        while abs(tried[-1][1]) > SHOWS * seconds and len(tried) < 8:
            tail, missed = tried[-1]
            tail = max(tail - missed, 0.1 * tail)
            tried.append((tail, miss(tail)))
        return replace(physics, tail=min(tried, key=lambda pair: abs(pair[1]))[0])


def window_seconds(row: dict[str, Any], part: dict[str, Any], window: int) -> float:
    """Return the seconds per step of the window, from the totals after each hundred steps."""
    totals = [0, *row["total_minutes"]]
    return 60.0 * (totals[window + 1] - totals[window]) / part["window_steps"]


def work_of_colocated(part: dict[str, Any]) -> tuple[float, float]:
    """Fit the work of a generation to the colocated runs, at lengths that are alike; and its standard error.

    The first window starts from one model, so its lengths are alike; of its seconds the run's own share is
    generation.
    """
    points = []
    for row in part["colocated"]:
        mean = 60.0 * row["total_minutes"][-1] / (part["window_steps"] * len(row["total_minutes"]))
        points.append((row["gpus"], row["generation"] * window_seconds(row, part, 0) / mean))
    tail, work = division(points)
    inverse = np.array([1.0 / gpus for gpus, _ in points])
    misses = np.array([tail + work / gpus - seconds for gpus, seconds in points])
    variance = float(np.sum(misses**2)) / (len(points) - 2) / float(np.sum((inverse - inverse.mean()) ** 2))
    return work, variance**0.5


@dataclass(frozen=True)
class Calibration:
    """The physics in the middle, and with each input at its two ends."""

    middle: Physics
    ends: dict[str, tuple[Physics, Physics]]


def calibrate(setup: Setup) -> Calibration:
    """Calibrate on the three fitted rows and the colocated ones."""
    part = setup.part
    rows = {row["id"]: row for row in part["asynchronous"]}
    fitted = [rows[name] for name in FITTED]
    fetches = [rows[name]["wait"] for name in (AHEAD, HALF)]
    rest = float(np.mean([row["step"] - row["wait"] - row["update"] for row in fitted]))

    def updates(names: tuple[str, ...]) -> tuple[float, float]:
        return division([(rows[name]["gpus"], rows[name]["update"]) for name in names])

    def solved(work: float, update: tuple[float, float], fetch: float) -> Physics:
        # Start where the generation of the row that waits for all of it leaves off.
        row = rows[ON_POLICY]
        tail = row["step"] - fetch / 4 - row["update"] / 4 - work / row["gpus"]
        return setup.with_tail(row, Physics(fetch, rest, update, tail, work), row["step"])

    work, error = work_of_colocated(part)
    fetch, update = float(np.mean(fetches)), updates(FITTED)
    middle = solved(work, update, fetch)

    def waits_for_generation(more: float) -> float:
        # The 32:32 run waited no longer than the 64:64 one, so its work is not so large that it waits for it.
        physics = replace(middle, work=more, tail=middle.tail - (more - work) / rows[ON_POLICY]["gpus"])
        step, wait = setup.predict(rows[HALF], physics)
        return wait - fetch - SHOWS * step

    most = work + error
    if waits_for_generation(most) > 0:
        most = float(brentq(waits_for_generation, work, most, xtol=100.0))
    return Calibration(
        middle,
        {
            "work of generation": (solved(work - error, update, fetch), solved(most, update, fetch)),
            "updates": (
                solved(work, updates((AHEAD, HALF)), fetch),
                solved(work, updates((ON_POLICY, HALF)), fetch),
            ),
            "fetch": (solved(work, update, min(fetches)), solved(work, update, max(fetches))),
        },
    )
