"""Samples of an inference engine from its log or its metrics: what ran, the cache, the speed."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels._arguments import choice
from ...kernels.errors import NO_VALUE, ConfigError, Finding, many, nearest, shown_names
from ..checks import WholeNumber, checked, mapping_of, text_of
from .engine_lines import engine_records
from .frameworks import matching
from .log_findings import LogFinding
from .reading import NumberTable
from .tables import RawTable, read_table

if TYPE_CHECKING:
    import polars as pl

_FILE = files("lagsweep.sweeps.logs") / "column_maps" / "engines.toml"
COLUMNS = {
    "seconds": "when, from the first sample on",
    "rank": "which engine, or rank of one",
    "series": "samples that follow each other: counted up at every break",
    "running": "requests that decode",
    "waiting": "requests that wait",
    "cache_tokens": "tokens in the cache",
    "cache_fraction": "share of the cache that is used",
    "generated_tokens_per_second": "tokens decoded a second since the sample before",
    "prompt_tokens_per_second": "tokens prefilled a second since the sample before",
    "prefills": "batches prefilled since the sample before",
    "accepted_tokens": "tokens that a step gives a request, with speculation",
    "preemptions": "requests that lost their cache so far",
}
_NEEDED = ("running", "generated_tokens_per_second")
_ROLES = (*COLUMNS, "cache_percent", "cache_pool_tokens", "preallocated")
_BREAK = 5.0
_TOLD_SHARE = 0.3  # shares are printed with two digits: below this a token more or less is much


@dataclass(frozen=True)
class EngineLog:
    """Samples of one engine, or of its ranks.

    Attributes
    ----------
    frame : polars.DataFrame
        A row a sample, in the order of the file, with the columns ``seconds``, ``rank``, ``series``,
        ``running``, ``waiting``, ``cache_tokens``, ``cache_fraction``, ``generated_tokens_per_second``,
        ``prompt_tokens_per_second``, ``prefills``, ``accepted_tokens``, ``preemptions``; null where the
        log says nothing.
    engine : str
        ``vllm``, ``sglang`` or ``plain``.
    pool_tokens : int, optional
        What the cache holds, as it was given, as the engine printed it, or by tokens and their share.
    columns : mapping of str to str
        Which of the file's columns became which.
    findings : tuple of LogFinding
    source : str
    """

    frame: pl.DataFrame
    engine: str
    pool_tokens: int | None
    columns: Mapping[str, str]
    findings: tuple[LogFinding, ...]
    source: str

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self.frame)


@cache
def _engines() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def read_engine_log(
    path: str | os.PathLike[str],
    *,
    engine: str | None = None,
    kv_cache_tokens: int | None = None,
    where: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
) -> EngineLog:
    """Read the samples of an engine.

    Parameters
    ----------
    path : path
        The engine's console (``.log``, ``.txt``), or its metrics as CSV, JSON lines or parquet, each plain or
        with ``.gz``.
    engine : {"vllm", "sglang", "plain"}, optional
        Found by the columns' names when left out.
    kv_cache_tokens : int, optional
        What the cache holds, where the log does not say it.
    where : mapping of str to str, optional
        Column and text of the rows to keep.
    columns : mapping of str to str, optional
        The file's column of some of the frame's columns, or of ``cache_percent``, ``cache_pool_tokens``.

    Raises
    ------
    ConfigError
        If the file cannot be read, or does not say what ran and how fast.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "engine.csv"
    >>> _ = path.write_text("t_s,#running-req,#token,gen throughput (token/s)\\n0,8,900,80\\n5,8,1300,78\\n")
    >>> log = read_engine_log(path)
    >>> log.engine, log.frame["cache_tokens"].to_list()
    ('sglang', [900.0, 1300.0])
    """
    raw = _kept_rows(read_table(path, engine_records), where)
    table = NumberTable(raw)
    name = _engine_named(engine, table.names)
    given = mapping_of("columns", columns, f"Map some of {', '.join(_ROLES)}.")
    chosen, rates = _chosen(table, name, given)
    findings = [LogFinding("file", Path(raw.source).name, 0, "kept", words) for words in raw.notes]
    values = {role: table.numbers(column) for role, column in chosen.items()}
    pool = _pool(values, kv_cache_tokens, findings)
    _cache(values, pool, findings)
    pool = pool or _pool_by_shares(values, findings)
    count = len(raw.frame)
    seconds = values.get("seconds", np.full(count, np.nan))
    values.setdefault("rank", np.zeros(count))
    order, series = _series(seconds, values["rank"])
    values = {role: column[order] for role, column in values.items()}
    values["series"] = series
    for role in sorted(rates):
        values[role] = _rate(values[role], values, role)
        words = f"a counter: its growth over the time between rows ({chosen[role]})"
        findings.append(LogFinding("derived", role, count, "converted", words))
    if "seconds" in values and np.isfinite(values["seconds"]).any():
        values["seconds"] = values["seconds"] - np.nanmin(values["seconds"])
    findings += _looked_at(values, name, table)
    findings += table.form_findings()
    return EngineLog(
        _frame(values, count),
        name,
        pool,
        {role: column for role, column in chosen.items() if role in _ROLES},
        tuple(findings),
        raw.source,
    )


def _kept_rows(raw: RawTable, where: Any) -> RawTable:
    wanted = mapping_of("where", where, "Give column names and the text of the rows to keep.")
    frame = raw.frame
    rows = np.array(raw.rows)
    for column, text in wanted.items():
        text = text_of(f"where {column}", text, "Give it as text.")
        if column not in frame.columns:
            way_out = nearest(column, frame.columns) or f"It has {shown_names(frame.columns)}."
            raise ConfigError("where", f"must be a column of {Path(raw.source).name}", column, way_out)
        texts = ["" if value is None else str(value) for value in frame[column].to_list()]
        kept = np.flatnonzero(np.array([found == text for found in texts]))
        if not len(kept):
            way_out = f"It holds {shown_names(dict.fromkeys(texts))}."
            raise ConfigError(f"where {column}", "must be there", text, way_out)
        frame, rows = frame[kept], rows[kept]
    return RawTable(frame, raw.source, raw.kind, rows.tolist(), raw.notes)


def _engine_named(given: str | None, present: list[str]) -> str:
    known = _engines()
    if given is not None:
        return choice("engine", given, tuple(known))
    marks = {name: sum(bool(matching(mark, present)) for mark in one["marks"]) for name, one in known.items()}
    best = max(marks, key=lambda name: marks[name])
    return best if marks[best] else "plain"


def _chosen(table: NumberTable, engine: str, given: Mapping[str, Any]) -> tuple[dict[str, str], set[str]]:
    """Find the column of each role, and which of them are counters."""
    found: dict[str, str] = {}
    rates: set[str] = set()
    findings: list[Finding] = []
    for role, column in given.items():
        column = text_of(f"columns {role}", column, "Give a column's name.")
        if role not in _ROLES:
            findings.append(
                Finding("columns", f"must be one of {', '.join(_ROLES)}", role, nearest(role, _ROLES))
            )
        elif column not in table.names:
            way_out = nearest(column, table.names) or f"It has {shown_names(table.names)}."
            findings.append(Finding(f"columns {role}", "must be a column of the file", column, way_out))
        else:
            found[role] = column
    for role, ways in _engines()[engine]["columns"].items():
        for one in ways:
            column = one if isinstance(one, str) else one["rate"]
            if role not in found and column in table.names and not table.is_empty(column):
                found[role] = column
                rates |= set() if isinstance(one, str) else {role}
    for role in _NEEDED:
        if role not in found and not findings:
            rule = f"is required ({COLUMNS[role]}); the file has {shown_names(table.names)}"
            findings.append(Finding(f"column of {role}", rule, NO_VALUE, f"Name it: --column {role}=NAME."))
    if findings:
        raise ConfigError(*findings)
    return found, rates


def _pool(values: dict[str, np.ndarray], given: Any, findings: list[LogFinding]) -> int | None:
    """Return what the cache holds."""
    own = values.pop("cache_pool_tokens", np.zeros(0))
    own = np.unique(own[np.isfinite(own) & (own > 0)])
    if given is not None:
        return int(checked(WholeNumber, "kv_cache_tokens", given, low=1, high=2**52))
    if len(own) == 1:
        return int(own[0])
    if len(own) > 1:
        words = f"the cache has {many(len(own), 'size')} ({own[0]:,.0f} to {own[-1]:,.0f}): several engines"
        findings.append(LogFinding("several_runs", "cache_pool_tokens", len(own), "kept", words))
    return None


def _cache(values: dict[str, np.ndarray], pool: int | None, findings: list[LogFinding]) -> None:
    """Make the cache's columns agree: shares from percent, tokens from shares and what the cache holds."""
    if "cache_percent" in values:
        values["cache_fraction"] = values.pop("cache_percent") / 100
    share = values.get("cache_fraction")
    if share is not None and np.nanmax(np.append(share, 0)) > 1.5:
        words = "above 1 as a share: read as percent"
        findings.append(LogFinding("unit", "cache_fraction", len(share), "converted", words))
        values["cache_fraction"] = share / 100
    if "cache_tokens" not in values and share is not None and pool is not None:
        values["cache_tokens"] = values["cache_fraction"] * pool
        words = f"the share of {pool:,} tokens"
        findings.append(LogFinding("derived", "cache_tokens", len(share), "added", words))


def _pool_by_shares(values: Mapping[str, np.ndarray], findings: list[LogFinding]) -> int | None:
    """Work out what the cache holds from tokens and their share of it, where shares are large enough."""
    if not {"cache_tokens", "cache_fraction"} <= set(values):
        return None
    tokens, share = values["cache_tokens"], values["cache_fraction"]
    known = np.isfinite(tokens) & (share >= _TOLD_SHARE)
    if known.sum() < 5:
        return None
    pool = int(np.median(tokens[known] / share[known]))
    words = f"about {pool:,} tokens, by what is in it and its share"
    findings.append(LogFinding("derived", "kv_cache_tokens", int(known.sum()), "added", words))
    return pool


def _series(seconds: np.ndarray, rank: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Put the samples of a rank behind each other, and count up where time goes back or jumps."""
    order = np.argsort(np.nan_to_num(rank), kind="stable")
    apart = np.diff(seconds[order])
    same = np.diff(np.nan_to_num(rank[order])) == 0
    usual = np.median(apart[same & (apart > 0)]) if (same & (apart > 0)).any() else np.inf
    breaks = ~same | (apart < 0) | (apart > _BREAK * usual)
    return order, np.concatenate([[0], np.cumsum(breaks)]).astype(np.float64)


def _rate(counter: np.ndarray, values: Mapping[str, np.ndarray], role: str) -> np.ndarray:
    """Return how fast a counter grew since the row before; NaN where it fell or a series begins."""
    if "seconds" not in values:
        rule = "needs the time of each row, since it is a counter"
        raise ConfigError(f"column of {role}", rule, NO_VALUE, "Name it: --column seconds=NAME.")
    found = np.full(len(counter), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        grown = np.diff(counter) / np.diff(values["seconds"])
    fine = (np.diff(values["series"]) == 0) & np.isfinite(grown) & (grown >= 0)
    found[1:][fine] = grown[fine]
    return found


def _looked_at(values: dict[str, np.ndarray], engine: str, table: NumberTable) -> list[LogFinding]:
    """Say what a reader should know of the samples."""
    found = []
    if "preallocated" in values:
        some = int((np.nan_to_num(values.pop("preallocated")) > 0).sum())
        if some:
            words = (
                f"the cache holds pre-allocated tokens in {many(some, 'sample')}: more than is read in a step"
            )
            found.append(LogFinding("meaning", "cache_tokens", some, "kept", words))
    ranks = len(np.unique(values["rank"][np.isfinite(values["rank"])]))
    if ranks > 1:
        words = f"{ranks} ranks in one file, each with samples of its own"
        found.append(LogFinding("ranks", "rank", len(values["rank"]), "split", words))
    breaks = int(values["series"].max()) + 1 - ranks
    if breaks > 0:
        words = f"{many(breaks, 'break')} in time: no sample is held against the one before it there"
        found.append(LogFinding("gap", "seconds", breaks, "split", words))
    for role in ("running", "generated_tokens_per_second"):
        below = values[role] < 0
        if below.any():
            values[role] = np.where(below, np.nan, values[role])
            words = f"{many(int(below.sum()), 'sample')} below 0"
            found.append(LogFinding("negative", role, int(below.sum()), "left out", words))
    if "#full token" in table.names:
        words = "a hybrid model: of its layers only those with a full cache are counted in it"
        found.append(LogFinding("meaning", "cache_tokens", 0, "kept", words))
    return found


def _frame(values: Mapping[str, np.ndarray], count: int) -> pl.DataFrame:
    import polars as pl

    columns = []
    for name in COLUMNS:
        if name in ("rank", "series"):
            columns.append(pl.Series(name, np.nan_to_num(values[name]).astype(np.int64)))
            continue
        column = values.get(name, np.full(count, np.nan))
        columns.append(pl.Series(name, column, pl.Float64).fill_nan(None))
    return pl.DataFrame(columns)
