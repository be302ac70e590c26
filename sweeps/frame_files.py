"""Write a table to a parquet or CSV file that the user named, whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..kernels.errors import ConfigError, nearest
from .files import write_atomically

if TYPE_CHECKING:
    import polars

SUFFIXES = (".parquet", ".csv")


def checked_table_path(path: Path, flag: str) -> Path:
    """Refuse a table file of unknown kind, or in a folder that is not there, before any work is done.

    Raises
    ------
    ConfigError
    """
    if path.suffix not in SUFFIXES:
        way_out = nearest(path.suffix, SUFFIXES) or "Name it FILE.parquet or FILE.csv."
        raise ConfigError(flag, "must end in .parquet or .csv", str(path), way_out)
    return checked_folder(path, flag)


def checked_folder(path: Path, flag: str) -> Path:
    """Refuse a file whose folder is not there or cannot be written.

    Raises
    ------
    ConfigError
    """
    if not path.parent.is_dir():
        raise ConfigError(flag, "must lie in a folder that exists", str(path), f"Make {path.parent} first.")
    if not os.access(path.parent, os.W_OK):
        rule = "must lie in a folder that can be written"
        raise ConfigError(flag, rule, str(path), "Name a file in another folder.")
    if path.is_dir():
        raise ConfigError(flag, "must be a file", str(path), "Name a file in that folder.")
    return path


def write_frame(frame: polars.DataFrame, path: Path, **metadata: str) -> None:
    """Write a frame by the suffix of its file.

    Parameters
    ----------
    frame : polars.DataFrame
    path : Path
        ``.parquet`` or ``.csv``.
    **metadata : str
        Kept in a parquet file's own metadata.
    """

    if path.suffix == ".csv":
        write_atomically(path, frame.write_csv().encode("utf-8"))
        return
    content = io.BytesIO()
    frame.write_parquet(content, metadata=metadata or None)
    write_atomically(path, content.getvalue())
