"""A lost or damaged ``cells.zarr/zarr.json`` is refused by every reader and written anew by a repair."""

from __future__ import annotations

import json
import shutil

import pytest
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store.journal import journal_line, read_line
from lagsweep.sweeps.store.repair import repair_store
from lagsweep.sweeps.store.store import open_sweep
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

SPEC = make_spec(small_base(), {"max_lag": [0, 1, 3]}, 6, baseline=True, tables=["batches"])
DAMAGES = {
    "lost": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:700]),
    "no attributes": lambda path: path.write_text(json.dumps({"zarr_format": 3, "node_type": "group"})),
    "another spec": lambda path: path.write_bytes(
        path.read_bytes().replace(b'rollout_workers\\":3', b'rollout_workers\\":4')
    ),
    "another law": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"law_digest": "', b'"law_digest": "f')
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "store"
    run_into_store(SPEC, folder, unit_runs=6)
    return folder


@pytest.fixture
def store(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "store", ignore=shutil.ignore_patterns("lock"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_refused_and_then_written_anew_byte_for_byte(store, sound, damage):
    root = store / "cells.zarr/zarr.json"
    before = root.read_bytes()
    DAMAGES[damage](root)
    assert not root.exists() or root.read_bytes() != before
    for act in (run_into_store.__name__, "verify"):
        with pytest.raises(StoreError):
            run_into_store(SPEC, store) if act == "run_into_store" else verify_store(store)

    report = repair_store(store, sample=5)

    assert report.findings[0].where == "zarr.json"
    assert report.repairs[0] == "wrote cells.zarr/zarr.json anew"
    assert report.left == []
    assert tree(store) == tree(sound)
    assert open_sweep(store).attrs == open_sweep(sound).attrs


def test_of_an_unfinished_store_it_says_incomplete_and_the_run_goes_on(store, sound):
    lines = (store / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (store / "journal.jsonl").write_bytes(b"".join(lines[:-2]))
    (store / "cells.zarr/zarr.json").unlink()
    repair_store(store, sample=0)
    assert not open_sweep(store).attrs["complete"]
    run_into_store(SPEC, store)
    assert tree(store) == tree(sound)


def test_a_store_keeps_the_revision_and_the_versions_that_made_it(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "library_versions", lambda: {"numba_version": "0.1"})
    run_into_store(SPEC, tmp_path / "s")
    monkeypatch.undo()
    (tmp_path / "s/cells.zarr/zarr.json").unlink()
    repair_store(tmp_path / "s", sample=5)
    assert open_sweep(tmp_path / "s").attrs["numba_version"] == "0.1"


def test_of_an_older_store_the_versions_are_not_made_up(store, sound):
    lines = [read_line(line) for line in (store / "journal.jsonl").read_bytes().splitlines(keepends=True)]
    del lines[0]["made"]
    (store / "journal.jsonl").write_bytes(b"".join(map(journal_line, lines)))
    (store / "cells.zarr/zarr.json").unlink()
    report = repair_store(store, sample=20)
    assert "which versions made the store is not known" in report.repairs[0]
    assert report.runs_checked == 20
    assert report.left == []
    attributes = open_sweep(store).attrs
    assert "numba_version" not in attributes
    assert attributes["complete"]


@pytest.mark.parametrize("lost", ["journal.jsonl", "spec.toml", "another's spec.toml", "cells.zarr"])
def test_nothing_is_made_up_where_what_says_it_is_gone_too(store, tmp_path, lost):
    (store / "cells.zarr/zarr.json").unlink()
    if lost == "cells.zarr":
        shutil.rmtree(store / lost)
    elif lost.startswith("another"):
        text = (store / "spec.toml").read_text()
        (store / "spec.toml").write_text(text.replace("batch_tokens = 150", "batch_tokens = 151"))
    else:
        (store / lost).unlink()
    before = tree(store)
    with pytest.raises(StoreError):
        repair_store(store)
    assert tree(store) == before
