"""``lagsweep show``: the table of a stored result."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every cell as JSON.")
def command(store: Path, as_json: bool) -> int:
    """Print the table of a stored sweep: throughput against ESS, with intervals.

    STORE is the sweep's folder. A sweep that is not finished is shown as far as it is.
    """
    from ..store.store import open_sweep

    return print_result(open_sweep(store), store, as_json=as_json)


def print_result(dataset: Any, folder: Path, *, as_json: bool) -> int:
    """Print a result's table, or its facts as JSON; gives the exit code: 1 if runs failed."""
    from ..results.frontier import frontier

    status = dataset["status"].values
    counts = {
        name: int((status == code).sum())
        for code, name in enumerate(("not_run", "done", "failed", "excluded"))
    }
    found = frontier(dataset)
    if as_json:
        facts = {
            "store": str(folder),
            "fingerprint": dataset.attrs["fingerprint"],
            "complete": bool(dataset.attrs["complete"]),
            "runs": counts,
            "drift_per_version": found.drift_per_version,
            "baseline": _finite(found.baseline) if found.baseline else None,
            "cells": [_finite(row) for row in found.frame.iter_rows(named=True)],
        }
        click.echo(json.dumps(facts, default=_plain))
    else:
        click.echo(str(found))
    if not dataset.attrs["complete"]:
        click.echo(f"incomplete: {counts['not_run']:,} runs are missing; the run's command goes on", err=True)
    for line in remarks(dataset):
        click.echo(line, err=True)
    failed_baseline = (
        int((dataset["baseline_status"].values == 2).sum()) if "baseline_status" in dataset else 0
    )
    if counts["failed"] or failed_baseline:
        of_baseline = f", and {failed_baseline:,} of the sequential baseline" if failed_baseline else ""
        click.echo(f"failed: {counts['failed']:,} runs{of_baseline}", err=True)
        for line in failure_lines(dataset):
            click.echo(line, err=True)
        return 1
    return 0


def remarks(dataset: Any) -> list[str]:
    """Say what a table of means does not show: settings that came to nothing, a missing baseline."""
    from ..spec.carried import spec_of

    done = dataset["status"] == 1
    ran = done.any("seed")
    lines = []
    stalled = int((ran & ((dataset["stalled"] == 1) | ~done).all("seed")).sum())
    nothing = int((ran & ((dataset["updates"] == 0) | ~done).all("seed")).sum())
    why = "`lagsweep simulate` with such settings says why"
    if stalled:
        lines.append(f"note: stalled in every run: {stalled:,} of {int(ran.sum()):,} configurations; {why}")
    if nothing:
        lines.append(
            f"note: trained nothing in any run: {nothing:,} of {int(ran.sum()):,} configurations; {why}"
        )
    if spec_of(dataset).baseline and "baseline_status" not in dataset:
        lines.append("note: no sequential baseline: it has no meaning beside options of levels 2 and 3")
    return lines


def failure_lines(dataset: Any, most: int = 20) -> list[str]:
    """Say which runs failed and why, one line each."""
    import numpy as np

    if "reason" not in dataset:
        return []
    reasons = dataset["reason"]
    places = np.argwhere(dataset["status"].values == 2)
    lines = []
    for place in places[:most]:
        one = reasons[tuple(place)]
        at = " ".join(f"{dim}={one[dim].item()}" for dim in reasons.dims if dim in one.coords)
        lines.append(f"  cell {one['cell'].item()} {at}: {one.item()}")
    if len(places) > most:
        lines.append(f"  and {len(places) - most:,} more: lagsweep.read_table(folder, 'failures')")
    return lines


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
