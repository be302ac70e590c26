"""Check a stored sweep: files against spec and journal, and runs done again against what is stored.

Digests in the journal find bytes that changed, codecs' checksums find flipped bits, the spec says which
arrays, coordinates and units there must be. A value that is wrong under checksums that fit is found by
running it again: a sample of the runs by default, all of them on request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from ...kernels._arguments import instance
from ...kernels.errors import StoreError
from ..checks import WholeNumber, checked, flag_of, path_of
from ..custom.custom import Custom, remember
from ..execute.plan import Part
from ..execute.progress import Progress
from ..execute.threads import checked_threads
from ..execute.units import unit_name, unit_of_name
from ..results import dataset as results
from ..results.cells import not_recorded_note
from ..results.dataset import coordinate_table, variable_table
from ..runs.status import EXCLUDED, NOT_RUN
from .arrays import METADATA_NAME, digest_of
from .content import store_content
from .digests import file_holds
from .journal import CREATED, FINISHED, UNIT
from .metadata import metadata_problems
from .packs import PACKS_NAME, read_block, read_slice
from .place import CHANGED, MISSING, UNFINISHED, files_inside
from .proof import digests_of, unit_files, whole_while_rewritten
from .recorded import unrecorded_names
from .store import SPEC_NAME, SweepStore, done_mask
from .tables import TABLES_NAME, part_file, wanted_tables
from .units import known_as
from .verify_report import VerifyReport
from .verify_runs import chosen_runs, run_again

DEFAULT_SAMPLE = 200
CHANGED_TABLE = "is not the one that the journal tells of"
_MAY_BE_EMPTY = ("batches",)  # of runs that trained nothing


def verify_store(
    folder: str | Path,
    *,
    sample: int = DEFAULT_SAMPLE,
    everything: bool = False,
    cell: int | Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
    custom: Custom | None = None,
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
    custom : Custom, optional
        The rules of the user's own that the store was made with; without them its runs are not done again.

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
    remember(custom)
    store = SweepStore(path_of("folder", folder))
    report = VerifyReport(store.folder, bool(store.attributes.get("complete")))
    for kind, name, what in metadata_problems(store):
        report.add(kind, name, what)
    if any(finding.kind == "metadata" and finding.where != METADATA_NAME for finding in report.findings):
        return report  # chunks mean nothing under wrong metadata
    if lost := unrecorded_names(store.parts):
        report.notes.append(not_recorded_note(lost))
    _check_spec_file(store, report)
    _check_files(store, report)
    _check_journal(store, report)
    for part in store.parts:
        for unit in part.layout.units():
            _check_unit(store, part, unit, report)
    _check_table_files(store, report)
    _check_content(store, report, everything)
    workers = checked_threads(threads)
    chosen = chosen_runs(store, sample, everything, cell)
    revision = int(store.attributes.get("model_revision", 1))
    if revision > results.MODEL_REVISION or results.revisions_between(revision, store.spec):
        report.notes.append(
            f"runs of model revision {revision} are not run again by revision {results.MODEL_REVISION}; "
            "their files are held against their digests"
        )
    elif store.spec.custom is not None and not store.spec.custom.is_known:
        report.notes.append(
            f"runs are not done again without their rules ({store.spec.custom.describe()}); "
            "their files are held against their digests"
        )
    else:
        run_again(store, chosen, report, workers, progress or Progress(), cancel or threading.Event())
    return report


def _check_content(store: SweepStore, report: VerifyReport, everything: bool) -> None:
    """Note the digest of the runs: by the journal, or by the values themselves where every run is checked."""
    try:
        report.content = store_content(store, read_all=everything)
    except StoreError:  # of a file that is among the findings
        report.content = ""


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
        for name in variable_table(part):
            grids[name] = (*part.layout.grid, *(1 for _ in part.tail_of(name)))
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
    """Find parts of tables, and packs, that the journal does not tell of."""
    tables = store.folder / TABLES_NAME
    told = {
        file
        for part in store.parts
        for unit, record in store.done_units(part)
        for _, file, _ in unit_files(store, part, unit, record)
    }
    unsettled = {
        store.work_name(part, unit)
        for part in store.parts
        for unit in part.layout.units()
        if (known_as(store, part, unit) or {"rewriting": True}).get("rewriting")
    }
    for file in sorted(files_inside(store.folder / PACKS_NAME)):
        where = file.relative_to(store.folder)
        unit = where.stem.removeprefix("unit-")
        left_behind = unit in unsettled or file.name.endswith(UNFINISHED)
        if str(where) not in told and (report.complete or not left_behind):
            what = "is there, but the journal does not tell of it"
            report.add("foreign file", str(where), what, stray=file)
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
    for place, (variable, digest) in enumerate(digests_of(part, record).items()):
        report.chunks += 1
        where = f"{variable} unit {name}"
        pack = store.slice_of(part, unit, record, place)
        try:
            if pack is not None and pack.digest:
                if read_block(store.folder, pack) is None:
                    report.add("chunk", where, CHANGED, (part, unit))
                continue
            if pack is None:
                content = store.files.chunk_file(variable, unit).read_bytes()
            else:
                content = read_slice(store.folder, pack)
        except OSError:
            report.add("chunk", where, MISSING, (part, unit))
            continue
        except (RuntimeError, ValueError) as error:  # of a block
            report.add("chunk", where, f"cannot be read: {str(error).splitlines()[0]}", (part, unit))
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
        file = part_file(store.folder, table, name)
        if not file_holds(file, str(digest)):
            what = CHANGED_TABLE if file.is_file() else MISSING
            report.add("table", f"{table} unit {name}", what, (part, unit))
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
