"""Calibrate runs whose rest is known, and print how well that was predicted: one page, or one JSON document.

``make calibrate-judges`` writes the published page. Simulated logs of every preset, with settings drawn at
random, must be recovered within their intervals; the first steps of real logs must predict the others. What
is missed is shown as missed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import lagsweep as ls
from lagsweep.sweeps.calibrate.matching import decode_speed
from lagsweep.sweeps.calibrate.spread import spread_of_groups

DATA = Path(__file__).parents[1] / "tests" / "data" / "calibrate"
DRAWS = 4  # settings of each preset
STEPS = 200
SHARE = 0.95  # of the intervals


class Row(NamedTuple):
    """One figure against its aim."""

    judge: str
    what: str
    measured: float
    predicted: float
    aim: float  # relative
    low: float = float("nan")
    high: float = float("nan")
    fixed: bool = True  # the data fix the prediction; else it is a range, and the figure is its middle

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    @property
    def met(self) -> bool:
        """Whether the aim is met."""
        return abs(self.error) <= self.aim


class Recovered(NamedTuple):
    """One known setting of a simulated run, and the interval that its log gave."""

    preset: str
    draw: int
    what: str
    known: float
    low: float
    high: float
    open: bool

    @property
    def inside(self) -> bool:
        """Whether the interval holds what is known."""
        return self.low - 1e-6 * abs(self.known) <= self.known <= self.high + 1e-6 * abs(self.known)


def known_settings(preset: str, draw: int) -> dict[str, Any]:
    """Draw the settings of a run: batch, lengths, speeds."""
    numbers = np.random.default_rng([draw, *preset.encode()])
    groups, size = int(numbers.choice([8, 16])), int(numbers.choice([4, 8]))
    return {
        "batch_groups": groups,
        "group_size": size,
        "rollout_workers": int(numbers.choice([1, 2])) * groups * size,
        "prompt_tokens": int(numbers.integers(50, 400)),
        "decode_tokens_per_second": float(numbers.uniform(20, 60)),
        "decode_slowdown_per_rollout": float(numbers.choice([0.0, 0.005, 0.01])),
        "train_overhead_seconds": float(numbers.uniform(1, 5)),
        "train_tokens_per_second": float(numbers.uniform(3000, 9000)),
        "train_spread": 0.05,
        "sync_seconds": float(numbers.uniform(0.5, 3.0)),
        "response_length": _lengths(float(numbers.uniform(200, 500)), float(numbers.uniform(0.4, 0.8))),
        "seed": int(numbers.integers(2**31)),
        "duration_seconds": 5e5,
        "stop_after_updates": STEPS,
    }  # fmt: skip


def _lengths(median: float, sigma: float) -> ls.LengthLaw:
    return ls.LengthLaw.lognormal(median=median, sigma=sigma, minimum=1, maximum=4096)


def recovered(preset: str, draw: int) -> list[Recovered]:
    """Simulate a run with known settings, calibrate on its log, and put both beside each other."""
    settings = known_settings(preset, draw)
    config = ls.preset_config(preset, **settings)
    run = ls.simulate_pipeline(config, rollouts=True)
    log = ls.step_log_of(run)[10:]
    known = {name: settings[name] for name in ("group_size", "rollout_workers", "prompt_tokens")}
    found = ls.calibrate(log, preset=preset, held=0.3, **known)
    several = config.updates_per_batch
    each = config.response_length.mean_tokens + config.prompt_tokens
    tokens = config.batch_groups * config.group_size * each
    fixed, rate = several * config.train_overhead_seconds, 1 / config.train_tokens_per_second
    training = next(one for one in found.estimates.phases if one.column == "training_seconds")
    rows = [
        (f"training of {STEPS} steps' mean tokens", fixed + rate * tokens, *training.interval(tokens), False)
    ]
    if training.per_token is not None:  # else the fixed part is the mean
        rows.append(("training: fixed", fixed, training.fixed.low, training.fixed.high, False))
        rows.append(
            ("training: for each token", rate, training.per_token.low, training.per_token.high, False)
        )
    publication = found.estimates.publication
    if publication is not None and config.publication_blocks_trainer:
        seconds = publication.seconds
        rows.append(("publication", config.sync_seconds, seconds.low, seconds.high, False))
    speed = next((one for one in found.fits if one.name.startswith("decoding")), None)
    if speed is not None:
        rows.append(("decoding: a rollout in flight", decode_speed(run), speed.low, speed.high, speed.open))
    return [Recovered(preset, draw, *row) for row in rows]


def real_logs() -> Iterator[Row]:
    """Calibrate on the first steps of real logs and predict the rest."""
    verl = ls.calibrate(DATA / "verl_ppo_gsm8k.csv", fit_steps=50, group_size=1, batch_groups=1024)
    names = {"generation": "gen", "reference": "ref", "values": "values", "critic": "update_critic",
             "training": "update_actor"}  # fmt: skip
    for row in verl.tests:
        if row.name in names:
            words = "b: verl PPO, 50 of 435 steps fitted"
            yield Row(words, names[row.name], row.measured, row.predicted, 0.025, *_range(row))
    instruct = ls.calibrate(DATA / "open_instruct_rl0_32b.csv", fit_steps=200)
    step = next(row for row in instruct.tests if row.name == "step")
    words = "d: open-instruct, segment 3 from 1 and 2"
    yield Row(words, "seconds a step", step.measured, step.predicted, 0.05, *_range(step))
    logs = [DATA / "prime_rl_orchestrator.csv", DATA / "prime_rl_trainer.csv"]
    prime = ls.calibrate(logs, fit_steps=300, group_size=8)
    for row in prime.tests:
        if row.name in ("step", "wait"):
            words = "g: prime-rl, 300 of 1,000 steps fitted"
            yield Row(words, row.name, row.measured, row.predicted, 0.05, *_range(row))


def _range(row: Any) -> tuple[float, float, bool]:
    return row.low, row.high, row.identified


def broken_columns() -> list[str]:
    """Return what the reader says of columns that cannot be what they are called."""
    found = ls.calibrate(DATA / "open_instruct_rl0_32b.csv", fit_steps=200)
    return [str(one) for one in found.read if one.kind in ("broken", "zero")]


def agents() -> list[Row]:
    """Fit the spread of agents' seconds and predict the slowest of 8 over their mean."""
    frame = pl.read_csv(DATA / "agent_rollouts_nemo_gym.csv")
    seconds = frame["duration_s"].to_numpy()
    within, _ = spread_of_groups(seconds, np.arange(len(seconds)) // 8)
    groups = seconds.reshape(-1, 8)
    measured = groups.max(axis=1) / groups.mean(axis=1)
    drawn = np.exp(within.value * np.random.default_rng(0).standard_normal((100_000, 8)))
    told = drawn.max(axis=1) / drawn.mean(axis=1)
    words = "f: agents, slowest of 8 over the mean"
    return [
        Row(words, "median of 70 groups", float(np.median(measured)), float(np.median(told)), 0.05),
        Row(words, "mean of 70 groups", float(measured.mean()), float(told.mean()), 0.05),
    ]


def line(row: Row) -> str:
    """Return a row of the page's table."""
    told = f"{row.predicted:.4g}" + ("" if row.fixed else f" (range {row.low:.3g} to {row.high:.3g})")
    return (
        f"| {row.judge} | {row.what} | {row.measured:.4g} | {told} "
        f"| {100 * row.error:+.1f} % | {100 * row.aim:g} % | {'met' if row.met else 'missed'} |"
    )


def page(found: list[Recovered], rows: list[Row], broken: list[str]) -> str:
    """Return the published page."""
    lines = [
        "# Calibration against what is known",
        "",
        "Written by `make calibrate-judges`. An aim that is missed is shown as missed.",
        "",
        "## Real logs: steps that nothing was fitted on",
        "",
        "| run | what | measured | predicted | error | aim | |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    lines += [line(row) for row in rows]
    lines += [
        "",
        "A range stands where the data do not fix the prediction (it is wider than a tenth): there the error",
        "is that of its middle, and says less.",
        "",
        "Broken columns that the reader of open-instruct's log names:",
        "",
    ]
    lines += [f"- {one}" for one in broken]
    lines += [
        "",
        "verl's fully asynchronous runs by windows of 100 steps (judge e) stand on the page of published",
        "figures, [fidelity.md](fidelity.md): fitted on some rows, the others predicted.",
        "",
        "## Simulated logs: known settings within their intervals",
        "",
        f"{1 + max(one.draw for one in found)} runs of each of {len({one.preset for one in found})} presets "
        f"with settings drawn at random, {STEPS} updates each, 70 % of the steps fitted. Intervals are of "
        f"{SHARE:.0%}.",
        "",
        "| what | known settings inside | of | of these open: wider than a tenth, or endless |",
        "|---|---:|---:|---:|",
    ]
    for what in dict.fromkeys(one.what for one in found):
        own = [one for one in found if one.what == what]
        lines.append(
            f"| {what} | {sum(one.inside for one in own)} | {len(own)} | {sum(one.open for one in own)} |"
        )
    inside = sum(one.inside for one in found)
    lines += [
        f"| all | {inside} ({inside / len(found):.0%}) | {len(found)} | {sum(o.open for o in found)} |",
        "",
    ]
    outside = [one for one in found if not one.inside]
    if outside:
        lines += ["Outside:", ""]
        lines += [
            f"- {one.preset}, draw {one.draw}: {one.what} {one.known:.4g}, "
            f"interval {one.low:.4g} to {one.high:.4g}"
            for one in outside
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the page here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--draws", type=int, default=DRAWS, help="settings of each preset")
    parser.add_argument("--presets", default=",".join(ls.all_presets()), help="which presets")
    given = parser.parse_args()
    start = time.perf_counter()
    rows = [*real_logs(), *agents()]
    found = [
        one
        for preset in given.presets.split(",")
        for draw in range(given.draws)
        for one in recovered(preset, draw)
    ]
    if given.json:
        print(
            json.dumps(
                {"real": [row._asdict() for row in rows], "simulated": [one._asdict() for one in found]}
            )
        )
        return
    text = page(found, rows, broken_columns())
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    print(text)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
