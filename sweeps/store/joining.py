"""Join stores: the parts of a job array, or stores of one spec with different seeds, into one store.

Everything is checked before anything is written: every part must be of the same spec (seeds apart) and of
this model revision, not in use, undamaged, and together they must hold every run once. The joined store is
cut as one process would cut it, built aside, completed as every run is, and renamed when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...kernels.errors import ConfigError, Finding, StoreError
from ..execute.plan import Part, plan_parts
from ..execute.progress import Progress
from ..results import dataset as results
from ..runs.many import Cancelled
from ..spec.spec import SweepSpec
from .gather import Source, gathered
from .lock import StoreLock, is_held
from .metadata import metadata_problems
from .opening import open_files
from .place import beside, faults_of_the_machine
from .proof import damage
from .run_record import note_run, versions
from .store import SweepStore, create_store
from .tasks import Task, task_folders
from .writing import StoredRun

JOINING = ".joining-"
_MOST_NAMED = 8
_AGAIN = "Give its command again, then merge."


def join_parts(store: Path, progress: Progress | None = None, cancel: threading.Event | None = None) -> None:
    """Join the parts of a job array into the store that they are parts of.

    Raises
    ------
    StoreError
        As :func:`join_stores`; also if a task has not begun, or parts of different counts are there.
    """
    refuse_existing(store)
    parts = task_folders(store)
    if not parts:
        raise StoreError(
            "merge", "finds no parts of this store", str(store), "Run its tasks with --task, or name stores."
        )
    counts = sorted({task.count for task in parts})
    if len(counts) > 1:
        rule = f"must be of one job array, there are parts of {' and '.join(map(str, counts))}"
        raise StoreError("parts", rule, str(store), "Remove the folders of the other array.")
    missing = [Task(number, counts[0]) for number in range(1, counts[0] + 1)]
    absent = [task for task in missing if task not in parts]
    if absent:
        some = ", ".join(f"--task {task.number}/{task.count}" for task in absent[:_MOST_NAMED])
        more = ", …" if len(absent) > _MOST_NAMED else ""
        raise StoreError(
            "parts",
            f"must all be there, missing {', '.join(task.name for task in absent[:_MOST_NAMED])}{more}",
            str(store),
            f"Run {some}{more}, then merge.",
        )
    join_stores(list(parts.values()), store, progress, cancel)


def join_stores(
    folders: Sequence[Path],
    store: Path,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> None:
    """Join stores into a new one, whole or not at all; the stores stay as they are.

    Parameters
    ----------
    folders : sequence of Path
    store : Path
        Must not exist.
    progress : Progress, optional
    cancel : threading.Event, optional

    Raises
    ------
    StoreError
        If a store is in use, damaged, of another spec or model revision, or runs are missing or repeated.
    Cancelled
        If `cancel` was set: nothing is joined then.
    """
    refuse_existing(store)
    with contextlib.ExitStack() as held, faults_of_the_machine(store):
        sources = []
        for folder in folders:
            open_files(folder)  # before a lock is written into a folder that is no store
            held.enter_context(StoreLock(folder))
            sources.append(Source(folder, SweepStore(folder)))
        spec = _joined_spec(sources)
        for source in sources:
            _refuse_source(source)
        _build(sources, spec, store, progress or Progress(), cancel or threading.Event())


def refuse_existing(store: Path) -> None:
    """Refuse to join into a folder that is there.

    Raises
    ------
    StoreError
    """
    if store.exists() or store.is_symlink():
        raise StoreError(
            "merge", "must not find the joined store there already", str(store), "Use it, or name another."
        )


def _joined_spec(sources: list[Source]) -> SweepSpec:
    """Return the spec of the joined store, and set where each store's seeds begin."""
    first = sources[0].store.spec
    alike = first.replace(seeds=(0,)).fingerprint
    groups: dict[tuple[int, ...], list[Source]] = {}
    for source in sources:
        spec = source.store.spec
        if spec.until is not None:
            raise StoreError(
                "merge", "cannot join stores with a stopping rule", str(source.folder), "Leave until out."
            )
        if spec.replace(seeds=(0,)).fingerprint != alike:
            raise StoreError(
                "merge",
                f"must be of the same spec as {sources[0].folder}, seeds apart",
                str(source.folder),
                "Leave it out, or merge it with stores of its own spec.",
            )
        groups.setdefault(tuple(spec.seeds), []).append(source)
    seeds: list[int] = []
    for own in sorted(groups, key=lambda own: (min(own), own)):
        for source in groups[own]:
            source.offset = len(seeds)
        twice = sorted(set(seeds) & set(own))
        if twice:
            raise StoreError(
                "merge",
                f"finds seed {twice[0]} twice" + (f" and {len(twice) - 1} more" if len(twice) > 1 else ""),
                str(groups[own][0].folder),
                "Leave one of these stores out.",
            )
        seeds.extend(own)
    return first if len(groups) == 1 else first.replace(seeds=tuple(seeds))


def _refuse_source(source: Source) -> None:
    """Refuse a store of another revision, and one with a file that is not the one its journal tells of."""
    store, attributes = source.store, source.store.attributes
    schema, revision = (int(attributes.get(name, 1)) for name in ("schema_version", "model_revision"))
    other_results = revision > results.MODEL_REVISION or results.revisions_between(revision, store.spec)
    for name, found, now, wrong in (
        ("schema_version", schema, results.SCHEMA_VERSION, schema < results.OLDEST_WRITTEN),
        ("model_revision", revision, results.revision_of(store.spec), other_results),
    ):
        if wrong:
            raise StoreError(
                name,
                f"must be {now} to be merged, this store has {found}",
                str(source.folder),
                "Run it again with --rerun and this version, or merge with the version that made it.",
            )
    if store.journal.foreign:
        raise StoreError("journal", "is the journal of another sweep", str(source.folder), "Run it anew.")
    for _, file, what in metadata_problems(store):
        raise StoreError("merge", f"finds damage: {file} {what}", str(source.folder), _AGAIN)
    for part in store.parts:
        for unit, record in source.done(part.name):
            for _, file, what in damage(store, part, unit, record):
                raise StoreError("merge", f"finds damage: {file} {what}", str(source.folder), _AGAIN)


def _refuse_holes(sources: list[Source], parts: Sequence[Part]) -> None:
    """Refuse stores that together do not hold every run exactly once; all are named."""
    findings, wanting = [], {}
    for part in parts:
        count = np.zeros(part.layout.shape, np.int64)
        for source in sources:
            mask = source.mask(part.name)
            at = (..., slice(source.offset, source.offset + mask.shape[-1]))
            again = int((mask & (count[at] > 0)).sum())
            if again:
                findings.append(
                    Finding(
                        "merge",
                        f"finds {again:,} runs of {part.name} that another store holds too",
                        str(source.folder),
                        "Leave one of the two out.",
                    )
                )
            count[at] += mask
        if (count == 0).any():
            wanting[part.name] = int((count == 0).sum())
    if wanting:
        undone = [source.folder for source in sources if not _is_finished(source)]
        what = ", ".join(f"{runs:,} runs of {name}" for name, runs in wanting.items())
        where = ", ".join(map(str, undone[:_MOST_NAMED])) or ", ".join(
            str(source.folder) for source in sources[:_MOST_NAMED]
        )
        way_out = "Give the command of each again, then merge." if undone else "Name the other stores too."
        findings.append(Finding("merge", f"misses {what}; not finished", where, way_out))
    if findings:
        raise StoreError(*findings)


def _is_finished(source: Source) -> bool:
    """Tell whether all units of a task are done, or all of a store that is no task's."""
    tasks = {path.name: task for task, path in _tasks_beside(source.folder).items()}
    task = tasks.get(source.folder.name, Task(1, 1))
    done = {(part.name, unit) for part in source.store.parts for unit, _ in source.done(part.name)}
    return all(
        (part.name, unit) in done and source.store.is_done(part, unit)
        for part, unit in task.units(source.store)
    )


def _tasks_beside(folder: Path) -> dict[Task, Path]:
    parent = folder.absolute().parent
    return task_folders(parent.with_name(parent.name.removesuffix(".parts")))


def _build(
    sources: list[Source], spec: SweepSpec, store: Path, progress: Progress, cancel: threading.Event
) -> None:
    """Build the joined store aside, complete it, and give it its name."""
    parts = _planned(sources, spec)
    _refuse_holes(sources, parts)
    for leftover in beside(store, JOINING):
        if not is_held(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    building = store.with_name(f"{store.name}{JOINING}{secrets.token_hex(4)}")
    joined, lock = create_store(building, spec, parts=parts)
    run = None
    try:
        _take_versions(sources, joined, progress)
        with note_run(joined.place, joined=[str(source.folder) for source in sources]):
            units = [(part, unit) for part in joined.parts for unit in part.layout.units()]
            with progress.steps("units joined", len(units)) as step:
                for part, unit in units:
                    if cancel.is_set():
                        raise Cancelled("the merge was asked to stop")
                    joined.journal.append(gathered(sources, joined, part, unit))
                    step()
        run = StoredRun(joined, lock, executor="serial", threads=None, progress=progress, cancel=cancel)
        run.run()
        refuse_existing(store)
        os.rename(building, store)
        run.lock.moved_to(store)
    finally:
        joined, lock = (joined, lock) if run is None else (run.store, run.lock)
        joined.close()
        lock.release()
        shutil.rmtree(building, ignore_errors=True)
    progress.note(f"store: joined {len(sources):,} stores into {store}")


def _planned(sources: list[Source], spec: SweepSpec) -> list[Part]:
    """Cut the joined sweep as one process would; what one store has not recorded, the joined one has not."""
    return [
        part.without(frozenset().union(*(source.store.part(part.name).unrecorded for source in sources)))
        for part in plan_parts(spec)
    ]


def _take_versions(sources: list[Source], joined: SweepStore, progress: Progress) -> None:
    """Carry the versions that made the runs, not those of the program that joins them."""
    for name in versions():
        found = [source.store.attributes.get(name) for source in sources]
        if len(set(found)) > 1:
            progress.note(f"store: parts were made with {name} {', '.join(sorted(set(map(str, found))))}")
        if found[0] is not None:
            joined.files.root["attributes"][name] = joined.attributes[name] = found[0]


def merged_folders(
    folders: Sequence[Path],
    store: Path | None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> Path:
    """Join what is named: the parts of one store, or several stores into `store`; gives the joined folder.

    Raises
    ------
    ConfigError
        If several are named without the folder for the joined one.
    StoreError, Cancelled
        As :func:`join_stores`.
    """
    if not folders:
        raise ConfigError("stores", "must be one or more folders", [], "Name the store, or several.")
    if len(folders) == 1 and store is None:
        whole = folders[0].with_name(folders[0].name.removesuffix(".parts"))
        join_parts(whole, progress, cancel)
        return whole
    if store is None:
        raise ConfigError("store", "must name the joined store", None, "Give --store results/joined.")
    same = {folder.resolve() for folder in folders}
    if len(same) != len(folders):
        raise StoreError("merge", "must name each store once", " ".join(map(str, folders)), "Leave one out.")
    join_stores(folders, store, progress, cancel)
    return store
