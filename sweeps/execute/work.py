"""One unit in hand: its arrays, the runs still to do, and one block of it run and filed."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...kernels.pipeline.metrics import hidden_metrics
from ..config.config import PipelineConfig
from ..custom.custom import CustomIdentity
from ..runs.many import (
    BatchResult,
    Cancelled,
    CellsOf,
    Record,
    empty_result,
    fill_value,
    not_reported,
    simulate_batch,
)
from ..runs.setups import Kept
from ..runs.status import EXCLUDED, FAILED
from ..spec.cells import describe_cell
from ..spec.spec import SweepSpec
from .plan import CELLS, Part
from .progress import Progress
from .unit_arrays import Failure, UnitArrays, with_room
from .units import unit_name

Todo = list[tuple[Part, tuple[int, ...], np.ndarray]]  # units, and which of their runs


class UnitWork:
    """A unit with its arrays and the runs still to do.

    Parameters
    ----------
    part : Part
    unit : tuple of int
        Its place in the part's layout.
    arrays : UnitArrays
        Written in place.
    todo : ndarray of bool, (cells, seeds)
    record : Record
    """

    def __init__(
        self, part: Part, unit: tuple[int, ...], arrays: UnitArrays, todo: np.ndarray, record: Record
    ) -> None:
        self.part, self.unit, self.arrays, self.record = part, unit, arrays, record
        self.cells = part.layout.cells(unit)
        start, stop = part.layout.box(unit)[-1]
        self.seeds = part.seeds[start:stop]
        skipped = part.excluded.reshape(-1)[self.cells]
        arrays.status[skipped] = EXCLUDED
        self.todo_asked = todo
        self.todo = todo & ~skipped[:, None]
        self.left = self.runs = int(self.todo.sum())
        self.seconds = 0.0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The unit's name, with its part's unless it is the sweep's own."""
        return f"{self.part.prefix}{unit_name(self.unit)}"

    def configs(self, cells: np.ndarray) -> list[PipelineConfig]:
        """Build the configurations of some of the unit's cells."""
        return self.part.configs(self.cells[cells])

    def file(self, cells: np.ndarray, seeds: np.ndarray, result: BatchResult, seconds: float) -> bool:
        """Put a block's results into the unit's arrays; tells whether the unit is complete."""
        arrays = self.arrays
        with self._lock:  # counts may move to a larger array
            arrays.put(cells, seeds, result.metrics, result.lag_counts, result.status)
            for (i, j), why in result.reasons.items():
                failure = why if isinstance(why, Failure) else Failure(str(why))
                arrays.failures[int(cells[i]), int(seeds[j])] = failure
            for table in ("batches", "timeline", "rollouts"):
                columns = getattr(result, table)
                if columns:
                    placed = {
                        "config": cells.astype(np.int32)[columns["config"]],
                        "seed_index": seeds.astype(np.int32)[columns["seed_index"]],
                    }
                    arrays.tables.setdefault(table, []).append(columns | placed)
            self.seconds += seconds
            self.left -= len(cells) * len(seeds)
            return self.left == 0


def run_block(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    record: Record,
    cancel: threading.Event | None,
    on_progress: Callable[[int], None] | None = None,
    custom: CustomIdentity | None = None,
    kept: Kept | None = None,
) -> BatchResult:
    """Run configurations at seeds; a run that raises becomes a failure of that run, and the rest go on.

    What the machine lacks (memory, a disk, a file) is no run's failure: another machine would do the run. It
    ends the sweep, and the run stays undone.
    """
    cells_of = None if custom is None else custom_cells(custom)
    try:
        return simulate_batch(
            configs,
            seeds,
            record=record,
            cancel=cancel,
            on_progress=on_progress,
            cells_of=cells_of,
            kept=kept,
        )
    except (Cancelled, MemoryError, OSError):
        raise
    except Exception as error:
        if len(configs) * len(seeds) == 1:
            return _failed(configs, error)
    return _one_by_one(configs, seeds, record, cancel, custom)


def custom_cells(custom: CustomIdentity) -> CellsOf:
    """Return what runs configurations with rules of the user's own.

    Raises
    ------
    ConfigError
        If their code was not given in this process.
    """
    from ..custom.run import CustomCells

    return partial(CustomCells, custom.code())


def _failed(configs: Sequence[PipelineConfig], error: Exception) -> BatchResult:
    result = empty_result(1, 1)
    result.status[0, 0] = FAILED
    lines = str(error).splitlines()
    reason = f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
    details = "".join(traceback.format_exception(error))
    result.reasons[0, 0] = Failure(reason, details)  # type: ignore[assignment]
    return result


def _one_by_one(
    configs: Sequence[PipelineConfig],
    seeds: np.ndarray,
    record: Record,
    cancel: threading.Event | None,
    custom: CustomIdentity | None,
) -> BatchResult:
    whole = empty_result(len(configs), len(seeds))
    tables: dict[str, list[dict[str, np.ndarray]]] = {}
    for i, config in enumerate(configs):
        for j in range(len(seeds)):
            one = run_block([config], seeds[j : j + 1], record, cancel, None, custom)
            for name, values in one.metrics.items():
                if name not in whole.metrics:
                    shape = (*whole.status.shape, *values.shape[2:])
                    whole.metrics[name] = np.full(shape, fill_value(values.dtype.str), values.dtype)
                whole.metrics[name][i, j] = values[0, 0]
            whole.lag_counts = with_room(whole.lag_counts, one.lag_counts)
            whole.lag_counts[i, j, : one.lag_counts.shape[-1]] = one.lag_counts[0, 0]
            whole.status[i, j] = one.status[0, 0]
            for why in one.reasons.values():
                whole.reasons[i, j] = why
            for table in ("batches", "timeline", "rollouts"):
                columns = getattr(one, table)
                if columns:
                    place = {
                        "config": np.full_like(columns["config"], i),
                        "seed_index": np.full_like(columns["seed_index"], j),
                    }
                    tables.setdefault(table, []).append(columns | place)
    for i, config in enumerate(configs):
        for name in hidden_metrics(config.options_in_use) & whole.metrics.keys():
            values = whole.metrics[name]
            values[i] = not_reported(name, values.dtype, whole.status[i])
    for table, parts in tables.items():
        setattr(whole, table, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return whole


def tell_failures(
    part: Part, unit: tuple[int, ...], failures: dict[tuple[int, int], Failure], progress: Progress
) -> None:
    """Say each failed run of a unit in one line."""
    if not failures:
        return
    cells, first_seed = part.layout.cells(unit), part.layout.box(unit)[-1][0]
    for (cell, seed), failure in sorted(failures.items()):
        where = describe_cell(part.design, int(cells[cell]))
        progress.failure(f"failed: {where} seed={int(part.seeds[first_seed + seed])}: {failure.reason}")


def recording(spec: SweepSpec, part: Part) -> Record:
    """Tell what the runs of a part record beside their metrics."""
    tables = spec.tables if part.name == CELLS else ()
    return Record(
        batches="batches" in tables,
        timeline="timeline" in tables,
        rollouts="rollouts" in tables or (spec.masks and part.name == CELLS),
        windows=part.windows,
    )


def runs_of(todo: Todo) -> int:
    """Count the runs of units to do, excluded cells apart."""
    return sum(
        int((mask & ~part.excluded.reshape(-1)[part.layout.cells(unit)][:, None]).sum())
        for part, unit, mask in todo
    )


def one_unit(part: Part) -> Part:
    """Return a part cut into a single unit: in memory nothing is written, and blocks are cut anyway."""
    return part.with_chunks([max(1, size) for size in part.layout.shape])
