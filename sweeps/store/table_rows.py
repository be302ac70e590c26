"""The rows of one unit in a table, put in the order of its runs piece by piece, so that they are held once.

A unit's rows come block by block, in the order in which threads were done with them; rows of runs that are
not done again come from the unit's old part. Only the places of the runs are sorted: a row is copied when it
is written, a row group at a time.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..execute.work import UnitWork
from ..runs.result import NAMES_OF

if TYPE_CHECKING:
    import polars

GROUP_ROWS = 122_880  # of a row group of parquet, about: what polars takes by itself

Columns = dict[str, np.ndarray]


class _Slice(NamedTuple):
    """Rows of runs that follow each other, and lie together in one source: from where to where."""

    source: int
    start: int
    stop: int


class UnitRows:
    """A unit's rows of one table in the order of its runs; the rows of a run stay in order.

    Parameters
    ----------
    work : UnitWork
    blocks : sequence of mapping
        Recorded columns: ``config`` and ``seed_index`` are places within the unit.
    before : polars.DataFrame, optional
        The unit's part as it was: of it stay the rows of runs that were not asked to be done again.
    shown : callable, optional
        Turns some rows of a block into those of the table; they are given as they are when left out.
    """

    def __init__(
        self,
        work: UnitWork,
        blocks: Sequence[Columns],
        before: polars.DataFrame | None = None,
        shown: Callable[[Columns], Columns] | None = None,
    ) -> None:
        self._blocks, self._before = blocks, before
        self._shown = shown or (lambda columns: columns)
        self._cells, self._seeds = work.part.cell_ids.reshape(-1)[work.cells], work.seeds
        found = [
            _runs(source, block["config"].astype(np.int64) * len(self._seeds) + block["seed_index"])
            for source, block in enumerate(blocks)
        ]
        if before is not None:
            cells, seeds = places_in(self._cells, before["cell"]), places_in(self._seeds, before["seed"])
            kept = _runs(len(blocks), cells * len(self._seeds) + seeds)
            found.append(kept[~work.todo_asked.reshape(-1)[kept["run"]]])
        self._slices = _in_order(found)
        self.count = sum(one.stop - one.start for one in self._slices)

    @property
    def has_columns(self) -> bool:
        """Whether it is known which columns there are: not where every cell of the unit is excluded."""
        return bool(self._blocks) or self._before is not None

    def frame(self) -> polars.DataFrame:
        """Return all rows; ``cell`` and ``seed`` alone where there are none and there is no column."""
        return self._frame(self._slices)

    def group_sizes(self) -> list[int]:
        """How many rows each row group has: as many groups of like size as come nearest to `GROUP_ROWS`."""
        fewer = max(1, self.count // GROUP_ROWS)
        apart = [abs(self.count // groups - GROUP_ROWS) for groups in (fewer, fewer + 1)]
        groups = fewer + int(apart[1] < apart[0])
        size, larger = divmod(self.count, groups)
        return [size + 1] * larger + [size] * (groups - larger)

    def pieces(self) -> Iterator[polars.DataFrame]:
        """Give the rows, a row group at a time."""
        left = iter(self._slices)
        one = next(left, None)
        for size in self.group_sizes():
            piece: list[_Slice] = []
            while size and one is not None:
                taken = min(size, one.stop - one.start)
                piece.append(one._replace(stop=one.start + taken))
                size -= taken
                one = one._replace(start=one.start + taken)
                if one.start == one.stop:
                    one = next(left, None)
            yield self._frame(piece)

    def parquet(self) -> bytes:
        """Return the rows as a parquet file, encoded while they are put in order."""
        content = io.BytesIO()
        if len(self.group_sizes()) == 1:
            self.frame().write_parquet(content, statistics=True)
            return content.getvalue()
        from polars.io.plugins import register_io_source

        stopped: list[BaseException] = []

        def given(*_: Any) -> Iterator[polars.DataFrame]:
            try:
                yield from self.pieces()
            except BaseException as error:
                stopped.append(error)  # polars would word it in its own way
                raise

        rows = register_io_source(given, schema=self._frame(self._slices[:1]).schema)
        try:
            rows.sink_parquet(content, statistics=True)
        except Exception:
            if stopped:
                raise stopped[0] from None
            raise
        return content.getvalue()

    def _frame(self, slices: Sequence[_Slice]) -> polars.DataFrame:
        """Put some rows together."""
        import polars

        frames: list[polars.DataFrame] = []
        for recorded, some in itertools.groupby(slices, lambda one: one.source < len(self._blocks)):
            if recorded:
                frames.append(self._fresh(list(some)))
            elif self._before is not None:
                frames += [self._before[one.start : one.stop] for one in some]
        if not frames:
            return self._none()
        return frames[0] if len(frames) == 1 else polars.concat(frames, rechunk=True)

    def _none(self) -> polars.DataFrame:
        import polars

        if self._blocks:
            return self._fresh([_Slice(0, 0, 0)])
        if self._before is not None:
            return self._before.clear()
        return polars.DataFrame({"cell": np.zeros(0, np.int64), "seed": np.zeros(0, np.uint64)})

    def _fresh(self, slices: Sequence[_Slice]) -> polars.DataFrame:
        """Put recorded rows together; places become cell ids and seeds, and places among names the names."""
        import polars

        parts = [
            self._shown({name: values[one.start : one.stop] for name, values in block.items()})
            for one in slices
            for block in (self._blocks[one.source],)
        ]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        labels = {
            "cell": self._cells[columns.pop("config")],
            "seed": self._seeds[columns.pop("seed_index")],
        }
        named = {name: _column(name, values) for name, values in columns.items()}
        frame = polars.DataFrame({**labels, **named})
        if {"lag", "end", "outcome"} <= set(frame.columns):  # of a rollout that has none yet
            lag = polars.when(polars.col("lag") >= 0).then("lag")
            frame = frame.with_columns(lag, polars.col("end").fill_nan(None))
        return frame if self._before is None else frame.cast(self._before.schema)


def _column(name: str, values: np.ndarray) -> Any:
    import polars

    if name in NAMES_OF:
        return polars.Series(NAMES_OF[name], dtype=polars.String).gather(values)
    return values.tolist() if values.dtype.kind in "UO" else values


def places_in(labels: np.ndarray, wanted: polars.Series) -> np.ndarray:
    """Return where labels, each of which is there once, stand in a list."""
    order = np.argsort(labels, kind="stable")
    found: np.ndarray = order[np.searchsorted(labels[order], wanted.to_numpy())]
    return found


_RUN = np.dtype([("run", np.int64), ("source", np.int64), ("start", np.int64), ("stop", np.int64)])


def _runs(source: int, runs: np.ndarray) -> np.ndarray:
    """Find the stretches of rows of one run each, in one source: a record of `_RUN` each."""
    bounds = np.flatnonzero(np.diff(runs, prepend=-1, append=-1))
    found = np.zeros(max(0, len(bounds) - 1), _RUN)
    found["run"], found["source"] = runs[bounds[:-1]], source
    found["start"], found["stop"] = bounds[:-1], bounds[1:]
    return found


def _in_order(found: Sequence[np.ndarray]) -> list[_Slice]:
    """Put the stretches of all sources in the order of their runs, and join those that lie together."""
    runs = np.concatenate([np.zeros(0, _RUN), *found])
    runs = runs[np.lexsort((runs["start"], runs["source"], runs["run"]))]
    apart = np.ones(len(runs), bool)
    apart[1:] = (runs["source"][1:] != runs["source"][:-1]) | (runs["start"][1:] != runs["stop"][:-1])
    firsts = np.flatnonzero(apart)
    lasts = [*(firsts[1:] - 1).tolist(), len(runs) - 1]
    sources, starts, stops = runs["source"][firsts], runs["start"][firsts], runs["stop"][lasts[: len(firsts)]]
    return [_Slice(*ends) for ends in zip(sources.tolist(), starts.tolist(), stops.tolist())]
