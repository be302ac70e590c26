"""Check a stored sweep: files against spec and journal, and runs done again against what is stored.

Digests in the journal find bytes that changed, codecs' checksums find flipped bits, the spec says which
arrays, coordinates and units there must be. A value that is wrong under checksums that fit is found by
running it again: a sample of the runs by default, all of them on request.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.errors import StoreError
from ..execute.plan import CELLS, Part, guessed_run_seconds
from ..execute.progress import Progress
from ..execute.threads import checked_threads, run_units
from ..execute.units import unit_name, unit_of_name
from ..execute.work import UnitArrays, UnitWork, empty_arrays
from ..results import dataset as results
from ..results.dataset import coordinate_table, variable_table
from ..runs.status import EXCLUDED, NOT_RUN
from .arrays import METADATA_NAME, digest_of
from .journal import CREATED, FINISHED, UNIT
from .metadata import metadata_problems
from .place import CHANGED, MISSING, UNFINISHED, files_inside
from .proof import digests_of, unit_files, whole_while_rewritten
from .store import SPEC_NAME, SweepStore, done_mask
from .tables import TABLES_NAME, file_digest, part_file, unit_frames, wanted_tables
from .units import known_as

DEFAULT_SAMPLE = 200
Unit = tuple[Part, tuple[int, ...]]
CHANGED_TABLE = "is not the one that the journal tells of"
_MAY_BE_EMPTY = ("batches",)  # of runs that trained nothing


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
    notes : list of str
        What was not checked, and why.
    repairs : list of str
        What was done about findings.
    left : list of Finding
        What of the findings a repair left; all of them where none was asked for.
    wrong_units : set of (str, str)
        Part and name of the units that findings are about.
    stray_files : list of Path
        Files that findings say do not belong into the store.
    units, units_done, chunks, runs_checked : int
    """

    folder: Path
    complete: bool
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    wrong_units: set[tuple[str, str]] = field(default_factory=set)
    stray_files: list[Path] = field(default_factory=list)
    units: int = 0
    units_done: int = 0
    chunks: int = 0
    runs_checked: int = 0
    left: list[Finding] = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.findings

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def add(
        self, kind: str, where: str, what: str, unit: Unit | None = None, stray: Path | None = None
    ) -> None:
        """Note a finding; `unit` is the one that it is about, `stray` a file that is too much."""
        self.findings.append(Finding(kind, where, what))
        if unit is not None:
            self.wrong_units.add((unit[0].name, unit_name(unit[1])))
        if stray is not None:
            self.stray_files.append(stray)


def verify_store(
    folder: str | Path,
    *,
    sample: int = DEFAULT_SAMPLE,
    everything: bool = False,
    cell: Any = None,
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
    store = SweepStore(Path(folder))
    report = VerifyReport(store.folder, bool(store.attributes["complete"]))
    for kind, name, what in metadata_problems(store):
        report.add(kind, name, what)
    if any(finding.kind == "metadata" and finding.where != METADATA_NAME for finding in report.findings):
        return report  # chunks mean nothing under wrong metadata
    _check_spec_file(store, report)
    _check_files(store, report)
    _check_journal(store, report)
    for part in store.parts:
        for unit in part.layout.units():
            _check_unit(store, part, unit, report)
    _check_table_files(store, report)
    workers = checked_threads(threads)
    chosen = _chosen_runs(store, sample, everything, cell)
    revision = int(store.attributes.get("model_revision", 1))
    if revision > results.MODEL_REVISION or results.revisions_between(revision, store.spec):
        report.notes.append(
            f"runs of model revision {revision} are not run again by revision {results.MODEL_REVISION}; "
            "their files are held against their digests"
        )
    else:
        _run_again(store, chosen, report, workers, progress or Progress(), cancel or threading.Event())
    return report


def _check_spec_file(store: SweepStore, report: VerifyReport) -> None:
    """Hold the spec that people read and give again against the one that the group carries."""
    from ..spec.reading import read_spec_file
    from ..spec.writing import spec_to_toml

    try:
        text = (store.folder / SPEC_NAME).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        report.add("spec", SPEC_NAME, f"cannot be read: {error}")
        return
    if text != spec_to_toml(store.spec):
        try:
            same = read_spec_file(store.folder / SPEC_NAME).fingerprint == store.spec.fingerprint
        except Exception:  # whatever the reader of specs raises
            same = False
        if not same:
            report.add("spec", SPEC_NAME, "is not the spec of the store")


def _check_files(store: SweepStore, report: VerifyReport) -> None:
    """Find files that do not belong into the group, and chunks outside its grid."""
    root = store.files.path
    known = set(coordinate_table(store.spec))
    grids = {}
    for part in store.parts:
        for name, (_, dims, _) in variable_table(part).items():
            grids[name] = (*part.layout.grid, *((1,) if dims[-1] == "lag" else ()))
    for file in sorted(files_inside(root)):
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
        report.add("foreign file", str(where), "does not belong into the group", stray=file)


def _check_table_files(store: SweepStore, report: VerifyReport) -> None:
    """Find parts of tables that the journal does not tell of."""
    tables = store.folder / TABLES_NAME
    told = {
        file
        for part in store.parts
        for unit, record in store.done_units(part)
        for kind, file, _, _ in unit_files(store, part, unit, record)
        if kind == "table"
    }
    unsettled = {
        store.work_name(part, unit)
        for part in store.parts
        for unit in part.layout.units()
        if (known_as(store, part, unit) or {"rewriting": True}).get("rewriting")
    }
    for file in sorted(files_inside(tables)):
        where = file.relative_to(store.folder)
        unit = where.stem.removeprefix("unit-")
        if str(where) in told or (unit in unsettled and where.suffix == ".parquet"):
            continue
        if file.name.endswith((UNFINISHED, ".tmp")) and not report.complete:
            continue  # of a run that was killed; the next one removes it
        if len(where.parts) == 3 and where.suffix == ".parquet":
            where_told = f"{where.parts[1]} unit {unit}"
            report.add("table", where_told, "is there, but the journal does not tell of it", stray=file)
        else:
            report.add("foreign file", str(where), "does not belong into the tables", stray=file)


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
        _check_readable(store, part, unit, record, report)
        return
    before = len(report.findings)
    _check_chunks(store, part, unit, record, report)
    _check_tables(store, part, unit, record, report)
    if len(report.findings) == before:
        _check_status(store, part, unit, record, report)


def _check_chunks(
    store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any], report: VerifyReport
) -> None:
    name = unit_name(unit)
    for variable, digest in digests_of(part, record).items():
        report.chunks += 1
        where = f"{variable} unit {name}"
        try:
            content = store.files.chunk_file(variable, unit).read_bytes()
        except OSError:
            report.add("chunk", where, MISSING, (part, unit))
            continue
        try:
            store.files.array(variable).decoded(content)
        except (RuntimeError, ValueError) as error:
            report.add("chunk", where, f"cannot be read: {str(error).splitlines()[0]}", (part, unit))
            continue
        if digest_of(content) != digest:
            report.add("chunk", where, CHANGED, (part, unit))


def _check_readable(
    store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any], report: VerifyReport
) -> None:
    """Check the chunks of a unit that is, or was when the run was killed, being written again.

    Each is what the journal tells of, in place or among the kept; those of older versions, which kept none,
    are whole, old or new.
    """
    if whole_while_rewritten(store, part, unit_name(unit), record):
        report.chunks += len(variable_table(part))
        return
    for name in variable_table(part):
        report.chunks += 1
        where = f"{name} unit {unit_name(unit)}"
        try:
            store.files.array(name).decoded(store.files.chunk_file(name, unit).read_bytes())
        except OSError:
            report.add("chunk", where, MISSING, (part, unit))
        except (RuntimeError, ValueError) as error:
            report.add("chunk", where, f"cannot be read: {str(error).splitlines()[0]}", (part, unit))


def _check_tables(
    store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any], report: VerifyReport
) -> None:
    name = store.work_name(part, unit)
    tables = dict(record.get("tables", {}))
    for table, digest in tables.items():
        found = file_digest(part_file(store.folder, table, name))
        if found != digest:
            report.add("table", f"{table} unit {name}", CHANGED_TABLE if found else MISSING, (part, unit))
    if int(record.get("runs", 0)) > int(record.get("failed", 0)):
        for table in wanted_tables(store.spec, part.name):
            if table not in tables and table not in _MAY_BE_EMPTY:
                report.add(
                    "table",
                    f"{table} unit {name}",
                    "is wanted, but the journal does not tell of it",
                    (part, unit),
                )


def _check_status(
    store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any], report: VerifyReport
) -> None:
    """Check that a unit's runs are in the state that the spec and the journal say."""
    where = f"unit {part.prefix}{unit_name(unit)}"
    status = store.read_status(part, unit, record)
    excluded = part.excluded.reshape(-1)[part.layout.cells(unit)]
    done = done_mask(part, unit, record)
    if ((status == EXCLUDED) != excluded[:, None])[done].any():
        report.add("status", where, "excludes other cells than the spec", (part, unit))
    if store.spec.until is None and (status[done] == NOT_RUN).any():
        report.add(
            "status", where, "holds runs that were never done, but the journal says done", (part, unit)
        )
    for key, codes in (("runs", (1, 2)), ("failed", (2,))):
        count = int(np.isin(status, codes).sum())
        if record.get(key) != count:
            report.add("journal", where, f"says {key} {record.get(key)}, but there are {count}", (part, unit))


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
    except StoreError:
        return  # told already, as a chunk that does not hold
    ran = work.todo & (stored.status != NOT_RUN) if store.spec.until is not None else work.todo
    report.runs_checked += int(ran.sum())
    for name, wrong in _differing(work.arrays, stored, ran):
        cells, seeds = np.nonzero(wrong)
        ids = work.part.cell_ids.reshape(-1)[work.cells]
        where = f"{work.part.prefix}{name} cell {ids[cells[0]]} seed {work.seeds[seeds[0]]}"
        more = f" (and {len(cells) - 1} more runs of this unit)" if len(cells) > 1 else ""
        report.add("value", where, f"is not what the run gives{more}", (work.part, work.unit))
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
