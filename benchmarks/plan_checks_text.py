"""The page of a plan's checks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

REDUCE_MEASURED_BYTES = 1e6  # the largest all-reduce that the law was measured at


def text(found: dict[str, list[dict[str, Any]]]) -> str:
    """Write the page."""
    parts = [
        "# What a plan rests on, checked",
        "",
        *_said(
            "Made by `make plan-checks` (`benchmarks/plan_checks.py`). Nothing on this page is fitted:",
            "everything",
            "is from shapes of models, data sheets and the defaults and ranges of `lagsweep plan`.",
        ),
        *_sums(found["sums"]),
        *_runs(found["runs"]),
        *_fixed(found["fixed_parts"]),
        *_stages(found["stages"]),
        *_cache(found["cache"]),
        *_experts(found["experts"]),
        *_splits(found["splits"]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _said(*sentences: str) -> list[str]:
    """Return sentences as the lines of a paragraph."""
    return [*textwrap.wrap(" ".join(sentences), 116, break_on_hyphens=False), ""]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    rule = "|" + " --- |" * words + " ---: |" * (len(header) - words)
    return [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _sums(rows: list[dict[str, Any]]) -> list[str]:
    told = [row for row in rows if row["published_parameters"] is not None]
    right = sum(row["parameters"] == row["published_parameters"] for row in told)
    cache = sum(row["cache_bytes"] == row["published_cache_bytes"] for row in rows)
    return [
        "## Parameters and cache",
        "",
        *_said(
            f"Parameters are those published for {right} of {len(told)} models, to the last one; the",
            "cache of a",
            f"token in bf16, below every window, is the stated one for {cache} of {len(rows)}.",
        ),
        *_table(
            ["model", "parameters", "published", "cache bytes a token", "stated"],
            [
                [
                    row["model"],
                    f"{row['parameters']:,}",
                    "-" if row["published_parameters"] is None else f"{row['published_parameters']:,}",
                    f"{row['cache_bytes']:,}",
                    f"{row['published_cache_bytes']:,}",
                ]
                for row in rows
            ],
        ),
    ]


def _runs(rows: list[dict[str, Any]]) -> list[str]:
    names = {"end_to_end": ("end to end", 1.0, ".1f", "s"), "per_token": ("time per token", 1e3, ".1f", "ms")}
    lines = []
    inside = dict.fromkeys(names, 0)
    for row in rows:
        for name, (words, scale, form, unit) in names.items():
            fast, slow, middle, measured = (
                scale * row[f"{name}_{end}"] for end in ("fast", "slow", "default", "measured")
            )
            holds = fast <= measured <= slow
            inside[name] += holds
            shown = f"{fast:{form}} to {slow:{form}}"
            lines.append(
                [
                    row["run"],
                    words,
                    f"{measured:{form}} {unit}",
                    f"{middle:{form}}",
                    f"{middle / measured - 1:+.0%}",
                    shown,
                    "yes" if holds else "no",
                ]
            )
    return [
        "## Engines from data sheets, on measured runs",
        "",
        *_said(
            "Four runs of vLLM 0.19 (300 requests each), simulated on the engine that a plan builds:",
            "nothing is",
            "taken from their logs, the cache's size neither. The mean end to end lies inside the stated",
            "range in",
            f"{inside['end_to_end']} of {len(rows)}, the mean time of a token in {inside['per_token']}.",
            "In the",
            "memory-bound run more rollouts run at once than did, each slower.",
        ),
        *_table(["run", "mean", "measured", "planned", "off by", "range", "inside"], lines, words=2),
    ]


def _fixed(rows: list[dict[str, Any]]) -> list[str]:
    inside = sum(row["fast"] <= row["fitted"] <= row["slow"] for row in rows)
    return [
        "## Load stages: the fixed part of a step",
        "",
        *_said(
            "Fitted to 20 load stages of vLLM on H100 (milliseconds), beside the law: inside in",
            f"{inside} of {len(rows)}.",
        ),
        *_table(
            ["model", "fitted", "planned", "off by", "range"],
            [
                [
                    row["model"],
                    f"{row['fitted']:.2f}",
                    f"{row['default']:.2f}",
                    f"{row['default'] / row['fitted'] - 1:+.1%}",
                    f"{row['fast']:.2f} to {row['slow']:.2f}",
                ]
                for row in rows
            ],
        ),
    ]


def _stages(rows: list[dict[str, Any]]) -> list[str]:
    inside = [row["fast"] <= row["measured"] <= row["slow"] for row in rows]
    errors = [row["default"] / row["measured"] - 1 for row in rows]
    beyond = [
        row for row, holds in zip(rows, inside) if not holds and row["message_bytes"] > REDUCE_MEASURED_BYTES
    ]
    return [
        "## Load stages: milliseconds a token",
        "",
        *_said(
            f"A step at each stage's concurrency and mean context: {sum(inside)} of {len(rows)}",
            "measurements lie",
            f"inside the range; the defaults are off by {np.median(errors):+.0%} (median; largest",
            f"{max(errors, key=abs):+.0%}).",
            f"Of those outside {len(beyond)} sends all-reduces above 1 MB, beyond what their law was",
            "measured at.",
        ),
        *_table(
            ["model", "rollouts", "measured", "planned", "range", "inside"],
            [
                [
                    row["model"],
                    f"{row['running']:.0f}",
                    f"{row['measured']:.2f}",
                    f"{row['default']:.2f}",
                    f"{row['fast']:.2f} to {row['slow']:.2f}",
                    "yes" if holds else "no",
                ]
                for row, holds in zip(rows, inside)
            ],
        ),
    ]


def _cache(rows: list[dict[str, Any]]) -> list[str]:
    return [
        "## Tokens that an engine holds",
        "",
        *_said(
            "vLLM's own sum with the parts of each release, beside what its start-up logs print. Inside:",
            "within",
            "the 0.4 GiB (1 GiB with several ranks) that a plan leaves open;",
            f"{sum(row['inside'] for row in rows)} of {len(rows)}. The card that weights fill is where a",
            "small",
            "error of memory is a large one of tokens.",
        ),
        *_table(
            ["log", "logged tokens", "summed", "off by", "inside"],
            [
                [
                    row["log"],
                    f"{row['logged']:,}",
                    f"{row['summed']:,}",
                    f"{row['summed'] / row['logged'] - 1:+.1%}",
                    "yes" if row["inside"] else "no",
                ]
                for row in rows
            ],
        ),
    ]


def _experts(rows: list[dict[str, Any]]) -> list[str]:
    counts = list(dict.fromkeys(row["rollouts"] for row in rows))
    worst = max(abs(row["read"] / row["expected"] - 1) for row in rows)
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        lines.append([model, *(f"{row['read']:.1f}" for row in own)])
    return [
        "## Experts that a step reads",
        "",
        *_said(
            "GB of weights by rollouts in the step: E (1 - (1 - k / E)^n) distinct experts a layer, and",
            "the rest.",
            f"From the table of expected values they differ by {worst:.2%} at most.",
        ),
        *_table(["model", *map(str, counts)], lines),
    ]


def _splits(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    direction = sum((row["planned"] < 1) == (row["measured"] < 1) for row in rows)
    agrees, inside = (sum(row[name] for row in rows) for name in ("agrees", "inside"))
    settled = [row for row in rows if row["verdict"] != "open"]
    right = sum(row["happened"].startswith(row["verdict"].split(";")[0].split(" ")[0]) for row in settled)
    return [
        "## Published splits of GPUs",
        "",
        *_said(
            "Seconds for the same work, the first setting over the second: planned from model, cards and",
            "workload",
            "(defaults; in brackets over engines, trainer and network each at either end, and over what",
            "is not",
            f"stated), and measured. The defaults name the faster side in {direction} of {len(rows)}, and",
            "also",
            f"whether by more than a tenth in {agrees}; {inside} measurements lie inside. Where the range",
            "settles",
            f"the question, {len(settled)} of {len(rows)}, it is right in {right}.",
        ),
        *_table(
            ["pair", "source", "not stated", "the plan says", "happened", "planned", "measured"],
            [
                [
                    row["pair"],
                    row["source"],
                    row["not_stated"],
                    row["verdict"],
                    row["happened"],
                    f"{row['planned']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
                    f"{row['measured']:.2f}",
                ]
                for row in rows
            ],
            words=5,
        ),
        *_said(
            "verl: the mean of its lengths is not stated; 150, 400 and 1,000 tokens are planned, which",
            "is what the",
            "trainer's law leaves of the measured update of *colocated 64* (133 s), with the spread at",
            "which the",
            "longest answer of a step is about the cap. marin: a mixture with the stated totals, its",
            "shape made up.",
            "NeMo RL: each side takes the best of its splits, engines and caps at each corner.",
        ),
        *_said(
            "The switch between the phases of colocated GPUs (11 s, 4 to 55) is what verl's own colocated",
            "steps have left beside their phases; for the other sources it is a prediction too.",
        ),
    ]
