"""Read rollout records from JSON lines and parquet, with their physical line or row numbers.

JSONL is read as bytes and cut at line feeds only, so that a line's number is the one an editor or ``sed -n``
shows: blank lines count, a carriage return before the line feed is white space, a byte order mark at the
file's beginning is skipped, and a line longer than the limit is passed over without being held. Nothing
infers a schema from the first lines. Numbers that are no JSON (NaN, Infinity) are read as Python reads them
and remarked on; so is a key that occurs twice, of which readers keep any one they like.

Parquet is read some rows at a time; a null in a column or inside a struct means "not there", because parquet
cannot tell the two apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ...kernels.contract.findings import ContractFinding
from ...kernels.errors import ConfigError, ContractError, Finding
from ..checks import path_of
from ..user_files import exact_path, refuse_pipe, table_errors
from .streams import unpacked_stream

if TYPE_CHECKING:
    import polars

MAX_LINE_BYTES = 64 * 2**20
_PARQUET_ROWS = 16_384
_BOM = b"\xef\xbb\xbf"

LINE_RULES: dict[str, tuple[str, str]] = {
    "json_syntax": ("error", "a line is one JSON value"),
    "json_truncated": ("error", "the last line is whole"),
    "json_duplicate_key": ("error", "a key occurs once in an object"),
    "line_encoding": ("error", "a line is UTF-8"),
    "line_too_long": ("error", "a line is not longer than the limit"),
    "json_constant": ("warning", "NaN and Infinity are not JSON, and other readers refuse them"),
}


class RecordLine(NamedTuple):
    """One line or row: its number from 1, the record if it could be read, and remarks on the line itself."""

    number: int
    record: Any
    readable: bool
    findings: tuple[ContractFinding, ...] = ()
    blank: bool = False


def _remark(code: str, rule: str, got: str, way_out: str) -> ContractFinding:
    return ContractFinding(Finding("line", rule, got, way_out), code, LINE_RULES[code][0])


class _Decoder:
    """Decodes one line, and remembers what JSON does not allow in it."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.repeated: list[str] = []
        # Made once: json.loads builds a new decoder on each call when it is given hooks.
        self._decode = json.JSONDecoder(
            parse_constant=self._constant, object_pairs_hook=self._pairs, strict=True
        ).decode

    def _constant(self, name: str) -> float:
        self.constants.append(name)
        return float(name.replace("Infinity", "inf"))

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.repeated.extend(key for key, count in counts.items() if count > 1)
        return result

    def decode(self, text: str) -> Any:
        self.constants.clear()
        self.repeated.clear()
        return self._decode(text)


def physical_lines(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """Return number, bytes and "fits the limit" of each line; of a longer line only its beginning."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        fits = len(line) <= limit or (len(line) == limit + 1 and line.endswith(b"\n"))
        yield number, line, fits
        while not fits and line and not line.endswith(b"\n"):
            line = stream.readline(2**20)


def read_jsonl(stream: BinaryIO, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[RecordLine]:
    """Read a stream of JSON lines; every line is given, readable or not.

    Parameters
    ----------
    stream : binary file
        Opened for reading bytes.
    max_line_bytes : int
        Lines longer than this are reported and passed over.

    Yields
    ------
    RecordLine

    Raises
    ------
    ConfigError
        If the stream is packed, UTF-16 or parquet.

    Examples
    --------
    >>> import io
    >>> [(line.number, line.readable) for line in read_jsonl(io.BytesIO(b'{"a": 1}\\n\\n{bad'))]
    [(1, True), (2, False), (3, False)]
    """
    reader = LineReader(max_line_bytes)
    for number, line, fits in physical_lines(stream, max_line_bytes):
        if number == 1:
            line = reader.without_mark(line)
        yield reader.line(number, line) if fits else reader.too_long(number, line)


class LineReader:
    """Reads single lines that are already there.

    Parameters
    ----------
    limit : int
        Longer lines are not decoded.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.limit = limit
        self._decoder = _Decoder()

    def without_mark(self, beginning: bytes) -> bytes:
        """Return the beginning of a file without a byte order mark; refuse what is no JSON lines."""
        _refuse_other_formats(beginning)
        return beginning.removeprefix(_BOM)

    def line(self, number: int, line: bytes) -> RecordLine:
        """Read one line, its line feed included if it has one."""
        if len(line) - line.endswith(b"\n") > self.limit:
            return self.too_long(number, line)
        return _decoded(self._decoder, number, line)

    def too_long(self, number: int, beginning: bytes) -> RecordLine:
        """Report a line that is too long, by its beginning."""
        way_out = "Is a line feed missing? Raise --max-line-bytes if a record is that long."
        rule = f"must not be longer than {self.limit} bytes"
        found = _remark("line_too_long", rule, f"{beginning[:40].decode('latin-1')}...", way_out)
        return RecordLine(number, None, False, (found,))


def _decoded(decoder: _Decoder, number: int, line: bytes) -> RecordLine:
    """Decode one line that fits."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = _remark("line_encoding", "must be UTF-8", f"byte {error.start}", "Write the file as UTF-8.")
        return RecordLine(number, None, False, (found,))
    if not text.strip():
        return RecordLine(number, None, False, (), True)
    try:
        record = decoder.decode(text.strip(" \t\r\n"))
    except (ValueError, RecursionError) as error:
        # ValueError: also an integer of more digits than Python converts. The rest of its text is Python's.
        what = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        at = f"{what} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else what
        if line.endswith(b"\n"):
            found = _remark("json_syntax", "must be one JSON value", at, "Write one record per line.")
        else:
            way_out = "The file ends inside a record: it was cut, or is still being written."
            found = _remark("json_truncated", "must end with a whole JSON value", at, way_out)
        return RecordLine(number, None, False, (found,))
    findings = []
    if decoder.repeated:
        rule = "must not repeat a key"
        way_out = "Readers keep any one of the values."
        findings.append(_remark("json_duplicate_key", rule, decoder.repeated[0][:60], way_out))
    if decoder.constants:
        rule = "should hold only JSON numbers"
        way_out = "Other readers refuse the file; drop the record."
        findings.append(_remark("json_constant", rule, decoder.constants[0], way_out))
    return RecordLine(number, record, True, tuple(findings))


def _refuse_other_formats(beginning: bytes) -> None:
    """Raise for what is plainly another format, with what to do."""
    formats = (
        (b"\x1f\x8b", "gzip in gzip", "Unpack it: gzip -dc FILE | lagsweep validate -"),
        (b"\x28\xb5\x2f\xfd", "zstandard inside", "Unpack it: zstd -dc FILE | lagsweep validate -"),
        (b"PAR1", "parquet", "Parquet cannot be read from a pipe; give the file's path."),
        (b"\xff\xfe", "UTF-16", "Write the file as UTF-8."),
        (b"\xfe\xff", "UTF-16", "Write the file as UTF-8."),
    )
    for magic, name, way_out in formats:
        if beginning.startswith(magic):
            raise ConfigError("file", "must be JSON lines or a parquet file", name, way_out)


def plain_id(value: Any) -> Any:
    """Keep a record's id when it is one, so that a report never holds a record.

    Examples
    --------
    >>> plain_id("s1"), plain_id(7), plain_id([1]), plain_id(500 * "s")
    ('s1', 7, None, None)
    """
    short = isinstance(value, str) and len(value) <= 200
    return value if short or (isinstance(value, int) and not isinstance(value, bool)) else None


def there(value: Any) -> Any:
    """Leave out the nulls of a parquet struct."""
    if isinstance(value, dict):
        return {name: there(item) for name, item in value.items() if item is not None}
    return value


def read_parquet(path: Path) -> Iterator[RecordLine]:
    """Read a parquet file some rows at a time.

    Parameters
    ----------
    path : Path
        The file.

    Yields
    ------
    RecordLine
        Numbered by row, from 1.

    Raises
    ------
    ConfigError
        If the file cannot be read as parquet.
    """
    start = 0
    for rows in table_batches(path, _PARQUET_ROWS):
        for offset, row in enumerate(rows.iter_rows(named=True)):
            yield RecordLine(start + offset + 1, there(row), True)
        start += rows.height


def table_batches(path: Path, rows: int) -> Iterator[polars.DataFrame]:
    """Read a parquet file in batches of rows.

    Parameters
    ----------
    path : Path
    rows : int
        How many rows a batch has; the last one may have fewer.

    Yields
    ------
    polars.DataFrame

    Raises
    ------
    ConfigError
        If the file cannot be read as parquet.
    """
    import polars as pl

    start = 0
    lazy = pl.scan_parquet(exact_path(path), glob=False)
    while True:
        try:
            batch = lazy.slice(start, rows).collect()
        except table_errors() as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
            way_out = f"Write it again; row {start + 1} is where reading failed."
            raise ConfigError("file", "must be a readable parquet file", reason, way_out) from None
        if not batch.height:
            return
        yield batch
        start += batch.height


def is_parquet(path: Path) -> bool:
    """Say whether a file is parquet, by its first bytes, or by its name when it is empty.

    Raises
    ------
    ConfigError
        If it is no readable file.
    """
    refuse_pipe(path, "file", "Give - and pipe into it, which reads JSON lines: … | lagsweep validate -")
    if not path.is_file():
        what = "a folder" if path.is_dir() else str(path)
        raise ConfigError("file", "must be a file that exists", what, "Give JSON lines or parquet.")
    try:
        with path.open("rb") as stream:
            beginning = stream.read(4)
    except OSError as error:
        raise ConfigError("file", "must be readable", str(path), f"{error.strerror}.") from None
    return beginning == b"PAR1" or (not beginning and path.suffix == ".parquet")


def record_lines(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[RecordLine]:
    """Read a JSONL or parquet file line by line.

    Parameters
    ----------
    path : Path
        The file; its first bytes say which of the two it is.
    max_line_bytes : int
        As in :func:`read_jsonl`.

    Yields
    ------
    RecordLine

    Raises
    ------
    ConfigError
        If the file is missing, or neither of the two.
    """
    if is_parquet(path):
        yield from read_parquet(path)
        return
    with path.open("rb") as stream:
        yield from read_jsonl(unpacked_stream(stream), max_line_bytes=max_line_bytes)


def read_records(path: str | Path) -> Iterator[Any]:
    """Return the records of a file one by one, and raise at the first line that is no record.

    Parameters
    ----------
    path : str or Path
        A JSONL or parquet file.

    Yields
    ------
    dict
        Each record as it stands in the file; no schema is inferred.

    Raises
    ------
    ConfigError
        If the file is missing, or neither JSONL nor parquet.
    ContractError
        At a line that cannot be read; the text names it.
    """
    for line in record_lines(path_of("path", path)):
        if line.readable:
            yield line.record
        elif not line.blank:
            raise ContractError(line.findings[0].parts.within(f"{path}, line {line.number}: "))
