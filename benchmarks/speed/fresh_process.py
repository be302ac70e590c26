"""What only a process of its own shows: memory of a sweep, and the first result with and without a cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measuring import Section, in_turn, ranged, ratios, table

HELD_AIM = 260  # bytes a run
WARM_ROUNDS, COLD_ROUNDS = 5, 2  # at most: a cold start takes half a minute
_MEMORY = """
import gc, json, resource, sys
from lagsweep import PipelineConfig, run_sweep
from lagsweep.sweeps.execute.unit_arrays import UnitArrays

base = PipelineConfig(rollout_workers=8, duration_seconds=240.0, batch_tokens=8_000).replace(
    train_tokens_per_second=480.0)
axes = {"queue_cap": [12_000 * step for step in range(1, 9)], "max_lag": [0, 1, 2, 4, 8],
        "sync_cadence": [1, 2], "sync_seconds": [0.0, 1.0, 3.0, 5.0]}

def peak():
    try:  # this process's own peak; what getrusage tells begins with that of the process that started it
        lines = open("/proc/self/status").read().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def bytes_of(arrays):
    lags = 0 if arrays.lag_counts is None else arrays.lag_counts.nbytes
    return sum(values.nbytes for values in arrays.metrics.values()) + lags + arrays.status.nbytes

held = 0
def look(done, total):
    global held
    if done == total:
        held = max(bytes_of(one) for one in gc.get_objects() if isinstance(one, UnitArrays))

seeds = int(sys.argv[1])
run_sweep(base, axes, seeds=1, progress=look)
held, before = 0, peak()
dataset = run_sweep(base, axes, seeds=seeds, threads=2, progress=look)
runs = int(dataset.status.size)
print(json.dumps({"runs": runs, "held": held / runs, "dataset": dataset.nbytes / runs,
                  "lag counts": dataset.lag_counts.nbytes / runs, "peak": (peak() - before) / runs}))
"""
STARTS = {
    "`import lagsweep`": "import lagsweep",
    "`lagsweep --help`": "import sys, lagsweep.sweeps.cli as cli; sys.argv[1:] = ['--help']; cli.main()",
    "a run of level 1": "import lagsweep as ls; ls.simulate_pipeline(ls.PipelineConfig())",
    "a run of a preset": "import lagsweep as ls; ls.simulate_pipeline(ls.preset_config('areal'))",
}
COMPILES = list(STARTS)[2:]


def _process(code: str, cache: Path, *arguments: str) -> str:
    """Run Python code in a process of its own with a cache of kernels; gives what it prints."""
    environment = os.environ | {"LAGSWEEP_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def memory_section(rounds: int, tiny: bool = False) -> Section:
    """Measure the bytes of a run in a large sweep, once: bytes do not vary as times do."""
    with tempfile.TemporaryDirectory() as folder:
        told = json.loads(_process(_MEMORY, Path(folder), "2" if tiny else "512"))
    found = Section("Memory of a sweep")
    found.text += [
        f'{told["runs"]:,} short runs in memory, two threads, in a process of its own. "Held" is what is '
        "kept of "
        "a run while the sweep goes on; the dataset has whole numbers of 64 bits and all 65 bins of lag; the "
        "peak is that of the process above its own before the sweep.",
        table(
            ["bytes a run", ""],
            [
                ["held", f"{told['held']:,.0f}"],
                ["dataset", f"{told['dataset']:,.0f}"],
                ["of which lag counts", f"{told['lag counts']:,.0f}"],
                ["peak", f"{told['peak']:,.0f}"],
            ],
        ),
    ]
    found.at_most("bytes a run held", told["held"], HELD_AIM)
    return found


def start_section(rounds: int, tiny: bool = False) -> Section:
    """Measure the first result of a fresh process, kernels compiled and kernels cached."""
    starts = {name: code for name, code in STARTS.items() if not tiny or name not in COMPILES[1:]}
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder, "warm")
        for code in starts.values():
            _process(code, warm)
        forms: dict[str, Callable[[], object]] = {"python -c pass": lambda: _process("pass", warm)}
        forms |= {name: lambda code=code: _process(code, warm) for name, code in starts.items()}
        warmed = in_turn(forms, min(rounds, WARM_ROUNDS))

        def cold(code: str) -> None:
            with tempfile.TemporaryDirectory() as empty:
                _process(code, Path(empty))

        compiling = {name: lambda code=starts[name]: cold(code) for name in COMPILES if name in starts}
        colds = in_turn(compiling, min(rounds, COLD_ROUNDS))
    found = Section("The first result of a fresh process")
    rows = []
    for name in forms:
        over = ranged(ratios({"a": warmed[name], "b": warmed["python -c pass"]}, "a", "b"))
        rows.append([name, ranged(colds[name]) if name in colds else "", ranged(warmed[name], 2), over])
    found.text += [
        f"Seconds of a whole process. Cold: no kernel was ever compiled on this machine "
        f"({len(colds[COMPILES[0]])} rounds). Warm: the kernels are in the cache folder, as after the first "
        f"run ({len(warmed['python -c pass'])} rounds).",
        table(["process", "cold", "warm", "warm / python -c pass"], rows),
    ]
    return found
