"""What several commands share, so that none imports another: settings, executor, a stored result's table."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from ...kernels.errors import many
from ..json_text import document_pieces
from ..results.cells import not_recorded, not_recorded_note
from ..results.drift_words import drift_facts
from ..results.words import cut_note
from ..runs.diagnosis import too_short_for_an_update
from ..runs.status import DONE, FAILED, STATUS_NAMES
from ..spec.carried import spec_of
from ..spec.engine_files import with_engine_fields
from ..spec.exclusions import exclusion_reasons
from .config_flags import changes_from_flags, preset_from_flags

PROGRAM = "lagsweep"
INTERRUPTED_NOTE = "stopped; what is finished is kept. To go on:"


def executor_of(
    executor: str, dask: str | None, threads: int | None
) -> contextlib.AbstractContextManager[Any]:
    """Return the executor that the flags name; a Dask cluster is connected, or started, for the while."""
    if dask is None:
        return contextlib.nullcontext(executor)
    from ..execute.dask import connect

    return connect(dask, threads)


def program() -> str:
    """Return the program as it was called, so that what is printed can be pasted."""
    called = sys.argv[0] if sys.argv else ""
    if Path(called).name != PROGRAM or os.sep not in called:
        return PROGRAM
    found = shutil.which(PROGRAM)
    on_path = found is not None and os.path.realpath(found) == os.path.realpath(called)
    return PROGRAM if on_path else called


def this_command() -> str:
    """Return the command line that was typed, to be given again."""
    return shlex.join([program(), *sys.argv[1:]])


def config_from_options(options: dict[str, Any]) -> Any:
    """Build the configuration from flags, on top of a preset if one is named."""
    from ..config.config import PipelineConfig

    changes = changes_from_flags(options) | preset_from_flags(options.get("preset"), options.get("knobs", ()))
    changes = with_engine_fields({}, changes)
    preset = changes.pop("preset", None)
    if preset is None:
        return PipelineConfig(**changes)
    from ..presets.registry import preset_config

    return preset_config(preset, **changes)


def tell_compiling(config: Any, quiet: bool) -> None:
    """Say that kernels are compiled, when they are; None is any configuration."""
    from ..execute.compiling import COMPILING, kernels_are_kept

    if not quiet and not kernels_are_kept(config is not None and config.is_level_1):
        click.echo(COMPILING, err=True)


def print_result(dataset: Any, folder: Path, *, as_json: bool, content: str = "") -> int:
    """Print a result's table, or its facts as JSON, with the digest of its runs; 1 if runs failed, else 0."""
    from ..results.cadence import cadence_curves
    from ..results.cadence_text import cadence_facts, cadence_text
    from ..results.cell_table import plain_rows
    from ..results.frontier import frontier

    status = dataset["status"].values
    counts = {name.replace(" ", "_"): int((status == code).sum()) for code, name in enumerate(STATUS_NAMES)}
    found = frontier(dataset)
    cadence = cadence_curves(dataset)
    if as_json:
        facts = {
            "store": str(folder),
            "fingerprint": dataset.attrs["fingerprint"],
            "complete": bool(dataset.attrs["complete"]),
            **({"content": content} if content else {}),
            "runs": counts,
            **drift_facts(spec_of(dataset)),
            "baseline": found.baseline or None,
            "scenarios": [{"values": values, "baseline": beside} for values, beside in found.scenarios],
            "cells": plain_rows(found.frame),
        }
        if cadence is not None:
            facts["cadence"] = cadence_facts(cadence)
        if lost := not_recorded(dataset):
            facts["not_recorded"] = list(lost)
        for piece in document_pieces("sweep", facts):
            click.echo(piece, nl=False)
        click.echo()
    else:
        click.echo(str(found))
        if cadence is not None:
            click.echo(f"\n{cadence_text(cadence)}")
        if content:
            click.echo(f"content {content}: that of all stores of these runs", err=True)
    if not dataset.attrs["complete"]:
        missing, are = many(counts["not_run"], "run"), "is" if counts["not_run"] == 1 else "are"
        click.echo(f"incomplete: {missing} {are} missing; the run's command goes on", err=True)
    for line in remarks(dataset):
        click.echo(line, err=True)
    failed_baseline = (
        int((dataset["baseline_status"].values == FAILED).sum()) if "baseline_status" in dataset else 0
    )
    if counts["failed"] or failed_baseline:
        of_baseline = f", and {failed_baseline:,} of the sequential baseline" if failed_baseline else ""
        click.echo(f"failed: {many(counts['failed'], 'run')}{of_baseline}", err=True)
        for line in failure_lines(dataset):
            click.echo(line, err=True)
        return 1
    return 0


def remarks(dataset: Any) -> list[str]:
    """Say what a table of means does not show: settings that came to nothing, a missing baseline."""
    from ..spec.carried import spec_of

    done = dataset["status"] == DONE
    ran = done.any("seed")
    lines = []
    lost = not_recorded(dataset)
    lines += [f"note: {not_recorded_note(lost)}"] if lost else []
    never = done & False  # of a store that does not say it
    stopped = dataset["stalled"] == 1 if "stalled" in dataset else never
    idle = dataset["updates"] == 0 if "updates" in dataset else never
    stalled = int((ran & (stopped | ~done).all("seed")).sum())
    untrained = ran & (idle | ~done).all("seed")
    nothing = int(untrained.sum())
    why = "`lagsweep simulate` with such settings says why"
    if stalled:
        lines.append(f"note: stalled in every run: {stalled:,} of {int(ran.sum()):,} configurations; {why}")
    if nothing:
        lines.append(
            f"note: trained nothing in any run: {nothing:,} of {int(ran.sum()):,} configurations; {why}"
        )
    halted = (stopped | idle) & done
    partly = int((halted.any("seed") & ~(halted | ~done).all("seed")).sum())
    if partly:
        of = f"{partly:,} of {int(ran.sum()):,} configurations"
        lines.append(f"note: stalled or trained nothing in some runs: {of}; {why}")
    spec = spec_of(dataset)
    if stalled or nothing or partly:
        lines += _small_caps(spec)
    if nothing:
        first = int(untrained.values.ravel().argmax())
        short = too_short_for_an_update(spec.config(first))
        lines += [f"note: the run is too short in the first of them: {short}"] if short else []
    lines += [f"note: left out: {reason}" for reason in exclusion_reasons(spec, constraints=False)]
    if spec.custom is not None:
        lines.append(f"note: with rules of your own: {spec.custom.describe()}")
    lines += [f"note: {cut}" for law in spec.length_laws if (cut := cut_note(law))]
    if spec.baseline and "baseline_status" not in dataset:
        lines.append("note: no sequential baseline: it has no meaning beside options of generation or rules")
    return lines


def _small_caps(spec: Any) -> list[str]:
    """Say that a queue cap is below a batch, where runs stalled and cells have such a cap."""
    held = {name: column[1] for name, column in spec.design.columns.items()}
    caps = held.get("queue_cap", held.get("max_queue_tokens", (spec.base.max_queue_tokens,)))
    batches = held.get("batch_tokens", (spec.base.batch_tokens,))
    small = [cap for cap in caps if cap is not None]
    large = [batch for batch in batches if batch is not None]
    if not small or not large or min(small) >= max(large):
        return []
    return [
        f"note: a queue cap of {min(small):,} tokens is below a batch of {max(large):,}: the queue closes "
        "before the batch is there; --max-queue-tokens none, or at least a batch, ends that"
    ]


def failure_lines(dataset: Any, most: int = 20) -> list[str]:
    """Say which runs failed and why, one line each."""
    import numpy as np

    if "reason" not in dataset:
        return []
    reasons = dataset["reason"]
    places = np.argwhere(dataset["status"].values == FAILED)
    lines = []
    for place in places[:most]:
        one = reasons[tuple(place)]
        at = " ".join(f"{dim}={one[dim].item()}" for dim in reasons.dims if dim in one.coords)
        lines.append(f"  cell {one['cell'].item()} {at}: {one.item()}")
    if len(places) > most:
        lines.append(f"  and {len(places) - most:,} more: lagsweep.read_table(folder, 'failures')")
    return lines
