"""Many small units are merged when all is done: other files, the same values, whatever happens on the way."""

from __future__ import annotations

import shutil

import numpy as np
import polars as pl
import pytest
import xarray as xr
from oracle.damaged_stores import FAULTS, NothingToDamage
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import aside, cut, merge
from lagsweep.sweeps.store.folder_content import content_of_folder
from lagsweep.sweeps.store.merge import compact_store
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

SPEC = make_spec(
    small_base(), {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}, 24, baseline=True, tables=["batches"]
)
SMALL = {"unit_runs": 2, "executor": "serial"}  # 72 units of the cells, 12 of the baseline


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "store"
    run_into_store(SPEC, folder, executor="serial")
    return folder


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merged") / "store"
    run_into_store(SPEC, folder, **SMALL)
    return folder


def rows(folder):
    return read_table(folder, "batches").collect().sort("cell", "seed", maintain_order=True)


def test_many_small_units_end_as_few_and_plain_chunks(merged, whole):
    cells = SweepStore(merged).part("cells").layout
    assert cells.count <= cut.MOST_UNITS < 72
    assert not (merged / "packs").exists()
    xr.testing.assert_identical(open_sweep(merged).load(), open_sweep(whole).load())
    plain = xr.open_zarr(merged / "cells.zarr")
    np.testing.assert_array_equal(plain["trained_tokens"], open_sweep(whole)["trained_tokens"])
    assert rows(merged).equals(rows(whole))
    assert verify_store(merged, everything=True).sound


def test_the_content_is_that_of_the_same_runs_in_other_units(merged, whole):
    assert content_of_folder(merged) == content_of_folder(whole)
    assert verify_store(merged, everything=True).content == content_of_folder(whole)


def test_the_content_of_an_extended_store_is_that_of_a_fresh_one(tmp_path, whole):
    run_into_store(SPEC.replace(seeds=tuple(range(7))), tmp_path / "s", executor="serial")
    assert content_of_folder(tmp_path / "s") != content_of_folder(whole)
    run_into_store(SPEC, tmp_path / "s", executor="serial")
    assert content_of_folder(tmp_path / "s") == content_of_folder(whole)


@pytest.mark.parametrize("moment", ["carry_over", "finish", "first rename", "second rename"])
def test_a_kill_while_units_are_merged_loses_nothing_and_ends_with_the_same_bytes(
    moment, tmp_path, merged, monkeypatch
):
    folder, renames = tmp_path / "s", []

    def killed(*_):
        raise KeyboardInterrupt

    def rename(old, new, of=aside.os.rename):
        renames.append(old)
        if len(renames) == (1 if moment == "first rename" else 2):
            raise KeyboardInterrupt
        of(old, new)

    with monkeypatch.context() as patched:
        if moment == "carry_over":
            patched.setattr(merge, "carry_over", killed)
        elif moment == "finish":
            patched.setattr(SweepStore, "finish", killed)
        elif "rename" in moment:
            patched.setattr(merge, "replace_store", renaming(patched, rename))
        with pytest.raises(KeyboardInterrupt):
            run_into_store(SPEC, folder, **SMALL)
    if folder.exists():
        assert (open_sweep(folder)["status"] == 1).all()
    units = []
    monkeypatch.setattr(SweepStore, "write_unit", lambda *_: units.append(1))
    run_into_store(SPEC, folder, **SMALL)
    assert not units
    assert tree(folder) == tree(merged)


def renaming(patched, rename, of=merge.replace_store):
    def replaced(*arguments):
        patched.setattr(aside.os, "rename", rename)
        return of(*arguments)

    return replaced


def test_a_damaged_pack_of_a_store_under_way_is_refused_and_run_again(tmp_path, merged, monkeypatch):
    folder = tmp_path / "s"
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_into_store(SPEC, folder, **SMALL)
    packs = sorted((folder / "packs").iterdir())
    first, second = packs[0].read_bytes(), packs[1].read_bytes()
    packs[0].write_bytes(second)
    packs[1].write_bytes(first)
    packs[2].unlink()
    assert {finding.kind for finding in verify_store(folder, sample=0).findings} == {"chunk"}
    with pytest.raises(StoreError, match="packs/"):
        open_sweep(folder).load()
    run_into_store(SPEC, folder, **SMALL)
    assert tree(folder) == tree(merged)


def test_compact_merges_an_older_store_as_its_run_would(tmp_path, merged, monkeypatch, capsys):
    folder = tmp_path / "s"
    with monkeypatch.context() as patched:
        for module in (merge, cut):
            patched.setattr(module, "merged_parts", lambda spec, parts: list(parts))
        patched.setattr("lagsweep.sweeps.store.store.merged_parts", lambda spec, parts: list(parts))
        run_into_store(SPEC, folder, **SMALL)
    assert SweepStore(folder).part("cells").layout.count == 72
    with pytest.raises(SystemExit) as ended:
        main(["compact", str(folder), "--quiet"])
    assert ended.value.code == 0
    assert tree(folder) == tree(merged)
    assert compact_store(folder) == compact_store(merged)


def test_compact_refuses_a_store_that_is_not_finished_or_is_damaged(tmp_path, merged):
    shutil.copytree(merged, tmp_path / "s", ignore=shutil.ignore_patterns("lock"))
    SweepStore(tmp_path / "s").reopen()
    with pytest.raises(StoreError, match="must be finished"):
        compact_store(tmp_path / "s")


@pytest.mark.parametrize("name", list(FAULTS)[::6])
def test_a_damaged_merged_store_gives_the_right_numbers_or_an_error(name, tmp_path, merged, whole):
    store = tmp_path / "s"
    shutil.copytree(merged, store, ignore=shutil.ignore_patterns("lock"))
    shutil.copyfile(merged / "journal.jsonl", tmp_path / "finished-journal")
    try:
        FAULTS[name](store, np.random.default_rng(1), whole)
        mine = open_sweep(store).load()
    except (StoreError, NothingToDamage):
        return
    right = open_sweep(whole).load()
    done = (mine["status"] == 1).values
    for name in ("trained_tokens", "mean_lag", "max_lag_observed"):
        np.testing.assert_array_equal(mine[name].values[done], right[name].values[done])


def test_a_trace_of_a_run_of_an_older_model_is_refused(merged, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(results, "MODEL_REVISION", 7)
    arguments = ["trace", str(merged), "--cell", "max_lag=1,sync_cadence=1", "-o", str(tmp_path / "t.json")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 3
    assert "model_revision" in capsys.readouterr().err


def test_show_and_verify_print_the_content(merged, capsys):
    content = content_of_folder(merged)
    for arguments in (["show", str(merged)], ["verify", str(merged), "--sample", "0", "--quiet"]):
        with pytest.raises(SystemExit):
            main(arguments)
        said = capsys.readouterr()
        assert content in said.out + said.err


def test_rows_of_merged_units_are_in_the_order_of_their_runs(merged):
    frame = pl.read_parquet(sorted((merged / "tables/batches").iterdir())[0])
    runs = frame.select("cell", "seed").unique(maintain_order=True)
    order = {int(cell): place for place, cell in enumerate(open_sweep(merged)["cell"].values.reshape(-1))}
    keys = [(order[cell], seed) for cell, seed in runs.iter_rows()]
    assert keys == sorted(keys)
