"""Read the columns that laws are made of, from CSV, JSON lines or parquet.

A file is read as it is, never guessed at: a CSV cell that is no number, a JSON string where a number is
due, a missing value or a missing key is an error that names file, column and row. Rows count from 1; a
CSV's header and blank JSON lines are not rows. A name that ends in .gz is unpacked first.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ...kernels.errors import ConfigError, nearest
from ..checks import path_of
from ..user_files import decoded, parse_json, read_bytes, refuse_pipe, table_errors, unpacked
from .checks import (
    SECONDS_RULE,
    WHOLE_RULE,
    raw_numbers,
    valid_seconds,
    whole_lengths,
)

if TYPE_CHECKING:
    import polars as pl

_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_WAY_OUT = "Rows count from 1, without a header."

AnyPath = str | os.PathLike[str]


class Columns:
    """Some columns of one file, as they stand there.

    Parameters
    ----------
    path : path_like
        A file that ends in .csv, .jsonl, .ndjson or .parquet, or so with .gz behind.
    names : sequence of str, or callable
        The columns to read, or what chooses them from the file's own.

    Raises
    ------
    ConfigError
        If the file cannot be read, has no such column or no row.
    """

    def __init__(
        self, path: AnyPath, names: Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
    ) -> None:
        self.path = path_of("path", path)
        self._names: Sequence[str] = () if callable(names) else tuple(names)
        self._choose = names if callable(names) else lambda _: self._names
        for name in self._names:
            if not isinstance(name, str):
                raise ConfigError("column", "must be a column's name", name, "Give it as text.")
        refuse_pipe(self.path, "path")
        self._packed = self.path.suffix.lower() == ".gz"
        kind = _FORMATS.get(Path(self.path.stem if self._packed else self.path).suffix.lower())
        if kind is None:
            raise ConfigError(
                "path", f"must end in {', '.join(_FORMATS)}", str(path), "Convert the file to one of them."
            )
        if not self.path.is_file():
            raise ConfigError(
                "path",
                "must name a file that exists",
                str(path),
                "Relative paths start at the current folder.",
            )
        self._rows: Sequence[int] | None = None  # where the rows that were kept stand in the file
        read = {"csv": self._read_csv, "jsonl": self._read_json_lines, "parquet": self._read_parquet}[kind]
        self._is_text = kind == "csv"
        self._values: dict[str, Any] = read()
        for name, values in self._values.items():
            if len(values) == 0:
                raise ConfigError(
                    f"{self.path.name}, column {name!r}",
                    "must have at least one row",
                    0,
                    "Name a file with rows.",
                )

    def keep(self, wanted: Mapping[str, str]) -> None:
        """Keep the rows in which columns hold the wanted texts; they keep their numbers."""
        for name, text in wanted.items():
            texts = [str(value) for value in self._values[name]]
            places = [i for i, found in enumerate(texts) if found == text]
            if not places:
                seen = list(dict.fromkeys(texts))
                way_out = nearest(text, seen) or f"It holds {', '.join(map(repr, seen[:5]))}."
                raise ConfigError(f"{self.path.name}, column {name!r}", "must hold it", text, way_out)
            self._values = {
                each: [values[i] for i in places] if isinstance(values, list) else values[places]
                for each, values in self._values.items()
            }
            self._rows = places if self._rows is None else [self._rows[i] for i in places]

    def lengths(self, name: str) -> np.ndarray:
        """Return a column of whole lengths as int64."""
        return whole_lengths(self._numbers(name, WHOLE_RULE), self._place(name), _WAY_OUT)

    def seconds(self, name: str) -> np.ndarray:
        """Return a column of durations as float64."""
        return valid_seconds(self._numbers(name, SECONDS_RULE), self._place(name), _WAY_OUT)

    def groups(self, name: str) -> list[Any]:
        """Return a column of group ids, of any kind; none may be missing."""
        values = self._values[name]
        values = values if isinstance(values, list) else values.to_list()
        for i, value in enumerate(values):
            if value is None or value == "":
                raise ConfigError(self._place(name)(i), "must have a group id", value, _WAY_OUT)
        return values

    def _place(self, name: str) -> Any:
        rows = self._rows
        return lambda i: f"{self.path.name}, column {name!r}, row {(i if rows is None else rows[i]) + 1}"

    def _numbers(self, name: str, rule: str) -> np.ndarray:
        values = self._values[name]
        if not isinstance(values, list):
            values = _text_or_numbers(values) if self._is_text else _numbers_or_objects(values)
        return raw_numbers(values, self._place(name), name, rule, _WAY_OUT)

    def _content(self) -> bytes:
        """Read the whole file, unpacked."""
        if not self._packed:
            return read_bytes(self.path, "path", most=None)
        return unpacked(read_bytes(self.path, "path"), "path", str(self.path))

    def _chosen(self, present: Sequence[str]) -> list[str]:
        """Return the columns to read, each of which the file has."""
        names = list(dict.fromkeys(self._choose(present)))
        for name in names:
            if name not in present:
                way_out = nearest(name, present) or f"It has {', '.join(map(repr, present)) or 'none'}."
                raise ConfigError("column", f"must be a column of {self.path.name}", name, way_out)
        return names

    def _unreadable(self, error: BaseException) -> ConfigError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ConfigError("path", "must be a well-formed file", str(self.path), f"Reader: {reason}.")

    def _read_csv(self) -> dict[str, Any]:
        import polars as pl

        content = self._content()
        try:
            names = self._chosen(pl.read_csv(content, n_rows=0, infer_schema=False).columns)
            frame = pl.read_csv(content, columns=names, infer_schema=False)
        except table_errors() as error:
            raise self._unreadable(error) from None
        return {name: frame[name].str.strip_chars() for name in names}

    def _read_parquet(self) -> dict[str, Any]:
        import polars as pl

        def opened() -> BinaryIO:
            return io.BytesIO(self._content()) if self._packed else self.path.open("rb")

        try:
            with opened() as file:
                names = self._chosen(list(pl.read_parquet_schema(file)))
            with opened() as file:
                frame = pl.read_parquet(file, columns=names)
        except table_errors() as error:
            raise self._unreadable(error) from None
        return {name: frame[name] for name in names}

    def _read_json_lines(self) -> dict[str, Any]:
        values: dict[str, list[Any]] = {}
        row = 0
        for number, line in enumerate(self._content().splitlines(), start=1):
            if not line.strip():
                continue
            row += 1
            place = f"{self.path.name}, line {number}"
            text = decoded(line, place)
            record = parse_json(text, place, line[:40], "Reader: {reason}.", "must be a JSON object")
            if not isinstance(record, dict):
                raise ConfigError(place, "must be a JSON object", record, "One object a line.")
            if row == 1:
                values = {name: [] for name in self._chosen(list(record))}
            for name in values:
                if name not in record:
                    raise ConfigError(self._place(name)(row - 1), "must be there", None, _WAY_OUT)
                values[name].append(record[name])
        return values if row else {name: [] for name in self._names or ("of the first row",)}


def _text_or_numbers(series: pl.Series) -> Any:
    """Return a CSV column as an array of numbers or, where a cell is none, as a list with its text."""
    import polars as pl

    numbers = series.cast(pl.Float64, strict=False)
    if not numbers.null_count():
        return numbers.to_numpy()
    return [text if number is None else number for text, number in zip(series, numbers, strict=True)]


def _numbers_or_objects(series: pl.Series) -> Any:
    """Return a typed column as an array of numbers or, with text, booleans or gaps, as Python objects."""
    import polars as pl

    if series.dtype.is_numeric() and not series.null_count():
        return series.cast(pl.Float64).to_numpy()
    return series.to_list()
