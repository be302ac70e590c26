"""Tasks of a job array that share a sweep: each has a store of its own, in which its units alone are run.

Units are dealt out by number: task 3 of 16 runs the units 3, 19, 35, … Its store lies in
``<store>.parts/3-of-16``, beside the folder that the joined store will have; it has all cells and seeds, its
own lock and its own journal, so tasks share nothing but the spec. It is never marked complete: it is a part,
which :mod:`.joining` puts together with the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...kernels.errors import ConfigError, StoreError
from ..execute.plan import Part, plan_parts, total_runs, wanted_unit_runs
from ..spec.spec import SweepSpec
from .lock import is_held
from .opening import open_files, stored_spec
from .proof import ZARR_NAME
from .store import SweepStore

PARTS = ".parts"
MOST_TASKS = 100_000
_UNITS_A_TASK = 4  # at least about, where the sweep has so many runs: else some tasks would do most
_WRITTEN = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")
_FOLDER = re.compile(r"([1-9][0-9]{0,5})-of-([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Task:
    """One of so many tasks: numbers begin at 1.

    Examples
    --------
    >>> task = read_task("3/16")
    >>> task.name, task.has(2), task.has(3)
    ('3-of-16', True, False)
    """

    number: int
    count: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.number}-of-{self.count}"

    def has(self, place: int) -> bool:
        """Tell whether the unit at this place, from 0, is one of the task's."""
        return place % self.count == self.number - 1

    def units(self, store: SweepStore) -> Iterator[tuple[Part, tuple[int, ...]]]:
        """Return the units that the task runs."""
        for place, (part, unit) in enumerate(store.units()):
            if self.has(place):
                yield part, unit


def read_task(value: Any) -> Task:
    """Read a task from text as 3/16, or from two numbers.

    Raises
    ------
    ConfigError
        If it is neither, or the first number is not between 1 and the second.
    """
    found: tuple[int, ...] = ()
    if isinstance(value, str) and (match := _WRITTEN.fullmatch(value.strip())):
        found = tuple(map(int, match.groups()))
    elif isinstance(value, tuple | list) and all(type(number) is int for number in value):
        found = tuple(value)
    if len(found) != 2 or not 1 <= found[0] <= found[1] <= MOST_TASKS:
        rule = f"must be a number and how many there are, as 3/16: from 1, at most {MOST_TASKS}"
        raise ConfigError("task", rule, value, "Job arrays that begin at 0 add 1.")
    return Task(*found)


def parts_folder(store: Path) -> Path:
    """Name the folder of the parts of a store."""
    return store.with_name(f"{store.name}{PARTS}")


def task_folder(store: Path, task: Task) -> Path:
    """Name the store of a task."""
    return parts_folder(store) / task.name


def task_unit_runs(spec: SweepSpec, task: Task) -> int:
    """Choose how many runs a unit has, that every task gets some: from the spec and the count alone."""
    share = total_runs(plan_parts(spec)) // (_UNITS_A_TASK * task.count)
    return max(1, min(wanted_unit_runs(spec), share))


def refuse_for_task(spec: SweepSpec, store: Path, task: Task) -> None:
    """Refuse what cannot be shared, before anything is written.

    Raises
    ------
    ConfigError
        If a stopping rule decides which seeds are run: it needs what all tasks found.
    StoreError
        If the joined store is there already, or the task's folder holds another sweep.
    """
    if spec.until is not None:
        raise ConfigError(
            "task", "cannot be given with until", task.name, "Leave until out, or use one process or Dask."
        )
    if store.exists():
        raise StoreError(
            "task",
            "must not run beside a store that is there already",
            str(store),
            "Its parts are joined: use that store, or name another.",
        )
    folder = task_folder(store, task)
    if (folder / ZARR_NAME).is_dir():
        found = stored_spec(open_files(folder).attributes, folder).fingerprint
        if found != spec.fingerprint:
            raise StoreError(
                "task",
                f"must go on with its own sweep {spec.fingerprint[:8]}, this part is of {found[:8]}",
                str(folder),
                "Name another store, or remove the parts.",
            )


def task_folders(store: Path) -> dict[Task, Path]:
    """List the parts that are there, by number."""
    parent = parts_folder(store)
    found = {}
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        match = _FOLDER.fullmatch(path.name)
        if match and (path / ZARR_NAME).is_dir():
            found[Task(*map(int, match.groups()))] = path
    return dict(sorted(found.items(), key=lambda item: (item[0].count, item[0].number)))


def task_states(store: Path) -> list[dict[str, Any]]:
    """Tell how far every task is: its name, state, units done and all, and failed runs.

    Parameters
    ----------
    store : Path
        The folder that the joined store has, or will have.

    Returns
    -------
    list of dict
        One a task; state is ``finished``, ``running``, ``stopped`` or ``not begun``.
    """
    there = task_folders(store)
    wanted = {Task(number, task.count) for task in there for number in range(1, task.count + 1)}
    return [
        _state(task, there.get(task)) for task in sorted(wanted, key=lambda task: (task.count, task.number))
    ]


def _state(task: Task, folder: Path | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "part": task.name,
        "state": "not begun",
        "units_done": 0,
        "units": None,
        "failed": 0,
    }
    if folder is None:
        return facts
    store = SweepStore(folder, same_law=False)
    own = list(task.units(store))
    done = sum(store.is_done(part, unit) for part, unit in own)
    failed = sum(int(line["failed"]) for part in store.parts for _, line in store.done_units(part))
    state = "running" if is_held(folder) else "finished" if done == len(own) else "stopped"
    return facts | {"state": state, "units_done": done, "units": len(own), "failed": failed}
