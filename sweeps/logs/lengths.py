"""Lengths of responses from records of rollouts: tokens, with prompt, step and version of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError, Finding, many, nearest, shown_names
from ..checks import mapping_of, text_of
from .log_findings import LogFinding
from .reading import NumberTable
from .tables import read_table

if TYPE_CHECKING:
    import polars as pl

# A column for each idea; names as logs have them, the first that is there counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "response_tokens": (
        "response_tokens", "response_length", "response_len", "completion_tokens", "completion_length",
        "output_tokens", "generated_tokens", "num_output_tokens", "num_generated_tokens", "tokens", "length",
        "usage/completion_tokens", "usage/output_tokens",
    ),
    "prompt": (
        "prompt", "prompt_id", "group", "group_id", "uid", "problem_id", "task_index", "task_id", "task",
        "item", "question_id", "index",
    ),
    "step": ("step", "global_step", "training_step", "train_step", "rl_step", "_step"),
    "version": (
        "version", "behaviour_version", "behavior_version", "policy_version", "weight_version",
        "head_version", "model_step", "param_version",
    ),
    "prompt_tokens": (
        "prompt_tokens", "prompt_length", "prompt_len", "input_tokens", "usage/prompt_tokens",
    ),
    "truncated": ("truncated", "is_truncated", "clipped", "aborted"),
}  # fmt: skip
_WHOLE = ("seqlen", "seq_len", "total_tokens", "sequence_length")  # prompts and responses together
_PLACES = ("env", "environment", "dataset", "data_source")  # where a prompt's number counts
_WORDS = {
    "response_tokens": "tokens of a response",
    "prompt": "which prompt it answers",
    "step": "the step that trained it",
    "version": "the version that it was begun with",
    "prompt_tokens": "tokens of its prompt",
    "truncated": "whether it was cut at the limit",
}


@dataclass(frozen=True)
class LengthRecords:
    """Responses, in the order of the file.

    Attributes
    ----------
    frame : polars.DataFrame
        ``response_tokens`` (int64), ``prompt`` (int64: prompts counted from 0 in the order of their first
        responses), ``step``, ``version``, ``prompt_tokens`` (int64) and ``truncated`` (bool); null where the
        file says nothing.
    columns : mapping of str to str
        Which of the file's columns became which.
    findings : tuple of LogFinding
    left_out : polars.DataFrame
        ``row`` and ``reason`` of what is not in the frame.
    source : str
    """

    frame: pl.DataFrame
    columns: Mapping[str, str]
    findings: tuple[LogFinding, ...]
    left_out: pl.DataFrame
    source: str

    def __len__(self) -> int:
        """Return how many responses there are."""
        return len(self.frame)


def read_lengths(path: str | os.PathLike[str], *, columns: Mapping[str, str] | None = None) -> LengthRecords:
    """Read the lengths of responses.

    Parameters
    ----------
    path : path
        CSV, JSON lines, JSON or parquet, each plain or with ``.gz``; a row a response.
    columns : mapping of str to str, optional
        The file's column of ``response_tokens``, ``prompt``, ``step``, ``version``, ``prompt_tokens`` or
        ``truncated``; found by their names when left out.

    Raises
    ------
    ConfigError
        If it cannot be read, has no column of lengths, or no row with one.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lengths.csv"
    >>> _ = path.write_text("uid,response_length,step\\nb,120,1\\na,80,1\\nb,100,1\\n")
    >>> read_lengths(path).frame.select("response_tokens", "prompt", "step").rows()
    [(120, 0, 1), (80, 1, 1), (100, 0, 1)]
    """
    table = NumberTable(read_table(path))
    name = Path(table.table.source).name
    chosen = _chosen(table, mapping_of("columns", columns, f"Map some of {', '.join(NAMES)}."), name)
    findings = [LogFinding("file", name, 0, "kept", words) for words in table.table.notes]
    tokens = table.numbers(chosen["response_tokens"])
    if chosen["response_tokens"] in _WHOLE:
        tokens = tokens - table.numbers(chosen["prompt_tokens"])
        words = f"{chosen['response_tokens']} less {chosen['prompt_tokens']}: it holds the prompt"
        findings.append(LogFinding("derived", "response_tokens", len(tokens), "converted", words))
    reasons = np.full(len(tokens), "", dtype=object)
    reasons[~np.isfinite(tokens)] = "has no length"
    with np.errstate(invalid="ignore"):
        reasons[np.isfinite(tokens) & (tokens != np.floor(tokens))] = "its length is no whole number"
        reasons[np.isfinite(tokens) & ((tokens < 1) | (tokens > 2**52))] = (
            "its length is below 1, or too large"
        )
    kept = reasons == ""
    if not kept.any():
        rule = f"must hold lengths ({chosen['response_tokens']!r} has none: {reasons[0]})"
        raise ConfigError(name, rule, NO_VALUE, "Name another column: --column response_tokens=NAME.")
    if (~kept).any():
        words = f"{many(int((~kept).sum()), 'row')} without a length that is a whole number above 0"
        findings.append(
            LogFinding("broken", chosen["response_tokens"], int((~kept).sum()), "left out", words)
        )
    findings += _doubts(tokens[kept], chosen)
    findings += table.form_findings()
    return LengthRecords(
        _frame(table, chosen, kept, tokens),
        chosen,
        tuple(findings),
        _left_out(reasons, table.table.rows),
        str(path),
    )


def _chosen(table: NumberTable, given: Mapping[str, Any], name: str) -> dict[str, str]:
    """Find the column of each idea."""
    found: dict[str, str] = {}
    findings: list[Finding] = []
    for role, column in given.items():
        column = text_of(f"columns {role}", column, "Give a column's name.")
        if role not in NAMES:
            rule = f"must be one of {', '.join(NAMES)}"
            findings.append(Finding("columns", rule, role, nearest(role, NAMES)))
        elif column not in table.names:
            way_out = nearest(column, table.names) or f"It has {shown_names(table.names)}."
            findings.append(Finding(f"columns {role}", "must be a column of the file", column, way_out))
        else:
            found[role] = column
    for role, names in NAMES.items():
        if role not in found:
            there = next((one for one in names if one in table.names and one not in found.values()), None)
            found |= {} if there is None else {role: there}
    whole = next((one for one in _WHOLE if one in table.names), None)
    if "response_tokens" not in found and "prompt_tokens" in found and whole is not None:
        found["response_tokens"] = whole
    if "response_tokens" not in found and not findings:
        rule = f"has no column of lengths; it has {shown_names(table.names)}"
        findings.append(Finding(name, rule, NO_VALUE, "Name it: --column response_tokens=NAME."))
    if findings:
        raise ConfigError(*findings)
    return found


def _doubts(tokens: np.ndarray, chosen: Mapping[str, str]) -> list[LogFinding]:
    """Say what cannot be told from these lengths."""
    found = []
    values, counts = np.unique(tokens, return_counts=True)
    if len(values) == 1 and len(tokens) > 1:
        words = f"{values[0]:g} in every row: a limit, not lengths"
        found.append(LogFinding("constant", chosen["response_tokens"], len(tokens), "kept", words))
    elif counts[-1] > 0.02 * len(tokens) and counts[-1] > 1:
        words = (
            f"{counts[-1] / len(tokens):.0%} are {values[-1]:g} long, the most that any is: cut at a limit"
        )
        found.append(LogFinding("cut", chosen["response_tokens"], int(counts[-1]), "kept", words))
    for role in ("prompt", "step", "version"):
        if role not in chosen:
            found.append(LogFinding("missing", role, 0, "kept", f"no column says {_WORDS[role]}"))
    return found


def _frame(
    table: NumberTable, chosen: Mapping[str, str], kept: np.ndarray, tokens: np.ndarray
) -> pl.DataFrame:
    import polars as pl

    columns = []
    count = int(kept.sum())
    for role in NAMES:
        if role not in chosen:
            kind = pl.Boolean if role == "truncated" else pl.Int64
            columns.append(pl.Series(role, [None] * count, kind))
        elif role == "prompt":
            texts = _prompts(table, chosen[role])[kept]
            number: dict[str, int] = {}
            ids = [number.setdefault(text, len(number)) if text else None for text in texts]
            columns.append(pl.Series(role, ids, pl.Int64))
        elif role == "truncated":
            texts = np.array(table.texts(chosen[role]), dtype=object)[kept]
            said = [None if not text else text.lower() in ("true", "1", "1.0", "yes") for text in texts]
            columns.append(pl.Series(role, said, pl.Boolean))
        else:
            numbers = (tokens if role == "response_tokens" else table.numbers(chosen[role]))[kept]
            whole = [int(each) if np.isfinite(each) else None for each in numbers.tolist()]
            columns.append(pl.Series(role, whole, pl.Int64))
    return pl.DataFrame(columns)


def _prompts(table: NumberTable, column: str) -> np.ndarray:
    """Return which prompt each row is of; its number counts within its environment or data set."""
    own = table.texts(column)
    places = [table.texts(one) for one in _PLACES if one in table.names and one != column]
    joined = ["\0".join(parts) if parts[0] else "" for parts in zip(own, *places)]
    return np.array(joined, dtype=object)


def _left_out(reasons: np.ndarray, rows: list[int]) -> pl.DataFrame:
    import polars as pl

    gone = [(row, reason) for row, reason in zip(rows, reasons.tolist()) if reason]
    return pl.DataFrame(gone, schema={"row": pl.Int64, "reason": pl.String}, orient="row")
