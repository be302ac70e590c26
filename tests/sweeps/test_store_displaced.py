"""Stores that are moved, begun anew, linked, extended or aged under a run or reader: never other numbers."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from oracle.damaged_stores import unit_digest
from oracle.small_sweeps import array_by_array, small_base, sorted_along_axes, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import aside, extend
from lagsweep.sweeps.store.arrays import DIGEST_BYTES, StoredArray, ZarrFiles, digest_of_file
from lagsweep.sweeps.store.cluster import unit_on_worker
from lagsweep.sweeps.store.journal import journal_line, read_line
from lagsweep.sweeps.store.lock import StoreLock
from lagsweep.sweeps.store.place import Place
from lagsweep.sweeps.store.proof import StoredVariable
from lagsweep.sweeps.store.repair import repair_store
from lagsweep.sweeps.store.store import SweepStore, create_store, open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

AXES = {"max_lag": [0, 3], "sync_cadence": [1, 2]}


def spec(seeds=8, axes=AXES, **options):
    return make_spec(small_base(), axes, seeds, **({"tables": ["batches"]} | options))


class Watch(Progress):
    def __init__(self):
        self.notes, self.runs = [], 0

    def note(self, text):
        self.notes.append(text)

    def advance(self, runs):
        self.runs += runs


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "sweep"
    run_into_store(spec(), folder, unit_runs=8)
    return folder


@pytest.fixture
def store(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "sweep")


def at_write(monkeypatch, number, do):
    """Do something before the given write of arrays, from within it."""
    written = [0]

    def before(name, box):
        written[0] += 1
        if written[0] == number:
            do()

    monkeypatch.setattr(ZarrFiles, "write", array_by_array(ZarrFiles.write, before))


# Whose folder is it? ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 17, 30, 47, 120])
def test_moved_while_it_runs_it_stops_and_writes_nothing_elsewhere(tmp_path, monkeypatch, sound, number):
    folder, moved = tmp_path / "sweep", tmp_path / "moved"
    at_write(monkeypatch, number, lambda: folder.rename(moved))

    with pytest.raises(StoreError, match=r"must stay where it is .* moved, removed or begun anew"):
        run_into_store(spec(), folder, unit_runs=8, executor="serial")
    monkeypatch.undo()

    assert [path.name for path in tmp_path.iterdir()] == ["moved"]
    assert verify_store(moved).findings == []
    assert run_into_store(spec(), moved).attrs["complete"]
    assert tree(moved) == tree(sound)


def test_begun_anew_while_it_runs_the_new_one_is_left_alone(tmp_path, monkeypatch, sound):
    folder, moved, made = tmp_path / "sweep", tmp_path / "moved", []

    def begin_anew():
        folder.rename(moved)
        new, lock = create_store(folder, spec(), 8)
        new.close()
        lock.release()
        made.append(tree(folder))

    at_write(monkeypatch, 40, begin_anew)

    with pytest.raises(StoreError, match="begun anew"):
        run_into_store(spec(), folder, unit_runs=8, executor="serial")
    monkeypatch.undo()

    assert made == [tree(folder)]
    assert not (folder / "run.json").exists()
    for path in (folder, moved):
        run_into_store(spec(), path)
        assert tree(path) == tree(sound)


def test_removed_while_it_runs_it_stops_and_is_not_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    at_write(monkeypatch, 40, lambda: shutil.rmtree(folder))

    with pytest.raises(StoreError):
        run_into_store(spec(), folder, unit_runs=8, executor="serial")

    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_lock_is_removed_stops(tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    at_write(monkeypatch, 40, lambda: (folder / "lock").unlink())

    with pytest.raises(StoreError, match="must stay where it is"):
        run_into_store(spec(), folder, unit_runs=8, executor="serial")


def test_a_worker_writes_only_into_the_folder_that_the_run_holds(store):
    with StoreLock(store) as lock:
        opened = SweepStore(store)
        part = opened.parts[0]
        cut = tuple(part.layout.chunks for part in opened.parts)
        mask = np.ones((4, 2), bool)
        arguments = (str(store), opened.spec.fingerprint, part.name, (0, 0, 0), np.packbits(mask), (4, 2))

        done = unit_on_worker(*arguments, None, cut, lock.holder)
        with pytest.raises(StoreError, match="must be the folder that the run holds"):
            unit_on_worker(*arguments, None, cut, b"{}")

    assert done["record"]["digest"] == opened.journal.units(part.name)["0.0.0"]["digest"]


# Readers beside a writer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "larger",
    [
        spec(11),
        spec(8, {**AXES, "max_lag": [0, 3, 1]}),
        spec(8, {**AXES, "queue_cap": [400, 300]}),
        spec(8, {"queue_cap": [400, 300], **AXES}),
    ],
    ids=["seeds", "values", "an axis behind", "an axis in front"],
)
@pytest.mark.parametrize("unit_runs", [8, 12])
def test_a_dataset_that_is_open_while_the_store_grows_gives_its_old_values_or_an_error(
    tmp_path, larger, unit_runs
):
    folder = tmp_path / "sweep"
    before = run_into_store(spec(), folder, unit_runs=unit_runs).load()
    opened, rows = open_sweep(folder), read_table(folder, "batches")
    told = rows.collect()

    run_into_store(larger, folder)

    refused = []
    for name in before.data_vars:
        try:
            values = opened[name].values
        except StoreError as error:
            refused.append(str(error))
        else:
            np.testing.assert_array_equal(values, before[name].values)
    try:
        assert rows.collect().equals(told)
    except StoreError as error:
        refused.append(str(error))
    assert all("Open it again" in text for text in refused)


def test_a_reader_amid_a_unit_that_grows_sees_it_as_it_was(tmp_path, monkeypatch):
    folder = tmp_path / "sweep"
    before = run_into_store(spec(7), folder, unit_runs=12).load()
    seen = []

    def look():
        now = open_sweep(folder)
        there = now["status"] == 1
        for name in before.data_vars:
            same = now[name].isel(seed=slice(0, 7)).values == before[name].values
            assert (
                same | ~there.isel(seed=slice(0, 7)).values.reshape(same.shape[:3] + (1,) * (same.ndim - 3))
            ).all()
        seen.append(int(there.sum()))

    at_write(monkeypatch, 20, look)
    run_into_store(spec(9), folder, executor="serial")

    assert seen == [7 * 4]
    assert not (folder / "kept").exists()


def test_an_opened_dataset_travels_and_is_indexed_as_any_other(store):
    memory = open_sweep(store).load()
    opened = pickle.loads(pickle.dumps(open_sweep(store)))

    xr.testing.assert_identical(opened, memory)
    for at in (
        {"seed": slice(7, 1, -2)},
        {"seed": [5, 0, 5], "max_lag": 1},
        {"sync_cadence": -1, "seed": slice(3, 3)},
        {"max_lag": xr.DataArray([0, 1], dims="point"), "seed": xr.DataArray([3, 6], dims="point")},
    ):
        xr.testing.assert_identical(open_sweep(store).isel(at).load(), memory.isel(at))


def test_a_variable_reads_any_selection_across_chunks(tmp_path):
    array = StoredArray((5, 7), (2, 3), np.dtype("int64"), -1)
    values = np.arange(35).reshape(5, 7)
    (tmp_path / "cells.zarr").mkdir()
    files = ZarrFiles.__new__(ZarrFiles)
    files.path, files._place, files._arrays = tmp_path / "cells.zarr", Place(tmp_path), {"x": array}
    digests = {}
    for row in range(3):
        for column in range(3):
            box = ((2 * row, min(2 * row + 2, 5)), (3 * column, min(3 * column + 3, 7)))
            files.write({"x": values[tuple(slice(*ends) for ends in box)]}, box)
            digests[row, column] = digest_of_file(files.chunk_file("x", (row, column)), DIGEST_BYTES)
    variable = StoredVariable(tmp_path, "x", array, digests)
    rng = np.random.default_rng(5)

    for _ in range(200):
        at = tuple(
            [
                int(rng.integers(size)),
                slice(*sorted(rng.integers(0, size + 1, 2).tolist()), int(rng.integers(1, 4))),
                rng.integers(0, size, int(rng.integers(1, 9))),
            ][int(rng.integers(3))]
            for size in (5, 7)
        )
        expected = values[at[0] if not isinstance(at[0], int) else [at[0]]]
        expected = expected[:, at[1] if not isinstance(at[1], int) else [at[1]]]
        scalars = tuple(0 if isinstance(index, int) else slice(None) for index in at)
        np.testing.assert_array_equal(variable.read(at), expected[scalars])


# Extension --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["swap", "delete", "delete a part", "swap parts"])
@pytest.mark.parametrize("unit_runs", [8, 100])
def test_an_extension_runs_again_what_does_not_hold_and_gives_it_no_new_digest(
    store, how, unit_runs, tmp_path
):
    chunk = [store / f"cells.zarr/trained_tokens/c/0/0/{place}" for place in (0, 1)]
    part = [store / f"tables/batches/unit-0.0.{place}.parquet" for place in (0, 1)]
    one, two = part if "part" in how else chunk
    if how.startswith("swap"):
        a, b = one.read_bytes(), two.read_bytes()
        one.write_bytes(b)
        two.write_bytes(a)
    else:
        one.unlink()
    watch = Watch()

    grown = run_into_store(spec(12), store, progress=watch, unit_runs=unit_runs)

    assert watch.runs == 4 * 4 + (16 if how.startswith("swap") else 8)
    assert any("is run again" in note for note in watch.notes)
    fresh = run_into_store(spec(12), tmp_path / "fresh")
    xr.testing.assert_identical(sorted_along_axes(grown), sorted_along_axes(fresh))
    rows = [
        read_table(path, "batches").collect().sort("cell", "seed") for path in (store, tmp_path / "fresh")
    ]
    assert len(rows[0]) == len(rows[1])
    assert verify_store(store, everything=True).findings == []


def test_a_link_to_a_store_stays_a_link_when_the_store_grows(store, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(store)

    run_into_store(spec(9), link)

    assert link.is_symlink()
    assert open_sweep(store).sizes["seed"] == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "sweep"]


def test_nothing_is_written_through_a_link_inside_a_store(store, tmp_path):
    shutil.move(store / "cells.zarr/updates", tmp_path / "updates")
    (store / "cells.zarr/updates").symlink_to(tmp_path / "updates")
    before = tree(store)

    for seeds in (8, 9):
        with pytest.raises(StoreError, match=r"cells.zarr/updates: must not be a link"):
            run_into_store(spec(seeds), store)
    assert tree(store) == before
    assert open_sweep(store).load().attrs["complete"]


@pytest.mark.parametrize("name", ["a[1]", "b*", "c?[x"])
@pytest.mark.parametrize("moment", ["between the renames", "before the old one is removed"])
def test_a_stores_name_is_a_name_and_not_a_pattern(tmp_path, monkeypatch, sound, name, moment):
    folder = shutil.copytree(sound, tmp_path / name)

    class Killed(BaseException):
        pass

    real = os.rename

    def rename(source, target):
        if str(target) == str(folder):
            raise Killed
        real(source, target)

    def die(*_, **__):
        raise Killed

    if moment == "between the renames":
        monkeypatch.setattr(aside, "exchange", lambda *_: False)
        monkeypatch.setattr(aside.os, "rename", rename)
    else:
        monkeypatch.setattr(aside.shutil, "rmtree", die)
    with pytest.raises(Killed):
        run_into_store(spec(9), folder)
    monkeypatch.undo()
    if moment == "between the renames":
        with pytest.raises(
            StoreError, match="merge of it was killed; the run's command or `lagsweep compact` goes on"
        ):
            open_sweep(folder)
    watch = Watch()

    grown = run_into_store(spec(9), folder, progress=watch)

    assert watch.runs == 4
    assert (grown["status"] == 1).all()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(read_table(folder, "batches").collect().unique(["cell", "seed"])) > 0


@pytest.mark.parametrize(
    ("number", "text"), [(errno.EIO, "Input/output error"), (errno.ENOSPC, "No space left on device")]
)
def test_a_fault_of_the_disk_during_an_extension_is_an_error_of_the_store(store, monkeypatch, number, text):
    before = tree(store)

    def fail(*_, **__):
        raise OSError(number, os.strerror(number), "somewhere")

    monkeypatch.setattr(extend, "carry_over", fail)
    with pytest.raises(StoreError, match=f"store: cannot .*{text}"):
        run_into_store(spec(12), store)
    monkeypatch.undo()

    assert tree(store) == before
    assert run_into_store(spec(12), store).attrs["complete"]


# Versions ---------------------------------------------------------------------------------------------------


def test_a_newer_model_revision_reads_an_older_store_and_adds_no_runs_to_it(
    store, monkeypatch, tmp_path, capsys
):
    before = open_sweep(store).load()
    monkeypatch.setattr(results, "MODEL_REVISION", 3)

    xr.testing.assert_identical(open_sweep(store).load(), before)
    report = verify_store(store, everything=True)
    assert (report.findings, report.runs_checked) == ([], 0)
    assert report.notes == [
        "runs of model revision 1 are not run again by revision 3; their files are held against their digests"
    ]
    for seeds in (8, 9):
        with pytest.raises(StoreError, match=r"model_revision: must be 3 .* \(got 1\). Give --rerun"):
            run_into_store(spec(seeds), store)
    watch = Watch()
    again = run_into_store(spec(9), store, rerun=True, progress=watch)
    assert watch.runs == 9 * 4
    assert again.attrs["model_revision"] == 3
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"model_revision: must be at most 2 .* Use a newer lagsweep"):
        run_into_store(spec(9), store)


def test_a_revision_that_leaves_a_sweeps_results_as_they_are_goes_on_with_it(store, monkeypatch):
    monkeypatch.setattr(results, "MODEL_REVISION", 3)
    monkeypatch.setitem(results.REVISION_CHANGES, 3, lambda spec: not spec.is_level_1)
    watch = Watch()

    run_into_store(spec(9), store, progress=watch)

    assert watch.runs == 4
    assert verify_store(store, everything=True).runs_checked == 36


def general_spec(seeds=2, **fields):
    settings = {"publication": "pause", "duration_seconds": 60.0, "warmup_seconds": 1.0} | fields
    return make_spec(small_base().replace(**settings), {"max_lag": [0, 3]}, seeds)


def test_the_second_revision_is_that_of_runs_whose_figures_it_changed():
    level_1 = spec(2)
    with_baseline = make_spec(small_base(), AXES, 2, baseline=True)
    styles = {"mode": ["sequential", "bounded_async"], "publication": ["background", "abort"]}
    background = general_spec(publication="background", mode="sequential", prompt_tokens=5)

    assert {results.revision_of(one) for one in (level_1, with_baseline, general_spec(), background)} == {1}
    assert results.revision_of(general_spec(warmup_seconds=0.0)) == 2
    assert results.revision_of(general_spec(warmup_seconds=4e-7)) == 2  # no tick
    assert results.revision_of(general_spec(mode="sequential")) == 2
    assert results.revision_of(make_spec(general_spec().base, {"warmup_seconds": [0.0, 2.0]}, 2)) == 2
    assert results.revision_of(make_spec(general_spec().base, styles, 2)) == 2


def test_only_a_store_that_the_second_revision_changes_is_not_gone_on_with(tmp_path, monkeypatch):
    kept, changed = tmp_path / "kept", tmp_path / "changed"
    with monkeypatch.context() as older:
        older.setattr(results, "MODEL_REVISION", 1)
        run_into_store(general_spec(), kept)
        run_into_store(general_spec(warmup_seconds=0.0), changed)
    assert "model_revision" not in open_sweep(kept).attrs

    watch = Watch()
    run_into_store(general_spec(3), kept, progress=watch)
    assert watch.runs == 2
    assert verify_store(kept, everything=True).runs_checked == 6
    with pytest.raises(StoreError, match=r"model_revision: must be 2 .* \(got 1\). Give --rerun"):
        run_into_store(general_spec(3, warmup_seconds=0.0), changed)
    again = run_into_store(general_spec(warmup_seconds=0.0), changed, rerun=True)
    assert again.attrs["model_revision"] == 2


def test_a_store_of_unchanged_results_may_grow_by_cells_whose_results_are_new(tmp_path, monkeypatch):
    base = general_spec().base
    with monkeypatch.context() as older:
        older.setattr(results, "MODEL_REVISION", 1)
        run_into_store(make_spec(base, {"warmup_seconds": [1.0, 2.0]}, 2), tmp_path / "grown")

    grown = run_into_store(make_spec(base, {"warmup_seconds": [0.0, 1.0]}, 2), tmp_path / "grown")

    assert grown.attrs["model_revision"] == 2
    assert grown.sizes["warmup_seconds"] == 3
    assert verify_store(tmp_path / "grown", everything=True).runs_checked == 6


def test_the_first_revision_is_not_written(sound):
    assert "model_revision" not in open_sweep(sound).attrs
    assert b"model_revision" not in (sound / "cells.zarr/zarr.json").read_bytes()


def test_an_older_schema_is_read_and_not_gone_on_with(store, monkeypatch):
    before = open_sweep(store).load()
    monkeypatch.setattr(results, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(results, "OLDEST_WRITTEN", 3)

    xr.testing.assert_identical(open_sweep(store).load(), before)
    assert verify_store(store).findings == []
    with pytest.raises(StoreError, match=r"schema_version: must be at least 3 .* \(got 2\). Give --rerun"):
        run_into_store(spec(9), store)


def test_rerun_ends_as_a_fresh_run(store, sound):
    (store / "cells.zarr/updates/c/0/0/1").write_bytes(b"nonsense")
    watch = Watch()

    run_into_store(spec(), store, rerun=True, progress=watch, unit_runs=8)

    assert watch.runs == 32
    assert tree(store) == tree(sound)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content", "zz"),
        ("boxes", [[[0, "4"]]]),
        ("boxes", 3),
        ("tables", {"batches": 5}),
        ("tables", ["batches"]),
        ("sizes", ["a", None]),
        ("sizes", [-1] * 40),
        ("block", None),
        ("pack", 7),
        ("digest", 7),
        ("runs", "8"),
        ("seconds", "soon"),
        ("unit", 3),
    ],
)
def test_a_line_whose_values_are_of_a_wrong_kind_counts_as_not_written(store, sound, name, value):
    """Its checksum fits, as of a program that writes journals and is wrong."""
    lines = [read_line(line) for line in (store / "journal.jsonl").read_bytes().splitlines(keepends=True)]
    lines[2][name] = value
    (store / "journal.jsonl").write_bytes(b"".join(map(journal_line, lines)))

    with pytest.raises(StoreError, match=r"journal\.jsonl: does not tell of unit"):
        open_sweep(store)
    assert not verify_store(store, sample=0).sound
    run_into_store(spec(), store)
    assert tree(store) == tree(sound)


# Resume and repair ------------------------------------------------------------------------------------------


def test_complete_is_never_written_over_runs_that_are_not_done(tmp_path):
    store, lock = create_store(tmp_path / "sweep", spec(), 8)

    with pytest.raises(StoreError, match=r"complete: must not be said, unit 0\.0\.0 is not done"):
        store.finish()

    store.close()
    lock.release()
    assert open_sweep(tmp_path / "sweep").attrs["complete"] == 0


def test_a_resume_says_what_it_runs_again_and_ends_as_undisturbed(store, sound):
    (store / "cells.zarr/max_lag_observed/c/0/0/2").unlink()
    with pytest.raises(StoreError, match=r"max_lag_observed/c/0/0/2: is missing, but the journal says done"):
        open_sweep(store)["max_lag_observed"].load()
    watch = Watch()

    run_into_store(spec(), store, progress=watch)

    assert watch.runs == 8
    assert [note for note in watch.notes if "again" in note] == [
        "store: cells.zarr/max_lag_observed/c/0/0/2 is missing, but the journal says done; "
        "unit 0.0.2 is run again"
    ]
    assert tree(store) == tree(sound)
    assert verify_store(store).findings == []


def test_a_sweep_with_a_stopping_rule_runs_its_damaged_unit_again_and_no_other(tmp_path):
    rule = "trained_tokens_per_second within 3%"
    asked, folder = spec(200, baseline=True, until=rule, tables=[]), tmp_path / "sweep"
    before = run_into_store(asked, folder, unit_runs=64).load()
    undisturbed = tree(folder)
    assert 0 < (before["status"] == 1).sum() < 200 * 4
    (folder / "cells.zarr/mean_lag/c/0/0/0").unlink()
    with pytest.raises(StoreError, match="mean_lag/c/0/0/0: is missing"):
        open_sweep(folder)["mean_lag"].load()
    watch = Watch()

    again = run_into_store(asked, folder, progress=watch)

    assert watch.runs == 64  # two cells at the seeds of the first look
    xr.testing.assert_identical(again.load(), before)
    assert tree(folder) == undisturbed
    assert verify_store(folder, everything=True).findings == []


def test_a_healed_journal_is_sound(store):
    lines = (store / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"runs":8', b'"runs":9')
    (store / "journal.jsonl").write_bytes(b"".join(lines))
    assert any("is damaged" in str(finding) for finding in verify_store(store).findings)

    run_into_store(spec(), store)

    assert verify_store(store).findings == []


def test_a_repair_undoes_wrong_values_that_fit_their_digests(store, sound, capsys):
    """What only running again can find: a value was wrong when its digest was made."""
    opened = SweepStore(store)
    part = opened.part("cells")
    arrays = opened.read_unit(part, (0, 0, 1))
    opened.files.write(
        {"trained_tokens": (arrays.metrics["trained_tokens"] + 1).reshape(2, 2, 2)},
        part.layout.box((0, 0, 1)),
    )
    record = opened.journal.units("cells")["0.0.1"] | {"digest": unit_digest(opened, part, (0, 0, 1))}
    opened.place.check()
    opened.journal.append(record)
    opened.journal.append({"kind": "finished", "fingerprint": opened.spec.fingerprint})
    opened.close()

    with pytest.raises(SystemExit) as ended:
        main(["verify", str(store), "--all", "--quiet"])
    assert ended.value.code == 1
    assert "to mend it: lagsweep verify" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(store), "--all", "--repair", "--quiet", "--json"])
    facts = json.loads(capsys.readouterr().out)

    assert ended.value.code == 0
    assert facts["repairs"][0] == "undid 1 unit; the run's command does again what was undone"
    assert facts["complete"] is False
    watch = Watch()
    run_into_store(spec(), store, progress=watch)
    assert watch.runs == 8
    assert tree(store) == tree(sound)
    assert verify_store(store, everything=True).findings == []


def test_a_repair_of_a_sound_store_changes_nothing(store, sound):
    before = tree(store)

    report = repair_store(store)

    assert (report.findings, report.repairs, report.complete) == ([], [], True)
    assert tree(store) == before


def test_a_second_name_of_a_file_elsewhere_is_no_lock(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("keep me")
    os.link(precious, tmp_path / "lock")

    with pytest.raises(StoreError, match="lock: must be a file of its own"):
        StoreLock(tmp_path)
    assert precious.read_text() == "keep me"


def test_a_cancelled_run_keeps_no_old_files_that_matter(tmp_path):
    folder, cancel = tmp_path / "sweep", threading.Event()
    run_into_store(spec(7), folder, unit_runs=12)
    cancel.set()
    with pytest.raises(Cancelled):
        run_into_store(spec(9), folder, cancel=cancel)
    assert verify_store(folder).findings == []

    run_into_store(spec(9), folder)

    assert not (folder / "kept").exists()
    assert verify_store(folder, everything=True).findings == []


def test_a_dataset_opened_by_a_relative_path_is_read_from_another_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_into_store(spec(), Path("sweep"))
    opened, elsewhere = open_sweep("sweep"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    assert (opened["status"].values == 1).all()
