"""One run that can stop anywhere, be saved, and go on: what the runs of both loops have in common.

The arrays of a :class:`Run` are its whole state. They grow only when the kernel asks, so memory follows what
is in flight and queued, not the length of the run (recorded rows apart). Each call of the kernel comes back
after a bounded amount of work, well under half a second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...kernels.pipeline import records
from ...kernels.pipeline.ticks import ticks
from ..config.config import PipelineConfig
from .parameters import pack
from .result import PipelineResult, named, table_columns

if TYPE_CHECKING:
    from typing import Self

TABLES = {"batches": "batch_rows", "timeline": "timeline_rows", "rollouts": "rollout_rows"}
_ROWS = {
    records.GROW_BATCHES: "batch_rows",
    records.GROW_TIMELINE: "timeline_rows",
    records.GROW_ROLLOUTS: "rollout_rows",
}
# A saved run holds plain arrays: whole numbers of its records under their own name, the others under these.
REAL_PARTS = {
    "state": "sums",
    "slots": "version_work",
    "groups": "group_factors",
    "members": "member_versions",
    "batch_rows": "batch_floats",
    "engines": "engine_sums",
    "saved_state": "saved_sums",
    "saved_groups": "saved_group_factors",
    "saved_members": "saved_member_versions",
}


class Run(ABC):
    """One run of either loop.

    Parameters
    ----------
    config : PipelineConfig
    batches, timeline, rollouts : bool
        Which rows to record.
    """

    draws: records.Draws | records.MemberDraws  # runs of one length law may share them
    REPORT: ClassVar[np.dtype]  # record of the metrics
    budget: ClassVar[int]  # events, or what costs as much, of one call of the kernel
    _SCRATCH: ClassVar[tuple[str, ...]]  # arrays that are not saved
    _WITHOUT_ENGINES: ClassVar[tuple[str, ...]] = ()  # not saved either, where there are no engines
    _WITHOUT_FAILURES: ClassVar[tuple[str, ...]] = ()  # … or no failures

    def __init__(
        self,
        config: PipelineConfig,
        *,
        batches: bool = False,
        timeline: bool = False,
        rollouts: bool = False,
    ) -> None:
        self.config = config
        self.parameters = pack([config], batches=batches, timeline=timeline, rollouts=rollouts)
        self.held: Any = None
        self.begin(config.seed)

    @property
    def state(self) -> np.record:
        """The state's record; its fields can be read and set."""
        return self.held.state[0]

    def use_seed(self, seed: int) -> None:
        """Take the draws of a seed; those of another are forgotten."""
        self.seed = np.uint64(seed)
        if self.draws.seed[0] != self.seed:
            self.draws.seed[0] = self.seed
            self.draws.drawn[:] = 0

    def begin(self, seed: int) -> None:
        """Put the run at time 0 of a seed."""
        self.use_seed(seed)
        if self.held is None:
            self.held = self._new_arrays()
            self._make_scratch()
        self._clear()

    def step(self, until_ticks: int = records.NEVER, budget: int | None = None) -> bool:
        """Call the kernel once; tell whether every event up to the time has happened.

        Raises
        ------
        ConfigError
            If more rollouts would have to be kept at once than memory allows.
        """
        status = self._call(np.int64(until_ticks), np.int64(budget or self.budget))
        self.grow(status)
        return bool(status == records.REACHED)

    def advance(self, until_seconds: float | None = None) -> bool:
        """Let every event up to a time happen (none: up to the end) and nothing else.

        Returns
        -------
        bool
            Whether the run has come to its end.
        """
        until = records.NEVER if until_seconds is None else ticks(until_seconds)
        while not self.step(until):
            pass
        return bool(self.state.ended) or until >= int(self.parameters[0].horizon)

    def arrays(self) -> dict[str, np.ndarray]:
        """Copy everything that the run needs to go on, as plain arrays."""
        saved = {"seed": np.array(self.seed)}
        for name, array in self.held._asdict().items():
            if name not in self._not_saved():
                saved |= _plain(name, array)
        return saved

    def _not_saved(self) -> tuple[str, ...]:
        none = self._WITHOUT_ENGINES if self.config.engine is None else ()
        return self._SCRATCH + none + (() if self.config.has_failures else self._WITHOUT_FAILURES)

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over the arrays of another run of the same configuration."""
        self.use_seed(int(arrays.get("seed", self.seed)))
        for name, array in self.held._asdict().items():
            if name not in self._not_saved():
                self._hold(**{name: _recorded(name, array.dtype, arrays)})
        self._make_scratch()

    @classmethod
    def from_arrays(cls, config: PipelineConfig, arrays: dict[str, np.ndarray]) -> Self:
        """Take up a saved run of the same configuration where it stopped."""
        run = cls(config, **{table: len(arrays[name]) > 0 for table, name in TABLES.items()})
        run.restore(arrays)
        return run

    def rows(self, table: str) -> np.ndarray | None:
        """Return the recorded rows of ``batches``, ``timeline`` or ``rollouts``; None where not asked for."""
        if not self.parameters[f"record_{table}"][0]:
            return None
        name = TABLES[table]
        rows: np.ndarray = getattr(self.held, name)
        return rows[: self.state[self.ROLLOUT_COUNT if table == "rollouts" else name]]

    ROLLOUT_COUNT: ClassVar[str]  # field of the state: recorded rows of rollouts

    @property
    @abstractmethod
    def lag_counts(self) -> np.ndarray:
        """Trained rollouts by lag, int64[LAG_BINS]."""

    def summary(self) -> np.record:
        """Close the sums as if the run went to its end without another event: every metric, a field each."""
        metrics = np.zeros(1, self.REPORT)
        self.summarize(metrics)
        return metrics[0]

    @abstractmethod
    def summarize(self, metrics: np.ndarray) -> None:
        """Write the metrics into an array of one record."""

    def tables(self, *, core: bool = False) -> dict[str, dict[str, np.ndarray]]:
        """Return what was recorded as named columns; `core`: as a sweep keeps it, the same for both loops."""
        found = {}
        for table in TABLES:
            rows = self.rows(table)
            if rows is not None:
                found[table] = table_columns(
                    table, rows, self.config, core=core, final_version=int(self.state.version)
                )
        return found

    def result(self) -> PipelineResult:
        """Close a run that was advanced to its end and give what it reports."""
        seed = int(self.seed)
        config = self.config if self.config.seed == seed else self.config.replace(seed=seed)
        return PipelineResult(config, named(self.summary(), config), self.lag_counts.copy(), self.tables())

    @abstractmethod
    def _new_arrays(self) -> Any:
        """Make the arrays of a run."""

    @abstractmethod
    def _clear(self) -> None:
        """Put the arrays at time 0: every slot idle, nothing queued."""

    @abstractmethod
    def _make_scratch(self) -> None:
        """Make the arrays that are not saved, as large as the others ask."""

    @abstractmethod
    def _call(self, until: np.int64, budget: np.int64) -> int:
        """Call the loop's kernel."""

    @abstractmethod
    def _grow_live(self) -> None:
        """Make room for more live rollouts."""

    def _hold(self, **arrays: np.ndarray) -> None:
        self.held = self.held._replace(**arrays)

    def grow(self, status: int) -> None:
        """Double what the kernel found too small; what is recorded or live stays as it is."""
        if status in _ROWS:
            rows = getattr(self.held, _ROWS[status])
            self._hold(**{_ROWS[status]: enlarged(rows, 2 * len(rows))})
        elif status in (records.GROW_RING, records.GROW_GROUPS):
            self._grow_live()

    def _new_rows(self, batch: np.dtype, timeline: np.dtype, rollout: np.dtype) -> dict[str, np.ndarray]:
        """Make first rows for what is recorded."""
        batches, of_timeline, rollouts = (self.parameters[f"record_{table}"][0] for table in TABLES)
        return {
            "batch_rows": np.zeros(64 * batches, batch),
            "timeline_rows": np.zeros(64 * of_timeline, timeline),
            "rollout_rows": np.zeros((64 + self.config.rollout_workers) * rollouts, rollout),
        }


def enlarged(rows: np.ndarray, count: int) -> np.ndarray:
    """Copy an array into a longer one."""
    larger = np.zeros(count, rows.dtype)
    larger[: len(rows)] = rows
    return larger


def _plain(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Take records apart into int64 and float64 columns; any other array is copied."""
    if array.dtype.names is None:
        return {name: array.copy()}
    parts = {}
    for part, fields in _parts(name, array.dtype):
        columns = np.stack([array[field] for field in fields], axis=-1)
        parts[part] = columns[0] if name == "state" else columns.squeeze(-1) if len(fields) == 1 else columns
    return parts


def _recorded(name: str, kind: np.dtype, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Put the columns of a saved run together into records."""
    if kind.names is None:
        return np.array(arrays[name], order="C")
    columns = {
        field: column
        for part, fields in _parts(name, kind)
        for field, column in zip(fields, np.asarray(arrays[part]).reshape(-1, len(fields)).T)
    }
    made = np.zeros(len(columns[kind.names[0]]), kind)
    for field, column in columns.items():
        made[field] = column
    return made


def _parts(name: str, kind: np.dtype) -> list[tuple[str, list[str]]]:
    """Name the saved parts of some records, and the fields of each."""
    whole, real = ([f for f in kind.names or () if kind[f].kind == letter] for letter in "if")
    return [(name, whole), (REAL_PARTS[name], real)] if real else [(name, whole)]
