"""What a sweep would do: cells, bytes, time from a short calibration, and what a resume would do."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, StoreError
from ..execute.compiling import compile_first
from ..execute.plan import CELLS, Part, bytes_in_memory, guessed_run_seconds, plan_parts, total_runs
from ..execute.progress import Progress, duration
from ..execute.threads import checked_threads
from ..execute.work import run_block
from ..runs.many import RECORD_NOTHING
from ..spec.exclusions import exclusion_reasons
from ..spec.spec import SweepSpec
from ..spec.union import added, union_spec
from ..store.store import SweepStore

CALIBRATION_SECONDS = 1.0
CALIBRATION_CELLS = 32
CALIBRATION_SEEDS = 32
_GUESS_IS_OFF_BY = 12  # what a guess may be too small by


@dataclass(frozen=True)
class DryRun:
    """What a sweep would do.

    Attributes
    ----------
    facts : dict
        For JSON.
    text : str
        For people.
    """

    facts: dict[str, Any]
    text: str


def dry_run_report(
    spec: SweepSpec,
    folder: Path,
    unit_runs: int | None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DryRun:
    """Work out what running a sweep into a folder would do; nothing is written.

    Raises
    ------
    StoreError
        If the folder holds a sweep that this one does not extend.
    """
    workers = checked_threads(threads)
    parts = plan_parts(spec, unit_runs)
    cells = parts[0]
    plan, left, done = _against_store(spec, folder, parts)
    compile_first(spec.base, progress or Progress())
    run_seconds, measured = calibrate(cells)
    facts: dict[str, Any] = {
        "store": str(folder),
        "fingerprint": spec.fingerprint,
        "cells": cells.design.size,
        "excluded_cells": int(cells.excluded.sum()),
        "seeds": len(spec.seeds),
        "runs": total_runs(parts),
        "baseline_runs": sum(part.runs for part in parts if part.name != CELLS),
        "units": sum(part.layout.count for part in parts),
        "runs_per_unit": math.prod(cells.layout.chunks),
        "bytes_uncompressed": bytes_in_memory(parts),
        "seconds_per_run": run_seconds,
        "runs_measured": measured,
        "threads": workers,
        "plan": plan,
        "runs_done": done,
        "runs_left": left,
        "estimated_seconds": run_seconds * left / workers,
    }
    reasons = exclusion_reasons(spec)
    if reasons:
        facts["excluded_because"] = reasons
    return DryRun(facts, _text(spec, facts))


LONG_SECONDS = 60.0  # from here on a run says beforehand how long it will take …
LARGE_BYTES = 100e6  # … and how much it will write


def named_beforehand(
    spec: SweepSpec, folder: Path, unit_runs: int | None, *, threads: int | None, progress: Progress
) -> str:
    """Say how long a run will take and how much it will write; empty if it is short and small.

    Only what a guess from the settings calls long is measured, since that takes a second.
    """
    parts = plan_parts(spec, unit_runs)
    size, runs, workers = bytes_in_memory(parts), total_runs(parts), checked_threads(threads)
    guessed = runs * guessed_run_seconds(spec.base, spec.design) / workers
    if size < LARGE_BYTES and guessed < LONG_SECONDS / _GUESS_IS_OFF_BY:
        return ""
    try:
        _, left, _ = _against_store(spec, folder, parts)
    except (ConfigError, StoreError):
        return ""  # the run itself says what is wrong
    compile_first(spec.base, progress)
    run_seconds, _ = calibrate(parts[0])
    seconds = run_seconds * left / workers
    if left == 0 or (size < LARGE_BYTES and seconds < LONG_SECONDS):
        return ""
    at_most = "at most " if spec.until else ""
    return f"about {at_most}{duration(seconds)} on {_count(workers)}, {_bytes(size)} before compression"


def _against_store(spec: SweepSpec, folder: Path, parts: list[Part]) -> tuple[str, int, int]:
    """Tell what would happen to the folder, and how many runs are left and done."""

    if not folder.exists():
        return "make the store and run everything", total_runs(parts), 0
    store = SweepStore(folder)
    done = sum(int(store.done_mask(part, unit).sum()) for part, unit in store.units())
    if store.spec.fingerprint == spec.fingerprint:
        left = max(0, sum(math.prod(part.layout.shape) for part in store.parts) - done)
        if left == 0 and not store.complete:
            return "mark the store complete", 0, done
        return ("go on where it was" if left else "nothing: the store is complete"), left, done
    union = union_spec(store.spec, spec, folder)
    if union.fingerprint == store.spec.fingerprint:
        return "nothing new: the store holds this and more", 0, done
    left = max(0, sum(math.prod(part.layout.shape) for part in plan_parts(union)) - done)
    return f"extend the store by {added(store.spec, union)}", left, done


def calibrate(part: Part) -> tuple[float, int]:
    """Measure the seconds of one run on one core: some cells and seeds, spread over the sweep.

    Returns
    -------
    tuple of float and int
        Seconds of a run, and on how many runs they were measured.
    """

    kept = np.flatnonzero(~part.excluded.reshape(-1))
    # Strides that share no factor with most sizes, so that each axis is met at several values.
    cells = kept[np.unique((np.arange(min(CALIBRATION_CELLS, len(kept))) * 7919) % len(kept))]
    seeds = part.seeds[(np.arange(min(CALIBRATION_SEEDS, len(part.seeds))) * 104_729) % len(part.seeds)]
    configs = part.configs(cells)
    # The first call loads the kernels; it is not a run's time.
    run_block(configs[:1], seeds[:1], RECORD_NOTHING, None)
    began, runs = time.perf_counter(), 0
    for seed in seeds:
        # Together, as in the sweep: the configurations of a seed share its draws.
        run_block(configs, np.array([seed], np.uint64), RECORD_NOTHING, None)
        runs += len(configs)
        if time.perf_counter() - began > CALIBRATION_SECONDS:
            break
    return (time.perf_counter() - began) / runs, runs


def _text(spec: SweepSpec, facts: dict[str, Any]) -> str:
    axes = ", ".join(
        f"{name} {len(set(map(str, values)))}" for name, (_, values) in spec.design.columns.items()
    )
    excluded = f", {facts['excluded_cells']:,} excluded" if facts["excluded_cells"] else ""
    baseline = f", {facts['baseline_runs']:,} of them the baseline" if facts["baseline_runs"] else ""
    until = f"; at most, until {spec.until}" if spec.until else ""
    return "\n".join(
        [
            f"store      {facts['store']}",
            f"cells      {facts['cells']:,}{excluded} ({axes or 'no axes'})",
            *(f"           {reason}" for reason in facts.get("excluded_because", [])),
            f"runs       {facts['runs']:,} at {facts['seeds']:,} seeds{baseline}{until}",
            f"units      {facts['units']:,} of about {facts['runs_per_unit']:,} runs",
            f"size       {_bytes(facts['bytes_uncompressed'])} before compression",
            f"time       {duration(facts['estimated_seconds'])} on {_count(facts['threads'])} "
            f"({facts['seconds_per_run'] * 1e3:.3g} ms a run, measured on {facts['runs_measured']} runs)",
            f"would      {facts['plan']} ({facts['runs_left']:,} runs left, {facts['runs_done']:,} done)",
        ]
    )


def _count(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    return ""
