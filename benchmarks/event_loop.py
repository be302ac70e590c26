"""Cost of the event loop: ns per event by number of slots, beside SimPy, and runs per second of a sweep.

Prints one JSON document (``--json``) or tables. All compared figures are measured side by side in one
process, round by round, and the median and extremes are shown; single figures depend on the machine and on
what else it does, the ratios much less.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import numpy as np
from simpy_pipeline import run as run_simpy

from lagsweep import LengthLaw, PipelineConfig, __version__
from lagsweep.kernels.draws.philox import normals, philox_words, uniforms
from lagsweep.sweeps.runs.general import GeneralRun, new_draws
from lagsweep.sweeps.runs.lean import LeanCells

_SWEEP_SEEDS = 120


def _config(slots: int, events: int, law: LengthLaw) -> PipelineConfig:
    """A pipeline whose trainer keeps up with its slots, long enough for about so many events."""
    seconds_per_rollout = 0.5 + law.mean_tokens / 50
    rollouts_per_batch = max(8, slots // 2)
    return PipelineConfig(
        rollout_workers=slots,
        response_length=law,
        batch_tokens=int(law.mean_tokens * rollouts_per_batch),
        max_queue_tokens=int(law.mean_tokens * rollouts_per_batch * 3),
        train_tokens_per_second=1.05 * law.mean_tokens * slots / seconds_per_rollout,
        train_overhead_seconds=0.0,
        max_policy_lag=4,
        duration_seconds=events / slots * seconds_per_rollout,
    )


def _spread(samples: list[float]) -> dict[str, float]:
    return {"minimum": min(samples), "median": statistics.median(samples), "maximum": max(samples)}


def _one(slots: int, rounds: int) -> dict[str, object]:
    law = LengthLaw.lognormal()
    config = _config(slots, 200_000, law)
    short = config.replace(duration_seconds=config.duration_seconds / 8)
    count = 60_000
    words = philox_words(0, 0, count)
    lengths = (law.minimum + np.searchsorted(law.cdf, uniforms(words)[:, 0], side="right")).tolist()
    noise = normals(words)[:, 1].tolist()
    cells = LeanCells([config])
    check = LeanCells([short])
    compile_started = time.perf_counter()
    _run(cells)
    compile_seconds = time.perf_counter() - compile_started
    whole = GeneralRun(config, draws=new_draws(count))  # as in a sweep, where the first configuration draws
    _run_general(whole)
    ours, general, theirs = [], [], []
    for _ in range(rounds):
        started = time.perf_counter()
        _run(cells)
        ours.append((time.perf_counter() - started) / cells.events * 1e9)
        started = time.perf_counter()
        _run_general(whole)
        general.append((time.perf_counter() - started) / cells.events * 1e9)
        started = time.perf_counter()
        events, counts, _ = run_simpy(short, lengths, noise)
        theirs.append((time.perf_counter() - started) / events * 1e9)
    _run(check)
    return {
        "slots": slots,
        "events": int(cells.events),
        "first_call_seconds": compile_seconds,
        "kernel_ns_per_event": _spread(ours),
        "general_engine_ns_per_event": _spread(general),
        "simpy_ns_per_event": _spread(theirs),
        "general_engine_over_kernel": _spread([b / a for a, b in zip(ours, general)]),
        "simpy_over_kernel": _spread([b / a for a, b in zip(ours, theirs)]),
        "same_model": {
            "kernel_updates": int(check.metrics["updates"][0]),
            "simpy_updates": counts["updates"],
            "kernel_trained_tokens": int(check.metrics["trained_tokens"][0]),
            "simpy_trained_tokens": counts["trained_tokens"],
        },
    }


def _run(cells: LeanCells) -> None:
    cells.begin(0, np.zeros(1, cells.REPORT))
    while cells.finished == 0:
        cells.step()


def _run_general(run: GeneralRun) -> None:
    """The same configuration through the general loop of levels 2 and 3, every option off."""
    run.begin(0)
    while not run.step():
        pass


def _sweep(skewed: bool, rounds: int) -> dict[str, object]:
    """Runs per second of an in-memory sweep on one and two threads."""
    from lagsweep import run_sweep

    base = PipelineConfig(duration_seconds=300.0, rollout_workers=16, batch_tokens=8_000)
    # Skewed: half of the configurations run nine times longer.
    durations = [3000.0, 27000.0] if skewed else [15000.0, 15000.001]
    axes = {"queue_cap": [10_000, 20_000, 30_000], "max_lag": [1, 2, 4], "duration_seconds": durations}
    runs = 3 * 3 * 2 * _SWEEP_SEEDS
    rates: dict[int, list[float]] = {1: [], 2: []}
    for threads in (1, 2):
        run_sweep(base, axes, seeds=2, threads=threads, progress=False)
    for _ in range(rounds):
        for threads in (1, 2):
            started = time.perf_counter()
            run_sweep(base, axes, seeds=_SWEEP_SEEDS, threads=threads, progress=False)
            rates[threads].append(runs / (time.perf_counter() - started))
    return {
        "work": "skewed 1:9" if skewed else "uniform",
        "runs": runs,
        "runs_per_second_one_thread": _spread(rates[1]),
        "runs_per_second_two_threads": _spread(rates[2]),
        "two_over_one": _spread([b / a for a, b in zip(rates[1], rates[2])]),
    }


def _ranged(spread: dict[str, float], digits: int) -> str:
    return f"{spread['median']:.{digits}f} ({spread['minimum']:.{digits}f}…{spread['maximum']:.{digits}f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    document = {
        "command": "python benchmarks/event_loop.py " + " ".join(sys.argv[1:]),
        "commit": commit.stdout.strip(),
        "lagsweep": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": __import__("numba").__version__,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "event_loop": [_one(slots, options.rounds) for slots in (8, 64, 1024)],
        "sweep": [_sweep(skewed, options.rounds) for skewed in (False, True)],
    }
    if options.json:
        print(json.dumps(document, indent=1))
        return
    print("| slots | lean loop | general loop, options off | SimPy | SimPy / lean |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for row in document["event_loop"]:
        cells = [
            _ranged(row[name], digits)
            for name, digits in (
                ("kernel_ns_per_event", 1),
                ("general_engine_ns_per_event", 1),
                ("simpy_ns_per_event", 0),
                ("simpy_over_kernel", 0),
            )
        ]
        print(f"| {row['slots']} | {' | '.join(cells)} |")
    print()
    print("| sweep | runs/s, one thread | runs/s, two threads | two / one |")
    print("| --- | ---: | ---: | ---: |")
    for row in document["sweep"]:
        one, two, ratio = (
            row["runs_per_second_one_thread"],
            row["runs_per_second_two_threads"],
            row["two_over_one"],
        )
        print(
            f"| {row['work']} | {one['median']:.0f} | {two['median']:.0f} "
            f"| {ratio['median']:.2f} ({ratio['minimum']:.2f}…{ratio['maximum']:.2f}) |"
        )


if __name__ == "__main__":
    main()
