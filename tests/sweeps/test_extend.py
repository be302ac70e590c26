"""Grow a stored sweep by seeds, values and axes: nothing runs again, and it equals a fresh run."""

from __future__ import annotations

import os

import pytest
import xarray as xr
from oracle.small_sweeps import small_base, sorted_along_axes, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.carried import spec_of
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import aside, carry, extend
from lagsweep.sweeps.store.lock import StoreLock
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import run_sweep

KEEP = {"baseline": True, "masks": True, "tables": ["batches"]}


def spec(axes, seeds, **options):
    return make_spec(small_base(), axes, seeds, **(KEEP | options))


class Count(Progress):
    def __init__(self):
        self.runs = 0
        self.notes = []

    def advance(self, runs):
        self.runs += runs

    def note(self, text):
        self.notes.append(text)


LAG = {"max_lag": [0, 3]}
GRID = {"max_lag": [0, 3], "sync_cadence": [1, 2]}
POINTS = [{"max_lag": [0, 3], "sync_cadence": [1, 2]}]
CASES = {
    "seeds": (GRID, 5, GRID, 12),
    "seeds before": (GRID, [10, 11], GRID, [3, 11, 10]),
    "a value at the end": (GRID, 5, {"max_lag": [0, 3, 4], "sync_cadence": [1, 2]}, 5),
    "values in between": (GRID, 5, {"max_lag": [0, 1, 2, 3], "sync_cadence": [1, 2, 3]}, 5),
    "values and seeds": (GRID, 5, {"max_lag": [1, 0, 3], "sync_cadence": [3, 1, 2]}, 9),
    "only what is new": (GRID, 5, {"max_lag": [7], "sync_cadence": [1]}, [90]),
    "a new axis": (LAG, 5, {"max_lag": [0, 3], "sync_cadence": [1, 2]}, 5),
    "a new axis in front": (LAG, 5, {"sync_cadence": [2, 1, 3], "max_lag": [0, 3]}, 5),
    "a new axis without the old setting": (LAG, 5, {"max_lag": [0, 3], "sync_cadence": [2]}, 5),
    "a new axis that the baseline follows": (LAG, 5, {"rollout_workers": [1, 3], "max_lag": [0, 3]}, 7),
    "everything": (LAG, 5, {"sync_cadence": [1, 2], "max_lag": [1, 0, 3], "rollout_workers": [3, 2]}, 9),
    "points": (POINTS, 5, [{"max_lag": [1, 3, 0], "sync_cadence": [1, 2, 1]}], 7),
    "no axes": ({}, 3, {"max_lag": [2, 1]}, 4),
}


@pytest.mark.parametrize(
    ("case", "unit_runs"),
    [
        *((case, 6) for case in CASES),
        *((case, 1000) for case in ("values and seeds", "everything", "points")),
    ],
)
def test_an_extended_store_equals_a_fresh_run_of_the_union(tmp_path, case, unit_runs):
    old_axes, old_seeds, new_axes, new_seeds = CASES[case]
    folder, count = tmp_path / "sweep", Count()
    first = run_into_store(spec(old_axes, old_seeds), folder, unit_runs=unit_runs)
    done_before = int((first.status == 1).sum() + (first.baseline_status == 1).sum())
    ids_before = set(first.cell.values.reshape(-1).tolist())

    extended = run_into_store(spec(new_axes, new_seeds), folder, progress=count)

    union = spec_of(extended)
    fresh = run_into_store(union, tmp_path / "fresh", unit_runs=7)
    xr.testing.assert_identical(sorted_along_axes(extended), sorted_along_axes(fresh))
    assert ids_before <= set(extended.cell.values.reshape(-1).tolist())
    assert count.runs == int((fresh.status == 1).sum() + (fresh.baseline_status == 1).sum()) - done_before
    for table, keys in (("batches", ["cell", "seed", "update"]), ("masks", ["cell", "seed", "rollout"])):
        one, other = (read_table(path, table).collect().sort(keys) for path in (folder, tmp_path / "fresh"))
        assert one.equals(other)
    report = verify_store(folder, everything=True)
    assert report.findings == []
    assert SweepStore(folder).complete
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "sweep"]


def test_a_union_in_sorted_order_equals_the_extended_one_up_to_the_order_in_its_spec(tmp_path):
    run_into_store(spec({"max_lag": [0, 3]}, 4), tmp_path / "sweep", unit_runs=3)

    extended = run_into_store(spec({"max_lag": [1, 2]}, 6), tmp_path / "sweep")
    fresh = run_into_store(spec({"max_lag": [0, 1, 2, 3]}, 6), tmp_path / "fresh")

    assert extended.max_lag.values.tolist() == [0, 3, 1, 2]
    assert extended.attrs["fingerprint"] == fresh.attrs["fingerprint"]
    xr.testing.assert_identical(sorted_along_axes(extended), sorted_along_axes(fresh))


def test_units_that_stay_what_they_were_are_linked_not_copied(tmp_path):
    folder = tmp_path / "sweep"
    run_into_store(spec(GRID, 8), folder, unit_runs=16)
    chunks = [folder / f"cells.zarr/updates/c/0/0/{k}" for k in range(2)]
    inodes = [os.stat(chunk).st_ino for chunk in chunks]

    run_into_store(spec(GRID, 16), folder)

    assert [os.stat(chunk).st_ino for chunk in chunks] == inodes
    assert SweepStore(folder).part("cells").layout.chunks == (2, 2, 4)


def test_a_sweep_that_has_outgrown_its_units_is_cut_anew(tmp_path):
    run_into_store(spec(GRID, 2), tmp_path / "sweep", unit_runs=4)

    run_into_store(spec(GRID, 50), tmp_path / "sweep")

    assert SweepStore(tmp_path / "sweep").part("cells").layout.chunks == (2, 2, 50)


def test_an_unfinished_store_can_be_extended(tmp_path):
    import threading

    folder, cancel = tmp_path / "sweep", threading.Event()

    class StopSoon(Progress):
        def block(self, unit, runs, seconds):
            if unit == "0.0.1":
                cancel.set()

    with pytest.raises(Cancelled):
        run_into_store(
            spec(GRID, 8), folder, unit_runs=8, executor="serial", progress=StopSoon(), cancel=cancel
        )
    done = len(SweepStore(folder).journal.units("cells"))
    assert 0 < done < 4
    count = Count()

    extended = run_into_store(spec({"max_lag": [3, 1, 0], "sync_cadence": [1, 2]}, 9), folder, progress=count)

    fresh = run_into_store(spec_of(extended), tmp_path / "fresh")
    xr.testing.assert_identical(sorted_along_axes(extended), sorted_along_axes(fresh))
    assert count.runs == 3 * 2 * 9 + 9 - done * 8 - 8


def test_extending_twice_in_a_row_before_the_first_is_run(tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    run_into_store(spec(LAG, 5), folder, unit_runs=4)
    for axes, seeds in (({"max_lag": [0, 3, 1]}, 5), ({"max_lag": [0, 3, 2]}, 7)):
        store, lock = SweepStore(folder), StoreLock(folder)
        store, lock = extend.extend_store(store, spec(axes, seeds), lock, unit_runs=None, progress=Progress())
        store.close()
        lock.release()

    extended = run_into_store(SweepStore(folder).spec, folder)

    fresh = run_into_store(spec({"max_lag": [0, 3, 1, 2]}, 7), tmp_path / "fresh")
    xr.testing.assert_identical(sorted_along_axes(extended), sorted_along_axes(fresh))


def test_asking_for_less_than_is_stored_runs_nothing(tmp_path):
    run_into_store(spec(GRID, 4), tmp_path / "sweep")
    before, count = tree(tmp_path / "sweep"), Count()

    ds = run_into_store(spec({"max_lag": [3], "sync_cadence": [1]}, 2), tmp_path / "sweep", progress=count)

    assert count.runs == 0
    assert "store: already holds what is asked, and more" in count.notes
    assert tree(tmp_path / "sweep") == before
    assert ds.sizes["seed"] == 4


def test_the_python_call_extends_too(tmp_path):
    run_sweep(small_base(), {"max_lag": [0]}, 2, store=tmp_path / "sweep")

    ds = run_sweep(small_base(), {"max_lag": [0, 1]}, 3, store=tmp_path / "sweep")

    assert ds.status.shape == (2, 3)
    assert (ds.status == 1).all()


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"base": small_base(batch_tokens=99)}, ["base.batch_tokens: 150 in the store, 99 asked"]),
        ({"axes": {"sync_cadence": [1, 2]}}, ["axes.max_lag: an axis of the store, not asked"]),
        (
            {"axes": {"max_policy_lag": [0, 1], "sync_cadence": [1]}},
            ["axes.max_lag: called max_policy_lag in what is asked"],
        ),
        ({"axes": POINTS}, ["design: a grid in the store, points asked"]),
        ({"constraints": ["max_lag < 9"]}, ["constraints: none in the store, max_lag < 9 asked"]),
        ({"baseline": False, "masks": False}, ["baseline: true in the store, false asked", "masks: true in"]),
        ({"tables": []}, ["tables: batches in the store, none asked"]),
        ({"until": "updates within 1%"}, ["until: none in the store, updates within 1% asked"]),
    ],
)
def test_a_changed_spec_is_refused_with_a_readable_difference(tmp_path, changes, lines):
    run_into_store(spec(GRID, 2), tmp_path / "sweep")
    before = tree(tmp_path / "sweep")
    asked = {"base": small_base(), "axes": GRID, "seeds": 2} | KEEP | changes

    with pytest.raises(StoreError) as caught:
        run_into_store(make_spec(**asked), tmp_path / "sweep")

    text = str(caught.value)
    assert text.startswith("spec: must be the store's, or add values, seeds or axes to it")
    assert "Ways out: leave out --store" in text
    for line in lines:
        assert f"\n  {line}" in text
    assert tree(tmp_path / "sweep") == before


def test_a_store_with_a_stopping_rule_cannot_grow(tmp_path):
    run_into_store(spec(LAG, 40, until="updates within 50%"), tmp_path / "sweep")

    with pytest.raises(StoreError, match="a store with a stopping rule cannot grow"):
        run_into_store(spec(LAG, 50, until="updates within 50%"), tmp_path / "sweep")


class Killed(BaseException):
    """Stand in for a kill."""


@pytest.mark.parametrize("moment", ["while copying", "between the renames", "before the old one is removed"])
def test_a_kill_while_extending_leaves_the_old_store_or_the_new(tmp_path, monkeypatch, moment):
    folder = tmp_path / "sweep"
    run_into_store(spec(GRID, 4), folder, unit_runs=4)
    old = tree(folder)

    def die(*_, **__):
        raise Killed

    if moment == "while copying":
        monkeypatch.setattr(carry, "_copied_tables", die)
        monkeypatch.setattr(carry, "_link", die)
    elif moment == "between the renames":
        real = os.rename

        def rename(source, target):
            if str(target) == str(folder):
                raise Killed
            real(source, target)

        monkeypatch.setattr(aside, "exchange", lambda *_: False)
        monkeypatch.setattr(aside.os, "rename", rename)
    else:
        monkeypatch.setattr(aside.shutil, "rmtree", die)
    # What a kill leaves: no handler of ours may tidy up, and the system takes the locks back.
    held, make = [], StoreLock.__init__
    monkeypatch.setattr(StoreLock, "__init__", lambda self, path: (held.append(self), make(self, path))[1])
    monkeypatch.setattr(StoreLock, "release", lambda self: None)
    with pytest.raises(Killed):
        run_into_store(spec(GRID, 9), folder)
    monkeypatch.undo()
    for lock in held:
        lock._stop.set()
        lock._file.close()
    if moment == "while copying":
        assert tree(folder) == old

    extended = run_into_store(spec(GRID, 9), folder)

    fresh = run_into_store(spec(GRID, 9), tmp_path / "fresh")
    xr.testing.assert_identical(sorted_along_axes(extended), sorted_along_axes(fresh))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fresh", "sweep"]
    assert open_sweep(folder).attrs["complete"]
