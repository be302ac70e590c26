"""Cost of small units: one sweep into a store, cut into 3,000 units and into 30, measured in turn.

Prints a table in Markdown, or writes it (``--output``). The median time of each cut over some rounds counts.
Figures depend on the machine, ratios much less. Small units are merged at the end; that is part of their
time. The digests of parts of tables are measured beside reading the parts.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import tables
from lagsweep.sweeps.store.digests import fast_digest, holds
from lagsweep.sweeps.store.store import SweepStore, read_table
from lagsweep.sweeps.store.writing import run_into_store

CUTS = {"3,000 small": 10, "30 large": 1000}  # runs of a unit
TABLES = ("timeline", "rollouts")
REPEATS = 60
LARGEST_RATIO, LARGEST_SHARE = 3.0, 0.1  # what is wanted


def _spec() -> object:
    base = PipelineConfig(
        rollout_workers=64,
        duration_seconds=3000.0,
        response_length=LengthLaw.lognormal(median=900, sigma=0.8, minimum=16, maximum=8192),
        batch_tokens=20_000,
        max_queue_tokens=80_000,
        train_tokens_per_second=6000.0,
        train_overhead_seconds=1.0,
        sync_seconds=1.0,
    )
    return make_spec(base, {"max_lag": [0, 1, 2, 4, 8], "sync_cadence": [1, 2]}, 3000, baseline=False)


def seconds_of_cuts(rounds: int) -> dict[str, tuple[float, float, int]]:
    """Run the sweep with each cut in turn: median seconds, median seconds of processors, units left."""
    spec = _spec()
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in CUTS}
    for _ in range(rounds):
        for name, runs in CUTS.items():
            with tempfile.TemporaryDirectory() as aside:
                folder = Path(aside) / "store"
                began, used = time.perf_counter(), time.process_time()
                run_into_store(spec, folder, unit_runs=runs)
                took = time.perf_counter() - began, time.process_time() - used
                units = SweepStore(folder).part("cells").layout.count
                shutil.rmtree(folder)
            found[name].append((*took, units))
    return {
        name: (median(one[0] for one in rows), median(one[1] for one in rows), rows[0][2])
        for name, rows in found.items()
    }


@dataclass
class Shares:
    """What the digest of a table's part costs beside reading the part.

    Attributes
    ----------
    megabytes, reading, digest : float
        Size of the part, median milliseconds of each.
    used : float
        Digest's share of reading in time of processors.
    """

    megabytes: float
    reading: float
    digest: float
    used: float


def shares_of_part(part: bytes, repeats: int) -> Shares:
    """Read a part from a file and hold it against its digest, in turn; medians of many repeats."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(part)
        file.flush()
        path, told = Path(file.name), fast_digest(part)
        acts = {
            "reading": lambda: pl.read_parquet(io.BytesIO(path.read_bytes())),
            "digest": lambda: holds(part, told),
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
        for _ in range(repeats):
            for name, act in acts.items():
                began, used = time.perf_counter(), time.process_time()
                act()
                took[name].append((time.perf_counter() - began, time.process_time() - used))
    wall, processors = (
        {name: 1e3 * median(pair[which] for pair in pairs) for name, pairs in took.items()}
        for which in (0, 1)
    )
    used = processors["digest"] / processors["reading"]
    return Shares(len(part) / 1e6, wall["reading"], wall["digest"], used)


def parts_of_tables(folder: Path) -> dict[str, bytes]:
    """Run a sweep that keeps its tables; gives a part of each large one, and one that nothing compresses."""
    run_into_store(_spec().replace(seeds=tuple(range(20)), tables=TABLES), folder, unit_runs=40)
    parts = {name: sorted((folder / "tables" / name).iterdir())[0].read_bytes() for name in TABLES}
    count, random, content = 600_000, np.random.default_rng(1), io.BytesIO()
    pl.DataFrame({"at": random.random(count), "tokens": random.random(count)}).write_parquet(content)
    return parts | {"random numbers, which nothing compresses": content.getvalue()}


def surplus_of_reading(folder: Path, table: str, repeats: int) -> tuple[float, float]:
    """Collect a stored table with and without its digests in turn; the surplus in time, and of processors."""
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    lazy = read_table(folder, table)
    for _ in range(repeats):
        for checked in found:
            tables.holds = holds if checked else lambda content, told: True  # type: ignore[assignment]
            began, used = time.perf_counter(), time.process_time()
            lazy.collect()
            found[checked].append((time.perf_counter() - began, time.process_time() - used))
    tables.holds = holds
    with_it, without = (
        [median(pair[which] for pair in found[checked]) for which in (0, 1)] for checked in found
    )
    return with_it[0] / without[0] - 1, with_it[1] / without[1] - 1


def page(rounds: int) -> str:
    """Return the tables."""
    run_into_store(_spec().replace(seeds=(0, 1)), Path(tempfile.mkdtemp()) / "warm")
    load = os.getloadavg()[0]
    cuts = seconds_of_cuts(rounds)
    (small, small_used, units), (large, large_used, _) = cuts["3,000 small"], cuts["30 large"]
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside) / "tables"
        shares = {name: shares_of_part(part, REPEATS) for name, part in parts_of_tables(folder).items()}
        surplus = {name: surplus_of_reading(folder, name, REPEATS // 2) for name in TABLES}
    lines = [
        "# Many small units",
        "",
        f"A sweep of 30,000 runs into a store, in turn, medians of {rounds} rounds (`make many-units`). "
        f"The small units are merged when all is done ({units} are left), which is part of their time. "
        f"{os.cpu_count()} processors; the load of the machine was {load:.1f} before the rounds, "
        f"{os.getloadavg()[0]:.1f} at the end of all.",
        "",
        "| units | seconds | seconds of processors |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {took:.1f} | {used:.1f} |" for name, (took, used, _) in cuts.items()),
        f"| ratio (wanted: at most {LARGEST_RATIO:g}) "
        f"| {small / large:.2f} | {small_used / large_used:.2f} |",
        "",
        "## Digests of tables",
        "",
        f"A part of a table, read and held against its digest in turn, medians of {REPEATS} repeats (wanted: "
        f"at most {LARGEST_SHARE:.0%}). Reading uses all processors, a digest one: the share is told in time "
        "of processors too.",
        "",
        "| part of | MB | reading, ms | digest, ms | share | of processors |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {name} | {one.megabytes:.1f} | {one.reading:.1f} | {one.digest:.2f} "
            f"| {one.digest / one.reading:.0%} | {one.used:.0%} |"
            for name, one in shares.items()
        ),
        "",
        "Collecting a whole table, where a part is held against its digest while the one before is decoded, "
        "takes "
        + ", ".join(
            f"{wall:+.0%} for {name} ({used:+.0%} of processors)" for name, (wall, used) in surplus.items()
        )
        + " with digests.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    text = page(options.rounds)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
