"""Cost of small units: one sweep into a store, cut into 3,000 units and into 30, measured in turn.

Prints a table in Markdown, or writes it (``--output``). The smallest time of each cut over some rounds
counts. Figures depend on the machine, ratios much less. Small units are merged at the end; that is part of
their time.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from lagsweep import LengthLaw, PipelineConfig
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.digests import fast_digest, holds
from lagsweep.sweeps.store.store import SweepStore
from lagsweep.sweeps.store.writing import run_into_store

CUTS = {"3,000 small": 10, "30 large": 1000}  # runs of a unit
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
    """Run the sweep with each cut in turn: smallest seconds, smallest seconds of processors, units left."""
    spec = _spec()
    found = dict.fromkeys(CUTS, (float("inf"), float("inf"), 0))
    for _ in range(rounds):
        for name, runs in CUTS.items():
            with tempfile.TemporaryDirectory() as aside:
                folder = Path(aside) / "store"
                began, used = time.perf_counter(), time.process_time()
                run_into_store(spec, folder, unit_runs=runs)
                took = time.perf_counter() - began, time.process_time() - used
                units = SweepStore(folder).part("cells").layout.count
                shutil.rmtree(folder)
            found[name] = (min(found[name][0], took[0]), min(found[name][1], took[1]), units)
    return found


def milliseconds_of_digests(rounds: int) -> dict[str, float]:
    """Read a part of a table of 600,000 rows, and hold it against a digest of either form."""
    count, random = 600_000, np.random.default_rng(1)
    columns = {
        "cell": np.repeat(np.arange(60), count // 60),
        "seed": np.tile(np.arange(count // 60, dtype=np.uint64), 60),
        "at": random.random(count),
        "tokens": random.random(count),
    }
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, statistics=True)
    part = content.getvalue()
    with tempfile.NamedTemporaryFile() as file:
        file.write(part)
        file.flush()
        path = Path(file.name)
        told = fast_digest(part)
        acts = {
            "reading": lambda: pl.read_parquet(io.BytesIO(path.read_bytes())),
            "digest": lambda: holds(part, told),
        }
        found = dict.fromkeys(acts, float("inf"))
        for _ in range(5 * rounds):
            for name, act in acts.items():
                began = time.perf_counter()
                act()
                found[name] = min(found[name], 1e3 * (time.perf_counter() - began))
    return found | {"megabytes": len(part) / 1e6}


def page(rounds: int) -> str:
    """Return the tables."""
    run_into_store(_spec().replace(seeds=(0, 1)), Path(tempfile.mkdtemp()) / "warm")
    cuts, digests = seconds_of_cuts(rounds), milliseconds_of_digests(rounds)
    (small, small_used, units), (large, large_used, _) = cuts["3,000 small"], cuts["30 large"]
    share = digests["digest"] / digests["reading"]
    lines = [
        "# Many small units",
        "",
        f"A sweep of 30,000 runs into a store, in turn, the smallest of {rounds} rounds (`make many-units`). "
        f"The small units are merged when all is done ({units} are left), which is part of their time.",
        "",
        "| units | seconds | seconds of processors |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {took:.1f} | {used:.1f} |" for name, (took, used, _) in cuts.items()),
        f"| ratio (wanted: at most {LARGEST_RATIO:g}) "
        f"| {small / large:.2f} | {small_used / large_used:.2f} |",
        "",
        f"A part of a table of {digests['megabytes']:.1f} MB: read in {digests['reading']:.1f} ms, held "
        f"against its digest in {digests['digest']:.1f} ms: {share:.0%} "
        f"(wanted: at most {LARGEST_SHARE:.0%}).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    text = page(options.rounds)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
