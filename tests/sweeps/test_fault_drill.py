"""A drill: stores are damaged or displaced in every way we know, and no command gives a wrong number.

Each command must give the right numbers, or end with exit code 3 and the name of a file; the run's command
may also run again what does not hold, and must then give the right numbers. The long form (`make
drill-stores`) takes every fault to every kind of store with many seeds; here each fault is taken once.
"""

from __future__ import annotations

import json
import os
import shutil
import threading

import numpy as np
import pytest
from oracle.damaged_stores import FAULTS, NothingToDamage
from oracle.small_sweeps import small_base, tree

from lagsweep.errors import StoreError
from lagsweep.sweeps.cli.main import main
from lagsweep.sweeps.execute.progress import Progress
from lagsweep.sweeps.runs.many import Cancelled
from lagsweep.sweeps.spec.make import make_spec
from lagsweep.sweeps.store import cut
from lagsweep.sweeps.store.merge import compact_store
from lagsweep.sweeps.store.store import SweepStore, open_sweep, read_table
from lagsweep.sweeps.store.writing import run_into_store

ROUNDS = int(os.environ.get("LAGSWEEP_DRILL_ROUNDS", "0"))  # over all kinds of stores, in the long form
SEED = 20_261_130
KINDS = ("finished", "unfinished", "extended", "merged", "compacted", "packed")
MERGED = ("merged", "compacted", "packed")  # of many small units: done, done by an older version, under way
BENIGN = (  # what is shown and run needs none of it
    "the_spec_file_is_altered",
    "foreign_and_unfinished_files_lie_about",
)


def the_spec(**changes):
    axes = {"max_lag": [0, 1, 3], "sync_cadence": [1, 2]}
    return make_spec(small_base(**changes), axes, 10, baseline=True, tables=["batches"])


SPEC = the_spec()
UNIT_RUNS = 18  # three seeds of six cells: 4 units, 1 of the baseline
SMALL = 3  # 20 units, 4 of the baseline: merged


@pytest.fixture(scope="module", autouse=True)
def few():
    """Merge what a real store would leave, to keep the drill small."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cut, "MOST_UNITS", 8)
        patched.setattr(cut, "MERGED_UNITS", 4)
        yield


def stopped_after(units, spec, folder, **options):
    """Run so many units and stop."""
    cancel, left = threading.Event(), [units]

    class Stop(Progress):
        def block(self, unit, runs, seconds):
            left[0] -= 1
            if left[0] == 0:
                cancel.set()

    with pytest.raises(Cancelled):
        run_into_store(spec, folder, executor="serial", progress=Stop(), cancel=cancel, **options)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One store of each kind, another sweep's store of the same shape, and what is right."""
    root = tmp_path_factory.mktemp("stores")
    run_into_store(SPEC, root / "finished", unit_runs=UNIT_RUNS)
    stopped_after(3, SPEC, root / "unfinished", unit_runs=UNIT_RUNS)
    run_into_store(SPEC.replace(seeds=tuple(range(5))), root / "extended", unit_runs=UNIT_RUNS)
    stopped_after(2, SPEC, root / "extended")
    run_into_store(the_spec(batch_tokens=140), root / "other", unit_runs=UNIT_RUNS)
    run_into_store(SPEC, root / "merged", unit_runs=SMALL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cut, "MOST_UNITS", 1000)
        run_into_store(SPEC, root / "compacted", unit_runs=SMALL)
    assert compact_store(root / "compacted")[1] == 5 + 4  # of the cells, and of the baseline
    assert tree(root / "compacted") == tree(root / "merged")
    stopped_after(9, SPEC, root / "packed", unit_runs=SMALL)
    assert (root / "packed/packs").exists()
    assert 0 < len(SweepStore(root / "unfinished").journal.units("cells")) < 4
    return root


@pytest.fixture(scope="module")
def right(stores):
    dataset = open_sweep(stores / "finished").load()
    rows = read_table(stores / "finished", "batches").collect()
    return dataset, dict(iter(rows.group_by("cell", "seed", maintain_order=True)))


def command(*arguments, capsys):
    """Run a command here; gives its exit code, and what it said."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def assert_right(folder, right):
    """Every value that a store gives is the right one, and whatever it does not give counts as not run."""
    dataset, rows = right
    mine = open_sweep(folder)
    for name, variable in mine.data_vars.items():
        status = mine["baseline_status" if name.startswith("baseline_") else "status"].values
        assert np.isin(status, (0, 1)).all()
        values, expected = variable.values, dataset[name].values
        np.testing.assert_array_equal(values[status == 1], expected[status == 1], err_msg=name)
        if not name.endswith(("status", "lag_counts")):
            missing = values[status == 0]
            assert (np.isnan(missing) if values.dtype.kind == "f" else missing == -1).all()
    for name in dataset.coords:
        np.testing.assert_array_equal(mine[name].values, dataset[name].values)
    if mine.attrs["complete"]:
        assert (mine["status"] == 1).all()
    try:
        frame = read_table(folder, "batches").collect()
    except StoreError as error:
        if not str(error).startswith("table: must be one that the store keeps"):
            raise
        assert not (mine["status"] == 1).any()
        return mine
    done = {
        (int(mine["cell"].values[at[:-1]]), int(mine["seed"].values[at[-1]]))
        for at in map(tuple, np.argwhere(mine["status"].values == 1))
    }
    found = dict(iter(frame.group_by("cell", "seed", maintain_order=True)))
    assert set(found) == done & set(rows)
    for key, part in found.items():
        assert part.equals(rows[key])
    return mine


@pytest.fixture(scope="module")
def truth(stores, tmp_path_factory):
    """What the commands say of undamaged stores; filled when first asked for."""

    class Truth(dict):
        def __missing__(self, kind):
            folder = tmp_path_factory.mktemp("truth")
            shutil.copytree(stores / kind, folder / "store")
            self[kind] = look(folder / "store", folder, self.capsys)
            return self[kind]

    return Truth()


def look(store, folder, capsys):
    """Give the commands that read: what each says, with the store's own path taken out."""
    cell = ("--cell", "max_lag=1,sync_cadence=2", "--seed", "1")
    commands = {
        "show": ("show", store, "--json"),
        "recommend": ("recommend", store, "--json"),
        "trace": ("trace", store, *cell, "--quiet", "--output", folder / "trace.json"),
    }
    said = {}
    for name, arguments in commands.items():
        code, *texts = command(*arguments, capsys=capsys)
        said[name] = (code, *(text.replace(str(folder), "") for text in texts))
    return said


def names_a_file(text):
    return any(
        mark in text
        for mark in ("zarr", "journal", "tables/", "packs/", "lock", "spec", "schema", "fingerprint")
    )


def drill(kind, name, seed, stores, right, truth, folder, capsys, *, everything):
    """Damage a copy of a store in one way, give every command, and hold what each says against the truth."""
    store = folder / "store"
    shutil.copytree(stores / kind, store)
    alike = "merged" if kind in MERGED else "finished"
    shutil.copyfile(stores / alike / "journal.jsonl", folder / "finished-journal")
    try:
        FAULTS[name](store, np.random.default_rng(seed), stores / "other")
    except NothingToDamage:
        return "nothing to damage"
    mine, refused = None, None
    try:
        mine = assert_right(store, right)
    except StoreError as error:
        refused = error
    assert refused is None or names_a_file(str(refused)), refused
    before = open_sweep(stores / kind)
    fewer = mine is not None and not all(
        mine[name].equals(before[name]) for name in ("status", "baseline_status")
    )
    said = look(store, folder, capsys)
    for what, (code, out, err) in said.items():
        assert "Traceback" not in err
        assert code in (0, 3) or (fewer and code in (1, 2)), (what, code, err)  # nothing there to tell of
        if code == 3:
            assert refused is not None, (what, err)
            assert names_a_file(err + out)
        elif not fewer:
            assert (code, out) == truth[kind][what][:2], what
    assert "NOT the stored run" not in said["trace"][1] + said["trace"][2]
    if refused is None:
        assert json.loads(said["show"][1])["runs"]["done"] == int((mine["status"] == 1).sum())
    if everything:
        code, out, err = command("report", store, "--output", folder / "page.html", capsys=capsys)
        assert code in (0, 3 if refused else 0, 2 if fewer else 0), err
    verified = command("verify", store, "--quiet", "--sample", "5", "--json", capsys=capsys)
    assert verified[0] in (0, 1, 3)
    assert refused is None or verified[0] in (1, 3), verified
    run_and_compare(kind, name, store, stores, right, folder, capsys)
    return "refused" if refused else "right"


def run_and_compare(kind, name, store, stores, right, folder, capsys):
    """Resume one copy, repair and resume another: both end with the right numbers, or name a file."""
    repaired = folder / "repaired"
    shutil.copytree(store, repaired, symlinks=True, ignore=shutil.ignore_patterns("lock"))
    run_command = ("run", stores / "finished/spec.toml", "--quiet", "--executor", "serial", "--store")
    code, out, err = command(*run_command, store, capsys=capsys)
    assert code in (0, 3), err
    if code == 0:
        assert_right(store, right)
        assert open_sweep(store).attrs["complete"]
        code, out, _ = command("verify", store, "--quiet", "--sample", "5", capsys=capsys)
        stray = [line for line in out.splitlines() if "does not belong" in line or "not tell of it" in line]
        spec = [line for line in out.splitlines() if line.startswith("spec: ")]
        assert code == 0 or len(stray) + len(spec) == len(out.splitlines()) - 1, out
    else:
        assert names_a_file(err), err
    code, out, err = command("verify", repaired, "--repair", "--quiet", "--sample", "5", capsys=capsys)
    if code == 3:  # no link is written through
        assert name == "a_chunk_is_a_link", err
        assert names_a_file(err)
        return
    assert code == 0, out + err
    code, _, err = command(*run_command, repaired, capsys=capsys)
    assert code == 0, err
    assert_right(repaired, right)
    assert command("verify", repaired, "--quiet", "--sample", "5", capsys=capsys)[0] == 0
    if kind != "extended":
        assert tree(repaired) == tree(stores / ("merged" if kind in MERGED else "finished"))


def cases():
    if ROUNDS:
        return [(kind, name, SEED + number) for number in range(ROUNDS) for name in FAULTS for kind in KINDS]
    before, now = [kind for kind in KINDS if kind not in MERGED], [*MERGED]
    return [
        (kinds[number % 3] if "pack" not in name else "packed", name, SEED + number)
        for number, name in enumerate(FAULTS)
        for kinds in ((before, now) if "pack" not in name else (now,))
    ]


@pytest.mark.parametrize(("kind", "name", "seed"), cases())
def test_a_damaged_store_gives_the_right_numbers_or_an_error(
    kind, name, seed, stores, right, truth, tmp_path, capsys
):
    truth.capsys = capsys
    found = drill(kind, name, seed, stores, right, truth, tmp_path, capsys, everything=seed % 12 == 0)
    print(found)
    precious = tmp_path / "precious.txt"
    assert not precious.exists() or precious.read_text() == "keep me"
