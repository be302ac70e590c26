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
    from lagsweep.sweeps.store import open_sweep

    return print_result(open_sweep(store), store, as_json=as_json)


def print_result(dataset: Any, folder: Path, *, as_json: bool) -> int:
    """Print a result's table, or its facts as JSON; gives the exit code: 1 if runs failed."""
    from lagsweep.sweeps.analysis import frontier

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
    if counts["failed"]:
        click.echo(f"failed: {counts['failed']:,} runs", err=True)
        for line in failure_lines(dataset):
            click.echo(line, err=True)
        return 1
    return 0


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
        lines.append(
            f"  and {len(places) - most:,} more: lagsweep.sweeps.store.read_table(folder, 'failures')"
        )
    return lines


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
