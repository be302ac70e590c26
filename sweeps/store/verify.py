"""Check a stored sweep: files against spec and journal, and runs done again against what is stored.

Digests in the journal find bytes that changed, codecs' checksums find flipped bits, the spec says which
arrays, coordinates and units there must be. A value that is wrong under checksums that fit is found by
running it again: a sample of the runs by default, all of them on request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ..checks import WholeNumber, checked, flag_of, path_of
from ..execute.plan import CELLS, Part, guessed_run_seconds
from ..execute.progress import Progress
from ..execute.threads import checked_threads, run_units
from ..execute.units import box_shape, unit_name, unit_of_name
from ..execute.work import UnitArrays, UnitWork, empty_arrays
from ..results.dataset import coordinate_table, variable_table
from ..runs.status import EXCLUDED, NOT_RUN
from .journal import CREATED, FINISHED, UNIT
from .store import SweepStore, done_mask
from .tables import FAILURES, file_digest, part_file, unit_frames, wanted_tables

DEFAULT_SAMPLE = 200


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it must be.

    Attributes
    ----------
    kind : str
        metadata, coordinate, foreign file, journal, chunk, table, status or value.
    where : str
    what : str
    """

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


@dataclass
class VerifyReport:
    """What a verification found.

    Attributes
    ----------
    findings : list of Finding
    complete : bool
        Whether the store says that it is.
    units, units_done, chunks, runs_checked : int
    """

    folder: Path
    complete: bool
    findings: list[Finding] = field(default_factory=list)
    units: int = 0
    units_done: int = 0
    chunks: int = 0
    runs_checked: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def add(self, kind: str, where: str, what: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(kind, where, what))


def verify_store(
    folder: str | Path,
    *,
    sample: int = DEFAULT_SAMPLE,
    everything: bool = False,
    cell: int | Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> VerifyReport:
    """Check a stored sweep.

    Parameters
    ----------
    folder : path
    sample : int
        How many runs to do again; the same ones each time.
    everything : bool
        Do every run again.
    cell : int or mapping, optional
        Do the runs of this cell again, and no others.
    threads : int, optional
    progress : Progress, optional
    cancel : threading.Event, optional

    Returns
    -------
    VerifyReport

    Raises
    ------
    StoreError
        If there is no store, or its metadata cannot be read.
    """
    sample = checked(WholeNumber, "sample", sample, low=0, high=2**53)
    everything = flag_of("everything", everything)
    workers = checked_threads(threads)
    if progress is None:
        progress = Progress()
    instance("progress", progress, Progress, "Leave it out, or give a Progress.")
    if cancel is None:
        cancel = threading.Event()
    instance("cancel", cancel, Event, "Leave it out, or give a threading.Event.")
    store = SweepStore(path_of("folder", folder))
    report = VerifyReport(store.folder, bool(store.attributes["complete"]))
    _check_arrays(store, report)
    if report.findings:
        return report  # chunks mean nothing under wrong metadata
    _check_coordinates(store, report)
    _check_files(store, report)
    _check_journal(store, report)
    for part in store.parts:
        for unit in part.layout.units():
            _check_unit(store, part, unit, report)
    chosen = _chosen_runs(store, sample, everything, cell)
    _run_again(store, chosen, report, workers, progress, cancel)
    return report


def _check_arrays(store: SweepStore, report: VerifyReport) -> None:
    for part in store.parts:
        for name, (dtype, dims, _) in variable_table(part).items():
            if not store.files.has(name):
                report.add("metadata", name, "the array is missing")
                continue
            try:
                array = store.files.array(name)
                tail = (65,) if dims[-1] == "lag" else ()
                facts = (array.shape, str(array.dtype), array.chunks, tuple(array.metadata.dimension_names))
                codecs = [codec.to_dict() for codec in array.metadata.codecs]
            except Exception as error:
                report.add("metadata", name, f"cannot be read: {error}")
                continue
            wanted = ((*part.layout.shape, *tail), dtype, (*part.layout.chunks, *tail), dims)
            if facts != wanted:
                report.add("metadata", name, f"shape, type, chunks, dimensions are {facts}, must be {wanted}")
            if not any(dict(codec.get("configuration", {})).get("checksum") for codec in codecs):
                report.add("metadata", name, "chunks have no checksum")


def _check_coordinates(store: SweepStore, report: VerifyReport) -> None:
    for name, (_, values, _) in coordinate_table(store.spec).items():
        try:
            stored = np.asarray(store.files.array(name)[...])
            same = stored.shape == values.shape and stored.tolist() == values.tolist()
        except Exception as error:
            report.add("coordinate", name, f"cannot be read: {error}")
            continue
        if not same:
            report.add("coordinate", name, "is not what the spec says")


def _check_files(store: SweepStore, report: VerifyReport) -> None:
    """Find files that do not belong into the group, and chunks outside its grid."""
    root = store.files.path
    known = set(coordinate_table(store.spec))
    grids = {}
    for part in store.parts:
        for name, (_, dims, _) in variable_table(part).items():
            grids[name] = (*part.layout.grid, *((1,) if dims[-1] == "lag" else ()))
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        where = file.relative_to(root)
        name, *rest = where.parts
        if (
            where.name == "zarr.json"
            and len(where.parts) <= 2
            and (len(where.parts) == 1 or name in known | set(grids))
        ):
            continue
        if name in known and rest and rest[0] == "c":
            continue
        if name in grids and _is_chunk(rest, grids[name]):
            continue
        if file.name.endswith((".partial", ".tmp")) and not report.complete:
            continue  # of a run that was killed; the next one removes it
        report.add("foreign file", str(where), "does not belong into the group")


def _is_chunk(rest: list[str], grid: tuple[int, ...]) -> bool:
    if len(rest) != len(grid) + 1 or rest[0] != "c" or not all(part.isdigit() for part in rest[1:]):
        return False
    return all(int(part) < count for part, count in zip(rest[1:], grid))


def _check_journal(store: SweepStore, report: VerifyReport) -> None:
    journal = store.journal
    for number in journal.damaged:
        report.add("journal", f"line {number}", "is damaged")
    if journal.torn and report.complete:
        report.add("journal", "last line", "is cut off")
    if not journal.records or journal.records[0].get("kind") != CREATED:
        report.add("journal", "line 1", "must tell of the store's creation")
    elif journal.records[0].get("fingerprint") != store.spec.fingerprint:
        report.add("journal", "line 1", "has another sweep's fingerprint")
    finished = [record for record in journal.records if record.get("kind") == FINISHED]
    if report.complete and not journal.finished:
        report.add("journal", "last line", "does not say finished, but the store says complete")
    if finished and not report.complete and journal.finished:
        report.add("journal", "last line", "says finished, but the store says incomplete")
    parts = {part.name: part for part in store.parts}
    for record in journal.records:
        if record.get("kind") == UNIT and not _is_unit(
            parts.get(record.get("part", "")), record.get("unit", "")
        ):
            report.add("journal", f"unit {record.get('unit')}", "is no unit of this sweep")


def _is_unit(part: Part | None, name: str) -> bool:
    if part is None or not all(piece.isdigit() for piece in name.split(".")):
        return False
    unit = unit_of_name(name)
    return len(unit) == len(part.layout.grid) and all(k < count for k, count in zip(unit, part.layout.grid))


def _check_unit(store: SweepStore, part: Part, unit: tuple[int, ...], report: VerifyReport) -> None:
    name = unit_name(unit)
    record = store.journal.units(part.name).get(name)
    report.units += 1
    if record is None:
        if report.complete and store.spec.until is None:
            report.add("journal", f"unit {part.prefix}{name}", "is missing, but the store says complete")
        return
    report.units_done += 1
    if record.get("rewriting"):
        if report.complete:
            report.add(
                "journal", f"unit {part.prefix}{name}", "is being written, but the store says complete"
            )
        _check_readable(store, part, unit, report)
        return
    before = len(report.findings)
    _check_chunks(store, part, unit, str(record.get("digest", "")), report)
    _check_tables(store, part, unit, dict(record.get("tables", {})), report)
    if len(report.findings) == before:
        _check_status(store, part, unit, record, report)


def _check_chunks(
    store: SweepStore, part: Part, unit: tuple[int, ...], digests: str, report: VerifyReport
) -> None:
    width, box = 8, part.layout.box(unit)
    for place, (name, (_, dims, _)) in enumerate(variable_table(part).items()):
        where = f"{name} unit {unit_name(unit)}"
        report.chunks += 1
        found = store.files.digest(name, unit)
        if not found:
            report.add("chunk", where, "is missing, but the journal says done")
            continue
        changed = found != digests[place * width : (place + 1) * width]
        try:
            store.files.read(name, (*box, *(((0, 65),) if dims[-1] == "lag" else ())))
        except Exception as error:
            report.add("chunk", where, f"cannot be read: {str(error).splitlines()[0]}")
            continue
        if changed:
            report.add("chunk", where, "is not the one that the journal tells of (changed, or swapped)")


def _check_readable(store: SweepStore, part: Part, unit: tuple[int, ...], report: VerifyReport) -> None:
    """Check the chunks of a unit that a killed run was writing again: each is whole, old or new."""
    box = part.layout.box(unit)
    for name, (_, dims, _) in variable_table(part).items():
        report.chunks += 1
        if not store.files.digest(name, unit):
            report.add("chunk", f"{name} unit {unit_name(unit)}", "is missing, but the journal says done")
            continue
        try:
            store.files.read(name, (*box, *(((0, 65),) if dims[-1] == "lag" else ())))
        except Exception as error:
            what = f"cannot be read: {str(error).splitlines()[0]}"
            report.add("chunk", f"{name} unit {unit_name(unit)}", what)


def _check_tables(
    store: SweepStore, part: Part, unit: tuple[int, ...], digests: dict[str, str], report: VerifyReport
) -> None:
    name = f"{part.prefix}{unit_name(unit)}"
    for table, digest in digests.items():
        found = file_digest(part_file(store.folder, table, name))
        if not found:
            report.add("table", f"{table} unit {name}", "is missing, but the journal says done")
        elif found != digest:
            report.add("table", f"{table} unit {name}", "is not the one that the journal tells of")
    for table in (*wanted_tables(store.spec, part.name), FAILURES):
        if table not in digests and part_file(store.folder, table, name).exists():
            report.add("table", f"{table} unit {name}", "is there, but the journal does not tell of it")


def _check_status(
    store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any], report: VerifyReport
) -> None:
    """Check that a unit's runs are in the state that the spec and the journal say."""
    where = f"unit {part.prefix}{unit_name(unit)}"
    box = part.layout.box(unit)
    shape = box_shape(box)
    status = store.files.read(f"{part.prefix}status", box).reshape(-1, shape[-1])
    excluded = part.excluded.reshape(-1)[part.layout.cells(unit)]
    done = done_mask(part, unit, record)
    if ((status == EXCLUDED) != excluded[:, None])[done].any():
        report.add("status", where, "excludes other cells than the spec")
    if store.spec.until is None and (status[done] == NOT_RUN).any():
        report.add("status", where, "holds runs that were never done, but the journal says done")
    for key, codes in (("runs", (1, 2)), ("failed", (2,))):
        count = int(np.isin(status, codes).sum())
        if record.get(key) != count:
            report.add("journal", where, f"says {key} {record.get(key)}, but there are {count}")


Chosen = list[tuple[Part, tuple[int, ...], np.ndarray]]


def _chosen_runs(store: SweepStore, sample: int, everything: bool, cell: Any) -> Chosen:
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


def _run_again(
    store: SweepStore,
    chosen: Chosen,
    report: VerifyReport,
    threads: int,
    progress: Progress,
    cancel: threading.Event,
) -> None:
    from ..execute.work import recording

    lock = threading.Lock()

    def works() -> Iterator[UnitWork]:
        for part, unit, mask in chosen:
            arrays = empty_arrays(part.metrics, *mask.shape, lag_counts=part.keep_lag_counts)
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


def _compare(store: SweepStore, work: UnitWork, report: VerifyReport) -> None:
    """Compare runs that were done again with what the store holds, bit for bit."""
    try:
        stored = store.read_unit(work.part, work.unit)
    except Exception:
        return  # told already, as a chunk that cannot be read
    ran = work.todo & (stored.status != NOT_RUN) if store.spec.until is not None else work.todo
    report.runs_checked += int(ran.sum())
    for name, wrong in _differing(work.arrays, stored, ran):
        cells, seeds = np.nonzero(wrong)
        ids = work.part.cell_ids.reshape(-1)[work.cells]
        where = f"{work.part.prefix}{name} cell {ids[cells[0]]} seed {work.seeds[seeds[0]]}"
        more = f" (and {len(cells) - 1} more runs of this unit)" if len(cells) > 1 else ""
        report.add("value", where, f"is not what the run gives{more}")
    _compare_tables(store, work, ran, report)


def _differing(fresh: UnitArrays, stored: UnitArrays, ran: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    pairs = [(name, values, stored.metrics[name]) for name, values in fresh.metrics.items()]
    pairs.append(("status", fresh.status, stored.status))
    for name, new, old in pairs:
        same = new == old
        if new.dtype.kind == "f":
            same |= np.isnan(new) & np.isnan(old)
        wrong = ran & ~same
        if wrong.any():
            yield name, wrong
    if fresh.lag_counts is not None and stored.lag_counts is not None:
        wrong = ran & (fresh.lag_counts != stored.lag_counts).any(axis=-1)
        if wrong.any():
            yield "lag_counts", wrong


def _compare_tables(store: SweepStore, work: UnitWork, ran: np.ndarray, report: VerifyReport) -> None:
    import polars

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
            stored = polars.read_parquet(file)
        except Exception as error:
            report.add("table", f"{table} unit {work.name}", f"cannot be read: {error}")
            continue
        kept = stored.join(runs, on=["cell", "seed"], how="semi", maintain_order="left")
        wanted = fresh.join(runs, on=["cell", "seed"], how="semi", maintain_order="left")
        if not kept.equals(wanted):
            report.add("table", f"{table} unit {work.name}", "holds other rows than the runs give")
