"""What a rule of the user's own costs: the same admission rule as a setting, in Python, and by Numba.

Prints tables, or one JSON document (``--json``). All forms run side by side, round by round; single figures
depend on the machine and on what else it does, the ratios much less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

import lagsweep as ls
from lagsweep.custom import AdmissionRule, Custom, LengthProcess

CAP = 40_000


class Cap(AdmissionRule):
    """The token cap in Python."""

    def admits(self, state: Any) -> bool:
        """Say whether the queue is below the cap."""
        return state.queued_tokens < CAP


class SameLength(LengthProcess):
    """The law in Python."""

    def tokens(self, rollout: Any) -> int:
        """Return what the law gives."""
        return rollout.law_tokens


@numba.njit
def cap(state):  # type: ignore[no-untyped-def]
    """The token cap, compiled."""
    return state.queued_tokens < CAP


@numba.njit
def same_length(rollout):  # type: ignore[no-untyped-def]
    """The law, compiled."""
    return rollout.law_tokens


def _config(slots: int, events: int) -> ls.PipelineConfig:
    seconds_per_rollout = 0.5 + 360 / 50
    return ls.PipelineConfig(
        rollout_workers=slots,
        batch_tokens=360 * slots // 2,
        max_queue_tokens=None,
        train_tokens_per_second=1.05 * 360 * slots / seconds_per_rollout,
        train_overhead_seconds=0.0,
        max_policy_lag=4,
        publication="pause",
        duration_seconds=events / slots * seconds_per_rollout,
    )


def _forms(config: ls.PipelineConfig) -> dict[str, Callable[[], Any]]:
    plain = config.replace(max_queue_tokens=CAP)
    return {
        "a setting, `simulate_pipeline`": lambda: ls.simulate_pipeline(plain),
        "admission in Python": lambda: ls.simulate_custom(config, Cap()),
        "admission by Numba": lambda: ls.simulate_custom(config, cap),
        "admission and lengths in Python": lambda: ls.simulate_custom(config, Cap(), SameLength()),
        "admission and lengths by Numba": lambda: ls.simulate_custom(config, cap, same_length),
    }


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_run(rounds: int) -> list[dict[str, Any]]:
    """Time one run of each form."""
    config = _config(64, 60_000)
    forms = _forms(config)
    first = {name: _seconds(form) for name, form in forms.items()}
    results = {name: form() for name, form in forms.items()}
    events = len(results["admission in Python"].timeline)
    samples: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            samples[name].append(_seconds(form))
    updates = {result.updates for result in results.values()}
    assert len(updates) == 1, "the forms are one rule"
    return [
        {
            "form": name,
            "first_seconds": first[name],
            "minimum": min(times),
            "median": statistics.median(times),
            "maximum": max(times),
            "microseconds_per_event": statistics.median(times) / events * 1e6,
        }
        for name, times in samples.items()
    ]


def one_sweep(processes: int) -> list[dict[str, Any]]:
    """Time a sweep of 16 runs, once each."""
    config, axes = _config(64, 30_000), {"max_lag": [1, 2, 4, 8]}
    options: dict[str, dict[str, Any]] = {
        "in Python, one thread": {"custom": Custom(Cap()), "executor": "serial"},
        f"in Python, {processes} processes": {
            "custom": Custom(Cap()), "executor": "processes", "threads": processes
        },
        "by Numba, one thread": {"custom": Custom(cap), "executor": "serial"},
    }  # fmt: skip
    found = []
    for name, option in options.items():
        found.append({"form": name, "seconds": _seconds(lambda: ls.run_sweep(config, axes, 4, **option))})  # noqa: B023
    return found


def _tables(facts: dict[str, Any]) -> str:
    lines = [
        "# Rules of your own: what they cost",
        "",
        f"`python benchmarks/custom_rules.py`, {facts['platform']}, {facts['cpus']} CPUs, "
        f"lagsweep {facts['version']}.",
        "One rule, the token cap, in five forms on one run (64 slots, the general loop); the median of "
        f"{facts['rounds']} rounds.",
        "The first calls compile: the loop, once on a machine, and the driver of a rule by Numba, once in "
        "each process.",
        "",
        "| form | first call, s | median, s | least … most, s | µs per event |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row['form']} | {row['first_seconds']:.2f} | {row['median']:.3f} | "
        f"{row['minimum']:.3f} … {row['maximum']:.3f} | {row['microseconds_per_event']:.2f} |"
        for row in facts["run"]
    ]
    lines += ["", "A sweep of 16 such runs of half the length:", "", "| form | s |", "| --- | ---: |"]
    lines += [f"| {row['form']} | {row['seconds']:.2f} |" for row in facts["sweep"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    facts = {
        "platform": platform.machine(),
        "cpus": os.cpu_count(),
        "version": ls.__version__,
        "rounds": arguments.rounds,
        "run": one_run(arguments.rounds),
        "sweep": one_sweep(arguments.processes),
    }
    text = json.dumps(facts, indent=2) + "\n" if arguments.json else _tables(facts)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
