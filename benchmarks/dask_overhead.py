"""What a unit of work costs beside its runs, on Dask and on threads, and what a thousand workers would need.

Measured in one process, round by round: the time of an empty task in Dask's hands, the time to write one
unit's chunks, the wall time of a stored sweep on Dask workers and on threads beside the seconds that its
kernels took. The figures for a thousand workers are worked out from these and marked so. Prints JSON
(``--json``) or tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from lagsweep import LengthLaw, PipelineConfig, __version__
from lagsweep.sweeps.execute.dask import WINDOW_PER_WORKER, connect, windowed
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.results.dataset import variable_table
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.store import create_store
from lagsweep.sweeps.store.units import make_work, write_work
from lagsweep.sweeps.store.writing import run_into_store

WORKERS = 2
EMPTY_TASKS = 400
METRICS_WRITTEN = 25
SHARE = 0.1  # of a worker's time that may go to the scheduler


def _nothing(number: int) -> int:
    return number


def _empty_task_seconds(client: object, rounds: int) -> list[float]:
    """Wall seconds a task, tasks that do nothing, through the same bounded window as units."""
    found = []
    for _ in range(rounds):
        waiting = iter(range(EMPTY_TASKS))

        def submit(client: object, waiting: object = waiting) -> object:
            number = next(waiting, None)
            return None if number is None else (client.submit(_nothing, number, pure=False), number)

        began = time.perf_counter()
        for _ in windowed(client, submit, threading.Event()):
            pass
        found.append((time.perf_counter() - began) / EMPTY_TASKS)
    return found


class _Kernels(Progress):
    """Add up the seconds that blocks took."""

    def __init__(self) -> None:
        self.seconds, self.units, self._lock = 0.0, set(), threading.Lock()

    def block(self, unit: str, runs: int, seconds: float) -> None:
        with self._lock:
            self.seconds += seconds
            self.units.add(unit)


def _stored_sweep(executor: object, seconds_a_unit: float) -> dict[str, float]:
    """Run a stored sweep of 40 units of about so many seconds; wall and kernel seconds a unit."""
    base = PipelineConfig(
        rollout_workers=64,
        response_length=LengthLaw.lognormal(),
        batch_tokens=20_000,
        max_queue_tokens=60_000,
        train_tokens_per_second=3_000.0,
        duration_seconds=400.0,
    )
    # About 3,300 rollouts a run; the guess of its seconds only sets the number of runs.
    runs_a_unit = max(1, round(seconds_a_unit / 2e-4))
    spec = make_spec(base, {"max_lag": [0, 1, 2, 4]}, max(1, runs_a_unit // 4) * 40)
    with tempfile.TemporaryDirectory() as folder:
        watch = _Kernels()
        began = time.perf_counter()
        run_into_store(
            spec,
            Path(folder) / "sweep",
            executor=executor,
            threads=WORKERS,
            progress=watch,
            unit_runs=runs_a_unit,
        )
        wall = time.perf_counter() - began
    units = len(watch.units)
    return {
        "units": units,
        "wall_seconds": wall,
        "kernel_seconds_per_unit": watch.seconds / units,
        "overhead_ms_per_unit": 1e3 * (wall * WORKERS - watch.seconds) / units,
    }


def _write_seconds(rounds: int) -> dict[str, object]:
    """Seconds to write one unit of a million short runs, cut as such a sweep is by itself."""
    spec = make_spec(
        PipelineConfig(duration_seconds=60.0), {"max_lag": range(10), "sync_cadence": range(1, 11)}, 10_000
    )
    with tempfile.TemporaryDirectory() as folder:
        store, lock = create_store(Path(folder) / "sweep", spec)
        part, unit = store.part("cells"), (0, 0, 0)
        cells, seeds = len(part.layout.cells(unit)), part.layout.chunks[-1]
        work = make_work(store, part, unit, np.ones((cells, seeds), bool))
        rng = np.random.default_rng(0)
        for name, values in work.arrays.metrics.items():
            whole = values.dtype.kind == "i"
            work.arrays.metrics[name] = (
                rng.poisson(900, values.shape).astype(np.int64) if whole else rng.normal(50, 5, values.shape)
            )
        work.arrays.lag_counts[..., :3] = rng.poisson(300, (cells, seeds, 3))
        work.arrays.status[:] = 1
        metrics, everything = [], []
        box = part.layout.box(unit)
        shape = part.layout.chunks
        some = dict(list(work.arrays.metrics.items())[:METRICS_WRITTEN])
        for _ in range(rounds):
            began = time.perf_counter()
            store.files.write({name: array.reshape(shape) for name, array in some.items()}, box)
            metrics.append(time.perf_counter() - began)
            began = time.perf_counter()
            write_work(store, work)
            everything.append(time.perf_counter() - began)
        size = sum(store.files.chunk_file(name, unit).stat().st_size for name in variable_table(part))
        lock.release()
        store.close()
    return {
        "runs": cells * seeds,
        "metrics": METRICS_WRITTEN,
        "metrics_seconds": _spread(metrics),
        "metrics_of_a_million_runs_seconds": statistics.median(metrics) * 1e6 / (cells * seeds),
        "unit_seconds": _spread(everything),
        "unit_bytes": size,
        "unit_files": len(variable_table(part)),
    }


def _spread(samples: list[float]) -> dict[str, float]:
    return {"minimum": min(samples), "median": statistics.median(samples), "maximum": max(samples)}


def _thousand_workers(task_seconds: float, write: dict[str, object]) -> dict[str, float]:
    """Work out, from measured figures, what a thousand workers would need."""
    workers = 1000
    unit_seconds = task_seconds * workers / SHARE
    units_a_second = workers / unit_seconds
    return {
        "workers": workers,
        "scheduler_tasks_per_second": 1 / task_seconds,
        "unit_seconds_needed": unit_seconds,
        "units_per_second": units_a_second,
        "chunk_files_per_second": units_a_second * write["unit_files"],
        "bytes_per_second": units_a_second * write["unit_bytes"],
        "tasks_in_dasks_hands": workers * WINDOW_PER_WORKER,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    began = time.perf_counter()
    _stored_sweep("threads", 0.05)
    first_call = time.perf_counter() - began
    write = _write_seconds(options.rounds)
    sweeps = []
    with connect("local", WORKERS) as client:
        _stored_sweep(client, 0.05)  # workers load their kernels
        tasks = _empty_task_seconds(client, options.rounds)
        for seconds in (0.02, 0.2, 1.0):
            rows = {"dask": [], "threads": []}
            for _ in range(max(1, options.rounds // 2)):
                for name, executor in (("dask", client), ("threads", "threads")):
                    rows[name].append(_stored_sweep(executor, seconds))
            for name, found in rows.items():
                sweeps.append(
                    {
                        "executor": name,
                        "units": found[0]["units"],
                        "kernel_seconds_per_unit": statistics.median(
                            r["kernel_seconds_per_unit"] for r in found
                        ),
                        "overhead_ms_per_unit": _spread([r["overhead_ms_per_unit"] for r in found]),
                    }
                )
    document = {
        "command": "python benchmarks/dask_overhead.py " + " ".join(sys.argv[1:]),
        "commit": commit.stdout.strip(),
        "lagsweep": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "distributed": __import__("distributed").__version__,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "first_call_seconds": first_call,
        "workers": WORKERS,
        "empty_task_ms": _spread([1e3 * seconds for seconds in tasks]),
        "write": write,
        "stored_sweeps": sweeps,
        "worked_out_for_a_thousand_workers": _thousand_workers(statistics.median(tasks), write),
    }
    print(json.dumps(document, indent=1) if options.json else _tables(document))


def _ranged(spread: dict[str, float], digits: int) -> str:
    return f"{spread['median']:.{digits}f} ({spread['minimum']:.{digits}f}…{spread['maximum']:.{digits}f})"


def _tables(document: dict[str, object]) -> str:
    write, far = document["write"], document["worked_out_for_a_thousand_workers"]
    lines = [
        "| executor | units | kernel s a unit | beside it, ms a unit |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {row['executor']} | {row['units']} | {row['kernel_seconds_per_unit']:.3f} "
            f"| {_ranged(row['overhead_ms_per_unit'], 1)} |"
            for row in document["stored_sweeps"]
        ),
        "",
        f"An empty task in Dask's hands: {_ranged(document['empty_task_ms'], 2)} ms.",
        f"{write['metrics']} metrics of {write['runs']:,} runs are written in "
        f"{_ranged(write['metrics_seconds'], 3)} s, of a million runs in "
        f"{write['metrics_of_a_million_runs_seconds']:.2f} s.",
        f"With lag counts, status and digests a unit takes {_ranged(write['unit_seconds'], 3)} s: "
        f"{write['unit_bytes'] / 1e6:.1f} MB in {write['unit_files']} files.",
        "",
        f"Worked out for {far['workers']:,} workers, {SHARE:.0%} of their time for the scheduler: units of "
        f"{far['unit_seconds_needed']:.0f} s or more; {far['units_per_second']:.0f} units and "
        f"{far['chunk_files_per_second']:,.0f} chunk files a second; "
        f"{far['bytes_per_second'] / 1e6:,.0f} MB/s into the shared folder if units have "
        f"{write['runs']:,} runs.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
