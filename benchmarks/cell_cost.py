"""What a short run of a sweep costs around its event loop, by this package and by that of an older commit.

Whole sweeps in memory are timed in processor time: building cells, running, filing, the dataset. Each side
runs in processes of its own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "speed"))

from measuring import ranged, table
from two_sides import run_sides

REPEATS = 2  # of a sweep in a process: the least counts
_WORKLOAD = {"rollout_workers": 8, "duration_seconds": 240.0, "train_tokens_per_second": 480.0}


def _drawn(cells: int, low: float, high: float) -> list[float]:
    return (low + (high - low) * np.random.default_rng(cells).random(cells)).tolist()


def _points(cells: int, **more: list[Any]) -> list[dict[str, list[Any]]]:
    """Return a design of points, every axis with a value of its own for each."""
    return [{"sync_seconds": _drawn(cells, 0.5, 5), "train_overhead_seconds": _drawn(cells, 0, 1)} | more]


def sweeps() -> dict[str, Callable[[int], Any]]:
    """Name the sweeps; each is run on so many threads."""
    from lagsweep import Engine, PipelineConfig, preset_config, run_sweep

    plain = PipelineConfig(**_WORKLOAD, batch_tokens=8_000)
    general = plain.replace(publication="pause", queue_order="freshest")
    preset = preset_config("areal", **_WORKLOAD, batch_groups=4, group_size=4)
    workers = np.random.default_rng(0).integers(4, 33, 3_000).tolist()
    uneven = {
        "queue_cap": [12_000 * step for step in range(1, 9)],
        "max_lag": [0, 1, 2, 4, 8],
        "sync_cadence": [1, 2],
        "duration_seconds": [48.0, 432.0],
    }
    shapes = _points(3_000, rollout_workers=workers, decode_slowdown_per_rollout=_drawn(3_000, 0.001, 0.01))
    failing = general.replace(trainer_mtbf_seconds=100.0)
    engines = general.replace(engine=Engine(step_seconds=0.02), queue_order="fifo")
    cases = {
        "level 1: 3,000 points, a seed": (plain, _points(3_000), 1),
        "level 1: one cell, 20,000 seeds": (plain, {"max_lag": [2]}, 20_000),
        "level 1, 1 to 9: 160 cells, 64 seeds": (plain, uneven, 64),
        "general: 3,000 points, a seed": (general, _points(3_000), 1),
        "general: 3,000 points that differ in slots and slowdown": (general, shapes, 1),
        "general: 50 points, 60 seeds": (general, _points(50), 60),
        "areal: 3,000 points, a seed": (preset, _points(3_000), 1),
        "areal: 50 points, 60 seeds": (preset, _points(50), 60),
        "areal: one cell, 5,000 seeds": (preset, {"sync_seconds": [1.0]}, 5_000),
        "with failures: 50 points, 60 seeds": (failing, _points(50), 60),
        "with engines: 50 points, 60 seeds": (engines, _points(50), 60),
    }
    return {
        name: lambda threads, case=case: run_sweep(case[0], case[1], seeds=case[2], threads=threads)
        for name, case in cases.items()
    }


def measure() -> dict[str, list[float]]:
    """Return microseconds of processor time a run on one thread and on two, by sweep."""
    found = {}
    for name, sweep in sweeps().items():
        runs, costs = sweep(1).status.size, []
        for threads in (1, 2):
            least = float("inf")
            for _ in range(REPEATS):
                began = time.process_time()
                sweep(threads)
                least = min(least, time.process_time() - began)
            costs.append(1e6 * least / runs)
        found[name] = costs
    return found


def page(
    commit: str, before: Sequence[dict[str, list[float]]], now: Sequence[dict[str, list[float]]], load: str
) -> str:
    """Write what was measured, by round and sweep, as a page."""
    rows = []
    for name in now[0]:
        sides = [[one[name][0] for one in rounds] for rounds in (before, now)]
        two = [[one[name][1] / one[name][0] for one in rounds] for rounds in (before, now)]
        gain = [a / b for a, b in zip(*sides)]
        rows.append(
            [name, *map(ranged, sides), ranged(gain, 2), *(f"{statistics.median(t):.2f}" for t in two)]
        )
    head = ["sweep", "before, µs a run", "now, µs a run", "before / now", "2 threads, before", "now"]
    return "\n".join(
        [
            "# What a short run costs around its loop",
            "",
            f"Made by `make cell-cost BEFORE={commit}`. Processor time of whole sweeps in memory on one "
            "thread, by the run: building the cells, running, filing, the dataset. Runs are 240 s at 8 "
            f"slots, unless said otherwise; median (least…most) of {len(now)} rounds, in which both packages "
            f"ran in turn, each in a process of its own, a sweep being the fastest of {REPEATS}. Ratios are "
            "of one round. The last two columns are the processor time on two threads over that on one: "
            "what sharing the work costs.",
            "",
            load,
            "",
            table(head, rows),
            "",
        ]
    )


if __name__ == "__main__":
    run_sides(__file__, __doc__.splitlines()[0], measure, page, rounds=3)
