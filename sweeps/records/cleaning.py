"""Write the good records of a file, as they are, to another one; whole or not at all."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...kernels.errors import NO_VALUE, ConfigError, nearest
from ..frame_files import checked_folder
from ..user_files import exact_path
from .files import is_parquet, physical_lines, table_batches
from .findings_file import refuse_kept_file, replaced_file
from .sources import STDIN
from .streams import unpacked_stream

SUFFIXES = (".jsonl", ".ndjson", ".gz", ".zst", ".parquet")
_TABLE_ROWS = 16_384


def checked_clean_path(path: Path, flag: str, sources: Iterable[str], *, overwrite: bool) -> Path:
    """Refuse a file that cannot be written, that is there already, or that is one of those read.

    Parameters
    ----------
    path : Path
        Where the good records are to go; lines go to lines, tables to a table.
    flag : str
        The option, for messages.
    sources : iterable of str
        What is read; the standard input cannot be read twice.
    overwrite : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    ConfigError
    """
    sources = list(sources)
    if path.suffix not in SUFFIXES:
        way_out = nearest(path.suffix, SUFFIXES) or "Name it FILE.jsonl."
        raise ConfigError(flag, f"must end in one of {', '.join(SUFFIXES)}", str(path), way_out)
    if path.suffix == ".zst":
        _zstandard_writer(io.BytesIO(), flag)
    checked_folder(path, flag)
    if STDIN in sources:
        raise ConfigError(flag, "needs files, which are read twice", STDIN, "Save the input to a file first.")
    tables = [is_parquet(Path(source)) for source in sources]
    if any(tables) != (path.suffix == ".parquet") or (not all(tables) and any(tables)):
        rule = "must be of the kind of what is read: lines or a parquet table"
        raise ConfigError(flag, rule, str(path), "Clean lines and tables apart.")
    return refuse_kept_file(path, flag, sources, overwrite=overwrite)


def write_clean(path: Path, sources: Iterable[tuple[str, Iterable[int]]], max_line_bytes: int) -> int:
    """Write the good records of files that have been checked.

    Parameters
    ----------
    path : Path
        See :func:`checked_clean_path`.
    sources : iterable of (str, iterable of int)
        Each file with its bad lines; blank lines are left out too.
    max_line_bytes : int
        As in the check.

    Returns
    -------
    int
        How many records were written. Lines keep their bytes; rows keep their columns.

    Raises
    ------
    ConfigError
        If the tables have other columns than the first.
    """
    if path.suffix == ".parquet":
        return _write_table(path, sources)
    written = 0
    with replaced_file(path) as stream:
        packed = _packed(stream, path.suffix)
        for source, bad_lines in sources:
            bad = set(bad_lines)
            with open(source, "rb") as file:
                for number, line, fits in physical_lines(unpacked_stream(file), max_line_bytes):
                    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                    if number in bad or not fits or not line.decode("utf-8", "replace").strip():
                        continue
                    packed.write(line if line.endswith(b"\n") else line + b"\n")
                    written += 1
        if packed is not stream:
            packed.close()
    return written


def _packed(stream: IO[bytes], suffix: str) -> Any:
    """Return what packs lines on their way into a stream, which stays open."""
    if suffix == ".gz":
        # No name and no time inside: the same records give the same bytes.
        return gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    return _zstandard_writer(stream, "file") if suffix == ".zst" else stream


def _zstandard_writer(stream: IO[bytes], flag: str) -> Any:
    try:
        import zstandard
    except ImportError:
        rule = "needs the package zstandard for a file that is packed with it"
        way_out = "pip install 'lagsweep[zstd]', or name it .gz."
        raise ConfigError(flag, rule, NO_VALUE, way_out) from None
    return zstandard.ZstdCompressor().stream_writer(stream, closefd=False)


def _write_table(path: Path, sources: Iterable[tuple[str, Iterable[int]]]) -> int:
    """Write rows of parquet files by the batch, through lines of a plan that polars streams."""
    import polars as pl

    plans, written = [], 0
    for source, bad_lines in sources:
        plan = pl.scan_parquet(exact_path(source), glob=False)
        bad = np.array(list(bad_lines), dtype=np.uint32)
        written += sum(batch.height for batch in table_batches(Path(source), _TABLE_ROWS)) - bad.size
        plan = plan.with_row_index("lagsweep row", offset=1)
        plan = plan.filter(~pl.col("lagsweep row").is_in(pl.Series(bad).implode())).drop("lagsweep row")
        plans.append(plan)
    try:
        with replaced_file(path) as stream:
            pl.concat(plans).sink_parquet(stream, maintain_order=True)
    except pl.exceptions.PolarsError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        rule = f"must be tables of the same columns ({reason})"
        raise ConfigError("file", rule, NO_VALUE, "Clean them one by one.") from None
    return written
