"""Do runs of a stored sweep again and hold them, bit for bit, against what the store has."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...kernels.errors import ConfigError, StoreError
from ...kernels.pipeline.metrics import UNUSED_VALUES, hidden_metrics
from ..execute.plan import CELLS, Part, guessed_run_seconds
from ..execute.progress import Progress
from ..execute.threads import run_units
from ..execute.unit_arrays import UnitArrays, all_lag_bins, empty_arrays
from ..execute.units import unit_name
from ..execute.work import UnitWork
from ..runs.status import NOT_RUN
from .store import SweepStore, done_mask
from .tables import part_file, unit_frames
from .verify_report import VerifyReport

Chosen = list[tuple[Part, tuple[int, ...], np.ndarray]]


def chosen_runs(store: SweepStore, sample: int, everything: bool, cell: Any) -> Chosen:
    """Choose which done runs are to be done again."""
    done: Chosen = []
    for part, unit in store.units():
        record = store.journal.units(part.name).get(unit_name(unit))
        if record is not None:
            kept = ~part.excluded.reshape(-1)[part.layout.cells(unit)]
            done.append((part, unit, done_mask(part, unit, record) & kept[:, None]))
    if cell is not None:
        from ..spec.cells import find_cell

        place = find_cell(store.spec, cell)
        return [
            (part, unit, mask & (part.layout.cells(unit) == place)[:, None])
            for part, unit, mask in done
            if part.name == CELLS
        ]
    if everything:
        return done
    total = sum(int(mask.sum()) for _, _, mask in done)
    draw = np.random.default_rng(int(store.spec.fingerprint[:8], 16))
    wanted = (
        np.sort(draw.choice(total, size=min(sample, total), replace=False)) if total else np.zeros(0, int)
    )
    chosen, before = [], 0
    for part, unit, mask in done:
        count = int(mask.sum())
        inside = wanted[(wanted >= before) & (wanted < before + count)] - before
        before += count
        if len(inside):
            picked = np.zeros(mask.size, bool)
            picked[np.flatnonzero(mask)[inside]] = True
            chosen.append((part, unit, picked.reshape(mask.shape)))
    return chosen


def run_again(
    store: SweepStore,
    chosen: Chosen,
    report: VerifyReport,
    threads: int,
    progress: Progress,
    cancel: threading.Event,
) -> None:
    """Do chosen runs again, and note each value and row that is not what the store holds."""
    from ..execute.work import recording

    lock = threading.Lock()
    chosen = [(part, unit, _of_sound_cells(store, part, unit, mask, report)) for part, unit, mask in chosen]

    def works() -> Iterator[UnitWork]:
        for part, unit, mask in chosen:
            arrays = empty_arrays(part, *mask.shape)
            work = UnitWork(part, unit, arrays, mask, recording(store.spec, part))
            if work.runs:
                yield work

    def compare(work: UnitWork) -> None:
        with lock:
            _compare(store, work, report)

    total = sum(int(mask.sum()) for _, _, mask in chosen)
    progress.begin(total)
    try:
        run_units(
            works(),
            runs=total,
            threads=threads,
            unit_done=compare,
            progress=progress,
            cancel=cancel,
            run_seconds=guessed_run_seconds(store.spec.base, store.spec.design),
        )
    finally:
        progress.end()


def _of_sound_cells(
    store: SweepStore, part: Part, unit: tuple[int, ...], mask: np.ndarray, report: VerifyReport
) -> np.ndarray:
    """Leave out runs of cells whose settings contradict each other: no loop gets such, and they are told.

    The spec of a store is taken as checked when it was made; only what is to run again is built here.
    """
    kept = mask.copy()
    places = part.layout.cells(unit)
    asked = np.flatnonzero(mask.any(axis=1)) if part.name == CELLS else np.zeros(0, int)
    for row in asked.tolist():
        try:
            store.spec.config(int(places[row]))
        except ConfigError as error:
            kept[row] = False
            cell = int(part.cell_ids.reshape(-1)[places[row]])
            report.add("spec", f"cell {cell}", f"contradicts itself: {str(error).splitlines()[0]}")
    return kept


def _compare(store: SweepStore, work: UnitWork, report: VerifyReport) -> None:
    """Compare runs that were done again with what the store holds, bit for bit."""
    try:
        stored = store.read_unit(work.part, work.unit)
    except StoreError:
        return  # told already, as a chunk that does not hold
    ran = work.todo & (stored.status != NOT_RUN) if store.spec.until is not None else work.todo
    report.runs_checked += int(ran.sum())
    unused = _unused(work, ran)
    for name, wrong in _differing(work.arrays, stored, ran, unused):
        cells, seeds = np.nonzero(wrong)
        ids = work.part.cell_ids.reshape(-1)[work.cells]
        where = f"{work.part.prefix}{name} cell {ids[cells[0]]} seed {work.seeds[seeds[0]]}"
        more = f" (and {len(cells) - 1} more runs of this unit)" if len(cells) > 1 else ""
        report.add("value", where, f"is not what the run gives{more}", (work.part, work.unit))
    _compare_tables(store, work, ran, report)


def _unused(work: UnitWork, ran: np.ndarray) -> dict[str, np.ndarray]:
    """Tell by metric of an option which cells do not use it, bool[cells]: what stands there is no result.

    Earlier versions wrote 0 there or left it empty, as the work happened to be cut.
    """
    if not UNUSED_VALUES.keys() & work.arrays.metrics.keys():
        return {}
    cells = np.flatnonzero(ran.any(axis=1))
    hidden = [hidden_metrics(config.options_in_use) for config in work.configs(cells)]
    unused = {}
    for name in frozenset().union(*hidden) & work.arrays.metrics.keys():
        unused[name] = np.zeros(len(ran), bool)
        unused[name][cells] = [name in of_cell for of_cell in hidden]
    return unused


def _differing(
    fresh: UnitArrays, stored: UnitArrays, ran: np.ndarray, unused: dict[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    pairs = [(name, values, stored.metrics[name]) for name, values in fresh.metrics.items()]
    pairs.append(("status", fresh.status, stored.status))
    for name, new, old in pairs:
        same = new == old
        if new.dtype.kind == "f":
            same |= np.isnan(new) & np.isnan(old)
        wrong = ran & ~same.reshape(*ran.shape, -1).all(axis=-1)
        if name in unused:
            wrong &= ~unused[name][:, None]
        if wrong.any():
            yield name, wrong
    if fresh.lag_counts is not None and stored.lag_counts is not None:
        wrong = ran & (all_lag_bins(fresh.lag_counts) != stored.lag_counts).any(axis=-1)
        if wrong.any():
            yield "lag_counts", wrong


def _compare_tables(store: SweepStore, work: UnitWork, ran: np.ndarray, report: VerifyReport) -> None:
    import polars

    unit = (work.part, work.unit)
    cells, seeds = np.nonzero(ran)
    ids = work.part.cell_ids.reshape(-1)[work.cells]
    runs = polars.DataFrame(
        {"cell": ids[cells].astype(np.int64), "seed": work.seeds[seeds].astype(np.uint64)}
    )
    for table, fresh in unit_frames(work, store.spec).items():
        file = part_file(store.folder, table, work.name)
        if not file.exists() or not len(fresh.columns) > 2:
            continue
        try:
            stored = polars.read_parquet(io.BytesIO(file.read_bytes()))
        except Exception as error:
            report.add("table", f"{table} unit {work.name}", f"cannot be read: {error}", unit)
            continue
        kept = stored.join(runs, on=["cell", "seed"], how="semi", maintain_order="left")
        wanted = fresh.join(runs, on=["cell", "seed"], how="semi", maintain_order="left")
        if not kept.equals(wanted):
            report.add("table", f"{table} unit {work.name}", "holds other rows than the runs give", unit)
