"""marin's staleness sweep, from the two least stale runs and the lengths and times of its sister issue."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from fidelity_parts import (
    Calibrated,
    Ends,
    Family,
    Row,
    Verdict,
    engine_speeds,
    expected_longest,
    means_over_seeds,
    spread_between_and_within,
)
from scipy.optimize import brentq, root
from scipy.stats import norm

from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.presets.registry import preset_config

SHAPE = "aime-rl-1000-grouped"
SEEDS = 3
FIXED = "staleness 0 and 1 divide the generation into tail and work; 64 workers are stated"
DISCARDS = "groups that outlast the allowance"


def lengths_of(capped: dict[str, Any]) -> tuple[float, float]:
    """Return median and log spread of the lognormal law with a capped run's mean and share at the cap."""
    cap = capped["max_response_tokens"]

    def misses(guess: list[float]) -> list[float]:
        log_median, sigma = guess
        mean = capped_mean(math.exp(log_median), sigma, cap)
        share = norm.sf((math.log(cap) - log_median) / sigma)
        return [share - capped["share_at_cap"], mean * capped["responses"] / capped["response_tokens"] - 1]

    log_median, sigma = root(misses, [6.7, 0.9]).x
    return math.exp(log_median), float(sigma)


def capped_mean(median: float, sigma: float, cap: int) -> float:
    """Return the mean of a lognormal that is cut at a cap."""
    edge = (math.log(cap) - math.log(median)) / sigma
    below = median * math.exp(sigma**2 / 2) * norm.cdf(edge - sigma)
    return float(below + cap * norm.sf(edge))


@dataclass(frozen=True)
class Run:
    """What a total is predicted from: lengths, training and a copy in seconds, tail and work of a batch.

    With `discards` a group that is older than the staleness when it is taken is dropped, as that runtime can.
    """

    median: float
    sigma: float
    between: float
    training: float
    copy: float
    tail: float
    work: float
    discards: bool = False

    def total(self, part: dict[str, Any], staleness: int) -> float:
        """Simulate the updates at a staleness; gives seconds."""
        prompts, responses = part["prompts"], part["responses"]
        rollouts, maximum = prompts * responses, part["max_response_tokens"]
        # The law of one prompt; its factor of mean 1 comes on top.
        within = math.sqrt(self.sigma**2 - self.between**2)
        median = self.median * math.exp(self.between**2 / 2)
        law = LengthLaw.lognormal(median=median, sigma=within, minimum=1, maximum=maximum)
        whole = LengthLaw.lognormal(median=self.median, sigma=self.sigma, minimum=1, maximum=maximum)
        speed, slowdown = engine_speeds(
            expected_longest(whole, rollouts), whole.mean_tokens, rollouts, self.tail, self.work
        )
        workers = min(part["workers"], (staleness + 1) * prompts)
        config = preset_config(
            "skyrl",
            max_staleness_steps=staleness,
            num_parallel_generation_workers=workers,
            batch_groups=prompts,
            group_size=responses,
            rollout_workers=workers * responses,
            response_length=law,
            prompt_sigma=self.between,
            decode_tokens_per_second=speed,
            decode_slowdown_per_rollout=slowdown,
            rollout_overhead_seconds=0.0,
            train_overhead_seconds=self.training,
            train_tokens_per_second=1e12,
            sync_seconds=self.copy,
            stop_after_updates=part["updates"],
            duration_seconds=1e5,
            **({"stale_check": "dequeue", "max_policy_lag": staleness} if self.discards else {}),
        )
        measures = {"total": lambda run: run["seconds_per_update"] * run["updates"]}
        return means_over_seeds(config, measures, seeds=SEEDS)["total"]


def calibrate(part: dict[str, Any], between: float, training: float, *, discards: bool = False) -> Run:
    """Find the tail and work with which staleness 0 and 1 take what they took."""
    none, one = part["rows"][:2]
    copy = (none["weight_copies"] + one["weight_copies"]) / (2 * part["updates"])
    median, sigma = lengths_of(part["cap_2048"])
    together = none["total"] / part["updates"] - copy - training

    def of(share: float) -> Run:
        # Staleness 0 waits for its whole batch; one correction by the miss is enough.
        run = Run(median, sigma, between, training, copy, (1 - share) * together, share * together, discards)
        factor = 1 + (none["total"] - run.total(part, 0)) / (part["updates"] * together)
        return replace(run, tail=run.tail * factor, work=run.work * factor)

    share = brentq(lambda share: of(share).total(part, 1) - one["total"], 0.02, 0.7, xtol=0.01)
    return of(float(share))


def training_seconds(part: dict[str, Any]) -> tuple[float, float]:
    """Return the update of the run with a cap of 2,048, and with the tokens of a cap of 4,096."""
    short, long = part["cap_2048"], part["cap_4096"]
    each = short["total"] * short["training_share"] / short["updates"]
    tokens = long["response_tokens"] / long["responses"] * short["responses"] / short["response_tokens"]
    return each, each * tokens


def predicted(
    part: dict[str, Any], middle: Run, ends: dict[str, tuple[Run, Run]], row: dict[str, Any]
) -> tuple[Row, Verdict]:
    """Predict a row's total, and say whether it beats staleness 0."""
    number = row["staleness"]
    steps = Ends(
        middle.total(part, number),
        {name: (a.total(part, number), b.total(part, number)) for name, (a, b) in ends.items()},
    )
    beside = f"staleness {number} beside staleness 0"
    return Row(
        f"staleness {number}",
        f"{part['updates']} updates",
        "s",
        steps.middle,
        row["total"],
        ("staleness 0", "staleness 1", part["cap_2048"]["id"], part["cap_4096"]["id"]),
        steps.kind,
        steps.low,
        steps.high,
        f"not fixed: {open_input(steps)}" if steps.open_inputs else FIXED,
    ), Verdict(beside, part["rows"][0]["total"], steps.low, steps.high, row["total"])


def open_input(steps: Ends) -> str:
    """Say what leaves a row open."""
    if steps.open_inputs == [DISCARDS]:
        return f"whether {DISCARDS} are dropped, as on the issue's branch, or trained"
    return ", ".join(steps.open_inputs)


def left_out(part: dict[str, Any]) -> list[tuple[str, str]]:
    """List what is not predicted, with the reason."""
    short, long = part["cap_2048"]["id"], part["cap_4096"]["id"]
    other = "its waits are not stated, and its generation was a third shorter than that of staleness 0"
    unknown = "which of the issue's two code bases ran it, with copies of 20 s or of 2 s, is not known"
    return [
        ("staleness 0 and 1", "inputs"),
        (short, "an input: lengths and training"),
        (long, other),
        *((row["id"], unknown) for row in part["cadence"]),
    ]


def family(data: dict[str, Any]) -> Family:
    """Predict staleness 2, 3 and 4 from staleness 0 and 1."""
    part = data["marin"]
    short, long = part["cap_2048"], part["cap_4096"]
    median, sigma = lengths_of(short)
    between, within = spread_between_and_within(LengthLaw.shipped(SHAPE))
    least, most = training_seconds(part)
    share = sigma * between / math.hypot(between, within)
    middle = calibrate(part, share, most)
    ends = {
        "spread between prompts": (calibrate(part, 0.0, most), calibrate(part, between, most)),
        "training": (calibrate(part, share, least), middle),
        DISCARDS: (calibrate(part, share, most, discards=True), middle),
    }
    found = Family(
        "A staleness sweep (marin)",
        part["source"],
        part["setting"],
        "preset skyrl; the copy of the weights holds up both sides",
        calibrated=[
            Calibrated("median of the lengths", median, "tokens", f"{short['id']}: mean, share at the cap"),
            Calibrated("log spread of the lengths", sigma, "", f"{short['id']}: mean, share at the cap"),
            Calibrated("an update", most, "s", f"{short['id']}, times the tokens of {long['id']}"),
            Calibrated("copy of the weights", middle.copy, "s", "staleness 0 and 1"),
            Calibrated("longest rollout alone", middle.tail, "s", "staleness 0 and 1"),
            Calibrated("work of a generation", middle.work, "s on 8 GPUs", "staleness 0 and 1"),
        ],
        assumed=[
            f"spread between prompts: its share in the shipped law {SHAPE}; from none to that law's own",
            "lengths of the sister issue's runs, and that they do not drift",
            f"{DISCARDS} are trained; at the other end they are dropped: asynchronous runs of the issue's "
            "branch lost a fifth of theirs, how many these runs lost is not stated",
        ],
    )
    for row in part["rows"][2:]:
        shown, verdict = predicted(part, middle, ends, row)
        found.rows.append(shown)
        found.verdicts.append(verdict)
    found.rows.append(
        Row(
            "cap 4,096",
            "mean response",
            "tokens",
            capped_mean(median, sigma, part["max_response_tokens"]),
            long["response_tokens"] / long["responses"],
            (short["id"],),
            identified="mean and share at the cap of a run with half the cap fix a lognormal law",
        )
    )
    found.left_out = left_out(part)
    return found
