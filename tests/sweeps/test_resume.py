"""Stop a stored sweep anywhere, give the same command: it goes on and ends byte for byte as undisturbed."""

from __future__ import annotations

import errno
import threading

import numpy as np
import pytest
import xarray as xr
from oracle.small_sweeps import array_by_array, small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.execute import work as unit_work
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import store as stores
from lagsweep.sweeps.store import writing as stored_run
from lagsweep.sweeps.store.arrays import ZarrFiles
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import StopAtFailure, run_into_store
from lagsweep.sweeps.sweep.run import run_spec

SPEC = make_spec(
    small_base(),
    {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]},
    10,
    baseline=True,
    masks=True,
    tables=["batches", "rollouts"],
)
UNIT_RUNS = 12  # 5 units of cells, 1 of the baseline


class Killed(BaseException):
    """Stand in for a kill: nothing of ours catches it."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "sweep"
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    return tree(folder)


def resume(folder, undisturbed, **options):
    assert run_into_store(SPEC, folder, **options).attrs["complete"]
    assert tree(folder) == undisturbed


class Count(Progress):
    def __init__(self):
        self.began = None
        self.runs = 0

    def begin(self, total, done=0):
        self.began = (total, done)

    def advance(self, runs):
        self.runs += runs


@pytest.mark.parametrize("after", range(0, 179, 13))
def test_killed_between_any_two_writes_of_an_array(tmp_path, monkeypatch, undisturbed, after):
    """30 arrays a unit of cells, 29 of the baseline: some are there when the kill comes."""
    written = [0]

    def before(name, box):
        if written[0] == after:
            raise Killed
        written[0] += 1

    monkeypatch.setattr(ZarrFiles, "write", array_by_array(ZarrFiles.write, before))
    folder = tmp_path / "sweep"
    with pytest.raises(Killed):
        run_into_store(SPEC, folder, unit_runs=UNIT_RUNS, executor="serial")
    monkeypatch.undo()
    partial, whole = open_sweep(folder), run_spec(SPEC.replace(tables=(), masks=False))
    there = partial.status == 1
    for name, variable in partial.data_vars.items():
        if name in whole and variable.dims[:3] == there.dims:
            np.testing.assert_array_equal(variable.values[there.values], whole[name].values[there.values])

    count = Count()
    resume(folder, undisturbed, progress=count)

    total, done = count.began
    assert total == 70
    assert done in (0, 10, 22, 34, 46, 58)
    assert count.runs == total - done


@pytest.mark.parametrize("where", ["write_unit_tables", "append", "set_complete", "finish"])
def test_killed_at_the_other_steps(tmp_path, monkeypatch, undisturbed, where):
    calls = [0]

    def die(*_, **__):
        calls[0] += 1
        if calls[0] == (3 if where in ("write_unit_tables", "append") else 1):
            raise Killed
        return real(*_, **__)

    owner = {
        "write_unit_tables": stores,
        "append": stores.Journal,
        "set_complete": ZarrFiles,
        "finish": SweepStore,
    }[where]
    real = getattr(owner, where)
    monkeypatch.setattr(owner, where, die)
    with pytest.raises(Killed):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS, executor="serial")
    monkeypatch.undo()

    resume(tmp_path / "sweep", undisturbed)


def test_killed_after_the_metadata_and_before_the_journals_last_line(tmp_path, monkeypatch, undisturbed):
    real = stores.Journal.append

    def append(self, record):
        if record["kind"] == "finished":
            raise Killed
        real(self, record)

    monkeypatch.setattr(stores.Journal, "append", append)
    with pytest.raises(Killed):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS)
    monkeypatch.undo()
    assert not SweepStore(tmp_path / "sweep").complete

    resume(tmp_path / "sweep", undisturbed)


def test_leftovers_of_a_killed_write_are_removed(tmp_path, undisturbed):
    folder = tmp_path / "sweep"
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    (folder / "cells.zarr/updates/c/0/0/1.0123456789abcdef.partial").write_bytes(b"torn")
    (folder / "cells.zarr/.zarr.json.123-abc.tmp").write_bytes(b"torn")
    (folder / "tables/batches/unit-0.0.1.parquet.tmp").write_bytes(b"torn")

    resume(folder, undisturbed)


def test_what_a_worker_that_was_killed_left_beside_a_run_that_goes_on_is_removed(tmp_path, undisturbed):
    folder = tmp_path / "sweep"

    class LeaveSomething(Count):
        def advance(self, runs):
            super().advance(runs)
            for beside in (folder / "cells.zarr/updates/c/0/0", folder / "tables/batches"):
                beside.mkdir(parents=True, exist_ok=True)
                (beside / "1.0123456789abcdef.partial").write_bytes(b"torn")

    left = LeaveSomething()
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS, progress=left)

    assert left.runs > 0
    assert tree(folder) == undisturbed
    assert verify_store(folder).findings == []


def test_stopped_by_a_signal_what_is_finished_is_kept(tmp_path, undisturbed):
    cancel = threading.Event()

    class StopLater(Progress):
        def __init__(self):
            self.runs = 0

        def advance(self, runs):
            self.runs += runs
            if self.runs >= 40:
                cancel.set()

    with pytest.raises(Cancelled):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS, progress=StopLater(), cancel=cancel)

    partial = open_sweep(tmp_path / "sweep")
    assert partial.attrs["complete"] == 0
    done = len(SweepStore(tmp_path / "sweep").journal.units("cells"))
    assert 0 < done < 5
    assert (partial.status == 1).sum() >= done * 12
    resume(tmp_path / "sweep", undisturbed)


def test_a_complete_store_is_left_alone(tmp_path, undisturbed):
    folder = tmp_path / "sweep"
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    before = {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "lock"
    }
    count = Count()

    resume(folder, undisturbed, progress=count, unit_runs=1)

    assert count.began is None
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_full_disk_is_told_and_resumed(tmp_path, monkeypatch, undisturbed):
    real, written = ZarrFiles.write, [0]

    def write(self, values, box):
        written[0] += 1
        if written[0] == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, values, box)

    monkeypatch.setattr(ZarrFiles, "write", write)
    with pytest.raises(StoreError, match=r"store: cannot grow: No space left on device .* it goes on"):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS, executor="serial")
    monkeypatch.undo()

    resume(tmp_path / "sweep", undisturbed)


@pytest.mark.parametrize("executor", ["serial", "threads"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (MemoryError(), "cannot grow: out of memory"),
        (OSError(errno.EIO, "Input/output error", "x"), "cannot be used: Input/output error"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "cannot be used: Permission denied"),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_the_machine_lacks_is_no_failed_run(tmp_path, monkeypatch, undisturbed, fault, said, executor):
    from lagsweep.sweeps.execute import work

    real, calls = work.simulate_batch, [0]

    def sometimes(configs, seeds, **options):
        calls[0] += 1
        if calls[0] == 3:
            raise fault
        return real(configs, seeds, **options)

    monkeypatch.setattr(work, "simulate_batch", sometimes)
    with pytest.raises(StoreError, match=said):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS, executor=executor)
    monkeypatch.undo()
    lines = (tmp_path / "sweep" / "journal.jsonl").read_text()
    assert '"failed":' not in lines.replace('"failed":0,', "")

    resume(tmp_path / "sweep", undisturbed)


@pytest.mark.parametrize("line", [1, 2, 4])
def test_a_damaged_line_of_the_journal_means_its_unit_is_run_again(tmp_path, undisturbed, line):
    folder = tmp_path / "sweep"
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"runs":1', b'"runs":2')
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
    count = Count()

    resume(folder, undisturbed, progress=count)

    assert count.runs in (10, 12)


def test_done_means_done_and_nothing_else_is_run(tmp_path, undisturbed):
    """Chunks without a line in the journal are run again, whatever lies in them; those with one are not."""
    folder = tmp_path / "sweep"
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(
        b"".join(line for line in lines[:-1] if b'"unit":"0.0.3"' not in line)
    )
    ZarrFiles(folder / "cells.zarr").write({"updates": np.full((3, 2, 2), 77)}, ((0, 3), (0, 2), (6, 8)))
    count = Count()

    resume(folder, undisturbed, progress=count)

    assert count.began == (70, 58)


# Failures are data ----------------------------------------------------------------------------------------


def failing(monkeypatch, reason="injected"):
    real = unit_work.simulate_batch

    def sometimes(configs, seeds, **options):
        if any(config.max_policy_lag == 1 for config in configs) and 4 in seeds:
            raise FloatingPointError(reason)
        return real(configs, seeds, **options)

    monkeypatch.setattr(unit_work, "simulate_batch", sometimes)


def test_failures_are_kept_with_their_reasons_and_can_be_retried(tmp_path, monkeypatch, undisturbed):
    folder = tmp_path / "sweep"
    failing(monkeypatch)

    ds = run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)

    assert ds.attrs["complete"]
    assert ((ds.status == 2) == ((ds.max_lag == 1) & (ds.seed == 4))).all()
    assert ds.reason.sel(max_lag=1, sync_cadence=2, seed=4).item() == "FloatingPointError: injected"
    failures = read_table(folder, "failures").collect()
    assert failures["cell"].to_list() == ds.cell.sel(max_lag=1).values.tolist()
    assert all("Traceback" in details for details in failures["details"])
    without_masks = SPEC.replace(tables=(), masks=False)
    memory = run_spec(without_masks)
    xr.testing.assert_identical(memory.reason, ds.reason.load())

    again = run_into_store(SPEC, folder)
    assert (again.status == 2).sum() == 2

    monkeypatch.undo()
    count = Count()
    healed = run_into_store(SPEC, folder, retry_failed=True, progress=count)
    assert count.runs == 2
    assert (healed.status == 1).all()
    assert "reason" not in healed
    assert tree(folder) == undisturbed


def test_a_retry_that_fails_again_keeps_the_newer_reason(tmp_path, monkeypatch):
    failing(monkeypatch, "first")
    run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS)
    monkeypatch.undo()
    failing(monkeypatch, "second")

    ds = run_into_store(SPEC, tmp_path / "sweep", retry_failed=True)

    assert set(ds.reason.values[ds.status.values == 2]) == {"FloatingPointError: second"}
    assert len(read_table(tmp_path / "sweep", "failures").collect()) == 2


def test_fail_fast_stops_at_the_first_and_keeps_what_is_finished(tmp_path, monkeypatch, undisturbed):
    failing(monkeypatch)

    with pytest.raises(StopAtFailure):
        run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS, fail_fast=True, executor="serial")

    store = SweepStore(tmp_path / "sweep")
    assert not store.complete
    assert sum(record["failed"] for record in store.journal.units("cells").values()) == 2
    assert len(store.journal.units("cells")) == 3
    monkeypatch.undo()
    run_into_store(SPEC, tmp_path / "sweep", retry_failed=True)
    assert tree(tmp_path / "sweep") == undisturbed


def test_a_store_made_with_other_versions_says_so(tmp_path, monkeypatch):
    notes = []

    class Notes(Progress):
        def note(self, text):
            notes.append(text)

    run_into_store(SPEC, tmp_path / "sweep", unit_runs=UNIT_RUNS)
    monkeypatch.setattr(stored_run, "versions", lambda: {"numba_version": "9.9"})

    run_into_store(SPEC, tmp_path / "sweep", progress=Notes())

    assert any("was made with numba" in note and "this is 9.9" in note for note in notes)


def test_a_kill_while_a_partly_done_unit_is_written_again_is_no_fault(tmp_path, monkeypatch):
    """The arrays of a unit that grew at its edge are written one by one over the old ones."""
    folder = tmp_path / "sweep"
    small = SPEC.replace(seeds=tuple(range(9)), baseline=False)
    larger = small.replace(seeds=tuple(range(10)))
    run_into_store(small, folder, unit_runs=24)
    written = [0]

    def before(name, box):
        if box[-1] == (8, 10):
            written[0] += 1
            if written[0] == 12:
                raise Killed

    monkeypatch.setattr(ZarrFiles, "write", array_by_array(ZarrFiles.write, before))
    with pytest.raises(Killed):
        run_into_store(larger, folder, executor="serial")
    monkeypatch.undo()
    assert verify_store(folder, everything=True).findings == []
    count = Count()

    grown = run_into_store(larger, folder, progress=count)

    assert count.runs == 6
    xr.testing.assert_identical(grown.load(), run_into_store(larger, tmp_path / "fresh", unit_runs=24).load())
    assert verify_store(folder, everything=True).findings == []


def test_a_kill_while_failed_runs_are_written_again_leaves_nothing_half_healed(
    tmp_path, monkeypatch, undisturbed
):
    """Metrics are new where the status is old: the unit counts as undone, whatever the next command is."""
    folder = tmp_path / "sweep"
    failing(monkeypatch)
    run_into_store(SPEC, folder, unit_runs=UNIT_RUNS)
    monkeypatch.undo()

    def before(name, box):
        if name == "status":
            raise Killed

    monkeypatch.setattr(ZarrFiles, "write", array_by_array(ZarrFiles.write, before))
    with pytest.raises(Killed):
        run_into_store(SPEC, folder, executor="serial", retry_failed=True)
    monkeypatch.undo()
    count = Count()

    resume(folder, undisturbed, progress=count)

    assert count.runs == 12
