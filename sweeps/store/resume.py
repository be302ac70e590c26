"""What a run does with a store before it goes on: the files decide, and not the journal, what is done.

What a killed run left half-written is put back or removed, every file that the journal tells of is held
against its digest, and a unit with a file that is missing or differs is undone, to be run again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from ...kernels.errors import StoreError
from ..execute.plan import Part
from ..execute.progress import Progress
from ..execute.units import unit_name
from ..results import dataset as results
from .digests import file_holds
from .metadata import mend_metadata, metadata_problems, problem_file
from .place import KEPT, refusal
from .proof import damage, unit_files
from .store import SweepStore
from .tables import remove_leftovers

_MOST_NOTES = 5


def refuse_older(store: SweepStore) -> None:
    """Refuse to add runs to a store whose form, or whose results, this version would make otherwise.

    A store whose own cells are the same in every revision since may grow by cells that are not.

    Raises
    ------
    StoreError
    """
    schema, revision = (int(store.attributes.get(name, 1)) for name in ("schema_version", "model_revision"))
    way_out = "Give --rerun to run all of it again, or another --store; it can be read as it is."
    if schema < results.OLDEST_WRITTEN:
        rule = f"must be at least {results.OLDEST_WRITTEN} to go on with the store"
        raise StoreError("schema_version", rule, schema, way_out)
    if revision > results.MODEL_REVISION:
        rule = f"must be at most {results.MODEL_REVISION} to go on with the store"
        raise StoreError("model_revision", rule, revision, "Use a newer lagsweep, or another --store.")
    if later := results.revisions_between(revision, store.spec):
        rule = f"must be {later[-1]} to go on with the store, whose results would differ"
        raise StoreError("model_revision", rule, revision, way_out)


def make_ready(store: SweepStore, progress: Progress) -> None:
    """Bring a store whose lock is held into the state that its journal tells of, or its journal to the files.

    Raises
    ------
    StoreError
        If the journal is another sweep's.
    """
    left_behind = store.files.sweep_leftovers() + remove_leftovers(store.folder)
    if left_behind:
        progress.note(f"store: removed {left_behind} unfinished files of a run that was killed")
    for number in store.journal.damaged:
        progress.note(f"journal: line {number} is damaged; its unit is run again")
    if store.journal.foreign:
        raise refusal(store.folder, store.journal.path.name, "is the journal of another sweep")
    put_back(store)
    problems = metadata_problems(store)
    for problem in problems:
        progress.note(f"store: {problem_file(problem)} {problem[2]}; it is written anew")
    if problems:
        mend_metadata(store)
    undo_damaged(store, progress)


def put_back(store: SweepStore) -> None:
    """Put back the old files of units that were being written again when the run was killed."""
    for part, unit, record in _units_with_lines(store):
        if record.get("rewriting"):
            for _, file, digest in unit_files(store, part, unit, record):
                there, kept = store.folder / file, store.folder / KEPT / file
                if not file_holds(there, digest) and file_holds(kept, digest):
                    store.place.restore(f"{KEPT}/{file}", file)
    drop_kept(store)


def drop_kept(store: SweepStore) -> None:
    """Remove the old files that were kept."""
    store.place.check()
    shutil.rmtree(store.folder / KEPT, ignore_errors=True)


def keep_old(store: SweepStore, part: Part, unit: tuple[int, ...], record: dict[str, Any]) -> None:
    """Keep the files of a unit that is about to be written again."""
    for _, file, _ in unit_files(store, part, unit, record):
        store.place.keep(file, f"{KEPT}/{file}")


def undo_damaged(store: SweepStore, progress: Progress) -> int:
    """Undo every unit with a file that is missing or differs, and say so; tells how many."""
    found = []
    for part, unit, record in _units_with_lines(store):
        wrong = next(damage(store, part, unit, record), None)
        if wrong is not None:
            found.append((part, unit, wrong))
    for count, (part, unit, (_, file, what)) in enumerate(found):
        if count == 0:
            store.reopen()
        if count < _MOST_NOTES:
            progress.note(f"store: {file} {what}; unit {store.work_name(part, unit)} is run again")
        store.journal.undo(part.name, unit_name(unit))
    if len(found) > _MOST_NOTES:
        progress.note(f"store: and {len(found) - _MOST_NOTES:,} more units are run again")
    return len(found)


def _units_with_lines(store: SweepStore) -> Iterator[tuple[Part, tuple[int, ...], dict[str, Any]]]:
    for part in store.parts:
        for unit, record in list(store.done_units(part)):
            yield part, unit, record
