"""The journal of a stored sweep: one JSON line per finished unit, written after the unit's data.

The journal says what is done, with the digests of the files that prove it; nothing is inferred from data.
Each line ends with its own checksum, so that a torn last line (a kill, a full disk) is told from a whole one
and a flipped bit is found. A torn tail is cut off before the next line is written; a damaged line elsewhere,
or one whose values are of a wrong kind, counts as not written, so its unit is run again. A unit whose files
do not hold is undone by a line too.
"""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .place import Place

JOURNAL_NAME = "journal.jsonl"
CREATED, UNIT, FINISHED = "created", "unit", "finished"
UNDONE = "undone"
SCHEMA = "schema"  # in the first line: the form of the store
MADE = "made"  # in the first line: attributes of the group that are said nowhere else


def journal_line(record: Mapping[str, Any]) -> bytes:
    """Write a record as a line with its checksum.

    Examples
    --------
    >>> journal_line({"kind": "finished"})
    b'{"kind":"finished","crc":"a2a43f1a"}\\n'
    """
    text = json.dumps(record, separators=(",", ":"))
    return f'{text[:-1]},"crc":"{_crc(text)}"}}\n'.encode()


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Read a line; None if it is torn or damaged."""
    try:
        text = line.decode()
        record = json.loads(text)
        crc = record.pop("crc")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    whole = line == journal_line(record) and crc == _crc(text[: text.rindex(',"crc":')] + "}")
    return record if whole and _is_well_made(record) else None


def _is_whole_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_share(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _are_boxes(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(box, list)
        and all(
            isinstance(ends, list) and len(ends) == 2 and all(map(_is_whole_number, ends)) for ends in box
        )
        for box in value
    )


_WELL_MADE: dict[str, Callable[[Any], bool]] = {
    "part": _is_text,
    "unit": _is_text,
    "runs": _is_whole_number,
    "failed": _is_whole_number,
    "seconds": _is_number,
    "digest": _is_text,
    "tables": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "content": _is_share,
    "boxes": _are_boxes,
    "pack": _is_text,
    "sizes": lambda value: isinstance(value, list) and all(map(_is_whole_number, value)),
    "block": _is_whole_number,
}


def _is_well_made(record: Mapping[str, Any]) -> bool:
    """Tell whether what a unit's line has is of the right kind; a line of any other kind of record is."""
    return record.get("kind") != UNIT or all(
        fits(record[name]) for name, fits in _WELL_MADE.items() if name in record
    )


class Journal:
    """A journal file, opened to read or to go on.

    Attributes
    ----------
    records : list of dict
        The whole lines, in order.
    damaged : list of int
        Numbers (from 1) of lines that do not hold, a torn last one apart.
    torn : bool
        Whether the last line was cut off.
    place : Place, optional
        The store's folder, if it is to be written through that and not through the path.
    """

    def __init__(self, path: Path, place: Place | None = None) -> None:
        self.path, self.place = path, place
        self.records: list[dict[str, Any]] = []
        self.damaged: list[int] = []
        self.torn = False
        self.foreign = False  # its creation is that of another sweep
        self._whole = 0
        self._lock = threading.Lock()
        self._file: Any = None
        self._by_part: dict[str, dict[str, dict[str, Any]]] = {}
        self._read()

    def _read(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            record = read_line(line)
            if record is not None:
                self._keep(record)
                self._whole += len(line)
            elif number == len(lines) and not line.endswith(b"\n"):
                self.torn = True
            else:
                self.damaged.append(number)
                self._whole += len(line)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line, whole or not at all."""
        with self._lock:
            if self._file is None:
                self._file = self._opened()
                if self.torn:
                    self._file.truncate(self._whole)
                    self.torn = False
            line = journal_line(record)
            before = os.fstat(self._file.fileno()).st_size
            try:
                written = self._file.write(line)
                if written != len(line):
                    raise OSError(28, os.strerror(28), str(self.path))
            except OSError:
                self._file.truncate(before)
                raise
            self._keep(dict(record))

    def _opened(self) -> Any:
        if self.place is None:
            return open(self.path, "ab", buffering=0)  # kept open for the run
        return os.fdopen(self.place.append_to(self.path.name), "ab", buffering=0)

    def _keep(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        if record.get("kind") == UNIT:
            units = self._by_part.setdefault(str(record.get("part")), {})
            units[str(record.get("unit"))] = record
            if record.get(UNDONE):
                self.forget(str(record.get("part")), str(record.get("unit")))

    def undo(self, part: str, unit: str) -> None:
        """Say that a unit is not done after all; an older version reads it as one that is being written."""
        empty = {"runs": 0, "failed": 0, "seconds": 0.0, "digest": "", "tables": {}, "boxes": []}
        self.append({"kind": UNIT, "part": part, "unit": unit, **empty, "rewriting": True, UNDONE: True})

    def forget(self, part: str, unit: str) -> None:
        """Take a unit for undone, without a word in the file."""
        self._by_part.get(part, {}).pop(unit, None)

    def rewrite(self, place: Place, records: list[dict[str, Any]]) -> None:
        """Put these lines in place of the whole file, in one step."""
        self.close()
        place.write(self.path.name, b"".join(journal_line(record) for record in records))
        self.__init__(self.path, place)  # type: ignore[misc]

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def units(self, part: str) -> dict[str, dict[str, Any]]:
        """Return the last record of each unit of a part."""
        return self._by_part.get(part, {})

    @property
    def finished(self) -> bool:
        """Whether the last thing that happened was the finish."""
        return bool(self.records) and self.records[-1].get("kind") == FINISHED
