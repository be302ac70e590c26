"""Digests of a store's files: the older form and the newer are both held against the files."""

from __future__ import annotations

import hashlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.digests import FAST, fast_digest, file_holds, holds
from lagsweep.sweeps.store.journal import journal_line, read_line
from lagsweep.sweeps.store.store import read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

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
