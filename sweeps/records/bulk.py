"""Check records by the piece: whole columns are screened, and only what is left is looked at singly.

A line's keys and kinds are told by one compiled pass over its bytes, columns are read by polars with explicit
types, and a record that passes the screen breaks no rule. Every other line goes the way of
:func:`.check.validate_lines`, so findings are the same whichever way a file was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...kernels.contract.contract import RolloutContract
from ...kernels.contract.findings import ContractFinding
from ...kernels.contract.line_shapes import BLANK, MOST_SETTINGS, line_shapes
from .batch_state import BatchState
from .files import LineReader, RecordLine, plain_id, there
from .gathered import Gathered, LineSettings, Places, Settings
from .screening import Screen, make_screen
from .statistics import RecordStatistics
from .streams import Piece

_BLOCK_LINES = 2**16
_MOST_FORMS = 64  # of one piece; what has a form beyond them is looked at singly
_MOST_KNOWN = 4096
_NOTHING = np.uint64(0)


class Single(NamedTuple):
    """What a line that was looked at by itself had; the record is not held on to."""

    number: int
    record_id: Any
    findings: Sequence[ContractFinding]


class BulkCheck:
    """Records of one file, piece by piece.

    Parameters
    ----------
    contract : RolloutContract
    batch : BatchState or None
        What is remembered for the batch rules; None leaves them out.
    statistics : RecordStatistics or None
        What is counted by version and group.
    on_single : callable
        Takes each line that was looked at by itself and had something to tell, in the order of lines.
    """

    def __init__(
        self,
        contract: RolloutContract,
        batch: BatchState | None,
        statistics: RecordStatistics | None,
        on_single: Callable[[Single], None],
    ) -> None:
        self.contract = contract
        self.blank_lines = 0
        self._on_single = on_single
        self.batch = batch
        self.statistics = statistics
        self._screens: dict[int, Screen | None] = {}
        self._same: dict[Any, Screen] = {}
        self._settings: dict[Any, Settings] = {}
        path = contract.schema.label("decoding")
        self._settings_key = "" if "." in path else path

    # -- JSON lines ------------------------------------------------------------------------------------------

    def lines(self, parts: Iterator[Piece], reader: LineReader) -> Iterator[int]:
        """Check the lines of pieces; gives how many lines there were so far."""
        number = 0
        for piece in parts:
            content, too_long = piece.content, piece.too_long
            if not number and content:
                content = reader.without_mark(content)
            elif not number:
                too_long = reader.without_mark(too_long)
            for block in _blocks(content, reader.limit, self._settings_key):
                self._block(block, number, reader)
                number += block.ends.size
                yield number
            if too_long:
                number += 1
                self._on_single(Single(number, None, reader.too_long(number, too_long).findings))
                yield number

    def _block(self, block: _Block, before: int, reader: LineReader) -> None:
        content, starts, ends, shapes = block.content, block.starts, block.ends, block.shapes
        gathered = self._gathered(ends.size)
        blank = shapes == BLANK
        if blank.any():
            gathered.done[blank] = True
            self.blank_lines += int(np.count_nonzero(blank))
            if blank.all():
                return
        for screen, chosen in self._forms(block, reader):
            if len(chosen) == ends.size:
                text = content
            else:
                text = b"".join(content[starts[index] : ends[index]] for index in chosen)
            settings = self._settings_of(screen, block, chosen)
            asked = screen if settings is None else screen.rest
            assert asked is not None
            gathered.take(asked, chosen, pl.read_ndjson(text, schema=asked.columns), settings)
        for index in np.flatnonzero(~gathered.done).tolist():
            line = reader.line(before + index + 1, content[starts[index] : ends[index]])
            self._single(gathered, index, line)
        self._note(gathered, before)

    def _forms(self, block: _Block, reader: LineReader) -> Iterator[tuple[Screen, NDArray[np.int64]]]:
        """Return screens and the lines that each is for."""
        shapes = block.shapes
        left = shapes > BLANK
        together: dict[int, tuple[Screen, list[NDArray[np.int64]]]] = {}
        if left.size and left[0] and (shapes == shapes[0]).all():
            screen = self._screen_for(block, 0, reader)
            if screen is not None:
                yield screen, np.arange(left.size)
            return
        for _ in range(_MOST_FORMS):
            first = int(left.argmax()) if left.size else 0
            if not left.size or not left[first]:
                break
            same = left & (shapes == shapes[first])
            screen = self._screen_for(block, first, reader)
            if screen is not None:
                together.setdefault(id(screen), (screen, []))[1].append(np.flatnonzero(same))
            left &= ~same
        for screen, chosen in together.values():
            yield screen, np.sort(np.concatenate(chosen)) if len(chosen) > 1 else chosen[0]

    def _screen_for(self, block: _Block, index: int, reader: LineReader) -> Screen | None:
        """Return the screen for a line's shape, made from this line if it is the first of that shape."""
        shape = int(block.shapes[index])
        if shape not in self._screens and len(self._screens) < _MOST_KNOWN:
            line = reader.line(1, block.content[block.starts[index] : block.ends[index]])
            self._screens[shape] = self._screen_of(line)
        return self._screens.get(shape)

    def _settings_of(self, screen: Screen, block: _Block, chosen: NDArray[np.int64]) -> LineSettings | None:
        """Return how the chosen lines were decoded, where that is told for all of them."""
        if screen.settings is None or not self._settings_key:
            return None
        codes = block.settings if len(chosen) == block.settings.size else block.settings[chosen]
        there = np.flatnonzero(np.bincount(codes, minlength=MOST_SETTINGS + 1)).tolist()
        if there[-1] == MOST_SETTINGS:
            return None
        known = {}
        for code in there:
            key = (id(screen), block.kinds[code])
            if key not in self._settings:
                if len(self._settings) >= _MOST_KNOWN:
                    self._settings.clear()
                self._settings[key] = _screened_settings(screen.settings, self._settings_key, key[1])
            known[code] = self._settings[key]
        return LineSettings(codes, known)

    def _gathered(self, lines: int) -> Gathered:
        return Gathered(lines, self.batch is not None, self.statistics is not None)

    def _screen_of(self, line: RecordLine) -> Screen | None:
        """Make a screen from a record, or find one that reads and asks the same."""
        if not line.readable or line.findings or not isinstance(line.record, dict):
            return None
        screen = make_screen(line.record, self.contract)
        if screen is None:
            return None
        parts = (screen.clean, *screen.values.values())
        texts = tuple(part.meta.serialize() for part in parts)
        return self._same.setdefault((texts, tuple(screen.values), str(screen.columns)), screen)

    # -- tables ----------------------------------------------------------------------------------------------

    def rows(self, batches: Iterator[pl.DataFrame]) -> Iterator[int]:
        """Check the rows of batches of a table; gives how many rows there were so far."""
        before = 0
        for frame in batches:
            gathered = self._gathered(frame.height)
            types = {
                name: dtype for name, dtype in frame.schema.items() if frame[name].null_count() < frame.height
            }
            screen = make_screen(types, self.contract, nulls=True)
            if screen is not None:
                gathered.take(screen, np.arange(frame.height), frame)
            left = np.flatnonzero(~gathered.done)
            rows = frame[left].iter_rows(named=True)
            for index, row in zip(left.tolist(), rows):
                self._single(gathered, index, RecordLine(before + index + 1, there(row), True))
            self._note(gathered, before)
            before += frame.height
            yield before

    # -- both ------------------------------------------------------------------------------------------------

    def _single(self, gathered: Gathered, index: int, line: RecordLine) -> None:
        """Look at one line, take what is asked of it, and tell what it had."""
        if not line.readable:
            self.blank_lines += line.blank
            if line.findings:
                self._on_single(Single(line.number, None, line.findings))
            return
        check = self.contract.check(line.record)
        check.findings.extend(line.findings)
        gathered.put(index, check)
        if check.findings:
            self._on_single(Single(line.number, plain_id(check.get("sample_id")), check.findings))

    def _note(self, gathered: Gathered, before: int) -> None:
        """Remember what the batch rules and the statistics need, in the order of the lines."""
        gathered.put_ids()
        if self.statistics is not None:
            self.statistics.add(
                gathered.versions[gathered.read],
                gathered.rewards[gathered.read],
                gathered.tokens[gathered.read],
                gathered.bad[gathered.read],
            )
        if self.batch is None:
            return
        read: Places = slice(None) if gathered.read.all() else np.flatnonzero(gathered.read)
        places = np.arange(before + 1, before + gathered.read.size + 1)[read]
        if places.size:
            last = int(places[-1]) - before - 1
            name = gathered.names.get(last) or gathered.name_of(last)
            self.batch.group_field = self.contract.schema.label(name)
        digests = [gathered.digests(part) for part in ("sample", "group", "episode")]
        samples, groups, episodes = ((high[read], low[read]) for high, low in digests)
        rewards = None if self.statistics is None else gathered.rewards[read]
        self.batch.add(places, samples, groups, episodes, gathered.bad[read], rewards)
        self.batch.note_kinds(
            {kind: index + before + 1 for kind, index in gathered.spaces.items()},
            {kind: index + before + 1 for kind, index in gathered.verifiers.items()},
        )


def _screened_settings(screen: Screen, key: str, value: bytes) -> Settings:
    """Screen one value of the key."""
    line = b"{%s:%s}" % (json.dumps(key).encode(), value)
    found = pl.read_ndjson(line, schema=screen.columns).select(clean=screen.clean, **screen.values)
    return Settings(bool(found["clean"][0]), found["space"][0] if "space" in found.columns else None)


class _Block(NamedTuple):
    """Some lines: where each begins and ends in the content, its shape, and which settings it has."""

    content: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    shapes: NDArray[np.uint64]
    settings: NDArray[np.uint8]
    kinds: list[bytes]


def _blocks(content: bytes, limit: int, settings_key: str) -> Iterator[_Block]:
    """Cut a piece into blocks of no more lines than a table of their values may have."""
    ends, shapes, high, settings, kinds = line_shapes(content, settings_key)
    starts = np.r_[0, ends[:-1]] if ends.size else ends
    if limit < len(content):
        shapes[ends - starts > limit] = _NOTHING
    if high.size and not _is_utf8(content):
        for index in np.flatnonzero(high):
            if not _is_utf8(content[starts[index] : ends[index]]):
                shapes[index] = _NOTHING
    for first in range(0, ends.size, _BLOCK_LINES):
        last = min(first + _BLOCK_LINES, ends.size)
        begin, end = int(starts[first]), int(ends[last - 1])
        whole = last - first == ends.size
        yield _Block(
            content if whole else content[begin:end],
            starts[first:last] - begin,
            ends[first:last] - begin,
            shapes[first:last],
            settings[first:last],
            kinds,
        )


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
