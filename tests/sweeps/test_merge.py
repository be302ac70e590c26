"""Many small units are merged when all is done: other files, the same values, whatever happens on the way."""

from __future__ import annotations

import errno
import shutil
import threading

import numpy as np
import polars as pl
import pytest
import xarray as xr
from oracle.damaged_stores import FAULTS, NothingToDamage
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.results import dataset as results
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import aside, carry, cut, merge
from lagsweep.sweeps.store import store as store_module
from lagsweep.sweeps.store.folder_content import content_of_folder
from lagsweep.sweeps.store.journal import Journal, journal_line, read_line
from lagsweep.sweeps.store.lock import StoreLock
from lagsweep.sweeps.store.merge import compact_store
from lagsweep.sweeps.store.place import Place
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.verify import verify_store
from lagsweep.sweeps.store.writing import run_into_store

SPEC = make_spec(
    small_base(), {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}, 8, baseline=True, tables=["batches"]
)
SMALL = {"unit_runs": 2, "executor": "serial"}  # 24 units of the cells, 4 of the baseline


@pytest.fixture(scope="module", autouse=True)
def few():
    """Merge what a real store would leave, to keep the tests small."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cut, "MOST_UNITS", 8)
        patched.setattr(cut, "MERGED_UNITS", 4)
        yield


def stopped(*_, **__):
    raise KeyboardInterrupt


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


@pytest.fixture(params=["blocks", "chunks"])
def form(request, monkeypatch):
    """Pack units in either form: as small ones are packed, and as larger ones."""
    if request.param == "chunks":
        monkeypatch.setattr(store_module, "BLOCK_BYTES", 0)
    return request.param


@pytest.fixture(scope="module")
def unmerged(tmp_path_factory):
    """A finished store as an older version left it: all its units, and no digest of the content."""
    folder = tmp_path_factory.mktemp("unmerged") / "store"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cut, "MOST_UNITS", 10**6)
        run_into_store(SPEC, folder, **SMALL)
    lines = [read_line(line) for line in (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)]
    for line in lines:
        line.pop("content", None)
    (folder / "journal.jsonl").write_bytes(b"".join(map(journal_line, lines)))
    return folder


def rows(folder):
    return read_table(folder, "batches").collect().sort("cell", "seed", maintain_order=True)


def test_many_small_units_end_as_few_and_plain_chunks(merged, whole):
    cells = SweepStore(merged).part("cells").layout
    assert cells.count <= cut.MOST_UNITS < 24
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


class Killed(BaseException):
    """Stand in for a kill: what it leaves is tidied up by no handler of ours."""


class Kills:
    """Counts all that changes what lies on the disk, and kills ahead of a given one."""

    def __init__(self, monkeypatch, at=None):
        self.names, self.at, self.held = [], at, []
        for owner, name in (
            (Place, "write"),
            (Journal, "append"),
            (carry, "_link"),
            (aside, "exchange"),
            (aside.os, "rename"),
            (aside.shutil, "rmtree"),
        ):
            monkeypatch.setattr(owner, name, self.counted(name, getattr(owner, name)))
        make = StoreLock.__init__

        def made(lock, path):
            self.held.append(lock)
            make(lock, path)

        monkeypatch.setattr(StoreLock, "__init__", made)
        release = StoreLock.release
        monkeypatch.setattr(StoreLock, "release", lambda lock: None if self.dead else release(lock))

    @property
    def dead(self):
        return self.at is not None and len(self.names) > self.at

    def counted(self, name, real):
        def call(*arguments, **options):
            if not self.dead:
                self.names.append(name)
            if self.dead:
                raise Killed
            return real(*arguments, **options)

        return call

    def as_the_system_does(self):
        """Take back the locks of a process that is gone."""
        for lock in self.held:
            if not lock._file.closed:
                lock._stop.set()
                lock._file.close()


def killed_at(number, monkeypatch, act, *, exchanging=True):
    """Do something and kill it ahead of change number `number`; gives what that change was."""
    with monkeypatch.context() as patched:
        if not exchanging:
            patched.setattr(aside, "exchange", lambda *_: False)
        kills = Kills(patched, number)
        with pytest.raises(Killed):
            act()
    kills.as_the_system_does()
    return kills.names[-1]


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """What a run changes on the disk, one by one, and where its merging begins; without the exchange."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(aside, "exchange", lambda *_: False)
        kills = Kills(patched)
        run_into_store(SPEC, tmp_path_factory.mktemp("counted") / "s", **SMALL)
    units = [place for place, name in enumerate(kills.names) if name == "append"][28]
    return kills.names, units


@pytest.mark.parametrize("exchanging", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.97, -4, -3, -2, -1])
def test_a_kill_while_units_are_merged_loses_nothing_and_ends_with_the_same_bytes(
    share, exchanging, tmp_path, merged, changes, monkeypatch
):
    """Killed ahead of any change, from the last unit's line on: the same command runs nothing again."""
    folder, (names, merging) = tmp_path / "s", changes
    count = len(names) - 2 * exchanging  # which takes the place of two renames
    number = count + share if share < 0 else merging + 1 + int(share * (count - merging - 8))
    killed_at(number, monkeypatch, lambda: run_into_store(SPEC, folder, **SMALL), exchanging=exchanging)
    if folder.exists():
        assert (open_sweep(folder)["status"] == 1).all()
    else:
        assert not exchanging
        with pytest.raises(StoreError, match="or `lagsweep compact` goes on"):
            open_sweep(folder)
    units = []
    with monkeypatch.context() as patched:
        patched.setattr(SweepStore, "write_unit", lambda *_: units.append(1))
        run_into_store(SPEC, folder, **SMALL)
    assert not units
    assert tree(folder) == tree(merged)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert verify_store(folder, sample=0).sound


@pytest.mark.parametrize("number", [130, 131, 132, 160])
def test_a_kill_while_units_are_packed_loses_the_unit_in_hand(number, tmp_path, merged, changes, monkeypatch):
    folder, (names, merging) = tmp_path / "s", changes
    assert number < merging
    killed_at(number, monkeypatch, lambda: run_into_store(SPEC, folder, **SMALL))
    done = names[:number].count("append") - 1
    assert sum(record["kind"] == "unit" for record in SweepStore(folder).journal.records) == max(done, 0)
    assert verify_store(folder, everything=True).findings == []
    run_into_store(SPEC, folder, **SMALL)
    assert tree(folder) == tree(merged)


def test_units_of_both_forms_are_read_extended_and_merged_together(tmp_path, merged, monkeypatch):
    """As in a store that was begun when every pack was made of chunks."""
    folder = tmp_path / "s"
    smaller = SPEC.replace(seeds=tuple(range(6)))
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", stopped)
        patched.setattr(store_module, "BLOCK_BYTES", 0)
        with pytest.raises(KeyboardInterrupt):
            run_into_store(smaller, folder, **SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_into_store(SPEC, folder, **SMALL)
    units = SweepStore(folder).journal.units("cells").values()
    assert {("sizes" in unit, "block" in unit) for unit in units} == {(True, False), (False, True)}
    assert len(units) == 24
    xr.testing.assert_identical(
        open_sweep(folder).load().drop_attrs(), open_sweep(merged).load().drop_attrs()
    )
    assert verify_store(folder, everything=True).findings == []
    run_into_store(SPEC, folder, **SMALL)
    assert tree(folder) == tree(merged)


@pytest.mark.parametrize("act", ["compact", "run"])
@pytest.mark.parametrize("share", [0.5, -3, -2, -1])
def test_a_killed_compact_is_finished_or_undone_by_the_next_command(
    act, share, tmp_path, merged, unmerged, monkeypatch
):
    folder = tmp_path / "s"
    shutil.copytree(unmerged, folder, ignore=shutil.ignore_patterns("lock"))
    with monkeypatch.context() as patched:
        patched.setattr(aside, "exchange", lambda *_: False)
        kills = Kills(patched)
        compact_store(shutil.copytree(folder, tmp_path / "counted"))
    shutil.rmtree(tmp_path / "counted")
    number = len(kills.names) + share if share < 0 else int(share * len(kills.names))
    killed_at(number, monkeypatch, lambda: compact_store(folder), exchanging=False)
    if act == "compact":
        compact_store(folder)
        assert tree(folder) == tree(merged)
    else:  # a finished store stays as it is: unless the merge was as good as done
        before = tree(unmerged)
        run_into_store(SPEC, folder, **SMALL)
        assert tree(folder) in (before, tree(merged))
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert verify_store(folder, sample=0).sound


def test_a_merge_that_is_stopped_or_finds_the_disk_full_leaves_all_units(tmp_path, merged, monkeypatch):
    folder, real, left = tmp_path / "s", Place.write, [170 + 100]

    def write(place, name, content):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(place, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(Place, "write", write)
        with pytest.raises(StoreError, match="cannot grow: No space left on device"):
            run_into_store(SPEC, folder, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert len(list((folder / "packs").iterdir())) == 24
    cancel = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(merge, "replace_store", lambda *given: (cancel.set(), aside.replace_store(*given))[1])
        with pytest.raises(Cancelled):
            run_into_store(SPEC, folder, cancel=cancel, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    run_into_store(SPEC, folder, **SMALL)
    assert tree(folder) == tree(merged)


def test_a_store_that_another_process_gives_its_name_to_is_not_begun_anew(tmp_path, merged):
    replaced = shutil.copytree(merged, tmp_path / "s.replaced-12345678")
    with StoreLock(replaced):
        for act in (lambda: run_into_store(SPEC, tmp_path / "s"), lambda: compact_store(tmp_path / "s")):
            with pytest.raises(StoreError, match="another process is extending it or merging"):
                act()
    compact_store(tmp_path / "s")
    assert tree(tmp_path / "s") == tree(merged)


def test_no_pack_stays_in_a_store_whose_units_are_not_to_be_merged_any_more(
    tmp_path, merged, monkeypatch, form
):
    """As when a value is added whose runs are so long that its units stay small."""
    folder = tmp_path / "s"
    smaller = SPEC.replace(seeds=tuple(range(6)))
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_into_store(smaller, folder, **SMALL)
    assert (folder / "packs").exists()
    monkeypatch.setattr(cut, "MOST_UNITS", 1000)
    run_into_store(SPEC, folder, executor="serial")
    assert not (folder / "packs").exists()
    assert not any("pack" in record for record in SweepStore(folder).journal.records)
    assert verify_store(folder, everything=True).findings == []
    np.testing.assert_array_equal(
        xr.open_zarr(folder / "cells.zarr")["trained_tokens"], open_sweep(merged)["trained_tokens"]
    )


def test_packs_of_a_finished_run_become_chunks_also_where_nothing_is_merged(
    tmp_path, merged, monkeypatch, form
):
    folder = tmp_path / "s"
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_into_store(SPEC, folder, **SMALL)
    monkeypatch.setattr(cut, "MOST_UNITS", 1000)
    run_into_store(SPEC, folder, executor="serial")
    assert not (folder / "packs").exists()
    assert SweepStore(folder).part("cells").layout.count == 24
    assert verify_store(folder, everything=True).findings == []


def test_a_damaged_pack_of_a_store_under_way_is_refused_and_run_again(tmp_path, merged, monkeypatch, form):
    folder = tmp_path / "s"
    with monkeypatch.context() as patched:
        patched.setattr(merge, "carry_over", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_into_store(SPEC, folder, **SMALL)
    packs = sorted((folder / "packs").iterdir())
    first, second = packs[0].read_bytes(), packs[1].read_bytes()
    packs[0].write_bytes(second)
    packs[1].write_bytes(first)
    packs[2].unlink()
    cut_off, flipped, longer = (pack.read_bytes() for pack in packs[3:6])
    packs[3].write_bytes(cut_off[:-5])
    packs[4].write_bytes(bytes([*flipped[:40], flipped[40] ^ 4, *flipped[41:]]))
    packs[5].write_bytes(longer + longer)
    assert {finding.kind for finding in verify_store(folder, sample=0).findings} == {"chunk"}
    with pytest.raises(StoreError, match="packs/"):
        open_sweep(folder).load()
    run_into_store(SPEC, folder, **SMALL)
    assert tree(folder) == tree(merged)


def test_compact_merges_an_older_store_as_its_run_would(tmp_path, merged, unmerged, capsys):
    folder = tmp_path / "s"
    shutil.copytree(unmerged, folder, ignore=shutil.ignore_patterns("lock"))
    assert SweepStore(folder).part("cells").layout.count == 24
    with pytest.raises(SystemExit) as ended:
        main(["compact", str(folder), "--quiet"])
    assert ended.value.code == 0
    assert tree(folder) == tree(merged)
    assert compact_store(folder) == compact_store(merged)
    assert content_of_folder(folder) == content_of_folder(merged)


def test_a_finished_store_of_an_older_version_is_read_verified_and_left_as_it_is(
    tmp_path, merged, unmerged, capsys
):
    folder = tmp_path / "s"
    shutil.copytree(unmerged, folder, ignore=shutil.ignore_patterns("lock"))
    before = tree(folder)
    xr.testing.assert_identical(open_sweep(folder).load(), open_sweep(merged).load())
    run_into_store(SPEC, folder)
    assert tree(folder) == before
    assert content_of_folder(folder) == ""
    assert verify_store(folder, everything=True).content == content_of_folder(merged)
    with pytest.raises(SystemExit) as ended:
        main(["show", str(folder)])
    assert ended.value.code == 0
    assert "content" not in capsys.readouterr().err


def test_an_older_store_that_grows_is_merged_when_it_is_done(tmp_path, unmerged):
    folder, larger = tmp_path / "s", SPEC.replace(seeds=tuple(range(12)))
    shutil.copytree(unmerged, folder, ignore=shutil.ignore_patterns("lock"))
    run_into_store(larger, folder, executor="serial")
    assert SweepStore(folder).part("cells").layout.count <= cut.MOST_UNITS
    run_into_store(larger, tmp_path / "fresh", executor="serial")
    assert content_of_folder(folder) == content_of_folder(tmp_path / "fresh")
    assert verify_store(folder, everything=True).sound


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
