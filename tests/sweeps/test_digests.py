"""Digests of a store's files: the older form and the newer are both held against the files."""

from __future__ import annotations

import hashlib
import shutil
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.runs import lean
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.digests import FAST, fast_digest, file_holds, holds
from lagsweep.sweeps.store.journal import journal_line, read_line
from lagsweep.sweeps.store.repair import repair_store
from lagsweep.sweeps.store.store import open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import StoredRun, run_into_store

SPEC = make_spec(small_base(), {"max_lag": [0, 1, 3]}, 6, tables=["batches"])


def older(content, size=8):
    return hashlib.blake2b(content, digest_size=size).hexdigest()


@given(
    content=st.binary(min_size=1, max_size=300),
    place=st.integers(0, 299),
    bit=st.integers(0, 7),
    more=st.binary(min_size=1, max_size=3),
)
def test_a_flipped_bit_a_cut_and_an_end_too_many_are_found_in_either_form(content, place, bit, more):
    flipped = bytearray(content)
    flipped[place % len(content)] ^= 1 << bit
    for told in (fast_digest(content), older(content), older(content, 4)):
        assert holds(content, told)
        for other in (bytes(flipped), content[:-1], content + more):
            assert not holds(other, told)


def test_a_file_is_held_as_its_content_is(tmp_path):
    content = bytes(range(256)) * 9000  # more than one piece
    (tmp_path / "file").write_bytes(content)
    for told in (fast_digest(content), older(content)):
        assert file_holds(tmp_path / "file", told)
        assert not file_holds(tmp_path / "none", told)
        assert not file_holds(tmp_path, told)
    for told in ("", "x", fast_digest(content[:-1]), older(content[:-1]), "crc32c:", "ab" * 200):
        assert not file_holds(tmp_path / "file", told)
        assert not holds(content, told)


@pytest.fixture
def stores(tmp_path):
    """A store, and the same with digests of tables as older versions wrote them."""
    run_into_store(SPEC, tmp_path / "new", unit_runs=6)
    shutil.copytree(tmp_path / "new", tmp_path / "old", ignore=shutil.ignore_patterns("lock"))
    lines = [
        read_line(line) for line in (tmp_path / "old/journal.jsonl").read_bytes().splitlines(keepends=True)
    ]
    for line in lines:
        for table, told in line.get("tables", {}).items():
            assert told.startswith(FAST)
            part = tmp_path / f"old/tables/{table}/unit-{line['unit']}.parquet"
            line["tables"][table] = older(part.read_bytes())
    (tmp_path / "old/journal.jsonl").write_bytes(b"".join(map(journal_line, lines)))
    return tmp_path


def told_of_tables(folder):
    """The digests of tables' parts in a journal, and whether each is of the newer form."""
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    found = [told for line in lines for told in read_line(line).get("tables", {}).values()]
    return [told.startswith(FAST) for told in found]


def as_form_1(monkeypatch):
    """Make stores as a version did that knew no other form."""
    monkeypatch.setattr(results, "schema_of", lambda spec: 1)


def test_the_form_of_a_store_says_which_digests_its_tables_have(tmp_path):
    run_into_store(SPEC, tmp_path / "tables")
    run_into_store(SPEC.replace(tables=()), tmp_path / "none")
    run_into_store(SPEC.replace(tables=(), masks=True), tmp_path / "masks")

    forms = [open_sweep(tmp_path / name).attrs["schema_version"] for name in ("tables", "none", "masks")]
    assert forms == [2, 1, 2]
    assert all(told_of_tables(tmp_path / "tables"))
    assert told_of_tables(tmp_path / "tables")


def test_failures_of_a_store_without_tables_have_the_digests_of_its_form(tmp_path, monkeypatch):
    real = lean.LeanCells.step

    def failing(cells):
        if 3 in cells.seeds:
            raise ZeroDivisionError("made to fail")
        real(cells)

    monkeypatch.setattr(lean.LeanCells, "step", failing)
    ds = run_into_store(SPEC.replace(tables=()), tmp_path / "s", executor="serial")

    assert (ds.status == 2).any()
    assert told_of_tables(tmp_path / "s")
    assert not any(told_of_tables(tmp_path / "s"))
    assert verify_store(tmp_path / "s", sample=0).sound


def test_a_store_of_form_1_is_gone_on_with_in_its_form_and_grows_into_form_2(tmp_path, monkeypatch):
    cancel = Event()
    with monkeypatch.context() as patched:
        as_form_1(patched)
        run_into_store(SPEC, tmp_path / "whole", unit_runs=6)
        patched.setattr(StoredRun, "accept", stopping_after(2, cancel))
        with pytest.raises(Cancelled):
            run_into_store(SPEC, tmp_path / "s", unit_runs=6, executor="serial", cancel=cancel)
    assert len(told_of_tables(tmp_path / "s")) == 2

    run_into_store(SPEC, tmp_path / "s")  # no version in between is locked out by units of another form
    assert told_of_tables(tmp_path / "s") == [False] * 3
    assert tree(tmp_path / "s") == tree(tmp_path / "whole")
    assert open_sweep(tmp_path / "s").attrs["schema_version"] == 1

    before = open_sweep(tmp_path / "s").load()
    grown = run_into_store(SPEC.replace(seeds=tuple(range(8))), tmp_path / "s").load()
    assert grown.attrs["schema_version"] == 2
    assert sorted(set(told_of_tables(tmp_path / "s"))) == [False, True]
    assert grown.sel(seed=before.seed).drop_attrs().identical(before.drop_attrs())
    assert verify_store(tmp_path / "s", everything=True).sound


def test_a_form_that_the_journal_does_not_tell_of_is_found_and_mended(stores):
    root = stores / "new/cells.zarr/zarr.json"
    before = root.read_bytes()
    root.write_bytes(before.replace(b'"schema_version": 2', b'"schema_version": 1'))

    with pytest.raises(StoreError, match="its attributes are not those that the journal tells of"):
        open_sweep(stores / "new")
    assert not verify_store(stores / "new", sample=0).sound
    run_into_store(SPEC, stores / "new")
    assert root.read_bytes() == before
    root.unlink()  # and written anew with it
    repair_store(stores / "new", sample=0)
    assert root.read_bytes() == before


def stopping_after(count, cancel):
    real = StoredRun.accept

    def accept(run, *given):
        real(run, *given)
        if len(run.store.journal.units("cells")) == count:
            cancel.set()

    return accept


def test_a_store_with_the_older_digests_is_read_verified_and_grows(stores):
    assert (
        read_table(stores / "old", "batches")
        .collect()
        .equals(read_table(stores / "new", "batches").collect())
    )
    assert verify_store(stores / "old", everything=True).sound
    larger = SPEC.replace(seeds=tuple(range(8)))
    run_into_store(larger, stores / "old")
    run_into_store(larger, stores / "new")
    assert tree(stores / "old") == tree(stores / "new")
    assert verify_store(stores / "old", sample=0).sound


@pytest.mark.parametrize("name", ["old", "new"])
def test_a_part_that_is_not_the_one_is_refused_and_run_again(stores, name):
    before = tree(stores / name)
    part = sorted((stores / name / "tables/batches").iterdir())[1]
    other = sorted((stores / name / "tables/batches").iterdir())[0]
    part.write_bytes(other.read_bytes())
    with pytest.raises(StoreError, match=part.name):
        read_table(stores / name, "batches").collect()
    assert [finding.kind for finding in verify_store(stores / name, sample=0).findings] == ["table"]
    run_into_store(SPEC, stores / name)
    assert tree(stores / name) == before
