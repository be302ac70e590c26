"""Runs a second of sweeps in memory: one thread and two, short runs and long, alike and of uneven length."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xarray
from c_loop import CCells, build, compiler
from measuring import Section, in_turn, ranged, ratios, table

from lagsweep import PipelineConfig, run_sweep

TWO_OVER_ONE, OVER_C = 1.85, 1.7  # aims
_SHORT = PipelineConfig(
    rollout_workers=8, duration_seconds=240.0, batch_tokens=8_000, train_tokens_per_second=480.0
)
_LONG = PipelineConfig(rollout_workers=16, duration_seconds=15_000.0, batch_tokens=8_000)
_SHORT_AXES = {
    "queue_cap": [12_000 * step for step in range(1, 9)],
    "max_lag": [0, 1, 2, 4, 8],
    "sync_cadence": [1, 2],
}
_LONG_AXES = {"queue_cap": [10_000, 20_000, 30_000], "max_lag": [1, 2, 4]}
_ROLLOUTS = 1_024  # more than a short run starts


def _cases(tiny: bool) -> dict[str, tuple[PipelineConfig, dict[str, list[Any]], int]]:
    """Name the sweeps: base, axes, seeds. In uneven ones half of the runs are nine times longer."""
    few, many, most = (2, 2, 2) if tiny else (60, 64, 1_024)
    uneven = [48.0, 432.0]
    syncs = {"sync_seconds": [0.0, 1.0, 3.0, 5.0]}
    return {
        "short, alike": (_SHORT, _SHORT_AXES | syncs, most),
        "short, 1 to 9": (_SHORT, _SHORT_AXES | {"duration_seconds": uneven}, many),
        "long, alike": (_LONG, _LONG_AXES | {"sync_seconds": [1.0, 2.0]}, few),
        "long, 1 to 9": (_LONG, _LONG_AXES | {"duration_seconds": [3_000.0, 27_000.0]}, few),
    }


def _sweep(case: tuple[PipelineConfig, dict[str, list[Any]], int], threads: int) -> xarray.Dataset:
    base, axes, seeds = case
    return run_sweep(base, axes, seeds=seeds, threads=threads, progress=None)


def _c_loops(folder: Path, seeds: int) -> Callable[[int], list[int]]:
    """Return the short runs by C loops: so many threads, each with seeds of its own; gives their updates."""
    library = build(folder)
    names = list(itertools.product(*_SHORT_AXES.values(), [0.0, 1.0, 3.0, 5.0]))
    configs = [
        _SHORT.replace(max_queue_tokens=cap, max_policy_lag=lag, sync_every_updates=every, sync_seconds=sync)
        for cap, lag, every, sync in names
    ]
    cells = [CCells(library, configs, _ROLLOUTS) for _ in range(2)]

    def work(some: CCells, first: int, step: int) -> int:
        updates = 0
        for seed in range(first, seeds, step):
            some.draw(seed)
            some.run()
            updates += int(some.reports["updates"].sum())
        return updates

    def run(threads: int) -> list[int]:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, cells[:threads], range(threads), [threads] * threads))

    return run


def section(rounds: int, tiny: bool = False) -> Section:
    """Measure all sweeps in turn."""
    cases = _cases(tiny)
    runs, updates = {}, {}
    forms: dict[str, Callable[[], object]] = {}
    for name, case in cases.items():
        one, two = (_sweep((*case[:2], 2), threads) for threads in (1, 2))
        if not one.identical(two):
            raise SystemExit(f"one thread and two differ in {name}")
        runs[name] = int(one.status.size) // 2 * case[2]
        for threads in (1, 2):
            forms[f"{name} {threads}"] = lambda case=case, threads=threads: _sweep(case, threads)
    with tempfile.TemporaryDirectory() as folder:
        first, seeds = next(iter(cases)), cases[next(iter(cases))][2]
        if compiler() is not None:
            c_loops = _c_loops(Path(folder), seeds)
            updates = {sum(c_loops(threads)) for threads in (1, 2)}
            updates.add(int(_sweep(cases[first], 2).updates.sum()))
            if len(updates) != 1:
                raise SystemExit(f"the sweep and the C loops differ in updates: {updates}")
            forms |= {f"C {threads}": lambda threads=threads: c_loops(threads) for threads in (1, 2)}
        seconds = in_turn(forms, rounds)
    found = Section("Runs a second of sweeps in memory")
    rows, over = [], {}
    for name in cases:
        rate = {threads: [runs[name] / each for each in seconds[f"{name} {threads}"]] for threads in (1, 2)}
        over[name] = ratios(seconds, f"{name} 1", f"{name} 2")
        rows.append(
            [name, f"{runs[name]:,}", *(ranged(rate[one], 0) for one in (1, 2)), ranged(over[name], 2)]
        )
    found.text += [
        "Short runs are 240 s at 8 slots, long ones 15,000 s at 16; in uneven sweeps half of the runs are "
        "nine times as long as the others. Draws, filing and the dataset are part of the time.",
        table(["sweep", "runs", "runs/s, one thread", "runs/s, two threads", "two / one"], rows),
    ]
    if "C 1" not in seconds:
        found.text.append("Beside C loops: not measured, there is no C compiler on this machine.")
    else:
        rates = [[runs[first] / each for each in seconds[f"C {threads}"]] for threads in (1, 2)]
        times = ratios(seconds, f"{first} 2", "C 2")
        found.text.append(
            f"The short runs that are alike by C loops, which draw the same numbers and give as many "
            f"updates: one {ranged(rates[0], 0)} runs/s, two at once {ranged(rates[1], 0)}; the sweep on two "
            f"threads takes {ranged(times, 2)} times as long as two C loops."
        )
        found.at_most("times two C loops, short runs", statistics.median(times), OVER_C)
    found.at_least("two threads over one, short runs", statistics.median(over[first]), TWO_OVER_ONE)
    return found
