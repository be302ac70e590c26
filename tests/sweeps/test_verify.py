"""``verify`` finds every planted fault, and nothing in a sound store."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
import zarr
from oracle.damaged_stores import unit_digest
from oracle.small_sweeps import small_base, tree

from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.journal import Journal, journal_line
from lagsweep.sweeps.store.store import SweepStore, open_sweep
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

SPEC = make_spec(
    small_base(),
    {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]},
    10,
    baseline=True,
    tables=["batches"],
    constraints=["max_lag + 1 >= sync_cadence"],
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "sweep"
    run_into_store(SPEC, folder, unit_runs=12)
    return folder


@pytest.fixture
def store(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "sweep")


def found(folder, **options):
    return [str(finding) for finding in verify_store(folder, **({"sample": 0} | options)).findings]


def rewrite_digest(folder, unit="0.0.3", **changes):
    """Make the journal fit what lies on disk: a lie that covers a fault."""
    store = SweepStore(folder)
    part = store.part("cells")
    record = dict(store.journal.units("cells")[unit])
    record["digest"] = unit_digest(store, part, tuple(int(k) for k in unit.split(".")))
    file = folder / "journal.jsonl"
    lines = [line for line in file.read_bytes().splitlines(keepends=True) if f'"{unit}"'.encode() not in line]
    lines.insert(1, journal_line(record | changes))
    file.write_bytes(b"".join(lines))


def test_nothing_is_found_in_a_sound_store_and_nothing_is_changed(sound):
    before = tree(sound)

    report = verify_store(sound, everything=True)

    assert report.findings == []
    assert report.sound
    assert report.complete
    assert (report.units, report.units_done) == (6, 6)
    assert report.chunks == 5 * 30 + 29
    assert report.runs_checked == 5 * 10 + 10
    assert tree(sound) == before


def test_a_sample_is_the_same_each_time_and_as_large_as_asked(sound):
    assert verify_store(sound, sample=17).runs_checked == 17
    assert verify_store(sound, sample=10**6).runs_checked == 60


def test_one_cell_can_be_checked(sound):
    by_id = int(open_sweep(sound).cell.sel(max_lag=3, sync_cadence=2))

    assert verify_store(sound, cell=by_id).runs_checked == 10
    assert verify_store(sound, cell={"max_lag": 3, "sync_cadence": 2}).runs_checked == 10


@pytest.mark.parametrize("name", ["updates", "mean_lag", "status", "lag_counts", "baseline_updates"])
@pytest.mark.parametrize("place", ["header", "middle", "end"])
def test_a_flipped_bit(store, name, place):
    chunk = sorted(path for path in (store / "cells.zarr" / name / "c").rglob("*") if path.is_file())[0]
    content = bytearray(chunk.read_bytes())
    content[{"header": 1, "middle": len(content) // 2, "end": -1}[place]] ^= 4
    chunk.write_bytes(content)

    assert any(name in text and text.startswith("chunk") for text in found(store))


@pytest.mark.parametrize("length", [0, 1, 10, -1])
def test_a_truncated_chunk(store, length):
    chunk = store / "cells.zarr/updates/c/0/0/2"
    chunk.write_bytes(chunk.read_bytes()[:length])

    assert any("updates unit 0.0.2: cannot be read" in text for text in found(store))


def test_a_missing_chunk(store):
    (store / "cells.zarr/mean_lag/c/0/0/4").unlink()

    assert "chunk: mean_lag unit 0.0.4: is missing, but the journal says done" in found(store)


def test_swapped_chunks(store):
    """Each has a checksum that fits; only the journal knows which is whose."""
    one, other = store / "cells.zarr/updates/c/0/0/1", store / "cells.zarr/updates/c/0/0/2"
    first, second = one.read_bytes(), other.read_bytes()
    assert first != second
    one.write_bytes(second)
    other.write_bytes(first)

    texts = found(store)

    assert len(texts) == 2
    assert all("is not the one that the journal tells of" in text for text in texts)


def test_chunks_swapped_between_arrays(store):
    one, other = store / "cells.zarr/updates/c/0/0/1", store / "cells.zarr/syncs/c/0/0/1"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)

    assert len(found(store)) == 2


def change_a_value(folder, name="trained_tokens", place=(2, 1, 7)):
    array = zarr.open_array(folder / "cells.zarr" / name)
    array[place] = array[place] + 1


def test_a_wrong_value_under_a_right_checksum(store):
    change_a_value(store)

    assert found(store) == [
        "chunk: trained_tokens unit 0.0.3: is not the one that the journal tells of (changed, or swapped)"
    ]


def test_a_wrong_value_that_the_journal_covers_is_found_by_running_it_again(store):
    change_a_value(store)
    rewrite_digest(store)

    assert found(store) == []
    texts = found(store, everything=True)
    cell = int(open_sweep(store).cell[2, 1])
    assert texts == [f"value: trained_tokens cell {cell} seed 7: is not what the run gives"]
    assert found(store, cell={"max_lag": 3, "sync_cadence": 2}) == texts
    assert found(store, sample=60) == texts


@pytest.mark.parametrize("name", ["mean_lag", "lag_counts", "baseline_syncs"])
def test_wrong_values_of_every_kind_are_found_by_running_again(store, name):
    baseline = name.startswith("baseline")
    change_a_value(store, name, {"lag_counts": (2, 1, 7, 0), "baseline_syncs": (7,)}.get(name, (2, 1, 7)))
    if not baseline:
        rewrite_digest(store)

    assert any(name in text for text in found(store, everything=True))


def test_a_journal_that_says_done_where_nothing_was_done(store):
    """The units' chunks are as the template left them: not there."""
    shutil.rmtree(store / "cells.zarr")
    journal = (store / "journal.jsonl").read_bytes()
    shutil.rmtree(store)
    from lagsweep.sweeps.store.store import create_store

    empty, lock = create_store(store, SPEC, 12)
    lock.release()
    empty.close()
    (store / "journal.jsonl").write_bytes(journal)

    texts = found(store)
    assert sum("is missing, but the journal says done" in text for text in texts) >= 5 * 30 + 29
    assert any("says finished, but the store says incomplete" in text for text in texts)


def test_a_journal_that_calls_unrun_runs_done(store):
    array = zarr.open_array(store / "cells.zarr/status")
    array[:, :, 6] = 0
    rewrite_digest(store)

    texts = found(store)

    assert "status: unit 0.0.3: holds runs that were never done, but the journal says done" in texts
    assert any("journal: unit 0.0.3: says runs 10, but there are 5" in text for text in texts)


def test_a_journal_that_leaves_out_a_unit(store):
    file = store / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(line for line in lines if b'"0.0.3"' not in line))

    assert found(store) == ["journal: unit 0.0.3: is missing, but the store says complete"]


def test_a_journal_with_wrong_numbers(store):
    rewrite_digest(store, runs=99, failed=1)

    assert found(store) == [
        "journal: unit 0.0.3: says runs 99, but there are 10",
        "journal: unit 0.0.3: says failed 1, but there are 0",
    ]


def test_a_journal_with_units_that_do_not_exist(store):
    journal = Journal(store / "journal.jsonl")
    for part, unit in (("cells", "9.9.9"), ("cells", "0.0"), ("other", "0.0.0"), ("cells", "x")):
        journal.append({"kind": "unit", "part": part, "unit": unit})
    journal.append({"kind": "finished"})
    journal.close()

    assert sum("is no unit of this sweep" in text for text in found(store)) == 4


def test_a_damaged_and_a_torn_line(store):
    file = store / "journal.jsonl"
    content = bytearray(file.read_bytes())
    content[content.index(b"\n") + 60] ^= 1  # of the second line
    file.write_bytes(content[:-5])

    texts = found(store)

    assert "journal: line 2: is damaged" in texts
    assert "journal: last line: is cut off" in texts


def test_another_sweeps_journal(store, tmp_path):
    other = make_spec(small_base(batch_tokens=140), {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}, 10)
    run_into_store(other, tmp_path / "other", unit_runs=12)
    shutil.copy(tmp_path / "other/journal.jsonl", store / "journal.jsonl")

    assert "journal: line 1: has another sweep's fingerprint" in found(store)


@pytest.mark.parametrize(
    "name", ["notes.txt", "updates/notes.txt", "updates/c/0/0/99", "updates/c/0/0/x", "extra/zarr.json"]
)
def test_a_foreign_file(store, name):
    path = store / "cells.zarr" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")

    assert found(store) == [f"foreign file: {name}: does not belong into the group"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda meta: meta.update(shape=[3, 2, 11]), "shape, type, chunks, dimensions are"),
        (lambda meta: meta.update(data_type="int32"), "int32"),
        (lambda meta: meta["codecs"][1]["configuration"].update(checksum=False), "chunks have no checksum"),
    ],
)
def test_changed_metadata(store, change, text):
    file = store / "cells.zarr/updates/zarr.json"
    meta = json.loads(file.read_text())
    change(meta)
    file.write_text(json.dumps(meta))

    assert any(line.startswith("metadata: updates") and text in line for line in found(store))


def test_a_missing_array(store):
    shutil.rmtree(store / "cells.zarr/updates")

    assert found(store) == ["metadata: updates: the array is missing"]


@pytest.mark.parametrize("name", ["max_lag", "seed", "cell"])
def test_changed_coordinates(store, name):
    array = zarr.open_array(store / "cells.zarr" / name)
    array[...] = array[...] + np.asarray(1, array.dtype)

    assert found(store) == [f"coordinate: {name}: is not what the spec says"]


def test_changed_and_missing_table_parts(store):
    part = store / "tables/batches/unit-0.0.1.parquet"
    frame = pl.read_parquet(part)
    frame.with_columns(pl.col("tokens") + 1).write_parquet(part)
    (store / "tables/batches/unit-0.0.2.parquet").unlink()
    (store / "tables/failures").mkdir()
    frame.write_parquet(store / "tables/failures/unit-0.0.3.parquet")

    assert found(store) == [
        "table: batches unit 0.0.1: is not the one that the journal tells of",
        "table: batches unit 0.0.2: is missing, but the journal says done",
        "table: failures unit 0.0.3: is there, but the journal does not tell of it",
    ]
    assert "table: batches unit 0.0.1: holds other rows than the runs give" in found(store, everything=True)


def test_cells_excluded_against_the_spec(store):
    array = zarr.open_array(store / "cells.zarr/status")
    array[0, 1, 6:8] = 1
    rewrite_digest(store)

    assert "status: unit 0.0.3: excludes other cells than the spec" in found(store)


def test_an_unfinished_store_is_sound_as_far_as_it_is(store):
    file = store / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:4]))
    SweepStore(store).reopen()
    (store / "cells.zarr/updates/c/0/0/3.abc.partial").write_bytes(b"torn")

    report = verify_store(store)

    assert report.findings == []
    assert not report.complete
    assert report.units_done == 3
