"""A stored sweep: as in memory, Zarr and parquet as promised, one run at a time, nothing half-made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
import xarray as xr
import zarr
from oracle.small_sweeps import small_base, tree

import lagsweep as ls
from lagsweep.errors import ConfigError, StoreError
from lagsweep.kernels.pipeline.metrics import METRICS
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import lock as locks
from lagsweep.sweeps.store.journal import Journal, journal_line, read_line
from lagsweep.sweeps.store.lock import StoreLock
from lagsweep.sweeps.store.repair import repair_store
from lagsweep.sweeps.store.run_record import RUN_NAME
from lagsweep.sweeps.store.store import SweepStore, create_store, open_sweep, read_table, store_folder
from lagsweep.sweeps.store.writing import run_into_store
from lagsweep.sweeps.sweep.run import load_spec, run_spec, run_sweep

AXES = {"max_lag": [0, 1, 3], "admission": ["threshold", "reserve"]}


def spec(**options):
    return make_spec(small_base(), AXES, 10, **options)


class Notes(Progress):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def stored(tmp_path):
    folder = tmp_path / "sweep"
    run_into_store(
        spec(baseline=True, masks=True, tables=["batches", "timeline", "rollouts"]), folder, unit_runs=12
    )
    return folder


def test_a_stored_sweep_is_the_one_in_memory(tmp_path):
    stored = run_spec(spec(baseline=True), store=tmp_path / "sweep")

    xr.testing.assert_identical(stored.load(), run_spec(spec(baseline=True)))


def test_the_folder_holds_what_is_documented(stored):
    assert sorted(path.name for path in stored.iterdir()) == [
        "cells.zarr",
        "journal.jsonl",
        "lock",
        "run.json",
        "spec.toml",
        "tables",
    ]
    assert sorted(path.name for path in (stored / "tables").iterdir()) == [
        "batches",
        "masks",
        "rollouts",
        "timeline",
    ]
    assert load_spec(stored / "spec.toml").fingerprint == ls.open_sweep(stored).attrs["fingerprint"]
    run = json.loads((stored / RUN_NAME).read_text())["runs"][0]
    assert run["outcome"] == "done"
    assert run["versions"]["zarr"]


def test_only_zarrs_own_files_lie_in_the_group(stored):
    names = {path.name for path in (stored / "cells.zarr").rglob("*") if path.is_file()}

    assert all(name == "zarr.json" or name.isdigit() for name in names)


def test_plain_xarray_opens_the_group(stored):
    with_help = open_sweep(stored)
    plain = xr.open_zarr(stored / "cells.zarr", chunks=None)

    assert plain.updates.dims == ("max_lag", "admission", "seed")
    xr.testing.assert_equal(plain.updates.drop_vars("admission"), with_help.updates.drop_vars("admission"))
    assert plain.cell.dims == ("max_lag", "admission")


def test_one_chunk_of_every_array_is_one_unit_with_a_checksum(stored):
    store = SweepStore(stored)
    cells = store.part("cells")

    assert cells.layout.chunks == (3, 2, 2)
    for metric in METRICS:
        array = zarr.open_array(stored / "cells.zarr" / metric.name, mode="r")
        assert array.chunks == cells.layout.chunks
        assert array.metadata.codecs[-1].to_dict()["configuration"] == {"level": 1, "checksum": True}
        chunks = [path for path in (stored / "cells.zarr" / metric.name / "c").rglob("*") if path.is_file()]
        assert len(chunks) == cells.layout.count == 5


def test_a_chunk_of_fill_values_is_written_too(tmp_path):
    """Runs without any update have NaN in every mean; Zarr would leave such chunks out."""
    base = small_base(batch_tokens=100_000, max_queue_tokens=50)

    run_sweep(base, {"max_lag": [0]}, seeds=2, store=tmp_path / "sweep")

    assert (tmp_path / "sweep/cells.zarr/mean_lag/c/0/0").exists()
    assert SweepStore(tmp_path / "sweep").complete


def test_consolidated_metadata_come_with_the_end_and_only_then(tmp_path):
    folder = tmp_path / "sweep"
    store, lock = create_store(folder, spec(), 12)
    before = json.loads((folder / "cells.zarr/zarr.json").read_text())
    assert before["attributes"]["complete"] is False
    assert "consolidated_metadata" not in before
    assert open_sweep(folder).attrs["complete"] == 0
    assert (open_sweep(folder).status == 0).all()
    store.close()
    lock.release()

    run_into_store(spec(), folder)

    after = json.loads((folder / "cells.zarr/zarr.json").read_text())
    assert after["attributes"]["complete"] is True
    assert set(after["consolidated_metadata"]["metadata"]) == {
        path.name for path in (folder / "cells.zarr").iterdir()
    } - {"zarr.json"}


def test_tables_hold_the_rows_of_single_runs(stored):
    ds = open_sweep(stored)
    config = ls.config_at(ds, {"max_lag": 3, "admission": "reserve"}, seed=7)
    result = ls.simulate_pipeline(config, rollouts=True)
    mine = (pl.col("cell") == ds.cell.sel(max_lag=3, admission="reserve").item()) & (pl.col("seed") == 7)

    for table, frame in (
        ("batches", result.batches_frame()),
        ("timeline", result.timeline_frame()),
        ("rollouts", result.rollouts_frame()),
    ):
        rows = read_table(stored, table).filter(mine).drop("cell", "seed").collect()
        assert rows.select(frame.columns).rows() == frame.rows()


def test_masks_of_a_stored_sweep_are_a_table(stored):
    memory = run_spec(spec(masks=True))
    ds = open_sweep(stored)
    rows = read_table(stored, "masks").collect()

    assert "completed" not in ds
    for lag, admission in ((0, "threshold"), (3, "reserve")):
        cell = memory.cell.sel(max_lag=lag, admission=admission).item()
        for seed in range(10):
            at = memory.sel(max_lag=lag, admission=admission, seed=seed)
            mine = rows.filter((pl.col("cell") == cell) & (pl.col("seed") == seed))
            for name in ("completed", "trained", "truncated"):
                assert mine[name].to_list() == at[name].values[: len(mine)].tolist()
                assert not at[name].values[len(mine) :].any()


def test_a_table_that_is_not_kept_is_refused(tmp_path):
    run_into_store(spec(), tmp_path / "sweep")

    with pytest.raises(StoreError, match="table: must be one that the store keeps"):
        read_table(tmp_path / "sweep", "batches")


def test_labels_are_never_cut_when_the_store_grows(tmp_path):
    base, folder = small_base(), tmp_path / "sweep"
    run_into_store(make_spec(base, {"publication": ["drain"]}, 1), folder)

    run_into_store(make_spec(base, {"publication": ["drain", "background"]}, 1), folder)

    assert open_sweep(folder).publication.values.tolist() == ["drain", "background"]


def test_the_same_bytes_from_any_executor_and_twice(tmp_path):
    options = {"baseline": True, "masks": True, "tables": ["batches", "rollouts"]}
    for name, how in {
        "one": {"threads": 1},
        "two": {"threads": 2},
        "serial": {"executor": "serial"},
        "again": {"threads": 2},
    }.items():
        run_into_store(spec(**options), tmp_path / name, unit_runs=12, **how)

    reference = tree(tmp_path / "serial")
    assert len(reference) > 250
    for name in ("one", "two", "again"):
        assert tree(tmp_path / name) == reference


def test_the_same_command_finds_its_folder(tmp_path):
    named = spec(name="mine")

    assert store_folder(named, tmp_path).name == f"mine-{named.fingerprint[:8]}"


def test_a_newer_schema_is_refused(stored):
    file = stored / "cells.zarr/zarr.json"
    root = json.loads(file.read_text())
    root["attributes"]["schema_version"] = 99
    file.write_text(json.dumps(root))

    with pytest.raises(
        StoreError, match=r"schema_version: must be at most 2 \(got 99\). Use a newer lagsweep"
    ):
        open_sweep(stored)


def test_a_spec_changed_by_hand_is_noticed(stored):
    file = stored / "cells.zarr/zarr.json"
    file.write_text(file.read_text().replace('\\"batch_tokens\\":150', '\\"batch_tokens\\":151'))

    with pytest.raises(StoreError, match=r"fingerprint: must be .* metadata were changed"):
        SweepStore(stored)


def test_another_length_table_is_noticed(stored):
    file = stored / "cells.zarr/zarr.json"
    root = json.loads(file.read_text())
    root["attributes"]["law_digest"] = "0" * 64
    file.write_text(json.dumps(root))
    lines = [read_line(line) for line in (stored / "journal.jsonl").read_bytes().splitlines(keepends=True)]
    lines[0]["made"]["law_digest"] = "0" * 64
    (stored / "journal.jsonl").write_bytes(b"".join(map(journal_line, lines)))
    before = tree(stored)

    with pytest.raises(StoreError, match="law_digest: must be 0000000000000000, as when the sweep was made"):
        ls.config_at(open_sweep(stored), {"max_lag": 0, "admission": "reserve"})
    with pytest.raises(StoreError, match="law_digest: must be 0000000000000000, as when the sweep was made"):
        repair_store(stored)
    assert tree(stored) == before


@pytest.mark.parametrize("content", [None, "empty", "file"])
def test_what_is_no_store_is_refused(tmp_path, content):
    path = tmp_path / "place"
    if content == "empty":
        path.mkdir()
    elif content == "file":
        path.write_text("no")

    with pytest.raises(StoreError, match="store: must be the folder of a stored sweep"):
        open_sweep(path)


def test_a_folder_with_other_things_is_not_written_into(tmp_path):
    (tmp_path / "precious.txt").write_text("keep")

    with pytest.raises(StoreError):
        run_into_store(spec(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "lock") == ["precious.txt"]


def test_bad_input_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError):
        run_sweep(small_base(), {"max_lag": [0, -1]}, 1, store=tmp_path / "sweep")
    assert list(tmp_path.iterdir()) == []


# One run at a time ----------------------------------------------------------------------------------------


def test_a_second_run_on_the_same_store_is_refused(tmp_path):
    folder = tmp_path / "sweep"
    store, lock = create_store(folder, spec(), 12)

    with pytest.raises(
        StoreError, match=rf"store: must not be in use, process {os.getpid()} on .* is running on it"
    ):
        run_into_store(spec(), folder)

    lock.release()
    store.close()
    assert run_into_store(spec(), folder).attrs["complete"]


HOLD = """
import sys, time
from pathlib import Path
from lagsweep.sweeps.store.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_dies_with_its_process_and_is_taken_over(tmp_path):
    folder = tmp_path / "sweep"
    store, lock = create_store(folder, spec(), 12)
    lock.release()
    store.close()
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match=f"process {other.pid} on"):
        StoreLock(folder)
    other.kill()
    other.wait()
    other.stdout.close()
    notes = Notes()

    run_into_store(spec(), folder, progress=notes)

    assert any(f"process {other.pid}" in note and "stale" in note for note in notes.notes)


@pytest.mark.parametrize(("age", "refused"), [(1.0, True), (1000.0, False)])
def test_a_lock_of_another_machine_counts_while_it_is_renewed(tmp_path, age, refused):
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    then = time.time() - age
    os.utime(tmp_path / "lock", (then, then))

    if refused:
        with pytest.raises(StoreError, match="process 1 on elsewhere is running on it"):
            StoreLock(tmp_path)
    else:
        lock = StoreLock(tmp_path)
        assert lock.took_over == "process 1 on elsewhere"
        lock.release()


@pytest.mark.parametrize("ahead", [86_400.0, 7_200.0, 90.0])
def test_a_lock_dated_ahead_is_taken_over_when_nobody_renews_it(tmp_path, ahead, monkeypatch):
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    then = time.time() + ahead
    os.utime(tmp_path / "lock", (then, then))
    with pytest.raises(StoreError, match="clears by itself within 60 s"):
        StoreLock(tmp_path)
    assert abs((tmp_path / "lock").stat().st_mtime - time.time()) < 30

    monkeypatch.setattr(locks, "STALE_SECONDS", 0.0)  # as a minute later
    time.sleep(0.02)
    lock = StoreLock(tmp_path)
    assert lock.took_over == "process 1 on elsewhere"
    lock.release()


def test_a_held_lock_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.01)
    lock = StoreLock(tmp_path)
    os.utime(tmp_path / "lock", (0, 0))
    deadline = time.monotonic() + 10

    while (tmp_path / "lock").stat().st_mtime == 0 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (tmp_path / "lock").stat().st_mtime > 0
    lock.release()


def test_folders_half_made_by_killed_runs_are_swept_and_living_ones_stay(tmp_path):
    dead = tmp_path / "sweep.building-dead"
    alive = tmp_path / "sweep.building-alive"
    dead.mkdir()
    alive.mkdir()
    (dead / "cells.zarr").mkdir()
    lock = StoreLock(alive)

    run_into_store(spec(), tmp_path / "sweep")

    assert not dead.exists()
    assert alive.exists()
    lock.release()


def test_two_runs_that_make_the_same_store_at_once_do_not_mix(tmp_path, monkeypatch):
    from lagsweep.sweeps.store import store as stores

    real = stores.fill_folder

    def lose_the_race(folder, spec, parts):
        real(folder, spec, parts)
        (tmp_path / "sweep").mkdir()
        (tmp_path / "sweep" / "other").touch()

    monkeypatch.setattr(stores, "fill_folder", lose_the_race)

    with pytest.raises(StoreError, match=r"another run made it at the same moment .* it goes on"):
        create_store(tmp_path / "sweep", spec(), 12)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep"]


# The journal ----------------------------------------------------------------------------------------------


def test_a_journal_line_holds_its_own_checksum():
    line = journal_line({"kind": "unit", "unit": "0.1", "runs": 5})

    assert read_line(line) == {"kind": "unit", "unit": "0.1", "runs": 5}
    for place in range(len(line)):
        broken = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert read_line(broken) is None
    assert all(read_line(line[:length]) is None for length in range(len(line)))


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_torn_last_line_is_cut_off_before_the_next(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for number in range(3):
        journal.append({"kind": "unit", "part": "cells", "unit": str(number)})
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])

    again = Journal(path)
    assert again.torn
    assert list(again.units("cells")) == ["0", "1"]
    again.append({"kind": "unit", "part": "cells", "unit": "9"})
    again.close()

    assert list(Journal(path).units("cells")) == ["0", "1", "9"]
    assert not Journal(path).torn
    assert Journal(path).damaged == []


def test_a_line_that_cannot_be_written_whole_is_not_written_at_all(tmp_path):
    class Full:
        def __init__(self, file):
            self._file = file

        def write(self, line):
            self._file.write(line[:7])
            return 7

        def __getattr__(self, name):
            return getattr(self._file, name)

    journal = Journal(tmp_path / "journal.jsonl")
    journal.append({"kind": "unit", "part": "cells", "unit": "0"})
    whole = journal._file
    journal._file = Full(whole)

    with pytest.raises(OSError, match="No space left"):
        journal.append({"kind": "unit", "part": "cells", "unit": "1"})
    journal._file = whole
    journal.close()
    assert list(Journal(tmp_path / "journal.jsonl").units("cells")) == ["0"]


def test_metrics_of_a_million_runs_are_few_files(tmp_path):
    """Units of short runs hold at least 40,000 runs, so a million of them are at most 25 chunks an array."""
    million = make_spec(
        small_base(duration_seconds=5.0), {"max_lag": range(10), "sync_cadence": range(1, 11)}, 10_000
    )

    store, lock = create_store(tmp_path / "sweep", million)

    assert store.part("cells").layout.count <= 25
    assert np.prod(store.part("cells").layout.chunks) >= 40_000
    lock.release()
    store.close()
