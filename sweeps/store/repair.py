"""Repair a stored sweep as far as its journal and its spec allow: what remains to do is an ordinary resume.

Units with findings are undone, files that do not belong into the store are removed, metadata, coordinates and
``spec.toml`` are written anew from the spec, and the journal is written anew without its dead lines. No value
is made up: the run's command does again what was undone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...kernels.errors import many
from ..execute.progress import Progress
from ..spec.writing import spec_to_toml
from .arrays import METADATA_NAME
from .aside import recover_swap
from .journal import FINISHED, JOURNAL_NAME
from .lock import StoreLock
from .metadata import mend_metadata, metadata_problems, problem_file
from .place import faults_of_the_machine, refuse_links
from .resume import put_back
from .root import problem_of_root, rebuild_root
from .store import SPEC_NAME, SweepStore
from .tables import remove_leftovers
from .verify import VerifyReport, verify_store


def repair_store(folder: str | Path, progress: Progress | None = None, **options: Any) -> VerifyReport:
    """Check a stored sweep and repair what is found.

    Parameters
    ----------
    folder : path
    progress : Progress, optional
    **options
        As :func:`.verify.verify_store`.

    Returns
    -------
    VerifyReport
        Its findings are those that were there before; ``repairs`` says what was done about them.

    Raises
    ------
    StoreError
        If there is no store, another run is on it, or its metadata are gone and said nowhere else.
    """
    path = Path(folder)
    path = path.resolve() if path.is_symlink() else path
    with faults_of_the_machine(path):
        return _repaired(path, progress, options)


def _repaired(path: Path, progress: Progress | None, options: dict[str, Any]) -> VerifyReport:
    recover_swap(path)
    wrong = problem_of_root(path)  # what is no store is refused before a lock is written into it
    with StoreLock(path):
        refuse_links(path)
        repairs = [rebuild_root(path)] if wrong else []
        store = SweepStore(path)
        try:
            report = _verified(store, repairs, path, progress, options)
            _undo_and_sweep(store, report, repairs)
            _rewrite_journal(store, repairs)
        finally:
            store.close()
        if wrong:
            report.add("metadata", METADATA_NAME, "; ".join(found.rule for found in wrong.findings))
            report.findings.insert(0, report.findings.pop())
        after = verify_store(path, sample=0)
        report.repairs, report.left, report.complete = repairs, after.findings, after.complete
    return report


def _verified(
    store: SweepStore, repairs: list[str], path: Path, progress: Progress | None, options: dict[str, Any]
) -> VerifyReport:
    """Mend what stands in the way of a verification, and verify; the findings are those from before."""
    removed = store.files.sweep_leftovers() + remove_leftovers(path)
    if removed:
        repairs.append(f"removed {removed:,} unfinished files")
    put_back(store)
    problems = metadata_problems(store)
    if problems:
        mend_metadata(store)
        repairs += [f"wrote {problem_file(problem)} anew" for problem in problems]
    report = verify_store(path, progress=progress, **options)
    for kind, name, what in reversed(problems):
        report.add(kind, name, what)
        report.findings.insert(0, report.findings.pop())
    if any(finding.kind == "spec" for finding in report.findings):
        store.place.write(SPEC_NAME, spec_to_toml(store.spec).encode())
        repairs.append(f"wrote {SPEC_NAME} anew")
    return report


def _undo_and_sweep(store: SweepStore, report: VerifyReport, repairs: list[str]) -> None:
    """Undo the units with findings (all, where the journal is another sweep's) and remove stray files."""
    if store.journal.foreign:
        for part in store.parts:
            report.wrong_units |= {(part.name, unit) for unit in store.journal.units(part.name)}
    undone = sum(unit in store.journal.units(name) for name, unit in report.wrong_units)
    missing = not all(store.is_done(part, unit) for part, unit in store.units())
    if undone or missing:
        store.reopen()
    for name, unit in sorted(report.wrong_units):
        store.journal.forget(name, unit)
    if undone:
        repairs.append(f"undid {many(undone, 'unit')}; the run's command does again what was undone")
    told = {file for part in store.parts for file in _told(store, part)}
    stray = [file for file in report.stray_files if str(file.relative_to(store.folder)) not in told]
    for file in stray:
        store.place.remove(str(file.relative_to(store.folder)))
    if stray:
        repairs.append(f"removed {many(len(stray), 'file')} that did not belong into the store")


def _told(store: SweepStore, part: Any) -> list[str]:
    from .proof import unit_files

    return [
        file
        for unit, record in store.done_units(part)
        for _, file, _ in unit_files(store, part, unit, record)
    ]


def _rewrite_journal(store: SweepStore, repairs: list[str]) -> None:
    """Write the journal anew: the creation, the last line of each unit that is done, the finish if it is."""
    lines = store.living_lines()
    if store.files.attributes.get("complete"):
        lines.append({"kind": FINISHED, "fingerprint": store.spec.fingerprint})
    if lines != store.journal.records or store.journal.damaged or store.journal.torn:
        dead = len(store.journal.records) + len(store.journal.damaged) + store.journal.torn - len(lines)
        repairs.append(f"wrote {JOURNAL_NAME} anew without {max(0, dead):,} dead lines")
        store.journal.rewrite(store.place, lines)
