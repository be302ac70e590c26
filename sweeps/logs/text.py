"""What is printed of logs: which columns were read as what, what was found, and a step's parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...kernels.errors import many
from ..engines.text import digits, reading
from ..results.text import grid, terminal_width, wrapped
from .canonical import COLUMNS
from .frameworks import shipped_frameworks
from .log_findings import LogFinding

if TYPE_CHECKING:
    from .engine_samples_fit import EngineSamplesFit
    from .step_log import StepLog


def step_log_text(log: StepLog) -> str:
    """Return a step log's columns and findings as text."""
    width = terminal_width()
    parts = [wrapped(step_log_heading(log), width=width), ""]
    header, rows = column_rows(log)
    parts += [grid(header, rows, left=[0, 1], width=width), ""]
    parts += finding_lines(log.findings, width)
    reasons = log.left_out["reason"].value_counts(sort=True).rows()
    gone = "; ".join(f"{many(count, 'row')}: {reason}" for reason, count in reasons)
    parts += [wrapped(f"Left out: {gone}.", indent="  ", first="", width=width)] if gone else []
    return "\n".join(parts)


def step_log_heading(log: StepLog) -> str:
    """Say in a sentence how many steps of which framework were read."""
    known = shipped_frameworks()
    titles = " and ".join(known[name].title if name in known else name for name in log.frameworks)
    files = ", ".join(Path(source).name for source in log.sources)
    runs = log.frame["run"].n_unique()
    segments = log.frame.select("run", "segment").n_unique()
    parts = [many(len(log), "step")]
    parts += [many(runs, "run")] if runs > 1 else []
    parts += [many(segments, "segment")] if segments > runs else []
    return f"{' in '.join(parts)} of {titles}, from {files}."


def column_rows(log: StepLog) -> tuple[list[str], list[list[str]]]:
    """Return the table of columns: header and rows."""
    rows = []
    for name, one in log.columns.items():
        values = log.frame[name].drop_nulls()
        middle = digits(float(np.median(values.to_numpy()))) if len(values) else "-"
        unit = "" if COLUMNS[name].unit == "share" else COLUMNS[name].unit
        rows.append([name, str(one), f"{len(values):,}", middle, unit])
    return ["column", "read from", "steps", "median", "unit"], rows


def finding_lines(findings: Sequence[LogFinding], width: int) -> list[str]:
    """Return findings as wrapped lines."""
    return [
        wrapped(f"{one.about}: {one.words} ({one.done})", first="- ", indent="  ", width=width)
        for one in findings
    ]


def engine_samples_heading(fit: EngineSamplesFit) -> str:
    """Say in a sentence what was fitted to what."""
    name = Path(fit.log.source).name
    engine = {"vllm": "vLLM", "sglang": "SGLang"}.get(fit.log.engine, "an engine")
    start = f"{many(len(fit.log), 'sample')} of {engine} from {name}, {fit.samples:,} of decoding alone"
    if fit.refusals:
        return f"{start}: no step can be fitted."
    return f"{start}: a step fitted to {fit.kept:,} of them, half of all within {fit.median_error:.2%}."


def samples_coefficient_rows(fit: EngineSamplesFit) -> tuple[list[str], list[list[str]]]:
    """Return the table of a step's parts: header and rows."""
    shown = [*fit.coefficients, *([fit.step_interval] if fit.step_interval else [])]
    rows = []
    for one in shown:
        value, ends, unit = reading(one) if one.name != "typical_step" else _in_milliseconds(one)
        rows.append([one.words, value, unit or "s", ends])
    return ["a step", "value", "unit", "95 % interval"], rows


def _in_milliseconds(one: object) -> tuple[str, str, str]:
    value, low, high = (digits(1e3 * getattr(one, name)) for name in ("value", "low", "high"))
    return value, f"{low} to {high}", "ms"


def engine_samples_text(fit: EngineSamplesFit, written: str = "") -> str:
    """Return what ``lagsweep engine fit --samples`` prints."""
    width = terminal_width()
    parts = [wrapped(engine_samples_heading(fit), width=width), ""]
    if fit.refusals:
        parts += [wrapped(reason, first="- ", indent="  ", width=width) for reason in fit.refusals]
    else:
        header, rows = samples_coefficient_rows(fit)
        parts += [grid(header, rows, left=[0, 3], width=width), ""]
        parts += [wrapped(note, first="- ", indent="  ", width=width) for note in fit.notes]
    parts += ["", "Found in the log:", *finding_lines(fit.findings, width)] if fit.findings else []
    read = "; ".join(f"{name}: {column!r}" for name, column in fit.log.columns.items())
    parts += ["", wrapped(f"Columns: {read}.", indent="  ", first="", width=width)]
    return "\n".join([*parts, *([written] if written else [])])
