"""Published pairs of settings of one run, planned from model, cards and workload alone: which is faster.

What the sources do not state is varied: the mean of the lengths where it is not given, their spread, the
split where none is named. A verdict holds where every variant and both ends of every input agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

from scipy.optimize import brentq

from lagsweep.kernels.errors import ConfigError
from lagsweep.kernels.memory.shapes import ExpertShape, ModelShape
from lagsweep.sweeps.laws.lengths import LengthLaw
from lagsweep.sweeps.memory.models import ModelRecord
from lagsweep.sweeps.plan.candidates import Candidates
from lagsweep.sweeps.plan.carrying_out import Runner, horizon_of
from lagsweep.sweeps.plan.cells import Cell
from lagsweep.sweeps.plan.question import COLOCATED, Question, ask
from lagsweep.sweeps.plan.ranges import at_ends
from lagsweep.sweeps.plan.screening import bound_of

CLEAR = 0.10
MEASURED = 10  # updates
MOST_TRIED = 3  # settings of a side, those with the lowest bounds
SPREADS = (0.5, 0.8, 1.2)
VERL = "verl, docs/advance/fully_async.md"
NEMO = "NeMo RL, performance summary"
MARIN = "marin, issues 8955 and 8936"
WINDOW = "verl_fully_async:staleness_threshold={}+trigger_parameter_sync_step=4+require_batches=4"
ONE_OFF = ("nemo_rl_legacy", "nemo_rl_legacy:in_flight_weight_updates=true")
UNSTATED = "the mean of the lengths"


@dataclass(frozen=True)
class Setting:
    """One side of a pair; several rules where it is not stated which held."""

    rules: tuple[str, ...]
    gpus: int
    rollout_gpus: tuple[int, ...]
    prompts: int
    optimizer_steps: int
    forward_passes: int


@dataclass(frozen=True)
class Pair:
    """Two settings with what was measured of them: seconds for the same work."""

    name: str
    source: str
    model: str | ModelRecord
    card: str
    group_size: int
    max_tokens: int
    means: tuple[float, ...]
    first: Setting
    second: Setting
    measured: tuple[float, float]
    ranks: tuple[int, ...]
    not_stated: str
    spreads: tuple[float | None, ...] = SPREADS


def colocated(gpus: int, prompts: int, steps: int, passes: int = 1) -> Setting:
    return Setting((COLOCATED,), gpus, (gpus // 2,), prompts, steps, passes)


def made_up_mixture() -> ModelRecord:
    """Return a mixture with marin's stated totals, 67B and 2B active; its own shape is not published."""
    experts = ExpertShape(num_experts=288, experts_per_token=4, ffn_size=768)
    shape = ModelShape(
        name="67B mixture", num_layers=48, hidden_size=2048, num_heads=32, num_kv_heads=4, head_dim=128,
        ffn_size=6144, vocabulary_size=128_256, experts=experts,
    )  # fmt: skip
    return ModelRecord(shape, ("marin-community/marin issue 8936: 67B, 2B active; the rest is made up",))


def pairs() -> list[Pair]:
    """List the published pairs."""

    def verl(rollout: int, train: int, threshold: float) -> Setting:
        # A trainer's step takes four mini-batches of 32 prompts, and no old log-probabilities.
        return Setting((WINDOW.format(threshold),), rollout + train, (rollout,), 128, 1, 0)

    def nemo(
        model: str, gpus: int, mean: float, most: int, prompts: int, seconds: tuple[float, float]
    ) -> Pair:
        steps = prompts * 32 // 512
        splits = tuple(gpus * part // 8 for part in range(1, 8))
        return Pair(
            f"{model}, {gpus} H100: 1-off against colocated", NEMO, model, "H100-SXM", 32, most, (mean,),
            Setting(ONE_OFF, gpus, splits, prompts, steps, 1), colocated(gpus, prompts, steps), seconds,
            (1, 2, 4, 8), "the spread of lengths, the split (the best of seven), publications",
        )  # fmt: skip

    maths = {
        "source": VERL, "model": "Qwen2.5-7B", "card": "H20", "group_size": 16, "max_tokens": 28_672,
        "means": (150.0, 400.0, 1000.0), "ranks": (1,), "not_stated": UNSTATED, "spreads": (None,),
    }  # fmt: skip
    half, whole = colocated(64, 512, 16), colocated(128, 512, 16)
    mixture = {
        "source": MARIN, "model": made_up_mixture(), "card": "H100-SXM", "group_size": 4, "max_tokens": 4096,
        "means": (1197.0,), "ranks": (2, 4, 8), "not_stated": "the model's shape",
    }  # fmt: skip

    def lag(limit: int) -> Setting:
        return Setting((f"skyrl:max_staleness_steps={limit}",), 40, (8,), 32, 1, 1)

    return [
        Pair("verl 32:32 against colocated 64", first=verl(32, 32, 0.5), second=half,
             measured=(189.26, 365.28), **maths),
        Pair("verl 64:64 against colocated 128", first=verl(64, 64, 0.5), second=whole,
             measured=(150.63, 356.30), **maths),
        Pair("verl 64:64 against 32:32", first=verl(64, 64, 0.5), second=verl(32, 32, 0.5),
             measured=(150.63, 189.26), **maths),
        Pair("verl 64:64, threshold 0.5 against 0", first=verl(64, 64, 0.5), second=verl(64, 64, 0.0),
             measured=(150.63, 231.34), **maths),
        Pair("marin 32 + 8, staleness 1 against 0", first=lag(1), second=lag(0), measured=(5583.0, 8524.0),
             **mixture),
        nemo("Llama-3.1-8B", 16, 1060, 4096, 64, (74.6, 97.7)),
        nemo("Qwen3-30B-A3B", 32, 3203, 4096, 64, (152.0, 192.0)),
        nemo("Qwen3-235B-A22B", 256, 5713, 8192, 16, (231.0, 312.0)),
    ]  # fmt: skip


def law_of(mean: float, most: int, sigma: float) -> LengthLaw:
    """Return the lognormal law that is cut at `most` and has that mean."""

    def miss(log_median: float) -> float:
        law = LengthLaw.lognormal(median=math.exp(log_median), sigma=sigma, minimum=1, maximum=most)
        return law.mean_tokens / mean - 1

    median = math.exp(brentq(miss, math.log(mean / 100), math.log(mean * 50), xtol=1e-4))
    return LengthLaw.lognormal(median=median, sigma=sigma, minimum=1, maximum=most)


def spread_to_the_cap(mean: float, pair: Pair) -> float:
    """Return the log spread at which the longest of a step's answers is about the cap."""
    rollouts = 512 * pair.group_size

    def miss(sigma: float) -> float:
        law = LengthLaw.lognormal(
            median=mean / math.exp(sigma**2 / 2), sigma=sigma, minimum=1, maximum=4 * pair.max_tokens
        )
        return float(law.quantile(0.5 ** (1 / rollouts))) / pair.max_tokens - 1

    return brentq(miss, 0.3, 2.6, xtol=1e-3)


def question_of(pair: Pair, side: Setting, rules: str, law: LengthLaw) -> Question:
    model = pair.model if isinstance(pair.model, str) else "Qwen3-30B-A3B"
    asked = ask(
        model=model, accelerator=pair.card, gpus=side.gpus, prompts=side.prompts, group_size=pair.group_size,
        law=law, prompt_tokens=200, max_tokens=pair.max_tokens, rollout_gpus=side.rollout_gpus,
        tensor_parallel=pair.ranks, systems=[rules], caps=[256, 1024], cadences=[1],
        optimizer_steps=side.optimizer_steps, forward_passes=side.forward_passes,
    )  # fmt: skip
    if isinstance(pair.model, str):
        return asked
    from dataclasses import replace

    return replace(asked, model=pair.model)


def corners_of(question: Question) -> dict[str, dict[str, float]]:
    """Return the inputs at their defaults, and engines, trainer and network each at either end."""
    ends = at_ends(question.inputs)
    trainer = ("model_flops_utilization", "update_overhead_seconds", "turn_seconds")
    found = {"default": question.values()}
    for engine, training, network in product((0, 1), repeat=3):
        found[f"{engine}{training}{network}"] = {
            one.name: ends[
                training if one.name in trainer else network if one.name == "publication_rate" else engine
            ][one.name]
            for one in question.inputs
        }
    return found


def tokens_per_second(pair: Pair, side: Setting, rules: str, law: LengthLaw) -> dict[str, float]:
    """Return trained tokens per second of the best split and engine, at defaults and corners."""
    candidates = Candidates(question_of(pair, side, rules, law))
    cells = [cell for cell in candidates.cells() if cell.is_feasible]
    bounds = {cell.key: bound_of(candidates.config(cell.point)).bound_seconds for cell in cells}
    cells = sorted(cells, key=lambda cell: bounds[cell.key])
    horizon = horizon_of(bounds[cells[0].key], (cell.cadence for cell in cells), MEASURED)
    runner = Runner(candidates.workload(), horizon, threads=2)
    corners, points = [], []
    for corner, values in corners_of(candidates.question).items():
        for point in best_points(candidates, cells, values):
            corners.append(corner)
            points.append(point)
    found: dict[str, float] = {}
    for corner, row in zip(corners, runner.points(points, 1)):
        found[corner] = max(found.get(corner, 0.0), row.trained_tokens_per_second)
    return found


def best_points(candidates: Candidates, cells: list[Cell], values: dict[str, float]) -> list[dict[str, Any]]:
    """Return the points with the lowest bounds at some inputs: what a user who knows them would try."""
    points = []
    for cell in cells:
        try:
            points.append(candidates.point(cell, values))
        except ConfigError:  # its cache does not hold the longest rollout there
            continue
    return sorted(points, key=lambda point: bound_of(candidates.config(point)).bound_seconds)[:MOST_TRIED]


def split_rows() -> list[dict[str, Any]]:
    """Plan both sides of every pair; gives ratios of seconds, first to second."""
    return [row_of(pair) for pair in pairs()]


def row_of(pair: Pair) -> dict[str, Any]:
    everything, defaults = [], []
    for mean, sigma in product(pair.means, pair.spreads):
        law = law_of(mean, pair.max_tokens, sigma or spread_to_the_cap(mean, pair))
        for one, other in product(pair.first.rules, pair.second.rules):
            first = tokens_per_second(pair, pair.first, one, law)
            second = tokens_per_second(pair, pair.second, other, law)
            ratios = {corner: second[corner] / first[corner] for corner in first if corner in second}
            everything += ratios.values()
            defaults.append(ratios["default"])
    measured = pair.measured[0] / pair.measured[1]
    low, high = min(everything), max(everything)
    middle = sorted(defaults)[len(defaults) // 2]
    return {
        "pair": pair.name,
        "source": pair.source,
        "not_stated": pair.not_stated,
        "planned": middle,
        "low": low,
        "high": high,
        "measured": measured,
        "verdict": verdict(low, high),
        "happened": verdict(measured, measured),
        "agrees": verdict(middle, middle) == verdict(measured, measured),
        "inside": bool(low <= measured <= high),
    }


def verdict(low: float, high: float) -> str:
    """Say which side is faster, and by more or less than a tenth; open where the ends differ."""
    found = {_verdict(low), _verdict(high)}
    if len(found) == 1:
        return found.pop()
    if high < 1:
        return "faster; by how much is open"
    return "slower; by how much is open" if low > 1 else "open"


def _verdict(ratio: float) -> str:
    if ratio < 1:
        return "faster by more than a tenth" if 1 - ratio > CLEAR else "faster by less than a tenth"
    return "slower by more than a tenth" if ratio - 1 > CLEAR else "slower by less than a tenth"
