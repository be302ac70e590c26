"""Any file of a log as one table of named columns, as it stands there: nothing is read as a number yet."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels.errors import ConfigError
from ..checks import path_of
from ..user_files import MOST_BYTES, decoded, parse_json, read_bytes, refuse_pipe, table_errors, unpacked

if TYPE_CHECKING:
    import polars as pl

_KINDS = {
    ".csv": "csv", ".tsv": "tsv", ".jsonl": "json_lines", ".ndjson": "json_lines", ".json": "json",
    ".parquet": "parquet", ".log": "console", ".txt": "console", ".out": "console",
}  # fmt: skip
_DEEPEST = 6
_AGAIN = re.compile(r"_duplicated_\d+$")
_CHART_AXES = {"step", "_step", "global_step", "wall time", "relative time (wall)", "relative time (process)"}


@dataclass(frozen=True)
class RawTable:
    """A file's columns as they stand there.

    Attributes
    ----------
    frame : polars.DataFrame
        Texts or numbers, a row a record.
    source : str
        The file.
    kind : str
        ``csv``, ``json_lines``, ``json``, ``parquet``, ``console`` or ``tensorboard``.
    rows : list of int
        The number of each record in its file, from 1.
    notes : list of str
        What a reader should know of the file itself.
    """

    frame: pl.DataFrame
    source: str
    kind: str
    rows: list[int]
    notes: list[str] = field(default_factory=list)


def read_table(path: Any, console: Callable[[str, str], list[dict[str, Any]]] | None = None) -> RawTable:
    """Read a file by its suffix, packed or not.

    Parameters
    ----------
    path : path
        ``.csv``, ``.tsv``, ``.jsonl``, ``.ndjson``, ``.json``, ``.parquet``, console text (``.log``,
        ``.txt``, ``.out``), each also with ``.gz`` behind, or a TensorBoard event file or the folder of some.
    console : callable, optional
        What turns a text and its file's name into records; without it console text is refused.

    Raises
    ------
    ConfigError
        If it cannot be read, is of no such kind, or has no record.
    """
    place = path_of("path", path)
    if place.is_dir() and not any(place.glob("*tfevents*")):
        rule = "must be a file, or a folder with TensorBoard's event files"
        raise ConfigError("path", rule, str(place), "Name the log's file.")
    if "tfevents" in place.name or place.is_dir():
        from .tensorboard import read_scalars

        return RawTable(*read_scalars(place))
    refuse_pipe(place, "path")
    packed = place.suffix.lower() == ".gz"
    kind = _KINDS.get(Path(place.stem if packed else place.name).suffix.lower(), "")
    if not kind or (kind == "console" and console is None):
        rule = f"must end in {', '.join(_KINDS)}, or so with .gz, or be TensorBoard's"
        raise ConfigError("path", rule, str(place), "Convert the file to one of them.")
    content = read_bytes(place, "path", most=MOST_BYTES if packed else None)
    if packed:
        content = unpacked(content, "path", str(place))
    notes: list[str] = []
    if kind == "parquet":
        frame = _typed(content, place)
    elif kind in ("csv", "tsv"):
        frame = of_one_run(_separated(content, place, "," if kind == "csv" else "\t", notes), notes)
    else:
        text = decoded(content, "path", str(place))
        if kind == "console":
            assert console is not None
            records: Iterable[Any] = console(text, place.name)
        else:
            records = _json_records(text, place, kind, notes)
        frame = _from_records([flat(record) for record in records])
    if not len(frame) or not frame.width:
        rule = "must hold at least one row of values"
        raise ConfigError("path", rule, str(place), "Name a file with the steps of a run.")
    return RawTable(frame, str(place), kind, list(range(1, len(frame) + 1)), notes)


def _separated(content: bytes, place: Path, separator: str, notes: list[str]) -> pl.DataFrame:
    """Read text with separators; a header that comes again, as in files put together, is no row."""
    import polars as pl

    whole = decoded(content, "path", str(place))
    if not whole.strip():
        return pl.DataFrame()
    header, _, _ = whole.partition("\n")
    if separator == "," and "," not in header and ";" in header:
        separator = ";"
        notes.append("separated by semicolons")
    before, _, last = whole.rpartition("\n")
    if before and last.strip() and last.count(separator) < header.count(separator):
        whole = before
        notes.append("the last line is cut off and was left out")
    text = whole.encode()
    try:
        frame = pl.read_csv(text, infer_schema=False, separator=separator)
    except table_errors() as error:
        raise _unreadable(place, error) from None
    twice = [name for name in frame.columns if _AGAIN.search(name)]
    if twice:
        notes.append(f"columns of a name that stood before: {', '.join(twice[:4])}; the first counts")
        frame = frame.drop(twice)
    first = frame.columns[0]
    headers = frame[first].eq_missing(pl.Series([first]))
    if headers.any():
        notes.append(f"the header stands in it {int(headers.sum()) + 1} times")
        frame = frame.filter(~headers)
    return frame


def of_one_run(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Turn a chart's export, with a column for each run and metric, into rows that name their run.

    Examples
    --------
    >>> import polars as pl
    >>> wide = pl.DataFrame({"Step": [1], "a - time": [5.0], "a - time__MIN": [5.0], "b - time": [6.0]})
    >>> of_one_run(wide, []).rows()
    [(1, 'a', 5.0), (1, 'b', 6.0)]
    """
    import polars as pl

    split = {name: name.rpartition(" - ") for name in frame.columns if " - " in name}
    rest = [name for name in frame.columns if name not in split]
    if not split or len(rest) > 3 or not {name.lower() for name in rest} <= _CHART_AXES:
        return frame
    runs = list(dict.fromkeys(run for run, _, _ in split.values()))
    parts = []
    for run in runs:
        own = {name: metric for name, (of, _, metric) in split.items() if of == run}
        own = {name: metric for name, metric in own.items() if not metric.endswith(("__MIN", "__MAX"))}
        part = frame.select(*rest, pl.lit(run).alias("run"), *(pl.col(name).alias(own[name]) for name in own))
        parts.append(part)
    notes.append(f"a chart's export with {len(runs)} runs side by side, a column each")
    return pl.concat(parts, how="diagonal")


def _typed(content: bytes, place: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(io.BytesIO(content))
    except table_errors() as error:
        raise _unreadable(place, error) from None


def _unreadable(place: Path, error: BaseException) -> ConfigError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ConfigError("path", "must be a well-formed file", str(place), f"Reader: {reason}.")


def _json_records(text: str, place: Path, kind: str, notes: list[str]) -> Iterable[Any]:
    """Return the objects of a JSON document or of JSON lines; a last line that was cut off is left out."""
    if kind == "json":
        found = parse_json(text, place.name)
        records = found if isinstance(found, list) else [found]
        for number, record in enumerate(records, start=1):
            _checked_object(record, f"{place.name}, record {number}")
        return records
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    records = []
    for number, line in lines:
        where = f"{place.name}, line {number}"
        try:
            record = parse_json(line, where, line[:40], "Reader: {reason}.", "must be a JSON object")
        except ConfigError:
            if number != lines[-1][0] or not records:
                raise
            notes.append(f"line {number}, the last one, is cut off and was left out")
            continue
        records.append(_checked_object(record, where))
    return records


def _checked_object(record: Any, where: str) -> Any:
    if not isinstance(record, dict):
        raise ConfigError(where, "must be a JSON object", record, "One object a line.")
    return record


def flat(record: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Return a record whose inner objects are columns named with a slash.

    Examples
    --------
    >>> flat({"step": 1, "time": {"train": 2.5}, "tags": ["a"]})
    {'step': 1, 'time/train': 2.5}
    """
    found: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping) and depth < _DEEPEST:
            found |= {f"{name}/{inner}": each for inner, each in flat(value, depth + 1).items()}
        elif value is None or isinstance(value, str | int | float):
            found[str(name)] = value
    return found


def _number(value: Any) -> float:
    """Return a number of JSON as a float; an integer beyond all floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _utf8(text: str) -> str:
    """Spell out lone surrogates, which JSON can write and a column of texts cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _from_records(records: list[dict[str, Any]]) -> pl.DataFrame:
    """Return records as columns; those with texts in them as texts, the rest as numbers."""
    import polars as pl

    names: dict[str, str] = {}
    for own in dict.fromkeys(name for record in records for name in record):
        names.setdefault(_utf8(own), own)  # of two that are spelt alike the first stays
    columns = []
    for name, own in names.items():
        values = [record.get(own) for record in records]
        if any(isinstance(value, str) for value in values):
            texts = [None if value is None else _utf8(str(value)) for value in values]
            columns.append(pl.Series(name, texts, pl.String))
        else:
            numbers = [None if value is None else _number(value) for value in values]
            columns.append(pl.Series(name, numbers, pl.Float64))
    return pl.DataFrame(columns)
